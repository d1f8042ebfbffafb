"""`make check`: the static checks of the code, the documentation and the console."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from scripts.launch.console import install_console_packages, npm
from scripts.launch.paths import ROOT, VENV
from scripts.launch.progress import Progress, Stop

SOURCE_ROOTS = ("platform", "inference_engine", "kernels")
PACKAGES = (
    "platform/control_plane",
    "platform/lorikeet_cli",
    "inference_engine/lora_engine",
    "inference_engine/lorikeet_version",
    "kernels/lora_kernels",
)
TOOLS = (
    "scripts",
    "benchmarks/rest_throughput.py",
    "tests/contract",
    "tests/e2e",
    "tests/fuzz",
    "tests/scripts",
    "tests/support/lorikeet_testing/compose.py",
    "tests/support/lorikeet_testing/fuzzing.py",
    "tests/support/lorikeet_testing/launched.py",
    "tests/support/lorikeet_testing/topology.py",
)

# Packages whose docstrings and names keep the rules of CONTRIBUTING's section "English". The others follow.
PLAIN_ENGLISH = (
    "frontend/src",
    "platform/control_plane",
    "inference_engine",
    "kernels",
    "platform/lorikeet_cli",
    "scripts",
    "tests/conftest.py",
    "demo",
    "tests/support",
    "benchmarks",
)


@dataclass(frozen=True)
class Result:
    """The result of one check."""

    name: str
    ok: bool
    output: str
    seconds: float


@dataclass(frozen=True)
class Check:
    """A check with a name. `run` returns whether it passed, and its output."""

    name: str
    run: Callable[[], tuple[bool, str]]

    def timed(self) -> Result:
        started = time.monotonic()
        ok, output = self.run()
        return Result(self.name, ok, output, time.monotonic() - started)


def program(*command: str) -> Callable[[], tuple[bool, str]]:
    """Return the function of a check that runs a command, from the virtual environment if it is there."""

    def run() -> tuple[bool, str]:
        executable = str(VENV / "bin" / command[0]) if (VENV / "bin" / command[0]).exists() else command[0]
        done = subprocess.run([executable, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.returncode == 0, done.stdout + done.stderr

    return run


def script(*command: str) -> Callable[[], tuple[bool, str]]:
    return program(sys.executable, *command)


def console_script(name: str) -> Callable[[], tuple[bool, str]]:
    def run() -> tuple[bool, str]:
        try:
            return True, npm("run", name)
        except Stop as stop:
            return False, stop.message

    return run


def check_source_roots() -> tuple[bool, str]:
    """Check that no source root is a package: one called `platform` would hide the module of Python's library."""
    wrong = [f"{root}/__init__.py" for root in SOURCE_ROOTS if (ROOT / root / "__init__.py").exists()]
    return not wrong, f"{', '.join(wrong)} must not exist: a source root is never a package." if wrong else ""


def python_checks() -> list[Check]:
    return [
        Check("mypy, strict", script("-m", "mypy", *PACKAGES, *TOOLS)),
        Check("ruff", script("-m", "ruff", "check", ".")),
        Check("ruff format", script("-m", "ruff", "format", "--check", ".")),
        Check("English", script("-m", "scripts.prose", *PLAIN_ENGLISH)),
        Check("import directions", program("lint-imports")),
        Check("source roots", check_source_roots),
        Check("protobuf modules are current", script("-m", "scripts.wire", "--check")),
        Check("OpenAPI schema is current", script("-m", "scripts.schema", "--check")),
        Check("documentation and its links", script("-m", "mkdocs", "build", "--strict")),
        Check("migrations are complete", script("manage.py", "makemigrations", "--check", "--dry-run")),
    ]


def console_checks() -> list[Check]:
    return [
        Check("console: eslint", console_script("lint")),
        Check("console: prettier", console_script("check:format")),
        Check("console: types", console_script("typecheck")),
        Check("console: client matches schema", console_script("check:schema")),
        Check("console: bundle size", console_script("check:size")),
    ]


def main() -> int:
    """Run all checks, or with --python those that do not concern the console."""
    progress = Progress()
    chosen = [*python_checks(), *([] if "--python" in sys.argv else console_checks())]
    try:
        install_console_packages()
    except Stop as stop:
        print(f"{stop.message}\n{stop.fix}", file=sys.stderr)
        return 1
    with ThreadPoolExecutor(2) as pool:
        results = []
        for result in pool.map(Check.timed, chosen):
            mark = "✓" if result.ok else "✗"
            progress.say(f"  {mark} {result.name:<34} {result.seconds:.1f} s")
            results.append(result)
    failed = [result for result in results if not result.ok]
    for result in failed:
        progress.say(f"\n── {result.name} ──\n{result.output.rstrip()}")
    progress.say(f"\n{len(results) - len(failed)} of {len(results)} checks passed.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
