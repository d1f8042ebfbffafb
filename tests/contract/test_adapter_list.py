"""Heartbeats that tell of adapters what changed: what comes out at the other end is the host's own list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire.adapter_list import AdapterChanges, AdapterList, AdapterListError, Heartbeat

DIGESTS = st.sampled_from([f"sha256:{number:064x}" for number in range(6)])
STATES = st.lists(st.dictionaries(DIGESTS, st.tuples(st.integers(0, 3), st.integers(0, 5))), min_size=1, max_size=8)


def status(held: dict[str, tuple[int, int]]) -> pb.HostStatus:
    adapters = [
        pb.AdapterResidency(digest=digest, tier=tier, running=running, bytes=1000)  # type: ignore[arg-type]
        for digest, (tier, running) in held.items()
    ]
    return pb.HostStatus(boot_id="b", adapters=adapters)


def heartbeat(held: dict[str, tuple[int, int]]) -> Heartbeat:
    return Heartbeat(pb.HostStatus(boot_id="b"), status(held).adapters)


def sent(message: pb.HostStatus) -> pb.HostStatus:
    return pb.HostStatus.FromString(message.SerializeToString())


def shown(known: AdapterList) -> dict[str, tuple[int, int]]:
    return {digest: (entry.tier, entry.running) for digest, entry in known.by_digest.items()}


@given(STATES)
def test_the_receiver_has_the_host_s_list_after_each_heartbeat(states: list[dict[str, tuple[int, int]]]) -> None:
    changes, known, before = AdapterChanges(), AdapterList(), None
    for held in states:
        message = changes.message(heartbeat(held))
        changed = known.observe(sent(message))
        assert shown(known) == held
        assert changed == (before != held), "the first counts as a change"
        before = held


def test_only_what_changed_is_sent() -> None:
    held = {f"sha256:{number:064x}": (2, 0) for number in range(1000)}
    changes = AdapterChanges()
    whole = changes.message(heartbeat(held))
    assert len(whole.adapters) == 1000 and not whole.adapter_changes
    first, second, *_ = held
    held[first] = (3, 1)
    del held[second]
    part = changes.message(heartbeat(held))
    assert ([each.digest for each in part.adapters], list(part.adapters_gone)) == ([first], [second])
    assert len(part.SerializeToString()) < 300 < 50_000 < len(whole.SerializeToString())


def test_streams_that_began_at_other_times_share_heartbeats() -> None:
    early, late = (AdapterChanges(), AdapterList()), (AdapterChanges(), AdapterList())
    for moment, held in enumerate(({"a": (1, 0)}, {"a": (2, 0), "b": (1, 0)}, {"b": (1, 1)})):
        now = heartbeat(held)
        for changes, known in (early, late) if moment else (early,):
            known.observe(sent(changes.message(now)))
            assert shown(known) == held


def test_an_older_engine_sends_the_whole_list_each_time() -> None:
    known = AdapterList()
    for held in ({"a": (1, 0), "b": (2, 0)}, {"b": (3, 1)}, {}):
        assert known.observe(sent(status(held)))
        assert shown(known) == held


def test_loads_between_heartbeats_change_nothing() -> None:
    known = AdapterList()
    known.observe(status({"a": (1, 0)}))
    assert not known.observe(pb.HostStatus(load_only=True)) and shown(known) == {"a": (1, 0)}


def test_a_list_that_went_wrong_is_found_and_a_new_stream_mends_it() -> None:
    changes, known = AdapterChanges(), AdapterList()
    for held in ({"a": (1, 0)}, {"a": (1, 0), "b": (2, 0)}, {"a": (1, 0), "b": (2, 0), "c": (2, 0)}):
        message = changes.message(heartbeat(held))
        if "b" in held and "c" not in held:
            continue  # it is lost
        if "c" in held:
            with pytest.raises(AdapterListError):
                known.observe(sent(message))
        else:
            known.observe(sent(message))
    anew = AdapterChanges().message(heartbeat({"a": (1, 0), "b": (2, 0), "c": (2, 0)}))
    known.observe(sent(anew))
    assert set(known.by_digest) == {"a", "b", "c"}


def test_a_receiver_of_before_is_given_whole_lists() -> None:
    """It does not ask for changes, so `AdapterChanges` is not used: the wire's default says so."""
    assert not pb.WatchRequest(interval_ms=1000).adapter_changes
