"""Requests of every kind, each long enough for something to happen to its host meanwhile, and their answers in a form
in which they can be compared, streamed or not."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
import torch
from safetensors.torch import load_file, save
from websockets.sync.client import connect

from lora_engine.peft_format import CONFIG_FILE, WEIGHTS_FILE
from lorikeet_testing.adapter_forms import IN_A_FILE
from lorikeet_testing.web import ROOT

Body = dict[str, Any]
MODEL = "lorikeet-demo"
CHAT, TEXT, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
INVOCATION = [70, 71, 72]
PLAIN: Body = {"model": MODEL, "prompt": "Tell me about a river and", "max_tokens": 64, "ignore_eos": True,
               "temperature": 0}  # fmt: skip
TALK: Body = {"model": MODEL, "messages": [{"role": "user", "content": "Tell me a story about a fox."}],
              "max_tokens": 64, "ignore_eos": True, "temperature": 0}  # fmt: skip
SEEDED: Body = {"temperature": 0.9, "seed": 5, "top_p": 0.95}
NAMES = {"type": "array", "items": {"type": "string", "minLength": 4, "maxLength": 9}, "minItems": 8, "maxItems": 9}
NUMBERS = {"type": "array", "items": {"type": "integer"}, "minItems": 8, "maxItems": 9}
RECORD = {"type": "object", "additionalProperties": False, "required": ["names", "numbers"],
          "properties": {"names": NAMES, "numbers": NUMBERS}}  # fmt: skip
FORMAT = {"type": "json_schema", "json_schema": {"name": "record", "schema": RECORD, "strict": True}}
TOOL = {"type": "function", "function": {"name": "store", "description": "Keeps a record.", "parameters": RECORD}}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": CITY}}
ASKS_WEATHER = [{"role": "user", "content": "What is the weather in Oslo?"}]
LARK = 'start: (WORD " "){25}\nWORD: /[a-z]{2,7}/'

KINDS: dict[str, tuple[str, Body]] = {
    "greedy": (TEXT, PLAIN),
    "seeded": (TEXT, {**PLAIN, **SEEDED}),
    "all of sampling": (TEXT, {
        **PLAIN, "temperature": 0.8, "seed": 3, "min_p": 0.02, "presence_penalty": 1.0, "frequency_penalty": 0.5,
        "repetition_penalty": 1.2, "logit_bias": {"70": 2.0}, "min_tokens": 20,
    }),
    "several choices": (TEXT, {**PLAIN, "n": 3, **SEEDED}),
    "several prompts": (TEXT, {**PLAIN, "prompt": ["One day", "The sea", "A bird"], "n": 2, **SEEDED}),
    "logprobs": (TEXT, {**PLAIN, "logprobs": 3}),
    "echo": (TEXT, {**PLAIN, "echo": True, "logprobs": 2, "n": 2, **SEEDED}),
    "prompt logprobs": (TEXT, {**PLAIN, "prompt_logprobs": 2}),
    "token ids": (TEXT, {**PLAIN, "return_token_ids": True}),
    "salted": (TEXT, {**PLAIN, "cache_salt": "s", "priority": 1}),
    "12 tokens": (TEXT, {**PLAIN, "max_tokens": 12}),
    "30 tokens": (TEXT, {**PLAIN, "max_tokens": 30}),
    "50 tokens": (TEXT, {**PLAIN, "max_tokens": 50}),
    "regex": (TEXT, {**PLAIN, **SEEDED, "structured_outputs": {"regex": "([a-z]{3,6} ){20}"}}),
    "grammar": (TEXT, {**PLAIN, **SEEDED, "structured_outputs": {"grammar": LARK}}),
    "emoji": (TEXT, {**PLAIN, **SEEDED, "structured_outputs": {"regex": "(🦜|🐧|é|語){30}"}}),
    "adapter": (TEXT, {**PLAIN, "model": "pirate"}),
    "DoRA": (TEXT, {**PLAIN, "model": "dora"}),
    "activated": (TEXT, {**PLAIN, "model": "activated", "prompt": [1, 90, 91, 92, *INVOCATION, 93, 94]}),
    "combined": (TEXT, {**PLAIN, "model": "pirate+caller:0.5"}),
    "chat": (CHAT, {**TALK, "top_logprobs": 3, "logprobs": True}),
    "own template": (CHAT, {**TALK, "model": "own"}),
    "JSON schema": (CHAT, {**TALK, **SEEDED, "max_tokens": 300, "response_format": FORMAT}),
    "tools, required": (CHAT, {
        **TALK, **SEEDED, "model": "caller", "max_tokens": 300, "tools": [TOOL], "tool_choice": "required",
    }),
    "tools, auto": (CHAT, {
        **TALK, "model": "caller", "ignore_eos": False, "tools": [WEATHER], "messages": ASKS_WEATHER,
    }),
    "response": (RESPONSES, {"model": MODEL, "input": TALK["messages"], "max_output_tokens": 64, "temperature": 0}),
}  # fmt: skip
UNSTREAMED = {"prompt logprobs"}
WAYS = ("whole", "stream", "socket")


def uploads() -> dict[str, dict[str, bytes]]:
    """Return the files of the adapters that the requests name."""
    pirate, caller = _files("pirate"), _files("tool-caller")
    config = json.loads(pirate[CONFIG_FILE])
    return {
        "pirate": pirate,
        "caller": caller,
        "own": pirate | IN_A_FILE,
        "activated": pirate | {CONFIG_FILE: json.dumps({**config, "alora_invocation_tokens": INVOCATION}).encode()},
        "dora": {CONFIG_FILE: json.dumps({**config, "use_dora": True}).encode(), WEIGHTS_FILE: _with_magnitudes()},
    }


def _files(name: str) -> dict[str, bytes]:
    folder = ROOT / "demo" / "adapters" / name
    return {file: (folder / file).read_bytes() for file in (CONFIG_FILE, WEIGHTS_FILE)}


def _with_magnitudes() -> bytes:
    """Return the adapter with DoRA magnitudes a little larger than the norms of the base's columns."""
    tensors = load_file(ROOT / "demo" / "adapters" / "pirate" / WEIGHTS_FILE)
    base = load_file(ROOT / "demo" / "model" / "model.safetensors")
    for name in [name for name in tensors if name.endswith("lora_A.weight")]:
        matrix = base[name.removeprefix("base_model.model.").replace("lora_A.weight", "weight")]
        magnitude = 1.05 * torch.linalg.vector_norm(matrix.float(), dim=1)
        tensors[name.replace("lora_A.weight", "lora_magnitude_vector")] = magnitude.to(matrix.dtype)
    return save(tensors)


@dataclass
class Answer:
    """An answer by choice: text, calls as [name, arguments], log-probabilities as sent, finish reason."""

    texts: dict[int, str] = field(default_factory=dict)
    calls: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    logprobs: dict[int, list[Any]] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    prompt_details: list[Any] = field(default_factory=list)
    usage: dict[str, int] = field(default_factory=dict)

    def add(self, body: Body) -> None:
        """Add a whole answer, or an event of a stream."""
        for choice in body.get("choices", ()):
            index, message = choice["index"], choice.get("delta") or choice.get("message") or choice
            text = message.get("content") if "content" in message else message.get("text")
            self.texts[index] = self.texts.get(index, "") + (text or "")
            for number, call in enumerate(message.get("tool_calls") or ()):
                made = self.calls.setdefault((index, call.get("index", number)), ["", ""])
                made[0] += call["function"].get("name") or ""
                made[1] += call["function"]["arguments"]
            self._add_logprobs(index, choice.get("logprobs") or {})
            if choice.get("finish_reason"):
                self.reasons[index] = choice["finish_reason"]
            self.prompt_details += [choice[name] for name in ("prompt_logprobs", "prompt_token_ids") if name in choice]
        self.add_usage(body.get("usage") or {})

    def add_usage(self, usage: dict[str, Any]) -> None:
        names = (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"))
        self.usage |= {name: usage[name if name in usage else other] for name, other in names} if usage else {}

    def _add_logprobs(self, index: int, logprobs: Body) -> None:
        entries = self.logprobs.setdefault(index, [])
        if "content" in logprobs:
            entries += [
                [entry["token"], entry["logprob"], entry["top_logprobs"]] for entry in logprobs["content"] or ()
            ]
        elif logprobs:
            names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
            entries += map(list, zip(*(logprobs[name] for name in names), strict=True))

    def add_response(self, event: Body) -> None:
        """Add a whole answer of the Responses API, or an event of its stream."""
        if event.get("type") == "response.output_text.delta":
            self.texts[0] = self.texts.get(0, "") + event["delta"]
        whole = event.get("response", event)
        if whole and whole.get("object") == "response" and whole.get("usage"):
            text = "".join(part["text"] for item in whole["output"] for part in item["content"])
            assert self.texts.setdefault(0, text) == text
            self.reasons[0] = whole["status"]
            self.add_usage(whole["usage"])


def differences(one: Any, other: Any, at: str = "") -> list[str]:
    """Return the paths at which two answers differ; log-probabilities may differ by 2e-3."""
    if isinstance(one, float) and isinstance(other, float):
        return [] if abs(one - other) < 2e-3 else [f"{at}: {one} and {other}"]
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [difference for key in one for difference in differences(one[key], other[key], f"{at}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [difference for i, pair in pairs for difference in differences(*pair, f"{at}[{i}]")]
    return [] if one == other else [f"{at}: {one!r} and {other!r}"]


class Sender(threading.Thread):
    """A thread that sends one request, and the answer's state."""

    def __init__(
        self,
        http: httpx.Client,
        name: str,
        way: str,
        *,
        what: tuple[str, Body] | None = None,
        key: str = "",
        leaves_after: int = 0,
    ) -> None:
        """``way``: "whole", "stream" or "socket"; ``what`` it asks for if not the kind that has its name; ``key``: its
        Idempotency-Key; it is left after so many events, if any."""
        super().__init__(daemon=True)
        self.name, self.way, self._http, self._leaves_after = name, way, http, leaves_after
        self.path, self._body = what or KINDS[name]
        self._headers = {"Idempotency-Key": key} if key else {}
        self.answer, self.error, self.request_id = Answer(), "", ""
        self.events, self.longest_pause_s, self._last = 0, 0.0, 0.0
        self.is_replay = False

    def run(self) -> None:
        try:
            {"whole": self._whole, "stream": self._stream, "socket": self._socket}[self.way]()
        except (httpx.HTTPError, OSError, EOFError) as error:
            self.error = self.error or repr(error)

    def _whole(self) -> None:
        answer = self._http.post(self.path, json=self._body, headers=self._headers)
        self._began(answer)
        if answer.status_code != 200:
            self.error = answer.text
        elif self.path == RESPONSES:
            self.answer.add_response(answer.json())
        else:
            self.answer.add(answer.json())

    def _stream(self) -> None:
        more = {} if self.path == RESPONSES else {"stream_options": {"include_usage": True}}
        body = {**self._body, "stream": True, **more}
        with self._http.stream("POST", self.path, json=body, headers=self._headers) as answer:
            self._began(answer)
            if answer.status_code != 200:
                self.error = answer.read().decode()
            for line in answer.iter_lines():
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line.removeprefix("data: "))
                if event.get("error") and event.get("object") != "response":
                    self.error = json.dumps(event["error"])
                    return
                self._came()
                (self.answer.add_response if self.path == RESPONSES else self.answer.add)(event)
                if self._leaves_after and self.events >= self._leaves_after:
                    return

    def _socket(self) -> None:
        url = f"{str(self._http.base_url).replace('http', 'ws', 1)}/ws/inference"
        headers = {"Authorization": self._http.headers["Authorization"]}
        with connect(url, additional_headers=headers, proxy=None) as socket:
            assert json.loads(socket.recv())["type"] == "hello"
            socket.send(json.dumps({"type": "generate", "id": "g", "request": self._body}))
            for frame in socket:
                message = json.loads(frame)
                if message["type"] == "error":
                    self.error = json.dumps(message["error"])
                elif message["type"] == "accepted":
                    self.request_id = message["request_id"]
                elif message["type"] == "delta":
                    self._came()
                    self.answer.add({"choices": [{**message, "index": message["choice"]}]})
                elif message["type"] == "done":
                    self.answer.reasons = dict(enumerate(message["finish_reason"]))
                    self.answer.add_usage(message["usage"])
                if message["type"] in ("done", "error"):
                    return

    def _began(self, answer: httpx.Response) -> None:
        self.request_id = answer.headers["x-request-id"]
        self.is_replay = "idempotent-replayed" in answer.headers

    def _came(self) -> None:
        now = time.monotonic()
        self.longest_pause_s = max(self.longest_pause_s, now - self._last if self._last else 0.0)
        self.events, self._last = self.events + 1, now


def every_kind(http: httpx.Client, first: int) -> list[Sender]:
    """Start one request of each kind, alternating the way of sending. Numbers 0 to 2 together cover every way."""
    started = []
    for number, (name, (path, _)) in enumerate(KINDS.items(), first):
        ways = WAYS[:1] if name in UNSTREAMED else WAYS[:2] if path == RESPONSES else WAYS
        started.append(Sender(http, name, ways[number % len(ways)]))
    return started


def upload(http: httpx.Client, name: str, files: dict[str, bytes]) -> str:
    """Upload an adapter and return the upload's id."""
    parts = [("files", (file, content)) for file, content in files.items()]
    sent = http.post("/api/tenants/acme/uploads", data={"name": name}, files=parts)
    assert sent.status_code in (200, 201, 202), sent.text
    return str(sent.json()["id"])


def models(http: httpx.Client) -> set[str]:
    return {model["id"] for model in http.get("/v1/models").json()["data"]}
