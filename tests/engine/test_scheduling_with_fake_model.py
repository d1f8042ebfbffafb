"""The scheduler, the allocator and the device tier under a model whose every output proves its inputs.

The fake model stores each token in its slot of the KV cache and derives the next token from the whole
context *as read back through the page table*, and from a marker read out of the adapter's
own pages. A wrong page, a page given away too early, a missed token after pre-emption or
another tenant's adapter therefore changes the output.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lorikeet_testing.drafters import AlwaysDrafts, RandomDrafter
from lorikeet_testing.fuzzing import LONG, examples

from lora_engine.adapters.layout import AdapterLayout, PackedAdapter, TargetShapes
from lora_engine.config import EngineConfig
from lora_engine.engine import Engine
from lora_engine.errors import RequestError
from lora_engine.memory import PageKind, PagePool, PoolGeometry
from lora_engine.model.batch import StepBatch
from lora_engine.model.config import ModelConfig
from lora_engine.model.loading import LoadedModel
from lora_engine.model.parallel import Parallel
from lora_engine.request import GenerationRequest, PinnedPrefix, PinState, RequestFinished, SamplingParams, Slo
from lora_engine.scheduling.queue_policies import queue_policies
from lora_engine.scheduling.sequence import MAX_SPANS

pytestmark = [pytest.mark.long] if LONG else []

VOCAB = 251
PAGE_TOKENS = 4
GEOMETRY = PoolGeometry(num_layers=1, page_tokens=PAGE_TOKENS, kv_heads=1, head_dim=2)
CONFIG = ModelConfig.from_dict(
    {
        "model_type": "llama",
        "num_hidden_layers": 1,
        "hidden_size": 2,
        "intermediate_size": 2,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "vocab_size": VOCAB,
        "max_position_embeddings": 64,
    }
)


def next_token(context: list[int], marker: int) -> int:
    value = marker * 7919 + 1
    for token in context:
        value = (value * 31 + token + 7) % 1_000_003
    return value % VOCAB


class FakeOps:
    """A step's plan is its batch, and the pool."""

    invariant = False

    def plan(self, batch: StepBatch, pool: PagePool) -> tuple[StepBatch, PagePool]:
        return batch, pool


class FakeModel:
    """Does what ``Transformer`` does for a step with a hash instead of a network; hidden states are logits."""

    config = CONFIG
    parallel = Parallel()
    merged = None
    ops = FakeOps()

    def logits(self, hidden: torch.Tensor, *_: Any) -> torch.Tensor:
        return hidden

    def hidden(self, _ids: Any, _rows: Any, plan: tuple[StepBatch, PagePool], *_: Any) -> torch.Tensor:
        batch, pool = plan
        rows = pool.pool_rows(0)
        rows[batch.slot_mapping, 0] = batch.token_ids.to(rows.dtype)
        markers = torch.tensor([float(self._marker(batch, pool, row)) for row in range(len(batch.token_ids))])
        rows[batch.slot_mapping, 1] = markers.to(rows.dtype)  # keys depend on the adapter they were computed with
        rows: dict[int, list[int]] = {}
        for row in range(batch.num_decode):
            rows[row] = self._read(pool, batch.block_table[row], int(batch.seq_lens[row]), markers[row])
        for span in batch.prefill:
            length = span.context + span.stop - span.start
            rows[span.stop - 1] = self._read(pool, span.pages, length, markers[span.start])
        logits = torch.zeros(len(batch.logit_rows), VOCAB)
        for index, row in enumerate(batch.logit_rows.tolist()):
            logits[index, next_token(rows[row], self._marker(batch, pool, row))] = 1.0
        return logits

    @staticmethod
    def _read(pool: PagePool, pages: torch.Tensor, length: int, marker: torch.Tensor) -> list[int]:
        rows = pool.data[0].view(pool.num_pages, 2, PAGE_TOKENS, 2)[pages, 0].view(-1, 2)[:length]
        assert bool((rows[:, 1] == marker).all()), "keys that were computed with another adapter"
        return [int(value) for value in rows[:, 0]]

    @staticmethod
    def _marker(batch: StepBatch, pool: PagePool, row: int) -> int:
        for span in batch.lora:
            if span.start <= row < span.stop:
                values = pool.data[0, span.slot.pages].flatten()
                assert bool((values == values[0]).all()), "an adapter's pages were overwritten"
                return int(values[0])
        return 0


class FakeTokenizer:
    eos_token_ids = frozenset({0})
    vocab_size = VOCAB

    def token_text(self, token_id: int) -> str:
        return f"<{token_id}>"


class FakeDetokenizer:
    stopped, may_stop = None, False

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def append(self, token_id: int) -> str:
        return f"<{token_id}>"

    def flush(self) -> str:
        return ""


@dataclass
class SlowSource:
    """Adapters that take a few lookups to reach host memory; some fail, some are unknown."""

    adapters: dict[str, PackedAdapter]
    delay: dict[str, int]
    failing: set[str] = field(default_factory=set)
    asked: dict[str, int] = field(default_factory=dict)

    def knows(self, digest: str) -> bool:
        return digest in self.adapters

    def get(self, digest: str) -> PackedAdapter | None:
        if digest not in self.adapters or self.asked.get(digest, 0) < self.delay[digest] or digest in self.failing:
            return None
        return self.adapters[digest]

    def has(self, packed: PackedAdapter) -> bool:
        return True

    def request_load(self, digest: str) -> None:
        self.asked[digest] = self.asked.get(digest, 0) + 1

    def load_error(self, digest: str) -> RequestError | None:
        if digest in self.failing and self.asked.get(digest, 0) >= self.delay[digest]:
            return RequestError("adapter_load_failed", "the disk ate it", "stage it again")
        return None


class LateCopies:
    """Copies that are carried out some polls after they were asked for, unless a step joins them first."""

    def __init__(self, rnd: random.Random) -> None:
        self._rnd = rnd

    def start(self, copy: Callable[[], None]) -> LateArrival:
        return LateArrival(copy, self._rnd.randint(0, 4))

    def mark(self) -> None:
        """Return None: there is no device that reads host memory."""


class LateArrival:
    def __init__(self, copy: Callable[[], None], polls: int) -> None:
        self._copy, self._polls, self._here = copy, polls, False

    def done(self) -> bool:
        self._polls -= 1
        if self._polls <= 0:
            self.join()
        return self._here

    def join(self) -> None:
        if not self._here:
            self._here = True
            self._copy()

    def seconds(self) -> float:
        return 0.001


def packed(marker: int, pages: int) -> PackedAdapter:
    data = torch.full((1, pages, GEOMETRY.page_elems), float(marker))
    return PackedAdapter(f"sha256:{marker:064x}", 1, AdapterLayout(((),), pages), data)


def build(config: dict[str, Any], pages: int, source: Any) -> Engine:
    import lora_engine.engine as engine_module

    engine_module.detokenizer_for = FakeDetokenizer  # type: ignore[misc,assignment]
    loaded = LoadedModel(
        "fake",
        "sha256:0",
        "cpu",
        FakeModel(),
        FakeTokenizer(),  # type: ignore[arg-type]
        PagePool(GEOMETRY, pages, torch.float32, torch.device("cpu")),
        TargetShapes(CONFIG.target_shapes()),
        64,
    )
    return Engine(EngineConfig(model="unused", **config), source, loaded)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks that are late are late for good."""
    monkeypatch.setattr("lora_engine.engine._MASK_PATIENCE_S", 0.0)
    monkeypatch.setattr("lora_engine.engine._DEFERRED_WAIT_S", 0.0)


@pytest.fixture(autouse=True)
def _restore_detokenizer() -> Any:
    import lora_engine.engine as engine_module

    original = engine_module.detokenizer_for
    yield
    engine_module.detokenizer_for = original  # type: ignore[misc]


class LateGrammar:
    """Allows two of three tokens, by what came before; its masks come when they like."""

    def __init__(self, rnd: random.Random, lateness: int) -> None:
        self._rnd, self._lateness = rnd, lateness

    def start(self) -> LateMasks:
        return LateMasks(self._rnd, self._lateness)


class LateMasks:
    """As ``TokenMasks``. A mask is there after some questions whether it is."""

    def __init__(self, rnd: random.Random, lateness: int) -> None:
        self._rnd, self._lateness, self._polls, self._out = rnd, lateness, 0, []

    @property
    def ready(self) -> bool:
        self._polls = max(0, self._polls - 1)
        return not self._polls

    are_slow = are_quick = False

    def was_late(self) -> None:
        assert self._polls, "held although it was there"

    @property
    def mask(self) -> Any:
        assert not self._polls, "a mask was read before it was there"
        bits = np.zeros((VOCAB + 31) // 32 * 32, dtype=np.uint8)
        bits[[token for token in range(VOCAB) if allows(self._out, token)]] = 1
        return np.packbits(bits, bitorder="little").view(np.int32)

    def take(self, token: int) -> bool:
        assert allows(self._out, token), "a token that the mask forbids"
        assert not self._polls, "a token came although its mask did not"
        self._out.append(token)
        return completes(self._out)

    def begin_mask(self) -> None:
        self._polls = self._rnd.randint(0, self._lateness)


def allows(out: list[int], token: int) -> bool:
    return (token * 7 + sum(out)) % 3 != 0


def completes(out: list[int]) -> bool:
    return sum(out) % 11 == 5


def expected(prompt: list[int], marker: int, max_tokens: int, constrained: bool = False) -> list[int]:
    context, out = list(prompt), []
    while len(out) < max_tokens:
        token = next_token(context, marker)
        if constrained and not allows(out, token):
            token = next(token for token in range(VOCAB) if allows(out, token))
        out.append(token)
        context.append(token)
        if token == 0 or (constrained and completes(out)):
            break
    return out


def marker_of(request: GenerationRequest) -> int:
    return int(request.adapter_digest.removeprefix("sha256:") or "0", 16)


def pin_of(tenant: str, digest: str, tokens: list[int], salt: str = "") -> PinnedPrefix:
    name = f"{tenant}/{digest}/{salt}/{'.'.join(map(str, tokens))}"
    return PinnedPrefix(name, tenant, digest, salt, [*tokens])


def computing(prefix: PinnedPrefix, name: str = "compute") -> GenerationRequest:
    """As the host asks for a prefix that is missing."""
    return GenerationRequest(
        name, prefix.token_ids, adapter_digest=prefix.adapter_digest, tenant=prefix.tenant, slo=Slo(background=True),
        prompt_only=True, cache_salt=prefix.cache_salt, pin=prefix.name,
    )  # fmt: skip


def assert_map_has_what_the_pool_counts(engine: Engine) -> None:
    found, stats = engine.page_map(), engine.pool_stats()
    pages: Counter[PageKind] = Counter()
    for of, length in zip(found.owner_of, found.lengths, strict=True):
        owner = found.owners[of]
        pages[owner.kind] += length
        assert owner.tenant or owner.kind not in (PageKind.KV, PageKind.CACHED_PREFIX)
        assert owner.adapter_digest or owner.kind is not PageKind.ADAPTER
    assert pages == Counter({kind: getattr(stats, kind.name.lower()) for kind in PageKind})


@given(
    seed=st.integers(0, 2**32 - 1),
    pages=st.integers(20, 60),
    step_tokens=st.integers(1, 40),
    max_running=st.integers(1, 12),
    order=st.sampled_from(queue_policies.names()),
    overlaps=st.booleans(),
    slow_copies=st.booleans(),
    prefetch=st.integers(0, 8),
    lateness=st.integers(0, 6),
    right=st.sampled_from([None, None, 0.0, 0.6, 1.0]),
)
@settings(max_examples=examples(100), deadline=None)
def test_every_output_is_right_whatever_the_schedule(
    seed: int,
    pages: int,
    step_tokens: int,
    max_running: int,
    order: str,
    overlaps: bool,
    slow_copies: bool,
    prefetch: int,
    lateness: int,
    right: float | None,
) -> None:
    rnd = random.Random(seed)
    adapters = {p.digest: p for p in (packed(marker, rnd.randint(1, 6)) for marker in range(1, 7))}
    digests = list(adapters)
    source = SlowSource(adapters, {d: rnd.randint(0, 5) for d in digests}, failing={digests[-1]})
    config = {"step_tokens": step_tokens, "max_running": max_running, "order": order, "prefetch": prefetch}
    engine = build(config, pages, source)
    if slow_copies:
        engine.core.device_tier._copies = LateCopies(rnd)
    if right is not None:  # drafts of random lengths, each right with this chance
        drafter = RandomDrafter(rnd, lambda sequence, known: next_token(known, marker_of(sequence.request)), right)
        engine.core.scheduler.speculation = AlwaysDrafts(drafter, rnd.randint(1, 7), rnd.choice([3, 100]))
    beginnings = [[rnd.randrange(1, VOCAB) for _ in range(18)] for _ in range(3)]
    engine.runner.overlaps = overlaps  # as on a GPU: the host sees a step's tokens after it launched the next
    outputs: dict[tuple[str, int], list[int]] = {}
    finished: dict[str, str] = {}
    requests: dict[str, GenerationRequest] = {}
    aborted: set[str] = set()
    arrivals = rnd.randint(5, 40)
    for number in range(5000):
        while arrivals and rnd.random() < 0.4:
            arrivals -= 1
            request = GenerationRequest(
                f"r{arrivals}",
                beginnings[rnd.randrange(3)][: rnd.randint(0, 18)]
                + [rnd.randrange(1, VOCAB) for _ in range(rnd.randint(1, 12))],
                SamplingParams(max_tokens=rnd.randint(1, 20), n=rnd.choice([1, 1, 1, 3])),
                adapter_digest=rnd.choice(["", *digests, "sha256:unknown"]),
                tenant=rnd.choice("abc"),
                grammar=LateGrammar(rnd, lateness) if rnd.random() < 0.4 else None,  # type: ignore[arg-type]
            )
            engine.add_request(request)
            requests[request.request_id] = request
        if rnd.random() < 0.03 and requests:
            victim = rnd.choice(list(requests))
            engine.abort(victim)
            aborted.add(victim)
        if rnd.random() < 0.05:
            engine.drop_adapter(rnd.choice(digests))
        if rnd.random() < 0.05:
            engine.pin_adapters(rnd.sample([*digests, "sha256:unknown"], rnd.randint(0, 4)))
        if rnd.random() < 0.05:
            wanted = {
                prefix.name: prefix
                for tokens in rnd.sample(beginnings, rnd.randint(0, 3))
                if (prefix := pin_of(rnd.choice("abc"), rnd.choice(["", *digests]), tokens[: rnd.choice([4, 8, 16])]))
            }
            for name, state in engine.pin_prefixes(wanted.values()).items():
                if state is PinState.MISSING:
                    computes = computing(wanted[name], f"pin{number}{name}")
                    engine.add_request(computes)
                    requests[computes.request_id] = computes
        output = engine.step()
        engine.core.check()
        pinned = sum(len(slot.pages) for slot in engine.core.device_tier.slots() if slot.pinned)
        assert pinned + engine.core.prefixes.pinned_pages <= pages // 4
        if number % 16 == 0:
            assert_map_has_what_the_pool_counts(engine)
        for delta in output.deltas:
            outputs.setdefault((delta.request_id, delta.choice), []).extend(delta.token_ids)
        for end in output.finished:
            assert end.request_id not in finished, "a request ended twice"
            finished[end.request_id] = end.usage.outcome
            total = sum(len(t) for (rid, _), t in outputs.items() if rid == end.request_id)
            assert end.usage.completion_tokens == total
        if not arrivals and not engine.has_work():
            break
    assert set(finished) == set(requests), "unfinished after 5000 steps"
    for request_id, request in requests.items():
        bad = request.adapter_digest in (digests[-1], "sha256:unknown")
        if finished[request_id] == "refused":
            assert bad
        elif finished[request_id] == "finished":
            marker = marker_of(request)
            constrained = request.grammar is not None
            if request.pin:
                continue
            want = expected(request.prompt_token_ids, marker, request.sampling.max_tokens, constrained)
            for choice in range(request.sampling.n):
                assert outputs[(request_id, choice)] == want
        else:
            assert finished[request_id] == "aborted" and request_id in aborted
    stats = engine.pool_stats()
    assert stats.kv == 0 and stats.free + stats.cached_prefix + stats.adapter + stats.reserved == stats.total


def test_preemption_happens_and_changes_nothing() -> None:
    engine = build({"step_tokens": 64, "max_running": 8}, 24, SlowSource({}, {}))
    prompts = [[i + 1] * 10 for i in range(8)]
    for i, prompt in enumerate(prompts):
        engine.add_request(GenerationRequest(str(i), prompt, SamplingParams(max_tokens=30)))
    outputs: dict[str, list[int]] = {}
    preemptions = 0
    while engine.has_work():
        out = engine.step()
        engine.core.check()
        for delta in out.deltas:
            outputs.setdefault(delta.request_id, []).extend(delta.token_ids)
        preemptions += sum(end.usage.preemptions for end in out.finished)
        for end in out.finished:
            spans = end.usage.preemption_spans
            assert len(spans) == min(MAX_SPANS, end.usage.preemptions)
            assert spans == sorted(spans) and all(at_ms >= end.usage.queue_ms for at_ms, _ in spans)
    assert preemptions > 0
    assert outputs == {str(i): expected(p, 0, 30) for i, p in enumerate(prompts)}


def test_a_failing_step_fails_its_requests_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = build({}, 40, SlowSource({}, {}))
    engine.add_request(GenerationRequest("bad", [1, 2, 3], SamplingParams(max_tokens=5)))
    with monkeypatch.context() as patch:
        patch.setattr(FakeModel, "hidden", lambda *_: (_ for _ in ()).throw(RuntimeError("boom")))
        out = engine.step()
    assert [(f.request_id, f.usage.outcome, f.error and f.error.code) for f in out.finished] == [
        ("bad", "failed", "engine_error")
    ]
    engine.core.check()
    engine.add_request(GenerationRequest("good", [1, 2, 3], SamplingParams(max_tokens=5)))
    tokens = []
    while engine.has_work():
        tokens += [t for d in engine.step().deltas for t in d.token_ids]
    assert tokens == expected([1, 2, 3], 0, 5)


def test_a_request_waiting_for_its_adapter_does_not_stall_others() -> None:
    slow = packed(3, 2)
    source = SlowSource({slow.digest: slow}, {slow.digest: 50})
    engine = build({}, 40, source)
    engine.add_request(GenerationRequest("slow", [5], SamplingParams(max_tokens=3), adapter_digest=slow.digest))
    engine.add_request(GenerationRequest("fast", [6], SamplingParams(max_tokens=3)))
    ended = []
    while engine.has_work():
        ended += [(f.request_id, f.usage.outcome) for f in engine.step().finished]
    assert ended == [("fast", "finished"), ("slow", "finished")]


@pytest.mark.parametrize(
    ("request_", "code", "param"),
    [
        (GenerationRequest("a", []), "empty_prompt", "prompt"),
        (GenerationRequest("a", [VOCAB]), "invalid_value", "prompt"),
        (GenerationRequest("a", [1] * 64), "context_length_exceeded", "messages"),
        (GenerationRequest("a", [1] * 60, SamplingParams(max_tokens=5)), "context_length_exceeded", "max_tokens"),
        (GenerationRequest("a", [1], SamplingParams(temperature=float("nan"))), "invalid_value", "temperature"),
        (GenerationRequest("a", [1], SamplingParams(n=0)), "invalid_value", "n"),
        (GenerationRequest("a", [1], SamplingParams(logit_bias={VOCAB: 1.0})), "invalid_value", "logit_bias"),
    ],
)
def test_bad_requests_are_refused_with_a_fix(request_: GenerationRequest, code: str, param: str) -> None:
    engine = build({}, 40, SlowSource({}, {}))
    with pytest.raises(RequestError) as refusal:
        engine.add_request(request_)
    assert (refusal.value.code, refusal.value.param) == (code, param)
    assert refusal.value.fix
    assert not engine.has_work()


def finish(engine: Engine) -> dict[str, RequestFinished]:
    ended = {}
    while engine.has_work():
        ended |= {f.request_id: f for f in engine.step().finished}
        engine.core.check()
    return ended


def test_a_prompt_is_computed_once_for_its_tenant_and_adapter() -> None:
    one, two = packed(1, 2), packed(2, 2)
    engine = build({}, 200, SlowSource({p.digest: p for p in (one, two)}, {one.digest: 0, two.digest: 0}))
    prompt = list(range(1, 24))  # five full pages and three tokens
    cached = {}
    for name, tenant, digest, salt in (
        ("first", "a", one.digest, ""), ("again", "a", one.digest, ""), ("other adapter", "a", two.digest, ""),
        ("other tenant", "b", one.digest, ""), ("base", "a", "", ""), ("salted", "a", one.digest, "s"),
        ("salted again", "a", one.digest, "s"), ("other salt", "a", one.digest, "t"), ("unsalted", "a", one.digest, ""),
        ("other tenant, salted", "b", one.digest, "s"),
    ):  # fmt: skip
        params = SamplingParams(max_tokens=4)
        engine.add_request(GenerationRequest(name, prompt, params, digest, tenant=tenant, cache_salt=salt))
        cached[name] = finish(engine)[name].usage.cached_prompt_tokens
    assert {name: tokens for name, tokens in cached.items() if tokens} == {
        "again": 20, "salted again": 20, "unsalted": 20,
    }  # fmt: skip


def test_a_conversation_goes_on_where_it_was() -> None:
    engine = build({}, 200, SlowSource({}, {}))
    prompt, reply = [7] * 10, expected([7] * 10, 0, 9)
    engine.add_request(GenerationRequest("one", prompt, SamplingParams(max_tokens=9)))
    finish(engine)
    longer = [*prompt, *reply, 3, 4]
    engine.add_request(GenerationRequest("two", longer, SamplingParams(max_tokens=3)))
    tokens = []
    while engine.has_work():
        out = engine.step()
        tokens += [t for d in out.deltas for t in d.token_ids]
        if out.finished:
            assert out.finished[0].usage.cached_prompt_tokens == 16
    assert tokens == expected(longer, 0, 3)


def test_cached_prefixes_make_room_before_anybody_is_preempted() -> None:
    engine = build({}, 24, SlowSource({}, {}))
    for index in range(12):
        engine.add_request(GenerationRequest(str(index), [index + 1] * 20, SamplingParams(max_tokens=20)))
        assert finish(engine)[str(index)].usage.preemptions == 0
    assert engine.pool_stats().cached_prefix > 0


def test_nothing_of_a_failed_step_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = build({}, 60, SlowSource({}, {}))
    with monkeypatch.context() as patch:
        patch.setattr(FakeModel, "hidden", lambda *_: (_ for _ in ()).throw(RuntimeError("boom")))
        engine.add_request(GenerationRequest("bad", [5] * 20, SamplingParams(max_tokens=5)))
        engine.step()
    assert len(engine.core.prefixes) == 0
    engine.core.check()


def test_adapters_of_waiting_requests_are_brought_ahead_of_their_turn() -> None:
    adapters = [packed(marker, 2) for marker in range(1, 5)]
    source = SlowSource({p.digest: p for p in adapters}, {p.digest: 0 for p in adapters})
    engine = build({"max_running": 1, "prefetch": 2}, 100, source)
    for index, adapter in enumerate(adapters):
        engine.add_request(GenerationRequest(str(index), [1], SamplingParams(max_tokens=5), adapter.digest))
    engine.step()
    assert {slot.digest for slot in engine.core.device_tier.slots()} == {p.digest for p in adapters[:3]}


def answer(engine: Engine, name: str, digest: str = "", prompt: int = 1, max_tokens: int = 3) -> RequestFinished:
    engine.add_request(
        GenerationRequest(name, [9] * prompt, SamplingParams(max_tokens=max_tokens), adapter_digest=digest)
    )
    ended = []
    for _ in range(200):
        ended += engine.step().finished
        engine.core.check()
        if ended:
            return ended[0]
    raise AssertionError(f"{name} has no answer after 200 steps")


def loads_of(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    tier, loads = engine.core.device_tier, []
    load = tier.load
    monkeypatch.setattr(tier, "load", lambda packed, spare=0: (loads.append(packed.digest), load(packed))[1])
    return loads


def test_a_pinned_adapter_stays_whatever_else_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    adapters = {p.digest: p for p in (packed(marker, 6) for marker in range(1, 9))}
    pinned, *others = adapters
    engine = build({"max_running": 2}, 25, SlowSource(adapters, dict.fromkeys(adapters, 0)))
    loads = loads_of(engine, monkeypatch)
    assert engine.pin_adapters([pinned]) == [pinned], "it is brought without a request"
    for number, digest in enumerate(others * 2):
        assert answer(engine, f"r{number}", digest).usage.outcome == "finished"
    assert loads.count(pinned) == 1 and len(loads) > len(others), "others were evicted and loaded again"
    assert answer(engine, "own", pinned).usage.adapter_loaded_from == ""
    assert engine.pin_adapters([]) == []
    for number, digest in enumerate(others):
        answer(engine, f"after{number}", digest)
    assert engine.core.device_tier.get(pinned) is None, "unpinned, it is evicted like others"


def test_pins_take_a_quarter_of_the_pool_the_first_ones_first() -> None:
    adapters = {p.digest: p for p in (packed(1, 6), packed(2, 6), packed(3, 4), packed(4, 11))}
    first, second, small, large = adapters
    engine = build({}, 40, SlowSource(adapters, dict.fromkeys(adapters, 0)))
    engine.pin_adapters([large, first, second, small, "sha256:unknown"])
    while engine.use_idle_time():
        engine.core.check()
    assert engine.pinned_adapters() == [first, small]
    engine.pin_adapters([second, first])
    while engine.use_idle_time():
        engine.core.check()
    assert engine.pinned_adapters() == [second]
    assert not engine.use_idle_time(), "what does not fit is not tried without end"
    engine.drop_adapter(second)
    engine.core.check()
    assert engine.pinned_adapters() == [], "nobody wants it here any more"
    engine.use_idle_time()
    assert engine.pinned_adapters() == [first]


def test_pinned_adapters_make_way_for_a_request_that_fits_only_alone_and_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pin = packed(1, 4)
    engine = build({}, 16, SlowSource({pin.digest: pin}, {pin.digest: 0}))
    loads = loads_of(engine, monkeypatch)
    assert engine.pin_adapters([pin.digest]) == [pin.digest]
    assert answer(engine, "half", prompt=20).usage.outcome == "finished"
    assert loads == [pin.digest]
    ended = answer(engine, "whole", prompt=40, max_tokens=19)
    assert (ended.usage.outcome, ended.usage.completion_tokens) == ("finished", 19)
    assert ended.usage.preemptions == 0
    engine.use_idle_time()
    assert engine.pinned_adapters() == [pin.digest] and loads == [pin.digest] * 2
    engine.core.check()


def test_a_pinned_adapter_that_is_on_disk_is_brought_up() -> None:
    slow = packed(3, 2)
    source = SlowSource({slow.digest: slow}, {slow.digest: 3})
    engine = build({}, 40, source)
    assert engine.pin_adapters([slow.digest]) == []
    for _ in range(3):  # the tiers wake the step thread when it has come
        engine.use_idle_time()
    assert engine.pinned_adapters() == [slow.digest]


TWENTY = list(range(1, 21))  # five full pages


def cached(engine: Engine, name: str, tokens: list[int], tenant: str = "a", digest: str = "", salt: str = "") -> int:
    params = SamplingParams(max_tokens=2)
    engine.add_request(GenerationRequest(name, [*tokens, 99, 98], params, digest, tenant=tenant, cache_salt=salt))
    return finish(engine)[name].usage.cached_prompt_tokens


def crowd(engine: Engine, rounds: int = 12) -> None:
    """Prompts of others, more than the pool holds."""
    for index in range(rounds):
        engine.add_request(
            GenerationRequest(f"crowd{index}", [30 + index] * 24, SamplingParams(max_tokens=8), tenant="z")
        )
        finish(engine)


def test_a_pinned_prefix_stays_whatever_else_is_asked_and_is_its_tenants_adapters_and_salts_alone() -> None:
    one = packed(1, 2)
    engine = build({}, 60, SlowSource({one.digest: one}, {one.digest: 0}))
    prefix = pin_of("a", one.digest, TWENTY, "s")
    assert engine.pin_prefixes([prefix]) == {prefix.name: PinState.MISSING}
    engine.add_request(computing(prefix))
    ended = finish(engine)["compute"]
    assert (ended.usage.outcome, ended.usage.completion_tokens) == ("finished", 0)
    assert engine.pinned_prefixes() == {prefix.name: PinState.KEPT}
    crowd(engine)
    assert engine.core.prefixes.pinned_pages == 5
    assert cached(engine, "own", TWENTY, "a", one.digest, "s") == 20
    for name, owner in {
        "other tenant": ("b", one.digest, "s"), "base": ("a", "", "s"), "other salt": ("a", one.digest, ""),
    }.items():  # fmt: skip
        assert cached(engine, name, TWENTY, *owner) == 0
    owners = [owner for owner in engine.page_map().owners if owner.pinned]
    assert [(owner.kind, owner.tenant, owner.adapter_digest) for owner in owners] == [
        (PageKind.CACHED_PREFIX, "a", one.digest)
    ]
    assert engine.pin_prefixes([]) == {}
    crowd(engine)
    assert cached(engine, "unpinned", TWENTY, "a", one.digest, "s") < 20, "unpinned, it is evicted like others"


def test_of_two_pins_that_begin_alike_the_common_pages_are_one_and_unpinning_one_keeps_the_other() -> None:
    engine = build({}, 60, SlowSource({}, {}))
    short, long = pin_of("a", "", TWENTY[:12]), pin_of("a", "", TWENTY)
    engine.pin_prefixes([long, short])
    for prefix in (short, long):
        engine.add_request(computing(prefix, prefix.name))
    finish(engine)
    assert set(engine.pinned_prefixes().values()) == {PinState.KEPT}
    assert engine.core.prefixes.pinned_pages == 5
    engine.pin_prefixes([short])
    crowd(engine)
    assert (engine.core.prefixes.pinned_pages, cached(engine, "r", TWENTY)) == (3, 12)


def test_prefixes_take_what_pinned_adapters_leave_of_a_quarter_the_first_ones_first() -> None:
    adapter, larger = packed(1, 4), packed(2, 10)
    engine = build({}, 40, SlowSource({p.digest: p for p in (adapter, larger)}, {adapter.digest: 0, larger.digest: 0}))
    prefixes = [pin_of("a", "", TWENTY), pin_of("b", "", TWENTY), pin_of("b", "", TWENTY[:4])]
    engine.pin_adapters([adapter.digest])
    states = engine.pin_prefixes(prefixes)
    assert [*states.values()] == [PinState.MISSING, PinState.NO_ROOM, PinState.MISSING]
    for prefix in prefixes:
        engine.add_request(computing(prefix, prefix.name))
    finish(engine)
    assert [*engine.pinned_prefixes().values()] == [PinState.KEPT, PinState.NO_ROOM, PinState.KEPT]
    engine.pin_adapters([larger.digest])
    assert [*engine.pinned_prefixes().values()] == [PinState.NO_ROOM] * 3, "adapters first"
    engine.core.check()
    engine.pin_adapters([])
    assert [*engine.pinned_prefixes().values()] == [PinState.MISSING] * 3, "the third one begins the second"


def test_a_pinned_prefix_makes_way_for_a_request_that_fits_only_alone() -> None:
    engine = build({}, 16, SlowSource({}, {}))
    prefix = pin_of("a", "", TWENTY[:12])
    engine.pin_prefixes([prefix])
    engine.add_request(computing(prefix))
    finish(engine)
    ended = answer(engine, "whole", prompt=40, max_tokens=19)
    assert (ended.usage.outcome, ended.usage.preemptions) == ("finished", 0)
    assert engine.pinned_prefixes() == {prefix.name: PinState.MISSING}
    engine.add_request(computing(prefix))
    finish(engine)
    assert engine.pinned_prefixes() == {prefix.name: PinState.KEPT}


def test_a_prefix_is_unpinned_while_a_request_uses_it_and_nothing_is_lost() -> None:
    engine = build({}, 60, SlowSource({}, {}))
    prefix = pin_of("a", "", TWENTY)
    engine.pin_prefixes([prefix])
    engine.add_request(computing(prefix))
    finish(engine)
    engine.add_request(GenerationRequest("user", [*TWENTY, 9], SamplingParams(max_tokens=9), tenant="a"))
    engine.step()
    assert engine.core.prefixes.pinned_idle_pages == 0 < engine.core.prefixes.pinned_pages
    engine.pin_prefixes([])
    engine.core.check()
    assert finish(engine)["user"].usage.cached_prompt_tokens == 20
    assert engine.core.prefixes.pinned_pages == 0


def test_a_prefix_of_which_a_page_was_dropped_is_missing_and_a_dropped_adapters_is_forgotten() -> None:
    one = packed(1, 2)
    engine = build({}, 60, SlowSource({one.digest: one}, {one.digest: 0}))
    kept, forgotten = pin_of("a", "", TWENTY), pin_of("a", one.digest, TWENTY)
    engine.pin_prefixes([kept, forgotten])
    for prefix in (kept, forgotten):
        engine.add_request(computing(prefix, prefix.name))
    finish(engine)
    engine.drop_adapter(one.digest)
    assert engine.pinned_prefixes() == {kept.name: PinState.KEPT}
    engine.core.prefixes.clear_idle()
    engine.core.check()
    assert engine.pinned_prefixes() == {kept.name: PinState.MISSING}
    assert engine.core.prefixes.pinned_pages == 0


def test_an_engine_that_keeps_no_prefixes_says_so_and_what_is_not_wanted_is_not_pinned() -> None:
    prefix = pin_of("a", "", TWENTY)
    off = build({"prefix_cache": False}, 60, SlowSource({}, {}))
    assert off.pin_prefixes([prefix]) == {prefix.name: PinState.OFF}
    engine = build({}, 60, SlowSource({}, {}))
    engine.add_request(computing(prefix))
    finish(engine)
    assert engine.pinned_prefixes() == {} and engine.core.prefixes.pinned_pages == 0
    engine.pin_prefixes([prefix])
    engine.add_request(computing(prefix))
    engine.step()
    engine.abort("compute")
    finish(engine)
    engine.core.check()
