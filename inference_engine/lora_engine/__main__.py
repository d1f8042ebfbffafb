"""``python -m lora_engine`` and ``lora-engine``: start an engine host, check the health of one, or plan one."""

from __future__ import annotations

import logging
import os
import sys

from lora_engine import healthcheck


def run() -> None:
    if sys.argv[1:2] == [healthcheck.FLAG]:
        sys.exit(healthcheck.main(sys.argv[2:]))
    if sys.argv[1:2] == ["--plan"]:
        from lora_engine.server import plan

        sys.exit(plan.main(sys.argv[2:]))
    from lora_engine.server.process import main  # loads torch, which a health check would do every few seconds

    status = main()
    # Everything is written and closed by now. A thread that still waits for an artifact store's answer
    # would otherwise keep the process for as long as its network timeout.
    logging.shutdown()
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    run()
