"""Uploads without an adapter's weights are recognised by the names of their files, with a fix for each kind."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .problems import FormatError, printable

_BEFORE_MERGING = (
    "Upload the folder that model.save_pretrained(folder) wrote before merge_and_unload(). If there is only the "
    "merged model, it can be served as a base model of its own."
)
_SAVE_SAFE = "Save with model.save_pretrained(folder, safe_serialization=True) and upload that folder."

_UNPACK_IT = (
    "Unpack it, and upload the folder with adapter_config.json and adapter_model.safetensors, or that archive alone."
)
PACK_AS_ZIP = (
    "Unpack it, and upload the two files loose or as .zip or .tar.gz, e.g. "
    "zip -j adapter.zip adapter_config.json adapter_model.safetensors."
)

# File name -> (code, description, fix); the first that matches any file counts.
_KINDS: tuple[tuple[re.Pattern[str], str, str, str], ...] = tuple(
    (re.compile(pattern, re.ASCII | re.IGNORECASE), code, what, fix)
    for pattern, code, what, fix in (
        (
            r"adapter_(model|\d+)\.pt",
            "torchtune_checkpoint",
            "is torchtune's own checkpoint, whose attention is laid out otherwise than Hugging Face's",
            "Upload adapter_model.safetensors (or adapter_model.bin) and adapter_config.json, which torchtune writes "
            "beside it with save_adapter_weights_only or a Hugging Face checkpointer.",
        ),
        (
            r"(.*_)?adapters\.npz",
            "mlx_npz",
            "is of an early mlx-lm",
            "Convert it: mx.save_safetensors('adapters.safetensors', dict(mx.load('adapters.npz'))), and upload that "
            "with its adapter_config.json.",
        ),
        (
            r".*\.gguf",
            "gguf",
            "is a GGUF file, which llama.cpp reads",
            "Upload the PEFT folder that it was converted from.",
        ),
        (
            r"pytorch_lora_weights\.(safetensors|bin)",
            "image_lora",
            "is a LoRA of an image model (diffusers)",
            "Only adapters of the served language model can be used here.",
        ),
        (
            r"model(-\d+-of-\d+)?\.safetensors|model\.safetensors\.index\.json|pytorch_model.*\.bin(\.index\.json)?|"
            r"consolidated.*\.(pth|safetensors)",
            "merged_model",
            "is a whole model, with an adapter merged into it or none",
            _BEFORE_MERGING,
        ),
        (
            r"(.*_states|mp_rank_\d+.*|zero_pp_rank.*)\.pt|.*\.distcp",
            "training_state",
            "is the state of a training (DeepSpeed or FSDP), not its adapter",
            "Gather it first, e.g. with the zero_to_fp32.py in the checkpoint, and save with model.save_pretrained.",
        ),
        (
            r".*\.(zip|tar|tgz|tar\.gz)",
            "nested_archive",
            "is an archive within the upload",
            _UNPACK_IT,
        ),
        (
            r".*\.(7z|rar|txz|tbz2?|tzst|xz|bz2|zst|lz4|lz|lzma|gz|z|cab)",
            "unsupported_archive",
            "is packed in a way that is not read here",
            PACK_AS_ZIP,
        ),
        (
            r"(?!(training_args|optimizer|scheduler|rng_state.*|scaler)\.).*\.(bin|pt|pth|pkl|pickle|ckpt)",
            "pickle_refused",
            "is a pickle file, which can run any code when it is loaded",
            _SAVE_SAFE,
        ),
    )
)


# First bytes of archives, and the archives' names.
_ARCHIVES: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "zip"),
    (b"\x1f\x8b", "gzip"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip"),
    (b"Rar!\x1a\x07", "RAR"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"BZh", "bzip2"),
    (b"\x28\xb5\x2f\xfd", "Zstandard"),
    (b"\x04\x22\x4d\x18", "LZ4"),
    (b"LZIP", "lzip"),
    (b"\x1f\x9d", "compress"),
    (b"MSCF", "Cabinet"),
)


def archive_kind(begins: bytes) -> str:
    """Return the kind of archive or packed file that begins so; "" if unknown. Tar archives are not recognised."""
    return next((kind for magic, kind in _ARCHIVES if begins.startswith(magic)), "")


# First bytes of a file -> (code, description, fix).
_STAND_INS: tuple[tuple[re.Pattern[bytes], str, str, str], ...] = (
    (
        re.compile(rb"version https://git-lfs\.github\.com/"),
        "lfs_pointer",
        "is a pointer of Git LFS to the file, not the file",
        "Get the files themselves, with `git lfs install` and `git lfs pull` in the repository, and upload them; or "
        "import the repository (hub:org/name).",
    ),
    (
        re.compile(rb"\s*<(!doctype|html|\?xml)", re.IGNORECASE),
        "web_page",
        "is a web page or an error message in its place",
        "Look into it, and fetch the file from its own address: on the Hub with /resolve/ where its page has /blob/.",
    ),
)


def instead_of_a_file(name: str, begins: bytes) -> FormatError | None:
    """Return the error for a common substitute of a file: a Git LFS pointer or a web page."""
    for pattern, code, what, fix in _STAND_INS:
        if pattern.match(begins):
            return FormatError(code, f"{printable(name)} {what}.", fix)
    return None


def recognise(names: Sequence[str]) -> tuple[str, str, str] | None:
    """Return ``(code, message, fix)`` for an upload that has these files and no adapter's weights."""
    for pattern, code, what, fix in _KINDS:
        for name in names:
            if pattern.fullmatch(name.replace("\\", "/").rsplit("/", 1)[-1]):
                return code, f"There is no adapter here: {printable(name)} {what}.", fix
    return None
