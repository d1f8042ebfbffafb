"""Resumable uploads on loopback: bytes per second, and what they cost the web process in memory.

    python benchmarks/upload_rate.py                 512 MiB, three times
    python benchmarks/upload_rate.py --mib 1800 --patch-mib 64

Starts a web process over a folder of its own and sends random bytes with one PATCH, or one for each `--patch-mib`, as
a browser does. Every byte is on disk (fdatasync) when the last answer comes. Memory is the process's resident set,
sampled every 20 ms; `over idle` is its peak less what it was before the first byte.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("platform", "inference_engine", "tests/support")]

from lorikeet_testing.web import WebProcess  # noqa: E402
from rows import parser_of  # noqa: E402

MIB = 1 << 20
PIECE = os.urandom(MIB)


class Memory:
    """Peak resident bytes of a process while it is watched."""

    def __init__(self, pid: int) -> None:
        self._status, self._over = Path(f"/proc/{pid}/statm"), threading.Event()
        self.before = self.peak = self.now()
        self._thread = threading.Thread(target=self._watch)

    def now(self) -> int:
        return int(self._status.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            self.peak = max(self.peak, self.now())


def ask(port: int, method: str, path: str, headers: dict[str, str], body_mib: int = 0) -> dict[str, str]:
    """Send a request on a new connection. The client costs next to nothing: it has only two CPUs to share."""
    sent = {"host": "127.0.0.1", "tus-resumable": "1.0.0", "content-length": str(body_mib * MIB), **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", ""]
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall("\r\n".join(lines).encode())
        for _ in range(body_mib):
            connection.sendall(PIECE)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += connection.recv(65536)
    first, *rest = answer.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    if not first.split()[1].startswith("2"):
        raise SystemExit(answer.decode())
    return {name.lower(): value for name, value in (line.split(": ", 1) for line in rest)}


def upload(web: WebProcess, mib: int, patch_mib: int) -> tuple[float, int]:
    """Seconds, and bytes of memory over idle."""
    slug, access = next(iter(web.tenants.items()))
    values = {"adapter": "speed", "filename": "speed.tar"}
    metadata = ",".join(f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in values.items())
    creation = {**access.bearer, "upload-length": str(mib * MIB), "upload-metadata": metadata}
    path = ask(web.port, "POST", f"/api/tenants/{slug}/uploads/resumable", creation)["location"]
    typed = {**access.bearer, "content-type": "application/offset+octet-stream"}
    assert web.process is not None
    with Memory(web.process.pid) as memory:
        began, offset = time.perf_counter(), 0
        while offset < mib:
            size = min(patch_mib, mib - offset)
            answer = ask(web.port, "PATCH", path, {**typed, "upload-offset": str(offset * MIB)}, size)
            offset = int(answer["upload-offset"]) // MIB
        took = time.perf_counter() - began
    return took, memory.peak - memory.before


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--patch-mib", type=int, default=0, help="0: one PATCH for everything")
    parser.add_argument("--times", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        web = WebProcess(Path(folder), f"local=unix:{folder}/none.sock")
        web.seed()
        web.start()
        try:
            for _ in range(args.times):
                took, over = upload(web, args.mib, args.patch_mib or args.mib)
                rate = args.mib * MIB / took / 1e6
                print(json.dumps({"mib": args.mib, "mb_per_s": round(rate), "over_idle_mib": round(over / MIB, 1)}))
        finally:
            web.kill()


if __name__ == "__main__":
    main()
