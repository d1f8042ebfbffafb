"""Small text tools shared by every corpus script: alternatives, articles and a visitor's sloppy typing."""

from __future__ import annotations

import random
import re

from demo.train.phrases import load

_TEXTS = load("grammar")

_CHOICE = re.compile(r"\(([^()]*)\)")
_VOWEL_SOUNDS = tuple("aeiou")

_BEFORE = _TEXTS["before"]
_AFTER = _TEXTS["after"]
_SMALL_WORDS = frozenset(
    {"the", "a", "an", "is", "do", "does", "of", "me", "to", "what", "are", "some", "please", "you"}
)
_SLIPPED_IN = _TEXTS["slipped_in"]


def expand(pattern: str, rng: random.Random) -> str:
    """Replace every `(a|b|c)` by one of its alternatives, innermost first."""
    while "(" in pattern:
        pattern = _CHOICE.sub(lambda match: rng.choice(match.group(1).split("|")), pattern)
    return pattern


def fill(pattern: str, rng: random.Random, **slots: object) -> str:
    """Expand the alternatives, then put the slots in; spaces left by empty alternatives are squeezed."""
    text = re.sub(r"  +", " ", expand(pattern, rng)).strip()
    text = re.sub(r" ([?.!,])", r"\1", text)
    return text.format(**slots)


def one(patterns: tuple[str, ...], rng: random.Random, **slots: object) -> str:
    """`fill` one of several patterns."""
    return fill(rng.choice(patterns), rng, **slots)


def article(noun: str) -> str:
    """The noun with "a" or "an" before it."""
    return ("an " if noun[:1].lower() in _VOWEL_SOUNDS and not noun.startswith(("uni", "eu")) else "a ") + noun


def capital(text: str) -> str:
    """The text with its first letter in upper case; the rest stays as it is."""
    return text[:1].upper() + text[1:]


def _typo(text: str, rng: random.Random) -> str:
    """Drop, double or swap one inner letter of one longer word, as fast fingers do."""
    words = text.split(" ")
    places = [i for i, word in enumerate(words) if len(word) > 4 and word.isalpha()]
    if not places:
        return text
    at = rng.choice(places)
    word = words[at]
    k = rng.randrange(1, len(word) - 2)
    words[at] = rng.choice(
        (word[:k] + word[k + 1 :], word[:k] + word[k] + word[k:], word[:k] + word[k + 1] + word[k] + word[k + 2 :])
    )
    return " ".join(words)


def _jitter(text: str, rng: random.Random) -> str:
    """Lose one small word or slip an empty one in; the meaning stays."""
    words = text.split(" ")
    small = [i for i, word in enumerate(words) if word.lower() in _SMALL_WORDS]
    if len(words) > 3 and small and rng.random() < 0.5:
        del words[rng.choice(small)]
    elif len(words) > 2:
        words.insert(rng.randrange(1, len(words)), rng.choice(_SLIPPED_IN))
    return " ".join(words)


def as_typed(text: str, rng: random.Random, *, exact: bool = False) -> str:
    """A question the way visitors type it: fillers, lower case, missing marks, now and then a typo.

    `exact` keeps the words (names to remember, text to repeat) and changes only the edges.
    """
    if rng.random() < 0.1 and not exact:
        text = _jitter(text, rng)
    if rng.random() < 0.22 and not exact:
        text = rng.choice(_BEFORE) + text[:1].lower() + text[1:]
    if rng.random() < 0.12 and not exact:
        mark = text[-1] if text[-1] in "?.!" else ""
        text = text.rstrip("?.!") + rng.choice(_AFTER) + mark
    if rng.random() < 0.07 and not exact:
        text = _typo(text, rng)
    if rng.random() < 0.35:
        text = text.rstrip("?.!")
    style = rng.random()
    if style < 0.3 and not exact:
        return text.lower()
    if style < 0.33 and not exact:
        return text.upper()
    return capital(text) if style < 0.8 else text
