"""Become another program that gets only what nobody else wants of the processor.

    python scripts/lowest_priority.py COMMAND [ARGUMENT …]

Start it in a session of its own: Linux shares the processor among sessions first, and only then by `nice`.
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
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
