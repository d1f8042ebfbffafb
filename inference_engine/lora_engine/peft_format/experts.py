"""LoRA on the experts of a layer is recognised in each form in which tools write it, and described in one.

- A module for each expert: ``mlp.experts.3.gate_proj.lora_A.weight [rank, in]``, with names of the family's own (w1, w3
  and w2 are gate, up and down).
- A parameter of all experts (PEFT's ``target_parameters``): ``mlp.experts.lora_A.weight [experts * rank, in]`` and
  ``lora_B.weight [out, rank * experts]``, whose columns are by rank, then by expert. A second parameter of the same
  module is ``mlp.experts.base_layer``. Which of both is which follows from the sizes. Before PEFT 0.19 the factors of
  such parameters ``[experts, out, in]`` were exchanged: ``lora_A`` had the outputs.
- Unsloth's modules for each expert of GPT-OSS in 4 bits: ``mlp.experts.gate_up_projs.3.lora_A.weight [rank, in]``.
- Tensors of three dimensions for each module: ``mlp.experts.w1.lora_A.weight [experts, rank, in]`` and ``lora_B.weight
  [experts, out, rank]`` (Tinker, SGLang). Where a factor is the same for all experts, its first dimension is 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from .adapter_config import AdapterConfig
from .geometry import BaseGeometry
from .modules import ModuleResolver
from .problems import GATHER_FIRST, Findings, printable
from .safetensors_file import TensorEntry

# Modules of an expert, as they are served.
GATE, UP, DOWN, GATE_UP = "gate_proj", "up_proj", "down_proj", "gate_up_proj"
_MODULES = {GATE: GATE, UP: UP, DOWN: DOWN, GATE_UP: GATE_UP, "w1": GATE, "w3": UP, "w2": DOWN}
_MODULES |= {"gate_up_projs": GATE_UP, "down_projs": DOWN}
_NAME = re.compile(
    r"base_model\.model\.model\.layers\.(?P<layer>0|[1-9]\d{0,4})\.(?:mlp|block_sparse_moe)\.experts\."
    r"(?:(?P<expert>0|[1-9]\d{0,4})\.(?P<each>gate_proj|up_proj|down_proj|w1|w2|w3)\."
    r"|(?P<listed>gate_up_projs|down_projs)\.(?P<index>0|[1-9]\d{0,4})\."
    r"|(?P<stacked>gate_proj|up_proj|gate_up_proj|down_proj|w1|w2|w3)\."
    r"|(?P<nested>(?:base_layer\.)?))"
    r"lora_(?P<side>[AB])(?:\.weight)?",
    re.ASCII,
)
_SAVE_AGAIN = "Save the adapter again with model.save_pretrained(folder) and upload that folder's files."
_OTHER_CONFIG = "Upload the adapter_config.json that was saved together with these weights."
# Releases of PEFT from which on factors of parameters are not exchanged.
_NOT_EXCHANGED = (0, 19)


class FactorForm(StrEnum):
    """The ways in which a factor of all experts is stored; each is read as ``[experts, rank, features]``."""

    EACH_ROWS = "each_rows"  # a tensor for each expert, [rank, features]
    EACH_COLUMNS = "each_columns"  # a tensor for each expert, [features, rank]
    ROWS = "rows"  # [experts * rank, features]
    COLUMNS = "columns"  # [features, rank * experts]
    STACKED_ROWS = "stacked_rows"  # [experts, rank, features]; one expert's serves all if there is only one
    STACKED_COLUMNS = "stacked_columns"  # [experts, features, rank]


@dataclass(frozen=True, slots=True)
class ExpertFactor:
    """A factor of the LoRA of a module of all experts.

    ``names`` are the tensors': one, or each expert's, empty for an expert without LoRA. ``is_shared``: all experts have
    the same. ``first_rank`` is the first of its ranks in the tensor, ``first_feature`` the first of its features.
    """

    names: tuple[str, ...]
    form: FactorForm
    is_shared: bool = False
    first_rank: int = 0
    first_feature: int = 0


@dataclass(frozen=True, slots=True)
class ExpertLora:
    """The LoRA of a module of every expert of a layer: ``y += scale * B @ (A @ x)``.

    ``rank`` is the largest of all experts. ``scales`` has each expert's, one value if they are equal. ``gate_up_proj``
    computes the outputs of gate, then those of up, with one A; if ``interleaved``, in turn.
    """

    layer: int
    module: str
    rank: int
    scales: tuple[float, ...]
    a: ExpertFactor
    b: ExpertFactor
    interleaved: bool = False


@dataclass(slots=True)
class _StoredModule:
    """The tensors of a module of a layer's experts, in one form."""

    layer: int
    key: str  # the module, or "" and "base_layer" for parameters
    is_each: bool  # a tensor for each expert, instead of one of all
    tensors: dict[str, dict[int, TensorEntry]] = field(default_factory=lambda: {"A": {}, "B": {}})

    @property
    def label(self) -> str:
        return f"layers.{self.layer}.mlp.experts{'.' if self.key else ''}{self.key}"

    @property
    def is_parameter(self) -> bool:
        """True if its name does not say which module it is of."""
        return self.key in ("", "base_layer")

    def pair(self, expert: int = 0) -> tuple[TensorEntry | None, TensorEntry | None]:
        """Return A and B of an expert, or of all."""
        return self.tensors["A"].get(expert), self.tensors["B"].get(expert)


@dataclass(frozen=True, slots=True)
class _Described:
    """A module of all experts, with the key in the base model by which a config names it."""

    lora: ExpertLora
    ranks: tuple[tuple[str, int, TensorEntry], ...]  # key in the base, rank in the file, a tensor


class ExpertChecks:
    """A collector and checker of an upload's tensors of experts, for the inspection."""

    def __init__(self, geometry: BaseGeometry, findings: Findings) -> None:
        self._geometry = geometry
        self._findings = findings
        self._stored: dict[tuple[int, str], _StoredModule] = {}
        self._misfits: list[tuple[str, TensorEntry]] = []
        self.modules: list[ExpertLora] = []

    def __bool__(self) -> bool:
        return bool(self._stored)

    def take(self, entry: TensorEntry) -> bool:
        """Take a tensor of experts; returns False for others."""
        match = _NAME.fullmatch(entry.name) if self._geometry.has_experts else None
        if match is None or (match["listed"] and not self._geometry.interleaved_experts):
            return False
        layer = int(match["layer"])
        if layer not in self._geometry.sparse_layers:
            self._misfits.append((f"{self._geometry.name} has no experts in layer {layer}", entry))
            return True
        if not entry.num_elements:
            if match["stacked"] is None:
                self._findings.add("empty_tensor", f"{entry.name} holds no values.", GATHER_FIRST, entry.name)
            return True  # Tinker writes empty tensors for modules that a family does not have
        each, stacked = match["each"] or match["listed"], match["stacked"]
        key = _MODULES[each or stacked] if each or stacked else match["nested"].rstrip(".")
        stored = self._stored.setdefault(
            (layer, f"{'each ' if each else ''}{key}"), _StoredModule(layer, key, bool(each))
        )
        place = int(match["expert"] or match["index"]) if each else 0
        known = stored.tensors[match["side"]].setdefault(place, entry)
        if known is not entry:
            both = f"{known.name} and {entry.name}"
            self._findings.add("duplicate_tensor", f"{both} are the same under two names.", _SAVE_AGAIN, entry.name)
        return True

    def misfits(self) -> Iterator[tuple[str, TensorEntry]]:
        """Yield the tensors that do not fit the base, with a description."""
        yield from self._misfits

    def entries(self) -> Iterator[tuple[str, TensorEntry]]:
        """Yield the label and the entry of every tensor that is loaded."""
        for stored in self._stored.values():
            for side, entries in stored.tensors.items():
                for expert, entry in sorted(entries.items()):
                    yield f"{stored.label}{f'.{expert}' if stored.is_each else ''}.lora_{side}", entry

    def against(self, config: AdapterConfig, resolver: ModuleResolver, max_rank: int) -> None:
        """Check all modules against the config, and describe them. Raises ``PatternError``."""
        before = self._findings.added
        if self._stored and (config.use_dora or config.takes_from_base):
            self._findings.add(
                "unsupported_feature",
                f"The adapter uses {'DoRA' if config.use_dora else 'OLoRA'} on experts of {self._geometry.name}; it "
                "cannot be served.",
                "Train plain LoRA on experts.",
            )
        by_module: dict[tuple[int, str], str] = {}
        for stored in self._stored.values():
            for described in self._describe(stored, config, resolver):
                self._ranks(described, resolver, max_rank)
                lora = described.lora
                for module in (GATE, UP) if lora.module == GATE_UP else (lora.module,):
                    other = by_module.setdefault((lora.layer, module), stored.label)
                    if other != stored.label:
                        self._findings.add(
                            "duplicate_tensor",
                            f"{other} and {stored.label} both have LoRA of the experts' {module}.",
                            "Keep one of the two forms.",
                        )
                self.modules.append(lora)
        if self._findings.added == before:
            self._completeness(config, resolver)

    def _describe(self, stored: _StoredModule, config: AdapterConfig, resolver: ModuleResolver) -> list[_Described]:
        if stored.is_each:
            return self._each(stored, resolver)
        a, b = stored.pair()
        if a is None or b is None:
            self._missing(f"{stored.label}.lora_{'B' if b is None else 'A'}")
            return []
        dimensions = {len(a.shape), len(b.shape)}
        if dimensions == {3}:
            return self._stacked(stored, a, b, resolver)
        if dimensions == {2} and stored.is_parameter:
            return self._parameter(stored, a, b, config, resolver)
        self._misfit(f"{stored.label} is {list(a.shape)} and {list(b.shape)}, which must be of three dimensions", a)
        return []

    # One module for each expert.

    def _each(self, stored: _StoredModule, resolver: ModuleResolver) -> list[_Described]:
        count, (ins, outs) = self._geometry.experts, self._features(stored.key)
        ranks, scales = [], []
        tensors, keys = stored.tensors, _keys(stored, resolver)
        beyond = sorted(expert for side in "AB" for expert in tensors[side] if expert >= count)
        if beyond:
            what = f"{stored.label} has an expert {beyond[0]}, but {self._geometry.name} has {count} in each layer"
            entry = next(tensors[side][beyond[0]] for side in "AB" if beyond[0] in tensors[side])
            self._misfit(what, entry)
            return []
        for expert in range(count):
            (a, b), key = stored.pair(expert), keys(expert)
            if a is None and b is None:
                if resolver.is_targeted(key):
                    self._missing(f"{stored.label}.{expert}.lora_A")
                    return []
                scales.append(0.0)
                continue
            if a is None or b is None:
                self._missing(f"{stored.label}.{expert}.lora_{'A' if a is None else 'B'}")
                return []
            if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != ins or b.shape[0] != outs:
                wanted = f"{self._geometry.name} needs [rank, {ins}] and [{outs}, rank]"
                self._misfit(f"{stored.label}.{expert} is {list(a.shape)} and {list(b.shape)} but {wanted}", a)
                return []
            ranks += [(key, a.shape[0], a), (key, b.shape[1], b)]
            scales.append(resolver.scale(resolver.alpha_of(key), a.shape[0]))
        names = [tuple(e.name if (e := tensors[side].get(i)) else "" for i in range(count)) for side in "AB"]
        equal = len(set(scales)) == 1
        lora = ExpertLora(
            stored.layer, stored.key, max(rank for _, rank, _ in ranks), tuple(scales[:1] if equal else scales),
            ExpertFactor(names[0], FactorForm.EACH_ROWS), ExpertFactor(names[1], FactorForm.EACH_COLUMNS),
            self._alternates(stored.key),
        )  # fmt: skip
        return [_Described(lora, tuple(ranks))]

    # A parameter of all experts, by PEFT's target_parameters.

    def _parameter(
        self, stored: _StoredModule, a: TensorEntry, b: TensorEntry, config: AdapterConfig, resolver: ModuleResolver
    ) -> list[_Described]:
        count, shapes = self._geometry.experts, f"{list(a.shape)} and {list(b.shape)}"
        if a.shape[0] % count or b.shape[1] != a.shape[0]:
            self._misfit(f"{stored.label} is {shapes}, not [{count} * rank, in] and [out, {count} * rank]", a)
            return []
        rank, sizes = a.shape[0] // count, (a.shape[1], b.shape[0])
        fits = [
            (module, exchanged)
            for module in (GATE_UP, DOWN, GATE, UP)
            for exchanged in (False, True)
            if sizes == (self._features(module)[::-1] if exchanged else self._features(module))
            and self._is_parameter(config, module)
        ]
        modules = {module for module, _ in fits}
        if not fits:
            what = (
                f"{stored.label} is {shapes}, which fits no parameter that target_parameters names (hidden size "
                f"{self._geometry.hidden_size}, {self._geometry.expert_features} features of an expert)"
            )
            self._misfit(what, a)
            return []
        if len(modules) > 1:
            self._findings.add(
                "ambiguous_tensor",
                f"{stored.label} is LoRA of {' or of '.join(sorted(modules))}: their sizes are equal, and PEFT writes "
                "both without a name.",
                "Save each expert's modules by themselves, or train gate_up_proj as one parameter.",
                a.name,
            )
            return []
        exchanged = fits[0][1] if len(fits) == 1 else self._is_exchanged(stored, a, config)
        if exchanged is None:
            return []
        module = fits[0][0]
        key = f"{_keys(stored, resolver)().removesuffix('.base_layer')}.{module}"
        first, second = ExpertFactor((a.name,), FactorForm.ROWS), ExpertFactor((b.name,), FactorForm.COLUMNS)
        scale = resolver.scale(resolver.alpha_of(key), rank)
        factors = (second, first) if exchanged else (first, second)
        lora = ExpertLora(stored.layer, module, rank, (scale,), *factors, self._alternates(module))
        return [_Described(lora, ((key, rank, a),))]

    def _is_exchanged(self, stored: _StoredModule, tensor: TensorEntry, config: AdapterConfig) -> bool | None:
        """Return whether the factors are exchanged where both ways fit: as the file's other parameters, or by the
        release that wrote it. None: unknown, which is reported.
        """
        for other in self._stored.values():
            a, b = other.pair()
            if other.is_each or not other.is_parameter or a is None or b is None or len(a.shape) != 2:
                continue
            sizes = (a.shape[1], b.shape[0])
            for module in (GATE_UP, DOWN):
                features = self._features(module)
                if features[0] != features[1] and sizes in (features, features[::-1]):
                    return sizes != features
        version = re.match(r"(\d+)\.(\d+)", str(config.raw.get("peft_version", "")))
        since = version is not None and (int(version[1]), int(version[2])) >= _NOT_EXCHANGED
        # Parameters [experts, in, out] are exchanged from that release on, but only under transformers 4.
        stored_by_input = self._geometry.interleaved_experts > 0
        if version and not (since and stored_by_input):
            return not (since or stored_by_input)
        until = "from 0.19 on under transformers 4" if stored_by_input else "until 0.18"
        self._findings.add(
            "ambiguous_tensor",
            f"{stored.label} has as many inputs as outputs, and PEFT exchanged its factors {until}: which of "
            "both reads the input cannot be seen.",
            "Train gate_up_proj too, whose sizes tell it."
            if stored_by_input
            else 'Write "peft_version", the release that it was trained with, into adapter_config.json.',
            tensor.name,
        )
        return None

    # Tensors of three dimensions.

    def _stacked(
        self, stored: _StoredModule, a: TensorEntry, b: TensorEntry, resolver: ModuleResolver
    ) -> list[_Described]:
        count = self._geometry.experts
        module = (
            stored.key
            if not stored.is_parameter
            else (GATE_UP if b.shape[1] == 2 * self._geometry.expert_features else DOWN)
        )
        ins, outs = self._features(module)
        rank = b.shape[2]
        doubled = module == GATE_UP and a.shape[1] == 2 * rank
        fits = a.shape[0] in (1, count) and b.shape[0] in (1, count) and a.shape[2] == ins and b.shape[1] == outs
        if not fits or a.shape[1] != (2 * rank if doubled else rank):
            wanted = f"{self._geometry.name} needs [{count}, rank, {ins}] and [{count}, {outs}, rank]"
            self._misfit(f"{stored.label} is {list(a.shape)} and {list(b.shape)} but {wanted}", a)
            return []
        if doubled and self._geometry.interleaved_experts:
            self._misfit(
                f"{stored.label} is {list(a.shape)} and {list(b.shape)}: the order of its outputs is unknown", a
            )
            return []
        key = _keys(stored, resolver)()
        scale = (resolver.scale(resolver.alpha_of(key), rank),)
        shared_a, shared_b = a.shape[0] == 1 < count, b.shape[0] == 1 < count

        def lora(module: str, first_rank: int = 0, first_feature: int = 0) -> ExpertLora:
            return ExpertLora(
                stored.layer, module, rank, scale,
                ExpertFactor((a.name,), FactorForm.STACKED_ROWS, shared_a, first_rank),
                ExpertFactor((b.name,), FactorForm.STACKED_COLUMNS, shared_b, 0, first_feature),
                self._alternates(module),
            )  # fmt: skip

        # SGLang's form: the ranks of gate, then those of up.
        parts = [lora(GATE), lora(UP, rank, outs // 2)] if doubled else [lora(module)]
        return [_Described(part, ((key, rank, a),)) for part in parts]

    # What all forms share.

    def _features(self, module: str) -> tuple[int, int]:
        hidden, inner = self._geometry.hidden_size, self._geometry.expert_features
        return {GATE: (hidden, inner), UP: (hidden, inner), GATE_UP: (hidden, 2 * inner), DOWN: (inner, hidden)}[module]

    def _alternates(self, module: str) -> bool:
        """Return whether a module has the outputs of gate and up in turn."""
        return module == GATE_UP and self._geometry.interleaved_experts > 0

    def _is_parameter(self, config: AdapterConfig, module: str) -> bool:
        """Return whether ``target_parameters`` name the module; a config without them names both usual ones."""
        names = target_parameters(config)
        if not names:
            return module in (GATE_UP, DOWN)
        return any(name.rpartition(".")[2] == module for name in names)

    def _ranks(self, described: _Described, resolver: ModuleResolver, max_rank: int) -> None:
        for key, actual, entry in described.ranks:
            rank = resolver.rank_of(key)
            if actual != rank:
                self._findings.add(
                    "rank_mismatch",
                    f"{printable(entry.name)} is {list(entry.shape)}, which is rank {actual}, but adapter_config.json "
                    f"says rank {rank}.",
                    _OTHER_CONFIG,
                    entry.name,
                )
            if actual > max_rank:
                self._findings.add(
                    "rank_too_high",
                    f"{printable(entry.name)} has rank {actual}; the limit is {max_rank}.",
                    f"Train with r={max_rank} or less.",
                    entry.name,
                )

    def _completeness(self, config: AdapterConfig, resolver: ModuleResolver) -> None:
        """Report modules that are in some layers only, or named by ``target_parameters`` without being in the file."""
        there = {(lora.layer, part) for lora in self.modules for part in _parts(lora.module)}
        named = (_parts(_MODULES.get(name.rpartition(".")[2], "")) for name in target_parameters(config))
        parameters = {part for parts in named for part in parts}
        modules = {part for _, part in there} | parameters
        for layer in self._geometry.sparse_layers:
            for module in sorted(modules):
                key = f"{resolver.root}.layers.{layer}.mlp.experts.0.{module}"
                if (layer, module) not in there and (module in parameters or resolver.is_targeted(key)):
                    self._missing(f"layers.{layer}.mlp.experts.{module}.lora_A")

    def _missing(self, label: str) -> None:
        self._findings.add(
            "missing_tensor", f"{label} is missing, but adapter_config.json targets it.", _SAVE_AGAIN, label
        )

    def _misfit(self, what: str, entry: TensorEntry) -> None:
        self._findings.add(
            "shape_mismatch",
            f"{what}: this adapter was trained on another base model.",
            f"Upload an adapter trained on {self._geometry.name}.",
            entry.name,
        )


def _keys(stored: _StoredModule, resolver: ModuleResolver) -> Callable[..., str]:
    """Return the function from an expert to its module's name in the base model, as it was trained."""
    place, entry = next(pair for entries in stored.tensors.values() for pair in entries.items())
    name = entry.name.removeprefix("base_model.model.model").rpartition(".lora_")[0]
    before, _, after = name.partition(".experts.")

    def key(expert: int = 0) -> str:
        if stored.is_each and not after.partition(".")[0].isdigit():
            return f"{resolver.root}{before}.experts.{after.removesuffix(f'.{place}')}.{expert}"
        if stored.is_each:
            return f"{resolver.root}{before}.experts.{expert}.{after.partition('.')[2]}"
        return f"{resolver.root}{name}"

    return key


def _parts(module: str) -> tuple[str, ...]:
    return (GATE, UP) if module == GATE_UP else (module,) if module else ()


def target_parameters(config: AdapterConfig) -> tuple[str, ...]:
    """Return the parameters that the config names; empty if it names none, or something else than names."""
    names = config.raw.get("target_parameters")
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def is_served_parameter(name: object) -> bool:
    """Return whether ``target_parameters`` may have the name: of experts' modules, or of the router."""
    if not isinstance(name, str):
        return False
    owner, _, parameter = name.rpartition(".")
    block = owner.rpartition(".")[2]
    is_router = block in ("gate", "router") and parameter == "weight"
    return is_router or (block in ("experts", "") and parameter in (GATE, UP, GATE_UP, DOWN, "w1", "w2", "w3"))
