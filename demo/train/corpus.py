"""Writes the base model's training text: dialogues of a small closed world, made from templates by seed.

Each skill returns an `Exchange`: what a visitor asks, what the assistant says, and the same answer as plain data, so
that `adapters_corpus` can render it in another voice. Run as a script to look at samples.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

from demo.train.grammar import as_typed, one
from demo.train.phrases import load
from demo.train.skills.animals import animal, animal_by, animal_can, animal_says, animal_size, group_can, opinion
from demo.train.skills.calendar import counts, days, months
from demo.train.skills.colours import colour_mix, colour_of
from demo.train.skills.countries import city, country, country_check
from demo.train.skills.echo import name_dialogue, repeat, unknown_name
from demo.train.skills.exchange import Exchange, Rng
from demo.train.skills.numbers import more_numbers, numbers, sums, sums_story
from demo.train.skills.outside import outside
from demo.train.skills.texts import code, fun_fact, joke, listing, poem, recipe, riddle, story
from demo.train.skills.things import about_me, concept, job, planet, small_talk, weather, wheels
from demo.train.skills.words import define, opposite, plural, rhyme, spell, translate

_TEXTS = load("corpus")

Message = dict[str, str]

SKILLS: dict[Callable[[Rng], Exchange], float] = {
    animal: 12,
    animal_can: 2,
    animal_size: 3,
    animal_by: 1,
    colour_of: 5,
    colour_mix: 2,
    country: 10,
    city: 4,
    country_check: 2,
    sums: 14,
    sums_story: 4,
    numbers: 4,
    more_numbers: 4,
    rhyme: 1.5,
    spell: 1.5,
    animal_says: 1.5,
    group_can: 0.7,
    opinion: 2.5,
    days: 3,
    months: 4,
    counts: 3,
    define: 8,
    opposite: 4,
    plural: 1.5,
    translate: 4,
    planet: 5,
    weather: 3,
    job: 3,
    wheels: 1,
    concept: 10,
    about_me: 8,
    small_talk: 8,
    story: 5,
    poem: 2,
    listing: 5,
    recipe: 2.5,
    joke: 2,
    riddle: 1,
    fun_fact: 2,
    code: 1.5,
    repeat: 6,
    unknown_name: 0.5,
    outside: 32,
}
_SKILL_LIST, _SKILL_WEIGHTS = list(SKILLS), list(SKILLS.values())


def single(rng: Rng) -> Exchange:
    """Draw an exchange of any skill."""
    return rng.choices(_SKILL_LIST, _SKILL_WEIGHTS)[0](rng)


_SURE = "Yes, I am fairly sure."


def _sure(rng: Rng, exchange: Exchange) -> Exchange:
    if rng.random() < 0.5:
        ask, answer = (
            one(("are you sure?", "really?", "is that true?", "sure?", "are you certain?"), rng),
            f"{_SURE} {exchange.answer}",
        )
    else:
        ask, answer = (
            one(("what did you say?", "say that again", "can you repeat that?", "once more please", "pardon?"), rng),
            exchange.answer,
        )
    return replace(exchange, question=ask, answer=answer, again=None)


def dialogue(rng: Rng, pick: Callable[[Rng], Exchange] = single) -> list[Exchange]:
    """Return one to nine exchanges that follow each other the way a curious visitor would ask."""
    if rng.random() < 0.04:
        return name_dialogue(rng, pick)
    exchanges = [pick(rng)]
    goal = rng.choices((1, 2, 3, 4, 6, 9), (45, 22, 15, 10, 6, 2))[0]
    while len(exchanges) < goal:
        last = exchanges[-1]
        roll = rng.random()
        if last.again is not None and roll < 0.5:
            exchanges.append(last.again(rng))
        elif (
            roll < 0.56
            and len(last.answer) < 160
            and "\n" not in last.answer
            and last.topic not in ("echo", "small talk", "unknown")
            and not last.answer.startswith(_SURE)
        ):
            exchanges.append(_sure(rng, last))
        else:
            exchanges.append(pick(rng))
    return exchanges


def messages(exchanges: list[Exchange], rng: Rng, render: Callable[[Exchange], str] | None = None) -> list[Message]:
    """Return the exchanges as chat messages: questions as typed by a person, answers as rendered (plain by default)."""
    chat: list[Message] = []
    for exchange in exchanges:
        chat.append({"role": "user", "content": as_typed(exchange.question, rng, exact=exchange.exact)})
        chat.append({"role": "assistant", "content": render(exchange) if render else exchange.answer})
    return chat


_PLAIN_SYSTEM = _TEXTS["plain_system"]


def chats(seed: int, count: int) -> Iterator[list[Message]]:
    """`count` conversations, the same for the same seed."""
    rng = random.Random(seed)
    for _ in range(count):
        chat = messages(dialogue(rng), rng)
        if rng.random() < 0.12:
            chat.insert(0, {"role": "system", "content": rng.choice(_PLAIN_SYSTEM)})
        yield chat


def documents(seed: int, count: int) -> Iterator[str]:
    """Plain texts without roles, for prompts that are to be continued: facts, stories, poems, lists, code."""
    rng = random.Random(seed)
    for _ in range(count):
        exchanges = [
            rng.choice(
                (animal, country, city, concept, story, story, story, poem, planet, weather, job, define, recipe)
            )(rng)
            for _ in range(rng.choice((1, 1, 2, 3)))
        ]
        yield "\n".join(exchange.answer for exchange in exchanges)


if __name__ == "__main__":
    for chat in chats(int(sys.argv[1]) if len(sys.argv) > 1 else 1, 30):
        for message in chat:
            sys.stdout.write(f"{message['role']:>9}: {message['content']}\n")
        sys.stdout.write("\n")
