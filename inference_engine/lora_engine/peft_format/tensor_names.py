"""Tensor names as tools write them are converted to the one form that PEFT writes.

``base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight`` has variants: wrappers of training (``module.``,
``_orig_mod.``), the adapter's name (``.lora_A.default.weight``), no ``base_model.model.``, and the language model of a
vision-language one (``model.language_model.layers.0``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PEFT_PREFIX = "base_model.model."
# Modules that wrap others in training and are no part of the model: torch.compile, FSDP, activation checkpointing.
_WRAPPERS = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
_ADAPTER_NAME = re.compile(
    r"(\.lora_[AB]|\.lora_magnitude_vector)\.([^.]+)(\.weight|\.bias)|"
    r"(\.lora_embedding_[AB]|\.lora_[ABE])\.(?!(?:weight|bias)$)([^.]+)$",
    re.ASCII,
)
# State that VeLoRA and MonteCLoRA need for training, besides matrices that are plain LoRA's.
_OF_TRAINING = re.compile(r"\.lora_(?:velora_embed|monteclora_sampler)(?:\.|$)", re.ASCII)
_IN_LANGUAGE_MODEL = re.compile(
    r"((?:[a-z]\w*\.)*?(?:language_model|text_model)(?:\.model)?)(\.(?:layers|embed_tokens)\..*)", re.ASCII
)
_OF_AN_EMBEDDING_LAYER = re.compile(r"(?:^|\.)(?:embed_tokens|lm_head)\.", re.ASCII)
# Tinker's name of the head.
_UNEMBEDDING = re.compile(r"(?:[a-z]\w*\.)*?unembed_tokens\.(lora_.*)", re.ASCII)
_HEAD = re.compile(r"(?:[a-z]\w*\.)*?(?:language_model|text_model)\.(lm_head\..*)", re.ASCII)
_VISION = re.compile(
    r"(?:^|\.)(?:visual|vision_tower|vision_model|vision_encoder|image_encoder|multi_modal_projector|mm_projector|"
    r"embed_vision|audio_tower|merger)\.",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class TensorName:
    """A tensor name in PEFT's form. ``adapter`` is the adapter's name that was in it, ``root`` the name of ``model``.

    ``doubled``: the prefix of a PEFT model wrapped in another. ``is_vision`` and ``is_of_training``: without effect on
    text. ``is_unembedding``: the head, by Tinker's name of it.
    """

    name: str
    wrapped: bool = False
    bare: bool = False
    doubled: bool = False
    adapter: str = ""
    root: str = "model"
    is_vision: bool = False
    is_of_training: bool = False
    is_unembedding: bool = False


def read_name(name: str) -> TensorName:
    """Parse a tensor's name. A name of no known form is returned unchanged."""
    if ".lora_" not in name and not name.endswith(".bias") and not _OF_AN_EMBEDDING_LAYER.search(name):
        return TensorName(name)
    plain = _unwrapped(name)
    wrapped = plain != name
    adapter = _ADAPTER_NAME.search(plain)
    if adapter:
        plain = _ADAPTER_NAME.sub(lambda match: (match[1] or "") + (match[3] or "") + (match[4] or ""), plain, count=1)
    inner = plain
    while inner.startswith(PEFT_PREFIX):
        inner = inner.removeprefix(PEFT_PREFIX)
    if head := _HEAD.fullmatch(inner):
        inner = head[1]
    if unembedding := _UNEMBEDDING.fullmatch(inner):
        inner = f"lm_head.{unembedding[1]}"
    match = _IN_LANGUAGE_MODEL.fullmatch(inner)
    return TensorName(
        name=PEFT_PREFIX + (f"model{match[2]}" if match else inner),
        wrapped=wrapped,
        bare=not plain.startswith(PEFT_PREFIX),
        doubled=plain.startswith(2 * PEFT_PREFIX),
        adapter=adapter[2] or adapter[5] if adapter else "",
        root=match[1] if match else "model",
        is_vision=bool(_VISION.search(inner)),
        is_of_training=bool(_OF_TRAINING.search(inner)),
        is_unembedding=bool(unembedding),
    )


def _unwrapped(name: str) -> str:
    parts = [part for part in name.split(".") if part not in _WRAPPERS]
    while parts and parts[0] == "module":
        parts = parts[1:]
    plain = ".".join(parts)
    # The prefix of any module that has a PEFT model is a wrapper too: Lightning's `model.`, DeepSpeed's
    # `_forward_module.`, TRL's `pretrained_model.`. Two of them in one file give equal names, which is refused.
    before, separator, name = plain.partition(f".{PEFT_PREFIX}")
    return f"{PEFT_PREFIX}{name}" if separator and not f"{before}.".startswith(PEFT_PREFIX) else plain
