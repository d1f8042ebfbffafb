"""Structured logs: one JSON object a line, with the id of its request."""

import json
import logging
import re
import sys
import threading
from datetime import UTC, datetime
from types import TracebackType

from control_plane.core.http.request_id import client_request_id, current_request_id

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "request_id",
    "taskName",
    "color_message",
}


# No code here logs secrets on purpose. Text of a library or a traceback is masked by its form: API keys after their
# public part, bearer tokens, passwords in URLs.
_SECRETS = [
    (re.compile(r"(lk_[a-z2-7]{4,16}_)[A-Za-z0-9_-]+"), r"\1…"),
    (re.compile(r"(lkj_)[A-Za-z0-9_-]+"), r"\1…"),
    (re.compile(r"(?i)(bearer\s+)(?!lk_)[A-Za-z0-9._~+/=-]{8,}"), r"\1…"),
    (re.compile(r"(://[^/\s:@\"]*:)[^/\s@\"]+@"), r"\1…@"),
]


def mask(text: str) -> str:
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


class PlainFormatter(logging.Formatter):
    """The formatter for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return mask(super().format(record))


def log_uncaught() -> None:
    """Log exceptions that end the process or a thread as lines like all others, instead of plain tracebacks."""
    logger = logging.getLogger("control_plane")

    def uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
        else:
            logger.critical("The process ends with an error.", exc_info=(kind, error, trace))

    def in_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not issubclass(args.exc_type, SystemExit):
            info = (args.exc_type, args.exc_value, args.exc_traceback)
            logger.error("The thread %s ended with an error.", args.thread and args.thread.name, exc_info=info)

    sys.excepthook, threading.excepthook = uncaught, in_thread
    logging.captureWarnings(True)


class UnexpectedErrors(logging.Filter):
    """A filter of Django's log of answers: only exceptions that were answered with 500 pass.

    Others, such as 503 while an adapter loads, are answers that the platform chose; `lorikeet.requests` has them.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        return bool(record.exc_info) and getattr(record, "status_code", 500) == 500


class RequestIdFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "request_id"):
            record.request_id = current_request_id() or "-"
        client_id = client_request_id()
        if client_id and client_id != getattr(record, "request_id", "") and not hasattr(record, "client_request_id"):
            record.client_request_id = client_id
        return True


class JsonFormatter(logging.Formatter):
    """A formatter of JSON lines: `extra=` fields become fields of the object."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "request_id": getattr(record, "request_id", "-"),
        }
        line.update({name: value for name, value in vars(record).items() if name not in _STANDARD})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return mask(json.dumps(line, default=str))
