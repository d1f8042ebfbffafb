"""The base class of errors that callers see: what happened, and what to do about it."""

from __future__ import annotations

from typing import Any


class LorikeetError(Exception):
    """An error for the caller.

    `code` is for programs, `message` says what happened, `fix` what to do, `param` names the input at fault.
    """

    def __init__(self, code: str, message: str, fix: str, *, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.code, self.message, self.fix, self.param, self.status = code, message, fix, param, status

    def body(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, "fix": self.fix, "param": self.param}


class DeletionPausedError(Exception):
    """Deletion by age is paused: a clock is wrong, or was stepped a short time ago."""


class NotFoundError(LorikeetError):
    """A resource that does not exist or belongs to another tenant: the caller cannot tell which."""

    def __init__(self, message: str, fix: str, *, code: str = "not_found", param: str | None = None) -> None:
        super().__init__(code, message, fix, param=param, status=404)


class ForbiddenError(LorikeetError):
    def __init__(self, message: str, fix: str, *, code: str = "forbidden") -> None:
        super().__init__(code, message, fix, status=403)
