"""The version of the protocol between the control plane and engines, and the range that each side accepts.

A side accepts peers one version older and one newer than itself, so that either may be upgraded first, one process at a
time. The version rises by one with a change that older peers would misread. An added field that they may leave out is
no such change. A peer that states no version was built before versions were stated, and counts as version 0.
"""

from __future__ import annotations

from lorikeet_version import build_version

WIRE_VERSION = 1
SUPPORTED = range(max(0, WIRE_VERSION - 1), WIRE_VERSION + 2)


def reject_version(peer: str, version: int) -> str | None:
    """Return why a peer, named in the nominative such as "this engine", is not accepted; None if it is."""
    if version in SUPPORTED:
        return None
    return (
        f"{peer[:1].upper()}{peer[1:]} speaks version {version} of the engine protocol, and this side "
        f"({build_version()}) versions {SUPPORTED[0]} to {SUPPORTED[-1]}."
    )


def upgrade_text(version: int) -> str:
    """Return what to do about a peer with this version."""
    if version < WIRE_VERSION:
        return "Upgrade the older peer: releases next to each other work together, older ones do not."
    return "Upgrade this side first: releases next to each other work together, newer ones do not."
