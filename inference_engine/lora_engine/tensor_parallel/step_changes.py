"""The inputs of a captured step on the wire to other ranks: only the differences from the previous step.

From one decode step to the next in the same graph, positions and tokens change, and sometimes a page is added; most
values, those of block tables, stay the same.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Contents = npt.NDArray[np.int32]
# Values for each change from which on changes are sent: a change has twice the bytes of a value, and costs work on both
# sides.
_FEW = 4


@dataclass(frozen=True, slots=True)
class Changes:
    """The new ``values`` at ``places`` of the previous step's contents; ``places`` None: all values."""

    places: Contents | None
    values: Contents


class LastContents:
    """The contents of the last step, on both sides: the sender computes changes, the receiver applies them."""

    def __init__(self) -> None:
        self._kind: Hashable = None
        self._last: Contents = np.empty(0, dtype=np.int32)

    def changes(self, kind: Hashable, contents: Contents) -> Changes:
        """Return the changes to send; with another ``kind`` than before, all of ``contents [n]``, which is copied."""
        before, kept = self._last, contents.copy()
        alike = self._kind == kind and len(before) == len(kept)
        self._kind, self._last = kind, kept
        if alike:
            places = np.flatnonzero(before != kept)
            if _FEW * len(places) < len(kept):
                return Changes(places.astype(np.int32), kept[places])
        return Changes(None, kept)

    def contents(self, changes: Changes) -> Contents:
        """Apply received changes, in order, and return the contents."""
        if changes.places is None:
            self._last = changes.values
        else:
            self._last = self._last.copy()
            self._last[changes.places] = changes.values
        return self._last
