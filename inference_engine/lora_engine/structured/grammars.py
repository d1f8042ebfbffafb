"""The compilation of constraints for the model's tokeniser, each once."""

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

# Compiled constraints that are kept; those of ordinary schemas take some hundred kilobytes each.
KEPT = 256
# Mean seconds for a mask above which a grammar is slow, and number of masks in the mean. Usual masks take 3 µs, one in
# a hundred 400 µs, one in 1,000 2 ms.
SLOW_S, MEAN_OF = 0.003, 16
# Masks that are computed alone before a grammar counts as quick.
TRIED = 32
# Share of late batches among the last ones from which on their grammars are timed alone again.
LATE = 0.15


class Grammar:
    """A compiled constraint, whose ``start`` returns the masks of a new sequence."""

    def __init__(self, constraint: Constraint, matcher: LLMatcher, first_mask: Mask, workers: MaskWorkers) -> None:
        self.constraint = constraint
        self.matcher = matcher
        self.first_mask = first_mask
        self.mean_mask_s = 0.0
        self._untried, self._late = TRIED, 0.0
        self._workers = workers

    @property
    def is_slow(self) -> bool:
        """True if its masks take longer than a step, so that waiting for them is useless."""
        return self.mean_mask_s > SLOW_S

    @property
    def is_quick(self) -> bool:
        """True if its masks have been quick enough to be computed in a batch with those of others."""
        return self._untried <= 0 and not self.is_slow

    @property
    def lane(self) -> Lane:
        return self._workers.slow if self.is_slow else self._workers.usual

    def mask_took(self, seconds: float) -> None:
        """Add a mask's duration to the mean of the last few; in any schema one mask in some thousands takes long."""
        self.mean_mask_s += (seconds - self.mean_mask_s) / MEAN_OF
        self._untried -= 1

    def batch_came(self, *, late: bool) -> None:
        """Record a batch with some of its masks as in time or too late for its step, also by a mean."""
        self._late += (late - self._late) / MEAN_OF
        if self._late > LATE:
            self._untried, self._late = TRIED, 0.0

    def start(self) -> TokenMasks:
        return TokenMasks(self)


class Grammars:
    """A compiler for one tokeniser with a cache of the last used grammars. It is thread-safe."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        """Create a compiler; ``vocab_size`` is the width of the model's logits, which may exceed the tokeniser's."""
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._workers = MaskWorkers()
        self._kept: OrderedDict[Constraint, Future[Grammar]] = OrderedDict()
        self._lock = threading.Lock()
        self._tables: LLTokenizer | None = None
        self._tables_lock = threading.Lock()

    def find(self, constraint: Constraint) -> Grammar | None:
        """Return a grammar that was compiled before, without waiting; None if there is none."""
        with self._lock:
            known = self._kept.get(constraint)
        return known.result() if known is not None and known.done() and known.exception() is None else None

    def compile(self, constraint: Constraint) -> Grammar:
        """Compile a constraint or return it from the cache; takes up to about a second. Raises ``RequestError``."""
        with self._lock:
            known = self._kept.get(constraint)
            if known is None:
                compiled: Future[Grammar] = Future()
                self._kept[constraint] = compiled
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            else:
                self._kept.move_to_end(constraint)
        if known is not None:
            return known.result()
        try:
            compiled.set_result(self._compile(constraint))
        except BaseException as error:
            with self._lock:
                self._kept.pop(constraint, None)
            compiled.set_exception(error)
        return compiled.result()

    def prepare(self) -> None:
        """Build the tables that every constraint needs, so that the first one does not wait for them."""
        with suppress(RequestError):  # requests with a constraint get the same error
            self.compile(Constraint(Kind.JSON_OBJECT))

    def begin_masks(self, of: Iterable[TokenMasks]) -> None:
        """Start computing the next masks, and wait for those of quick grammars. Only the step thread calls it."""
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
                "This host cannot constrain answers to a schema or grammar: llguidance is not installed on it.",
                'Ask the operator to install it (pip install "lorikeet[engine]").',
            ) from None
        mask = np.empty((self._vocab_size + 31) // 32, dtype=np.int32)
        matcher.unsafe_compute_mask_ptr(mask.ctypes.data, mask.nbytes)
        if matcher.is_error() or not mask.any():
            raise RequestError(
                "invalid_constraint",
                "No sequence of this model's tokens satisfies the schema or grammar.",
                "Simplify the schema or grammar.",
            )
        return Grammar(constraint, matcher, mask, self._workers)

    def _token_tables(self) -> LLTokenizer:
        """Return llguidance's tables of the tokeniser, built once, in about a second for a large vocabulary."""
        with self._tables_lock:
            if self._tables is None:
                self._tables = token_tables(self._tokenizer, self._vocab_size)
            return self._tables


def token_tables(tokenizer: Tokenizer, vocab_size: int) -> LLTokenizer:
    """Build llguidance's tables of a tokeniser. Raises ``LibraryMissingError``."""
    library = load_library()
    ends = sorted(token_id for token_id in tokenizer.eos_token_ids if token_id < vocab_size)
    if not ends:
        raise RequestError(
            "structured_outputs_unavailable",
            "This model has no token that ends an answer, so answers cannot be constrained to a schema or grammar.",
            "Name one as eos_token_id in the model's generation_config.json.",
        )
    wrapper = library.TokenizerWrapper(_ForLibrary(tokenizer, vocab_size, ends[0]))
    tables: LLTokenizer = library.LLTokenizer(wrapper, eos_token=ends)
    return tables


class _ForLibrary:
    """An adapter of a tokeniser to llguidance's interface. Ids without a token have no bytes, and are never allowed."""

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
        """Return the tokens of text that a grammar forces, as the model would write them."""
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
