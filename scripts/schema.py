"""Regenerate frontend/openapi.json and its TypeScript client, or with --check say whether the schema is current."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.launch.console import npm
from scripts.launch.paths import FRONTEND, ROOT

SCHEMA = FRONTEND / "openapi.json"


def current_schema() -> str:
    """Return the schema of the present code, as drf-spectacular prints it. Warnings are errors."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "openapi.json"
        arguments = ["spectacular", "--format", "openapi-json", "--validate", "--fail-on-warn", "--file", str(target)]
        env = {**os.environ, "LORIKEET_VAR_DIR": folder}
        subprocess.run([sys.executable, str(ROOT / "manage.py"), *arguments], env=env, check=True)
        return target.read_text().rstrip() + "\n"


def main() -> int:
    fresh = current_schema()
    if "--check" not in sys.argv:
        SCHEMA.write_text(fresh)
        npm("run", "gen")
        print(f"Wrote {SCHEMA} and the TypeScript client.")
        return 0
    committed = SCHEMA.read_text() if SCHEMA.exists() else ""
    if committed == fresh:
        return 0
    changes = difflib.unified_diff(committed.splitlines(), fresh.splitlines(), "committed", "current", lineterm="", n=2)
    print("\n".join(list(changes)[:60]))
    print("frontend/openapi.json is not what the API gives. Run `make schema` and commit the result.")
    return 1


if __name__ == "__main__":
    sys.exit(main())
