"""Constraints compiled for the model's tokeniser, each once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from lora_engine.constraints import (
    Constraint,
    ConstraintError,
    Kind,
    LibraryMissingError,
    compile_constraint,
    load_library,
)
from lora_engine.request import RequestError
from lora_engine.text import Tokenizer

from .token_masks import Mask, TokenMasks
from .workers import Lane, MaskWorkers

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

KEPT = 256  # compiled constraints; of ordinary schemas each takes some hundred kilobytes
SLOW_S, MEAN_OF = 0.003, 16  # of a thread, for a mask; usual ones take 3 µs, one in a hundred 400, one in 1,000 2 ms
TRIED = 32  # masks that are computed alone before a grammar is taken for quick
LATE = 0.15  # share of the last batches that came late, from which on their grammars are tried again


class Grammar:
    """A compiled constraint; sequences ``start`` from it."""

    def __init__(self, constraint: Constraint, matcher: LLMatcher, first_mask: Mask, workers: MaskWorkers) -> None:
        self.constraint = constraint
        self.matcher = matcher
        self.first_mask = first_mask
        self.mean_mask_s = 0.0
        self._untried, self._late = TRIED, 0.0
        self._workers = workers

    @property
    def is_slow(self) -> bool:
        """Whether waiting for its masks is of no use: a step is over before they are there."""
        return self.mean_mask_s > SLOW_S

    @property
    def is_quick(self) -> bool:
        """Whether its masks were quick enough so far to be computed together with others'."""
        return self._untried <= 0 and not self.is_slow

    @property
    def lane(self) -> Lane:
        return self._workers.slow if self.is_slow else self._workers.usual

    def mask_took(self, seconds: float) -> None:
        """The mean is of the last few: of any schema's masks one in some thousands takes long."""
        self.mean_mask_s += (seconds - self.mean_mask_s) / MEAN_OF
        self._untried -= 1

    def batch_came(self, *, late: bool) -> None:
        """With some of its masks, in time or too late for its step: by the mean, for the same reason."""
        self._late += (late - self._late) / MEAN_OF
        if self._late > LATE:
            self._untried, self._late = TRIED, 0.0

    def start(self) -> TokenMasks:
        return TokenMasks(self)


class Grammars:
    """Compiles for one tokeniser, and keeps what was used last. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        """``vocab_size`` is the model's: its logits may be wider than the tokeniser's vocabulary."""
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._workers = MaskWorkers()
        self._kept: OrderedDict[Constraint, Future[Grammar]] = OrderedDict()
        self._lock = threading.Lock()
        self._tables: LLTokenizer | None = None
        self._tables_lock = threading.Lock()

    def find(self, constraint: Constraint) -> Grammar | None:
        """What was compiled before, without waiting."""
        with self._lock:
            known = self._kept.get(constraint)
        return known.result() if known is not None and known.done() and known.exception() is None else None

    def compile(self, constraint: Constraint) -> Grammar:
        """Takes milliseconds and at worst about a second, if it is new. Raises ``RequestError``."""
        with self._lock:
            known = self._kept.get(constraint)
            if known is None:
                mine: Future[Grammar] = Future()
                self._kept[constraint] = mine
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            else:
                self._kept.move_to_end(constraint)
        if known is not None:
            return known.result()
        try:
            mine.set_result(self._compile(constraint))
        except BaseException as error:
            with self._lock:
                self._kept.pop(constraint, None)
            mine.set_exception(error)
        return mine.result()

    def prepare(self) -> None:
        """Build what every constraint needs, so that the first one need not wait for it."""
        with suppress(RequestError):  # said to whoever asks for a constraint
            self.compile(Constraint(Kind.JSON_OBJECT))

    def begin_masks(self, of: Iterable[TokenMasks]) -> None:
        """Start to compute the masks after the tokens taken so far; quick ones are waited for. From the step thread."""
        quick = []
        for masks in of:
            if masks.are_quick:
                quick.append(masks)
            else:
                masks.begin_mask()
        if quick:
            self._workers.compute_together(quick)

    def close(self) -> None:
        self._workers.close()

    def _compile(self, constraint: Constraint) -> Grammar:
        try:
            matcher = compile_constraint(constraint, self._token_tables()).matcher
        except ConstraintError as error:
            where = f" (at {error.path})" if error.path else ""
            raise RequestError("invalid_constraint", error.message + where, error.fix) from None
        except LibraryMissingError:
            raise RequestError(
                "structured_outputs_unavailable",
                "This host cannot hold answers to a schema or grammar: llguidance is not installed on it.",
                'Ask the operator to install it (pip install "lorikeet[engine]").',
            ) from None
        mask = np.empty((self._vocab_size + 31) // 32, dtype=np.int32)
        matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if matcher.is_error() or not mask.any():
            raise RequestError(
                "invalid_constraint", "No answer of this model's tokens fits.", "Simplify the schema or grammar."
            )
        return Grammar(constraint, matcher, mask, self._workers)

    def _token_tables(self) -> LLTokenizer:
        """The tokeniser as llguidance needs it: built once, in about a second for a large vocabulary."""
        with self._tables_lock:
            if self._tables is None:
                self._tables = token_tables(self._tokenizer, self._vocab_size)
            return self._tables


def token_tables(tokenizer: Tokenizer, vocab_size: int) -> LLTokenizer:
    """Raises ``LibraryMissingError``."""
    library = load_library()
    ends = sorted(token_id for token_id in tokenizer.eos_token_ids if token_id < vocab_size)
    if not ends:
        raise RequestError(
            "structured_outputs_unavailable",
            "This model has no token that ends an answer, so answers cannot be held to a schema or grammar.",
            "Name one as eos_token_id in the model's generation_config.json.",
        )
    wrapper = library.TokenizerWrapper(_ForLibrary(tokenizer, vocab_size, ends[0]))
    tables: LLTokenizer = library.LLTokenizer(wrapper, eos_token=ends)
    return tables


class _ForLibrary:
    """What llguidance asks of a tokeniser. Ids without a token have no bytes, and are never allowed."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_token_id: int) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = eos_token_id
        self.tokens = [tokenizer.token_bytes(token_id) for token_id in range(vocab_size)]
        self.special_token_ids = [token_id for token_id in range(vocab_size) if tokenizer.is_special(token_id)]

        self._id_of = {piece: token_id for token_id, piece in reversed([*enumerate(self.tokens)]) if piece}
        for token_id in self.special_token_ids:
            self._id_of.pop(self.tokens[token_id], None)
        self._longest = max(map(len, self._id_of), default=0)

    def __call__(self, text: bytes) -> list[int]:
        """The tokens of text that a grammar leaves no choice about: those that the model would write."""
        ids = self._tokenizer.encode(text.decode(), add_special_tokens=False)
        # Some tokenisers put a space before a text, or drop one.
        return ids if b"".join(map(self._tokenizer.token_bytes, ids)) == text else self._longest_first(text)

    def _longest_first(self, text: bytes) -> list[int]:
        ids, at = [], 0
        while at < len(text):
            ends = range(min(len(text), at + self._longest), at, -1)
            end = next((end for end in ends if text[at:end] in self._id_of), None)
            if end is None:
                break
            ids.append(self._id_of[text[at:end]])
            at = end
        return ids
