"""The model folder has small JSON files beside the weights."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

TEXT_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
)


class TokenizerError(Exception):
    """The model folder's text files are missing or cannot be used; the message says what to do."""


def read_json(path: Path) -> dict[str, Any]:
    """Return the file's object, or ``{}`` if there is no such file. Raises ``TokenizerError``."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TokenizerError(f"{path} is not valid JSON ({error}); download the model again.") from None
    if not isinstance(value, dict):
        raise TokenizerError(f"{path} is not a JSON object; download the model again.")
    return value


def special_tokens(folder: Path) -> dict[str, str]:
    """Return ``"bos_token"``, ``"eos_token"``, … → text, from the tokeniser's config files."""
    merged = read_json(folder / "special_tokens_map.json") | read_json(folder / "tokenizer_config.json")
    tokens: dict[str, str] = {}
    for name, value in merged.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            tokens[name] = text
    return tokens


def text_digest(folder: Path) -> str:
    """Return ``sha256:`` over the files that decide how text becomes tokens and back: hosts that differ here answer
    differently.
    """
    digest = hashlib.sha256()
    for name in TEXT_FILES:
        path = folder / name
        if path.is_file():
            digest.update(f"{name} {path.stat().st_size}\n".encode())
            digest.update(path.read_bytes())
    return "sha256:" + digest.hexdigest()
