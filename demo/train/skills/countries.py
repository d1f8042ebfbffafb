"""Countries and their capitals."""

from __future__ import annotations

from demo.train import world
from demo.train.grammar import capital, one
from demo.train.skills.turn import Rng, Turn

_COUNTRY_ASKS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "capital": (
        (
            "what is the capital( city|) of {c}?",
            "what's the capital of {c}?",
            "capital of {c}",
            "which city is the capital of {c}?",
            "name the capital of {c}",
            "{c} capital",
            "do you know the capital of {c}?",
            "tell me the capital of {c}",
            "what is {c}'s capital?",
            "what city is the capital of {c}?",
            "the capital of {c} is",
        ),
        ("The capital of {c} is {v}.",),
        ("and {c}?", "what about {c}?", "and of {c}?", "how about {c}?", "and the capital of {c}?"),
    ),
    "continent": (
        (
            "where is {c}?",
            "which continent is {c} (in|on)?",
            "on which continent is {c}?",
            "in which part of the world is {c}?",
            "where do i find {c}( on a map|)?",
            "what continent is {c} (on|in)?",
            "where does {c} lie?",
            "is {c} in (europe|asia|africa)?",
        ),
        ("{C} is in {v}.",),
        ("and where is {c}?", "where is {c} then?", "and {c}?"),
    ),
    "language": (
        (
            "what language do (people|they) speak in {c}?",
            "which language(s|) (is|are) spoken in {c}?",
            "what do people speak in {c}?",
            "what is the language of {c}?",
            "language of {c}",
            "what language is spoken in {c}?",
        ),
        ("In {c} people speak {v}.",),
        ("and in {c}?", "what about {c}?", "and what do they speak in {c}?"),
    ),
    "known_for": (
        (
            "what is {c} (known|famous) for?",
            "tell me (something|) about {c}",
            "what do you know about {c}?",
            "what is special about {c}?",
            "what can i see in {c}?",
            "why should i visit {c}?",
            "should i visit {c}?",
            "i want to travel to {c}",
            "{c}",
            "what is {c} like?",
            "i am from {c}",
            "i live in {c}",
            "describe {c}",
        ),
        ("{C} is known for {v}. Its capital is {cap}.",),
        ("tell me about {c} too", "and {c}?", "what about {c}?"),
    ),
}


def country(rng: Rng) -> Turn:
    """The capital, continent, language or fame of a country."""
    ask = rng.choices(tuple(_COUNTRY_ASKS), (5, 2, 2, 3))[0]
    return _country_turn(rng, rng.choice(tuple(world.COUNTRIES)), ask, _COUNTRY_ASKS[ask][0])


def _country_turn(rng: Rng, name: str, ask: str, questions: tuple[str, ...]) -> Turn:
    row = world.COUNTRIES[name]
    value = row[("capital", "continent", "language", "known_for").index(ask)]
    spoken = name[4:] if name.startswith("the ") and rng.random() < 0.4 else name
    question = one(questions, rng, c=spoken)
    answer = one(_COUNTRY_ASKS[ask][1], rng, c=name, C=capital(name), v=value, cap=row[0])

    def again(rng: Rng) -> Turn:
        if rng.random() < 0.4:
            other = rng.choice(("capital", "language", "known_for"))
            return _country_turn(
                rng,
                name,
                other,
                {
                    "capital": ("what is its capital?", "and its capital?", "what's the capital there?"),
                    "language": ("what do they speak there?", "and the language?", "which language do they speak?"),
                    "known_for": (
                        "what is it known for?",
                        "tell me more",
                        "what is it famous for?",
                        "tell me more about it",
                    ),
                }[other],
            )
        return _country_turn(rng, rng.choice(tuple(world.COUNTRIES)), ask, _COUNTRY_ASKS[ask][2])

    return Turn(
        "countries",
        question,
        answer,
        capital(value),
        {"country": name.removeprefix("the "), ask: value},
        name.removeprefix("the "),
        again=again,
    )


def city(rng: Rng) -> Turn:
    """Which country a capital lies in, or what there is to see."""
    name = rng.choice(tuple(world.COUNTRIES))
    row = world.COUNTRIES[name]
    town = row[0]
    if rng.random() < 0.65:
        question = one(
            (
                "where is {t}?",
                "which country is {t} in?",
                "in which country is {t}?",
                "what country is {t} (in|the capital of)?",
                "{t} is the capital of which country?",
                "what is {t}?",
                "is {t} a capital?",
                "is {t} a city?",
            ),
            rng,
            t=town,
        )
        return Turn(
            "countries",
            question,
            f"{town} is the capital of {name}.",
            capital(name.removeprefix("the ")),
            {"city": town, "country": name.removeprefix("the ")},
            town,
        )
    question = one(
        (
            "tell me (something|) about {t}",
            "what do you know about {t}?",
            "should i visit {t}?",
            "what can i (do|see) in {t}?",
            "i am going to {t}",
            "i live in {t}",
            "{t}",
            "what is {t} like?",
        ),
        rng,
        t=town,
    )
    return Turn(
        "countries",
        question,
        f"{town} is the capital of {name}, which is known for {row[3]}.",
        f"Capital of {name}",
        {"city": town, "country": name.removeprefix("the "), "known_for": row[3]},
        town,
    )


def country_check(rng: Rng) -> Turn:
    """Is X the capital of Y."""
    name, other = rng.sample(tuple(world.COUNTRIES), 2)
    right = rng.random() < 0.5
    town = world.COUNTRIES[name if right else other][0]
    question = one(
        (
            "is {t} the capital of {c}?",
            "{t} is the capital of {c}, right?",
            "is it true that {t} is the capital of {c}?",
        ),
        rng,
        t=town,
        c=name,
    )
    answer = f"{'Yes' if right else 'No'}, the capital of {name} is {world.COUNTRIES[name][0]}."
    return Turn(
        "countries",
        question,
        answer,
        "Yes" if right else "No",
        {"country": name.removeprefix("the "), "capital": world.COUNTRIES[name][0], "answer": right},
        name.removeprefix("the "),
    )
