"""What OLoRA's training took out of the base, computed again where the base is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lorikeet_testing.adapter_files import GEOMETRY, make_tensors, save_adapter

from lora_engine.adapters.taken_out import factors
from lora_engine.adapters.targets import Interleaving
from lora_engine.errors import StageError
from lora_engine.peft_format import WEIGHTS_FILE, AdapterLimits, AdapterManifest, SafetensorsFile, inspect_adapter

TARGETS = ("q_proj", "down_proj")


class Base:
    """Handed out in pieces, the last of them smaller."""

    def __init__(self, quantised: bool = False, size: float = 1.0) -> None:
        self.quantised, self.size = quantised, size

    def matrix(self, target: str) -> torch.Tensor:
        features, outputs = GEOMETRY.features(target)
        return torch.randn(outputs, features, generator=torch.Generator().manual_seed(features)) * self.size

    def rows(self, layer: int, target: str) -> Iterator[torch.Tensor]:
        yield from self.matrix(target).split(7)

    def is_quantised(self, layer: int, target: str) -> bool:
        return self.quantised

    def aside(self) -> AbstractContextManager[object]:
        return nullcontext()


def olora(folder: Path, **config: Any) -> tuple[AdapterManifest, SafetensorsFile]:
    save_adapter(folder, make_tensors(targets=TARGETS), target_modules=[*TARGETS], init_lora_weights="olora", **config)
    report = inspect_adapter(folder, GEOMETRY, AdapterLimits())
    assert report.manifest is not None, report.problems
    assert any("OLoRA" in note for note in report.notes)
    return report.manifest, SafetensorsFile.open(folder / WEIGHTS_FILE)


@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_it_is_what_the_whole_decomposition_gives(tmp_path: Path, size: float) -> None:
    manifest, weights = olora(tmp_path)
    for module in manifest.modules:
        a, b = factors(module, weights, Base(size=size))
        before_a, before_b = factors(replace(module, takes_from_base=False), weights, None)
        q, r = torch.linalg.qr(Base(size=size).matrix(module.target))  # as PEFT does it
        rank = len(before_a)
        wanted = before_b @ before_a - q[:, :rank] @ r[:rank]
        assert len(a) == b.shape[1] == module.rank == 2 * rank
        torch.testing.assert_close(b @ a, wanted, rtol=1e-4, atol=2e-6)
        assert module.scale == pytest.approx(module.alpha / rank)
    assert manifest.rank == 2 * rank


def test_outputs_that_are_stored_head_by_head(tmp_path: Path) -> None:
    """A decomposition of reordered rows is the reordered decomposition."""
    manifest, weights = olora(tmp_path)
    module = manifest.modules[0]
    a, b = factors(module, weights, Base())
    heads = len(b) // 4
    order = Interleaving(heads, (1, 3))

    class Reordered(Base):
        def matrix(self, target: str) -> torch.Tensor:
            return order.by_part(super().matrix(target))

    reordered_a, reordered_b = factors(module, weights, Reordered(), order)
    stored = b @ a
    wanted = torch.cat([stored[0::4], stored.reshape(heads, 4, -1)[:, 1:].flatten(0, 1)])
    torch.testing.assert_close(reordered_b @ reordered_a, wanted, rtol=1e-4, atol=2e-6)


def test_an_untrained_one_does_nothing(tmp_path: Path) -> None:
    """Just what was taken out is in it; rounded to 16 bits both halves are the same."""
    q, r = torch.linalg.qr(Base().matrix("q_proj"))
    tensors = make_tensors(targets=("q_proj",))
    rank = next(len(tensor) for name, tensor in tensors.items() if "lora_A" in name)
    for name in tensors:
        tensors[name] = (r[:rank] if "lora_A" in name else q[:, :rank]).contiguous().numpy()
    save_adapter(tmp_path, tensors, target_modules=["q_proj"], init_lora_weights="olora")
    manifest = inspect_adapter(tmp_path, GEOMETRY, AdapterLimits()).manifest
    assert manifest is not None
    a, b = factors(manifest.modules[0], SafetensorsFile.open(tmp_path / WEIGHTS_FILE), Base())
    assert float((b @ a).abs().max()) < 2e-5
    assert float((b.bfloat16().float() @ a.bfloat16().float()).abs().max()) < 2e-2


@pytest.mark.parametrize(
    ("base", "rank_is", "words"), [(Base(quantised=True), None, "quantised"), (Base(), 10_000, "no 5000 columns")]
)
def test_what_cannot_be_computed_is_refused(tmp_path: Path, base: Base, rank_is: int | None, words: str) -> None:
    manifest, weights = olora(tmp_path)
    module = manifest.modules[0]
    if rank_is:
        wide = Wide(weights, rank_is // 2)
        weights = wide  # type: ignore[assignment]
    with pytest.raises(StageError, match=words) as refused:
        factors(module, weights, base)
    assert "path_initial_model_for_weight_conversion" in refused.value.fix


class Wide:
    """Matrices of more ranks than the base has columns, which no training writes."""

    def __init__(self, weights: SafetensorsFile, rank: int) -> None:
        self._weights, self._rank = weights, rank

    def tensor(self, name: str) -> Any:
        shape = self._weights.entries[name].shape
        return torch.zeros((self._rank, shape[1]) if "lora_A" in name else (shape[0], self._rank)).numpy()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"use_dora": True}, "changed the base model's weights"),
        ({"alora_invocation_tokens": [1, 2]}, "changed the base model's weights"),
        ({"init_lora_weights": "pissa"}, "changed the base model's weights"),
    ],
)
def test_with_other_kinds_it_is_refused(tmp_path: Path, config: dict[str, Any], words: str) -> None:
    given = {"init_lora_weights": "olora", **config}
    save_adapter(tmp_path, make_tensors(targets=TARGETS), target_modules=[*TARGETS], **given)
    report = inspect_adapter(tmp_path, GEOMETRY, AdapterLimits())
    assert not report.ok and words in report.problems[0].message


def test_its_rank_counts_twice(tmp_path: Path) -> None:
    tensors = make_tensors(targets=TARGETS)
    rank = next(len(tensor) for name, tensor in tensors.items() if "lora_A" in name)
    save_adapter(tmp_path, tensors, target_modules=[*TARGETS], init_lora_weights="olora")
    assert inspect_adapter(tmp_path, GEOMETRY, AdapterLimits(max_rank=2 * rank)).ok
    report = inspect_adapter(tmp_path, GEOMETRY, AdapterLimits(max_rank=2 * rank - 1))
    assert [problem.code for problem in report.problems] == ["rank_too_high"]
    assert "twice" in report.problems[0].message and f"r={(2 * rank - 1) // 2}" in report.problems[0].fix
