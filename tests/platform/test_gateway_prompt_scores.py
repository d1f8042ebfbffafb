"""Log-probabilities of prompts: ``echo``, ``max_tokens`` 0, token arrays and ``prompt_logprobs``, at every door."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lorikeet_testing.fake_engine import FakeEngine
from lorikeet_testing.web import WebProcess, eventually
from openai import OpenAI
from websockets.asyncio.client import connect

from control_plane.fleet.transport.coalescing import Chunk
from control_plane.gateway.dispatch.json_encoding import encode_large
from control_plane.gateway.openai.completion_request import CompletionRequest
from control_plane.gateway.openai.prompt_parts import PromptParts, token_name, top_by_name
from control_plane.gateway.openai.response_models import ChatCompletionResponse, CompletionResponse
from control_plane.gateway.openai.response_writers import CompletionShape, logprobs_json
from lora_engine.wire import engine_pb2 as pb


def post(web: WebProcess, path: str, **body: Any) -> httpx.Response:
    return httpx.post(
        f"{web.url}/v1/{path}", json={"model": "support", **body}, headers=web.tenants["acme"].bearer, trust_env=False
    )


TOKENS = ["say", " one", " two"]
TOPS = [None, {"best0": -0.25, " one": -0.5}, {"best0": -0.25, " two": -0.5}]


def test_an_echoed_prompt_has_log_probabilities(openai_client: OpenAI, engine: FakeEngine) -> None:
    choice = openai_client.completions.create(model="support", prompt="say one two", echo=True, logprobs=1).choices[0]
    assert choice.text == "say one twoone two"
    assert choice.logprobs is not None
    assert choice.logprobs.tokens == [*TOKENS, "one", " two"]
    assert choice.logprobs.token_logprobs == [None, -0.5, -0.5, -0.25, -0.25]
    assert choice.logprobs.top_logprobs == [*TOPS, {"one": -0.25}, {" two": -0.25}]
    assert choice.logprobs.text_offset == [0, 3, 7, 11, 14]


@pytest.mark.parametrize("logprobs", [None, 0, 2])
def test_only_the_prompt(openai_client: OpenAI, engine: FakeEngine, logprobs: int | None) -> None:
    answer = openai_client.completions.create(
        model="support", prompt=["say one two", "a b c d"], echo=True, logprobs=logprobs, max_tokens=0
    )
    assert [choice.text for choice in answer.choices] == ["say one two", "a b c d"]
    assert [choice.finish_reason for choice in answer.choices] == ["length", "length"]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (7, 0)
    assert all(submit.prompt_only and not submit.sampling.logprobs for submit in engine.submits)
    details = [choice.logprobs for choice in answer.choices]
    assert details == [None, None] if logprobs is None else [len(found.tokens) for found in details if found] == [3, 4]


def test_the_ledger_counts_no_output(web: WebProcess, openai_client: OpenAI, engine: FakeEngine) -> None:
    answer = openai_client.completions.create(model="support", prompt="a b c d", echo=True, logprobs=0, max_tokens=0)

    def recorded() -> Any:
        url, headers = f"{web.url}/api/tenants/acme/requests", web.tenants["acme"].bearer
        rows = httpx.get(url, headers=headers, trust_env=False).json()["results"]
        return [row for row in rows if answer.id.removeprefix("cmpl-") in row["id"]]

    row = eventually(recorded, what="the request in the ledger")[0]
    assert (row["prompt_tokens"], row["completion_tokens"], row["outcome"]) == (4, 0, "finished")


def test_token_arrays_are_echoed_as_their_text(openai_client: OpenAI, engine: FakeEngine) -> None:
    answer = openai_client.completions.create(model="support", prompt=[[0, 1], [2]], echo=True, max_tokens=0, n=2)
    assert [choice.text for choice in answer.choices] == ["river stone "] * 2 + ["amber "] * 2
    scored = openai_client.completions.create(model="support", prompt=[0, 1], echo=True, max_tokens=0, logprobs=0)
    details = scored.choices[0].logprobs
    assert details is not None
    assert (details.tokens, details.token_logprobs) == (["river ", "stone "], [None, -0.5])
    assert (details.top_logprobs, details.text_offset) == ([None, {"stone ": -0.5}], [0, 6])


@pytest.mark.parametrize("n", [1, 3])
def test_streams_begin_with_the_whole_prompt(openai_client: OpenAI, engine: FakeEngine, n: int) -> None:
    texts, tokens = [""] * n, [[] for _ in range(n)]  # type: list[str], list[list[str]]
    for chunk in openai_client.completions.create(
        model="support", prompt="say one two three four", echo=True, logprobs=1, stream=True, n=n
    ):
        choice = chunk.choices[0]
        texts[choice.index] += choice.text
        tokens[choice.index] += choice.logprobs.tokens if choice.logprobs else []
    assert texts == ["say one two three fourone two three four"] * n
    assert tokens == [["say", " one", " two", " three", " four", "one", " two", " three", " four"]] * n


def test_prompt_logprobs_of_completions(web: WebProcess, engine: FakeEngine) -> None:
    body = post(web, "completions", prompt="say one two", prompt_logprobs=2, n=2, max_tokens=1).json()
    CompletionResponse.model_validate(body)
    own = {"logprob": -0.5, "rank": 2, "decoded_token": " one"}
    for choice in body["choices"]:
        assert choice["logprobs"] is None
        first, second, third = choice["prompt_logprobs"]
        assert first is None
        assert second == {"101": own, "0": {"logprob": -0.25, "rank": 1, "decoded_token": "best0"}}
        assert list(third) == ["102", "0"]


def test_prompt_logprobs_of_chats(web: WebProcess, engine: FakeEngine) -> None:
    messages = [{"role": "user", "content": "say it"}]
    body = post(web, "chat/completions", messages=messages, prompt_logprobs=0).json()
    ChatCompletionResponse.model_validate(body)
    assert body["choices"][0]["message"]["content"] == "it"
    assert [entry and next(iter(entry.values()))["decoded_token"] for entry in body["prompt_logprobs"]] == [
        None, " say", " it"
    ]  # fmt: skip
    silent = post(web, "chat/completions", messages=messages, max_tokens=0).json()
    assert "prompt_logprobs" not in silent
    assert (silent["choices"][0]["message"]["content"], silent["usage"]["completion_tokens"]) == ("", 0)


async def test_websockets_tell_of_prompts_too(web: WebProcess, engine: FakeEngine) -> None:
    url = f"{web.url.replace('http', 'ws')}/ws/inference"
    request = {"model": "support", "prompt": "say one two", "echo": True, "logprobs": 0, "prompt_logprobs": 1, "n": 2}
    async with connect(url, additional_headers=web.tenants["acme"].bearer, proxy=None) as socket:
        await socket.recv()
        await socket.send(json.dumps({"type": "generate", "id": "a", "request": request}))
        deltas: dict[int, list[Any]] = {0: [], 1: []}
        while (frame := json.loads(await socket.recv()))["type"] != "done":
            if frame["type"] == "delta":
                deltas[frame["choice"]].append(frame)
    for frames in deltas.values():
        assert "".join(frame["text"] for frame in frames) == "say one twoone two"
        assert frames[0]["logprobs"]["tokens"] == TOKENS
        assert [entry and list(entry) for entry in frames[0]["prompt_logprobs"]] == [None, ["101", "0"], ["102", "0"]]
        assert not any("prompt_logprobs" in frame for frame in frames[1:])


def test_what_is_asked_of_prompts_is_bounded(web: WebProcess, engine: FakeEngine) -> None:
    assert post(web, "completions", prompt=["a b", "c"], prompt_logprobs=20).status_code == 200
    assert [submit.most_prompt_logprobs for submit in engine.submits] == [1 << 16] * 2
    assert post(web, "completions", prompt="a b", echo=True, logprobs=1, n=4, stream=True).status_code == 200
    assert engine.submits[-1].most_prompt_logprobs == 1 << 12
    refused = post(web, "completions", prompt="a b", prompt_logprobs=21).json()["error"]
    assert (refused["code"], refused["param"]) == ("invalid_value", "prompt_logprobs")
    streamed = post(web, "completions", prompt="a b", prompt_logprobs=1, stream=True).json()["error"]
    assert "prompt_logprobs" in streamed["message"]


@settings(suppress_health_check=[HealthCheck.too_slow])  # of a busy machine
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
        max_leaves=20,
    )
)
def test_large_answers_are_encoded_as_small_ones(value: Any) -> None:
    for large in (value, [value] * 600, {"a": [{"b": [value] * 257}]}):
        assert json.loads(encode_large(large)) == large


def test_a_prompt_whose_tokens_do_not_all_show_in_its_text() -> None:
    """A token before the text, a space before the first word, and a character in two tokens."""
    parts = PromptParts(scored=True)
    pieces = [b"<s>", b" Zo", b"\xc3", b"\xab", b"!"]
    scores = pb.PromptLogprobs(
        token_ids=range(5), logprobs=[0.0, -1, -2, -3, -4], ranks=[0, 1, 2, 3, 4], token_bytes=dict(enumerate(pieces))
    )
    assert parts.ready([Chunk(0, "", 0, prompt_logprobs=[scores])]) == []
    found = parts.of(0).openai(0, "Zoë!")
    assert found["tokens"] == ["<s>", " Zo", r"bytes:\xc3", r"bytes:\xab", "!"]
    assert found["text_offset"] == [0, 0, 2, 2, 3]
    as_ids = parts.of(0).openai(0, "Zoë!", as_ids=True)
    assert as_ids["tokens"] == [f"token_id:{token}" for token in range(5)]
    assert as_ids["top_logprobs"][1:] == [{f"token_id:{token}": -token} for token in range(1, 5)]
    assert as_ids["text_offset"] == found["text_offset"]


TOKEN_BYTES = st.sampled_from(
    [b"a", b" a", b"\xf0", b"\x9f\x90", b"\xb6", b"\xef\xbf\xbd", b"", b"token_id:1"]
) | st.binary(max_size=3)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.data(), st.dictionaries(st.integers(0, 30), TOKEN_BYTES, min_size=1, max_size=12), st.booleans())
def test_no_token_hides_another_one(data: st.DataObject, vocabulary: dict[int, bytes], as_ids: bool) -> None:
    """Each of the most likely tokens has a key of its own, and the token itself its own log-probability."""
    top = [(token, vocabulary[token], -float(rank)) for rank, token in enumerate(vocabulary)]
    token = data.draw(st.sampled_from(top)) if data.draw(st.booleans()) else (31, data.draw(TOKEN_BYTES), -50.0)
    found = top_by_name(token, top, as_ids=as_ids)
    assert found[token_name(token[0], token[1], as_ids=as_ids)] == token[2]
    assert sorted(found.values()) == sorted({token[2], *(logprob for _, _, logprob in top)})


@pytest.mark.parametrize("stream", [False, True])
def test_tokens_as_their_ids(web: WebProcess, engine: FakeEngine, stream: bool) -> None:
    """vLLM's return_tokens_as_token_ids: at both endpoints, also of an echoed prompt."""
    asked: dict[str, Any] = {"return_tokens_as_token_ids": True, "stream": stream}

    def choices(path: str, **body: Any) -> list[dict[str, Any]]:
        answer = post(web, path, **body, **asked)
        if not stream:
            return list(answer.json()["choices"])
        lines = [line for line in answer.text.splitlines() if line.startswith("data: {")]
        return [choice for line in lines for choice in json.loads(line[6:])["choices"]]

    tokens: list[str] = []
    for choice in choices("completions", prompt="say one two", echo=True, logprobs=2):
        details = choice["logprobs"] or {"tokens": [], "top_logprobs": [], "token_logprobs": []}
        tokens += details["tokens"]
        for token, top, logprob in zip(
            *(details[n] for n in ("tokens", "top_logprobs", "token_logprobs")), strict=True
        ):
            assert top is None or (top[token] == logprob and all(key.startswith("token_id:") for key in top))
    assert tokens == ["token_id:100", "token_id:101", "token_id:102", "token_id:3", "token_id:4"]
    said = [{"role": "user", "content": "say one two"}]
    entries = [
        entry
        for choice in choices("chat/completions", messages=said, logprobs=True, top_logprobs=1)
        for entry in (choice["logprobs"] or {"content": []})["content"]
    ]
    assert [(entry["token"], bytes(entry["bytes"])) for entry in entries] == [
        ("token_id:3", b"one"),
        ("token_id:4", b" two"),
    ]
    assert entries[0]["top_logprobs"][0]["token"] == "token_id:3"


def test_offsets_of_an_answer_whose_characters_are_several_tokens() -> None:
    asked = CompletionRequest(model="m", prompt="x", logprobs=1)
    shape = CompletionShape(asked, asked.prompt_parts())
    pieces = (b"a", b"\xf0\x9f", b"\x90", b"\xb6", b"b")
    entries = [pb.TokenLogprob(token_id=i, token_bytes=piece, logprob=-1) for i, piece in enumerate(pieces)]
    assert [logprobs_json(shape, 0, [entry])["text_offset"] for entry in entries] == [[0], [1], [1], [1], [2]]


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
def test_all_problems_of_a_request_are_named_at_once(web: WebProcess, path: str) -> None:
    messages = [{"role": "user", "content": "x"}, {"role": "user", "content": [{"type": "text"}]}]
    prompt = {"prompt": [["a"], [1]]} if path == "completions" else {"messages": messages}
    wrong = {"documents": [1], "temperature": 9, "max_tokns": 1, "audio": {}, "n": "two"}
    error = post(web, path, **prompt, **wrong).json()["error"]
    named = [problem["param"] for problem in error["problems"]]
    assert (error["param"], error["code"]) == ("documents", "unsupported_parameter")
    assert named[:3] == ["documents", "audio", "max_tokns"]
    assert {"temperature", "n"} < set(named)
    assert ("prompt[0][0]" if path == "completions" else "messages[1].content[0].text") in named
    assert all(problem["message"] in error["message"] for problem in error["problems"])


def test_a_request_with_hundreds_of_problems_gets_a_short_answer(web: WebProcess) -> None:
    answer = post(web, "completions", prompt="x", **{f"temperature{number}": 1 for number in range(500)})
    assert len(answer.content) < 8000
    assert "And 484 more." in answer.json()["error"]["message"]
