"""The fake model's answers: a pure function of adapter, prompt and choice, so that tests can expect exact text.

The last message (or the prompt) may steer it:

=====================  ==========================================================
``say <text>``         answers exactly ``<text>``
``words <n>``          answers ``n`` words
``fail <code>``        the request is refused with this error code
``break <n>``          fails with ``device_error`` after ``n`` tokens
``hang``               is accepted and never produces a token
``tries <faults>``     one fault for each try, parted by spaces; then it answers
=====================  ==========================================================

A fault is `kind@n`: after ``n`` tokens (0 without) the engine

=====================  ==========================================================
``die``                ends this session and knows nothing of what ran there
``cut``                ends this session, and keeps in its journal what ran there
``stop``               ends the request early although nobody asked for that
``hang``               makes no further step as long as the request is there
``ok``                 goes on: no fault
any error code         fails with it; without ``@n``, refuses the request
=====================  ==========================================================
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from lora_engine.wire import engine_pb2 as pb

VOCABULARY = tuple(
    "river stone amber lantern quiet harbour violet engine meadow copper signal winter orchard "  # noqa: SIM905
    "compass thunder velvet island ribbon falcon cinder marble willow ember canyon silver "
    "beacon garden shadow crystal rocket pepper bridge".split()
)
COMMANDS = frozenset({"say", "words", "fail", "break", "overflow", "hang", "tries"})
DEFAULT_WORDS = 24
PIECE = re.compile(r"\s*\S+|\s+")


@dataclass(frozen=True)
class Plan:
    """The text of one choice, decided before its first token: pieces, one per token."""

    pieces: tuple[str, ...]
    finish_reason: str
    text: str

    @property
    def num_tokens(self) -> int:
        return len(self.pieces)


def prompt_text(submit: pb.Submit) -> str:
    kind = submit.WhichOneof("prompt")
    if kind == "chat":
        return "\n".join(f"<{m.role}> {m.content}" for m in submit.chat.messages)
    if kind == "token_ids":
        return " ".join(VOCABULARY[i % len(VOCABULARY)] for i in submit.token_ids.ids)
    return submit.text


def count_prompt_tokens(submit: pb.Submit) -> int:
    return _count(submit) + sum(map(_count, all_prompts(submit)[1:]))


def all_prompts(submit: pb.Submit) -> list[pb.Submit]:
    """Return each prompt as if it were the request's only one."""
    more = [pb.Submit(text=prompt.text) if prompt.WhichOneof("prompt") == "text" else
            pb.Submit(token_ids=prompt.token_ids) for prompt in submit.more_prompts]  # fmt: skip
    return [submit, *more]


def vectors(submit: pb.Submit) -> list[list[float]]:
    """Return a vector per prompt: its number, its tokens, 1 if pooled by their mean, then 0.1 in all other
    dimensions.
    """
    mean = float(submit.pooling.kind == pb.Pooling.MEAN)
    size = submit.pooling.dimensions or 8
    return [[number, _count(p), mean, *[0.1] * 5][:size] for number, p in enumerate(all_prompts(submit))]


def _count(submit: pb.Submit) -> int:
    if submit.WhichOneof("prompt") == "token_ids":
        return len(submit.token_ids.ids)
    return max(1, len(prompt_text(submit).split()))


def prompt_tokens(submit: pb.Submit) -> list[tuple[int, str]]:
    """Return ids and texts, as the engine describes the prompt."""
    if submit.WhichOneof("prompt") == "token_ids":
        return [(i, VOCABULARY[i % len(VOCABULARY)] + " ") for i in submit.token_ids.ids]
    return [(100 + index, piece) for index, piece in enumerate(PIECE.findall(prompt_text(submit)))]


def prompt_logprobs(submit: pb.Submit) -> list[pb.PromptLogprobs]:
    """Return -0.5 at rank two, after the likeliest token "best", for each token; in chunks of three tokens."""
    tokens, top = prompt_tokens(submit), submit.prompt_logprobs
    chunks = []
    for start in range(0, len(tokens), 3):
        chunk = pb.PromptLogprobs(num_top=top)
        for index, (token_id, text) in enumerate(tokens[start : start + 3], start=start):
            chunk.token_ids.append(token_id)
            chunk.logprobs.append(-0.5 if index else 0.0)
            chunk.ranks.append(2 if index else 0)
            chunk.token_bytes[token_id] = text.encode()
            for rank in range(top if index else 0):
                chunk.top_ids.append(token_id if rank == 1 else rank)
                chunk.top_logprobs.append(-0.5 if rank == 1 else -0.25 - rank)
                chunk.token_bytes.setdefault(rank, f"best{rank}".encode())
        chunks.append(chunk)
    return chunks


def steering(submit: pb.Submit) -> tuple[str, str]:
    """Return the command in the last message and its argument, or ("", "")."""
    last = submit.chat.messages[-1].content if submit.WhichOneof("prompt") == "chat" else prompt_text(submit)
    command, _, argument = last.partition(" ")
    return (
        (command, argument) if command in {"say", "words", "fail", "break", "overflow", "hang", "tries"} else ("", "")
    )


@dataclass(frozen=True)
class Fault:
    """A fault of one try of a request."""

    kind: str
    after: int
    at_once: bool


def fault_of(submit: pb.Submit) -> Fault | None:
    """Return the fault of this try; the try's number is part of the request's id."""
    command, argument = steering(submit)
    if command != "tries":
        return None
    number = int(submit.request_id.partition(".")[2] or 1)
    faults = argument.split()
    if number > len(faults) or faults[number - 1] == "ok":
        return None
    kind, at, after = faults[number - 1].partition("@")
    return Fault(kind, int(after or 0), at_once=not at)


def words(digest: str, prompt: str, choice: int, count: int) -> str:
    seed = hashlib.sha256(f"{digest}|{prompt}|{choice}".encode()).digest()
    return " ".join(VOCABULARY[(seed[i % 32] + i * 7) % len(VOCABULARY)] for i in range(count))


def full_text(submit: pb.Submit, choice: int) -> str:
    command, argument = steering(submit)
    if command == "say":
        return argument
    count = int(argument) if command == "words" else 1_000_000 if command in {"break", "hang"} else DEFAULT_WORDS
    return words(submit.adapter_digest, prompt_text(submit), choice, min(count, 20_000))


def plan(submit: pb.Submit, choice: int = 0) -> Plan:
    """Cut the scripted text by ``max_tokens`` and the stop strings, as a real engine would."""
    if submit.prompt_only:
        return Plan((), "length", "")
    pieces = PIECE.findall(full_text(submit, choice))
    limit = submit.sampling.max_tokens
    reason = "length" if limit and len(pieces) > limit else "stop"
    pieces = pieces[: limit or None]
    text = "".join(pieces)
    starts = [(text.find(stop), stop) for stop in submit.sampling.stop if stop in text]
    cuts = [at + len(stop) * submit.sampling.include_stop for at, stop in starts]
    if not cuts:
        return Plan(tuple(pieces), reason, text)
    return Plan(_clip(pieces, min(cuts)), "stop", text[: min(cuts)])


def _clip(pieces: list[str], end: int) -> tuple[str, ...]:
    """Return the pieces up to character ``end``; the token that completes the stop string is counted but silent."""
    kept, position = [], 0
    for piece in pieces:
        kept.append(piece[: max(0, end - position)])
        position += len(piece)
        if position > end:
            break
    return tuple(kept)
