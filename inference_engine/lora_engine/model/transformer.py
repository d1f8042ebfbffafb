"""The forward pass of every supported family; `families/` describes their differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from lora_engine.adapters.targets import EXPERTS_GROUP
from lora_engine.memory.page_pool import PagePool
from lora_kernels.fp8_tensors import Fp8Stack

from .batch import EmbeddingLayerSpan, StepBatch
from .config import ModelConfig
from .embedding_spans import add_heads, embed, hide_absent
from .merging import MergedLayers
from .ops import Activations, Addable, Ops, Reader, TorchOps
from .parallel import Parallel, PartialSum
from .shape import (
    DELTA_IN,
    DELTA_OUT,
    DOWN,
    GATE_UP,
    OUT,
    QKV,
    ROUTER,
    SHARED_DOWN,
    SHARED_GATE_UP,
    ModelShape,
)
from .vocabulary import Vocabulary
from .weights import DeltaParameters, LayerWeights, ModelWeights


class LayerInputs:
    """The hidden states that some layers read, of all rows of the last pass: what a draft head reads.

    The number of all layers stands for what the head of the base model reads, the states after the last norm.
    """

    def __init__(self, layers: Sequence[int], rows: int, hidden_size: int, device: torch.device, dtype: torch.dtype):
        self.places = {layer: place * hidden_size for place, layer in enumerate(layers)}
        self.buffer = torch.zeros(rows, len(layers) * hidden_size, device=device, dtype=dtype)
        self._hidden_size = hidden_size

    def keep(self, layer: int, states: torch.Tensor) -> None:
        """Copy ``states [rows, hidden]`` if the layer is one of them. A CUDA graph can capture this."""
        if (place := self.places.get(layer)) is not None:
            self.buffer[: len(states), place : place + self._hidden_size].copy_(states)


class Transformer:
    """A base model on one tensor-parallel rank; adapters come with each batch."""

    def __init__(
        self,
        config: ModelConfig,
        weights: ModelWeights,
        max_context: int,
        parallel: Parallel | None = None,
        ops: Ops[Any] | None = None,
        shape: ModelShape | None = None,
    ) -> None:
        self.config = config
        self.weights = weights
        self.parallel = parallel or Parallel()
        self.device, self.dtype = weights.embedding.device, weights.embedding.dtype
        self.vocabulary = Vocabulary(config.vocab_size, self.parallel)
        self.shape = shape or ModelShape.of(config, self.parallel, max_context, self.device, self.dtype)
        self.ops: Ops[Any] = ops or TorchOps(self.shape)
        self._embedding_scale = config.embedding_scale
        if config.family.embedding_scale_rounded:
            self._embedding_scale = float(torch.tensor(config.embedding_scale, dtype=self.dtype))
        self.merged: MergedLayers | None = None  # only in modes that merge
        self.layer_inputs: LayerInputs | None = None  # only with a draft head
        self._norms_follow = self.parallel.shared is not None and _norms_follow(
            weights, parallel_mlp=config.family.parallel_mlp
        )

    @property
    def layer_kinds(self) -> list[int]:
        """Indices of one layer of each kind, which together launch the kernels of all layers."""
        windows, ropes = self.shape.windows, self.shape.ropes
        kinds = {
            (windows[index], id(ropes[index]), self._place(index), layer.in_fp8(), layer.kind_of_experts()): index
            for index, layer in enumerate(self.weights.layers)
        }
        return sorted(kinds.values())

    def _place(self, layer: int) -> int:
        """Return the index of a recurrent layer in its layer group, a constant of its kernels; -1 for attention."""
        groups, recurrent = self.shape.layer_groups, self.shape.delta_layers
        return sum(groups[other] == groups[layer] for other in recurrent if other < layer) if layer in recurrent else -1

    def forward(self, batch: StepBatch, pool: PagePool) -> torch.Tensor:
        """Compute logits ``[len(batch.logit_rows), vocab]``, and write the batch's keys and values to the pool."""
        hidden = self.hidden(batch.token_ids, batch.logit_rows, self.ops.plan(batch, pool), None, batch.embeddings)
        return self.logits(hidden, None, batch.heads)

    def run(
        self,
        token_ids: torch.Tensor,
        logit_rows: torch.Tensor | None,
        plan: Any,
        out: torch.Tensor | None = None,
        layers: Sequence[int] | None = None,
    ) -> torch.Tensor:
        """Run ``forward`` with an existing plan; ``logit_rows`` None means every row.

        The logits go into ``out`` unless that is None. ``layers`` restricts the run to some layers, to load their
        kernels. A CUDA graph can capture the run: the host does not read from the device.
        """
        return self.logits(self.hidden(token_ids, logit_rows, plan, layers), out)

    def hidden(
        self,
        token_ids: torch.Tensor,
        rows: torch.Tensor | None,
        plan: Any,
        layers: Sequence[int] | None = None,
        embeddings: Sequence[EmbeddingLayerSpan] = (),
    ) -> torch.Tensor:
        """Compute hidden states after the last norm, ``[len(rows), hidden]``, and write keys and values to the pool."""
        residual = embed(token_ids, self.weights.embedding, self.vocabulary, embeddings, singly=self.ops.invariant)
        if self._embedding_scale != 1.0:
            residual.mul_(self._embedding_scale)
        return self.through_layers(residual, rows, plan, layers)

    def through_layers(
        self, residual: torch.Tensor, rows: torch.Tensor | None, plan: Any, layers: Sequence[int] | None = None
    ) -> torch.Tensor:
        """Compute ``hidden`` of the layers' input ``residual [tokens, hidden]``, which is overwritten."""
        delta: Addable | None = None
        weights = self.merged.layers if plan.merged and self.merged is not None else self.weights.layers
        for index in range(len(weights)) if layers is None else layers:
            layer = weights[index]
            mlp = _mlp_readers(layer)
            if layer.delta is not None:
                inputs = (layer.mixer_in, layer.delta.gates)
                readers: Sequence[Reader] = [Reader(DELTA_IN, matrix) for matrix in inputs if matrix is not None]
                x = self.ops.add_norm_for(residual, delta, layer.attention_norm, readers, plan)
                self._keep_input(index, residual)
                mixed = self._gated_delta(index, layer, layer.delta, x, plan)
            else:
                attention = Reader(QKV, layer.mixer_in)
                readers = (attention, *mlp) if self.config.family.parallel_mlp else (attention,)
                x = self.ops.add_norm_for(residual, delta, layer.attention_norm, readers, plan)
                self._keep_input(index, residual)
                mixed = self._attention(index, layer, x, plan)
            if self.config.family.parallel_mlp:
                delta = self._sum(self._mlp(index, layer, x, plan).add_(mixed), None)
                continue
            delta = self._sum(mixed, layer.attention_out_norm)
            x = self.ops.add_norm_for(residual, delta, layer.mlp_norm, mlp, plan)
            delta = self._sum(self._mlp(index, layer, x, plan), layer.mlp_out_norm)
        keeps = self.layer_inputs is not None and self.config.num_layers in self.layer_inputs.places
        if keeps or isinstance(delta, PartialSum):  # of all rows
            hidden = self.ops.add_norm(residual, delta, self.weights.final_norm)
            self._keep_input(self.config.num_layers, hidden)
            return hidden if rows is None else hidden[rows]
        if rows is not None:
            residual, delta = residual[rows], None if delta is None else delta[rows]
        return self.ops.add_norm(residual, delta, self.weights.final_norm)

    def logits(
        self, hidden: torch.Tensor, out: torch.Tensor | None = None, heads: Sequence[EmbeddingLayerSpan] = ()
    ) -> torch.Tensor:
        """Compute logits ``[rows, vocab]`` of hidden states after the last norm.

        There are more columns if an adapter in ``heads`` has more tokens. All ranks must call this together, with the
        same states; only ``heads`` of rank 0 matter.
        """
        logits = self.vocabulary.whole(self.ops.linear(hidden, self.weights.lm_head, out=out))
        if heads:
            logits = add_heads(logits, hidden, heads, singly=self.ops.invariant)
        self._scale(logits)
        if heads:
            hide_absent(logits, self.config.vocab_size, heads)
        return logits

    def greedy(self, hidden: torch.Tensor, out: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute this rank's columns of the logits (see ``vocabulary.whole``) and the likeliest token of each row."""
        logits = self._scale(self.ops.linear(hidden, self.weights.lm_head, out=out))
        return logits, self.vocabulary.argmax(logits)

    def _scale(self, logits: torch.Tensor) -> torch.Tensor:
        """Apply the logits' scale and softcap, in place."""
        cap = self.config.logit_softcap
        if self.config.logit_scale != 1.0:
            logits.mul_(self.config.logit_scale)
        if cap:
            logits.div_(cap).tanh_().mul_(cap)
        return logits

    def _sum(self, addend: torch.Tensor, out_norm: torch.Tensor | None) -> Addable:
        """Sum the outputs of a mixer or an MLP over the ranks, for the next norm, and apply the norm behind them."""
        total = self.parallel.sum(addend)
        return total if out_norm is None else self.ops.norm(total, out_norm)

    def _addend(self, rows: int) -> torch.Tensor | None:
        """Return the place where a product has to write what is summed next; None: anywhere."""
        if not (self._norms_follow and self.ops.adds_partial_sums):
            return None
        return self.parallel.addend(rows, self.config.hidden_size, self.dtype)

    def _keep_input(self, index: int, residual: torch.Tensor) -> None:
        if self.layer_inputs is not None:
            self.layer_inputs.keep(index, residual)

    def _attention(self, index: int, layer: LayerWeights, x: Activations, plan: Any) -> torch.Tensor:
        qkv = self.ops.project(QKV, index, x, layer.mixer_in, layer.mixer_in_bias, plan)
        attended = self._attend(index, layer, qkv, plan)
        # Where the MLP's output is added to attention's before the sum, the MLP's has the place for it.
        out = None if self.config.family.parallel_mlp else self._addend(len(attended))
        return self.ops.project(OUT, index, attended, layer.mixer_out, layer.mixer_out_bias, plan, out)

    def _attend(self, index: int, layer: LayerWeights, qkv: torch.Tensor, plan: Any) -> torch.Tensor:
        return self.ops.attend(index, layer, qkv, plan)

    def _gated_delta(
        self, index: int, layer: LayerWeights, delta: DeltaParameters, x: Activations, plan: Any
    ) -> torch.Tensor:
        if delta.gates is None:
            width, outputs = 2 * len(delta.a_log), layer.mixer_in.shape[0]
            out = None
            if padding := -outputs % 16:  # rows begin where kernels can read several elements at a time
                out = torch.empty(x.shape[0], outputs + padding, dtype=self.dtype, device=self.device)[:, :outputs]
            both = self.ops.project(DELTA_IN, index, x, layer.mixer_in, None, plan, out)
            projected, gates = both.split((both.shape[1] - width, width), dim=1)
        else:
            projected, gates = self.ops.project_both(DELTA_IN, index, x, layer.mixer_in, delta.gates, plan)
        mixed = self.ops.gated_delta(index, delta, projected, gates, plan)
        return self.ops.project(DELTA_OUT, index, mixed, layer.mixer_out, None, plan, self._addend(len(mixed)))

    def _mlp(self, index: int, layer: LayerWeights, x: Activations, plan: Any) -> torch.Tensor:
        if layer.experts is None:
            return self._one_mlp(index, layer, x, plan)
        out = None
        if layer.gate_up is not None:
            groups = (SHARED_GATE_UP, SHARED_DOWN) if layer.experts.separate_mlp else (GATE_UP, DOWN)
            out = self._one_mlp(index, layer, x, plan, *groups)
        scores = self.ops.project(ROUTER, index, x, layer.experts.router, layer.router_bias, plan)
        if out is not None:  # over ranks, both are parts of the sum, and the MLP's is in the place for it
            return self.ops.experts(index, layer.experts, x, scores, plan, out, onto=True)
        return self.ops.experts(index, layer.experts, x, scores, plan, self._addend(x.shape[0]))

    def _one_mlp(
        self, index: int, layer: LayerWeights, x: Activations, plan: Any, wide: int = GATE_UP, tall: int = DOWN
    ) -> torch.Tensor:
        """Compute a layer's MLP; ``wide`` and ``tall`` are the target groups of its products."""
        assert layer.gate_up is not None and layer.down is not None, "the layer has an MLP"
        gate_up = self.ops.project(wide, index, x, layer.gate_up, layer.gate_up_bias, plan)
        inner = self.ops.activate_for(gate_up, Reader(tall, layer.down), plan)
        out = self._addend(gate_up.shape[0])
        return self.ops.project(tall, index, inner, layer.down, layer.down_bias, plan, out)


def _mlp_readers(layer: LayerWeights) -> list[Reader]:
    """Return the products that read the input of a layer's MLP or experts, first those that read it quantised."""
    if (experts := layer.experts) is None:
        assert layer.gate_up is not None, "a layer without experts has an MLP"
        return [Reader(GATE_UP, layer.gate_up)]
    router = Reader(ROUTER, experts.router)
    stack = experts.gate_up
    return [Reader(EXPERTS_GROUP, stack.first), router] if isinstance(stack, Fp8Stack) else [router]


def _norms_follow(weights: ModelWeights, *, parallel_mlp: bool) -> bool:
    """Return whether a norm with a weight reads every sum over ranks, of mixers and of MLPs."""
    layers = list(weights.layers)
    following = [*(layer.attention_norm for layer in layers[1:]), weights.final_norm]
    return all(
        (parallel_mlp or layer.attention_out_norm is not None or layer.mlp_norm is not None)
        and (layer.mlp_out_norm is not None or norm is not None)
        for layer, norm in zip(layers, following, strict=True)
    )
