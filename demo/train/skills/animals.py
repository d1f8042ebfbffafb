"""Animals: their kinds, sounds, food and homes."""

from __future__ import annotations

from typing import Any

from demo.train import world
from demo.train.grammar import article, capital, fill, one
from demo.train.phrases import load
from demo.train.skills.exchange import NUMBER_WORDS, Exchange, Rng
from demo.train.skills.strangers import STRANGERS

_TEXTS = load("animals")

_ANIMAL_ASKS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = _TEXTS["animal_asks"]
_ANIMAL_PRONOUN: dict[str, tuple[str, ...]] = _TEXTS["animal_pronoun"]


def _animal_slots(animal: world.Animal, adjective: str = "") -> dict[str, str]:
    if adjective:
        slots = _animal_slots(animal)
        return {
            **slots,
            "n": f"{adjective} {animal.name}",
            "ps": f"{adjective} {animal.plural}",
            "a": article(f"{adjective} {animal.name}"),
        }
    return {
        "n": animal.name,
        "ps": animal.plural,
        "Ps": capital(animal.plural),
        "a": article(animal.name),
        "A": capital(article(animal.name)),
        "sound": animal.sound,
        "food": animal.food,
        "home": animal.home,
        "legs": NUMBER_WORDS[animal.legs],
        "ababy": article(animal.baby),
        "akind": article(animal.kind),
        "colour": animal.colour,
        "Fact": capital(animal.fact),
    }


def _animal_exchange(rng: Rng, animal: world.Animal, ask: str, questions: tuple[str, ...]) -> Exchange:
    slots = _animal_slots(animal)
    question_slots = (
        _animal_slots(animal, rng.choice(world.ADJECTIVES)) if rng.random() < 0.1 and ask != "baby" else slots
    )
    answers = _ANIMAL_ASKS[ask][1]
    answer = one(answers, rng, **slots)
    if ask == "sound" and animal.sound == "no sound":
        answer = f"{slots['Ps']} make no sound that we can hear."
    question = one(questions, rng, **question_slots)
    if ask == "kind":
        answer = _kind_answer(question, animal, answer)
    value: Any = animal.legs if ask == "legs" else getattr(animal, ask)
    short = str(value) if ask != "fact" else capital(animal.fact)
    data = {"animal": animal.name, ask: value}

    def again(rng: Rng) -> Exchange:
        if rng.random() < 0.5:
            other = rng.choice(tuple(_ANIMAL_ASKS))
            return _animal_exchange(rng, animal, other, _ANIMAL_PRONOUN[other])
        return _animal_exchange(rng, rng.choice(world.ANIMALS), ask, _AGAIN_ANIMAL)

    return Exchange("animals", question, answer, capital(short), data, animal.name, again=again)


_AGAIN_ANIMAL = _TEXTS["again_animal"]


def _kind_answer(question: str, animal: world.Animal, plain: str) -> str:
    named = next(
        (
            kind
            for kind in ("mammal", "bird", "fish", "insect")
            if kind in question.replace(animal.name, "").replace(animal.plural, "")
        ),
        None,
    )
    if named is None:
        return plain
    if named == animal.kind:
        return f"Yes, {plain[:1].lower()}{plain[1:]}"
    return f"No, {plain[:1].lower()}{plain[1:]}"


def animal(rng: Rng) -> Exchange:
    """An attribute of an animal."""
    ask = rng.choice(tuple(_ANIMAL_ASKS))
    return _animal_exchange(rng, rng.choice(world.ANIMALS), ask, _ANIMAL_ASKS[ask][0])


def animal_can(rng: Rng) -> Exchange:
    """Can it fly, can it swim."""
    it = rng.choice(world.ANIMALS)
    verb, able = rng.choice((("fly", world.FLYERS), ("swim", world.SWIMMERS)))
    good = it.name in able
    slots = {"ps": it.plural, "a": article(it.name), "verb": verb}
    question = one(_TEXTS["animal_can"], rng, **slots)
    answer = (
        f"Yes, {it.plural} can {verb}."
        if good
        else f"No, {it.plural} {'cannot fly' if verb == 'fly' else 'are not known as swimmers'}."
    )
    return Exchange(
        "animals", question, answer, "Yes" if good else "No", {"animal": it.name, "can": verb, "answer": good}, it.name
    )


def animal_size(rng: Rng) -> Exchange:
    """Ask which of two animals is bigger or smaller."""
    one_, two = rng.sample(world.ANIMALS, 2)
    while abs(one_.size - two.size) < 2:
        one_, two = rng.sample(world.ANIMALS, 2)
    bigger = rng.random() < 0.6
    word = "bigger" if bigger else "smaller"
    winner = one_ if (one_.size > two.size) == bigger else two
    loser = two if winner is one_ else one_
    slots = {"a": article(one_.name), "b": article(two.name), "word": word}
    if rng.random() < 0.6:
        question = one(_TEXTS["animal_size"], rng, **slots)
        answer = f"{capital(article(winner.name))} is {word} than {article(loser.name)}."
        return Exchange(
            "animals", question, answer, capital(winner.name), {"question": word, "animal": winner.name}, winner.name
        )
    question = one(
        ("is {a} {word} than {b}?", "are you sure {a} is {word} than {b}?", "would you say {a} is {word} than {b}?"),
        rng,
        **slots,
    )
    yes = winner is one_
    answer = ("Yes, " if yes else "No, ") + f"{article(winner.name)} is {word} than {article(loser.name)}."
    short = "Yes" if yes else "No"
    return Exchange(
        "animals", question, answer, short, {"question": word, "answer": yes, "animal": winner.name}, winner.name
    )


def animal_by(rng: Rng) -> Exchange:
    """Ask which animal makes a sound."""
    it = rng.choice([a for a in world.ANIMALS if a.sound in _TEXTS["animal_by"]])
    question = fill("(which|what) animal (says|makes the sound|goes|makes the noise) {sound}?", rng, sound=it.sound)
    answer = f"{capital(article(it.name))} makes that sound."
    short = capital(it.name)
    return Exchange("animals", question, answer, short, {"sound": it.sound, "animal": it.name}, it.name)


_SAYS = _TEXTS["says"]


def animal_says(rng: Rng) -> Exchange:
    """Does this animal make that sound."""
    sound, name = rng.choice(tuple(_SAYS.items()))
    name = name if rng.random() < 0.6 else rng.choice(tuple(_SAYS.values()))
    it = next(a for a in world.ANIMALS if a.name == name)
    yes = it.sound == sound
    question = one(
        ("do {ps} {s}?", "does {a} {s}?", "can {ps} {s}?", "why do {ps} {s}?"),
        rng,
        ps=it.plural,
        a=article(it.name),
        s=sound,
    )
    if question.startswith("why") and yes:
        answer = f"{capital(it.plural)} {sound} to talk to each other."
        return Exchange("animals", question, answer, "To talk", {"animal": it.name, "sound": it.sound}, it.name)
    answer = f"Yes, {it.plural} {sound}." if yes else f"No, the sound of {article(it.name)} is: {it.sound}."
    short = "Yes" if yes else "No"
    return Exchange("animals", question, answer, short, {"animal": it.name, "sound": it.sound, "answer": yes}, it.name)


_GROUPS = _TEXTS["groups"]


def group_can(rng: Rng) -> Exchange:
    """Ask what birds, people or robots can do."""
    group, (verb, answer) = rng.choice(tuple(_GROUPS.items()))
    question = one(
        ("can {g} {v}?", "do {g} {v}?", "are {g} able to {v}?", "can all {g} {v}?", "do all {g} {v}?"),
        rng,
        g=group.strip(),
        v=verb,
    )
    return Exchange("nature", question, answer, answer.split(",")[0].rstrip("."), {"answer": answer}, group.strip())


def opinion(rng: Rng) -> Exchange:
    """Likes and opinions, which a program does not have."""
    it = rng.choice(world.ANIMALS)
    thing = rng.choice(
        (
            it.plural,
            it.plural,
            rng.choice(STRANGERS),
            rng.choice(tuple(world.COUNTRIES)),
            rng.choice(tuple(world.COLOURS_OF)),
            rng.choice(rng.choice(tuple(world.LISTS.values()))),
            rng.choice(_TEXTS["opinion"]),
        )
    )
    question = one(_TEXTS["opinion_2"], rng, t=thing)
    answer = rng.choice(_TEXTS["opinion_3"])
    return Exchange("about me", question, answer, "No opinion", {"answer": answer}, "lorikeet")
