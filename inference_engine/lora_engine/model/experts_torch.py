"""A mixture of experts in plain torch: the backend of CPUs, and the reference of the Triton kernels."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .config import ExpertsConfig
from .weights import ExpertWeights


def gated(gate_up: torch.Tensor, activation: str) -> torch.Tensor:
    """Compute ``activation(gate) * up`` of ``gate_up [tokens, 2 * inner]``."""
    gate, up = gate_up.chunk(2, dim=1)
    return (F.silu(gate) if activation == "silu" else F.gelu(gate, approximate="tanh")) * up


def route(logits: torch.Tensor, config: ExpertsConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the experts of each token, and their weights in float32, both ``[tokens, per_token]``.

    ``logits [tokens, experts]`` are the router's scores.
    """
    weights, experts = logits.softmax(dim=1, dtype=torch.float32).topk(config.per_token, dim=1)
    return experts, weights / weights.sum(dim=1, keepdim=True) if config.renormalised else weights


def mixture(x: torch.Tensor, weights: ExpertWeights, config: ExpertsConfig, activation: str) -> torch.Tensor:
    """Compute the sum of each token's experts, times their weights: ``[tokens, hidden]`` of ``x [tokens, hidden]``.

    Pairs of a token and an expert are sorted by expert, so that each expert in use has one product of its tokens.
    """
    experts, shares = route(torch.mm(x, weights.router.t()), config)
    counts = experts.flatten().bincount(minlength=config.count).tolist()
    order = experts.flatten().argsort(stable=True)
    outs, start = torch.empty(len(order), x.shape[1], dtype=x.dtype, device=x.device), 0
    for expert, count in enumerate(counts):
        if count:
            pairs = order[start : start + count]
            inner = gated(torch.mm(x[pairs // config.per_token], weights.gate_up[expert].t()), activation)
            outs[pairs] = torch.mm(inner, weights.down[expert].t())
            start += count
    by_token = outs.view(len(x), config.per_token, -1)
    return (by_token * shares[:, :, None]).sum(dim=1).to(x.dtype)
