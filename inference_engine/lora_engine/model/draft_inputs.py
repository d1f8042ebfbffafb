"""The inputs of draft rows in recurrent layers, kept until the number of accepted ones is known.

A recurrent state cannot be taken back by a token. So the state in the pool never has drafts: their small inputs are
kept, and the sequence's next step takes those of the accepted ones into the state first (ADR 0021).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from lora_engine.config import EngineConfig
from lora_kernels.state_pages import DeltaShape

from .shape import ModelShape, delta_shape


class DraftInputs:
    """The inputs of up to ``drafts`` rows in each of ``slots`` slots, in every recurrent layer."""

    def __init__(
        self,
        shape: DeltaShape,
        layers: Iterable[int],
        slots: int,
        drafts: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._places = {layer: place for place, layer in enumerate(sorted(layers))}
        sizes = len(self._places), slots, drafts, shape.kept_columns[-1]
        # Rows that no draft wrote are never read: tests fill them with NaN.
        self.data = torch.zeros(*sizes, dtype=dtype, device=device)

    @classmethod
    def of(cls, config: EngineConfig, shape: ModelShape) -> DraftInputs | None:
        """Allocate them for a model on this rank; None where nothing is drafted, or no layer is recurrent."""
        if shape.delta is None or config.speculation == "off":
            return None
        sizes = config.drafting_sequences, config.speculation_tokens
        return cls(delta_shape(shape.delta), shape.delta_layers, *sizes, shape.dtype, shape.device)

    def layer(self, layer: int) -> torch.Tensor:
        """Return the rows of a layer, ``[slots, drafts, width]``; for the columns see ``DeltaShape.kept_columns``."""
        return self.data[self._places[layer]]


def draft_bytes(config: EngineConfig, shape: ModelShape) -> int:
    """Return the bytes that ``DraftInputs.of`` allocates on a rank."""
    if shape.delta is None or config.speculation == "off":
        return 0
    rows = len(shape.delta_layers) * config.drafting_sequences * config.speculation_tokens
    return rows * delta_shape(shape.delta).kept_columns[-1] * shape.dtype.itemsize
