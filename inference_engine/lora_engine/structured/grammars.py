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
from lora_engine.errors import RequestError
from lora_engine.text import Tokenizer

from .lookahead import Drafts
from .masks import Grammar, MaskWorkers, TokenMasks

if TYPE_CHECKING:
    from llguidance import LLTokenizer

# Compiled constraints that are kept; those of ordinary schemas take some hundred kilobytes each.
KEPT = 256


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

    def begin_masks_of_drafts(self, of: Iterable[tuple[TokenMasks, Drafts]]) -> None:
        """Start computing the masks of the rows of a step's drafts. Only the step thread calls it."""
        self._workers.begin_ahead(of)

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
                'Ask the operator to install it (pip install ".[engine]").',
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
        # Some tokenisers put a space before a text, or drop one. All read the name of a special token as that token,
        # which would not show in the answer, or even end it.
        same = b"".join(map(self._tokenizer.token_bytes, ids)) == text
        return ids if same and not any(map(self._tokenizer.is_special, ids)) else self._longest_first(text)

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
