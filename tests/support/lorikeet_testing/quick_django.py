"""Shortcuts for work that Django repeats in each test: it was half of the time of the platform's tests.

A test client makes the middleware anew, and WhiteNoise's looks at all files of the console. After a test that commits,
Django's `flush` has PostgreSQL make seventy tables anew, and then makes permissions that nobody asks about.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import OperationalError, connection, transaction
from django.test import TransactionTestCase
from psycopg.errors import DeadlockDetected
from whitenoise.base import WhiteNoise
from whitenoise.middleware import WhiteNoiseMiddleware

KEPT = {"django_content_type", "auth_permission"}
MAX_DEADLOCK_RETRIES = 5


@contextmanager
def quick_django() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        _find_static_files_once(patch)
        patch.setattr(TransactionTestCase, "_fixture_teardown", lambda case: empty_database())
        yield


def empty_database() -> None:
    """Deletes all rows but those that Django makes for itself, once nobody else is writing.

    Whoever of the test still reads, in a thread that nobody waits for, has locked some of the tables in another order:
    PostgreSQL then ends one of the two.
    """
    for deadlocks in range(MAX_DEADLOCK_RETRIES):
        try:
            _empty()
            break
        except OperationalError as error:
            if not isinstance(error.__cause__, DeadlockDetected) or deadlocks == MAX_DEADLOCK_RETRIES - 1:
                raise


def _empty() -> None:
    with transaction.atomic():
        statements = _emptying_postgres() if connection.vendor == "postgresql" else _emptying_sqlite()
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


@functools.cache
def _tables() -> list[str]:
    names = connection.introspection.django_table_names(only_existing=True, include_views=False)
    return [connection.ops.quote_name(name) for name in names if name not in KEPT]


def _emptying_postgres() -> list[str]:
    """Return one statement that deletes all rows without checking foreign keys, none of which dangle afterwards."""
    deletes = (f"DELETE FROM {table}" for table in _tables())
    lock = f"LOCK TABLE {', '.join(_tables())} IN ACCESS EXCLUSIVE MODE"
    return ["; ".join(["SET LOCAL session_replication_role = replica", lock, *deletes])]


def _emptying_sqlite() -> list[str]:
    return ["PRAGMA defer_foreign_keys = ON", *(f"DELETE FROM {table}" for table in _tables())]


def _find_static_files_once(patch: pytest.MonkeyPatch) -> None:
    find, find_in_packages = WhiteNoise.update_files_dictionary, WhiteNoiseMiddleware.add_files_from_finders
    files: dict[tuple[str, ...], dict[str, Any]] = {}

    def once(middleware: Any, key: tuple[str, ...], scan: Callable[[], None]) -> None:
        if key not in files:
            others, middleware.files = middleware.files, {}
            scan()
            files[key], middleware.files = middleware.files, others
        middleware.files |= files[key]

    def update_files_dictionary(middleware: Any, root: str, prefix: str) -> None:
        scan = functools.partial(find, middleware, root, prefix)
        if Path(root).is_relative_to(settings.BASE_DIR):
            once(middleware, (root, prefix), scan)
        else:  # a test's own
            scan()

    def add_files_from_finders(middleware: Any) -> None:
        once(middleware, (middleware.static_prefix,), functools.partial(find_in_packages, middleware))

    patch.setattr(WhiteNoise, "update_files_dictionary", update_files_dictionary)
    patch.setattr(WhiteNoiseMiddleware, "add_files_from_finders", add_files_from_finders)
