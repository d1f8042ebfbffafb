"""Our tar reader beside Python's `tarfile`, on hostile archives of a few kilobytes and on a real one (see ADR 0010).

    python benchmarks/tar_readers.py        adds rows to benchmarks/results/tar_readers.jsonl

Each case runs in a child with 20 s of processor time and 4 GiB of memory: a case that needs more was ended there.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import platform
import resource
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from rows import append, row

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "tar_readers.jsonl"
CPU_S, MEMORY = 20, 4 << 30
sys.path.insert(0, str(ROOT / "inference_engine"))


def header(name: str, kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.USTAR_FORMAT)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def digits() -> bytes:
    """An extended header of digits only: CVE-2024-6232."""
    return header("x", b"x", 200_000) + padded(b"1" * 200_000) + header("f", b"0", 0) + bytes(1024)


def sparse() -> bytes:
    """A map of four million holes."""
    records = b""
    for key, value in (("major", "1"), ("minor", "0"), ("name", "f"), ("realsize", "1")):
        text = f" GNU.sparse.{key}={value}\n"
        records += f"{len(text) + 2}{text}".encode()
    body = b"30000000\n" + b"1\n1\n" * 4_000_000
    return header("x", b"x", len(records)) + padded(records) + header("f", b"0", len(body)) + padded(body)


def names() -> bytes:
    """Three thousand long names for one member."""
    return (header("././@LongLink", b"L", 10) + padded(b"a" * 10)) * 3000


def real() -> bytes:
    """64 MiB of weights."""
    data = os.urandom(64 << 20)
    return header("adapter_model.safetensors", b"0", len(data)) + data + bytes(1024)


CASES = {"digits": digits, "sparse map": sparse, "long names": names, "64 MiB": real}


def read_with_tarfile(archive: io.BytesIO) -> None:
    with gzip.open(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as members:  # type: ignore[call-overload]
        for member in members:
            file = members.extractfile(member)
            while file is not None and file.read(1 << 20):
                pass


def read_with_ours(archive: io.BytesIO) -> None:
    from lora_engine.peft_format.tar_stream import TarReader
    from lora_engine.peft_format.upload import _Inflated

    with _Inflated(archive) as stream:
        reader = TarReader(stream)
        for _member in reader:
            for _block in reader.blocks():
                pass


READERS = {"tarfile": read_with_tarfile, "ours": read_with_ours}


def child(case: str, reader: str) -> None:
    packed = io.BytesIO(gzip.compress(CASES[case](), 1))
    read_with_ours(io.BytesIO(gzip.compress(bytes(512))))  # loaded before the clock runs
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    used = int(time.process_time()) + CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (used, used + 1))
    began, outcome = time.process_time(), "read"
    try:
        READERS[reader](packed)
    except Exception as error:
        outcome = f"{type(error).__name__}: {error}"[:80]
    took = time.process_time() - began
    print(json.dumps({"took": round(took, 4), "outcome": outcome, "bytes": len(packed.getvalue())}))


def measure(case: str, reader: str) -> dict[str, object]:
    command = [sys.executable, __file__, case, reader]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"took": CPU_S, "outcome": f"ended by signal {-done.returncode}"}
    result: dict[str, object] = json.loads(done.stdout)
    return result


def main() -> None:
    for case in CASES:
        for reader in READERS:
            result = measure(case, reader)
            settings = {"reader": reader, "python": platform.python_version(), "outcome": result["outcome"],
                        "archive_bytes": result.get("bytes")}  # fmt: skip
            append(RESULTS, [row("tar_readers", case, "cpu_s", result["took"], "s", settings, system=reader, digits=6)])


if __name__ == "__main__":
    child(*sys.argv[1:]) if len(sys.argv) > 1 else main()
