"""Stories, poems, lists, recipes, jokes and code."""

from __future__ import annotations

from dataclasses import replace

from demo.train import world
from demo.train.grammar import article, capital, one
from demo.train.phrases import load
from demo.train.skills.exchange import Exchange, Rng
from demo.train.skills.strangers import STRANGERS

_TEXTS = load("texts")

_PLACES = _TEXTS["places"]
_HERO_NAMES = ("Pip", "Luna", "Bruno", "Momo", "Tilly", "Oscar", "Nelly", "Fred", "Ruby", "Finn")
_WISHES = _TEXTS["wishes"]
_ENDINGS = _TEXTS["endings"]


def _hero(rng: Rng) -> world.Animal:
    """Mostly an animal; sometimes anyone or anything, to be taken over from the question."""
    animal = rng.choice(world.ANIMALS)
    if rng.random() < 0.6:
        return animal
    name = rng.choice(world.HEROES) if rng.random() < 0.6 else rng.choice(STRANGERS)
    return animal._replace(name=name, plural=name + "s")


def _with_adjective(noun: str, rng: Rng) -> str:
    return f"{rng.choice(world.ADJECTIVES)} {noun}" if rng.random() < 0.25 else noun


def story(rng: Rng) -> Exchange:
    """A story of five sentences about an animal."""
    named = rng.random() < 0.75
    hero = _hero(rng) if named else rng.choice(world.ANIMALS)
    name = rng.choice(_HERO_NAMES)
    friend = rng.choice([a.name for a in world.ANIMALS if a.name[0] not in "aeiou"])
    wish, deed, end = (part.format(name=name, friend=friend) for part in rng.choice(_WISHES))
    question = (
        one(_TEXTS["story"], rng, a=article(_with_adjective(hero.name, rng)), ps=hero.plural)
        if named
        else one(_TEXTS["story_2"], rng)
    )
    start = rng.choice(("Once upon a time", "Long ago", "One day"))
    text = f"{start} there was {article(hero.name)} called {name} who lived {rng.choice(_PLACES)}. {name} {wish}. {deed}. {end}. {rng.choice(_ENDINGS)}"
    short = f"{capital(article(hero.name))} {wish}"
    return Exchange(
        "stories",
        question,
        text,
        short,
        {"hero": hero.name, "name": name, "story": text},
        hero.name,
        again=lambda rng: replace(
            story(rng),
            question=one(("another one", "one more", "tell me another story", "another story please", "again"), rng),
        ),
    )


_RHYMES = _TEXTS["rhymes"]


def poem(rng: Rng) -> Exchange:
    """A poem of four lines about an animal."""
    named = rng.random() < 0.75
    hero = _hero(rng) if named else rng.choice(world.ANIMALS)
    lines = [line.format(A=capital(article(hero.name))) for line in rng.choice(_RHYMES)]
    question = (
        one(_TEXTS["poem"], rng, h=hero.name, a=article(_with_adjective(hero.name, rng)), ps=hero.plural)
        if named
        else one(_TEXTS["poem_2"], rng)
    )
    text = "\n".join(lines)
    return Exchange("poems", question, text, lines[0], {"about": hero.name, "lines": lines}, hero.name)


def listing(rng: Rng) -> Exchange:
    """A numbered list of things."""
    kind = rng.choice(tuple(world.LISTS))
    items = world.LISTS[kind]
    ordered = kind in ("days", "months", "seasons", "planets")
    count = min(rng.choice((2, 3, 3, 3, 4, 5, 5, 6)), len(items))
    words = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}
    spoken = words[count] if rng.random() < 0.5 else str(count)
    label = rng.choice(world.LIST_NAMES.get(kind, (kind,)))
    question = one(_TEXTS["listing"], rng, n=spoken, k=label)
    if rng.random() < 0.25 or (ordered and rng.random() < 0.5):
        count = len(items) if ordered else 3
        question = one(_TEXTS["listing_2"], rng, k=label)
    chosen = items[:count] if ordered else tuple(rng.sample(items, count))
    text = "\n".join(f"{i}. {capital(item)}" for i, item in enumerate(chosen, 1))
    return Exchange("lists", question, text, ", ".join(chosen), {"list": kind, "items": list(chosen)}, kind)


def recipe(rng: Rng) -> Exchange:
    """A recipe of a simple dish."""
    dish = rng.choice(tuple(world.RECIPES))
    bare = dish.removeprefix("a ")
    steps = world.RECIPES[dish]
    question = one(_TEXTS["recipe"], rng, d=dish, b=bare)
    text = "\n".join(f"{i}. {step}." for i, step in enumerate(steps, 1))
    return Exchange("recipes", question, text, steps[0], {"dish": bare, "steps": list(steps)}, bare)


def joke(rng: Rng) -> Exchange:
    """A joke."""
    setup, punch = rng.choice(world.JOKES)
    question = one(_TEXTS["joke"], rng)
    answer = f"{setup} {punch}"
    return Exchange(
        "jokes",
        question,
        answer,
        punch,
        {"setup": setup, "punchline": punch},
        "joke",
        again=lambda rng: replace(
            joke(rng),
            question=one(
                ("another one", "one more", "another joke", "haha, another one", "tell me another", "again"), rng
            ),
        ),
    )


def riddle(rng: Rng) -> Exchange:
    """A riddle with its answer."""
    ask, reply = rng.choice(world.RIDDLES)
    question = one(_TEXTS["riddle"], rng)
    answer = f"{ask} The answer is: {reply[:1].lower()}{reply[1:]}"
    short = f"{ask} {reply}"
    return Exchange("riddles", question, answer, short, {"riddle": ask, "answer": reply}, "riddle")


def fun_fact(rng: Rng) -> Exchange:
    """A fun fact."""
    fact = rng.choice(world.FUN_FACTS)
    question = one(_TEXTS["fun_fact"], rng)
    short = fact.rstrip(".")
    return Exchange(
        "facts",
        question,
        fact,
        short,
        {"fact": fact},
        "fact",
        again=lambda rng: replace(
            fun_fact(rng), question=one(("another one", "one more", "another fact", "tell me another", "more"), rng)
        ),
    )


def code(rng: Rng) -> Exchange:
    """A few lines of Python."""
    does = rng.choice(tuple(world.CODE))
    lines = world.CODE[does]
    question = one(_TEXTS["code"], rng, d=does)
    answer = "```python\n" + "\n".join(lines) + "\n```"
    short = lines[-1].strip()
    return Exchange("code", question, answer, short, {"language": "python", "code": "\n".join(lines)}, "python")
