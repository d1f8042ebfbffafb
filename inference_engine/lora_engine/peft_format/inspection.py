"""The inspection makes all checks that an adapter must pass before it is served, and reports them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .activated import invocation_tokens
from .activated import note as activation_note
from .adapter_config import (
    AdapterConfig,
    check_features,
    has_other_tensors,
    is_lora,
    load_raw_config,
    parse_config,
    unused_numbers,
)
from .embedding_layers import EmbeddingLayer, EmbeddingLayersInspection
from .experts import ExpertChecks, ExpertLora, is_served_parameter
from .geometry import AdapterLimits, BaseGeometry, module_key
from .identity import WEIGHTS_FILE
from .modules import ModuleLora, ModuleResolver
from .patterns import PatternError
from .problems import GATHER_FIRST, Findings, FormatError, Problem, printable
from .safetensors_file import SafetensorsFile, TensorEntry
from .vectors import ModuleVector, VectorChecks

_NAME = re.compile(
    r"base_model\.model\.model\.layers\.(0|[1-9]\d{0,4})\.(self_attn|linear_attn|mlp(?:\.shared_experts?)?)\.([a-z_]+)\.lora_([AB])\.weight",
    re.ASCII,
)
# The router's name in Mixtral's checkpoints, and in transformers 4.
_OF_ROUTER = re.compile(r"(\.layers\.\d+)\.block_sparse_moe\.gate\.", re.ASCII)
# The router's names in GPT-OSS: those of transformers, and of Unsloth in 4 bits.
_OF_PARAMETER_ROUTER = re.compile(r"(\.layers\.\d+)\.mlp\.router\.(?:linear\.)?(?=lora_)", re.ASCII)
# Tensors of the experts of a layer.
_OF_EXPERTS = re.compile(r"\.(?:mlp|block_sparse_moe)\.experts\.", re.ASCII)
_DTYPE_NAMES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
# All exponent bits set means infinite or NaN.
_EXPONENT: dict[str, tuple[str, int]] = {"F32": ("<u4", 0x7F800000), "F16": ("<u2", 0x7C00), "BF16": ("<u2", 0x7F80)}
_FINITE_BLOCK_BYTES = 1 << 19  # small enough that the exponents stay in a processor's cache
_SAVE_AGAIN = "Save the adapter again with model.save_pretrained(folder) and upload that folder's files."
_NOT_STATE_DICT = "Save with model.save_pretrained(folder), not model.state_dict()."
# Part of a foreign tensor name -> (description, fix).
_FOREIGN_NAMES: tuple[tuple[str, str, str], ...] = (
    (
        "lora_magnitude_vector",
        "belongs to DoRA on a part that cannot have it",
        "Train with target_modules of linear projections only.",
    ),
    (".base_layer.", "is a base weight", _SAVE_AGAIN),
    (".experts.", "belongs to a mixture-of-experts model", "Upload an adapter trained on this base model."),
    (".lora_A.default", "carries an adapter's name", _NOT_STATE_DICT),
    (".lora_B.default", "carries an adapter's name", _NOT_STATE_DICT),
    (".score.", "is the head of a classifier", "Train on AutoModelForCausalLM."),
    (".classifier.", "is the head of a classifier", "Train on AutoModelForCausalLM."),
    (".bias", "is a bias of a part that keeps the base's", 'Train with bias="lora_only" or bias="none".'),
    ("base_model.model.layers.", "was trained without the language head", "Train on AutoModelForCausalLM."),
)


@dataclass(frozen=True, slots=True)
class AdapterManifest:
    """The contents of a valid adapter. ``rank`` is the largest; ``dtype`` is "mixed" when tensors differ."""

    rank: int
    targets: tuple[str, ...]
    dtype: str
    num_tensors: int
    num_parameters: int
    weight_bytes: int
    base_model_name: str
    modules: tuple[ModuleLora, ...]
    config: dict[str, Any]
    embedding_layers: tuple[EmbeddingLayer, ...] = ()
    vectors: tuple[ModuleVector, ...] = ()
    invocation_tokens: tuple[int, ...] = ()  # empty for an adapter that always acts
    experts: tuple[ExpertLora, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return a summary for reports: ranks and scales by target, not by module."""
        by_target: dict[str, list[ModuleLora]] = defaultdict(list)
        for module in self.modules:
            by_target[module.target].append(module)
        return {
            "rank": self.rank,
            "targets": list(self.targets),
            "dtype": self.dtype,
            "num_tensors": self.num_tensors,
            "num_parameters": self.num_parameters,
            "weight_bytes": self.weight_bytes,
            "base_model_name": self.base_model_name,
            "num_modules": len(self.modules) + len(self.experts),
            "layers": sorted({m.layer for m in self.modules} | {m.layer for m in self.experts}),
            "ranks": {target: sorted({m.rank for m in ms}) for target, ms in sorted(by_target.items())},
            "scales": {target: sorted({m.scale for m in ms}) for target, ms in sorted(by_target.items())},
        }


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """The outcome of an inspection: the first ``MAX_PROBLEMS`` in ``problems``, and their number in
    ``problem_count``.
    """

    ok: bool
    problems: tuple[Problem, ...]
    manifest: AdapterManifest | None
    checks: tuple[dict[str, Any], ...]
    problem_count: int = 0
    notes: tuple[str, ...] = ()  # sentences for the uploader on how the adapter is served

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "problems": [problem.to_json() for problem in self.problems],
            "problem_count": self.problem_count,
            "checks": [dict(check) for check in self.checks],
            "manifest": self.manifest.to_json() if self.manifest else None,
        }


def inspect_adapter(
    folder: Path,
    geometry: BaseGeometry,
    limits: AdapterLimits | None = None,
    *,
    check_finite: bool = True,
    root: str = "model",
) -> ValidationReport:
    """Check the adapter in ``folder`` against the base model. Never raises for what the files contain.

    ``root``: name of the base's ``model`` in the config's patterns (``canonical.Form``).
    """
    inspection = _Inspection(folder, geometry, limits or AdapterLimits(), root)
    inspection.check("config", inspection.read_config)
    inspection.check("features", inspection.features)
    inspection.check("safetensors", inspection.open_weights)
    inspection.check("tensors", inspection.collect_modules)
    inspection.check("shapes", inspection.shapes)
    inspection.check("modules", inspection.against_config)
    if check_finite:
        inspection.check("finite", inspection.finite)
    return inspection.report()


@dataclass(slots=True)
class _Module:
    """A module's two tensors, as far as they are in the file."""

    layer: int
    target: str
    sides: dict[str, TensorEntry] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"layers.{self.layer}.{self.target}"

    @property
    def rank(self) -> int:
        if "A" in self.sides:
            return self.sides["A"].shape[0]
        return self.sides["B"].shape[1]


class _Inspection:
    """A run over one adapter, whose checks come in the order of ``inspect_adapter``. Each may add findings."""

    def __init__(self, folder: Path, geometry: BaseGeometry, limits: AdapterLimits, root: str) -> None:
        self._root = root
        self._folder = folder
        self._geometry = geometry
        self._limits = limits
        self._targets = ", ".join(geometry.targets)  # for messages
        self._findings = Findings()
        self._checks: list[dict[str, Any]] = []
        self._raw: dict[str, Any] | None = None
        self._config: AdapterConfig | None = None
        self._resolver: ModuleResolver | None = None
        self._weights: SafetensorsFile | None = None
        self._modules: dict[tuple[int, str], _Module] = {}
        self._vectors = VectorChecks(geometry, self._findings)
        self._experts = ExpertChecks(geometry, self._findings)
        self._by_config: dict[tuple[int, str], tuple[int, float]] = {}  # rank and alpha of each module
        self._misfits: list[str] = []  # descriptions of tensors that do not fit the base
        self._invocation: tuple[int, ...] = ()
        self._has_foreign = False  # some tensors are no LoRA of this base
        self._has_other_parameters = False  # LoRA is on parameters that it cannot be served on
        self._embedding_layers = EmbeddingLayersInspection(geometry, limits, root, self._findings, self._misfit)

    def report(self) -> ValidationReport:
        manifest = self._manifest() if self._findings.count == 0 else None
        problems = tuple(self._findings.problems)
        notes = tuple(self._notes(self._config)) if manifest and self._config else ()
        return ValidationReport(not problems, problems, manifest, tuple(self._checks), self._findings.count, notes)

    def check(self, name: str, step: Callable[[], str]) -> None:
        """Make a check, and add its line to the report."""
        before, reported = self._findings.added, self._findings.count
        detail = ""
        try:
            detail = step()
        except _SkippedError as skipped:
            self._checks.append({"name": name, "ok": False, "detail": str(skipped)})
            return
        except FormatError as error:
            self._findings.add_error(error)
        ok = self._findings.added == before
        if not ok:
            count = max(1, self._findings.count - reported)
            detail = f"{count} problem{'s' if count > 1 else ''}"
        self._checks.append({"name": name, "ok": ok, "detail": detail})

    def read_config(self) -> str:
        self._raw = load_raw_config(self._folder)
        self._config = parse_config(self._raw, self._findings) if is_lora(self._raw) else None
        if self._config:
            self._resolver = ModuleResolver(self._config, self._geometry, self._root)
        return "adapter_config.json is well-formed"

    def _notes(self, config: AdapterConfig) -> Iterator[str]:
        yield from self._vectors.notes(config)
        if config.takes_from_base:
            yield (
                "OLoRA took a part of the base out in its training: hosts compute it from theirs when they load the "
                "adapter, which is LoRA of twice the rank there"
            )
        if self._invocation:
            yield activation_note(self._invocation)
        if unused := unused_numbers(config.raw):
            yield f"{', '.join(map(printable, unused[:5]))} in adapter_config.json: not known, and not used"

    def features(self) -> str:
        if self._raw is None:
            raise _SkippedError("not checked: the config cannot be read")
        check_features(self._raw, self._findings)
        self._parameters(self._raw)
        if is_lora(self._raw):
            self._invocation = invocation_tokens(self._raw, self._geometry.vocab_size, self._findings)
        return "every feature in use is served"

    def _parameters(self, raw: dict[str, Any]) -> None:
        """Report parameters that LoRA cannot be served on: all but those of experts and routers."""
        if not (names := raw.get("target_parameters")):
            return
        served = isinstance(names, list) and self._geometry.has_experts
        refused = [name for name in names if not is_served_parameter(name)] if served else [names]
        if refused:
            self._has_other_parameters = True
            of_experts = " other than those of experts" if self._geometry.has_experts else ""
            self._findings.add(
                "unsupported_feature",
                f"The adapter uses LoRA on bare parameters{of_experts} (target_parameters: {_first(refused[0])}); "
                "it cannot be served.",
                "Train with target_parameters=None and target_modules instead.",
            )

    def open_weights(self) -> str:
        if self._has_other_parameters or (self._raw is not None and has_other_tensors(self._raw)):
            raise _SkippedError("not checked: the adapter is of a kind that cannot be served")
        self._weights = SafetensorsFile.open(self._folder / WEIGHTS_FILE, self._limits)
        count = len(self._weights.entries)
        of_experts = 6 * self._geometry.experts * len(self._geometry.sparse_layers)
        if count > self._limits.max_tensors + of_experts:
            raise FormatError(
                "too_many_tensors",
                f"{WEIGHTS_FILE} holds {count} tensors; the limit is {self._limits.max_tensors + of_experts}.",
                _SAVE_AGAIN,
            )
        return f"{count} tensors"

    def collect_modules(self) -> str:
        before = self._findings.added
        for entry in self._need_weights().entries.values():
            self._collect(entry)
        has_some = self._modules or self._embedding_layers or self._experts
        if not has_some and self._findings.added == before:
            self._findings.add("no_lora_tensors", f"{WEIGHTS_FILE} holds no LoRA tensors.", _SAVE_AGAIN)
        return f"{len(self._modules)} modules"

    def _collect(self, entry: TensorEntry) -> None:
        if self._embedding_layers.collect(entry) or self._vectors.take(entry) or self._experts.take(entry):
            return
        of_router = _OF_PARAMETER_ROUTER if self._geometry.interleaved_experts else _OF_ROUTER
        match = _NAME.fullmatch(of_router.sub(r"\1.mlp.gate.", entry.name))
        if match is None or (target := self._geometry.target_of(match[2], match[3])) is None:  # e.g. mlp.q_proj
            self._foreign(entry.name)
            return
        layer, side = int(match[1]), match[4]
        in_model = layer < self._geometry.num_layers
        if in_model and target not in self._geometry.targets_of(layer):  # e.g. attention in a recurrent layer
            self._misfit("shape_mismatch", f"{self._geometry.name} has no {target} in layer {layer}", entry)
        elif layer >= self._geometry.num_layers:
            what = (
                f"layers.{layer}.{target}.lora_{side} is in the file but {self._geometry.name} has only "
                f"{self._geometry.num_layers} layers"
            )
            self._misfit("layer_out_of_range", what, entry)
        elif entry.num_elements == 0:
            self._findings.add(
                "empty_tensor",
                f"layers.{layer}.{target}.lora_{side} holds no values.",
                GATHER_FIRST,
                entry.name,
            )
        elif len(entry.shape) != 2:
            self._findings.add(
                "shape_mismatch",
                f"layers.{layer}.{target}.lora_{side} is {list(entry.shape)} but must be a matrix.",
                _SAVE_AGAIN,
                entry.name,
            )
        else:
            self._modules.setdefault((layer, target), _Module(layer, target)).sides[side] = entry

    def _foreign(self, name: str) -> None:
        self._has_foreign = True
        if self._geometry.has_experts and _OF_EXPERTS.search(name):
            self._findings.add(
                "unexpected_tensor",
                f"{printable(name)} is of the experts of {self._geometry.name}, but is no LoRA of theirs that can be "
                "served.",
                "Train plain LoRA on gate_proj, up_proj and down_proj of experts, or on the parameters gate_up_proj "
                "and down_proj.",
                name,
            )
            return
        for piece, what, fix in _FOREIGN_NAMES:
            if piece in name:
                self._findings.add("unexpected_tensor", f"{printable(name)} {what}, which cannot be served.", fix, name)
                return
        self._findings.add(
            "unexpected_tensor",
            f"{printable(name)} is no LoRA tensor of {self._geometry.name}.",
            f"LoRA is served on {self._targets}; train with those target_modules on {self._geometry.name}.",
            name,
        )

    def shapes(self) -> str:
        self._need_weights()
        for module in self._modules.values():
            self._module_shapes(module)
        for what, entry in (*self._vectors.misfits(), *self._experts.misfits()):
            self._misfit("shape_mismatch", what, entry)
        self._embedding_layers.shapes()
        if len(self._misfits) > 1:
            self._lead_with_base(
                f"{len(self._misfits)} tensors do not fit {self._geometry.name}", f" {self._misfits[0]}."
            )
        return f"all fit {self._geometry.name}"

    def _module_shapes(self, module: _Module) -> None:
        in_features, out_features = self._geometry.features(module.target)
        for side, entry in sorted(module.sides.items()):
            axis, wanted = (1, in_features) if side == "A" else (0, out_features)
            if entry.shape[axis] == wanted:
                continue
            needed = list(entry.shape)
            needed[axis] = wanted
            what = f"{module.label}.lora_{side} is {list(entry.shape)} but {self._geometry.name} needs {needed}"
            self._misfit("shape_mismatch", what, entry)

    def _misfit(self, code: str, what: str, entry: TensorEntry) -> None:
        self._misfits.append(what)
        self._findings.add(
            code,
            f"{what}: this adapter was trained on another base model.",
            f"Upload an adapter trained on {self._geometry.name}.",
            entry.name,
        )

    def _lead_with_base(self, what: str, example: str = "") -> None:
        """Report one finding for the whole adapter instead of one for each of its tensors."""
        base_name = self._config.base_model_name if self._config else ""
        named = f" It names {base_name} as its base." if base_name else ""
        self._findings.lead_with(
            "wrong_base_model",
            f"{what} ({self._geometry.num_layers} layers, hidden size "
            f"{self._geometry.hidden_size}): this adapter was trained on another base model.{named}{example}",
            f"Upload an adapter trained on {self._geometry.name}, or a host that serves the adapter's own base.",
            instead_of=("shape_mismatch", "layer_out_of_range", "missing_tensor"),
        )

    def against_config(self) -> str:
        self._need_weights()
        if self._config is None or self._resolver is None:
            raise _SkippedError("not checked: the config has problems")
        if self._has_foreign and not (self._modules or self._embedding_layers or self._experts):
            raise _SkippedError("not checked: none of the tensors is LoRA's on this base")
        try:
            self._completeness(self._resolver)
            self._embedding_layers.against_config(self._config, self._resolver)
            self._experts.against(self._config, self._resolver, self._limits.max_rank)
            for layer, target in self._modules:  # every pattern: a manifest is made only of these results
                self._by_config[layer, target] = self._resolver.rank(layer, target), self._resolver.alpha(layer, target)
        except PatternError as error:
            raise FormatError(
                "unsupported_pattern",
                f"A pattern in adapter_config.json cannot be used: {error}.",
                'Write plain names, e.g. "target_modules": ["q_proj", "v_proj"].',
            ) from None
        self._vectors.against(self._config, self._modules)
        self._ranks()
        return "ranks and targets agree with the config"

    def _completeness(self, resolver: ModuleResolver) -> None:
        missing: set[int] = set()
        for layer in range(self._geometry.num_layers):
            for target in self._geometry.targets_of(layer):
                targeted = resolver.targets(layer, target)
                if self._complete(_Module(layer, target), targeted):
                    missing.add(layer)
        depth = 1 + max((layer for layer, _ in self._modules), default=self._geometry.num_layers)
        if missing == set(range(depth, self._geometry.num_layers)) and missing:
            self._lead_with_base(f"The adapter has {depth} layers, which does not fit {self._geometry.name}")
        layers = (self._config.layers if self._config else None) or frozenset()
        beyond = sorted(layer for layer in layers if layer >= self._geometry.num_layers)
        if beyond:
            self._findings.add(
                "layer_out_of_range",
                f"layers_to_transform names layer {beyond[0]} but {self._geometry.name} has only "
                f"{self._geometry.num_layers} layers.",
                f"Upload an adapter trained on {self._geometry.name}.",
            )

    def _complete(self, module: _Module, targeted: bool) -> bool:
        """Report missing and extra tensors of one module; True if something is missing."""
        missing = False
        present = self._modules.get((module.layer, module.target), module).sides
        for side in ("A", "B"):
            if targeted and side not in present and not self._reported(module, side):
                missing = True
                self._findings.add(
                    "missing_tensor",
                    f"{module.label}.lora_{side} is missing, but adapter_config.json targets it.",
                    _SAVE_AGAIN,
                    _tensor_name(module, side),
                )
            elif not targeted and side in present:
                self._findings.add(
                    "extra_tensor",
                    f"{module.label}.lora_{side} is in the file, but adapter_config.json does not target it.",
                    "Upload the adapter_config.json that was saved together with these weights.",
                    present[side].name,
                )
        return missing

    def _reported(self, module: _Module, side: str) -> bool:
        """Return whether the tensor is in the file but was refused for its shape."""
        return _tensor_name(module, side) in self._need_weights().entries

    def _ranks(self) -> None:
        too_high: set[int] = set()
        fix, factor = "", self._factor
        for place, module in self._modules.items():
            rank, _alpha = self._by_config[place]
            for side, entry in sorted(module.sides.items()):
                actual = entry.shape[0] if side == "A" else entry.shape[1]
                if actual != rank:
                    fix = fix or self._rank_fix(module, actual)
                    self._findings.add(
                        "rank_mismatch",
                        f"{module.label}.lora_{side} is {list(entry.shape)}, which is rank {actual}, but "
                        f"adapter_config.json says rank {rank}.",
                        fix,
                        entry.name,
                    )
                if actual * factor > self._limits.max_rank and actual not in too_high:
                    too_high.add(actual)
                    twice = f", twice that with what OLoRA took out of {self._geometry.name}" if factor > 1 else ""
                    self._findings.add(
                        "rank_too_high",
                        f"{module.label} has rank {actual}{twice}; the limit is {self._limits.max_rank}.",
                        f"Train with r={self._limits.max_rank // factor} or less.",
                        entry.name,
                    )

    def _rank_fix(self, module: _Module, actual: int) -> str:
        try:
            patterns = self._resolver.rank_patterns(module.layer, module.target) if self._resolver else []
        except PatternError:  # they were matched once each; listing them all may exceed the budget
            patterns = []
        if len(patterns) < 2:
            return "Upload the adapter_config.json that was saved together with these weights."
        both = ", ".join(f'"{printable(pattern)}" ({rank})' for pattern, rank in patterns[:4])
        right = next((printable(pattern) for pattern, rank in patterns if rank == actual), None)
        move = f'move "{right}" before the others' if right else "correct their ranks"
        return (
            f"Several keys of rank_pattern match this module: {both}. The first in the file counts, as in PEFT: "
            f"{move}, or write modules in full, such as {module_key(module.layer, module.target)}. Do the same in "
            "alpha_pattern."
        )

    def finite(self) -> str:
        weights = self._need_weights()
        for label, entry in self._used():
            bad, first = count_not_finite(weights, entry)
            if bad:
                row, column = divmod(first, entry.shape[-1])
                place = f"at row {row}, column {column}" if len(entry.shape) > 1 else f"at {first}"
                self._findings.add(
                    "not_finite",
                    f"{label} holds {bad} NaN or infinite value{'s' if bad > 1 else ''}, the first {place}.",
                    "Training diverged, or the dtype overflowed: train again with a lower learning rate, or "
                    "save in bfloat16 or float32.",
                    entry.name,
                )
        return "every weight is finite"

    def _used(self) -> Iterator[tuple[str, TensorEntry]]:
        """Yield the label and the entry of every tensor that is loaded."""
        for module in self._modules.values():
            for side, entry in sorted(module.sides.items()):
                yield f"{module.label}.lora_{side}", entry
        yield from self._vectors.entries()
        yield from self._experts.entries()
        yield from self._embedding_layers.entries()

    def _manifest(self) -> AdapterManifest:
        config, resolver, weights = self._config, self._resolver, self._weights
        assert config is not None and resolver is not None and weights is not None
        modules = tuple(self._describe(self._modules[key], resolver) for key in sorted(self._modules))
        entries = weights.entries.values()
        dtypes = {_DTYPE_NAMES[entry.dtype] for entry in entries}
        embedding_layers = self._embedding_layers.describe(resolver)
        ranks = [module.rank for module in modules] + [layer.lora.rank for layer in embedding_layers if layer.lora]
        ranks += [module.rank for module in self._experts.modules]
        return AdapterManifest(
            rank=max(ranks, default=0),
            targets=tuple(
                sorted(
                    {module.target for module in modules}
                    | {layer.target for layer in embedding_layers if layer.is_in_file}
                    | {f"experts.{module.module}" for module in self._experts.modules}
                )
            ),
            dtype=dtypes.pop() if len(dtypes) == 1 else "mixed",
            num_tensors=len(weights.entries),
            num_parameters=sum(entry.num_elements for entry in entries),
            weight_bytes=sum(entry.end - entry.start for entry in entries),
            base_model_name=config.base_model_name,
            modules=modules,
            config=config.raw,
            embedding_layers=embedding_layers,
            vectors=self._vectors.vectors(),
            invocation_tokens=self._invocation,
            experts=tuple(self._experts.modules),
        )

    @property
    def _factor(self) -> int:
        """Ratio of a rank on the device to that in the file."""
        return 2 if self._config and self._config.takes_from_base else 1

    def _describe(self, module: _Module, resolver: ModuleResolver) -> ModuleLora:
        _rank, alpha = self._by_config[module.layer, module.target]
        return ModuleLora(
            layer=module.layer,
            target=module.target,
            rank=module.rank * self._factor,
            alpha=alpha,
            scale=resolver.scale(alpha, module.rank),
            a_name=module.sides["A"].name,
            b_name=module.sides["B"].name,
            takes_from_base=self._factor > 1,
        )

    def _need_weights(self) -> SafetensorsFile:
        if self._weights is None:
            raise _SkippedError("not checked: the weights cannot be read")
        return self._weights


def _first(names: object) -> str:
    """Return a name to show: the first of a list."""
    return printable(names[0] if isinstance(names, list) else names)


class _SkippedError(Exception):
    """A check that is impossible after another check failed."""


def count_not_finite(weights: SafetensorsFile, entry: TensorEntry) -> tuple[int, int]:
    """Return how many elements are NaN or infinite, and the flat index of the first (0 if none)."""
    count = first = seen = 0
    kind, mask = _EXPONENT[entry.dtype]
    for block in weights.blocks(entry.name, _FINITE_BLOCK_BYTES):
        bits = block.view(kind)
        exponents = bits & bits.dtype.type(mask)
        if exponents.max() == mask:
            bad = exponents == mask
            if not count:
                first = seen + int(np.argmax(bad))
            count += int(np.count_nonzero(bad))
        seen += len(block)
    return count, first


def _tensor_name(module: _Module, side: str) -> str:
    return f"base_model.model.{module_key(module.layer, module.target)}.lora_{side}.weight"
