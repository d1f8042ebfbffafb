"""The runner: it builds a planned step's batch on the host, runs the model, and samples tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import torch

from lora_engine.adapters.device_tier import AdapterSlot
from lora_engine.execution.hidden_states import HiddenStates
from lora_engine.execution.prompt_reads import PromptReads, follow_scores
from lora_engine.execution.step_inputs import Indices, StepInputs
from lora_engine.memory import PagePool
from lora_engine.model.batch import EmbeddingLayerSpan, LoraSpan, StepBatch
from lora_engine.model.embedding_spans import spans_of
from lora_engine.model.transformer import Transformer
from lora_engine.request import Embedding, PromptLogprobs, TokenLogprob
from lora_engine.sampling import Samples, SamplingRow, sample
from lora_engine.scheduling.sequence import Chunk, Drafts, Sequence, State

if TYPE_CHECKING:
    from lora_engine.model.graph_shapes import GraphShape  # needs triton

# Returns whether a chunk's tokens are decode rows, not a prefill.
Decodes = Callable[[Chunk], bool]
Sampled = tuple[Sequence, int, TokenLogprob | None]


@dataclass(frozen=True, slots=True)
class Logits:
    """The output of a forward pass on the device, ``[rows, vocab]``, valid until the next pass.

    ``greedy`` is each row's likeliest token, if it was computed; with several ranks ``values`` may then be only this
    rank's columns, if no row needs more.
    """

    values: torch.Tensor
    greedy: torch.Tensor | None = None


class DeviceDrafts:
    """Drafts that the host has not seen: a step reads them on the device, and the host with the step's tokens.

    In place of such a draft, sequences have its reference, a negative number.
    """

    def __init__(self, tokens: torch.Tensor, first_row: int) -> None:
        """Keep drafts in ``tokens``, which are the rows from ``first_row`` on of the tokens that steps read."""
        self._tokens, self._first_row = tokens, first_row
        self.on_host = tokens  # once all that was launched is done

    def put(self, drafts: torch.Tensor) -> list[list[int]]:
        """Keep ``drafts [number, sequences]``, as many of each sequence as there is room for; returns references."""
        number, sequences = drafts.shape
        number = min(number, len(self._tokens) // sequences)
        tokens = self._tokens[: number * sequences]
        tokens.view(number, sequences).copy_(drafts[:number])
        # A new tensor: a launched step may have references to the drafts before. With all rows: a sequence that was in
        # no step meanwhile has references from before, perhaps behind the last of these.
        self.on_host = _to_host(self._tokens)[0] if tokens.is_cuda else self._tokens.clone()
        return [[-1 - place for place in range(at, number * sequences, sequences)] for at in range(sequences)]

    def give_rows(self, token_ids: Indices, sources: Indices) -> None:
        """Replace references among a step's tokens by the rows that hold the drafts."""
        unseen = token_ids < 0
        sources[unseen] = self._first_row - 1 - token_ids[unseen]
        token_ids[unseen] = 0


def _seen(drafts: Drafts, on_host: torch.Tensor) -> Drafts:
    """Return drafts without references."""
    return tuple(int(on_host[-1 - draft]) if draft < 0 else draft for draft in drafts)


class Launched:
    """A launched step whose tokens are not sampled yet."""

    def __init__(
        self,
        chunks: list[Chunk],
        logits: Logits,
        reads: PromptReads | None = None,
        hidden: HiddenStates | None = None,
        unseen: torch.Tensor | None = None,
    ) -> None:
        """Create the step from its chunks that sample; a sequence with drafts has several rows.

        ``unseen`` are the drafts that are on the device, for the host to read with the tokens.
        """
        self.drafts = {chunk.sequence: chunk.drafts for chunk in chunks if chunk.drafts}
        self.sequences = [chunk.sequence for chunk in chunks]
        self.rows = [sequence.sampling_row() for sequence in self.sequences]
        if self.drafts:
            self.sequences = [chunk.sequence for chunk in chunks for _ in range(chunk.num_sampled)]
            self.rows = [row for chunk in chunks for row in chunk.sampling_rows]
        self.logits = logits
        self.reads = reads
        self.hidden = hidden
        self.unseen = unseen
        self.is_constrained = any(sequence.masks is not None for sequence in self.sequences)
        self._computed: torch.cuda.Event | None = None
        if self.is_constrained and logits.values.is_cuda:
            self._computed = torch.cuda.Event()
            self._computed.record()

    @property
    def constrained(self) -> dict[Sequence, list[SamplingRow]]:
        """The rows of each sequence whose answer is constrained, and that has not ended."""
        rows: dict[Sequence, list[SamplingRow]] = {}
        for sequence, row in zip(self.sequences, self.rows, strict=True):
            if sequence.masks is not None and sequence.state is not State.FINISHED:
                rows.setdefault(sequence, []).append(row)
        return rows

    @property
    def is_computing(self) -> bool:
        """True if the device still computes the logits; only known for steps with constrained answers."""
        return self._computed is not None and not self._computed.query()


class InFlight:
    """A step whose sampling is launched; ``collect`` waits for its tokens only."""

    def __init__(
        self,
        sequences: list[Sequence],
        rows: list[SamplingRow],
        samples: Samples,
        reads: PromptReads | None = None,
        deferred: Collection[Sequence] = (),
        drafts: Mapping[Sequence, Drafts] | None = None,
        hidden: HiddenStates | None = None,
        unseen: torch.Tensor | None = None,
    ) -> None:
        self.drafts = drafts or {}
        self._unseen = unseen
        self.hidden = hidden  # what a draft head reads; it is on the device, and complete once the tokens are
        self._sequences = sequences
        self._deferred = deferred
        self._rows = rows
        self._samples = samples
        self._reads = reads  # their copies to the host precede those of the tokens
        self._tokens, self._arrived = _to_host(samples.tokens)

    def collect(self) -> list[Sampled]:
        """Return the token of every sequence that sampled and was not deferred, in the order of the launch.

        A sequence with drafts has as many tokens as its drafts foresaw, and one more.
        """
        if self._arrived is not None:
            self._arrived.synchronize()
        if self._unseen is not None:
            self.drafts = {sequence: _seen(drafts, self._unseen) for sequence, drafts in self.drafts.items()}
        tokens = self._tokens.tolist()
        logprobs = self._samples.logprobs(tokens, self._rows)
        rows = zip(self._sequences, tokens, logprobs, strict=True)
        sampled = self._accepted(rows) if self.drafts else rows
        return [entry for entry in sampled if entry[0] not in self._deferred] if self._deferred else list(sampled)

    def _accepted(self, rows: Iterable[Sampled]) -> Iterator[Sampled]:
        """Yield the tokens of each sequence up to the first that its drafts did not foresee."""
        for sequence, tokens in groupby(rows, key=itemgetter(0)):
            # Rows after drafts that were taken out, for lack of their masks, have no entry.
            for entry, draft in zip(tokens, (*self.drafts.get(sequence, ()), None), strict=False):
                yield entry
                if entry[1] != draft:
                    break

    def collect_reads(self) -> list[tuple[Sequence, PromptLogprobs | Embedding]]:
        """Return the results read from prompts; call it after ``collect``."""
        return [] if self._reads is None else self._reads.collect()


class StepMirror(Protocol):
    """The other ranks of a tensor-parallel group, which run every step too."""

    def step(self, inputs: StepInputs, spans: Iterable[LoraSpan]) -> None:
        """Start the step that this rank runs next on all other ranks, which then wait for its sampled tokens."""

    def capture(self, shape: GraphShape) -> None:
        """Capture the graph that this rank captures next on all other ranks."""

    def replay(
        self,
        shape: GraphShape,
        contents: npt.NDArray[np.int32],
        rows: int,
        spans: Iterable[LoraSpan],
        *,
        greedy: bool,
    ) -> None:
        """Replay a graph with the same contents on all other ranks, which then wait for the tokens of ``rows``."""

    def diverged(self, error: Exception) -> None:
        """End the group because this rank failed in a step that the others run. Does not return."""


class Runner:
    """A runner that executes plans on one device.

    On a GPU, ``launch`` and ``sample`` return while the step runs. The next step may be launched before the host has
    this step's tokens: its inputs come from ``last_tokens`` on the device.
    """

    def __init__(
        self,
        model: Transformer,
        pool: PagePool,
        max_running: int,
        decodes: Decodes | None = None,
        mirror: StepMirror | None = None,
    ) -> None:
        """Create a runner; ``decodes`` is ``one_token`` by default, ``mirror`` is set on rank 0 of several."""
        self.model = model
        self.pool = pool
        self.mirror = mirror
        self._decodes = decodes or one_token
        self.overlaps = pool.data.is_cuda
        self.start_seconds: dict[str, float] = {}  # duration of each preparation before the first request
        # The tokens that the last step sampled, then drafts for the next one.
        self.last_tokens = torch.zeros(2 * max_running, dtype=torch.int64, device=pool.data.device)
        self._drafts = DeviceDrafts(self.last_tokens[max_running:], max_running)
        self._last_row: dict[Sequence, int] = {}
        # Whether a sequence's hidden states are kept for a draft head; None: there is no head.
        self.drafting: Callable[[Sequence], bool] | None = None

    @property
    def device_drafts(self) -> DeviceDrafts | None:
        """The place where a draft head leaves drafts for the next step; None if other ranks need to know them too."""
        return self._drafts if self.mirror is None else None

    def capture_next(self) -> bool:
        """Prepare one more graph between steps; returns False once nothing is left."""
        return False

    @property
    def failure(self) -> str:
        """Reason why this process should be restarted although it still serves; empty if there is none."""
        return ""

    @torch.inference_mode()
    def launch(
        self, chunks: Iterable[Chunk], merged: AdapterSlot | None = None, *, reads_prompts: bool = False
    ) -> Launched:
        """Launch the forward pass of all chunks; sequences whose chunk reaches their end then ``sample`` a token.

        ``merged`` is the adapter merged into the weights of this step, None for the base's weights.
        ``reads_prompts``: some sequence reads hidden states of its prompt.
        """
        # Decode rows come before prefill, and in both parts sequences of one adapter are adjacent.
        chunks = sorted(chunks, key=lambda chunk: (not self._decodes(chunk), _generation(chunk)))
        reads = self._prompt_reads(chunks) if reads_prompts else None
        with self._in_step():
            logits = self._forward(chunks, merged, reads)
            hidden = self._hidden_states(chunks)
        unseen = self._drafts.on_host if any(chunk.has_unseen_drafts for chunk in chunks) else None
        return Launched([chunk for chunk in chunks if chunk.samples], logits, reads, hidden, unseen)

    def _hidden_states(self, chunks: list[Chunk]) -> HiddenStates | None:
        """Copy what a draft head reads of the step, before the next one overwrites it."""
        if self.drafting is None or self.model.layer_inputs is None:
            return None
        return HiddenStates.of(self.model.layer_inputs.buffer, chunks, self.drafting)

    @torch.inference_mode()
    def sample(self, launched: Launched, deferred: Collection[Sequence] = ()) -> InFlight:
        """Sample the tokens of the step launched last; tokens of ``deferred`` sequences are discarded."""
        rows = launched.rows
        with self._in_step():
            samples = self._sample_rows(launched.logits, rows)
            # A row that overflowed has no token. The host ends it later; until then any valid token id serves.
            torch.clamp(samples.tokens, min=0, out=self.last_tokens[: len(rows)])
            if rows:
                self.model.parallel.broadcast(self.last_tokens[: len(rows)])
            self._record_step()
        self._last_row = {sequence: row for row, sequence in enumerate(launched.sequences)}
        return InFlight(
            launched.sequences,
            rows,
            samples,
            launched.reads,
            deferred,
            launched.drafts,
            launched.hidden,
            launched.unseen,
        )

    @contextmanager
    def _in_step(self) -> Iterator[None]:
        """End all ranks if this one fails inside a step, which the other ranks would continue or wait for."""
        try:
            yield
        except Exception as error:
            if self.mirror is not None:
                self.mirror.diverged(error)
            raise

    def _sample_rows(self, logits: Logits, rows: list[SamplingRow]) -> Samples:
        if logits.greedy is not None and all(row.plain_greedy for row in rows):
            return Samples(logits.greedy)
        return sample(logits.values, rows)

    def _forward(self, chunks: list[Chunk], merged: AdapterSlot | None, reads: PromptReads | None) -> Logits:
        """Build the batch of ordered chunks, send it to the other ranks, and run the model, without waiting for the
        device; ``reads`` get the states that they read.
        """
        inputs = StepInputs.of(
            chunks,
            self.pool.geometry,
            self._decodes,
            self._last_row,
            merged=merged is not None,
            greedy=self._all_greedy(chunks),
            scored_rows=None if reads is None else reads.scored_rows,
            place_drafts=self._drafts.give_rows,
        )
        spans = lora_spans(chunks, inputs.starts, merged)
        if self.mirror is not None:
            self.mirror.step(inputs, spans)
        batch = inputs.batch(spans, self.last_tokens)
        batch.embeddings = spans_of((chunk.sequence.embedding, chunk.tokens) for chunk in chunks)
        batch.heads = spans_of((chunk.sequence.head, chunk.num_sampled) for chunk in chunks if chunk.samples)
        if reads is None:
            return self._head(self._hidden(batch, batch.logit_rows), batch)
        hidden = self._hidden(batch, torch.cat((batch.logit_rows, reads.rows)))
        reads.take(hidden[len(batch.logit_rows) :], self.model)
        return self._head(hidden[: len(batch.logit_rows)], batch)

    def _hidden(self, batch: StepBatch, rows: torch.Tensor) -> torch.Tensor:
        """Run the model over a batch, up to the hidden states of ``rows`` after the last norm."""
        plan = self.model.ops.plan(batch, self.pool)
        return self.model.hidden(batch.token_ids, rows, plan, None, batch.embeddings)

    def _head(self, hidden: torch.Tensor, batch: StepBatch) -> Logits:
        """Compute the logits of ``logit_rows``; with several ranks all take part, unless there are no rows."""
        if self.model.parallel.world > 1 and not len(hidden):
            return Logits(hidden.new_empty(0, self.model.config.vocab_size))
        if batch.greedy:
            return Logits(*self.model.greedy(hidden))
        return Logits(self.model.logits(hidden, None, batch.heads))

    def _prompt_reads(self, chunks: list[Chunk]) -> PromptReads:
        starts = np.cumsum([0] + [chunk.tokens for chunk in chunks[:-1]])
        return PromptReads(chunks, starts.tolist(), self.pool.data.device)

    def _all_greedy(self, chunks: list[Chunk]) -> bool:
        """Return whether several ranks need to exchange only likeliest tokens, since all sampling rows are greedy."""
        return self.model.parallel.world > 1 and all(
            sequence.request.sampling.plain_greedy and sequence.masks is None and sequence.head is None
            for sequence in (chunk.sequence for chunk in chunks if chunk.samples)
        )

    @torch.inference_mode()
    def follow(self, inputs: StepInputs, spans: list[LoraSpan], embeddings: list[EmbeddingLayerSpan]) -> None:
        """Run rank 0's step on a follower, and receive the tokens that rank 0 sampled."""
        batch = inputs.batch(spans, self.last_tokens)
        batch.embeddings = embeddings
        self._follow(batch)
        self.receive_tokens(len(inputs.logit_rows))

    def receive_tokens(self, rows: int) -> None:
        """Receive the tokens that rank 0 samples, on a follower at a step's end, in the order of the stream."""
        if rows:
            self.model.parallel.broadcast(self.last_tokens[:rows])
        self._record_step()

    def _record_step(self) -> None:
        """Record that the step was launched, to detect hung devices among several ranks."""
        if (steps := self.model.parallel.steps) is not None:
            steps.launched()

    def _follow(self, batch: StepBatch) -> None:
        rows = len(batch.logit_rows)
        wanted = batch.logit_rows if batch.scored_rows is None else torch.cat((batch.logit_rows, batch.scored_rows))
        hidden = self._hidden(batch, wanted)
        follow_scores(self.model, hidden[rows:])
        self._head(hidden[:rows], batch)


def _to_host(tokens: torch.Tensor) -> tuple[torch.Tensor, torch.cuda.Event | None]:
    """Start copying tokens to the host; the event marks the end of the copy (None: already finished)."""
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
    """Return whether a chunk has one known token: a prompt's last token alone is as fast among decode rows.

    Drafts after it are decode rows too, each of which reads the keys of those before: graphs of decode steps then hold
    them, and a model runs the same kernels for a token whether it was drafted or not.
    """
    return chunk.known == 1


def of_answer(chunk: Chunk) -> bool:
    """Return whether a chunk's tokens are generated ones; with ``--deterministic`` those are always decode rows.

    Prompt tokens are always prefill. When an answer continues after a pre-emption, or on another host, its tokens are
    several decode rows of a step.
    """
    return chunk.sequence.num_computed >= chunk.sequence.num_prompt


def lora_spans(chunks: list[Chunk], starts: Indices | range, merged: AdapterSlot | None) -> list[LoraSpan]:
    """Return the spans of token rows with one adapter; chunk i has the rows from ``starts[i]`` on.

    Rows of the merged adapter need no span; all others subtract it (delta correction).
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
