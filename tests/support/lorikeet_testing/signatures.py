"""A base model and LoRA adapters whose answers say which adapter computed them.

A token is a phase (0 to 3) and one of 64 symbols. A token of phase p is followed by one of phase p + 1, and the adapter
alone decides which symbol each phase has: its signature, four symbols. The base model's signature is symbol 0 in every
phase, which no adapter has. So a single token tells an adapter from another one with a probability of 62/63, and from
the base model and from the version that it replaced with certainty.

A signature is split into shares, as in secret sharing. Each share comes from another LoRA module: ``v_proj`` and
``down_proj`` of both layers, for most adapters ``o_proj`` and ``up_proj`` too. A share by itself is noise, and only the
sum of all shares of one adapter is a symbol. What ``v_proj`` adds lies in the KV cache, and attention takes its mean
over all positions (queries and keys are zero), so a cached page that another adapter computed changes the sum too. The
last layer's ``down_proj`` closes the sum: its share is what the others lack.

Every module's delta is smaller than the largest element of the base's matrix, which only reads a feature that is always
zero. So every adapter may be merged (``model/merging.py``).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from lora_engine.peft_format import CONFIG_FILE, WEIGHTS_FILE, adapter_digest, folder_digests
from lora_engine.peft_format.safetensors_writer import NewTensor, write_safetensors

Array = npt.NDArray[np.float64]

PHASES, SYMBOLS = 4, 64
VOCAB = PHASES * SYMBOLS
LAYERS = 2
MAX_CONTEXT = 512
RANKS = (4, 8, 16)

_BLOCK = SYMBOLS // 2  # a symbol is one of so many axes, with a sign
_HEADS, _KV_HEADS, _HEAD = 4, 2, _BLOCK
_HIDDEN, _INNER = 5 * _BLOCK, 2 * _BLOCK
_EPS = 1e-6
# Features of the residual stream: one block for the shares of each kind of module, all read by the head as their sum.
_V, _O, _UP, _DOWN = (slice(block * _BLOCK, (block + 1) * _BLOCK) for block in range(4))
_ONE = 4 * _BLOCK  # the same for every token
_PHASE = _ONE + 1
_ZERO = _PHASE + PHASES  # zero for every token
_ATTENDED_ONE = 2 * _HEAD  # first feature of the first query head that reads the second KV head
_ATTENDED_ZERO = _ATTENDED_ONE + 1
_INNER_ZERO = _BLOCK - 1
_INNER_UP = slice(_BLOCK, 2 * _BLOCK)

_LARGE = 64.0  # the base's largest elements, which multiply zeros
_LEVEL = 8.0  # of the constant feature, and of the phase's
_SYMBOL = 2.0  # length of a symbol's vector
_SHARE = 2.0  # size of each element of a share
_SHARPNESS = 100.0  # of the logits: the likeliest token has all the probability


def save_base(folder: Path) -> None:
    """Write the base model as Hugging Face does, with a tokenizer of one token for each byte."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": _HIDDEN, "intermediate_size": _INNER, "num_hidden_layers": LAYERS,
        "num_attention_heads": _HEADS, "num_key_value_heads": _KV_HEADS, "head_dim": _HEAD, "vocab_size": VOCAB,
        "max_position_embeddings": MAX_CONTEXT, "rms_norm_eps": _EPS, "rope_theta": 10_000.0,
        "tie_word_embeddings": False, "torch_dtype": "float32",
        "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    _write(folder / "model.safetensors", dict(_base_weights()))
    alphabet = {symbol: index for index, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))


def _base_weights() -> Iterator[tuple[str, Array]]:
    embedding, head = np.zeros((VOCAB, _HIDDEN)), np.zeros((VOCAB, _HIDDEN))
    for token in range(VOCAB):
        symbol, phase = divmod(token, PHASES)
        embedding[token, _ONE] = embedding[token, _PHASE + phase] = _LEVEL
        embedding[token, _DOWN] = _vector(0)
        for block in (_V, _O, _UP, _DOWN):
            head[token, block] = _vector(symbol)
        head[token, _PHASE + (phase - 1) % PHASES] = 1.0
    yield "model.embed_tokens.weight", embedding
    yield "lm_head.weight", head * _SHARPNESS
    yield "model.norm.weight", np.ones(_HIDDEN)
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        yield f"{name}.input_layernorm.weight", np.ones(_HIDDEN)
        yield f"{name}.post_attention_layernorm.weight", np.ones(_HIDDEN)
        yield f"{name}.self_attn.q_proj.weight", np.zeros((_HEADS * _HEAD, _HIDDEN))
        yield f"{name}.self_attn.k_proj.weight", np.zeros((_KV_HEADS * _HEAD, _HIDDEN))
        v = np.zeros((_KV_HEADS * _HEAD, _HIDDEN))
        v[_HEAD, _ONE] = 1.0
        v[0, _ZERO] = _LARGE
        yield f"{name}.self_attn.v_proj.weight", v
        o = np.zeros((_HIDDEN, _HEADS * _HEAD))
        for head_of_v in range(2):
            o[_V, head_of_v * _HEAD : (head_of_v + 1) * _HEAD] += np.eye(_BLOCK) / 2
        o[0, _ATTENDED_ZERO] = _LARGE
        yield f"{name}.self_attn.o_proj.weight", o
        gate = np.zeros((_INNER, _HIDDEN))
        gate[:, _ONE] = 1.0
        yield f"{name}.mlp.gate_proj.weight", gate
        up = np.zeros((_INNER, _HIDDEN))
        up[:PHASES, _PHASE : _PHASE + PHASES] = np.eye(PHASES)
        up[0, _ZERO] = _LARGE
        yield f"{name}.mlp.up_proj.weight", up
        down = np.zeros((_HIDDEN, _INNER))
        down[_UP, _INNER_UP] = np.eye(_BLOCK) / 2
        down[0, _INNER_ZERO] = _LARGE
        yield f"{name}.mlp.down_proj.weight", down


@dataclass(frozen=True, slots=True)
class Signature:
    """The symbols of the tokens that an adapter writes, by their phase."""

    symbols: tuple[int, ...]

    def answer(self, prompt: Sequence[int], tokens: int) -> list[int]:
        """Return the token ids that follow the prompt."""
        first = prompt[-1] % PHASES + 1
        return [self.symbols[at % PHASES] * PHASES + at % PHASES for at in range(first, first + tokens)]


BASE = Signature((0,) * PHASES)


def new_signature(rnd: random.Random, previous: Signature = BASE) -> Signature:
    """Return a random signature that differs from the base's and the previous one's in every phase."""
    return Signature(tuple(rnd.choice([s for s in range(1, SYMBOLS) if s != old]) for old in previous.symbols))


def save_signed(folder: Path, signature: Signature, rnd: random.Random, rank: int = 0) -> str:
    """Write an adapter with this signature as PEFT does; of one of ``RANKS``, at random if 0. Returns its digest."""
    folder.mkdir(parents=True)
    rank = rank or rnd.choice(RANKS)
    alpha = rnd.choice((rank / 2, rank, 2 * rank))
    modules = {"v_proj", "down_proj", *rnd.sample(["o_proj", "up_proj"], rnd.choice((0, 1, 2, 2)))}
    writer = _Adapter(rank, alpha / rank, modules, np.random.default_rng(rnd.getrandbits(64)))
    writer.write_layers(signature)
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "signatures", "r": rank,
        "lora_alpha": alpha, "target_modules": sorted(modules), "bias": "none", "fan_in_fan_out": False,
    }  # fmt: skip
    (folder / CONFIG_FILE).write_text(json.dumps(config))
    _write(folder / WEIGHTS_FILE, writer.tensors)
    return adapter_digest(folder_digests(folder))


class _Adapter:
    """The matrices of one adapter. Residual streams ``[phases, hidden]`` are those of its tokens."""

    def __init__(self, rank: int, scale: float, modules: set[str], rng: np.random.Generator) -> None:
        self.tensors: dict[str, Array] = {}
        self._rank, self._scale, self._modules, self._rng = rank, scale, modules, rng

    def write_layers(self, signature: Signature) -> None:
        stream = np.zeros((PHASES, _HIDDEN))
        stream[:, _ONE] = _LEVEL
        stream[:, _PHASE : _PHASE + PHASES] = np.eye(PHASES) * _LEVEL
        stream[:, _DOWN] = _vector(0)
        for layer in range(LAYERS):
            level = _normed(stream)[0, _ONE]  # of all phases, so that cached values do not depend on the token
            stream[:, _V] += self._add(
                layer, "self_attn.v_proj", [_ONE], np.full(1, level), self._share(1), slice(0, _BLOCK)
            )
            if "o_proj" in self._modules:
                stream[:, _O] += self._add(
                    layer, "self_attn.o_proj", [_ATTENDED_ONE], np.full(1, level), self._share(1), _O
                )
            inner = _normed(stream)
            gate = _silu(inner[:, _ONE])
            of_phase = inner[:, _PHASE : _PHASE + PHASES].diagonal()
            if "up_proj" in self._modules:
                features = range(_PHASE, _PHASE + PHASES)
                stream[:, _UP] += self._add(
                    layer, "mlp.up_proj", features, of_phase, self._share(), _INNER_UP, 2 / gate
                )
            if layer == LAYERS - 1:
                wanted = np.stack([_vector(signature.symbols[(phase + 1) % PHASES]) for phase in range(PHASES)])
                share = wanted - sum(stream[:, block] for block in (_V, _O, _UP, _DOWN))
            else:
                share = self._share()
                share[:, 0] = _SHARE  # beside the base's symbol: the stream is equally long in every phase
            stream[:, _DOWN] += self._add(layer, "mlp.down_proj", range(PHASES), gate * of_phase, share, _DOWN)

    def _share(self, phases: int = PHASES) -> Array:
        return self._rng.choice([-_SHARE, _SHARE], (phases, _BLOCK))

    def _add(
        self,
        layer: int,
        module: str,
        features: Sequence[int],
        inputs: Array,
        share: Array,
        place: slice,
        factor: Array | float = 1.0,
    ) -> Array:
        """Add LoRA matrices by which a module adds ``share`` times ``factor`` to its outputs at ``place``.

        Each feature of ``features``, which has its input of ``inputs``, adds its row of the share. Returns the share.
        """
        wide = {"v_proj": (_HIDDEN, _KV_HEADS * _HEAD), "o_proj": (_HEADS * _HEAD, _HIDDEN),
                "up_proj": (_HIDDEN, _INNER), "down_proj": (_INNER, _HIDDEN)}  # fmt: skip
        num_inputs, num_outputs = wide[module.split(".")[1]]
        a, b = np.zeros((self._rank, num_inputs)), np.zeros((num_outputs, self._rank))
        outputs = share * np.reshape(factor, (-1, 1)) / inputs[:, None]
        copies = self._rank // len(features)
        for row in range(self._rank):
            which = row % len(features)
            a[row, features[which]] = size = self._rng.uniform(0.5, 1.5) * self._rng.choice([-1, 1])
            b[place, row] = outputs[which] / (self._scale * copies * size)
        name = f"base_model.model.model.layers.{layer}.{module}"
        self.tensors[f"{name}.lora_A.weight"], self.tensors[f"{name}.lora_B.weight"] = a, b
        return share


def _vector(symbol: int) -> Array:
    vector = np.zeros(_BLOCK)
    vector[symbol % _BLOCK] = _SYMBOL if symbol < _BLOCK else -_SYMBOL
    return vector


def _normed(stream: Array) -> Array:
    normed: Array = stream / np.sqrt((stream**2).mean(1, keepdims=True) + _EPS)
    return normed


def _silu(values: Array) -> Array:
    result: Array = values / (1 + np.exp(-values))
    return result


def _write(path: Path, tensors: dict[str, Array]) -> None:
    def tensor(name: str, values: Array) -> NewTensor:
        return NewTensor(name, "F32", values.shape, lambda: [np.ascontiguousarray(values, dtype=np.float32)])

    write_safetensors(path, [tensor(name, values) for name, values in tensors.items()])


def most_likely_owner(tokens: Sequence[int], signatures: dict[str, Signature]) -> str:
    """Return the adapter whose signature explains most of the tokens, for the report of a wrong answer."""

    def explained(signature: Signature) -> int:
        return sum(token == signature.symbols[token % PHASES] * PHASES + token % PHASES for token in tokens)

    best = max(signatures, key=lambda name: explained(signatures[name]), default="")
    return f"{best} ({explained(signatures[best])} of {len(tokens)})" if best else "unknown"
