"""The small closed world that the demo model knows: plain facts, written for this project."""

from __future__ import annotations

from typing import NamedTuple

from demo.train.phrases import load

_TEXTS = load("world")


class Animal(NamedTuple):
    """An animal; `size` orders animals from small (0) to large (9)."""

    name: str
    plural: str
    sound: str
    food: str
    home: str
    legs: int
    baby: str
    kind: str
    colour: str
    size: int
    fact: str


ANIMALS: tuple[Animal, ...] = tuple(Animal(*row) for row in _TEXTS["animals"])
FLYERS = frozenset(_TEXTS["flyers"])
SWIMMERS = frozenset(_TEXTS["swimmers"])
ADJECTIVES = _TEXTS["adjectives"]
THING_ADJECTIVES = _TEXTS["thing_adjectives"]
HEROES = _TEXTS["heroes"]

# A country's capital, continent, language and what it is known for.
COUNTRIES: dict[str, tuple[str, str, str, str]] = _TEXTS["countries"]
COLOURS_OF: dict[str, str] = _TEXTS["colours_of"]
MASS_NOUNS = frozenset(_TEXTS["mass_nouns"])
UNIQUE_NOUNS = frozenset(_TEXTS["unique_nouns"])
MIXES: dict[frozenset[str], str] = {frozenset(pair): mixed for *pair, mixed in _TEXTS["mixes"]}

DEFINITIONS: dict[str, str] = _TEXTS["definitions"]
OPPOSITES: tuple[tuple[str, str], ...] = _TEXTS["opposites"]
JOBS: dict[str, str] = _TEXTS["jobs"]
# A word's translations, in the order of `LANGUAGES`.
WORDS_ABROAD: dict[str, tuple[str, str, str, str]] = _TEXTS["words_abroad"]
LANGUAGES = _TEXTS["languages"]
PLANETS: dict[str, str] = _TEXTS["planets"]
DAYS = _TEXTS["days"]
MONTHS = _TEXTS["months"]
MONTH_DAYS = _TEXTS["month_days"]
SEASONS = _TEXTS["seasons"]
SEASON_FACTS = _TEXTS["season_facts"]
LISTS: dict[str, tuple[str, ...]] = _TEXTS["lists"]
# Other words for what is to be listed.
LIST_NAMES: dict[str, tuple[str, ...]] = _TEXTS["list_names"]
RHYMES: tuple[tuple[str, ...], ...] = _TEXTS["rhymes"]
WHEELS = _TEXTS["wheels"]
# The end of a "how many" question, with a sentence that has {n} and the number.
COUNTS: dict[str, tuple[str, int]] = _TEXTS["counts"]
RECIPES: dict[str, tuple[str, ...]] = _TEXTS["recipes"]
# A kind of weather: what it is, and what to wear or do.
WEATHER: dict[str, tuple[str, str]] = _TEXTS["weather"]
WEATHER_WORDS = _TEXTS["weather_words"]
JOKES: tuple[tuple[str, str], ...] = _TEXTS["jokes"]
FUN_FACTS: tuple[str, ...] = _TEXTS["fun_facts"]
ADVICE: dict[str, tuple[str, tuple[str, ...]]] = _TEXTS["advice"]
RIDDLES: tuple[tuple[str, str], ...] = _TEXTS["riddles"]
CODE: dict[str, tuple[str, ...]] = _TEXTS["code"]
NAMES = _TEXTS["names"]

# Ordinary words that mean nothing special here: questions from outside the world are made of them.
OTHER_WORDS = _TEXTS["other_words"]
OTHER_VERBS = _TEXTS["other_verbs"]
