"""A resolved config has no regular expressions: it lists the result for each module in PEFT's form.

A hostile expression costs up to the matcher's whole budget, a harmless one still milliseconds. That is paid once, at
upload; the stored config, which engines read at every load, names its modules.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from .adapter_config import MAX_PATTERNS, parse_config, write_config
from .embedding_layers import EmbeddingLayerLora, embedding_layer_key
from .geometry import BaseGeometry
from .inspection import AdapterManifest
from .modules import ModuleLora, ModuleResolver
from .patterns import is_name
from .problems import Findings

# A module's rank and alpha.
_Values = tuple[int, float]


def resolve_patterns(folder: Path, manifest: AdapterManifest, geometry: BaseGeometry, root: str = "model") -> bool:
    """Rewrite the folder's valid config without expressions, for the same modules, ranks and scales.

    Returns False if it has none, and leaves it byte for byte; also if it would name more modules of experts than a
    config may have, or only parameters, which no list of modules has. A config with another name for the base's
    ``model`` (``root``) has names that do not apply here, and is rewritten too.
    """
    if root == "model" and not _has_expressions(manifest.config):
        return False
    experts, parameters = _experts(manifest, geometry, root)
    count = len(manifest.modules) + len(experts) + len(manifest.embedding_layers)
    if count + len(parameters) > MAX_PATTERNS or (parameters and not count):
        return False
    write_config(folder, _resolved(manifest, geometry, experts, parameters))
    return True


def _experts(
    manifest: AdapterManifest, geometry: BaseGeometry, root: str
) -> tuple[dict[str, _Values], dict[str, _Values]]:
    """Return the rank and alpha of each module of experts, and of each of their parameters.

    A module that is the same in all layers with experts is named without its layer.
    """
    config = parse_config(manifest.config, Findings()) if manifest.experts else None
    if config is None:
        return {}, {}
    resolver = ModuleResolver(config, geometry, root)
    modules: dict[str, _Values] = {}
    parameters: dict[str, _Values] = {}
    for lora in manifest.experts:
        for name in filter(None, lora.a.names):
            key = name.removeprefix("base_model.model.model").rpartition(".lora_")[0]
            is_parameter = key.endswith((".experts", ".experts.base_layer"))
            if is_parameter:
                key = f"{key.removesuffix('.base_layer')}.{lora.module}"
            values = resolver.rank_of(root + key), resolver.alpha_of(root + key)
            (parameters if is_parameter else modules)[f"model{key}"] = values
    by_end: dict[str, list[_Values]] = defaultdict(list)
    for key, values in modules.items():
        by_end[_end(key)].append(values)
    layers = len(geometry.sparse_layers)
    everywhere = {end for end, each in by_end.items() if len(each) == layers and len(set(each)) == 1}
    return {_end(key) if _end(key) in everywhere else key: values for key, values in modules.items()}, parameters


def _end(key: str) -> str:
    """Return what follows the layer and its block in a key: ``experts.3.gate_proj``."""
    return f"experts.{key.partition('.experts.')[2]}"


def _has_expressions(raw: dict[str, Any]) -> bool:
    names = (raw.get("target_modules"), raw.get("exclude_modules"))
    patterns = [*(raw.get("rank_pattern") or {}), *(raw.get("alpha_pattern") or {})]
    is_expression = [isinstance(value, str) and value not in ("", "all-linear") for value in names]
    return any(is_expression) or not all(map(is_name, patterns))


def _resolved(
    manifest: AdapterManifest,
    geometry: BaseGeometry,
    experts: dict[str, _Values],
    parameters: dict[str, _Values],
) -> dict[str, Any]:
    raw = manifest.config
    loras: dict[str, ModuleLora | EmbeddingLayerLora] = {
        geometry.module_key(m.layer, m.target): m for m in manifest.modules
    }
    loras |= {
        embedding_layer_key(layer.target): layer.lora for layer in manifest.embedding_layers if layer.lora is not None
    }
    modules = {key: (m.rank, m.alpha) for key, m in loras.items()} | experts
    by_key = modules | parameters
    alphas = {_escaped(key): _number(alpha) for key, (_, alpha) in by_key.items() if alpha != raw["lora_alpha"]}
    layers_config: dict[str, Any] = {}
    if manifest.embedding_layers:
        layers_config["modules_to_save"] = [layer.target for layer in manifest.embedding_layers if layer.alone]
        layers_config["trainable_token_indices"] = {
            e.target: list(e.tokens) for e in manifest.embedding_layers if e.tokens
        } or None
    return (
        raw
        | layers_config
        | {
            "target_modules": list(modules),
            "exclude_modules": None,
            "layers_to_transform": None,
            "layers_pattern": None,
            "rank_pattern": {_escaped(key): rank for key, (rank, _) in by_key.items() if rank != raw["r"]},
            "alpha_pattern": alphas,
        }
    )


def _escaped(key: str) -> str:
    return key.replace(".", r"\.")


def _number(alpha: float) -> int | float:
    return int(alpha) if alpha.is_integer() else alpha
