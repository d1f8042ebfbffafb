"""The engine's errors: for requests, adapters, models and the start of the process."""

from __future__ import annotations


class RequestError(Exception):
    """A request that cannot be served: what happened, and what to do.

    ``code`` is stable and machine-readable; ``param`` names the request field at fault.
    ``retry_after_ms`` is set for refusals that pass with time.
    """

    def __init__(self, code: str, message: str, fix: str = "", *, param: str = "", retry_after_ms: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fix = fix
        self.param = param
        self.retry_after_ms = retry_after_ms


class StageError(Exception):
    """An adapter that cannot be staged or loaded: what happened, and what to do. Retrying helps if ``passes``."""

    def __init__(self, code: str, message: str, fix: str, *, passes: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fix = fix
        self.passes = passes
        self.retry_after_ms = 1000 if passes else 0

    def as_request_error(self) -> RequestError:
        """Return this error as a ``RequestError`` for a request that waits for the adapter."""
        return RequestError(self.code, self.message, self.fix, param="model", retry_after_ms=self.retry_after_ms)


class UnsupportedModel(Exception):
    """A folder without a model that this engine can run; the message says what to do."""


class StartupError(Exception):
    """An engine that cannot start; the message says what to do."""
