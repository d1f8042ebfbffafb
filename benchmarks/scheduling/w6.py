"""W6, the fleet: 32 simulated hosts over skews and lengths, in turn, by the fewest requests, by the soonest first
token, and with requests that go on elsewhere (dLoRA's migration).

    python benchmarks/scheduling/w6.py [--hosts 32] [--seconds 30] [--load 0.8] [--only CASE …] [--policy NAME]
    python benchmarks/scheduling/w6.py --azure FILE --servegen FILE      recorded traffic instead

Hosts are Llama-3.1-8B on an H200 (step times fitted to measured steps), 64 running each, behind four web processes.
Dispatch, fair turns in front of full hosts, predictions and migration are the product's own classes; each web process
knows what the product's does: heartbeats every 250 ms, and what it sent since. Adapters are placed by their rate on as
many hosts as carry twice that, two at least (a fifth of the cold ones: one). Their popularity is S-LoRA's power law
(alpha 1: uniform; 0.3, near what production shows; 0.1), each with Gamma arrivals of its own (cv 4): bursts strike
hosts. Lengths are ShareGPT-like times a scale; the load is a share of what all hosts can do, so a scale changes sizes,
not load.

`--azure`: prompt and output lengths, and `--servegen`: tenants' rates, of files as their publishers write them: the
busiest ten minutes' rates, scaled to the load, each tenant with 16 adapters by the power law and its own cv of gaps.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import random
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import common

from control_plane.fleet.routing.fair_order import INPUT_PRICE, OUTPUT_PRICE, FairOrder, Hosts, Waiter
from control_plane.fleet.routing.first_token import FirstTokenPrediction
from control_plane.fleet.routing.migration import (
    MAX_MOVES,
    HostNow,
    Lengths,
    OpenRequest,
    Program,
    Rates,
    is_uneven,
)
from control_plane.fleet.routing.router import ROUTING_POLICIES, HostLoad
from lora_engine.request import ChoiceSoFar, GenerationRequest
from lora_engine.scheduling.sequence import RequestState
from lora_engine.server.messages import fill
from lora_engine.simulation import SimulatedAdapter, SimulatedEnd, SimulatedEngine
from lora_engine.wire import engine_pb2 as pb

WEBS, SLICE_S, HEARTBEAT_S = 4, 0.025, 0.25
TENANTS, ADAPTERS, RUNNING = 64, 512, 64
COPY_PAGE_S, DISK_S = 2e-5, 0.25
MEAN_PROMPT, MEAN_OUTPUT = 220.0, 200.0
# Requests of these lengths per second that one host can serve: beyond it a single host's queue grows without end.
CAPACITY = 39.0


@dataclass(frozen=True)
class Request:
    """A request of a trace."""

    at: float
    tenant: str
    adapter: str
    prompt: int
    output: int


# -- traffic ---------------------------------------------------------------------------------------------------------


def power_law(count: int, alpha: float) -> list[float]:
    """Return adapters' shares under S-LoRA's generator: ``int(U ** (1 / alpha) * count)``, the most popular first."""
    edges = [(n / count) ** alpha for n in range(count + 1)]
    return sorted((after - before for before, after in itertools.pairwise(edges)), reverse=True)


def synthetic(alpha: float, scale: float, hosts: int, seconds: float, load: float) -> list[Request]:
    rnd, rate, trace = random.Random(7), load * CAPACITY / scale * hosts, []
    for number, share in enumerate(power_law(ADAPTERS, alpha)):
        tenant = f"t{number % TENANTS}"
        for at in bursts(rnd, rate * share, 4.0, seconds):
            prompt = round(scale * min(4000.0, rnd.lognormvariate(math.log(MEAN_PROMPT) - 0.405, 0.9)))
            output = round(scale * min(1000.0, rnd.lognormvariate(math.log(MEAN_OUTPUT) - 0.405, 0.9)))
            trace.append(Request(at, tenant, f"a{number}", max(4, prompt), max(4, output)))
    return sorted(trace, key=lambda request: request.at)


def bursts(rnd: random.Random, rate: float, cv: float, seconds: float) -> Iterator[float]:
    """Return arrival times with gamma gaps. The first gap is cut at random: a rare adapter does not begin with a
    request.
    """
    warm = 4 / rate if rate else 0.0
    return (at - warm for at in common.gamma_times(rnd, rate, cv, seconds + warm) if at >= warm) if rate else iter(())


def recorded(azure: Path, servegen: Path, hosts: int, seconds: float, load: float) -> list[Request]:
    with azure.open() as file:
        lengths = [(int(row["ContextTokens"]), int(row["GeneratedTokens"])) for row in csv.DictReader(file)]
    windows: dict[float, list[tuple[str, float, float]]] = defaultdict(list)
    with servegen.open() as file:
        for row in csv.DictReader(file):
            windows[float(row["window_start_s"])].append((row["client_id"], float(row["rate_rps"]), float(row["cv"])))
    busiest = max(windows.values(), key=lambda window: sum(rate for _, rate, _ in window))
    work = sum(prompt / 4 + output for prompt, output in lengths) / len(
        lengths
    )  # a prompt's token is a fourth of one's
    wanted = load * CAPACITY * (MEAN_PROMPT / 4 + MEAN_OUTPUT) / work * hosts
    factor = wanted / sum(rate for _, rate, _ in busiest)
    rnd, trace = random.Random(7), []
    for client, rate, cv in busiest:
        weights = power_law(16, 0.3)
        for at in bursts(rnd, rate * factor, min(max(cv, 0.5), 8.0), seconds):
            (adapter,) = rnd.choices(range(16), weights)
            prompt, output = rnd.choice(lengths)
            trace.append(Request(at, f"c{client}", f"c{client}-{adapter}", max(4, prompt), max(4, output)))
    return sorted(trace, key=lambda request: request.at)


def placement(requests: Sequence[Request], hosts: int, everywhere: bool) -> dict[str, frozenset[int]]:
    """Return the hosts of each adapter: as many as carry twice its rate, the least loaded ones."""
    if everywhere:
        return dict.fromkeys((request.adapter for request in requests), frozenset(range(hosts)))
    work: Counter[str] = Counter()
    for request in requests:
        work[request.adapter] += request.prompt // 4 + request.output
    burden, total, placement = [0.0] * hosts, sum(work.values()), {}
    for number, (adapter, amount) in enumerate(work.most_common()):
        wanted = 2 * amount * hosts / total
        copies = min(hosts, max(1 if number % 5 == 4 and wanted < 0.1 else 2, math.ceil(wanted)))
        chosen = sorted(range(hosts), key=lambda host: (burden[host], host))[:copies]
        for host in chosen:
            burden[host] += amount / copies
        placement[adapter] = frozenset(chosen)
    return placement


@dataclass(frozen=True)
class System:
    """A way to spread requests. ``bounded``: a process has a limited number at each host; more wait in front, in
    fair order.
    """

    policy: str
    bounded: bool = True
    migrates: bool = False

    @property
    def title(self) -> str:
        return f"{self.policy}{', turns in front' * self.bounded}{', migration' * self.migrates}"


# -- hosts and web processes -----------------------------------------------------------------------------------------


class Host:
    """A simulated engine, and the heartbeats that it sends."""

    def __init__(self, digests: list[str], slow: bool = False) -> None:
        times = common.slowed(common.H200) if slow else common.H200
        loras = [SimulatedAdapter(digest, 16, 16) for digest in digests]
        self.engine = SimulatedEngine(
            common.machine(times, 16 * common.H200_PAGES, loras, copy_page_s=COPY_PAGE_S, disk_s=DISK_S),
            order="fair",
            admission="all",
            prefix_cache=False,
            max_running=RUNNING,
            step_tokens=2048,
            max_waiting=10**9,
        )
        self._digests, self._seen = digests, 0
        self._made: deque[tuple[float, int]] = deque()

    def until(self, now: float) -> list[SimulatedEnd]:
        """Run until `now`; return the requests that ended."""
        engine = self.engine
        while engine.has_work() and engine.clock.now < now:
            made = sum(chunk.samples for chunk in engine.step().values())
            self._made.append((engine.clock.now, made))
        if not engine.has_work():
            engine.clock.now = max(engine.clock.now, now)
        ended = engine.ended[self._seen :]
        self._seen = len(engine.ended)
        return ended

    def status(self) -> pb.HostStatus:
        core = self.engine.core
        while self._made and self._made[0][0] < self.engine.clock.now - 2.0:
            self._made.popleft()
        report, pool = core.stats.report(0, 100), core.allocator.stats()
        return pb.HostStatus(
            running=len(core.scheduler.running),
            waiting=len(core.queue),
            tokens_per_second=sum(tokens for _, tokens in self._made) / 2.0,
            pool=pb.PoolPages(total=pool.total, kv=pool.kv, reserved=pool.reserved),
            tenants=[fill(pb.TenantShare(), share) for share in report.tenants],
            first_token=report.newcomer and fill(pb.FirstTokenForecast(), report.newcomer),
            adapters=[pb.AdapterResidency(digest=d, tier=self._tier(d), bytes=27 << 20) for d in self._digests],
            load_times=pb.LoadTimes(
                to_device=pb.LoadTime(loads=1, fixed_s=COPY_PAGE_S * 16),
                from_disk=pb.LoadTime(loads=1, fixed_s=DISK_S),
            ),
        )

    def _tier(self, digest: str) -> Any:
        on_device = self.engine.core.device_tier.on_device(digest)
        return pb.AdapterResidency.DEVICE if on_device else pb.AdapterResidency.HOST


@dataclass(eq=False)
class Open:
    """A request of a web process, from its arrival to its end."""

    request: GenerationRequest
    submit: pb.Submit
    at: float
    hosts: Hosts
    host: int = -1
    first_token: float = 0.0
    moves: int = 0

    def so_far(self, request_state: RequestState) -> GenerationRequest:
        """Return the request for the next host: the prompt and the tokens so far."""
        sequence = request_state.sequences[0]
        tokens = sequence.token_ids[sequence.num_prompt :]
        return replace(self.request, so_far=(ChoiceSoFar(0, list(tokens)),) if tokens else ())


@dataclass
class Migrating:
    """The interval at which a web process plans migrations, and the number of hosts of either end."""

    every_s: float = 1.0
    most: int = 4
    program: Program = field(init=False)
    rates: Rates = field(default_factory=Rates)
    lengths: Lengths = field(default_factory=Lengths)

    def __post_init__(self) -> None:
        self.program = Program(self.most)


class Web:
    """A web process's view of the hosts, its routing and its migrations."""

    def __init__(self, policy: str, hosts: list[Host], bounded: bool, migrating: Migrating | None) -> None:
        self._policy, self._hosts, self._migrating = ROUTING_POLICIES[policy](), hosts, migrating
        self._order, self._queued = FairOrder(), dict[Waiter, Open]()
        self._bound = 2 * RUNNING // WEBS if bounded else 10**9
        self._status = [pb.HostStatus() for _ in hosts]
        self._sent = [0] * len(hosts)
        self._here = [0] * len(hosts)
        self._first_token = [FirstTokenPrediction() for _ in hosts]
        self.open: dict[str, Open] = {}
        self.moved = 0
        self.present = len(hosts)

    def observe(self, host: int, status: pb.HostStatus) -> None:
        self._status[host], self._sent[host] = status, 0
        self._first_token[host].observed(status)

    def take(self, entry: Open, now: float) -> None:
        if self._queued or not self._has_room(entry.hosts):
            waiter = Waiter(entry.request.tenant, entry.hosts)
            self._queued[waiter] = entry
            self._order.wait(waiter)
        else:
            self._send(entry, now)

    def grant_slots(self, now: float) -> None:
        while self._queued and (waiter := self._order.next(self._has_room)) is not None:
            self._send(self._queued.pop(waiter), now)

    def ended(self, entry: Open, end: SimulatedEnd) -> None:
        self._here[entry.host] -= 1
        del self.open[entry.request.request_id]
        tokens = end.usage.completion_tokens
        self._order.charge(entry.request.tenant, tokens * OUTPUT_PRICE)
        if self._migrating is not None:
            self._migrating.lengths.ended(entry.request.tenant, entry.request.adapter_digest, tokens)

    def _has_room(self, hosts: Hosts) -> bool:
        return any(self._here[int(host)] < self._bound for host in hosts if int(host) < self.present)

    def _send(self, entry: Open, now: float) -> None:
        self._order.charge(entry.request.tenant, len(entry.request.prompt_token_ids) * INPUT_PRICE)
        placed = [host for host in map(int, entry.hosts) if host < self.present]
        among = [host for host in placed if self._here[host] < self._bound] or placed
        loads = [
            HostLoad(
                str(host),
                max(self._status[host].running + self._status[host].waiting + self._sent[host], self._here[host]),
                first_token_s=self._first_token[host].seconds(entry.submit),
            )
            for host in sorted(among)
        ]
        self._give(entry, int(self._policy.choose(loads).name), now, entry.request)

    def _give(self, entry: Open, host: int, now: float, request: GenerationRequest) -> None:
        entry.host = host
        self._sent[host] += 1
        self._here[host] += 1
        self._first_token[host].sent(entry.submit)
        self.open[request.request_id] = entry
        self._hosts[host].engine.submit(request, now)

    def migrate(self, now: float) -> None:
        migrating = self._migrating
        assert migrating is not None
        hosts = [self._now(number) for number in range(self.present)]
        migrating.rates.observe(hosts, now)
        if not is_uneven(hosts):
            return
        requests = [self._movable(entry) for entry in self.open.values() if entry.moves < MAX_MOVES]
        plan = migrating.program.moves(hosts, requests, migrating.rates.of(hosts))
        for name, to in plan.to.items():
            if self._here[int(to)] < self._bound:
                self._move(self.open[name], int(to), now)

    def _now(self, number: int) -> HostNow:
        status = self._status[number]
        return HostNow(
            str(number),
            status.waiting + self._sent[number],
            status.running,
            status.tokens_per_second,
            status.first_token.prompt_token_s,
            status.pool.kv,
            status.pool.total - status.pool.reserved,
        )

    def _movable(self, entry: Open) -> OpenRequest:
        assert self._migrating is not None
        request, request_state = entry.request, self._request_state(entry)
        so_far = len(request_state.sequences[0].token_ids) - request_state.sequences[0].num_prompt
        more = self._migrating.lengths.more(request.tenant, request.adapter_digest, so_far, 0)
        return OpenRequest(
            request.request_id, str(entry.host), entry.hosts, len(request.prompt_token_ids), so_far, more
        )

    def _request_state(self, entry: Open) -> RequestState:
        return self._hosts[entry.host].engine.core.requests[entry.request.request_id]

    def _move(self, entry: Open, to: int, now: float) -> None:
        request_state = self._request_state(entry)
        entry.first_token = entry.first_token or request_state.first_token or 0.0
        going_on = entry.so_far(request_state)
        del self.open[entry.request.request_id]
        self._here[entry.host] -= 1
        self._hosts[entry.host].engine.core.end(request_state, "aborted")
        entry.moves += 1
        self.moved += 1
        self._give(entry, to, now, going_on)


# -- a run -----------------------------------------------------------------------------------------------------------


def play(
    system: System, requests: Sequence[Request], count: int, every_s: float, *, everywhere: bool, joins_at: float
) -> dict[str, float]:
    rnd, placed = random.Random(3), placement(requests, count, everywhere)
    hosts = [Host([digest for digest, on in placed.items() if number in on]) for number in range(count)]
    webs = [
        Web(system.policy, hosts, system.bounded, Migrating(every_s) if system.migrates else None) for _ in range(WEBS)
    ]
    owner: dict[str, Web] = {}
    waits, whole, queued = list[float](), list[float](), list[float]()
    arriving = deque(
        (number, request, common.request(f"r{number}", request.prompt, request.output, request.tenant, request.adapter))
        for number, request in enumerate(requests)
    )
    tick, beats = 0, round(HEARTBEAT_S / SLICE_S)
    while arriving or any(web.open or web._queued for web in webs):
        now = tick * SLICE_S
        present = count if now >= joins_at else count - count // 4
        for web in webs:
            web.present = present
        while arriving and arriving[0][1].at < now:
            _, request, generation = arriving.popleft()
            submit = pb.Submit(
                tenant=request.tenant,
                adapter_digest=request.adapter,
                token_ids=pb.TokenIds(ids=generation.prompt_token_ids),
            )
            web = owner[generation.request_id] = rnd.choice(webs)
            web.take(Open(generation, submit, request.at, frozenset(map(str, placed[request.adapter]))), request.at)
        for number, host in enumerate(hosts):
            for end in host.until(now):
                if end.outcome == "aborted":
                    continue  # it goes on elsewhere
                web = owner.pop(end.request.request_id)
                entry = web.open[end.request.request_id]
                web.ended(entry, end)
                first = entry.first_token or end.first_token or end.ended
                waits.append(first - entry.at)
                whole.append(end.ended - entry.at)
                queued.append(end.usage.queue_ms / 1000 + (end.submitted - entry.at if entry.moves == 0 else 0.0))
            if tick % beats == number % beats:
                status = host.status()
                for web in webs:
                    web.observe(number, status)
        for number, web in enumerate(webs):
            web.grant_slots(now)
            if system.migrates and tick % round(every_s / SLICE_S) == round(number * every_s / SLICE_S / WEBS):
                web.migrate(now)
        tick += 1
    return {
        "requests": len(whole),
        "mean_s": round(sum(whole) / len(whole), 3),
        "p99_s": round(common.percentile(whole, 99), 3),
        "mean_first_token_s": round(sum(waits) / len(waits), 4),
        "p99_first_token_s": round(common.percentile(waits, 99), 4),
        "mean_queue_s": round(sum(queued) / len(queued), 4),
        "moved": sum(web.moved for web in webs),
        "ended_after_s": round(tick * SLICE_S, 1),
    }


SYSTEMS = [
    System("round_robin", bounded=False),
    System("round_robin", bounded=False, migrates=True),
    System("least_pending", bounded=False),
    System("first_token", bounded=False),
    System("first_token", bounded=False, migrates=True),
    System("first_token"),
    System("first_token", migrates=True),
]


def run(options: argparse.Namespace, job: tuple[str, dict[str, Any], System]) -> dict[str, Any]:
    name, case, system = job
    scale = (options.hosts, options.seconds, options.load)
    if options.azure:
        requests = recorded(options.azure, options.servegen, *scale)
    else:
        requests = synthetic(case["alpha"], case["lengths"], *scale)
    late = case.get("late", False)
    joins_at = options.seconds / 2 if late else 0.0
    figures = play(system, requests, options.hosts, options.every, everywhere=late, joins_at=joins_at)
    print(f"{name:36} {system.title:38} {figures}", flush=True)
    settings = {"hosts": options.hosts, "load": options.load, "seconds": options.seconds, **case, **asdict(system)}
    settings |= {"every_s": options.every if system.migrates else None, **figures}
    return common.row("w6", name, "mean", figures["mean_s"], "s", **settings)


def cases(options: argparse.Namespace) -> Iterable[tuple[str, dict[str, Any]]]:
    if options.azure:
        yield "recorded: lengths of Azure, tenants of ServeGen", {}
        return
    for alpha in (1.0, 0.3, 0.1):
        yield f"skew {alpha:g}, lengths x1", {"alpha": alpha, "lengths": 1.0}
    for lengths in (0.5, 2.0):
        yield f"skew 0.3, lengths x{lengths:g}", {"alpha": 0.3, "lengths": lengths}
    yield "a quarter of the hosts joins late", {"alpha": 0.3, "lengths": 1.0, "late": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--load", type=float, default=0.8)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two looks of a web process")
    parser.add_argument("--only", action="append", help="cases whose name has this in it")
    parser.add_argument("--policy", choices=[*ROUTING_POLICIES], help="the systems with this one alone")
    parser.add_argument("--azure", type=Path)
    parser.add_argument("--servegen", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--dry", action="store_true", help="print only")
    options = parser.parse_args()
    if bool(options.azure) != bool(options.servegen):
        parser.error("--azure has the lengths and --servegen the tenants: give both")
    jobs = [
        (name, case, system)
        for name, case in cases(options)
        if not options.only or any(part in name for part in options.only)
        for system in SYSTEMS
        if options.policy in (None, system.policy)
    ]
    with ProcessPoolExecutor(options.processes) as pool:
        rows = list(pool.map(partial(run, options), jobs))
    if not options.dry:
        common.write(rows)


if __name__ == "__main__":
    main()
