"""The error of an adapter that could not be staged or loaded."""

from __future__ import annotations

from lora_engine.request import RequestError


class StageError(Exception):
    """A failure with a stable ``code``; ``message`` says what happened, ``fix`` what to do. Retrying helps if
    ``passes``.
    """

    def __init__(self, code: str, message: str, fix: str, *, passes: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fix = fix
        self.passes = passes

    def as_request_error(self) -> RequestError:
        """Return the same error for a request that waits for the adapter."""
        retry_after_ms = 1000 if self.passes else 0
        return RequestError(self.code, self.message, self.fix, param="model", retry_after_ms=retry_after_ms)
