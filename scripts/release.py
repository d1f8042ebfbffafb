"""`python -m scripts.release X.Y.Z`: check, write the version, build everything that a release consists of, and tag it.

    python -m scripts.release 0.2.0 --dry-run      # print the steps, and do nothing

Needs `pip install -e '.[release]'`, npm and Docker. Nothing is pushed: the last lines say what to push and to sign.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from scripts.launch.paths import ROOT
from scripts.launch.progress import Stop

_NUMBER = r"(?:0|[1-9]\d*)"
VERSION = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}")
OPEN_HEADING = re.compile(r"^## (\S+) \(unreleased\)$", re.MULTILINE)
# The files that name the version, with the text around it. The first is the source; the others follow.
NAMED_IN: Mapping[str, str] = {
    "pyproject.toml": r'(?m)^version = "(V)"',
    "frontend/package.json": r'(?m)^  "version": "(V)"',
    "frontend/package-lock.json": r'"name": "lorikeet-console",\n\s+"version": "(V)"',
    "frontend/openapi.json": r'(?m)^        "version": "(V)"',
    "docker-compose.yml": r'(?:lorikeet/(?:web|engine):|VERSION: ")(V)\b',
    "deploy/kubernetes/kustomization.yaml": r"newTag: (V)\b",
    **{
        f"deploy/kubernetes/{name}.yaml": r"lorikeet/(?:web|engine):(V)\b"
        for name in ("engines", "migrate", "single", "web", "workers")
    },
    "docs/how-to/kubernetes.md": r"newTag: (V)\b",
}
# Image, Dockerfile, and target: "" for the last stage.
IMAGES = (
    ("lorikeet/web:{version}", "docker/web.Dockerfile", ""),
    ("lorikeet/engine:{version}-cpu", "docker/engine.Dockerfile", "cpu"),
    ("lorikeet/engine:{version}-cuda", "docker/engine.Dockerfile", "gpu"),
)
CHECKSUMS = "SHA256SUMS"

Run = Callable[[Sequence[str]], str]


@dataclass(frozen=True)
class Step:
    """A step of a release: what it does, in words or as commands, and the function that does it."""

    title: str
    act: Callable[[], None]
    commands: Sequence[Sequence[str]] = ()


@dataclass
class Release:
    """The steps of one release, in a checkout."""

    version: str
    root: Path = ROOT
    run: Run | None = None
    today: str = field(default_factory=lambda: datetime.now(UTC).date().isoformat())

    def __post_init__(self) -> None:
        self.execute: Run = self.run or self._execute
        self.folder = self.root / "dist" / self.version

    # -- what is refused ------------------------------------------------------------------------------------------

    def require_allowed(self) -> None:
        """Raise Stop for a version that cannot be released from this checkout."""
        if not VERSION.fullmatch(self.version):
            raise Stop(f'"{self.version}" is not a version.', "Write three numbers, such as 0.2.0.")
        current = named_version(self.root)
        if numbers(self.version) < numbers(current):
            raise Stop(
                f"{self.version} is lower than {current}, the version of pyproject.toml.", "Choose a higher one."
            )
        if dirty := self.execute(["git", "status", "--porcelain"]).strip():
            raise Stop(f"The checkout has changes that are in no commit:\n{dirty}", "Commit them, or put them away.")
        if self.execute(["git", "tag", "--list", self.tag]).strip():
            raise Stop(f"There is a tag {self.tag} already.", "A release is never built anew: choose a higher version.")
        released = [
            tag.removeprefix("v")
            for tag in self.execute(["git", "tag", "--list", "v*"]).split()
            if VERSION.fullmatch(tag.removeprefix("v"))
        ]
        if released and numbers(self.version) <= (highest := max(map(numbers, released))):
            shown = ".".join(map(str, highest))
            raise Stop(f"{self.version} is not above {shown}, the last release.", "Choose a higher version.")
        if not OPEN_HEADING.search((self.root / "CHANGELOG.md").read_text()):
            raise Stop("CHANGELOG.md has no unreleased heading.", "Add `## X.Y.Z (unreleased)` with the changes.")

    def require_tools(self) -> None:
        """Raise Stop if a program that a later step needs is missing."""
        missing = [name for name in ("git", "make", "npm", "docker") if shutil.which(name) is None]
        if importlib.util.find_spec("cyclonedx_py") is None:
            missing.append("cyclonedx-py (pip install -e '.[release]')")
        if missing:
            raise Stop(f"Missing: {', '.join(missing)}.", "Install it, or look at the steps with --dry-run.")

    # -- the steps ------------------------------------------------------------------------------------------------

    @property
    def tag(self) -> str:
        return f"v{self.version}"

    def steps(self) -> list[Step]:
        commit = [["git", "commit", "--all", "--message", f"Release {self.version}"]]
        tag = [["git", "tag", "--annotate", self.tag, "--message", f"Lorikeet {self.version}"]]
        return [
            self._commands("Run all checks and tests", [["make", "test"]]),
            Step(f"Write {self.version} into {len(NAMED_IN)} files and CHANGELOG.md", self.write_version),
            self._commands("Commit it", commit),
            self._commands("Build the console", [["npm", "--prefix", "frontend", "run", "build"]]),
            self._commands("Build the wheel and the source distribution", [self._build_command()]),
            Step("Check that the wheel has the console and the commit", self.check_wheel),
            self._commands("Build the images", self.image_commands()),
            Step("Write the bills of materials", self.write_boms, self.bom_commands()),
            Step(f"Write {CHECKSUMS}", self.write_checksums),
            self._commands("Tag the commit", tag),
        ]

    def _commands(self, title: str, commands: Sequence[Sequence[str]]) -> Step:
        def act() -> None:
            for command in commands:
                self.execute([part if part != COMMIT else self.commit() for part in map(self._filled, command)])

        return Step(title, act, commands)

    def _filled(self, part: str) -> str:
        return part.replace(COMMIT, self.commit()) if COMMIT in part else part

    def commit(self) -> str:
        return self.execute(["git", "rev-parse", "--short=12", "HEAD"]).strip()

    def _build_command(self) -> list[str]:
        build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--target", "sdist"]
        return [*build, "--directory", str(self.folder)]

    def image_commands(self) -> list[list[str]]:
        commands = []
        for name, dockerfile, target in IMAGES:
            arguments = ["--build-arg", f"VERSION={self.version}", "--build-arg", f"BUILD={COMMIT}"]
            stage = ["--target", target] if target else []
            image = name.format(version=self.version)
            commands.append(["docker", "build", "--file", dockerfile, *stage, *arguments, "--tag", image, "."])
        return commands

    def bom_commands(self) -> list[list[str]]:
        python = [sys.executable, "-m", "cyclonedx_py", "requirements", "constraints.txt"]
        python += ["--pyproject", "pyproject.toml", "--of", "JSON", "--output-reproducible"]
        npm = ["npm", "--prefix", "frontend", "sbom", "--sbom-format", "cyclonedx", "--package-lock-only"]
        return [python, [*npm, "--omit", "dev"]]

    def write_version(self) -> None:
        """Replace the version in each file that names it, and close the heading of the changelog."""
        old = re.escape(named_version(self.root))
        for name, pattern in NAMED_IN.items():
            path = self.root / name
            text = path.read_text()
            new, count = re.subn(pattern.replace("(V)", f"({old})"), self._renamed, text)
            if not count:
                raise Stop(
                    f"{name} does not name the version where it is expected.", "Correct NAMED_IN of this script."
                )
            path.write_text(new)
        changelog = self.root / "CHANGELOG.md"
        changelog.write_text(OPEN_HEADING.sub(f"## {self.version} ({self.today})", changelog.read_text(), count=1))

    def _renamed(self, match: re.Match[str]) -> str:
        start, end = (position - match.start() for position in match.span(1))
        whole = match.group(0)
        return whole[:start] + self.version + whole[end:]

    def check_wheel(self) -> None:
        import zipfile

        (wheel,) = self.folder.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            names = set(archive.namelist())
            if "control_plane/console_files/index.html" not in names:
                raise Stop(f"{wheel.name} has no console.", "Build it: npm --prefix frontend run build.")
            commit = archive.read("lorikeet_version/commit.txt").decode().strip()
        if commit != self.commit():
            raise Stop(
                f"{wheel.name} was built from {commit}, not from {self.commit()}.", "Remove dist/ and try again."
            )

    def write_boms(self) -> None:
        for name, command in zip(("python", "console"), self.bom_commands(), strict=True):
            (self.folder / f"lorikeet-{self.version}-{name}.cdx.json").write_text(self.execute(command))

    def write_checksums(self) -> None:
        files = sorted(path for path in self.folder.iterdir() if path.name != CHECKSUMS)
        lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
        (self.folder / CHECKSUMS).write_text("".join(lines))

    def _execute(self, command: Sequence[str]) -> str:
        """Run a command in the checkout and return its output; the output of long ones is shown. Raises Stop."""
        shown = command[0] in ("make", "docker") or "build" in command
        done = subprocess.run(
            command,
            cwd=self.root,
            stdout=None if shown else subprocess.PIPE,
            text=True,
            check=False,
            env={name: value for name, value in os.environ.items() if name != "LORIKEET_BUILD"},
        )
        if done.returncode:
            raise Stop(
                f"`{' '.join(command)}` ended with status {done.returncode}.",
                f"Correct the cause. If the release's commit is made already, take it back: git reset --hard HEAD~1. "
                f"The tag {self.tag} is not set.",
            )
        return done.stdout or ""


COMMIT = "{commit}"


def named_version(root: Path) -> str:
    """Return the version of the checkout's pyproject.toml."""
    match = re.search(r'(?m)^version = "([^"]+)"', (root / "pyproject.toml").read_text())
    assert match, "pyproject.toml has no version"
    return match.group(1)


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def next_steps(release: Release) -> str:
    images = " ".join(name.format(version=release.version) for name, _, _ in IMAGES)
    return (
        f"\nBuilt in {release.folder}. Not done by this script, in this order (docs/operations/versions.md):\n"
        f"  git push origin HEAD {release.tag}\n"
        f"  docker push: {images}\n"
        "  cosign sign: each image by its digest; cosign sign-blob: SHA256SUMS\n"
        f"  upload {release.folder}/* to the release"
    )


def main(arguments: Sequence[str] | None = None, release: Callable[[str], Release] = Release) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.release", description=__doc__.split("\n")[0])
    parser.add_argument("version", help="three numbers, such as 0.2.0")
    parser.add_argument("--dry-run", action="store_true", help="print the steps, and do nothing")
    args = parser.parse_args(arguments)
    made = release(args.version)
    try:
        made.require_allowed()
        if not args.dry_run:
            made.require_tools()
        steps = made.steps()
        for number, step in enumerate(steps, 1):
            print(f"{number}/{len(steps)} {step.title}", flush=True)
            for command in step.commands:
                print(f"      {' '.join(command)}", flush=True)
            if not args.dry_run:
                step.act()
    except Stop as stop:
        print(f"\n{stop.message}\n{stop.fix}", file=sys.stderr)
        return 1
    print("\nNothing was done: --dry-run." if args.dry_run else next_steps(made))
    return 0


if __name__ == "__main__":
    sys.exit(main())
