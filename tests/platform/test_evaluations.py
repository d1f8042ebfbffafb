"""Evaluation sets, evaluations and promotion rules, with the batches of evaluations answered by the test."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone
from lorikeet_testing.clients import keyed
from lorikeet_testing.concurrent import while_another_commits

from control_plane.adapters.evaluations import actions
from control_plane.adapters.evaluations.models import Evaluation
from control_plane.adapters.evaluations.requests import mean_logprob
from control_plane.adapters.registry.archiving import archive_adapter
from control_plane.adapters.registry.models import AdapterVersion, Alias
from control_plane.adapters.registry.versions import promote_version
from control_plane.adapters.uploads.models import UploadState
from control_plane.gateway.batches import actions as batches
from control_plane.gateway.batches.models import Batch, BatchState
from control_plane.identity.audit.models import AuditEvent
from control_plane.identity.keys.actions import revoke_key
from control_plane.identity.tenants.roles import Role

pytestmark = pytest.mark.django_db

ITEMS = b'{"prompt": "2 + 2 =", "expected": "4"}\n\n{"prompt": "The sky is", "expected": "blue"}\n'


def new_set(client: Any, org: Any, name: str = "sums", metric: str = "exact", content: bytes = ITEMS) -> Any:
    form = {"name": name, "metric": metric, "file": SimpleUploadedFile("items.jsonl", content)}
    return client.post(org.path("evaluation-sets"), form, format="multipart")


def start(client: Any, org: Any, version: AdapterVersion, key: Any = None, **more: Any) -> Any:
    body = {"set": "sums", "adapter": version.adapter.name, "version": version.number, **more}
    return client.post(org.path("evaluations"), body | ({"key": str(key.pk)} if key else {}), format="json")


def shown(client: Any, org: Any, made: Any) -> Any:
    return client.get(org.path(f"evaluations/{made['id']}")).json()


def error(answer: Any, status: int) -> Any:
    assert answer.status_code == status, answer.content
    found = answer.json()["error"]
    assert found["message"] and found["fix"]
    return found


def answered(answer: Callable[[str, dict[str, Any]], str | None]) -> int:
    """Run the batches that wait, each request answered by `answer` of who is asked and its body; None fails it."""
    ran = 0
    while (batch := batches.claim_next()) is not None:
        batches.validate(batch, lambda _: None)
        for line in batches.lines_to_run(batch, 0, 1000):
            ran += 1
            text = answer(line.custom_id.partition(":")[0], json.loads(line.body))
            body: dict[str, Any] = {"choices": [{"text": text}]}
            if text is None:
                body = {
                    "error": {
                        "code": "adapter_overflow",
                        "message": "It overflowed. Train it again.",
                        "fix": "Train it again.",
                    }
                }
            told = {"response": {"status_code": 200, "request_id": "x", "body": body}, "error": None}
            batches.keep_result(batch, line, told, [], failed=text is None)
        batches.finish(batch, BatchState.COMPLETED)
    return ran


def die(*_: object) -> None:
    raise SystemExit


def knows(*right: str) -> Callable[[str, dict[str, Any]], str]:
    """Answers both items if it is one of `right`, and the first one only otherwise."""

    def answer(who: str, body: dict[str, Any]) -> str:
        if "2 + 2" in body["prompt"]:
            return " 4\n"
        return "blue" if who in right else "green"

    return answer


# -- sets ------------------------------------------------------------------------------------------


def test_a_sets_life(acme: Any, globex: Any) -> None:
    client = acme.client()
    made = new_set(client, acme)
    assert made.status_code == 201, made.content
    assert {key: made.json()[key] for key in ("name", "metric", "max_tokens", "items")} == {
        "name": "sums", "metric": "exact", "max_tokens": 64, "items": 2,
    }  # fmt: skip
    assert client.get(acme.path("evaluation-sets")).json() == [made.json()]
    assert error(new_set(client, acme), 409)["code"] == "evaluation_set_exists"
    assert globex.client().get(globex.path("evaluation-sets/sums")).status_code == 404
    assert acme.client(Role.VIEWER).delete(acme.path("evaluation-sets/sums")).status_code == 403
    assert client.delete(acme.path("evaluation-sets/sums")).status_code == 204
    assert client.get(acme.path("evaluation-sets/sums")).status_code == 404
    actions_told = AuditEvent.objects.filter(action__startswith="evaluation_set.").values_list("action", flat=True)
    assert sorted(actions_told) == ["evaluation_set.create", "evaluation_set.delete"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "it is not JSON: a name in double quotes is expected at character 2"),
        (b"[" * 100_000, "it is not JSON"),
        (b'{"prompt": "a", "expected": 4}', '"expected" must be a text'),
        (b'{"prompt": "a", "expected": " "}', '"expected" must be a text'),
        (b'{"prompt": "a"}', '"expected" must be a text'),
        (b'{"expected": "a"}', 'it needs a "prompt" or "messages"'),
        (b'{"prompt": "a", "messages": [{}], "expected": "a"}', 'it needs a "prompt" or "messages"'),
        (b'{"prompt": "", "expected": "a"}', '"prompt" must be a text'),
        (b'{"prompt": "a", "expected": "a", "answer": 1}', '"answer" is not a field'),
        (b'{"messages": [], "expected": "a"}', '"messages" must be a list'),
        (b'{"messages": [{"role": "user", "content": "a"}], "expected": "a"}', "all must have a prompt, or all"),
        (b'{"prompt": "a\\u0000", "expected": "a"}', "NUL character"),
        (b'{"prompt": "\\ud800", "expected": "a"}', "half a surrogate pair"),
        (b"\xff\xfe", "it is not UTF-8 text"),
        (b'"text"', "it is not a JSON object"),
    ],
)
def test_a_damaged_line_is_named(acme: Any, line: bytes, why: str) -> None:
    found = error(new_set(acme.client(), acme, content=ITEMS + line + b"\n" + ITEMS), 400)
    assert found["code"] == "bad_evaluation_set" and found["param"] == "file"
    assert found["message"].startswith("Line 4 is not an item") and why in found["message"]


def test_sets_are_bounded(acme: Any, settings: Any) -> None:
    few = {"evaluation_max_items": 2, "evaluation_max_bytes": 200}
    settings.LORIKEET = settings.LORIKEET.model_copy(update=few)
    client = acme.client()
    assert error(new_set(client, acme, content=b"\n"), 400)["message"] == "The set contains no item."
    assert "more than 2 items" in error(new_set(client, acme, content=ITEMS * 2), 413)["message"]
    assert "larger than 200 bytes" in error(new_set(client, acme, content=b" " * 201), 413)["message"]
    messages = b'{"messages": [{"role": "user", "content": "a"}], "expected": "a"}'
    assert 'needs a "prompt"' in error(new_set(client, acme, metric="logprob", content=messages), 400)["message"]
    assert new_set(client, acme, content=b"\xef\xbb\xbf" + messages + b"\r\n").status_code == 201


# -- evaluations -----------------------------------------------------------------------------------


def test_from_a_version_to_its_score(acme: Any, ready_version: Any) -> None:
    live, new = ready_version(acme), ready_version(acme, seed=2)
    key, _ = acme.key()
    client = acme.client()
    new_set(client, acme)
    made = start(client, acme, new, key).json()
    assert (made["state"], made["adapter"], made["version"], made["key"]) == ("waiting", "support", 2, key.name)
    actions.tend()
    running = shown(client, acme, made)
    assert running["state"] == "running" and running["batch"].startswith("batch_")
    asked = set[str]()

    def answer(who: str, body: dict[str, Any]) -> str:
        asked.add(body["model"])
        assert body["temperature"] == 0 and body["max_tokens"] == 64
        return knows("version")(who, body)

    assert answered(answer) == 6
    assert asked == {"fake-base", "support@v1", "support@v2"}
    actions.tend()
    done = shown(client, acme, made)
    assert done["state"] == "completed" and done["ended_at"]
    score = client.get(acme.path("adapters/support/versions/2")).json()["evaluations"][0]
    assert score == done["score"]
    assert (score["base"], score["live"], score["score"]) == (0.5, {"version": live.number, "score": 0.5}, 1.0)
    assert score["worst"] == [] and score["items"] == 2
    told = AuditEvent.objects.get(action="version.evaluate")
    assert told.target_label == "support@v2" and told.detail["score"] == 1.0
    # Of the live version itself: there is no other to compare it with, and its worst answers are shown.
    start(client, acme, live, key)
    actions.tend()
    answered(knows("base"))
    actions.tend()
    own = client.get(acme.path("adapters/support/versions/1")).json()["evaluations"][0]
    assert own["live"] is None and own["score"] == 0.5
    [worst] = own["worst"]
    assert (worst["line"], worst["expected"], worst["base"], worst["version"]) == (3, "blue", "blue", "green")


def test_an_answer_with_nul_is_scored(acme: Any, ready_version: Any) -> None:
    """PostgreSQL stores no NUL, which a model may generate."""
    live = ready_version(acme)
    key, _ = acme.key()
    client = acme.client()
    new_set(client, acme)
    start(client, acme, live, key)
    actions.tend()
    answered(lambda who, body: "\0" if who != "base" else "blue")
    actions.tend()
    score = client.get(acme.path("adapters/support/versions/1")).json()["evaluations"][0]
    assert {worst["version"] for worst in score["worst"]} == {"\ufffd"}


def test_of_an_upload(acme: Any, upload: Any, ready_version: Any) -> None:
    key, _ = acme.key()
    client = acme.client()
    new_set(client, acme, metric="contains")
    sent = upload(acme, "later")
    sent.state = UploadState.RECEIVED
    version, sent.version = sent.version, None
    sent.save()
    body = {"set": "sums", "upload": str(sent.pk), "key": str(key.pk)}
    made = client.post(acme.path("evaluations"), body, format="json").json()
    assert (made["adapter"], made["version"]) == ("later", None)
    actions.tend()
    assert shown(client, acme, made)["problem"]["code"] == "version_not_ready"
    sent.state, sent.version = UploadState.REFUSED, None
    sent.save()
    actions.tend()
    refused = shown(client, acme, made)
    assert (refused["state"], refused["problem"]["code"]) == ("failed", "upload_refused")
    again = client.post(acme.path("evaluations"), body, format="json").json()
    sent.state, sent.version = UploadState.ACCEPTED, version
    sent.save()
    AdapterVersion.objects.filter(pk=version.pk).update(state="ready")
    actions.tend()
    assert (shown(client, acme, again)["version"], shown(client, acme, again)["state"]) == (1, "running")


def test_what_ends_without_a_score(acme: Any, ready_version: Any) -> None:
    version, (key, _) = ready_version(acme), acme.key()
    client = acme.client()
    new_set(client, acme)
    overflowing = start(client, acme, version, key).json()
    actions.tend()
    answered(lambda who, _: None if who == "version" else "4")
    actions.tend()
    problem = shown(client, acme, overflowing)["problem"]
    assert problem["code"] == "adapter_overflow" and "Line 1 of the set was not answered" in problem["message"]
    assert problem["fix"] == "Train it again." and problem["fix"] not in problem["message"]
    # A batch that somebody cancels, an evaluation that somebody cancels, and a key that is revoked.
    stopped, cancelled = (start(client, acme, version, key).json() for _ in range(2))
    actions.tend()
    for_batch = Evaluation.objects.get(pk=stopped["id"]).batch
    assert for_batch is not None
    assert client.post(acme.path(f"batches/{for_batch}/cancel")).status_code == 200
    assert client.delete(acme.path(f"evaluations/{cancelled['id']}")).status_code == 204
    assert error(client.delete(acme.path(f"evaluations/{cancelled['id']}")), 409)["code"] == "evaluation_is_over"
    while (batch := batches.claim_next()) is not None:
        batches.finish(batch, BatchState.CANCELLED)
    actions.tend()
    assert shown(client, acme, stopped)["problem"]["code"] == "batch_cancelled"
    assert shown(client, acme, cancelled)["state"] == "cancelled"
    assert set(Batch.objects.values_list("state", flat=True)) == {"completed", "cancelled"}
    late = start(client, acme, version, key).json()
    revoke_key(acting=acme.principal(), key=key)
    actions.tend()
    assert shown(client, acme, late)["problem"]["code"] == "key_not_usable"
    assert AdapterVersion.objects.get(pk=version.pk).evaluations == []


def test_a_worker_that_dies_while_it_scores(acme: Any, ready_version: Any, monkeypatch: Any) -> None:
    """What it had not committed is done again by the next, once."""
    version, (key, _) = ready_version(acme), acme.key()
    client = acme.client()
    new_set(client, acme)
    made = start(client, acme, version, key).json()
    with monkeypatch.context() as dying:
        dying.setattr(actions, "_named", die)
        with pytest.raises(SystemExit):
            actions.tend()
    assert shown(client, acme, made)["state"] == "waiting" and not Batch.objects.exists()
    actions.tend()
    answered(lambda *_: "4")
    with monkeypatch.context() as dying:
        dying.setattr(actions, "record_score", die)
        with pytest.raises(SystemExit):
            actions.tend()
    assert shown(client, acme, made)["state"] == "running"
    assert AdapterVersion.objects.get(pk=version.pk).evaluations == []
    for _ in range(2):
        actions.tend()
    assert shown(client, acme, made)["state"] == "completed"
    assert len(AdapterVersion.objects.get(pk=version.pk).evaluations) == Batch.objects.count() == 1
    told = list(AuditEvent.objects.filter(action__startswith="evaluation.").values_list("action", flat=True))
    assert sorted(told) == ["evaluation.completed", "evaluation.run", "evaluation.start"]


def test_a_tenant_that_is_suspended_meanwhile_keeps_its_evaluations(acme: Any, ready_version: Any) -> None:
    version, (key, _) = ready_version(acme), acme.key()
    new_set(acme.client(), acme)
    made = start(acme.client(), acme, version, key).json()
    acme.tenant.suspended_at = timezone.now()
    acme.tenant.save()
    actions._step(made["id"])
    assert Evaluation.objects.get().state == "waiting"
    acme.tenant.suspended_at = None
    acme.tenant.save()
    actions.tend()
    assert Evaluation.objects.get().state == "running"


def test_it_waits_for_room_but_not_for_ever(acme: Any, ready_version: Any, monkeypatch: Any) -> None:
    version, (key, _) = ready_version(acme), acme.key()
    client = acme.client()
    new_set(client, acme)
    monkeypatch.setattr(batches, "MAX_OPEN", 0)
    made = start(client, acme, version, key).json()
    actions.tend()
    waiting = shown(client, acme, made)
    assert (waiting["state"], waiting["problem"]["code"]) == ("waiting", "too_many_batches")
    Evaluation.objects.update(created_at=timezone.now() - timedelta(days=2))
    actions.tend()
    assert shown(client, acme, made)["state"] == "failed"


def test_who_may(acme: Any, globex: Any, ready_version: Any, monkeypatch: Any) -> None:
    version, (own, secret) = ready_version(acme), acme.key()
    other, _ = acme.key()
    new_set(acme.client(), acme)
    assert start(keyed(secret), acme, version).json()["key"] == own.name
    assert error(start(keyed(secret), acme, version, other), 403)["code"] == "key_not_own"
    assert error(start(acme.client(), acme, version), 400)["code"] == "key_required"
    _, silent = acme.key(scopes=["view", "adapters.write"])
    assert error(start(keyed(silent), acme, version), 403)["code"] == "key_scope_missing"
    foreign, _ = globex.key()
    assert error(start(acme.client(), acme, version, foreign), 404)["code"] == "key_not_found"
    assert error(start(acme.client(), acme, version, own, set="none"), 404)["code"] == "evaluation_set_not_found"
    neither = acme.client().post(acme.path("evaluations"), {"set": "sums", "key": str(own.pk)}, format="json")
    assert error(neither, 400)["param"] == "version"
    assert error(acme.client().delete(acme.path("evaluation-sets/sums")), 409)["code"] == "evaluation_set_in_use"
    monkeypatch.setattr(actions, "MAX_OPEN", 1)
    assert error(start(acme.client(), acme, version, own), 429)["code"] == "too_many_evaluations"


# -- promotion rules -------------------------------------------------------------------------------


def put_rule(client: Any, org: Any, key: Any, **more: Any) -> Any:
    body = {"set": "sums", "key": str(key.pk), **more}
    return client.put(org.path("adapters/support/promotion-rule"), body, format="json")


def promote(client: Any, org: Any, number: int) -> Any:
    return client.post(org.path(f"adapters/support/versions/{number}/promote"))


def evaluated(answer: Callable[[str, dict[str, Any]], str]) -> None:
    actions.tend()
    answered(answer)
    actions.tend()


def test_a_rule_keeps_worse_versions_from_being_live(acme: Any, ready_version: Any) -> None:
    ready_version(acme)
    key, _ = acme.key()
    client = acme.client()
    new_set(client, acme)
    ruled = put_rule(client, acme, key).json()["promotion_rule"]
    assert ruled == {"set": "sums", "key": str(key.pk), "minimum": None, "not_worse_than_live": True}
    ready_version(acme, seed=2)  # which is evaluated by itself
    found = error(promote(client, acme, 2), 409)
    assert found["code"] == "promotion_rule_unmet" and "has no score on" in found["message"]
    evaluated(knows("base", "live"))
    assert "0.5 on sums is worse than 1 of the live v1" in error(promote(client, acme, 2), 409)["message"]
    canary = client.put(acme.path("adapters/support/aliases/live/canary"), {"version": 2, "percent": 5}, format="json")
    assert error(canary, 409)["code"] == "promotion_rule_unmet"
    # Another alias asks for nothing, so that it can be tried.
    tried = client.put(acme.path("adapters/support/aliases/try"), {"version": 2}, format="json")
    assert tried.status_code == 200
    ready_version(acme, seed=3)
    evaluated(knows("version"))
    assert promote(client, acme, 3).status_code == 200
    # v2 was compared with v1, which is no longer live; going back asks for nothing.
    assert "not compared with v3" in error(promote(client, acme, 2), 409)["message"]
    assert client.post(acme.path("adapters/support/aliases/live/rollback")).status_code == 200
    assert error(client.delete(acme.path("evaluation-sets/sums")), 409)["code"] == "evaluation_set_in_use"
    put_rule(client, acme, key, minimum=0.9, not_worse_than_live=False)
    assert "0.5 on sums is below 0.9" in error(promote(client, acme, 2), 409)["message"]
    assert client.delete(acme.path("adapters/support/promotion-rule")).status_code == 204
    assert promote(client, acme, 2).status_code == 200
    assert client.delete(acme.path("evaluation-sets/sums")).status_code == 204


def test_the_first_version_is_live_once_it_meets_the_rule(acme: Any, ready_version: Any) -> None:
    version = ready_version(acme)
    key, _ = acme.key()
    client = acme.client()
    new_set(client, acme)
    put_rule(client, acme, key, minimum=1)
    Alias.objects.all().delete()
    new = ready_version(acme, seed=2)
    assert not Alias.objects.filter(adapter=version.adapter).exists()
    evaluated(knows("version"))
    assert Alias.objects.get(adapter=version.adapter, name="live").version == new


def test_mean_logprob() -> None:
    logprobs = {"text_offset": [0, 3, 5, 9], "token_logprobs": [None, -1.0, -2.0, -4.0]}
    assert mean_logprob("abcde", logprobs) == -3.0
    assert mean_logprob("abcdef", logprobs) == -3.0  # the third begins in the prompt and ends behind it
    assert mean_logprob("", {"text_offset": [0], "token_logprobs": [None]}) is None


def test_an_item_that_has_no_logprob_is_not_the_best(acme: Any, ready_version: Any) -> None:
    """Its mean would be 0, which only certain answers reach."""
    version, (key, _) = ready_version(acme), acme.key()
    client = acme.client()
    new_set(client, acme, metric="logprob")
    made = start(client, acme, version, key).json()
    actions.tend()
    answered(knows())
    output = Batch.objects.get().output_file
    assert output is not None
    one_token = {"choices": [{"logprobs": {"text_offset": [0], "token_logprobs": [None]}}]}
    lines = [
        json.dumps({"custom_id": f"{who}:{line}", "response": {"body": one_token}})
        for who in ("base", "version")
        for line in (1, 3)
    ]
    output.parts.update(data="\n".join(lines).encode())
    actions.tend()
    problem = shown(client, acme, made)["problem"]
    assert problem["code"] == "item_without_logprobs" and "Line 1" in problem["message"]


def test_evaluations_that_wait_keep_no_others_from_running(
    acme: Any, globex: Any, ready_version: Any, monkeypatch: Any
) -> None:
    """Those of a tenant that wait for a day, and are older than any other."""
    waits, ready = ready_version(acme), ready_version(globex)
    AdapterVersion.objects.filter(pk=waits.pk).update(state="staging")
    for org, version in ((acme, waits), (globex, ready)):
        new_set(org.client(), org)
        start(org.client(), org, version, org.key()[0])
    monkeypatch.setattr(actions, "AT_ONCE", 1)
    for _ in range(40):  # once in 2 ** 40 runs none of them draws the second one
        actions.tend()
    assert list(Evaluation.objects.order_by("created_at").values_list("state", flat=True)) == ["waiting", "running"]


def test_a_version_that_is_archived_while_it_is_evaluated_gets_no_score(acme: Any, ready_version: Any) -> None:
    """Its adapter's name may be another's by then, whose answers these are."""
    version, (key, _) = ready_version(acme), acme.key()
    client = acme.client()
    new_set(client, acme)
    made = start(client, acme, version, key).json()
    actions.tend()
    archive_adapter(acting=acme.principal(), adapter=version.adapter)
    other = ready_version(acme, seed=2)
    assert (other.adapter.name, other.number) == (version.adapter.name, version.number)
    answered(knows("version"))
    actions.tend()
    assert shown(client, acme, made)["problem"]["code"] == "version_archived"
    assert AdapterVersion.objects.get(pk=version.pk).evaluations == []


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
def test_a_set_is_deleted_as_an_evaluation_with_it_starts(acme: Any, ready_version: Any) -> None:
    version, (key, _) = ready_version(acme), acme.key()
    new_set(acme.client(), acme)
    answer = while_another_commits(
        lambda: actions.delete_set(acting=acme.principal(), name="sums"),
        lambda: start(acme.client(), acme, version, key),
    )
    assert error(answer, 404)["code"] == "evaluation_set_not_found"


@pytest.mark.services
@pytest.mark.django_db(transaction=True)
def test_the_live_version_changes_while_another_is_promoted(acme: Any, ready_version: Any) -> None:
    """Neither of two that were compared with the same one replaces the other, with which it was not compared."""
    ready_version(acme)
    key, _ = acme.key()
    new_set(acme.client(), acme)
    put_rule(acme.client(), acme, key)
    second, third = ready_version(acme, seed=2), ready_version(acme, seed=3)
    evaluated(knows("version"))
    answer = while_another_commits(
        lambda: promote_version(acting=acme.principal(), version=second), lambda: promote(acme.client(), acme, 3)
    )
    assert "not compared with v2" in error(answer, 409)["message"]
    assert Alias.objects.get(adapter=third.adapter).version == second
