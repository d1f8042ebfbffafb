"""A resolved config has no regular expressions: it lists the result for each module in PEFT's form.

A hostile expression costs up to the matcher's whole budget, a harmless one still milliseconds. That is paid once, at
upload; the stored config, which engines read at every load, names its modules.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .adapter_config import write_config
from .embedding_layers import EmbeddingLayerLora, embedding_layer_key
from .geometry import module_key
from .inspection import AdapterManifest
from .modules import ModuleLora
from .patterns import is_name


def resolve_patterns(folder: Path, manifest: AdapterManifest, root: str = "model") -> bool:
    """Rewrite the folder's valid config without expressions, for the same modules, ranks and scales.

    Returns False if it has none, and leaves it byte for byte. A config with another name for the base's ``model``
    (``root``) has names that do not apply here, and is rewritten too.
    """
    if root == "model" and not _has_expressions(manifest.config):
        return False
    write_config(folder, _resolved(manifest))
    return True


def _has_expressions(raw: dict[str, Any]) -> bool:
    names = (raw.get("target_modules"), raw.get("exclude_modules"))
    patterns = [*(raw.get("rank_pattern") or {}), *(raw.get("alpha_pattern") or {})]
    is_expression = [isinstance(value, str) and value not in ("", "all-linear") for value in names]
    return any(is_expression) or not all(map(is_name, patterns))


def _resolved(manifest: AdapterManifest) -> dict[str, Any]:
    raw = manifest.config
    modules: dict[str, ModuleLora | EmbeddingLayerLora] = {module_key(m.layer, m.target): m for m in manifest.modules}
    modules |= {
        embedding_layer_key(layer.target): layer.lora for layer in manifest.embedding_layers if layer.lora is not None
    }
    alphas = {_escaped(key): _number(m.alpha) for key, m in modules.items() if m.alpha != raw["lora_alpha"]}
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
            "rank_pattern": {_escaped(key): m.rank for key, m in modules.items() if m.rank != raw["r"]},
            "alpha_pattern": alphas,
        }
    )


def _escaped(key: str) -> str:
    return key.replace(".", r"\.")


def _number(alpha: float) -> int | float:
    return int(alpha) if alpha.is_integer() else alpha
