"""The cost of constraining answers to a schema: a decode load with some answers constrained, and the first token.

    python benchmarks/structured_outputs.py --out benchmarks/results/structured_outputs.jsonl [--model llama-3.1-8b]

256 requests at once, as W1 has them but with longer answers (256 tokens in and out, 32 adapters of ranks 8 to 64), of
which none, a quarter or all are held to one of eight JSON Schemas that do not end before those. Random weights,
and a vocabulary of 128,256 made-up words, numbers and punctuation, so that masks cost what they cost with a real one.
The cases are run in turn, `--rounds` times; the rate of a case is the median, its loss the median over rounds of what
it loses to the round's run without constraints.

First token: a request alone, from its submission to its first token, in which a schema is compiled that is new each
time; and beside 128 running requests, where the schema is compiled on a thread as the engine host does it.
"""

from __future__ import annotations

import json
import logging
import random
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import offline_throughput
import torch
from offline_throughput import MIXED, MIXERS, MODELS, build_engine, random_adapter
from rows import Rows, parser_of
from tokenizers import Tokenizer as HfTokenizer
from tokenizers import decoders, models, pre_tokenizers

from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.constraints import Constraint, Kind
from lora_engine.engine import Engine
from lora_engine.request import GenerationRequest, SamplingParams
from lora_engine.structured import Grammar

PROMPT, OUTPUT = 256, 256
SHARES = {"none constrained": 0.0, "a quarter constrained": 0.25, "all constrained": 1.0}
FIRST_TOKENS = 20
END = "<|end|>"


def tokenizer_folder(vocab_size: int) -> Path:
    """Words with and without a space before them, numbers, punctuation as source code has it, and single bytes."""
    rnd = random.Random("words")
    syllables = [a + b + c for a in "bcdfghklmnprstvw" for b in "aeiou" for c in ("", "n", "r", "s", "t", "l")]
    pieces = dict.fromkeys(sorted(pre_tokenizers.ByteLevel.alphabet()))
    pieces |= dict.fromkeys(str(number) for number in range(1000))
    marks = ['"', "{", "}", "[", "]", ":", ",", ".", "-", "_", "(", ")", "=", "/", "Ġ", "Ċ"]
    pieces |= dict.fromkeys(a + b for a in marks for b in marks)
    pieces |= dict.fromkeys(a + b + c for a in marks for b in marks for c in marks)
    while len(pieces) < vocab_size - 1:
        word = "".join(rnd.choices(syllables, k=rnd.randint(1, 4)))
        pieces[rnd.choice(("Ġ", "Ġ", "")) + rnd.choice((word, word, word.capitalize()))] = None
    names = [*list(pieces)[: vocab_size - 1], END]
    folder = Path(tempfile.mkdtemp())
    tokenizer = HfTokenizer(models.BPE(vocab={name: index for index, name in enumerate(names)}, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([END])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"eos_token_id": vocab_size - 1}))
    return folder


def endless(variant: object) -> Constraint:
    """Records of eight fields of every type, more of them than fit into an answer."""
    name = f"field_{variant}"
    record = {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "minimum": 1},
            name: {"type": "string", "maxLength": 200},
            "kind": {"enum": ["order", "refund", "question", f"other {variant}"]},
            "price": {"type": "number"},
            "date": {"type": "string", "format": "date"},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1},
            "address": {
                "type": "object",
                "properties": {"street": {"type": "string"}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
                "required": ["street", "zip"],
                "additionalProperties": False,
            },
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["id", name, "kind", "price", "date", "tags", "address", "note"],
        "additionalProperties": False,
    }
    return Constraint(Kind.JSON_SCHEMA, json.dumps({"type": "array", "items": record, "minItems": 1000}))


def request(name: str, rnd: random.Random, vocab: int, digest: str, grammar: Grammar | None, output: int) -> Any:
    prompt = [rnd.randrange(vocab - 1) for _ in range(PROMPT)]
    params = SamplingParams(max_tokens=output, ignore_eos=True)
    return GenerationRequest(name, prompt, params, digest, grammar=grammar)


def load(engine: Engine, name: str, share: float, digests: list[str], requests: int) -> dict[str, Any]:
    """Run the load once."""
    rnd, vocab = random.Random("load"), engine.model_config.vocab_size
    grammars = [engine.grammars.compile(endless(index)) for index in range(8)] if share else []
    constrained = {index for index in range(requests) if int((index + 1) * share) > int(index * share)}
    work = [
        request(
            f"{name}-{index}", rnd, vocab, digests[index % len(digests)] if digests else "",
            grammars[index % 8] if index in constrained else None, OUTPUT,
        )
        for index in range(requests)
    ]  # fmt: skip
    waits, hold = [0], engine.core.hold

    def counted(sequence: Any) -> None:
        waits[0] += 1
        hold(sequence)

    engine.core.hold = counted  # type: ignore[method-assign]
    _synchronize()
    started = time.perf_counter()
    for each in work:
        engine.add_request(each)
    tokens, decode = 0, []
    while engine.has_work():
        before = time.perf_counter()
        output = engine.step()
        tokens += sum(len(delta.token_ids) for delta in output.deltas)
        assert all(end.error is None for end in output.finished), output.finished
        if not engine.num_waiting and len(output.deltas) == min(requests, engine.config.max_running):
            decode.append(time.perf_counter() - before)
    _synchronize()
    seconds = time.perf_counter() - started
    engine.core.hold = hold  # type: ignore[method-assign]
    step_ms = statistics.median(decode) * 1e3 if decode else None
    return {
        "tokens_per_s": tokens / seconds,
        "step_ms": step_ms,
        "held": waits[0],
        "constrained_tokens": OUTPUT * len(constrained),
    }


def first_token_ms(engine: Engine, name: str, constraint: Constraint | None, beside: int) -> float:
    """Return milliseconds from submission to the first token; the schema is compiled on a thread while ``beside``
    others decode.
    """
    rnd, vocab, threads = random.Random(name), engine.model_config.vocab_size, ThreadPoolExecutor(1)
    for index in range(beside):
        engine.add_request(request(f"{name} beside {index}", rnd, vocab, "", None, 3000))
    while engine.num_waiting or any(sequence.num_output < 3 for sequence in engine.core.scheduler.running):
        engine.step()
    mine = request(name, rnd, vocab, "", None, 4)
    _synchronize()
    started = time.perf_counter()
    compiling = threads.submit(engine.grammars.compile, constraint) if constraint else None
    added = False
    while True:
        if not added and (compiling is None or compiling.done() or not beside):
            grammar = compiling.result() if compiling else None
            engine.add_request(GenerationRequest(name, mine.prompt_token_ids, mine.sampling, grammar=grammar))
            added = True
        if any(delta.request_id == name for delta in engine.step().deltas):
            break
    took = time.perf_counter() - started
    for request_id in list(engine.core.requests):
        engine.abort(request_id)
    while engine.has_work():
        engine.step()
    threads.shutdown()
    return took * 1e3


def mask_us(engine: Engine, constraint: Constraint) -> list[float]:
    """Return the times of single masks, along an answer drawn at random from the tokens that they allow."""
    rnd, times = random.Random("masks"), []
    masks = engine.grammars.compile(constraint).start()
    for _ in range(300):
        bits = [index for index, word in enumerate(masks.mask.tolist()) if word]
        word = rnd.choice(bits)
        value = int(masks.mask[word]) & 0xFFFFFFFF
        masks.take(word * 32 + rnd.choice([bit for bit in range(32) if value >> bit & 1]))
        began = time.perf_counter()
        masks.begin_mask()
        while not masks.ready:
            time.sleep(0)
        times.append((time.perf_counter() - began) * 1e6)
    return sorted(times)


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def main() -> None:
    parser = parser_of(__doc__, out=True)
    parser.add_argument("--model", choices=MODELS, default="llama-3.1-8b")
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--adapters", type=int, default=32)
    parser.add_argument("--capture-s", type=float, default=8, help="seconds to capture graphs in, before it measures")
    arguments = parser.parse_args()
    offline_throughput.tokenizer_folder = tokenizer_folder
    source = LoadedAdapters()
    config = EngineConfig(
        model=Path("random"), device="cuda", max_context=8192, max_running=256, step_tokens=4096, prefix_cache=False
    )
    started = time.perf_counter()
    engine = build_engine(arguments.model, config, source)
    digests = []
    for index in range(arguments.adapters):
        packed = random_adapter(engine, index, MIXED[index % len(MIXED)], MIXERS)
        source.add(packed)
        digests.append(packed.digest)
    print(f"engine up in {time.perf_counter() - started:.1f} s", flush=True)
    settings = {"requests": arguments.requests, "prompt": PROMPT, "output": OUTPUT, "adapters": arguments.adapters}
    settings |= {"max_running": 256}
    rows = Rows(arguments.out, "structured_outputs", arguments.model, **settings)
    began = time.perf_counter()
    engine.grammars.compile(Constraint(Kind.JSON_OBJECT))
    rows.add("first constraint of an engine", "seconds", time.perf_counter() - began, "s")
    times = mask_us(engine, endless("masks"))
    quantiles = {"p99": round(times[int(len(times) * 0.99)], 1), "most": round(times[-1], 1)}
    rows.add("a mask, with its thread", "mask_us", statistics.median(times), "us", settings=quantiles)
    load(engine, "warm-up", 0.5, digests, 300)
    until = time.perf_counter() + arguments.capture_s
    while time.perf_counter() < until and engine.use_idle_time():
        """Most graphs are there before anything is measured."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in SHARES}
    for repeat in range(arguments.rounds):
        for name, share in SHARES.items():
            runs[name].append(load(engine, f"{name} {repeat}", share, digests, arguments.requests))
            print(name, runs[name][-1], flush=True)
    for name, results in runs.items():
        rates = [run["tokens_per_s"] for run in results]
        free = [run["tokens_per_s"] for run in runs["none constrained"]]
        more = {"each_run": [round(rate, 1) for rate in rates], "held": [run["held"] for run in results],
                "constrained_tokens": results[0]["constrained_tokens"]}  # fmt: skip
        rows.add(name, "tokens_per_s", statistics.median(rates), "1/s", settings=more)
        steps = [run["step_ms"] for run in results if run["step_ms"]]
        if steps:
            rows.add(name, "step_ms", statistics.median(steps), "ms")
        losses = [(1 - rate / base) * 100 for rate, base in zip(rates, free, strict=True)]
        if name != "none constrained":
            rows.add(name, "loss", statistics.median(losses), "%", settings={"each_run": [round(x, 2) for x in losses]})
    for beside in (0, 128):
        where = f"beside {beside}" if beside else "alone"
        for what in ("free", "known schema", "new schema"):
            first: list[float] = []
            for repeat in range(FIRST_TOKENS if not beside else 3):
                variant = f"{where} {repeat}" if what == "new schema" else "known"
                if what == "known schema":
                    engine.grammars.compile(endless(variant))
                constraint = None if what == "free" else endless(variant)
                first.append(first_token_ms(engine, f"{where} {what} {repeat}", constraint, beside))
            more = {"runs": len(first), "most": round(max(first), 2)}
            rows.add(f"first token {where}, {what}", "first_token_ms", statistics.median(first), "ms", settings=more)


if __name__ == "__main__":
    logging.basicConfig(level="WARNING", format="%(message)s")
    main()
