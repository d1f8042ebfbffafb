"""`make test`: run the static checks and every test that needs no GPU, with nothing skipped.

    python -m scripts.full_run                  everything
    python -m scripts.full_run tests/engine     only these tests, on SQLite
    python -m scripts.full_run --long           `make test-long`: the tests that take too long for every change

The platform's tests run on PostgreSQL and Redis. Those that concern differences of SQLite and of queues in memory
(marks `embedded` and `also_embedded`) also run on these.

The platform's tests and the end-to-end tests wait for other processes a third of their time. Stages that only
compute and measure no time (the checks, the console's units, the kernels in the interpreter, the engine against
transformers, the cases of the API's schema) run in the background at the lowest priority, three at a time. Their output
is printed when each of them ends. A run that took longer than its budget says so; CONTRIBUTING.md says what to do then.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from scripts.launch.console import install_console_packages, node_bin_dir
from scripts.launch.paths import FRONTEND, ROOT
from scripts.launch.progress import Progress, Stop
from scripts.launch.system import chromium, install_test_programs
from scripts.test_services import ServiceError, Services, services, stop_servers_on_sigterm

# Marks of pyproject.toml. Tests for a GPU run on machines that have one, the long ones by `make test-long`.
ORDINARY = "not gpu and not long and not e2e"
NO_SERVICES = f"{ORDINARY} and not services"
ON_SERVICES = f"{ORDINARY} and not embedded"
ON_EMBEDDED_DEFAULTS = f"{NO_SERVICES} and (embedded or also_embedded)"
END_TO_END = "e2e and not gpu and not long and not alone"
END_TO_END_ALONE = "e2e and not gpu and not long and alone"
UNITS = ("tests/scripts", "tests/fuzz", "tests/engine")
PLATFORM = ("tests/platform", "tests/attack", "tests/operations")
# Tests that load torch, which takes longer than most files' tests and would happen in each of the platform's workers.
WITH_TORCH = tuple(f"tests/attack/test_{name}.py" for name in ("adapter_peers", "open_ports", "poisoned_pools"))
# Tests of the engine that neither measure time nor wait, by file or folder: answers, policies, and all files that
# import transformers or peft, which would take three seconds in each worker of the units.
ENGINE_ANSWERS = (
    "tests/engine/scheduling",
    *(
        f"tests/engine/{name}.py"
        for name in (
            "peft_format/test_multiplied_out", "peft_format/test_patterns", "peft_format/test_properties",
            "server/test_base_agreement", "test_activated_lora", "test_adapter_embedding_layers", "test_adapter_kinds",
            "test_agreement_with_transformers", "test_changed_base", "test_combined_adapters", "test_configurations",
            "test_dead_ends", "test_demo_model", "test_deterministic", "test_draft_head",
            "test_embedding_layer_combinations", "test_expert_adapters", "test_expert_residency", "test_experts",
            "test_fp8_adapters", "test_fp8_experts", "test_fp8_kv_cache", "test_fp8_shapes", "test_fp8_weights",
            "test_gpt_oss", "test_graph_shapes", "test_hybrid_models", "test_json_schema_suite", "test_lookahead",
            "test_merge_policies", "test_mixed_graphs", "test_model_shapes", "test_mtp", "test_older_peft",
            "test_planning", "test_resumed_answers", "test_sampling", "test_scheduling_with_fake_model",
            "test_schema_rewriting", "test_speculation", "test_speculation_with_states", "test_symmetric_sums",
            "text/test_chat_template", "text/test_fill_in_middle", "text/test_real_templates",
        )
    ),
)  # fmt: skip
CPU_BOUND = ("tests/contract", "tests/kernels", *ENGINE_ANSWERS, *WITH_TORCH)
# Test file whose collection makes cases from the schema, which takes seven seconds in each process: it runs in one.
API_SCHEMA = "tests/platform/test_schema_fuzz.py"
# Test file that only runs in `make test-long`: each worker would read the schema to find that out.
LONG_API_SCHEMA = "tests/platform/test_schema_stateful.py"
OTHER_STAGES = tuple(f"--ignore={file}" for file in (*WITH_TORCH, *ENGINE_ANSWERS, API_SCHEMA, LONG_API_SCHEMA))
# Workers of pytest-xdist. Each has its database and processes on one PostgreSQL with 200 connections; more than four
# were never tried.
CORES = min(max(os.cpu_count() or 2, 2), 4)
# Options by which workers take tests from each other, so that a stage does not end with one file in one worker.
STEALING = ("-n", str(CORES), "--dist", "worksteal")
# Options for tests that wait for PostgreSQL, Redis, ranks and other processes half of their time: half as many workers
# again.
WAITING = ("-n", str(CORES + CORES // 2), "--dist", "worksteal")
# Options by which the tests of a file run in one worker, in order: they share a running platform.
BY_FILE = ("-n", str(CORES), "--dist", "loadfile", "--no-loadscope-reorder")

# Threads of torch wait for each other without the processor. By default they compute in a loop until the last one is
# done: beside other busy processes, 100 steps of the demo model took 14 CPU seconds instead of 0.6.
WAITING_THREADS = {"OMP_WAIT_POLICY": "passive"}
# Settings of PostgreSQL: hundreds of databases that live for seconds need no vacuum, which starts a process for each of
# them every minute.
POSTGRES_SETTINGS = {"autovacuum": "off"}
# Seconds that `make test` may take on two cores that nothing else uses, without installing. It is no bound: a slow or
# busy machine must not fail a run.
BUDGET_S = 900
# Stages in the background at a time: one alone leaves a core idle while the stages before it wait, and one of three
# waits itself.
BACKGROUND_STAGES = 3


@dataclass
class Counts:
    """The numbers of tests by outcome, over all stages."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, junit: Path) -> None:
        """Add the JUnit report of one pytest run. A missing report counts as one failure."""
        if not junit.exists():
            self.failed += 1
            return
        for suite in ElementTree.parse(junit).getroot().iter("testsuite"):
            total, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
            failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            self.failed += failed
            self.skipped += skipped
            self.passed += total - failed - skipped


@dataclass(frozen=True)
class Stage:
    """A command of the full run. A `background` stage runs at the lowest priority while the others run."""

    name: str
    command: Sequence[str]
    cwd: Path = ROOT
    env: Mapping[str, str] = field(default_factory=dict)
    junit: Path | None = None
    background: bool = False


def pytest_stage(
    name: str, *arguments: str, env: Mapping[str, str] | None = None, reports: Path, background: bool = False
) -> Stage:
    junit = reports / f"{name.replace(' ', '-')}.xml"
    # LimitedReruns in tests/conftest.py decides how many failures a second run may excuse.
    reporting = ["--reruns=1", "--durations=15", "--durations-min=1", f"--junitxml={junit}"]
    # One file needs this plugin, and loading it takes two seconds in each process of pytest.
    plugins = [] if API_SCHEMA in arguments or "tests" in arguments else ["-p", "no:schemathesis"]
    command = [sys.executable, "-m", "pytest", *reporting, *plugins, *arguments]
    variables = {
        "LORIKEET_FULL_RUN": "1", "LORIKEET_OUTCOMES": str(outcomes_file(junit)), "LORIKEET_TEST_FOLDER": str(reports),
    }  # fmt: skip
    return Stage(name, command, env={**variables, **(env or {})}, junit=junit, background=background)


def outcomes_file(junit: Path) -> Path:
    """Return the file in which a stage's pytest lists the tests that failed, were skipped or ran twice."""
    return junit.with_suffix(".txt")


def files_naming(mark: str, *folders: str) -> list[str]:
    """Return the test files that contain the name of a mark. pytest would import every other file to deselect it."""
    files = sorted(path for folder in folders for path in (ROOT / folder).rglob("test_*.py"))
    return [str(path.relative_to(ROOT)) for path in files if mark in path.read_text()]


def stages(running: Services, reports: Path) -> list[Stage]:
    """Return the stages of `make test`. The last one runs alone on the machine."""
    npm_path = {"PATH": f"{node_bin_dir()}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    browser = {"LORIKEET_CHROMIUM": chromium() or ""}
    on_services = running.environment()
    end_to_end = ["tests/e2e", "tests/clients", *files_naming("mark.e2e", "tests")]

    def tests(
        name: str, marks: str, *folders: str, env: Mapping[str, str] | None = None, workers: Sequence[str] = STEALING
    ) -> Stage:
        return pytest_stage(name, *workers, "-m", marks, *folders, env=env, reports=reports)

    return [
        # The console's units wait most of their time, since their timers are slow at the lowest priority. Those of one
        # process come next, and last the one that uses both processors.
        Stage("console units", ["npm", "run", "test"], cwd=FRONTEND, env=npm_path, background=True),
        Stage("checks", [sys.executable, "-m", "scripts.check"], background=True),
        pytest_stage(
            "every operation of the API",
            "-m",
            ON_SERVICES,
            API_SCHEMA,
            env=on_services,
            reports=reports,
            background=True,
        ),
        pytest_stage("kernels and answers", *STEALING, "-m", NO_SERVICES, *CPU_BOUND, reports=reports, background=True),
        # Stages that wait come first: the background stages have the processor meanwhile and end before the last one.
        tests(
            "platform on PostgreSQL and Redis", ON_SERVICES, *PLATFORM, *OTHER_STAGES, env=on_services, workers=WAITING
        ),
        tests("end to end", END_TO_END, *end_to_end, env={**on_services, **browser}, workers=BY_FILE),
        tests("platform on the embedded defaults", ON_EMBEDDED_DEFAULTS, *files_naming("embedded", *PLATFORM)),
        tests("units", NO_SERVICES, *UNITS, *OTHER_STAGES, workers=WAITING),
        # These tests bound latencies, which a second platform on the same cores would change.
        tests("end to end, alone", END_TO_END_ALONE, *files_naming("mark.alone", "tests"), env=on_services, workers=()),
    ]


def long_stages(running: Services, reports: Path) -> list[Stage]:
    """Return the stages of `make test-long`: soak and kill tests, full grids in the interpreter, every fuzzer."""
    env = {**running.environment(), "LORIKEET_CHROMIUM": chromium() or "", "LORIKEET_LONG": "1"}
    long = "long and not gpu"
    return [
        pytest_stage("long", *BY_FILE, "-m", f"{long} and not e2e", "tests", env=env, reports=reports),
        pytest_stage("long, end to end", "-m", f"{long} and e2e", "tests", env=env, reports=reports),
    ]


def keeping_bytecode(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which Python caches bytecode: hundreds of processes would each compile the product."""
    return {name: value for name, value in env.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run_stage(stage: Stage, progress: Progress) -> bool:
    progress.say(f"\n━━ {stage.name} ━━")
    started = time.monotonic()
    code = subprocess.call(stage.command, cwd=stage.cwd, env=environment(stage), stdin=subprocess.DEVNULL)
    return report_end(stage, code, started, progress)


def environment(stage: Stage) -> dict[str, str]:
    return {**WAITING_THREADS, **keeping_bytecode(os.environ), **stage.env}


def report_end(stage: Stage, code: int, started: float, progress: Progress) -> bool:
    progress.say(f"{'✓' if code == 0 else '✗'} {stage.name}: {time.monotonic() - started:.0f} s")
    return code == 0


class BackgroundStages:
    """Stages that run at the lowest priority, three at a time. The output of each is printed when it ends."""

    def __init__(self, stages: Sequence[Stage], progress: Progress) -> None:
        self.failed: list[str] = []
        self._waiting, self._progress = list(stages), progress
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._run, name=f"background stages {number}", daemon=True)
            for number in range(BACKGROUND_STAGES)
        ]

    def __enter__(self) -> BackgroundStages:
        for thread in self._threads:
            thread.start()
        return self

    def wait(self) -> None:
        for thread in self._threads:
            thread.join()

    def __exit__(self, *_: object) -> None:
        """Stop the running stages, if any: nothing continues after an interrupt."""
        with self._lock:
            self._waiting.clear()
            for running in self._running:
                with suppress(ProcessLookupError):  # it has just ended
                    os.killpg(running.pid, signal.SIGTERM)
        self.wait()

    def _start_next(self) -> tuple[Stage, subprocess.Popen[str]] | None:
        with self._lock:
            if not self._waiting:
                return None
            stage = self._waiting.pop(0)
            running = subprocess.Popen(
                [sys.executable, "-m", "scripts.lowest_priority", str(stage.cwd), *stage.command],
                cwd=ROOT, env=environment(stage), text=True, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            self._running.add(running)
            return stage, running

    def _run(self) -> None:
        while (started := self._start_next()) is not None:
            (stage, running), began = started, time.monotonic()
            output = running.communicate()[0]
            with self._lock:
                self._running.discard(running)
                self._progress.say(f"\n━━ {stage.name}, in the background ━━\n{output.rstrip()}")
                if not report_end(stage, running.returncode, began, self._progress):
                    self.failed.append(stage.name)


def run_all(progress: Progress, make_stages: Callable[[Services, Path], list[Stage]]) -> int:
    install_test_programs(progress)
    install_console_packages()
    started = time.monotonic()
    counts, failed = Counts(), []
    with services(**POSTGRES_SETTINGS) as running, tempfile.TemporaryDirectory() as folder:
        every = make_stages(running, Path(folder))
        *first, last = [stage for stage in every if not stage.background]
        with BackgroundStages([stage for stage in every if stage.background], progress) as background:
            failed += [stage.name for stage in first if not run_stage(stage, progress)]
            background.wait()
        failed += background.failed
        if not run_stage(last, progress):
            failed.append(last.name)
        for stage in every:
            if stage.junit is not None:
                counts.add(stage.junit)
                if (outcomes := outcomes_file(stage.junit)).exists():
                    progress.say(f"\n{stage.name}:\n{outcomes.read_text().rstrip()}")
    seconds = time.monotonic() - started
    progress.say(f"\nFailed: {', '.join(failed)}" if failed else "\nEvery stage passed.")
    progress.say(f"All pytest stages together, in {seconds:.0f} s:")
    if make_stages is stages and seconds > BUDGET_S:
        progress.say(f"The budget is {BUDGET_S} s on two idle cores. CONTRIBUTING.md says what to do (Tests).")
    progress.say(f"{counts.passed} passed, {counts.failed} failed, {counts.skipped} skipped")
    return 1 if failed else 0


def main() -> int:
    chosen = [argument for argument in sys.argv[1:] if argument != "--long"]
    if chosen:
        return subprocess.call([sys.executable, "-m", "pytest", "-m", ORDINARY, *chosen], cwd=ROOT)
    stop_servers_on_sigterm()
    try:
        return run_all(Progress(), long_stages if "--long" in sys.argv else stages)
    except Stop as stop:
        print(f"\n{stop.message}\n{stop.fix}", file=sys.stderr)
    except ServiceError as error:
        print(f"\n{error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
