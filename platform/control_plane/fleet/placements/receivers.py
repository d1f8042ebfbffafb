"""Receivers of signals about adapters and hosts, besides `place_version` and `withdraw_version`."""

from __future__ import annotations

from typing import Any

from control_plane.adapters.registry.models import AdapterVersion
from control_plane.fleet.hosts.models import EngineHost
from control_plane.fleet.placements import pins
from control_plane.fleet.placements.models import Placement


def move_pin(*, version: AdapterVersion, **_: Any) -> None:
    if pins.is_pinned(version.adapter):
        pins.apply_pins_of(version)


def clear_host(*, host: EngineHost, **_: Any) -> None:
    Placement.objects.filter(host=host).delete()
