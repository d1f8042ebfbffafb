"""An adapter of 100 MB to a host's disk: from another host, from a web server, from a folder.

    python benchmarks/peer_staging.py [--megabytes 100] [--times 5] [--dry]

One machine, so no network is between them: what is measured is what the two ends take. The peer is a process with the
engine's own service over TLS, with a certificate for this adapter; the store is a process of Python's http.server,
without TLS, whose answers may be held to a rate (``--store-mbs``), as a store that is far away is. Bytes are hashed,
counted and flushed to disk as in staging.
"""

from __future__ import annotations

import asyncio
import functools
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from rows import append, machine, parser_of, row

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / part) for part in ("platform", "inference_engine", "kernels", ".")]
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")
RESULTS = ROOT / "benchmarks" / "results" / "peer_staging.jsonl"

import django  # noqa: E402

django.setup()

from control_plane.fleet.joining import authority  # noqa: E402
from lora_engine.adapters.disk_tier import DiskTier  # noqa: E402
from lora_engine.adapters.download import fetch  # noqa: E402
from lora_engine.config import EngineConfig  # noqa: E402
from lora_engine.peft_format import CONFIG_FILE, WEIGHTS_FILE, adapter_digest, folder_digests  # noqa: E402
from lora_engine.server.host import HostServer  # noqa: E402
from lora_engine.server.identity import HostIdentity, Identity, IdentityFiles, certificate_request, new_key, private_pem  # noqa: E402
from lora_engine.server.listening import bind, make_server  # noqa: E402
from lora_engine.server.service import EngineService  # noqa: E402
from lora_engine.wire import engine_pb2 as pb  # noqa: E402
from lora_engine.wire import engine_pb2_grpc  # noqa: E402

MAX_BYTES = 4 << 30
CREDENTIAL = "benchmark"


def serve_peer(folder: str, port: Any) -> None:
    asyncio.run(_serve_peer(Path(folder), port))


async def _serve_peer(folder: Path, port: Any) -> None:
    from datetime import timedelta

    key = new_key()
    signed = authority.certify_host(certificate_request(key), CREDENTIAL, timedelta(hours=1))
    known = authority.authority_certificate().decode()
    identity = Identity("peer", "", "", private_pem(key), signed.certificate.decode(), known)
    server_identity = HostIdentity(identity, IdentityFiles(folder))
    config = EngineConfig(model=folder, data_dir=folder, listen="127.0.0.1:0")
    server = make_server(config)
    host = cast(
        HostServer,
        SimpleNamespace(staging=SimpleNamespace(readers=0, folder=DiskTier(folder / "disk", MAX_BYTES).reading)),
    )
    engine_pb2_grpc.add_EngineServicer_to_server(EngineService(host, server_identity), server)
    port.put(int(bind(server, config, server_identity).rpartition(":")[2]))
    await server.start()
    await server.wait_for_termination()


def serve_store(folder: str, port: Any, bytes_per_s: float) -> None:
    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_arguments: object) -> None:
            """Drop the log line that the standard library's server writes for each request."""

        def copyfile(self, source: Any, outputfile: Any) -> None:
            began, sent = time.monotonic(), 0
            while block := source.read(1 << 20):
                outputfile.write(block)
                sent += len(block)
                if bytes_per_s:
                    time.sleep(max(0.0, began + sent / bytes_per_s - time.monotonic()))

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
    port.put(server.server_port)
    server.serve_forever()


@contextmanager
def process(target: Any, *arguments: Any) -> Iterator[int]:
    """Start a process; yield the port that it listens on."""
    context = multiprocessing.get_context("spawn")
    port = context.Queue()
    running = context.Process(target=target, args=(arguments[0], port, *arguments[1:]), daemon=True)
    running.start()
    try:
        yield port.get(timeout=60)
    finally:
        running.kill()
        running.join()


def at_web_server(at_folder: pb.StageAdapterRequest, port: int, *peers: pb.AdapterPeer) -> pb.StageAdapterRequest:
    """Return the request for the same adapter at a web server of this machine."""
    return pb.StageAdapterRequest(
        digest=at_folder.digest,
        source_uri=f"http://127.0.0.1:{port}",
        file_digests=at_folder.file_digests,
        peers=peers,
    )


def seconds(request: pb.StageAdapterRequest, times: int) -> list[float]:
    durations = []
    for _ in range(times):
        with tempfile.TemporaryDirectory() as place:
            disk, began = DiskTier(Path(place), MAX_BYTES), time.monotonic()
            with disk.adding(request.digest) as folder:
                fetch(request, folder, MAX_BYTES, lambda done, total: None)
            durations.append(time.monotonic() - began)
    return durations


def main() -> None:
    parser = parser_of(__doc__, dry=True)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--store-mbs", type=float, default=100, help="the rate of the store that is far away, in MB/s")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "published"
        folder.mkdir()
        (folder / CONFIG_FILE).write_text("{}")
        (folder / WEIGHTS_FILE).write_bytes(os.urandom(options.megabytes * 1_000_000))
        digests = folder_digests(folder)
        at_folder = pb.StageAdapterRequest(
            digest=adapter_digest(digests), source_uri=f"file://{folder}", file_digests=digests
        )
        DiskTier(Path(place) / "peer" / "disk", MAX_BYTES).add(at_folder, MAX_BYTES, lambda done, total: None)
        server_identity = authority.reading_identity(at_folder.digest)
        with (
            process(serve_peer, str(Path(place) / "peer")) as peer_port,
            process(serve_store, str(folder), 0.0) as near,
            process(serve_store, str(folder), options.store_mbs * 1e6) as far,
        ):
            peer = pb.AdapterPeer(
                address=f"127.0.0.1:{peer_port}",
                server_name=authority.server_name(CREDENTIAL),
                authority=authority.authority_certificate(),
                certificate=server_identity.certificate,
                key=server_identity.key,
            )
            cases = {
                "a folder": at_folder,
                "a web server": at_web_server(at_folder, near),
                f"a web server at {options.store_mbs:g} MB/s": at_web_server(at_folder, far),
                "a peer": at_web_server(at_folder, far, peer),
            }
            for name, request in cases.items():
                durations = seconds(request, options.times)
                middle = statistics.median(durations)
                rate = options.megabytes / middle
                settings = {
                    "megabytes": options.megabytes,
                    "times": options.times,
                    "seconds": round(middle, 3),
                    **machine(),
                }
                print(
                    f"{name:32} {middle:6.2f} s  {rate:6.0f} MB/s  {min(durations):.2f} to {max(durations):.2f}",
                    flush=True,
                )
                rows.append(row("peer staging", name, "rate", rate, "MB/s", settings, digits=1))
    if not options.dry:
        append(RESULTS, rows)


if __name__ == "__main__":
    main()
