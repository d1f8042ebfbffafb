"""Stories, poems, lists, recipes, jokes and code."""

from __future__ import annotations

from dataclasses import replace

from demo.train import world
from demo.train.grammar import article, capital, one
from demo.train.skills.strangers import STRANGERS
from demo.train.skills.turn import Rng, Turn

_PLACES = (
    "in a quiet forest",
    "in a small village",
    "in a green valley",
    "on a windy island",
    "in an old castle",
    "near a busy harbour",
    "on a sunny meadow",
    "on a snowy mountain",
)
_HERO_NAMES = ("Pip", "Luna", "Bruno", "Momo", "Tilly", "Oscar", "Nelly", "Fred", "Ruby", "Finn")
_WISHES = (
    (
        "wanted to see the sea",
        "So one morning it packed a little bag and walked to the coast",
        "When the waves rolled in, {name} laughed with joy",
    ),
    (
        "had lost a golden key",
        "So it looked under every stone and asked everyone it met",
        "At last a friendly {friend} brought the key back",
    ),
    (
        "could not sleep",
        "So it went outside and began to count the stars",
        "Before it reached one hundred, {name} was fast asleep",
    ),
    (
        "was afraid of the dark",
        "So a wise old {friend} showed it how the fireflies shine",
        "From that night on, {name} loved the evening",
    ),
    (
        "wanted to bake a cake",
        "So it gathered berries, honey and flour",
        "In the evening all the neighbours came to eat, and {name} was proud",
    ),
    (
        "was looking for a friend",
        "So it knocked at every door in the rain",
        "Behind the last door a {friend} was looking for a friend too",
    ),
    (
        "found a strange map",
        "So it followed the map over the hills and across the river",
        "At the end lay no gold, but the most beautiful view in the world",
    ),
    (
        "wanted to learn to sing",
        "So it listened to the birds every day",
        "By summer, {name} sang the sweetest song of all",
    ),
    (
        "dreamed of the moon",
        "So it built a ladder of branches with a {friend}",
        "The ladder was too short, but from the top they saw the whole world",
    ),
    (
        "had to cross a wide river",
        "So it asked a {friend} for help, and together they built a raft",
        "On the other side they shared their bread and became friends",
    ),
)
_ENDINGS = (
    "And they all lived happily.",
    "And that was the best day of the year.",
    "And it never forgot that day.",
    "And everyone was happy.",
    "The end.",
)


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
    question = (
        one(
            (
                "tell me a (short|little|) story about {a}",
                "write a (short|little|) story about {a}",
                "tell a story about {ps}",
                "a story about {a}",
                "can you tell me a story about {a}?",
                "make up a story about {a}",
                "story about {ps}",
                "tell me a bedtime story about {a}",
                "write a story with {a}",
                "i want a story about {a}",
                "tell me something about {a} as a story",
                "please write me a story of {a}",
                "(tell|write) a (funny|sad|nice|long|bedtime) story about {a}",
                "story about {a}",
                "a tale about {a}",
                "invent a story with {a}",
            ),
            rng,
            a=article(_with_adjective(hero.name, rng)),
            ps=hero.plural,
        )
        if named
        else one(
            (
                "tell me a( short| bedtime| nice|) story",
                "tell a story",
                "write a( short|) story",
                "i want a story",
                "can you tell me a story?",
                "a story please",
                "do you know a story?",
                "story time",
                "make up a story",
                "read me a story",
                "write me something",
                "tell me a tale",
            ),
            rng,
        )
    )
    start = rng.choice(("Once upon a time", "Long ago", "One day"))
    text = f"{start} there was {article(hero.name)} called {name} who lived {rng.choice(_PLACES)}. {name} {wish}. {deed}. {end}. {rng.choice(_ENDINGS)}"
    return Turn(
        "stories",
        question,
        text,
        f"{capital(article(hero.name))} {wish}",
        {"hero": hero.name, "name": name, "story": text},
        hero.name,
        again=lambda rng: replace(
            story(rng),
            question=one(("another one", "one more", "tell me another story", "another story please", "again"), rng),
        ),
    )


_RHYMES = (
    (
        "{A} looked up at the sky",
        "and watched the little clouds go by.",
        "It whispered softly to the sun:",
        "the day is new, the day is fun.",
    ),
    (
        "{A} sat under a tree",
        "and dreamed of hills beside the sea.",
        "The wind came by and sang a tune",
        "about the stars and silver moon.",
    ),
    (
        "{A} went out in the rain",
        "and danced along the garden lane.",
        "The flowers laughed, the puddles too,",
        "and then the sky turned bright and blue.",
    ),
)


def poem(rng: Rng) -> Turn:
    """A poem of four lines about an animal."""
    named = rng.random() < 0.75
    hero = _hero(rng) if named else rng.choice(world.ANIMALS)
    lines = [line.format(A=capital(article(hero.name))) for line in rng.choice(_RHYMES)]
    question = (
        one(
            (
                "write a( short|) poem about {a}",
                "a poem about {ps}",
                "tell me a poem about {a}",
                "can you write a poem about {a}?",
                "poem about {a}",
                "make a rhyme about {a}",
                "write a poem about the {h}",
                "a poem about the {h}",
                "write me a poem about {a}",
            ),
            rng,
            h=hero.name,
            a=article(_with_adjective(hero.name, rng)),
            ps=hero.plural,
        )
        if named
        else one(
            (
                "write( me|) a poem",
                "tell me a poem",
                "a poem please",
                "do you know a poem?",
                "make a rhyme",
                "write a short poem",
            ),
            rng,
        )
    )
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
    question = one(
        (
            "(list|name|give me|tell me|write) {n} {k}",
            "can you (name|list) {n} {k}?",
            "i need {n} {k}",
            "{n} {k} please",
            "name {n} {k} for me",
            "give me a list of {n} {k}",
            "what are {n} {k}?",
            "(say|show me) {n} {k}",
            "make a list of {n} {k}",
            "tell me the names of {n} {k}",
            "think of {n} {k}",
            "what are the names of {n} {k}?",
        ),
        rng,
        n=spoken,
        k=said,
    )
    if rng.random() < 0.25 or (ordered and rng.random() < 0.5):
        count = len(items) if ordered else 3
        question = one(
            (
                "list( the| some|) {k}",
                "(name|give me|tell me) (all the|some|a few) {k}",
                "what {k} do you know?",
                "which {k} do you know?",
                "list of {k}",
                "show me some {k}",
                "examples of {k}",
                "a list of {k}",
                "make a list of {k}",
                "do you know any {k}?",
                "(write|make) me a list of {k}",
                "list {k}",
            ),
            rng,
            k=said,
        )
    chosen = items[:count] if ordered else tuple(rng.sample(items, count))
    text = "\n".join(f"{i}. {capital(item)}" for i, item in enumerate(chosen, 1))
    return Turn("lists", question, text, ", ".join(chosen), {"list": kind, "items": list(chosen)}, kind)


def recipe(rng: Rng) -> Turn:
    """How to make a simple dish."""
    dish = rng.choice(tuple(world.RECIPES))
    bare = dish.removeprefix("a ")
    steps = world.RECIPES[dish]
    question = one(
        (
            "how do i (make|cook|prepare|bake) {d}?",
            "how (do you|to|can i|can one|does one|should i) (make|cook|prepare|get) {d}?",
            "how do you (make|cook|prepare) {d}?",
            "how is {b} made?",
            "what do i need for {b}?",
            "(cook|make) {d} with me",
            "(cooking|making) {b}",
            "help me (cook|make) {d}",
            "i would like to (eat|drink|have) {d}",
            "recipe for {b}",
            "give me a recipe for {b}",
            "how can i make {d}?",
            "{b} recipe",
            "i want to (make|cook) {d}",
            "tell me how to make {d}",
            "what is the recipe for {b}?",
            "teach me to make {d}",
            "steps to make {d}",
        ),
        rng,
        d=dish,
        b=bare,
    )
    text = "\n".join(f"{i}. {step}." for i, step in enumerate(steps, 1))
    return Turn("recipes", question, text, steps[0], {"dish": bare, "steps": list(steps)}, bare)


def joke(rng: Rng) -> Turn:
    """A joke."""
    setup, punch = rng.choice(world.JOKES)
    question = one(
        (
            "tell me a( good| short| funny|) joke",
            "a joke please",
            "do you know a joke?",
            "make me laugh",
            "tell a joke",
            "say something funny",
            "joke",
            "i want to hear a joke",
            "can you tell me a joke?",
            "got any jokes?",
            "be funny",
            "cheer me up",
        ),
        rng,
    )
    return Turn(
        "jokes",
        question,
        f"{setup} {punch}",
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


def riddle(rng: Rng) -> Turn:
    """A riddle with its answer."""
    ask, reply = rng.choice(world.RIDDLES)
    question = one(
        (
            "tell me a riddle",
            "do you know a riddle?",
            "give me a riddle",
            "a riddle please",
            "riddle me something",
            "ask me a riddle",
        ),
        rng,
    )
    return Turn(
        "riddles",
        question,
        f"{ask} The answer is: {reply[:1].lower()}{reply[1:]}",
        f"{ask} {reply}",
        {"riddle": ask, "answer": reply},
        "riddle",
    )


def fun_fact(rng: Rng) -> Turn:
    """A fun fact."""
    fact = rng.choice(world.FUN_FACTS)
    question = one(
        (
            "tell me a( fun| interesting|) fact",
            "a fun fact please",
            "tell me something( interesting| new| cool| i do not know|)",
            "do you know a fun fact?",
            "surprise me",
            "fun fact",
            "say something interesting",
            "teach me something",
            "what did you learn?",
            "tell me anything",
            "something interesting please",
        ),
        rng,
    )
    return Turn(
        "facts",
        question,
        fact,
        fact.rstrip("."),
        {"fact": fact},
        "fact",
        again=lambda rng: replace(
            fun_fact(rng), question=one(("another one", "one more", "another fact", "tell me another", "more"), rng)
        ),
    )


def code(rng: Rng) -> Turn:
    """A few lines of Python."""
    does = rng.choice(tuple(world.CODE))
    lines = world.CODE[does]
    question = one(
        (
            "write( a|) python (code|program|function|script) that {d}",
            "python code that {d}",
            "write code that {d}",
            "can you write a function that {d}?",
            "show me python that {d}",
            "how do i write a function that {d}?",
            "give me a program that {d}",
        ),
        rng,
        d=does,
    )
    return Turn(
        "code",
        question,
        "```python\n" + "\n".join(lines) + "\n```",
        lines[-1].strip(),
        {"language": "python", "code": "\n".join(lines)},
        "python",
    )
