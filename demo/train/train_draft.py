"""Trains the demo model's draft head, an EAGLE-3 head in the published layout, without any adapter.

    python -m demo.train.train_draft --model demo/model --out demo/draft

The head learns the base model's own distribution on generated dialogues, first after the base's hidden states and then,
by the loss of further passes, after its own, which stand in for them while it drafts several tokens. It has no output
matrix: it uses the base's. The same seeds on the same machine make the same head.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from demo.train.adapters_corpus import VOICES, voice_chats
from demo.train.corpus import chats
from demo.train.packing import encode_chats, pack, pad_id
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import nn
from transformers import AutoModelForCausalLM

ROW = 256
HEADS, KV_HEADS, HEAD_DIM, INNER = 4, 2, 32, 160
# Layers whose inputs are the head's features, by vLLM's numbering: layer 0's input is the embedding.
LAYERS = (1, 3, 4)
# Passes of the loss: the first after the base's hidden states, each other one after the pass before.
PASSES = 2
# Weight of each pass relative to the one before: the first draft decides whether a second is worth its row.
DECAY = 0.8


class Norm(nn.Module):
    """RMSNorm."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight, self._eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self._eps))


class Attention(nn.Module):
    """Causal attention over inputs of twice the hidden size."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(2 * hidden, HEADS * HEAD_DIM, bias=False)
        self.k_proj = nn.Linear(2 * hidden, KV_HEADS * HEAD_DIM, bias=False)
        self.v_proj = nn.Linear(2 * hidden, KV_HEADS * HEAD_DIM, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_DIM, hidden, bias=False)

    def forward(self, x: torch.Tensor, rotary: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        rows, tokens, _ = x.shape
        q = self.q_proj(x).view(rows, tokens, HEADS, HEAD_DIM).transpose(1, 2)
        k = self.k_proj(x).view(rows, tokens, KV_HEADS, HEAD_DIM).transpose(1, 2)
        v = self.v_proj(x).view(rows, tokens, KV_HEADS, HEAD_DIM).transpose(1, 2)
        q, k = rotate(q, rotary), rotate(k, rotary)
        k, v = (one.repeat_interleave(HEADS // KV_HEADS, dim=1) for one in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).reshape(rows, tokens, -1))  # type: ignore[no-any-return]


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, INNER, bias=False)
        self.up_proj = nn.Linear(hidden, INNER, bias=False)
        self.down_proj = nn.Linear(INNER, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))  # type: ignore[no-any-return]


class Layer(nn.Module):
    """The head's decoder layer, over an embedding and a feature."""

    def __init__(self, hidden: int, eps: float) -> None:
        super().__init__()
        self.input_layernorm, self.hidden_norm = Norm(hidden, eps), Norm(hidden, eps)
        self.self_attn, self.mlp = Attention(hidden), Mlp(hidden)
        self.post_attention_layernorm = Norm(hidden, eps)

    def forward(
        self, embedded: torch.Tensor, features: torch.Tensor, rotary: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        x = torch.cat((self.input_layernorm(embedded), self.hidden_norm(features)), -1)
        features = features + self.self_attn(x, rotary)
        return features + self.mlp(self.post_attention_layernorm(features))  # type: ignore[no-any-return]


class Head(nn.Module):
    """The head, with the names of published EAGLE-3 heads."""

    def __init__(self, hidden: int, eps: float) -> None:
        super().__init__()
        self.fc = nn.Linear(len(LAYERS) * hidden, hidden, bias=False)
        self.midlayer = Layer(hidden, eps)
        self.norm = Norm(hidden, eps)


def rotate(x: torch.Tensor, rotary: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * rotary[0] + torch.cat((-second, first), -1) * rotary[1]


def rotary_table(tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    frequencies = 1.0 / 10_000.0 ** (torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    angles = torch.outer(torch.arange(tokens).float(), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def corpus(model: Path, dialogues: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows of tokens, and which of them an assistant says."""
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    talks = list(chats(7, dialogues))
    for name in VOICES:
        talks += voice_chats(name, 7, dialogues // 50, instructed=True)
    ids, labels = pack(encode_chats(tokenizer, talks), ROW, pad_id(tokenizer))
    return torch.from_numpy(ids).long(), torch.from_numpy(labels) >= 0


@torch.no_grad()
def targets(base: Any, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the base's features and its last hidden states, from which its logits follow."""
    out = base(input_ids=ids, output_hidden_states=True, use_cache=False)
    states = out.hidden_states
    return torch.cat([states[layer] for layer in LAYERS], -1), states[-1]


def batches(count: int, rows: int, steps: int) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    order, place = torch.randperm(count, generator=generator), 0
    for _ in range(steps):
        if place + rows > count:
            order, place = torch.randperm(count, generator=generator), 0
        yield order[place : place + rows]
        place += rows


def train(model: Path, out: Path, dialogues: int, steps: int, rows: int, rate: float) -> None:
    torch.manual_seed(3)
    began = time.monotonic()
    base: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    ids, spoken = corpus(model, dialogues)
    print(f"{len(ids)} rows of {ROW}, {int(spoken.sum())} tokens count, {time.monotonic() - began:.0f}s", flush=True)
    hidden, eps = base.config.hidden_size, base.config.rms_norm_eps
    head, embedding = Head(hidden, eps), base.get_input_embeddings().weight.detach()
    lm_head, rotary = base.get_output_embeddings().weight.detach(), rotary_table(ROW)
    optimiser = torch.optim.AdamW(head.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    right = torch.zeros(PASSES)
    for step, take in enumerate(batches(len(ids), rows, steps)):
        progress = step / steps
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1.0, progress / 0.03 + 1e-3) * min(1.0, 1.25 * (1 - progress))
        tokens, counts = ids[take], spoken[take]
        states, last = targets(base, tokens)
        features, loss = head.fc(states[:, :-1]), torch.zeros(())
        embedded = F.embedding(tokens, embedding)
        hits = []
        for number in range(PASSES):
            # The row of position p has the feature of p and the token p + 1, and predicts the token p + 2.
            made = head.midlayer(embedded[:, 1 + number :], features, rotary_of(rotary, number, ROW - 1 - number))
            counted = counts[:, 2 + number :]
            logits = head.norm(made[:, :-1][counted]) @ lm_head.T
            wanted = (last[:, 1 + number : -1][counted] @ lm_head.T).softmax(-1)
            loss = loss - DECAY**number * (wanted * logits.log_softmax(-1)).sum(-1).mean()
            hits.append((logits.argmax(-1) == wanted.argmax(-1)).float().mean())
            features = made[:, :-1]
        loss.backward()
        nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        right = 0.95 * right + 0.05 * torch.stack(hits).detach() if step else torch.stack(hits).detach()
        if step % 50 == 0 or step == steps - 1:
            shares = " ".join(f"{share:.3f}" for share in right.tolist())
            print(f"step {step} loss {loss.item():.3f} right {shares} {time.monotonic() - began:.0f}s", flush=True)
    save(head, base.config, out, {"steps": steps, "rows": rows, "dialogues": dialogues, "right": right.tolist()})


def rotary_of(rotary: tuple[torch.Tensor, torch.Tensor], start: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return rotary[0][start : start + count], rotary[1][start : start + count]


def save(head: Head, base: Any, out: Path, record: dict[str, Any]) -> None:
    """Write the head in bf16, as published heads are laid out."""
    out.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().to(torch.bfloat16).contiguous() for name, tensor in head.state_dict().items()}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    (out / "model.safetensors").chmod(0o644)
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": base.hidden_size,
        "intermediate_size": INNER,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": base.max_position_embeddings,
        "rms_norm_eps": base.rms_norm_eps,
        "rope_theta": 10000.0,
        "vocab_size": base.vocab_size,
        "draft_vocab_size": base.vocab_size,
        "eagle_aux_hidden_state_layer_ids": list(LAYERS),
        "torch_dtype": "bfloat16",
    }
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    record["right"] = [round(share, 3) for share in record["right"]]
    (out / "training.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("demo/model"))
    parser.add_argument("--out", type=Path, default=Path("demo/draft"))
    parser.add_argument("--dialogues", type=int, default=5000)
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--rows", type=int, default=8, help="rows of 256 tokens in a batch")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    args = parser.parse_args()
    train(args.model, args.out, args.dialogues, args.steps, args.rows, args.learning_rate)
