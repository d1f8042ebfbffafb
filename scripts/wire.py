"""Generate the protobuf modules from engine.proto, or with --check report whether they are current."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import grpc_tools  # type: ignore[import-untyped]
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parents[1]
SOURCE_ROOT = ROOT / "inference_engine"
# Folder of google/protobuf/descriptor.proto.
INCLUDED = Path(grpc_tools.__file__).parent / "_proto"
PROTO = "lora_engine/wire/engine.proto"
GENERATED = ("engine_pb2.py", "engine_pb2.pyi", "engine_pb2_grpc.py")


def generate(into: Path) -> Path:
    """Write the three modules below `into`; returns the folder that holds them."""
    outputs = [f"--{kind}={into}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
    if protoc.main(["protoc", f"-I{SOURCE_ROOT}", f"-I{INCLUDED}", *outputs, PROTO]) != 0:
        raise SystemExit(f"protoc could not read {PROTO}; its message is above.")
    return into / Path(PROTO).parent


def stale() -> list[str]:
    """Return the names of committed modules that differ from those that engine.proto generates now."""
    committed = SOURCE_ROOT / Path(PROTO).parent
    with tempfile.TemporaryDirectory() as folder:
        fresh = generate(Path(folder))
        return [name for name in GENERATED if (fresh / name).read_bytes() != (committed / name).read_bytes()]


def main() -> int:
    if "--check" not in sys.argv:
        print(f"Wrote {', '.join(GENERATED)} to {generate(SOURCE_ROOT)}")
        return 0
    differing = stale()
    if differing:
        print(f"{', '.join(differing)} are out of date. Run `make wire` and commit the result.")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
