"""Random EAGLE-3 heads as they are published, and what such a head guesses, computed without a cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

HEADS, KV_HEADS, DIM, INNER = 4, 2, 16, 40


def save_head(
    folder: Path,
    hidden: int,
    vocab: int,
    *,
    layers: tuple[int, ...] = (0, 1, 2),
    draft_vocab: int = 0,
    prefix: str = "midlayer.",
    with_embedding: bool = False,
    with_lm_head: bool = True,
    **changes: Any,
) -> Path:
    """Save a random head for a base model of these sizes; ``draft_vocab`` 0 is the whole vocabulary."""
    generator = torch.Generator().manual_seed(len(prefix) + draft_vocab)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator) * (2.0 / shape[-1] ** 0.5)

    def norm(size: int) -> torch.Tensor:
        return 1 + 0.3 * torch.randn(size, generator=generator)

    tensors = {
        "fc.weight": random(hidden, len(layers) * hidden),
        "norm.weight": norm(hidden),
        f"{prefix}hidden_norm.weight": norm(hidden),
        f"{prefix}input_layernorm.weight": norm(hidden),
        f"{prefix}post_attention_layernorm.weight": norm(hidden),
        f"{prefix}self_attn.q_proj.weight": random(HEADS * DIM, 2 * hidden),
        f"{prefix}self_attn.k_proj.weight": random(KV_HEADS * DIM, 2 * hidden),
        f"{prefix}self_attn.v_proj.weight": random(KV_HEADS * DIM, 2 * hidden),
        f"{prefix}self_attn.o_proj.weight": random(hidden, HEADS * DIM),
        f"{prefix}mlp.gate_proj.weight": random(INNER, hidden),
        f"{prefix}mlp.up_proj.weight": random(INNER, hidden),
        f"{prefix}mlp.down_proj.weight": random(hidden, INNER),
    }
    if with_lm_head:
        tensors["lm_head.weight"] = random(draft_vocab or vocab, hidden)
    if with_embedding:
        tensors["embed_tokens.weight"] = random(vocab, hidden)
    if draft_vocab:
        chosen = torch.randperm(vocab, generator=generator)[:draft_vocab].sort().values
        tensors["d2t"] = chosen - torch.arange(draft_vocab)
        tensors["t2d"] = torch.zeros(vocab, dtype=torch.bool).index_fill(0, chosen, True)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": hidden,
        "intermediate_size": INNER,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": DIM,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "vocab_size": vocab,
        "draft_vocab_size": draft_vocab or vocab,
        "eagle_aux_hidden_state_layer_ids": list(layers),
        **changes,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


class ReferenceHead:
    """A head that computes all rows anew for each draft, with full attention up to ``window`` rows."""

    def __init__(self, folder: Path, embedding: torch.Tensor, lm_head: torch.Tensor, window: int = 1 << 30) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self._window = window
        self.w = {
            name.replace("layers.0.", "midlayer."): one for name, one in load_file(folder / "model.safetensors").items()
        }
        self._embedding = self.w.get("embed_tokens.weight", embedding)
        self._lm_head = self.w.get("lm_head.weight", lm_head)

    def drafts(self, tokens: list[int], states: torch.Tensor, count: int) -> tuple[list[int], float]:
        """Return the drafts after ``tokens``, with hidden states ``[tokens - 1, layers * hidden]`` of all but the last,
        and the least distance between the two best logits of a draft.
        """
        features, following, drafts, nearest = F.linear(states, self.w["fc.weight"]), tokens[1:], list[int](), 1e9
        for _ in range(count):
            outputs = self.outputs(torch.tensor(following), features)
            logits = F.linear(self._norm(outputs[-1], "norm"), self._lm_head)
            best = logits.topk(2)
            nearest = min(nearest, float(best.values[0] - best.values[1]))
            token = int(best.indices[0])
            drafts.append(token + int(self.w["d2t"][token]) if "d2t" in self.w else token)
            following = [*following, drafts[-1]]
            features = torch.cat((features, outputs[-1:]))
        return drafts, nearest

    def outputs(self, tokens: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """Return the layer's outputs ``[rows, hidden]`` of rows from position 0 on."""
        rows = len(tokens)
        normed = self._norm(features, "midlayer.hidden_norm")
        x = torch.cat((self._norm(F.embedding(tokens, self._embedding), "midlayer.input_layernorm"), normed), -1)
        residual = normed if self.config.get("norm_before_residual") else features
        q, k, v = (F.linear(x, self.w[f"midlayer.self_attn.{name}_proj.weight"]).view(rows, -1, DIM) for name in "qkv")
        frequencies = 1.0 / 10_000.0 ** (torch.arange(0, DIM, 2) / DIM)
        angles = torch.outer(torch.arange(rows).float(), frequencies).repeat(1, 2)[:, None]

        def rotated(values: torch.Tensor) -> torch.Tensor:
            first, second = values.chunk(2, -1)
            return values * angles.cos() + torch.cat((-second, first), -1) * angles.sin()

        q, k = rotated(q), rotated(k).repeat_interleave(HEADS // KV_HEADS, 1)
        v = v.repeat_interleave(HEADS // KV_HEADS, 1)
        ages = torch.arange(rows)[:, None] - torch.arange(rows)
        scores = torch.einsum("qhd,khd->hqk", q, k) / DIM**0.5
        scores = scores.masked_fill((ages < 0) | (ages >= self._window), float("-inf"))
        mixed = torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1)
        residual = residual + F.linear(mixed, self.w["midlayer.self_attn.o_proj.weight"])
        y = self._norm(residual, "midlayer.post_attention_layernorm")
        gate, up = (F.linear(y, self.w[f"midlayer.mlp.{name}_proj.weight"]) for name in ("gate", "up"))
        return residual + F.linear(F.silu(gate) * up, self.w["midlayer.mlp.down_proj.weight"])

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config["rms_norm_eps"]) * self.w[f"{name}.weight"]
