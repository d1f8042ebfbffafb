"""Base weights from sharded safetensors, merged and sharded as the layers want them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open

from .config import ModelConfig, UnsupportedModel
from .parallel import Parallel


@dataclass(slots=True)
class LayerWeights:
    """One transformer block; matrices are ``[out, in]``, local to this rank."""

    input_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    o: torch.Tensor
    o_bias: torch.Tensor | None
    post_norm: torch.Tensor
    gate_up: torch.Tensor
    gate_up_bias: torch.Tensor | None
    down: torch.Tensor
    down_bias: torch.Tensor | None


@dataclass(slots=True)
class ModelWeights:
    """Everything of the base model that lives on the device."""

    embedding: torch.Tensor
    layers: list[LayerWeights]
    final_norm: torch.Tensor
    lm_head: torch.Tensor

    def num_bytes(self) -> int:
        tensors = {id(self.embedding): self.embedding, id(self.lm_head): self.lm_head}
        total = sum(t.nbytes for t in tensors.values()) + self.final_norm.nbytes
        for layer in self.layers:
            for name in LayerWeights.__slots__:
                value = getattr(layer, name)
                total += value.nbytes if value is not None else 0
        return total


class CheckpointReader:
    """Tensors by name over one or many safetensors files."""

    def __init__(self, folder: Path) -> None:
        index = folder / "model.safetensors.index.json"
        if index.is_file():
            files: dict[str, str] = json.loads(index.read_text())["weight_map"]
        elif (folder / "model.safetensors").is_file():
            with safe_open(folder / "model.safetensors", framework="pt") as single:
                files = dict.fromkeys(single.keys(), "model.safetensors")
        else:
            raise UnsupportedModel(f"{folder} holds no safetensors weights; convert the checkpoint to safetensors.")
        self.files = {name: folder / file for name, file in files.items()}
        self._open = {path: safe_open(path, framework="pt") for path in set(self.files.values())}

    def has(self, name: str) -> bool:
        return name in self.files

    def tensor(self, name: str) -> torch.Tensor:
        if name not in self.files:
            raise UnsupportedModel(f"the checkpoint lacks the tensor {name}; is it complete?")
        tensor: torch.Tensor = self._open[self.files[name]].get_tensor(name)
        return tensor


def base_digest(folder: Path) -> str:
    """``sha256:`` over the names and contents of the configuration and weight files."""
    digest = hashlib.sha256()
    for path in sorted([folder / "config.json", *folder.glob("*.safetensors")]):
        digest.update(path.name.encode())
        with path.open("rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
    return "sha256:" + digest.hexdigest()


def load_weights(
    folder: Path, config: ModelConfig, device: torch.device, dtype: torch.dtype, parallel: Parallel
) -> ModelWeights:
    """Read, shard, merge (q,k,v and gate,up) and move the base model to ``device``."""
    reader = CheckpointReader(folder)

    def put(tensor: torch.Tensor) -> torch.Tensor:
        placed = tensor.to(device=device, dtype=dtype).contiguous()
        # A CPU multiplies one row by a matrix a third faster if the outputs, not the inputs, lie side by side.
        return placed.t().contiguous().t() if device.type == "cpu" and placed.dim() == 2 else placed

    embedding = put(reader.tensor("model.embed_tokens.weight"))
    lm_head = embedding if config.tie_embeddings else put(reader.tensor("lm_head.weight"))
    layers = []
    for index in range(config.num_layers):
        layers.append(_load_layer(reader, f"model.layers.{index}.", config, put, parallel))
    return ModelWeights(embedding, layers, put(reader.tensor("model.norm.weight")), lm_head)


def random_weights(
    config: ModelConfig, device: torch.device, dtype: torch.dtype, parallel: Parallel, seed: int = 0
) -> ModelWeights:
    """Weights of the right shapes for speed measurements; they say nothing sensible."""
    generator = torch.Generator(device=device).manual_seed(seed)
    shapes = config.target_shapes(parallel.rank, parallel.world)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device=device, dtype=dtype) * 0.02

    def ones(size: int) -> torch.Tensor:
        return torch.ones(size, device=device, dtype=dtype)

    def merged(*targets: str) -> torch.Tensor:
        return normal(sum(shapes[t][1] for t in targets), shapes[targets[0]][0])

    def layer() -> LayerWeights:
        qkv, gate_up = merged("q_proj", "k_proj", "v_proj"), merged("gate_proj", "up_proj")
        return LayerWeights(
            input_norm=ones(config.hidden_size),
            qkv=qkv,
            qkv_bias=normal(qkv.shape[0]) if config.qkv_bias else None,
            q_norm=ones(config.head_dim) if config.qk_norm else None,
            k_norm=ones(config.head_dim) if config.qk_norm else None,
            o=merged("o_proj"),
            o_bias=None,
            post_norm=ones(config.hidden_size),
            gate_up=gate_up,
            gate_up_bias=None,
            down=merged("down_proj"),
            down_bias=None,
        )

    embedding = normal(config.vocab_size, config.hidden_size)
    lm_head = embedding if config.tie_embeddings else normal(config.vocab_size, config.hidden_size)
    return ModelWeights(embedding, [layer() for _ in range(config.num_layers)], ones(config.hidden_size), lm_head)


def _load_layer(
    reader: CheckpointReader,
    prefix: str,
    config: ModelConfig,
    put: Callable[[torch.Tensor], torch.Tensor],
    parallel: Parallel,
) -> LayerWeights:
    def column(*names: str) -> torch.Tensor:
        return put(torch.cat([_rows(reader.tensor(prefix + n + ".weight"), parallel) for n in names]))

    def column_bias(present: bool, *names: str) -> torch.Tensor | None:
        if not present:
            return None
        return put(torch.cat([_rows(reader.tensor(prefix + n + ".bias"), parallel) for n in names]))

    def row(name: str) -> torch.Tensor:
        weight = reader.tensor(prefix + name + ".weight")
        width = parallel.shard(weight.shape[1], name)
        return put(weight[:, parallel.rank * width : (parallel.rank + 1) * width])

    def row_bias(present: bool, name: str) -> torch.Tensor | None:
        # Every rank's partial sum is added up, so only one of them may carry the bias.
        return put(reader.tensor(prefix + name + ".bias")) if present and parallel.rank == 0 else None

    def vector(name: str) -> torch.Tensor:
        return put(reader.tensor(prefix + name + ".weight"))

    qkv = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    gate_up = ("mlp.gate_proj", "mlp.up_proj")
    return LayerWeights(
        input_norm=vector("input_layernorm"),
        qkv=column(*qkv),
        qkv_bias=column_bias(config.qkv_bias, *qkv),
        q_norm=vector("self_attn.q_norm") if config.qk_norm else None,
        k_norm=vector("self_attn.k_norm") if config.qk_norm else None,
        o=row("self_attn.o_proj"),
        o_bias=row_bias(config.o_bias, "self_attn.o_proj"),
        post_norm=vector("post_attention_layernorm"),
        gate_up=column(*gate_up),
        gate_up_bias=column_bias(config.mlp_bias, *gate_up),
        down=row("mlp.down_proj"),
        down_bias=row_bias(config.mlp_bias, "mlp.down_proj"),
    )


def _rows(weight: torch.Tensor, parallel: Parallel) -> torch.Tensor:
    height = parallel.shard(weight.shape[0], "output features")
    return weight[parallel.rank * height : (parallel.rank + 1) * height]
