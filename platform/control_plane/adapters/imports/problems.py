"""Why an import cannot go on."""

from __future__ import annotations

from enum import StrEnum


class Origin(StrEnum):
    HUB = "hub"
    BUCKET = "bucket"
    ADDRESS = "address"


_FORBIDDEN = {
    Origin.HUB: (
        "The Hub answers {status}: the repository is private or gated, or there is none of that name, which it does "
        "not tell apart.",
        "Check the name; set this tenant's token for the Hub (PUT hub-token, or beside the import in the console), and "
        "accept the model's terms there.",
    ),
    Origin.BUCKET: (
        "The bucket answers {status}: these credentials may not read it.",
        "Set credentials that may list the bucket and read its objects (POST bucket-credentials, or beside the import "
        "in the console).",
    ),
    Origin.ADDRESS: (
        "The address answers {status}: it is private, or its signature has ended.",
        "Sign it again, and import that.",
    ),
}
_NOT_FOUND = {
    Origin.HUB: (
        "The Hub answers {status}: there is no such repository, revision or file.",
        "Check the name; a private repository needs this tenant's token for the Hub.",
    ),
    Origin.BUCKET: (
        "The bucket answers {status}: there is no such bucket or object.",
        "Check its name and its region.",
    ),
    Origin.ADDRESS: ("The address answers {status}: nothing is there.", "Check the address."),
}


class SourceProblemError(Exception):
    """`passes`: it may go by itself, so the import waits and is tried again."""

    def __init__(self, code: str, message: str, fix: str, *, passes: bool = False) -> None:
        super().__init__(message)
        self.problem = {"code": code, "message": message, "fix": fix}
        self.passes = passes


def check_status(status: int, of: Origin) -> None:
    """Raises SourceProblemError for what is no success."""
    if status in (200, 206):
        return
    if status in (401, 403):
        message, fix = _FORBIDDEN[of]
        raise SourceProblemError("source_forbidden", message.format(status=status), fix)
    if status in (404, 410):
        message, fix = _NOT_FOUND[of]
        raise SourceProblemError("source_not_found", message.format(status=status), fix)
    if status in (408, 416, 425, 429) or status >= 500:
        raise unavailable(f"The source answers {status}.")
    raise SourceProblemError("source_answer", f"The source answers {status}.", "Check the address.")


def unavailable(message: str) -> SourceProblemError:
    return SourceProblemError(
        "source_unavailable", message, "It is tried again by itself, and goes on where it stopped.", passes=True
    )


def no_credentials(bucket: str) -> tuple[str, str, str]:
    """Code, message and fix."""
    return (
        "no_bucket_credentials",
        f"This tenant has no credentials for the bucket {bucket}.",
        "Set them (POST bucket-credentials, or beside the import in the console), or import a signed address.",
    )
