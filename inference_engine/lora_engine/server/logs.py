"""Log lines are JSON for machines and plain text for a terminal."""

from __future__ import annotations

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from types import TracebackType

log = logging.getLogger(__name__)

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """A formatter that writes one JSON object per line, with ``extra`` as fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extras(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class PlainLines(logging.Formatter):
    """A formatter of lines such as ``12:34:56 INFO message  request_id=…``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (the library's name)
        extras = " ".join(f"{name}={value}" for name, value in _extras(record).items() if value)
        return super().formatMessage(record) + (f"  {extras}" if extras else "")


def set_up(level: str) -> None:
    """Log to standard error from now on. Raises ``ValueError`` for an unknown level."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(PlainLines() if sys.stderr.isatty() else JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(True)
    sys.excepthook, threading.excepthook = _uncaught, _uncaught_in_thread


def fatal(message: str) -> None:
    """Report why the process ends: as a log line, or for a terminal as plain text."""
    if sys.stderr.isatty() or not isinstance(_formatter(), JsonLines):
        print(f"lora_engine: {message}", file=sys.stderr)
    else:
        log.critical("%s", message)


def _formatter() -> logging.Formatter | None:
    handlers = logging.getLogger().handlers
    return handlers[0].formatter if handlers else None


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
    else:
        log.critical("the engine ends with an error", exc_info=(kind, error, trace))


def _uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not issubclass(args.exc_type, SystemExit):
        info = (args.exc_type, args.exc_value, args.exc_traceback)
        log.error("the thread %s ended with an error", args.thread and args.thread.name, exc_info=info)


def _extras(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}
