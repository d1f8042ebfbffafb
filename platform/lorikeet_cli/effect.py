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
    acts = f"it acts: {differing} of {tokens} tokens differ from the base model's"
    return "\n".join([acts, *_agreement(effect.get("agreement"))])


def asked(version: Any) -> list[str]:
    """What somebody has to say before `version`, as the API has it, can be live."""
    name = f"{version['adapter']}@v{version['number']}"
    lines = []
    if version["asks_for_base"]:
        lines.append(
            f"it names {version['named_base']} as its base model, and {version['base_model']} is served; "
            f"it can be live with: lorikeet confirm-base {name}"
        )
    if version["asks_for_effect"] and not version["aliases"]:
        lines.append(f"it can be live as it is with: lorikeet confirm-effect {name}")
    return lines


def _agreement(found: Any) -> list[str]:
    """With the unquantised base, where the host's is quantised."""
    if found is None:
        return []
    if found["outcome"] == "pending":
        return ["its agreement with the unquantised base is being measured; GET the version later"]
    if found["outcome"] == "not_measured":
        return [f"its agreement with the unquantised base was not measured: {found['reason']}"]
    own, base = found["adapter"], found["base"]
    figures = (
        f"{own['agreeing']} of {own['tokens']} tokens, log-probabilities {own['mean_distance']:.2f} apart "
        f"(the base alone {base['agreeing']} of {base['tokens']}, {base['mean_distance']:.2f})"
    )
    if found["outcome"] == "differs":
        return [f"it DIFFERS from what it is on the unquantised base: {figures}. {found['reason']}"]
    return [f"it agrees with the unquantised base: {figures}"]
