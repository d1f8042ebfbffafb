"""What animals are, do and say."""

from __future__ import annotations

from typing import Any

from demo.train import world
from demo.train.grammar import article, capital, fill, one
from demo.train.skills.strangers import STRANGERS
from demo.train.skills.turn import NUMBER_WORDS, Rng, Turn

_ANIMAL_ASKS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "sound": (
        (
            "what (sound|noise) does {a} make?",
            "what (does|do) {a} (say|sound like)?",
            "which sound do {ps} make?",
            "what sound do {ps} make?",
            "how does {a} sound?",
            "{n} sound",
            "what does the {n} say?",
            "the sound of {a}?",
            "what noise do {ps} make?",
        ),
        ("The sound of {a} is: {sound}.", "{Ps} make this sound: {sound}."),
    ),
    "food": (
        (
            "what (does|do) {a} eat?",
            "what do {ps} (eat|like to eat|feed on)?",
            "what is the (food|diet) of {a}?",
            "what should i feed {a}?",
            "{n} food",
            "what (food|kind of food) do {ps} (like|eat|need)?",
            "what can {ps} eat?",
            "do you know what {ps} eat?",
            "tell me what {ps} eat",
        ),
        ("{Ps} eat {food}.", "{A} eats {food}."),
    ),
    "home": (
        (
            "where does {a} live?",
            "where do {ps} live?",
            "where can i (find|see) {ps}?",
            "what is the (home|habitat) of {a}?",
            "where are {ps} found?",
            "{n} habitat",
            "in which place do {ps} live?",
            "where do you find {ps}?",
        ),
        ("{Ps} live in {home}.", "You can find {ps} in {home}."),
    ),
    "legs": (
        (
            "how many legs does {a} have?",
            "how many legs do {ps} have?",
            "number of legs of {a}?",
            "how many legs has {a} got?",
            "count the legs of {a}",
            "does {a} have legs?",
        ),
        ("{A} has {legs} legs.", "{Ps} have {legs} legs."),
    ),
    "baby": (
        (
            "what is a baby {n} called?",
            "what do you call a baby {n}?",
            "what is the (name|word) for a young {n}?",
            "how do you call the young of {a}?",
            "baby {n}?",
            "what are baby {ps} called?",
        ),
        ("A baby {n} is called {ababy}.",),
    ),
    "kind": (
        (
            "what (kind|type|sort) of animal is {a}?",
            "is {a} a mammal?",
            "is {a} a bird?",
            "is {a} a fish?",
            "what group does {a} belong to?",
            "are {ps} (mammals|birds|insects)?",
        ),
        ("{A} is {akind}.",),
    ),
    "colour": (
        (
            "what (colour|color) is {a}?",
            "what (colour|color) are {ps}?",
            "which (colour|color) does {a} have?",
            "what (colour|color) do {ps} have?",
            "what is the (colour|color) of {a}?",
        ),
        ("{Ps} are {colour}.",),
    ),
    "fact": (
        (
            "tell me (something|a fact|a fun fact|more) about {ps}",
            "tell me about {ps}",
            "tell me about the {n}",
            "what do you know about {ps}?",
            "what is {a}?",
            "what are {ps}?",
            "something interesting about {ps}",
            "say something about {a}",
            "i (like|love) {ps}",
            "{ps}",
            "{n}",
            "facts about {ps}",
            "describe {a}",
            "what is special about {ps}?",
            "why are {ps} special?",
        ),
        ("{A} is {akind}. It lives in {home} and eats {food}. Did you know? {Fact}.",),
    ),
}
_ANIMAL_PRONOUN: dict[str, tuple[str, ...]] = {
    "sound": ("what sound does it make?", "and what does it say?", "what noise do they make?"),
    "food": ("what does it eat?", "and what do they eat?", "what is its food?", "what does it like to eat?"),
    "home": ("where does it live?", "and where do they live?", "where can i find one?", "where do they live?"),
    "legs": ("how many legs does it have?", "and how many legs?"),
    "baby": ("what is its baby called?", "and the baby?", "what do you call its baby?"),
    "kind": ("what kind of animal is it?", "is it a mammal?"),
    "colour": ("what colour is it?", "and the colour?", "what color is it?"),
    "fact": (
        "tell me more",
        "tell me more about it",
        "something else about it?",
        "tell me a fact about it",
        "more please",
    ),
}


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


_AGAIN_ANIMAL = (
    "and {a}?",
    "what about {a}?",
    "and {ps}?",
    "how about {ps}?",
    "and the {n}?",
    "same for {a}",
    "what about {ps}?",
)


def _kind_answer(question: str, animal: world.Animal, plain: str) -> str:
    asked = next(
        (
            kind
            for kind in ("mammal", "bird", "fish", "insect")
            if kind in question.replace(animal.name, "").replace(animal.plural, "")
        ),
        None,
    )
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
    question = one(
        (
            "can {a} {verb}?",
            "can {ps} {verb}?",
            "do {ps} {verb}?",
            "is {a} able to {verb}?",
            "are {ps} able to {verb}?",
            "does {a} {verb}?",
        ),
        rng,
        **slots,
    )
    answer = (
        f"Yes, {it.plural} can {verb}."
        if good
        else f"No, {it.plural} {'cannot fly' if verb == 'fly' else 'are not known as swimmers'}."
    )
    return Turn(
        "animals", question, answer, "Yes" if good else "No", {"animal": it.name, "can": verb, "answer": good}, it.name
    )


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
        question = one(
            (
                "(which|what|who) is {word}, {a} or {b}?",
                "which animal is {word}: {a} or {b}?",
                "who is {word}, {a} or {b}?",
                "{a} or {b}, which is {word}?",
            ),
            rng,
            **slots,
        )
        answer = f"{capital(article(winner.name))} is {word} than {article(loser.name)}."
        return Turn(
            "animals", question, answer, capital(winner.name), {"question": word, "animal": winner.name}, winner.name
        )
    question = one(
        ("is {a} {word} than {b}?", "are you sure {a} is {word} than {b}?", "would you say {a} is {word} than {b}?"),
        rng,
        **slots,
    )
    yes = winner is one_
    answer = ("Yes, " if yes else "No, ") + f"{article(winner.name)} is {word} than {article(loser.name)}."
    return Turn(
        "animals",
        question,
        answer,
        "Yes" if yes else "No",
        {"question": word, "answer": yes, "animal": winner.name},
        winner.name,
    )


def animal_by(rng: Rng) -> Turn:
    """Which animal makes a sound, has stripes, lives somewhere; from the fact back to the animal."""
    it = rng.choice(
        [
            a
            for a in world.ANIMALS
            if a.sound
            in (
                "roar",
                "trumpet",
                "squeak",
                "moo",
                "neigh",
                "oink",
                "baa",
                "quack",
                "cluck",
                "hoot",
                "croak",
                "buzz",
                "howl",
                "meow",
                "caw",
                "honk",
            )
        ]
    )
    question = fill("(which|what) animal (says|makes the sound|goes|makes the noise) {sound}?", rng, sound=it.sound)
    return Turn(
        "animals",
        question,
        f"{capital(article(it.name))} makes that sound.",
        capital(it.name),
        {"sound": it.sound, "animal": it.name},
        it.name,
    )


_SAYS = {
    "roar": "lion",
    "bark": "dog",
    "meow": "cat",
    "moo": "cow",
    "neigh": "horse",
    "oink": "pig",
    "quack": "duck",
    "cluck": "chicken",
    "hoot": "owl",
    "croak": "frog",
    "buzz": "bee",
    "howl": "wolf",
    "growl": "bear",
    "squeak": "mouse",
}


def animal_says(rng: Rng) -> Turn:
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
        return Turn(
            "animals",
            question,
            f"{capital(it.plural)} {sound} to talk to each other.",
            "To talk",
            {"animal": it.name, "sound": it.sound},
            it.name,
        )
    answer = f"Yes, {it.plural} {sound}." if yes else f"No, the sound of {article(it.name)} is: {it.sound}."
    return Turn(
        "animals",
        question,
        answer,
        "Yes" if yes else "No",
        {"animal": it.name, "sound": it.sound, "answer": yes},
        it.name,
    )


_GROUPS = {
    "birds": ("fly", "Most birds can fly, but penguins cannot."),
    "bats": ("fly", "Yes, bats can fly."),
    "people": ("fly", "People cannot fly without a machine."),
    "birds ": ("sing", "Many birds sing, most of all in the morning."),
    "people ": ("swim", "People can learn to swim."),
    "animals": ("talk", "Animals talk with sounds, smells and movements."),
    "robots": ("think", "Robots follow programs; they do not think as people do."),
    "computers": ("think", "Computers calculate; they do not think as people do."),
    "plants": ("move", "Plants move slowly, for example towards the light."),
    "insects": ("fly", "Many insects can fly."),
    "babies": ("walk", "Babies learn to walk at about one year."),
}


def group_can(rng: Rng) -> Turn:
    """What birds, people, robots can do."""
    group, (verb, answer) = rng.choice(tuple(_GROUPS.items()))
    question = one(
        ("can {g} {v}?", "do {g} {v}?", "are {g} able to {v}?", "can all {g} {v}?", "do all {g} {v}?"),
        rng,
        g=group.strip(),
        v=verb,
    )
    return Turn("nature", question, answer, answer.split(",")[0].rstrip("."), {"answer": answer}, group.strip())


def opinion(rng: Rng) -> Turn:
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
            rng.choice(
                (
                    "pizza",
                    "music",
                    "football",
                    "chocolate",
                    "cats",
                    "dogs",
                    "people",
                    "me",
                    "films",
                    "games",
                    "ice cream",
                )
            ),
        )
    )
    question = one(
        (
            "do you like {t}?",
            "do you love {t}?",
            "do you hate {t}?",
            "do you prefer {t}?",
            "are {t} (nice|good|cute|dangerous|friendly|beautiful|cool)?",
            "is {t} (nice|good|cool|bad|beautiful)?",
            "what is your opinion on {t}?",
            "what do you think (of|about) {t}?",
            "would you like {t}?",
            "have you ever seen {t}?",
            "have you ever tried {t}?",
        ),
        rng,
        t=thing,
    )
    answer = rng.choice(
        (
            "I am only a program, so I have no opinion on that. What do you think?",
            "I have no taste of my own, I am a program. Tell me what you like!",
        )
    )
    return Turn("about me", question, answer, "No opinion", {"answer": answer}, "lorikeet")
