"""Damage to bytes, as Hypothesis strategies: what disks, lines and attackers do to a file that was good."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from hypothesis import strategies as st

# Sizes, counts and offsets that parsers stumble over, as the little-endian bytes of a field.
_FIELDS = [
    (value % (1 << 8 * width)).to_bytes(width, "little")
    for width in (1, 2, 4, 8)
    for value in (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 62, -1)
]
Edit = Callable[[bytes], bytes]


def damaged(good: bytes, places: Sequence[range] = ()) -> st.SearchStrategy[bytes]:
    """`good` with one to three edits, half of them within `places`, where its structure is."""
    edit = _edits(len(good), places)
    return edit.map(lambda edit: edit(good)) | st.lists(edit, min_size=1, max_size=3).map(partial(_apply, good))


def _apply(good: bytes, edits: list[Edit]) -> bytes:
    for edit in edits:
        good = edit(good)
    return good


def _edits(length: int, places: Sequence[range]) -> st.SearchStrategy[Edit]:
    anywhere = st.integers(0, length)
    inside = [st.integers(place.start, place.stop - 1) for place in places if len(place)]
    at = st.one_of(anywhere, st.one_of(inside)) if inside else anywhere
    return st.one_of(
        st.builds(_flip, at, st.integers(0, 7)),
        st.builds(_flip, at, st.integers(0, 7)),
        st.builds(_flip, at, st.integers(0, 7)),
        st.builds(_put, at, st.binary(min_size=1, max_size=8)),
        st.builds(_put, at, st.sampled_from(_FIELDS)),
        st.builds(_insert, at, st.binary(min_size=1, max_size=40)),
        st.builds(_remove, at, st.integers(1, 600)),
        st.builds(_repeat, at, st.integers(1, 600)),
        st.builds(_swap, at, at, st.integers(1, 600)),
        st.builds(_cut, at),
        st.builds(_behead, at),
    )


def _flip(at: int, bit: int) -> Edit:
    return lambda good: good[:at] + bytes([good[at] ^ 1 << bit]) + good[at + 1 :] if at < len(good) else good


def _put(at: int, what: bytes) -> Edit:
    return lambda good: good[:at] + what + good[at + len(what) :]


def _insert(at: int, what: bytes) -> Edit:
    return lambda good: good[:at] + what + good[at:]


def _remove(at: int, count: int) -> Edit:
    return lambda good: good[:at] + good[at + count :]


def _repeat(at: int, count: int) -> Edit:
    return lambda good: good[: at + count] + good[at:]


def _swap(one: int, other: int, count: int) -> Edit:
    first, second = sorted((one, other))
    count = min(count, second - first)

    def swap(good: bytes) -> bytes:
        middle = good[first + count : second]
        one_part, other_part = good[first : first + count], good[second : second + count]
        return good[:first] + other_part + middle + one_part + good[second + count :]

    return swap


def _cut(at: int) -> Edit:
    return lambda good: good[:at]


def _behead(at: int) -> Edit:
    return lambda good: good[at:]
