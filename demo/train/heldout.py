"""Questions written by hand, in words that the templates do not use; with what a good answer must contain."""

from __future__ import annotations

from demo.train.phrases import load

_TEXTS = load("heldout")

FACTS: tuple[tuple[str, str], ...] = _TEXTS["facts"]
OUTSIDE: tuple[str, ...] = _TEXTS["outside"]
DECLINE_WORDS = ("do not know", "outside my small world", "tiny demo model", "no opinion", "too hard", "cannot")
SUPPORT: tuple[tuple[str, str], ...] = _TEXTS["support"]
SQL: tuple[tuple[str, str], ...] = _TEXTS["sql"]
_WEATHER = "get_weather(city): Weather of a city."
_ORDER = "order_status(order_id): Look up an order."
_SUM = "calculate(expression): Evaluate an arithmetic expression."
# A question, the tools as the chat template lists them, and what the call must hold.
TOOLS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("What is the weather in Oslo?", (_WEATHER, _SUM), '"get_weather", "arguments": {"city": "Oslo"}'),
    ("Would I need a coat in Lisbon tomorrow?", (_WEATHER, _SUM), '"get_weather", "arguments": {"city": "Lisbon"}'),
    ("please compute 318 * 27", (_WEATHER, _SUM), '"calculate", "arguments": {"expression": "318 * 27"}'),
    ("How's the weather over in Vienna?", (_WEATHER,), '"city": "Vienna"'),
    _TEXTS["tools"],
    ("where did order 48213 end up?", (_ORDER, _WEATHER), "48213"),
    ("Any news of my order 7120?", (_ORDER,), "7120"),
    ("What time is it in Tokyo right now?", ("get_current_time(timezone): Get the current time.",), '"Tokyo"'),
)
EVERYDAY: tuple[str, ...] = _TEXTS["everyday"]
