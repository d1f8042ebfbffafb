"""Files and batches: the official OpenAI client against a real web process and a scripted engine."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import httpx
import openai
import pytest
from lorikeet_testing.fake_engine import Behaviour, FakeEngine
from lorikeet_testing.web import WebProcess, eventually
from openai import OpenAI

from control_plane.gateway.batches.models import Batch, BatchLine
from control_plane.gateway.dispatch import batch_runner
from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.openai.response_models import BatchObject, FileList

OVER = {"completed", "failed", "expired", "cancelled"}


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour(known_digests_only=True, steps_per_second=1000)


@pytest.fixture(scope="module")
def web_settings() -> dict[str, str]:
    return {"LORIKEET_BATCH_MAX_LINES": "300", "LORIKEET_BATCH_FILE_MAX_BYTES": str(6 << 20)}


def client_of(web: WebProcess, tenant: str) -> OpenAI:
    return OpenAI(base_url=f"{web.url}/v1", api_key=web.tenants[tenant].key, max_retries=0, timeout=60)


def line(number: int, text: str, **more: Any) -> dict[str, Any]:
    body = {"model": "support", "messages": [{"role": "user", "content": text}]}
    return {"custom_id": f"r{number}", "method": "POST", "url": "/v1/chat/completions", "body": body, **more}


def upload(client: OpenAI, lines: list[Any]) -> Any:
    content = b"".join(json.dumps(entry).encode() + b"\n" for entry in lines)
    return client.files.create(file=("requests.jsonl", content), purpose="batch")


def batch_of(client: OpenAI, lines: list[Any], **more: Any) -> Any:
    file = upload(client, lines)
    asked: Any = {"endpoint": "/v1/chat/completions", **more}
    return client.batches.create(input_file_id=file.id, completion_window="24h", **asked)


def over(client: OpenAI, batch: Any, seconds: float = 60) -> Any:
    def ended() -> Any:
        found = client.batches.retrieve(batch.id)
        return found if found.status in OVER else None

    return eventually(ended, seconds, what="the end of the batch")


def results(client: OpenAI, file: str | None) -> dict[str, Any]:
    assert file is not None
    rows = [json.loads(row) for row in client.files.content(file).text.splitlines()]
    assert len({row["custom_id"] for row in rows}) == len(rows)
    return {row["custom_id"]: row for row in rows}


def http_get(web: WebProcess, path: str) -> Any:
    return httpx.get(web.url + path, headers=web.tenants["acme"].bearer, trust_env=False, timeout=30).json()


# -- files -------------------------------------------------------------------------------------------


def test_a_files_life(openai_client: OpenAI) -> None:
    made = upload(openai_client, [line(1, "say x")])
    assert (made.object, made.purpose, made.filename, made.status) == ("file", "batch", "requests.jsonl", "processed")
    assert made.expires_at is not None and made.expires_at > time.time()
    assert openai_client.files.retrieve(made.id).bytes == made.bytes
    assert made.id in {file.id for file in openai_client.files.list(purpose="batch")}
    assert json.loads(openai_client.files.content(made.id).text)["custom_id"] == "r1"
    assert openai_client.files.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        openai_client.files.retrieve(made.id)


def test_large_files_and_pages(openai_client: OpenAI) -> None:
    content = os.urandom(3 << 20)
    made = openai_client.files.create(file=("big.jsonl", content), purpose="batch")
    assert openai_client.files.content(made.id).content == content
    made_too = [upload(openai_client, [line(n, "x")]).id for n in range(3)]
    page = openai_client.files.list(limit=2)
    assert page.has_more and len(page.data) == 2
    listed = [file.id for file in openai_client.files.list(limit=2)]
    assert set(made_too) <= set(listed) and len(listed) == len(set(listed))
    with pytest.raises(openai.APIStatusError) as refused:
        openai_client.files.create(file=("huge.jsonl", bytes(8 << 20)), purpose="batch")
    assert refused.value.status_code == 413


def test_what_is_no_upload_is_refused(web: WebProcess) -> None:
    headers = web.tenants["acme"].bearer
    with httpx.Client(base_url=web.url, trust_env=False, timeout=30) as http:
        file = {"file": ("x.jsonl", b"{}")}
        assert http.post("/v1/files", files=file, data={"purpose": "batch"}).status_code == 401
        wrong = http.post("/v1/files", files=file, data={"purpose": "fine-tune"}, headers=headers)
        assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "purpose")
        assert http.post("/v1/files", data={"purpose": "batch"}, headers=headers).status_code == 415
        assert http.post("/v1/files", json={"purpose": "batch"}, headers=headers).status_code == 415
        torn = {**headers, "Content-Type": "multipart/form-data; boundary=x"}
        assert http.post("/v1/files", content=b"--y", headers=torn).status_code == 400
        assert http.put("/v1/files", headers=headers).headers["allow"] == "GET, POST"
        many = {**headers}
        for path in ("/v1/files?limit=0", "/v1/files?after=file-nonsense", "/v1/batches?limit=x"):
            assert http.get(path, headers=many).status_code == 400
        assert http.get("/v1/files/nonsense", headers=headers).status_code == 404


def test_parameters_that_clients_of_openai_send(openai_client: OpenAI, web: WebProcess) -> None:
    made = [upload(openai_client, [line(n, "x")]).id for n in range(3)]
    azure: Any = {"api-version": "2024-10-21"}
    assert openai_client.models.list(extra_query=azure).data
    newest = [file.id for file in openai_client.files.list(order="desc", extra_query=azure)]
    oldest = [file.id for file in openai_client.files.list(order="asc", limit=2)]
    assert newest[:3] == made[::-1]
    assert oldest == newest[::-1]
    openai_client.batches.list(limit=5, extra_query=azure)
    headers = web.tenants["acme"].bearer
    for path, name in (("/v1/files?order=up", "order"), ("/v1/models?limit=2", "limit"), ("/v1/batches?q=1", "q")):
        answer = httpx.get(web.url + path, headers=headers, trust_env=False)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, name)
    answer = httpx.get(f"{web.url}/v1/responses/resp_x?include[]=a&include=b", headers=headers, trust_env=False)
    assert answer.status_code == 404


def test_a_file_expires_when_its_form_says(openai_client: OpenAI) -> None:
    for seconds in (3600, 86_400, 2_592_000):
        after: Any = {"anchor": "created_at", "seconds": seconds}
        made = openai_client.files.create(file=("x.jsonl", b"{}"), purpose="batch", expires_after=after)
        assert made.expires_at == made.created_at + seconds
    plain = openai_client.files.create(file=("x.jsonl", b"{}"), purpose="batch")
    assert plain.expires_at == plain.created_at + 2_592_000


ANCHOR, SECONDS = "expires_after[anchor]", "expires_after[seconds]"
WRONG_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"expires_after": "nonsense"}, "expires_after"),
    ({"expires_after": '{"anchor": "created_at", "seconds": 3600}'}, "expires_after"),
    ({"expires_after.seconds": "3600"}, "expires_after.seconds"),
    ({"foo": "1", "bar": "2"}, "foo"),
    ({"purpose": ["batch", "batch"]}, "purpose"),
    ({ANCHOR: "created_at"}, SECONDS),
    ({SECONDS: "3600"}, ANCHOR),
    ({ANCHOR: "last_active_at", SECONDS: "3600"}, ANCHOR),
    *(
        ({ANCHOR: "created_at", SECONDS: seconds}, SECONDS)
        for seconds in ("3599", "2592001", "", "-3600", "3600.0", "1e4", "٣٦٠٠", " 3600", "9" * 40)
    ),
    ({ANCHOR: "created_at", SECONDS: ["3600", "7200"]}, SECONDS),
]


@pytest.mark.parametrize("fields, param", WRONG_FIELDS, ids=repr)
def test_fields_of_the_form_are_refused_by_name(web: WebProcess, fields: dict[str, Any], param: str) -> None:
    headers = web.tenants["acme"].bearer
    form, file = {"purpose": "batch", **fields}, {"file": ("x.jsonl", b"{}")}
    answer = httpx.post(f"{web.url}/v1/files", files=file, data=form, headers=headers, trust_env=False)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert param in answer.json()["error"]["message"]
    assert answer.json()["error"]["fix"]


def test_other_files_of_the_form_are_refused_by_name(web: WebProcess) -> None:
    headers = web.tenants["acme"].bearer
    content = ("x.jsonl", b"{}")
    for files, data, param in (
        ([("file", content), ("more", content)], {"purpose": "batch"}, "more"),
        ([("file", content), ("file", content)], {"purpose": "batch"}, "file"),
        ([("file", content), ("purpose", content)], {}, "purpose"),
        ([("x", (None, b"1"))], {"purpose": "batch", "file": "text"}, "x"),
        ([("file", (None, b"{}"))], {"purpose": "batch"}, "file"),
    ):
        answer = httpx.post(f"{web.url}/v1/files", files=files, data=data, headers=headers, trust_env=False)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


# -- batches -----------------------------------------------------------------------------------------


def test_a_batchs_life(openai_client: OpenAI, engine: FakeEngine, web: WebProcess) -> None:
    lines = [line(n, f"say answer {n}") for n in range(40)]
    lines[7]["body"]["model"] = "nonsense"
    batch = batch_of(openai_client, lines, metadata={"job": "nightly"})
    assert (batch.object, batch.status, batch.metadata) == ("batch", "validating", {"job": "nightly"})
    ended = over(openai_client, batch)
    BatchObject.model_validate(http_get(web, f"/v1/batches/{batch.id}"))
    FileList.model_validate(http_get(web, "/v1/files"))
    assert ended.status == "completed"
    assert vars(ended.request_counts) | {"total": 40, "completed": 39, "failed": 1} == vars(ended.request_counts)
    assert ended.created_at <= ended.in_progress_at <= ended.finalizing_at <= ended.completed_at
    answers = results(openai_client, ended.output_file_id)
    for number in set(range(40)) - {7}:
        response = answers[f"r{number}"]["response"]
        assert response["status_code"] == 200
        assert response["body"]["choices"][0]["message"]["content"] == f"answer {number}"
    failures = results(openai_client, ended.error_file_id)
    assert failures["r7"]["response"]["status_code"] == 404
    assert failures["r7"]["response"]["body"]["error"]["code"] == "model_not_found"
    assert all(submit.slo.background and not submit.slo.first_token_ms for submit in engine.submits)
    assert batch.id in {found.id for found in openai_client.batches.list()}
    told = "SELECT count(*) AS n FROM usage_usageevent WHERE batch AND outcome = 'finished'"
    assert web.query(told)[0]["n"] >= 39
    audited = {row["action"] for row in web.query("SELECT DISTINCT action FROM audit_auditevent")}
    assert {"file.create", "batch.create", "batch.completed"} <= audited


def test_completions_too(openai_client: OpenAI) -> None:
    request = {
        "custom_id": "c",
        "method": "POST",
        "url": "/v1/completions",
        "body": {"model": "fake-base", "prompt": ["say a", "say b"]},
    }
    ended = over(openai_client, batch_of(openai_client, [request], endpoint="/v1/completions"))
    body = results(openai_client, ended.output_file_id)["c"]["response"]["body"]
    assert [choice["text"] for choice in body["choices"]] == ["a", "b"]


def test_embeddings_too(openai_client: OpenAI, engine: FakeEngine) -> None:
    body = {"model": "support", "input": ["a b", "c"], "dimensions": 4}
    request = {"custom_id": "e", "method": "POST", "url": "/v1/embeddings", "body": body}
    ended = over(openai_client, batch_of(openai_client, [request], endpoint="/v1/embeddings"))
    found = results(openai_client, ended.output_file_id)["e"]["response"]["body"]
    assert [len(entry["embedding"]) for entry in found["data"]] == [4, 4]
    bad = {**request, "body": {**body, "pooling": "median"}}
    assert (
        over(openai_client, batch_of(openai_client, [bad], endpoint="/v1/embeddings")).errors.data[0].param
        == "body.pooling"
    )


def test_every_line_is_checked_before_any_runs(openai_client: OpenAI, engine: FakeEngine) -> None:
    bad = [
        line(1, "fine"),
        line(1, "twice"),
        line(2, "x", method="GET"),
        line(3, "x", url="/v1/completions"),
        {**line(4, "x"), "body": {"model": "support"}},
        {**line(5, "x"), "body": {**line(5, "x")["body"], "stream": True}},
        {**line(6, "x"), "custom_id": 6},
        [1],
    ]
    ended = over(openai_client, batch_of(openai_client, bad))
    assert (ended.status, ended.output_file_id) == ("failed", None)
    found = {(error.line, error.code) for error in ended.errors.data}
    assert found >= {(2, "duplicate_custom_id"), (3, "invalid_method"), (4, "mismatched_endpoint")}
    assert {line for line, _ in found} == {2, 3, 4, 5, 6, 7, 8}
    assert not engine.submits
    empty = over(openai_client, batch_of(openai_client, []))
    assert empty.errors.data[0].code == "empty_file"
    many = over(openai_client, batch_of(openai_client, [line(n, "x") for n in range(301)]))
    assert many.errors.data[0].code == "too_many_tasks"


def test_what_passes_with_time_is_waited_for(openai_client: OpenAI, engine: FakeEngine, web: WebProcess) -> None:
    """An engine that is too busy is no result of a line; what it refused is in no ledger."""
    before = web.query("SELECT count(*) AS n FROM usage_usageevent WHERE batch")[0]["n"]
    usual, engine.behaviour.max_waiting = engine.behaviour.max_waiting, 0
    try:
        batch = batch_of(openai_client, [line(1, "say x"), line(2, "say y")])
        eventually(lambda: len(engine.submits) >= 2, what="lines that were refused")
        counts = openai_client.batches.retrieve(batch.id).request_counts
        assert counts is not None and (counts.completed, counts.failed) == (0, 0)
    finally:
        engine.behaviour.max_waiting = usual
    ended = over(openai_client, batch)
    assert (ended.status, ended.error_file_id) == ("completed", None)
    assert set(results(openai_client, ended.output_file_id)) == {"r1", "r2"}
    assert web.query("SELECT count(*) AS n FROM usage_usageevent WHERE batch")[0]["n"] == before + 2


@pytest.mark.parametrize("status", [429, 503, 507])
async def test_a_line_is_sent_again_until_it_has_a_result(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit, a busy host, a server behind this one: after as long as the refusal says. Nothing else is."""
    refusals = [ApiError(status, "later", "Not now.", "Later.", retry_after_s=0.01)] * 3
    kept: list[Any] = []

    async def answer(*_: Any) -> dict[str, Any]:
        if refusals:
            raise refusals.pop()
        return {"object": "chat.completion"}

    async def keep(_function: Any, _batch: Any, _line: Any, result: Any, _ended: Any, failed: bool) -> bool:
        kept.append((result["response"]["status_code"], failed))
        return True

    monkeypatch.setattr(batch_runner, "_answer", answer)
    monkeypatch.setattr(batch_runner, "run_db", keep)
    monkeypatch.setattr(batch_runner, "_request_id", lambda _batch: "req")
    row = BatchLine(body="{}")
    await batch_runner._run_line(Batch(), row)
    refusals[:] = [ApiError(400, "bad", "Never.", "Mend it.")]
    await batch_runner._run_line(Batch(), row)
    assert kept == [(200, False), (400, True)]


def test_an_engines_no_is_the_lines_result(openai_client: OpenAI, engine: FakeEngine) -> None:
    ended = over(openai_client, batch_of(openai_client, [line(1, "fail invalid_value"), line(2, "say x")]))
    assert results(openai_client, ended.error_file_id)["r1"]["response"]["status_code"] == 400
    assert list(results(openai_client, ended.output_file_id)) == ["r2"]


def test_cancel(openai_client: OpenAI, engine: FakeEngine) -> None:
    batch = batch_of(openai_client, [line(1, "say x"), *(line(n, "hang") for n in range(2, 60))])
    eventually(lambda: openai_client.batches.retrieve(batch.id).request_counts.completed, what="a first result")
    with pytest.raises(openai.ConflictError):
        openai_client.files.delete(batch.input_file_id)
    assert openai_client.batches.cancel(batch.id).status == "cancelling"
    ended = over(openai_client, batch)
    assert ended.status == "cancelled"
    assert list(results(openai_client, ended.output_file_id)) == ["r1"]
    codes = {row["error"]["code"] for row in results(openai_client, ended.error_file_id).values()}
    assert codes == {"batch_cancelled"}
    eventually(lambda: not engine.running, what="aborted lines")
    with pytest.raises(openai.ConflictError):
        openai_client.batches.cancel(batch.id)


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"endpoint": "/v1/moderations"}, "endpoint"),
        ({"completion_window": "1h"}, "completion_window"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"frobnicate": 1}, "frobnicate"),
        ({"input_file_id": None}, "input_file_id"),
    ],
)
def test_bad_batches_are_named(web: WebProcess, change: dict[str, Any], param: str) -> None:
    body = {"input_file_id": "file-0", "endpoint": "/v1/chat/completions", "completion_window": "24h", **change}
    headers = web.tenants["acme"].bearer
    answer = httpx.post(f"{web.url}/v1/batches", json=body, headers=headers, trust_env=False, timeout=30)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


# -- a process that dies -----------------------------------------------------------------------------


@pytest.mark.parametrize("kills", [2, pytest.param(12, marks=pytest.mark.long)])
def test_a_killed_process_neither_loses_nor_doubles_a_line(
    web: WebProcess, openai_client: OpenAI, engine: FakeEngine, kills: int
) -> None:
    """Killed while lines run: the next one goes on, and result and usage of every line are there once."""
    engine.behaviour.steps_per_second = 60
    lines = [line(n, f"words {5 + n % 20}") for n in range(120)]
    batch = batch_of(openai_client, lines)
    for kill in range(1, kills + 1):
        reached = min(100, 100 * kill // (kills + 1))

        def far_enough(reached: int = reached) -> bool:
            counts = openai_client.batches.retrieve(batch.id).request_counts
            return counts is not None and counts.completed >= reached

        eventually(far_enough, 60, what=f"{reached} results")
        web.kill()
        web.start()
    engine.behaviour.steps_per_second = 1000
    ended = over(openai_client, batch, 90)
    assert ended.status == "completed", ended
    answers = results(openai_client, ended.output_file_id)
    assert set(answers) == {entry["custom_id"] for entry in lines}
    ids = {answer["response"]["request_id"] for answer in answers.values()}
    rows = web.query("SELECT request_id, completion_tokens FROM usage_usageevent WHERE batch")
    told = {row["request_id"]: row["completion_tokens"] for row in rows}
    for answer in answers.values():
        usage = answer["response"]["body"]["usage"]
        assert told[answer["response"]["request_id"]] == usage["completion_tokens"]
    since = [row for row in rows if row["request_id"] in ids]
    assert len(since) == len(lines)
    # The attempts that were killed are in no ledger, also when the engine's journal is read.
    eventually(lambda: not engine.running, what="the end of what nobody waits for")
    model = "SELECT count(*) AS n FROM usage_usageevent WHERE batch AND outcome = 'aborted'"
    assert web.query(model)[0]["n"] == 0


@pytest.mark.long
def test_an_evaluation_outlives_killed_processes(web: WebProcess, openai_client: OpenAI, engine: FakeEngine) -> None:
    """Killed twice while its requests run, with the worker inside: it goes on, and ends once, with one score."""
    path, headers = "/api/tenants/acme", web.tenants["acme"].bearer
    with httpx.Client(base_url=web.url, headers=headers, trust_env=False, timeout=30) as api:
        items = b"".join(b'{"prompt": "words %d", "expected": "x"}\n' % (5 + n % 20) for n in range(40))
        form = {"name": "killed", "metric": "contains"}
        sent = {"file": ("killed.jsonl", items)}
        assert api.post(f"{path}/evaluation-sets", data=form, files=sent).status_code == 201
        engine.behaviour.steps_per_second = 60
        body = {"set": "killed", "adapter": "support", "version": 1}
        made = api.post(f"{path}/evaluations", json=body).json()
        own = f"{path}/evaluations/{made['id']}"
        eventually(lambda: api.get(own).json()["batch"], 30, what="its batch")
        batch = api.get(own).json()["batch"]
        for reached in (10, 40):

            def far_enough(reached: int = reached) -> bool:
                return bool(http_get(web, f"/v1/batches/{batch}")["request_counts"]["completed"] >= reached)

            eventually(far_enough, 60, what=f"{reached} answers")
            assert api.get(own).json()["state"] == "running"
            web.kill()
            web.start()
        engine.behaviour.steps_per_second = 1000
        eventually(lambda: api.get(own).json()["state"] not in ("waiting", "running"), 90, what="its end")
        ended = api.get(own).json()
        assert (ended["state"], ended["batch"], ended["score"]["items"]) == ("completed", batch, 40), ended
        scores = api.get(f"{path}/adapters/support/versions/1").json()["evaluations"]
        assert [score["evaluation"] for score in scores] == [made["id"]]
    told = [row["action"] for row in web.query("SELECT action FROM audit_auditevent")]
    assert sorted(action for action in told if action.startswith(("evaluation.", "version.evaluate"))) == [
        "evaluation.completed", "evaluation.run", "evaluation.start", "version.evaluate",
    ]  # fmt: skip
    file = http_get(web, f"/v1/batches/{batch}")["output_file_id"]
    ids = {answer["response"]["request_id"] for answer in results(openai_client, file).values()}
    rows = [row["request_id"] for row in web.query("SELECT request_id FROM usage_usageevent WHERE batch")]
    assert len(ids) == 80 == len([row for row in rows if row in ids]), "each prompt by both models, and billed once"
