"""A mixture of experts in plain torch: the backend of CPUs, and the reference of the Triton kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F

from lora_engine.adapters.experts import ExpertFactors
from lora_engine.peft_format import DOWN, GATE, UP

from .batch import LoraSpan
from .config import ExpertsConfig
from .weights import ExpertWeights, of_expert

# Added to a sum of sigmoids before it divides, as ``transformers`` does.
_LEAST_SUM = 1e-20


def gated(gate_up: torch.Tensor, activation: str, slope: float = 0.0, limit: float = 0.0) -> torch.Tensor:
    """Compute ``activation(gate) * up`` of ``gate_up [tokens, 2 * inner]``, or a SwiGLU with a ``limit`` above 0."""
    gate, up = gate_up.chunk(2, dim=1)
    if limit:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
        return gate * (slope * gate).sigmoid() * (up + 1)
    return (F.silu(gate) if activation == "silu" else F.gelu(gate, approximate="tanh")) * up


def route(
    logits: torch.Tensor, config: ExpertsConfig, correction: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the experts of each token, and their weights in float32, both ``[tokens, per_token]``.

    ``logits [tokens, experts]`` are the router's scores; ``correction [experts]`` is added to their sigmoids for the
    choice. See ``Experts``.
    """
    if config.sigmoid:
        assert correction is not None, "routers with sigmoids have corrections"
        scores = logits.float().sigmoid()
        by_group = (scores + correction).unflatten(1, (config.groups, -1))
        kept = by_group.topk(2, dim=2).values.sum(dim=2).topk(config.kept_groups, dim=1).indices
        dropped = torch.ones_like(by_group[:, :, 0], dtype=torch.bool).scatter_(1, kept, False)
        experts = by_group.masked_fill(dropped[:, :, None], -torch.inf).flatten(1).topk(config.per_token, dim=1).indices
        weights = scores.gather(1, experts)
        if config.renormalised:
            weights = weights / (weights.sum(dim=1, keepdim=True) + _LEAST_SUM)
        return experts, weights * config.scale
    weights, experts = logits.softmax(dim=1, dtype=torch.float32).topk(config.per_token, dim=1)
    return experts, weights / weights.sum(dim=1, keepdim=True) if config.renormalised else weights


def mixture(
    x: torch.Tensor,
    logits: torch.Tensor,
    weights: ExpertWeights,
    config: ExpertsConfig,
    activation: str,
    adapters: Sequence[tuple[LoraSpan, Mapping[str, ExpertFactors]]] = (),
    routed: Callable[[torch.Tensor], None] | None = None,
) -> torch.Tensor:
    """Compute the sum of each token's experts, times their weights: ``[tokens, hidden]`` of ``x [tokens, hidden]``.

    ``logits [tokens, experts]`` are the router's scores, ``adapters`` the factors of adapters on experts. Pairs of a
    token and an expert are sorted by expert, so that each expert in use has one product of its tokens. ``routed`` gets
    each token's experts.
    """
    experts, shares = route(logits, config, weights.correction)
    if routed is not None:
        routed(experts)
    counts = experts.flatten().bincount(minlength=config.count).tolist()
    order = experts.flatten().argsort(stable=True)
    outs, start = torch.empty(len(order), x.shape[1], dtype=x.dtype, device=x.device), 0
    for expert, count in enumerate(counts):
        if count:
            pairs = order[start : start + count]
            tokens = pairs // config.per_token
            read = x[tokens]
            gate_up = _product(read, of_expert(weights.gate_up, expert, x.dtype), weights.gate_up_bias, expert)
            gate, up = gate_up.chunk(2, dim=1)
            spans = [((tokens >= span.start) & (tokens < span.stop), factors) for span, factors in adapters]
            used = [(rows, factors) for rows, factors in spans if rows.any()]
            for rows, factors in used:
                _add(gate, read, rows, factors.get(GATE), expert)
                _add(up, read, rows, factors.get(UP), expert)
            inner = gated(gate_up, activation, config.slope, config.limit)
            out = _product(inner, of_expert(weights.down, expert, x.dtype), weights.down_bias, expert)
            for rows, factors in used:
                _add(out, inner, rows, factors.get(DOWN), expert)
            outs[pairs] = out
            start += count
    by_token = outs.view(len(x), config.per_token, -1)
    return (by_token * shares[:, :, None]).sum(dim=1).to(x.dtype)


def _product(x: torch.Tensor, matrix: torch.Tensor, biases: torch.Tensor | None, expert: int) -> torch.Tensor:
    return torch.mm(x, matrix.t()) if biases is None else torch.addmm(biases[expert], x, matrix.t())


def _add(out: torch.Tensor, x: torch.Tensor, rows: torch.Tensor, factors: ExpertFactors | None, expert: int) -> None:
    """Add an expert's delta to ``rows`` of ``out [pairs, out]``, from those of ``x [pairs, in]``."""
    if factors is None:
        return
    a, b = (each[expert if len(each) > 1 else 0] for each in (factors.a, factors.b))
    out[rows] += factors.scale * torch.mm(torch.mm(x[rows], a.t()), b)
