"""``python -m lora_engine`` and ``lora-engine``: start an engine host."""

from __future__ import annotations

import logging
import os
import sys

from lora_engine.server.process import main


def run() -> None:
    status = main()
    # Everything is written and closed by now. A thread that still waits for an artifact store's answer
    # would otherwise keep the process for as long as its network timeout.
    logging.shutdown()
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    run()
