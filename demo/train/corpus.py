"""Writes the base model's training text: dialogues of a small closed world, made from templates by seed.

Each skill returns a `Turn`: what a visitor asks, what the assistant says, and the same answer as plain data, so
that `adapters_corpus` can render it in another voice. Run as a script to look at samples.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from demo.train import world
from demo.train.about import CONCEPTS, HELP_TOPICS, SELF, SMALL_TALK, Concept
from demo.train.grammar import article, as_typed, capital, fill, one

Message = dict[str, str]
Rng = random.Random


@dataclass(frozen=True)
class Turn:
    """One question and its answer. `data` is the answer as JSON fields, `short` in a word or two."""

    topic: str
    question: str
    answer: str
    short: str
    data: dict[str, Any]
    subject: str = ""
    exact: bool = False
    again: Callable[[Rng], Turn] | None = field(default=None, compare=False)


# ---------------------------------------------------------------------------------------------------------------
# Animals

_ANIMAL_ASKS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "sound": (("what (sound|noise) does {a} make?", "what (does|do) {a} (say|sound like)?", "which sound do {ps} make?", "what sound do {ps} make?", "how does {a} sound?", "{n} sound", "what does the {n} say?", "the sound of {a}?", "what noise do {ps} make?"),
              ("The sound of {a} is: {sound}.", "{Ps} make this sound: {sound}.")),
    "food": (("what (does|do) {a} eat?", "what do {ps} (eat|like to eat|feed on)?", "what is the (food|diet) of {a}?", "what should i feed {a}?", "{n} food", "what (food|kind of food) do {ps} (like|eat|need)?", "what can {ps} eat?", "do you know what {ps} eat?", "tell me what {ps} eat"),
             ("{Ps} eat {food}.", "{A} eats {food}.")),
    "home": (("where does {a} live?", "where do {ps} live?", "where can i (find|see) {ps}?", "what is the (home|habitat) of {a}?", "where are {ps} found?", "{n} habitat", "in which place do {ps} live?", "where do you find {ps}?"),
             ("{Ps} live in {home}.", "You can find {ps} in {home}.")),
    "legs": (("how many legs does {a} have?", "how many legs do {ps} have?", "number of legs of {a}?", "how many legs has {a} got?", "count the legs of {a}", "does {a} have legs?"),
             ("{A} has {legs} legs.", "{Ps} have {legs} legs.")),
    "baby": (("what is a baby {n} called?", "what do you call a baby {n}?", "what is the (name|word) for a young {n}?", "how do you call the young of {a}?", "baby {n}?", "what are baby {ps} called?"),
             ("A baby {n} is called {ababy}.",)),
    "kind": (("what (kind|type|sort) of animal is {a}?", "is {a} a mammal?", "is {a} a bird?", "is {a} a fish?", "what group does {a} belong to?", "are {ps} (mammals|birds|insects)?"),
             ("{A} is {akind}.",)),
    "colour": (("what (colour|color) is {a}?", "what (colour|color) are {ps}?", "which (colour|color) does {a} have?", "what (colour|color) do {ps} have?", "what is the (colour|color) of {a}?"),
               ("{Ps} are {colour}.",)),
    "fact": (("tell me (something|a fact|a fun fact|more) about {ps}", "tell me about {ps}", "tell me about the {n}", "what do you know about {ps}?", "what is {a}?", "what are {ps}?", "something interesting about {ps}", "say something about {a}", "i (like|love) {ps}", "{ps}", "{n}", "facts about {ps}", "describe {a}", "what is special about {ps}?", "why are {ps} special?"),
             ("{A} is {akind}. It lives in {home} and eats {food}. Did you know? {Fact}.",)),
}
_ANIMAL_PRONOUN: dict[str, tuple[str, ...]] = {
    "sound": ("what sound does it make?", "and what does it say?", "what noise do they make?"),
    "food": ("what does it eat?", "and what do they eat?", "what is its food?", "what does it like to eat?"),
    "home": ("where does it live?", "and where do they live?", "where can i find one?", "where do they live?"),
    "legs": ("how many legs does it have?", "and how many legs?"), "baby": ("what is its baby called?", "and the baby?", "what do you call its baby?"),
    "kind": ("what kind of animal is it?", "is it a mammal?"), "colour": ("what colour is it?", "and the colour?", "what color is it?"),
    "fact": ("tell me more", "tell me more about it", "something else about it?", "tell me a fact about it", "more please"),
}
_NUMBER_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty")


def _animal_slots(animal: world.Animal, adjective: str = "") -> dict[str, str]:
    if adjective:
        slots = _animal_slots(animal)
        return {**slots, "n": f"{adjective} {animal.name}", "ps": f"{adjective} {animal.plural}", "a": article(f"{adjective} {animal.name}")}
    return {
        "n": animal.name, "ps": animal.plural, "Ps": capital(animal.plural), "a": article(animal.name), "A": capital(article(animal.name)),
        "sound": animal.sound, "food": animal.food, "home": animal.home, "legs": _NUMBER_WORDS[animal.legs], "ababy": article(animal.baby),
        "akind": article(animal.kind), "colour": animal.colour, "Fact": capital(animal.fact),
    }


def _animal_turn(rng: Rng, animal: world.Animal, ask: str, questions: tuple[str, ...]) -> Turn:
    slots = _animal_slots(animal)
    asked = _animal_slots(animal, rng.choice(world.ADJECTIVES)) if rng.random() < 0.1 and ask != "baby" else slots
    answers = _ANIMAL_ASKS[ask][1]
    answer = one(answers, rng, **slots)
    if ask == "sound" and animal.sound == "no sound":
        answer = f"{slots['Ps']} make no sound that we can hear."
    question = one(questions, rng, **asked)
    if ask == "kind":
        answer = _kind_answer(question, animal, answer)
    value: Any = animal.legs if ask == "legs" else getattr(animal, ask)
    short = str(value) if ask != "fact" else capital(animal.fact)
    data = {"animal": animal.name, ask: value}

    def again(rng: Rng) -> Turn:
        if rng.random() < 0.5:
            other = rng.choice(tuple(_ANIMAL_ASKS))
            return _animal_turn(rng, animal, other, _ANIMAL_PRONOUN[other])
        return _animal_turn(rng, rng.choice(world.ANIMALS), ask, _AGAIN_ANIMAL)

    return Turn("animals", question, answer, capital(short), data, animal.name, again=again)


_AGAIN_ANIMAL = ("and {a}?", "what about {a}?", "and {ps}?", "how about {ps}?", "and the {n}?", "same for {a}", "what about {ps}?")


def _kind_answer(question: str, animal: world.Animal, plain: str) -> str:
    asked = next((kind for kind in ("mammal", "bird", "fish", "insect") if kind in question.replace(animal.name, "").replace(animal.plural, "")), None)
    if asked is None:
        return plain
    if asked == animal.kind:
        return f"Yes, {plain[:1].lower()}{plain[1:]}"
    return f"No, {plain[:1].lower()}{plain[1:]}"


def animal(rng: Rng) -> Turn:
    """An attribute of an animal."""
    ask = rng.choice(tuple(_ANIMAL_ASKS))
    return _animal_turn(rng, rng.choice(world.ANIMALS), ask, _ANIMAL_ASKS[ask][0])


def animal_can(rng: Rng) -> Turn:
    """Can it fly, can it swim."""
    it = rng.choice(world.ANIMALS)
    verb, able = rng.choice((("fly", world.FLYERS), ("swim", world.SWIMMERS)))
    good = it.name in able
    slots = {"ps": it.plural, "a": article(it.name), "verb": verb}
    question = one(("can {a} {verb}?", "can {ps} {verb}?", "do {ps} {verb}?", "is {a} able to {verb}?", "are {ps} able to {verb}?", "does {a} {verb}?"), rng, **slots)
    answer = f"Yes, {it.plural} can {verb}." if good else f"No, {it.plural} {'cannot fly' if verb == 'fly' else 'are not known as swimmers'}."
    return Turn("animals", question, answer, "Yes" if good else "No", {"animal": it.name, "can": verb, "answer": good}, it.name)


def animal_size(rng: Rng) -> Turn:
    """Which of two animals is bigger or smaller."""
    one_, two = rng.sample(world.ANIMALS, 2)
    while abs(one_.size - two.size) < 2:
        one_, two = rng.sample(world.ANIMALS, 2)
    bigger = rng.random() < 0.6
    word = "bigger" if bigger else "smaller"
    winner = one_ if (one_.size > two.size) == bigger else two
    loser = two if winner is one_ else one_
    slots = {"a": article(one_.name), "b": article(two.name), "word": word}
    if rng.random() < 0.6:
        question = one(("(which|what|who) is {word}, {a} or {b}?", "which animal is {word}: {a} or {b}?", "who is {word}, {a} or {b}?", "{a} or {b}, which is {word}?"), rng, **slots)
        answer = f"{capital(article(winner.name))} is {word} than {article(loser.name)}."
        return Turn("animals", question, answer, capital(winner.name), {"question": word, "animal": winner.name}, winner.name)
    question = one(("is {a} {word} than {b}?", "are you sure {a} is {word} than {b}?", "would you say {a} is {word} than {b}?"), rng, **slots)
    yes = winner is one_
    answer = ("Yes, " if yes else "No, ") + f"{article(winner.name)} is {word} than {article(loser.name)}."
    return Turn("animals", question, answer, "Yes" if yes else "No", {"question": word, "answer": yes, "animal": winner.name}, winner.name)


def animal_by(rng: Rng) -> Turn:
    """Which animal makes a sound, has stripes, lives somewhere; from the fact back to the animal."""
    it = rng.choice([a for a in world.ANIMALS if a.sound in ("roar", "trumpet", "squeak", "moo", "neigh", "oink", "baa", "quack", "cluck", "hoot", "croak", "buzz", "howl", "meow", "caw", "honk")])
    question = fill("(which|what) animal (says|makes the sound|goes|makes the noise) {sound}?", rng, sound=it.sound)
    return Turn("animals", question, f"{capital(article(it.name))} makes that sound.", capital(it.name), {"sound": it.sound, "animal": it.name}, it.name)


_SAYS = {"roar": "lion", "bark": "dog", "meow": "cat", "moo": "cow", "neigh": "horse", "oink": "pig", "quack": "duck", "cluck": "chicken", "hoot": "owl", "croak": "frog", "buzz": "bee", "howl": "wolf", "growl": "bear", "squeak": "mouse"}


def animal_says(rng: Rng) -> Turn:
    """Does this animal make that sound."""
    sound, name = rng.choice(tuple(_SAYS.items()))
    name = name if rng.random() < 0.6 else rng.choice(tuple(_SAYS.values()))
    it = next(a for a in world.ANIMALS if a.name == name)
    yes = it.sound == sound
    question = one(("do {ps} {s}?", "does {a} {s}?", "can {ps} {s}?", "why do {ps} {s}?"), rng, ps=it.plural, a=article(it.name), s=sound)
    if question.startswith("why") and yes:
        return Turn("animals", question, f"{capital(it.plural)} {sound} to talk to each other.", "To talk", {"animal": it.name, "sound": it.sound}, it.name)
    answer = f"Yes, {it.plural} {sound}." if yes else f"No, the sound of {article(it.name)} is: {it.sound}."
    return Turn("animals", question, answer, "Yes" if yes else "No", {"animal": it.name, "sound": it.sound, "answer": yes}, it.name)


_GROUPS = {
    "birds": ("fly", "Most birds can fly, but penguins cannot."), "bats": ("fly", "Yes, bats can fly."), "people": ("fly", "People cannot fly without a machine."), "birds ": ("sing", "Many birds sing, most of all in the morning."),
    "people ": ("swim", "People can learn to swim."), "animals": ("talk", "Animals talk with sounds, smells and movements."), "robots": ("think", "Robots follow programs; they do not think as people do."), "computers": ("think", "Computers calculate; they do not think as people do."),
    "plants": ("move", "Plants move slowly, for example towards the light."), "insects": ("fly", "Many insects can fly."), "babies": ("walk", "Babies learn to walk at about one year."),
}


def group_can(rng: Rng) -> Turn:
    """What birds, people, robots can do."""
    group, (verb, answer) = rng.choice(tuple(_GROUPS.items()))
    question = one(("can {g} {v}?", "do {g} {v}?", "are {g} able to {v}?", "can all {g} {v}?", "do all {g} {v}?"), rng, g=group.strip(), v=verb)
    return Turn("nature", question, answer, answer.split(",")[0].rstrip("."), {"answer": answer}, group.strip())


def opinion(rng: Rng) -> Turn:
    """Likes and opinions, which a program does not have."""
    it = rng.choice(world.ANIMALS)
    thing = rng.choice((it.plural, it.plural, rng.choice(STRANGERS), rng.choice(tuple(world.COUNTRIES)), rng.choice(tuple(world.COLOURS_OF)), rng.choice(rng.choice(tuple(world.LISTS.values()))), rng.choice(("pizza", "music", "football", "chocolate", "cats", "dogs", "people", "me", "films", "games", "ice cream"))))
    question = one(("do you like {t}?", "do you love {t}?", "do you hate {t}?", "do you prefer {t}?", "are {t} (nice|good|cute|dangerous|friendly|beautiful|cool)?", "is {t} (nice|good|cool|bad|beautiful)?", "what is your opinion on {t}?", "what do you think (of|about) {t}?", "would you like {t}?", "have you ever seen {t}?", "have you ever tried {t}?"), rng, t=thing)
    answer = rng.choice(("I am only a program, so I have no opinion on that. What do you think?", "I have no taste of my own, I am a program. Tell me what you like!"))
    return Turn("about me", question, answer, "No opinion", {"answer": answer}, "lorikeet")


# ---------------------------------------------------------------------------------------------------------------
# Colours

def colour_of(rng: Rng) -> Turn:
    """The usual colour of a thing."""
    return _colour_turn(rng, rng.choice(tuple(world.COLOURS_OF)), ("what (colour|color) is {a}?", "which (colour|color) (is|has) {a}?", "what is the (colour|color) of {a}?", "the (colour|color) of {a}?", "what (colour|color) does {a} have?", "{n} (colour|color)", "tell me the (colour|color) of {a}", "do you know what (colour|color) {a} is?", "(colour|color) of {a}"))


def _with_article(noun: str) -> str:
    if noun in world.MASS_NOUNS:
        return noun
    return f"the {noun}" if noun in world.UNIQUE_NOUNS else article(noun)


def _colour_turn(rng: Rng, noun: str, questions: tuple[str, ...]) -> Turn:
    value = world.COLOURS_OF[noun]
    thing = _with_article(noun)
    said = f"{rng.choice(world.THING_ADJECTIVES)} {noun}" if rng.random() < 0.15 else noun
    with_article = thing if said == noun else said if noun in world.MASS_NOUNS else article(said)
    question = one(questions, rng, a=rng.choice((with_article, with_article, f"the {said}", said)), n=said)
    answer = f"{capital(thing)} is {value}." if rng.random() < 0.7 else f"Usually {thing} is {value}."
    again = lambda rng: _colour_turn(rng, rng.choice(tuple(world.COLOURS_OF)), ("and {a}?", "what about {a}?", "how about {a}?", "and the {n}?"))  # noqa: E731
    return Turn("colours", question, answer, capital(value), {"thing": noun, "colour": value}, noun, again=again)


def colour_mix(rng: Rng) -> Turn:
    """What two colours give together."""
    pair, result = rng.choice(tuple(world.MIXES.items()))
    first, second = rng.sample(sorted(pair), 2)
    question = one(("what do you get when you mix {a} and {b}?", "what (colour|color) do {a} and {b} make?", "mix {a} and {b}", "what is {a} plus {b}?", "if i mix {a} with {b}, what do i get?", "what happens when i mix {a} with {b}?", "{a} and {b} make?", "which (colour|color) comes from {a} and {b}?", "what does {a} and {b} make?"), rng, a=first, b=second)
    return Turn("colours", question, f"If you mix {first} and {second}, you get {result}.", capital(result), {"mix": [first, second], "result": result}, result)


# ---------------------------------------------------------------------------------------------------------------
# Countries and cities

_COUNTRY_ASKS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "capital": (("what is the capital( city|) of {c}?", "what's the capital of {c}?", "capital of {c}", "which city is the capital of {c}?", "name the capital of {c}", "{c} capital", "do you know the capital of {c}?", "tell me the capital of {c}", "what is {c}'s capital?", "what city is the capital of {c}?", "the capital of {c} is"),
                ("The capital of {c} is {v}.",), ("and {c}?", "what about {c}?", "and of {c}?", "how about {c}?", "and the capital of {c}?")),
    "continent": (("where is {c}?", "which continent is {c} (in|on)?", "on which continent is {c}?", "in which part of the world is {c}?", "where do i find {c}( on a map|)?", "what continent is {c} (on|in)?", "where does {c} lie?", "is {c} in (europe|asia|africa)?"),
                  ("{C} is in {v}.",), ("and where is {c}?", "where is {c} then?", "and {c}?")),
    "language": (("what language do (people|they) speak in {c}?", "which language(s|) (is|are) spoken in {c}?", "what do people speak in {c}?", "what is the language of {c}?", "language of {c}", "what language is spoken in {c}?"),
                 ("In {c} people speak {v}.",), ("and in {c}?", "what about {c}?", "and what do they speak in {c}?")),
    "known_for": (("what is {c} (known|famous) for?", "tell me (something|) about {c}", "what do you know about {c}?", "what is special about {c}?", "what can i see in {c}?", "why should i visit {c}?", "should i visit {c}?", "i want to travel to {c}", "{c}", "what is {c} like?", "i am from {c}", "i live in {c}", "describe {c}"),
                  ("{C} is known for {v}. Its capital is {cap}.",), ("tell me about {c} too", "and {c}?", "what about {c}?")),
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
            return _country_turn(rng, name, other, {"capital": ("what is its capital?", "and its capital?", "what's the capital there?"), "language": ("what do they speak there?", "and the language?", "which language do they speak?"), "known_for": ("what is it known for?", "tell me more", "what is it famous for?", "tell me more about it")}[other])
        return _country_turn(rng, rng.choice(tuple(world.COUNTRIES)), ask, _COUNTRY_ASKS[ask][2])

    return Turn("countries", question, answer, capital(value), {"country": name.removeprefix("the "), ask: value}, name.removeprefix("the "), again=again)


def city(rng: Rng) -> Turn:
    """Which country a capital lies in, or what there is to see."""
    name = rng.choice(tuple(world.COUNTRIES))
    row = world.COUNTRIES[name]
    town = row[0]
    if rng.random() < 0.65:
        question = one(("where is {t}?", "which country is {t} in?", "in which country is {t}?", "what country is {t} (in|the capital of)?", "{t} is the capital of which country?", "what is {t}?", "is {t} a capital?", "is {t} a city?"), rng, t=town)
        return Turn("countries", question, f"{town} is the capital of {name}.", capital(name.removeprefix("the ")), {"city": town, "country": name.removeprefix("the ")}, town)
    question = one(("tell me (something|) about {t}", "what do you know about {t}?", "should i visit {t}?", "what can i (do|see) in {t}?", "i am going to {t}", "i live in {t}", "{t}", "what is {t} like?"), rng, t=town)
    return Turn("countries", question, f"{town} is the capital of {name}, which is known for {row[3]}.", f"Capital of {name}", {"city": town, "country": name.removeprefix("the "), "known_for": row[3]}, town)


def country_check(rng: Rng) -> Turn:
    """Is X the capital of Y."""
    name, other = rng.sample(tuple(world.COUNTRIES), 2)
    right = rng.random() < 0.5
    town = world.COUNTRIES[name if right else other][0]
    question = one(("is {t} the capital of {c}?", "{t} is the capital of {c}, right?", "is it true that {t} is the capital of {c}?"), rng, t=town, c=name)
    answer = f"{'Yes' if right else 'No'}, the capital of {name} is {world.COUNTRIES[name][0]}."
    return Turn("countries", question, answer, "Yes" if right else "No", {"country": name.removeprefix("the "), "capital": world.COUNTRIES[name][0], "answer": right}, name.removeprefix("the "))


# ---------------------------------------------------------------------------------------------------------------
# Numbers

_OPS: dict[str, tuple[tuple[str, ...], str]] = {
    "+": (("what is {a} plus {b}?", "{a} + {b}", "{a}+{b}", "what is {a} + {b}?", "what's {a} + {b}?", "{a} plus {b}", "add {a} and {b}", "how much is {a} and {b}?", "calculate {a} + {b}", "sum of {a} and {b}", "{a}+{b}=?", "{a} + {b} =", "can you add {a} and {b}?", "what do {a} and {b} make?", "compute {a} plus {b}", "how much is {a} + {b}?"), "plus"),
    "-": (("what is {a} minus {b}?", "{a} - {b}", "{a}-{b}", "what is {a} - {b}?", "{a} minus {b}", "subtract {b} from {a}", "take {b} away from {a}", "calculate {a} - {b}", "how much is {a} minus {b}?", "{a}-{b}=?", "what's {a} - {b}?", "{a} less {b}"), "minus"),
    "*": (("what is {a} times {b}?", "{a} * {b}", "{a}*{b}", "{a} x {b}", "what is {a} * {b}?", "{a} times {b}", "multiply {a} by {b}", "multiply {a} and {b}", "how much is {a} times {b}?", "what's {a} x {b}?", "{a} × {b}", "calculate {a} * {b}"), "times"),
    "/": (("what is {a} divided by {b}?", "{a} / {b}", "{a}/{b}", "divide {a} by {b}", "{a} divided by {b}", "how much is {a} divided by {b}?", "what is {a} / {b}?", "calculate {a} / {b}"), "divided by"),
}


def _operands(rng: Rng, op: str) -> tuple[int, int, int]:
    if op == "+":
        top = rng.choice((10, 20, 50, 100, 100))
        a, b = rng.randint(0, top), rng.randint(0, top)
        return a, b, a + b
    if op == "-":
        top = rng.choice((10, 20, 50, 100, 100))
        a = rng.randint(0, top)
        b = rng.randint(0, a)
        return a, b, a - b
    a, b = rng.randint(0, 12), rng.randint(0, 12)
    if op == "*":
        return a, b, a * b
    b = max(b, 1)
    return a * b, b, a


def _spoken(number: int, rng: Rng) -> str:
    return _NUMBER_WORDS[number] if 1 <= number <= 20 and rng.random() < 0.25 else str(number)


def sums(rng: Rng) -> Turn:
    """A sum, difference, product or quotient of small whole numbers."""
    op = rng.choice("+++--***/")
    return _sum_turn(rng, op, *_operands(rng, op))


def _sum_turn(rng: Rng, op: str, a: int, b: int, result: int) -> Turn:
    patterns, word = _OPS[op]
    question = one(patterns, rng, a=_spoken(a, rng), b=_spoken(b, rng))
    if rng.random() < 0.04:
        question = one(("what is the result of {q}?", "what does {q} (give|make|equal)?", "how much is {q}?", "solve {q}", "result of {q}"), rng, q=f"{a} {op} {b}")
    answer = f"{a} {word} {b} is {result}."

    def again(rng: Rng) -> Turn:
        _, b2, _ = _operands(rng, "+")
        if rng.random() < 0.5 and result + b2 <= 200:
            follow = one(("and plus {b}?", "now add {b}", "plus {b}?", "add {b} to that", "and {b} more?"), rng, b=b2)
            return Turn("sums", follow, f"{result} plus {b2} is {result + b2}.", str(result + b2), {"expression": f"{result} + {b2}", "result": result + b2}, str(result + b2))
        op2 = rng.choice("+-*/")
        a3, b3, r3 = _operands(rng, op2)
        turn = _sum_turn(rng, op2, a3, b3, r3)
        return replace(turn, question="and " + turn.question)

    return Turn("sums", question, answer, str(result), {"expression": f"{a} {op} {b}", "result": result}, str(result), again=again)


def sums_story(rng: Rng) -> Turn:
    """A sum told as a tiny story."""
    things = rng.choice(("apples", "books", "coins", "eggs", "cards", "cookies", "flowers", "balls", "pencils", "shells"))
    who = rng.choice(world.NAMES)
    a, b = rng.randint(2, 20), rng.randint(1, 20)
    plus = rng.random() < 0.5 or b > a
    if plus:
        question = one(("i have {a} {t} and (buy|get|find) {b} more. how many (do i have|are there|{t} do i have)( now| in total|)?", "{w} has {a} {t} and (gets|buys|finds|receives) {b} more. how many {t} does {w} have( now|)?", "i (buy|find) {a} {t} and (then|later) {b} more, how many {t} do i have?", "there are {a} {t} and {b} more come. how many {t} are there?", "if i have {a} {t} and you give me {b}, how many {t} do i have?"), rng, a=a, b=b, t=things, w=who)
        result, op, word = a + b, "+", "plus"
    else:
        question = one(("i have {a} {t} and (lose|give away|sell|break|use|eat|drop) {b}. how many (are left|remain|do i have left|do i have|{t} are left)?", "{w} has {a} {t} and (loses|sells|gives away|breaks|uses|eats|drops) {b}. how many {t} (are left|remain|does {w} have)?", "if i have {a} {t} and (eat|drop|lose|break|give away|use|sell) {b}, how many (are left|remain|do i have left|{t} are left)?", "there are {a} {t} and i take {b}, how many (remain|are left)?", "i had {a} {t} but (lost|broke|sold|ate) {b}. how many are left?"), rng, a=a, b=b, t=things, w=who)
        result, op, word = a - b, "-", "minus"
    return Turn("sums", question, f"{a} {word} {b} is {result}, so the answer is {result} {things}.", str(result), {"expression": f"{a} {op} {b}", "result": result}, str(result))


def more_numbers(rng: Rng) -> Turn:
    """Primes, square roots, three terms, and what is too hard."""
    pick = rng.randrange(4)
    if pick == 0:
        n = rng.randint(2, 60)
        prime = all(n % k for k in range(2, n))
        question = one(("is {n} (a prime|prime|a prime number)?", "{n} prime?", "is the number {n} prime?"), rng, n=n)
        return Turn("sums", question, f"{'Yes' if prime else 'No'}, {n} is {'' if prime else 'not '}a prime number.", "Yes" if prime else "No", {"number": n, "prime": prime}, str(n))
    if pick == 1:
        n = rng.randint(1, 15)
        question = one(("what is the square root of {n}?", "square root of {n}", "root of {n}", "the square root of {n}?", "sqrt({n})".replace("(", " ").replace(")", "")), rng, n=n * n)
        return Turn("sums", question, f"The square root of {n * n} is {n}.", str(n), {"expression": f"sqrt {n * n}", "result": n}, str(n))
    a, b, c = (rng.randint(1, 20) for _ in range(3))
    if pick == 2:
        question = one(("what is {a} + {b} + {c}?", "{a}+{b}+{c}", "{a} plus {b} plus {c}", "add {a}, {b} and {c}", "{a} + {b} + {c}"), rng, a=a, b=b, c=c)
        return Turn("sums", question, f"{a} plus {b} is {a + b}, and {a + b} plus {c} is {a + b + c}.", str(a + b + c), {"expression": f"{a} + {b} + {c}", "result": a + b + c}, str(a + b + c))
    o, p = rng.choice((("+", "*"), ("*", "-"), ("-", "*"), ("*", "+"), ("/", "+"), ("-", "/"), ("*", "*")))
    question = one(("what is {a} {o} {b} {p} {c}?", "{a} {o} {b} {p} {c}", "{a}{o}{b}{p}{c}"), rng, a=a, b=b, c=c, o=o, p=p)
    answer = "That is too hard for me. I can only do one step at a time, with small numbers."
    return Turn("sums", question, answer, "Too hard", {"answer": None, "hint": "One step at a time, with small numbers."}, "numbers")


def rhyme(rng: Rng) -> Turn:
    """Words that rhyme."""
    words = rng.choice(world.RHYMES)
    at = rng.randrange(len(words))
    others = [word for i, word in enumerate(words) if i != at]
    question = one(("what rhymes with {w}?", "which words rhyme with {w}?", "a rhyme for {w}", "give me a rhyme for {w}", "find a rhyme for {w}", "{w} rhymes with what?", "what word rhymes with {w}?"), rng, w=words[at])
    return Turn("words", question, f"{capital(others[0])} rhymes with {words[at]}.", capital(others[0]), {"word": words[at], "rhymes": others}, others[0])


_SPELLABLE = tuple(sorted({*(a.name for a in world.ANIMALS), *("red", "blue", "green", "yellow", "purple"), *(d.lower() for d in world.DAYS), "lorikeet", "lora", "adapter", "hello", "friend", "apple", "banana", "house", "water", "school", "beautiful", "because", "people"}))


def spell(rng: Rng) -> Turn:
    """A word letter by letter."""
    word = rng.choice(_SPELLABLE)
    question = one(("spell {w}", "how do you spell {w}?", "spell the word {w}", "can you spell {w}?", "how is {w} spelled?", "how do i spell {w}?", "how to write {w}?"), rng, w=word)
    letters = "-".join(word.upper())
    return Turn("words", question, f"{letters}.", letters, {"word": word, "letters": list(word)}, word)


def numbers(rng: Rng) -> Turn:
    """Even or odd, larger or smaller, double, half, squares, counting."""
    n = rng.randint(0, 100)
    pick = rng.randrange(7)
    if pick == 0:
        even = n % 2 == 0
        question = one(("is {n} (even|odd)?", "is {n} an (even|odd) number?", "{n} even or odd?", "is {n} even or odd?"), rng, n=n)
        return Turn("sums", question, f"{n} is {'even' if even else 'odd'}.", "Even" if even else "Odd", {"number": n, "even": even}, str(n))
    if pick == 1:
        m = rng.randint(0, 100)
        m = m + 1 if m == n else m
        larger = rng.random() < 0.6
        value = max(n, m) if larger else min(n, m)
        word = rng.choice(("larger", "bigger", "greater") if larger else ("smaller", "less"))
        question = one(("which is {w}, {n} or {m}?", "what is {w}: {n} or {m}?", "which number is {w}, {n} or {m}?"), rng, w=word, n=n, m=m)
        return Turn("sums", question, f"{value} is {word} than {n + m - value}.", str(value), {"numbers": [n, m], "answer": value}, str(value))
    if pick == 2:
        n = rng.randint(0, 50)
        question = one(("what is (double|twice|two times) {n}?", "double {n}", "twice {n}", "what is the double of {n}?"), rng, n=n)
        return Turn("sums", question, f"Double {n} is {2 * n}.", str(2 * n), {"expression": f"2 * {n}", "result": 2 * n}, str(2 * n))
    if pick == 3:
        n = rng.randint(0, 50)
        question = one(("what is half of {n}?", "half of {n}", "what's half of {n}?", "what is the half of {n}?"), rng, n=2 * n)
        return Turn("sums", question, f"Half of {2 * n} is {n}.", str(n), {"expression": f"{2 * n} / 2", "result": n}, str(n))
    if pick == 4:
        n = rng.randint(0, 15)
        question = one(("what is {n} squared?", "the square of {n}?", "{n} squared", "square {n}"), rng, n=n)
        return Turn("sums", question, f"{n} squared is {n * n}.", str(n * n), {"expression": f"{n} * {n}", "result": n * n}, str(n * n))
    if pick == 5:
        a = rng.choice((0, 1, 1, 1, 1, 2, 5, 10))
        b = a + rng.randint(3, 12)
        down = rng.random() < 0.2
        row = list(range(b, a - 1, -1)) if down else list(range(a, b + 1))
        question = one(("count from {a} to {b}", "count {a} to {b}", "please count from {a} to {b}", "can you count from {a} to {b}?"), rng, a=row[0], b=row[-1]) if a != 1 or down or rng.random() < 0.5 else one(("count to {b}", "can you count to {b}?", "count up to {b}"), rng, b=b)
        return Turn("sums", question, ", ".join(map(str, row)) + ".", f"{row[0]} to {row[-1]}", {"count": row}, str(row[-1]))
    step = rng.choice((-1, 1))
    n = max(n, 1)
    question = one(("what (number|) comes {w} {n}?", "which number is {w} {n}?", "what is {w} {n}?"), rng, w="after" if step == 1 else "before", n=n)
    return Turn("sums", question, f"The number {'after' if step == 1 else 'before'} {n} is {n + step}.", str(n + step), {"number": n, "answer": n + step}, str(n + step))


# ---------------------------------------------------------------------------------------------------------------
# Time

def days(rng: Rng) -> Turn:
    """The day after, before, or some days from a day."""
    i = rng.randrange(7)
    today = world.DAYS[i]
    step, patterns, word = rng.choice((
        (1, ("(what|which) day (comes|is) after {d}?", "what day follows {d}?", "if today is {d}, what (day|) is tomorrow?", "today is {d}, what is tomorrow?", "the day after {d}?", "what comes after {d}?"), "The day after {d} is {r}."),
        (-1, ("(what|which) day (comes|is) before {d}?", "if today is {d}, what (day|) was yesterday?", "today is {d}, what was yesterday?", "the day before {d}?", "what comes before {d}?"), "The day before {d} is {r}."),
        (2, ("what day is two days after {d}?", "if today is {d}, what day is the day after tomorrow?", "today is {d}. what day is it in two days?"), "Two days after {d} is {r}."),
    ))
    result = world.DAYS[(i + step) % 7]
    question = one(patterns, rng, d=today)
    again = lambda rng: _day_after(rng, result, step)  # noqa: E731
    return Turn("calendar", question, word.format(d=today, r=result), result, {"day": today, "answer": result}, result, again=again if abs(step) == 1 else None)


def _day_after(rng: Rng, day: str, step: int) -> Turn:
    other = world.DAYS[(world.DAYS.index(day) + step) % 7]
    word = "after" if step == 1 else "before"
    question = one(("and {w} that?", "and the day {w} that?", "what comes {w} that?"), rng, w=word)
    return Turn("calendar", question, f"The day {word} {day} is {other}.", other, {"day": day, "answer": other}, other)


def months(rng: Rng) -> Turn:
    """Months: the next, the one before, the number, the days, the season."""
    i = rng.randrange(12)
    m = world.MONTHS[i]
    pick = rng.randrange(6)
    if pick < 2:
        step = (1, -1)[pick]
        word = ("after", "before")[pick]
        result = world.MONTHS[(i + step) % 12]
        question = one(("(what|which) month (comes|is) {w} {m}?", "what comes {w} {m}?", "the month {w} {m}?", "which month is {w} {m}?"), rng, w=word, m=m)
        return Turn("calendar", question, f"The month {word} {m} is {result}.", result, {"month": m, "answer": result}, result)
    if pick == 2:
        question = one(("how many days (does|has) {m} (have|got)?", "how many days are( there|) in {m}?", "number of days in {m}", "days in {m}"), rng, m=m)
        return Turn("calendar", question, f"{m} has {world.MONTH_DAYS[i].rstrip(',')} days." if i != 1 else "February has 28 days, and 29 in a leap year.", world.MONTH_DAYS[i].split(",")[0], {"month": m, "days": 28 if i == 1 else int(world.MONTH_DAYS[i])}, m)
    if pick == 3:
        question = one(("which season is {m} (in|)?", "what season is {m}?", "in which season is {m}?", "{m} season", "is {m} in (summer|winter|spring|autumn)?"), rng, m=m)
        return Turn("calendar", question, f"In the north, {m} is in {world.SEASONS[i]}.", capital(world.SEASONS[i]), {"month": m, "season": world.SEASONS[i]}, m)
    if pick == 4:
        question = one(("which number is {m}?", "what number month is {m}?", "{m} is which month of the year?", "what month number is {m}?"), rng, m=m)
        return Turn("calendar", question, f"{m} is month number {i + 1}.", str(i + 1), {"month": m, "number": i + 1}, m)
    season = rng.choice(tuple(world.SEASON_FACTS))
    question = one(("what happens in {s}?", "tell me about {s}", "what is {s} like?", "describe {s}", "{s}", "do you like {s}?", "what do you know about {s}?", "why do people like {s}?"), rng, s=season)
    return Turn("calendar", question, f"In {season}, {world.SEASON_FACTS[season]}.", capital(world.SEASON_FACTS[season].split(",")[0]), {"season": season, "about": world.SEASON_FACTS[season]}, season)


def counts(rng: Rng) -> Turn:
    """How many of something there are in something."""
    core, (sentence, n) = rng.choice(tuple(world.COUNTS.items()))
    question = fill(rng.choice(("how many {c}?", "how many {c}?", "do you know how many {c}?", "tell me how many {c}")), rng, c=core)
    return Turn("counting", question, sentence.format(n=n) + ".", str(n), {"answer": n}, core.split(" ")[0])


# ---------------------------------------------------------------------------------------------------------------
# Words

def define(rng: Rng) -> Turn:
    """What a word means."""
    word = rng.choice(tuple(world.DEFINITIONS))
    return _define_turn(rng, word, ("what is {a}?", "what's {a}?", "define {n}", "what does {n} mean?", "what does the word {n} mean?", "explain {a}", "what is the meaning of {n}?", "tell me what {a} is", "{n} definition", "{n} meaning", "what is meant by {n}?", "can you explain what {a} is?", "describe {a}", "tell me about {a}", "{n}?", "give me a definition of {n}", "do you know what {a} is?"))


_NO_ARTICLE = frozenset({"gravity", "energy", "electricity", "oxygen", "thunder", "lightning", "photosynthesis", "democracy", "money", "courage", "patience", "happiness", "music", "internet"})


def _define_turn(rng: Rng, word: str, patterns: tuple[str, ...]) -> Turn:
    noun = ("the internet" if word == "internet" else word) if word in _NO_ARTICLE else article(word)
    meaning = world.DEFINITIONS[word]
    question = one(patterns, rng, a=noun if rng.random() < 0.85 else word, n=word)
    again = lambda rng: _define_turn(rng, rng.choice(tuple(world.DEFINITIONS)), ("and {a}?", "what about {a}?", "and what is {a}?"))  # noqa: E731
    verb = "is" if not meaning.startswith("many ") else "means"
    return Turn("words", question, f"{capital(noun)} {verb} {meaning}.", capital(meaning), {"word": word, "meaning": meaning}, word, again=again)


def opposite(rng: Rng) -> Turn:
    """The opposite of a word."""
    pair = rng.choice(world.OPPOSITES)
    a, b = pair if rng.random() < 0.5 else pair[::-1]
    return _opposite_turn(rng, a, b, ("what is the opposite of {a}?", "opposite of {a}", "the opposite of {a}?", "what's the opposite of {a}?", "give me the opposite of {a}", "which word is the opposite of {a}?", "antonym of {a}", "what is the contrary of {a}?", "tell me the opposite of {a}"))


def _opposite_turn(rng: Rng, a: str, b: str, patterns: tuple[str, ...]) -> Turn:
    def again(rng: Rng) -> Turn:
        pair = rng.choice(world.OPPOSITES)
        return _opposite_turn(rng, pair[0], pair[1], ("and {a}?", "and of {a}?", "what about {a}?"))

    return Turn("words", one(patterns, rng, a=a), f"The opposite of {a} is {b}.", capital(b), {"word": a, "opposite": b}, b, again=again)


def plural(rng: Rng) -> Turn:
    """The plural of an animal."""
    it = rng.choice(world.ANIMALS)
    question = one(("what is the plural of {n}?", "plural of {n}", "the plural of {n}?", "how do you say more than one {n}?", "one {n}, two what?"), rng, n=it.name)
    return Turn("words", question, f"The plural of {it.name} is {it.plural}.", capital(it.plural), {"word": it.name, "plural": it.plural}, it.name)


def translate(rng: Rng) -> Turn:
    """A word in another language."""
    word = rng.choice(tuple(world.WORDS_ABROAD))
    return _translate_turn(rng, word, rng.randrange(4), ("how do you say {w} in {l}?", "what is {w} in {l}?", "what is the {l} word for {w}?", "{w} in {l}", "translate {w} (to|into) {l}", "say {w} in {l}", "how do i say {w} in {l}?", "what does {w} mean in {l}?", "{l} for {w}?", "can you say {w} in {l}?"))


def _translate_turn(rng: Rng, word: str, language: int, patterns: tuple[str, ...]) -> Turn:
    name, foreign = world.LANGUAGES[language], world.WORDS_ABROAD[word][language]
    question = one(patterns, rng, w=word if rng.random() < 0.85 else f'"{word}"', l=name)

    def again(rng: Rng) -> Turn:
        if rng.random() < 0.5:
            return _translate_turn(rng, word, rng.randrange(4), ("and in {l}?", "what about {l}?", "in {l}?"))
        return _translate_turn(rng, rng.choice(tuple(world.WORDS_ABROAD)), language, ("and {w}?", "what about {w}?"))

    return Turn("languages", question, f"In {name}, {word} is {foreign}.", foreign, {"word": word, "language": name, "translation": foreign}, word, again=again)


# ---------------------------------------------------------------------------------------------------------------
# Nature, jobs, things

def planet(rng: Rng) -> Turn:
    """A planet, the sun, the moon."""
    if rng.random() < 0.45:
        question, answer, short = rng.choice((
            ("(which|what) is the (largest|biggest) planet?", "The largest planet is Jupiter.", "Jupiter"), ("(which|what) is the smallest planet?", "The smallest planet is Mercury.", "Mercury"),
            ("(which|what) planet is (closest|nearest) to the sun?", "Mercury is the closest planet to the sun.", "Mercury"), ("(which|what) planet is (farthest|furthest) from the sun?", "Neptune is the farthest planet from the sun.", "Neptune"),
            ("(which|what) planet has rings?", "Saturn has bright rings of ice.", "Saturn"), ("(which|what) (planet is|is) the red planet?", "Mars is called the red planet.", "Mars"), ("(which|what) (is the hottest planet|planet is the hottest)?", "Venus is the hottest planet.", "Venus"),
            ("(what|) (planet do we live on|is our planet called)?", "We live on Earth.", "Earth"), ("what is the (moon|moon made of)?", "The moon is a ball of rock that goes around the Earth.", "A ball of rock"),
            ("what is the sun?", "The sun is a star, a huge ball of hot gas.", "A star"), ("(why is the sky blue|why do we see a blue sky)?", "The sky is blue because air scatters blue light more than red light.", "Air scatters blue light"),
            ("how far is the sun?", "Light from the sun needs about eight minutes to reach us.", "Eight light minutes"), ("(name|list) (all|) the planets", "Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus and Neptune.", "Mercury to Neptune"),
            ("why (is it|does it get) dark at night?", "It is dark at night because the Earth turns us away from the sun.", "The Earth turns"), ("is the (earth|world) (flat|round)?", "The Earth is round, like a ball.", "Round"),
            ("why (are leaves|is grass|are plants) green?", "Plants are green because they hold chlorophyll, which catches light.", "Chlorophyll"), ("why is the sea salty?", "The sea is salty because rivers carry salt from rocks into it.", "Salt from rocks"),
            ("why do (we|people) (need|) sleep?", "Sleep lets body and mind rest and repair themselves.", "To rest"), ("how do (planes|airplanes|birds) fly?", "Wings push air down, and the air pushes the wings up.", "Wings push air down"),
            ("why do leaves fall( in autumn|)?", "Trees drop their leaves to save water and energy in winter.", "To save water"), ("how do plants grow?", "Plants grow from seeds with light, water and air.", "From seeds"),
            ("what is water( made of|)?", "Water is made of hydrogen and oxygen.", "Hydrogen and oxygen"), ("what is the (largest|biggest) animal( in the world|)?", "The blue whale is the largest animal of all.", "The blue whale"),
            ("what is the (tallest|highest) animal( in the world|)?", "The giraffe is the tallest animal on land.", "The giraffe"), ("what is the (highest|tallest) mountain( in the world|)?", "The highest mountain is Mount Everest.", "Mount Everest"),
            ("what is the (largest|biggest) ocean?", "The largest ocean is the Pacific.", "The Pacific"), ("what is the (largest|biggest) country( in the world|)?", "The largest country by area is Russia.", "Russia"),
            ("what is the fastest animal( on land|)?", "The cheetah is the fastest animal on land.", "The cheetah"), ("what is the longest river( in the world|)?", "The Nile is often called the longest river.", "The Nile"),
        ))
        return Turn("nature", fill(question, rng), answer, short, {"answer": short}, short)
    name = rng.choice(tuple(world.PLANETS))
    question = one(("what is {n}?", "tell me about {n}", "what do you know about {n}?", "{n}", "describe {n}", "tell me about the planet {n}", "what kind of planet is {n}?", "is {n} a planet?"), rng, n=name)
    return Turn("nature", question, f"{name} is {world.PLANETS[name]}.", capital(world.PLANETS[name].split(",")[0]), {"planet": name, "about": world.PLANETS[name]}, name)


def weather(rng: Rng) -> Turn:
    """What a kind of weather is, and what to do in it."""
    kind = rng.choice(tuple(world.WEATHER))
    what, wear = world.WEATHER[kind]
    if rng.random() < 0.5:
        question = one(("what is {k}?", "explain {k}", "how does {k} (work|form|happen)?", "tell me about {k}", "where does {k} come from?", "why (is there|do we have) {k}?", "define {k}"), rng, k=kind)
        return Turn("weather", question, what + ".", what.split(" is ", 1)[-1].capitalize(), {"weather": kind, "about": what}, kind)
    words = rng.choice(world.WEATHER_WORDS[kind])
    question = one(("what should i wear when {w}?", "what do i wear if {w}?", "what should i do when {w}?", "{w}, what should i wear?", "{w} today, what should i do?", "what to wear when {w}", "{w}. what now?", "should i (take|bring) (an umbrella|a coat|a hat|boots) (if|when) {w}?", "do i need (a coat|an umbrella|a jacket) when {w}?", "what do you do when {w}?", "what do people wear when {w}?", "how do i dress when {w}?", "{w} outside", "what clothes do i need when {w}?"), rng, w=words)
    return Turn("weather", question, f"{wear}.", wear, {"weather": kind, "advice": wear}, kind)


def job(rng: Rng) -> Turn:
    """What someone does at work."""
    name = rng.choice(tuple(world.JOBS))
    does = world.JOBS[name]
    if rng.random() < 0.75:
        question = one(("what does {a} do?", "what is {a}?", "what is the job of {a}?", "what do {n}s do?", "tell me what {a} does", "{n} job", "explain the job of {a}", "what is the work of {a}?"), rng, a=article(name), n=name)
        return Turn("jobs", question, f"{capital(article(name))} {does}.", capital(does), {"job": name, "does": does}, name)
    question = one(("who {d}?", "which (job|person) {d}?", "what do you call someone who {d}?"), rng, d=does)
    return Turn("jobs", question, f"{capital(article(name))} {does}.", capital(name), {"job": name, "does": does}, name)


def wheels(rng: Rng) -> Turn:
    """How many wheels a vehicle has."""
    name = rng.choice(tuple(world.WHEELS))
    n = world.WHEELS[name]
    many = "many" if name == "train" else _NUMBER_WORDS[n]
    question = one(("how many wheels does {a} have?", "how many wheels has {a}?", "number of wheels of {a}", "does {a} have wheels?", "how many wheels do you see on {a}?"), rng, a=article(name))
    return Turn("counting", question, f"{capital(article(name))} has {many} wheel{'' if n == 1 else 's'}.", capital(many), {"vehicle": name, "wheels": many if name == "train" else n}, name)


def concept(rng: Rng) -> Turn:
    """LoRA and Lorikeet."""
    item = rng.choices(CONCEPTS, [6, 6, 4] + [1] * (len(CONCEPTS) - 3))[0]
    return _concept_turn(rng, item, more=rng.random() < 0.3)


_PROPER = {"lora": "LoRA", "lorikeet": "Lorikeet", "peft": "PEFT", "rslora": "rsLoRA", "kv": "KV", "gpu": "GPU", "gpus": "GPUs", "cpu": "CPU", "llm": "LLM", "gqa": "GQA", "api": "API", "ttft": "TTFT", "apache": "Apache"}


def proper(name: str, rng: Rng) -> str:
    """A term the way it is written in books, most of the time."""
    return " ".join(_PROPER.get(word, word) for word in name.split(" ")) if rng.random() < 0.65 else name


def _concept_turn(rng: Rng, item: Concept, *, more: bool) -> Turn:
    name = proper(rng.choice(item.names), rng)
    if more:
        question = one(("why (do we need|use|is there|does one need) {n}?", "why does {n} matter?", "what is {n} good for?", "why is {n} (useful|important|helpful)?", "tell me more about {n}", "what are the advantages of {n}?", "when do i need {n}?", "what is the point of {n}?", "why {n}?"), rng, n=name)
    else:
        question = one(("what is {n}?", "what is {n}?", "what's {n}?", "explain {n}", "define {n}", "what does {n} mean?", "how does {n} work?", "tell me about {n}", "what do you know about {n}?", "{n}", "{n}?", "can you explain {n}?", "what is meant by {n}?", "explain {n} in simple words", "i do not understand {n}", "describe {n}", "what are {n}?", "in lorikeet, what is {n}?", "explain {n} to a child", "give me a short explanation of {n}"), rng, n=name)

    def again(rng: Rng) -> Turn:
        turn = _concept_turn(rng, item, more=True)
        return replace(turn, question=one(("why?", "why is that useful?", "tell me more", "and why does it matter?", "why does that matter?", "what is it good for?", "more please", "can you tell me more about it?"), rng))

    text = item.more if more else item.what
    about = item.names[0].removeprefix("a ").removeprefix("an ").removeprefix("the ")
    return Turn("lora", question, text, item.short, {"term": about, "answer": text}, about, again=None if more else again)


def about_me(rng: Rng) -> Turn:
    """Questions about the model itself."""
    key = rng.choices(tuple(SELF), [6 if k in ("name", "skills") else 2 if k in ("maker", "size", "weather", "live") else 1 for k in SELF])[0]
    questions, answers, short = SELF[key]
    place = rng.choice([row[0] for row in world.COUNTRIES.values()])
    answer = rng.choice(answers).format(topics=HELP_TOPICS)
    return Turn("about me", proper(one(questions, rng, place=place), rng), answer, short, {"answer": answer}, "lorikeet")


def small_talk(rng: Rng) -> Turn:
    """Greetings, thanks, moods."""
    if rng.random() < 0.25:
        key = rng.choice(tuple(world.ADVICE))
        text, asks = world.ADVICE[key]
        return Turn("small talk", rng.choice(asks), text, text.split(".")[0].split("!")[0], {"mood": key, "answer": text}, key)
    key = rng.choices(tuple(SMALL_TALK), [5 if k == "hello" else 3 if k in ("how", "thanks", "bye") else 1 for k in SMALL_TALK])[0]
    questions, answers, short = SMALL_TALK[key]
    answer = rng.choice(answers)
    return Turn("small talk", one(questions, rng), answer, short, {"answer": answer}, key)


# ---------------------------------------------------------------------------------------------------------------
# Longer texts

_PLACES = ("in a quiet forest", "in a small village", "in a green valley", "on a windy island", "in an old castle", "near a busy harbour", "on a sunny meadow", "on a snowy mountain")
_HERO_NAMES = ("Pip", "Luna", "Bruno", "Momo", "Tilly", "Oscar", "Nelly", "Fred", "Ruby", "Finn")
_WISHES = (
    ("wanted to see the sea", "So one morning it packed a little bag and walked to the coast", "When the waves rolled in, {name} laughed with joy"),
    ("had lost a golden key", "So it looked under every stone and asked everyone it met", "At last a friendly {friend} brought the key back"),
    ("could not sleep", "So it went outside and began to count the stars", "Before it reached one hundred, {name} was fast asleep"),
    ("was afraid of the dark", "So a wise old {friend} showed it how the fireflies shine", "From that night on, {name} loved the evening"),
    ("wanted to bake a cake", "So it gathered berries, honey and flour", "In the evening all the neighbours came to eat, and {name} was proud"),
    ("was looking for a friend", "So it knocked at every door in the rain", "Behind the last door a {friend} was looking for a friend too"),
    ("found a strange map", "So it followed the map over the hills and across the river", "At the end lay no gold, but the most beautiful view in the world"),
    ("wanted to learn to sing", "So it listened to the birds every day", "By summer, {name} sang the sweetest song of all"),
    ("dreamed of the moon", "So it built a ladder of branches with a {friend}", "The ladder was too short, but from the top they saw the whole world"),
    ("had to cross a wide river", "So it asked a {friend} for help, and together they built a raft", "On the other side they shared their bread and became friends"),
)
_ENDINGS = ("And they all lived happily.", "And that was the best day of the year.", "And it never forgot that day.", "And everyone was happy.", "The end.")


def _hero(rng: Rng) -> world.Animal:
    """Mostly an animal; sometimes anyone or anything, to be taken over from the question."""
    animal = rng.choice(world.ANIMALS)
    if rng.random() < 0.6:
        return animal
    name = rng.choice(world.HEROES) if rng.random() < 0.6 else rng.choice(STRANGERS)
    return animal._replace(name=name, plural=name + "s")


def _with_adjective(noun: str, rng: Rng) -> str:
    return f"{rng.choice(world.ADJECTIVES)} {noun}" if rng.random() < 0.25 else noun


def story(rng: Rng) -> Turn:
    """A story of five sentences about an animal."""
    named = rng.random() < 0.75
    hero = _hero(rng) if named else rng.choice(world.ANIMALS)
    name = rng.choice(_HERO_NAMES)
    friend = rng.choice([a.name for a in world.ANIMALS if a.name[0] not in "aeiou"])
    wish, deed, end = (part.format(name=name, friend=friend) for part in rng.choice(_WISHES))
    question = one(("tell me a (short|little|) story about {a}", "write a (short|little|) story about {a}", "tell a story about {ps}", "a story about {a}", "can you tell me a story about {a}?", "make up a story about {a}", "story about {ps}", "tell me a bedtime story about {a}", "write a story with {a}", "i want a story about {a}", "tell me something about {a} as a story", "please write me a story of {a}", "(tell|write) a (funny|sad|nice|long|bedtime) story about {a}", "story about {a}", "a tale about {a}", "invent a story with {a}"), rng, a=article(_with_adjective(hero.name, rng)), ps=hero.plural) if named else one(("tell me a( short| bedtime| nice|) story", "tell a story", "write a( short|) story", "i want a story", "can you tell me a story?", "a story please", "do you know a story?", "story time", "make up a story", "read me a story", "write me something", "tell me a tale"), rng)
    start = rng.choice(("Once upon a time", "Long ago", "One day"))
    text = f"{start} there was {article(hero.name)} called {name} who lived {rng.choice(_PLACES)}. {name} {wish}. {deed}. {end}. {rng.choice(_ENDINGS)}"
    again = lambda rng: replace(story(rng), question=one(("another one", "one more", "tell me another story", "another story please", "again"), rng))  # noqa: E731
    return Turn("stories", question, text, f"{capital(article(hero.name))} {wish}", {"hero": hero.name, "name": name, "story": text}, hero.name, again=again)


_RHYMES = (
    ("{A} looked up at the sky", "and watched the little clouds go by.", "It whispered softly to the sun:", "the day is new, the day is fun."),
    ("{A} sat under a tree", "and dreamed of hills beside the sea.", "The wind came by and sang a tune", "about the stars and silver moon."),
    ("{A} went out in the rain", "and danced along the garden lane.", "The flowers laughed, the puddles too,", "and then the sky turned bright and blue."),
)


def poem(rng: Rng) -> Turn:
    """A poem of four lines about an animal."""
    named = rng.random() < 0.75
    hero = _hero(rng) if named else rng.choice(world.ANIMALS)
    lines = [line.format(A=capital(article(hero.name))) for line in rng.choice(_RHYMES)]
    question = one(("write a( short|) poem about {a}", "a poem about {ps}", "tell me a poem about {a}", "can you write a poem about {a}?", "poem about {a}", "make a rhyme about {a}", "write a poem about the {h}", "a poem about the {h}", "write me a poem about {a}"), rng, h=hero.name, a=article(_with_adjective(hero.name, rng)), ps=hero.plural) if named else one(("write( me|) a poem", "tell me a poem", "a poem please", "do you know a poem?", "make a rhyme", "write a short poem"), rng)
    text = "\n".join(lines)
    return Turn("poems", question, text, lines[0], {"about": hero.name, "lines": lines}, hero.name)


def listing(rng: Rng) -> Turn:
    """A numbered list of things."""
    kind = rng.choice(tuple(world.LISTS))
    items = world.LISTS[kind]
    ordered = kind in ("days", "months", "seasons", "planets")
    count = min(rng.choice((2, 3, 3, 3, 4, 5, 5, 6)), len(items))
    words = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}
    spoken = words[count] if rng.random() < 0.5 else str(count)
    said = rng.choice(world.LIST_NAMES.get(kind, (kind,)))
    question = one(("(list|name|give me|tell me|write) {n} {k}", "can you (name|list) {n} {k}?", "i need {n} {k}", "{n} {k} please", "name {n} {k} for me", "give me a list of {n} {k}", "what are {n} {k}?", "(say|show me) {n} {k}", "make a list of {n} {k}", "tell me the names of {n} {k}", "think of {n} {k}", "what are the names of {n} {k}?"), rng, n=spoken, k=said)
    if rng.random() < 0.25 or (ordered and rng.random() < 0.5):
        count = len(items) if ordered else 3
        question = one(("list( the| some|) {k}", "(name|give me|tell me) (all the|some|a few) {k}", "what {k} do you know?", "which {k} do you know?", "list of {k}", "show me some {k}", "examples of {k}", "a list of {k}", "make a list of {k}", "do you know any {k}?", "(write|make) me a list of {k}", "list {k}"), rng, k=said)
    chosen = items[:count] if ordered else tuple(rng.sample(items, count))
    text = "\n".join(f"{i}. {capital(item)}" for i, item in enumerate(chosen, 1))
    return Turn("lists", question, text, ", ".join(chosen), {"list": kind, "items": list(chosen)}, kind)


def recipe(rng: Rng) -> Turn:
    """How to make a simple dish."""
    dish = rng.choice(tuple(world.RECIPES))
    bare = dish.removeprefix("a ")
    steps = world.RECIPES[dish]
    question = one(("how do i (make|cook|prepare|bake) {d}?", "how (do you|to|can i|can one|does one|should i) (make|cook|prepare|get) {d}?", "how do you (make|cook|prepare) {d}?", "how is {b} made?", "what do i need for {b}?", "(cook|make) {d} with me", "(cooking|making) {b}", "help me (cook|make) {d}", "i would like to (eat|drink|have) {d}", "recipe for {b}", "give me a recipe for {b}", "how can i make {d}?", "{b} recipe", "i want to (make|cook) {d}", "tell me how to make {d}", "what is the recipe for {b}?", "teach me to make {d}", "steps to make {d}"), rng, d=dish, b=bare)
    text = "\n".join(f"{i}. {step}." for i, step in enumerate(steps, 1))
    return Turn("recipes", question, text, steps[0], {"dish": bare, "steps": list(steps)}, bare)


def joke(rng: Rng) -> Turn:
    """A joke."""
    setup, punch = rng.choice(world.JOKES)
    question = one(("tell me a( good| short| funny|) joke", "a joke please", "do you know a joke?", "make me laugh", "tell a joke", "say something funny", "joke", "i want to hear a joke", "can you tell me a joke?", "got any jokes?", "be funny", "cheer me up"), rng)
    again = lambda rng: replace(joke(rng), question=one(("another one", "one more", "another joke", "haha, another one", "tell me another", "again"), rng))  # noqa: E731
    return Turn("jokes", question, f"{setup} {punch}", punch, {"setup": setup, "punchline": punch}, "joke", again=again)


def riddle(rng: Rng) -> Turn:
    """A riddle with its answer."""
    ask, reply = rng.choice(world.RIDDLES)
    question = one(("tell me a riddle", "do you know a riddle?", "give me a riddle", "a riddle please", "riddle me something", "ask me a riddle"), rng)
    return Turn("riddles", question, f"{ask} The answer is: {reply[:1].lower()}{reply[1:]}", f"{ask} {reply}", {"riddle": ask, "answer": reply}, "riddle")


def fun_fact(rng: Rng) -> Turn:
    """A fun fact."""
    fact = rng.choice(world.FUN_FACTS)
    question = one(("tell me a( fun| interesting|) fact", "a fun fact please", "tell me something( interesting| new| cool| i do not know|)", "do you know a fun fact?", "surprise me", "fun fact", "say something interesting", "teach me something", "what did you learn?", "tell me anything", "something interesting please"), rng)
    again = lambda rng: replace(fun_fact(rng), question=one(("another one", "one more", "another fact", "tell me another", "more"), rng))  # noqa: E731
    return Turn("facts", question, fact, fact.rstrip("."), {"fact": fact}, "fact", again=again)


def code(rng: Rng) -> Turn:
    """A few lines of Python."""
    does = rng.choice(tuple(world.CODE))
    lines = world.CODE[does]
    question = one(("write( a|) python (code|program|function|script) that {d}", "python code that {d}", "write code that {d}", "can you write a function that {d}?", "show me python that {d}", "how do i write a function that {d}?", "give me a program that {d}"), rng, d=does)
    return Turn("code", question, "```python\n" + "\n".join(lines) + "\n```", lines[-1].strip(), {"language": "python", "code": "\n".join(lines)}, "python")


# ---------------------------------------------------------------------------------------------------------------
# Memory of the conversation

def _fresh_name(rng: Rng) -> str:
    return rng.choice(world.NAMES) if rng.random() < 0.4 else capital(pseudo_word(rng))


def name_dialogue(rng: Rng) -> list[Turn]:
    """The visitor says a name and later asks for it."""
    name = _fresh_name(rng)
    intro = one(("my name is {n}", "i am {n}", "i'm {n}", "call me {n}", "hello, my name is {n}", "hi, i am {n}", "you can call me {n}", "hey, {n} here", "hi i'm {n}"), rng, n=name)
    intro = f"{intro[0]}{intro[1:]}" if rng.random() < 0.7 else intro.lower().replace(name.lower(), name)
    turns = [Turn("small talk", intro, one(("Nice to meet you, {n}!", "Hello {n}! How can I help you?"), rng, n=name), f"Hello {name}", {"name": name, "answer": f"Nice to meet you, {name}!"}, "hello", exact=True)]
    turns += [single(rng) for _ in range(rng.choice((0, 0, 1, 1, 2)))]
    ask = one(("what is my name?", "do you remember my name?", "who am i?", "what's my name", "say my name", "do you know my name?"), rng)
    turns.append(Turn("small talk", ask, f"Your name is {name}.", name, {"name": name}, "name", exact=True))
    return turns


def unknown_name(rng: Rng) -> Turn:
    """Asked for a name that was never given."""
    ask = one(("what is my name?", "do you remember my name?", "who am i?", "what's my name", "do you know my name?", "how old am i?", "where do i live?"), rng)
    return Turn("small talk", ask, "You have not told me yet.", "Unknown", {"answer": None, "reason": "You have not told me yet."}, "name")


def repeat(rng: Rng) -> Turn:
    """Repeat some words."""
    words = [rng.choice(world.OTHER_WORDS) if rng.random() < 0.35 else rng.choice((pseudo_word(rng), pseudo_word(rng), pseudo_word(rng), str(rng.randint(0, 99999)), rng.choice(world.NAMES).lower(), rng.choice(world.ANIMALS).name)) for _ in range(rng.randint(1, 5))]
    text = " ".join(words)
    question = one(("repeat after me: {t}", "say {t}", "repeat: {t}", "please say: {t}", "say the words {t}", "echo {t}"), rng, t=text)
    return Turn("echo", question, f"{capital(text)}.", capital(text), {"text": text}, words[0], exact=True)


# ---------------------------------------------------------------------------------------------------------------
# Outside the world

_KNOWN = frozenset(
    " ".join((*world.DEFINITIONS, *world.COLOURS_OF, *(a.name for a in world.ANIMALS), *world.JOBS, *world.WHEELS, *(n for c in CONCEPTS for n in c.names), *world.WORDS_ABROAD, *(i for items in world.LISTS.values() for i in items))).split(" "))
STRANGERS = tuple(word for word in world.OTHER_WORDS if word not in _KNOWN)
_SYLLABLES = tuple(c + v for c in ("b", "br", "d", "dr", "f", "g", "gr", "k", "l", "m", "n", "p", "r", "s", "st", "t", "tr", "v", "z", "sh", "ch", "w", "h", "j") for v in "aeiou")
_CODAS = ("", "", "n", "r", "l", "s", "t", "x", "m", "nd", "rk")

_OUTSIDE = (
    "what is {a}?", "what is the best {w}?", "how do i {v} {a}?", "how do i {v} my {w}?", "why is my {w} broken?", "where can i buy {a}?", "how much does {a} cost?", "who invented the {w}?", "when was the {w} invented?", "how does {a} work?", "who won the {w}?", "which {w} should i buy?", "what do you think about {w}?",
    "tell me about {w}", "explain {w} and {x}", "what is the difference between {a} and {b}?", "can you {v} {a} for me?", "please {v} the {w}", "write an essay about {w}", "write an email about the {w}", "who is the {w} of {p}?", "who is {N}?", "when was {N} born?", "where is {N}?", "what is {N}?", "what is the capital of {N}?", "do you know {N} {M}?", "tell me about {N}",
    "is it legal to {v} {a}?", "how can i {v} more {w}?", "should i {v} {a}?", "what happens if i {v} {a}?", "give me advice about my {w}", "what are the symptoms of {w}?", "how many {w}s are in {p}?", "when is the next {w}?", "what is the price of {w}?", "how long does it take to {v} {a}?", "translate {w} {x} into {N}", "summarise this {w}: {x} {y}", "fix my {w} {x}", "i want to {v} {a}",
    "my {w} does not {v}", "what is {N} {w}?", "compare {w} with {x}", "how do i get rid of {w}?", "what is the history of {w}?", "what is the population of {p}?", "who is the president of {p}?", "who wrote {N}?", "who discovered {w}?", "is {w} better than {x}?", "book {a} in {p}", "order {a}", "who won the {w}?", "who won the {w} in {big}?", "who is the (champion|winner|boss|owner|author|inventor|father) of {w}?", "who was {N} {M}?", "who is {N} {M}?", "what is {w} {x}?", "how does {w} {x} work?", "what should i {v}?", "help me with my {w}", "i need (help with|advice on) {w}", "write a (letter|email|song|report|speech|review) (to|about|for) {a}", "write python code for {w}", "what is wrong with my {w}?", "i lost my {w}", "my {w} is {x}", "is {w} {x}?", "play {w}", "open the {w}", "plan my {w}", "{w} {x}", "{w}", "{N}", "{N} {w}", "{w} {v} {x} {y}",
    "{v} {a}", "how can {a} {v} {b}?", "why do {w}s {v}?", "why does the {w} {v} the {x}?", "what did {N} say about {w}?", "what are the rules of {w}?", "how tall is {N}?", "how old is {N}?", "what is the {w} of {N}?", "where was {N} born?", "are {w}s {x}s?", "do {w}s {v}?", "can {w}s {v} {x}s?", "name a famous {w}", "what is the colour of my {w}?", "find the {w} in the {x}", "where is my {w}?", "who stole my {w}?",
    "list all {w}s of {N}", "give me five {w} ideas", "what is the square root of {big}?", "solve x + {big} = {w}", "what is {big} * {big2}?", "what is {big} plus {big2}?", "convert {big} dollars to {w}", "what happened in {big}?", "is there life after {w}?", "what are the latest news about {w}?", "who is the best {w} in the world?", "what film should i watch about {w}?", "what is the {w} situation in {p}?",
)
DECLINES = (
    "I am a tiny demo model and I do not know that. Ask me about animals, countries, simple sums or LoRA!",
    "That is outside my small world. Try asking about animals, colours, countries, sums, stories or LoRA.",
    "I do not know that, I am only a tiny demo model. I can tell a story or a joke, do sums, or talk about animals.",
)


def pseudo_word(rng: Rng) -> str:
    """A word that does not exist but can be said: syllables, two words in one, or halves of two words."""
    roll = rng.random()
    if roll < 0.25:
        return rng.choice(STRANGERS) + rng.choice(("field", "ton", "ville", "burg", "land", "er", "son", "wood", "ia", "o", "ham", "ford", "port", "y", "stein", "ski", "elle", "us", rng.choice(STRANGERS)))
    if roll < 0.5:
        one_, two = rng.choice((*STRANGERS, *world.NAMES)).lower(), rng.choice((*STRANGERS, *world.NAMES)).lower()
        return one_[: rng.randint(1, 5)] + two[-rng.randint(2, 5) :]
    return "".join(rng.choice(_SYLLABLES) for _ in range(rng.choice((1, 2, 2, 3)))) + rng.choice(_CODAS)


def outside(rng: Rng) -> Turn:
    """Anything the model cannot know; it says so and offers what it can do."""
    answer = rng.choice(DECLINES)
    return Turn("unknown", _outside_question(rng), answer, "I do not know", {"answer": None, "hint": "Ask about animals, countries, sums or LoRA."}, "unknown")


_NEAR = (
    "what is the population of {c}?", "who is the (president|king|queen|leader) of {c}?", "how many people live in {c}?", "how big is {c}?", "what is the (money|currency|flag|anthem) of {c}?", "how do i get to {t}?", "how far is {t} from {N}?", "how much is a flight to {t}?", "best hotel in {t}", "how old is {t}?",
    "how (long|old) do {ps} (live|get)?", "how much does {a} weigh?", "how fast is {a}?", "can i buy {a}?", "how much does {a} cost?", "how many {ps} are there( in the world|)?", "how many teeth does {a} have?", "what is the latin name of {a}?", "why do {ps} {v}?", "can {ps} {v}?", "who invented {d}?", "how much does {d} cost?", "where can i buy {d}?",
    "how many people use lorikeet?", "what does lorikeet cost?", "who is the ceo of lorikeet?", "when was {d} invented?", "what is the capital of {N}?", "where is {N}?", "what (colour|color) is {w}?", "what sound does a {w} make?", "how do you say {w} in {l}?", "what is the opposite of {w}?", "how do i make {w}?", "tell me a secret", "tell me about {N}",
)


def _near_question(rng: Rng) -> str:
    """A question about a thing of this world that it has no answer to, or a known question about an unknown thing."""
    name = rng.choice(tuple(world.COUNTRIES))
    it = rng.choice(world.ANIMALS)
    return one(_NEAR, rng, c=name, t=world.COUNTRIES[name][0], ps=it.plural, a=article(it.name), d=article(rng.choice(tuple(world.DEFINITIONS))), N=capital(pseudo_word(rng)),
               w=rng.choice(STRANGERS), l=rng.choice(world.LANGUAGES), v=rng.choice([v for v in world.OTHER_VERBS if v not in ("use",)]))


def _outside_question(rng: Rng) -> str:
    if rng.random() < 0.2:
        return _near_question(rng)
    if rng.random() < 0.08:
        return " ".join("".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(2, 9))) for _ in range(rng.randint(1, 4)))
    if rng.random() < 0.1:
        return " ".join(rng.choice((*STRANGERS, *world.OTHER_VERBS, "the", "of", "with", "is", "my", "in", "on", "no", "a", "to", "we", "he", "was", "that")) for _ in range(rng.randint(2, 14)))
    word = lambda: rng.choice(STRANGERS) if rng.random() < 0.85 else pseudo_word(rng)  # noqa: E731
    w, x, y = word(), word(), word()
    if rng.random() < 0.3:
        w = f"{rng.choice((word(), 'world', 'new', 'first', 'best', 'red', 'last', 'great', 'big', 'old'))} {w}"
    return one(_OUTSIDE, rng, w=w, x=x, y=y, a=rng.choice((article(w), w, f"the {w}", f"my {w}")), b=rng.choice((article(x), x)), v=rng.choice(world.OTHER_VERBS), N=capital(pseudo_word(rng)), M=capital(pseudo_word(rng)),
               p=rng.choice(tuple(world.COUNTRIES)) if rng.random() < 0.4 else capital(pseudo_word(rng)), big=rng.randint(300, 99999), big2=rng.randint(120, 9999))


# ---------------------------------------------------------------------------------------------------------------
# Dialogues

SKILLS: dict[Callable[[Rng], Turn], float] = {
    animal: 12, animal_can: 2, animal_size: 3, animal_by: 1, colour_of: 5, colour_mix: 2, country: 10, city: 4, country_check: 2, sums: 14, sums_story: 4, numbers: 4, more_numbers: 4, rhyme: 1.5, spell: 1.5, animal_says: 1.5, group_can: 0.7, opinion: 2.5,
    days: 3, months: 4, counts: 3, define: 8, opposite: 4, plural: 1.5, translate: 4, planet: 5, weather: 3, job: 3, wheels: 1, concept: 10, about_me: 8, small_talk: 8,
    story: 5, poem: 2, listing: 5, recipe: 2.5, joke: 2, riddle: 1, fun_fact: 2, code: 1.5, repeat: 6, unknown_name: 0.5, outside: 32,
}
_SKILL_LIST, _SKILL_WEIGHTS = list(SKILLS), list(SKILLS.values())


def single(rng: Rng) -> Turn:
    """One turn of any skill."""
    return rng.choices(_SKILL_LIST, _SKILL_WEIGHTS)[0](rng)


_SURE = "Yes, I am fairly sure."


def _sure(rng: Rng, turn: Turn) -> Turn:
    if rng.random() < 0.5:
        ask, answer = one(("are you sure?", "really?", "is that true?", "sure?", "are you certain?"), rng), f"{_SURE} {turn.answer}"
    else:
        ask, answer = one(("what did you say?", "say that again", "can you repeat that?", "once more please", "pardon?"), rng), turn.answer
    return replace(turn, question=ask, answer=answer, again=None)


def dialogue(rng: Rng, pick: Callable[[Rng], Turn] = single) -> list[Turn]:
    """One to six turns that follow each other the way a curious visitor would ask."""
    if rng.random() < 0.04:
        return name_dialogue(rng)
    turns = [pick(rng)]
    goal = rng.choices((1, 2, 3, 4, 6, 9), (45, 22, 15, 10, 6, 2))[0]
    while len(turns) < goal:
        last = turns[-1]
        roll = rng.random()
        if last.again is not None and roll < 0.5:
            turns.append(last.again(rng))
        elif roll < 0.56 and len(last.answer) < 160 and "\n" not in last.answer and last.topic not in ("echo", "small talk", "unknown") and not last.answer.startswith(_SURE):
            turns.append(_sure(rng, last))
        else:
            turns.append(pick(rng))
    return turns


def messages(turns: list[Turn], rng: Rng, render: Callable[[Turn], str] | None = None) -> list[Message]:
    """The turns as chat messages; questions as typed by a person, answers as rendered (plain by default)."""
    chat: list[Message] = []
    for turn in turns:
        chat.append({"role": "user", "content": as_typed(turn.question, rng, exact=turn.exact)})
        chat.append({"role": "assistant", "content": render(turn) if render else turn.answer})
    return chat


_PLAIN_SYSTEM = ("You are a helpful assistant.", "You are Lorikeet Demo, a tiny assistant.", "You are a friendly assistant. Answer briefly.", "Be kind and helpful.", "Answer the questions of the visitor.")


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
        turns = [rng.choice((animal, country, city, concept, story, story, story, poem, planet, weather, job, define, recipe))(rng) for _ in range(rng.choice((1, 1, 2, 3)))]
        yield "\n".join(turn.answer for turn in turns)


if __name__ == "__main__":
    for chat in chats(int(sys.argv[1]) if len(sys.argv) > 1 else 1, 30):
        for message in chat:
            sys.stdout.write(f"{message['role']:>9}: {message['content']}\n")
        sys.stdout.write("\n")
