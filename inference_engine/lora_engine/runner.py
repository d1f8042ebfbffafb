"""From a step's plan to sampled tokens: builds the batch on the host, runs the model, samples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt
import torch

from .adapters.device_tier import AdapterSlot
from .device_copies import to_device
from .memory import PagePool
from .model.batch import LoraSpan, PrefillSpan, StepBatch
from .model.transformer import Transformer
from .prompt_reads import PromptReads
from .request import Embedding, PromptLogprobs, TokenLogprob
from .sampling import Samples, SamplingRow, sample
from .scheduling.sequence import Chunk, Sequence

Indices = npt.NDArray[np.int64]
Decodes = Callable[[Chunk], bool]  # whether a chunk's tokens are decode rows, not a prefill
Sampled = tuple[Sequence, int, TokenLogprob | None]


@dataclass(frozen=True, slots=True)
class Logits:
    """What a forward pass leaves on the device, to be sampled before the next one: ``[rows, vocab]``.

    ``greedy`` is each row's likeliest token, if a graph computed it.
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


class Runner:
    """Executes plans on one device.

    On a GPU, ``launch`` and ``sample`` return while the step runs. The next step may be launched before the
    tokens of this one are known to the host: its inputs are taken from ``last_tokens`` there.
    """

    def __init__(self, model: Transformer, pool: PagePool, max_running: int, decodes: Decodes | None = None) -> None:
        """``decodes``: by default ``one_token``."""
        self.model = model
        self.pool = pool
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
        logits = (
            self._forward(ordered, merged) if prompts is None else self._read(ordered, len(sampling), merged, prompts)
        )
        return Launched(sampling, logits, prompts)

    @torch.inference_mode()
    def sample(self, launched: Launched, held: Collection[Sequence] = ()) -> InFlight:
        """Choose the tokens of the step launched last. Those of ``held`` sequences are of no use to anybody."""
        sampling, rows = launched.sequences, launched.rows
        samples = self._choose(launched.logits, rows)
        # A row that overflowed has no token. It is ended when the host learns of it; until then any token will do.
        torch.clamp(samples.tokens, min=0, out=self.last_tokens[: len(rows)])
        self._last_row = {sequence: row for row, sequence in enumerate(sampling)}
        return InFlight(sampling, rows, samples, launched.reads, held)

    def _choose(self, logits: Logits, rows: list[SamplingRow]) -> Samples:
        if logits.greedy is not None and all(row.plain_greedy for row in rows):
            return Samples(logits.greedy)
        return sample(logits.values, rows)

    def _forward(self, chunks: list[Chunk], merged: AdapterSlot | None) -> Logits:
        """Run the model over ordered chunks; must not wait for the device."""
        return Logits(self.model.forward(self._batch(chunks, merged), self.pool))

    def _prompt_reads(self, chunks: list[Chunk]) -> PromptReads:
        starts = np.cumsum([0] + [chunk.tokens for chunk in chunks[:-1]])
        return PromptReads(chunks, starts.tolist(), self.pool.data.device)

    def _read(self, chunks: list[Chunk], rows: int, merged: AdapterSlot | None, prompts: PromptReads) -> Logits:
        """``_forward`` for a step in which hidden states of prompts are read; ``rows`` of it sample."""
        batch = self._batch(chunks, merged)
        wanted = torch.cat((batch.logit_rows, prompts.rows))
        hidden = self.model.hidden(batch.token_ids, wanted, self.model.ops.plan(batch, self.pool))
        prompts.take(hidden[rows:], self.model)
        return Logits(self.model.logits(hidden[:rows]))

    def _sources(self, chunks: list[Chunk]) -> list[int]:
        """For each chunk, the row of ``last_tokens`` that holds its token; -1 if the host knows it."""
        return [self._last_row[c.sequence] if c.sequence.pending else -1 for c in chunks]

    def _batch(self, chunks: list[Chunk], merged: AdapterSlot | None) -> StepBatch:
        starts = np.cumsum([0] + [chunk.tokens for chunk in chunks])
        decode = [chunk for chunk in chunks if self._decodes(chunk)]
        num_decode = sum(chunk.tokens for chunk in decode)
        token_ids = [t for c in chunks for t in c.sequence.token_ids[_computed(c) : _computed(c) + c.tokens]]
        positions = np.concatenate([np.arange(_computed(c), _computed(c) + c.tokens) for c in chunks])
        ends = [int(starts[i + 1]) - 1 for i, chunk in enumerate(chunks) if chunk.samples]
        return StepBatch(
            token_ids=self._token_ids(chunks, starts, token_ids),
            positions=self._tensor(positions),
            slot_mapping=self._tensor(self._slot_mapping(chunks, positions, starts)),
            num_decode=num_decode,
            block_table=self._tensor(_padded_pages(decode)),
            seq_lens=self._tensor(positions[:num_decode] + 1),
            prefill=[
                PrefillSpan(
                    int(starts[i]),
                    int(starts[i + 1]),
                    _computed(chunk),
                    self._tensor(np.array(chunk.sequence.pages, dtype=np.int64)),
                )
                for i, chunk in enumerate(chunks[len(decode) :], start=len(decode))
            ],
            lora=lora_spans(chunks, starts, merged),
            logit_rows=self._tensor(np.array(ends, dtype=np.int64)),
            merged=merged is not None,
        )

    def _token_ids(self, chunks: list[Chunk], starts: Indices, host: list[int]) -> torch.Tensor:
        ids = self._tensor(np.array(host, dtype=np.int64))
        sources = np.array(self._sources(chunks), dtype=np.int64)
        if (sources >= 0).any():
            pending = np.flatnonzero(sources >= 0)
            ids[self._tensor(starts[pending])] = self.last_tokens[self._tensor(sources[pending])]
        return ids

    def _slot_mapping(self, chunks: list[Chunk], positions: Indices, starts: Indices) -> Indices:
        g = self.pool.geometry
        pages = np.concatenate(
            [
                np.array(chunk.sequence.pages, dtype=np.int64)[positions[starts[i] : starts[i + 1]] // g.page_tokens]
                for i, chunk in enumerate(chunks)
            ]
        )
        return pages * g.kv_rows_per_page + positions % g.page_tokens

    def _tensor(self, array: Indices) -> torch.Tensor:
        return to_device(torch.from_numpy(array), self.pool.data.device)


def _to_host(tokens: torch.Tensor) -> tuple[torch.Tensor, torch.cuda.Event | None]:
    """Start copying tokens to the host; the event says when they are there (None: already)."""
    if not tokens.is_cuda:
        return tokens, None
    host = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
    host.copy_(tokens, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    return host, event


def _computed(chunk: Chunk) -> int:
    return chunk.sequence.num_computed


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


def _padded_pages(chunks: list[Chunk]) -> Indices:
    """``[tokens, most pages]``; the padding is page 0."""
    width = max((len(chunk.sequence.pages) for chunk in chunks), default=0)
    table = np.zeros((len(chunks), width), dtype=np.int64)
    for row, chunk in enumerate(chunks):
        table[row, : len(chunk.sequence.pages)] = chunk.sequence.pages
    return table if all(chunk.tokens == 1 for chunk in chunks) else table.repeat([c.tokens for c in chunks], axis=0)
