"""S-LoRA's early abort against FCFS and LCFS over the burstiness of arrivals, and its adapter clustering.

    python benchmarks/scheduling/slora.py

Setting S2 of Sheng et al. (MLSys 2024): Llama-2-7B on one A10G, a pool of 14,500 tokens, ranks 64, 32, 16, 8; prompts
and outputs uniform from 8 to 512 tokens; 2 requests/s with gamma-distributed gaps. Abort: 200 adapters, five minutes.
Clustering: 32 adapters, two minutes, d adapters in a batch before those are preferred. Averaged over three seeds."""

from __future__ import annotations

import random
from typing import Any

import common
import numpy as np

POOL, RATE, TARGET_S = 14_500, 2.0, 6.0
POLICIES = {
    "abort": {"order": "early_abort", "admission": "early_abort"},
    "lcfs": {"order": "lcfs", "admission": "all"},
    "fcfs": {"order": "fcfs", "admission": "all"},
}
# Attainment at cv 1, 4 and 8, recomputed from the paper's result files; d -> attainment at cv 1.
PAPER_ABORT = {"abort": (0.86, 0.74, 0.64), "lcfs": (0.79, 0.64, 0.50), "fcfs": (0.27, 0.43, 0.32)}
PAPER_CLUSTER = {1: 0.85, 2: 0.84, 4: 0.79, 8: 0.85, 32: 0.68}
CVS, SEEDS = (1.0, 4.0, 8.0), (1, 2, 3)


def arrivals(adapters: int, cv: float, seconds: float, seed: int) -> common.Arrivals:
    rnd = random.Random(seed)
    return [
        (
            at,
            common.request(
                f"r{n}",
                rnd.randint(8, 512),
                rnd.randint(8, 512),
                "",
                f"a{rnd.randrange(adapters)}",
                first_token_ms=round(TARGET_S * 1000),
            ),
        )
        for n, at in enumerate(common.gamma_times(rnd, RATE, cv, seconds))
    ]


def measure(adapters: int, cv: float, seconds: float, **policy: Any) -> dict[str, float]:
    """Return attainment, satisfaction (the paper's rewards), requests per second and mean first-token time."""
    rows = []
    for seed in SEEDS:
        machine = common.machine(
            common.A10G, POOL, common.adapters(adapters, pages_per_rank=0.25), copy_page_s=common.A10G_COPY_PAGE_S
        )
        engine = common.play(
            machine, arrivals(adapters, cv, seconds, seed), max_running=64, step_tokens=1024, starvation_s=0.0, **policy
        )
        waits = np.array([w if (w := common.first_token_s(e)) is not None else np.inf for e in engine.ended])
        served = waits[np.isfinite(waits)]
        rows.append(
            (
                float((waits < TARGET_S).mean()),
                float(np.where(waits < TARGET_S, 1 - np.minimum(waits, TARGET_S) ** 2 / TARGET_S**2, 0).mean()),
                len(served) / engine.clock.now,
                float(served.mean()),
            )
        )
    means = np.mean(rows, axis=0)
    return dict(zip(("attainment", "satisfaction", "per_s", "first_token_s"), map(float, means), strict=True))


def main() -> None:
    rows: list[dict[str, Any]] = []
    figure, (abort_plot, cluster_plot) = common.axes(2)
    for name, policy in POLICIES.items():
        ours = []
        for index, cv in enumerate(CVS):
            got = measure(200, cv, 300.0, **policy)
            ours.append(got["attainment"])
            rows.append(
                common.row(
                    "slora_abort",
                    f"{name}, cv {cv:g}",
                    "attainment",
                    got["attainment"],
                    "",
                    paper=PAPER_ABORT[name][index],
                    **{k: round(v, 4) for k, v in got.items()},
                )
            )
        (line,) = abort_plot.plot(CVS, ours, marker="o", label=name)
        abort_plot.plot(
            CVS, PAPER_ABORT[name], marker="x", linestyle=":", color=line.get_color(), label=f"{name}, paper"
        )
    for cv in CVS:
        got = measure(200, cv, 300.0, order="fair", admission="slo")
        rows.append(
            common.row(
                "slora_abort",
                f"our slo, cv {cv:g}",
                "attainment",
                got["attainment"],
                "",
                **{k: round(v, 4) for k, v in got.items()},
            )
        )
    abort_plot.plot(CVS, [r["value"] for r in rows[-3:]], marker="o", color="k", label="fair + slo (ours)")
    abort_plot.set(title="S-LoRA S2: first token within 6 s", xlabel="cv of arrivals", ylabel="attainment", ylim=(0, 1))
    abort_plot.legend(fontsize=7)
    depths, ours = list(PAPER_CLUSTER), []
    for d in depths:
        got = measure(32, 1.0, 120.0, order="clustered", admission="all", cluster_adapters=d)
        ours.append(got["attainment"])
        rows.append(
            common.row(
                "slora_clusters",
                f"d {d}",
                "attainment",
                got["attainment"],
                "",
                paper=PAPER_CLUSTER[d],
                **{k: round(v, 4) for k, v in got.items()},
            )
        )
    cluster_plot.plot(range(len(depths)), ours, marker="o", label="ours")
    cluster_plot.plot(range(len(depths)), list(PAPER_CLUSTER.values()), marker="x", linestyle=":", label="paper")
    cluster_plot.set(title="S-LoRA S2: clustering", xlabel="d (32: off)", ylabel="attainment", ylim=(0, 1))
    cluster_plot.set_xticks(range(len(depths)), [str(d) for d in depths])
    cluster_plot.legend(fontsize=7)
    common.write(rows)
    common.save(figure, "slora")


if __name__ == "__main__":
    main()
