"""The ids of the current request, which logs, errors and audit rows read without passing them around.

A client or a proxy may send an id of its own (`X-Request-Id`), which is kept: it is the request's id, and for inference
it stands beside the id that the ledger has.
"""

import re
import uuid
from contextvars import ContextVar
from dataclasses import dataclass

_ACCEPTABLE = re.compile(r"[A-Za-z0-9._-]{8,64}")


@dataclass
class RequestIds:
    """The ids of one request, shared by all tasks and threads that work for it."""

    current: str = ""
    # The id that the client sent, if it is harmless to log.
    client: str = ""


_current: ContextVar[str] = ContextVar("lorikeet_request_id", default="")
_ids: ContextVar[RequestIds | None] = ContextVar("lorikeet_request_ids", default=None)


def new_request_id() -> str:
    return f"req_{uuid.uuid4().hex}"


def current_request_id() -> str:
    """Return the id of the request that this code runs for, or "" outside any."""
    return _current.get()


def client_request_id() -> str:
    """Return the id that the client sent for this request; "" if it sent none that is kept."""
    ids = _ids.get()
    return ids.client if ids is not None else ""


def is_in_request() -> bool:
    """Return True in code that runs for a request over HTTP."""
    return _ids.get() is not None


def set_request_id(request_id: str) -> None:
    _current.set(request_id)
    if (ids := _ids.get()) is not None:
        ids.current = request_id


def begin_request(offered: str | None) -> RequestIds:
    """Begin a request, and return its ids, which `set_request_id` changes from any task of it."""
    ids = RequestIds(client=offered if is_acceptable(offered) and offered else "")
    _ids.set(ids)
    return ids


def is_acceptable(offered: str | None) -> bool:
    """Return True for an id of 8 to 64 letters, digits, ".", "_" and "-"."""
    return bool(offered and _ACCEPTABLE.fullmatch(offered))


def accept_or_make(offered: str | None) -> str:
    """Return a client's or proxy's id if it is harmless to log, else a new one."""
    return offered if offered and is_acceptable(offered) else new_request_id()
