"""Several adapters as one: the sum of what each adds, times its weight.

A combination is identified as adapters are, by content: by its parts' digests and weights, ``<digest>*<weight>`` joined
by ``+``, in one order. Whoever reads a digest can so tell what it stands for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

MOST_PARTS = 4
LARGEST_WEIGHT = 10.0
_PART = re.compile(r"(sha256:[0-9a-f]{64})\*(-?[0-9]{1,2}\.[0-9]{1,4})", re.ASCII)


class Part(NamedTuple):
    digest: str
    weight: float


def combined_digest(parts: Iterable[Part]) -> str:
    """What the combination is called; one adapter by itself stays what it is."""
    parts = sorted(parts)
    if [part.weight for part in parts] == [1.0]:
        return parts[0].digest
    return "+".join(f"{part.digest}*{part.weight:.4f}" for part in parts)


def is_combined(digest: str) -> bool:
    return "*" in digest


def parts_of(digest: str) -> tuple[Part, ...]:
    """Of a single adapter itself, and of what is no digest that, too."""
    matches = [_PART.fullmatch(text) for text in digest.split("+")] if is_combined(digest) else []
    parts = tuple(Part(match[1], float(match[2])) for match in matches if match)
    return parts if parts and len(parts) == len(matches) <= MOST_PARTS else (Part(digest, 1.0),)


def digests_of(digest: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.digest for part in parts_of(digest)))
