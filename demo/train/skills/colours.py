"""Colours of things and mixed colours."""

from __future__ import annotations

from demo.train import world
from demo.train.grammar import article, capital, one
from demo.train.phrases import load
from demo.train.skills.exchange import Exchange, Rng

_TEXTS = load("colours")


def colour_of(rng: Rng) -> Exchange:
    """The usual colour of a thing."""
    return _colour_exchange(rng, rng.choice(tuple(world.COLOURS_OF)), _TEXTS["colour_of"])


def _with_article(noun: str) -> str:
    if noun in world.MASS_NOUNS:
        return noun
    return f"the {noun}" if noun in world.UNIQUE_NOUNS else article(noun)


def _colour_exchange(rng: Rng, noun: str, questions: tuple[str, ...]) -> Exchange:
    value = world.COLOURS_OF[noun]
    thing = _with_article(noun)
    spoken = f"{rng.choice(world.THING_ADJECTIVES)} {noun}" if rng.random() < 0.15 else noun
    with_article = thing if spoken == noun else spoken if noun in world.MASS_NOUNS else article(spoken)
    question = one(questions, rng, a=rng.choice((with_article, with_article, f"the {spoken}", spoken)), n=spoken)
    answer = f"{capital(thing)} is {value}." if rng.random() < 0.7 else f"Usually {thing} is {value}."
    short = capital(value)
    return Exchange(
        "colours",
        question,
        answer,
        short,
        {"thing": noun, "colour": value},
        noun,
        again=lambda rng: _colour_exchange(
            rng, rng.choice(tuple(world.COLOURS_OF)), ("and {a}?", "what about {a}?", "how about {a}?", "and the {n}?")
        ),
    )


def colour_mix(rng: Rng) -> Exchange:
    """Ask what two colours give together."""
    pair, result = rng.choice(tuple(world.MIXES.items()))
    first, second = rng.sample(sorted(pair), 2)
    question = one(_TEXTS["colour_mix"], rng, a=first, b=second)
    answer = f"If you mix {first} and {second}, you get {result}."
    short = capital(result)
    return Exchange("colours", question, answer, short, {"mix": [first, second], "result": result}, result)
