"""Countries and their capitals."""

from __future__ import annotations

from demo.train import world
from demo.train.grammar import capital, one
from demo.train.phrases import load
from demo.train.skills.exchange import Exchange, Rng

_TEXTS = load("countries")

_COUNTRY_ASKS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = _TEXTS["country_asks"]


def country(rng: Rng) -> Exchange:
    """The capital, continent, language or fame of a country."""
    ask = rng.choices(tuple(_COUNTRY_ASKS), (5, 2, 2, 3))[0]
    return _country_exchange(rng, rng.choice(tuple(world.COUNTRIES)), ask, _COUNTRY_ASKS[ask][0])


def _country_exchange(rng: Rng, name: str, ask: str, questions: tuple[str, ...]) -> Exchange:
    row = world.COUNTRIES[name]
    value = row[("capital", "continent", "language", "known_for").index(ask)]
    spoken = name[4:] if name.startswith("the ") and rng.random() < 0.4 else name
    question = one(questions, rng, c=spoken)
    answer = one(_COUNTRY_ASKS[ask][1], rng, c=name, C=capital(name), v=value, cap=row[0])

    def again(rng: Rng) -> Exchange:
        if rng.random() < 0.4:
            other = rng.choice(("capital", "language", "known_for"))
            return _country_exchange(rng, name, other, _TEXTS["country_exchange"][other])
        return _country_exchange(rng, rng.choice(tuple(world.COUNTRIES)), ask, _COUNTRY_ASKS[ask][2])

    short = capital(value)
    return Exchange(
        "countries",
        question,
        answer,
        short,
        {"country": name.removeprefix("the "), ask: value},
        name.removeprefix("the "),
        again=again,
    )


def city(rng: Rng) -> Exchange:
    """Ask which country a capital lies in, or what there is to see."""
    name = rng.choice(tuple(world.COUNTRIES))
    row = world.COUNTRIES[name]
    town = row[0]
    if rng.random() < 0.65:
        question = one(_TEXTS["city"], rng, t=town)
        answer = f"{town} is the capital of {name}."
        short = capital(name.removeprefix("the "))
        return Exchange(
            "countries", question, answer, short, {"city": town, "country": name.removeprefix("the ")}, town
        )
    question = one(_TEXTS["city_2"], rng, t=town)
    answer = f"{town} is the capital of {name}, which is known for {row[3]}."
    short = f"Capital of {name}"
    return Exchange(
        "countries",
        question,
        answer,
        short,
        {"city": town, "country": name.removeprefix("the "), "known_for": row[3]},
        town,
    )


def country_check(rng: Rng) -> Exchange:
    """Is X the capital of Y."""
    name, other = rng.sample(tuple(world.COUNTRIES), 2)
    right = rng.random() < 0.5
    town = world.COUNTRIES[name if right else other][0]
    question = one(_TEXTS["country_check"], rng, t=town, c=name)
    answer = f"{'Yes' if right else 'No'}, the capital of {name} is {world.COUNTRIES[name][0]}."
    short = "Yes" if right else "No"
    return Exchange(
        "countries",
        question,
        answer,
        short,
        {"country": name.removeprefix("the "), "capital": world.COUNTRIES[name][0], "answer": right},
        name.removeprefix("the "),
    )
