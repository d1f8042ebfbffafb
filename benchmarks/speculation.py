"""Time per token and per step with drafted tokens and without, by streams, drafts and the share of right ones.

    python benchmarks/speculation.py --out benchmarks/results/speculation.jsonl [--streams 1 16 256] [--drafts 1 2 4]
    python benchmarks/speculation.py --try-out    # whether the script runs: a tiny model on a CPU

Llama-3.1-8B's shape and an EAGLE-3 head as published for it, random weights; 16 adapters of rank 16 on q, k, v and o,
one after another. All streams have prompts of `--prompt` tokens, and decode `--tokens` each: first without drafts, then
with `--drafts` of them for each stream in every step. Weights are random, so nothing foresees what they sample. So a
coin accepts each draft with a chance of `--right`, if those before it are accepted: the draft is then the answer's next
token, whatever its row sampled. All else is the engine's: the rows of drafts are computed and sampled, and the tokens
of the next steps are processed with the keys of the accepted ones. So times are real, the number of accepted drafts is
distributed as it is told, and texts mean nothing, as without drafts.

"known" drafts are any tokens, which cost nothing: the step's rows alone. "eagle3" or "mtp" ones are those that the head
makes, with its passes. `step_ms` is the time of a step, `speedup` the streams' speed by that without drafts, measured.
"ngram" and "eagle3 default" are drafters and policy as users get them, and drafts are accepted if they are what was
sampled: on these texts, which repeat nothing and which the head does not know, both must cost next to nothing, and
beyond 32 running sequences nothing at all. A step has at most `--max-running` rows that decode; cases beyond are left
out. `--timeline` prints the device time of a step's parts and of its kernels for each case beside, with the device's
waits for the host. Only graphs that the cases use are captured. `--no-head` leaves the head out, to see what keeping
the hidden states that it reads costs steps without drafts; `--no-head-graphs` launches its passes kernel by kernel.
On hybrid models (`--model qwen3.5-9b`) recurrent layers keep the inputs of all streams' drafts. `--drafter mtp` takes
the model's own layer instead, such as GLM-4.5-Air's (`--model glm-4.5-air --quantization fp8`, 141 GB).
"""

from __future__ import annotations

import logging
import random
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Sequences
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count, groupby
from math import inf, log
from operator import itemgetter
from pathlib import Path

import offline_throughput
import torch
from device_timeline import DeviceTimeline, KernelProfile
from offline_throughput import MIXERS, MODELS, random_adapter, random_model
from rows import Rows, parser_of

from lora_engine.adapters.host_memory import PageableMemory
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.execution.graph_runner import GraphRunner
from lora_engine.execution.runner import InFlight, Sampled
from lora_engine.model.draft_head import DraftHead
from lora_engine.model.eagle_head import EagleConfig, EagleHead, EagleWeights
from lora_engine.model.head_passes import HeadPasses
from lora_engine.model.loading import keep_layer_inputs, quantises
from lora_engine.model.mtp_head import MtpHead
from lora_engine.model.parallel import Parallel
from lora_engine.model.transformer import Transformer
from lora_engine.model.weight_loading import random_mtp_weights
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.scheduling.sequence import Sequence
from lora_engine.scheduling.speculation import Drafter, Speculation, speculation_of

MODELS["tiny"] = MODELS["llama-3.1-8b"] | {
    "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 512, "max_position_embeddings": 2048,
}  # fmt: skip
MODELS["tiny-mtp"] = MODELS["glm-4.5-air"] | {
    "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 512, "max_position_embeddings": 2048,
    "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
}  # fmt: skip
MODELS["tiny-hybrid"] = MODELS["qwen3.5-9b"] | {
    "num_hidden_layers": 4, "layer_types": None, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 512, "max_position_embeddings": 2048,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
}  # fmt: skip
ADAPTERS = 16
GOLDEN_RATIO = (5**0.5 - 1) / 2
STREAMS, DRAFTS, RIGHT = (1, 4, 16, 32, 64, 128, 256), (1, 2, 3, 4, 5, 7), (0.0, 0.3, 0.5, 0.7, 0.9)


class FixedDepth(Speculation):
    """A policy that makes the same number of drafts for every sequence in every step."""

    def _depth(self, rate: float, forced: int = 0) -> int:
        return self._most

    def _is_worth_waiting(self, running: int) -> bool:
        return True


class RandomDrafts:
    """A drafter of any tokens, which cost nothing."""

    is_free = True

    def __init__(self, vocab: int) -> None:
        self._vocab, self._rnd = vocab, random.Random(5)

    def propose(self, sequences: Sequences[Sequence], most: Sequences[int]) -> list[list[int]]:
        return [[self._rnd.randrange(1, self._vocab) for _ in range(number)] for number in most]

    def forget(self, sequence: Sequence) -> None:
        """Do nothing: nothing is kept."""


@contextmanager
def accepted_by_coin(right: float | None) -> Iterator[None]:
    """Accept each draft with a chance of ``right`` if those before it are accepted, whatever its row sampled.

    The coins are evenly spread (multiples of the golden ratio), so that short runs have the same share as long ones.
    """
    tosses, by_tokens = count(1), InFlight._accepted

    def foreseen() -> float:
        if not right or right >= 1:
            return inf if right else 0
        return log(1 - next(tosses) * GOLDEN_RATIO % 1) / log(right)

    def by_coin(flight: InFlight, rows: Iterable[Sampled]) -> Iterator[Sampled]:
        for sequence, entries in groupby(rows, key=itemgetter(0)):
            most = foreseen()
            drafts = (*flight.drafts.get(sequence, ()), None)
            for number, (entry, draft) in enumerate(zip(entries, drafts, strict=False), start=1):
                if draft is None or number > most:
                    yield entry
                    break
                yield sequence, draft, None

    if right is not None:
        InFlight._accepted = by_coin  # type: ignore[method-assign]
    yield
    InFlight._accepted = by_tokens  # type: ignore[method-assign]


def random_mtp_head(model: Transformer, slots: int, *, quantised: bool) -> DraftHead:
    """Return the model's own layer with random weights."""
    weights = random_mtp_weights(model.config, model.device, model.dtype, quantised=quantised)
    head = MtpHead(model, weights, slots)
    head.run_largest()
    return head


def random_head(model: Transformer, slots: int, max_context: int) -> DraftHead:
    """Return a head with random weights, of the sizes of published ones: one layer as the model's, 32,000 tokens."""
    base, vocab = model.config, min(32_000, model.config.vocab_size)
    layer = replace(base, num_layers=1, windows=base.windows[:1], ropes=base.ropes[:1])
    hidden, keys = base.hidden_size, base.num_kv_heads * base.head_dim
    queries, inner = base.num_heads * base.head_dim, base.intermediate_size

    def matrix(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=model.device, dtype=model.dtype) * shape[-1] ** -0.5

    norm = torch.ones(hidden, device=model.device, dtype=model.dtype)
    layers = (2, base.num_layers // 2, base.num_layers - 3) if base.num_layers > 5 else (0, 1, 1)
    weights = EagleWeights(
        fc=matrix(hidden, 3 * hidden),
        qkv=matrix(queries + 2 * keys, 2 * hidden),
        out=matrix(hidden, queries),
        gate_up=matrix(2 * inner, hidden),
        down=matrix(hidden, inner),
        input_norm=norm, hidden_norm=norm, mlp_norm=norm, final_norm=norm,
        embedding=model.weights.embedding,
        lm_head=matrix(vocab, hidden),
        token_of=torch.arange(vocab, device=model.device),
    )  # fmt: skip
    config = EagleConfig(layer, layers, vocab, normed_residual=False)
    head = EagleHead(config, weights, slots, max_context, by_kernels=model.device.type == "cuda")
    head.run_largest()
    return head


@dataclass(frozen=True)
class Run:
    """The result of a case: milliseconds between two tokens of a stream and of a step, numbers of drafts."""

    token_ms: float
    step_ms: float
    drafted: int
    accepted: int
    steps: int

    @property
    def share(self) -> float:
        return self.accepted / self.drafted if self.drafted else 0.0


def run(
    engine: Engine,
    speculation: Speculation | None,
    streams: int,
    prompt: int,
    tokens: int,
    right: float | None = None,
    observer: DeviceTimeline | KernelProfile | None = None,
) -> Run:
    """Decode all streams; the time counts from when all have a token until the first has its last one.

    ``right``: the chance of a draft to be accepted; None: it is if it is the sampled token. ``observer`` sees
    that time.
    """
    engine.core.scheduler.speculation = speculation
    follows = speculation is not None and not speculation.is_free
    engine.runner.drafting = engine.core.may_draft if follows else None
    rnd, digests = random.Random(streams), [slot.digest for slot in engine.core.device_tier.slots()]
    for index in range(streams):
        sampling = SamplingParams(max_tokens=tokens, ignore_eos=True, temperature=2.0, seed=index)
        ids = [rnd.randrange(1, engine.model_config.vocab_size) for _ in range(prompt)]
        engine.add_request(GenerationRequest(str(index), ids, sampling, digests[index % len(digests)]))
    begun = set[str]()
    began, ended, counted, steps, drafted, accepted = 0.0, 0.0, 0, 0, 0, 0
    with accepted_by_coin(right):
        while engine.has_work():
            output = engine.step()
            begun.update(delta.request_id for delta in output.deltas)
            arrived = sum(len(delta.token_ids) for delta in output.deltas)
            now = time.perf_counter()
            if began and not ended:
                counted, steps = counted + arrived, steps + 1
                if output.finished:
                    ended = now
                    if observer is not None:
                        observer.stop()
            elif not began and len(begun) == streams:
                if observer is not None:
                    observer.start()
                began = time.perf_counter()
            drafted += sum(end.usage.drafted_tokens for end in output.finished)
            accepted += sum(end.usage.accepted_tokens for end in output.finished)
    seconds = ended - began
    return Run(1e3 * seconds / (counted / streams), 1e3 * seconds / steps, drafted, accepted, steps)


def arguments_of() -> Namespace:
    parser = parser_of(__doc__, out=True)
    parser.add_argument("--model", default="llama-3.1-8b", choices=[*MODELS])
    parser.add_argument("--streams", type=int, nargs="+", default=STREAMS)
    parser.add_argument("--drafts", type=int, nargs="+", default=DRAFTS)
    parser.add_argument("--right", type=float, nargs="+", default=RIGHT)
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--max-running", type=int, default=512)
    parser.add_argument("--drafter", default="eagle3", choices=["eagle3", "mtp"])
    parser.add_argument("--quantization", default="auto", choices=["auto", "fp8"])
    parser.add_argument("--timeline", action="store_true")
    parser.add_argument("--no-head", action="store_true")
    parser.add_argument("--no-head-graphs", action="store_true")
    parser.add_argument("--try-out", action="store_true")
    return parser.parse_args()


def build(arguments: Namespace) -> Engine:
    """Return an engine with all adapters on the device and all graphs captured."""
    config = EngineConfig(
        model=Path("random"), device="cuda", max_context=4096, max_running=arguments.max_running, prefix_cache=False,
        quantization=arguments.quantization,
        gpu_memory_fraction=0.86,  # the head is made after the pool
    )  # fmt: skip
    if arguments.try_out:
        hybrid = MODELS[arguments.model].get("linear_num_key_heads")
        arguments.model = "tiny-hybrid" if hybrid else "tiny-mtp" if arguments.drafter == "mtp" else "tiny"
        arguments.prompt, arguments.tokens = 8, 24
        arguments.streams, arguments.drafts, arguments.right = (1, 3), (1, 4), (0.0, 0.8)
        offline_throughput._memory = PageableMemory()
        offline_throughput._noise[False] = 0.01 * torch.randn(1 << 20, dtype=torch.bfloat16)
        config = replace(config, device="cpu", dtype="bfloat16", pool_mb=64, max_context=256, max_running=32)
    if MODELS[arguments.model].get("linear_num_key_heads"):
        sizes = {"speculation_tokens": max(arguments.drafts), "speculation_max_running": max(arguments.streams)}
        config = replace(config, speculation="ngram", **sizes)
    source = LoadedAdapters()
    loaded = random_model(replace(config, model_name=arguments.model), Parallel())
    loaded.kernels_ahead = True  # few graphs at start: `settle` captures what cases need
    if not arguments.no_head:
        with torch.inference_mode():
            slots = min(max(arguments.streams), config.max_running // 2)
            if arguments.drafter == "mtp":
                head = random_mtp_head(loaded.model, slots, quantised=quantises(config))
            else:
                head = random_head(loaded.model, slots, config.max_context)
        loaded.draft_head = HeadPasses(head, max(arguments.drafts))
        if loaded.model.device.type == "cuda" and not arguments.no_head_graphs:
            loaded.draft_head.capture()
        keep_layer_inputs(loaded.model, head, max(config.max_step_tokens, config.graph_rows))
    engine = Engine(config, source, loaded)
    for index in range(ADAPTERS):
        source.add(adapter := random_adapter(engine, index, 16, MIXERS))
        engine.add_request(GenerationRequest(adapter.digest, [1, 2], SamplingParams(max_tokens=1), adapter.digest))
    if isinstance(engine.runner, GraphRunner):
        engine.runner.graphs._others.clear()
        engine.runner.graphs.steps_between = 1 << 60  # none while streams are measured
    while engine.has_work():  # adapters
        engine.step()
    return engine


def settle(engine: Engine) -> None:
    """Capture the graphs that steps would have needed so far."""
    while isinstance(engine.runner, GraphRunner) and engine.use_idle_time():
        """One more is captured."""


def main() -> None:
    arguments, began = arguments_of(), time.perf_counter()
    engine = build(arguments)
    print(f"engine up in {time.perf_counter() - began:.1f} s: {engine.runner.start_seconds}", flush=True)
    config = engine.config
    rows = Rows(arguments.out, "speculation", arguments.model, prompt=arguments.prompt, tokens=arguments.tokens)
    for streams in arguments.streams:
        size = streams, arguments.prompt, arguments.tokens
        run(engine, None, *size)  # shapes of steps that are compiled when they come
        settle(engine)
        if arguments.timeline:
            observe(engine, f"{streams} streams, none", None, *size)
        plain = run(engine, None, *size)
        rows.add(f"{streams} streams, none", "token_ms", plain.token_ms, "ms")
        defaults = {"ngram": speculation_of(replace(config, speculation="ngram"))}
        if (head := engine._head) is not None:
            chosen = replace(config, speculation=arguments.drafter)
            defaults[f"{arguments.drafter} default"] = speculation_of(chosen, head)
        for name, policy in defaults.items():
            run(engine, policy, *size)
            settle(engine)
            result = run(engine, policy, *size)
            speed = plain.token_ms / result.token_ms
            rows.add(f"{streams} streams, {name}", "token_ms", result.token_ms, "ms", settings=_settings(result))
            rows.add(f"{streams} streams, {name}", "speedup", speed, "", settings=_settings(result))
        for drafts in arguments.drafts:
            if streams * (1 + drafts) > config.max_running:
                continue
            for right in arguments.right:
                drafters: dict[str, Drafter] = {"known": RandomDrafts(engine.model_config.vocab_size)}
                if head is not None:
                    drafters[arguments.drafter] = head
                for name, drafter in drafters.items():
                    case, policy = (
                        f"{streams} streams, {name}, {drafts} of {right}",
                        FixedDepth(drafter, drafts, streams),
                    )
                    run(engine, policy, *size, right)
                    settle(engine)
                    if arguments.timeline:
                        observe(engine, case, policy, *size, right)
                    result = run(engine, policy, *size, right)
                    settings = {"drafts": drafts, "right": right, **_settings(result)}
                    speed = plain.token_ms / result.token_ms
                    rows.add(case, "token_ms", result.token_ms, "ms", settings=settings)
                    rows.add(case, "step_ms", result.step_ms, "ms", settings=settings)
                    rows.add(case, "speedup", speed, "", settings=settings)
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def observe(
    engine: Engine, case: str, policy: Speculation | None, streams: int, prompt: int, tokens: int, *right: float
) -> None:
    """Print where the device's time goes in some steps of a case."""
    for observer in (DeviceTimeline(), KernelProfile()):
        result = run(engine, policy, streams, prompt, min(tokens, 32), *right, observer=observer)
        observer.report(case, result.steps)


def _settings(result: Run) -> dict[str, float]:
    return {"drafted": result.drafted, "accepted_share": round(result.share, 3)}


if __name__ == "__main__":
    logging.basicConfig(level="WARNING", format="%(message)s")
    main()
