"""``python -m lora_engine --healthcheck PORT``: the health check of a container, which loads no torch."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Sequence

FLAG = "--healthcheck"
# Seconds for the answer of an engine on this machine: one whose process is stopped sends none.
_TIMEOUT_S = 2.0


def main(arguments: Sequence[str]) -> int:
    """Return 0 if the engine with this metrics port is ready and makes steps, else 1 after a line with the reason."""
    if len(arguments) != 1 or not arguments[0].isdigit():
        print(f"usage: python -m lora_engine {FLAG} PORT   (the port of --metrics-port)")
        return 2
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{arguments[0]}/readyz", timeout=_TIMEOUT_S):
            return 0
    except urllib.error.HTTPError as error:
        print(error.read(10_000).decode(errors="replace").strip())
    except OSError as error:
        print(f"the engine does not answer on port {arguments[0]}: {error}")
    return 1
