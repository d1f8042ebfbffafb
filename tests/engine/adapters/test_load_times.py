"""How long an adapter takes to be brought nearer is told from how long others took."""

from __future__ import annotations

import pytest

from lora_engine.adapters.load_times import LoadTime, LoadTimes


def times(*loads: tuple[int, float]) -> LoadTime:
    found = LoadTimes()
    for num_bytes, seconds in loads:
        found.add(num_bytes, seconds)
    return found.now


def test_nothing_is_known_before_the_first() -> None:
    assert times() == LoadTime(0)


def test_loads_of_one_size_tell_a_rate() -> None:
    found = times((1000, 0.5), (1000, 0.5))
    assert (found.loads, found.fixed_s, found.seconds_per_byte) == (2, pytest.approx(0.0), pytest.approx(0.0005))


def test_loads_of_several_sizes_tell_what_is_fixed() -> None:
    found = times(*((size, 0.1 + size * 1e-6) for size in (1_000, 50_000, 200_000) * 10))
    assert (found.fixed_s, found.seconds_per_byte) == (pytest.approx(0.1), pytest.approx(1e-6))


def test_neither_part_is_negative() -> None:
    assert times((1000, 1.0), (2000, 0.5)).seconds_per_byte == 0.0
    found = times((1000, 0.0), (2000, 1.0), (1000, 0.0), (2000, 1.0))
    assert found.fixed_s >= 0 and found.seconds_per_byte > 0


def test_the_machine_is_followed() -> None:
    found = times(*[(1000, 1.0)] * 200, *[(1000, 0.1)] * 200)
    assert found.seconds_per_byte == pytest.approx(1e-4, rel=0.01)
