"""Requests go where the beginning of their prompt is cached, unless that host is clearly later."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from control_plane.fleet.routing.first_token import FirstTokenPrediction
from control_plane.fleet.routing.router import HostLoad, SoonestFirstToken
from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire.prompt_prefixes import MAX_FINGERPRINTS, KnownPrefixes, RecentPrefixes, prefix_marks

TEXT = "".join(random.Random(1).choices("abcdefgh ", k=8000))


def chat(*turns: str, tenant: str = "acme", adapter: str = "a", salt: str = "") -> pb.Submit:
    messages = [
        pb.ChatMessage(role="user" if n % 2 == 0 else "assistant", content=turn) for n, turn in enumerate(turns)
    ]
    return pb.Submit(tenant=tenant, adapter_digest=adapter, cache_salt=salt, chat=pb.Chat(messages=messages))


class Host:
    """What a host tells, and what one web process makes of it."""

    def __init__(self, first_token_s: float = 0.0) -> None:
        self.cached, self.prediction = RecentPrefixes(), FirstTokenPrediction()
        self.first_token_s, self.told, self.running = first_token_s, 0, 0

    def beat(self) -> pb.HostStatus:
        forecast = pb.FirstTokenForecast(seconds=self.first_token_s, prompt_token_s=1e-3)
        status = pb.HostStatus(first_token=forecast, running=self.running)
        self.told = self.cached.report(status, self.told)
        self.prediction.observed(status)
        return status

    def serve(self, submit: pb.Submit, tokens: int = 1000) -> None:
        self.cached.used(prefix_marks(submit), tokens)


def chosen(hosts: Sequence[Host], submit: pb.Submit) -> int:
    marks = prefix_marks(submit)
    loads = [
        HostLoad(
            str(number),
            host.running,
            first_token_s=host.prediction.seconds(submit, marks),
            cached=host.prediction.cached_share(marks),
        )
        for number, host in enumerate(hosts)
    ]
    return int(SoonestFirstToken().choose(loads).name)


def test_conversations_stay_where_their_beginning_is() -> None:
    hosts = [Host() for _ in range(3)]
    for host in hosts:
        host.beat()
    talks = {number: [TEXT[number * 700 : number * 700 + 1200]] for number in range(6)}
    homes: dict[int, set[int]] = {number: set() for number in talks}
    for _ in range(5):
        for number, turns in talks.items():
            submit = chat(*turns, tenant=f"t{number % 2}")
            home = chosen(hosts, submit)
            homes[number].add(home)
            hosts[home].serve(submit)
            hosts[home].running += 1
            turns += [f"answer {number}", f"question {len(turns)} of {number} " + TEXT[:400]]
            for host in hosts:
                host.beat()
    assert all(len(home) == 1 for home in homes.values())
    assert len(set().union(*homes.values())) == 3, "and they began on all of them"
    last = chat(*talks[0], tenant="t0")
    (home,) = homes[0]
    hosts[home].first_token_s = 10.0
    hosts[home].beat()
    assert chosen(hosts, last) != home, "it is clearly later"


def test_what_is_cached_is_not_computed_again() -> None:
    host = Host(first_token_s=0.1)
    host.serve(chat(TEXT[:4096]))
    host.beat()
    again = chat(TEXT[:4096], "fine", "and now?")
    assert host.prediction.seconds(chat("x" * 4096)) == pytest.approx(0.1 + 1.024)
    seconds = host.prediction.seconds(again, prefix_marks(again))
    assert seconds is not None and seconds < 0.1 + 0.1
    host.prediction.sent(again, prefix_marks(again))
    later = host.prediction.seconds(again, prefix_marks(again))
    assert later is not None and later < 0.1 + 0.2, "neither is what was sent"


@pytest.mark.parametrize("other", [{"tenant": "globex"}, {"adapter": "b"}, {"salt": "s"}], ids=str)
def test_nobody_learns_of_the_prompts_of_others(other: dict[str, str]) -> None:
    host = Host()
    host.serve(chat(TEXT))
    host.beat()
    assert host.prediction.cached_share(prefix_marks(chat(TEXT))) > 0.7
    assert host.prediction.cached_share(prefix_marks(chat(TEXT, **other))) == 0
    assert len({mark.fingerprint for mark in prefix_marks(chat(TEXT)) + prefix_marks(chat(TEXT, **other))}) == 2 * len(
        prefix_marks(chat(TEXT))
    )


def test_marks_do_not_depend_on_what_follows() -> None:
    whole, part = (prefix_marks(pb.Submit(text=TEXT[:length])) for length in (8000, 3000))
    assert [mark.fingerprint for mark in whole][: len(part)] == [mark.fingerprint for mark in part]
    ids = [prefix_marks(pb.Submit(token_ids=pb.TokenIds(ids=range(count)))) for count in (2000, 500, 10)]
    assert ids[0][: len(ids[1])] != ids[1] and ids[2] == ()
    assert [mark.fingerprint for mark in ids[0]][: len(ids[1])] == [mark.fingerprint for mark in ids[1]]
    assert len(prefix_marks(pb.Submit(text="x" * 10_000_000))) < 30
    assert prefix_marks(pb.Submit(text=TEXT, prompt_logprobs=1)) == (), "which is computed whatever is cached"
    assert prefix_marks(pb.Submit()) == ()
    assert len(prefix_marks(pb.Submit(text="\u4f60" * 1000))) > 3


def test_both_sides_keep_the_same_whatever_is_forgotten() -> None:
    rnd, cached, known, told = random.Random(3), RecentPrefixes(), KnownPrefixes(), 0
    prompts = [prefix_marks(pb.Submit(text=TEXT[start : start + 3000])) for start in range(0, 5000, 50)]
    for _ in range(400):
        for _ in range(rnd.randrange(4)):
            cached.used(rnd.choice(prompts), 700)
        if rnd.random() < 0.3:
            cached.keep(rnd.uniform(1000, 20_000))
        if rnd.random() < 0.4:
            told = cached.report(status := pb.HostStatus(), told)
            known.observe(status)
            assert list(known._known) == list(cached._used)
    cached.keep(0)
    cached.report(status := pb.HostStatus(), told)
    known.observe(status)
    assert not known._known and cached._tokens == 0
    late, whole = KnownPrefixes(), pb.HostStatus()
    for prompt in prompts:
        cached.used(prompt, 700)
    cached.report(whole, 0)
    late.observe(whole)
    assert list(late._known) == list(cached._used), "one that comes later is told all"


def test_what_is_remembered_is_bounded() -> None:
    cached, known = RecentPrefixes(), KnownPrefixes()
    for number in range(MAX_FINGERPRINTS):
        cached.used(prefix_marks(pb.Submit(text=f"{number} " * 200)), 300)
    assert len(cached._used) == MAX_FINGERPRINTS
    known.observe(pb.HostStatus(prefixes=range(2 * MAX_FINGERPRINTS), prefixes_kept=2 * MAX_FINGERPRINTS))
    assert len(known._known) == MAX_FINGERPRINTS
    known.observe(pb.HostStatus())
    assert not known._known, "a host of an earlier version tells none"


def test_hosts_that_were_lost_are_asked_anew() -> None:
    host = Host()
    host.serve(chat(TEXT))
    host.beat()
    host.prediction.forget()
    assert host.prediction.cached_share(prefix_marks(chat(TEXT))) == 0
