"""Vectors beside an adapter's matrices: DoRA's magnitudes, biases of lora_B, and biases that replace the base's."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from .adapter_config import AdapterConfig
from .geometry import BaseGeometry, module_key
from .problems import Findings
from .safetensors_file import TensorEntry

MAGNITUDE, LORA_BIAS, BIAS = "magnitude", "lora_bias", "bias"
_NAME = re.compile(
    r"base_model\.model\.model\.layers\.(0|[1-9]\d{0,4})\.(self_attn|linear_attn|mlp(?:\.shared_experts?)?)\.([a-z_]+)\."
    r"(lora_magnitude_vector(?:\.weight)?|lora_B\.bias|(?:base_layer\.)?bias)",
    re.ASCII,
)
_SAVE_AGAIN = "Save the adapter again with model.save_pretrained(folder) and upload that folder's files."
_OTHER_CONFIG = "Upload the adapter_config.json that was saved together with these weights."


@dataclass(frozen=True, slots=True)
class ModuleVector:
    """A vector with a value for each output of a projection; ``name`` is the tensor's in the file.

    ``MAGNITUDE``: the length that DoRA gives each row of ``W + scale * B A``. ``LORA_BIAS``: added to ``B (A x)``, so
    scaled with it. ``BIAS``: replaces the base's bias.
    """

    layer: int
    target: str
    kind: str
    name: str


Place = tuple[int, str]


class VectorChecks:
    """A collector and checker of an upload's vectors, for the inspection."""

    def __init__(self, geometry: BaseGeometry, findings: Findings) -> None:
        self._geometry = geometry
        self._findings = findings
        self._entries: dict[tuple[int, str, str], TensorEntry] = {}

    def take(self, entry: TensorEntry) -> bool:
        """Take a tensor that is a vector; returns False for others."""
        match = _NAME.fullmatch(entry.name)
        if match is None or int(match[1]) >= self._geometry.num_layers:
            return False
        layer, target = int(match[1]), self._geometry.target_of(match[2], match[3])
        if target is None:
            return False
        place = (layer, target, _kind(match[4]))
        if place in self._entries:
            self._findings.add(
                "duplicate_tensor",
                f"{self._entries[place].name} and {entry.name} are the same vector under two names.",
                _SAVE_AGAIN,
                entry.name,
            )
        self._entries[place] = entry
        return True

    def misfits(self) -> Iterator[tuple[str, TensorEntry]]:
        """Yield the vectors without one value for each output of their module, with a description."""
        for (layer, target, _), entry in self._entries.items():
            needed = self._geometry.features(target)[1]
            if entry.shape != (needed,):
                what = (
                    f"{_label(layer, target, entry)} is {list(entry.shape)} but {self._geometry.name} needs [{needed}]"
                )
                yield what, entry

    def against(self, config: AdapterConfig, modules: Collection[Place]) -> None:
        """Report vectors that the config requires on ``modules`` and that are missing, and all others."""
        for required, kind, tensor in (
            (config.use_dora, MAGNITUDE, "lora_magnitude_vector"),
            (config.lora_bias, LORA_BIAS, "lora_B.bias"),
        ):
            for layer, target in modules if required else ():
                if (layer, target, kind) not in self._entries:
                    self._findings.add(
                        "missing_tensor",
                        f"layers.{layer}.{target}.{tensor} is missing, but adapter_config.json asks for it.",
                        _SAVE_AGAIN,
                        f"base_model.model.{module_key(layer, target)}.{tensor}",
                    )
        for (layer, target, kind), entry in self._entries.items():
            required = {MAGNITUDE: config.use_dora, LORA_BIAS: config.lora_bias, BIAS: config.bias != "none"}[kind]
            if not required or ((layer, target) not in modules and (kind != BIAS or config.bias != "all")):
                self._findings.add(
                    "extra_tensor",
                    f"{_label(layer, target, entry)} is in the file, but adapter_config.json does not ask for it.",
                    _OTHER_CONFIG,
                    entry.name,
                )

    def entries(self) -> Iterator[tuple[str, TensorEntry]]:
        """Yield the label and the entry of every vector."""
        for (layer, target, _), entry in self._entries.items():
            yield _label(layer, target, entry), entry

    def vectors(self) -> tuple[ModuleVector, ...]:
        return tuple(ModuleVector(*place, entry.name) for place, entry in sorted(self._entries.items()))

    def notes(self, config: AdapterConfig) -> Iterator[str]:
        """Yield the report's notes on the vectors."""
        if config.use_dora:
            yield "DoRA: what its magnitudes scale each output by is computed on the host that loads it"
        if config.lora_bias:
            yield "lora_bias: the biases of lora_B are added to what LoRA adds"
        if config.bias == "none":
            return
        biases = sum(kind == BIAS for _, _, kind in self._entries)
        if biases:
            yield f'bias="{config.bias}": {biases} biases are used instead of the base\'s'
        else:
            yield (
                f'bias="{config.bias}", but no biases are in the file: the base has none there, or the version of PEFT '
                "that saved it left them out"
            )


def _kind(suffix: str) -> str:
    if suffix == "lora_B.bias":
        return LORA_BIAS
    return MAGNITUDE if suffix.startswith("lora_magnitude_vector") else BIAS


def _label(layer: int, target: str, entry: TensorEntry) -> str:
    return f"layers.{layer}.{target}.{entry.name.partition(f'.{target}.')[2]}"
