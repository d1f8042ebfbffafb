"""Writes conversations in which the assistant calls tools, as the chat template of the demo model shows them.

Names of tools and of their arguments vary, so that they are to be read from the prompt. Run as a script for samples.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from demo.train import world
from demo.train.corpus import Message, single
from demo.train.grammar import as_typed, one
from demo.train.phrases import load

_TEXTS = load("toolbox")

Rng = random.Random
Arguments = dict[str, object]
_CITIES = (
    *sorted({capital for capital, *_ in world.COUNTRIES.values()}),
    "Berlin", "Hamburg", "New York", "Sydney", "Paris", "London", "Munich", "Milan", "Boston", "Porto", "Lyon", "Zurich",
)  # fmt: skip
_PEOPLE = ("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Hugo", "Ida", "Jonas", "Lea", "Tom")
_SKIES = ("sunny", "rainy", "cloudy", "windy", "foggy", "snowy")
_SYLLABLES = ("ba", "do", "ka", "lo", "mi", "na", "ro", "sa", "ti", "vel", "mar", "ton", "burg", "field")


@dataclass(frozen=True)
class Tool:
    """A kind of tool: names that it may go by, and a need for it."""

    names: tuple[str, ...]
    arguments: tuple[tuple[str, ...], ...]
    about: tuple[str, ...]
    # Draws a question, the arguments' values in order, the tool's result and the answer to it.
    need: Callable[[Rng], tuple[str, list[object], str, str]]


def _place(rng: Rng) -> str:
    if rng.random() < 0.8:
        return rng.choice(_CITIES)
    return "".join(rng.choices(_SYLLABLES, k=rng.randrange(2, 4))).capitalize()


def _weather(rng: Rng) -> tuple[str, list[object], str, str]:
    place, sky, degrees = _place(rng), rng.choice(_SKIES), rng.randrange(-9, 36)
    asks = _TEXTS["weather"]
    result = rng.choice(
        (
            json.dumps({"sky": sky, "degrees": degrees}),
            json.dumps({"temperature": degrees, "condition": sky}),
            f"{sky}, {degrees} degrees",
            f"{degrees} degrees and {sky}",
        )
    )
    return one(asks, rng, p=place), [place], result, f"In {place} it is {sky}, with {degrees} degrees."


def _clock(rng: Rng) -> tuple[str, list[object], str, str]:
    place, time = _place(rng), f"{rng.randrange(24):02d}:{rng.randrange(60):02d}"
    asks = _TEXTS["clock"]
    result = rng.choice((json.dumps({"time": time}), time, f"It is {time}"))
    return one(asks, rng, p=place), [place], result, f"It is {time} in {place}."


def _calculation(rng: Rng) -> tuple[str, list[object], str, str]:
    a, b = rng.randrange(2, 9999), rng.randrange(2, 999)
    sign, word, value = rng.choice((("+", "plus", a + b), ("-", "minus", a - b), ("*", "times", a * b)))
    asks = _TEXTS["calculation"]
    question = one(asks, rng, a=a, b=b, s=rng.choice((sign, word)))
    result = rng.choice((str(value), json.dumps({"result": value})))
    return question, [f"{a} {sign} {b}"], result, f"{a} {sign} {b} is {value}."


def _order(rng: Rng) -> tuple[str, list[object], str, str]:
    number = rng.randrange(1000, 99999)
    status = rng.choice(("shipped", "packed", "delivered", "on its way", "waiting for payment"))
    asks = _TEXTS["order"]
    result = rng.choice((json.dumps({"status": status}), status, f"order {number}: {status}"))
    return one(asks, rng, n=number), [number], result, f"Order {number} is {status}."


def _message(rng: Rng) -> tuple[str, list[object], str, str]:
    person = rng.choice(_PEOPLE)
    text = rng.choice(
        ("dinner is ready", "i am late", "the train leaves soon", "happy birthday", "see you tomorrow", "good night",
         "the meeting is over", "thank you", "call me", "i am at home")
    )  # fmt: skip
    asks = ("tell {p} that {t}", "(send|write) {p} a message: {t}", "(send|write) to {p}: {t}", "let {p} know: {t}")
    result = rng.choice(("sent", json.dumps({"sent": True}), "ok"))
    return one(asks, rng, p=person, t=text), [person, text], result, f"I told {person}: {text}."


TOOLS = (
    Tool(
        ("get_weather", "get_current_weather", "weather", "lookup_weather", "weather_report"),
        (("city", "location", "place", "town"),),
        ("Weather of a city.", "Get the current weather.", "Get the weather in a given city", "The weather now.", ""),
        _weather,
    ),
    Tool(
        ("get_time", "get_current_time", "clock", "local_time"),
        (("city", "location", "place", "timezone"),),
        ("Time in a city.", "Get the current time.", "The local time of a place.", ""),
        _clock,
    ),
    Tool(
        ("calculate", "calculator", "compute", "evaluate"),
        (("expression", "formula", "sum"),),
        ("Calculates.", "Evaluate an arithmetic expression.", "A calculator.", ""),
        _calculation,
    ),
    Tool(
        ("get_order", "order_status", "track_order", "find_order"),
        (("order_id", "id", "number", "order"),),
        ("Status of an order.", "Look up an order.", "Where an order is.", ""),
        _order,
    ),
    Tool(
        ("send_message", "tell", "notify", "send_text"),
        (("to", "person", "recipient", "name"), ("text", "message", "body")),
        ("Send a message.", "Sends a text to somebody.", "Tell somebody something.", ""),
        _message,
    ),
)


@dataclass(frozen=True)
class Offered:
    """A tool under the names that one conversation gives it."""

    tool: Tool
    name: str
    arguments: tuple[str, ...]
    about: str

    @property
    def line(self) -> str:
        return f"- {self.name}({', '.join(self.arguments)}): {self.about}".rstrip()

    def call(self, values: list[object]) -> str:
        arguments = dict(zip(self.arguments, values, strict=True))
        written = json.dumps({"name": self.name, "arguments": arguments}, ensure_ascii=False)
        return f"<tool_call>{written}</tool_call>"


def offer(tool: Tool, rng: Rng) -> Offered:
    arguments = tuple(rng.choice(names) for names in tool.arguments)
    return Offered(tool, rng.choice(tool.names), arguments, rng.choice(tool.about))


def conversation(rng: Rng) -> list[Message]:
    """Return one to three exchanges: most need a tool, the others are answered as usual."""
    offered = [offer(tool, rng) for tool in rng.sample(TOOLS, rng.choices((1, 2, 3, 4), (5, 3, 2, 1))[0])]
    system = "\n".join(["Tools:", *(each.line for each in offered)])
    chat: list[Message] = [{"role": "system", "content": system}]
    for _ in range(rng.choices((1, 2, 3), (6, 3, 1))[0]):
        if rng.random() < 0.25:
            exchange = single(rng)
            chat += [
                {"role": "user", "content": as_typed(exchange.question, rng, exact=exchange.exact)},
                {"role": "assistant", "content": exchange.answer},
            ]
            continue
        chosen = rng.choice(offered)
        question, values, result, answer = chosen.tool.need(rng)
        chat += [
            {"role": "user", "content": _typed(question, rng)},
            {"role": "assistant", "content": chosen.call(values)},
            {"role": "user", "content": f"<tool_response>{result}</tool_response>"},
            {"role": "assistant", "content": answer},
        ]
    return chat


def _typed(question: str, rng: Rng) -> str:
    """Now and then with a capital letter; what is to be copied stays as it is."""
    return question[:1].upper() + question[1:] if rng.random() < 0.6 else question


def tool_chats(seed: int, count: int) -> Iterator[list[Message]]:
    rng = random.Random(f"tools:{seed}")
    for _ in range(count):
        yield conversation(rng)


if __name__ == "__main__":
    for chat in tool_chats(1, 12):
        for message in chat:
            sys.stdout.write(f"{message['role']:>9}: {message['content']}\n")
        sys.stdout.write("\n")
