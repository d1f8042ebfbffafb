"""An EAGLE-3 draft head (arXiv 2503.01840), as published: one decoder layer with a smaller vocabulary of its own.

Its features are hidden states of some of the base model's layers, fused by ``fc``; see ``draft_head``.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from lora_engine.errors import UnsupportedModel

from .checkpoint import Checkpoint
from .config import ModelConfig, read_json_object
from .draft_head import RING, DraftHead, Rings
from .ops import TorchOps
from .rope import RotaryPairs, rotary_table
from .stored_tensors import SharedMatrices
from .transformer import Transformer

_PREFIXES = ("midlayer.", "layers.0.")
_AGAIN = "copy the head from its source again"


@dataclass(frozen=True, slots=True)
class EagleConfig:
    """The sizes of a head, and the layers of the base model whose inputs are its features."""

    layer: ModelConfig
    feature_layers: tuple[int, ...]
    vocab_size: int  # tokens that it can guess
    normed_residual: bool

    @classmethod
    def load(cls, folder: Path, base: ModelConfig) -> EagleConfig:
        """Read ``folder/config.json``. Raises ``UnsupportedModel`` if it is no head of this base model."""
        raw = read_json_object(folder / "config.json")
        names = raw.get("architectures") or ()
        names = names if isinstance(names, list) else [names] if names else []
        if not any("eagle3" in str(name).lower() for name in names):
            raise UnsupportedModel(
                f"{folder} is no EAGLE-3 head (its architectures are {', '.join(map(str, names)) or 'missing'}); "
                'choose a head whose config.json names one, such as "LlamaForCausalLMEagle3".'
            )
        if isinstance(raw.get("transformer_layer_config"), dict):  # the form of the library speculators
            raw = {**raw, **raw["transformer_layer_config"], "architectures": names}
        layer = ModelConfig.from_dict(raw)
        if layer.num_layers != 1 or layer.family.model_type != "llama":
            raise UnsupportedModel(
                f"{folder} has {layer.num_layers} layers of {layer.family.model_type}; only EAGLE-3 heads of one "
                "Llama layer are supported."
            )
        vocab = raw.get("draft_vocab_size") or base.vocab_size
        if layer.hidden_size != base.hidden_size or not isinstance(vocab, int) or not 0 < vocab <= base.vocab_size:
            raise UnsupportedModel(
                f"{folder} has a hidden size of {layer.hidden_size} and {vocab} tokens, the base model "
                f"{base.hidden_size} and {base.vocab_size}: it was trained for another base model."
            )
        return cls(layer, _feature_layers(raw, folder, base), vocab, bool(raw.get("norm_before_residual", False)))


def _feature_layers(raw: dict[str, Any], folder: Path, base: ModelConfig) -> tuple[int, ...]:
    """Return the layers whose inputs are the features; those of the paper's heads unless the configuration has others.

    A list at the top level numbers inputs, as in vLLM, and one in ``eagle_config`` outputs, as in SGLang.
    """
    nested = raw.get("eagle_config")
    layers = raw.get("eagle_aux_hidden_state_layer_ids")
    if layers is None and isinstance(nested, dict) and nested.get("eagle_aux_hidden_state_layer_ids") is not None:
        layers = nested["eagle_aux_hidden_state_layer_ids"]
        if isinstance(layers, list):
            layers = [layer + 1 if isinstance(layer, int) else layer for layer in layers]
    if layers is None:
        layers = [2, base.num_layers // 2, base.num_layers - 3]
    numbers = layers if isinstance(layers, list) else []
    if not numbers or not all(isinstance(layer, int) and 0 <= layer < base.num_layers for layer in numbers):
        raise UnsupportedModel(
            f"{folder} reads the hidden states {layers}, but the base model has {base.num_layers} layers; {_AGAIN}, or "
            "choose one for this base model."
        )
    return tuple(numbers)


@dataclass(frozen=True, slots=True)
class EagleWeights:
    """The matrices of a head, by their published names; q, k and v, and gate and up, are joined."""

    fc: torch.Tensor
    qkv: torch.Tensor
    out: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    input_norm: torch.Tensor
    hidden_norm: torch.Tensor
    mlp_norm: torch.Tensor
    final_norm: torch.Tensor
    embedding: torch.Tensor
    lm_head: torch.Tensor
    token_of: torch.Tensor | None  # [draft vocabulary] the base's token of each; None: they are the same

    @classmethod
    def load(cls, folder: Path, config: EagleConfig, base: Transformer, shared: SharedMatrices) -> EagleWeights:
        """Load a head, which may lack an embedding or an output matrix: then it has those of ``shared``.

        Raises ``UnsupportedModel`` if other tensors are missing, or if some are unknown or of another shape.
        """
        checkpoint, device, dtype = Checkpoint(folder), base.device, base.dtype
        prefix = next(
            (prefix for prefix in _PREFIXES if f"{prefix}hidden_norm.weight" in checkpoint.files), "midlayer."
        )
        layer, read = config.layer, set[str]()
        hidden, inner = layer.hidden_size, layer.intermediate_size
        queries, keys = layer.num_heads * layer.head_dim, layer.num_kv_heads * layer.head_dim

        def tensor(name: str, *shape: int) -> torch.Tensor:
            if name not in checkpoint.files:
                raise UnsupportedModel(f"{folder} has no tensor {name}; {_AGAIN}.")
            read.add(name)
            value = checkpoint.tensor(name)
            if tuple(value.shape) != shape:
                raise UnsupportedModel(f"{name} in {folder} is {tuple(value.shape)}, not {shape}; {_AGAIN}.")
            return value

        def matrix(name: str, *shape: int) -> torch.Tensor:
            return tensor(name, *shape).to(device, dtype)

        def of_layer(name: str, *shape: int) -> torch.Tensor:
            return matrix(f"{prefix}{name}.weight", *shape)

        token_of = None
        if "d2t" in checkpoint.files:
            offsets = tensor("d2t", config.vocab_size).to(torch.int64)
            token_of = torch.arange(config.vocab_size) + offsets
            if int(token_of.min()) < 0 or int(token_of.max()) >= base.config.vocab_size:
                raise UnsupportedModel(f"d2t in {folder} names tokens that the base model does not have; {_AGAIN}.")
            token_of = token_of.to(device)
        elif config.vocab_size != base.config.vocab_size:
            raise UnsupportedModel(f"{folder} has {config.vocab_size} tokens, but no tensor d2t; {_AGAIN}.")
        shared_head = token_of is None and "lm_head.weight" not in checkpoint.files
        has_embedding = "embed_tokens.weight" in checkpoint.files
        weights = cls(
            fc=matrix("fc.weight", hidden, len(config.feature_layers) * hidden),
            qkv=torch.cat(
                [
                    of_layer("self_attn.q_proj", queries, 2 * hidden),
                    of_layer("self_attn.k_proj", keys, 2 * hidden),
                    of_layer("self_attn.v_proj", keys, 2 * hidden),
                ]
            ),
            out=of_layer("self_attn.o_proj", hidden, queries),
            gate_up=torch.cat([of_layer("mlp.gate_proj", inner, hidden), of_layer("mlp.up_proj", inner, hidden)]),
            down=of_layer("mlp.down_proj", hidden, inner),
            input_norm=of_layer("input_layernorm", hidden),
            hidden_norm=of_layer("hidden_norm", hidden),
            mlp_norm=of_layer("post_attention_layernorm", hidden),
            final_norm=matrix("norm.weight", hidden),
            embedding=matrix("embed_tokens.weight", base.config.vocab_size, hidden)
            if has_embedding
            else shared.embedding,
            lm_head=shared.lm_head if shared_head else matrix("lm_head.weight", config.vocab_size, hidden),
            token_of=token_of,
        )
        if unknown := sorted({*checkpoint.files} - read - {"t2d"}):
            raise UnsupportedModel(f"{folder} has the tensor {unknown[0]}, which no supported EAGLE-3 head has.")
        return weights


def eagle_bytes(folder: Path, dtype: torch.dtype) -> int:
    """Return the bytes that the weights of a head take in ``dtype``. Raises ``UnsupportedModel``."""
    checkpoint = Checkpoint(folder)
    shapes = {name: checkpoint.entry(name)["shape"] for name in checkpoint.files if name != "t2d"}
    return sum(prod(shape) * (8 if name == "d2t" else dtype.itemsize) for name, shape in shapes.items())


class EagleHead(DraftHead):
    """An EAGLE-3 head on the base model's device."""

    def __init__(
        self, config: EagleConfig, weights: EagleWeights, slots: int, max_context: int, *, by_kernels: bool = False
    ) -> None:
        """Create a head; ``by_kernels``: its attention is computed by Triton kernels."""
        layer, device, dtype = config.layer, weights.fc.device, weights.fc.dtype
        rings = Rings(slots, layer.num_kv_heads, layer.head_dim, device, dtype, by_kernels=by_kernels)
        super().__init__(rings, slots, layer.hidden_size, config.feature_layers)
        self.config, self._weights = config, weights
        self._pairs = RotaryPairs(layer.head_dim, layer.head_dim)
        self._rotary = rotary_table(layer.ropes[0], self._pairs, max_context + 1, device, dtype)

    @classmethod
    def load(
        cls, folder: Path, base: Transformer, slots: int, max_context: int, shared: SharedMatrices | None = None
    ) -> EagleHead:
        """Load the head in ``folder`` for a base model, whose matrices it may share. Raises ``UnsupportedModel``.

        ``shared`` are these matrices if ``base`` has only a part of them.
        """
        config = EagleConfig.load(folder, base.config)
        weights = EagleWeights.load(folder, config, base, shared or base.weights)
        return cls(config, weights, slots, max_context, by_kernels=not isinstance(base.ops, TorchOps))

    def fuse(self, states: torch.Tensor) -> torch.Tensor:
        return F.linear(states, self._weights.fc)

    def run(
        self,
        slots: torch.Tensor,
        tokens: torch.Tensor,
        features: torch.Tensor,
        positions: torch.Tensor,
        longest: int = RING,
    ) -> torch.Tensor:
        w, layer = self._weights, self.config.layer
        count, rows = tokens.shape
        heads, kv_heads, dim = layer.num_heads, layer.num_kv_heads, layer.head_dim
        # Adapters may have further tokens.
        embedded = self._norm(F.embedding(tokens.clamp(max=len(w.embedding) - 1), w.embedding), w.input_norm)
        normed = self._norm(features, w.hidden_norm)
        residual = normed if self.config.normed_residual else features
        qkv = F.linear(torch.cat((embedded, normed), -1), w.qkv).view(count * rows, -1, dim)
        q, k, v = qkv.split((heads, kv_heads, kv_heads), 1)
        mixed = self.rings.attend(slots, q, k, v, positions, self._rotary, self._pairs, longest, dim**-0.5)
        residual = residual + F.linear(mixed.view(count, rows, -1), w.out)
        gate, up = F.linear(self._norm(residual, w.mlp_norm), w.gate_up).chunk(2, -1)
        return residual + F.linear(F.silu(gate) * up, w.down)

    def logits(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the logits ``[…, draft vocabulary]`` of outputs ``[…, hidden]``."""
        return F.linear(self._norm(outputs, self._weights.final_norm), self._weights.lm_head)

    def likeliest(self, outputs: torch.Tensor) -> torch.Tensor:
        best = self.logits(outputs).argmax(-1)
        return best if self._weights.token_of is None else self._weights.token_of[best]

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.config.layer.norm_eps)
