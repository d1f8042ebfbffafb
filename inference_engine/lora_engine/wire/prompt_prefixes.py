"""Which prompts' beginnings a host has cached, in a few numbers: what dispatchers look for in heartbeats.

Both sides take the same fingerprints of a request as it is on the wire, without tokens: of its first 256 bytes, 512,
768 and so on, two steps to each doubling, so that a long prompt has a dozen. Tenant, adapter and salt are part of each,
as they are of the cache itself: who asks for another one's text finds nothing. They say where a request is likely to be
quick and decide nothing else: what is shared, the engine compares token by token.

A host tells those that were used since the last heartbeat and how many of the most recent ones are left; both sides
keep them in the order of their use, so nothing has to be said of those that go.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from lora_engine.wire import engine_pb2 as pb

MOST_FINGERPRINTS = 4096
_UNIT = 256  # bytes: about 64 tokens of text, and as many as numbers
_MOST_BYTES = 1 << 20


class Mark(NamedTuple):
    """One of a prompt's beginnings: its fingerprint, and which share of the prompt it is."""

    fingerprint: int
    share: float


def prefix_marks(submit: pb.Submit) -> tuple[Mark, ...]:
    """The shortest first; none of a short prompt, and of one that is read whatever is cached."""
    if submit.HasField("prompt_logprobs") or submit.HasField("pooling"):
        return ()
    prompt = b"".join(_pieces(submit))
    known = hashlib.blake2b(digest_size=8)
    for part in (submit.tenant, submit.adapter_digest, submit.cache_salt):
        known.update(f"{len(part)}:{part}".encode())
    marks, begun = [], 0
    for end in _ends(min(len(prompt), _MOST_BYTES)):
        known.update(prompt[begun:end])
        marks.append(Mark(int.from_bytes(known.digest()), end / len(prompt)))
        begun = end
    return tuple(marks)


def _pieces(submit: pb.Submit) -> Iterator[bytes]:
    """In the order in which the model reads them. Whatever follows, the beginning of a prompt stays what it is."""
    kind = submit.WhichOneof("prompt")
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
    """Of a host: the fingerprints of prompts whose keys and values it keeps, the most recently used last."""

    def __init__(self) -> None:
        self._used: dict[int, tuple[int, float]] = {}  # when, and the tokens since the mark before
        self._tokens = 0.0
        self.time = 0  # counts uses

    def used(self, marks: Sequence[Mark], prompt_tokens: int) -> None:
        """A prompt has been computed, or found. The beginning of two prompts goes after what only one of them has."""
        self.time += 1
        shares = [0.0, *(mark.share for mark in marks)]
        for number, mark in reversed([*enumerate(marks)]):
            self._forget(mark.fingerprint)
            tokens = (mark.share - shares[number]) * prompt_tokens
            self._used[mark.fingerprint] = (self.time, tokens)
            self._tokens += tokens
        self.keep(self._tokens)

    def keep(self, tokens: float) -> None:
        """The cache holds so many tokens: what was used least recently is not among them."""
        while self._used and (self._tokens > tokens or len(self._used) > MOST_FINGERPRINTS):
            self._forget(next(iter(self._used)))

    def tell(self, status: pb.HostStatus, since: int) -> int:
        """Into a heartbeat, what was used after ``since``; when that was, for the next one."""
        recent = []
        for fingerprint, (at, _) in reversed(self._used.items()):
            if at <= since:
                break
            recent.append(fingerprint)
        status.prefixes.extend(reversed(recent))
        status.prefixes_kept = len(self._used)
        return self.time

    def _forget(self, fingerprint: int) -> None:
        if (found := self._used.pop(fingerprint, None)) is not None:
            self._tokens = self._tokens - found[1] if self._used else 0.0


class KnownPrefixes:
    """Of a dispatcher: what one stream of a host's heartbeats said."""

    def __init__(self) -> None:
        self._known: dict[int, None] = {}

    def observe(self, status: pb.HostStatus) -> None:
        for fingerprint in status.prefixes:
            self._known.pop(fingerprint, None)
            self._known[fingerprint] = None
        most = min(status.prefixes_kept, MOST_FINGERPRINTS)
        while len(self._known) > most:
            del self._known[next(iter(self._known))]

    def share(self, marks: Iterable[Mark]) -> float:
        """Which share of a prompt the host has cached, at least."""
        return max((mark.share for mark in marks if mark.fingerprint in self._known), default=0.0)

    def forget(self) -> None:
        self._known.clear()
