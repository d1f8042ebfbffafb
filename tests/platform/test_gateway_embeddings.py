"""``/v1/embeddings`` by the official client, against a real web process and a scripted engine."""

from __future__ import annotations

import base64
import struct
from typing import Any

import httpx
import openai
import pytest
from lorikeet_testing.console import Console
from lorikeet_testing.fake_engine import FakeEngine
from lorikeet_testing.seed import digest_of
from lorikeet_testing.web import WebProcess, eventually
from openai import OpenAI

from control_plane.gateway.openai.embeddings import EmbeddingsResponse
from lora_engine.wire import engine_pb2 as pb


def post(web: WebProcess, key: str = "", **body: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else web.tenants["acme"].bearer
    body = {"model": "support", "input": "one two", **body}
    return httpx.post(f"{web.url}/v1/embeddings", json=body, headers=headers, trust_env=False)


@pytest.mark.parametrize(
    ("given", "tokens"),
    [("one two", [2]), (["one", "two three"], [1, 2]), ([5, 6, 7], [3]), ([[5], [6, 7]], [1, 2])],
)
def test_inputs_of_every_form(openai_client: OpenAI, engine: FakeEngine, given: Any, tokens: list[int]) -> None:
    """The client asks for base64 by itself."""
    answer = openai_client.embeddings.create(model="support", input=given)
    assert [item.index for item in answer.data] == list(range(len(tokens)))
    for number, (item, count) in enumerate(zip(answer.data, tokens, strict=True)):
        assert item.embedding == pytest.approx([number, count, 0, *[0.1] * 5])
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (sum(tokens), sum(tokens))
    (submit,) = engine.submits
    assert submit.prompt_only
    assert submit.adapter_digest == digest_of("acme", "support")


def test_formats_say_the_same(web: WebProcess, engine: FakeEngine) -> None:
    numbers = post(web, encoding_format="float").json()
    packed = post(web, encoding_format="base64").json()
    for body in (numbers, packed):
        EmbeddingsResponse.model_validate(body)
    raw = base64.b64decode(packed["data"][0]["embedding"])
    assert struct.pack("<8f", *numbers["data"][0]["embedding"]) == raw


def test_pooling_and_dimensions_reach_the_engine(web: WebProcess, engine: FakeEngine) -> None:
    assert post(web).json()["data"][0]["embedding"][2] == 0
    body = {"pooling": "mean", "dimensions": 3, "add_special_tokens": False, "cache_salt": "s", "user": "u"}
    answer = post(web, **body, encoding_format="float")
    assert answer.json()["data"][0]["embedding"] == [0, 2, 1]
    submit = engine.submits[-1]
    assert (submit.pooling.kind, submit.pooling.dimensions) == (pb.Pooling.MEAN, 3)
    assert submit.cache_salt == "s"
    assert submit.HasField("add_special_tokens")
    assert not submit.add_special_tokens


def test_two_thousand_inputs_are_one_request(web: WebProcess, openai_client: OpenAI, engine: FakeEngine) -> None:
    """In the ledger, and against limits of requests and of choices at once."""
    key = Console(web, web.tenants["acme"]).new_key(requests_per_minute=1, concurrency=1)
    body = post(web, key, input=["one"] * 2048).json()
    assert [item["index"] for item in body["data"]] == list(range(2048))
    assert body["usage"]["prompt_tokens"] == 2048
    assert post(web, key).status_code == 429

    def recorded() -> Any:
        url, headers = f"{web.url}/api/tenants/acme/requests", web.tenants["acme"].bearer
        rows = httpx.get(url, headers=headers, trust_env=False).json()["results"]
        return [row for row in rows if row["prompt_tokens"] == 2048]

    (row,) = eventually(recorded, what="the request in the ledger")
    assert (row["endpoint"], row["completion_tokens"], row["outcome"]) == ("embeddings", 0, "finished")


@pytest.mark.parametrize(
    ("change", "code", "param"),
    [
        ({"input": ""}, "invalid_value", "input"),
        ({"input": []}, "invalid_value", "input"),
        ({"input": [""]}, "invalid_value", "input[0]"),
        ({"input": ["x"] * 2049}, "invalid_value", "input"),
        ({"input": None}, "missing_required_parameter", "input"),
        ({"encoding_format": "int8"}, "invalid_value", "encoding_format"),
        ({"dimensions": 0}, "invalid_value", "dimensions"),
        ({"pooling": "max"}, "invalid_value", "pooling"),
        ({"inputs": 1}, "unknown_parameter", "inputs"),
        ({"input": "word " * 5000}, "context_length_exceeded", "input"),
    ],
)
def test_bad_parameters_are_named(web: WebProcess, change: dict[str, Any], code: str, param: str) -> None:
    answer = post(web, **change)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, code, param), error


def test_who_may_embed(web: WebProcess, openai_client: OpenAI, engine: FakeEngine) -> None:
    view_only = web.tenants["acme"].view_only_key
    assert post(web, view_only).status_code == 403
    assert post(web, "lk_aaaaaaaa_wrong").status_code == 401
    with pytest.raises(openai.NotFoundError):
        openai_client.embeddings.create(model="nobody", input="x")
    assert not engine.submits
