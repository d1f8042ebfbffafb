"""W6 with four real engines on one machine: in turn, by the fewest requests, by the soonest first token, with moves.

    python benchmarks/scheduling/w6_engines.py [--seconds 5] [--rounds 4] [--skews 1 0.3 0.1] [--tenants-seconds 8]
    python benchmarks/scheduling/w6_engines.py --gpus --running 16 --prompt 200 --output 160    # a GPU for each engine

Four engine processes with the demo model on the processor, four sequences each; sessions, dispatch, turns and migration
are the web process's own classes, without HTTP. Adapters lie on as many engines as carry twice their rate (w6.py's
placement), are asked for by S-LoRA's power law, each with bursts of its own (cv 4); prompts and answers have log-normal
lengths. With `--gpus` the model has Llama-3.1-8B's shape and random weights, adapters have rank 16 on q, k, v and o,
and engines are batch-invariant, so that texts can be compared. The load is 1.2 times what the four did when asked
without a pause, measured first, so queues grow; all systems get the same requests, round by round. Then two tenants
ask without a pause, one with four times the callers: the widest gap in priced tokens between them, summed over the four
processes, beside twice what one may have in flight (VTC's bound).

It fails if a request is not answered in full, or with another text than under another system.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Hashable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import common
from w6 import Request, bursts, placement, power_law

sys.path[:0] = [
    str(common.ROOT / part) for part in ("benchmarks", "platform", "inference_engine", "kernels", "tests/support", ".")
]
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")

import django  # noqa: E402

django.setup()

from django.conf import settings  # noqa: E402
from lorikeet_testing.engine_client import connected  # noqa: E402
from lorikeet_testing.engine_process import EngineProcess, stage  # noqa: E402

from control_plane.core.config import current  # noqa: E402
from control_plane.fleet.routing.connections import Fleet  # noqa: E402
from control_plane.fleet.routing.fair_order import INPUT_PRICE, OUTPUT_PRICE  # noqa: E402
from control_plane.fleet.routing.migration import MAX_MOVES, Lengths, OpenRequest, Program, open_request  # noqa: E402
from control_plane.fleet.routing.router import make_policy  # noqa: E402
from control_plane.fleet.transport.endpoint import HostEndpoint  # noqa: E402
from control_plane.fleet.transport.engine_client import RequestStream  # noqa: E402
from control_plane.gateway.dispatch.answer_so_far import AnswerSoFar  # noqa: E402
from control_plane.gateway.dispatch.migrator import Migrator  # noqa: E402
from lora_engine.wire import engine_pb2 as pb  # noqa: E402

NAMES, ADAPTERS, TENANTS = "abcd", 24, 8
# Requests, and tenants, at one host. The first is to this benchmark's migration threshold as the product's bound is to
# the product's threshold (16 more than the mean).
ON_A_HOST, TENANTS_ON_A_HOST = 64, 8
CALLERS = {"light": 40, "heavy": 160}  # more than the four have at once, so that both wait all the time
FAIR_OUTPUT = 24
WORDS = ["river", "stone", "light", "walks", "under", "seven", "green", "and", "the", "old"]


@dataclass(frozen=True)
class System:
    """A way to spread requests. ``bounded``: a limited number at each host; more wait in front, in fair order."""

    title: str
    policy: str
    bounded: bool = False
    migrates: bool = False


SYSTEMS = [
    System("in turn", "round_robin"),
    System("fewest requests", "least_pending"),
    System("soonest first token", "first_token", bounded=True),
    System("and moving", "first_token", bounded=True, migrates=True),
]


# -- engines ---------------------------------------------------------------------------------------------------------


@contextmanager
def engines(folder: Path, options: argparse.Namespace) -> Iterator[dict[str, EngineProcess]]:
    made = {}
    arguments = ("--max-running", str(options.running), "--no-prefix-cache")
    if options.gpus:
        model = random_checkpoint(folder / "model")
        arguments += ("--device", "cuda", "--deterministic", "--pool-mb", "16000", "--host-arena-mb", "4096")
        arguments += ("--max-context", "8192", "--max-lora-rank", "16")
    else:
        model = common.ROOT / "demo" / "model"
        arguments += ("--pool-mb", "64")
    try:
        for number, name in enumerate(NAMES):
            (folder / name).mkdir()
            env = {"CUDA_VISIBLE_DEVICES": str(number)} if options.gpus else {}
            made[name] = EngineProcess(model, folder / name, *arguments, env=env)
        yield made
    finally:
        for process in made.values():
            process.end()


def random_checkpoint(folder: Path) -> Path:
    """Write a checkpoint of Llama-3.1-8B's shape whose tensors are parts of one block of small random numbers."""
    import torch
    from offline_throughput import LLAMA_3_1_8B
    from start_time import save_checkpoint

    save_checkpoint(folder, LLAMA_3_1_8B)
    path, block = folder / "model.safetensors", torch.randn(1 << 28).mul_(0.02).bfloat16().view(torch.uint8).numpy()
    with path.open("r+b") as file:
        begin = 8 + int.from_bytes(file.read(8), "little")
        for at in range(begin, path.stat().st_size, len(block)):
            file.seek(at)
            file.write(block[: path.stat().st_size - at].data)
    return folder


def random_adapter(folder: Path) -> None:
    """Write an adapter of rank 16 on attention's projections of Llama-3.1-8B's shape."""
    import torch
    from offline_throughput import LLAMA_3_1_8B as SHAPE
    from safetensors.torch import save_file

    hidden, kv = SHAPE["hidden_size"], SHAPE["hidden_size"] // 4
    tensors = {}
    for layer in range(SHAPE["num_hidden_layers"]):
        for module, outputs in (("q_proj", hidden), ("k_proj", kv), ("v_proj", kv), ("o_proj", hidden)):
            name = f"base_model.model.model.layers.{layer}.self_attn.{module}"
            tensors[f"{name}.lora_A.weight"] = torch.randn(16, hidden).mul_(0.02).bfloat16()
            tensors[f"{name}.lora_B.weight"] = torch.randn(outputs, 16).mul_(0.02).bfloat16()
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    names = ["q_proj", "k_proj", "v_proj", "o_proj"]
    config = {"peft_type": "LORA", "r": 16, "lora_alpha": 16, "target_modules": names, "task_type": "CAUSAL_LM"}
    (folder / "adapter_config.json").write_text(json.dumps(config))


async def staged(folder: Path, processes: dict[str, EngineProcess], gpus: bool) -> list[str]:
    """The digests of adapters that differ in their name only; all are on all engines, and loaded once."""
    source, digests = common.ROOT / "demo" / "adapters" / "pirate", []
    if gpus:
        source = folder / "adapter"
        random_adapter(source)
    folders = [folder / f"adapter-{number}" for number in range(ADAPTERS)]
    for number, each in enumerate(folders):
        each.mkdir()
        shutil.copy(source / "adapter_model.safetensors", each)
        config = json.loads((source / "adapter_config.json").read_text())
        (each / "adapter_config.json").write_text(json.dumps({**config, "lora_dropout": number / 1000}))
    for process in processes.values():
        async with connected(process.address) as client:
            await client.wait_ready(240)
            digests = [await stage(client, each) for each in folders]
            async with client.session() as session:
                for number, digest in enumerate(digests):
                    sampling = pb.Sampling(max_tokens=1)
                    await session.run(
                        pb.Submit(request_id=f"warm-{number}", adapter_digest=digest, text="a", sampling=sampling)
                    )
    return digests


@asynccontextmanager
async def fleet_of(
    processes: dict[str, EngineProcess], system: System, on_a_host: int = ON_A_HOST
) -> AsyncIterator[Fleet]:
    settings.LORIKEET = current().model_copy(update={"host_requests": on_a_host if system.bounded else 0})
    endpoints = {name: HostEndpoint(name, process.address) for name, process in processes.items()}
    made = Fleet(endpoints, policy=make_policy(system.policy))
    made.start()
    try:
        async with asyncio.timeout(60):
            while not all(made.accepts(name, "") and made.status(name) for name in NAMES):
                await asyncio.sleep(0.05)
        yield made
    finally:
        await made.close()


# -- requests --------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Sender:
    """A request from its arrival to its end, on whichever engines; what the gateway's dispatch does without a web."""

    fleet: Fleet
    attempts: dict[str, Sender]
    submit: pb.Submit
    hosts: tuple[str, ...]
    began: float = field(default_factory=time.monotonic)
    first_token_s: float = 0.0
    whole_s: float = 0.0
    queue_s: float = 0.0
    moves: int = 0
    text: str = ""

    def __post_init__(self) -> None:
        self._so_far = AnswerSoFar(self.submit)
        self._stream: RequestStream | None = None
        self._moves_to = ""
        self._patience: asyncio.Timeout | None = None

    @property
    def model_key(self) -> Hashable:
        return self.submit.adapter_digest

    async def refresh_hosts(self) -> None:
        """Do nothing: the hosts stay the same."""

    def open_request(self, _engine_id: str, lengths: Lengths) -> OpenRequest | None:
        stream = self._stream
        if stream is None or self.moves == MAX_MOVES:
            return None
        so_far = self._so_far.tokens + stream.tokens
        return replace(open_request(self.submit, stream.host, self.hosts, so_far, lengths), name=self._name)

    def move(self, _engine_id: str, host: str) -> None:
        self._moves_to = host
        if self._patience is not None and not self._patience.expired():
            self._patience.reschedule(asyncio.get_running_loop().time())

    async def run(self) -> None:
        await self._send(self.hosts, waits=True)
        while chunks := await self._next():
            self.first_token_s = self.first_token_s or time.monotonic() - self.began
            self._so_far.add(chunks)
            tokens = sum(chunk.tokens for chunk in chunks)
            self.text += "".join(chunk.text for chunk in chunks)
            self.fleet.charge(self.submit, tokens)
        self.whole_s = time.monotonic() - self.began
        self.attempts.pop(self._name, None)
        assert self._stream is not None and self._stream.usage is not None
        if not self.moves:
            self.queue_s = self._stream.usage.queue_ms / 1000 + self._stream.queued_s
        else:
            self.queue_s = self.first_token_s  # it waited at each
        wanted, came = self.submit.sampling.max_tokens, self._so_far.tokens
        assert came == wanted, f"{came} tokens of {wanted}"

    async def _next(self) -> list[Any]:
        while True:
            assert self._stream is not None
            try:
                async with asyncio.timeout(0 if self._moves_to else None) as self._patience:
                    return await anext(self._stream, [])
            except TimeoutError:
                if not self._stream.hand_out():
                    await self._move()
            finally:
                self._patience = None

    async def _move(self) -> None:
        host, self._moves_to = self._moves_to, ""
        old, name = self._stream, self._name
        if self.fleet.accepts(host, "") and self.fleet.has_room(host):
            self.moves += 1
            await self._send((host,), waits=False)
            assert old is not None
            self.attempts.pop(name, None)
            old.close()

    async def _send(self, hosts: Sequence[str], *, waits: bool) -> None:
        submit = pb.Submit()
        submit.CopyFrom(self.submit)
        submit.request_id = self._name = f"{self.submit.request_id}-{self.moves}"
        submit.echo_token_ids = True
        if self._so_far.tokens:
            self._so_far.continue_in(submit)
        self._stream = await self.fleet.submit(submit, hosts, "demo", waits=waits)
        self.attempts[self._name] = self


_runs = itertools.count()


def text_of(rnd: random.Random, tokens: int) -> str:
    return "Tell me of " + " ".join(rnd.choices(WORDS, k=max(1, tokens - 4)))


def traffic(alpha: float, seconds: float, rate: float, lengths: argparse.Namespace, seed: int = 0) -> list[Request]:
    """Prompts have lengths in words, one token each for the demo model."""
    rnd, trace = random.Random(seed), []
    for number, share in enumerate(power_law(ADAPTERS, alpha)):
        for at in bursts(rnd, rate * share, 4.0, seconds):
            prompt = min(5 * lengths.prompt, rnd.lognormvariate(math.log(lengths.prompt) - 0.32, 0.8))
            output = min(5 * lengths.output, rnd.lognormvariate(math.log(lengths.output) - 0.32, 0.8))
            trace.append(Request(at, f"t{number % TENANTS}", str(number), max(8, round(prompt)), max(2, round(output))))
    return sorted(trace, key=lambda request: request.at)


def submit_of(number: int, request: Request, digests: Sequence[str]) -> pb.Submit:
    return pb.Submit(
        request_id=f"w6-{next(_runs)}",
        tenant=request.tenant,
        adapter_digest=digests[int(request.adapter)],
        text=text_of(random.Random(number), request.prompt),
        sampling=pb.Sampling(max_tokens=request.output, ignore_eos=True),
    )


async def play(
    processes: dict[str, EngineProcess], system: System, requests: Sequence[Request], digests: Sequence[str]
) -> list[Sender]:
    """The requests, in their order."""
    placed = placement(requests, len(NAMES), everywhere=False)
    attempts: dict[str, Sender] = {}
    senders: list[Sender] = []
    async with fleet_of(processes, system) as fleet:
        migrator = Migrator(fleet, attempts, Program() if system.migrates else None)
        migrator.start()
        began = time.monotonic()

        async def one(number: int, request: Request) -> None:
            hosts = tuple(NAMES[host] for host in placed[request.adapter])
            each = Sender(fleet, attempts, submit_of(number, request, digests), hosts)
            senders.append(each)
            await each.run()
            migrator.ended(each.submit, request.output)

        tasks = []
        for number, request in enumerate(requests):
            await asyncio.sleep(max(0.0, began + request.at - time.monotonic()))
            tasks.append(asyncio.create_task(one(number, request)))
        await asyncio.gather(*tasks)
        await migrator.close()
    return senders


def figures_of(senders: Sequence[Sender]) -> dict[str, float]:
    waits, whole = [each.first_token_s for each in senders], [each.whole_s for each in senders]
    queued = [each.queue_s for each in senders]
    figures = {
        "requests": len(senders),
        "mean_s": sum(whole) / len(whole),
        "p99_s": common.percentile(whole, 99),
        "mean_first_token_s": sum(waits) / len(waits),
        "p99_first_token_s": common.percentile(waits, 99),
        "mean_queue_s": sum(queued) / len(queued),
        "p99_queue_s": common.percentile(queued, 99),
        "moved": sum(each.moves for each in senders),
    }
    return {name: round(value, 4) for name, value in figures.items()}


async def capacity(
    processes: dict[str, EngineProcess], digests: Sequence[str], seconds: float, options: argparse.Namespace
) -> float:
    """Requests a second of these lengths that the four do without a pause."""
    sample = traffic(1.0, 1000.0, 10.0, options)
    async with fleet_of(processes, SYSTEMS[1]) as fleet:
        until, ended = time.monotonic() + seconds, 0

        async def caller(number: int) -> None:
            nonlocal ended
            for request in itertools.islice(itertools.cycle(sample), number, None, 7):
                if time.monotonic() > until:
                    return
                await Sender(fleet, {}, submit_of(number, request, digests), tuple(NAMES)).run()
                ended += 1

        began = time.monotonic()
        await asyncio.gather(*map(caller, range(2 * options.running * len(NAMES))))
        return ended / (time.monotonic() - began)


async def fairness(processes: dict[str, EngineProcess], system: System, seconds: float) -> dict[str, float]:
    """Two tenants whose callers ask again and again: the widest gap while both wait, summed over the processes."""
    service, gaps, until = dict.fromkeys(CALLERS, 0.0), [0.0], time.monotonic() + seconds
    prompt = "Tell me about the sea."
    attempts: dict[str, Sender] = {}
    async with fleet_of(processes, system, TENANTS_ON_A_HOST) as fleet:
        migrator = Migrator(fleet, attempts, Program() if system.migrates else None)
        migrator.start()

        def note(tenant: str, cost: float) -> None:
            if time.monotonic() < until:
                service[tenant] += cost
                gaps.append(service["heavy"] - service["light"])

        async def caller(tenant: str) -> None:
            while time.monotonic() < until:
                sampling = pb.Sampling(max_tokens=FAIR_OUTPUT, ignore_eos=True)
                submit = pb.Submit(request_id=f"fair-{next(_runs)}", tenant=tenant, text=prompt, sampling=sampling)
                stream = await fleet.submit(submit, NAMES, "demo")
                async for chunks in stream:
                    tokens = sum(chunk.tokens for chunk in chunks)
                    fleet.charge(submit, tokens)
                    note(tenant, tokens * OUTPUT_PRICE)
                assert stream.usage is not None
                note(tenant, stream.usage.prompt_tokens * INPUT_PRICE)

        await asyncio.gather(*(caller(tenant) for tenant, count in CALLERS.items() for _ in range(count)))
        await migrator.close()
    bound = 2 * len(NAMES) * TENANTS_ON_A_HOST * (len(prompt) * INPUT_PRICE + FAIR_OUTPUT * OUTPUT_PRICE)
    return {
        "widest_gap": round(max(gaps) - min(gaps)),
        "bound": round(bound),
        "light_share": round(service["light"] / max(1.0, sum(service.values())), 3),
        "served": round(sum(service.values())),
    }


async def rounds(
    processes: dict[str, EngineProcess],
    systems: Sequence[System],
    alpha: float,
    rate: float,
    options: argparse.Namespace,
    digests: Sequence[str],
) -> dict[System, list[Sender]]:
    """Systems take turns, so that what else the machine does meets all of them."""
    ran: dict[System, list[Sender]] = {system: [] for system in systems}
    for number in range(options.rounds):
        requests = traffic(alpha, options.seconds, rate, options, number)
        for system in systems[number % len(systems) :] + systems[: number % len(systems)]:
            ran[system] += await play(processes, system, requests, digests)
    return ran


def of_machine(options: argparse.Namespace) -> dict[str, Any]:
    sizes = {"running": options.running, "prompt": options.prompt, "output": options.output}
    if not options.gpus:
        return {"model": "lorikeet-demo", **sizes}
    import torch

    return {"model": "llama-3.1-8b", "gpu": torch.cuda.get_device_name(), "gpus": len(NAMES), **sizes}


async def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    systems = [system for system in SYSTEMS if not options.only or system.title in options.only]
    with tempfile.TemporaryDirectory() as place, engines(Path(place), options) as processes:
        digests = await staged(Path(place), processes, options.gpus)
        rate = options.load * await capacity(processes, digests, options.capacity_seconds, options)
        print(f"{rate:.1f} requests/s, {options.load:.0%} of what the four can do", flush=True)
        for alpha in options.skews:
            ran = await rounds(processes, systems, alpha, rate, options, digests)
            for system in systems:
                figures = figures_of(ran[system])
                print(f"skew {alpha:g}  {system.title:20} {figures}", flush=True)
                settings = {"skew": alpha, "load": options.load, "rate": round(rate, 1), **asdict(system), **figures}
                settings |= of_machine(options)
                rows.append(common.row("w6 engines", f"skew {alpha:g}", "mean", figures["mean_s"], "s", **settings))
            answers = [{each.text for each in same} for same in zip(*ran.values(), strict=True)]
            differing = sum(len(texts) > 1 for texts in answers)
            assert not differing, f"{differing} of {len(answers)} requests were answered otherwise by another system"
        for system in systems if options.tenants_seconds else ():
            figures = await fairness(processes, system, options.tenants_seconds)
            print(f"two tenants  {system.title:20} {figures}", flush=True)
            rows.append(
                common.row(
                    "w6 engines", "two tenants", "widest_gap", figures["widest_gap"], "priced tokens",
                    **{**of_machine(options), **asdict(system), **figures},
                )
            )  # fmt: skip
            if system.bounded:
                assert figures["widest_gap"] <= figures["bound"], figures
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=4, help="measurements of each system, in alternation")
    parser.add_argument("--load", type=float, default=1.2)
    parser.add_argument("--skews", type=float, nargs="*", default=[1.0, 0.3, 0.1])
    parser.add_argument(
        "--tenants-seconds", type=float, default=8, help="seconds of the measurement of two tenants; 0 leaves it out"
    )
    parser.add_argument("--gpus", action="store_true", help="Llama-3.1-8B's shape, each engine on a GPU")
    parser.add_argument("--running", type=int, default=4, help="sequences of an engine at once")
    parser.add_argument("--prompt", type=int, default=60, help="mean words of a prompt")
    parser.add_argument("--output", type=int, default=24, help="mean tokens of an answer")
    parser.add_argument("--capacity-seconds", type=float, default=3)
    parser.add_argument("--out", type=Path, help="file for the rows")
    parser.add_argument("--only", action="append", help="systems by their title")
    parser.add_argument("--dry", action="store_true", help="print only")
    options = parser.parse_args()
    rows = asyncio.run(run(options))
    if not options.dry:
        common.write(rows, options.out)


if __name__ == "__main__":
    main()
