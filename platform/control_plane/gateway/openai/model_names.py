"""The ``model`` of a request: a name, or a list of adapters, which is written as one combined name."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from lora_engine.peft_format import MAX_PARTS

LONGEST = 200


class WeightedModel(BaseModel):
    """An adapter of a combination, with its weight."""

    model_config = ConfigDict(strict=True, extra="forbid")

    model: str = Field(description="Name of the adapter, such as `support` or `support@v7`.")
    weight: float = Field(
        default=1.0, description="Factor of the adapter in the combination, with at most four decimals."
    )


def _name(value: Any) -> Any:
    """Write ``["a", {"model": "b", "weight": 0.5}]`` as ``"a+b:0.5"``; names are checked where they are resolved."""
    if not isinstance(value, list):
        return value
    if not 0 < len(value) <= MAX_PARTS:
        raise ValueError(f"it holds {len(value)} models; send 1 to {MAX_PARTS} of them")
    return "+".join(_part(part, alone=len(value) == 1) for part in value)


def _part(part: Any, *, alone: bool) -> str:
    if isinstance(part, str):
        part = {"model": part}
    if not isinstance(part, dict) or not isinstance(part.get("model"), str) or not part.keys() <= {"model", "weight"}:
        raise ValueError('it holds something else than models; send names, or {"model": name, "weight": number}')
    name: str = part["model"]
    weight = part.get("weight", 1)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not _has_few_decimals(weight):
        raise ValueError("it holds a weight that cannot be used; send a number with at most four decimals")
    if alone and weight == 1:
        return name
    if not name or "+" in name or ":" in name:
        raise ValueError("it combines something else than adapters; send the name of one adapter in each place")
    return name if weight == 1 else f"{name}:{weight:.4f}".rstrip("0").rstrip(".")


def _has_few_decimals(weight: float) -> bool:
    return abs(weight) < 1000 and math.isfinite(weight) and round(weight, 4) == weight


_LIST = Annotated[list[str | WeightedModel], Field(min_length=1, max_length=MAX_PARTS)]
# The type of ``model``: a text after validation, whichever form the request had.
ModelName = Annotated[
    str, BeforeValidator(_name, json_schema_input_type=Annotated[str, Field(min_length=1, max_length=LONGEST)] | _LIST)
]
