"""The file ``adapter_config.json`` as PEFT writes it is checked field by field."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from .identity import CONFIG_FILE
from .problems import Findings, FormatError, printable
from .recognised import instead_of_a_file
from .safetensors_file import open_regular
from .strict_json import StrictJsonError, load_strict

# Bytes that a configuration file may have.
MAX_CONFIG_BYTES = 1 << 20
# Maximum number of entries of one list or map of patterns.
MAX_PATTERNS = 4096
# Largest number that is read as a rank; ``AdapterLimits`` bounds the ranks that are served.
MAX_RANK_VALUE = 1 << 20

_RETRAIN = "Train again without it, as a plain LoRA on linear projections."
_Value = TypeVar("_Value")
_LAYERS_NAME = re.compile(r"[A-Za-z0-9_.]{1,100}", re.ASCII)

# Switches that change the meaning of the weights: name -> (description, fix).
_UNSUPPORTED: dict[str, tuple[str, str]] = {
    "layer_replication": ("replicated layers", "Train with layer_replication=None on the base model as it is."),
    "use_qalora": ("QALoRA", "Train with use_qalora=False."),
    "use_bdlora": ("block-diagonal LoRA", "Train with use_bdlora=None."),
    "arrow_config": ("Arrow routing over several adapters", "Upload the single adapters instead."),
    "kasa_config": ("KaSA, which truncates the base weights", "Train with kasa_config=None."),
    "megatron_config": ("Megatron parallel layers", "Export the adapter for the Hugging Face model first."),
    "enable_lora": ("merged q/k/v LoRA layers", _RETRAIN),
}
# Values of ``bias`` in an adapter's configuration.
_BIASES = ("none", "all", "lora_only")
# Initialisations that also change the base weights: the saved A and B fit only that changed base.
_MUTATING_INITS = ("pissa", "olora", "corda", "loftq", "lora_ga", "loraga")
_CONVERT = "Convert it when saving: model.save_pretrained(folder, path_initial_model_for_weight_conversion=...)"
# The initialisation whose change of the base is computed again where the base is (``adapters/taken_out.py``).
_COMPUTED_INIT = "olora"
_PLAIN_INITS = frozenset({"", "true", "false", "default", "gaussian", "eva", "orthogonal", "mica"})
# PEFT types that `peft.save_as_lora` converts to LoRA.
_CONVERTIBLE = frozenset(
    {
        "C3A", "DELORA", "FOURIERFT", "GRALORA", "LOHA", "LOKR", "MISS", "PSOFT", "RANDLORA", "TINYLORA", "UNILORA",
        "VBLORA", "VERA", "WAVEFT",
    }
)  # fmt: skip
# Classifiers' heads, which PEFT adds by itself and no language model has. A trained one is recognised by its tensors.
_OTHER_HEADS = frozenset({"classifier", "score", "qa_outputs"})
_KNOWN = frozenset(_UNSUPPORTED) | {
    "alora_invocation_tokens",
    "modules_to_save",
    "trainable_token_indices",
    "target_parameters",  # checked against the base, in ``inspection``
    "peft_type",
    "task_type",
    "auto_mapping",
    "peft_version",
    "base_model_name_or_path",
    "revision",
    "inference_mode",
    "r",
    "lora_alpha",
    "lora_dropout",
    "target_modules",
    "exclude_modules",
    "fan_in_fan_out",
    "bias",
    "use_rslora",
    "use_dora",
    "lora_bias",
    "init_lora_weights",
    "layers_to_transform",
    "layers_pattern",
    "rank_pattern",
    "alpha_pattern",
    "megatron_core",
    "loftq_config",
    "eva_config",
    "corda_config",
    "lora_ga_config",
    "qalora_group_size",
    "ensure_weight_tying",
    "runtime_config",
    # These act in training only; the outputs are plain LoRA's.
    "velora_config",
    "monteclora_config",
    "lora_dtype",  # from ms-swift, like the two after it
    "lorap_lr_ratio",
    "lorap_emb_lr",
    "merge_weights",  # from PEFT's first versions
}


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """The fields that decide which modules exist and how they are scaled; ``raw`` is the whole file.

    ``layers`` is None when every layer is adapted. A ``target_modules`` string is a regular expression, or ``"all-
    linear"``.
    """

    raw: dict[str, Any]
    rank: int
    alpha: float
    use_rslora: bool
    use_dora: bool
    lora_bias: bool
    bias: str  # which biases were trained too: "none", "all" or "lora_only"
    target_modules: str | tuple[str, ...]
    exclude_modules: str | tuple[str, ...]
    rank_pattern: dict[str, int]
    alpha_pattern: dict[str, float]
    layers: frozenset[int] | None
    layers_pattern: tuple[str, ...]
    base_model_name: str
    takes_from_base: bool = False  # OLoRA: the file lacks the part that training subtracted from the base


def load_raw_config(folder: Path) -> dict[str, Any]:
    """Read the config as a dict. Raises ``FormatError``."""
    with open_regular(folder / CONFIG_FILE) as file:
        data = file.read(MAX_CONFIG_BYTES + 1)
    if len(data) > MAX_CONFIG_BYTES:
        raise _bad(f"it is larger than {MAX_CONFIG_BYTES} bytes", "Upload the file that PEFT wrote.")
    if problem := instead_of_a_file(CONFIG_FILE, data):
        raise problem
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise _bad("it is stored as UTF-16", "Save it as UTF-8 (in PowerShell: Out-File -Encoding utf8).")
    try:
        raw = load_strict(data.removeprefix(codecs.BOM_UTF8))
    except StrictJsonError as error:
        raise _bad(f"it is not valid JSON: {error}", "Upload the file that PEFT wrote, unedited.") from None
    if not isinstance(raw, dict):
        raise _bad("it is not a JSON object", "Upload the file that PEFT wrote, unedited.")
    return raw


def write_config(folder: Path, config: dict[str, Any]) -> None:
    """Replace the folder's config by a new file. The old file is unchanged: it may be linked from an upload."""
    temporary = folder / f"{CONFIG_FILE}.written"
    temporary.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    temporary.replace(folder / CONFIG_FILE)


def is_lora(raw: dict[str, Any]) -> bool:
    """Return whether the fields are LoRA's. A config without a type may be."""
    kind = raw.get("peft_type")
    return kind is None or _plain(kind, "PeftType") == "LORA"


def is_kind(raw: dict[str, Any], kind: str) -> bool:
    """Return whether the config states this type, a member of PEFT's ``PeftType``."""
    return raw.get("peft_type") is not None and _plain(raw["peft_type"], "PeftType") == kind


def has_other_tensors(raw: dict[str, Any]) -> bool:
    """Return whether the tensors are not LoRA matrices on the base's projections, so that checking them is useless."""
    return not is_lora(raw) or any(raw.get(name) for name in _UNSUPPORTED)


def _plain(value: Any, kind: str) -> str:
    """Return an enumeration's member however it was written: "LORA", "lora", "PeftType.LORA"."""
    return str(value).removeprefix(f"{kind}.").upper()


def check_features(raw: dict[str, Any], findings: Findings) -> None:
    """Report every PEFT feature in use that the engine cannot serve, by name."""
    _check_kind(raw, findings)
    if not is_lora(raw):
        return  # its other fields have another meaning
    for name, (what, fix) in _UNSUPPORTED.items():
        if raw.get(name):
            _refuse(findings, f"the adapter uses {what} ({name})", fix)
    copies = raw.get("modules_to_save") or []
    names = copies if isinstance(copies, list) else [copies]
    embedding_layers = ("lm_head", "embed_tokens")
    others = [
        str(name)
        for name in names
        if names is not copies or str(name).rsplit(".", 1)[-1] not in (*embedding_layers, *_OTHER_HEADS)
    ]
    if others:
        _refuse(
            findings,
            f"the adapter has fully trained copies of {printable(', '.join(others))} (modules_to_save)",
            "Of whole modules only embed_tokens and lm_head can be served: train with modules_to_save=None or these, "
            "or merge it (model.merge_and_unload()) and serve the result as a base model of its own. A name of no part "
            "of the base can be deleted from adapter_config.json.",
        )
    if raw.get("use_dora") and raw.get("lora_bias"):
        _refuse(
            findings, "the adapter uses DoRA (use_dora) with a bias on lora_B (lora_bias)", "Train with one of them."
        )
    init = raw.get("init_lora_weights")
    if isinstance(init, str) and init.lower() not in _PLAIN_INITS and not _is_computed(raw):
        _refuse(findings, *_of_init(init))
    for name in sorted(set(raw) - _KNOWN):
        if _could_change_the_model(raw[name]):
            _refuse(
                findings,
                f"{CONFIG_FILE} sets {printable(name)}, which this version does not know",
                "If training did not depend on it, delete the key from adapter_config.json; otherwise train without.",
            )


def _is_computed(raw: dict[str, Any]) -> bool:
    """Return whether hosts can compute the changed base: not with DoRA or invocation tokens, which are more
    than LoRA.
    """
    init = raw.get("init_lora_weights")
    is_more = raw.get("use_dora") or raw.get("alora_invocation_tokens")
    return isinstance(init, str) and init.lower() == _COMPUTED_INIT and not is_more


def _of_init(init: str) -> tuple[str, str]:
    """Return what is wrong with an initialisation that changed the base's weights, or may have, and the fix."""
    began = f"the adapter's training began with {printable(init)!r} (init_lora_weights), which"
    if not init.lower().startswith(_MUTATING_INITS):
        return (
            f"{began} this version does not know: it may have changed the base model's weights",
            "If it did not, write true for init_lora_weights in adapter_config.json; otherwise train without it.",
        )
    changed = f"{began} changed the base model's weights, so it only fits that changed base"
    if init.lower().startswith("loftq"):
        return changed, (
            "Train with init_lora_weights=True; or merge it into the base that LoftQ wrote (model.merge_and_unload()) "
            "and serve the result as a base model of its own."
        )
    return changed, f"{_CONVERT}, or pack the folder of the initial adapter (like pissa_init) with it."


def parse_config(raw: dict[str, Any], findings: Findings) -> AdapterConfig | None:
    """Parse the config, or return None when a field is missing or malformed; every such field is reported."""
    before = findings.count
    reader = _Reader(raw, findings)
    target_modules = reader.names_or_pattern("target_modules")
    layers_pattern = reader.layers_pattern()
    layers = reader.layers()
    config = AdapterConfig(
        raw=raw,
        rank=reader.rank("r", raw.get("r")),
        alpha=reader.number("lora_alpha", raw.get("lora_alpha")),
        use_rslora=reader.flag("use_rslora"),
        use_dora=reader.flag("use_dora"),
        lora_bias=reader.flag("lora_bias"),
        bias=reader.bias(),
        target_modules=target_modules,
        exclude_modules=reader.names_or_pattern("exclude_modules"),
        rank_pattern=reader.pattern_map("rank_pattern", reader.rank),
        alpha_pattern=reader.pattern_map("alpha_pattern", reader.number),
        layers=layers,
        layers_pattern=layers_pattern,
        base_model_name=reader.base_model_name(),
        takes_from_base=_is_computed(raw),
    )
    if not target_modules and not raw.get("target_parameters"):
        reader.bad("target_modules", "is missing or empty", 'List what was trained, e.g. ["q_proj", "v_proj"].')
    if config.alpha == 0 and not config.alpha_pattern:
        reader.bad(
            "lora_alpha",
            "is 0, with which the adapter does nothing",
            "Write the lora_alpha that it was trained with (verl writes 0 where lora_train_meta.json is missing).",
        )
    if isinstance(target_modules, str) and (layers is not None or layers_pattern):
        reader.bad("layers_to_transform", "cannot be combined with a target_modules pattern", "Use one of the two.")
    if layers_pattern and layers is None:
        reader.bad("layers_pattern", "needs layers_to_transform beside it", "Set both or neither.")
    return config if findings.count == before else None


def number_of(value: Any) -> float | None:
    """Return the value as a float if a scale can use it; None otherwise."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e9:
        return float(value)
    return None


class _Reader:
    """A reader of single fields that reports malformed ones and continues with a harmless value."""

    def __init__(self, raw: dict[str, Any], findings: Findings) -> None:
        self._raw = raw
        self._findings = findings

    def bad(self, field: str, what: str, fix: str) -> None:
        self._findings.add("invalid_config", f"adapter_config.json: {field} {what}.", fix)

    def rank(self, field: str, value: Any) -> int:
        if type(value) is int and 1 <= value <= MAX_RANK_VALUE:
            return value
        self.bad(field, f"is {_shown(value)}, not a rank", "Use a whole number from 1 on, e.g. 16.")
        return 1

    def number(self, field: str, value: Any) -> float:
        number = number_of(value)
        if number is not None:
            return number
        self.bad(field, f"is {_shown(value)}, not a scale", "Use a number, e.g. 16.")
        return 1.0

    def flag(self, field: str) -> bool:
        value = self._raw.get(field, False)
        if value is None or isinstance(value, bool):
            return bool(value)
        self.bad(field, f"is {_shown(value)}, not true or false", "Use true or false.")
        return False

    def bias(self) -> str:
        value = self._raw.get("bias", "none")
        if value in _BIASES:
            return str(value)
        self.bad("bias", f"is {_shown(value)}, not one of {', '.join(_BIASES)}", "Use what it was trained with.")
        return "none"

    def names_or_pattern(self, field: str) -> str | tuple[str, ...]:
        value = self._raw.get(field)
        if value is None:
            return ()
        if isinstance(value, str):
            return value
        if isinstance(value, list) and len(value) <= MAX_PATTERNS and all(isinstance(v, str) and v for v in value):
            return tuple(value)
        self.bad(field, "is neither a list of names nor a pattern", 'Use a list such as ["q_proj", "v_proj"].')
        return ()

    def pattern_map(self, field: str, read: Callable[[str, Any], _Value]) -> dict[str, _Value]:
        value = self._raw.get(field)
        if value is None:
            return {}
        if not isinstance(value, dict) or len(value) > MAX_PATTERNS:
            self.bad(field, f"is not a map of at most {MAX_PATTERNS} patterns", 'Use e.g. {"q_proj": 16}.')
            return {}
        return {pattern: read(f"{field}[{printable(pattern)}]", item) for pattern, item in value.items()}

    def layers(self) -> frozenset[int] | None:
        value = self._raw.get("layers_to_transform")
        if value is None or value == []:
            return None
        items = value if isinstance(value, list) else [value]
        if len(items) <= MAX_PATTERNS and all(type(item) is int and item >= 0 for item in items):
            return frozenset(items)
        self.bad("layers_to_transform", "is neither a layer index nor a list of them", "Use e.g. [0, 1, 2].")
        return None

    def layers_pattern(self) -> tuple[str, ...]:
        value = self._raw.get("layers_pattern")
        if not value:
            return ()
        items = value if isinstance(value, list) else [value]
        if len(items) <= 16 and all(isinstance(item, str) and _LAYERS_NAME.fullmatch(item) for item in items):
            return tuple(items)
        self.bad("layers_pattern", f"is {printable(value)}, not a module list's name", 'Use "layers", or leave it out.')
        return ()

    def base_model_name(self) -> str:
        value = self._raw.get("base_model_name_or_path")
        return printable(value) if isinstance(value, str) else ""


def _check_kind(raw: dict[str, Any], findings: Findings) -> None:
    kind, task = raw.get("peft_type"), raw.get("task_type")
    if kind is None:
        what, fix = f"{CONFIG_FILE} names no peft_type", 'If it was trained as LoRA, add "peft_type": "LORA" to it.'
        _refuse(findings, what, fix)
    elif not is_lora(raw):
        _refuse(findings, f"the adapter is {printable(kind)}, not LORA", _instead_of(_plain(kind, "PeftType")))
    if task is not None and _plain(task, "TaskType") != "CAUSAL_LM":
        _refuse(
            findings,
            f"the adapter was trained for {printable(task)}, but this server generates text",
            'Train with task_type="CAUSAL_LM" on AutoModelForCausalLM.',
        )


def _instead_of(kind: str) -> str:
    """Return the fix for an adapter of a type that is not LoRA."""
    if kind in _CONVERTIBLE:
        return (
            "Convert it to LoRA: peft.save_as_lora(folder, model, rank=32), with PEFT 0.19 or later and the loaded "
            "adapter as model, writes one that comes the closer the higher the rank; upload that folder."
        )
    if kind == "TRAINABLE_TOKENS":
        return "Train with peft.LoraConfig(trainable_token_indices=[...]), which is served."
    if kind == "XLORA":
        return "Upload the single adapters that it mixes."
    return "Only LoRA adapters can be served; train with peft.LoraConfig."


def _refuse(findings: Findings, message: str, fix: str) -> None:
    begins = message if message.startswith(CONFIG_FILE) else f"{message[0].upper()}{message[1:]}"
    findings.add("unsupported_feature", f"{begins}; it cannot be served.", fix)


def _shown(value: Any) -> str:
    """Return a value as it is written in the file."""
    return "missing or null" if value is None else printable(json.dumps(value))


def unused_numbers(raw: dict[str, Any]) -> list[str]:
    """Return unknown fields that only tune something, judging by their values."""
    return [
        name
        for name in sorted(set(raw) - _KNOWN)
        if isinstance(raw[name], int | float) and not isinstance(raw[name], bool) and raw[name] != 0
    ]


def _could_change_the_model(value: Any) -> bool:
    """Return whether an unknown field may change the model: numbers only tune; a switch is true, a text or
    not empty.
    """
    return value is True or (isinstance(value, str | list | dict) and bool(value))


def _bad(what: str, fix: str) -> FormatError:
    return FormatError("invalid_config", f"adapter_config.json cannot be used: {what}.", fix)
