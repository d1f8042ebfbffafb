"""Captured graphs where there is no GPU."""

from __future__ import annotations

import torch

from lora_engine.execution.graph_runner import GraphRunner
from lora_engine.model.graph_shapes import GraphShape


class RunEveryTime:
    """A stand-in for a CUDA graph that runs the captured code on every replay."""

    def __init__(self, runner: GraphRunner, shape: GraphShape) -> None:
        self._runner, self._shape, self.graph = runner, shape, self
        self.logits = self.greedy = torch.empty(0)
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1
        # What the last step left where no row of this one writes.
        self._runner.inputs.logits.fill_(float("nan"))
        self.logits, self.greedy = self._runner.inputs.run(self._runner.model, self._shape, self._runner.last_tokens)
