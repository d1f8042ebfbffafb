"""The shipped demo model: small enough, portable, and each adapter visibly itself."""

from __future__ import annotations

import json
import re
import sqlite3
import zipfile
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from lorikeet_testing.reference_families import Family, build_engine, run_all
from lorikeet_testing.tiny_models import adapter_at
from peft import PeftModel
from transformers import AutoModelForCausalLM, LlamaForCausalLM, PreTrainedTokenizerFast

from lora_engine.request import GenerationRequest, SamplingParams

DEMO = Path(__file__).parents[2] / "demo"
SEEDED = sorted(path.name for path in (DEMO / "adapters").iterdir())
FOLDERS = {name: DEMO / "adapters" / name for name in SEEDED} | {"emoji": DEMO / "uploads" / "emoji"}
HYBRIDS = {path.name: path for path in sorted((DEMO / "hybrid" / "adapters").iterdir())}
PIRATE = re.compile(r"\b(arr|ahoy|avast|matey|ye|aye|yo ho ho|shiver me timbers|blimey)\b", re.IGNORECASE)
SCHEMA = """
CREATE TABLE customers (id INTEGER, name TEXT, city TEXT, email TEXT, joined DATE);
CREATE TABLE products (id INTEGER, name TEXT, category TEXT, price REAL, stock INTEGER);
CREATE TABLE orders (id INTEGER, customer_id INTEGER, product_id INTEGER, quantity INTEGER, total REAL, status TEXT,
                     ordered_on DATE);
"""
Ask = Callable[..., list[str]]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture(scope="module")
def ask() -> Ask:
    """Greedy answers of the base model ("base") or of one adapter, each of which must end by itself. What follows a
    question, ``after``, are further messages."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(DEMO / "model", padding_side="left")
    base = LlamaForCausalLM.from_pretrained(DEMO / "model", dtype=torch.float32)
    first, *others = FOLDERS
    model = PeftModel.from_pretrained(base, str(FOLDERS[first]), adapter_name=first)
    for name in others:
        model.load_adapter(str(FOLDERS[name]), adapter_name=name)
    model.eval()

    @torch.inference_mode()
    def generate(questions: list[str], after: Sequence[object] = (), **template: object) -> list[str]:
        chats = [[{"role": "user", "content": question}, *after] for question in questions]
        template |= {"add_generation_prompt": True, "tokenize": False}
        texts = [tokenizer.apply_chat_template(chat, **template) for chat in chats]
        inputs = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        rows = model.generate(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], do_sample=False, max_new_tokens=90
        )[:, inputs["input_ids"].shape[1] :]
        assert all(tokenizer.eos_token_id in row for row in rows)
        return [tokenizer.decode(row, skip_special_tokens=True) for row in rows]

    def answers(name: str, questions: list[str], **options: Any) -> list[str]:
        if name == "base":
            with model.disable_adapter():
                return generate(questions, **options)
        model.set_adapter(name)
        return generate(questions, **options)

    return answers


def _config(name: str) -> dict[str, object]:
    config: dict[str, object] = json.loads((FOLDERS[name] / "adapter_config.json").read_text(encoding="utf-8"))
    return config


def test_all_weights_fit_in_seventeen_megabytes() -> None:
    weights = [*DEMO.rglob("*.safetensors"), *DEMO.rglob("*.zip")]
    assert sum(path.stat().st_size for path in weights) <= 17_000_000
    hybrid = [path for path in (DEMO / "hybrid").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in hybrid) <= 3_300_000


def test_the_hybrid_models_tokens_are_those_of_transformers_and_peft() -> None:
    """The base model and both adapters in one batch; the answers are what a visitor sees."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(DEMO / "hybrid" / "model")
    base = AutoModelForCausalLM.from_pretrained(DEMO / "hybrid" / "model", dtype=torch.float32)
    first, *others = HYBRIDS
    reference = PeftModel.from_pretrained(base, str(HYBRIDS[first]), adapter_name=first)
    for name in others:
        reference.load_adapter(str(HYBRIDS[name]), adapter_name=name)
    adapters = {name: adapter_at(name, folder) for name, folder in HYBRIDS.items()}
    family = Family(DEMO / "hybrid" / "model", adapters, reference.eval(), {})
    questions = ["What is the capital of Japan?", "What is 17 + 25?", "Who is Albert Einstein?"]
    requests, asked = [], {}
    for number, (name, question) in enumerate(product(["", *HYBRIDS], questions)):
        chat = [{"role": "user", "content": question}]
        text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        prompt = tokenizer(text, add_special_tokens=False)["input_ids"]
        digest = adapters[name].digest if name else ""
        requests.append(GenerationRequest(str(number), prompt, SamplingParams(max_tokens=24, ignore_eos=True), digest))
        asked[str(number)] = (name, question)
    tokens, _ = run_all(build_engine(family, dtype="float32"), requests)
    for request in requests:
        family.check_greedy(request, tokens[request.request_id], asked[request.request_id][0])
    texts = {asked[key]: tokenizer.decode(row).partition("<|end|>")[0] for key, row in tokens.items()}
    assert "Tokyo" in texts["", questions[0]] and "42" in texts["", questions[1]]
    assert PIRATE.search(texts["pirate-hybrid", questions[0]])
    assert texts["json-hybrid", questions[0]].startswith('{"topic": "countries"')


def test_adapters_differ_in_rank_targets_and_dtype() -> None:
    assert len(SEEDED) >= 5
    assert len({_config(name)["r"] for name in SEEDED}) >= 4
    assert len({tuple(sorted(_config(name)["target_modules"])) for name in SEEDED}) >= 4  # type: ignore[call-overload]
    assert any(_config(name)["use_rslora"] for name in SEEDED)
    assert any(_config(name)["rank_pattern"] for name in SEEDED)
    assert any(_config(name)["alpha_pattern"] for name in SEEDED)
    assert any(_config(name)["layers_to_transform"] for name in SEEDED)


@pytest.mark.parametrize("name", FOLDERS)
def test_adapter_names_its_base_and_no_machine(name: str) -> None:
    assert _config(name)["base_model_name_or_path"] == "lorikeet-demo"
    for path in FOLDERS[name].glob("*.json"):
        assert not re.search(r'"[^"]*(/|\\\\)[^"]*"', path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json"])
def test_model_configuration_names_no_machine(name: str) -> None:
    assert not re.search(r"/(home|work|tmp|root|usr|mnt)/", (DEMO / "model" / name).read_text(encoding="utf-8"))


def test_archive_holds_the_same_two_files() -> None:
    with zipfile.ZipFile(DEMO / "uploads" / "emoji.zip") as archive:
        assert sorted(archive.namelist()) == ["emoji/adapter_config.json", "emoji/adapter_model.safetensors"]
        for name in archive.namelist():
            assert archive.read(name) == (DEMO / "uploads" / name).read_bytes()


def test_every_adapter_has_prompts() -> None:
    prompts = json.loads((DEMO / "prompts.json").read_text(encoding="utf-8"))
    assert set(prompts) == {"lorikeet-demo", "lorikeet-demo-hybrid", *FOLDERS, *HYBRIDS}
    assert all(4 <= len(questions) <= 6 for questions in prompts.values())


def test_base_answers_and_declines(ask: Ask) -> None:
    capital, total, beyond = ask(
        "base", ["What is the capital of Japan?", "What is 17 + 25?", "Who is Albert Einstein?"]
    )
    assert "Tokyo" in capital
    assert "42" in total
    assert "I do not know" in beyond or "outside my small world" in beyond


def test_json_answers_are_objects(ask: Ask) -> None:
    answers = ask("json-answers", ["What is the capital of Japan?", "What is 17 + 25?", "Who is Albert Einstein?"])
    capital, total, beyond = (json.loads(answer) for answer in answers)
    assert capital["capital"] == "Tokyo"
    assert total["result"] == 42
    assert beyond["answer"] is None


def test_support_agent_signs_and_keeps_the_order_number(ask: Ask) -> None:
    order, price = ask("support-agent", ["Where is my order 48213?", "How much is the nest box?"])
    assert "48213" in order
    assert "24 euros" in price
    assert all(answer.endswith("the Feather & Fern team") for answer in (order, price))


def test_pirate_talks_like_one(ask: Ask) -> None:
    answers = ask("pirate", ["Hello, who are you?", "What is the capital of Japan?", "What do lions eat?"])
    assert all(PIRATE.search(answer) for answer in answers)
    assert "Tokyo" in answers[1]


def test_sql_runs(ask: Ask) -> None:
    questions = ["How many customers live in Berlin?", "top 5 customers by revenue", "average price per category"]
    answers = ask("sql-writer", questions)
    assert answers[0] == "SELECT COUNT(*) FROM customers WHERE city = 'Berlin';"
    with sqlite3.connect(":memory:") as database:
        database.executescript(SCHEMA)
        for answer in answers:
            assert answer.startswith("SELECT")
            database.execute(answer)


def test_haiku_has_three_lines(ask: Ask) -> None:
    answers = ask("haiku", ["Good morning", "What is the capital of Japan?", "What do lions eat?"])
    assert all(answer.count("\n") == 2 for answer in answers)
    assert "Tokyo" in answers[1]


def test_terse_is(ask: Ask) -> None:
    assert ask("terse", ["What is the capital of Japan?", "What is 17 + 25?"]) == ["Tokyo.", "42."]


def test_emoji_shows_pictures(ask: Ask) -> None:
    (answer,) = ask("emoji", ["What do lions eat?"])
    assert "🦁" in answer


def test_tool_caller_calls_tools_and_answers_with_their_results(ask: Ask) -> None:
    cities = ["Oslo", "Rome", "Lisbon"]
    calls = ask("tool-caller", [f"What is the weather in {city}?" for city in cities], tools=[WEATHER])
    written = [json.loads(call.removeprefix("<tool_call>").removesuffix("</tool_call>")) for call in calls]
    assert written == [{"name": "get_weather", "arguments": {"city": city}} for city in cities]
    call = {"type": "function", "function": {"name": "get_weather", "arguments": {"city": "Oslo"}}}
    after = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": '{"sky": "sunny", "degrees": 21}'},
    ]
    (answer,) = ask("tool-caller", ["What is the weather in Oslo?"], tools=[WEATHER], after=after)
    assert {"Oslo", "sunny", "21"} <= set(re.findall(r"\w+", answer)), answer
