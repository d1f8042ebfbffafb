"""Prompt data that the engine reports: tokens, text, and log-probabilities of the tokens."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from control_plane.fleet.transport.coalescing import Chunk
from lora_engine.wire import engine_pb2 as pb

# Log-probabilities of prompts that all choices of an answer may have together: of a whole answer, about 10 MB, written
# on a thread; of a stream, written by the event loop.
MAX_PROMPT_LOGPROBS, MAX_STREAMED = 1 << 17, 1 << 14

utf8_decoder = codecs.getincrementaldecoder("utf-8")


@dataclass(frozen=True, slots=True)
class PromptToken:
    """A token of a prompt; the first has no ``logprob`` and rank 0. ``top`` has (id, bytes, log-probability)."""

    token_id: int
    token_bytes: bytes
    logprob: float | None
    rank: int
    top: Sequence[tuple[int, bytes, float]]


@dataclass(slots=True)
class PromptPart:
    """A prompt as the engine has reported it so far, and the chunks that wait until it is complete."""

    text: str = ""
    token_ids: Sequence[int] = ()
    scores: list[pb.PromptLogprobs] = field(default_factory=list)
    complete: bool = False
    waiting: list[Chunk] = field(default_factory=list)

    def take(self, chunk: Chunk) -> None:
        if chunk.prompt is not None:
            self.text, self.token_ids = chunk.prompt.text, chunk.prompt.token_ids
        self.scores += chunk.prompt_logprobs

    def tokens(self) -> Iterator[PromptToken]:
        for part in self.scores:
            at = 0
            for token_id, logprob, rank in zip(part.token_ids, part.logprobs, part.ranks, strict=True):
                size = part.num_top if rank else 0
                ids, logprobs = part.top_ids[at : at + size], part.top_logprobs[at : at + size]
                top = [(i, part.token_bytes[i], value) for i, value in zip(ids, logprobs, strict=True)]
                at += size
                yield PromptToken(token_id, part.token_bytes[token_id], logprob if rank else None, rank, top)

    def vllm(self, top: int) -> list[dict[str, Any] | None]:
        """Return vLLM's ``prompt_logprobs``: for each token, itself and the ``top`` most likely ones by id."""
        return [_vllm_token(token, top) if token.rank else None for token in self.tokens()]

    def openai(self, top: int, echo: str, *, as_ids: bool = False) -> dict[str, Any]:
        """Return OpenAI's ``logprobs`` of a completion for its beginning ``echo``: null for a token that nothing
        predicts.
        """
        tokens = list(self.tokens())
        return {
            "tokens": [token_name(token.token_id, token.token_bytes, as_ids=as_ids) for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [
                None
                if token.logprob is None
                else top_by_name((token.token_id, token.token_bytes, token.logprob), token.top[:top], as_ids=as_ids)
                for token in tokens
            ],
            "text_offset": list(_offsets(tokens, echo)),
        }


def _vllm_token(token: PromptToken, top: int) -> dict[str, Any]:
    entries = {token.token_id: (token.logprob, token.rank, token.token_bytes)}
    for rank, (token_id, token_bytes, logprob) in enumerate(token.top[:top], start=1):
        entries.setdefault(token_id, (logprob, rank, token_bytes))
    return {
        str(token_id): {"logprob": logprob, "rank": rank, "decoded_token": text_of(token_bytes)}
        for token_id, (logprob, rank, token_bytes) in entries.items()
    }


def token_name(token_id: int, token_bytes: bytes, *, as_ids: bool) -> str:
    """Name a token in the ``logprobs`` of a completion.

    It is the token's text, OpenAI's ``bytes:\\x…`` for a part of a character, or with ``as_ids`` vLLM's ``token_id:…``.
    """
    if as_ids:
        return _id_name(token_id)
    try:
        return token_bytes.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token_bytes)


def top_by_name(
    token: tuple[int, bytes, float], top: Iterable[tuple[int, bytes, float]], *, as_ids: bool
) -> dict[str, float]:
    """Return log-probabilities by name, of ``token`` and the ``top`` tokens, each (id, bytes, log-probability).

    Names may collide: the token itself has its name, or else the first of several; each further one is named by its id.
    """
    sampled_name = token_name(token[0], token[1], as_ids=as_ids)
    names: dict[str, float] = {}
    for token_id, token_bytes, logprob in top:
        name = sampled_name if token_id == token[0] else token_name(token_id, token_bytes, as_ids=as_ids)
        if token_id != token[0] and (name == sampled_name or name in names):
            name = _id_name(token_id)
        names[name] = logprob
    names[sampled_name] = token[2]
    return names


def _id_name(token_id: int) -> str:
    return f"token_id:{token_id}"


def _offsets(tokens: Sequence[PromptToken], echo: str) -> Iterator[int]:
    """Yield where each token begins in ``echo``. Tokens that it lacks, such as special ones, take no space."""
    decoder, offset = utf8_decoder("replace"), 0
    for token in tokens:
        yield offset
        text = decoder.decode(token.token_bytes)
        for shown in (text, text.removeprefix(" ")):  # some tokenizers put a space before the first word
            if echo.startswith(shown, offset):
                offset += len(shown)
                break


def text_of(token_bytes: bytes) -> str:
    """Decode a token's bytes; a part of a character becomes U+FFFD."""
    return token_bytes.decode("utf-8", "replace")


class PromptParts:
    """The prompts of a request, each of which has ``choices`` answers.

    With ``scored``, no choice begins before the log-probabilities of its prompt are complete.
    """

    def __init__(self, prompts: int = 1, choices: int = 1, *, scored: bool = False) -> None:
        self._parts = [PromptPart() for _ in range(prompts)]
        self._choices, self._scored = choices, scored

    @property
    def num_tokens(self) -> int:
        """Number of tokens of the prompts that were described so far."""
        return sum(len(part.token_ids) for part in self._parts)

    def of(self, choice: int) -> PromptPart:
        return self._parts[choice // self._choices]

    def ready(self, chunks: Sequence[Chunk]) -> Sequence[Chunk]:
        """Record what ``chunks`` report about prompts, and return the chunks that may be sent to the client now."""
        if not self._scored and all(chunk.prompt is None for chunk in chunks):
            return chunks
        return [ready for chunk in chunks for ready in self._ready(chunk)]

    def _ready(self, chunk: Chunk) -> Sequence[Chunk]:
        part = self.of(chunk.choice)
        part.take(chunk)
        if not (chunk.tokens or chunk.text or chunk.finish_reason):
            return ()
        if not self._scored or part.complete:
            return (chunk,)
        if chunk.choice % self._choices:
            part.waiting.append(chunk)
            return ()
        part.complete = True  # the prompt's log-probabilities precede the first token of the first choice
        waiting, part.waiting = part.waiting, []
        return (chunk, *waiting)
