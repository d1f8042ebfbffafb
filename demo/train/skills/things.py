"""Planets, weather, jobs, LoRA, the model itself, small talk."""

from __future__ import annotations

from dataclasses import replace

from demo.train import world
from demo.train.about import CONCEPTS, HELP_TOPICS, SELF, SMALL_TALK, Concept
from demo.train.grammar import article, capital, fill, one
from demo.train.phrases import load
from demo.train.skills.exchange import NUMBER_WORDS, Exchange, Rng

_TEXTS = load("things")


def planet(rng: Rng) -> Exchange:
    """A planet, the sun, the moon."""
    if rng.random() < 0.45:
        question, answer, short = rng.choice(_TEXTS["planet"])
        return Exchange("nature", fill(question, rng), answer, short, {"answer": short}, short)
    name = rng.choice(tuple(world.PLANETS))
    question = one(_TEXTS["planet_2"], rng, n=name)
    answer = f"{name} is {world.PLANETS[name]}."
    short = capital(world.PLANETS[name].split(",")[0])
    return Exchange("nature", question, answer, short, {"planet": name, "about": world.PLANETS[name]}, name)


def weather(rng: Rng) -> Exchange:
    """Ask what a kind of weather is, and what to do in it."""
    kind = rng.choice(tuple(world.WEATHER))
    what, wear = world.WEATHER[kind]
    if rng.random() < 0.5:
        question = one(_TEXTS["weather"], rng, k=kind)
        answer = what + "."
        short = what.split(" is ", 1)[-1].capitalize()
        return Exchange("weather", question, answer, short, {"weather": kind, "about": what}, kind)
    words = rng.choice(world.WEATHER_WORDS[kind])
    question = one(_TEXTS["weather_2"], rng, w=words)
    return Exchange("weather", question, f"{wear}.", wear, {"weather": kind, "advice": wear}, kind)


def job(rng: Rng) -> Exchange:
    """Ask what somebody does at work."""
    name = rng.choice(tuple(world.JOBS))
    does = world.JOBS[name]
    if rng.random() < 0.75:
        question = one(_TEXTS["job"], rng, a=article(name), n=name)
        return Exchange(
            "jobs", question, f"{capital(article(name))} {does}.", capital(does), {"job": name, "does": does}, name
        )
    question = one(("who {d}?", "which (job|person) {d}?", "what do you call someone who {d}?"), rng, d=does)
    return Exchange(
        "jobs", question, f"{capital(article(name))} {does}.", capital(name), {"job": name, "does": does}, name
    )


def wheels(rng: Rng) -> Exchange:
    """Ask how many wheels a vehicle has."""
    name = rng.choice(tuple(world.WHEELS))
    n = world.WHEELS[name]
    many = "many" if name == "train" else NUMBER_WORDS[n]
    question = one(_TEXTS["wheels"], rng, a=article(name))
    answer = f"{capital(article(name))} has {many} wheel{'' if n == 1 else 's'}."
    short = capital(many)
    return Exchange(
        "counting", question, answer, short, {"vehicle": name, "wheels": many if name == "train" else n}, name
    )


def concept(rng: Rng) -> Exchange:
    """LoRA and Lorikeet."""
    item = rng.choices(CONCEPTS, [6, 6, 4] + [1] * (len(CONCEPTS) - 3))[0]
    return _concept_exchange(rng, item, more=rng.random() < 0.3)


_PROPER = _TEXTS["proper"]


def proper(name: str, rng: Rng) -> str:
    """A term the way it is written in books, most of the time."""
    return " ".join(_PROPER.get(word, word) for word in name.split(" ")) if rng.random() < 0.65 else name


def _concept_exchange(rng: Rng, item: Concept, *, more: bool) -> Exchange:
    name = proper(rng.choice(item.names), rng)
    question = one(_TEXTS["concept_exchange" if more else "concept_exchange_2"], rng, n=name)

    def again(rng: Rng) -> Exchange:
        exchange = _concept_exchange(rng, item, more=True)
        return replace(exchange, question=one(_TEXTS["concept_exchange_3"], rng))

    text = item.more if more else item.what
    about = item.names[0].removeprefix("a ").removeprefix("an ").removeprefix("the ")
    return Exchange(
        "lora", question, text, item.short, {"term": about, "answer": text}, about, again=None if more else again
    )


def about_me(rng: Rng) -> Exchange:
    """Questions about the model itself."""
    key = rng.choices(
        tuple(SELF),
        [6 if k in ("name", "skills") else 2 if k in ("maker", "size", "weather", "live") else 1 for k in SELF],
    )[0]
    questions, answers, short = SELF[key]
    place = rng.choice([row[0] for row in world.COUNTRIES.values()])
    answer = rng.choice(answers).format(topics=HELP_TOPICS)
    return Exchange(
        "about me", proper(one(questions, rng, place=place), rng), answer, short, {"answer": answer}, "lorikeet"
    )


def small_talk(rng: Rng) -> Exchange:
    """Greetings, thanks, moods."""
    if rng.random() < 0.25:
        key = rng.choice(tuple(world.ADVICE))
        text, asks = world.ADVICE[key]
        return Exchange(
            "small talk", rng.choice(asks), text, text.split(".")[0].split("!")[0], {"mood": key, "answer": text}, key
        )
    key = rng.choices(
        tuple(SMALL_TALK), [5 if k == "hello" else 3 if k in ("how", "thanks", "bye") else 1 for k in SMALL_TALK]
    )[0]
    questions, answers, short = SMALL_TALK[key]
    answer = rng.choice(answers)
    return Exchange("small talk", one(questions, rng), answer, short, {"answer": answer}, key)
