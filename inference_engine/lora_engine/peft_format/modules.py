"""LoRA modules, and the resolution of which modules a config has, with which rank and scale."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from .adapter_config import AdapterConfig
from .geometry import ROUTER, BaseGeometry
from .patterns import PatternMatcher, TailPatterns, tails

_FIRST_INDEX = re.compile(r".*?\.[^.]*\.(\d+)\.", re.ASCII)


@dataclass(frozen=True, slots=True)
class ModuleLora:
    """The LoRA of one projection of one layer: ``y += scale * B @ (A @ x)``.

    ``scale`` is ``alpha / rank``, or ``alpha / sqrt(rank)`` for rsLoRA (arXiv 2312.03732). ``a_name`` and ``b_name``
    are tensor names in the file. With ``takes_from_base`` these have half of the rank: the other half is the part that
    OLoRA subtracted from the base, which is computed from it.
    """

    layer: int
    target: str
    rank: int
    alpha: float
    scale: float
    a_name: str
    b_name: str
    takes_from_base: bool = False


class ModuleResolver:
    """A resolver of modules in a config, by PEFT's rules. Methods raise ``PatternError``."""

    def __init__(self, config: AdapterConfig, geometry: BaseGeometry, root: str = "model") -> None:
        self._config = config
        self._geometry = geometry
        self._root = root
        self._matcher = PatternMatcher()
        self._targets = frozenset(() if isinstance(config.target_modules, str) else config.target_modules)
        self._excluded = frozenset(() if isinstance(config.exclude_modules, str) else config.exclude_modules)
        self._ranks = TailPatterns(config.rank_pattern, self._matcher)
        self._alphas = TailPatterns(config.alpha_pattern, self._matcher)

    @property
    def root(self) -> str:
        """Name of the base's ``model`` in patterns."""
        return self._root

    def targets(self, layer: int, target: str) -> bool:
        """Return whether training put LoRA on the module."""
        key = self._geometry.module_key(layer, target, self._root)
        if target != ROUTER:
            return self.is_targeted(key)
        # Unsloth's router of a model in 4 bits has a module of its own.
        return self.is_targeted(key) or self._is_parameter(f"{key}.weight") or self.is_targeted(f"{key}.linear")

    def _is_parameter(self, key: str) -> bool:
        """Return whether ``target_parameters`` name the parameter ``key``, in full or by its last parts."""
        names = self._config.raw.get("target_parameters")
        return isinstance(names, list) and not frozenset(tails(key)).isdisjoint(
            name for name in names if isinstance(name, str)
        )

    def is_targeted(self, key: str) -> bool:
        """Return whether training put LoRA on the module ``key``, e.g. ``model.layers.0.self_attn.q_proj``."""
        config = self._config
        if self._is_excluded(key):
            return False
        if isinstance(config.target_modules, str):
            if config.target_modules == "all-linear":
                return not key.endswith("lm_head")
            return self._matcher.matches_fully(config.target_modules, key)
        if key in self._targets:  # a full name is not subject to layers_to_transform
            return True
        return not self._targets.isdisjoint(tails(key)) and self._is_layer_chosen(key)

    def rank(self, layer: int, target: str) -> int:
        return self.rank_of(self._geometry.module_key(layer, target, self._root))

    def rank_of(self, key: str) -> int:
        pattern = self._ranks.first(key)
        return self._config.rank if pattern is None else self._config.rank_pattern[pattern]

    def rank_patterns(self, layer: int, target: str) -> list[tuple[str, int]]:
        """Return every key of ``rank_pattern`` that matches the module, with its rank; the first one applies."""
        return [
            (p, self._config.rank_pattern[p])
            for p in self._ranks.every(self._geometry.module_key(layer, target, self._root))
        ]

    def alpha(self, layer: int, target: str) -> float:
        return self.alpha_of(self._geometry.module_key(layer, target, self._root))

    def alpha_of(self, key: str) -> float:
        pattern = self._alphas.first(key)
        return self._config.alpha if pattern is None else self._config.alpha_pattern[pattern]

    def scale(self, alpha: float, rank: int) -> float:
        return alpha / math.sqrt(rank) if self._config.use_rslora else alpha / rank

    def _is_excluded(self, key: str) -> bool:
        excluded = self._config.exclude_modules
        if isinstance(excluded, str):
            return bool(excluded) and self._matcher.matches_fully(excluded, key)
        return not self._excluded.isdisjoint(tails(key))

    def _is_layer_chosen(self, key: str) -> bool:
        config = self._config
        if config.layers is None:
            return True
        if not config.layers_pattern:
            match = _FIRST_INDEX.match(key)
        else:
            matches = (re.match(rf"(?:^|.*?\.){p}\.(\d+)\.", key) for p in config.layers_pattern)
            match = next((each for each in matches if each), None)
        return match is not None and int(match[1]) in config.layers
