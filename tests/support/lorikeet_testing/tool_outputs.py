"""Tool calls and reasoning as models write them, in each format, and what the parser must read."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from lora_engine.text.output import ChatOutput, ReasoningTags, ToolFormat

TOOLS = frozenset({"get_weather", "add", "f"})
THINK = ReasoningTags("<think>", "</think>")


@dataclass(frozen=True)
class Read:
    """The parsed output, joined over all pieces: text, reasoning, and (name, arguments) of each call."""

    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)


def read(output: ChatOutput, pieces: Iterable[str]) -> Read:
    """Feed the pieces, and check that deltas of calls come as OpenAI's do: id and name first, once, in order."""
    parser = output.choice(0)
    text = reasoning = ""
    calls: list[list[str]] = []
    for parsed in [*(parser.feed(piece) for piece in pieces), parser.finish()]:
        text, reasoning = text + parsed.text, reasoning + parsed.reasoning
        for delta in parsed.calls:
            if delta.id:
                assert delta.index == len(calls) and delta.name
                calls.append([delta.name, ""])
            assert delta.index == len(calls) - 1
            calls[-1][1] += delta.arguments
    assert parser.has_calls == bool(calls)
    return Read(text, reasoning, [(name, arguments) for name, arguments in calls])


def cut(text: str, at: Sequence[int]) -> list[str]:
    edges = [0, *sorted(at), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges)]


def output_of(format: str, **options: object) -> ChatOutput:
    return ChatOutput("request", ToolFormat(format), TOOLS, **options)  # type: ignore[arg-type]


def random_output(format: str, rng: random.Random) -> str:
    """Return text and calls, some of them damaged, as a model could write them."""
    parts = [_part(format, rng) for _ in range(rng.randrange(1, 5))]
    text = "".join(parts)
    if rng.random() < 0.3:
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(_SCRAPS) + text[at + rng.randrange(4) :]
    return text[: rng.randrange(len(text) + 1)] if rng.random() < 0.2 else text


_SCRAPS = ("", "{", "}", '"', "\\", "<", "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "[", "]", "(",
           ";", ",", "\n", "é", "<think>", "</think>", "\x00", "[ARGS]",
           "<|end|>", "<|channel|>", "<|start|>", "<|message|>")  # fmt: skip
_TEXTS = ("", "Sure. ", "Let me look:\n", "a < b [1] {x}", "\n\n", "日本 ", "<tool", "[TOOL_", "{")
_VALUES: tuple[object, ...] = (
    1,
    -2.5,
    True,
    None,
    "",
    "Oslo",
    'say "hi"',
    "</tool_call>",
    "a\\b",
    "]}",
    {"k": [1, {"x": "é"}]},
    [],
)


def _part(format: str, rng: random.Random) -> str:
    if rng.random() < 0.4:
        return rng.choice(_TEXTS)
    name = rng.choice((*sorted(TOOLS), "unknown"))
    arguments = {f"p{i}": rng.choice(_VALUES) for i in range(rng.randrange(3))}
    return _CALLS[format](name, arguments, rng)


def _hermes(name: str, arguments: object, rng: random.Random) -> str:
    space = rng.choice(("", "\n", " "))
    return f"<tool_call>{space}{json.dumps({'name': name, 'arguments': arguments})}{space}</tool_call>{space}"


def _llama_json(name: str, arguments: object, rng: random.Random) -> str:
    tag = rng.choice(("", "<|python_tag|>"))
    return f"{tag}{json.dumps({'name': name, 'parameters': arguments})}{rng.choice(('', '; ', ';'))}"


def _llama_pythonic(name: str, arguments: object, rng: random.Random) -> str:
    assert isinstance(arguments, dict)
    call = f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
    return f"{rng.choice(('', '<|python_start|>'))}[{', '.join([call] * rng.randrange(1, 3))}]"


def _mistral(name: str, arguments: object, rng: random.Random) -> str:
    written = json.dumps(arguments, ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.5:
        return f"[TOOL_CALLS]{name}{rng.choice(('', '[CALL_ID]abcdefghi'))}[ARGS]{written}"
    call = f'{{"name": "{name}", "arguments": {written}, "id": "abcdefghi"}}'
    return f"[TOOL_CALLS][{', '.join([call] * rng.randrange(1, 3))}]"


def _harmony(name: str, arguments: object, rng: random.Random) -> str:
    """Return messages of any kind, with a call among them."""
    written = json.dumps(arguments)
    start, end = rng.choice(("", "<|start|>assistant")), rng.choice(("<|end|>", "<|end|>\n", "<|return|>", ""))
    return rng.choice((
        f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{written}<|call|>",
        f"<|start|>assistant to=functions.{name}<|channel|>commentary json<|message|>{written}<|call|>",
        f"{start}<|channel|>analysis<|message|>I call {name} <b>{end}",
        f"{start}<|channel|>final<|message|>It is {written}.{end}",
        f"{start}<|channel|>analysis to=python<|message|>1 + 1<|call|>",
    ))  # fmt: skip


_CALLS = {
    "hermes": _hermes,
    "llama_json": _llama_json,
    "llama_pythonic": _llama_pythonic,
    "mistral": _mistral,
    "harmony": _harmony,
}
FORMATS = tuple(_CALLS)
