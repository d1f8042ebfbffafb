"""The forward pass of every supported family: Llama 2/3.x, Mistral, Qwen 2/2.5/3."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from lora_engine.memory.page_pool import PagePool, PoolGeometry

from .attention import AttentionPlan, attend, plan_attention, write_kv
from .batch import StepBatch
from .config import ModelConfig
from .lora import add_lora
from .parallel import Parallel
from .rope import rotary_tables, rotate
from .weights import LayerWeights, ModelWeights

# Indices into adapters.layout.TARGET_GROUPS.
QKV, O, GATE_UP, DOWN = range(4)


class Transformer:
    """A base model on one tensor-parallel rank; adapters come with each batch."""

    def __init__(
        self, config: ModelConfig, weights: ModelWeights, max_context: int, parallel: Parallel | None = None
    ) -> None:
        self.config = config
        self.weights = weights
        self.parallel = parallel or Parallel()
        self.heads = self.parallel.shard(config.num_heads, "attention heads")
        self.kv_heads = self.parallel.shard(config.num_kv_heads, "key-value heads")
        self.dtype = weights.embedding.dtype
        self.cos, self.sin = rotary_tables(
            config.rope, config.head_dim, max_context, weights.embedding.device, self.dtype
        )
        self._windows = [config.sliding_window if i in config.sliding_layers else 0 for i in range(config.num_layers)]

    def pool_geometry(self, page_tokens: int) -> PoolGeometry:
        return PoolGeometry(self.config.num_layers, page_tokens, self.kv_heads, self.config.head_dim)

    def forward(self, batch: StepBatch, pool: PagePool) -> torch.Tensor:
        """Logits ``[len(batch.logit_rows), vocab]``; writes the batch's keys and values into the pool."""
        x = F.embedding(batch.token_ids, self.weights.embedding)
        cos, sin = self.cos[batch.positions][:, None], self.sin[batch.positions][:, None]
        plan = plan_attention(batch, pool, tuple(set(self._windows)), self.dtype)
        for index, layer in enumerate(self.weights.layers):
            x = x + self._attention(index, layer, self._norm(x, layer.input_norm), cos, sin, batch, pool, plan)
            x = x + self._mlp(index, layer, self._norm(x, layer.post_norm), batch)
        return F.linear(self._norm(x[batch.logit_rows], self.weights.final_norm), self.weights.lm_head)

    def _attention(
        self,
        index: int,
        layer: LayerWeights,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        batch: StepBatch,
        pool: PagePool,
        plan: AttentionPlan,
    ) -> torch.Tensor:
        qkv = F.linear(x, layer.qkv, layer.qkv_bias)
        add_lora(QKV, index, x, qkv, batch.lora)
        heads = qkv.view(x.shape[0], self.heads + 2 * self.kv_heads, self.config.head_dim)
        q, k, v = heads.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = self._norm(q, layer.q_norm), self._norm(k, layer.k_norm)
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        else:  # q and k are neighbours: rotate them together
            q, k = rotate(heads[:, : self.heads + self.kv_heads], cos, sin).split((self.heads, self.kv_heads), dim=1)
        write_kv(pool, index, batch.key_cells, k.flatten(1), v.flatten(1))
        attended = attend(q, pool, index, batch, plan, self._windows[index]).flatten(1)
        out = F.linear(attended, layer.o, layer.o_bias)
        add_lora(O, index, attended, out, batch.lora)
        return self.parallel.all_reduce(out)

    def _mlp(self, index: int, layer: LayerWeights, x: torch.Tensor, batch: StepBatch) -> torch.Tensor:
        gate_up = F.linear(x, layer.gate_up, layer.gate_up_bias)
        add_lora(GATE_UP, index, x, gate_up, batch.lora)
        gate, up = gate_up.chunk(2, dim=1)
        inner = F.silu(gate) * up
        out = F.linear(inner, layer.down, layer.down_bias)
        add_lora(DOWN, index, inner, out, batch.lora)
        return self.parallel.all_reduce(out)

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.config.rms_norm_eps)
