"""The effect of a version on the base model's answers, in words."""

from __future__ import annotations

from typing import Any


def effect_text(effect: Any) -> str:
    """Describe an `effect` of the API; None if no host has tried the version yet."""
    if effect is None:
        return "not tried yet: the host was busy; `lorikeet adapters NAME` shows it later"
    if effect["verdict"] == "overflows":
        return "it OVERFLOWS: the model's numbers are not finite with it. Train it with a smaller lora_alpha"
    if effect["verdict"] == "changes_nothing":
        return "it CHANGES NOTHING: the base model's answers stay as they are. Was it trained, and saved after that?"
    tokens, differing = effect["tokens"], effect["differing_tokens"]
    acts = f"it acts: {differing} of {tokens} tokens differ from the base model's"
    return "\n".join([acts, *_agreement(effect.get("agreement"))])


def confirmations(version: Any) -> list[str]:
    """Return the confirmations that a version of the API needs before it can be live, with their commands."""
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


def _agreement(agreement: Any) -> list[str]:
    """Describe how far the version acts on a quantised base as it does on the unquantised one."""
    if agreement is None:
        return []
    if agreement["outcome"] == "pending":
        return ["its agreement with the unquantised base is being measured; read the version later"]
    if agreement["outcome"] == "not_measured":
        return [f"its agreement with the unquantised base was not measured: {agreement['reason']}"]
    adapter, base = agreement["adapter"], agreement["base"]
    figures = (
        f"{adapter['agreeing']} of {adapter['tokens']} tokens, log-probabilities {adapter['mean_distance']:.2f} apart "
        f"(the base alone {base['agreeing']} of {base['tokens']}, {base['mean_distance']:.2f})"
    )
    if agreement["outcome"] == "differs":
        return [f"it DIFFERS from what it is on the unquantised base: {figures}. {agreement['reason']}"]
    return [f"it agrees with the unquantised base: {figures}"]


def dtypes_text(version: Any) -> str:
    """Describe in which dtype each host serves a version of the API."""
    lines = [f"adapter_dtype: {version['adapter_dtype']}"]
    lines += [f"{placement['host']}: {_dtype(placement)}" for placement in version["placements"]]
    return "\n".join(lines)


def _dtype(placement: Any) -> str:
    report, dtype = placement["dtype_report"], placement["dtype"]
    if report is None:
        return "not known yet" if placement["phase"] == "ready" else placement["phase"]
    if report["outcome"] == "pending":
        return f"{dtype}; FP8 is being compared with it, read the version later"
    if report["reason"]:
        return f"{dtype}. {report['reason']}"
    agree = (
        f"{report['agreeing']} of {report['tokens']} tokens agree in FP8, log-probabilities are "
        f"{report['mean_distance']:.3f} apart (at most {report['largest_distance']:.2f})"
    )
    return f"{dtype}; {agree}"
