"""Pinned prefixes: who may pin what, what hosts are told, and what becomes of the text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone
from lorikeet_testing.concurrent import while_another_commits
from lorikeet_testing.fake_engine import BASE_DIGEST, FakeEngine, FakeEngineThread
from lorikeet_testing.pinning import boot, enrolled, ready, resize, the_host
from lorikeet_testing.platform_fixtures import Queue

from control_plane.adapters.registry.archiving import archive_adapter
from control_plane.adapters.registry.models import Adapter, AdapterVersion
from control_plane.adapters.registry.queries import get_adapter
from control_plane.adapters.registry.versions import promote_version
from control_plane.billing.limits.actions import set_tenant_limits
from control_plane.billing.limits.values import Limits
from control_plane.console.administration.actions import delete_tenant
from control_plane.fleet.placements import pin_room, pins, prefixes, tasks
from control_plane.fleet.placements.models import PinnedPrefix, Placement, PrefixOnHost
from control_plane.identity.access.actor import SYSTEM
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.tenants.roles import Role
from lora_engine.wire import engine_pb2 as pb

pytestmark = pytest.mark.django_db
BASE = "fake-base"
PAGE_TOKENS, PAGE_BYTES = 16, 65536
TEXT = "word " * 64  # four pages and a token, for the fake engine
SYSTEM_PROMPT = [{"role": "system", "content": TEXT}]
LARGE_TOOL = {"type": "function", "function": {"name": "f", "description": "x" * 300_000}}


@pytest.fixture
def engine(fake_host: FakeEngineThread, settings: Any) -> FakeEngine:
    return enrolled(fake_host, settings)


def allow(org: Any, pages: int) -> None:
    set_tenant_limits(actor=SYSTEM, tenant=org.tenant, limits=Limits(pinned_bytes=pages * PAGE_BYTES))


def pin(org: Any, name: str = "handbook", model: str = BASE, role: Role = Role.DEVELOPER, **body: Any) -> Any:
    given = {"name": name, "model": model, **({"prompt": TEXT} | body if "messages" not in body else body)}
    return org.client(role).post(org.path("pinned-prefixes"), given, format="json")


def listed(org: Any) -> Any:
    return org.client(Role.VIEWER).get(org.path("pins")).json()


def states(org: Any) -> dict[str, list[str]]:
    return {each["name"]: [host["state"] for host in each["hosts"]] for each in listed(org)["prefixes"]}


def refused(answer: Any, status: int) -> str:
    assert answer.status_code == status, answer.content
    error = answer.json()["error"]
    assert error["message"] and error["fix"]
    code: str = error["code"]
    return code


def tell() -> None:
    tasks.apply_pins("local")


def test_a_prefix_is_refused_without_a_quota_and_beyond_it(acme: Any, engine: FakeEngine) -> None:
    assert refused(pin(acme), 409) == "pins_not_allowed"
    allow(acme, 5)
    answer = pin(acme)
    assert answer.status_code == 201, answer.content
    made = answer.json()
    assert (made["model"], made["tokens"], made["bytes"]) == (BASE, 65, 4 * PAGE_BYTES)
    assert made["hosts"] == [{"host": "local", "state": "waiting", "bytes": 4 * PAGE_BYTES, "error": None}]
    assert refused(pin(acme), 409) == "prefix_name_taken"
    assert refused(pin(acme, "second"), 409) == "pin_limit_reached"
    tell()
    (told,) = engine.prefixes
    assert (told.prompt.text, told.prompt.tenant, told.prompt.is_beginning) == (TEXT, str(acme.tenant.pk), True)
    assert (told.prompt.adapter_digest, told.prompt.base_digest) == ("", BASE_DIGEST)
    assert states(acme) == {"handbook": ["kept"]}
    found = listed(acme)
    assert (found["used_bytes"], found["limit_bytes"]) == (4 * PAGE_BYTES, 5 * PAGE_BYTES)
    stale = PinnedPrefix.objects.get()
    assert acme.client(Role.DEVELOPER).delete(acme.path("pinned-prefixes/handbook")).status_code == 204
    prefixes.unpin_prefix(acting=acme.principal(), prefix=stale)
    assert not PinnedPrefix.objects.exists(), "its text is gone with it"
    tell()
    assert engine.prefixes == [] and not PrefixOnHost.objects.exists()
    told_log = AuditEvent.objects.filter(action__startswith="prefix.").order_by("id")
    assert list(told_log.values_list("action", "target_label")) == [
        ("prefix.pin", "handbook"),
        ("prefix.unpin", "handbook"),
    ]


def test_adapters_and_prefixes_are_pinned_from_one_quota(acme: Any, engine: FakeEngine) -> None:
    ready(acme, "support")  # three pages
    allow(acme, 6)
    acme.client(Role.DEVELOPER).put(acme.path("adapters/support/pin"))
    assert refused(pin(acme), 409) == "pin_limit_reached"
    allow(acme, 7)
    assert pin(acme).status_code == 201
    found = listed(acme)
    assert [(each["name"], each["bytes"]) for each in found["adapters"]] == [("support", 3 * PAGE_BYTES)]
    assert found["used_bytes"] == 7 * PAGE_BYTES
    resize(4 * 7)
    tell()
    assert len(engine.pinned) == len(engine.prefixes) == 1
    allow(acme, 6)
    assert states(acme) == {"handbook": ["over_quota"]}, "the oldest pins stay where a quota shrinks"
    tell()
    assert (len(engine.pinned), engine.prefixes) == (1, [])


def test_all_tenants_together_pin_a_quarter_of_a_pool(acme: Any, globex: Any, engine: FakeEngine) -> None:
    for org in (acme, globex):
        allow(org, 100)
    resize(4 * 8 - 1)
    assert pin(acme).status_code == 201
    assert refused(pin(globex), 409) == "pins_full"
    resize(4 * 8)
    assert pin(globex).status_code == 201


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"prompt": "too short"}, 400, "prefix_too_short"),
        ({"prompt": "word " * 5000}, 400, "context_length_exceeded"),
        ({"model": "nothing"}, 404, "model_not_found"),
        ({"model": "support@v1"}, 400, "model_not_pinnable"),
        ({"model": "support+support2"}, 400, "model_not_pinnable"),
        ({"name": "Not a name"}, 400, "invalid_request"),
        ({"messages": []}, 400, "invalid_request"),
        ({"messages": SYSTEM_PROMPT, "prompt": TEXT}, 400, "invalid_request"),
        ({"messages": [{"role": "robot", "content": TEXT}]}, 400, "invalid_request"),
        ({"messages": SYSTEM_PROMPT, "tools": [{"type": "function"}]}, 400, "invalid_request"),
        ({"prompt": TEXT, "tools": []}, 400, "invalid_request"),
        ({"messages": SYSTEM_PROMPT, "chat_template_kwargs": {"x": "y" * 20_000}}, 400, "invalid_request"),
        ({"messages": SYSTEM_PROMPT, "tools": [LARGE_TOOL]}, 400, "invalid_request"),
    ],
)
def test_what_cannot_be_pinned_is_refused_with_a_fix(
    acme: Any, engine: FakeEngine, body: dict[str, Any], status: int, code: str
) -> None:
    ready(acme, "support")
    ready(acme, "support2")
    allow(acme, 10_000)
    answer = pin(acme, **body)
    assert refused(answer, status) == code
    if "prompt" in body and status == 400 and code != "invalid_request":
        assert answer.json()["error"]["param"] == "prompt"
    assert not PinnedPrefix.objects.exists()


def test_a_chats_beginning_goes_to_hosts_as_its_requests_do(acme: Any, engine: FakeEngine) -> None:
    version = ready(acme, "support")
    allow(acme, 100)
    parameters = {"type": "object", "properties": {"zulu": {}, "alpha": {}}}
    tools = [{"type": "function", "function": {"name": "look_up", "description": "Looks.", "parameters": parameters}}]
    answer = pin(
        acme,
        model="support",
        messages=[{"role": "developer", "content": TEXT}, {"role": "user", "content": " \n"}],
        tools=tools,
        chat_template_kwargs={"thinking": False},
        reasoning_effort="low",
        cache_salt="s",
    )
    assert answer.status_code == 201, answer.content
    tell()
    (told,) = engine.prefixes
    chat = told.prompt.chat
    assert [(each.role, each.content) for each in chat.messages] == [("system", TEXT), ("user", " \n")]
    assert (told.prompt.adapter_digest, told.prompt.cache_salt) == (version.digest, "s")
    assert json.dumps(json.loads(chat.tools[0].parameters)) == json.dumps(parameters), "in the same order"
    assert (json.loads(chat.template_kwargs), chat.reasoning_effort) == ({"thinking": False}, "low")
    shown = acme.client(Role.DEVELOPER).get(acme.path("pinned-prefixes/handbook")).json()
    assert shown["content"]["messages"][0] == {"role": "developer", "content": TEXT}
    assert shown["content"]["tools"] == tools


def test_an_adapters_own_chat_template_writes_its_prefixes(acme: Any, engine: FakeEngine) -> None:
    own = {"source": "{{ messages }}", "tool_source": "", "special_tokens": {"eos_token": "</s>"}}
    version = ready(acme, "support")
    AdapterVersion.objects.filter(pk=version.pk).update(chat_template=own)
    allow(acme, 100)
    assert pin(acme, model="support", messages=SYSTEM_PROMPT).status_code == 201
    assert engine.submits[-1].chat.own_template.source == "{{ messages }}", "also when it is measured"
    tell()
    assert engine.prefixes[0].prompt.chat.own_template.special_tokens == {"eos_token": "</s>"}


def test_only_who_may_change_adapters_pins_prefixes_and_reads_their_text(
    acme: Any, globex: Any, engine: FakeEngine
) -> None:
    allow(acme, 100)
    allow(globex, 100)
    assert pin(acme, role=Role.VIEWER).status_code == 403
    assert pin(acme).status_code == 201
    path = "pinned-prefixes/handbook"
    assert acme.client(Role.VIEWER).get(acme.path(path)).status_code == 403
    assert TEXT not in json.dumps(listed(acme)), "a list says that it is there, not what"
    assert refused(globex.client().get(globex.path(path)), 404) == "prefix_not_found"
    assert refused(globex.client().delete(globex.path(path)), 404) == "prefix_not_found"
    assert globex.client().get(acme.path("pins")).status_code == 404
    assert listed(globex)["prefixes"] == []


def test_a_prefix_follows_what_is_live_and_goes_with_its_adapter(
    acme: Any, engine: FakeEngine, queue: Queue, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    one, two = ready(acme, "support"), ready(acme, "support", 2)
    allow(acme, 4)
    with django_capture_on_commit_callbacks(execute=True):
        assert pin(acme, model="support").status_code == 201
    assert ("placements.apply_pins", ("local",)) in queue.calls
    tell()
    assert [each.prompt.adapter_digest for each in engine.prefixes] == [one.digest]
    queue.calls.clear()
    with django_capture_on_commit_callbacks(execute=True):
        promote_version(acting=acme.principal(), version=two)
    assert ("placements.apply_pins", ("local",)) in queue.calls
    tell()
    assert [each.prompt.adapter_digest for each in engine.prefixes] == [two.digest], "computed anew for it"
    archive_adapter(acting=acme.principal(), adapter=get_adapter(acme.tenant, "support").adapter)
    tell()
    assert engine.prefixes == [] and states(acme) == {"handbook": []}
    Adapter.objects.filter(name="support").update(deleted_at=timezone.now())
    tasks.reconcile()
    assert not PinnedPrefix.objects.exists()


def test_of_a_suspended_tenant_nothing_is_kept_and_of_a_deleted_one_no_text(acme: Any, engine: FakeEngine) -> None:
    allow(acme, 4)
    pin(acme)
    acme.tenant.suspended_at = timezone.now()
    acme.tenant.save()
    tell()
    assert engine.prefixes == [] and PinnedPrefix.objects.exists()
    delete_tenant(actor=SYSTEM, tenant=acme.tenant, confirm=acme.tenant.slug)
    assert not PinnedPrefix.objects.exists()


def test_prefixes_are_told_again_to_an_engine_that_restarted_and_what_it_says_is_shown(
    acme: Any,
    engine: FakeEngine,
    fake_host: FakeEngineThread,
    queue: Queue,
    django_capture_on_commit_callbacks: Callable[..., Any],
) -> None:
    allow(acme, 4)
    pin(acme)
    tell()
    fake_host.stop()
    tell()  # away: no error, and the wish stays
    fake_host.start()
    boot(engine)
    assert states(acme) == {"handbook": ["waiting"]}, "nobody says that it is kept by an engine that has forgotten it"
    with django_capture_on_commit_callbacks(execute=True):
        tasks.reconcile()
    assert ("placements.apply_pins", ("local",)) in queue.calls
    engine.behaviour.prefix_state = pb.PrefixState.COMPUTING
    tell()
    assert states(acme) == {"handbook": ["computing"]}
    engine.behaviour.prefix_state = pb.PrefixState.FAILED
    tell()
    (host,) = listed(acme)["prefixes"][0]["hosts"]
    assert (host["state"], host["error"]) == ("failed", {"code": "scripted", "message": "No.", "fix": "Yes."})
    engine.behaviour.prefix_state = pb.PrefixState.NO_ROOM
    tell()
    assert states(acme) == {"handbook": ["no_room"]}


def test_no_host_that_answers_is_an_error_to_try_again(
    acme: Any, engine: FakeEngine, fake_host: FakeEngineThread
) -> None:
    allow(acme, 4)
    fake_host.stop()
    assert pin(acme).status_code == 503
    assert not PinnedPrefix.objects.exists()
    fake_host.start()


def test_hosts_without_pins_are_not_asked(acme: Any, engine: FakeEngine) -> None:
    ready(acme, "support")
    assert not pins.needs_pins(the_host())
    allow(acme, 4)
    pin(acme)
    assert pins.needs_pins(the_host())


def test_a_tenant_has_so_many_prefixes_at_most(acme: Any, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefixes, "MAX_PREFIXES", 1)
    allow(acme, 100)
    assert pin(acme).status_code == 201
    assert refused(pin(acme, "another"), 409) == "too_many_prefixes"


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
def test_of_two_tenants_that_pin_at_once_one_sees_the_others(acme: Any, globex: Any, engine: FakeEngine) -> None:
    ready(acme, "support")
    pages = Placement.objects.get().pool_pages
    resize(4 * (pages + 4) - 1)
    for org in (acme, globex):
        allow(org, 100)
    adapter = get_adapter(acme.tenant, "support").adapter

    def pin_prefix() -> str:
        with pytest.raises(pin_room.PinError) as refusal:
            prefixes.pin_prefix(acting=globex.principal(), name="handbook", model=BASE, prompt={"prompt": TEXT})
        return refusal.value.code

    assert (
        while_another_commits(lambda: pins.pin_adapter(acting=acme.principal(), adapter=adapter), pin_prefix)
        == "pins_full"
    )
