"""Importing this loads the modules of a web process, so that its forks need not.

No module but Django's settings may keep what it read from a process's environment: `use_environment` makes those anew
in a fork. `control_plane.asgi` builds the application from them, so that only its imports are loaded here.
"""

import ast
import importlib
import os
import sys
from pathlib import Path

for root in ("platform", "inference_engine", "kernels"):
    sys.path.append(str(Path(__file__).parents[3] / root))
os.environ["DJANGO_SETTINGS_MODULE"] = "control_plane.settings"

import django  # noqa: E402
from django.conf import settings  # noqa: E402
from django.utils.functional import empty  # noqa: E402
from django.utils.module_loading import autodiscover_modules  # noqa: E402

django.setup(set_prefix=False)

_application = Path(__file__).parents[3] / "platform" / "control_plane" / "asgi.py"
_tree = ast.parse(_application.read_text())
_tree.body = [line for line in _tree.body if isinstance(line, ast.Import | ast.ImportFrom)]
exec(compile(_tree, str(_application), "exec"), {})
for name in ("urls", "core.http.protocol", "core.http.compression", "core.http.console"):
    importlib.import_module(f"control_plane.{name}")
autodiscover_modules("tasks")


def use_environment() -> None:
    """Read Django's settings from the environment of this fork, as a new process does."""
    from django.core.cache import caches
    from django.db import connections

    sys.modules.pop("control_plane.settings", None)
    settings._wrapped = empty
    for handler in (connections, caches):
        vars(handler).pop("settings", None)  # a cached property
        handler.__init__()  # type: ignore[misc]
