"""Lighthouse's scores of the console's built bundle, as our own web process serves it.

    CONSOLE_URL=… CONSOLE_EMAIL=… CONSOLE_PASSWORD=… python benchmarks/console_lighthouse.py [--pages login] [--runs 3]

Runs Lighthouse (npm, fetched by npx) in the Chromium that is installed: the pages before sign-in in an empty browser,
those behind it in one where a person has signed in, with an empty cache for each run. Each figure is the median of the
runs. Appends a line to benchmarks/results/console_lighthouse.jsonl. Fails below 95 in performance, accessibility or
best practices, and where a page takes more than a second to be interactive.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from rows import parser_of

ROOT = Path(__file__).resolve().parents[1]
for folder in (".", "tests/support"):
    sys.path.insert(0, str(ROOT / folder))
RESULTS = ROOT / "benchmarks" / "results" / "console_lighthouse.jsonl"
LIGHTHOUSE = "lighthouse@12.8.2"
CATEGORIES = ("performance", "accessibility", "best-practices")
LEAST = 95
MAX_INTERACTIVE_MS = 1000
FIGURES = {"first-contentful-paint": "fcp_ms", "largest-contentful-paint": "lcp_ms", "interactive": "interactive_ms",
           "total-blocking-time": "blocking_ms", "total-byte-weight": "bytes"}  # fmt: skip
BEFORE = ("login", "forgot-password")
BEHIND = {"overview": "", "adapters": "/adapters", "requests": "/requests", "usage": "/usage", "hosts": "/hosts"}


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--pages", type=lambda text: text.split(","), default=[*BEFORE, *BEHIND])
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    url = os.environ.get("CONSOLE_URL", "http://127.0.0.1:8000")
    medians = {page: median_scores(f"{url}/{page}", None, options.runs) for page in BEFORE if page in options.pages}
    behind = [page for page in BEHIND if page in options.pages]
    if behind:
        with signed_in(url) as browser:
            for page in behind:
                medians[page] = median_scores(f"{url}{browser.tenant}{BEHIND[page]}", browser, options.runs)
    # Blocking times are the machine's as much as the console's: how busy it was belongs to them.
    busy = f"{os.cpu_count()} cores, load {os.getloadavg()[1]:.1f}"
    measured = {"machine": busy, "lighthouse": LIGHTHOUSE, "runs": options.runs, "pages": medians}
    result = {"date": date.today().isoformat(), **measured}
    with RESULTS.open("a") as file:
        file.write(json.dumps(result) + "\n")
    worst = min(figures[category] for figures in medians.values() for category in CATEGORIES)
    slowest = max(figures["interactive_ms"] for figures in medians.values())
    print(f"The lowest score is {worst}, the latest to be interactive {slowest} ms.")
    return 0 if worst >= LEAST and slowest <= MAX_INTERACTIVE_MS else 1


@dataclass(frozen=True)
class SignedIn:
    """A browser with a signed-in session."""

    port: int  # of the browser's remote debugging, which Lighthouse connects to
    tenant: str  # path of the tenant's pages
    empty_cache: Callable[[], object]


@contextmanager
def signed_in(url: str) -> Iterator[SignedIn]:
    from playwright.sync_api import sync_playwright

    from scripts.launch.system import chromium
    from scripts.test_services import free_port

    port = free_port()
    flags = [f"--remote-debugging-port={port}", "--no-sandbox", "--disable-gpu"]
    with tempfile.TemporaryDirectory() as profile, sync_playwright() as playwright:
        # The profile's own context: what Lighthouse opens has its cookies.
        context = playwright.chromium.launch_persistent_context(profile, executable_path=chromium(), args=flags)
        page = context.new_page()
        page.goto(f"{url}/login")
        page.get_by_test_id("login-email").fill(os.environ["CONSOLE_EMAIL"])
        page.get_by_test_id("login-password").fill(os.environ["CONSOLE_PASSWORD"])
        page.get_by_test_id("login-submit").click()
        page.wait_for_url(re.compile("/t/[^/]+/?$"))
        tenant = page.url.removeprefix(url).rstrip("/")
        page.goto("about:blank")
        devtools = context.new_cdp_session(page)
        yield SignedIn(port, tenant, lambda: devtools.send("Network.clearBrowserCache"))
        context.close()


def median_scores(address: str, browser: SignedIn | None, runs: int) -> dict[str, int]:
    """Return the median scores of a page, in a new browser or in a signed-in one."""
    measured = [scores(address, browser) for _ in range(runs)]
    medians = {name: round(statistics.median(one[name] for one in measured)) for name in measured[0]}
    print(address, medians, flush=True)
    return medians


def scores(address: str, browser: SignedIn | None) -> dict[str, int]:
    from scripts.launch.system import chromium

    if browser is not None:
        browser.empty_cache()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [
            "npx", "--yes", LIGHTHOUSE, address, "--preset=desktop", "--output=json", f"--output-path={report}",
            f"--only-categories={','.join(CATEGORIES)}", "--quiet",
            # Lighthouse would empty it of its cookies too, and a page would be the one for signing in.
            *(["--chrome-flags=--headless=new --no-sandbox --disable-gpu"] if browser is None
              else [f"--port={browser.port}", "--disable-storage-reset"]),
        ]  # fmt: skip
        environment = {**os.environ, "CHROME_PATH": chromium() or ""}
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        lighthouse = json.loads(report.read_text())
    shown = lighthouse["finalDisplayedUrl"]
    assert shown.startswith(address.rstrip("/")), f"{address} redirected to {shown}"
    for name in CATEGORIES:
        for audit in lighthouse["categories"][name]["auditRefs"]:
            result = lighthouse["audits"][audit["id"]]
            if result["score"] is not None and result["score"] < 0.9 and audit["weight"]:
                print(f"  {name}: {result['title']}: {result.get('displayValue', '')}", file=sys.stderr)
    return {
        **{name: round(lighthouse["categories"][name]["score"] * 100) for name in CATEGORIES},
        **{short: round(lighthouse["audits"][name]["numericValue"]) for name, short in FIGURES.items()},
    }


if __name__ == "__main__":
    sys.exit(main())
