"""Run a program in a folder with the lowest priority for the processor.

    python -m scripts.lowest_priority FOLDER COMMAND [ARGUMENT …]

Start it in a new session: Linux shares the processor among sessions first, and only then by `nice`.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path


def main() -> None:
    os.nice(19)
    with suppress(OSError):  # a kernel without it has only `nice`
        Path("/proc/self/autogroup").write_text("19")
    os.chdir(sys.argv[1])
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
