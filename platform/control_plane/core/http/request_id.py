"""The id of the current request, which logs, errors and audit rows read without passing it around."""

import re
import uuid
from contextvars import ContextVar

_current: ContextVar[str] = ContextVar("lorikeet_request_id", default="")
_ACCEPTABLE = re.compile(r"^[A-Za-z0-9._-]{8,64}$")


def new_request_id() -> str:
    return f"req_{uuid.uuid4().hex}"


def current_request_id() -> str:
    """Return the id of the request that this code runs for, or "" outside any."""
    return _current.get()


def set_request_id(request_id: str) -> None:
    _current.set(request_id)


def accept_or_make(offered: str | None) -> str:
    """Return a client's or proxy's id if it is harmless to log, else a new one."""
    return offered if offered and _ACCEPTABLE.match(offered) else new_request_id()
