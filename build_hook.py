"""Hatchling's hook: a wheel and a source distribution name their commit, and a wheel has the built console."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Where the package looks for them: `lorikeet_version.COMMIT_FILE`, `control_plane.core.config.installed_or`.
COMMIT = "lorikeet_version/commit.txt"
CONSOLE = "control_plane/console_files"


class ReleaseFilesHook(BuildHookInterface):  # type: ignore[type-arg, misc]
    """A hook that adds the files that are in no commit. An editable installation needs none of them."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        added = build_data["force_include"]
        if not (root / "inference_engine" / COMMIT).exists() and (commit := self._commit(root)):
            self._folder = tempfile.TemporaryDirectory()
            written = Path(self._folder.name) / "commit.txt"
            written.write_text(f"{commit}\n")
            added[str(written)] = f"inference_engine/{COMMIT}" if self.target_name == "sdist" else COMMIT
        console = root / "frontend" / "dist"
        if not (console / "index.html").is_file():
            print(
                "frontend/dist is missing, so this build has no console.",
                file=sys.stderr,
            )
        else:
            added[str(console)] = "frontend/dist" if self.target_name == "sdist" else CONSOLE

    @staticmethod
    def _commit(root: Path) -> str:
        if not (root / ".git").exists():
            return ""
        command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
