"""Fairness between tenants over several hosts: everything sent on at once, against a bounded number on each host with
the rest in fair order in front of them.

    python benchmarks/scheduling/fleet_fairness.py [--hosts 4] [--seconds 300]

The machine and lengths of VTC's paper (Llama-2-7B on an A10G, 10,000 tokens of pool, 256 tokens in and out), four of
it; the product's own front (`FairOrder`), fewest requests as the routing. Measure: how much further apart service of
two tenants gets within any time in which both wait, in priced tokens (input 1, output 2), summed over the hosts; beside
VTC's bound with the fleet as the batch, twice what all pools can hold. Cases: both tenants on every host; half of the
hosts at half the speed; a tenant whose adapter only one of the hosts has, where no order can keep to the bound."""

from __future__ import annotations

import argparse
import random
from collections import deque
from typing import Any

import common

from control_plane.fleet.routing.fair_order import INPUT_PRICE, OUTPUT_PRICE, FairOrder, Waiter
from lora_engine.request import GenerationRequest
from lora_engine.scheduling.sequence import Sequence
from lora_engine.simulation import SimulatedEngine

POOL, LENGTH, SLICE_S = 10_000, 256, 0.02
RATES = {"light": 4.5, "heavy": 18.0}  # per second, over all hosts: more than they can do


class Host:
    def __init__(self, slow: bool) -> None:
        times = common.slowed(common.A10G) if slow else common.A10G
        self.engine = SimulatedEngine(
            common.machine(times, POOL),
            order="fair",
            admission="all",
            prefix_cache=False,
            max_running=64,
            step_tokens=1024,
            max_waiting=10**9,
            fair_slack=0.0,
            adapter_price=0.0,
        )
        self.sent: dict[str, int] = {}  # web process of each open request
        self._known: dict[Sequence, int] = {}
        self._seen = 0

    def until(self, now: float) -> tuple[dict[str, float], list[GenerationRequest]]:
        """Run until `now`; return the service of each tenant, and the requests that ended."""
        engine, served = self.engine, dict.fromkeys(RATES, 0.0)
        while engine.has_work() and engine.clock.now < now:
            for sequence, chunk in engine.step().items():
                begun = max(sequence.num_computed - chunk.tokens, self._known.get(sequence, 0))
                self._known[sequence] = max(begun, sequence.num_computed)
                prompt = max(0, min(sequence.num_prompt, sequence.num_computed) - begun)
                output = chunk.tokens and sequence.num_computed + 1 == len(sequence.token_ids)
                served[sequence.request.tenant] += prompt * INPUT_PRICE + OUTPUT_PRICE * output
        if not engine.has_work():
            engine.clock.now = max(engine.clock.now, now)
        ended = [end.request for end in engine.ended[self._seen :]]
        self._seen = len(engine.ended)
        return served, ended

    def waits(self) -> set[str]:
        queue = self.engine.core.stats.report(0, 100).tenants
        return {share.tenant for share in queue if share.waiting}


class Web:
    """A web process: its requests on each host, and those that wait for a slot there."""

    def __init__(self, number: int, hosts: list[Host], bound: int) -> None:
        self.number, self.hosts, self.bound = number, hosts, bound
        self.order = FairOrder()
        self.requests: dict[Waiter, GenerationRequest] = {}
        self.open = [0] * len(hosts)

    def take(self, request: GenerationRequest, names: frozenset[str]) -> None:
        waiter = Waiter(request.tenant, names)
        self.requests[waiter] = request
        self.order.wait(waiter)

    def send(self, now: float) -> None:
        while (waiter := self.order.next(lambda names: any(self._room(int(name)) for name in names))) is not None:
            request = self.requests.pop(waiter)
            host = min((int(n) for n in waiter.hosts if self._room(int(n))), key=lambda h: (len(self.hosts[h].sent), h))
            self.order.charge(request.tenant, LENGTH * INPUT_PRICE)
            self.open[host] += 1
            self.hosts[host].sent[request.request_id] = self.number
            self.hosts[host].engine.submit(request, now)

    def _room(self, host: int) -> bool:
        return not self.bound or self.open[host] < self.bound


def play(case: dict[str, Any], count: int, webs: int, bound: int, seconds: float) -> dict[str, float]:
    hosts = [Host(bool(case.get("slow")) and n % 2 == 1) for n in range(count)]
    fronts = [Web(number, hosts, bound) for number in range(webs)]
    rnd = random.Random(5)
    arrivals = deque(
        sorted(
            (
                (at, common.request(f"{tenant}-{n}", LENGTH, LENGTH, tenant))
                for tenant, rate in RATES.items()
                for n, at in enumerate(common.gamma_times(rnd, rate, 2.0, seconds))
            ),
            key=lambda pair: pair[0],
        )
    )
    every = frozenset(map(str, range(count)))
    narrow = frozenset("0") if case.get("narrow") else every
    service, total = dict.fromkeys(RATES, 0.0), 0.0
    least = most = widest = 0.0
    together = 0
    now = 0.0
    while now < seconds:
        now += SLICE_S
        while arrivals and arrivals[0][0] <= now:
            _, request = arrivals.popleft()
            rnd.choice(fronts).take(request, narrow if request.tenant == "light" else every)
        for front in fronts:
            front.send(now)
        for host_number, host in enumerate(hosts):
            served, ended = host.until(now)
            for tenant, cost in served.items():
                service[tenant] += cost
                total += cost
            for request in ended:
                front = fronts[host.sent.pop(request.request_id)]
                front.open[host_number] -= 1
                front.order.charge(request.tenant, LENGTH * OUTPUT_PRICE)
        waiting = set().union(*(host.waits() for host in hosts))
        waiting |= {request.tenant for front in fronts for request in front.requests.values()}
        gap = service["heavy"] - service["light"]
        if len(waiting) == 2:
            least, most, together = min(least, gap), max(most, gap), together + 1
            widest = max(widest, most - least)
        else:
            least = most = gap
    return {
        "widest_gap": round(widest),
        "service_per_s": round(total / seconds, 1),
        "light_share": round(service["light"] / total, 3),
        "both_waited": round(together * SLICE_S / seconds, 3),
    }


CASES: dict[str, dict[str, Any]] = {
    "both on every host": {},
    "half of the hosts at half speed": {"slow": True},
    "one on one of the hosts": {"narrow": True},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=300)
    options = parser.parse_args()
    fits = POOL // (2 * LENGTH)
    limit = 2 * options.hosts * max(INPUT_PRICE * LENGTH, OUTPUT_PRICE * POOL)
    rows = []
    for name, case in CASES.items():
        for webs, bound in ((1, 0), (1, 2 * fits), (4, fits // 2), (1, fits)):
            result = play(case, options.hosts, webs, bound, options.seconds)
            settings = {"hosts": options.hosts, "web_processes": webs, "host_requests": bound, "bound": limit, **result}
            rows.append(
                common.row("fleet fairness", name, "widest_gap", result["widest_gap"], "priced tokens", **settings)
            )
            print(
                f"{name:34} webs {webs} each at most {bound or '∞':>3} on a host: {result}, bound {limit:.0f}",
                flush=True,
            )
    common.write(rows)


if __name__ == "__main__":
    main()
