"""Write constraints.txt: the versions that a fresh environment resolves to now.

Run it to move to newer packages, then run the tests. torch is left out, because the user chooses its build (`TORCH` in
the Makefile).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEADER = (
    "# Written by `make lock`: the versions that make run and make test install. torch is chosen in the Makefile.\n"
)
LEFT_OUT = ("torch==", "lorikeet", "pip==", "nvidia-", "cuda-", "triton==", "setuptools==")


def resolve(folder: Path) -> list[str]:
    """Install everything without constraints into `folder`; return `name==version` lines."""
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip"]
    torch = os.environ.get("TORCH") or "torch"
    subprocess.run([*pip, "install", "--upgrade", "pip"], check=True)
    subprocess.run([*pip, "install", torch, "hatchling", "editables"], check=True)
    subprocess.run([*pip, "install", f"{ROOT}[engine,platform,node,test]"], check=True)
    return subprocess.check_output([*pip, "freeze"], text=True).splitlines()


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        pins = [line for line in resolve(Path(folder)) if "==" in line and not line.lower().startswith(LEFT_OUT)]
    (ROOT / "constraints.txt").write_text(HEADER + "\n".join(sorted(pins, key=str.lower)) + "\n")
    print(f"Pinned {len(pins)} packages. Now: make test")
    return 0


if __name__ == "__main__":
    sys.exit(main())
