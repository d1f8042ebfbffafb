"""Why an import cannot go on."""

from __future__ import annotations


class SourceProblemError(Exception):
    """`passes`: it may go by itself, so the import waits and is tried again."""

    def __init__(self, code: str, message: str, fix: str, *, passes: bool = False) -> None:
        super().__init__(message)
        self.problem = {"code": code, "message": message, "fix": fix}
        self.passes = passes


def check_status(status: int) -> None:
    """Raises SourceProblemError for what is no success."""
    if status in (200, 206):
        return
    if status in (401, 403):
        raise SourceProblemError(
            "source_forbidden",
            f"The source answers {status}: it is private or gated, the signature has ended, or there is no such "
            "repository, which the Hub does not tell apart.",
            "Check the name. Set this tenant's token for the Hub, accept the model's terms there, sign the address "
            "again, or set credentials that may read the bucket's objects.",
        )
    if status in (404, 410):
        raise SourceProblemError(
            "source_not_found",
            f"The source answers {status}: there is no such repository, revision or file.",
            "Check the name; a private repository needs this tenant's token for the Hub.",
        )
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
