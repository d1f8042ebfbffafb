"""Quantisation can change an adapter's effect: its answers are compared with the unquantised model's.

The unquantised model (``model/unquantised.py``) reads the probed texts once, each with the answers of the base and of
the adapter: which token it would have chosen at each position, and how far its log-probabilities are from those that
were served. The same figures of the base alone show the cost of quantisation itself. One adapter is compared at a time,
in a separate thread that yields to requests; nothing waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import torch

from lora_engine.adapters.staging import AdapterTiers
from lora_engine.errors import StageError, UnsupportedModel
from lora_engine.model.unquantised import MAX_TOKENS, Reading, Text, UnquantisedModel
from lora_engine.text import Tokenizer
from lora_engine.wire import engine_pb2 as pb

log = logging.getLogger(__name__)

LIMIT_S = 300.0  # time limit of one comparison
MOMENT_S = 0.25  # time that staging waits for a comparison; enough for a small model
_KEPT = 1024  # comparisons kept until they are fetched
# Longest pause in seconds after one layer while requests run.
_MAX_PAUSE_S = 2.0
# An adapter is flagged if its mean distance is more than LEAST_DISTANCE nats and also more than TIMES_BASE times the
# base's, or more than the change by the adapter itself; or if its share of agreeing tokens is lower than the base's by
# more than MORE_TOKENS.
LEAST_DISTANCE = 0.05
TIMES_BASE = 2.0
MORE_TOKENS = 0.25
Key = tuple[str, bytes]  # the adapter's digest, and its chat template


@dataclass(frozen=True, slots=True)
class Answer:
    """A served answer: the prompt, the generated tokens, and the known log-probabilities at each prompt token (none at
    the first).
    """

    prompt: Sequence[int]
    tokens: Sequence[int]
    places: Sequence[dict[int, float]]

    def text(self, adapted_from: int | None) -> Text:
        """Return the text to read again, up to the token that precedes the last one."""
        token_ids = [*self.prompt, *self.tokens[:-1]]
        known = [*self.places[1:], *([{}] * len(token_ids))]
        return Text(token_ids, known[: len(token_ids)], adapted_from)


class AnswerPair(NamedTuple):
    """The base's and the adapter's answer to one prompt. The adapter acts from prompt token ``adapted_from`` on.

    Only the positions on which it acts are compared.
    """

    base: Answer
    adapted: Answer
    adapted_from: int

    @property
    def change(self) -> float | None:
        """Mean change of log-probabilities by the adapter; None if it acts on no position that is known."""
        pairs = zip(self.base.places, self.adapted.places, strict=True)
        places = [*pairs][self.adapted_from + 1 :]
        changes = [abs(value - other[token]) for one, other in places for token, value in one.items() if token in other]
        return sum(changes) / len(changes) if changes else None


@dataclass(frozen=True, slots=True)
class _Comparison:
    effect: pb.AdapterEffect
    running: asyncio.Future[pb.Agreement]

    def so_far(self) -> pb.AdapterEffect:
        effect = pb.AdapterEffect()
        effect.CopyFrom(self.effect)
        if self.running.done():
            effect.agreement.CopyFrom(self.running.result())
        else:
            effect.agreement.outcome = pb.Agreement.PENDING
        return effect


class BaseAgreement:
    """A runner of comparisons with the unquantised base. It lives on the event loop."""

    def __init__(
        self, model: UnquantisedModel, tiers: AdapterTiers, tokenizer: Tokenizer, is_busy: Callable[[], bool]
    ) -> None:
        """Create the runner. ``is_busy`` returns whether requests are being served now."""
        self._model, self._tiers, self._tokenizer, self._is_busy = model, tiers, tokenizer, is_busy
        self._thread = ThreadPoolExecutor(1, "agreement")
        self._stopped = threading.Event()
        self._known: OrderedDict[Key, _Comparison] = OrderedDict()

    def close(self) -> None:
        """Stop the running comparison after its current layer."""
        self._stopped.set()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def known(self, key: Key) -> pb.AdapterEffect | None:
        """Return the effect with the agreement of ``key`` so far, or None. A complete one is returned once and then
        dropped.
        """
        comparison = self._known.get(key)
        if comparison is None:
            return None
        if comparison.running.done():
            del self._known[key]
        return comparison.so_far()

    async def compare(
        self, key: Key, digest: str, pairs: Sequence[AnswerPair], effect: pb.AdapterEffect, patience_s: float
    ) -> pb.AdapterEffect:
        """Return the effect with the agreement as measured within ``patience_s``; ``known`` returns it later."""
        loop = asyncio.get_running_loop()
        comparison = _Comparison(effect, loop.run_in_executor(self._thread, self._measure, digest, pairs, effect))
        await asyncio.wait([comparison.running], timeout=patience_s)
        if not comparison.running.done():
            self._known[key] = comparison
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return comparison.so_far()

    # The methods below run in the thread that measures.

    def _measure(self, digest: str, pairs: Sequence[AnswerPair], effect: pb.AdapterEffect) -> pb.Agreement:
        began = time.monotonic()
        try:
            agreement = self._agreement(digest, pairs, effect)
        except _EndedError as error:
            agreement = _not_measured(str(error))
        except UnsupportedModel as error:
            agreement = _not_measured(f"{error}. Restart the host, and upload the version again.")
        except StageError as error:
            agreement = _not_measured(f"{error.message} {error.fix}")
        except torch.OutOfMemoryError:
            agreement = _not_measured("the host had too little memory left for it. Give it more, or a smaller pool.")
        except Exception as error:
            log.exception("the agreement of %s with the unquantised base could not be measured", digest)
            agreement = _not_measured(
                f"the comparison failed on the host ({type(error).__name__}). See the engine's log."
            )
        agreement.elapsed_ms = round(1000 * (time.monotonic() - began))
        return agreement

    def _agreement(self, digest: str, pairs: Sequence[AnswerPair], effect: pb.AdapterEffect) -> pb.Agreement:
        if effect.verdict == pb.AdapterEffect.OVERFLOWS:
            raise _EndedError("the version overflows, so that there is nothing to compare.")
        texts = [text for pair in pairs for text in (pair.base.text(None), pair.adapted.text(pair.adapted_from))]
        tokens = sum(len(text.token_ids) for text in texts)
        if tokens > MAX_TOKENS:
            raise _EndedError(
                f"the prompts have {tokens} tokens by this version's chat template, and at most {MAX_TOKENS} are read."
            )
        readings = self._model.read(texts, lambda packer: self._tiers.pack_with(packer, digest), self._pace())
        prompts = [
            _compared(pair, base, adapted, self._tokenizer)
            for pair, base, adapted in zip(pairs, readings[::2], readings[1::2], strict=True)
        ]
        agreement = pb.Agreement(
            dequantised=self._model.dequantised,
            base=_total(prompt.base for prompt in prompts),
            adapter=_total(prompt.adapter for prompt in prompts),
            prompts=prompts,
            layer_changes=self._model.layer_changes,
        )
        acts = effect.verdict == pb.AdapterEffect.ACTS
        changes = [pair.change for pair in pairs if acts and pair.change is not None]
        change = sum(changes) / len(changes) if changes else None
        agreement.reason = difference(agreement.base, agreement.adapter, change)
        agreement.outcome = pb.Agreement.DIFFERS if agreement.reason else pb.Agreement.AGREES
        return agreement

    def _pace(self) -> Callable[[], None]:
        """Return a function to call after each layer: while requests run, it pauses as long as the layer took."""
        began = latest = time.monotonic()

        def check() -> None:
            nonlocal latest
            now = time.monotonic()
            if self._stopped.is_set():
                raise _EndedError("the host is being stopped.")
            if now - began > LIMIT_S:
                raise _EndedError(f"reading the unquantised weights took longer than {LIMIT_S:.0f} seconds.")
            if self._is_busy():
                self._stopped.wait(min(now - latest, _MAX_PAUSE_S))
            latest = time.monotonic()

        return check


class _EndedError(Exception):
    """The comparison cannot be made; the message gives the reason."""


def difference(base: pb.AgreementFigures, adapter: pb.AgreementFigures, change: float | None) -> str:
    """Return, for people, why the adapter does not agree with the unquantised base; "" if it does.

    ``change``: mean change of log-probabilities by the adapter itself, if known.
    """
    moved = f"Quantising the base moves log-probabilities by {adapter.mean_distance:.2f} on average with this version"
    if adapter.mean_distance > LEAST_DISTANCE:
        if adapter.mean_distance > TIMES_BASE * base.mean_distance:
            return f"{moved}, and by {base.mean_distance:.2f} without it."
        if change is not None and adapter.mean_distance > change:
            return f"{moved}, which is more than the version itself does ({change:.2f})."
    if _share(base) - _share(adapter) > MORE_TOKENS:
        return (
            f"The unquantised base with this version chooses {adapter.agreeing} of {adapter.tokens} tokens as they are "
            f"served; without it {base.agreeing} of {base.tokens}."
        )
    return ""


def _share(figures: pb.AgreementFigures) -> float:
    return figures.agreeing / figures.tokens if figures.tokens else 1.0


def _not_measured(reason: str) -> pb.Agreement:
    return pb.Agreement(outcome=pb.Agreement.NOT_MEASURED, reason=reason[:1].upper() + reason[1:])


def _compared(pair: AnswerPair, base: Reading, adapted: Reading, tokenizer: Tokenizer) -> pb.PromptAgreement:
    chosen = [
        reading.argmax[len(answer.prompt) - 1 :][: len(answer.tokens)]
        for answer, reading in ((pair.base, base), (pair.adapted, adapted))
    ]
    return pb.PromptAgreement(
        base=_figures(pair.base, base, chosen[0], pair.adapted_from),
        adapter=_figures(pair.adapted, adapted, chosen[1], pair.adapted_from),
        base_tokens=map(tokenizer.token_text, chosen[0]),
        adapter_tokens=map(tokenizer.token_text, chosen[1]),
    )


def _figures(served: Answer, reading: Reading, chosen: Sequence[int], first: int) -> pb.AgreementFigures:
    """Compare what the answer and the reading predict after the prompt's token ``first`` and later ones."""
    distances = list(_distances(served, reading, first)) or [0.0]
    return pb.AgreementFigures(
        tokens=len(served.tokens),
        agreeing=sum(one == other for one, other in zip(served.tokens, chosen, strict=True)),
        mean_distance=sum(distances) / len(distances),
        largest_distance=max(distances),
    )


def _distances(served: Answer, reading: Reading, first: int) -> Iterator[float]:
    for place, logprobs in zip(served.places[first + 1 :], reading.logprobs[first:], strict=False):
        yield from (abs(logprob - logprobs[token_id]) for token_id, logprob in place.items())


def _total(parts: Iterator[pb.AgreementFigures]) -> pb.AgreementFigures:
    """Return the figures over several prompts, each with the same weight."""
    each = list(parts)
    return pb.AgreementFigures(
        tokens=sum(part.tokens for part in each),
        agreeing=sum(part.agreeing for part in each),
        mean_distance=sum(part.mean_distance for part in each) / len(each),
        largest_distance=max(part.largest_distance for part in each),
    )
