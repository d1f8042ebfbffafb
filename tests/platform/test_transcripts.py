"""Text of requests: kept only where a tenant said so, shown only to those who may see it, gone in time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from control_plane.core.storable import storable
from control_plane.fleet.transport.coalescing import Chunk
from control_plane.gateway.openai.chat_request import ChatCompletionRequest
from control_plane.gateway.openai.parameters import read_parameters
from control_plane.gateway.recording.transcripts import MAX_KEPT, TranscriptBuffer, prompt_of, text_of
from control_plane.gateway.transcripts import actions
from control_plane.gateway.transcripts.actions import NewTranscript, set_recording, store
from control_plane.gateway.transcripts.models import Recording, Transcript
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.tenants.roles import Role
from lora_engine.wire import engine_pb2 as pb

pytestmark = [pytest.mark.django_db, pytest.mark.also_embedded]
NOW = datetime.now(UTC)


def taken(org: Any, request_id: str = "req_1", at: datetime = NOW, **fields: Any) -> NewTranscript:
    texts: dict[str, Any] = {"prompt": [{"role": "user", "content": "hi"}], "answers": ["hello"], "cut": False}
    return NewTranscript(request_id=request_id, tenant_id=org.tenant.pk, created_at=at, **{**texts, **fields})


def record_of(org: Any, days: int = 7) -> None:
    set_recording(acting=org.principal(), enabled=True, days=days)


def test_off_until_an_admin_turns_it_on(acme: Any) -> None:
    assert acme.client(Role.VIEWER).get(acme.path("recording")).json() == {"enabled": False, "days": 7}
    body = {"enabled": True, "days": 3}
    assert acme.client(Role.DEVELOPER).put(acme.path("recording"), body, format="json").status_code == 403
    assert acme.client(Role.ADMIN).put(acme.path("recording"), body, format="json").json() == body
    row = AuditEvent.objects.get(action="recording.update")
    assert row.detail == {**body, "before": None}
    assert acme.client(Role.VIEWER).get(acme.path("recording")).json() == body


@pytest.mark.parametrize("days", [0, 366, "a week"])
def test_days_are_bounded(acme: Any, days: Any) -> None:
    answer = acme.client().put(acme.path("recording"), {"enabled": True, "days": days}, format="json")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "days")


def test_nothing_is_kept_for_those_who_did_not_ask(acme: Any, globex: Any) -> None:
    record_of(acme)
    assert store([taken(acme), taken(globex, "req_2")]) == 1
    set_recording(acting=acme.principal(), enabled=False, days=7)
    assert store([taken(acme, "req_3")]) == 0
    assert list(Transcript.objects.values_list("request_id", flat=True)) == ["req_1"]


def test_twice_is_once(acme: Any) -> None:
    record_of(acme)
    store([taken(acme)])
    store([taken(acme, answers=["another"])])
    assert Transcript.objects.get().answers == ["hello"]


def test_who_may_read(acme: Any, globex: Any) -> None:
    record_of(acme)
    store([taken(acme)])
    path = acme.path("requests/req_1/transcript")
    shown = acme.client(Role.ADMIN).get(path).json()
    assert shown == {
        "prompt": [{"role": "user", "content": "hi"}],
        "answers": ["hello"],
        "settings": None,
        "cut": False,
    }
    for role in (Role.DEVELOPER, Role.VIEWER):
        assert acme.client(role).get(path).status_code == 403
    elsewhere = globex.client().get(globex.path("requests/req_1/transcript"))
    assert (elsewhere.status_code, elsewhere.json()["error"]["code"]) == (404, "transcript_not_found")
    listed = "transcripts?request=req_1"
    assert acme.client(Role.ADMIN).get(acme.path(listed)).json() == [shown]
    assert acme.client(Role.DEVELOPER).get(acme.path(listed)).status_code == 403
    assert globex.client().get(globex.path(listed)).json() == []  # an answer, and nothing that went wrong


def test_gone_when_its_time_is_over_even_before_it_is_deleted(acme: Any, globex: Any) -> None:
    record_of(acme, days=2)
    record_of(globex, days=30)
    old = NOW - timedelta(days=3)
    store([taken(acme, "old", old), taken(acme, "new"), taken(globex, "theirs", old)])
    assert acme.client().get(acme.path("requests/old/transcript")).status_code == 404
    assert acme.client().get(acme.path("transcripts?request=old")).json() == []
    assert actions.forget() == 1
    assert set(Transcript.objects.values_list("request_id", flat=True)) == {"new", "theirs"}


def test_forgets_in_portions(acme: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "DELETE_BATCH", 2)
    record_of(acme, days=1)
    store([taken(acme, f"r{number}", NOW - timedelta(days=2)) for number in range(5)])
    assert actions.forget() == 5


def test_deleted_at_once(acme: Any, globex: Any) -> None:
    record_of(acme)
    record_of(globex)
    store([taken(acme), taken(globex, "theirs")])
    assert acme.client(Role.DEVELOPER).delete(acme.path("transcripts")).status_code == 403
    assert acme.client(Role.ADMIN).delete(acme.path("transcripts")).status_code == 204
    assert Transcript.objects.get().request_id == "theirs"
    assert AuditEvent.objects.get(action="recording.delete").detail == {"transcripts": 1}
    assert Recording.objects.get(tenant=acme.tenant).enabled


def submit(**fields: Any) -> pb.Submit:
    return pb.Submit(request_id="req_1", **fields)


def chat(*contents: str) -> pb.Chat:
    return pb.Chat(messages=[pb.ChatMessage(role="user", content=content) for content in contents])


def taking(acme: Any, **fields: Any) -> TranscriptBuffer:
    return TranscriptBuffer(acme.principal(), submit(**fields), NOW)


def test_prompts_of_every_kind(acme: Any) -> None:
    assert taking(acme, chat=chat("a", "b")).transcript().prompt[1] == {"role": "user", "content": "b"}
    assert taking(acme, text="once upon").transcript().prompt == [{"role": "text", "content": "once upon"}]
    tokens = taking(acme, token_ids=pb.TokenIds(ids=[7, 8])).transcript().prompt
    assert tokens == [{"role": "token_ids", "content": "7 8"}]


def test_settings_by_the_names_of_the_api(acme: Any) -> None:
    plain = pb.Sampling(temperature=0.3, top_p=1, max_tokens=64, repetition_penalty=1, n=1)
    assert taking(acme, text="t", sampling=plain).transcript().settings == {
        "temperature": 0.3,
        "top_p": 1,
        "max_tokens": 64,
    }
    body = {
        "model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 0, "top_p": 0.95, "max_tokens": 7,
        "top_k": 40, "min_p": 0.05, "presence_penalty": -0.5, "frequency_penalty": 0.1, "repetition_penalty": 1.15,
        "seed": 0, "stop": ["\n"], "tool_choice": "required",
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}},
        "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}],
    }  # fmt: skip
    asked = read_parameters(ChatCompletionRequest, body)
    [sent] = asked.submits()
    assert asked.requested_constraint
    sent.constraint.CopyFrom(asked.requested_constraint.wire())
    kept = TranscriptBuffer(acme.principal(), sent, NOW).transcript().settings
    assert kept == {name: value for name, value in body.items() if name not in ("model", "messages")}


def test_settings_that_are_too_long_are_not_kept(acme: Any) -> None:
    tool = pb.Tool(name="f", description="x" * MAX_KEPT)
    row = taking(acme, chat=pb.Chat(messages=[pb.ChatMessage(role="user", content="hi")], tools=[tool])).transcript()
    assert (row.settings, row.cut) == (None, False)


@pytest.mark.parametrize(
    ("schema", "kept"),
    [
        ('{"title": "a\\u0000b\\ud800"}', {"title": "a\ufffdb?"}),
        ('{"minimum": NaN}', None),
        ('{"a":' * 20_000 + "1" + "}" * 20_000, None),
    ],
    ids=["no text of a database", "no number", "too deep"],
)
def test_hostile_settings_stop_no_request(acme: Any, schema: str, kept: Any) -> None:
    record_of(acme)
    constraint = pb.Constraint(kind=pb.Constraint.JSON_SCHEMA, text=schema)
    store([taking(acme, text="t", constraint=constraint).transcript()])
    shown = acme.client().get(acme.path("requests/req_1/transcript")).json()["settings"]
    assert (shown and shown["response_format"]["json_schema"]["schema"]) == kept


def test_settings_are_read_with_the_text(acme: Any) -> None:
    record_of(acme)
    store([taken(acme, settings={"temperature": 0.5, "stop": ["\n"]})])
    shown = acme.client().get(acme.path("requests/req_1/transcript")).json()
    assert shown["settings"] == {"temperature": 0.5, "stop": ["\n"]}


def test_calls_and_reasoning_are_a_part_of_the_text() -> None:
    call = pb.ToolCall(id="call_1", name="get_weather", arguments='{"city": "Oslo"}')
    asked = pb.ChatMessage(role="assistant", content="Sure.", tool_calls=[call])
    assert prompt_of(pb.Submit(chat=pb.Chat(messages=[asked]))) == [
        {"role": "assistant", "content": 'Sure.\nget_weather({"city": "Oslo"})'}
    ]
    begun = pb.ToolCallDelta(index=0, id="call_2", name="f", arguments='{"a"')
    rest = pb.ToolCallDelta(index=0, arguments=": 1}")
    chunks = [Chunk(0, "yes", 3, reasoning="Hm. ", tool_calls=[begun]), Chunk(0, "", 1, tool_calls=[rest])]
    assert "".join(text_of(chunk) for chunk in chunks) == 'Hm. yes\nf {"a": 1}'


def test_a_row_is_bounded(acme: Any) -> None:
    long = taking(acme, chat=chat("first", "x" * MAX_KEPT, "last"))
    for _ in range(3):
        long.add([Chunk(0, "y" * 20_000, 1)])
    row = long.transcript()
    assert row.cut
    # The end of what was asked, the beginning of what was answered.
    assert [len(message["content"]) for message in row.prompt] == [MAX_KEPT - 4, 4]
    assert row.prompt[-1]["content"] == "last"
    assert row.answers == ["y" * MAX_KEPT]
    assert not taking(acme, chat=chat("short")).transcript().cut


def test_choices_by_their_number(acme: Any) -> None:
    several = taking(acme, text="t", sampling=pb.Sampling(n=3))
    several.add([Chunk(2, "c", 1)])
    several.add([Chunk(0, "a", 1)])
    assert several.transcript().answers == ["a", "", "c"]


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b", "ab\U0001f99c"])
def test_any_text_can_be_stored(acme: Any, text: str) -> None:
    record_of(acme)
    store([taken(acme, answers=[storable(text)])])
    assert Transcript.objects.get().answers[0][0] == "a"


def test_beat_forgets(acme: Any, settings: Any) -> None:
    names = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    assert {"transcripts.forget", "refusals.forget"} <= names
