"""Turn conversations into training rows: token ids, and labels that count only what the assistant says."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from demo.train.corpus import Message
from demo.train.tokenizer import BOS, EOS, PAD
from numpy.typing import NDArray
from tokenizers import Tokenizer

Rows = tuple[NDArray[np.int16], NDArray[np.int16]]
IGNORED = -100


def encode_chats(tokenizer: Tokenizer, chats: Iterable[list[Message]]) -> Iterator[tuple[list[int], list[int]]]:
    """Ids and labels of each conversation; labels cover the assistant's words and its end token."""
    bos, end = token(tokenizer, BOS), token(tokenizer, EOS)
    talks = list(chats)
    texts = tokenizer.encode_batch_fast([m["content"] for chat in talks for m in chat], add_special_tokens=False)
    encoded = iter(texts)
    for chat in talks:
        ids, labels = [bos], [IGNORED]
        for message in chat:
            spoken = [*next(encoded).ids, end]
            ids += [token(tokenizer, f"<|{message['role']}|>"), *spoken]
            labels += [IGNORED, *(spoken if message["role"] == "assistant" else [IGNORED] * len(spoken))]
        yield ids, labels


def encode_documents(tokenizer: Tokenizer, texts: Iterable[str]) -> Iterator[tuple[list[int], list[int]]]:
    """Ids and labels of plain texts; every token counts."""
    bos, end = token(tokenizer, BOS), token(tokenizer, EOS)
    for encoded in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False):
        ids = [bos, *encoded.ids, end]
        yield ids, [IGNORED, *ids[1:]]


def pack(examples: Iterable[tuple[list[int], list[int]]], length: int, pad: int) -> Rows:
    """Fill rows of `length` tokens with whole examples in order; the rest of a row is padding that never counts."""
    rows: list[list[int]] = []
    marks: list[list[int]] = []
    ids: list[int] = []
    labels: list[int] = []

    def close() -> None:
        rows.append(ids + [pad] * (length - len(ids)))
        marks.append(labels + [IGNORED] * (length - len(labels)))

    for more_ids, more_labels in examples:
        if ids and len(ids) + len(more_ids) > length:
            close()
            ids, labels = [], []
        ids, labels = ids + more_ids[: length - len(ids)], labels + more_labels[: length - len(labels)]
    close()
    return np.array(rows, dtype=np.int16), np.array(marks, dtype=np.int16)


def token(tokenizer: Tokenizer, text: str) -> int:
    """The id of a special token; raises KeyError if the tokenizer has none of that name."""
    number = tokenizer.token_to_id(text)
    if number is None:
        raise KeyError(f"The tokenizer has no token {text}: train it with demo.train.tokenizer first.")
    return int(number)


def pad_id(tokenizer: Tokenizer) -> int:
    """The id of the padding token."""
    return token(tokenizer, PAD)


def in_parallel(job: Callable[[tuple[Path, int]], Rows], model: Path, shards: int) -> Rows:
    """Run `job((model, shard))` for each shard on all cores and join the rows in shard order."""
    with ProcessPoolExecutor(min(shards, os.cpu_count() or 1)) as pool:
        parts = list(pool.map(job, [(model, shard) for shard in range(shards)]))
    return np.concatenate([ids for ids, _ in parts]), np.concatenate([labels for _, labels in parts])
