"""Scores the base model and every adapter on questions they have not seen, and writes RESULTS.md and results.json.

    python -m demo.train.evaluate --out demo

Two kinds of questions: sentences written by hand in other words than the templates', and fresh
samples that come from the templates with a seed that training never used.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from demo.train import shop
from demo.train.adapters_corpus import TOOL_CALLER, VOICES, syllables
from demo.train.corpus import Message
from demo.train.grammar import as_typed
from demo.train.phrases import load
from demo.train.skills.exchange import Exchange
from demo.train.skills.numbers import sums
from demo.train.toolbox import tool_chats
from demo.train.train_adapters import SPECS
from peft import PeftModel
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

_TEXTS = load("heldout")
# Questions written by hand, in words that the templates do not use, with what a good answer must contain.
FACTS: tuple[tuple[str, str], ...] = _TEXTS["facts"]
OUTSIDE: tuple[str, ...] = _TEXTS["outside"]
DECLINE_WORDS = ("do not know", "outside my small world", "tiny demo model", "no opinion", "too hard", "cannot")
SUPPORT: tuple[tuple[str, str], ...] = _TEXTS["support"]
SQL: tuple[tuple[str, str], ...] = _TEXTS["sql"]
_WEATHER = "get_weather(city): Weather of a city."
_ORDER = "order_status(order_id): Look up an order."
_SUM = "calculate(expression): Evaluate an arithmetic expression."
# A question, the tools as the chat template lists them, and what the call must hold.
TOOLS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("What is the weather in Oslo?", (_WEATHER, _SUM), '"get_weather", "arguments": {"city": "Oslo"}'),
    ("Would I need a coat in Lisbon tomorrow?", (_WEATHER, _SUM), '"get_weather", "arguments": {"city": "Lisbon"}'),
    ("please compute 318 * 27", (_WEATHER, _SUM), '"calculate", "arguments": {"expression": "318 * 27"}'),
    ("How's the weather over in Vienna?", (_WEATHER,), '"city": "Vienna"'),
    _TEXTS["tools"],
    ("where did order 48213 end up?", (_ORDER, _WEATHER), "48213"),
    ("Any news of my order 7120?", (_ORDER,), "7120"),
    ("What time is it in Tokyo right now?", ("get_current_time(timezone): Get the current time.",), '"Tokyo"'),
)
EVERYDAY: tuple[str, ...] = _TEXTS["everyday"]

SEED = 987_654
FRESH = 80
PIRATE = re.compile(r"\b(arr|ahoy|avast|matey|yo ho ho|aye|shiver me timbers|blimey|ye|savvy|grog)\b", re.IGNORECASE)
PICTURE = re.compile("[\U0001f300-\U0001faff\u2600-\u27bf\u2b50]")
Scores = dict[str, float]
Samples = list[tuple[str, str]]


@dataclass(frozen=True)
class Reply:
    """A reply, and whether it ended by itself."""

    text: str
    ended: bool


class Speaker:
    """The base model, or the base model with one adapter, in float32."""

    def __init__(self, model_dir: Path, adapter: Path | None = None) -> None:
        self.tokenizer = PreTrainedTokenizerFast.from_pretrained(model_dir, padding_side="left")
        self.model: Any = LlamaForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
        if adapter is not None:
            self.model = PeftModel.from_pretrained(self.model, str(adapter))
        self.model.eval()

    def reply(self, chats: list[list[Message]], *, most: int = 160, batch: int = 16) -> list[Reply]:
        """Return a greedy reply to each chat, at most `most` tokens long."""
        return [reply for at in range(0, len(chats), batch) for reply in self._batch(chats[at : at + batch], most)]

    def ask(self, questions: list[str]) -> list[Reply]:
        """Replies to single questions."""
        return self.reply([[{"role": "user", "content": question}] for question in questions])

    @torch.inference_mode()
    def _batch(self, chats: list[list[Message]], most: int) -> list[Reply]:
        texts = [self.tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False) for chat in chats]
        inputs = self.tokenizer(
            texts, return_tensors="pt", padding=True, add_special_tokens=False, return_token_type_ids=False
        )
        output = self.model.generate(**inputs, do_sample=False, temperature=None, top_p=None, max_new_tokens=most)
        new = output[:, inputs["input_ids"].shape[1] :]
        end = self.tokenizer.eos_token_id
        return [Reply(self.tokenizer.decode(row, skip_special_tokens=True), bool((row == end).any())) for row in new]


def share(marks: list[bool]) -> float:
    """The part of true values, to three digits."""
    return round(sum(marks) / max(1, len(marks)), 3)


def fresh(name: str, count: int = FRESH) -> tuple[list[Exchange], list[str]]:
    """Return exchanges of a voice from a seed outside training, and how a visitor would type them."""
    rng = random.Random(SEED)
    exchanges = [VOICES[name].pick(rng) for _ in range(count)]
    return exchanges, [as_typed(exchange.question, rng, exact=exchange.exact) for exchange in exchanges]


def runs(query: str) -> bool:
    """Return whether sqlite3 accepts the query on the invented schema."""
    with sqlite3.connect(":memory:") as database:
        database.executescript(shop.SCHEMA)
        try:
            database.execute(query)
        except sqlite3.Error:
            return False
    return True


def parsed(text: str) -> dict[str, object] | None:
    """The JSON object in the text, if the text is one."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def is_haiku(text: str) -> bool:
    """Three lines, each within one syllable of 5, 7 and 5 (the counter is a rule of thumb)."""
    lines = text.split("\n")
    return len(lines) == 3 and all(
        abs(syllables(line) - want) <= 1 for line, want in zip(lines, (5, 7, 5), strict=True)
    )


def _contains(replies: list[Reply], wanted: list[str]) -> float:
    return share([want.lower() in reply.text.lower() for reply, want in zip(replies, wanted, strict=True)])


def score_base(speaker: Speaker) -> Scores:
    """Facts in other words, sums, refusals, and whether answers end."""
    facts = speaker.ask([question for question, _ in FACTS])
    outside = speaker.ask(list(OUTSIDE))
    rng = random.Random(SEED)
    exchanges = [sums(rng) for _ in range(FRESH)]
    sums_ = speaker.ask([exchange.question for exchange in exchanges])
    return {
        "held_out_facts": _contains(facts, [want for _, want in FACTS]),
        "declines_outside_questions": share([any(word in reply.text for word in DECLINE_WORDS) for reply in outside]),
        "sums_right": share([reply.text == exchange.answer for reply, exchange in zip(sums_, exchanges, strict=True)]),
        "ends_by_itself": share([reply.ended for reply in (*facts, *outside, *sums_)]),
    }


def _exact(speaker: Speaker, name: str, same: Callable[[str, Exchange], bool]) -> float:
    exchanges, questions = fresh(name)
    return share(
        [same(reply.text, exchange) for reply, exchange in zip(speaker.ask(questions), exchanges, strict=True)]
    )


def score_json(speaker: Speaker) -> Scores:
    """Valid objects, and objects equal to the data where the data has one right value."""
    replies = speaker.ask([*EVERYDAY, *OUTSIDE])
    free = ("small talk", "about me", "stories", "poems", "jokes", "riddles", "facts", "lists", "lora")
    exchanges, questions = fresh("json-answers")
    pairs = [(reply, exchange) for reply, exchange in zip(speaker.ask(questions), exchanges, strict=True)]
    fixed = [(reply, exchange) for reply, exchange in pairs if exchange.topic not in free]
    return {
        "valid_json_held_out": share([parsed(reply.text) is not None for reply in replies]),
        "valid_json_fresh": share([parsed(reply.text) is not None for reply, _ in pairs]),
        "right_data_fresh": share(
            [parsed(reply.text) == {"topic": exchange.topic, **exchange.data} for reply, exchange in fixed]
        ),
    }


def score_support(speaker: Speaker) -> Scores:
    """Signed by the shop, and the right policy."""
    replies = speaker.ask([question for question, _ in SUPPORT])
    everyday = speaker.ask(list(EVERYDAY))
    return {
        "signed_held_out": share([reply.text.endswith(shop.SIGNATURE) for reply in (*replies, *everyday)]),
        "right_policy_held_out": _contains(replies, [want for _, want in SUPPORT]),
        "right_start_and_end_fresh": _exact(
            speaker,
            "support-agent",
            lambda text, exchange: text[-60:] == exchange.answer[-60:] and text[:12] == exchange.answer[:12],
        ),
    }


def score_pirate(speaker: Speaker) -> Scores:
    """Pirate words in the answer."""
    replies = speaker.ask([*EVERYDAY, *OUTSIDE])
    return {"pirate_words_held_out": share([bool(PIRATE.search(reply.text)) for reply in replies])}


def score_sql(speaker: Speaker) -> Scores:
    """Queries that sqlite3 accepts, and queries equal to the expected one."""
    replies = speaker.ask([question for question, _ in SQL])
    exchanges, questions = fresh("sql-writer")
    answers = speaker.ask(questions)
    return {
        "runs_in_sqlite_held_out": share([runs(reply.text) for reply in replies]),
        "exact_held_out": share([reply.text == want for reply, (_, want) in zip(replies, SQL, strict=True)]),
        "runs_in_sqlite_fresh": share([runs(reply.text) for reply in answers]),
        "exact_fresh": share(
            [reply.text == exchange.answer for reply, exchange in zip(answers, exchanges, strict=True)]
        ),
    }


def score_haiku(speaker: Speaker) -> Scores:
    """Three lines of the right length."""
    replies = speaker.ask([*EVERYDAY, *OUTSIDE])
    return {
        "three_lines_held_out": share([reply.text.count("\n") == 2 for reply in replies]),
        "five_seven_five_held_out": share([is_haiku(reply.text) for reply in replies]),
    }


def score_terse(speaker: Speaker) -> Scores:
    """Short, and right where there is one right answer."""
    replies = speaker.ask(list(EVERYDAY))
    return {
        "median_words_held_out": float(sorted(len(reply.text.split()) for reply in replies)[len(replies) // 2]),
        "exact_fresh": _exact(
            speaker,
            "terse",
            lambda text, exchange: (
                exchange.topic in ("stories", "poems", "jokes", "riddles", "facts", "lists")
                or text == exchange.short.rstrip(".!?") + "."
            ),
        ),
    }


def score_emoji(speaker: Speaker) -> Scores:
    """Pictures in the answer."""
    replies = speaker.ask([*EVERYDAY, *OUTSIDE])
    return {"has_picture_held_out": share([bool(PICTURE.search(reply.text)) for reply in replies])}


def score_tools(speaker: Speaker) -> Scores:
    """The right call with the right arguments; and the answer to what the tool says."""
    chats = list(tool_chats(SEED, FRESH))
    calls = [(chat[:at], chat[at]) for chat in chats for at in (2,) if chat[at]["content"].startswith("<tool_call>")]
    answers = [(chat[:4], chat[4]) for chat in chats if len(chat) > 4 and chat[3]["content"].startswith("<tool_resp")]
    unseen = [(tool_prompt(question, *tools), want) for question, tools, want in TOOLS]
    return {
        "exact_call_fresh": _same(speaker, calls),
        "exact_answer_fresh": _same(speaker, answers),
        "right_call_held_out": share(
            [want in reply.text for reply, (_, want) in zip(speaker.reply([c for c, _ in unseen]), unseen, strict=True)]
        ),
    }


def tool_prompt(question: str, *lines: str) -> list[Message]:
    """A conversation's beginning with tools, as the chat template writes it."""
    system = "\n".join(["Tools:", *(f"- {line}" for line in lines)])
    return [{"role": "system", "content": system}, {"role": "user", "content": question}]


def _same(speaker: Speaker, pairs: list[tuple[list[Message], Message]]) -> float:
    replies = speaker.reply([chat for chat, _ in pairs])
    return share([reply.text == want["content"] for reply, (_, want) in zip(replies, pairs, strict=True)])


SCORERS: dict[str, Callable[[Speaker], Scores]] = {
    "json-answers": score_json,
    "support-agent": score_support,
    "pirate": score_pirate,
    "sql-writer": score_sql,
    "haiku": score_haiku,
    "terse": score_terse,
    "tool-caller": score_tools,
    "emoji": score_emoji,
}
_SHOWN = {
    "support-agent": ["Hi!", "Where is my order 48213?", "How much is the nest box?", "What is the capital of Peru?"],
    "sql-writer": [
        "How many customers live in Berlin?",
        "top 5 customers by revenue",
        "average price per category",
        "orders over 100 euros",
    ],
}
_SHOWN_ELSE = [
    "Hello!",
    "What is the capital of Peru?",
    "What is 12 + 30?",
    "What is LoRA?",
    "What do lions eat?",
    "How do I fix my bike?",
]


def samples(speaker: Speaker, name: str) -> Samples:
    """A few questions with their answers, for the eye."""
    if name == TOOL_CALLER:
        lines = TOOLS[0][1]
        questions = [question for question, _, _ in TOOLS[:3]]
        replies = speaker.reply([tool_prompt(question, *lines) for question in questions])
        return [(question, reply.text) for question, reply in zip(questions, replies, strict=True)]
    questions = _SHOWN.get(name, _SHOWN_ELSE)
    return [(question, reply.text) for question, reply in zip(questions, speaker.ask(questions), strict=True)]


def evaluate(root: Path) -> tuple[dict[str, Scores], dict[str, Samples]]:
    """Scores and samples of the base model and of every adapter under `root`."""
    base = Speaker(root / "model")
    scores, shown = {"base": score_base(base)}, {"base": samples(base, "base")}
    for spec in SPECS:
        speaker = Speaker(root / "model", root / spec.folder)
        scores[spec.name], shown[spec.name] = SCORERS[spec.name](speaker), samples(speaker, spec.name)
        print(spec.name, scores[spec.name], flush=True)
    return scores, shown


def report(scores: dict[str, Scores], shown: dict[str, Samples]) -> str:
    """The results as Markdown."""
    lines = [
        "# How the demo model does",
        "",
        "Written by `python -m demo.train.evaluate`; greedy, float32, CPU. `held_out`: sentences written by hand in other words than the templates'.",
        "`fresh`: samples of the templates with a seed that training never used. Shares from 0 to 1 unless the name says otherwise. There are only so many sums up to 100: training has met most of them.",
        "",
    ]
    for name, values in scores.items():
        lines += [
            f"## {name}",
            "",
            "| measure | value |",
            "| --- | --- |",
            *(f"| {key.replace('_', ' ')} | {value:g} |" for key, value in values.items()),
            "",
        ]
        for question, answer in shown[name]:
            lines += [f"> **{question}**", ">", *(f"> {line}  " if line else ">" for line in answer.split("\n")), ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("demo"))
    root = parser.parse_args().out
    torch.set_num_threads(1)  # such small matrices gain nothing from more
    all_scores, all_samples = evaluate(root)
    (root / "results.json").write_text(json.dumps(all_scores, indent=2) + "\n", encoding="utf-8")
    (root / "RESULTS.md").write_text(report(all_scores, all_samples), encoding="utf-8")
