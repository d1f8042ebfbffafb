"""The part of benchmarks/console_scale.py that looks at the console in Chromium, against a real web process."""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from lorikeet_testing.scale import EMAIL, PASSWORD
from playwright.sync_api import BrowserContext, Page, expect, sync_playwright

from scripts.launch.system import chromium
from scripts.test_services import free_port

ROOT = Path(__file__).resolve().parents[1]
TENANT = "/t/t0"
PAGES = {
    "overview": "",
    "adapters": "/adapters",
    "an adapter": "/adapters/support-00000",
    "playground": "/playground",
    "requests": "/requests",
    "usage": "/usage",
    "limits": "/limits",
    "fairness & SLO": "/slo",
    "hosts": "/hosts",
    "keys": "/keys",
    "members": "/members",
    "batches": "/batches",
    "webhooks": "/webhooks",
    "audit": "/audit",
    "operator: report": "/operator",
    "operator: tenants": "/operator/tenants",
    "operator: a tenant": "/operator/tenants/t0",
    "operator: hosts": "/operator/hosts",
    "operator: audit": "/operator/audit",
}
VISITS = 5
QUIET_MS = 300
# JavaScript that measures when a page reacts to input: at the end of the last long task before the main thread is
# quiet, or at the first paint with content.
WATCH = """
window.__tasks = []; window.__paint = 0; window.__keys = [];
new PerformanceObserver((list) => list.getEntries().forEach((entry) => __tasks.push(entry.startTime + entry.duration)))
  .observe({type: 'longtask', buffered: true});
new PerformanceObserver((list) => list.getEntries().forEach((entry) => { if (entry.name === 'first-contentful-paint')
  __paint = entry.startTime; })).observe({type: 'paint', buffered: true});
new PerformanceObserver((list) => list.getEntries().forEach((entry) => { if (entry.name === 'keydown')
  __keys.push(entry.duration); })).observe({type: 'event', durationThreshold: 16, buffered: true});
"""


def measured_in_browser(settings: dict[str, str], var: Path) -> dict[str, Any]:
    with web_process(settings, var) as url, sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"])
        context = running.new_context(base_url=url, viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
        context.add_init_script(WATCH)
        sign_in(context.new_page())
        results = {"pages": pages(context), "keys": key_presses(context)}
        running.close()
    return results


@contextmanager
def web_process(settings: dict[str, str], var: Path) -> Iterator[str]:
    port = free_port()
    paths = os.pathsep.join(str(ROOT / name) for name in ("platform", "inference_engine", "."))
    environment = {**os.environ, **settings, "PYTHONPATH": paths}
    with (var / "web.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "control_plane.serve", "--port", str(port)], env=environment, stdout=log, stderr=log
        )
    try:
        url = f"http://127.0.0.1:{port}"
        for _ in range(300):
            try:
                if httpx.get(f"{url}/livez", trust_env=False).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(30)


def sign_in(page: Page) -> None:
    page.goto("/login")
    page.get_by_test_id("login-email").fill(EMAIL)
    page.get_by_test_id("login-password").fill(PASSWORD)
    page.get_by_test_id("login-submit").click()
    page.wait_for_url(re.compile("/t/"))
    page.close()


def pages(context: BrowserContext) -> dict[str, dict[str, float]]:
    return {name: one_page(context, path) for name, path in PAGES.items()}


def one_page(context: BrowserContext, path: str) -> dict[str, float]:
    """Measure a page. The bundle is in the browser's cache, as after a person's first visit."""
    interactive, shown, nodes, api_kb, largest = [], [], 0, 0.0, 0.0
    for _ in range(VISITS):
        page = context.new_page()
        answers: dict[str, float] = {}

        def count(response: Any, answers: dict[str, float] = answers) -> None:
            if "/api/" in response.url:
                sizes = response.request.sizes()
                answers[response.url] = sizes["responseBodySize"] / 1000

        page.on("requestfinished", lambda request, count=count: count(request.response()))
        page.goto(f"{TENANT}{path}", wait_until="domcontentloaded")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        interactive.append(settled(page))
        page.wait_for_load_state("networkidle", timeout=30_000)
        shown.append(page.evaluate("Math.max(...performance.getEntriesByType('resource').map((e) => e.responseEnd))"))
        nodes = max(nodes, page.evaluate("document.querySelectorAll('*').length"))
        api_kb, largest = max(api_kb, sum(answers.values())), max([largest, *answers.values()])
        page.close()
    return {
        "interactive_ms": round(statistics.median(interactive)),
        "data_ms": round(statistics.median(shown)),
        "dom_nodes": nodes,
        "api_kb": round(api_kb, 1),
        "largest_answer_kb": round(largest, 1),
    }


def settled(page: Page) -> float:
    """Return the milliseconds from the navigation until the heading is there and the main thread has no long task."""
    reached: float = page.evaluate(
        f"""() => new Promise((done) => {{
          const heading = performance.now();
          const look = () => {{
            const last = Math.max(__paint, heading, ...__tasks);
            performance.now() - last > {QUIET_MS} ? done(Math.max(__paint, ...__tasks)) : setTimeout(look, 50);
          }};
          look();
        }})"""
    )
    return reached


def key_presses(context: BrowserContext) -> dict[str, dict[str, float]]:
    page = context.new_page()
    results = {}
    for name, path, words in (
        ("search adapters", "/adapters", "legal-0042"),
        ("search keys", "/keys", "key 99"),
        ("search limits", "/limits", "key 99"),
        ("search members", "/members", "person 49"),
        ("search requests", "/requests", "legal"),
        ("search tenants", "/operator/tenants", "tenant 99"),
    ):
        page.goto(f"{TENANT}{path}", wait_until="networkidle")
        page.get_by_role("searchbox").first.focus()
        results[name] = typed(page, words)
    page.goto(f"{TENANT}/adapters", wait_until="networkidle")
    page.keyboard.press("Control+k")
    page.get_by_placeholder(re.compile("Go to a page")).wait_for()
    results["palette"] = typed(page, "legal-0042")
    page.close()
    return results


def typed(page: Page, words: str) -> dict[str, float]:
    """Return the milliseconds from a key press to the frame that shows it, by the browser's event timing (in steps
    of 8).
    """
    page.evaluate("__keys.length = 0")
    for letter in words * 2:
        page.keyboard.press("Space" if letter == " " else letter)
        page.wait_for_timeout(120)
    page.wait_for_timeout(500)
    # Shorter ones than 16 ms are not told.
    taken = sorted([*page.evaluate("__keys"), *([16] * len(words))])[-len(words) * 2 :]
    return {"p50_ms": taken[len(taken) // 2], "worst_ms": taken[-1]}
