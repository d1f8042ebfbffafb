"""A combination of adapters is the sum of their deltas, each times its weight.

Like an adapter it is identified by content: by its parts' digests and weights, ``<digest>*<weight>`` joined by ``+``,
in sorted order. So the digest shows what it stands for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

# Adapters that one request may combine.
MAX_PARTS = 4
# Largest weight of an adapter in a combination.
LARGEST_WEIGHT = 10.0
_PART = re.compile(r"(sha256:[0-9a-f]{64})\*(-?[0-9]{1,2}\.[0-9]{1,4})", re.ASCII)


class Part(NamedTuple):
    digest: str
    weight: float


def combined_digest(parts: Iterable[Part]) -> str:
    """Return the digest of the combination; a single adapter with weight 1 keeps its digest."""
    parts = sorted(parts)
    if [part.weight for part in parts] == [1.0]:
        return parts[0].digest
    return "+".join(f"{part.digest}*{part.weight:.4f}" for part in parts)


def is_combined(digest: str) -> bool:
    return "*" in digest


def parts_of(digest: str) -> tuple[Part, ...]:
    """Return the parts of a combined digest; any other text is its own single part."""
    matches = [_PART.fullmatch(text) for text in digest.split("+")] if is_combined(digest) else []
    parts = tuple(Part(match[1], float(match[2])) for match in matches if match)
    return parts if parts and len(parts) == len(matches) <= MAX_PARTS else (Part(digest, 1.0),)


def digests_of(digest: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.digest for part in parts_of(digest)))
