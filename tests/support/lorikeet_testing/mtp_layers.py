"""Random layers that predict a further token as checkpoints have them, and what they guess, computed without a cache.

The layer between the norms is one of ``transformers``, which does not load such layers itself. What surrounds it is
written here in float32 as vLLM and SGLang describe it, see ``lora_engine.model.mtp_head``.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Tensors = dict[str, torch.Tensor]


def add_mtp(folder: Path, model: PreTrainedModel, seed: int = 0) -> ReferenceMtp:
    """Add the tensors of a random layer to the checkpoint of ``model`` in ``folder``."""
    reference = ReferenceMtp(model, seed)
    path = folder / "model.safetensors"
    save_file({**load_file(path), **reference.tensors()}, path, metadata={"format": "pt"})
    return reference


class ReferenceMtp:
    """A layer that computes all rows anew for each draft, with full attention up to ``window`` rows."""

    def __init__(self, model: PreTrainedModel, seed: int = 0) -> None:
        self._model: Any = model
        config = copy.deepcopy(model.config)
        self.layers, self.glm = config.num_hidden_layers, config.model_type == "glm4_moe"
        config.num_hidden_layers, config.layer_types = 1, ["full_attention"]
        sparse = any(hasattr(layer.mlp, "experts") for layer in self._model.model.layers)
        config.mlp_only_layers, config.first_k_dense_replace = [] if sparse else [0], 0
        self._config = config
        generator = torch.Generator().manual_seed(seed)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=generator) * (1.5 / shape[-1] ** 0.5)

        self._offset = 0.0 if self.glm else 1.0
        self.layer = type(self._model.model.layers[0])(config, 0).eval()
        with torch.no_grad():
            for name, value in [*self.layer.named_parameters(), *self.layer.named_buffers()]:
                norm = "norm" in name
                value.copy_(random(*value.shape) * (0.3 if norm else 1.0) + (1.0 - self._offset if norm else 0.0))
        hidden = config.hidden_size
        self.norms = {name: 1.0 - self._offset + 0.3 * random(hidden) * hidden**0.5 for name in ("e", "h", "last")}
        self.joined = random(hidden, 2 * hidden)

    def tensors(self) -> Tensors:
        """Return the tensors by their published names; experts of GLM are apart, and others stacked."""
        start = f"model.layers.{self.layers}." if self.glm else "mtp.layers.0."
        of_layer: Tensors = {}
        for name, value in self.layer.state_dict().items():
            if self.glm and name.startswith("mlp.experts."):
                modules = ("gate_proj", "up_proj") if "gate_up" in name else ("down_proj",)
                for expert, matrix in enumerate(value):
                    for module, part in zip(modules, matrix.chunk(len(modules)), strict=True):
                        of_layer[f"mlp.experts.{expert}.{module}.weight"] = part
            else:
                of_layer[name] = value
        names = ("enorm", "hnorm", "shared_head.norm", "eh_proj")
        if not self.glm:
            names = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", "fc")
        others = dict(zip(names, (*self.norms.values(), self.joined), strict=True))
        if self.glm:  # copies
            others |= {"embed_tokens": self._embedding, "shared_head.head": self._head}
        tensors = {f"{start if self.glm else 'mtp.'}{name}.weight": value for name, value in others.items()}
        tensors |= {start + name: value for name, value in of_layer.items()}
        return {name: value.clone() for name, value in tensors.items()}

    def drafts(self, tokens: list[int], states: torch.Tensor, count: int) -> tuple[list[int], float]:
        """Return the drafts after ``tokens``, with the last states ``[tokens - 1, hidden]`` of all but the last, and
        the least distance between the two best logits of a draft.
        """
        following, drafts, nearest = tokens[1:], list[int](), 1e9
        for _ in range(count):
            outputs = self.outputs(torch.tensor(following), states)
            best = F.linear(outputs[-1], self._head).topk(2)
            nearest = min(nearest, float(best.values[0] - best.values[1]))
            drafts.append(int(best.indices[0]))
            following = [*following, drafts[-1]]
            states = torch.cat((states, outputs[-1:]))
        return drafts, nearest

    @torch.no_grad()
    def outputs(self, tokens: torch.Tensor, states: torch.Tensor, window: int = 1 << 30) -> torch.Tensor:
        """Return the normed outputs ``[rows, hidden]`` of rows from position 0 on."""
        embedded = self._norm(F.embedding(tokens, self._embedding), "e")
        x = F.linear(torch.cat((embedded, self._norm(states, "h")), -1), self.joined)[None]
        positions = torch.arange(len(tokens))[None]
        ages = positions[0][:, None] - positions
        mask = torch.zeros(ages.shape).masked_fill((ages < 0) | (ages >= window), float("-inf"))[None, None]
        # Qwen3.5's positions have three axes (time, height, width), which only newer versions add themselves.
        three = self._model.config.model_type.startswith("qwen3_5")
        axes = positions[None].expand(3, -1, -1) if three else positions
        rotary = self._model.model.rotary_emb(x, axes)
        out = self.layer(x, position_embeddings=rotary, attention_mask=mask, position_ids=positions)
        return self._norm((out[0] if isinstance(out, tuple) else out)[0], "last")

    @property
    def _embedding(self) -> torch.Tensor:
        weight: torch.Tensor = self._model.get_input_embeddings().weight
        return weight.detach()

    @property
    def _head(self) -> torch.Tensor:
        weight: torch.Tensor = self._model.get_output_embeddings().weight
        return weight.detach()

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self._config.rms_norm_eps)
        return x * scale * (self._offset + self.norms[name])
