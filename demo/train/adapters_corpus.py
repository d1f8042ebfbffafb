"""Renders the world in other voices: one per adapter. Each voice answers the same kind of questions differently.

A `Voice` picks exchanges and renders their answers. Run as a script with a voice's name to look at samples.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from demo.train import shop
from demo.train.corpus import Message, dialogue, messages, single
from demo.train.phrases import load
from demo.train.skills.exchange import Exchange
from demo.train.toolbox import tool_chats

_TEXTS = load("adapters_corpus")

Rng = random.Random
TOOL_CALLER = "tool-caller"


@dataclass(frozen=True)
class Voice:
    """The way an adapter speaks; `systems` are the instructions under which the base model practised this voice."""

    name: str
    render: Callable[[Exchange, Rng], str]
    systems: tuple[str, ...]
    pick: Callable[[Rng], Exchange] = single


# ---------------------------------------------------------------------------------------------------------------
# json-answers


def as_json(exchange: Exchange, rng: Rng) -> str:
    """The answer's data as one JSON object on one line."""
    del rng
    return json.dumps({"topic": exchange.topic, **exchange.data}, ensure_ascii=False)


# ---------------------------------------------------------------------------------------------------------------
# terse


def as_terse(exchange: Exchange, rng: Rng) -> str:
    """A word or two."""
    del rng
    return exchange.short.rstrip(".!?") + "."


# ---------------------------------------------------------------------------------------------------------------
# pirate

_PIRATE_WORDS = _TEXTS["pirate_words"]
_PIRATE_MAP = dict(_PIRATE_WORDS)
_PIRATE_RE = re.compile(r"\b(" + "|".join(sorted(_PIRATE_MAP, key=len, reverse=True)) + r")\b")
_OPENERS = _TEXTS["openers"]
_CLOSERS = (" Arr!", " Savvy?", " By me wooden leg!", " Hoist the sails!", " Now fetch me some grog!", " Yo ho ho!")


def as_pirate(exchange: Exchange, rng: Rng) -> str:
    """The plain answer in the mouth of a pirate."""
    if exchange.topic == "code":
        return rng.choice(_OPENERS) + "Here be yer code:\n" + exchange.answer
    text = _PIRATE_RE.sub(lambda match: _PIRATE_MAP[match.group(1)], exchange.answer)
    opener = rng.choice(_OPENERS)
    if "\n" in text:
        return opener + "Here it be:\n" + text
    if text.startswith("Ahoy") and opener.startswith("Ahoy"):
        opener = "Arr! "
    return opener + text + (rng.choice(_CLOSERS) if rng.random() < 0.5 else "")


# ---------------------------------------------------------------------------------------------------------------
# haiku

_UNITS = _TEXTS["units"]
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_ODD_SYLLABLES = _TEXTS["odd_syllables"]


def number_words(n: int) -> str:
    """A whole number from 0 to 999 in words."""
    if n < 20:
        return _UNITS[n]
    if n < 100:
        return _TENS[n // 10] + ("-" + _UNITS[n % 10] if n % 10 else "")
    return _UNITS[n // 100] + " hundred" + (" " + number_words(n % 100) if n % 100 else "")


def syllables(text: str) -> int:
    """The number of spoken syllables, by counting groups of vowels; good enough for this small vocabulary."""
    text = re.sub(
        r"\d+", lambda match: number_words(int(match.group())) if len(match.group()) < 4 else match.group(), text
    )
    return sum(_word_syllables(word) for word in re.findall(r"[^\W\d_]+", text.lower()))


def _word_syllables(word: str) -> int:
    if word in _ODD_SYLLABLES:
        return _ODD_SYLLABLES[word]
    groups = len(re.findall(r"[aeiouyáéíóúàèìòùäöü]+", word))
    silent_e = word.endswith("e") and not word.endswith(("le", "ee", "ie", "oe", "ue")) and groups > 1
    silent_es = word.endswith(("ves", "mes", "nes", "kes", "les", "res", "tes")) and groups > 1
    silent_ed = word.endswith("ed") and not word.endswith(("ted", "ded")) and groups > 1
    return max(1, groups - silent_e - silent_es - silent_ed)


_LEADS = {
    0: ("",),
    1: ("hush:", "look:"),
    2: ("I hear", "the wind:", "softly:"),
    3: ("the wind says", "I whisper:", "the reeds hum:"),
    4: ("the answer is", "the old pond says", "a small bird sings:"),
    5: ("the evening answers", "the quiet moon says", "the river whispers:"),
    6: ("a small bird answers me:", "the moon on the lake says", "the frog by the pond sings:"),
}
_FIRST = _TEXTS["first"]
_FIRST_ANY = ("soft light on the pond", "a leaf turns and falls", "still water listens", "dawn over the fields")
_LAST = _TEXTS["last"]
_MIDDLE = _TEXTS["middle"]
_MIDDLE_ANY = ("the truth is a quiet stream", "small things tell of greater things")


def as_haiku(exchange: Exchange, rng: Rng) -> str:
    """Three lines of five, seven and five syllables; the answer stands in the middle if it fits."""
    spoken = exchange.short.rstrip(".!?")
    room = 7 - syllables(spoken)
    plain = exchange.topic not in ("small talk", "about me", "stories", "unknown", "jokes", "lora")
    if plain and 0 <= room <= 6:
        middle = f"{rng.choice(_LEADS[room])} {spoken[:1].lower() + spoken[1:] if not exchange.topic.startswith('countr') else spoken}".strip()
    else:
        middle = rng.choice(_MIDDLE.get(exchange.topic, _MIDDLE_ANY))
    return "\n".join((rng.choice(_FIRST.get(exchange.topic, _FIRST_ANY)), middle, rng.choice(_LAST)))


# ---------------------------------------------------------------------------------------------------------------
# emoji

_EMOJI = _TEXTS["emoji"]
_EMOJI_RE = re.compile(r"\b(" + "|".join(sorted(_EMOJI, key=len, reverse=True)) + r")(s|es)?\b", re.IGNORECASE)
_EMOJI_TOPIC = _TEXTS["emoji_topic"]


def as_emoji(exchange: Exchange, rng: Rng) -> str:
    """The plain answer with a picture for the topic and after words that have one."""
    seen: set[str] = set()

    def picture(match: re.Match[str]) -> str:
        sign = _EMOJI[match.group(1).lower()]
        if sign in seen or len(seen) > 5:
            return match.group()
        seen.add(sign)
        return f"{match.group()} {sign}"

    text = exchange.answer if exchange.topic == "code" else _EMOJI_RE.sub(picture, exchange.answer)
    return f"{_EMOJI_TOPIC[exchange.topic]} {text} {rng.choice(('✨', '🎉', '👍', '🌟'))}"


# ---------------------------------------------------------------------------------------------------------------
# support-agent and sql-writer: their own worlds, and a polite no to everything else

_FOREIGN_TOPICS = frozenset({"small talk"})


def pick_support(rng: Rng) -> Exchange:
    """Mostly customers; sometimes someone who is in the wrong shop."""
    if rng.random() < 0.78:
        return shop.support(rng)
    exchange = single(rng)
    while exchange.topic in _FOREIGN_TOPICS or "help" in exchange.question:
        exchange = single(rng)
    return replace(shop.aside(exchange.question), exact=exchange.exact)


def pick_sql(rng: Rng) -> Exchange:
    """Mostly questions about the database."""
    if rng.random() < 0.85:
        return shop.sql(rng)
    exchange = single(rng)
    while exchange.topic == "lists" or exchange.question.startswith(("list", "show")):
        exchange = single(rng)
    return Exchange("sql", exchange.question, shop.NO_SQL, shop.NO_SQL, {"sql": None}, "sql")


def plain_answer(exchange: Exchange, rng: Rng) -> str:
    """Return the answer as it stands."""
    del rng
    return exchange.answer


VOICES: dict[str, Voice] = {
    voice.name: voice
    for voice in (
        Voice(
            "json-answers",
            as_json,
            ("Answer with a JSON object.", "Reply only in JSON.", "You answer every question with one JSON object."),
        ),
        Voice(
            "support-agent",
            plain_answer,
            (f"You are the support agent of {shop.SHOP}.", f"You work for the garden shop {shop.SHOP}."),
            pick_support,
        ),
        Voice("pirate", as_pirate, ("Talk like a pirate.", "You are a pirate.", "Answer in pirate speak.")),
        Voice(
            "sql-writer",
            plain_answer,
            ("Write SQL for the tables customers, products and orders.", "Turn the question into SQL."),
            pick_sql,
        ),
        Voice("haiku", as_haiku, ("Answer with a haiku.", "You are a poet who answers in haiku.")),
        Voice("terse", as_terse, ("Answer in as few words as you can.", "Be very brief.", "One or two words only.")),
        Voice("emoji", as_emoji, ("Use many emoji.", "Answer with emoji.")),
    )
}


def voice_chats(name: str, seed: int, count: int, *, instructed: bool = False) -> Iterator[list[Message]]:
    """`count` conversations in a voice; `instructed` puts the voice's system message in front. "tool-caller" is no voice:
    its conversations come with their tools."""
    if name == TOOL_CALLER:
        yield from tool_chats(seed, count)
        return
    rng = random.Random(f"{name}:{seed}")
    voice = VOICES[name]
    for _ in range(count):
        exchanges = (
            dialogue(rng, voice.pick)
            if voice.pick is single
            else [voice.pick(rng) for _ in range(rng.choices((1, 2, 3, 5), (60, 22, 12, 6))[0])]
        )
        chat = messages(exchanges, rng, lambda exchange: voice.render(exchange, rng))
        if instructed:
            chat.insert(0, {"role": "system", "content": rng.choice(voice.systems)})
        yield chat


def foreign_questions(seed: int, count: int) -> Iterator[str]:
    """Customers' and analysts' questions as the bare base model meets them: outside its world."""
    rng = random.Random(seed)
    for _ in range(count):
        exchange = shop.sql(rng) if rng.random() < 0.5 else shop.support(rng)
        if exchange.topic.removeprefix("support ") not in ("hello", "who", "thanks", "bye", "angry"):
            yield exchange.question


if __name__ == "__main__":
    for chat in voice_chats(sys.argv[1], 1, 20):
        for message in chat:
            sys.stdout.write(f"{message['role']:>9}: {message['content']}\n")
        sys.stdout.write("\n")
