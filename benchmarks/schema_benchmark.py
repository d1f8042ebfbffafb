"""JSON Schemas of a file, such as a sample of JSONSchemaBench: accepted or refused, and answers drawn at random.

    python benchmarks/schema_benchmark.py schemas.jsonl --run after --out benchmarks/results/schemas.jsonl

The file has one `{"name", "schema"}` a line. Each schema is compiled in a process of its own, with a limit on its time
and memory, for a tokenizer of single bytes, as the web tier compiles it. Of an accepted schema, answers are drawn from
its masks and validated by the `jsonschema` library. Outcomes: `accepted`; `refused`, with keyword, path and message;
`died`, if no byte was allowed before an answer was complete, or the process ended; `hung`, if the time ran out.
`invalid` counts the answers that the schema forbids and that the check of finished answers does not name, `named`
those that it names. `examples` counts the schema's own valid examples, and `written` those that an answer can be.

Writes one row for each schema and one with the sums.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import resource
import statistics
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
from rows import commit, machine

from lora_engine.constraints import (
    Compiled,
    Constraint,
    ConstraintError,
    Kind,
    compile_constraint,
    door_tokenizer,
    violations,
)

# Seconds and bytes of address space of the process of one schema.
LIMIT_S, LIMIT_BYTES = 120, 4 << 30
# Bytes of an answer after which it counts as one that does not end.
LONGEST = 6000
# Share of draws that take a byte that closes something, if one is allowed; answers should end.
CLOSING = 0.7
CLOSES = np.frombuffer(b'"}],', dtype=np.uint8)
Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("schemas", type=Path, help='file with one {"name", "schema"} a line')
    parser.add_argument("--run", default="run", help="name of this run in the rows")
    parser.add_argument("--answers", type=int, default=8, help="answers that are drawn of each schema")
    parser.add_argument("--best-effort", action="store_true", help='compile as without "strict": true')
    parser.add_argument("--out", type=Path, help="file that rows are appended to")
    args = parser.parse_args()
    entries = [json.loads(line) for line in args.schemas.read_text().splitlines()]
    compile_constraint(Constraint(Kind.JSON_OBJECT), door_tokenizer())  # the library is loaded before the clock runs
    rows = [
        {"run": args.run, "name": entry["name"], **isolated(entry["schema"], args.answers, args.best_effort)}
        for entry in entries
    ]
    rows.append({"run": args.run, **summary(rows), "commit": commit(), **machine()})
    for row in rows:
        if row.get("outcome") != "accepted" or row["invalid"]:
            print(json.dumps(row))
    if args.out is not None:
        with args.out.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def isolated(schema: Any, answers: int, best_effort: bool) -> Row:
    """Return the row of a schema, tried in a process of its own."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=_send, args=(there, schema, answers, best_effort), daemon=True)
    process.start()
    there.close()
    try:
        row: Row = here.recv() if here.poll(LIMIT_S) else {"outcome": "hung"}
    except EOFError:
        row = {"outcome": "died", "reason": "The process ended."}
    process.kill()
    process.join()
    return row


def _send(pipe: Connection, schema: Any, answers: int, best_effort: bool) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    pipe.send(tried(schema, answers, best_effort))


def tried(schema: Any, answers: int, best_effort: bool) -> Row:
    """Compile a schema, and draw and validate answers."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    row: Row = {"bytes": len(text)}
    started = time.perf_counter()
    try:
        compiled = compile_constraint(Constraint(Kind.JSON_SCHEMA, text, best_effort), door_tokenizer())
    except ConstraintError as error:
        keyword = error.path.rsplit(".", 1)[-1]
        return {**row, "outcome": "refused", "keyword": keyword, "path": error.path, "reason": error.message}
    finally:
        row["compile_ms"] = round((time.perf_counter() - started) * 1000, 1)
    schema = json.loads(text)
    validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)(schema)
    row |= {"outcome": "accepted", "checks": [check.path for check in compiled.checks]}
    row |= dict.fromkeys(("valid", "named", "invalid", "unended"), 0)
    for seed in range(answers):
        answer, complete = drawn(compiled, random.Random(seed))
        if not complete and len(answer) < LONGEST:
            return {**row, "outcome": "died", "reason": f"after {answer[-200:]!r}"}
        row[verdict(compiled, schema, validator, answer) if complete else "unended"] += 1
    examples = [one for one in examples_of(schema) if validator.is_valid(one)]
    return {**row, "examples": len(examples), "written": sum(writes(compiled, example) for example in examples)}


def drawn(compiled: Compiled, rnd: random.Random) -> tuple[bytes, bool]:
    """Return an answer drawn from the masks, and whether it is complete."""
    matcher, text, end = compiled.matcher.deep_copy(), bytearray(), door_tokenizer().eos_token
    while len(text) < LONGEST:
        allowed = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8), bitorder="little").nonzero()[
            0
        ]
        if matcher.is_error() or not len(allowed):
            return bytes(text), False
        if end in allowed:
            return bytes(text), True
        closing = allowed[np.isin(allowed, CLOSES)]
        token = int(rnd.choice(closing if len(closing) and rnd.random() < CLOSING else allowed))
        text.append(token)
        if not matcher.consume_token(token):
            return bytes(text), False
        if matcher.is_stopped():
            return bytes(text), True
    return bytes(text), False


def verdict(compiled: Compiled, schema: Any, validator: Any, answer: bytes) -> str:
    """Return whether an answer is valid, and if not, whether the check at the end names it."""
    if validator.is_valid(json.loads(answer)):
        return "valid"
    return "named" if compiled.checks and violations(schema, answer.decode()) else "invalid"


def examples_of(schema: Any) -> list[Any]:
    examples = schema.get("examples") if isinstance(schema, dict) else None
    return examples if isinstance(examples, list) else []


def writes(compiled: Compiled, value: Any) -> bool:
    """Return whether an answer can be this value."""
    matcher = compiled.matcher.deep_copy()
    tokens = door_tokenizer().tokenize_str(json.dumps(value, ensure_ascii=False))
    return bool(matcher.consume_tokens(tokens) and matcher.is_accepting())


def summary(rows: list[Row]) -> Row:
    outcomes = Counter(row["outcome"] for row in rows)
    times = sorted(row["compile_ms"] for row in rows if "compile_ms" in row)
    sums = {name: sum(row.get(name, 0) for row in rows) for name in ("valid", "named", "invalid", "unended")}
    return {
        "schemas": len(rows),
        **{outcome: outcomes[outcome] for outcome in ("accepted", "refused", "died", "hung")},
        "refused_by": dict(Counter(row["keyword"] for row in rows if row["outcome"] == "refused").most_common()),
        "checked_at_the_end": sum(bool(row.get("checks")) for row in rows),
        "schemas_with_invalid_answers": sum(bool(row.get("invalid")) for row in rows),
        "answers": sums,
        "examples": sum(row.get("examples", 0) for row in rows),
        "examples_written": sum(row.get("written", 0) for row in rows),
        "compile_ms_median": statistics.median(times),
        "compile_ms_99th": times[int(len(times) * 0.99)],
        "compile_ms_most": times[-1],
    }


if __name__ == "__main__":
    main()
