"""Reads an evaluation set: JSON lines of `{"prompt" or "messages", "expected"}`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from control_plane.adapters.registry.models import EvaluationMetric
from control_plane.core.config import current
from control_plane.core.errors import LorikeetError
from control_plane.core.http.json_body import syntax_problem

FIELDS = {"prompt", "messages", "expected"}


def read_items(content: bytes, metric: EvaluationMetric) -> list[dict[str, Any]]:
    """Return the items of a set's file. Raises LorikeetError (400, 413), which names the first invalid line."""
    if len(content) > (most := current().evaluation_max_bytes):
        raise _bad(f"The set is larger than {most} bytes.", "Send fewer or shorter items.", status=413)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise _bad_line(line, "it is not UTF-8 text") from None
    items: list[dict[str, Any]] = []
    for number, raw in enumerate(text.split("\n"), start=1):
        if not raw.strip():
            continue
        if len(items) == (most := current().evaluation_max_items):
            raise _bad(f"The set has more than {most} items.", "Choose a sample of them.", status=413)
        items.append({"line": number, **_item(number, raw, metric)})
        if ("messages" in items[-1]) != ("messages" in items[0]):
            raise _bad_line(number, f"it and line {items[0]['line']} differ: all must have a prompt, or all messages")
    if not items:
        raise _bad("The set contains no item.", 'Send lines like {"prompt": "2 + 2 =", "expected": "4"}.')
    return items


def _item(number: int, line: str, metric: EvaluationMetric) -> dict[str, Any]:
    try:
        item = json.loads(line)
    except (ValueError, RecursionError) as error:
        at = f": {syntax_problem(error)} at character {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
        raise _bad_line(number, f"it is not JSON{at}") from None
    if not isinstance(item, dict):
        raise _bad_line(number, "it is not a JSON object")
    if unknown := sorted(set(item) - FIELDS):
        raise _bad_line(number, f'"{unknown[0][:40]}" is not a field of an item')
    if not isinstance(item.get("expected"), str) or not item["expected"].strip():
        raise _bad_line(number, '"expected" must be a text that is not empty')
    if ("prompt" in item) == ("messages" in item):
        raise _bad_line(number, 'it needs a "prompt" or "messages", and not both')
    if "prompt" in item and (not isinstance(item["prompt"], str) or not item["prompt"]):
        raise _bad_line(number, '"prompt" must be a text that is not empty')
    if "messages" in item and metric == EvaluationMetric.LOGPROB:
        raise _bad_line(number, 'the metric logprob needs a "prompt", which the expected text follows')
    if "messages" in item and not _are_messages(item["messages"]):
        raise _bad_line(number, '"messages" must be a list of objects with "role" and "content"')
    if "\0" in line or "\\u0000" in line:
        raise _bad_line(number, "it contains a NUL character")
    _require_characters(number, item)
    return item


def _are_messages(messages: Any) -> bool:
    """Check the shape of messages. The check of requests covers the rest, before any of them runs."""
    return isinstance(messages, list) and bool(messages) and all(isinstance(each, dict) for each in messages)


def _require_characters(number: int, item: Mapping[str, Any]) -> None:
    try:
        json.dumps(item, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise _bad_line(number, "it contains half a surrogate pair, which is not a character") from None
    except (ValueError, RecursionError):
        raise _bad_line(number, "it contains NaN or Infinity, or is nested too deeply") from None


def _bad_line(number: int, why: str) -> LorikeetError:
    return _bad(f"Line {number} is not an item of an evaluation set: {why}.", "Correct the line, send the file again.")


def _bad(message: str, fix: str, status: int = 400) -> LorikeetError:
    return LorikeetError("bad_evaluation_set", message, fix, param="file", status=status)
