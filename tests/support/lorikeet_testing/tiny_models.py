"""Small random models of every supported family, and PEFT adapters of every supported variant.

Made with ``transformers`` and ``peft`` themselves, so that what the engine is compared with
is what users bring. Weights are scaled up until greedy outputs vary. Both are imported by the functions that need
them: it takes five seconds, which every process that imports this module (each rank of a test, too) would pay.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from lora_engine.adapters.host_memory import PageableMemory, PinnedSlabs
from lora_engine.adapters.layout import PackedAdapter
from lora_engine.adapters.packing import PoolPacker
from lora_engine.engine import Engine
from lora_engine.model.base_modules import base_modules
from lora_engine.model.loading import base_embedding_layers
from lora_engine.peft_format import (
    AdapterLimits,
    BaseGeometry,
    adapter_digest,
    folder_digests,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

VOCAB = 512
_SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 150,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_YARN_ROPE = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
}
_SLIDING_FULL = ["sliding_attention", "full_attention", "sliding_attention"]
_GEMMA: dict[str, Any] = {"head_dim": 32, "query_pre_attn_scalar": 20, "sliding_window": 24}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama2-mha": ("llama", {"num_key_value_heads": 4}),
    "llama3-scaled-rope-tied": ("llama", {"rope_parameters": _LLAMA3_ROPE, "tie_word_embeddings": True}),
    "llama-linear-rope": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}}),
    "llama-yarn": ("llama", {"rope_parameters": _YARN_ROPE}),
    "llama-biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "mistral-sliding-window": ("mistral", {"sliding_window": 40}),
    "qwen2-qkv-bias": ("qwen2", {}),
    "qwen2.5-windowed-upper-layers": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 1},
    ),
    "qwen3-qk-norm": ("qwen3", {"head_dim": 32}),
    "gemma2-soft-caps": ("gemma2", {**_GEMMA, "attn_logit_softcapping": 1.0, "final_logit_softcapping": 2.0}),
    "gemma3-two-ropes": (
        "gemma3_text",
        {**_GEMMA, "layer_types": _SLIDING_FULL, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    ),
    "phi3-fused": ("phi3", {}),
    "phi4-mini-longrope-partial": (
        "phi3",
        {
            "original_max_position_embeddings": 128,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 1e4,
                "partial_rotary_factor": 0.75,
                "short_factor": [1.0, 1.1, 1.3, 1.5, 2.0, 2.5],
                "long_factor": [1.0, 1.5, 2.0, 3.0, 4.0, 6.0],
            },
        },
    ),
    "granite-scales": (
        "granite",
        {
            "embedding_multiplier": 3.0,
            "logits_scaling": 2.0,
            "residual_multiplier": 0.4,
            "attention_multiplier": 0.1,
            "tie_word_embeddings": True,
        },
    ),
    "olmo2-norms-after": ("olmo2", {}),
    "olmo3-two-ropes": ("olmo3", {"sliding_window": 24, "layer_types": _SLIDING_FULL, "rope_scaling": _YARN_ROPE}),
    "smollm3-no-rope-layer": ("smollm3", {"no_rope_layers": [1, 0, 1]}),
    "ministral3-growing-queries": (
        "ministral3",
        {"head_dim": 32, "rope_parameters": {**_YARN_ROPE, "llama_4_scaling_beta": 0.5}},
    ),
    "glm-partial-interleaved": ("glm", {"head_dim": 32}),
    "glm4-norms-around": ("glm4", {"head_dim": 32}),
    "qwen3.5-gated-delta": (
        "qwen3_5_text",
        {
            "head_dim": 32,
            "num_hidden_layers": 5,
            "layer_types": ["linear_attention", "full_attention"] * 2 + ["linear_attention"],
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 24,
        },
    ),
    "qwen3-next-interleaved": (
        "qwen3_next",
        {
            "head_dim": 32,
            "num_hidden_layers": 5,
            "mlp_only_layers": list(range(5)),
            "layer_types": ["linear_attention", "full_attention"] * 2 + ["linear_attention"],
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 6,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 24,
        },
    ),
    "qwen3-next-experts": (
        "qwen3_next",
        {
            "head_dim": 32,
            "num_hidden_layers": 3,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 24,
            "num_experts": 6,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 40,
            "shared_expert_intermediate_size": 56,
        },
    ),
    "qwen3.5-experts": (
        "qwen3_5_moe_text",
        {
            "head_dim": 32,
            "num_hidden_layers": 3,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 24,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 40,
            "shared_expert_intermediate_size": 56,
        },
    ),
    "olmo-hybrid": (
        "olmo_hybrid",
        {
            "num_hidden_layers": 5,
            "layer_types": ["linear_attention", "full_attention"] * 2 + ["linear_attention"],
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 12,
            "rope_parameters": {"rope_type": "default", "rope_theta": None},
            "linear_value_head_dim": 24,
        },
    ),
    "mixtral-experts": ("mixtral", {"num_local_experts": 4, "sliding_window": 40}),
    "olmoe-experts": ("olmoe", {"num_experts": 6, "num_experts_per_tok": 3, "intermediate_size": 40}),
    "qwen3-some-layers-with-experts": (
        "qwen3_moe",
        {
            "head_dim": 32,
            "num_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 40,
            "norm_topk_prob": True,
            "mlp_only_layers": [1],
        },
    ),
    "gpt-oss-sinks-and-experts": (
        "gpt_oss",
        {
            "head_dim": 32,
            "intermediate_size": 64,
            "num_local_experts": 6,
            "num_experts_per_tok": 3,
            "sliding_window": 24,
            "swiglu_limit": 0.7,
            "rope_parameters": {**_YARN_ROPE, "truncate": False},
        },
    ),
    "glm4-experts": (
        "glm4_moe",
        {
            "head_dim": 32,
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 40,
            "n_shared_experts": 2,
            "n_group": 4,
            "topk_group": 2,
            "routed_scaling_factor": 1.7,
            "use_qk_norm": True,
            "attention_bias": True,
        },
    ),
    "cohere2-parallel": ("cohere2", {"sliding_window": 24, "layer_types": _SLIDING_FULL, "logit_scale": 0.3}),
}

_ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
ADAPTERS: dict[str, dict[str, Any]] = {
    "attention-r8": {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "k_proj", "v_proj", "o_proj"]},
    "all-linear-r16-rslora": {"r": 16, "lora_alpha": 8, "use_rslora": True, "target_modules": "all-linear"},
    "v-only-r1": {"r": 1, "lora_alpha": 4, "target_modules": ["v_proj"]},
    "mlp-r5": {"r": 5, "lora_alpha": 7, "target_modules": ["gate_proj", "up_proj", "down_proj"]},
    "qv-r32": {"r": 32, "lora_alpha": 32, "target_modules": ["q_proj", "v_proj"]},
    "patterns": {
        "r": 4,
        "lora_alpha": 8,
        "target_modules": _ALL,
        "rank_pattern": {"q_proj": 12, "layers.1.mlp.down_proj": 20},
        "alpha_pattern": {"o_proj": 3},
    },
    "one-layer-r64": {"r": 64, "lora_alpha": 64, "target_modules": _ALL, "layers_to_transform": [1]},
    "down-r256": {"r": 256, "lora_alpha": 64, "target_modules": ["down_proj"]},
    "dora-r6": {"r": 6, "lora_alpha": 9, "use_dora": True, "target_modules": _ALL},
    "lora-bias-r4": {"r": 4, "lora_alpha": 6, "lora_bias": True, "target_modules": ["q_proj", "o_proj", "down_proj"]},
}
_STORED_AS = {"mlp-r5": torch.float16, "qv-r32": torch.bfloat16}


def save_model(family: str, folder: Path, seed: int = 0, **shape: Any) -> PreTrainedModel:
    """Write a random model of ``family`` (of another ``shape``) in Hugging Face format; returns it in float32."""
    from transformers import AutoModelForCausalLM
    from transformers.models.auto import CONFIG_MAPPING

    kind, overrides = FAMILIES[family]
    config = CONFIG_MAPPING[kind](**{**_SHAPE, **overrides, **shape})
    config._attn_implementation = config._experts_implementation = "eager"
    torch.manual_seed(seed)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config).eval()
    if kind == "gpt_oss":  # transformers before 5.23, as on some GPU machines, has 7.0 whatever the configuration says
        for layer in model.model.layers:
            layer.mlp.experts.limit = overrides["swiglu_limit"]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.08)
    model.save_pretrained(folder, max_shard_size="200KB" if family == "qwen2-qkv-bias" else "1GB")
    save_tokenizer(folder)
    if kind == "qwen3_next":  # by this name PEFT takes the targets of a dense MLP for those of experts
        model.config.model_type = "qwen3_next_dense"
    return model


def save_tokenizer(folder: Path) -> None:
    """A byte-level tokenizer without merges: 256 bytes, then placeholders up to the vocabulary's size."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {symbol: index for index, symbol in enumerate(alphabet)}
    vocab |= {f"<extra_{index}>": index for index in range(len(vocab), VOCAB)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))


# A context within which transformers takes the short factors for every request.
ENGINE_SETTINGS: dict[str, dict[str, Any]] = {"phi4-mini-longrope-partial": {"max_context": 128}}

_FUSED = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj", "gate_proj": "gate_up_proj",
          "up_proj": "gate_up_proj"}  # fmt: skip
# Modules of attention that have LoRA instead in models with experts: PEFT would put it on the experts too.
_ATTENTION = {"gate_proj": "k_proj", "up_proj": "v_proj", "down_proj": "o_proj"}


def adapter_settings(name: str, model: PreTrainedModel) -> dict[str, Any]:
    """Return the settings of the named variant, limited to modules that the model has."""
    modules = {key.rsplit(".", 1)[-1] for key, _ in model.named_modules()}
    settings = dict(ADAPTERS[name])
    if "experts" in modules:
        modules, instead = {*_ALL} - {*_ATTENTION}, _ATTENTION
        if settings["target_modules"] == "all-linear":
            settings["target_modules"] = _ALL
    else:
        instead = _FUSED

    def there(target: str) -> str:
        module = target.rsplit(".", 1)[-1]
        return target if module in modules else instead[module]

    for key in ("target_modules", "rank_pattern", "alpha_pattern"):
        value = settings.get(key)
        if isinstance(value, list):
            settings[key] = sorted({there(target) for target in value})
        elif isinstance(value, dict):
            settings[key] = {there(target): number for target, number in value.items()}
    return settings


@cache
def _peft() -> Any:
    """Return the module of PEFT, which then saves models without a card: its template takes 20 ms each time."""
    import peft

    peft.PeftModel.create_or_update_model_card = lambda model, folder: None
    return peft


def save_adapter(name: str, model: PreTrainedModel, folder: Path, seed: int = 1) -> Path:
    """Write a random adapter of the named variant as PEFT writes it; ``model`` is left as it was."""
    peft = _peft()

    torch.manual_seed(seed)
    settings = adapter_settings(name, model)
    peft_model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, **settings))
    with torch.no_grad():
        for key, parameter in peft_model.named_parameters():
            if "lora_magnitude_vector" in key:
                parameter.mul_(1 + 0.3 * torch.randn_like(parameter))
            elif "lora_" in key:
                parameter.copy_(torch.randn_like(parameter) * 0.08)
                if name in _STORED_AS:
                    parameter.data = parameter.data.to(_STORED_AS[name])
    peft_model.save_pretrained(str(folder))
    peft_model.unload()
    return folder


def save_scaled_adapter(
    model: PreTrainedModel,
    folder: Path,
    targets: list[str],
    alpha: float,
    size: float,
    dtype: torch.dtype = torch.float32,
) -> Path:
    """Write an adapter of rank 1 with random weights of about ``size``; ``model`` is left as it was."""
    peft = _peft()

    torch.manual_seed(1)
    settings: dict[str, Any] = {"r": 1, "lora_alpha": alpha}  # a float works too, whatever its type says
    config = peft.LoraConfig(task_type="CAUSAL_LM", init_lora_weights=False, target_modules=targets, **settings)
    peft_model = peft.get_peft_model(model, config)
    with torch.no_grad():
        for key, parameter in peft_model.named_parameters():
            if "lora_" in key:
                parameter.copy_(torch.randn_like(parameter) * size)
                parameter.data = parameter.data.to(dtype)
    peft_model.save_pretrained(str(folder))
    peft_model.unload()
    return folder


@dataclass(frozen=True)
class Adapter:
    """An adapter on disk, and what the engine calls it."""

    name: str
    folder: Path
    digest: str


def geometry_of(engine: Engine) -> BaseGeometry:
    from lora_engine.server.process import base_geometry

    return base_geometry(engine.loaded)


def adapter_at(name: str, folder: Path) -> Adapter:
    return Adapter(name, folder, adapter_digest(folder_digests(folder)))


def pack_for(engine: Engine, adapter: Adapter) -> PackedAdapter:
    """Validate and pack an adapter for ``engine``, as staging does; for a rank without a leader only its part."""
    packer = PoolPacker(
        geometry_of(engine),
        AdapterLimits(max_rank=engine.config.max_lora_rank),
        engine.pool.geometry,
        engine.targets,
        engine.pool.data.dtype,
        PinnedSlabs(1 << 22) if engine.pool.data.is_cuda and engine.targets.world == 1 else PageableMemory(),
        base_embedding_layers(engine.config, engine.loaded),
        modules=base_modules(engine.config, engine.loaded),
        fp8=engine.loaded.fp8_adapters,
    )
    packed = packer.pack(adapter.digest, adapter.folder)
    if packed.of_ranks is None:
        return packed
    return replace(packed, data=packed.of_ranks[engine.targets.rank], of_ranks=None)
