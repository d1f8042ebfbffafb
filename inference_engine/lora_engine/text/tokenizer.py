"""A model's tokeniser: text to ids, ids to text, and the ids that end a generation."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers

from .model_files import TokenizerError, read_json, special_tokens
from .token_bytes import DecodingRules, rules_from_decoder

# The library's threads would survive no fork, and take processors from the model.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

__all__ = ["Tokenizer", "TokenizerError"]

# Characters per token: a text with more of them per token is rare.
_CHARACTERS_PER_TOKEN = 8
# Tokens that a cut adds at most: two parts of a text together have so many more than the whole text.
_BESIDE_A_CUT = 64


class Tokenizer:
    """A wrapper of the ``tokenizers`` library; safe to use from several threads."""

    def __init__(self, fast: tokenizers.Tokenizer, special: dict[str, str], eos_token_ids: frozenset[int]) -> None:
        self._fast = fast
        self.special_tokens = special
        self.bos_token_id = self.token_id(special.get("bos_token"))
        self.eos_token_id = self.token_id(special.get("eos_token"))
        configured = frozenset() if self.eos_token_id is None else frozenset({self.eos_token_id})
        self.eos_token_ids: frozenset[int] = eos_token_ids | configured
        self.vocab_size: int = fast.get_vocab_size(with_added_tokens=True)
        self.rules: DecodingRules = rules_from_decoder(json.loads(fast.to_str())["decoder"])
        self.special_ids = frozenset(i for i, t in fast.get_added_tokens_decoder().items() if t.special)
        self.added_tokens: tuple[str, ...] = tuple(
            sorted(token.content for token in fast.get_added_tokens_decoder().values())
        )
        self._bytes: dict[int, bytes] = {}

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Read ``tokenizer.json`` and the config files beside it. Raises ``TokenizerError``."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise TokenizerError(
                f"{folder} holds no tokenizer.json; save it there with "
                "AutoTokenizer.from_pretrained(model).save_pretrained(folder)."
            )
        try:
            fast = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise TokenizerError(f"{path} cannot be read ({error}); download the model again.") from None
        # A training-time limit on length would silently cut prompts.
        fast.no_truncation()
        fast.no_padding()
        return cls(fast, special_tokens(folder), _configured_eos(folder))

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """Return the token ids of ``text``; with ``add_special_tokens`` also those the model starts with,
        such as BOS.
        """
        # The library's method that lets other threads run meanwhile: a long text takes seconds.
        token_ids: list[int] = self._fast.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0].ids
        return token_ids

    def is_longer(self, text: str, tokens: int) -> bool:
        """Return whether ``text`` has clearly more than ``tokens`` tokens, in about the time of encoding that many.

        Returns False where only ``encode`` can decide.
        """
        if len(text) <= _CHARACTERS_PER_TOKEN * tokens:
            return False
        count, size = 0, _CHARACTERS_PER_TOKEN * tokens // 2 + _BESIDE_A_CUT
        for start in range(0, len(text), size):
            count += max(0, len(self.encode(text[start : start + size], add_special_tokens=False)) - _BESIDE_A_CUT)
            if count > tokens:
                return True
        return False

    def decode(self, token_ids: Sequence[int], *, keep_special_tokens: bool = False) -> str:
        """Return the whole text of ``token_ids``, without special tokens unless they are to be kept."""
        text: str = self._fast.decode(list(token_ids), skip_special_tokens=not keep_special_tokens)
        return text

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes that the token stands for; special tokens as their name, ids without a token as nothing."""
        known = self._bytes.get(token_id)
        if known is None:
            piece = self._fast.id_to_token(token_id)
            known = b"" if piece is None else self.rules.piece_bytes(piece)
            self._bytes[token_id] = known
        return known

    def token_text(self, token_id: int) -> str:
        """Return ``token_bytes`` as text; a part of a character shows as U+FFFD."""
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def is_special(self, token_id: int) -> bool:
        """Return whether the token controls the model and never shows in text."""
        return token_id in self.special_ids

    def special_id(self, text: str) -> int | None:
        """Return the id of the special token of that name; None if there is none."""
        token_id = self.token_id(text)
        return token_id if token_id in self.special_ids else None

    def token_id(self, token: str | None) -> int | None:
        """Return the id of the one token of exactly this text, if there is one."""
        token_id: int | None = None if token is None else self._fast.token_to_id(token)
        return token_id


def _configured_eos(folder: Path) -> frozenset[int]:
    """Return the end tokens of ``generation_config.json`` (Llama 3 lists several there), else of ``config.json``."""
    for name in ("generation_config.json", "config.json"):
        value: Any = read_json(folder / name).get("eos_token_id")
        ids = value if isinstance(value, list) else [value]
        if token_ids := frozenset(item for item in ids if isinstance(item, int)):
            return token_ids
    return frozenset()
