"""What has come of an answer: enough for another host to go on with it."""

from __future__ import annotations

from collections.abc import Iterable

from control_plane.fleet.coalescing import Chunk
from lora_engine.wire import engine_pb2 as pb


class AnswerSoFar:
    """The tokens of each choice, as far as they have been read from a host."""

    def __init__(self, submit: pb.Submit) -> None:
        self._submit = submit
        self._choices: dict[int, pb.ChoiceSoFar] = {}
        self.tokens = 0

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Token ids, which hosts are always asked for, go no further unless the caller asked for them."""
        for chunk in chunks:
            part = self._choices.setdefault(chunk.choice, pb.ChoiceSoFar(choice=chunk.choice))
            part.token_ids.extend(chunk.token_ids)
            part.finished = part.finished or bool(chunk.finish_reason)
            self.tokens += chunk.tokens
            if not self._submit.echo_token_ids:
                chunk.token_ids = []

    def forget(self) -> None:
        """The answer begins anew."""
        self._choices.clear()
        self.tokens = 0

    @property
    def may_go_on(self) -> bool:
        """Whether another host can go on where this answer ends. What is told of a prompt is not told in parts."""
        known = sum(len(part.token_ids) for part in self._choices.values())
        if not known or known != self.tokens or self._submit.prompt_only:
            return False
        first = self._choices.get(0)
        return not self._submit.HasField("prompt_logprobs") or (first is not None and bool(first.token_ids))

    def continue_in(self, submit: pb.Submit) -> None:
        """Let `submit`, a copy of the request, go on after it."""
        submit.so_far.extend(self._choices.values())
        submit.ClearField("prompt_logprobs")
        submit.ClearField("describe_prompt")
