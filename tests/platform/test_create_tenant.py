"""`manage.py create_tenant`: the first tenant of an installation, and what it says when it cannot be made."""

from __future__ import annotations

import io

import pytest
from django.core.management import CommandError, call_command

from control_plane.identity.keys.auth import authenticate_key
from control_plane.identity.tenants.models import Membership, Tenant
from control_plane.management.commands.create_tenant import PASSWORD_VARIABLE

pytestmark = pytest.mark.django_db


def create(slug: str = "acme", owner: str = "ada@example.org", *options: str) -> str:
    output = io.StringIO()
    call_command("create_tenant", slug, "--owner", owner, *options, stdout=output)
    return output.getvalue()


def test_a_password_is_made_and_shown_once() -> None:
    said = create()
    password = next(line for line in said.splitlines() if line.startswith("Password")).split()[1]
    member = Membership.objects.select_related("user", "tenant").get()
    assert (member.tenant.slug, member.role) == ("acme", "owner")
    assert member.user.check_password(password)


def test_a_password_that_is_given_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "a-long-and-unlikely-word-9")
    said = create("acme", "ada@example.org", "--key", "first")
    assert "Password" not in said and "unlikely" not in said
    key = next(word for word in said.split() if word.startswith("lk_"))
    assert authenticate_key(key) is not None
    assert Membership.objects.get().user.check_password("a-long-and-unlikely-word-9")


@pytest.mark.parametrize(
    ("slug", "password", "words"),
    [("not a slug!", "", "slug|name|letters"), ("acme", "short", "password"), ("taken", "", "taken|already")],
)
def test_what_cannot_be_made_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, slug: str, password: str, words: str
) -> None:
    create("taken", "bob@example.org")
    if password:
        monkeypatch.setenv(PASSWORD_VARIABLE, password)
    with pytest.raises(CommandError, match=f"(?i){words}"):
        create(slug)
    assert Tenant.objects.count() == Membership.objects.count() == 1
