"""A module's matrices relative to the served base: for OLoRA, including what its training subtracted from it.

OLoRA begins with ``W = Q R`` (arXiv 2406.01775 §3): B0 is the first ``r`` columns of Q, A0 the first rows of R, and ``s
B0 A0`` is subtracted from the base. Such an adapter adds ``s (B A - B0 A0)`` to the served base, LoRA of twice the
rank. Q's first columns are those of the first columns of W, and ``A0 = B0^T W``, so the rest of the decomposition is
not needed. Signs, which differ between programs, cancel out in the product.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import torch

from lora_engine.errors import StageError
from lora_engine.peft_format import ModuleLora, SafetensorsFile

from .targets import Interleaving
from .tensors import read_tensor

_FIX = (
    "Convert it when saving: model.save_pretrained(folder, path_initial_model_for_weight_conversion=...), or pack the "
    "folder of the initial adapter (like olora_init) with it."
)


class BaseMatrices(Protocol):
    """The base model's projections, in full."""

    def rows(self, layer: int, target: str) -> Iterator[torch.Tensor]:
        """Yield the matrix in blocks ``[rows, in]``, float32, on the device."""

    def is_quantised(self, layer: int, target: str) -> bool:
        """Return whether ``rows`` are quantised, unlike the weights that adapters are trained on."""

    def aside(self) -> AbstractContextManager[object]:
        """Return a context in which the device works beside running steps."""


def factors(
    module: ModuleLora, weights: SafetensorsFile, base: BaseMatrices | None, order: Interleaving | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return A ``[rank, in]`` and B ``[out, rank]`` on the host, of the module's rank. Raises ``StageError``.

    ``order`` is that of B's rows in the file; they are returned in the engine's, as those of ``base`` are.
    """
    a, b = read_tensor(weights, module.a_name), read_tensor(weights, module.b_name)
    b = b if order is None else order.by_part(b)
    if not module.takes_from_base:
        return a, b
    assert base is not None, "an adapter of a changed base is packed beside its base model"
    taken_a, taken_b = taken_out(base, module.layer, module.target, len(a))
    return torch.cat([a.float(), taken_a]), torch.cat([b.float(), -taken_b], dim=1)


@torch.inference_mode()
def taken_out(base: BaseMatrices, layer: int, target: str, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return A0 ``[rank, in]`` and B0 ``[out, rank]``, float32, on the host. Raises ``StageError``."""
    if base.is_quantised(layer, target):
        raise _unfit(f"the base model's layers.{layer}.{target} is quantised here, and its decomposition another")
    with base.aside():
        columns = torch.cat([rows[:, :rank].cpu() for rows in base.rows(layer, target)])
        if rank > min(columns.shape):
            raise _unfit(f"layers.{layer}.{target} of the base model has no {rank} columns and rows to take out")
        # In 64 bits: where columns are nearly equal, 32 bits keep little of their difference. On the host, as the
        # device's solver would need memory beside the pool.
        basis = torch.linalg.qr(columns.double()).Q.float()
        products, start = [], 0
        for rows in base.rows(layer, target):
            products.append(basis[start : start + len(rows)].T.to(rows.device) @ rows)
            start += len(rows)
        taken = torch.stack(products).sum(dim=0).cpu()
    return taken, basis


def _unfit(why: str) -> StageError:
    return StageError(
        "adapter_does_not_fit", f"The part of the base that OLoRA replaces cannot be computed: {why}.", _FIX
    )
