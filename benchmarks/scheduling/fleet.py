"""Dispatch over a fleet: in turn, by the fewest requests, by the soonest first token that hosts forecast.

    python benchmarks/scheduling/fleet.py [--hosts 8] [--seconds 30] [--load 12 18] [--policy NAME]

Simulated hosts (Llama-3.1-8B on an H200) behind four web processes. Each web process knows what the product's does: a
heartbeat of each host four times a second, and what it has itself sent since. Requests have ShareGPT-like lengths
(log-normal, means of about 220 and 200 tokens), a tenth of them prompts of 6,000 tokens; 32 tenants; adapters by Zipf's
law. Cases: equal hosts; half of the hosts at half the speed; adapters of which each host has a part on disk only."""

from __future__ import annotations

import argparse
import random
from dataclasses import replace
from typing import Any

import common

from control_plane.fleet.routing.first_token import FirstTokenPrediction
from control_plane.fleet.routing.router import ROUTING_POLICIES, HostLoad, RoutingPolicy
from lora_engine.request import GenerationRequest
from lora_engine.server.messages import fill
from lora_engine.simulation import SimulatedEngine
from lora_engine.wire import engine_pb2 as pb

WEB_PROCESSES = 4
HEARTBEAT_S = 0.25
TENANTS = 32
ADAPTERS = 256
RUNNING = 128
DISK_S = 0.25
ADAPTER_BYTES = 27 << 20
COPY_PAGE_S = 2e-5


class Host:
    """A simulated engine, and the heartbeats that it sends."""

    def __init__(self, slow: bool, on_disk: float, rnd: random.Random) -> None:
        times = common.slowed(common.H200) if slow else common.H200
        loras = [
            replace(lora, on_disk=rnd.random() < on_disk)
            for lora in common.adapters(ADAPTERS, ranks=(16,), pages_per_rank=1.0)
        ]
        self.engine = SimulatedEngine(
            common.machine(times, 16 * common.H200_PAGES, loras, copy_page_s=COPY_PAGE_S, disk_s=DISK_S),
            order="fair",
            admission="all",
            prefix_cache=False,  # these prompts are all alike
            max_running=RUNNING,
            step_tokens=2048,
            max_waiting=10**9,
        )
        self._digests = [lora.digest for lora in loras]

    def until(self, now: float) -> None:
        common.run_until(self.engine, now)

    def status(self) -> pb.HostStatus:
        core = self.engine.core
        report = core.stats.report(0, 100)
        return pb.HostStatus(
            running=len(core.scheduler.running),
            waiting=len(core.queue),
            tenants=[fill(pb.TenantShare(), share) for share in report.tenants],
            first_token=report.newcomer and fill(pb.FirstTokenForecast(), report.newcomer),
            adapters=[pb.AdapterResidency(digest=d, tier=self._tier(d), bytes=ADAPTER_BYTES) for d in self._digests],
            load_times=pb.LoadTimes(
                to_device=pb.LoadTime(loads=1, fixed_s=COPY_PAGE_S * 16),
                from_disk=pb.LoadTime(loads=1, fixed_s=DISK_S),
            ),
        )

    def _tier(self, digest: str) -> Any:
        if self.engine.core.device_tier.on_device(digest):
            return pb.AdapterResidency.DEVICE
        return pb.AdapterResidency.HOST if self.engine.source.get(digest) else pb.AdapterResidency.DISK


class WebProcess:
    """A web process's view of the hosts, and its routing."""

    def __init__(self, policy: RoutingPolicy, hosts: int) -> None:
        self._policy = policy
        self._pending = [0] * hosts
        self._first_token = [FirstTokenPrediction() for _ in range(hosts)]

    def observe(self, host: int, status: pb.HostStatus) -> None:
        self._pending[host] = status.running + status.waiting
        self._first_token[host].observed(status)

    def choose(self, submit: pb.Submit) -> int:
        loads = [
            HostLoad(str(host), pending, first_token_s=prediction.seconds(submit))
            for host, (pending, prediction) in enumerate(zip(self._pending, self._first_token, strict=True))
        ]
        host = int(self._policy.choose(loads).name)
        self._pending[host] += 1
        self._first_token[host].sent(submit)
        return host


def arrivals(rnd: random.Random, rate: float, seconds: float) -> list[tuple[float, GenerationRequest]]:
    popularity = [1 / (n + 1) for n in range(ADAPTERS)]
    result = []
    for number, at in enumerate(common.gamma_times(rnd, rate, 2.0, seconds)):
        prompt = 6000 if rnd.random() < 0.1 else max(4, min(4000, round(rnd.lognormvariate(5.0, 0.9))))
        output = max(4, min(1000, round(rnd.lognormvariate(4.9, 0.9))))
        (adapter,) = rnd.choices(range(ADAPTERS), popularity)
        tenant = f"t{rnd.randrange(TENANTS)}"
        result.append((at, common.request(f"r{number}", prompt, output, tenant, f"a{adapter}")))
    return result


def play(policy: str, case: dict[str, Any], count: int, load: float, seconds: float) -> dict[str, float]:
    rnd = random.Random(11)
    hosts = [Host(case.get("slow", False) and n % 2 == 1, case.get("on_disk", 0.0), rnd) for n in range(count)]
    webs = [WebProcess(ROUTING_POLICIES[policy](), count) for _ in range(WEB_PROCESSES)]
    beats = sorted(
        (n / count * HEARTBEAT_S + beat * HEARTBEAT_S, n) for n in range(count) for beat in range(int(seconds) + 1)
    )
    next_beat = 0
    for at, request in arrivals(rnd, load * count * (0.75 if case.get("slow") else 1.0), seconds):
        while next_beat < len(beats) and beats[next_beat][0] <= at:
            moment, number = beats[next_beat]
            hosts[number].until(moment)
            status = hosts[number].status()
            for web in webs:
                web.observe(number, status)
            next_beat += 1
        submit = pb.Submit(
            tenant=request.tenant,
            adapter_digest=request.adapter_digest,
            token_ids=pb.TokenIds(ids=request.prompt_token_ids),
        )
        host = hosts[rnd.choice(webs).choose(submit)]
        host.until(at)
        host.engine.submit(request, at)
    ended = [end for host in hosts for end in host.engine.run([])]
    waits = [common.first_token_s(end) or 0.0 for end in ended]
    whole = [end.ended - end.submitted for end in ended]
    return {
        "requests": len(ended),
        "mean_first_token_s": round(sum(waits) / len(waits), 4),
        "p99_first_token_s": round(common.percentile(waits, 99), 4),
        "mean_s": round(sum(whole) / len(whole), 3),
        "p99_s": round(common.percentile(whole, 99), 3),
    }


CASES: dict[str, dict[str, Any]] = {
    "equal hosts": {},
    "half of them at half speed": {"slow": True},
    "half of each host's adapters on disk": {"on_disk": 0.5},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--load", type=float, nargs="*", default=[12.0, 18.0], help="requests per second and host")
    parser.add_argument("--policy", choices=[*ROUTING_POLICIES], help="this one alone")
    options = parser.parse_args()
    rows = []
    for name, case in CASES.items():
        for load in options.load:
            for policy in [options.policy] if options.policy else ROUTING_POLICIES:
                result = play(policy, case, options.hosts, load, options.seconds)
                settings = {"hosts": options.hosts, "per_host": load, "policy": policy, **result}
                rows.append(
                    common.row("fleet dispatch", name, "p99_first_token", result["p99_first_token_s"], "s", **settings)
                )
                print(f"{name:38} {load:5.1f}/s  {policy:14} {result}", flush=True)
    common.write(rows)


if __name__ == "__main__":
    main()
