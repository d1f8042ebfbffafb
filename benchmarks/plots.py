"""Draws the engine's figures from the result files: the newest row of each case.

    pip install -e '.[bench]' && python benchmarks/plots.py

Writes docs/images/engine/*.svg. Peers' figures were measured on the same kind of GPU: vLLM 0.26 and SGLang 0.5.17,
64 adapter slots, largest rank 64, CUDA graphs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "lorikeet"  # the same file for the same figures

from matplotlib import pyplot as plt  # noqa: E402

ROOT = Path(__file__).parents[1]
RESULTS, IMAGES = ROOT / "benchmarks" / "results", ROOT / "docs" / "images" / "engine"
MODEL = "llama-3.1-8b"
PEERS = {
    "vLLM": {"base lora on": 85.2, "1 adapter": 66.1, "8 mixed": 65.6, "32 mixed": 60.6, "64 mixed": 53.5,
             "256 uniform": 29.8, "1000 uniform": 13.0},
    "SGLang": {"base lora on": 77.9, "1 adapter": 70.9, "8 mixed": 69.5, "32 mixed": 68.2, "64 mixed": 63.4,
               "256 uniform": 38.6, "1000 uniform": 21.6},
    "PEFT": {"1 adapter": 18.4, "8 mixed": 18.2, "64 mixed": 4.5},
}  # fmt: skip
PEER_STEPS = {
    "vLLM": {"base": (5.2, 6.4, 7.8, 11.8), "64 mixed": (11.8, 29.0, 16.1, 20.7)},
    "SGLang": {"base": (5.4, 6.4, 7.9, 11.5), "64 mixed": (8.3, 11.6, 13.0, 16.4)},
}
BATCHES = (16, 64, 128, 256)
COLOURS = {"Lorikeet": "#0f766e", "vLLM": "#94a3b8", "SGLang": "#cbd5e1", "PEFT": "#e2e8f0"}


def newest(file: str, **wanted: Any) -> dict[tuple[str, Any], dict[str, Any]]:
    """Return the last row of each (case, batch) in a result file whose fields match."""
    rows = {}
    for line in (RESULTS / file).read_text().splitlines():
        row = json.loads(line)
        if all(row[key] == value for key, value in wanted.items()):
            rows[row["case"], row["settings"].get("batch")] = row
    return rows


def save(figure: Any, name: str) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    figure.savefig(IMAGES / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def throughput() -> None:
    ours = newest("w1.jsonl", model=MODEL, metric="requests_per_s", system="lorikeet")
    cases = list(PEERS["vLLM"])
    systems = {"Lorikeet": {case: ours[case, None]["value"] for case in cases}, **PEERS}
    figure, axes = plt.subplots(figsize=(9, 3.6))
    for index, (system, values) in enumerate(systems.items()):
        places = [case + (index - 1.5) * 0.2 for case in range(len(cases))]
        heights = [values.get(case, 0) for case in cases]
        axes.bar(places, heights, 0.19, label=system, color=COLOURS[system])
    axes.set_xticks(range(len(cases)), [case.replace("base lora on", "base") for case in cases])
    axes.set(ylabel="requests/s", title="Llama-3.1-8B, one H200: 1000 requests, 256 tokens in, 128 out")
    axes.set_ylim(0, 105)
    axes.legend(frameon=False, ncols=4)
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, "throughput")


def steps() -> None:
    rows = newest("w1.jsonl", model=MODEL, metric="step_ms", system="lorikeet")
    figure, both = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True)
    for axes, case in zip(both, ("base", "64 mixed"), strict=True):
        known = [batch for batch in BATCHES if (case, batch) in rows]
        axes.plot(known, [rows[case, b]["value"] for b in known], "o-", color=COLOURS["Lorikeet"], label="Lorikeet")
        axes.plot(known, [rows[case, b]["floor"] for b in known], ":", color="black", label="floor (bytes)")
        for system, values in PEER_STEPS.items():
            axes.plot(BATCHES, values[case], "s--", color="#64748b" if system == "vLLM" else "#94a3b8", label=system)
        axes.set(title=f"decode step, {case}", xlabel="running requests")
        axes.spines[["top", "right"]].set_visible(False)
    both[0].set_ylabel("ms")
    both[0].legend(frameon=False)
    save(figure, "decode_step")


def working_set() -> None:
    figure, axes = plt.subplots(figsize=(5, 3.2))
    for system, style in (("lorikeet", "o-"), ("no prefetch", "s--")):
        rows = newest("w3.jsonl", metric="ttft_p99_ms", system=system)
        factors = sorted(float(case.split()[0]) for case, _ in rows)
        axes.plot(factors, [rows[f"{_name(f)} x resident", None]["value"] for f in factors], style, label=system)
    axes.set_xscale("log", base=2)
    axes.set(xlabel="adapters in use / adapters that fit", ylabel="P99 first token, ms", ylim=(0, None))
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, "working_set")


def kernels() -> None:
    rows = newest("kernels.jsonl", metric="lora_layer_us")
    figure, axes = plt.subplots(figsize=(6, 3.2))
    for group in ("qkv", "o", "gate_up", "down"):
        ranks = [8, 16, 64, 128]
        shares = []
        for rank in ranks:
            row = rows.get((f"{group} 64 tokens 64 adapters r{rank}", None))
            shares.append(row["floor"] / row["value"] if row else float("nan"))
        axes.plot(ranks, shares, "o-", label=group)
    axes.set_xscale("log", base=2)
    axes.set_xticks([8, 16, 64, 128], ["8", "16", "64", "128"])
    axes.set(xlabel="rank, 64 distinct adapters", ylabel="share of 4.2 TB/s", ylim=(0, 1.05))
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, "kernels")


def tensor_parallel() -> None:
    """Draw S-LoRA's figure 8 for one model: requests by number of GPUs, without adapters, with 64 and with 1,000."""
    rows = [json.loads(line) for line in (RESULTS / "w7.jsonl").read_text().splitlines()]
    figure, (axes, costs) = plt.subplots(1, 2, figsize=(9, 3.2), width_ratios=(3, 2))
    cases = ("base", "64 mixed", "1000 uniform")
    card = {1: "NVIDIA H200", 2: "NVIDIA H100 80GB HBM3", 4: "NVIDIA H200"}
    for index, case in enumerate(cases):
        for gpus, name in card.items():
            (*_, row) = (
                row
                for row in rows
                if (row["metric"], row["case"], row["gpus"], row["gpu"]) == ("requests_per_s", case, gpus, name)
                and row["model"] == MODEL
                and row["system"].endswith(f"{gpus} ranks, outer")
            )
            (*_, alone) = (
                row
                for row in rows
                if (row["metric"], row["case"], row["gpus"], row["gpu"]) == ("requests_per_s", case, 1, name)
            )
            share = row["value"] / alone["value"]
            place = {1: 0, 2: 1, 4: 2}[gpus] + (index - 1) * 0.25
            shade = ("#0f766e", "#5eada5", "#b6d9d5")[index]
            axes.bar(place, share, 0.23, color=shade, label=case if gpus == 1 else None)
            axes.annotate(f"{share:.2f}", (place, share), ha="center", va="bottom", fontsize=8)
    axes.set_xticks(range(3), ["one GPU", "two H100s", "four H200s"])
    axes.set(ylabel="requests/s, one GPU of the kind = 1", title="Llama-3.1-8B", ylim=(0, 3.6))
    axes.legend(frameon=False, loc="upper left")
    shares = {}
    for gpus in (2, 4):
        steps = {
            (row["system"], row["case"]): row["value"]
            for row in rows
            if (row["metric"], row["model"], row["gpus"]) == ("step_ms", MODEL, gpus)
        }
        for case in cases[1:]:
            full = steps[f"lorikeet, {gpus} ranks, full", case]
            shares[f"{gpus} GPUs,\n{case}"] = 1 - steps[f"lorikeet, {gpus} ranks, full, LoRA silent", case] / full
    costs.bar(range(len(shares)), [100 * share for share in shares.values()], 0.5, color=COLOURS["Lorikeet"])
    costs.axhspan(18, 30, color="#cbd5e1")
    costs.annotate("S-LoRA, 30B and 70B on A100s", (1.5, 24), ha="center", va="center", fontsize=8)
    costs.set_xticks(range(len(shares)), list(shares), fontsize=8)
    costs.set(title="LoRA's exchange, % of a decode step", ylim=(0, 34))
    for each in (axes, costs):
        each.spines[["top", "right"]].set_visible(False)
    save(figure, "tensor_parallel")


def dispatch() -> None:
    """Draw dLoRA's comparison of dispatch on four engines: mean time of whole requests by skew."""
    rows = [json.loads(line) for line in (RESULTS / "scheduling.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["workload"] == "w6 engines" and row["gpu"]]
    figure, axes = plt.subplots(figsize=(6, 3))
    titles = ("in turn", "fewest requests", "soonest first token", "and moving")
    skews = (1.0, 0.3, 0.1)
    for index, title in enumerate(titles):
        means = {row["settings"]["skew"]: row["value"] for row in rows if row["settings"]["title"] == title}
        places = [place + (index - 1.5) * 0.2 for place in range(len(skews))]
        label = "soonest first token, with migration" if title == "and moving" else title
        shade = ("#cbd5e1", "#94a3b8", "#0f766e", "#5eada5")[index]
        axes.bar(places, [means[skew] for skew in skews], 0.19, label=label, color=shade)
    axes.set_xticks(range(len(skews)), ["skew 1", "skew 0.3", "skew 0.1"])
    axes.set(ylabel="mean seconds of a request", title="four engines on four H200s, one round of 4 s", ylim=(0, 3.4))
    axes.legend(frameon=False, ncols=2, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, "dispatch")


def _name(factor: float) -> str:
    return str(factor) if factor < 1 else str(int(factor))


if __name__ == "__main__":
    for draw in (throughput, steps, working_set, kernels, tensor_parallel, dispatch):
        draw()
