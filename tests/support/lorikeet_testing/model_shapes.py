"""The layer shapes of models that people serve, as their configurations on Hugging Face give them."""

from __future__ import annotations

from typing import NamedTuple

from lora_kernels.tables import Group


class Shape(NamedTuple):
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int

    @property
    def kv_dim(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def groups(self) -> tuple[Group, ...]:
        """The target groups of LoRA kernels."""
        q = self.heads * self.head_dim
        return (
            Group("qkv", 0, self.hidden, (q, self.kv_dim, self.kv_dim)),
            Group("o", 3, q, (self.hidden,)),
            Group("gate_up", 4, self.hidden, (self.inner, self.inner)),
            Group("down", 6, self.inner, (self.hidden,)),
        )

    def scaled(self) -> Shape:
        """Small enough for Triton's interpreter, with every factor that is no power of two kept."""
        heads, kv_heads = self.heads, self.kv_heads
        while heads % 2 == 0 and kv_heads % 2 == 0 and kv_heads > 2:
            heads, kv_heads = heads // 2, kv_heads // 2
        head_dim = _halved(self.head_dim, 20)
        while kv_heads * head_dim % 16:  # what a matrix instruction takes
            head_dim *= 2
        return Shape(_halved(self.hidden, 90), heads, kv_heads, head_dim, _halved(self.inner, 90), 127)


def _halved(size: int, most: int) -> int:
    """Return the number halved while it is even and above ``most``."""
    while size > most and size % 2 == 0:
        size //= 2
    return size


SHAPES = {
    "SmolLM-135M": Shape(576, 9, 3, 64, 1536, 49152),
    "SmolLM-360M": Shape(960, 15, 5, 64, 2560, 49152),
    "SmolLM-1.7B": Shape(2048, 32, 32, 64, 8192, 49152),
    "SmolLM3-3B": Shape(2048, 16, 4, 128, 11008, 128256),
    "TinyLlama-1.1B": Shape(2048, 32, 4, 64, 5632, 32000),
    "Qwen2.5-0.5B": Shape(896, 14, 2, 64, 4864, 151936),
    "Qwen2.5-1.5B": Shape(1536, 12, 2, 128, 8960, 151936),
    "Qwen2.5-3B": Shape(2048, 16, 2, 128, 11008, 151936),
    "Qwen2.5-7B": Shape(3584, 28, 4, 128, 18944, 152064),
    "Qwen2.5-14B": Shape(5120, 40, 8, 128, 13824, 152064),
    "Qwen2.5-32B": Shape(5120, 40, 8, 128, 27648, 152064),
    "Qwen2.5-72B": Shape(8192, 64, 8, 128, 29568, 152064),
    "Qwen3-0.6B": Shape(1024, 16, 8, 128, 3072, 151936),
    "Qwen3-1.7B": Shape(2048, 16, 8, 128, 6144, 151936),
    "Qwen3-4B": Shape(2560, 32, 8, 128, 9728, 151936),
    "Qwen3-8B": Shape(4096, 32, 8, 128, 12288, 151936),
    "Qwen3-14B": Shape(5120, 40, 8, 128, 17408, 151936),
    "Qwen3-32B": Shape(5120, 64, 8, 128, 25600, 151936),
    "Llama-3.2-1B": Shape(2048, 32, 8, 64, 8192, 128256),
    "Llama-3.2-3B": Shape(3072, 24, 8, 128, 8192, 128256),
    "Llama-3.1-8B": Shape(4096, 32, 8, 128, 14336, 128256),
    "Llama-3.1-70B": Shape(8192, 64, 8, 128, 28672, 128256),
    "Llama-2-7B": Shape(4096, 32, 32, 128, 11008, 32000),
    "Llama-2-13B": Shape(5120, 40, 40, 128, 13824, 32000),
    "LLaMA-30B": Shape(6656, 52, 52, 128, 17920, 32000),
    "LLaMA-65B": Shape(8192, 64, 64, 128, 22016, 32000),
    "Mistral-7B": Shape(4096, 32, 8, 128, 14336, 32768),
    "Mistral-Nemo-12B": Shape(5120, 32, 8, 128, 14336, 131072),
    "Mistral-Small-24B": Shape(5120, 32, 8, 128, 32768, 131072),
    "Ministral-8B": Shape(4096, 32, 8, 128, 12288, 131072),
    "Yi-34B": Shape(7168, 56, 8, 128, 20480, 64000),
    "Phi-2": Shape(2560, 32, 32, 80, 10240, 51200),
    "Phi-3-mini": Shape(3072, 32, 32, 96, 8192, 32064),
    "Phi-4": Shape(5120, 40, 10, 128, 17920, 100352),
    "Granite-3.1-2B": Shape(2048, 32, 8, 64, 8192, 49155),
    "Granite-3.1-8B": Shape(4096, 32, 8, 128, 12800, 49155),
    "OLMo-2-7B": Shape(4096, 32, 32, 128, 11008, 100352),
    "OLMo-3-7B": Shape(4096, 32, 32, 128, 11008, 100278),
    "GLM-4-9B": Shape(4096, 32, 2, 128, 13696, 151552),
    "GLM-4-9B-0414": Shape(4096, 32, 2, 128, 13696, 151552),
    "Ministral-3-8B": Shape(4096, 32, 8, 128, 14336, 131072),
    "Command-R7B": Shape(4096, 32, 8, 128, 14336, 256000),
    "Gemma-2-2B": Shape(2304, 8, 4, 256, 9216, 256000),
    "Gemma-2-9B": Shape(3584, 16, 8, 256, 14336, 256000),
    "Gemma-2-27B": Shape(4608, 32, 16, 128, 36864, 256000),
    "Gemma-3-1B": Shape(1152, 4, 1, 256, 6912, 262144),
    "Gemma-3-4B": Shape(2560, 8, 4, 256, 10240, 262208),
    "Gemma-3-12B": Shape(3840, 16, 8, 256, 15360, 262208),
    "Gemma-3-27B": Shape(5376, 32, 16, 128, 21504, 262208),
}

# Names that begin so are of this family; the longest counts, and llama where none does.
_FAMILIES = {
    "SmolLM3": "smollm3", "Qwen2": "qwen2", "Qwen3": "qwen3", "Mistral": "mistral", "Ministral": "mistral",
    "Ministral-3": "ministral3", "Phi-3": "phi3", "Phi-4": "phi3", "Granite": "granite", "OLMo-2": "olmo2",
    "OLMo-3": "olmo3", "GLM-4-9B": "glm", "GLM-4-9B-0414": "glm4", "Gemma-2": "gemma2", "Gemma-3": "gemma3_text",
    "Command": "cohere2",
}  # fmt: skip


def family_of(name: str) -> str:
    """The ``model_type`` of one of ``SHAPES``."""
    prefixes = [prefix for prefix in _FAMILIES if name.startswith(prefix)]
    return _FAMILIES[max(prefixes, key=len)] if prefixes else "llama"
