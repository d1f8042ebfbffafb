"""Every address of the gateway asks for a key, and looks at what the key may do."""

from __future__ import annotations

from typing import Any

import pytest
from lorikeet_testing.addresses import Address, methods_of
from lorikeet_testing.clients import call, keyed
from rest_framework.test import APIClient

from control_plane.core.http.access import Access


def of_gateway(address: Address, method: str) -> bool:
    """`GET /` is the console's first page; LoRAX's `POST /` shares its address."""
    return (address.route, method) != ("", "get")


@pytest.mark.django_db(transaction=True)  # the gateway's database threads must see what is made here
@pytest.mark.parametrize(
    ("address", "method"), [entry for entry in methods_of(Access.KEY) if of_gateway(*entry.values)]
)
def test_only_with_a_key(acme: Any, address: Address, method: str) -> None:
    path = address.path({"name": "support"})
    for stranger in (APIClient(), acme.client(), keyed("lk_abcdefgh_wrong")):
        assert call(stranger, method, path, {}).status_code in (401, 405)
    assert call(keyed(acme.key(scopes=["view"])[1]), method, path, {}).status_code in (403, 405)
    assert call(keyed(acme.key()[1]), method, path, {}).status_code not in (401, 403)
