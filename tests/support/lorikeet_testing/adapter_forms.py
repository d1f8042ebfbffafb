"""Adapters as training programs write them, by the layouts that they document: one small adapter in every form."""

from __future__ import annotations

import io
import json
import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lora_engine.peft_format import CONFIG_FILE, WEIGHTS_FILE
from lorikeet_testing.peft_files import GEOMETRY, Tensors, config_bytes, safetensors_bytes, tensors

Files = dict[str, bytes]
ADAPTER = tensors(rank=4)
BINARY, MLX_WEIGHTS = "adapter_model.bin", "adapters.safetensors"
PEFT_ROOT = "base_model.model.model."


@dataclass(frozen=True)
class Form:
    """An upload as one training program writes it, with the error code of its refusal (empty if accepted)."""

    maker: str
    what: str
    files: Callable[[], Files]
    code: str = ""
    # Whether the two files are stored byte for byte.
    as_sent: bool = False


def renamed(change: Callable[[str], str]) -> Tensors:
    return {change(name): array for name, array in ADAPTER.items()}


def torch_bytes(of: Tensors, **options: Any) -> bytes:
    """Return a state dict as ``torch.save`` writes it, each parameter with its own storage."""
    import torch  # not above: most users of this module need no such file

    buffer = io.BytesIO()
    torch.save(OrderedDict((name, torch.from_numpy(array.copy())) for name, array in of.items()), buffer, **options)
    return buffer.getvalue()


def peft(of: Tensors, **config: Any) -> Files:
    return {CONFIG_FILE: config_bytes(**config), WEIGHTS_FILE: safetensors_bytes(of)}


def shards() -> Files:
    names = sorted(ADAPTER)
    parts = [names[: len(names) // 2], names[len(names) // 2 :]]
    files = {f"adapter_model-{i:05d}-of-00002.safetensors": part for i, part in enumerate(parts, 1)}
    index = {"metadata": {}, "weight_map": {name: file for file, part in files.items() for name in part}}
    weights = {file: safetensors_bytes({name: ADAPTER[name] for name in part}) for file, part in files.items()}
    return {CONFIG_FILE: config_bytes(), f"{WEIGHTS_FILE}.index.json": json.dumps(index).encode(), **weights}


def mlx(more: Mapping[str, npt.NDArray[Any]] | None = None, **changes: Any) -> Files:
    """``adapters.safetensors`` of mlx-lm: matrices transposed, scale instead of alpha."""
    config = {
        "fine_tune_type": "lora",
        "model": "mlx-community/fake-base",
        "num_layers": 2,
        "lora_parameters": {"rank": 4, "scale": 2.0, "dropout": 0.0},
        "adapter_path": "adapters",
        "learning_rate": 1e-5,
        **changes,
    }
    weights = {
        name.removeprefix("base_model.model.")
        .removesuffix(".weight")
        .replace("lora_A", "lora_a")
        .replace("lora_B", "lora_b"): np.ascontiguousarray(array.T)
        for name, array in ADAPTER.items()
    }
    weights |= dict(more or {})
    # mlx writes null where others write a map or nothing
    return {CONFIG_FILE: json.dumps(config).encode(), MLX_WEIGHTS: safetensors_bytes(weights, metadata=None)}


MLX_EMBEDDING = {
    "model.embed_tokens.lora_a": np.ones((GEOMETRY.vocab_size, 4), np.float32),
    "model.embed_tokens.lora_b": np.ones((4, GEOMETRY.hidden_size), np.float32),
}
MLX_MAGNITUDES = {
    name.removeprefix("base_model.model.").replace("lora_B.weight", "m"): np.ones(len(array), np.float32)
    for name, array in ADAPTER.items()
    if name.endswith("lora_B.weight")
}


VELORA = {"num_groups": 8, "init_type": "batch_average_once", "scale": 1.0}
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0a" * 32 + b"\nsize 6301696\n"


def of_training(kept: str) -> Tensors:
    """Return the adapter with a tensor per module that a variant of LoRA keeps for training only."""
    more = {name.replace("lora_A.weight", kept): np.ones(4, np.float32) for name in ADAPTER if "lora_A" in name}
    return ADAPTER | more


def vision(root: str, tower: str) -> Files:
    """LoRA on both halves of a vision-language model, with the pattern that PEFT users write for it."""
    language = renamed(lambda name: name.replace(PEFT_ROOT, f"base_model.model.{root}."))
    block = f"base_model.model.{tower}.blocks.0.attn.qkv"
    seeing = {
        f"{block}.lora_A.weight": np.ones((4, 8), np.float32),
        f"{block}.lora_B.weight": np.ones((8, 4), np.float32),
    }
    return peft({**language, **seeing}, target_modules=rf".*{root.split('.')[-1]}.*\.(q_proj|v_proj)|.*\.qkv")


def under(folder: str, files: Files) -> Files:
    return {f"{folder}/{name}": content for name, content in files.items()}


def tinker() -> Files:
    """Return an adapter as Tinker's checkpoints contain it."""
    head = {
        "base_model.model.model.unembed_tokens.lora_A.weight": np.ones((4, GEOMETRY.hidden_size), np.float32),
        "base_model.model.model.unembed_tokens.lora_B.weight": np.ones((GEOMETRY.vocab_size, 4), np.float32),
    }
    return peft(ADAPTER | head, target_modules="all-linear")


def trainer_state(*names: str) -> Files:
    return dict.fromkeys(names, b"\x80\x02}q\x00.")


UNSLOTH_TARGETS = (
    r"(?:.*?(?:language|text).*?(?:self_attn|attention|attn|mlp|feed_forward|ffn|dense).*?"
    r"(?:q_proj|v_proj).*?)|(?:\bmodel\.layers\.[\d]{1,}\.(?:self_attn|attention|attn|mlp|feed_forward|ffn|dense)"
    r"\.(?:(?:q_proj|v_proj)))"
)
TOKENIZER: Files = dict.fromkeys(("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"), b"{}")
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + eos_token + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
IN_CONFIG: Files = {
    "tokenizer_config.json": json.dumps({"eos_token": {"content": "<|im_end|>"}, "chat_template": CHATML}).encode()
}
IN_A_FILE: Files = {"tokenizer_config.json": b'{"eos_token": "<|im_end|>"}', "chat_template.jinja": CHATML.encode()}
CHECKPOINT = trainer_state("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin") | {
    "trainer_state.json": b"{}"
}
OTHER: Tensors = {name: array + 1 for name, array in ADAPTER.items()}


class _Exploit:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("this must never run",))


def exploit() -> bytes:
    buffer = io.BytesIO()
    import torch

    torch.save({"weights": _Exploit()}, buffer)
    return buffer.getvalue()


def torchtune() -> Files:
    config = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"], "peft_type": "LORA"}
    return {
        CONFIG_FILE: json.dumps(config).encode(),
        BINARY: torch_bytes(ADAPTER),
        **trainer_state("adapter_model.pt", "recipe_state.pt"),
    }


FORMS = [
    Form("PEFT", "`save_pretrained`", lambda: peft(ADAPTER), as_sent=True),
    Form("PEFT", f"`{BINARY}`", lambda: {CONFIG_FILE: config_bytes(), BINARY: torch_bytes(ADAPTER)}),
    Form(
        "PEFT", f"`{WEIGHTS_FILE}` and `{BINARY}`", lambda: {**peft(ADAPTER), BINARY: torch_bytes(OTHER)}, as_sent=True
    ),
    Form("PEFT", "shards and their index", shards),
    Form(
        "PEFT",
        "shards, one of them missing",
        lambda: {n: c for n, c in shards().items() if "-00002-of" not in n},
        "missing_shard",
    ),
    Form(
        "PEFT",
        "`state_dict()` with the adapter's name",
        lambda: peft(renamed(lambda n: n.replace(".weight", ".default.weight"))),
    ),
    Form(
        "PEFT",
        "`state_dict()` with two adapters",
        lambda: peft({n.replace(".weight", f".{a}.weight"): v for a in ("one", "two") for n, v in ADAPTER.items()}),
        "several_adapters",
    ),
    Form(
        "PEFT",
        "names without `base_model.model.`",
        lambda: peft(renamed(lambda n: n.removeprefix("base_model.model."))),
    ),
    Form(
        "PEFT",
        "`get_peft_model` of a PEFT model: `base_model.model.` twice",
        lambda: peft(renamed(lambda n: f"base_model.model.{n}")),
    ),
    Form(
        "PEFT",
        "`base_model.model.` once and twice",
        lambda: peft(renamed(lambda n: n if "q_proj" in n else f"base_model.model.{n}")),
        "mixed_names",
    ),
    Form("PEFT", "VeLoRA (`velora_config`)", lambda: peft(of_training("lora_velora_embed"), velora_config=VELORA)),
    Form(
        "PEFT",
        "MonteCLoRA (`monteclora_config`)",
        lambda: peft(of_training("lora_monteclora_sampler.std_prior"), monteclora_config={"num_samples": 4}),
    ),
    Form("Git", "a clone without Git LFS", lambda: {CONFIG_FILE: config_bytes(), WEIGHTS_FILE: LFS}, "lfs_pointer"),
    Form(
        "Git",
        f"a clone without Git LFS, with `{BINARY}`",
        lambda: {CONFIG_FILE: config_bytes(), BINARY: LFS},
        "lfs_pointer",
    ),
    Form(
        "a browser",
        "the page of a file in its place",
        lambda: {CONFIG_FILE: config_bytes(), WEIGHTS_FILE: b"<!doctype html>\n<html class>" + bytes(999)},
        "web_page",
    ),
    Form("PyTorch", "DDP: `module.`", lambda: peft(renamed(lambda n: f"module.{n}"))),
    Form(
        "PyTorch",
        "`torch.compile`: `_orig_mod.`",
        lambda: peft(renamed(lambda n: n.replace("base_model.model.", "base_model.model._orig_mod."))),
    ),
    Form("PyTorch", "Lightning: `model.` around PEFT's names", lambda: peft(renamed(lambda n: f"model.{n}"))),
    Form(
        "PyTorch",
        "FSDP",
        lambda: peft(
            renamed(
                lambda n: n.replace(".mlp", "._fsdp_wrapped_module.mlp").replace(".self", "._fsdp_wrapped_module.self")
            )
        ),
    ),
    Form(
        "DeepSpeed",
        "`_forward_module.` around PEFT's names",
        lambda: peft(renamed(lambda n: f"_forward_module.{n}")),
    ),
    Form(
        "TRL",
        "a policy and its reference in one file",
        lambda: peft({f"{a}.{n}": v for a in ("policy", "reference") for n, v in ADAPTER.items()}),
        "duplicate_tensor",
    ),
    Form(
        "PyTorch",
        f"`{BINARY}` of before version 1.6",
        lambda: {CONFIG_FILE: config_bytes(), BINARY: torch_bytes(ADAPTER, _use_new_zipfile_serialization=False)},
        "pickle_refused",
    ),
    Form(
        "PyTorch",
        f"`{BINARY}` that calls something",
        lambda: {CONFIG_FILE: config_bytes(), BINARY: exploit()},
        "pickle_refused",
    ),
    Form(
        "PyTorch",
        f"`{BINARY}` that is a bare pickle",
        lambda: {CONFIG_FILE: config_bytes(), BINARY: pickle.dumps({})},
        "pickle_refused",
    ),
    Form(
        "DeepSpeed", "ZeRO-3, not gathered", lambda: peft({n: np.zeros(0, np.float32) for n in ADAPTER}), "empty_tensor"
    ),
    Form(
        "DeepSpeed",
        "a checkpoint's state",
        lambda: {CONFIG_FILE: config_bytes(), **trainer_state("global_step10/mp_rank_00_model_states.pt")},
        "training_state",
    ),
    Form(
        "Vision-language",
        "`model.language_model.` (Transformers 4.52 on)",
        lambda: vision("model.language_model", "model.visual"),
    ),
    Form("Vision-language", "`language_model.model.` (before)", lambda: vision("language_model.model", "vision_tower")),
    Form("mlx-lm", f"`{MLX_WEIGHTS}`", mlx),
    Form(
        "mlx-lm",
        "`lora_parameters` with `alpha`",
        lambda: mlx(lora_parameters={"rank": 4, "alpha": 16, "scale": 10.0}),
        "ambiguous_scale",
    ),
    Form("mlx-lm", "`fine_tune_type: dora`", lambda: mlx(MLX_MAGNITUDES, fine_tune_type="dora")),
    Form("Tinker", "a checkpoint's archive", tinker),
    Form(
        "verl",
        "`lora_adapter`, merged without `lora_train_meta.json`",
        lambda: under("lora_adapter", peft(ADAPTER, lora_alpha=0)),
        "invalid_config",
    ),
    Form("verl", "`lora_adapter` of its model merger", lambda: under("lora_adapter", peft(ADAPTER)), as_sent=True),
    Form(
        "ms-swift",
        "the folder `checkpoint-100`",
        lambda: under(
            "v0-20260101/checkpoint-100",
            {
                **peft(ADAPTER),
                **CHECKPOINT,
                "additional_config.json": b"{}",
                "args.json": b"{}",
            },
        ),
        as_sent=True,
    ),
    Form(
        "NeMo AutoModel",
        "a checkpoint's `model`",
        lambda: under("epoch_0_step_9/model", {**peft(ADAPTER), **TOKENIZER, "automodel_peft_config.json": b"{}"}),
        as_sent=True,
    ),
    Form(
        "Unsloth",
        "`adapters.safetensors` of its MLX trainer",
        lambda: mlx(
            model=None,
            base_model_name_or_path="unsloth/fake-base",
            lora_parameters={"rank": 4, "scale": 2.0, "dropout": 0.0, "keys": ["self_attn.q_proj", "self_attn.v_proj"]},
            rank=4,
            scale=2.0,
            unsloth_mlx_lora_module_paths=["model.layers.0.self_attn.q_proj"],
            requires_unsloth_mlx_runtime_quantization=False,
        ),
    ),
    Form("mlx-lm", "LoRA on `embed_tokens` (`keys`)", lambda: mlx(MLX_EMBEDDING), "unsupported_feature"),
    Form("mlx-lm", "`fine_tune_type: full`", lambda: mlx(fine_tune_type="full"), "unsupported_feature"),
    Form("mlx-lm", "`adapters.npz`", lambda: {CONFIG_FILE: mlx()[CONFIG_FILE], "adapters.npz": b"PK"}, "mlx_npz"),
    Form("torchtune", "Hugging Face checkpointer", torchtune),
    Form(
        "torchtune",
        "its own `adapter_0.pt`",
        lambda: trainer_state("adapter_0.pt", "recipe_state.pt"),
        "torchtune_checkpoint",
    ),
    Form(
        "Unsloth",
        "`save_pretrained`",
        lambda: {
            **peft(
                ADAPTER,
                target_modules=UNSLOTH_TARGETS,
                base_model_name_or_path="unsloth/fake-base-unsloth-bnb-4bit",
                auto_mapping={
                    "base_model_class": "LlamaForCausalLM",
                    "parent_library": "transformers",
                    "unsloth_fixed": True,
                },
            ),
            **TOKENIZER,
            **IN_A_FILE,
            "README.md": b"# Uploaded model",
        },
    ),
    Form(
        "Unsloth",
        "`save_pretrained_merged`",
        lambda: {
            "config.json": b"{}",
            "model-00001-of-00002.safetensors": b"",
            "model-00002-of-00002.safetensors": b"",
            **TOKENIZER,
        },
        "merged_model",
    ),
    Form(
        "Unsloth",
        "a template that is no Jinja",
        lambda: {**peft(ADAPTER), **TOKENIZER, "chat_template.jinja": b"{% for message in messages %}"},
        "invalid_chat_template",
    ),
    Form("Unsloth", "`save_pretrained_gguf`", lambda: {"unsloth.Q4_K_M.gguf": b"GGUF"}, "gguf"),
    Form(
        "Axolotl",
        "the folder `outputs/lora-out`",
        lambda: under(
            "outputs/lora-out",
            {
                **peft(ADAPTER),
                **TOKENIZER,
                "config.json": b"{}",
                "README.md": b"# lora-out",
                **under("checkpoint-20", {**peft(OTHER), **CHECKPOINT}),
                **under("checkpoint-40", {**peft(OTHER), **CHECKPOINT}),
            },
        ),
        as_sent=True,
    ),
    Form(
        "Axolotl",
        "the folder `merged`",
        lambda: under("merged", {"config.json": b"{}", "model.safetensors": b"", **TOKENIZER}),
        "merged_model",
    ),
    Form(
        "LLaMA-Factory",
        "the folder `saves/model/lora/sft`",
        lambda: under(
            "sft",
            {
                **peft(ADAPTER),
                **TOKENIZER,
                **IN_CONFIG,
                **CHECKPOINT,
                "all_results.json": b"{}",
                "trainer_log.jsonl": b"{}",
                "training_loss.png": b"\x89PNG",
                **under("checkpoint-500", {**peft(OTHER), **CHECKPOINT}),
            },
        ),
        as_sent=True,
    ),
    Form(
        "TRL",
        "the folder that `save_model` wrote",
        lambda: {
            **peft(ADAPTER),
            **TOKENIZER,
            **IN_A_FILE,
            **trainer_state("training_args.bin"),
            **under("checkpoint-6", {**peft(OTHER), **TOKENIZER, **IN_A_FILE, **CHECKPOINT}),
        },
        as_sent=True,
    ),
    Form(
        "Transformers",
        "one checkpoint of a training",
        lambda: under("run/checkpoint-500", {**peft(ADAPTER), **CHECKPOINT}),
        as_sent=True,
    ),
    Form(
        "Transformers",
        "several checkpoints, no final adapter",
        lambda: {**under("run/checkpoint-500", peft(ADAPTER)), **under("run/checkpoint-1000", peft(OTHER))},
        "several_adapters",
    ),
    Form(
        "Transformers",
        "`merge_and_unload`, then `save_pretrained`",
        lambda: {"config.json": b"{}", "generation_config.json": b"{}", "model.safetensors": b""},
        "merged_model",
    ),
    Form(
        "diffusers",
        "`pytorch_lora_weights.safetensors`",
        lambda: {"pytorch_lora_weights.safetensors": b""},
        "image_lora",
    ),
]
