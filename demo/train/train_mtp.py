"""Trains the layer that predicts a further token (MTP) of the hybrid demo model, without any adapter.

    python -m demo.train.train_mtp --model demo/hybrid/model

The layer reads the base's states after the last norm and the next token's embedding, as published layers of Qwen 3.5
do, and learns the base's own distribution on generated dialogues; in a second pass it reads its own output. It begins
as a copy of the base's last layer. Its tensors are added to the model's file, whose others stay as they are. The same
seeds on the same machine make the same layer.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from demo.train.train_draft import DECAY, PASSES, ROW, batches, corpus
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM


class Mtp(nn.Module):
    """The layer, with the names of published ones."""

    def __init__(self, base: Any) -> None:
        super().__init__()
        config, hidden = copy.deepcopy(base.config), base.config.hidden_size
        config.num_hidden_layers, config.layer_types = 1, ["full_attention"]
        last = base.model.layers[-1]
        self.layers = nn.ModuleList([type(last)(config, 0)])
        self.layers[0].load_state_dict(last.state_dict())
        norm = type(base.model.norm)
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = (
            norm(hidden, config.rms_norm_eps) for _ in range(3)
        )
        self.norm.load_state_dict(base.model.norm.state_dict())
        self.fc = nn.Linear(2 * hidden, hidden, bias=False)
        with torch.no_grad():
            self.fc.weight.copy_(torch.cat((torch.eye(hidden), torch.eye(hidden)), 1))

    def forward(self, embedded: torch.Tensor, states: torch.Tensor, rotary: Any, positions: Any) -> torch.Tensor:
        x = self.fc(torch.cat((self.pre_fc_norm_embedding(embedded), self.pre_fc_norm_hidden(states)), -1))
        mask = torch.full((x.shape[1], x.shape[1]), float("-inf")).triu(1)[None, None]
        out = self.layers[0](x, position_embeddings=rotary, attention_mask=mask, position_ids=positions)
        return self.norm(out[0] if isinstance(out, tuple) else out)


def train(model: Path, dialogues: int, steps: int, rows: int, rate: float) -> None:
    torch.manual_seed(3)
    began = time.monotonic()
    base: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    ids, spoken = corpus(model, dialogues)
    print(f"{len(ids)} rows of {ROW}, {int(spoken.sum())} tokens count, {time.monotonic() - began:.0f}s", flush=True)
    mtp, embedding = Mtp(base), base.get_input_embeddings().weight.detach()
    lm_head = base.get_output_embeddings().weight.detach()
    optimiser = torch.optim.AdamW(mtp.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    right = torch.zeros(PASSES)
    for step, take in enumerate(batches(len(ids), rows, steps)):
        progress = step / steps
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1.0, progress / 0.03 + 1e-3) * min(1.0, 1.25 * (1 - progress))
        tokens, counts = ids[take], spoken[take]
        with torch.no_grad():
            last = base.model(input_ids=tokens, use_cache=False).last_hidden_state
        embedded, states, loss, hits = F.embedding(tokens, embedding), last[:, :-1], torch.zeros(()), []
        for number in range(PASSES):
            # The row of position p has the state of p and the token p + 1, and predicts the token p + 2.
            positions = torch.arange(number, ROW - 1)[None]
            rotary = base.model.rotary_emb(embedded, positions)
            made = mtp(embedded[:, 1 + number :], states, rotary, positions)
            counted = counts[:, 2 + number :]
            logits = made[:, :-1][counted] @ lm_head.T
            wanted = (last[:, 1 + number : -1][counted] @ lm_head.T).softmax(-1)
            loss = loss - DECAY**number * (wanted * logits.log_softmax(-1)).sum(-1).mean()
            hits.append((logits.argmax(-1) == wanted.argmax(-1)).float().mean())
            states = made[:, :-1]
        loss.backward()
        nn.utils.clip_grad_norm_(mtp.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        right = 0.95 * right + 0.05 * torch.stack(hits).detach() if step else torch.stack(hits).detach()
        if step % 50 == 0 or step == steps - 1:
            shares = " ".join(f"{share:.3f}" for share in right.tolist())
            print(f"step {step} loss {loss.item():.3f} right {shares} {time.monotonic() - began:.0f}s", flush=True)
    save(mtp, model, {"mtp_steps": steps, "mtp_right": [round(share, 3) for share in right.tolist()]})


def save(mtp: Mtp, model: Path, record: dict[str, Any]) -> None:
    """Add the tensors to the model's file in bf16, as published models have them."""
    path = model / "model.safetensors"
    tensors = {name: value for name, value in load_file(path).items() if not name.startswith("mtp.")}
    tensors |= {
        f"mtp.{name}": value.detach().to(torch.bfloat16).contiguous() for name, value in mtp.state_dict().items()
    }
    save_file(tensors, path, metadata={"format": "pt"})
    for name, changes in (("config.json", {"mtp_num_hidden_layers": 1}), ("training.json", record)):
        whole = json.loads((model / name).read_text()) | changes
        (model / name).write_text(json.dumps(whole, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("demo/hybrid/model"))
    parser.add_argument("--dialogues", type=int, default=5000)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--rows", type=int, default=8, help="rows of 256 tokens in a batch")
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    args = parser.parse_args()
    train(args.model, args.dialogues, args.steps, args.rows, args.learning_rate)
