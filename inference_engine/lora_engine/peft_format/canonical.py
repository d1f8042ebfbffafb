"""Conversion of an adapter in any supported form to the two files that PEFT writes (``to_peft_form``).

Only names, the layout of files and mlx-lm's transposition are changed, never a value. The exceptions are adapters with
an initial adapter in ``INITIAL_FOLDER`` (``changed_base.py``), and AdaLoRA (``multiplied_out.py``). Files that are
PEFT's LoRA already stay byte for byte. docs/how-to/adapter-forms.md lists the supported forms.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .adapter_config import load_raw_config, write_config
from .changed_base import subtract_initial
from .geometry import AdapterLimits
from .identity import CONFIG_FILE, WEIGHTS_FILE
from .mlx_form import MLX_WEIGHTS_FILE, is_mlx_config, peft_config, peft_name, peft_vector_name
from .multiplied_out import multiply_out
from .problems import FormatError, printable
from .safetensors_file import NUMPY_TYPES, SafetensorsFile, open_regular
from .safetensors_writer import NewTensor, replace_weights
from .strict_json import StrictJsonError, load_strict
from .tensor_names import TensorName, read_name
from .torch_pickle import TorchFile

TORCH_WEIGHTS_FILE = "adapter_model.bin"
INITIAL_FOLDER = "initial"
INDEX_FILE = f"{WEIGHTS_FILE}.index.json"
SHARD = re.compile(r"adapter_model-(\d{5})-of-(\d{5})\.safetensors", re.ASCII)
# Maximum bytes of an index of shards.
_MAX_INDEX_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Form:
    """The form in which an adapter came. ``root`` is the name of the base's ``model`` in its config's patterns."""

    notes: tuple[str, ...] = ()
    root: str = "model"


def is_weights(name: str) -> bool:
    """Return whether a file of this name has an adapter's weights, or is an index of them."""
    return name in (WEIGHTS_FILE, TORCH_WEIGHTS_FILE, MLX_WEIGHTS_FILE, INDEX_FILE) or SHARD.fullmatch(name) is not None


def to_peft_form(folder: Path, limits: AdapterLimits) -> Form:
    """Convert the folder's files to ``CONFIG_FILE`` and ``WEIGHTS_FILE``. Raises ``FormatError``."""
    form, initial = _two_files(folder, limits), folder / INITIAL_FOLDER
    if _opens(folder / WEIGHTS_FILE, limits) and (note := multiply_out(folder, limits)):
        form = replace(form, notes=(*form.notes, note))
    if not initial.is_dir():
        return form
    if not _opens(folder / WEIGHTS_FILE, limits):
        note = f"{INITIAL_FOLDER} was ignored"  # the inspection reports what is wrong with the adapter itself
    else:
        _two_files(initial, limits)
        note = subtract_initial(folder, initial, limits)
    shutil.rmtree(initial)
    return replace(form, notes=(*form.notes, note))


def _two_files(folder: Path, limits: AdapterLimits) -> Form:
    with ExitStack() as opened:
        sources, notes = _weights_files(folder)
        if sources == [WEIGHTS_FILE] and not _opens(folder / WEIGHTS_FILE, limits):
            # the inspection reports what is wrong, together with the config's faults
            return _alone(folder, Form(tuple(notes)))
        tensors = _read(folder, sources, limits, opened, notes)
        if sources == [MLX_WEIGHTS_FILE]:
            form, renamed = _from_mlx(folder, tensors, notes), _mlx_tensors(tensors)
        else:
            form, renamed = _renamed(tensors, notes)
            if any(read_name(tensor.name).is_unembedding for tensor in tensors):
                _target(folder, [tensor.name for tensor in renamed])
            if sources == [WEIGHTS_FILE] and {t.name for t in renamed} == {t.name for t in tensors}:
                return _alone(folder, form)
        if len(renamed) > limits.max_tensors + limits.max_expert_tensors:
            raise FormatError("too_many_tensors", f"The weights are {len(renamed)} tensors.", "Save the adapter again.")
        replace_weights(folder, renamed, limits, "In PEFT's form")
    return _alone(folder, form)


def _opens(path: Path, limits: AdapterLimits) -> bool:
    try:
        SafetensorsFile.open(path, limits)
    except FormatError:
        return False
    return True


def _alone(folder: Path, form: Form) -> Form:
    """Delete the files from which the two files were made."""
    for path in folder.iterdir():
        if path.name not in (CONFIG_FILE, WEIGHTS_FILE, INITIAL_FOLDER):
            path.unlink()
    return form


def _weights_files(folder: Path) -> tuple[list[str], list[str]]:
    """Return the files to read, and notes on other files with the same weights."""
    names = {path.name for path in folder.iterdir()}
    shards = sorted(name for name in names if SHARD.fullmatch(name))
    for chosen in ([WEIGHTS_FILE], shards, [TORCH_WEIGHTS_FILE], [MLX_WEIGHTS_FILE]):
        if chosen and names.issuperset(chosen):
            others = sorted(n for n in names if is_weights(n) and n not in chosen and n != INDEX_FILE)
            return chosen, [f"{name} was ignored: the weights are in {chosen[0]} too" for name in others]
    raise FormatError(
        "missing_file", f"{WEIGHTS_FILE} is missing.", "Upload the whole folder that save_pretrained wrote."
    )


def _read(
    folder: Path, sources: list[str], limits: AdapterLimits, opened: ExitStack, notes: list[str]
) -> list[NewTensor]:
    """Return the tensors of the files, under their original names."""
    if sources == [TORCH_WEIGHTS_FILE]:
        notes.append(f"{TORCH_WEIGHTS_FILE} was converted to {WEIGHTS_FILE}, without running it")
        file = opened.enter_context(TorchFile(folder / TORCH_WEIGHTS_FILE, limits))
        return [NewTensor(name, e.dtype, e.shape, partial(_whole, file, name)) for name, e in file.entries.items()]
    if sources != [WEIGHTS_FILE] and sources != [MLX_WEIGHTS_FILE]:
        _check_shards(folder, sources)
        notes.append(f"{len(sources)} shards were put together to {WEIGHTS_FILE}")
    files = [SafetensorsFile.open(folder / source, limits) for source in sources]
    return [
        NewTensor(name, entry.dtype, entry.shape, partial(file.blocks, name))
        for file in files
        for name, entry in file.entries.items()
    ]


def _whole(file: TorchFile, name: str) -> list[npt.NDArray[Any]]:
    return [file.tensor(name)] if file.entries[name].num_elements else []


def _check_shards(folder: Path, shards: list[str]) -> None:
    """Raise unless all shards are present, and an index, if there is one, names no others."""
    suffixes = {name.rpartition("-of-")[2] for name in shards}
    total_shards = int(min(suffixes)[:5])
    if len(suffixes) != 1 or [int(name[14:19]) for name in shards] != list(range(1, total_shards + 1)):
        raise FormatError(
            "missing_shard",
            f"The weights are {len(shards)} of {total_shards} files: {', '.join(map(printable, shards[:4]))}.",
            f"Upload all {total_shards}, or save the adapter again as one file.",
        )
    if not (folder / INDEX_FILE).exists():
        return
    with open_regular(folder / INDEX_FILE) as file:
        data = file.read(_MAX_INDEX_BYTES + 1)
    try:
        index = load_strict(data) if len(data) <= _MAX_INDEX_BYTES else None
    except StrictJsonError:
        index = None
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict) or not all(isinstance(place, str) for place in places.values()):
        raise FormatError("invalid_index", f"{INDEX_FILE} holds no weight_map.", "Save the adapter again.")
    absent = sorted(set(places.values()) - set(shards))
    if absent:
        raise FormatError(
            "missing_shard", f"{INDEX_FILE} names {printable(absent[0])}, which is not here.", "Upload every shard."
        )


def _renamed(tensors: list[NewTensor], notes: list[str]) -> tuple[Form, list[NewTensor]]:
    """Return the tensors under PEFT's names, without those that have no effect on text."""
    read = [(tensor, read_name(tensor.name)) for tensor in tensors]
    names = [name for _tensor, name in read]
    kept = [(tensor, name) for tensor, name in read if not (name.is_vision or name.is_of_training)]
    adapters = sorted({name.adapter for name in names if name.adapter})
    if len(adapters) > 1:
        listed = ", ".join(printable(adapter) for adapter in adapters[:5])
        raise FormatError(
            "several_adapters",
            f"The weights hold {len(adapters)} adapters: {listed}.",
            "Save one: model.save_pretrained(folder, selected_adapters=[...]).",
        )
    roots = sorted({name.root for _tensor, name in kept if ".layers." in name.name})
    if len(roots) > 1:
        raise FormatError(
            "mixed_names",
            f"The weights name layers of {', '.join(map(printable, roots[:4]))}, which are several models.",
            "Upload an adapter of one language model.",
        )
    _require_different(kept)
    if len({name.doubled for _tensor, name in kept}) > 1:
        raise FormatError(
            "mixed_names",
            "Some tensors' names begin with base_model.model. once, others twice: the file holds a PEFT model and one "
            "that is wrapped around it.",
            "Merge the inner adapter first (model.merge_and_unload()), or train one adapter on the base model alone.",
        )
    notes += _notes(names, adapters, roots)
    form = Form(tuple(notes), roots[0] if roots else "model")
    return form, [NewTensor(name.name, tensor.dtype, tensor.shape, tensor.blocks) for tensor, name in kept]


def _notes(names: list[TensorName], adapters: list[str], roots: list[str]) -> Iterable[str]:
    if any(name.wrapped for name in names):
        yield "names of the training's wrappers (such as module., _orig_mod.) were taken out of the tensors' names"
    if adapters:
        yield f"the adapter's name, {printable(adapters[0])}, was taken out of the tensors' names"
    if any(name.bare for name in names if ".lora_" in name.name):
        yield "base_model.model. was put before the tensors' names"
    if any(name.doubled for name in names):
        yield (
            "base_model.model. stood more than once before the tensors' names, as where get_peft_model wraps a PEFT "
            "model, and was taken for one; PEFT loads no tensor of such a file. If training began with another "
            "adapter, that one is not in the file: merge it first (merge_and_unload())"
        )
    if roots and roots != ["model"]:
        yield f"the language model of a vision-language model ({printable(roots[0])}) was taken for the base"
    vision = sum(name.is_vision for name in names)
    if vision:
        yield f"{vision} tensors on the part that sees or hears were left out, as they do nothing to answers to text"
    if any(name.is_unembedding for name in names):
        yield "Tinker's unembed_tokens was taken for lm_head; target_modules is what the file holds"
    if training := sum(name.is_of_training for name in names):
        yield f"{training} tensors that only training needs were left out: answers are plain LoRA's"


def _require_different(kept: list[tuple[NewTensor, TensorName]]) -> None:
    seen: dict[str, str] = {}
    for tensor, name in kept:
        if name.name in seen:
            raise FormatError(
                "duplicate_tensor",
                f"{printable(seen[name.name])} and {printable(tensor.name)} are the same tensor under two names.",
                "Save the adapter again from the trained model.",
                tensor.name,
            )
        seen[name.name] = tensor.name


def _target(folder: Path, names: list[str]) -> None:
    """List the modules of these tensors in the config: Tinker's says "all-linear", which excludes the head."""
    modules = sorted({name.rpartition(".lora_")[0].rpartition(".")[2] for name in names if ".lora_" in name})
    write_config(folder, {**load_raw_config(folder), "target_modules": modules})


def _from_mlx(folder: Path, tensors: list[NewTensor], notes: list[str]) -> Form:
    raw = load_raw_config(folder)
    if not is_mlx_config(raw):
        raise FormatError(
            "missing_file",
            f"{MLX_WEIGHTS_FILE} is mlx-lm's, but {CONFIG_FILE} is not: it holds no lora_parameters.",
            f"Upload {MLX_WEIGHTS_FILE} with the {CONFIG_FILE} beside it, or PEFT's {WEIGHTS_FILE}.",
        )
    names = [peft_name(tensor.name) for tensor in tensors]
    config = peft_config(raw, [name for name in names if name is not None])
    notes += [f"mlx-lm's files were converted to PEFT's; its scale is lora_alpha {config['lora_alpha']}"]
    write_config(folder, config)
    return Form(tuple(notes))


def _mlx_tensors(tensors: list[NewTensor]) -> list[NewTensor]:
    """Transpose LoRA's matrices and leave other tensors unchanged, for the inspection to report."""
    new = []
    for tensor in tensors:
        name = peft_name(tensor.name)
        if name is None or len(tensor.shape) != 2:
            new.append(
                NewTensor(peft_vector_name(tensor.name) or tensor.name, tensor.dtype, tensor.shape, tensor.blocks)
            )
        else:
            new.append(NewTensor(name, tensor.dtype, tensor.shape[::-1], partial(_transposed, tensor)))
    return new


def _transposed(tensor: NewTensor) -> list[npt.NDArray[Any]]:
    values, start = np.empty(tensor.shape, NUMPY_TYPES[tensor.dtype]), 0
    for block in tensor.blocks():
        values.reshape(-1)[start : start + block.size] = block.reshape(-1)
        start += block.size
    return [np.ascontiguousarray(values.T)] if values.size else []
