"""Commands of `lorikeet` against a real web process, with a session and with a key."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from lorikeet_testing.console import Console
from lorikeet_testing.fake_engine import FakeEngineThread
from lorikeet_testing.web import TenantAccess, WebProcess, eventually

from lorikeet_cli import errors
from lorikeet_cli.main import main

ADD = """
import django; django.setup()
from control_plane.identity.tenants.models import Tenant
from lorikeet_testing.seed import add_version
add_version(Tenant.objects.get(slug="acme"), "support", 2)
add_version(Tenant.objects.get(slug="acme"), "support", 3)
from control_plane.identity.access.actor import SYSTEM
from control_plane.management.demo.people import PRICES, publish_prices, today
publish_prices(actor=SYSTEM, prices=PRICES, effective_on=today())  # budgets need prices
"""
HOOK = "https://app.example.org/hook"


@pytest.fixture(scope="module")
def web(engine_thread: FakeEngineThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebProcess]:
    web = WebProcess(tmp_path_factory.mktemp("web") / "var", f"local={engine_thread.engine.address}")
    web.seed()
    web.run("-c", ADD)
    web.start()
    web.wait_until_ready("support", "pirate")
    yield web
    web.stop()


class Shell:
    """A terminal: it runs commands, and knows what they printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str], acme: TenantAccess) -> None:
        self._capsys, self.acme = capsys, acme
        self.notes = ""

    def __call__(self, *words: str, code: int = 0) -> str:
        """Run a command and return its standard output; `notes` is its standard error."""
        returned = main(words)
        output, self.notes = self._capsys.readouterr()
        assert returned == code, output + self.notes
        return output

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))

    def fails(self, *words: str, code: int = errors.FAILED) -> str:
        self(*words, code=code)
        return self.notes


@pytest.fixture
def shell(
    web: WebProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    for name in [name for name in os.environ if name.startswith("LORIKEET_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    return Shell(capsys, web.tenants["acme"])


@pytest.fixture
def member(shell: Shell, web: WebProcess, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Logged in with a password, as an owner."""
    monkeypatch.setenv("LORIKEET_PASSWORD", shell.acme.password)
    shell("login", web.url, "--email", shell.acme.email, "--tenant", "acme")
    return shell


@pytest.fixture
def robot(shell: Shell, web: WebProcess) -> Shell:
    """Logged in with a key."""
    shell("login", web.url, "--tenant", "acme", "--key", shell.acme.key)
    return shell


def test_profiles_and_who_one_is(member: Shell, web: WebProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = member("whoami")
    assert member.acme.email in shown and "owner" in shown and "acme" in shown
    assert member.json("whoami")["user"]["email"] == member.acme.email
    member("login", web.url, "--tenant", "acme", "--key", member.acme.key, "--profile", "robot")
    assert member.json("whoami")["profile"] == "robot", "the last login is the current one"
    assert "infer" in member("whoami") and member.acme.key not in member("whoami", "--json")
    member("whoami", "--profile", "robot", "--json")
    assert member.json("whoami", "--profile", "default")["user"]["email"] == member.acme.email
    monkeypatch.setenv("LORIKEET_PROFILE", "default")
    assert "user" in member.json("whoami")
    monkeypatch.delenv("LORIKEET_PROFILE")
    member("profiles", "use", "default")
    assert [(each["name"], each["current"], each["kind"]) for each in member.json("profiles")] == [
        ("default", True, "session"),
        ("robot", False, "key"),
    ]
    assert member.acme.key not in member("profiles")
    assert "lorikeet profiles" in member.fails("whoami", "--profile", "nobody", code=errors.LOG_IN)
    member("logout")
    assert [each["name"] for each in member.json("profiles")] == ["robot"]
    monkeypatch.setenv("LORIKEET_URL", web.url)
    monkeypatch.setenv("LORIKEET_KEY", "lk_abcdefgh_wrong")
    monkeypatch.setenv("LORIKEET_TENANT", "acme")
    member.fails("whoami", code=errors.LOG_IN)
    assert member.json("whoami", "--profile", "robot")["key"], "an option is stronger than the environment"
    assert "environment" in member.fails("logout"), "what the environment names is not deleted"


def test_the_api_names_the_version_that_answers(robot: Shell, web: WebProcess) -> None:
    """`root` of a version is itself, whatever is live."""
    eventually(lambda: [v["state"] for v in robot.json("adapters", "support")["versions"]] == ["ready"] * 3)
    for live in (1, 2):
        robot("promote", f"support@v{live}")
        for name, root in (("support@v1", "support@v1"), ("support@v2", "support@v2"), ("support", f"support@v{live}")):
            answer = httpx.get(f"{web.url}/v1/models/{name}", headers=robot.acme.bearer, trust_env=False)
            assert answer.json()["root"] == root


def test_a_release_goes_forward_and_back(robot: Shell) -> None:
    eventually(lambda: [v["state"] for v in robot.json("adapters", "support")["versions"]] == ["ready"] * 3)
    live = robot.json("adapters", "support")["live_version"]
    for number in {1, 2} - {live}:
        robot("promote", f"support@v{number}")
        assert robot.json("adapters", "support")["live_version"] == number
        assert f"version {live} again" in (robot("rollback", "support"), robot.notes)[1]
        assert robot.json("aliases", "list", "support")[0]["version"] == live
    robot("promote", "support@v1")
    robot("canary", "start", "support@v2", "--percent", "25")
    assert "v2, 25 %" in robot("aliases", "list", "support")
    table = robot("canary", "show", "support")
    assert "v1" in table and "75 %" in table and "v2 (canary)" in table and "25 %" in table
    assert robot.json("canary", "show", "support")["alias"]["canary"] == 2
    models = {name: robot("chat", name, "Hello", "--json") for name in ("support@v1", "support@v2")}
    assert all(json.loads(answer)["model"] == name for name, answer in models.items())
    robot("canary", "stop", "support")
    assert "has no canary" in robot("canary", "show", "support")
    assert "percent" in robot.fails("canary", "start", "support@v2", "--percent", "100")
    robot("aliases", "set", "support@v2", "stable")
    assert robot("chat", "support@stable", "Hello")
    robot("aliases", "remove", "support", "stable")
    assert "`lorikeet adapters support` lists its aliases." in robot.fails("rollback", "support", "--alias", "stable")
    assert "aliases list" in robot.fails("canary", "show", "support", "--alias", "stable")


def test_versions_and_adapters_are_archived_restored_and_deleted(robot: Shell) -> None:
    eventually(lambda: [v["state"] for v in robot.json("adapters", "support")["versions"]] == ["ready"] * 3)
    robot("archive", "support@v3")
    assert "archived" in robot("adapters", "support")
    robot("restore", "support@v3")
    robot("archive", "support@v3")
    assert "--yes" in robot.fails("delete", "support@v3")
    robot("delete", "support@v3", "--yes")
    assert "`lorikeet adapters support` lists its versions." in robot.fails("promote", "support@v9")
    robot("archive", "pirate")
    assert "pirate" not in robot("adapters") and "pirate" in robot("adapters", "--archived")
    assert "pirate" in robot("restore", "pirate") + robot.notes
    assert "pirate" in robot("adapters", "--search", "pir") and "support" not in robot("adapters", "--search", "pir")
    assert "lorikeet adapters --archived" in robot.fails("restore", "pirate")
    assert "support" in robot("models")


def test_keys_their_limits_and_long_lists(member: Shell, console: Console) -> None:
    for number in range(4):
        member("keys", "create", f"worker {number}", "--scope", "infer")
    assert len(member("keys", "--limit", "2").splitlines()) == 3
    assert "2 of 6" in member.notes and "--all" in member.notes
    assert len(member.json("keys", "--all")) == 6
    assert len(member.json("keys", "list", "--search", "worker", "--all")) == 4
    old = member("keys", "create", "backend").strip()
    assert member("keys", "rotate", "backend", "--grace", "0").strip() not in ("", old)
    member("limits", "set", "--key", "backend", "--requests-per-minute", "600", "--concurrency", "2")
    member("limits", "set", "--key", "backend", "--concurrency", "none", "--tokens-per-day", "9000")
    shown = member("limits")
    assert "key backend" in shown and "600" in shown and "9,000" in shown and "concurrency" not in shown
    assert "limit of tenants" in member.fails("limits", "set", "--key", "backend", "--adapters", "3")
    member("limits", "set", "--tenant", "acme", "--pinned-bytes", "1048576")  # the console fixture made an operator
    member("limits", "set", "--tenant", "acme", "--adapters", "100")
    assert member.json("limits")["tenant"]["limits"]["pinned_bytes"] == 1048576
    assert "1.0 MB" in member("limits", "--search", "nothing")
    member("keys", "revoke", "backend")
    assert "no_such_key" in member.fails("keys", "revoke", "backend", "--json")


def test_budgets(member: Shell, console: Console) -> None:
    assert "There is no budget." in member("budgets")
    member("budgets", "set", "--day", "2.50", "--month", "40", "--alert", "80")
    member("budgets", "set", "--day", "none")
    report = member.json("budgets")
    assert report["own"]["day"] is None and report["own"]["month"]["amount_micros"] == 40_000_000
    assert report["own"]["month"]["alerts"] == [80]
    member("keys", "create", "spender")
    member("budgets", "set", "--key", "spender", "--day", "0.000001", "--at-limit", "warn")
    shown = member("budgets")
    assert "key spender" in shown and "warn" in shown
    assert "above 0" in member.fails("budgets", "set", "--day", "-1", code=errors.USAGE)
    member("budgets", "set", "--month", "none")


def test_members_webhooks_and_the_audit_log(member: Shell) -> None:
    link = member("members", "invite", "new@example.org", "--role", "viewer").strip()
    assert link.startswith("http")
    assert "new@example.org" in member("members", "invitations")
    member("members", "uninvite", "new@example.org")
    assert member.json("members", "invitations") == []
    assert member.acme.email in member("members")
    assert "owner" in member.fails("members", "role", member.acme.email, "viewer"), "the last owner stays"
    assert "`lorikeet members` lists them." in member.fails("members", "remove", "nobody@example.org")
    hook = f"{HOOK}/{uuid4().hex}"  # of its own for each run: a second one must not meet those of the first
    secret = member("webhooks", "add", hook, "--event", "version.ready").strip()
    assert secret.startswith("whsec_") and "version.ready" in member("webhooks")
    sent = member("webhooks", "test", hook).strip()
    assert sent in member("webhooks", "deliveries", hook)
    assert member("webhooks", "rotate", hook).strip() not in ("", secret)
    member("webhooks", "remove", hook)
    assert "lorikeet webhooks" in member.fails("webhooks", "remove", hook)
    log = member("audit", "--limit", "3")
    assert "webhook.delete" in log and member.acme.email in log and "older events" in member.notes
    assert {each["action"] for each in member.json("audit", "--action", "invitation.create", "--all")} == {
        "invitation.create"
    }


def test_chat_prints_the_answer_while_it_comes(robot: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--max-tokens", "4", "--temperature", "0", "--system", "Be brief.")
    body = robot.json("chat", "support", "Hello", *options)
    printed = robot("chat", "support", "Hello", *options)
    assert printed == body["choices"][0]["message"]["content"] + "\n" and printed.strip()
    assert "--max-tokens" in robot.notes, "the answer was cut off"
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello"))
    assert robot("chat", "support", *options) == printed
    assert "`lorikeet models`" in robot.fails("chat", "nobody", "Hello")
    assert "no message" in robot.fails("chat", "support").lower()


def test_a_session_chats_with_the_key_of_the_environment(member: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "lorikeet keys create" in member.fails("chat", "support", "Hello")
    monkeypatch.setenv("LORIKEET_KEY", member.acme.key)
    assert member("chat", "support", "Hello", "--max-tokens", "2").strip()
    assert member.json("whoami")["user"], "everything else is done as the member"


def test_a_conversation_remembers(robot: Shell, monkeypatch: pytest.MonkeyPatch, engine: Any) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("One\n\nTwo\n"))
    assert len(robot("chat", "support", "--max-tokens", "2").splitlines()) == 2
    first, second = engine.submits[-2:]
    assert "One" in str(first) and "One" in str(second) and "Two" in str(second)
