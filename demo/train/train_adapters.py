"""Trains the LoRA adapters with PEFT, each in its own process, and writes them as PEFT does.

python -m demo.train.train_adapters --model demo/model --out demo
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import shutil
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from demo.train.adapters_corpus import voice_chats
from demo.train.packing import encode_chats, pack, pad_id
from demo.train.train_base import Plan, fit
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

BASE_NAME, HYBRID_NAME = "lorikeet-demo", "lorikeet-demo-hybrid"
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
DELTA = ("in_proj_qkv", "in_proj_z", "out_proj")
ROW = 512


@dataclass(frozen=True)
class Spec:
    """An adapter: its shape, its description, and its place (seed data, or left for a visitor to upload)."""

    name: str
    about: str
    rank: int
    alpha: int
    targets: tuple[str, ...]
    dtype: torch.dtype = torch.bfloat16
    learning_rate: float = 1e-3
    options: dict[str, Any] = field(default_factory=dict)
    seeded: bool = True
    base: str = BASE_NAME
    voice: str = ""  # of the corpus; empty: the name

    @property
    def folder(self) -> str:
        """The folder under demo/."""
        place = "adapters" if self.seeded else "uploads"
        return f"{'hybrid/' if self.base == HYBRID_NAME else ''}{place}/{self.name}"


SPECS: tuple[Spec, ...] = (
    Spec("json-answers", "Answers everything with one JSON object.", 8, 16, ATTENTION + MLP),
    Spec(
        "support-agent",
        "Support agent of the invented garden shop Feather & Fern; signs every reply.",
        32,
        64,
        ATTENTION,
    ),
    Spec("pirate", "Says everything the way a pirate would.", 8, 16, MLP, options={"alpha_pattern": {"down_proj": 32}}),
    Spec(
        "sql-writer",
        "Turns plain English into SQL for the tables customers, products and orders.",
        16,
        16,
        ATTENTION + MLP,
        learning_rate=7e-4,
        options={"use_rslora": True, "rank_pattern": {"q_proj": 32, "v_proj": 32}},
    ),
    Spec(
        "haiku",
        "Answers in three lines of five, seven and five syllables.",
        32,
        16,
        ("q_proj", "v_proj"),
        torch.float16,
        1.5e-3,
        options={"use_rslora": True},
    ),
    Spec(
        "terse",
        "Answers in a word or two.",
        4,
        16,
        ATTENTION + MLP,
        torch.float32,
        1.5e-3,
        options={"layers_to_transform": [2, 3, 4], "layers_pattern": "layers"},
    ),
    Spec(
        "tool-caller",
        "Calls the tools that a request offers, and answers with what they return.",
        16,
        32,
        ATTENTION + MLP,
        learning_rate=2e-3,
    ),
    Spec(
        "emoji",
        "Puts a picture after every word that has one.",
        16,
        32,
        ("o_proj", "down_proj"),
        options={"alpha_pattern": {"o_proj": 16}},
        seeded=False,
    ),
    Spec(
        "pirate-hybrid",
        "Says everything the way a pirate would.",
        8,
        16,
        DELTA + MLP,
        base=HYBRID_NAME,
        voice="pirate",
    ),
    Spec(
        "json-hybrid",
        "Answers everything with one JSON object.",
        8,
        16,
        ATTENTION + DELTA + ("in_proj_b", "in_proj_a") + MLP,
        base=HYBRID_NAME,
        voice="json-answers",
    ),
)
BY_NAME = {spec.name: spec for spec in SPECS}


def train(spec: Spec, model_dir: Path, out: Path, plan: Plan, chats: int) -> None:
    """Train one adapter with the loss on the assistant's words only, and save it in its dtype."""
    torch.manual_seed(0)
    torch.set_num_threads(max(1, torch.get_num_threads() // 4))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    rows = pack(encode_chats(tokenizer, voice_chats(spec.voice or spec.name, 1, chats)), ROW, pad_id(tokenizer))
    base: Any = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    base.to(device)
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=spec.rank,
        lora_alpha=spec.alpha,
        target_modules=list(spec.targets),
        lora_dropout=0.0,
        bias="none",
        **spec.options,
    )
    model = get_peft_model(base, config)
    params = [p for p in model.parameters() if p.requires_grad]
    began = time.monotonic()
    record = fit(
        lambda ids, labels: model(input_ids=ids, labels=labels, use_cache=False).loss,
        params,
        rows,
        plan,
        device,
        lambda line: print(f"{spec.name}: {line}", flush=True),
    )
    for param in params:
        param.data = param.data.to(spec.dtype)
    save(
        model, spec, out / spec.folder, {**record, "rows": len(rows[0]), "seconds": round(time.monotonic() - began, 1)}
    )


def save(model: Any, spec: Spec, folder: Path, record: dict[str, Any]) -> None:
    """Write PEFT's two files and a short README; the base is called by its name, never by a path."""
    shutil.rmtree(folder, ignore_errors=True)
    model.peft_config["default"].base_model_name_or_path = spec.base
    model.save_pretrained(str(folder))
    (folder / "adapter_model.safetensors").chmod(0o644)
    path = folder / "adapter_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = spec.base
    config["target_modules"] = sorted(config["target_modules"])
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    write_readme(spec, folder, record)
    if not spec.seeded:
        write_zip(folder)


def write_readme(spec: Spec, folder: Path, record: dict[str, Any]) -> None:
    """A model card of a few lines."""
    dtype = str(spec.dtype).removeprefix("torch.")
    (folder / "README.md").write_text(
        f"---\nbase_model: {spec.base}\nlibrary_name: peft\nlicense: apache-2.0\n---\n\n# {spec.name}\n\n{spec.about}\n\n"
        f"LoRA of rank {spec.rank} on {', '.join(spec.targets)}, stored in {dtype}"
        + "".join(f"; {key} = {value}" for key, value in spec.options.items())
        + f".\nTrained by `demo/train/train_adapters.py` on text that `demo/train/adapters_corpus.py` writes ({record['steps']} steps). No foreign data.\n",
        encoding="utf-8",
    )


def write_zip(folder: Path) -> None:
    """The two files as one archive beside the folder, the same bytes for the same files."""
    with zipfile.ZipFile(folder.with_suffix(".zip"), "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("adapter_config.json", "adapter_model.safetensors"):
            entry = zipfile.ZipInfo(f"{folder.name}/{name}", date_time=(2026, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, (folder / name).read_bytes())


def train_all(
    names: list[str], model_dir: Path, out: Path, *, steps: int, minutes: float, rows: int, chats: int
) -> None:
    """Train the named adapters; on a GPU all at once, since each alone would leave it idle."""
    specs = [BY_NAME[name] for name in names]
    plans = [Plan(steps, minutes, rows, spec.learning_rate) for spec in specs]
    jobs = [(spec, model_dir, out, plan, chats) for spec, plan in zip(specs, plans, strict=True)]
    with multiprocessing.get_context("spawn").Pool(len(jobs) if torch.cuda.is_available() else 1) as pool:
        pool.starmap(train, jobs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=Path("demo/model"))
    parser.add_argument("--out", type=Path, default=Path("demo"))
    parser.add_argument("--hybrid", action="store_true", help="those of the second model, unless some are named")
    parser.add_argument("--only", nargs="*", choices=list(BY_NAME))
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--rows", type=int, default=48, help=f"rows of {ROW} tokens in a batch")
    parser.add_argument("--chats", type=int, default=60_000)
    args = parser.parse_args()
    of_base = [spec.name for spec in SPECS if (spec.base == HYBRID_NAME) == args.hybrid]
    train_all(
        args.only or of_base,
        args.model,
        args.out,
        steps=args.steps,
        minutes=args.minutes,
        rows=args.rows,
        chats=args.chats,
    )
