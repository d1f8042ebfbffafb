"""A full run must not be able to pass by skipping, nor by trying until it passes."""

from __future__ import annotations

import io
import itertools
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from scripts import full_run
from scripts.launch.progress import Progress

CONFTEST = Path(__file__).parents[1] / "conftest.py"


def run_pytest(
    folder: Path, *arguments: str, full: bool = True, outcomes: Path | None = None
) -> subprocess.CompletedProcess[str]:
    # All that are installed take three seconds to import.
    env = {
        **os.environ,
        "LORIKEET_FULL_RUN": "1" if full else "",
        "LORIKEET_OUTCOMES": str(outcomes or ""),
        "PYTEST_ADDOPTS": "",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    plugins = ["-p", "xdist", "-p", "pytest_rerunfailures", "-p", "pytest_timeout", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *plugins, *arguments, str(folder)]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu: x\n")
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "def test_runs(): pass\n"
        "def test_skips(): pytest.skip('no browser')\n"
        "@pytest.mark.gpu\ndef test_gpu(): pass\n"
    )
    return tmp_path


def test_a_skip_fails_the_full_run_and_is_named(suite: Path) -> None:
    done = run_pytest(suite)
    assert done.returncode == 1
    assert "no browser" in done.stdout


def test_a_skip_in_a_worker_fails_the_full_run(suite: Path) -> None:
    done = run_pytest(suite, "-n", "1")
    assert done.returncode == 1
    assert "no browser" in done.stdout


def test_deselecting_by_mark_is_no_skip(suite: Path) -> None:
    assert run_pytest(suite, "-m", "not gpu", "-k", "not skips").returncode == 0


def test_a_skip_is_allowed_outside_the_full_run(suite: Path) -> None:
    assert run_pytest(suite, full=False).returncode == 0


FAILS_FIRST = """
import pathlib, pytest
@pytest.mark.parametrize("name", {names})
def test_fails_first(name):
    tried = pathlib.Path(__file__).with_name(name)
    if not tried.exists():
        tried.touch()
        assert not "stalled"
def test_never_passes():
    assert {passes}
"""


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "workers"])
@pytest.mark.parametrize(
    ("names", "passes", "code"), [("ab", True, 0), ("abc", True, 1), ("a", False, 1)], ids=["two", "three", "never"]
)
def test_two_second_tries_are_allowed_and_named(
    suite: Path, workers: tuple[str, ...], names: str, passes: bool, code: int
) -> None:
    (suite / "test_it.py").write_text(FAILS_FIRST.format(names=list(names), passes=passes))
    done = run_pytest(suite, "--reruns=1", f"--junitxml={suite}/junit.xml", *workers)
    assert done.returncode == code
    assert "test_fails_first[a] (call)" in done.stdout
    assert 'assert not "stalled"' in done.stdout
    # `make test` adds up these attributes: a second run is not another test.
    (report,) = ElementTree.parse(suite / "junit.xml").getroot().iter("testsuite")
    assert (int(report.get("tests", 0)), int(report.get("failures", 0))) == (len(names) + 1, not passes)


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "workers"])
def test_what_did_not_just_pass_is_kept_for_the_end(suite: Path, workers: tuple[str, ...]) -> None:
    (suite / "test_that.py").write_text(FAILS_FIRST.format(names=["a"], passes=False))
    run_pytest(suite, "--reruns=1", *workers, outcomes=suite / "outcomes.txt")
    lines = sorted((suite / "outcomes.txt").read_text().splitlines())
    assert [line.split(" (")[0] for line in lines] == [
        "failed: test_that.py::test_never_passes",
        "ran twice: test_that.py::test_fails_first[a]",
        "ran twice: test_that.py::test_never_passes",
        "skipped: test_it.py::test_skips",
    ]
    assert "no browser" in lines[-1] and "stalled" in lines[1]


MARKS = ("gpu", "long", "e2e", "alone", "services", "embedded", "also_embedded")


def test_a_test_runs_in_the_stages_of_its_marks_and_in_one_at_least() -> None:
    for has in itertools.product([True, False], repeat=len(MARKS)):
        marks = dict(zip(MARKS, has, strict=True))
        chosen = {
            name: eval(getattr(full_run, name), {}, marks)
            for name in ("ON_SERVICES", "ON_EMBEDDED_DEFAULTS", "END_TO_END", "END_TO_END_ALONE")
        }
        if marks["gpu"] or marks["long"]:
            assert not any(chosen.values()), marks
        elif marks["e2e"]:
            wanted = "END_TO_END_ALONE" if marks["alone"] else "END_TO_END"
            assert [name for name in chosen if chosen[name]] == [wanted], marks
        elif not (marks["services"] and marks["embedded"]):  # who needs and must not have services runs nowhere
            assert chosen["ON_SERVICES"] or chosen["ON_EMBEDDED_DEFAULTS"], marks
            assert not (chosen["END_TO_END"] or chosen["END_TO_END_ALONE"]), marks


def background_stage(name: str, code: str) -> full_run.Stage:
    return full_run.Stage(name, [sys.executable, "-c", code], background=True)


def test_background_stages_are_printed_when_they_end() -> None:
    stages = [
        background_stage("first", "import os; print('at', os.nice(0))"),
        background_stage("second", "print('bad'); raise SystemExit(3)"),
        background_stage("third", "print('good')"),
    ]
    out = io.StringIO()
    with full_run.BackgroundStages(stages, Progress(out)) as running:
        running.wait()
    printed = out.getvalue()
    assert f"at {min(19, os.nice(0) + 19)}" in printed and "✓ first" in printed
    assert printed.index("━━ second") < printed.index("bad") < printed.index("✗ second")
    assert printed.index("━━ third") < printed.index("good") < printed.index("✓ third")
    assert running.failed == ["second"]


def test_as_many_background_stages_run_at_once_as_stated(tmp_path: Path) -> None:
    """Each stage waits for the others, so none would end alone."""
    names = [str(number) for number in range(full_run.BACKGROUND_STAGES)]
    waiting = (
        f"import pathlib, time\nfolder, count = pathlib.Path({str(tmp_path)!r}), {len(names)}\n"
        "folder.joinpath({!r}).touch()\nwhile len(list(folder.iterdir())) < count:\n    time.sleep(0.01)"
    )
    stages = [background_stage(name, waiting.replace("{!r}", repr(name))) for name in names]
    with full_run.BackgroundStages(stages, Progress()) as running:
        running.wait()
    assert running.failed == []


def test_who_gives_up_leaves_nothing_running(tmp_path: Path) -> None:
    def endless(number: int) -> full_run.Stage:
        code = f"import pathlib, time; pathlib.Path({str(tmp_path)!r}, '{number}').touch(); time.sleep(600)"
        return background_stage(f"endless {number}", code)

    stages = [endless(number) for number in range(full_run.BACKGROUND_STAGES + 1)]
    with pytest.raises(KeyboardInterrupt), full_run.BackgroundStages(stages, Progress()) as running:
        while len(list(tmp_path.iterdir())) < full_run.BACKGROUND_STAGES:
            time.sleep(0.01)
        raise KeyboardInterrupt
    assert sorted(running.failed) == [stage.name for stage in stages[:-1]]  # the last did not begin


def test_files_with_a_mark() -> None:
    """All of those that pytest would find, in whatever folder."""
    assert "tests/attack/test_http_denial.py" in full_run.files_naming("e2e", "tests/attack")
    assert "tests/e2e/test_run_local.py" in full_run.files_naming("alone", "tests/e2e")
    assert "tests/platform/test_embedded.py" in full_run.files_naming("embedded", *full_run.PLATFORM)
    assert "tests/platform/test_schema_fuzz.py" not in full_run.files_naming("embedded", *full_run.PLATFORM)
