"""lm-eval's loglikelihood tasks run as they are, and its figures are those of transformers and peft.

lm-eval is installed into a virtual environment of its own; ``LORIKEET_TEST_LM_EVAL`` names the program of one that is
there already.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from lorikeet_testing.launched import ROOT, Access
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

pytestmark = pytest.mark.long

PACKAGES = ("lm-eval[api]==0.4.13", "transformers>=5.0")
MODEL, ADAPTER = ROOT / "demo" / "model", "pirate"
TASK = """
task: lorikeet_choices
dataset_path: json
dataset_kwargs: {data_files: {test: DOCUMENTS}}
output_type: multiple_choice
test_split: test
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: acc}]
"""
DOCUMENTS: list[dict[str, Any]] = [
    {"question": "What is the colour of the sky?", "choices": ["blue", "a chair", "seven"], "answer": 0},
    {"question": "How many days has a week?", "choices": ["two", "seven", "a hundred"], "answer": 1},
    {"question": "Which animal says meow?", "choices": ["the dog", "the cow", "the cat"], "answer": 2},
    {"question": "Où est mon colis? 🦜", "choices": ["en route", "the cat 🐈", "été"], "answer": 0},
]


@pytest.fixture(scope="module")
def lm_eval(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if known := os.environ.get("LORIKEET_TEST_LM_EVAL"):
        return Path(known)
    folder = tmp_path_factory.mktemp("lm-eval") / "venv"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "-q", *PACKAGES], check=True)
    return folder / "bin" / "lm_eval"


def run(lm_eval: Path, access: Access, folder: Path, model: str, batch: int) -> dict[str, Any]:
    """The task's samples by document, and its accuracy."""
    documents = folder / "documents.jsonl"
    documents.write_text("\n".join(map(json.dumps, DOCUMENTS)))
    (folder / "task.yaml").write_text(TASK.replace("DOCUMENTS", str(documents)))
    arguments = {
        "model": model,
        "base_url": f"{access.url}/v1/completions",
        "tokenizer": str(MODEL),
        "tokenizer_backend": "huggingface",
        "num_concurrent": 2,
        "max_length": 512,
    }
    done = subprocess.run(
        [
            lm_eval, "run", "--model", "local-completions", "--tasks", "lorikeet_choices", "--include_path", folder,
            "--model_args", ",".join(f"{name}={value}" for name, value in arguments.items()),
            "--batch_size", str(batch), "--output_path", folder / "out", "--log_samples",
        ],
        env={**os.environ, "OPENAI_API_KEY": access.key, "HF_HOME": str(folder / "hf"), "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (samples,) = (folder / "out").rglob("samples_*.jsonl")
    (results,) = (folder / "out").rglob("results_*.json")
    found = [json.loads(line) for line in samples.read_text().splitlines()]
    return {
        "samples": {sample["doc_id"]: sample for sample in found},
        "accuracy": json.loads(results.read_text())["results"]["lorikeet_choices"]["acc,none"],
    }


def log_likelihoods(model: Any, tokenizer: Any, document: dict[str, Any]) -> list[tuple[float, bool]]:
    """Of each choice after the question, and whether greedy decoding would say it: as lm-eval defines them."""
    context = f"Question: {document['question']}\nAnswer:"
    found = []
    for choice in document["choices"]:
        whole = tokenizer.encode(f"{context} {choice}", add_special_tokens=False)
        start = len(tokenizer.encode(context, add_special_tokens=False))
        with torch.inference_mode():
            scores = model(torch.tensor([whole])).logits[0].log_softmax(dim=-1)
        rows = [(scores[at - 1], whole[at]) for at in range(start, len(whole))]
        total = sum(float(row[token]) for row, token in rows)
        found.append((total, all(int(row.argmax()) == token for row, token in rows)))
    return found


@pytest.mark.parametrize(("model", "batch"), [("lorikeet-demo", 1), (ADAPTER, 3)])
def test_a_multiple_choice_task(lm_eval: Path, access: Access, tmp_path: Path, model: str, batch: int) -> None:
    answer = run(lm_eval, access, tmp_path, model, batch)
    reference: Any = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    if model == ADAPTER:
        reference = PeftModel.from_pretrained(reference, ROOT / "demo" / "adapters" / ADAPTER)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    right = 0
    for number, document in enumerate(DOCUMENTS):
        wanted = log_likelihoods(reference.eval(), tokenizer, document)
        sample = answer["samples"][number]
        got = [(float(value), greedy in (True, "True")) for [[value, greedy]] in sample["resps"]]
        assert [value for value, _ in got] == pytest.approx([value for value, _ in wanted], abs=1e-3)
        assert [greedy for _, greedy in got] == [greedy for _, greedy in wanted]
        right += max(range(3), key=lambda choice: wanted[choice][0]) == document["answer"]
    assert answer["accuracy"] == pytest.approx(right / len(DOCUMENTS))
