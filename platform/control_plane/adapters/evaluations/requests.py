"""The requests of an evaluation as lines of a batch, and the scores of their answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from control_plane.adapters.evaluations.models import EvaluationSet
from control_plane.adapters.registry.models import EvaluationMetric
from control_plane.billing.usage.models import ApiEndpoint
from control_plane.core.errors import LorikeetError

# The models that an evaluation compares.
BASE, LIVE, VERSION = "base", "live", "version"
WORST = 5  # items in a score's list of the worst answers
# Maximum number of characters of a text among the worst answers.
LONGEST_SHOWN = 400


def endpoint_of(evaluation_set: EvaluationSet) -> ApiEndpoint:
    return ApiEndpoint.CHAT if evaluation_set.is_chat else ApiEndpoint.COMPLETIONS


def request_lines(evaluation_set: EvaluationSet, models: Mapping[str, str]) -> Iterator[bytes]:
    """Yield for each item the same request to each of `models`, from role (BASE, LIVE, VERSION) to model name."""
    url = "/v1/chat/completions" if evaluation_set.is_chat else "/v1/completions"
    for item in evaluation_set.items:
        for who, model in models.items():
            body = {"model": model, **_body(evaluation_set, item)}
            line = {"custom_id": f"{who}:{item['line']}", "method": "POST", "url": url, "body": body}
            yield json.dumps(line, ensure_ascii=False).encode() + b"\n"


def _body(evaluation_set: EvaluationSet, item: Mapping[str, Any]) -> dict[str, Any]:
    if evaluation_set.metric == EvaluationMetric.LOGPROB:
        return {"prompt": item["prompt"] + item["expected"], "echo": True, "logprobs": 0, "max_tokens": 0}
    prompt = {"messages": item["messages"]} if evaluation_set.is_chat else {"prompt": item["prompt"]}
    return {**prompt, "temperature": 0, "max_tokens": evaluation_set.max_tokens}


class Answers:
    """The answers to every item, by the role of the model."""

    def __init__(self, evaluation_set: EvaluationSet, lines: Iterable[bytes]) -> None:
        self._set = evaluation_set
        self._bodies: dict[str, Any] = {}
        for line in lines:
            if line.strip():
                result = json.loads(line)
                self._bodies[result["custom_id"]] = result["response"]["body"]

    def score(self, who: str) -> float:
        """Return the mean score over all items."""
        return round(sum(self._scores(who)) / len(self._set.items), 6)

    def _scores(self, who: str) -> list[float]:
        return [self._item_score(who, item) for item in self._set.items]

    def worst(self, shown: Sequence[str]) -> list[dict[str, Any]]:
        """Return the items that the version answered worst, without those answered as expected."""
        scored = sorted(zip(self._scores(VERSION), self._set.items, strict=True), key=lambda pair: pair[0])
        return [
            {
                "line": item["line"],
                "prompt": _end_of(_prompt_text(item)),
                "expected": item["expected"][:LONGEST_SHOWN],
                **{who: self._shown(who, item) if who in shown else None for who in (BASE, LIVE, VERSION)},
                "score": round(score, 6),
            }
            for score, item in scored[:WORST]
            if self._set.metric == EvaluationMetric.LOGPROB or score < 1
        ]

    def _item_score(self, who: str, item: Mapping[str, Any]) -> float:
        if self._set.metric == EvaluationMetric.LOGPROB:
            mean = mean_logprob(item["prompt"], self._body(who, item)["choices"][0]["logprobs"])
            if mean is None:
                raise LorikeetError(
                    "item_without_logprobs",
                    f"Line {item['line']} of the set has no score: its whole text is one token, which has no logprob.",
                    "Lengthen its prompt, and evaluate with a new set.",
                )
            return mean
        answer = self._answer(who, item)
        if self._set.metric == EvaluationMetric.EXACT:
            return float(answer.strip() == item["expected"].strip())
        return float(item["expected"] in answer)

    def _shown(self, who: str, item: Mapping[str, Any]) -> str | None:
        return None if self._set.metric == EvaluationMetric.LOGPROB else self._answer(who, item)[:LONGEST_SHOWN]

    def _answer(self, who: str, item: Mapping[str, Any]) -> str:
        choice = self._body(who, item)["choices"][0]
        return (choice["message"]["content"] or "") if self._set.is_chat else str(choice["text"])

    def _body(self, who: str, item: Mapping[str, Any]) -> Any:
        try:
            return self._bodies[f"{who}:{item['line']}"]
        except KeyError:
            raise LorikeetError(
                "evaluation_incomplete", f"The answer of {who} to line {item['line']} is missing.", "Evaluate it again."
            ) from None


def mean_logprob(prompt: str, logprobs: Mapping[str, Any]) -> float | None:
    """Return the mean logprob of an echoed text's tokens that end behind `prompt`, also if they begin within it.

    None if no such token has a logprob.
    """
    ends = [*logprobs["text_offset"][1:], float("inf")]
    tokens = zip(ends, logprobs["token_logprobs"], strict=True)
    answer = [logprob for end, logprob in tokens if end > len(prompt) and logprob is not None]
    return sum(answer) / len(answer) if answer else None


def _prompt_text(item: Mapping[str, Any]) -> str:
    if "prompt" in item:
        return str(item["prompt"])
    content = item["messages"][-1].get("content")
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _end_of(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"…{text[-LONGEST_SHOWN:]}"
