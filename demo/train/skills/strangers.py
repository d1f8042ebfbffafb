"""Words that mean nothing in this world, some of them invented."""

from __future__ import annotations

from demo.train import world
from demo.train.about import CONCEPTS
from demo.train.phrases import load
from demo.train.skills.exchange import Rng

_TEXTS = load("strangers")

_KNOWN = frozenset(
    " ".join(
        (
            *world.DEFINITIONS,
            *world.COLOURS_OF,
            *(a.name for a in world.ANIMALS),
            *world.JOBS,
            *world.WHEELS,
            *(n for c in CONCEPTS for n in c.names),
            *world.WORDS_ABROAD,
            *(i for items in world.LISTS.values() for i in items),
        )
    ).split(" ")
)
STRANGERS = tuple(word for word in world.OTHER_WORDS if word not in _KNOWN)
_SYLLABLES = tuple(c + v for c in _TEXTS["syllables"] for v in "aeiou")
_CODAS = ("", "", "n", "r", "l", "s", "t", "x", "m", "nd", "rk")


def pseudo_word(rng: Rng) -> str:
    """A word that does not exist but can be said: syllables, two words in one, or halves of two words."""
    roll = rng.random()
    if roll < 0.25:
        return rng.choice(STRANGERS) + rng.choice(
            (
                "field",
                "ton",
                "ville",
                "burg",
                "land",
                "er",
                "son",
                "wood",
                "ia",
                "o",
                "ham",
                "ford",
                "port",
                "y",
                "stein",
                "ski",
                "elle",
                "us",
                rng.choice(STRANGERS),
            )
        )
    if roll < 0.5:
        one_, two = rng.choice((*STRANGERS, *world.NAMES)).lower(), rng.choice((*STRANGERS, *world.NAMES)).lower()
        return one_[: rng.randint(1, 5)] + two[-rng.randint(2, 5) :]
    return "".join(rng.choice(_SYLLABLES) for _ in range(rng.choice((1, 2, 2, 3)))) + rng.choice(_CODAS)
