#!/usr/bin/env python
"""Django's command line. Works from a checkout as well as from an installed package."""

import os
import sys
from pathlib import Path

SOURCE_ROOTS = ("platform", "inference_engine", "kernels")


def main() -> None:
    root = Path(__file__).resolve().parent
    # Prepended, so that a checkout runs its own code even where another copy is installed.
    sys.path[:0] = [str(root / name) for name in SOURCE_ROOTS if (root / name).is_dir()]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
