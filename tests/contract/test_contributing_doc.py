"""CONTRIBUTING.md sends people to files that exist."""

from __future__ import annotations

import re
import tomllib

from control_plane.core.config import REPOSITORY

PLACE = re.compile(r"`((?:platform|inference_engine|kernels|frontend|scripts)/[\w./]+)`")


def test_ten_changes_begin_in_files_that_exist() -> None:
    section = (REPOSITORY / "CONTRIBUTING.md").read_text().split("## Where does a change go")[1].split("\n## ")[0]
    rows = [row for row in section.splitlines() if row.startswith("| ") and PLACE.search(row)]
    assert len(rows) == 10
    missing = [place for row in rows for place in PLACE.findall(row) if not (REPOSITORY / place).exists()]
    assert not missing


def test_scripts_are_a_package_that_hides_no_module() -> None:
    """Run as `python -m scripts.NAME`: their folder is on no path, where `test.py` would hide Python's own `test`."""
    scripts = REPOSITORY / "scripts"
    assert (scripts / "__init__.py").is_file()
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]
    assert "scripts" not in settings["pytest"]["ini_options"]["pythonpath"]
    assert "scripts" not in settings["mypy"]["mypy_path"].split(":")
    for path in (REPOSITORY / "Makefile", *scripts.rglob("*.py")):
        assert not re.search(r"python\S* scripts/|PYTHON\) scripts/|^from (launch|test)\b", path.read_text(), re.M), (
            path
        )
