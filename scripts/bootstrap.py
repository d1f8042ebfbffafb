"""Prepare this checkout: virtual environment, packages, Node, console build.

It uses the standard library only, because it runs before anything is installed. An old Python must be able to read this
file, so that it can print what to do.

    python3 -m scripts.bootstrap run     install the packages of `make run`
    python3 -m scripts.bootstrap test    install those of the tests too
"""

import os
import shutil
import sys

MIN_PYTHON = (3, 11)


def find_newer_python() -> "str | None":
    """Return the newest Python on PATH that is new enough, or None."""
    for minor in range(14, MIN_PYTHON[1] - 1, -1):
        path = shutil.which("python3.%d" % minor)  # noqa: UP031 - see the module docstring
        if path and os.system('"%s" -c "" >/dev/null 2>&1' % path) == 0:  # noqa: UP031
            return path
    return None


def main() -> int:
    if sys.version_info < MIN_PYTHON:
        newer = find_newer_python()
        if newer:
            os.execv(newer, [newer, "-m", "scripts.bootstrap", *sys.argv[1:]])
        sys.exit(
            "Lorikeet needs Python 3.11 or newer, and %s is %d.%d. Install a newer one "  # noqa: UP031
            "(Debian, Ubuntu: apt install python3 python3-venv; macOS: brew install python), or name it: "
            "make run PYTHON=/path/to/python3.12" % (sys.executable, sys.version_info[0], sys.version_info[1])
        )
    from scripts.launch.setup import prepare

    return prepare(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
