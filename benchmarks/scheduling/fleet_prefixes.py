"""Conversations over a fleet, with dispatch that knows which host has a prompt's beginning cached and without.

    python benchmarks/scheduling/fleet_prefixes.py [--hosts 8] [--seconds 30] [--load 6 14] [--policy NAME …] [--dry]

Simulated hosts (Llama-3.1-8B on an H200, 64 running) behind four web processes that share nothing; each turn of a
conversation comes to any of them. A conversation begins with its adapter's system prompt (1,500 tokens), has eight
turns of about 150 tokens, answers of about 200, and 3 s between an answer and the next turn. Heartbeats, predictions
and the policy are the product's classes; hosts tell what they have cached as in their heartbeats. ``prefix`` is
dispatch by the soonest first token as it is, ``blind`` the same without what is cached. In the case "small pools" they
have room for about a quarter of the open conversations."""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import common

from control_plane.fleet.routing.first_token import FirstTokenPrediction
from control_plane.fleet.routing.router import ROUTING_POLICIES, HostLoad
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.server.messages import fill
from lora_engine.simulation import SimulatedEnd, SimulatedEngine
from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire.prompt_prefixes import PrefixMark, RecentPrefixes, prefix_marks

WEBS, SLICE_S, HEARTBEAT_S = 4, 0.025, 0.25
TENANTS, ADAPTERS, RUNNING, TURNS = 32, 64, 64, 8
SYSTEM, QUESTION, ANSWER, THINKING_S = 1500, 150, 200, 3.0
POLICIES = ["round_robin", "least_pending", "blind", "prefix"]


@dataclass
class Conversation:
    number: int
    tenant: str
    adapter: str
    tokens: list[int]
    questions: int = 0
    host: int = -1
    stayed: int = 0

    def ask(self, rnd: random.Random) -> GenerationRequest:
        """Return the next request of the conversation: all tokens so far, and a new question."""
        self.tokens += [self.number + 2] * max(8, round(rnd.expovariate(1 / QUESTION)))
        answer = max(8, min(600, round(rnd.expovariate(1 / ANSWER))))
        name = f"{self.number}-{self.questions}"
        sampling = SamplingParams(max_tokens=answer, ignore_eos=True)
        return GenerationRequest(name, [*self.tokens], sampling, self.adapter, tenant=self.tenant)


class Host:
    """A simulated engine, and the heartbeats that it sends."""

    def __init__(self, pages: int) -> None:
        loras = common.adapters(ADAPTERS, ranks=(16,), pages_per_rank=1.0)
        self.engine = SimulatedEngine(
            common.machine(common.H200, 16 * pages, loras, copy_page_s=2e-5),
            order="fair",
            admission="all",
            max_running=RUNNING,
            step_tokens=2048,
            max_waiting=10**9,
        )
        self.prefixes, self.reported = RecentPrefixes(), [0] * WEBS
        self._seen = 0

    def until(self, now: float) -> None:
        common.run_until(self.engine, now)

    def take_ended(self) -> list[SimulatedEnd]:
        """Return the requests that ended since the last call."""
        ended, self._seen = self.engine.ended[self._seen :], len(self.engine.ended)
        return ended

    def status(self, web: int) -> pb.HostStatus:
        core = self.engine.core
        report = core.stats.report(0, 100)
        status = pb.HostStatus(
            running=len(core.scheduler.running),
            waiting=len(core.queue),
            tenants=[fill(pb.TenantShare(), share) for share in report.tenants],
            first_token=report.newcomer and fill(pb.FirstTokenForecast(), report.newcomer),
        )
        self.prefixes.keep(16 * len(core.prefixes))
        self.reported[web] = self.prefixes.report(status, self.reported[web])
        return status


@dataclass
class Web:
    """A web process's view of the hosts."""

    number: int
    hosts: list[Host]
    policy: Any
    knows: bool
    pending: list[int] = field(default_factory=list)
    predictions: list[FirstTokenPrediction] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pending = [0] * len(self.hosts)
        self.predictions = [FirstTokenPrediction() for _ in self.hosts]

    def observe(self, host: int) -> None:
        status = self.hosts[host].status(self.number)
        self.pending[host] = status.running + status.waiting
        self.predictions[host].observed(status)

    def choose(self, submit: pb.Submit) -> int:
        marks: tuple[PrefixMark, ...] = prefix_marks(submit) if self.knows else ()
        loads = [
            HostLoad(
                str(host),
                self.pending[host],
                first_token_s=prediction.seconds(submit, marks),
                cached=prediction.cached_share(marks),
            )
            for host, prediction in enumerate(self.predictions)
        ]
        host = int(self.policy.choose(loads).name)
        self.pending[host] += 1
        self.predictions[host].sent(submit, marks)
        return host


def play(policy: str, pages: int, count: int, load: float, seconds: float) -> dict[str, float]:
    rnd = random.Random(5)
    hosts = [Host(pages) for _ in range(count)]
    chosen = {"prefix": "first_token", "blind": "first_token"}.get(policy, policy)
    webs = [Web(number, hosts, ROUTING_POLICIES[chosen](), policy == "prefix") for number in range(WEBS)]
    popularity = [1 / (n + 1) for n in range(ADAPTERS)]
    tie = itertools.count()
    arriving: list[tuple[float, int, Conversation]] = []
    for number, at in enumerate(common.gamma_times(rnd, load * count / TURNS, 1.5, seconds)):
        (adapter,) = rnd.choices(range(ADAPTERS), popularity)
        system = [1_000_000 + adapter] * SYSTEM
        heapq.heappush(arriving, (at, next(tie), Conversation(number, f"t{adapter % TENANTS}", f"a{adapter}", system)))
    open_now: dict[str, tuple[Conversation, list[PrefixMark] | tuple[PrefixMark, ...]]] = {}
    waits, whole = list[float](), list[float]()
    stayed = later = prompt = cached = tick = 0
    beats = round(HEARTBEAT_S / SLICE_S)
    while arriving or open_now:
        now = tick * SLICE_S
        while arriving and arriving[0][0] < now:
            at, _, talk = heapq.heappop(arriving)
            request = talk.ask(rnd)
            submit = pb.Submit(
                tenant=talk.tenant,
                adapter_digest=talk.adapter,
                token_ids=pb.TokenIds(ids=request.prompt_token_ids),
            )
            host = rnd.choice(webs).choose(submit)
            if talk.questions:
                later, stayed = later + 1, stayed + (host == talk.host)
            talk.host = host
            open_now[request.request_id] = (talk, prefix_marks(submit))
            hosts[host].until(at)
            hosts[host].engine.submit(request, at)
        for number, engine in enumerate(hosts):
            engine.until(now)
            for end in engine.take_ended():
                talk, marks = open_now.pop(end.request.request_id)
                engine.prefixes.used(marks, len(end.request.prompt_token_ids))
                waits.append(common.first_token_s(end) or 0.0)
                whole.append(end.ended - end.submitted)
                prompt += end.usage.prompt_tokens or len(end.request.prompt_token_ids)
                cached += end.usage.cached_prompt_tokens
                talk.tokens += [1] * end.request.sampling.max_tokens
                talk.questions += 1
                if talk.questions < TURNS:
                    heapq.heappush(arriving, (end.ended + rnd.expovariate(1 / THINKING_S), next(tie), talk))
            if tick % beats == number % beats:
                for web in webs:
                    web.observe(number)
        tick += 1
    return {
        "requests": len(whole),
        "p50_first_token_s": round(common.percentile(waits, 50), 4),
        "p99_first_token_s": round(common.percentile(waits, 99), 4),
        "mean_s": round(sum(whole) / len(whole), 3),
        "p99_s": round(common.percentile(whole, 99), 3),
        "cached": round(cached / prompt, 3),
        "stayed": round(stayed / max(1, later), 3),
    }


def run(options: argparse.Namespace, job: tuple[str, int, float, str]) -> dict[str, Any]:
    name, pages, load, policy = job
    result = play(policy, pages, options.hosts, load, options.seconds)
    print(f"{name:14} {load:5.1f}/s  {policy:14} {result}", flush=True)
    settings = {"hosts": options.hosts, "per_host": load, "seconds": options.seconds, "policy": policy, **result}
    return common.row("fleet prefixes", name, "p99_first_token", result["p99_first_token_s"], "s", **settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--load", type=float, nargs="*", default=[6.0, 14.0], help="turns per second and host")
    parser.add_argument("--policy", nargs="*", default=POLICIES, choices=POLICIES)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--dry", action="store_true", help="print only")
    options = parser.parse_args()
    jobs = [
        (name, pages, load, policy)
        for name, pages in (("large pools", common.H200_PAGES), ("small pools", 6_000))
        for load in options.load
        for policy in options.policy
    ]
    with ProcessPoolExecutor(options.processes) as pool:
        rows = list(pool.map(partial(run, options), jobs))
    if not options.dry:
        common.write(rows)


if __name__ == "__main__":
    main()
