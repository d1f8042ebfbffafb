"""Errors of an import's source."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
        "The address answers {status}: it is private, or its signature has expired.",
        "Sign it again, and import the new address.",
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


_SET_KEYS = "(POST bucket-credentials, or beside the import in the console)"
# Code, message and fix of the problem for each error code of a source.
_BY_CODE = {
    (Origin.HUB, "GatedRepo"): (
        "source_forbidden",
        "The repository is gated: the Hub gives it to accounts that have accepted its terms.",
        "Accept them on its page, with the account whose token this tenant has for the Hub (PUT hub-token, or beside "
        "the import in the console).",
    ),
    (Origin.HUB, "DisabledRepo"): (
        "source_forbidden",
        "The Hub has disabled this repository.",
        "Import the adapter from another place.",
    ),
    (Origin.HUB, "RevisionNotFound"): (
        "source_not_found",
        "The repository has no such revision.",
        "Name a branch, a tag, a pull request (refs/pr/1) or a whole commit, like hub:org/name@v1.",
    ),
    (Origin.HUB, "InvalidToken"): (
        "source_forbidden",
        "The Hub does not accept this tenant's token.",
        "Set one that is valid (PUT hub-token, or beside the import in the console), or remove it for what is public.",
    ),
    (Origin.BUCKET, "ExpiredToken"): (
        "source_forbidden",
        "The bucket answers that the session of these credentials has ended (ExpiredToken).",
        f"Set new ones, with their session token {_SET_KEYS}.",
    ),
    (Origin.BUCKET, "InvalidAccessKeyId"): (
        "source_forbidden",
        "The bucket's server knows no such access key id (InvalidAccessKeyId).",
        f"Set the credentials again, with their session token if they are temporary, and the endpoint {_SET_KEYS}.",
    ),
    (Origin.BUCKET, "SignatureDoesNotMatch"): (
        "source_forbidden",
        "The secret access key is not that of the access key id (SignatureDoesNotMatch).",
        f"Set both again {_SET_KEYS}.",
    ),
    (Origin.BUCKET, "InvalidObjectState"): (
        "source_forbidden",
        "The object is in an archive (InvalidObjectState).",
        "Restore it there first, or copy it to another storage class.",
    ),
}
_OTHER_REGION = frozenset({"PermanentRedirect", "AuthorizationHeaderMalformed", "AuthorizationQueryParametersError"})
_CODE = re.compile(rb"<Code>([A-Za-z0-9]{1,64})</Code>")
_A_REGION = re.compile(r"[a-z0-9-]{1,64}", re.ASCII)
_REGION = re.compile(rb"<Region>([a-z0-9-]{1,64})</Region>")


class SourceProblemError(Exception):
    """An error of an import's source. `passes`: it may be temporary, so the import waits and is retried."""

    def __init__(self, code: str, message: str, fix: str, *, passes: bool = False) -> None:
        super().__init__(message)
        self.problem = {"code": code, "message": message, "fix": fix}
        self.passes = passes


def check_status(status: int, of: Origin) -> None:
    """Raise SourceProblemError for a status that is not a success."""
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


def check_answer(status: int, of: Origin, headers: Mapping[str, str], body: bytes = b"") -> None:
    """Raise SourceProblemError for an answer that is not a success, using the source's error code.

    `body`: its start.
    """
    if status not in (200, 206):
        raise_by_code(status, of, headers, body)
        check_status(status, of)


def raise_by_code(status: int, of: Origin, headers: Mapping[str, str], body: bytes) -> None:
    """Raise SourceProblemError for a refusal with a known error code."""
    code = error_code(of, headers, body)
    if known := _BY_CODE.get((of, code)):
        raise SourceProblemError(*known)
    if of is Origin.BUCKET and (code in _OTHER_REGION or status == 301):
        match = _REGION.search(body)
        region = headers.get("x-amz-bucket-region", match[1].decode() if match else "")
        where = f", but in {region}" if _A_REGION.fullmatch(region) else ""
        message = f"The bucket is not in the region of its credentials{where}."
        raise SourceProblemError("source_forbidden", message, f"Set them again with its region {_SET_KEYS}.")


def error_code(of: Origin, headers: Mapping[str, str], body: bytes) -> str:
    """Return the source's error code; "" if there is none."""
    if of is Origin.HUB:
        invalid = headers.get("x-error-message", "").startswith("Invalid credentials")
        return "InvalidToken" if invalid else headers.get("x-error-code", "")
    match = _CODE.search(body)
    return match[1].decode() if match else ""


def unavailable(message: str) -> SourceProblemError:
    return SourceProblemError(
        "source_unavailable", message, "It is retried automatically, and continues where it stopped.", passes=True
    )


def no_credentials(bucket: str) -> tuple[str, str, str]:
    """Return the code, message and fix for a bucket without credentials."""
    return (
        "no_bucket_credentials",
        f"This tenant has no credentials for the bucket {bucket}.",
        "Set them (POST bucket-credentials, or beside the import in the console), or import a signed address.",
    )
