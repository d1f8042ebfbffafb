"""Two invented businesses: the garden shop of the support agent, and the database of the SQL writer."""

from __future__ import annotations

import random
from typing import NamedTuple

from demo.train import world
from demo.train.grammar import capital, one
from demo.train.phrases import load
from demo.train.skills.exchange import Exchange
from demo.train.skills.strangers import pseudo_word

_TEXTS = load("shop")

SHOP = "Feather & Fern"
SIGNATURE = f"Kind regards, the {SHOP} team"

# A product's price in euros and a sentence about it.
PRODUCTS: dict[str, tuple[int, str]] = _TEXTS["products"]


class Intent(NamedTuple):
    """A customer's need: how they ask, and what the shop says."""

    asks: tuple[str, ...]
    replies: tuple[str, ...]


INTENTS: dict[str, Intent] = {key: Intent(*row) for key, row in _TEXTS["intents"].items()}
_PRODUCT_ASKS: dict[str, tuple[tuple[str, ...], str]] = _TEXTS["product_asks"]
_ASIDE = "I can only help with {shop}: orders, delivery, returns, refunds and our products."


def _signed(text: str) -> str:
    return f"{text}\n\n{SIGNATURE}"


def _support_exchange(topic: str, question: str, text: str) -> Exchange:
    return Exchange(f"support {topic}", question, _signed(text), text, {"answer": text}, topic)


def support(rng: random.Random) -> Exchange:
    """A customer's question and the signed reply of the shop."""
    product, other = rng.sample(tuple(PRODUCTS), 2)
    price, text = PRODUCTS[product]
    if rng.random() < 0.2:
        ask = rng.choice(tuple(_PRODUCT_ASKS))
        asks, reply = _PRODUCT_ASKS[ask]
        plural = product in ("fat balls", "garden gloves", "pruning shears")
        noun = product if plural else ("a " + product)
        reply = reply.format(p=product, e=price, d=text)
        if plural:
            reply = reply.replace(" costs ", " cost ").replace(" is in stock and ships", " are in stock and ship")
        return _support_exchange(
            ask, one(asks, rng, p=product, a=noun).replace("ss ", "s ").replace("ss?", "s?"), reply
        )
    key = rng.choices(tuple(INTENTS), [3 if k in ("track", "return", "refund", "hello") else 1.5 for k in INTENTS])[0]
    intent = INTENTS[key]
    number = rng.randint(1000, 99999)
    question = one(
        intent.asks,
        rng,
        n=rng.choice((number, number, f"#{number}")),
        p=product,
        q=other,
        c=rng.choice(tuple(world.COUNTRIES)),
    )
    order = f"order {number}" if str(number) in question else "your order"
    return _support_exchange(key, question, rng.choice(intent.replies).format(shop=SHOP, order=order))


def aside(question: str) -> Exchange:
    """The shop's polite no to a question that has nothing to do with it."""
    return _support_exchange("aside", question, _ASIDE.format(shop=SHOP))


SCHEMA: str = _TEXTS["schema"]
NO_SQL = "-- I only know the tables customers, products and orders."
_STATUSES = ("open", "paid", "shipped", "cancelled", "returned", "late")
_CATEGORIES = ("books", "toys", "tools", "garden", "kitchen", "sports", "music", "food", "clothes", "shoes")
# Each pair is the patterns of a question and the query that answers it.
_SQL: tuple[tuple[tuple[str, ...], str], ...] = _TEXTS["sql"]
_NUMBER_NAMES = {2: "two", 3: "three", 4: "four", 5: "five", 10: "ten"}


def sql(rng: random.Random) -> Exchange:
    """A question about the invented database and the query that answers it."""
    patterns, query = rng.choice(_SQL)
    n = rng.choice((2, 3, 4, 5, 5, 10, 10, 20, rng.randint(2, 30)))
    name = rng.choice(world.NAMES) if rng.random() < 0.6 else capital(pseudo_word(rng))
    towns = [row[0] for row in world.COUNTRIES.values() if " " not in row[0]]
    city = rng.choice(towns) if rng.random() < 0.6 else capital(pseudo_word(rng))
    slots = {
        "n": n,
        "name": name,
        "city": city,
        "year": rng.randint(2015, 2030),
        "price": rng.choice((rng.randint(31, 100), rng.randint(32, 999), 50, 100, 200, 500)),
        "cat": rng.choice(_CATEGORIES),
        "status": rng.choice(_STATUSES),
        "id": rng.randint(1, 9999),
        "letter": rng.choice("ABCDEFGHIJKLMNOPRSTVW"),
        "word": rng.choice((pseudo_word(rng), rng.choice(world.OTHER_WORDS))),
    }
    spoken = {**slots, "n": _NUMBER_NAMES.get(n, n) if rng.random() < 0.3 else n}
    question = one(patterns, rng, **spoken)
    if "most expensive products" in question and str(spoken["n"]) not in question:
        query = query.replace("{n}", "10")
    text = query.format(**slots)
    return Exchange("sql", question, text, text, {"sql": text}, "sql", exact=rng.random() < 0.6)
