"""Conversion between text and token ids: tokeniser, chat template, and detokenising as tokens arrive."""

from .chat_template import ChatTemplate
from .detokenizer import IncrementalDetokenizer
from .fill_in_middle import FillInMiddle
from .tokenizer import Tokenizer, TokenizerError

__all__ = ["ChatTemplate", "FillInMiddle", "IncrementalDetokenizer", "Tokenizer", "TokenizerError"]
