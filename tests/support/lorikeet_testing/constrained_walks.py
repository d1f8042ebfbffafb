"""Answers drawn at random from a constraint's masks, as a model without any preference would write them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from lora_engine.constraints import Constraint, compile_constraint
from lora_engine.text import Tokenizer

# Probability with which a token that closes something is preferred to any other, so that answers end.
_CLOSING = 0.6
_MAX_TOKENS = 400


class Died(AssertionError):
    """The constraint was accepted, and then no token was allowed before the answer was complete."""


class Walker:
    """A source of random texts that a constraint allows, drawn from a model's tokens."""

    def __init__(self, tokenizer: Tokenizer, tables: Any) -> None:
        """``tables``: the tokeniser as llguidance has it (``lora_engine.structured.grammars.token_tables``)."""
        self._tables = tables
        self._texts = [tokenizer.token_bytes(token) for token in range(tokenizer.vocab_size)]
        self._ends = tokenizer.eos_token_ids
        self._closes = np.array([text[:1] in (b'"', b"}", b"]", b",") for text in self._texts])

    def walk(self, constraint: Constraint, rnd: random.Random) -> str | None:
        """A complete answer; None if it did not end within ``_MAX_TOKENS``. Raises ``ConstraintError``, ``Died``."""
        matcher, text = compile_constraint(constraint, self._tables).matcher.deep_copy(), b""
        for _ in range(_MAX_TOKENS):
            mask = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
            allowed = np.unpackbits(mask, bitorder="little").nonzero()[0]
            if matcher.is_error() or not len(allowed):
                raise Died(f"after {text!r}: {matcher.get_error()[:200]}")
            if self._ends.intersection(allowed.tolist()):
                return text.decode()
            closing = allowed[self._closes[allowed]]
            token = int(rnd.choice(closing if len(closing) and rnd.random() < _CLOSING else allowed))
            text += self._texts[token]
            if not matcher.consume_token(token):
                raise Died(f"after {text!r}: {matcher.get_error()[:200]}")
            if matcher.is_stopped():
                return text.decode()
        return None
