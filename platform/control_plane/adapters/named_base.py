"""Whether the base model that an adapter names is the one that is served. Equal shapes are no proof of it."""

from __future__ import annotations

import re

from control_plane.config import current
from control_plane.fleet.base_model import ServedBase

# Copies in another type or under a trainer's name are the same model.
_COPY = re.compile(r"(-unsloth)?(-(bnb-)?[48]bit|-gptq.*|-awq.*|-fp8.*|-bf16|-hf)$", re.ASCII)

# A folder that names no model: `demo/model`, a trainer's output, a snapshot of the Hub's cache.
_NO_NAME = re.compile(r"(base[-_]?)?model|base|weights|output|final|checkpoint(-\d+)?|[0-9a-f]{40}|\.*", re.ASCII)


def other_base(named: str, base: ServedBase) -> str:
    """The name, if it is another model's; empty if it is the served one's, or if the adapter names none."""
    served = {_plain(name) for name in (base.name, *current().base_model_names.split(","))}
    plain = _plain(named)
    return "" if plain in served or _NO_NAME.fullmatch(plain) else named


def _plain(name: str) -> str:
    last = name.strip().rstrip("/").rpartition("/")[2].lower()
    return _COPY.sub("", last)
