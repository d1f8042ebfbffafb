"""The reference of products in FP8: plain torch, with activations rounded as kernels round them."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from lora_engine.model.lora_torch import add_lora
from lora_engine.model.ops import Activations, TorchOps, TorchPlan, linear
from lora_engine.model.weights import Matrix
from lora_kernels.fp8_tensors import FP8, LARGEST, Fp8Matrix


class QuantisingOps(TorchOps):
    """``TorchOps`` for weights in FP8, in any precision of the rest."""

    for_adapters_too = False

    def project(
        self,
        group: int,
        layer: int,
        x: Activations,
        weight: Matrix,
        bias: torch.Tensor | None,
        plan: TorchPlan,
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        assert isinstance(x, torch.Tensor)
        if isinstance(weight, torch.Tensor):
            return super().project(group, layer, x, weight, bias, plan, out)
        rounded = quantised(x, weight).to(x.dtype)
        out = linear(rounded, weight.dequantised(x.dtype), bias)
        add_lora(group, layer, rounded if self.for_adapters_too else x, out, plan.batch.lora)
        return out


class QuantisedForAdaptersToo(QuantisingOps):
    """A deliberately wrong variant: adapters read quantised activations."""

    for_adapters_too = True


def quantised(x: torch.Tensor, matrix: Fp8Matrix) -> torch.Tensor:
    """Return ``x`` as a product with ``matrix`` sees it: each group of columns scaled by its largest, rounded to
    E4M3.
    """
    parts = F.pad(x.float(), (0, -x.shape[1] % matrix.group)).view(len(x), -1, matrix.group)
    scale = parts.abs().amax(-1, keepdim=True).clamp(min=1e-10) / LARGEST
    if matrix.input_scale is not None:
        scale = matrix.input_scale.expand_as(scale)
    rounded = (parts / scale).clamp(-LARGEST, LARGEST).to(FP8).float() * scale
    return rounded.flatten(1)[:, : x.shape[1]]
