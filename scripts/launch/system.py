"""The programs that the tests need besides Python and Node. They are installed if this account may do that."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from scripts.launch.progress import Progress, Stop
from scripts.launch.shell import CommandFailed, run_logged

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
POSTGRES_PLACES = (
    "usr/lib/postgresql/*/bin/initdb",
    "opt/homebrew/opt/postgresql*/bin/initdb",
    "usr/local/opt/postgresql*/bin/initdb",
)
MAC_CHROME = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")


@dataclass(frozen=True)
class Program:
    """A program with its package of apt. `find` returns its path, or None if it is missing."""

    name: str
    apt: str
    find: Callable[[], str | Path | None]


def chromium() -> str | None:
    """Return the browser of the end-to-end tests: `LORIKEET_CHROMIUM`, one on PATH, or Playwright's."""
    chosen = os.environ.get("LORIKEET_CHROMIUM")
    on_path = next((path for name in CHROMIUM_NAMES if (path := shutil.which(name)) and not _is_snap_stub(path)), None)
    return chosen or on_path or (str(MAC_CHROME) if MAC_CHROME.exists() else None) or _playwright_chromium()


def _is_snap_stub(path: str) -> bool:
    """Return whether the program is the script of Ubuntu's `chromium-browser` package, which needs a snap."""
    real = Path(path).resolve()
    return real.stat().st_size < 10_000 and b"snap" in real.read_bytes() and not Path("/snap/chromium").exists()


def _playwright_chromium() -> str | None:
    cache = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or Path.home() / ".cache" / "ms-playwright")
    browsers = sorted(cache.glob("chromium-*/chrome-linux*/chrome"))
    return str(browsers[-1]) if browsers else None


def postgres_binaries() -> Path | None:
    """Return the folder of PostgreSQL's programs: the newest of Debian or Homebrew, else that on PATH."""
    folders = [path.parent for pattern in POSTGRES_PLACES for path in Path("/").glob(pattern)]
    if folders:
        return max(folders, key=lambda path: int(re.sub(r"\D", "", path.parent.name) or 0))
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


def server_program(name: str) -> str | None:
    """Return a program's path. Debian has servers in a folder that is not on the path of an ordinary account."""
    return shutil.which(
        name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"])
    )


PROGRAMS = (
    Program("PostgreSQL", "postgresql", postgres_binaries),
    Program("Redis", "redis-server", lambda: shutil.which("redis-server")),
    Program("Chromium", "chromium", chromium),
    # The documentation's commands, which the tests run, read JSON with it.
    Program("jq", "jq", lambda: shutil.which("jq")),
    # Checks the alert rules; Debian and Homebrew have it in Prometheus' package.
    Program("promtool", "prometheus", lambda: shutil.which("promtool")),
    # The balancers of deploy/balancers, behind which the tests restart web processes.
    Program("HAProxy", "haproxy", lambda: server_program("haproxy")),
    Program("nginx", "nginx", lambda: server_program("nginx")),
    Program("Caddy", "caddy", lambda: server_program("caddy")),
)


def install_test_programs(progress: Progress) -> None:
    """Install missing programs with apt-get (Debian, Ubuntu, as root). Raises Stop with what to install elsewhere."""
    with progress.step("PostgreSQL, Redis, Chromium, jq, promtool, balancers") as note:
        missing = [program for program in PROGRAMS if program.find() is None]
        if missing and _may_use_apt():
            note.text = f"installed {', '.join(program.name for program in missing)}"
            _apt_install(missing)
            missing = [program for program in PROGRAMS if program.find() is None]
        if missing:
            raise _installation_advice(missing)
        note.text = note.text or "present"


def _may_use_apt() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def _apt_install(missing: list[Program]) -> None:
    try:
        _as_root("apt-get", "update")
        _as_root("apt-get", "install", "-y", "--no-install-recommends", *(program.apt for program in missing))
        if chromium() is None:  # Ubuntu has no Chromium package; Playwright has one
            _as_root(sys.executable, "-m", "playwright", "install", "--with-deps", "chromium")
    except CommandFailed as error:
        raise Stop(f"Installing with apt-get failed:\n{error.tail()}\n", _installation_advice(missing).fix) from error


def _as_root(*command: str) -> None:
    run_logged("setup-system", command, env={"DEBIAN_FRONTEND": "noninteractive"})


def _installation_advice(missing: list[Program]) -> Stop:
    names = " ".join(program.apt for program in missing)
    brew = names.replace("redis-server", "redis")
    return Stop(
        f"The tests need {', '.join(program.name for program in missing)}.",
        f"Install: sudo apt-get install {names} (Debian), or brew install {brew} (macOS). "
        "A browser elsewhere: LORIKEET_CHROMIUM=/path/to/chromium make test",
    )
