"""The base model's weights on one rank's device, in the form in which the layers multiply by them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from lora_kernels.fp8_tensors import Fp8Matrix, Fp8Stack, fits, quantise, rows_of
from lora_kernels.mxfp4 import Mxfp4Stack

Matrix = torch.Tensor | Fp8Matrix
# The matrices of a layer's experts.
Stack = torch.Tensor | Fp8Stack | Mxfp4Stack


@dataclass(frozen=True, slots=True)
class DeltaParameters:
    """The parameters of a gated delta layer beside its wide projections.

    ``gates [2 * heads, hidden]`` are those of b, then those of a; None: they are the last rows of the layer's
    ``mixer_in``, as where that is not in FP8. ``convolution [channels, taps + 1]``; ``a_log`` and ``dt_bias``
    ``[heads]`` are float32, ``norm [value_dim]``.
    """

    gates: torch.Tensor | None
    convolution: torch.Tensor
    a_log: torch.Tensor
    dt_bias: torch.Tensor
    norm: torch.Tensor

    @property
    def nbytes(self) -> int:
        tensors = self.gates, self.convolution, self.a_log, self.dt_bias, self.norm
        return sum(tensor.nbytes for tensor in tensors if tensor is not None)


@dataclass(frozen=True, slots=True)
class ExpertWeights:
    """A layer's experts on this rank: ``router [experts, hidden]``, ``gate_up [experts, 2 * inner, hidden]`` (the rows
    of gate first), ``down [experts, hidden, inner]``. Each expert is split over ranks by its inner features. Beside an
    MLP that all tokens use, the router's next row is that of the MLP's weight. Further rows of the router are zeros, so
    that cuBLAS multiplies by it at full speed. It is never in FP8. Biases are ``[experts]``, ``[experts, 2 * inner]``
    and ``[experts, hidden]``; only one rank has that of down.
    """

    router: torch.Tensor
    gate_up: Stack
    down: Stack
    router_bias: torch.Tensor | None = None
    gate_up_bias: torch.Tensor | None = None
    down_bias: torch.Tensor | None = None
    correction: torch.Tensor | None = None  # [experts] float32, added to sigmoids for the choice of experts
    separate_mlp: bool = False  # the layer's MLP has targets of its own and no weight

    @property
    def stacks(self) -> tuple[Stack, Stack]:
        return self.gate_up, self.down

    @property
    def nbytes(self) -> int:
        biases = (self.router_bias, self.gate_up_bias, self.down_bias)
        matrices = self.router.nbytes + self.gate_up.nbytes + self.down.nbytes
        return matrices + sum(bias.nbytes for bias in biases if bias is not None)

    def dequantised(self, dtype: torch.dtype) -> ExpertWeights:
        """Return the same experts in ``dtype``."""
        return replace(self, gate_up=_plain_stack(self.gate_up, dtype), down=_plain_stack(self.down, dtype))


def of_expert(stack: Stack, expert: int, dtype: torch.dtype) -> torch.Tensor:
    """Return the matrices of an expert ``[rows, columns]``, in ``dtype`` if they are quantised."""
    return stack[expert] if isinstance(stack, torch.Tensor) else stack.dequantised(expert, dtype)


def _plain_stack(stack: Stack, dtype: torch.dtype) -> torch.Tensor:
    if isinstance(stack, torch.Tensor):
        return stack
    out = torch.empty(stack.shape, dtype=dtype, device=stack.data.device)
    for expert in range(len(stack)):
        out[expert].copy_(stack.dequantised(expert, dtype))
    return out


@dataclass(slots=True)
class LayerWeights:
    """The weights of a transformer block; matrices are ``[out, in]``, local to this rank. For norms see ``Family``.

    ``mixer_in`` and ``mixer_out`` are the projections of attention (q, k and v; o), or of a gated delta layer
    (queries, keys, values and z; out_proj). A layer has ``experts``, or ``gate_up`` and ``down`` of an MLP; or both,
    if all tokens use an MLP beside their experts.
    """

    attention_norm: torch.Tensor | None
    mixer_in: Matrix
    mixer_in_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    mixer_out: Matrix
    mixer_out_bias: torch.Tensor | None
    attention_out_norm: torch.Tensor | None
    mlp_norm: torch.Tensor | None
    gate_up: Matrix | None
    gate_up_bias: torch.Tensor | None
    down: Matrix | None
    down_bias: torch.Tensor | None
    mlp_out_norm: torch.Tensor | None
    delta: DeltaParameters | None = None  # only of gated delta layers
    experts: ExpertWeights | None = None
    sinks: torch.Tensor | None = None  # [heads] float32

    @property
    def router_bias(self) -> torch.Tensor | None:
        return None if self.experts is None else self.experts.router_bias

    def num_bytes(self) -> int:
        values = (getattr(self, name) for name in LayerWeights.__slots__)
        return sum(value.nbytes for value in values if value is not None)

    def in_fp8(self) -> tuple[str, ...]:
        """Return the names of the matrices that are in FP8, without those of experts."""
        return tuple(name for name in MATRICES if isinstance(getattr(self, name), Fp8Matrix))

    def kind_of_experts(self) -> tuple[object, ...]:
        """Return what the kernels of the layer's experts depend on; empty without experts."""
        stacks = () if self.experts is None else self.experts.stacks
        return tuple((type(stack), isinstance(stack, Fp8Stack) and stack.in_blocks) for stack in stacks)

    def experts_in_fp8(self) -> int:
        """Return the number of matrices of experts that are in FP8."""
        return self._experts_in(Fp8Stack)

    def experts_in_mxfp4(self) -> int:
        """Return the number of matrices of experts that are in MXFP4."""
        return self._experts_in(Mxfp4Stack)

    def _experts_in(self, kind: type[Fp8Stack | Mxfp4Stack]) -> int:
        stacks = () if self.experts is None else self.experts.stacks
        return sum(len(stack) for stack in stacks if isinstance(stack, kind))

    def matrix(self, group: int) -> Matrix | None:
        """Return the matrix of a target group (``TARGET_GROUPS``), None if the layer has none."""
        if (group in _OF_ATTENTION and self.delta is not None) or (group in _OF_DELTA and self.delta is None):
            return None
        separate = self.experts is not None and self.experts.separate_mlp
        if group in (_OF_MLP if separate else _OF_SHARED):
            return None
        name = GROUP_MATRICES[group]
        if name == "router":
            return None if self.experts is None else self.experts.router
        matrix: Matrix | None = getattr(self, name)
        return matrix

    def matrix_at(self, group: int, row: int) -> tuple[Matrix, int]:
        """Return the matrix with output ``row`` of a target group that the layer has, and the output's row in it."""
        matrix = self.matrix(group)
        assert matrix is not None, "the layer has the target"
        if group in _OF_DELTA and self.delta is not None and self.delta.gates is not None and row >= matrix.shape[0]:
            return self.delta.gates, row - matrix.shape[0]
        return matrix, row

    def join_gates(self) -> None:
        """Put the gates of a gated delta layer behind ``mixer_in``, unless that is in FP8."""
        if self.delta is not None and self.delta.gates is not None and isinstance(self.mixer_in, torch.Tensor):
            self.mixer_in = laid_out(torch.cat((self.mixer_in, self.delta.gates)).contiguous())
            self.delta = replace(self.delta, gates=None)

    def norms(self) -> list[float]:
        """Return squared Frobenius norms by target group, then of the experts' modules; 0 without a matrix.

        Waits for the device once.
        """
        matrices = [self.matrix(group) for group in range(len(GROUP_MATRICES))]
        norms = [None if matrix is None else _squared_norm(matrix) for matrix in matrices]
        inputs = norms[_DELTA_IN]
        if inputs is not None and self.delta is not None and self.delta.gates is not None:
            norms[_DELTA_IN] = inputs + _squared_norm(self.delta.gates)
        experts = self.experts
        norms.append(None if experts is None else _squared_norm(experts.gate_up) + _squared_norm(experts.down))
        present = torch.stack([norm for norm in norms if norm is not None]).tolist()
        return [0.0 if norm is None else present.pop(0) for norm in norms]


MATRICES = ("mixer_in", "mixer_out", "gate_up", "down")
# Names of the matrices by the index of their target group.
GROUP_MATRICES = ("mixer_in", "mixer_out", "gate_up", "down", "mixer_in", "mixer_out", "router", "gate_up", "down")
_OF_MLP, _OF_SHARED = frozenset({2, 3}), frozenset({7, 8})
_DELTA_IN = 4
_OF_ATTENTION, _OF_DELTA = frozenset({0, 1}), frozenset({_DELTA_IN, 5})
# Rows of a matrix converted to float32 at a time; a multiple of an FP8 block's.
_NORM_ROWS = 1024


def change_by_quantisation(layer: LayerWeights) -> float:
    """Return the norm of the change by rounding plain matrices to FP8, divided by their norm. Waits for the device."""
    squares = torch.zeros(2, dtype=torch.float64)
    matrices = [getattr(layer, name) for name in MATRICES]
    if layer.delta is not None and layer.delta.gates is None:  # which stay as they are
        matrices[0] = matrices[0][: -2 * len(layer.delta.a_log)]
    parts = [(rows, fits(m)) for m in matrices if isinstance(m, torch.Tensor) for rows in m.split(_NORM_ROWS)]
    stacks = () if layer.experts is None else layer.experts.stacks
    parts += [(expert, True) for stack in stacks if isinstance(stack, torch.Tensor) for expert in stack]
    for rows, quantised in parts:
        plain = rows.float()
        rounded = quantise(rows).dequantised(torch.float32) if quantised else plain
        squares += torch.stack([(rounded - plain).square().sum(), plain.square().sum()]).double().cpu()
    changed, whole = squares.tolist()
    return float((changed / whole) ** 0.5) if whole else 0.0


def _squared_norm(matrix: Matrix | Stack) -> torch.Tensor:
    if isinstance(matrix, torch.Tensor):
        norm: torch.Tensor = torch.linalg.vector_norm(matrix, dtype=torch.float32)
        return norm.square()
    if isinstance(matrix, Fp8Stack | Mxfp4Stack):
        by_expert = (matrix.dequantised(expert, torch.float32) for expert in range(len(matrix)))
        return torch.stack([torch.linalg.vector_norm(plain) for plain in by_expert]).square().sum()
    rows = matrix.shape[0]
    blocks = (rows_of(matrix, start, min(start + _NORM_ROWS, rows)) for start in range(0, rows, _NORM_ROWS))
    norms = [torch.linalg.vector_norm(block.dequantised(torch.float32)) for block in blocks if block is not None]
    return torch.stack(norms).square().sum()


class Layers(Protocol):
    """A sequence of a model's layers: a list, or ``StreamedLayers``."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> LayerWeights: ...
    def __iter__(self) -> Iterator[LayerWeights]: ...


@dataclass(slots=True)
class ModelWeights:
    """The base model's weights on this rank's device; embedding and head have the rows of this rank's tokens."""

    embedding: torch.Tensor
    layers: Layers
    final_norm: torch.Tensor
    lm_head: torch.Tensor

    def num_bytes(self) -> int:
        tensors = {id(self.embedding): self.embedding, id(self.lm_head): self.lm_head}
        total = sum(t.nbytes for t in tensors.values()) + self.final_norm.nbytes
        return total + sum(layer.num_bytes() for layer in self.layers)

    def num_quantised(self) -> int:
        """Return the number of matrices in FP8."""
        return sum(len(layer.in_fp8()) + layer.experts_in_fp8() for layer in self.layers)

    def dequantise(self) -> None:
        """Dequantise every matrix to the dtype of the other weights, for a backend of plain products."""
        dtype = self.embedding.dtype
        for layer in self.layers:
            for name in layer.in_fp8():
                setattr(layer, name, laid_out(getattr(layer, name).dequantised(dtype)))
            layer.join_gates()
            if layer.experts is not None and (layer.experts_in_fp8() or layer.experts_in_mxfp4()):
                layer.experts = layer.experts.dequantised(dtype)


@dataclass(frozen=True, slots=True)
class MtpWeights:
    """The weights of a layer that predicts a further token, beside the embedding and the head of its base model.

    ``joined [hidden, 2 * hidden]`` is the product that reads the normed embedding, then the normed hidden state.
    """

    embedding_norm: torch.Tensor
    hidden_norm: torch.Tensor
    joined: Matrix
    layer: LayerWeights
    final_norm: torch.Tensor

    def num_bytes(self) -> int:
        norms = self.embedding_norm.nbytes + self.hidden_norm.nbytes + self.final_norm.nbytes
        return norms + self.joined.nbytes + self.layer.num_bytes()


def laid_out(placed: torch.Tensor) -> torch.Tensor:
    """Return a matrix in the best memory layout: a CPU multiplies one row a third faster if outputs are contiguous."""
    return placed.t().contiguous().t() if placed.device.type == "cpu" and placed.dim() == 2 else placed
