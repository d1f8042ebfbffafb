"""What is computed of DoRA and of biases when an adapter is packed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lorikeet_testing.adapter_files import GEOMETRY, make_tensors, save_adapter
from lorikeet_testing.tiny_models import save_model

from lora_engine.adapters.device_tier import group_offsets
from lora_engine.adapters.epilogue import ModuleTensors, compute, read
from lora_engine.adapters.host_memory import PageableMemory
from lora_engine.adapters.layout import PackedAdapter
from lora_engine.adapters.packing import PoolPacker
from lora_engine.adapters.targets import TargetShapes
from lora_engine.config import EngineConfig
from lora_engine.errors import StageError
from lora_engine.memory.page_pool import PoolGeometry
from lora_engine.model.base_modules import BaseModules, base_modules
from lora_engine.model.config import ModelConfig
from lora_engine.model.loading import load_model, target_shapes
from lora_engine.model.parallel import Parallel
from lora_engine.model.weight_loading import load_weights
from lora_engine.model.weights import Matrix
from lora_engine.peft_format import TARGETS, AdapterLimits
from lora_kernels.fp8_tensors import Fp8Matrix, quantise


class OneModule:
    """A base with one matrix, handed out in pieces."""

    def __init__(self, matrix: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.matrix, self.own_bias = matrix, bias

    def rows(self, layer: int, target: str) -> Iterator[torch.Tensor]:
        yield from self.matrix.split(5)

    def bias(self, layer: int, target: str) -> torch.Tensor | None:
        return self.own_bias

    def aside(self) -> AbstractContextManager[object]:
        return nullcontext()


def rand(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def test_all_kinds_at_once_are_one_factor_and_one_offset() -> None:
    w, b0, b1, x = rand(12, 8), rand(12), rand(12) + 1, rand(3, 8)
    own = ModuleTensors(0.7, rand(2, 8), rand(12, 2), rand(12).abs() + 0.1, None, b1)
    c = own.magnitude / (w + 0.7 * own.b @ own.a).norm(dim=1)  # type: ignore[operator]
    delta = 0.7 * own.b @ own.a  # type: ignore[operator]
    found = compute(own, OneModule(w, b0), 0, "q_proj")
    assert found.factor is not None and found.offset is not None
    y = x @ (w + delta).T + b0
    torch.testing.assert_close(y + found.factor * y + found.offset, c * (x @ (w + delta).T) + b1)
    added = (c[:, None] * (w + delta) - w).square().sum() + found.offset.square().sum()
    assert found.added == pytest.approx(float(added), rel=1e-5)


def test_a_bias_of_lora_is_scaled_with_it() -> None:
    own = ModuleTensors(0.5, rand(2, 8), rand(12, 2), None, rand(12), None)
    found = compute(own, OneModule(rand(12, 8)), 0, "q_proj")
    assert found.factor is None and found.offset is not None
    torch.testing.assert_close(found.offset, 0.5 * own.lora_bias)
    product = float((0.5 * own.b @ own.a).square().sum())  # type: ignore[operator]
    assert found.added == pytest.approx(product + float(found.offset.square().sum()), rel=1e-5)


def test_what_does_not_fit_the_base_is_refused() -> None:
    for own, words in (
        (ModuleTensors(bias=rand(12)), "the base model has none there"),
        (ModuleTensors(1.0, torch.zeros(2, 8), torch.zeros(12, 2), torch.ones(12)), "divide by rows whose norm is 0"),
    ):
        with pytest.raises(StageError, match=words) as refused:
            compute(own, OneModule(torch.zeros(12, 8)), 0, "q_proj")
        assert refused.value.fix


def test_the_bases_modules_as_they_are_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, of matrices that hold several; those in FP8 as they are dequantised."""
    monkeypatch.setattr("lora_engine.model.base_modules._ROWS", 24)
    model: Any = save_model("llama-biases", tmp_path, intermediate_size=160)
    loaded = load_model(EngineConfig(model=tmp_path, pool_mb=2))
    modules = BaseModules(loaded.model.weights, loaded.targets.shapes)
    layer = model.model.layers[1]
    for target in loaded.targets.shapes:
        module = getattr(layer.self_attn if target[0] in "qkvo" else layer.mlp, target)
        torch.testing.assert_close(torch.cat(list(modules.rows(1, target))), module.weight.data)
        bias = modules.bias(1, target)
        assert bias is not None
        torch.testing.assert_close(bias, module.bias.data)
        assert target in loaded.targets.biased
    weights = loaded.model.weights.layers[1]
    quantised = quantise(weights.gate_up if isinstance(weights.gate_up, torch.Tensor) else torch.empty(0))
    weights.gate_up = quantised
    assert isinstance(quantised, Fp8Matrix)
    torch.testing.assert_close(torch.cat(list(modules.rows(1, "up_proj"))), quantised.dequantised(torch.float32)[160:])


def of_two_ranks(folder: Path, suffix: str, **config: object) -> PackedAdapter:
    """An adapter with a vector for each module, packed by the first of two ranks."""
    targets = ("q_proj", "o_proj")
    tensors = make_tensors(targets=targets)
    for name, matrix in list(tensors.items()):
        if name.endswith("lora_B.weight"):
            tensors[name.replace("lora_B.weight", suffix)] = np.arange(1, len(matrix) + 1, dtype=np.float32)
    save_adapter(folder, tensors, target_modules=list(targets), **config)
    shapes = {}
    for target in TARGETS:
        wide, tall = GEOMETRY.features(target)
        shapes[target] = (wide // 2, tall) if target in ("o_proj", "down_proj") else (wide, tall // 2)
    pool = PoolGeometry(num_layers=2, page_tokens=4, kv_heads=1, head_dim=4)
    base = OneModule(torch.ones(16, 16))
    packer = PoolPacker(
        GEOMETRY, AdapterLimits(), pool, TargetShapes(shapes, 0, 2), torch.float32, PageableMemory(), modules=base
    )
    return packer.pack("sha256:0", folder, check_finite=True)


def test_each_rank_has_its_share_of_a_bias(tmp_path: Path) -> None:
    packed = of_two_ranks(tmp_path, "lora_B.bias", lora_bias=True)
    assert packed.of_ranks is not None
    scaled = 2 * torch.arange(1, 17).float()  # the scale is 8 / 4
    for rank, part in enumerate(packed.of_ranks):
        by_target = {s.target: read(part[1].view(-1, 4), s, 0) for s in packed.layout.epilogues[1]}
        assert all(weights.factor is None for weights in by_target.values())
        torch.testing.assert_close(by_target["q_proj"].offset, scaled[8 * rank : 8 * rank + 8])
        torch.testing.assert_close(by_target["o_proj"].offset, scaled if rank == 0 else torch.zeros(16))


def test_each_rank_has_its_share_of_a_magnitude(tmp_path: Path) -> None:
    """Of outputs that ranks share out, their own; of those that they add up, all, as each scales what it made."""
    packed = of_two_ranks(tmp_path, "lora_magnitude_vector", use_dora=True)
    assert packed.of_ranks is not None
    found = [
        {s.target: read(part[1].view(-1, 4), s, 0) for s in packed.layout.epilogues[1]} for part in packed.of_ranks
    ]
    assert all(weights.offset is None for by_target in found for weights in by_target.values())
    q, o = ([by_target[target].factor for by_target in found] for target in ("q_proj", "o_proj"))
    assert all(factor is not None and len(factor) == 8 for factor in q)
    assert all(factor is not None and len(factor) == 16 for factor in o) and torch.equal(o[0], o[1])  # type: ignore[arg-type]
    assert not torch.equal(q[0], q[1])  # type: ignore[arg-type]


def of_ranks(matrices: list[Matrix], target: str, shapes: dict[str, tuple[int, int]]) -> torch.Tensor:
    """What two ranks multiply by, put together."""
    wide = [m.dequantised(torch.float32) if isinstance(m, Fp8Matrix) else m.float() for m in matrices]
    if target in ("o_proj", "down_proj"):
        return torch.cat(wide, dim=1)
    start, out = group_offsets(shapes)[target], shapes[target][1]
    return torch.cat([matrix[start : start + out] for matrix in wide])


@pytest.mark.parametrize("settings", [{}, {"dtype": "bfloat16"}, {"quantization": "fp8"}], ids=str)
def test_of_a_split_base_the_whole_modules_are_what_the_ranks_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    """Those made FP8 too, where each rank's part of a row has a scale of its own."""
    monkeypatch.setattr("lora_engine.model.base_modules._ROWS", 24)
    save_model("llama-biases", tmp_path, intermediate_size=160)
    config = EngineConfig(model=tmp_path, pool_mb=2, **settings)
    loaded, model_config = load_model(config), ModelConfig.load(tmp_path)
    loaded.targets = target_shapes(config, model_config, Parallel(0, 2))
    dtype, quantised = loaded.model.dtype, config.quantization == "fp8"
    modules = base_modules(config, loaded)
    ranks = [
        load_weights(tmp_path, model_config, torch.device("cpu"), dtype, Parallel(rank, 2), quantised).layers[1]
        for rank in range(2)
    ]
    for target, block in zip(TARGETS, ("mixer_in",) * 3 + ("mixer_out",) + ("gate_up",) * 2 + ("down",), strict=True):
        served = of_ranks([getattr(rank, block) for rank in ranks], target, loaded.targets.shapes)
        assert torch.equal(torch.cat(list(modules.rows(1, target))), served), target
        bias, whole = modules.bias(1, target), BaseModules(loaded.model.weights, loaded.model.shape.targets)
        assert bias is not None and torch.equal(bias, whole.bias(1, target))  # type: ignore[arg-type]
    assert any(isinstance(rank.mixer_out, Fp8Matrix) for rank in ranks) == quantised


def test_a_split_base_whose_files_have_changed_is_not_read(tmp_path: Path) -> None:
    save_model("llama-biases", tmp_path, intermediate_size=160)
    config = EngineConfig(model=tmp_path, pool_mb=2)
    loaded = load_model(config)
    loaded.targets = target_shapes(config, ModelConfig.load(tmp_path), Parallel(0, 2))
    modules, weights = base_modules(config, loaded), tmp_path / "model.safetensors"
    again = weights.read_bytes()
    (tmp_path / "linked").hardlink_to(weights)
    assert next(iter(modules.rows(0, "q_proj"))).isfinite().all(), "the same file by another name"
    weights.unlink()
    for words in ("can no longer be read|have changed since", "have changed since"):
        with pytest.raises(StageError, match=words) as refused:
            next(iter(modules.rows(0, "q_proj")))
        assert refused.value.code == "base_model_changed" and refused.value.fix
        weights.write_bytes(again)
    with pytest.raises(StageError, match="have changed since"):
        modules.bias(0, "q_proj")
