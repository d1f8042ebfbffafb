"""Adapters from their upload to an answer: what the validation accepts, an engine packs, loads and answers with.

Real adapters of PEFT (`tests/engine/older_peft`), alone or with one of them as the initial one, some with a chat
template, whose configs, headers, values and templates were changed. Each is refused by name, at its upload or its
staging, or its requests end: with tokens, or because the numbers overflowed. Requests come by themselves and beside
others: with the adapter combined with earlier ones, with its invocation anywhere in the prompt, and while adapters and
the beginnings of prompts are pinned.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from lorikeet_testing.adapter_forms import CHATML
from lorikeet_testing.fuzzing import changed, fuzz
from lorikeet_testing.peft_files import as_candidate
from lorikeet_testing.tiny_models import VOCAB, adapter_at, geometry_of, pack_for, save_model

from control_plane.adapters.uploads.validation_sandbox import validate
from lora_engine.adapters.combining import combine
from lora_engine.adapters.host_memory import PageableMemory
from lora_engine.adapters.layout import PackedAdapter
from lora_engine.adapters.source import LoadedAdapters
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.errors import StageError
from lora_engine.peft_format import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    Part,
    adapter_digest,
    combined_digest,
    folder_digests,
    parts_of,
)
from lora_engine.request import GenerationRequest, PinnedPrefix, PinState, SamplingParams, Slo

WRITTEN = Path(__file__).resolve().parents[1] / "engine" / "older_peft" / "0.17.1"
KINDS = {
    folder.name: {name: (folder / name).read_bytes() for name in (CONFIG_FILE, WEIGHTS_FILE)}
    for folder in sorted(WRITTEN.iterdir())
}
RANK = 16  # of which the engine takes adapters
ENGINE_CASES = 200  # of one engine: what it holds is bounded so
ENDS = {"finished", "adapter_overflow"}
WEIGHTS = (1.0, 0.5, -0.3, 10.0, -10.0, 0.0001, 9.9999)
LONG_PROMPT = [*range(5, 45)]  # of more than two pages
Files = dict[str, bytes]
TEMPLATES: list[Files] = [
    {"chat_template.jinja": CHATML.encode()},
    {"tokenizer_config.json": json.dumps({"chat_template": CHATML, "eos_token": {"content": "</s>"}}).encode()},
    {"chat_template.jinja": b"{% macro f(m) %}{{ m.content | trim }}{{ f(m) }}{% endmacro %}{{ f(messages[0]) }}"},
    {"tokenizer_config.json": json.dumps({"chat_template": [{"name": "default", "template": CHATML}]}).encode()},
]

NUMBERS = st.sampled_from([1, 2, 4, 4, 8, 8, 16, 0.5, 1e9, 0, 17, -1, 1e30, True, None, "8"])
RANKS = st.dictionaries(st.sampled_from(["r", "lora_alpha"]), NUMBERS, max_size=2)
SETTINGS: st.SearchStrategy[dict[str, Any]] = st.just({}) | RANKS
FLAGS = st.dictionaries(st.sampled_from(["use_dora", "use_rslora", "lora_bias", "fan_in_fan_out"]), st.booleans())
MORE = st.fixed_dictionaries(
    {},
    optional={
        "bias": st.sampled_from(["none", "all", "lora_only"]),
        "init_lora_weights": st.sampled_from([True, False, "pissa", "olora", "gaussian", "loftq"]),
        "rank_pattern": st.dictionaries(st.sampled_from(["q_proj", "v_proj", "x"]), NUMBERS, max_size=2),
        "alpha_pattern": st.dictionaries(st.sampled_from(["q_proj", "v_proj", "x"]), NUMBERS, max_size=2),
        "target_modules": st.lists(st.sampled_from(["q_proj", "v_proj", "down_proj", "lm_head"]), unique=True),
        "alora_invocation_tokens": st.lists(st.integers(-1, VOCAB), max_size=3) | st.sampled_from([[7], [8, 9]]),
    },
)


@st.composite
def uploads(draw: st.DrawFn) -> Files:
    files = dict(KINDS[draw(st.sampled_from(sorted(KINDS)))])
    if draw(st.booleans()):
        initial = KINDS[draw(st.sampled_from(sorted(KINDS)))] if draw(st.booleans()) else files
        files |= {f"pissa_init/{name}": content for name, content in initial.items()}
    if draw(st.integers(0, 3)) == 0:
        files |= draw(st.sampled_from(TEMPLATES))
    config = {**json.loads(files[CONFIG_FILE]), **draw(st.just({}) | SETTINGS | FLAGS | MORE)}
    return files | {CONFIG_FILE: json.dumps(config).encode()}


def with_other_bytes(files: Files, rnd: random.Random) -> Files:
    """Mostly of the values, which have no checksum: large ones, of which the numbers overflow, and some not finite."""
    name = WEIGHTS_FILE if rnd.random() < 0.6 else rnd.choice(sorted(files))
    content = files[name]
    if not name.endswith(WEIGHTS_FILE) or rnd.random() < 0.2:
        return {**files, name: changed(content, rnd)}
    start = 8 + int.from_bytes(content[:8], "little")
    values, largest = bytearray(content[start:]), rnd.choice([1.0, 1e3, 1e20, 3e38])
    for _ in range(rnd.randint(1, 400)):
        put = rnd.uniform(-largest, largest)
        struct.pack_into("<f", values, 4 * rnd.randrange(len(values) // 4), put)
    if rnd.random() < 0.1:
        struct.pack_into("<f", values, 0, rnd.choice([math.inf, math.nan]))
    return {**files, name: content[:start] + bytes(values)}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole-path") / "model"
    save_model("llama3-scaled-rope-tied", folder)
    return folder


class Host:
    """An engine with the adapters that it was given, and what is asked of it beside each."""

    def __init__(self, model: Path) -> None:
        self.source = LoadedAdapters()
        self.engine = Engine(EngineConfig(model=model, pool_mb=4, max_lora_rank=RANK), self.source)
        self.packed: dict[str, PackedAdapter] = {}

    def answered(self, folder: Path) -> str:
        """How requests with the adapter and its combination end, or why the host does not take them."""
        adapter = adapter_at("it", folder)
        try:
            packed = pack_for(self.engine, adapter)
        except StageError as error:  # which only shows beside the base's weights: DoRA that divides by a norm of 0
            return code_of(error)
        self.source.add(packed)
        self.packed[packed.digest] = packed
        rnd = random.Random(packed.digest)
        requests = [self._alone(packed, rnd), *self._pins(rnd)]
        refused = ""
        try:
            requests += self._combined(packed, rnd)
        except StageError as error:
            refused = code_of(error)
        ends = self._ends(requests)
        assert set(ends.values()) <= ENDS, ends
        found = [
            ends["alone"],
            *(["combined: " + (refused or ends["combined"])] if refused or "combined" in ends else []),
        ]
        return ", ".join(found)

    def _alone(self, packed: PackedAdapter, rnd: random.Random) -> GenerationRequest:
        """Its invocation, if it has one, is missing, at an end, in the middle, or in several places."""
        prompt = LONG_PROMPT[: rnd.choice([4, 16, 17, 40])]
        for _ in range(rnd.choice([0, 1, 1, 2])):
            at = rnd.randint(0, len(prompt))
            prompt = [*prompt[:at], *packed.layout.invocation_tokens, *prompt[at:]]
        return self._request("alone", packed.digest, prompt, rnd)

    def _combined(self, packed: PackedAdapter, rnd: random.Random) -> Iterator[GenerationRequest]:
        others = rnd.sample(sorted(self.packed), rnd.randint(0, min(4, len(self.packed))))
        if not others:
            return
        digests = [packed.digest, *others][:4]
        digest = combined_digest(Part(each, rnd.choice(WEIGHTS)) for each in digests)
        parts = [(self.packed[part.digest], part.weight) for part in parts_of(digest)]
        assert len(parts) == len(digests)
        geometry, targets = self.engine.pool.geometry, self.engine.targets
        self.source.add(combine(digest, parts, geometry, targets, PageableMemory(), RANK))
        yield self._request("combined", digest, LONG_PROMPT[: rnd.choice([4, 40])], rnd)

    def _pins(self, rnd: random.Random) -> Iterator[GenerationRequest]:
        """Other ones for every adapter; those of which the beginning has to be computed."""
        digests = sorted(self.packed)
        self.engine.pin_adapters(rnd.sample(digests, rnd.randint(0, min(3, len(digests)))))
        wanted = {}
        for number in range(rnd.randint(0, 3)):
            tokens = LONG_PROMPT[: rnd.choice([16, 32, 40])]
            owner = rnd.choice("ab"), rnd.choice(["", *digests]), rnd.choice(["", "salt"])
            wanted[f"p{number}"] = PinnedPrefix(f"p{number}", *owner, tokens)
        for name, state in self.engine.pin_prefixes(wanted.values()).items():
            if state is PinState.MISSING:
                pin = wanted[name]
                yield GenerationRequest(
                    name, pin.token_ids, adapter_digest=pin.adapter_digest, tenant=pin.tenant,
                    slo=Slo(background=True), prompt_only=True, cache_salt=pin.cache_salt, pin=name,
                )  # fmt: skip

    def _request(self, name: str, digest: str, prompt: list[int], rnd: random.Random) -> GenerationRequest:
        params = SamplingParams(max_tokens=3, ignore_eos=True)
        salt = rnd.choice(["", "salt"])
        return GenerationRequest(name, prompt, params, digest, tenant=rnd.choice("ab"), cache_salt=salt)

    def _ends(self, requests: list[GenerationRequest]) -> dict[str, str]:
        for request in requests:
            self.engine.add_request(request)
        ends: dict[str, str] = {}
        for step in range(200):
            if not self.engine.has_work():
                break
            output = self.engine.step()
            if step % 3 == 0:
                self.engine.use_idle_time()
            self.engine.core.check()
            ends |= {end.request_id: end.error.code if end.error else "finished" for end in output.finished}
        assert ends.keys() == {request.request_id for request in requests}
        return ends


def code_of(error: StageError) -> str:
    assert error.code and str(error) and error.fix
    return error.code


def hosts(model: Path) -> Iterator[Host]:
    """The same for so many cases, then another."""
    while True:
        yield from itertools.repeat(Host(model), ENGINE_CASES)


def test_from_an_upload_to_an_answer(model: Path, tmp_path: Path) -> None:
    made = hosts(model)
    candidate = as_candidate(geometry_of(next(made).engine), max_rank=RANK)
    seen: set[str] = set()

    def run(files: Files) -> str:
        return decide(tmp_path, files, candidate, lambda folder: next(made).answered(folder), seen)

    fuzz("whole path of an adapter", uploads(), run, vary=with_other_bytes)


def decide(folder: Path, files: Files, candidate: Any, answer: Callable[[Path], str], seen: set[str]) -> str:
    for index, content in enumerate(files.values()):
        (folder / str(index)).write_bytes(content)
    into = folder / "unpacked"
    sent = {name: str(folder / str(index)) for index, name in enumerate(files)}
    try:
        said = validate({"files": sent, "into": str(into), "bases": [candidate]})
        problem = said.get("problem")
        problems = [problem] if problem else said["report"]["problems"]
        if problems:
            assert all(problem["code"] and problem["message"] and problem["fix"] for problem in problems)
            return str(problems[0]["code"])
        digest = adapter_digest(folder_digests(into))
        if digest in seen:
            return "the same again"
        seen.add(digest)
        return answer(into)
    finally:
        shutil.rmtree(into, ignore_errors=True)
