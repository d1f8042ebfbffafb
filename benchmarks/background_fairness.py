"""Upload times and the age of usage reports of one tenant, beside one that abuses background work.

    python benchmarks/background_fairness.py [--dry] [--uploads 15] [--only webhooks]

A web process over SQLite with its workers inside, as `make run` has it, with a scripted engine. The well-behaved tenant
sends small adapters one after another; the time of one is from the first byte sent until it is accepted. First alone,
then while the other tenant

    webhooks   has 20 endpoints that answer after 9 s, calls `test` 60 times and promotes `--promotions` (50) times: up
               to 1,060 messages
    uploads    has sent 12 archives that unpack to 1 GiB each, and 150 small adapters, all at once

Each is measured beside an "alone" of the same minutes, since a machine is rarely quiet. To measure an older commit,
copy this file into a checkout of it (and give it `--promotions 0`, or it takes hours).
"""

from __future__ import annotations

import io
import os
import statistics
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rows import append, machine, parser_of, row

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / part) for part in ("platform", "inference_engine", "tests/support", ".")]

import httpx  # noqa: E402
from lorikeet_testing.fake_engine import FakeEngineThread  # noqa: E402
from lorikeet_testing.peft_files import CONFIG_FILE, WEIGHTS_FILE, adapter_files, config_bytes  # noqa: E402
from lorikeet_testing.web import WebProcess, eventually  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "background.jsonl"
TIMEOUT_S = 600.0
PRIVATE_WEBHOOKS = {"LORIKEET_WEBHOOK_ALLOW_PRIVATE": "1"}
PATIENCE_S = 100.0
ENOUGH = 40
GIB = 1 << 30


class SlowReceiver(ThreadingHTTPServer):
    """A tenant's server that answers after 9 s."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                time.sleep(9)
                with suppress(OSError):
                    self.send_response(200)
                    self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_: Any) -> None: ...


class Client:
    """A tenant's calls of the API."""

    def __init__(self, web: WebProcess, tenant: str) -> None:
        self.base = f"{web.url}/api/tenants/{tenant}"
        self.http = httpx.Client(headers=web.tenants[tenant].bearer, trust_env=False, timeout=TIMEOUT_S)

    def send(self, name: str, files: dict[str, bytes]) -> str:
        form = [("files", (file, content)) for file, content in files.items()]
        answer = self.http.post(f"{self.base}/uploads", data={"name": name}, files=form)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def wait(self, upload: str, states: tuple[str, ...] = ("accepted",)) -> None:
        path = f"{self.base}/uploads/{upload}"
        eventually(lambda: self.http.get(path).json()["state"] in states, TIMEOUT_S, what="the upload")

    def timed_upload(self, seed: int) -> float:
        files = adapter_files(seed=seed)
        began = time.perf_counter()
        self.wait(self.send(f"timed-{seed}", files))
        return time.perf_counter() - began

    def report_age(self) -> float:
        as_of = self.http.get(f"{self.base}/usage").json()["as_of"]
        return (datetime.now(UTC) - datetime.fromisoformat(as_of)).total_seconds() if as_of else 0.0


class ReportAge:
    """The greatest age of the usage report while the block runs."""

    def __init__(self, client: Client) -> None:
        self.client, self.worst, self._over = client, 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> ReportAge:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            with suppress(httpx.TransportError):
                self.worst = max(self.worst, self.client.report_age())


@contextmanager
def platform(folder: Path, settings: dict[str, str]) -> Iterator[WebProcess]:
    """Start a scripted engine in this process, and a seeded web process on SQLite; yield the latter."""
    socket = f"unix:{folder}/engine.sock"
    engine = FakeEngineThread(socket)
    web = WebProcess(folder / "var", f"local={socket}", settings, installation={})
    web.seed()
    web.start()
    try:
        web.wait_until_ready("support")
        yield web
    finally:
        web.kill()
        engine.close()


def archive(unpacked: int, seed: int) -> bytes:
    """Return a zip whose weights unpack to this many bytes, 40 times its size: below the limit for zip bombs."""
    mib = os.urandom(26_000) + bytes((1 << 20) - 26_000)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made:
        made.writestr(CONFIG_FILE, config_bytes())
        with made.open(WEIGHTS_FILE, "w", force_zip64=True) as file:
            for _ in range(unpacked >> 20):
                file.write(mib)
    return buffer.getvalue()


def flood_webhooks(abuser: Client, promotions: int) -> dict[str, Any]:
    receiver = SlowReceiver()
    hooks = []
    for index in range(20):
        body = {"url": f"http://127.0.0.1:{receiver.server_port}/{index}", "events": []}
        hooks.append(abuser.http.post(f"{abuser.base}/webhooks", json=body).raise_for_status().json()["id"])
    tests = [abuser.http.post(f"{abuser.base}/webhooks/{hooks[0]}/test").status_code for _ in range(60)]
    for _ in range(promotions):
        abuser.http.post(f"{abuser.base}/adapters/support/versions/1/promote", json={}).raise_for_status()
    return {"tests_taken": tests.count(202), "messages": 20 * promotions + tests.count(202)}


def flood_uploads(abuser: Client, _: int) -> dict[str, Any]:
    big = archive(GIB, 0)
    for index in range(12):
        abuser.send(f"big-{index}", {"a.zip": big})
    for index in range(150):
        abuser.send(f"small-{index}", adapter_files(seed=10_000 + index))
    return {"archives": 12, "archive_mib": len(big) >> 20, "small": 150}


FLOODS: dict[str, Callable[[Client, int], dict[str, Any]]] = {"webhooks": flood_webhooks, "uploads": flood_uploads}


def owner(web: WebProcess, tenant: str) -> Client:
    """Return a client with the session of the tenant's owner, who may do more than keys may."""
    client = Client(web, tenant)
    access = web.tenants[tenant]
    client.http = httpx.Client(trust_env=False, timeout=TIMEOUT_S, base_url=web.url)
    token = client.http.get("/api/session").json()["csrf_token"]
    login = {"email": access.email, "password": access.password}
    answer = client.http.post("/api/session", json=login, headers={"X-CSRFToken": token})
    answer.raise_for_status()
    client.http.headers["X-CSRFToken"] = client.http.get("/api/session").json()["csrf_token"]
    return client


def measure(flood: str, uploads: int, promotions: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name, platform(Path(name), PRIVATE_WEBHOOKS) as web:
        good = Client(web, "globex")
        good.timed_upload(1)  # the first upload is slower
        with ReportAge(good) as quiet:
            alone = [good.timed_upload(100 + index) for index in range(uploads)]
        abuser = owner(web, "acme")
        flooding: dict[str, Any] = {}
        thread = threading.Thread(target=lambda: flooding.update(FLOODS[flood](abuser, promotions)))
        with ReportAge(good) as age:
            thread.start()
            eventually(lambda: unfinished(web) >= ENOUGH or not thread.is_alive(), TIMEOUT_S, what="the flood")
            beside = []
            for index in range(uploads):
                beside.append(good.timed_upload(200 + index))
                if sum(beside) > PATIENCE_S:
                    break
            busy = unfinished(web)
            thread.join()
        return {
            "alone": alone,
            "beside": beside,
            "report_age_alone_s": round(quiet.worst, 1),
            "report_age_s": round(age.worst, 1),
            "unfinished_jobs_of_the_other_at_the_end": busy,
            **flooding,
        }


def unfinished(web: WebProcess) -> int:
    """Return the number of unfinished jobs of the flood. A flood that ended before the measurement would prove
    nothing.
    """
    uploads = "SELECT count(*) AS n FROM uploads_upload WHERE state IN ('received', 'validating')"
    messages = "SELECT count(*) AS n FROM webhooks_delivery WHERE state = 'pending'"
    return sum(int(web.query(query)[0]["n"]) for query in (uploads, messages))


def report(flood: str, results: dict[str, Any], dry: bool) -> None:
    alone, beside = (statistics.median(results[name]) for name in ("alone", "beside"))
    settings = {
        **machine(),
        **{key: value for key, value in results.items() if key not in ("alone", "beside")},
        "each_alone_s": [round(value, 2) for value in results["alone"]],
        "each_beside_s": [round(value, 2) for value in results["beside"]],
        "median_alone_s": round(alone, 2),
        "worst_beside_s": round(max(results["beside"]), 2),
        "times_alone": round(beside / alone, 2),
    }
    append(RESULTS, [row("background", f"beside a flood of {flood}", "upload_s", beside, "s", settings)], dry=dry)


def main() -> None:
    parser = parser_of(__doc__, dry=True)
    parser.add_argument(
        "--uploads", type=int, default=15, help="uploads of the well-behaved tenant, alone and beside the other"
    )
    parser.add_argument("--promotions", type=int, default=50)
    parser.add_argument("--only", choices=sorted(FLOODS), action="append")
    args = parser.parse_args()
    for flood in args.only or FLOODS:
        report(flood, measure(flood, args.uploads, args.promotions), args.dry)


if __name__ == "__main__":
    main()
