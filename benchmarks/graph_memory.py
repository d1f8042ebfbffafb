"""The memory that captured graphs keep, and the captures in the time of requests, on one GPU or several.

    python benchmarks/graph_memory.py [--tensor-parallel 2] [--model llama-3.1-8b] [--adapters 64] [--streams 8]

Random weights. The engine starts with the first graphs, as after a start with compiled kernels. Then `--streams`
requests run all the time, for `--seconds`, each with one of the adapters (ranks 8 to 64, round-robin), while a second
set of streams begins and ends, so that sizes of batches change. Then nothing runs, until all graphs are captured. Each
line has the graphs, what they keep, the graphs that were left out for want of memory, the captures while requests ran,
the time that these took, and torch's and the driver's view of the device's memory.
"""

from __future__ import annotations

import logging
import random
import time
from pathlib import Path

import torch
from offline_throughput import MIXED, MIXERS, MODELS, build_engine, random_adapter
from rows import Rows, parser_of

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.execution.graph_runner import GraphRunner
from lora_engine.request import GenerationRequest, SamplingParams


def figures(engine: Engine) -> dict[str, float]:
    """Return the number of graphs of rank 0 and the use of its device's memory, in MiB."""
    assert isinstance(engine.runner, GraphRunner)
    graphs, device = engine.runner.graphs, engine.pool.data.device
    free, total = torch.cuda.mem_get_info(device)
    segments = [each for each in torch.cuda.memory_snapshot() if each["device"] == (device.index or 0)]
    of_graphs = sum(each["total_size"] for each in segments if tuple(each["segment_pool_id"]) != (0, 0))
    reserved = torch.cuda.memory_reserved(device)
    return {
        "graphs": len(graphs),
        "kept_mib": graphs.kept_bytes >> 20,
        "left_out": len(graphs._without),
        "not_captured": len(graphs._others),
        "captured_under_load": graphs.captured_under_load,
        "seconds_under_load": round(graphs.seconds_under_load, 3),
        "graphs_tensors_mib": of_graphs >> 20,
        "cached_mib": (reserved - torch.cuda.memory_allocated(device) >> 20),
        "outside_torch_mib": (total - free - reserved) >> 20,
    }


def run(engine: Engine, digests: list[str], streams: int, seconds: float) -> None:
    """Keep between ``streams`` and twice as many requests running."""
    rnd, number, until = random.Random(1), 0, time.perf_counter() + seconds
    vocab = engine.model_config.vocab_size
    while time.perf_counter() < until:
        most = streams * (1 + int(time.perf_counter()) % 2)
        while engine.num_running + engine.num_waiting < most:
            number += 1
            prompt = [rnd.randrange(vocab) for _ in range(rnd.choice((32, 128, 512)))]
            sampling = SamplingParams(max_tokens=rnd.choice((16, 64, 128)), ignore_eos=True)
            engine.add_request(GenerationRequest(f"r{number}", prompt, sampling, digests[number % len(digests)]))
        engine.step()
    while engine.has_work():
        engine.step()


def main() -> None:
    parser = parser_of(__doc__, out=True)
    parser.add_argument("--model", choices=MODELS, default="llama-3.1-8b")
    parser.add_argument("--tensor-parallel", type=int, default=1)
    parser.add_argument("--quantization", choices=("auto", "fp8"), default="auto")
    parser.add_argument("--adapters", type=int, default=64)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30)
    args = parser.parse_args()
    config = EngineConfig(
        model=Path("random"), device="cuda", max_context=4096, quantization=args.quantization,
        tensor_parallel=args.tensor_parallel, prefix_cache=False,
    )  # fmt: skip
    # The kernels of a model with random weights are not compiled ahead, so that the engine would capture all at start.
    whole = GraphRunner.__init__

    def deferred(runner: GraphRunner, *arguments: object, **options: object) -> None:
        values = list(arguments)
        values[5] = True
        whole(runner, *values, **options)  # type: ignore[arg-type]

    GraphRunner.__init__ = deferred  # type: ignore[method-assign]
    source = LoadedAdapters()
    engine = build_engine(args.model, config, source)
    digests = [""]
    for index in range(args.adapters):
        packed = random_adapter(engine, index, MIXED[index % len(MIXED)], MIXERS)
        source.add(packed)
        digests.append(packed.digest)
    rows = Rows(args.out, "graph memory", args.model, gpus=args.tensor_parallel, streams=args.streams)

    def report(case: str) -> None:
        measured = figures(engine)
        rows.add(case, "kept", measured["kept_mib"], "MiB", None, "lorikeet", measured)
        print(case, measured, flush=True)

    report("after the start")
    run(engine, digests, args.streams, args.seconds)
    report("after the load")
    while engine.use_idle_time():
        """Until all are there."""
    report("after idle time")
    run(engine, digests, args.streams, args.seconds)
    report("after more load")


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(message)s")
    main()
