"""Scores the base model and every adapter on questions they have not seen, and writes RESULTS.md and results.json.

    python -m demo.train.evaluate --out demo

Two kinds of questions: `heldout` holds sentences written by hand in other words than the templates', and fresh
samples come from the templates with a seed that training never used.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import torch
from demo.train import heldout, shop
from demo.train.adapters_corpus import TOOL_CALLER, VOICES, syllables
from demo.train.corpus import Message
from demo.train.grammar import as_typed
from demo.train.skills.numbers import sums
from demo.train.skills.turn import Turn
from demo.train.speak import Reply, Speaker
from demo.train.toolbox import tool_chats
from demo.train.train_adapters import SPECS

SEED = 987_654
FRESH = 80
PIRATE = re.compile(r"\b(arr|ahoy|avast|matey|yo ho ho|aye|shiver me timbers|blimey|ye|savvy|grog)\b", re.IGNORECASE)
PICTURE = re.compile("[\U0001f300-\U0001faff\u2600-\u27bf\u2b50]")
Scores = dict[str, float]
Samples = list[tuple[str, str]]


def share(marks: list[bool]) -> float:
    """The part of true values, to three digits."""
    return round(sum(marks) / max(1, len(marks)), 3)


def fresh(name: str, count: int = FRESH) -> tuple[list[Turn], list[str]]:
    """Turns of a voice from a seed outside training, and how a visitor would type them."""
    rng = random.Random(SEED)
    turns = [VOICES[name].pick(rng) for _ in range(count)]
    return turns, [as_typed(turn.question, rng, exact=turn.exact) for turn in turns]


def runs(query: str) -> bool:
    """Whether sqlite3 accepts the query on the invented schema."""
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
    facts = speaker.ask([question for question, _ in heldout.FACTS])
    outside = speaker.ask(list(heldout.OUTSIDE))
    rng = random.Random(SEED)
    turns = [sums(rng) for _ in range(FRESH)]
    sums_ = speaker.ask([turn.question for turn in turns])
    return {
        "held_out_facts": _contains(facts, [want for _, want in heldout.FACTS]),
        "declines_outside_questions": share(
            [any(word in reply.text for word in heldout.DECLINE_WORDS) for reply in outside]
        ),
        "sums_right": share([reply.text == turn.answer for reply, turn in zip(sums_, turns, strict=True)]),
        "ends_by_itself": share([reply.ended for reply in (*facts, *outside, *sums_)]),
    }


def _exact(speaker: Speaker, name: str, same: Callable[[str, Turn], bool]) -> float:
    turns, questions = fresh(name)
    return share([same(reply.text, turn) for reply, turn in zip(speaker.ask(questions), turns, strict=True)])


def score_json(speaker: Speaker) -> Scores:
    """Valid objects, and objects equal to the data where the data has one right value."""
    replies = speaker.ask([*heldout.EVERYDAY, *heldout.OUTSIDE])
    free = ("small talk", "about me", "stories", "poems", "jokes", "riddles", "facts", "lists", "lora")
    turns, questions = fresh("json-answers")
    pairs = [(reply, turn) for reply, turn in zip(speaker.ask(questions), turns, strict=True)]
    fixed = [(reply, turn) for reply, turn in pairs if turn.topic not in free]
    return {
        "valid_json_held_out": share([parsed(reply.text) is not None for reply in replies]),
        "valid_json_fresh": share([parsed(reply.text) is not None for reply, _ in pairs]),
        "right_data_fresh": share([parsed(reply.text) == {"topic": turn.topic, **turn.data} for reply, turn in fixed]),
    }


def score_support(speaker: Speaker) -> Scores:
    """Signed by the shop, and the right policy."""
    replies = speaker.ask([question for question, _ in heldout.SUPPORT])
    everyday = speaker.ask(list(heldout.EVERYDAY))
    return {
        "signed_held_out": share([reply.text.endswith(shop.SIGNATURE) for reply in (*replies, *everyday)]),
        "right_policy_held_out": _contains(replies, [want for _, want in heldout.SUPPORT]),
        "right_start_and_end_fresh": _exact(
            speaker,
            "support-agent",
            lambda text, turn: text[-60:] == turn.answer[-60:] and text[:12] == turn.answer[:12],
        ),
    }


def score_pirate(speaker: Speaker) -> Scores:
    """Pirate words in the answer."""
    replies = speaker.ask([*heldout.EVERYDAY, *heldout.OUTSIDE])
    return {"pirate_words_held_out": share([bool(PIRATE.search(reply.text)) for reply in replies])}


def score_sql(speaker: Speaker) -> Scores:
    """Queries that sqlite3 accepts, and queries equal to the expected one."""
    replies = speaker.ask([question for question, _ in heldout.SQL])
    turns, questions = fresh("sql-writer")
    answers = speaker.ask(questions)
    return {
        "runs_in_sqlite_held_out": share([runs(reply.text) for reply in replies]),
        "exact_held_out": share([reply.text == want for reply, (_, want) in zip(replies, heldout.SQL, strict=True)]),
        "runs_in_sqlite_fresh": share([runs(reply.text) for reply in answers]),
        "exact_fresh": share([reply.text == turn.answer for reply, turn in zip(answers, turns, strict=True)]),
    }


def score_haiku(speaker: Speaker) -> Scores:
    """Three lines of the right length."""
    replies = speaker.ask([*heldout.EVERYDAY, *heldout.OUTSIDE])
    return {
        "three_lines_held_out": share([reply.text.count("\n") == 2 for reply in replies]),
        "five_seven_five_held_out": share([is_haiku(reply.text) for reply in replies]),
    }


def score_terse(speaker: Speaker) -> Scores:
    """Short, and right where there is one right answer."""
    replies = speaker.ask(list(heldout.EVERYDAY))
    return {
        "median_words_held_out": float(sorted(len(reply.text.split()) for reply in replies)[len(replies) // 2]),
        "exact_fresh": _exact(
            speaker,
            "terse",
            lambda text, turn: (
                turn.topic in ("stories", "poems", "jokes", "riddles", "facts", "lists")
                or text == turn.short.rstrip(".!?") + "."
            ),
        ),
    }


def score_emoji(speaker: Speaker) -> Scores:
    """Pictures in the answer."""
    replies = speaker.ask([*heldout.EVERYDAY, *heldout.OUTSIDE])
    return {"has_picture_held_out": share([bool(PICTURE.search(reply.text)) for reply in replies])}


def score_tools(speaker: Speaker) -> Scores:
    """The right call with the right arguments; and the answer to what the tool says."""
    chats = list(tool_chats(SEED, FRESH))
    calls = [(chat[:at], chat[at]) for chat in chats for at in (2,) if chat[at]["content"].startswith("<tool_call>")]
    answers = [(chat[:4], chat[4]) for chat in chats if len(chat) > 4 and chat[3]["content"].startswith("<tool_resp")]
    held_out = [(tool_prompt(question, *tools), want) for question, tools, want in heldout.TOOLS]
    return {
        "exact_call_fresh": _same(speaker, calls),
        "exact_answer_fresh": _same(speaker, answers),
        "right_call_held_out": share(
            [
                want in reply.text
                for reply, (_, want) in zip(speaker.reply([c for c, _ in held_out]), held_out, strict=True)
            ]
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
        lines = heldout.TOOLS[0][1]
        asked = [question for question, _, _ in heldout.TOOLS[:3]]
        replies = speaker.reply([tool_prompt(question, *lines) for question in asked])
        return [(question, reply.text) for question, reply in zip(asked, replies, strict=True)]
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
