"""What a version does, in a line."""

from __future__ import annotations

from typing import Any


def told(effect: Any) -> str:
    """`effect` as the API has it; None if no host has tried the version yet."""
    if effect is None:
        return "not tried yet: the host was busy; GET the version later"
    if effect["verdict"] == "overflows":
        return "it OVERFLOWS: the model's numbers are not finite with it. Train it with a smaller lora_alpha"
    if effect["verdict"] == "changes_nothing":
        return "it CHANGES NOTHING: the base model's answers stay as they are. Was it trained, and saved after that?"
    tokens, differing = effect["tokens"], effect["differing_tokens"]
    return f"it acts: {differing} of {tokens} tokens differ from the base model's"
