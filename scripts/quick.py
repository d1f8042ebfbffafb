"""`make quick`: run the static checks and the tests of the changed files, in about two minutes.

Changed files are those that differ from the branch `main` (or BASE), uncommitted ones included; on `main` itself,
from the previous commit. A test file runs if it imports a changed file, directly or through other modules: the nearest
first, until the time is over. Tests that did not run are reported as skipped; `make test` runs everything.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from scripts.full_run import CORES, NO_SERVICES, keeping_bytecode
from scripts.launch.paths import ROOT

SOURCE_ROOTS = ("platform", "inference_engine", "kernels", "tests/support", ".")
# Seconds after which no test starts.
BUDGET_S = 75.0
# Test files of one run.
MAX_FILES = 40


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def base() -> str:
    """Return the commit to compare with: BASE, the branch point from main, or on main the previous commit."""
    if chosen := os.environ.get("BASE"):
        return chosen
    branch_point = git("merge-base", "HEAD", "main") or git("merge-base", "HEAD", "origin/main")
    return branch_point if branch_point and branch_point != git("rev-parse", "HEAD") else "HEAD~1"


def changed_files() -> list[Path]:
    against = base()
    names = {*git("diff", "--name-only", against).splitlines()}
    names |= {*git("ls-files", "--others", "--exclude-standard").splitlines()}
    return sorted(Path(name) for name in names if name)


def modules() -> dict[str, Path]:
    """Return every Python file by the dotted name under which tests import it."""
    files: dict[str, Path] = {}
    for name in git("ls-files", "--cached", "--others", "--exclude-standard", "*.py").splitlines():
        path = Path(name)
        root = next(Path(root) for root in SOURCE_ROOTS if path.is_relative_to(root) or root == ".")
        parts = path.relative_to(root).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def imported(path: Path, package: str) -> Iterable[str]:
    """Yield the dotted names that a file of `package` imports, and dotted strings that can be names of modules."""
    try:
        tree = ast.parse((ROOT / path).read_text())
    except (OSError, SyntaxError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            source = ".".join(filter(None, [above, node.module]))
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value[:100]:
            yield node.value.partition(":")[0]  # the tests start "control_plane.asgi:application" in a process


def importers(known: Mapping[str, Path]) -> dict[Path, set[Path]]:
    """Return for each file the files that import it."""
    by: defaultdict[Path, set[Path]] = defaultdict(set)
    for module, path in known.items():
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for name in imported(path, package):
            if name in known and known[name] != path:
                by[known[name]].add(path)
    return by


def is_test(path: Path) -> bool:
    return path.parts[0] == "tests" and path.name.startswith("test_") and "e2e" not in path.parts


def nearest_tests(changed: Sequence[Path], by: Mapping[Path, set[Path]]) -> list[Path]:
    """Return test files by the number of imports to a changed file; those with a changed file's name come first."""
    distance = {path: 0 for path in changed if path.suffix == ".py" and (ROOT / path).exists()}
    queue = deque(distance)
    while queue:
        path = queue.popleft()
        for importer in by.get(path, ()):
            if importer not in distance:
                distance[importer] = distance[path] + 1
                queue.append(importer)
    stems = {path.stem for path in changed}
    tests = [path for path in distance if is_test(path)]
    return sorted(tests, key=lambda path: (not any(stem in path.stem for stem in stems), distance[path], str(path)))


def static_checks(changed: Sequence[Path]) -> bool:
    """Run `make check`, without the checks of the console if it did not change. Returns whether it passed."""
    python_only = not any(path.parts[0] == "frontend" for path in changed)
    command = [sys.executable, "-m", "scripts.check", *(["--python"] if python_only else [])]
    return subprocess.call(command, cwd=ROOT, env=keeping_bytecode(os.environ)) == 0


def main() -> int:
    started = time.monotonic()
    changed = changed_files()
    print(f"{len(changed)} files changed against {base()[:12]}.", flush=True)
    if not static_checks(changed):
        return 1
    tests = nearest_tests(changed, importers(modules()))[:MAX_FILES]
    if not tests:
        print("No test imports what changed.")
        return 0
    env = {**keeping_bytecode(os.environ), "LORIKEET_STOP_AT": str(time.time() + BUDGET_S)}
    how = ["-n", str(CORES), "--dist", "load", "--maxfail", "10", "-m", NO_SERVICES]
    code = subprocess.call([sys.executable, "-m", "pytest", *how, *map(str, tests)], cwd=ROOT, env=env)
    print(f"make quick took {time.monotonic() - started:.0f} s.")
    return 0 if code == 5 else code  # 5: pytest ran nothing, because every test of these files needs `make test`


if __name__ == "__main__":
    sys.exit(main())
