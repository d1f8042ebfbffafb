"""Everything the model cannot know, and how it says so."""

from __future__ import annotations

from demo.train import world
from demo.train.grammar import article, capital, one
from demo.train.phrases import load
from demo.train.skills.exchange import Exchange, Rng
from demo.train.skills.strangers import STRANGERS, pseudo_word

_TEXTS = load("outside")

_OUTSIDE = _TEXTS["outside"]
DECLINES = _TEXTS["declines"]


def outside(rng: Rng) -> Exchange:
    """Anything the model cannot know; it says so and offers what it can do."""
    answer = rng.choice(DECLINES)
    short = "I do not know"
    return Exchange(
        "unknown",
        _outside_question(rng),
        answer,
        short,
        {"answer": None, "hint": "Ask about animals, countries, sums or LoRA."},
        "unknown",
    )


_NEAR = _TEXTS["near"]


def _near_question(rng: Rng) -> str:
    """A question about a thing of this world that it has no answer to, or a known question about an unknown thing."""
    name = rng.choice(tuple(world.COUNTRIES))
    it = rng.choice(world.ANIMALS)
    return one(
        _NEAR,
        rng,
        c=name,
        t=world.COUNTRIES[name][0],
        ps=it.plural,
        a=article(it.name),
        d=article(rng.choice(tuple(world.DEFINITIONS))),
        N=capital(pseudo_word(rng)),
        w=rng.choice(STRANGERS),
        l=rng.choice(world.LANGUAGES),
        v=rng.choice([v for v in world.OTHER_VERBS if v not in ("use",)]),
    )


def _word(rng: Rng) -> str:
    return rng.choice(STRANGERS) if rng.random() < 0.85 else pseudo_word(rng)


def _outside_question(rng: Rng) -> str:
    if rng.random() < 0.2:
        return _near_question(rng)
    if rng.random() < 0.08:
        return " ".join(
            "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(2, 9)))
            for _ in range(rng.randint(1, 4))
        )
    if rng.random() < 0.1:
        return " ".join(
            rng.choice(
                (
                    *STRANGERS,
                    *world.OTHER_VERBS,
                    "the",
                    "of",
                    "with",
                    "is",
                    "my",
                    "in",
                    "on",
                    "no",
                    "a",
                    "to",
                    "we",
                    "he",
                    "was",
                    "that",
                )
            )
            for _ in range(rng.randint(2, 14))
        )
    w, x, y = _word(rng), _word(rng), _word(rng)
    if rng.random() < 0.3:
        w = f"{rng.choice((_word(rng), 'world', 'new', 'first', 'best', 'red', 'last', 'great', 'big', 'old'))} {w}"
    return one(
        _OUTSIDE,
        rng,
        w=w,
        x=x,
        y=y,
        a=rng.choice((article(w), w, f"the {w}", f"my {w}")),
        b=rng.choice((article(x), x)),
        v=rng.choice(world.OTHER_VERBS),
        N=capital(pseudo_word(rng)),
        M=capital(pseudo_word(rng)),
        p=rng.choice(tuple(world.COUNTRIES)) if rng.random() < 0.4 else capital(pseudo_word(rng)),
        big=rng.randint(300, 99999),
        big2=rng.randint(120, 9999),
    )
