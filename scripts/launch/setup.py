"""The steps that prepare a fresh clone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from scripts.launch.console import build_console, start_console_packages
from scripts.launch.packages import EXTRAS, install_packages
from scripts.launch.paths import GIB, require_space, require_writable, var_dir
from scripts.launch.progress import Progress, Stop

# Free bytes that Lorikeet's data needs at least.
DATA_SPACE = GIB // 2


def prepare(arguments: Sequence[str]) -> int:
    """Prepare the checkout for "run" or "test". Returns an exit code; errors are printed as sentences."""
    purpose = arguments[0] if arguments else "run"
    if purpose not in EXTRAS:
        print(f"Unknown purpose {purpose!r}: use one of {', '.join(EXTRAS)}.", file=sys.stderr)
        return 2
    progress = Progress()
    try:
        require_space(var_dir(), DATA_SPACE, "Lorikeet's data")
        require_writable(var_dir(), "LORIKEET_VAR_DIR")
        with ThreadPoolExecutor(1) as pool:
            console_packages = start_console_packages(pool)
            install_packages(purpose, progress)
            build_console(progress, console_packages)
    except Stop as stop:
        print(f"\n{stop.message}\n{stop.fix}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted. Run the same command again to continue.", file=sys.stderr)
        return 130
    return 0
