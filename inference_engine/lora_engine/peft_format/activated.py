"""Activated LoRA (aLoRA, arXiv 2504.12397): an adapter that acts from its invocation tokens on.

Tokens of a prompt before the last place where these stand run as the base model, as do all of a prompt without them.
"""

from __future__ import annotations

from typing import Any

from .problems import Findings

MOST_INVOCATION_TOKENS = 1024


def invocation_tokens(raw: dict[str, Any], vocab_size: int, findings: Findings) -> tuple[int, ...]:
    """Empty for an adapter that always acts."""
    tokens = raw.get("alora_invocation_tokens")
    if not tokens:
        return ()
    if not (
        isinstance(tokens, list)
        and len(tokens) <= MOST_INVOCATION_TOKENS
        and all(type(token) is int and 0 <= token < vocab_size for token in tokens)
    ):
        findings.add(
            "invalid_config",
            f"adapter_config.json: alora_invocation_tokens is no list of tokens from 0 to {vocab_size - 1}, "
            f"{MOST_INVOCATION_TOKENS} at most.",
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
    """What it means for requests."""
    return (
        f"Activated LoRA: it acts from the last place on where a prompt has its {len(tokens)} invocation tokens; before"
        " that, and in prompts without them, the base model answers"
    )
