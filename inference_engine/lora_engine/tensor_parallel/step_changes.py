"""What a captured step reads, as rank 0 tells it the others: only what differs from the step before.

From one decode step to the next in the same graph, positions and tokens change, and a page is added now and then; of
the block tables, which are most of it, nothing else does.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Contents = npt.NDArray[np.int32]
_FEW = 4  # a change takes twice the bytes of a value, and work on both sides: only if that many times fewer change


@dataclass(frozen=True, slots=True)
class Changes:
    """``values`` at ``places`` of the step's before; all of them, if ``places`` is None."""

    places: Contents | None
    values: Contents


class Told:
    """The last step's contents, on both sides: the one makes changes, the other makes contents of them."""

    def __init__(self) -> None:
        self._kind: Hashable = None
        self._last: Contents = np.empty(0, dtype=np.int32)

    def changes(self, kind: Hashable, contents: Contents) -> Changes:
        """To be told next. ``contents [n]`` may be written over afterwards; of another ``kind`` they are told whole."""
        before, kept = self._last, contents.copy()
        alike = self._kind == kind and len(before) == len(kept)
        self._kind, self._last = kind, kept
        if alike:
            places = np.flatnonzero(before != kept)
            if _FEW * len(places) < len(kept):
                return Changes(places.astype(np.int32), kept[places])
        return Changes(None, kept)

    def contents(self, changes: Changes) -> Contents:
        """What was told, in order."""
        if changes.places is None:
            self._last = changes.values
        else:
            self._last = self._last.copy()
            self._last[changes.places] = changes.values
        return self._last
