"""The build of the console: Node, the packages, and the bundle that Django serves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from pathlib import Path

from scripts.launch.packages import ensure_node_package
from scripts.launch.paths import FRONTEND, GIB, require_space, var_dir
from scripts.launch.progress import Progress, Stop
from scripts.launch.shell import CommandFailed, run_logged
from scripts.launch.stamps import Stamp, digest_of

MIN_NODE = (20, 19)
# Folders of frontend/ that are not inputs of the build.
NOT_SOURCES = {"node_modules", "dist", "coverage", "test-results", ".vite"}
# Words in npm's output that mean that the network failed.
NPM_NETWORK_SIGNS = ("ENOTFOUND", "ECONNREFUSED", "ETIMEDOUT", "EAI_AGAIN", "ECONNRESET", "network")


def build_console(progress: Progress, packages: Future[None] | None = None) -> None:
    """Build frontend/dist unless it is up to date.

    packages: the installation of the packages, if it was started before.
    """
    stamp = Stamp(FRONTEND / "dist" / ".built-from", digest_of(_sources()))
    with progress.step("Console", slow="the first build takes a minute") as note:
        if packages is not None:
            packages.result()
        if stamp.holds():
            note.text = "up to date"
            return
        install_console_packages()
        npm("run", "build")
        stamp.write()
        note.text = "built"


def start_console_packages(pool: Executor) -> Future[None] | None:
    """Install the packages while pip works. Returns None if pip has to install Node first."""
    return pool.submit(install_console_packages) if _installed_node() else None


def install_console_packages() -> None:
    """Run `npm ci`, unless node_modules was made from the present lock file."""
    modules = FRONTEND / "node_modules"
    stamp = Stamp(modules / ".installed-from", digest_of([FRONTEND / "package-lock.json"]))
    if stamp.holds():
        return
    require_space(FRONTEND, GIB, "the console's packages")
    npm("ci", "--no-audit", "--no-fund")
    stamp.write()


def npm(*arguments: str) -> str:
    """Run npm in frontend/ and return its output. Raises Stop."""
    bin_dir = node_bin_dir()
    env = {"PATH": f"{bin_dir}{os.pathsep}{os.environ['PATH']}", "CI": "1"}
    try:
        return run_logged("setup-console", [str(bin_dir / "npm"), *arguments], cwd=FRONTEND, env=env)
    except CommandFailed as error:
        raise _explain(error, arguments) from error


def node_bin_dir() -> Path:
    """Return a folder with `node` and `npm`: the machine's if they are new enough, else those from PyPI."""
    if installed := _installed_node():
        return installed
    folder = var_dir() / "node"
    if not ((folder / "node").exists() and (folder / "npm").exists()):
        _link_node_package(folder, ensure_node_package())
    return folder


def _installed_node() -> Path | None:
    node, npm_path = shutil.which("node"), shutil.which("npm")
    if node and npm_path and _version(node) >= MIN_NODE and Path(node).parent == Path(npm_path).parent:
        return Path(node).parent
    return None


def _link_node_package(into: Path, package: Path) -> None:
    """Link the package's `node` and its npm scripts into a folder: npm's children search for both names on PATH."""
    into.mkdir(parents=True, exist_ok=True)
    targets = {
        "node": package / "bin" / "node",
        "npm": package / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js",
        "npx": package / "lib" / "node_modules" / "npm" / "bin" / "npx-cli.js",
    }
    for name, target in targets.items():
        (into / name).unlink(missing_ok=True)
        (into / name).symlink_to(target)


def _version(node: str) -> tuple[int, ...]:
    answer = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    return tuple(int(part) for part in re.findall(r"\d+", answer)[:2])


def _sources() -> Iterator[str | Path]:
    for folder, names, files in os.walk(FRONTEND):
        names[:] = sorted(set(names) - NOT_SOURCES)
        for file in sorted(files):
            path = Path(folder) / file
            yield str(path.relative_to(FRONTEND))
            yield path


def _explain(error: CommandFailed, arguments: tuple[str, ...]) -> Stop:
    if "ENOSPC" in error.output:
        return Stop("The disk is full: npm could not write the console's packages.", "Free some space and run again.")
    if arguments[0] == "ci" and any(sign in error.output for sign in NPM_NETWORK_SIGNS):
        return Stop(
            "npm could not reach the package registry.",
            "Check the network, and your npm proxy settings if your site uses them; then run the command again.",
        )
    return Stop(f"npm {' '.join(arguments)} failed:\n{_npm_reason(error)}\n", "See also var/log/setup-console.log.")


def _npm_reason(error: CommandFailed) -> str:
    """Return the lines in npm's output that name the reason of a failure: npm's are the first, a tool's the last."""
    reasons = [line for line in error.output.splitlines() if line.startswith("npm error") and line != "npm error"]
    by_npm = bool(reasons) and reasons[0].startswith("npm error code E") and "ELIFECYCLE" not in reasons[0]
    return "\n".join(reasons[:6]) if by_npm else error.tail()
