"""Two invented businesses: the garden shop of the support agent, and the database of the SQL writer."""

from __future__ import annotations

import random
from typing import NamedTuple

from demo.train import world
from demo.train.grammar import capital, one
from demo.train.phrases import load
from demo.train.skills.strangers import pseudo_word
from demo.train.skills.turn import Turn

_TEXTS = load("shop")

SHOP = "Feather & Fern"
SIGNATURE = f"Kind regards, the {SHOP} team"

PRODUCTS: dict[str, tuple[int, str]] = _TEXTS["products"]


class Intent(NamedTuple):
    """What a customer may want: how they ask, and what the shop says."""

    asks: tuple[str, ...]
    replies: tuple[str, ...]


INTENTS: dict[str, Intent] = {key: Intent(*row) for key, row in _TEXTS["intents"].items()}
_PRODUCT_ASKS: dict[str, tuple[tuple[str, ...], str]] = _TEXTS["product_asks"]
_ASIDE = "I can only help with {shop}: orders, delivery, returns, refunds and our products."


def _signed(text: str) -> str:
    return f"{text}\n\n{SIGNATURE}"


def _support_turn(topic: str, question: str, text: str) -> Turn:
    return Turn(f"support {topic}", question, _signed(text), text, {"answer": text}, topic)


def support(rng: random.Random) -> Turn:
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
        return _support_turn(ask, one(asks, rng, p=product, a=noun).replace("ss ", "s ").replace("ss?", "s?"), reply)
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
    return _support_turn(key, question, rng.choice(intent.replies).format(shop=SHOP, order=order))


def aside(question: str) -> Turn:
    """The shop's polite no to a question that has nothing to do with it."""
    return _support_turn("aside", question, _ASIDE.format(shop=SHOP))


# ---------------------------------------------------------------------------------------------------------------

SCHEMA = """\
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, city TEXT, email TEXT, joined DATE);
CREATE TABLE products (id INTEGER PRIMARY KEY, name TEXT, category TEXT, price REAL, stock INTEGER);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER, product_id INTEGER, quantity INTEGER, total REAL, status TEXT, ordered_on DATE);
"""
NO_SQL = "-- I only know the tables customers, products and orders."
_STATUSES = ("open", "paid", "shipped", "cancelled", "returned", "late")
_CATEGORIES = ("books", "toys", "tools", "garden", "kitchen", "sports", "music", "food", "clothes", "shoes")
_JOIN_C = "FROM orders JOIN customers ON customers.id = orders.customer_id"
_JOIN_P = "FROM orders JOIN products ON products.id = orders.product_id"

_SQL: tuple[tuple[tuple[str, ...], str], ...] = (
    _TEXTS["sql"],
    _TEXTS["sql_2"],
    _TEXTS["sql_3"],
    _TEXTS["sql_4"],
    _TEXTS["sql_5"],
    _TEXTS["sql_6"],
    _TEXTS["sql_7"],
    _TEXTS["sql_8"],
    _TEXTS["sql_9"],
    _TEXTS["sql_10"],
    _TEXTS["sql_11"],
    _TEXTS["sql_12"],
    _TEXTS["sql_13"],
    _TEXTS["sql_14"],
    _TEXTS["sql_15"],
    _TEXTS["sql_16"],
    _TEXTS["sql_17"],
    _TEXTS["sql_18"],
    _TEXTS["sql_19"],
    _TEXTS["sql_20"],
    _TEXTS["sql_21"],
    _TEXTS["sql_22"],
    _TEXTS["sql_23"],
    _TEXTS["sql_24"],
    _TEXTS["sql_25"],
    _TEXTS["sql_26"],
    _TEXTS["sql_27"],
    _TEXTS["sql_28"],
    _TEXTS["sql_29"],
    _TEXTS["sql_30"],
    _TEXTS["sql_31"],
    _TEXTS["sql_32"],
    _TEXTS["sql_33"],
    _TEXTS["sql_34"],
    _TEXTS["sql_35"],
    _TEXTS["sql_36"],
    _TEXTS["sql_37"],
    _TEXTS["sql_38"],
    _TEXTS["sql_39"],
    _TEXTS["sql_40"],
    _TEXTS["sql_41"],
    _TEXTS["sql_42"],
    _TEXTS["sql_43"],
    _TEXTS["sql_44"],
    _TEXTS["sql_45"],
    _TEXTS["sql_46"],
    _TEXTS["sql_47"],
    _TEXTS["sql_48"],
    _TEXTS["sql_49"],
    _TEXTS["sql_50"],
    _TEXTS["sql_51"],
    (_TEXTS["sql_52"], f"SELECT orders.* {_JOIN_C} WHERE customers.name = '{{name}}';"),
    (_TEXTS["sql_53"], f"SELECT COUNT(*) {_JOIN_C} WHERE customers.name = '{{name}}';"),
    (_TEXTS["sql_54"], f"SELECT SUM(orders.total) {_JOIN_C} WHERE customers.name = '{{name}}';"),
    (_TEXTS["sql_55"], f"SELECT customers.city, SUM(orders.total) {_JOIN_C} GROUP BY customers.city;"),
    (_TEXTS["sql_56"], f"SELECT orders.* {_JOIN_C} WHERE customers.city = '{{city}}';"),
    (_TEXTS["sql_57"], f"SELECT customers.name, SUM(orders.total) {_JOIN_C} GROUP BY customers.name;"),
    (
        _TEXTS["sql_58"],
        f"SELECT customers.name, SUM(orders.total) AS spent {_JOIN_C} GROUP BY customers.name ORDER BY spent DESC LIMIT {{n}};",
    ),
    (
        ("(who is|which is) (our|the) best customer?", "best customer", "(who|which customer) spent the most?"),
        f"SELECT customers.name, SUM(orders.total) AS spent {_JOIN_C} GROUP BY customers.name ORDER BY spent DESC LIMIT 1;",
    ),
    (
        _TEXTS["sql_59"],
        f"SELECT products.name, SUM(orders.quantity) AS sold {_JOIN_P} GROUP BY products.name ORDER BY sold DESC LIMIT 1;",
    ),
    (
        _TEXTS["sql_60"],
        f"SELECT products.name, SUM(orders.quantity) AS sold {_JOIN_P} GROUP BY products.name ORDER BY sold DESC LIMIT {{n}};",
    ),
    (_TEXTS["sql_61"], f"SELECT products.category, SUM(orders.total) {_JOIN_P} GROUP BY products.category;"),
    (_TEXTS["sql_62"], f"SELECT SUM(orders.total) {_JOIN_P} WHERE products.category = '{{cat}}';"),
    _TEXTS["sql_63"],
    _TEXTS["sql_64"],
    _TEXTS["sql_65"],
    _TEXTS["sql_66"],
    _TEXTS["sql_67"],
    _TEXTS["sql_68"],
    _TEXTS["sql_69"],
    _TEXTS["sql_70"],
    _TEXTS["sql_71"],
    _TEXTS["sql_72"],
    _TEXTS["sql_73"],
    _TEXTS["sql_74"],
)
_NUMBER_NAMES = {2: "two", 3: "three", 4: "four", 5: "five", 10: "ten"}


def sql(rng: random.Random) -> Turn:
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
    return Turn("sql", question, text, text, {"sql": text}, "sql", exact=rng.random() < 0.6)
