"""``python -m control_plane`` and ``lorikeet-manage``: Django's command line, as ``manage.py`` of a checkout."""

from __future__ import annotations

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
