"""Writes adapters with an older release of PEFT: ``python write.py FOLDER``, with that release in front on the path.

How each folder beside this file was made, with the libraries of its day beside the torch that is installed:

    pip install --target /tmp/peft-0.4.0 --no-deps peft==0.4.0 transformers==4.31.0 tokenizers==0.13.3 \\
        accelerate==0.21.0 huggingface-hub==0.16.4 numpy==1.26.4
    PYTHONPATH=/tmp/peft-0.4.0:.venv/lib/python3.11/site-packages python tests/engine/older_peft/write.py \\
        tests/engine/older_peft/0.4.0

| peft | transformers | tokenizers | accelerate | huggingface-hub |
|---|---|---|---|---|
| 0.4.0 | 4.31.0 | 0.13.3 | 0.21.0 | 0.16.4 |
| 0.7.1 | 4.36.2 | 0.15.2 | 0.25.0 | 0.20.3 |
| 0.10.0 | 4.39.3 | 0.15.2 | 0.28.0 | 0.22.2 |
| 0.13.2 | 4.46.3 | 0.20.3 | 1.1.1 | 0.26.5 |
| 0.17.1 | 4.55.4 | 0.21.4 | 1.10.1 | 0.34.4 |

It imports nothing of this repository. The model is only the names and shapes of a tiny Llama's modules: PEFT asks for
no more, and the same weights are served on a whole one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import peft
import torch

HIDDEN, INTERMEDIATE, KV, LAYERS = 64, 150, 32, 3  # of the tests' tiny models


class Projections(torch.nn.Module):
    def __init__(self, **shapes: tuple[int, int]) -> None:
        super().__init__()
        for name, (inputs, outputs) in shapes.items():
            setattr(self, name, torch.nn.Linear(inputs, outputs, bias=False))


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.self_attn = Projections(
            q_proj=(HIDDEN, HIDDEN), k_proj=(HIDDEN, KV), v_proj=(HIDDEN, KV), o_proj=(HIDDEN, HIDDEN)
        )
        self.mlp = Projections(
            gate_proj=(HIDDEN, INTERMEDIATE), up_proj=(HIDDEN, INTERMEDIATE), down_proj=(INTERMEDIATE, HIDDEN)
        )


class Model(torch.nn.Module):
    """``model.layers.0.self_attn.q_proj`` and so on."""

    config: Any = {"model_type": "llama", "_name_or_path": "tiny"}

    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.Module()
        self.model.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))

    def prepare_inputs_for_generation(self, *_arguments: Any, **_named: Any) -> None:
        """PEFT takes it from a causal language model."""


def save(folder: Path, seed: int, **settings: Any) -> None:
    torch.manual_seed(seed)
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=4, lora_alpha=8, **settings)
    trained = peft.get_peft_model(Model(), config)
    for name, parameter in trained.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn_like(parameter) * 0.1
    trained.save_pretrained(str(folder))
    (folder / "README.md").unlink(missing_ok=True)  # a template of thousands of characters


def main() -> None:
    root = Path(sys.argv[1])
    save(root / "plain", 1, target_modules=["q_proj", "v_proj", "down_proj"])
    save(root / "one_layer", 2, target_modules=["o_proj", "up_proj"], layers_to_transform=[1])
    if "rank_pattern" in peft.LoraConfig.__dataclass_fields__:
        patterns: dict[str, Any] = {"rank_pattern": {"q_proj": 6}, "alpha_pattern": {"k_proj": 3}}
        save(root / "patterns", 3, target_modules=["q_proj", "k_proj"], **patterns)
    if "use_rslora" in peft.LoraConfig.__dataclass_fields__:
        save(root / "rslora", 4, target_modules=["q_proj", "gate_proj"], use_rslora=True)
    if "use_dora" in peft.LoraConfig.__dataclass_fields__:
        save(root / "dora", 5, target_modules=["q_proj", "v_proj"], use_dora=True)


if __name__ == "__main__":
    main()
