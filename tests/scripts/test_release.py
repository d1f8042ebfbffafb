"""Releases: what is refused, what is written, and the commands up to docker, npm and make, which are fake."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from control_plane.core.config import REPOSITORY
from lorikeet_version import release as current_release
from scripts.launch.progress import Stop
from scripts.release import NAMED_IN, OPEN_HEADING, Release, main, named_version

FAKE = """#!/bin/sh
echo "$(basename "$0") $*" >> "$CALLS"
case "$*" in *sbom*) echo '{"bomFormat": "CycloneDX"}';; esac
case "$(basename "$0") $*" in "$FAILING"*) exit 3;; esac
"""


class Checkout:
    """A git repository with the files that name the version, in which a release is made."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in (*NAMED_IN, "CHANGELOG.md"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text((REPOSITORY / name).read_text())
        changelog = root / "CHANGELOG.md"
        changelog.write_text(re.sub(r"(?m)^## \S+ .*$", "## Next (unreleased)", changelog.read_text(), count=1))
        (root / ".gitignore").write_text("dist/\n")
        self.git("init", "-q")
        self.commit("First")

    def git(self, *arguments: str) -> str:
        return subprocess.check_output(["git", "-C", str(self.root), *arguments], text=True)

    def commit(self, message: str) -> None:
        self.git("add", ".")
        self.git("commit", "-q", "-m", message)

    def run(self, command: Sequence[str]) -> str:
        """Build a wheel and a bill of materials at once; run everything else, with the fake programs."""
        if "hatchling" in command:
            folder = Path(command[-1])
            folder.mkdir(parents=True)
            with zipfile.ZipFile(folder / "lorikeet.whl", "w") as archive:
                archive.writestr("control_plane/console_files/index.html", "")
                archive.writestr("lorikeet_version/commit.txt", self.git("rev-parse", "--short=12", "HEAD"))
            (folder / "lorikeet.tar.gz").write_bytes(b"source")
            return ""
        if "cyclonedx_py" in command:
            return '{"bomFormat": "CycloneDX"}'
        return Release("0.0.0", self.root)._execute(command)

    def release(self, version: str) -> Release:
        return Release(version, self.root, self.run, today="2030-01-02")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("docker", "npm", "make"):
        (programs / name).write_text(FAKE)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("FAILING", "nothing")
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "n")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "n@example.org")
    monkeypatch.setattr(Release, "require_tools", lambda self: None)
    return Checkout(tmp_path / "checkout")


def next_version() -> str:
    major, minor, _ = current_release().split(".")
    return f"{major}.{int(minor) + 1}.0"


def calls(checkout: Checkout) -> list[str]:
    path = checkout.root.parent / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_every_file_names_the_version_of_pyproject() -> None:
    for name, pattern in NAMED_IN.items():
        found = re.findall(pattern.replace("(V)", r"(\d+\.\d+\.\d+)"), (REPOSITORY / name).read_text())
        assert found and set(found) == {current_release()}, name


def test_a_release_from_the_checks_to_the_tag(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    version = next_version()
    assert main([version], checkout.release) == 0
    assert named_version(checkout.root) == version
    for name, pattern in NAMED_IN.items():
        found = re.findall(pattern.replace("(V)", r"(\d+\.\d+\.\d+)"), (checkout.root / name).read_text())
        assert set(found) == {version}, name
    compose = (checkout.root / "docker-compose.yml").read_text()
    assert current_release() not in compose and compose.count(f'VERSION: "{version}"') == 3
    changelog = (checkout.root / "CHANGELOG.md").read_text()
    assert f"\n## {version} (2030-01-02)\n" in changelog and not OPEN_HEADING.search(changelog)
    assert checkout.git("status", "--porcelain") == ""
    assert checkout.git("rev-list", "-n1", f"v{version}") == checkout.git("rev-parse", "HEAD")
    commit = checkout.git("rev-parse", "--short=12", "HEAD").strip()
    arguments = f"--build-arg VERSION={version} --build-arg BUILD={commit}"
    assert calls(checkout) == [
        "make test",
        "npm --prefix frontend run build",
        f"docker build --file docker/web.Dockerfile {arguments} --tag lorikeet/web:{version} .",
        f"docker build --file docker/engine.Dockerfile --target cpu {arguments} --tag lorikeet/engine:{version}-cpu .",
        f"docker build --file docker/engine.Dockerfile --target gpu {arguments} --tag lorikeet/engine:{version}-cuda .",
        "npm --prefix frontend sbom --sbom-format cyclonedx --package-lock-only --omit dev",
    ]
    built = checkout.root / "dist" / version
    lines = (built / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert sums.keys() == {path.name for path in built.iterdir()} - {"SHA256SUMS"} and len(sums) == 4
    for name, digest in sums.items():
        assert hashlib.sha256((built / name).read_bytes()).hexdigest() == digest
    for name in ("python", "console"):
        assert json.loads((built / f"lorikeet-{version}-{name}.cdx.json").read_text())["bomFormat"] == "CycloneDX"
    said = capsys.readouterr().out
    assert "cosign sign" in said and f"git push origin HEAD v{version}" in said
    assert main([version], checkout.release) == 1, "it is released already"


def test_a_dry_run_shows_each_step_and_does_nothing(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    before = checkout.git("rev-parse", "HEAD")
    assert main([next_version(), "--dry-run"], checkout.release) == 0
    said = capsys.readouterr().out
    for part in (
        "make test",
        "CHANGELOG.md",
        "git commit",
        "hatchling build",
        "docker build",
        "cyclonedx",
        "SHA256SUMS",
    ):
        assert part in said
    assert "10/10" in said and "git tag --annotate" in said
    assert checkout.git("rev-parse", "HEAD") == before and not calls(checkout) and not (checkout.root / "dist").exists()
    assert checkout.git("status", "--porcelain") == "" and checkout.git("tag") == ""


@pytest.mark.parametrize("version", ["1.2", "v1.2.3", "1.2.3.4", "01.2.3", "1.2.3-rc1", "; rm", "1.2.3\n", "٣.0.0"])
def test_what_is_no_version_is_refused(checkout: Checkout, version: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([version], checkout.release) == 1
    assert "is not a version" in capsys.readouterr().err and not calls(checkout)


def test_a_dirty_tree_an_existing_tag_and_a_lower_version_are_refused(
    checkout: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    def refusal(version: str) -> str:
        assert main([version], checkout.release) == 1 and main([version, "--dry-run"], checkout.release) == 1
        return capsys.readouterr().err

    assert "is lower than" in refusal("0.0.9")
    (checkout.root / "new.txt").write_text("not committed")
    assert "new.txt" in refusal(next_version())
    checkout.commit("Second")
    checkout.git("tag", f"v{next_version()}")
    assert "already" in refusal(next_version())
    checkout.git("tag", "v9.10.0")
    assert "is not above 9.10.0" in refusal("9.9.0")
    (checkout.root / "CHANGELOG.md").write_text("# Changelog\n")
    checkout.commit("Third")
    assert "no unreleased heading" in refusal("10.0.0")
    assert not calls(checkout)


@pytest.mark.parametrize(("failing", "committed"), [("make test", False), ("docker build", True)])
def test_a_step_that_fails_ends_it_without_a_tag(
    checkout: Checkout,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failing: str,
    committed: bool,
) -> None:
    monkeypatch.setenv("FAILING", failing)
    before = checkout.git("rev-parse", "HEAD")
    assert main([next_version()], checkout.release) == 1
    said = capsys.readouterr().err
    assert "ended with status 3" in said and "git reset --hard HEAD~1" in said
    assert checkout.git("tag") == "" and (checkout.git("rev-parse", "HEAD") != before) is committed


def test_programs_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(Stop) as stop:
        Release("1.2.3").require_tools()
    assert "docker" in stop.value.message


def test_the_tool_for_the_bill_of_materials_is_of_the_extra() -> None:
    command = Release("1.2.3").bom_commands()[0]
    assert command[:3] == [sys.executable, "-m", "cyclonedx_py"]
    assert "cyclonedx-bom" in (REPOSITORY / "pyproject.toml").read_text()
