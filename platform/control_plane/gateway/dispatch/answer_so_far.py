"""The part of an answer that has been received: enough for another host to continue it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from control_plane.fleet.transport.coalescing import Chunk
from lora_engine.wire import engine_pb2 as pb


@dataclass(slots=True)
class _Part:
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str = ""


class AnswerSoFar:
    """The tokens of each choice that have been read from a host."""

    def __init__(self, submit: pb.Submit) -> None:
        self._submit, self._returns_ids = submit, submit.echo_token_ids
        self._choices: dict[int, _Part] = {}
        self.tokens = 0

    def add(self, chunks: Iterable[Chunk]) -> int:
        """Record ``chunks`` and return the number of their tokens.

        Token ids are requested of every host, and removed here unless the caller requested them.
        """
        before = self.tokens
        for chunk in chunks:
            part = self._choices.get(chunk.choice)
            if part is None:
                part = self._choices[chunk.choice] = _Part()
            part.token_ids += chunk.token_ids
            part.finish_reason = chunk.finish_reason or part.finish_reason
            self.tokens += chunk.tokens
            if not self._returns_ids:
                chunk.token_ids = []
        return self.tokens - before

    def forget(self) -> None:
        """Drop everything that was received: the answer starts again from its first token."""
        self._choices.clear()
        self.tokens = 0

    @property
    def finish_reasons(self) -> set[str]:
        """Finish reasons of the choices that have ended."""
        return {part.finish_reason for part in self._choices.values()} - {""}

    @property
    def may_go_on(self) -> bool:
        """True if another host can continue after the tokens received.

        Data about the prompt is sent as a whole, so a request for that alone cannot be continued.
        """
        known = sum(len(part.token_ids) for part in self._choices.values())
        return known == self.tokens and self.has_begun and not self._submit.prompt_only

    @property
    def has_begun(self) -> bool:
        """True once a token came, with all requested data about the prompt before it."""
        first = self._choices.get(0)
        prompt_is_done = not self._submit.HasField("prompt_logprobs") or (first is not None and bool(first.token_ids))
        return self.tokens > 0 and prompt_is_done

    def continue_in(self, submit: pb.Submit) -> None:
        """Make `submit`, a copy of the request, continue after this answer."""
        for choice, part in self._choices.items():
            submit.so_far.add(choice=choice, token_ids=part.token_ids, finished=bool(part.finish_reason))
        submit.ClearField("prompt_logprobs")
        submit.ClearField("describe_prompt")
