"""Sums and other small questions about numbers."""

from __future__ import annotations

from dataclasses import replace

from demo.train import world
from demo.train.grammar import one
from demo.train.phrases import load
from demo.train.skills.exchange import NUMBER_WORDS, Exchange, Rng

_TEXTS = load("numbers")

_OPS: dict[str, tuple[tuple[str, ...], str]] = _TEXTS["ops"]


def _operands(rng: Rng, op: str) -> tuple[int, int, int]:
    if op == "+":
        top = rng.choice((10, 20, 50, 100, 100))
        a, b = rng.randint(0, top), rng.randint(0, top)
        return a, b, a + b
    if op == "-":
        top = rng.choice((10, 20, 50, 100, 100))
        a = rng.randint(0, top)
        b = rng.randint(0, a)
        return a, b, a - b
    a, b = rng.randint(0, 12), rng.randint(0, 12)
    if op == "*":
        return a, b, a * b
    b = max(b, 1)
    return a * b, b, a


def _spoken(number: int, rng: Rng) -> str:
    return NUMBER_WORDS[number] if 1 <= number <= 20 and rng.random() < 0.25 else str(number)


def sums(rng: Rng) -> Exchange:
    """A sum, difference, product or quotient of small whole numbers."""
    op = rng.choice("+++--***/")
    return _sum_exchange(rng, op, *_operands(rng, op))


def _sum_exchange(rng: Rng, op: str, a: int, b: int, result: int) -> Exchange:
    patterns, word = _OPS[op]
    question = one(patterns, rng, a=_spoken(a, rng), b=_spoken(b, rng))
    if rng.random() < 0.04:
        question = one(_TEXTS["sum_exchange"], rng, q=f"{a} {op} {b}")
    answer = f"{a} {word} {b} is {result}."

    def again(rng: Rng) -> Exchange:
        _, b2, _ = _operands(rng, "+")
        if rng.random() < 0.5 and result + b2 <= 200:
            follow = one(("and plus {b}?", "now add {b}", "plus {b}?", "add {b} to that", "and {b} more?"), rng, b=b2)
            answer = f"{result} plus {b2} is {result + b2}."
            short = str(result + b2)
            return Exchange(
                "sums",
                follow,
                answer,
                short,
                {"expression": f"{result} + {b2}", "result": result + b2},
                str(result + b2),
            )
        op2 = rng.choice("+-*/")
        a3, b3, r3 = _operands(rng, op2)
        exchange = _sum_exchange(rng, op2, a3, b3, r3)
        return replace(exchange, question="and " + exchange.question)

    short = str(result)
    return Exchange(
        "sums", question, answer, short, {"expression": f"{a} {op} {b}", "result": result}, str(result), again=again
    )


def sums_story(rng: Rng) -> Exchange:
    """A sum told as a tiny story."""
    things = rng.choice(
        ("apples", "books", "coins", "eggs", "cards", "cookies", "flowers", "balls", "pencils", "shells")
    )
    who = rng.choice(world.NAMES)
    a, b = rng.randint(2, 20), rng.randint(1, 20)
    plus = rng.random() < 0.5 or b > a
    if plus:
        question = one(_TEXTS["sums_story"], rng, a=a, b=b, t=things, w=who)
        result, op, word = a + b, "+", "plus"
    else:
        question = one(_TEXTS["sums_story_2"], rng, a=a, b=b, t=things, w=who)
        result, op, word = a - b, "-", "minus"
    answer = f"{a} {word} {b} is {result}, so the answer is {result} {things}."
    short = str(result)
    return Exchange("sums", question, answer, short, {"expression": f"{a} {op} {b}", "result": result}, str(result))


def more_numbers(rng: Rng) -> Exchange:
    """Primes, square roots, three terms, and what is too hard."""
    pick = rng.randrange(4)
    if pick == 0:
        n = rng.randint(2, 60)
        prime = all(n % k for k in range(2, n))
        question = one(("is {n} (a prime|prime|a prime number)?", "{n} prime?", "is the number {n} prime?"), rng, n=n)
        answer = f"{'Yes' if prime else 'No'}, {n} is {'' if prime else 'not '}a prime number."
        short = "Yes" if prime else "No"
        return Exchange("sums", question, answer, short, {"number": n, "prime": prime}, str(n))
    if pick == 1:
        n = rng.randint(1, 15)
        question = one(
            (
                "what is the square root of {n}?",
                "square root of {n}",
                "root of {n}",
                "the square root of {n}?",
                "sqrt({n})".replace("(", " ").replace(")", ""),
            ),
            rng,
            n=n * n,
        )
        answer = f"The square root of {n * n} is {n}."
        short = str(n)
        return Exchange("sums", question, answer, short, {"expression": f"sqrt {n * n}", "result": n}, str(n))
    a, b, c = (rng.randint(1, 20) for _ in range(3))
    if pick == 2:
        question = one(_TEXTS["more_numbers"], rng, a=a, b=b, c=c)
        answer = f"{a} plus {b} is {a + b}, and {a + b} plus {c} is {a + b + c}."
        short = str(a + b + c)
        return Exchange(
            "sums", question, answer, short, {"expression": f"{a} + {b} + {c}", "result": a + b + c}, str(a + b + c)
        )
    o, p = rng.choice((("+", "*"), ("*", "-"), ("-", "*"), ("*", "+"), ("/", "+"), ("-", "/"), ("*", "*")))
    question = one(
        ("what is {a} {o} {b} {p} {c}?", "{a} {o} {b} {p} {c}", "{a}{o}{b}{p}{c}"), rng, a=a, b=b, c=c, o=o, p=p
    )
    answer = "That is too hard for me. I can only do one step at a time, with small numbers."
    return Exchange(
        "sums",
        question,
        answer,
        "Too hard",
        {"answer": None, "hint": "One step at a time, with small numbers."},
        "numbers",
    )


def numbers(rng: Rng) -> Exchange:
    """Even or odd, larger or smaller, double, half, squares, counting."""
    n = rng.randint(0, 100)
    pick = rng.randrange(7)
    if pick == 0:
        even = n % 2 == 0
        question = one(
            ("is {n} (even|odd)?", "is {n} an (even|odd) number?", "{n} even or odd?", "is {n} even or odd?"), rng, n=n
        )
        answer = f"{n} is {'even' if even else 'odd'}."
        short = "Even" if even else "Odd"
        return Exchange("sums", question, answer, short, {"number": n, "even": even}, str(n))
    if pick == 1:
        m = rng.randint(0, 100)
        m = m + 1 if m == n else m
        larger = rng.random() < 0.6
        value = max(n, m) if larger else min(n, m)
        word = rng.choice(("larger", "bigger", "greater") if larger else ("smaller", "less"))
        question = one(
            ("which is {w}, {n} or {m}?", "what is {w}: {n} or {m}?", "which number is {w}, {n} or {m}?"),
            rng,
            w=word,
            n=n,
            m=m,
        )
        answer = f"{value} is {word} than {n + m - value}."
        short = str(value)
        return Exchange("sums", question, answer, short, {"numbers": [n, m], "answer": value}, str(value))
    if pick == 2:
        n = rng.randint(0, 50)
        question = one(
            ("what is (double|twice|two times) {n}?", "double {n}", "twice {n}", "what is the double of {n}?"), rng, n=n
        )
        answer = f"Double {n} is {2 * n}."
        short = str(2 * n)
        return Exchange("sums", question, answer, short, {"expression": f"2 * {n}", "result": 2 * n}, str(2 * n))
    if pick == 3:
        n = rng.randint(0, 50)
        question = one(
            ("what is half of {n}?", "half of {n}", "what's half of {n}?", "what is the half of {n}?"), rng, n=2 * n
        )
        return Exchange(
            "sums", question, f"Half of {2 * n} is {n}.", str(n), {"expression": f"{2 * n} / 2", "result": n}, str(n)
        )
    if pick == 4:
        n = rng.randint(0, 15)
        question = one(("what is {n} squared?", "the square of {n}?", "{n} squared", "square {n}"), rng, n=n)
        answer = f"{n} squared is {n * n}."
        short = str(n * n)
        return Exchange("sums", question, answer, short, {"expression": f"{n} * {n}", "result": n * n}, str(n * n))
    if pick == 5:
        a = rng.choice((0, 1, 1, 1, 1, 2, 5, 10))
        b = a + rng.randint(3, 12)
        down = rng.random() < 0.2
        row = list(range(b, a - 1, -1)) if down else list(range(a, b + 1))
        question = (
            one(_TEXTS["numbers"], rng, a=row[0], b=row[-1])
            if a != 1 or down or rng.random() < 0.5
            else one(("count to {b}", "can you count to {b}?", "count up to {b}"), rng, b=b)
        )
        return Exchange(
            "sums", question, ", ".join(map(str, row)) + ".", f"{row[0]} to {row[-1]}", {"count": row}, str(row[-1])
        )
    step = rng.choice((-1, 1))
    n = max(n, 1)
    question = one(
        ("what (number|) comes {w} {n}?", "which number is {w} {n}?", "what is {w} {n}?"),
        rng,
        w="after" if step == 1 else "before",
        n=n,
    )
    answer = f"The number {'after' if step == 1 else 'before'} {n} is {n + step}."
    short = str(n + step)
    return Exchange("sums", question, answer, short, {"number": n, "answer": n + step}, str(n + step))
