"""Lighthouse's scores of the console's built bundle, as our own web process serves it.

    CONSOLE_URL=… python benchmarks/console_lighthouse.py [--pages login,…]

Runs Lighthouse (npm, fetched by npx) in the Chromium that is installed, on the pages that need no sign-in: it begins
with an empty browser. Appends a line to benchmarks/results/console_lighthouse.jsonl. Fails below 95 in performance,
accessibility or best practices.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
RESULTS = ROOT / "benchmarks" / "results" / "console_lighthouse.jsonl"
LIGHTHOUSE = "lighthouse@12.8.2"
CATEGORIES = ("performance", "accessibility", "best-practices")
LEAST = 95
FIGURES = {"first-contentful-paint": "fcp_ms", "largest-contentful-paint": "lcp_ms", "interactive": "interactive_ms",
           "total-blocking-time": "blocking_ms", "total-byte-weight": "bytes"}  # fmt: skip
PAGES = ("login", "forgot-password")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=lambda text: text.split(","), default=PAGES)
    options = parser.parse_args()
    url = os.environ.get("CONSOLE_URL", "http://127.0.0.1:8000")
    found = {}
    for page in options.pages:
        found[page] = scores(f"{url}/{page}")
        print(page, found[page], flush=True)
    result = {"date": date.today().isoformat(), "lighthouse": LIGHTHOUSE, "pages": found}
    with RESULTS.open("a") as file:
        file.write(json.dumps(result) + "\n")
    worst = min(figures[category] for figures in found.values() for category in CATEGORIES)
    print(f"The lowest score is {worst}.")
    return 0 if worst >= LEAST else 1


def scores(address: str) -> dict[str, int]:
    from scripts.launch.system import chromium

    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [
            "npx", "--yes", LIGHTHOUSE, address, "--preset=desktop", "--output=json", f"--output-path={report}",
            f"--only-categories={','.join(CATEGORIES)}", "--quiet",
            "--chrome-flags=--headless=new --no-sandbox --disable-gpu",
        ]  # fmt: skip
        environment = {**os.environ, "CHROME_PATH": chromium() or ""}
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        said = json.loads(report.read_text())
    assert said["finalDisplayedUrl"].startswith(address.rstrip("/")), f"It was led to {said['finalDisplayedUrl']}"
    for name in CATEGORIES:
        for audit in said["categories"][name]["auditRefs"]:
            result = said["audits"][audit["id"]]
            if result["score"] is not None and result["score"] < 0.9 and audit["weight"]:
                print(f"  {name}: {result['title']}: {result.get('displayValue', '')}", file=sys.stderr)
    return {
        **{name: round(said["categories"][name]["score"] * 100) for name in CATEGORIES},
        **{short: round(said["audits"][name]["numericValue"]) for name, short in FIGURES.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
