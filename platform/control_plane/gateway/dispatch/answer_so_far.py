"""What has come of an answer: enough for another host to go on with it."""

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
    """The tokens of each choice, as far as they have been read from a host."""

    def __init__(self, submit: pb.Submit) -> None:
        self._submit, self._tells_ids = submit, submit.echo_token_ids
        self._choices: dict[int, _Part] = {}
        self.tokens = 0

    def add(self, chunks: Iterable[Chunk]) -> int:
        """How many tokens ``chunks`` have. Token ids, which hosts are always asked for, go no further unless the
        caller asked for them."""
        before = self.tokens
        for chunk in chunks:
            part = self._choices.get(chunk.choice)
            if part is None:
                part = self._choices[chunk.choice] = _Part()
            part.token_ids += chunk.token_ids
            part.finish_reason = chunk.finish_reason or part.finish_reason
            self.tokens += chunk.tokens
            if not self._tells_ids:
                chunk.token_ids = []
        return self.tokens - before

    def forget(self) -> None:
        """The answer begins anew."""
        self._choices.clear()
        self.tokens = 0

    @property
    def finish_reasons(self) -> set[str]:
        """Of the choices that are known to have ended."""
        return {part.finish_reason for part in self._choices.values()} - {""}

    @property
    def may_go_on(self) -> bool:
        """Whether another host can go on where this answer ends. What is told of a prompt is not told in parts."""
        known = sum(len(part.token_ids) for part in self._choices.values())
        return known == self.tokens and self.has_begun and not self._submit.prompt_only

    @property
    def has_begun(self) -> bool:
        """Whether tokens came, and all that was to be told of the prompt before them."""
        first = self._choices.get(0)
        told = not self._submit.HasField("prompt_logprobs") or (first is not None and bool(first.token_ids))
        return self.tokens > 0 and told

    def continue_in(self, submit: pb.Submit) -> None:
        """Let `submit`, a copy of the request, go on after it."""
        for choice, part in self._choices.items():
            submit.so_far.add(choice=choice, token_ids=part.token_ids, finished=bool(part.finish_reason))
        submit.ClearField("prompt_logprobs")
        submit.ClearField("describe_prompt")
