"""What a person at a terminal is told."""

from __future__ import annotations

from typing import Any


class CliError(Exception):
    """What happened, and what to do."""

    def __init__(self, message: str, fix: str = "", request_id: str = "", code: str = "", param: str = "") -> None:
        super().__init__(message)
        self.message, self.fix, self.request_id, self.code, self.param = message, fix, request_id, code, param

    @classmethod
    def of_answer(cls, status: int, body: Any) -> CliError:
        """The server's own words, where it said any."""
        error = body.get("error") if isinstance(body, dict) else None
        if not isinstance(error, dict):
            return cls(f"The server answered {status}.", "Check the address; is a Lorikeet server there?")
        return cls(
            str(error.get("message", status)),
            str(error.get("fix", "")),
            str(error.get("request_id") or ""),
            str(error.get("code", "")),
            str(error.get("param") or ""),
        )
