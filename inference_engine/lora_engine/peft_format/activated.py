"""Activated LoRA (aLoRA, arXiv 2504.12397) is an adapter that acts from its invocation tokens on.

Prompt tokens before the last occurrence of the invocation tokens run as the base model, and so do all tokens of a
prompt without them.
"""

from __future__ import annotations

from typing import Any

from .problems import Findings

# Bounds the search in every prompt.
MAX_INVOCATION_TOKENS = 1024


def invocation_tokens(raw: dict[str, Any], vocab_size: int, findings: Findings) -> tuple[int, ...]:
    """Return the invocation tokens, empty for an adapter that always acts. Reports invalid ones."""
    tokens = raw.get("alora_invocation_tokens")
    if not tokens:
        return ()
    if not (
        isinstance(tokens, list)
        and len(tokens) <= MAX_INVOCATION_TOKENS
        and all(type(token) is int and 0 <= token < vocab_size for token in tokens)
    ):
        findings.add(
            "invalid_config",
            f"adapter_config.json: alora_invocation_tokens is no list of tokens from 0 to {vocab_size - 1}, "
            f"{MAX_INVOCATION_TOKENS} at most.",
            "Upload the adapter_config.json that PEFT wrote.",
        )
        return ()
    for feature, in_use in (("use_dora", bool(raw.get("use_dora"))), ("bias", raw.get("bias", "none") != "none")):
        if in_use:
            findings.add(
                "unsupported_feature",
                f"The adapter uses Activated LoRA (alora_invocation_tokens) with {feature}; it cannot be served.",
                f"Train it without {feature}.",
            )
    return tuple(tokens)


def note(tokens: tuple[int, ...]) -> str:
    """Return what the tokens mean for requests, for the report."""
    return (
        f"Activated LoRA: it acts from the last place on where a prompt has its {len(tokens)} invocation tokens; before"
        " that, and in prompts without them, the base model answers"
    )
