"""A family's own layer that predicts a further token (multi-token prediction, MTP), as a draft head.

Checkpoints of some families have such a layer behind their layers. As in the report of DeepSeek-V3 (arXiv 2412.19437),
the row of position p reads the embedding of token p + 1 and the state of position p that the base model's head reads,
after the last norm. Both are normed, the embedding first, and joined by a product without a bias; a layer of the
family with full attention and a norm of its own follow, then the base model's head. A further draft comes from the same
layer again, which reads its own normed output as the state of the row before.

The order of the parts, the norms and the names of the tensors are those of the implementations in vLLM
(``qwen3_next_mtp.py``, ``qwen3_5_mtp.py``, ``glm4_moe_mtp.py``) and SGLang (``qwen3_next_mtp.py``,
``glm4_moe_nextn.py``). These differ in what GLM's layer reads for a further draft: the normed output, as here, in
SGLang and in Megatron-LM's training, and the one before the norm in vLLM. Embedding and head are the base model's
also for GLM, whose checkpoints have copies of both, as in SGLang.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from lora_engine.memory.page_pool import PagePool

from .batch import StepBatch
from .draft_head import RING, DraftHead, Rings
from .ops import TorchOps, split_gate
from .shape import QKV
from .stored_tensors import SharedMatrices
from .transformer import Transformer
from .weight_loading import load_mtp_weights
from .weights import LayerWeights, ModelWeights, MtpWeights

# Tokens of a page of the pool that plans of passes name, which nothing reads.
_PAGE_TOKENS = 16


class MtpHead(DraftHead):
    """The layer of a base model, on its device and with its kernels."""

    def __init__(
        self, base: Transformer, weights: MtpWeights, slots: int, shared: SharedMatrices | None = None
    ) -> None:
        """Create a head; ``shared`` are the embedding and the head of ``base`` if it has only a part of them."""
        config = base.config.mtp()
        by_kernels = not isinstance(base.ops, TorchOps)
        rings = Rings(slots, config.num_kv_heads, config.head_dim, base.device, base.dtype, by_kernels=by_kernels)
        super().__init__(rings, slots, config.hidden_size, (base.config.num_layers,))
        self._weights = weights
        self._layer = _Layer(base, weights, shared or base.weights, rings)
        self._plan = base.ops.plan(_nothing(base.device), _no_pages(base))

    @classmethod
    def load(
        cls,
        folder: Path,
        base: Transformer,
        slots: int,
        shared: SharedMatrices | None = None,
        *,
        quantised: bool = False,
        by_threads: bool = False,
    ) -> MtpHead:
        """Load the layer of the base model in ``folder``. Raises ``UnsupportedModel``."""
        weights = load_mtp_weights(folder, base.config, base.device, base.dtype, quantised, by_threads)
        return cls(base, weights, slots, shared)

    def fuse(self, states: torch.Tensor) -> torch.Tensor:
        return states

    def run(
        self,
        slots: torch.Tensor,
        tokens: torch.Tensor,
        features: torch.Tensor,
        positions: torch.Tensor,
        longest: int = RING,
    ) -> torch.Tensor:
        ops, w, embedding = self._layer.ops, self._weights, self._layer.weights.embedding
        embedded = F.embedding(tokens.flatten().clamp(max=len(embedding) - 1), embedding)  # adapters may have more
        states = features.reshape(-1, self.hidden_size)
        both = torch.cat((ops.norm(embedded, w.embedding_norm), ops.norm(states, w.hidden_norm)), 1)
        joined = ops.project(QKV, 0, both, w.joined, None, self._plan)
        return self._layer.outputs(joined, slots, positions, longest, self._plan).view(features.shape)

    def likeliest(self, outputs: torch.Tensor) -> torch.Tensor:
        return self._layer.logits(outputs.reshape(-1, self.hidden_size)).argmax(1).view(outputs.shape[:-1])


class _Layer(Transformer):
    """A model of the one layer, whose keys and values are in rings."""

    def __init__(self, base: Transformer, weights: MtpWeights, shared: SharedMatrices, rings: Rings) -> None:
        config = base.config.mtp()
        of_layer = ModelWeights(shared.embedding, [weights.layer], weights.final_norm, shared.lm_head)
        if isinstance(base.ops, TorchOps):
            of_layer.dequantise()
        super().__init__(config, of_layer, base.shape.max_context, ops=base.ops)
        table = base.shape.ropes[base.config.ropes.index(config.ropes[0])]
        self.shape = replace(self.shape, ropes=(table,))  # so that there is no second one
        self._rings = rings
        self._rows: tuple[torch.Tensor, torch.Tensor, int] | None = None  # slots, positions and reach of the pass

    def outputs(
        self, residual: torch.Tensor, slots: torch.Tensor, positions: torch.Tensor, longest: int, plan: Any
    ) -> torch.Tensor:
        """Return the normed outputs of rows ``residual [slots * rows, hidden]``."""
        self._rows = slots, positions, longest
        return self.through_layers(residual, None, plan)

    def _attend(self, index: int, layer: LayerWeights, qkv: torch.Tensor, plan: Any) -> torch.Tensor:
        assert self._rows is not None, "a pass has rows"
        (slots, positions, longest), s, rope = self._rows, self.shape, self.shape.ropes[0]
        qkv, gate = split_gate(qkv, s)
        heads = qkv.unflatten(1, (-1, s.head_dim))
        q, k, v = heads.split((s.heads, s.kv_heads, s.kv_heads), 1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = self._norm_heads(q, layer.q_norm), self._norm_heads(k, layer.k_norm)
        mixed = self._rings.attend(slots, q, k, v, positions, rope, s.pairs, longest, s.attention_scale)
        return mixed if gate is None else mixed.mul_(gate.sigmoid().flatten(1))

    def _norm_heads(self, heads: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Norm queries or keys ``[rows, heads, dim]`` by head."""
        return self.ops.norm(heads.reshape(-1, heads.shape[2]), weight).view(heads.shape)


def _no_pages(base: Transformer) -> PagePool:
    return PagePool(base.shape.pool_geometry(_PAGE_TOKENS), 1, base.dtype, base.device)


def _nothing(device: torch.device) -> StepBatch:
    """Return a batch without rows: its plan is one for products without adapters."""
    none = torch.zeros(0, dtype=torch.int64, device=device)
    return StepBatch(
        token_ids=none,
        positions=none,
        slot_mapping=none,
        num_decode=0,
        block_table=none[None, :].expand(0, 0),
        seq_lens=none,
        prefill=[],
        lora=[],
        logit_rows=none,
    )
