"""Prompts for the text between a prefix and a suffix, by the special tokens of models that were trained for it.

All of these families read the prefix first, then the suffix, then write the middle (PSM). Sources: the model cards of
Qwen2.5-Coder, StarCoder2, DeepSeek-Coder and CodeGemma, and transformers' tokenizer of Code Llama.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .tokenizer import Tokenizer

# A character that merges with no other: the text behind it is encoded as in the middle of a text.
_MARK = "☺"


@dataclass(frozen=True)
class _Family:
    """Names of a family's tokens: before prefix, suffix and middle, and those that end a middle beside its EOS."""

    prefix: str
    suffix: str
    middle: str
    ends: tuple[str, ...] = ()
    # The tokenizer writes a space before each text, which the suffix does not begin with.
    adds_space: bool = False


FAMILIES = (
    # Qwen2.5-Coder, CodeGemma, Granite 4
    _Family(
        "<|fim_prefix|>",
        "<|fim_suffix|>",
        "<|fim_middle|>",
        ("<|endoftext|>", "<|fim_pad|>", "<|file_sep|>", "<|repo_name|>", "<|file_separator|>"),
    ),
    # StarCoder, StarCoder2, Granite Code
    _Family(
        "<fim_prefix>",
        "<fim_suffix>",
        "<fim_middle>",
        ("<|endoftext|>", "<fim_pad>", "<file_sep>", "<repo_name>", "<filename>", "<reponame>"),
    ),
    # SantaCoder
    _Family("<fim-prefix>", "<fim-suffix>", "<fim-middle>", ("<|endoftext|>", "<fim-pad>")),
    # DeepSeek-Coder, DeepSeek-Coder-V2
    _Family("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    # Code Llama
    _Family("▁<PRE>", "▁<SUF>", "▁<MID>", ("▁<EOT>",), adds_space=True),
)


@dataclass(frozen=True)
class MiddlePrompt:
    """A prompt, and the ids that end the middle beside the model's own."""

    token_ids: list[int]
    end_ids: tuple[int, ...]


class FillInMiddle:
    """The format of a tokenizer that has such tokens."""

    def __init__(self, tokenizer: Tokenizer, family: _Family) -> None:
        self._tokenizer, self._family = tokenizer, family
        self._end_ids = tuple(i for name in family.ends if (i := tokenizer.token_id(name)) is not None)

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> FillInMiddle | None:
        """Return the format of a tokenizer; None if it lacks the tokens of every family."""
        for family in FAMILIES:
            if all(tokenizer.token_id(name) is not None for name in (family.prefix, family.suffix, family.middle)):
                return cls(tokenizer, family)
        return None

    def prompt(self, prefix: str | Sequence[int], suffix: str, *, add_special_tokens: bool) -> MiddlePrompt:
        """Return the prompt of a prefix, as text or ids, and a suffix."""
        tokenizer, family = self._tokenizer, self._family
        start = tokenizer.encode("", add_special_tokens=True)[:1] if add_special_tokens else []
        before = tokenizer.encode(prefix, add_special_tokens=False) if isinstance(prefix, str) else list(prefix)
        ids = [
            *(i for i in start if i == tokenizer.bos_token_id),
            self._id(family.prefix),
            *before,
            self._id(family.suffix),
            *self._suffix(suffix),
            self._id(family.middle),
        ]
        return MiddlePrompt(ids, self._end_ids)

    def _id(self, name: str) -> int:
        token_id = self._tokenizer.token_id(name)
        assert token_id is not None
        return token_id

    def _suffix(self, text: str) -> list[int]:
        if not self._family.adds_space:
            return self._tokenizer.encode(text, add_special_tokens=False)
        mark = self._tokenizer.encode(_MARK, add_special_tokens=False)
        marked = self._tokenizer.encode(_MARK + text, add_special_tokens=False)
        return marked[len(mark) :]
