"""The watch over all tests finds what it is there for."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone
from lorikeet_testing import audit_watch

from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.audit import actions as audit
from control_plane.identity.keys.models import ApiKey
from control_plane.identity.tenants.models import Tenant

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def every_write_is_audited() -> None:
    """Not here: these tests are about what it finds."""


def as_product(function: Any) -> Any:
    """The function, as if it stood in a file of the product."""
    code = function.__code__.replace(co_filename=f"{audit_watch.PRODUCT}/keys/sloppy.py")
    return FunctionType(code, function.__globals__, function.__name__)


def unsafe() -> None:
    ApiKey.objects.update(revoked_at=timezone.now())


def silent() -> None:
    with transaction.atomic():
        ApiKey.objects.update(revoked_at=timezone.now())


def undone() -> None:
    with transaction.atomic():
        ApiKey.objects.update(revoked_at=timezone.now())
        raise ValueError


def proper() -> None:
    with transaction.atomic():
        ApiKey.objects.update(revoked_at=timezone.now())
        tenant = Tenant.objects.get(slug="acme")
        audit.record(SYSTEM, "key.revoke", tenant, tenant=tenant)


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (unsafe, ["keys/sloppy.py unsafe changes keys_apikey outside of a transaction"]),
        (silent, ["keys/sloppy.py silent changes keys_apikey, and its transaction writes no audit row"]),
        (undone, []),
        (proper, []),
    ],
)
def test_findings(acme: Any, function: Any, found: list[str]) -> None:
    with audit_watch.audit_watch() as watch:
        try:
            as_product(function)()
        except ValueError:
            assert function is undone
    assert watch.findings == found
