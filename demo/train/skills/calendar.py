"""Days, months, seasons, and how many of something there are."""

from __future__ import annotations

from demo.train import world
from demo.train.grammar import capital, fill, one
from demo.train.phrases import load
from demo.train.skills.exchange import Exchange, Rng

_TEXTS = load("calendar")


def days(rng: Rng) -> Exchange:
    """The day after, before, or some days from a day."""
    i = rng.randrange(7)
    today = world.DAYS[i]
    step, patterns, word = rng.choice(_TEXTS["days"])
    result = world.DAYS[(i + step) % 7]
    question = one(patterns, rng, d=today)
    answer = word.format(d=today, r=result)
    return Exchange(
        "calendar",
        question,
        answer,
        result,
        {"day": today, "answer": result},
        result,
        again=(lambda rng: _day_after(rng, result, step)) if abs(step) == 1 else None,
    )


def _day_after(rng: Rng, day: str, step: int) -> Exchange:
    other = world.DAYS[(world.DAYS.index(day) + step) % 7]
    word = "after" if step == 1 else "before"
    question = one(("and {w} that?", "and the day {w} that?", "what comes {w} that?"), rng, w=word)
    return Exchange(
        "calendar", question, f"The day {word} {day} is {other}.", other, {"day": day, "answer": other}, other
    )


def months(rng: Rng) -> Exchange:
    """Months: the next, the one before, the number, the days, the season."""
    i = rng.randrange(12)
    m = world.MONTHS[i]
    pick = rng.randrange(6)
    if pick < 2:
        step = (1, -1)[pick]
        word = ("after", "before")[pick]
        result = world.MONTHS[(i + step) % 12]
        question = one(_TEXTS["months"], rng, w=word, m=m)
        return Exchange(
            "calendar", question, f"The month {word} {m} is {result}.", result, {"month": m, "answer": result}, result
        )
    if pick == 2:
        question = one(_TEXTS["months_2"], rng, m=m)
        answer = (
            f"{m} has {world.MONTH_DAYS[i].rstrip(',')} days."
            if i != 1
            else "February has 28 days, and 29 in a leap year."
        )
        short = world.MONTH_DAYS[i].split(",")[0]
        return Exchange(
            "calendar", question, answer, short, {"month": m, "days": 28 if i == 1 else int(world.MONTH_DAYS[i])}, m
        )
    if pick == 3:
        question = one(_TEXTS["months_3"], rng, m=m)
        answer = f"In the north, {m} is in {world.SEASONS[i]}."
        short = capital(world.SEASONS[i])
        return Exchange("calendar", question, answer, short, {"month": m, "season": world.SEASONS[i]}, m)
    if pick == 4:
        question = one(_TEXTS["months_4"], rng, m=m)
        return Exchange(
            "calendar", question, f"{m} is month number {i + 1}.", str(i + 1), {"month": m, "number": i + 1}, m
        )
    season = rng.choice(tuple(world.SEASON_FACTS))
    question = one(_TEXTS["months_5"], rng, s=season)
    answer = f"In {season}, {world.SEASON_FACTS[season]}."
    short = capital(world.SEASON_FACTS[season].split(",")[0])
    return Exchange(
        "calendar", question, answer, short, {"season": season, "about": world.SEASON_FACTS[season]}, season
    )


def counts(rng: Rng) -> Exchange:
    """Ask how many of something there are in something."""
    core, (sentence, n) = rng.choice(tuple(world.COUNTS.items()))
    question = fill(
        rng.choice(("how many {c}?", "how many {c}?", "do you know how many {c}?", "tell me how many {c}")), rng, c=core
    )
    return Exchange("counting", question, sentence.format(n=n) + ".", str(n), {"answer": n}, core.split(" ")[0])
