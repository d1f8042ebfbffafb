"""Errors of a command, and the exit codes that scripts rely on."""

from __future__ import annotations

from typing import Any

from lorikeet_cli.advice import in_commands

FAILED = 1
USAGE = 2  # argparse's own
TRY_AGAIN = 3
LOG_IN = 4
TIMED_OUT = 5
INTERRUPTED = 130  # 128 and the number of SIGINT, as shells report it
# Meaning of each exit code, in a line of `lorikeet --help`.
EXIT_CODES = {
    0: "done",
    FAILED: "refused, failed or not there; the error says why",
    USAGE: "the arguments are wrong",
    TRY_AGAIN: "the server cannot be reached, is overloaded or failed; the same command can succeed later",
    LOG_IN: "not logged in, or the key or session is no longer valid",
    TIMED_OUT: "a wait reached its --timeout; the server continues",
    INTERRUPTED: "interrupted with Ctrl-C",
}


class CliError(Exception):
    """An error for the person at the terminal: what happened, and what to do about it.

    The fields are those of the API's errors. `exit_code` is one of EXIT_CODES.
    """

    def __init__(
        self,
        message: str,
        fix: str = "",
        *,
        code: str = "failed",
        param: str = "",
        request_id: str = "",
        exit_code: int = FAILED,
    ) -> None:
        super().__init__(message)
        self.message, self.fix, self.code, self.param = message, fix, code, param
        self.request_id, self.exit_code = request_id, exit_code

    @classmethod
    def from_response(cls, status: int, body: Any) -> CliError:
        """Return the server's error, or one that names the status if the body has none."""
        exit_code = LOG_IN if status == 401 else TRY_AGAIN if status == 429 or status >= 500 else FAILED
        error = body.get("error") if isinstance(body, dict) else None
        if not isinstance(error, dict):
            fix = "Check the address: is it a Lorikeet server's?"
            return cls(f"The server answered {status}.", fix, code=f"http_{status}", exit_code=exit_code)
        fix = str(error.get("fix") or "")
        message = str(error.get("message") or f"The server answered {status}.")
        return cls(
            # Errors of /v1 have the fix in the message too, as OpenAI's clients show nothing else.
            message.removesuffix(f" {fix}"),
            fix,
            code=str(error.get("code") or f"http_{status}"),
            param=str(error.get("param") or ""),
            request_id=str(error.get("request_id") or ""),
            exit_code=exit_code,
        )

    def text(self) -> str:
        """Return the error as lines for a person."""
        field = f"(field {self.param})" if self.param and self.param not in self.message else ""
        request = f"(request {self.request_id})" if self.request_id else ""
        again = "`lorikeet login` replaces the saved key or session." if self.exit_code == LOG_IN and request else ""
        return "\n".join(filter(None, [self.message, in_commands(self.fix), again, field, request]))

    def body(self) -> dict[str, Any]:
        """Return the error as the API's errors are, for `--json`."""
        error = {"code": self.code, "message": self.message, "fix": self.fix}
        return {"error": {**error, "param": self.param or None, "request_id": self.request_id or None}}
