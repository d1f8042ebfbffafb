"""From a step's plan to sampled tokens: builds the batch on the host, runs the model, samples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import torch

from lora_engine.adapters.device_tier import AdapterSlot
from lora_engine.execution.prompt_reads import PromptReads, follow_scores
from lora_engine.execution.step_inputs import Indices, StepInputs
from lora_engine.memory import PagePool
from lora_engine.model.batch import EmbeddingLayerSpan, LoraSpan, StepBatch
from lora_engine.model.embedding_layers import spans_of
from lora_engine.model.transformer import Transformer
from lora_engine.request import Embedding, PromptLogprobs, TokenLogprob
from lora_engine.sampling import Samples, SamplingRow, sample
from lora_engine.scheduling.sequence import Chunk, Sequence

if TYPE_CHECKING:
    from lora_engine.model.graph_shapes import GraphShape  # needs triton

Decodes = Callable[[Chunk], bool]  # whether a chunk's tokens are decode rows, not a prefill
Sampled = tuple[Sequence, int, TokenLogprob | None]


@dataclass(frozen=True, slots=True)
class Logits:
    """What a forward pass leaves on the device, to be sampled before the next one: ``[rows, vocab]``.

    ``greedy`` is each row's likeliest token, if that was computed; of several ranks ``values`` may then be this one's
    columns, where nobody asks for more.
    """

    values: torch.Tensor
    greedy: torch.Tensor | None = None


class Launched:
    """A step that was launched, and whose tokens are yet to be chosen."""

    def __init__(self, sequences: list[Sequence], logits: Logits, reads: PromptReads | None = None) -> None:
        self.sequences = sequences
        self.rows = [sequence.sampling_row() for sequence in sequences]
        self.logits = logits
        self.reads = reads
        self.is_constrained = any(sequence.masks is not None for sequence in sequences)
        self._computed: torch.cuda.Event | None = None
        if self.is_constrained and logits.values.is_cuda:
            self._computed = torch.cuda.Event()
            self._computed.record()

    @property
    def is_computing(self) -> bool:
        """Whether the device is still at work on the logits of a step in which answers are constrained."""
        return self._computed is not None and not self._computed.query()


class InFlight:
    """A step whose tokens are being chosen. ``collect`` waits for its tokens, and for nothing else of the device."""

    def __init__(
        self,
        sequences: list[Sequence],
        rows: list[SamplingRow],
        samples: Samples,
        reads: PromptReads | None = None,
        held: Collection[Sequence] = (),
    ) -> None:
        self._sequences = sequences
        self._held = held
        self._rows = rows
        self._samples = samples
        self._reads = reads  # whose copies were begun before those of the tokens
        self._tokens, self._arrived = _to_host(samples.tokens)

    def collect(self) -> list[Sampled]:
        """The token of every sequence that sampled and was not held, in the order of the launch."""
        if self._arrived is not None:
            self._arrived.synchronize()
        tokens = self._tokens.tolist()
        logprobs = self._samples.logprobs(tokens, self._rows)
        sampled = zip(self._sequences, tokens, logprobs, strict=True)
        return [entry for entry in sampled if entry[0] not in self._held] if self._held else list(sampled)

    def collect_reads(self) -> list[tuple[Sequence, PromptLogprobs | Embedding]]:
        """What was read of prompts; after ``collect``."""
        return [] if self._reads is None else self._reads.collect()


class StepMirror(Protocol):
    """The other ranks of a tensor-parallel group, which run each step as well."""

    def step(self, inputs: StepInputs, spans: Iterable[LoraSpan]) -> None:
        """Have them begin the step that this rank runs next, and then wait for the tokens of its ``logit_rows``."""

    def capture(self, shape: GraphShape) -> None:
        """Have them capture the graph that this rank captures next."""

    def replay(
        self,
        shape: GraphShape,
        contents: npt.NDArray[np.int32],
        rows: int,
        spans: Iterable[LoraSpan],
        *,
        greedy: bool,
    ) -> None:
        """Have them run it with the same contents, and then wait for the tokens of ``rows``; as ``StepInputs`` says."""

    def diverged(self, error: Exception) -> None:
        """This rank did not do what the others did. Does not return: a group out of step cannot go on."""


class Runner:
    """Executes plans on one device.

    On a GPU, ``launch`` and ``sample`` return while the step runs. The next step may be launched before the
    tokens of this one are known to the host: its inputs are taken from ``last_tokens`` there.
    """

    def __init__(
        self,
        model: Transformer,
        pool: PagePool,
        max_running: int,
        decodes: Decodes | None = None,
        mirror: StepMirror | None = None,
    ) -> None:
        """``decodes``: by default ``one_token``. ``mirror``: on rank 0 of several."""
        self.model = model
        self.pool = pool
        self.mirror = mirror
        self._decodes = decodes or one_token
        self.overlaps = pool.data.is_cuda
        self.start_seconds: dict[str, float] = {}  # by what was prepared before the first request
        self.last_tokens = torch.zeros(max_running, dtype=torch.int64, device=pool.data.device)
        self._last_row: dict[Sequence, int] = {}

    def capture_next(self) -> bool:
        """Nothing is left to prepare."""
        return False

    @property
    def failure(self) -> str:
        """Why this process should end, though it goes on serving for now; empty if nothing is wrong."""
        return ""

    @torch.inference_mode()
    def launch(self, chunks: Iterable[Chunk], merged: AdapterSlot | None = None, *, reads: bool = False) -> Launched:
        """Process every chunk; sequences whose chunk reaches their end are to ``sample`` a token.

        ``merged`` is the adapter that is merged into the weights to run on, None for the base's own. ``reads`` says
        that some sequence reads hidden states of its prompt.
        """
        ordered = order_chunks(chunks, self._decodes)
        sampling = [chunk.sequence for chunk in ordered if chunk.samples]
        prompts = self._prompt_reads(ordered) if reads else None
        with self._in_step():
            logits = (
                self._forward(ordered, merged)
                if prompts is None
                else self._read(ordered, len(sampling), merged, prompts)
            )
        return Launched(sampling, logits, prompts)

    @torch.inference_mode()
    def sample(self, launched: Launched, held: Collection[Sequence] = ()) -> InFlight:
        """Choose the tokens of the step launched last. Those of ``held`` sequences are of no use to anybody."""
        sampling, rows = launched.sequences, launched.rows
        with self._in_step():
            samples = self._choose(launched.logits, rows)
            # A row that overflowed has no token. It is ended when the host learns of it; until then any token will do.
            torch.clamp(samples.tokens, min=0, out=self.last_tokens[: len(rows)])
            if rows:
                self.model.parallel.broadcast(self.last_tokens[: len(rows)])
            self._step_given()
        self._last_row = {sequence: row for row, sequence in enumerate(sampling)}
        return InFlight(sampling, rows, samples, launched.reads, held)

    @contextmanager
    def _in_step(self) -> Iterator[None]:
        """What fails here alone would leave the other ranks waiting, or further than this one."""
        try:
            yield
        except Exception as error:
            if self.mirror is not None:
                self.mirror.diverged(error)
            raise

    def _choose(self, logits: Logits, rows: list[SamplingRow]) -> Samples:
        if logits.greedy is not None and all(row.plain_greedy for row in rows):
            return Samples(logits.greedy)
        return sample(logits.values, rows)

    def _forward(self, chunks: list[Chunk], merged: AdapterSlot | None) -> Logits:
        """Run the model over ordered chunks; must not wait for the device."""
        batch = self._batch(chunks, merged)
        plan = self.model.ops.plan(batch, self.pool)
        return self._head(self.model.hidden(batch.token_ids, batch.logit_rows, plan, None, batch.embeddings), batch)

    def _head(self, hidden: torch.Tensor, batch: StepBatch) -> Logits:
        """Of the states of ``logit_rows``. Of several ranks each has a part in it, unless there are none."""
        if self.model.parallel.world > 1 and not len(hidden):
            return Logits(hidden.new_empty(0, self.model.config.vocab_size))
        if batch.greedy:
            return Logits(*self.model.greedy(hidden))
        return Logits(self.model.logits(hidden, None, batch.heads))

    def _prompt_reads(self, chunks: list[Chunk]) -> PromptReads:
        starts = np.cumsum([0] + [chunk.tokens for chunk in chunks[:-1]])
        return PromptReads(chunks, starts.tolist(), self.pool.data.device)

    def _read(self, chunks: list[Chunk], rows: int, merged: AdapterSlot | None, prompts: PromptReads) -> Logits:
        """``_forward`` for a step in which hidden states of prompts are read; ``rows`` of it sample."""
        batch = self._batch(chunks, merged, prompts)
        wanted = torch.cat((batch.logit_rows, prompts.rows))
        plan = self.model.ops.plan(batch, self.pool)
        hidden = self.model.hidden(batch.token_ids, wanted, plan, None, batch.embeddings)
        prompts.take(hidden[rows:], self.model)
        return self._head(hidden[:rows], batch)

    def _batch(self, chunks: list[Chunk], merged: AdapterSlot | None, prompts: PromptReads | None = None) -> StepBatch:
        """The step's batch, which the other ranks learn of: once it was made, it has to be run."""
        inputs = StepInputs.of(
            chunks,
            self.pool.geometry,
            self._decodes,
            self._last_row,
            merged=merged is not None,
            greedy=self._all_greedy(chunks),
            scored_rows=None if prompts is None else prompts.scored_rows,
        )
        spans = lora_spans(chunks, inputs.starts, merged)
        if self.mirror is not None:
            self.mirror.step(inputs, spans)
        batch = inputs.batch(spans, self.last_tokens)
        batch.embeddings = spans_of((chunk.sequence.embedding, chunk.tokens) for chunk in chunks)
        batch.heads = spans_of((chunk.sequence.head, 1) for chunk in chunks if chunk.samples)
        return batch

    def _all_greedy(self, chunks: list[Chunk]) -> bool:
        """Whether, of several ranks, whoever samples wants the likeliest token and nothing else."""
        return self.model.parallel.world > 1 and all(
            sequence.request.sampling.plain_greedy and sequence.masks is None and sequence.head is None
            for sequence in (chunk.sequence for chunk in chunks if chunk.samples)
        )

    @torch.inference_mode()
    def follow(self, inputs: StepInputs, spans: list[LoraSpan], embeddings: list[EmbeddingLayerSpan]) -> None:
        """On a rank that does not plan: run what rank 0 runs, and learn the tokens that it chose."""
        batch = inputs.batch(spans, self.last_tokens)
        batch.embeddings = embeddings
        self._follow(batch)
        self.receive_tokens(len(inputs.logit_rows))

    def receive_tokens(self, rows: int) -> None:
        """On a rank that does not plan, at a step's end: wait, in the order of the stream, for what rank 0 samples."""
        if rows:
            self.model.parallel.broadcast(self.last_tokens[:rows])
        self._step_given()

    def _step_given(self) -> None:
        """Of several ranks, each has given its device as many steps."""
        if (steps := self.model.parallel.steps) is not None:
            steps.launched()

    def _follow(self, batch: StepBatch) -> None:
        plan, rows = self.model.ops.plan(batch, self.pool), len(batch.logit_rows)
        wanted = batch.logit_rows if batch.scored_rows is None else torch.cat((batch.logit_rows, batch.scored_rows))
        hidden = self.model.hidden(batch.token_ids, wanted, plan, None, batch.embeddings)
        follow_scores(self.model, hidden[rows:])
        self._head(hidden[:rows], batch)


def _to_host(tokens: torch.Tensor) -> tuple[torch.Tensor, torch.cuda.Event | None]:
    """Start copying tokens to the host; the event says when they are there (None: already)."""
    if not tokens.is_cuda:
        return tokens, None
    host = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
    host.copy_(tokens, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    return host, event


def _generation(chunk: Chunk) -> int:
    slot = chunk.sequence.slot
    return slot.generation if slot else 0


def one_token(chunk: Chunk) -> bool:
    """A prompt's last token, alone, is as quick among decode rows."""
    return chunk.tokens == 1


def of_answer(chunk: Chunk) -> bool:
    """Every token has one way to be computed: those of prompts as prefill, generated ones as decode rows.

    So when an answer goes on after a pre-emption, or on another host, its tokens are several decode rows of a step.
    """
    return chunk.sequence.num_computed >= chunk.sequence.num_prompt


def order_chunks(chunks: Iterable[Chunk], decodes: Decodes = one_token) -> list[Chunk]:
    """Decode rows first; then prefill. Within each, sequences of one adapter side by side."""
    return sorted(chunks, key=lambda chunk: (not decodes(chunk), _generation(chunk)))


def lora_spans(chunks: list[Chunk], starts: Indices | range, merged: AdapterSlot | None) -> list[LoraSpan]:
    """Runs of ordered chunks with one adapter, as token rows; chunk i has the rows from ``starts[i]`` on.

    Those of the merged adapter need no span; all others subtract it (delta correction).
    """
    spans: list[LoraSpan] = []
    for _, run in groupby(range(len(chunks)), key=lambda i: _generation(chunks[i])):
        indices = list(run)
        slot = chunks[indices[0]].sequence.slot
        rows = int(starts[indices[0]]), int(starts[indices[-1] + 1])
        if slot is not None and slot is not merged:
            spans.append(LoraSpan(slot, *rows))
        if merged is not None and slot is not merged:
            spans.append(LoraSpan(merged, *rows, sign=-1))
    return spans
