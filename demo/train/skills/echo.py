"""Names to remember and words to repeat."""

from __future__ import annotations

from collections.abc import Callable

from demo.train import world
from demo.train.grammar import capital, one
from demo.train.phrases import load
from demo.train.skills.exchange import Exchange, Rng
from demo.train.skills.strangers import pseudo_word

_TEXTS = load("echo")


def name_dialogue(rng: Rng, pick: Callable[[Rng], Exchange]) -> list[Exchange]:
    """The visitor says a name and later asks for it."""
    name = rng.choice(world.NAMES) if rng.random() < 0.4 else capital(pseudo_word(rng))
    intro = one(_TEXTS["name_dialogue"], rng, n=name)
    intro = f"{intro[0]}{intro[1:]}" if rng.random() < 0.7 else intro.lower().replace(name.lower(), name)
    exchanges = [
        Exchange(
            "small talk",
            intro,
            one(("Nice to meet you, {n}!", "Hello {n}! How can I help you?"), rng, n=name),
            f"Hello {name}",
            {"name": name, "answer": f"Nice to meet you, {name}!"},
            "hello",
            exact=True,
        )
    ]
    exchanges += [pick(rng) for _ in range(rng.choice((0, 0, 1, 1, 2)))]
    ask = one(_TEXTS["name_dialogue_2"], rng)
    exchanges.append(Exchange("small talk", ask, f"Your name is {name}.", name, {"name": name}, "name", exact=True))
    return exchanges


def unknown_name(rng: Rng) -> Exchange:
    """Asked for a name that was never given."""
    ask = one(_TEXTS["unknown_name"], rng)
    answer = "You have not told me yet."
    return Exchange(
        "small talk", ask, answer, "Unknown", {"answer": None, "reason": "You have not told me yet."}, "name"
    )


def repeat(rng: Rng) -> Exchange:
    """Repeat some words."""
    words = [
        rng.choice(world.OTHER_WORDS)
        if rng.random() < 0.35
        else rng.choice(
            (
                pseudo_word(rng),
                pseudo_word(rng),
                pseudo_word(rng),
                str(rng.randint(0, 99999)),
                rng.choice(world.NAMES).lower(),
                rng.choice(world.ANIMALS).name,
            )
        )
        for _ in range(rng.randint(1, 5))
    ]
    text = " ".join(words)
    question = one(
        ("repeat after me: {t}", "say {t}", "repeat: {t}", "please say: {t}", "say the words {t}", "echo {t}"),
        rng,
        t=text,
    )
    return Exchange("echo", question, f"{capital(text)}.", capital(text), {"text": text}, words[0], exact=True)
