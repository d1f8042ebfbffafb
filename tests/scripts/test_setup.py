"""Every way in which setting up can fail is a sentence that says what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lora_engine.server import arguments
from scripts.launch import packages, paths
from scripts.launch.options import Options
from scripts.launch.packages import explain_pip_failure
from scripts.launch.progress import Stop
from scripts.launch.shell import CommandFailed, run_logged
from scripts.launch.stamps import Stamp, digest_of
from scripts.launch.supervisor import engine_command, hybrid_engine_command

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk is full"),
        ("WARNING: Retrying ... NewConnectionError('<...> Failed to establish a new connection')", "could not reach"),
        ("ERROR: No matching distribution found for torch==9", "There is no build of torch==9"),
        ("ERROR: something else went wrong", "something else went wrong"),
    ],
)
def test_pip_failures_are_explained(output: str, said: str) -> None:
    stop = explain_pip_failure(CommandFailed(["pip"], 1, output), "torch==9")
    assert said in stop.message
    assert stop.fix


@pytest.mark.parametrize("lacking", [1, 2])
def test_pip_tries_again_if_a_pinned_version_is_not_listed(lacking: int, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = ["ERROR: ResolutionImpossible: for help visit …"] * lacking

    def run(name: str, command: list[str]) -> None:
        if outputs:
            raise CommandFailed(command, 1, outputs.pop())

    monkeypatch.setattr(packages, "run_logged", run)
    if lacking == 1:
        packages._pip_install(["install", "x"], "")
    else:
        with pytest.raises(Stop, match="ResolutionImpossible"):
            packages._pip_install(["install", "x"], "")


def test_a_full_disk_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(Stop, match="Too little disk space for the data") as stopped:
        paths.require_space(tmp_path / "not" / "there" / "yet", 1 << 60, "the data")
    assert "Free some space" in stopped.value.fix


def test_an_unwritable_folder_is_a_sentence(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(Stop, match="Cannot write to") as stopped:
        paths.require_writable(blocked / "var", "LORIKEET_VAR_DIR")
    assert "LORIKEET_VAR_DIR=" in stopped.value.fix


def test_a_failing_command_keeps_its_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LORIKEET_VAR_DIR", str(tmp_path))
    with pytest.raises(CommandFailed) as failed:
        run_logged("trial", [sys.executable, "-c", "print('one'); print('two'); raise SystemExit(4)"])
    assert failed.value.tail(1) == "two"
    assert "one\ntwo" in (tmp_path / "log" / "trial.log").read_text()


def test_stamps_follow_contents(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("a")
    stamp = Stamp(tmp_path / "stamp", digest_of([source, "x"]))
    assert not stamp.holds()
    stamp.write()
    assert Stamp(tmp_path / "stamp", digest_of([source, "x"])).holds()
    source.write_text("b")
    assert not Stamp(tmp_path / "stamp", digest_of([source, "x"])).holds()
    assert digest_of(["ab", "c"]) != digest_of(["a", "bc"])


def test_where_torch_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr(packages, "_wants_cuda", lambda: False)
    monkeypatch.setattr(packages, "_reachable", lambda url: True)
    assert packages._torch_source("torch==2.13.0", "")[-1] == packages.TORCH_CPU_INDEX
    assert packages._torch_source("torch==2.13.0", "none") == []
    assert packages._torch_source("torch==2.13.0", "https://my/index")[-1] == "https://my/index"
    monkeypatch.setattr(packages, "_wants_cuda", lambda: True)
    assert packages._torch_source("torch==2.13.0", "") == []


def test_options_name_what_is_wrong() -> None:
    with pytest.raises(Stop, match="PORT=abc is not a number"):
        Options.from_environment({"PORT": "abc"})


def test_a_deep_data_folder_still_has_a_short_socket_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LORIKEET_VAR_DIR", str(tmp_path / ("deep" * 30)))
    assert len(str(Options.from_environment({}).engine_socket)) < 100


def test_on_a_gpu_the_engine_takes_the_memory_that_there_is() -> None:
    on_cpu, on_gpu = Options.from_environment({}), Options.from_environment({"DEVICE": "cuda"})
    assert (on_cpu.pool_mb, on_cpu.host_arena_mb) == (256, 512)
    assert (on_gpu.pool_mb, on_gpu.host_arena_mb) == (0, 0), "0 leaves it to the engine"
    assert Options.from_environment({"DEVICE": "cuda", "POOL_MB": "40000"}).pool_mb == 40_000


def test_the_second_demo_model_is_beside_the_first_on_a_cpu() -> None:
    options = Options.from_environment({})
    assert [*options.engine_sockets] == ["local", "hybrid"]
    parsed = arguments.parse(hybrid_engine_command(options)[3:])
    assert (parsed.model_name, parsed.device, parsed.pool_mb) == ("lorikeet-demo-hybrid", "cpu", 64)
    for env in ({"HYBRID": "0"}, {"MODEL": "/models/other"}, {"DEVICE": "cuda"}):
        assert [*Options.from_environment(env).engine_sockets] == ["local"]
    assert Options.from_environment({"MODEL": "/models/other", "HYBRID": "1"}).hybrid


def test_what_is_in_fp8_is_passed_on() -> None:
    settings = ("QUANTIZATION", "KV_CACHE_DTYPE", "ADAPTER_DTYPE")
    command = engine_command(Options.from_environment(dict.fromkeys(settings, "fp8")))
    for name in ("--quantization", "--kv-cache-dtype", "--adapter-dtype"):
        assert command[command.index(name) + 1] == "fp8"
    parsed = arguments.parse(engine_command(Options.from_environment({}))[3:])
    assert (parsed.quantization, parsed.kv_cache_dtype, parsed.adapter_dtype) == ("auto", "auto", "auto")


def test_speculation_is_passed_on() -> None:
    for env, expected in ({}, "off"), ({"SPECULATION": "ngram"}, "ngram"), ({"SPECULATION": "mtp"}, "mtp"):
        parsed = arguments.parse(engine_command(Options.from_environment(env))[3:])
        assert (parsed.speculation, parsed.draft_model) == (expected, None)
    for env, folder in ({}, ROOT / "demo" / "draft"), ({"DRAFT_MODEL": "/models/head"}, Path("/models/head")):
        options = Options.from_environment({"SPECULATION": "eagle3", **env})
        parsed = arguments.parse(engine_command(options)[3:])
        assert (parsed.speculation, parsed.draft_model) == ("eagle3", folder)


def test_a_model_over_several_gpus() -> None:
    options = Options.from_environment({"DEVICE": "cuda", "TP": "4"})
    assert arguments.parse(engine_command(options)[3:]).tensor_parallel == 4
    assert arguments.parse(engine_command(Options.from_environment({}))[3:]).tensor_parallel == 1


def test_answers_are_deterministic_if_asked_for() -> None:
    for value, expected in {"": False, "0": False, "1": True}.items():
        options = Options.from_environment({"DETERMINISTIC": value})
        assert arguments.parse(engine_command(options)[3:]).deterministic is expected
    with pytest.raises(Stop, match="DETERMINISTIC=yes is neither 0 nor 1"):
        Options.from_environment({"DETERMINISTIC": "yes"})


def test_an_old_python_is_told_what_to_do(tmp_path: Path) -> None:
    """The entry point must compile and speak under any Python 3; here its version is only pretended."""
    pretend = "import sys, runpy, shutil; sys.version_info = (3, 8, 1); shutil.which = lambda name: None; "
    run = "runpy.run_module('scripts.bootstrap', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", pretend + run], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "needs Python 3.11 or newer" in done.stderr
    assert "make run PYTHON=" in done.stderr


def test_an_unknown_purpose_lists_the_known_ones() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.bootstrap", "fly"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "run, test" in done.stderr
