"""Definitions, opposites, plurals and translations."""

from __future__ import annotations

from demo.train import world
from demo.train.grammar import article, capital, one
from demo.train.phrases import load
from demo.train.skills.exchange import Exchange, Rng

_TEXTS = load("words")


def define(rng: Rng) -> Exchange:
    """Ask what a word means."""
    word = rng.choice(tuple(world.DEFINITIONS))
    return _define_exchange(rng, word, _TEXTS["define"])


_NO_ARTICLE = frozenset(_TEXTS["no_article"])


def _define_exchange(rng: Rng, word: str, patterns: tuple[str, ...]) -> Exchange:
    noun = ("the internet" if word == "internet" else word) if word in _NO_ARTICLE else article(word)
    meaning = world.DEFINITIONS[word]
    question = one(patterns, rng, a=noun if rng.random() < 0.85 else word, n=word)
    verb = "is" if not meaning.startswith("many ") else "means"
    answer = f"{capital(noun)} {verb} {meaning}."
    short = capital(meaning)
    return Exchange(
        "words",
        question,
        answer,
        short,
        {"word": word, "meaning": meaning},
        word,
        again=lambda rng: _define_exchange(
            rng, rng.choice(tuple(world.DEFINITIONS)), ("and {a}?", "what about {a}?", "and what is {a}?")
        ),
    )


def opposite(rng: Rng) -> Exchange:
    """The opposite of a word."""
    pair = rng.choice(world.OPPOSITES)
    a, b = pair if rng.random() < 0.5 else pair[::-1]
    return _opposite_exchange(rng, a, b, _TEXTS["opposite"])


def _opposite_exchange(rng: Rng, a: str, b: str, patterns: tuple[str, ...]) -> Exchange:
    def again(rng: Rng) -> Exchange:
        pair = rng.choice(world.OPPOSITES)
        return _opposite_exchange(rng, pair[0], pair[1], ("and {a}?", "and of {a}?", "what about {a}?"))

    answer = f"The opposite of {a} is {b}."
    short = capital(b)
    return Exchange("words", one(patterns, rng, a=a), answer, short, {"word": a, "opposite": b}, b, again=again)


def plural(rng: Rng) -> Exchange:
    """The plural of an animal."""
    it = rng.choice(world.ANIMALS)
    question = one(_TEXTS["plural"], rng, n=it.name)
    answer = f"The plural of {it.name} is {it.plural}."
    short = capital(it.plural)
    return Exchange("words", question, answer, short, {"word": it.name, "plural": it.plural}, it.name)


def translate(rng: Rng) -> Exchange:
    """A word in another language."""
    word = rng.choice(tuple(world.WORDS_ABROAD))
    return _translate_exchange(rng, word, rng.randrange(4), _TEXTS["translate"])


def _translate_exchange(rng: Rng, word: str, language: int, patterns: tuple[str, ...]) -> Exchange:
    name, foreign = world.LANGUAGES[language], world.WORDS_ABROAD[word][language]
    question = one(patterns, rng, w=word if rng.random() < 0.85 else f'"{word}"', l=name)

    def again(rng: Rng) -> Exchange:
        if rng.random() < 0.5:
            return _translate_exchange(rng, word, rng.randrange(4), ("and in {l}?", "what about {l}?", "in {l}?"))
        return _translate_exchange(
            rng, rng.choice(tuple(world.WORDS_ABROAD)), language, ("and {w}?", "what about {w}?")
        )

    answer = f"In {name}, {word} is {foreign}."
    return Exchange(
        "languages",
        question,
        answer,
        foreign,
        {"word": word, "language": name, "translation": foreign},
        word,
        again=again,
    )


def rhyme(rng: Rng) -> Exchange:
    """Words that rhyme."""
    words = rng.choice(world.RHYMES)
    at = rng.randrange(len(words))
    others = [word for i, word in enumerate(words) if i != at]
    question = one(_TEXTS["rhyme"], rng, w=words[at])
    answer = f"{capital(others[0])} rhymes with {words[at]}."
    short = capital(others[0])
    return Exchange("words", question, answer, short, {"word": words[at], "rhymes": others}, others[0])


_SPELLABLE = tuple(
    sorted(
        {
            *(a.name for a in world.ANIMALS),
            *("red", "blue", "green", "yellow", "purple"),
            *(d.lower() for d in world.DAYS),
            "lorikeet",
            "lora",
            "adapter",
            "hello",
            "friend",
            "apple",
            "banana",
            "house",
            "water",
            "school",
            "beautiful",
            "because",
            "people",
        }
    )
)


def spell(rng: Rng) -> Exchange:
    """A word letter by letter."""
    word = rng.choice(_SPELLABLE)
    question = one(_TEXTS["spell"], rng, w=word)
    letters = "-".join(word.upper())
    return Exchange("words", question, f"{letters}.", letters, {"word": word, "letters": list(word)}, word)
