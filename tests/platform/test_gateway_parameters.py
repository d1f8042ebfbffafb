"""vLLM's and OpenAI's further parameters, and vLLM's ``/tokenize`` and ``/detokenize``."""

from __future__ import annotations

import gzip
import json
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from lorikeet_testing.console import Console
from lorikeet_testing.fake_engine import FakeEngine
from lorikeet_testing.web import WebProcess, eventually
from openai.types import completion_create_params as openai_text
from openai.types import embedding_create_params as openai_embeddings
from openai.types.chat import completion_create_params as openai_chat
from openai.types.responses import response_create_params as openai_responses
from pydantic import BaseModel

from control_plane.gateway.dispatch.errors import ApiError
from control_plane.gateway.openai.chat_request import ChatCompletionRequest
from control_plane.gateway.openai.completion_request import CompletionRequest
from control_plane.gateway.openai.embeddings import EmbeddingsRequest
from control_plane.gateway.openai.parameters import UNSUPPORTED, read_parameters
from control_plane.gateway.openai.response_models import ChatCompletionResponse, CompletionResponse
from control_plane.gateway.openai.tokenizing import DetokenizeResponse, TokenizeResponse
from control_plane.gateway.openai.unknown_fields import HARMLESS, OF_OTHER_SERVERS
from control_plane.gateway.responses.request import ResponsesRequest, read_request
from lora_engine.wire import engine_pb2 as pb

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "say it is"}]


def post(web: WebProcess, path: str, key: str = "", **body: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else web.tenants["acme"].bearer
    return httpx.post(web.url + path, json={"model": "support", **body}, headers=headers, trust_env=False)


def asked(web: WebProcess, engine: FakeEngine, path: str = CHAT, **parameters: Any) -> pb.Submit:
    """What the engine gets of a request with these parameters."""
    body = {"prompt": "say it is"} if path == TEXT else {"messages": MESSAGES}
    answer = post(web, path, **body, **parameters)
    assert answer.status_code == 200, answer.text
    return engine.submits[-1]


def refused(web: WebProcess, path: str = CHAT, **parameters: Any) -> dict[str, Any]:
    body = {"prompt": "say it is"} if path == TEXT else {"messages": MESSAGES}
    answer = post(web, path, **body, **parameters)
    assert answer.status_code == 400, answer.text
    error: dict[str, Any] = answer.json()["error"]
    return error


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def test_parameters_of_sampling_reach_the_engine(web: WebProcess, engine: FakeEngine) -> None:
    sampling = asked(
        web, engine, min_tokens=3, skip_special_tokens=False, include_stop_str_in_output=True, max_tokens=9
    ).sampling
    assert (sampling.min_tokens, sampling.keep_special_tokens, sampling.include_stop) == (3, True, True)
    plain = asked(web, engine)
    assert (plain.sampling.min_tokens, plain.sampling.keep_special_tokens, plain.sampling.include_stop) == (
        0,
        False,
        False,
    )
    assert not plain.HasField("add_special_tokens")
    assert not asked(web, engine, TEXT, add_special_tokens=False).add_special_tokens
    assert "min_tokens is larger" in refused(web, min_tokens=3, max_tokens=2)["message"]


def test_priorities_are_within_the_tenant_and_smaller_ones_first(web: WebProcess, engine: FakeEngine) -> None:
    assert [asked(web, engine, priority=value).slo.priority for value in (-5, 0, 7)] == [5, 0, -7]
    assert asked(web, engine).slo.priority == 0


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_salt_reaches_the_engine(web: WebProcess, engine: FakeEngine, path: str) -> None:
    assert asked(web, engine, path, cache_salt="of one user").cache_salt == "of one user"
    assert asked(web, engine, path).cache_salt == ""
    assert refused(web, path, cache_salt="")["param"] == "cache_salt"
    assert refused(web, path, cache_salt="x" * 257)["param"] == "cache_salt"


def test_a_suffix_reaches_the_engine(web: WebProcess, engine: FakeEngine) -> None:
    headers = web.tenants["acme"].bearer
    for prompt in ("say x", [1, 2]):
        body = {"model": "support", "prompt": prompt, "suffix": " end", "max_tokens": 2}
        answer = httpx.post(f"{web.url}/v1/completions", json=body, headers=headers, trust_env=False, timeout=30)
        assert answer.status_code == 200, answer.text
        assert engine.submits[-1].suffix == " end"
    for more, param in (({"echo": True}, "suffix"), ({"suffix": 1}, "suffix")):
        answer = httpx.post(f"{web.url}/v1/completions", json={**body, **more}, headers=headers, trust_env=False)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_how_a_chat_prompt_ends(web: WebProcess, engine: FakeEngine) -> None:
    plain = asked(web, engine).chat
    assert not (plain.no_generation_prompt or plain.continue_final_message)
    assert asked(web, engine, add_generation_prompt=False).chat.no_generation_prompt
    assert asked(web, engine, add_generation_prompt=False, continue_final_message=True).chat.continue_final_message
    assert "add_generation_prompt" in refused(web, continue_final_message=True)["message"]


def test_token_ids_are_returned(web: WebProcess, engine: FakeEngine) -> None:
    chat = post(web, CHAT, messages=MESSAGES, return_token_ids=True).json()
    ChatCompletionResponse.model_validate(chat)
    assert (chat["prompt_token_ids"], chat["choices"][0]["token_ids"]) == ([100, 101, 102, 103], [2, 3])
    text = post(web, TEXT, prompt=[[7, 8], [9]], return_token_ids=True, max_tokens=2, n=2).json()
    CompletionResponse.model_validate(text)
    assert [choice["prompt_token_ids"] for choice in text["choices"]] == [[7, 8]] * 2 + [[9]] * 2
    assert all(len(choice["token_ids"]) == 2 for choice in text["choices"])
    assert "prompt_token_ids" not in post(web, TEXT, prompt="say it").text


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("usage", [False, True])
def test_token_ids_are_streamed(web: WebProcess, engine: FakeEngine, path: str, usage: bool) -> None:
    body: dict[str, Any] = {"messages": MESSAGES} if path == CHAT else {"prompt": "say it is"}
    options = {"stream_options": {"include_usage": True}} if usage else {}
    first, *others = events(post(web, path, **body, stream=True, return_token_ids=True, **options))
    holder = first if path == CHAT else first["choices"][0]
    assert holder["prompt_token_ids"] == ([100, 101, 102, 103] if path == CHAT else [100, 101, 102])
    tokens = [token for event in others for choice in event["choices"] for token in choice.get("token_ids", [])]
    assert tokens == [2, 3]
    assert not any("prompt_token_ids" in json.dumps(event) for event in others)


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_usage_so_far_is_in_every_event(web: WebProcess, engine: FakeEngine, path: str) -> None:
    body: dict[str, Any] = {"messages": MESSAGES} if path == CHAT else {"prompt": "say it is"}
    options = {"include_usage": True, "continuous_usage_stats": True}
    *during, last = events(post(web, path, **body, stream=True, stream_options=options))
    prompt = 4 if path == CHAT else 3
    assert {event["usage"]["prompt_tokens"] for event in during} == {prompt}
    counts = [event["usage"]["completion_tokens"] for event in during]
    assert counts == sorted(counts)
    assert counts[-1] == last["usage"]["completion_tokens"] == 2
    assert during[-1]["usage"]["total_tokens"] == prompt + 2
    error = refused(web, stream=True, stream_options={"continuous_usage_stats": True})
    assert "include_usage" in error["message"]


def test_what_has_no_effect_is_accepted(web: WebProcess, engine: FakeEngine) -> None:
    values = {"store": True, "metadata": {"a": "b"}, "verbosity": "low", "service_tier": "flex", "user": "u",
              "prediction": {"type": "content", "content": "x"}, "prompt_cache_retention": "24h",
              "prompt_cache_key": "k", "prompt_cache_options": {"mode": "explicit"}, "safety_identifier": "s",
              "session_id": "s", "stream_interval": 4, "provider": {"order": ["x"]}, "models": ["a"],
              "route": "fallback", "transforms": [], "plugins": [], "chat_id": "c", "client_metadata": {}}  # fmt: skip
    assert set(values) == HARMLESS
    plain = asked(web, engine)
    harmless = asked(web, engine, **values)
    plain.request_id = harmless.request_id = ""
    plain.handle = harmless.handle = 0
    assert harmless == plain


def test_every_rule_is_in_the_documentation() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "api.md").read_text()
    assert not [name for name in {*HARMLESS, *UNSUPPORTED, *OF_OTHER_SERVERS} if f"`{name}`" not in text]


# Of vLLM 0.26, besides OpenAI's.
TEMPLATE = {"source": "{{ messages[0].content }}", "tool_source": "", "special_tokens": {"eos_token": "<e>"}}
GIVE_TEMPLATE = f"""
import django; django.setup()
from control_plane.adapters.registry.models import AdapterVersion
AdapterVersion.objects.filter(adapter__name="pirate").update(
    chat_template={TEMPLATE!r}, chat_template_digest="sha256:1")
"""


def test_chats_by_an_adapters_own_template_at_every_door(web: WebProcess, engine: FakeEngine) -> None:
    web.run("-c", GIVE_TEMPLATE)
    doors: dict[str, dict[str, Any]] = {
        CHAT: {"messages": MESSAGES},
        "/v1/responses": {"input": "say it is"},
        "/generate": {"inputs": "say it is", "parameters": {"apply_chat_template": True, "adapter_id": "pirate"}},
        "/tokenize": {"messages": MESSAGES},
    }

    def template(path: str, model: str = "pirate") -> pb.ChatTemplate | None:
        named = {} if path == "/generate" else {"model": model}
        answer = httpx.post(
            web.url + path, json={**doors[path], **named}, headers=web.tenants["acme"].bearer, trust_env=False
        )
        assert answer.status_code == 200, (path, answer.text)
        chat = engine.submits[-1].chat
        return chat.own_template if chat.HasField("own_template") else None

    eventually(lambda: template(CHAT), what="the template, once the model is looked up again")
    for path in doors:
        found = template(path)
        assert found is not None, path
        assert (found.source, dict(found.special_tokens)) == (TEMPLATE["source"], TEMPLATE["special_tokens"])
    assert template(CHAT, "support") is None


VLLM = """add_special_tokens allowed_token_ids bad_words cache_salt ec_transfer_params ignore_eos
    include_stop_str_in_output kv_transfer_params length_penalty logprob_token_ids min_p min_tokens priority
    prompt_logprobs repetition_detection repetition_penalty request_id response_format return_mm_kwargs
    return_token_ids return_token_offsets return_tokens_as_token_ids routed_experts_prompt_start session_id
    skip_special_tokens spaces_between_special_tokens stop_token_ids stream_interval structured_outputs
    thinking_token_budget top_k truncate_prompt_tokens truncation_side use_beam_search vllm_xargs watermarking"""
VLLM_CHAT = """add_generation_prompt chat_template chat_template_kwargs continue_final_message documents echo
    include_reasoning media_io_kwargs mm_processor_kwargs return_prompt_text"""
VLLM_EMBEDDINGS = """add_generation_prompt add_special_tokens cache_salt chat_template chat_template_kwargs
    continue_final_message embed_dtype endianness media_io_kwargs messages mm_processor_kwargs normalize padding
    priority request_id truncate_prompt_tokens truncation_side use_activation"""
OLDER_VLLM = "best_of guided_choice guided_grammar guided_json guided_regex"
BODIES: dict[type[BaseModel], tuple[list[type], str]] = {
    ChatCompletionRequest: (
        [openai_chat.CompletionCreateParamsBase, openai_chat.CompletionCreateParamsStreaming],
        f"{VLLM} {VLLM_CHAT} {OLDER_VLLM}",
    ),
    CompletionRequest: (
        [openai_text.CompletionCreateParamsBase, openai_text.CompletionCreateParamsStreaming],
        f"{VLLM} prompt_embeds {OLDER_VLLM}",
    ),
    EmbeddingsRequest: ([openai_embeddings.EmbeddingCreateParams], VLLM_EMBEDDINGS),
    ResponsesRequest: (
        [openai_responses.ResponseCreateParamsBase, openai_responses.ResponseCreateParamsStreaming],
        "",
    ),
}


@pytest.mark.parametrize("kind", BODIES)
def test_every_parameter_of_openai_and_vllm_is_known(kind: type[BaseModel]) -> None:
    """Served, accepted by a rule, or refused by its name: never taken for a mistake in spelling."""
    theirs, more = BODIES[kind]
    names = {name for typed in theirs for name in typed.__annotations__} | set(more.split())
    assert len(names) >= 20
    unknown = []
    for name in sorted(names):
        try:
            read = partial(read_request if kind is ResponsesRequest else read_parameters, kind)
            read({name: object()}, refuse_unknown=True)
        except ApiError as error:
            problems = error.details["problems"] if error.details else [{"param": error.param, "code": error.code}]
            unknown += [p["param"] for p in problems if (p["param"], p["code"]) == (name, "unknown_parameter")]
    assert not unknown


def test_all_problems_of_a_request_are_told_at_once(web: WebProcess) -> None:
    error = refused(web, tool_choice={"type": "function", "function": {"name": "f"}, "more": 1}, temperature=9,
                    suffix="x", bad_words=["x"], max_tokns=1, n=0)  # fmt: skip
    assert {(problem["param"], problem["code"]) for problem in error["problems"]} == {
        ("suffix", "unsupported_parameter"),
        ("bad_words", "unsupported_parameter"),
        ("max_tokns", "unknown_parameter"),
        ("tool_choice.more", "unknown_parameter"),
        ("temperature", "invalid_value"),
        ("n", "invalid_value"),
    }
    error = refused(web, tool_choice="required", suffix="x", max_tokns=1)
    assert [problem["param"] for problem in error["problems"]] == ["suffix", "max_tokns", "tool_choice"]
    assert "tools" in error["problems"][2]["message"]
    tool = {"type": "function", "function": {"name": "f", "input_schema": {}}, "more": 1}
    error = refused(web, tools=[tool], tool_choice="required", max_tokns=1)
    assert {problem["param"] for problem in error["problems"]} == {"max_tokns", "tools[0].function.input_schema"}


def test_values_that_ask_for_nothing_are_accepted(web: WebProcess, engine: FakeEngine) -> None:
    plain = asked(web, engine)
    values = {name: allowed[0] for name, allowed in UNSUPPORTED.items() if allowed}
    neutral = asked(
        web, engine, **{name: value for name, value in values.items() if name not in ("tools", "functions")}
    )
    plain.request_id = neutral.request_id = ""
    plain.handle = neutral.handle = 0
    # These are served by chats, and what they are set to changes nothing but how it is asked.
    neutral.chat.no_generation_prompt, neutral.chat.reasoning_effort = False, ""
    assert neutral == plain


# -- /tokenize and /detokenize ---------------------------------------------------


def test_tokenize_a_prompt_and_a_chat(web: WebProcess, engine: FakeEngine) -> None:
    body = post(web, "/tokenize", prompt="one two", return_token_strs=True).json()
    TokenizeResponse.model_validate(body)
    assert body == {"count": 2, "max_model_len": 4096, "tokens": [100, 101], "token_strs": ["one", " two"]}
    chat = post(web, "/tokenize", messages=MESSAGES, add_generation_prompt=False, continue_final_message=True).json()
    assert (chat["count"], chat["token_strs"]) == (4, None)
    assert engine.submits[-1].chat.continue_final_message
    post(web, "/tokenize", prompt="one", add_special_tokens=False)
    assert engine.submits[-1].HasField("add_special_tokens")
    assert not engine.submits[-1].add_special_tokens


def test_detokenize(web: WebProcess, engine: FakeEngine) -> None:
    body = post(web, "/detokenize", tokens=[0, 2]).json()
    DetokenizeResponse.model_validate(body)
    assert body == {"prompt": "river amber"}


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/tokenize", {}, 400, "invalid_value"),
        ("/tokenize", {"prompt": "a", "messages": MESSAGES}, 400, "invalid_value"),
        ("/tokenize", {"prompt": "a", "model": "nobody"}, 404, "model_not_found"),
        ("/tokenize", {"prompt": "fail chat_template_missing"}, 400, "chat_template_missing"),
        ("/detokenize", {"tokens": [-1]}, 400, "invalid_value"),
        ("/detokenize", {"tokens": "x"}, 400, "invalid_value"),
        ("/detokenize", {"tokns": [1]}, 400, "unknown_parameter"),
    ],
)
def test_what_cannot_be_tokenized(web: WebProcess, path: str, body: dict[str, Any], status: int, code: str) -> None:
    answer = post(web, path, **body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize"])
def test_tokenizing_needs_a_key_and_counts_as_a_request(web: WebProcess, path: str) -> None:
    body = {"model": "support", "prompt": "x"} if path == "/tokenize" else {"model": "support", "tokens": [1]}
    assert httpx.post(web.url + path, json=body, trust_env=False).status_code == 401
    assert httpx.get(web.url + path, headers=web.tenants["acme"].bearer, trust_env=False).status_code == 405
    key = Console(web, web.tenants["acme"]).new_key(requests_per_minute=2)
    statuses = [post(web, path, key, **body).status_code for _ in range(3)]
    assert statuses == [200, 200, 429]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/completions", {"prompt": ["a", 7]}, "prompt[1]"),
        ("/v1/completions", {"prompt": [1, "a"]}, "prompt[1]"),
        ("/v1/completions", {"prompt": [1, -1]}, "prompt[1]"),
        ("/v1/completions", {"prompt": [[1], ["a"]]}, "prompt[1][0]"),
        ("/v1/completions", {"prompt": [[1], []]}, "prompt[1]"),
        ("/v1/embeddings", {"input": ["a", ""]}, "input[1]"),
        ("/v1/embeddings", {"input": [[1], [-1]]}, "input[1][0]"),
        (CHAT, {"messages": MESSAGES, "tools": [{"type": "web_search", "x": 1}]}, "tools[0]"),
        (CHAT, {"messages": MESSAGES, "tool_choice": {"type": "allowed_tools", "x": 1}}, "tool_choice"),
        (
            CHAT,
            {"messages": [*MESSAGES, {"role": "user", "content": [{"type": "text"}]}]},
            "messages[1].content[0].text",
        ),
    ],
)
def test_one_fault_is_one_error(web: WebProcess, path: str, body: dict[str, Any], param: str) -> None:
    """Of a union's members only the one that was meant is spoken of, and no valid item is blamed."""
    error = post(web, path, **body).json()["error"]
    assert (error["param"], "problems" in error) == (param, False), error


@pytest.mark.parametrize("path", [CHAT, TEXT, "/v1/responses", "/v1/embeddings", "/v1/files", "/tokenize", "/generate"])
def test_a_compressed_body_is_refused_as_what_it_is(web: WebProcess, path: str) -> None:
    body = gzip.compress(json.dumps({"model": "support", "messages": MESSAGES}).encode())
    headers = {**web.tenants["acme"].bearer, "Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = httpx.post(web.url + path, content=body, headers=headers, trust_env=False)
    assert answer.status_code == 415, answer.text
    plain = {**headers, "Content-Encoding": "identity"}
    assert (
        httpx.post(web.url + path, content=b"{}", headers=plain, trust_env=False).status_code != 415 or "files" in path
    )
