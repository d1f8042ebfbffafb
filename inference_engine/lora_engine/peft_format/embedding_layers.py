"""Embedding layers is PEFT's term for ``embed_tokens`` and ``lm_head``; an adapter may change them.

PEFT writes three kinds of changes, of which one adapter may have several: LoRA on the layer (``target_modules``), its
whole matrix (``modules_to_save``; or the base's, which PEFT saves together with LoRA on such a layer and with a resized
vocabulary) and rows of some tokens (``trainable_token_indices``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .adapter_config import AdapterConfig
from .geometry import AdapterLimits, BaseGeometry
from .identity import WEIGHTS_FILE
from .modules import ModuleResolver
from .problems import GATHER_FIRST, Findings
from .safetensors_file import TensorEntry

EMBEDDING, HEAD = "embed_tokens", "lm_head"
EMBEDDING_LAYERS = (EMBEDDING, HEAD)
_NAME = re.compile(r"base_model\.model\.(?:model\.(embed_tokens)|(lm_head))\.(.+)", re.ASCII)
_A, _B, _SAVED, _TOKENS = "A", "B", "saved", "tokens"
_PARTS = {
    EMBEDDING: {"lora_embedding_A": _A, "lora_embedding_B": _B},
    HEAD: {"lora_A.weight": _A, "lora_B.weight": _B},
}
_SHARED_PARTS = {
    "weight": _SAVED,
    "base_layer.weight": _SAVED,
    "token_adapter.base_layer.weight": _SAVED,
    "token_adapter.trainable_tokens_delta": _TOKENS,
}
# Duplicates that PEFT writes of a copy when the vocabulary was resized.
_DOUBLES = frozenset({"modules_to_save.weight", "original_module.weight"})
MAX_NEW_TOKENS = 4096  # beyond the base's: the logits of a whole batch become as wide
_UNREADABLE: dict[str, tuple[int, ...]] = {}  # result for trainable_token_indices that were refused
_SAVE_AGAIN = "Save the adapter again with model.save_pretrained(folder) and upload that folder's files."
_WITH_THESE = "Upload the adapter_config.json that was saved together with these weights."


@dataclass(frozen=True, slots=True)
class EmbeddingLayerLora:
    """The LoRA of an embedding layer: ``scale * B @ A``, ``[vocab, hidden]`` of the head, transposed of the
    embedding.
    """

    rank: int
    alpha: float
    scale: float
    a_name: str
    b_name: str


@dataclass(frozen=True, slots=True)
class EmbeddingLayer:
    """The changes of one embedding layer; tensors are given by their names in the file.

    ``saved`` is the whole matrix, ``[vocab, hidden]``: of this layer only if it is ``alone``, else also of the other
    one where the base model ties them. ``tokens`` are those that have a row of ``tokens_name``, in its order; these
    rows override ``saved``. ``kept``, ascending, are rows of ``saved`` that differ from the base's; None: all may.
    """

    target: str
    vocab: int
    hidden: int
    lora: EmbeddingLayerLora | None = None
    saved: str = ""
    alone: bool = False
    tokens: tuple[int, ...] = ()
    tokens_name: str = ""
    kept: npt.NDArray[np.int64] | None = None

    @property
    def is_in_file(self) -> bool:
        """True if the file has a tensor of this layer. A layer without one is listed where the vocabulary
        is smaller.
        """
        return bool(self.lora or self.saved or self.tokens)

    def note(self, base_vocab: int) -> str:
        """Describe for people what is served of the layer."""
        if not self.is_in_file:
            return f"{self.target} is the base's, as far as the adapter's {self.vocab} tokens go"
        parts = ["LoRA"] if self.lora else []
        if self.saved:
            parts.append("a whole matrix, of which rows that equal the base's take no room")
        if self.tokens:
            parts.append(f"rows of {len(self.tokens)} tokens" if len(self.tokens) > 1 else "the row of one token")
        note = f"{self.target} is changed: {', and '.join(parts)}"
        more = self.vocab - base_vocab
        if more > 0:
            note += (
                f"; its {more} tokens more than the base's can be generated, but they have no text here, end no "
                "answer, and no prompt is read as them"
            )
        return note


@dataclass(slots=True)
class _Layer:
    parts: dict[str, TensorEntry] = field(default_factory=dict)


class EmbeddingLayersInspection:
    """A collector and checker of the embedding layers' tensors.

    The steps are called in order, like those of ``_Inspection``.
    """

    def __init__(
        self,
        geometry: BaseGeometry,
        limits: AdapterLimits,
        root: str,
        findings: Findings,
        misfit: Callable[[str, str, TensorEntry], None],
    ) -> None:
        """Create the checker. ``misfit`` is called with a code and a text for a tensor that does not fit the base
        model.
        """
        self._geometry, self._limits, self._findings, self._misfit = geometry, limits, findings, misfit
        self._keys = {target: embedding_layer_key(target, root) for target in EMBEDDING_LAYERS}
        self._embedding_layers: dict[str, _Layer] = {}
        self._by_config: dict[str, tuple[int, float]] = {}  # rank and alpha of embedding layers with LoRA
        self._copies: frozenset[str] = frozenset()
        self._tokens: dict[str, tuple[int, ...]] = {}
        self._vocab = geometry.vocab_size  # vocabulary size of the adapter's model

    def __bool__(self) -> bool:
        return bool(self._embedding_layers)

    def collect(self, entry: TensorEntry) -> bool:
        """Take a tensor of an embedding layer; returns False for others."""
        match = _NAME.fullmatch(entry.name)
        if match is None:
            return False
        target = match[1] or match[2]
        if match[3] in _DOUBLES:
            return True
        part = _PARTS[target].get(match[3]) or _SHARED_PARTS.get(match[3])
        if part is None or part in self._of(target):
            return False
        label = f"{target}'s {_label(part)}"
        if not entry.num_elements:
            self._findings.add("empty_tensor", f"{label} holds no values.", GATHER_FIRST, entry.name)
        elif len(entry.shape) != 2:
            what = f"{label} is {list(entry.shape)} but must be a matrix."
            self._findings.add("shape_mismatch", what, _SAVE_AGAIN, entry.name)
        self._embedding_layers.setdefault(target, _Layer()).parts[part] = entry
        return True

    def shapes(self) -> None:
        """Check that there is one vocabulary, and the base's hidden size."""
        if any(len(entry.shape) != 2 or not entry.num_elements for _label, entry in self.entries()):
            self._embedding_layers = {}  # reported already
        hidden, sizes = self._geometry.hidden_size, set[int]()
        for target, layer in self._embedding_layers.items():
            for part, entry in sorted(layer.parts.items()):
                inner, vocab = self._axes(target, part, entry)
                if inner is not None and inner != hidden:
                    what = f"{target}'s {_label(part)} is {list(entry.shape)} but {self._geometry.name} needs {hidden}"
                    self._misfit("shape_mismatch", what, entry)
                if vocab is not None:
                    sizes.add(vocab)
        if len(sizes) > 1:
            self._findings.add(
                "vocabulary_mismatch",
                f"embed_tokens and lm_head have {' and '.join(map(str, sorted(sizes)))} tokens in this adapter.",
                "Save the adapter again, with both embedding layers of one size.",
            )
        elif sizes and max(sizes) > self._geometry.vocab_size + MAX_NEW_TOKENS:
            self._findings.add(
                "vocabulary_mismatch",
                f"The adapter's vocabulary has {max(sizes)} tokens, that of {self._geometry.name} "
                f"{self._geometry.vocab_size}; at most {MAX_NEW_TOKENS} more can be served.",
                f"Upload an adapter trained on {self._geometry.name}, or one with fewer new tokens.",
            )
        elif sizes:
            self._vocab = sizes.pop()

    def _axes(self, target: str, part: str, entry: TensorEntry) -> tuple[int | None, int | None]:
        """Return a tensor's hidden size and number of tokens; None where it has no such axis."""
        rows, columns = entry.shape
        if part == _SAVED:
            return columns, rows
        if part == _TOKENS:
            return columns, None
        embeds = target == EMBEDDING
        if part == _A:
            return (None, columns) if embeds else (columns, None)
        return (rows, None) if embeds else (None, rows)

    def against_config(self, config: AdapterConfig, resolver: ModuleResolver) -> None:
        """Check the layers against the config. Raises ``PatternError``."""
        if self._embedding_layers and config.raw.get("alora_invocation_tokens"):
            self._refuse("alora_invocation_tokens beside changes of embed_tokens or lm_head", "alora_invocation_tokens")
        self._read_copies(config)
        self._tokens = self._read_tokens(config.raw.get("trainable_token_indices"))
        tied = config.raw.get("ensure_weight_tying") is True and self._is_targeted(config, resolver, EMBEDDING)
        for target in EMBEDDING_LAYERS:
            targeted = self._is_targeted(config, resolver, target)
            self._check_lora(target, targeted, tied and target == HEAD, config, resolver)
            self._check_tokens(target)
            if target in self._copies and _SAVED not in self._of(target):
                self._missing(target, _SAVED, "modules_to_save")
        self._check_new_rows(config, resolver)

    def _is_targeted(self, config: AdapterConfig, resolver: ModuleResolver, target: str) -> bool:
        """Return whether PEFT puts LoRA on the layer; it does not on a layer with a copy (``modules_to_save``)."""
        if config.target_modules == "all-linear" or target in self._copies:
            return False
        return resolver.is_targeted(self._keys[target])

    def _check_new_rows(self, config: AdapterConfig, resolver: ModuleResolver) -> None:
        """Report layers without rows for new tokens. A smaller vocabulary needs none: the base has all rows."""
        lacking = [target for target in EMBEDDING_LAYERS if not self._has_matrix(target)]
        if self._vocab <= self._geometry.vocab_size:
            return
        for target in lacking if self._geometry.untied_head else lacking[:1]:
            self._findings.add(
                "vocabulary_mismatch",
                f"The adapter's vocabulary has {self._vocab} tokens, that of {self._geometry.name} "
                f"{self._geometry.vocab_size}, and the matrix of {target} is not in the file.",
                self._how_to_save(target, config, resolver),
            )

    def _how_to_save(self, target: str, config: AdapterConfig, resolver: ModuleResolver) -> str:
        """Return how to save the matrix: ``save_embedding_layers`` saves both, but next to LoRA only layers
        with LoRA.
        """
        if isinstance(config.target_modules, str):
            with_lora = [each for each in EMBEDDING_LAYERS if self._is_targeted(config, resolver, each)]
        else:  # PEFT compares plain names here and ignores modules_to_save
            with_lora = [each for each in EMBEDDING_LAYERS if each in config.target_modules]
        if not with_lora or target in with_lora:
            return "Save both: model.save_pretrained(folder, save_embedding_layers=True)."
        name = f"base_model.model.{embedding_layer_key(target)}."
        has_tokens = target in self._tokens
        name += "token_adapter.base_layer.weight" if has_tokens else "weight"
        fix = (
            f"PEFT does not save it beside LoRA on {with_lora[0]}, whatever save_embedding_layers says. Add it to "
            f'{WEIGHTS_FILE}: name = "{name}"; weights = safetensors.torch.load_file(path); weights[name] = '
            "model.state_dict()[name]; safetensors.torch.save_file(weights, path)"
        )
        return f"{fix}." if has_tokens else f'{fix}; or train with modules_to_save=["{target}"] too.'

    def _has_matrix(self, target: str) -> bool:
        """Return whether the file has the layer's matrix, or that of the other layer that the base ties it to."""
        return _SAVED in self._of(target) or (
            not self._geometry.untied_head
            and any(_SAVED in self._of(other) and other not in self._copies for other in EMBEDDING_LAYERS)
        )

    def _read_copies(self, config: AdapterConfig) -> None:
        names = config.raw.get("modules_to_save") or []
        names = names if isinstance(names, list) and all(isinstance(name, str) for name in names) else []
        self._copies = frozenset(_last_part(name) for name in names) & frozenset(EMBEDDING_LAYERS)

    def _read_tokens(self, value: Any) -> dict[str, tuple[int, ...]]:
        by_end = value if isinstance(value, dict) else {EMBEDDING: value} if value else {}
        by_target: dict[str, tuple[int, ...]] = {}
        for key, tokens in by_end.items():
            target = _last_part(key) if _last_part(key) in EMBEDDING_LAYERS else ""
            if target and self._are_new(tokens, target):
                return _UNREADABLE
            in_range = isinstance(tokens, list) and all(
                type(token) is int and 0 <= token < self._vocab for token in tokens
            )
            if not target or not in_range or len({*tokens}) < len(tokens):
                self._findings.add(
                    "invalid_config",
                    "adapter_config.json: trainable_token_indices does not list tokens of the embedding or the head, "
                    f"each once, from 0 to {self._vocab - 1}.",
                    _WITH_THESE,
                )
                return _UNREADABLE
            by_target[target] = tuple(tokens)
        return by_target

    def _are_new(self, tokens: Any, target: str) -> bool:
        """Report tokens beyond the base's when no tensor shows the vocabulary's size; returns whether there are any."""
        numbers = [token for token in tokens if type(token) is int] if isinstance(tokens, list) else []
        new = max(numbers, default=0) - self._geometry.vocab_size
        if not 0 <= new < MAX_NEW_TOKENS or self._vocab != self._geometry.vocab_size:
            return False
        self._findings.add(
            "vocabulary_mismatch",
            f"trainable_token_indices names token {max(numbers)}, but {self._geometry.name} has "
            f"{self._geometry.vocab_size} tokens, and the matrix of a larger vocabulary is not in the file.",
            "Save it too: model.save_pretrained(folder, save_embedding_layers=True).",
        )
        return True

    def _check_lora(
        self, target: str, targeted: bool, may_be: bool, config: AdapterConfig, resolver: ModuleResolver
    ) -> None:
        parts, sides = self._of(target), (_A, _B)
        for side in sides:
            if targeted and side not in parts:
                self._missing(target, side, "target_modules")
            elif not targeted and not may_be and side in parts:
                self._extra(target, side)
        if not all(side in parts for side in sides):
            return
        for feature in ("use_dora", "lora_bias"):
            if config.raw.get(feature):
                self._refuse(f"{feature} on {target}", feature)
        if config.takes_from_base:
            self._refuse(f"OLoRA on {target}", 'init_lora_weights="olora"')
        rank, alpha = resolver.rank_of(self._keys[target]), resolver.alpha_of(self._keys[target])
        self._by_config[target] = rank, alpha
        for side in sides:
            entry = parts[side]
            actual = entry.shape[0] if side == _A else entry.shape[1]
            if actual != rank:
                self._findings.add(
                    "rank_mismatch",
                    f"{target}'s {_label(side)} is {list(entry.shape)}, which is rank {actual}, but "
                    f"adapter_config.json says rank {rank}.",
                    _WITH_THESE,
                    entry.name,
                )
            elif actual > self._limits.max_rank:
                self._findings.add(
                    "rank_too_high",
                    f"{target} has rank {actual}; the limit is {self._limits.max_rank}.",
                    f"Train with r={self._limits.max_rank} or less.",
                    entry.name,
                )

    def _refuse(self, what: str, feature: str) -> None:
        self._findings.add(
            "unsupported_feature",
            f"The adapter uses {what}; it cannot be served.",
            f"Train with {feature} on linear projections only, or without it.",
        )

    def _check_tokens(self, target: str) -> None:
        tokens, entry = self._tokens.get(target, ()), self._of(target).get(_TOKENS)
        if tokens and entry is None:
            self._missing_tokens(target)
        elif entry is not None and not tokens and (self._tokens is _UNREADABLE or (self._tokens and target == HEAD)):
            return  # reported already; or a tied head's copy of the embedding's rows
        elif entry is not None and entry.shape[0] != len(tokens):
            self._findings.add(
                "shape_mismatch",
                f"{target} has rows for {entry.shape[0]} tokens, but trainable_token_indices lists {len(tokens)}.",
                _WITH_THESE,
                entry.name,
            )

    def _missing_tokens(self, target: str) -> None:
        """Report missing token rows. For a tied pair with the same tokens PEFT saves only the embedding's."""
        is_saved_once = target == HEAD and self._tokens.get(EMBEDDING) == self._tokens[HEAD]
        if not is_saved_once or _TOKENS not in self._of(EMBEDDING):
            self._missing(target, _TOKENS, "trainable_token_indices")
        elif self._geometry.untied_head:
            self._findings.add(
                "missing_tensor",
                "The adapter has rows of tokens of embed_tokens for lm_head too, as PEFT saves them of a model whose "
                f"lm_head is embed_tokens; the two are different matrices in {self._geometry.name}.",
                f"Upload an adapter trained on {self._geometry.name}.",
            )

    def _missing(self, target: str, part: str, setting: str) -> None:
        self._findings.add(
            "missing_tensor",
            f"{target}'s {_label(part)} is missing, but adapter_config.json names it in {setting}.",
            _SAVE_AGAIN,
        )

    def _extra(self, target: str, part: str) -> None:
        self._findings.add(
            "extra_tensor",
            f"{target}'s {_label(part)} is in the file, but adapter_config.json does not target it.",
            _WITH_THESE,
            self._of(target)[part].name,
        )

    def entries(self) -> Iterator[tuple[str, TensorEntry]]:
        """Yield the label and the entry of every tensor in use."""
        for target, layer in self._embedding_layers.items():
            for part, entry in sorted(layer.parts.items()):
                yield f"{target}'s {_label(part)}", entry

    def describe(self, resolver: ModuleResolver) -> tuple[EmbeddingLayer, ...]:
        """Describe the embedding layers of an adapter without findings."""
        is_smaller = self._vocab < self._geometry.vocab_size
        return tuple(
            self._describe(target, resolver)
            for target in EMBEDDING_LAYERS
            if target in self._embedding_layers or is_smaller
        )

    def _describe(self, target: str, resolver: ModuleResolver) -> EmbeddingLayer:
        parts, lora = self._of(target), None
        if target in self._by_config:
            rank, alpha = self._by_config[target]
            lora = EmbeddingLayerLora(rank, alpha, resolver.scale(alpha, rank), parts[_A].name, parts[_B].name)
        tokens = self._tokens.get(target, ()) if _TOKENS in parts else ()
        return EmbeddingLayer(
            target,
            self._vocab,
            self._geometry.hidden_size,
            lora,
            parts[_SAVED].name if _SAVED in parts else "",
            target in self._copies,
            tokens,
            parts[_TOKENS].name if tokens else "",
        )

    def _of(self, target: str) -> dict[str, TensorEntry]:
        return self._embedding_layers[target].parts if target in self._embedding_layers else {}


def embedding_layer_key(target: str, root: str = "model") -> str:
    """Return the module's name inside the base model, like ``module_key``."""
    return HEAD if target == HEAD else f"{root}.{target}"


def _last_part(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _label(part: str) -> str:
    return {_SAVED: "matrix", _TOKENS: "token rows"}.get(part, f"lora_{part}")
