"""Fingerprints of the prompt prefixes that a host has cached, which dispatchers read from heartbeats.

Both sides compute the same fingerprints of a request on the wire, without tokens: of its first 256 bytes, 512, 768 and
so on, two for each doubling, so that a long prompt has a dozen. Tenant, adapter and salt are part of each fingerprint,
as in the cache, so that no request matches another tenant's text. Fingerprints only predict where a request is likely
to be fast: the engine compares shared prefixes token by token.

A heartbeat has the fingerprints used since the last one, and the number of the most recent ones that the host keeps.
Both sides keep them in the order of use, so that removals need no message.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from lora_engine.wire import engine_pb2 as pb

# Maximum number of fingerprints that a host reports.
MAX_FINGERPRINTS = 4096
# Bytes of the shortest prefix: about 64 tokens of text, or 64 token ids.
_UNIT = 256
# Bytes of a prompt that are fingerprinted at most.
_MAX_BYTES = 1 << 20


class PrefixMark(NamedTuple):
    """A prefix of a prompt: its fingerprint, and its length as a share of the prompt's (0 to 1)."""

    fingerprint: int
    share: float


def prefix_marks(submit: pb.Submit) -> tuple[PrefixMark, ...]:
    """Return the marks of a request's prefixes, the shortest first.

    A short prompt has none, nor has a request that reads its whole prompt without the cache.
    """
    if submit.HasField("prompt_logprobs") or submit.HasField("pooling"):
        return ()
    prompt = b"".join(_pieces(submit))
    known = hashlib.blake2b(digest_size=8)
    for part in (submit.tenant, submit.adapter_digest, submit.cache_salt):
        known.update(f"{len(part)}:{part}".encode())
    marks, begun = [], 0
    for end in _ends(min(len(prompt), _MAX_BYTES)):
        known.update(prompt[begun:end])
        marks.append(PrefixMark(int.from_bytes(known.digest()), end / len(prompt)))
        begun = end
    return tuple(marks)


def _pieces(submit: pb.Submit) -> Iterator[bytes]:
    """Yield the parts of a prompt in the order in which the model reads them, so that later parts change no prefix."""
    kind = submit.WhichOneof("prompt")
    if submit.suffix:
        yield b"\0suffix"  # such a prompt begins with a token of its own
    if kind == "token_ids":
        yield struct.pack(f"<{len(submit.token_ids.ids)}I", *submit.token_ids.ids)
    elif kind == "text":
        yield submit.text.encode()
    elif kind == "chat":
        for tool in submit.chat.tools:
            yield f"{tool.name}\0{tool.description}\0{tool.parameters}\0".encode()
        for message in submit.chat.messages:
            yield f"{message.role}\0{message.reasoning}\0{message.content}\0".encode()
            for call in message.tool_calls:
                yield f"{call.name}\0{call.arguments}\0".encode()


def _ends(length: int) -> Iterator[int]:
    step = _UNIT
    while step <= length:
        yield step
        if step > _UNIT and step + step // 2 <= length:
            yield step + step // 2
        step *= 2


class RecentPrefixes:
    """The fingerprints of prompts whose keys and values a host has cached, the most recently used last."""

    def __init__(self) -> None:
        self._used: dict[int, tuple[int, float]] = {}  # time of use, and tokens since the previous mark
        self._tokens = 0.0
        self.time = 0  # counts uses
        self.enabled = True  # False for a host without a prefix cache

    def used(self, marks: Sequence[PrefixMark], prompt_tokens: int) -> None:
        """Record that a prompt was computed or read from the cache; shorter prefixes count as used more recently."""
        self.time += 1
        shares = [0.0, *(mark.share for mark in marks)]
        for number, mark in reversed([*enumerate(marks)]):
            self._remove(mark.fingerprint)
            tokens = (mark.share - shares[number]) * prompt_tokens
            self._used[mark.fingerprint] = (self.time, tokens)
            self._tokens += tokens
        self.keep(self._tokens)

    def keep(self, tokens: float) -> None:
        """Drop the least recently used fingerprints until they fit into a cache of ``tokens`` tokens."""
        while self._used and (self._tokens > tokens or len(self._used) > MAX_FINGERPRINTS):
            self._remove(next(iter(self._used)))

    def report(self, status: pb.HostStatus, since: int) -> int:
        """Add the fingerprints used after ``since`` to a heartbeat; return the ``since`` of the next one."""
        recent = []
        for fingerprint, (at, _) in reversed(self._used.items()):
            if at <= since:
                break
            recent.append(fingerprint)
        status.prefixes.extend(reversed(recent))
        status.prefixes_kept = len(self._used)
        return self.time

    def _remove(self, fingerprint: int) -> None:
        if (entry := self._used.pop(fingerprint, None)) is not None:
            self._tokens = self._tokens - entry[1] if self._used else 0.0


class KnownPrefixes:
    """A dispatcher's copy of the fingerprints that a stream of a host's heartbeats reported."""

    def __init__(self) -> None:
        self._known: dict[int, None] = {}

    def observe(self, status: pb.HostStatus) -> None:
        for fingerprint in status.prefixes:
            self._known.pop(fingerprint, None)
            self._known[fingerprint] = None
        most = min(status.prefixes_kept, MAX_FINGERPRINTS)
        while len(self._known) > most:
            del self._known[next(iter(self._known))]

    def share(self, marks: Iterable[PrefixMark]) -> float:
        """Return the share of a prompt (0 to 1) that the host has cached, at least."""
        return max((mark.share for mark in marks if mark.fingerprint in self._known), default=0.0)

    def forget(self) -> None:
        self._known.clear()
