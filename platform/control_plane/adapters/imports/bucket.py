"""A bucket of Amazon S3 or a compatible server, read with a tenant's credentials.

botocore only signs addresses; connections are made by `egress`, to public addresses only. A signed address contains no
secret, and is not passed on to a server that the bucket redirects to.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from control_plane.adapters.imports.listing import RemoteFile, adapter_of
from control_plane.adapters.imports.models import BucketCredentials
from control_plane.adapters.imports.problems import (
    Origin,
    SourceProblemError,
    check_status,
    error_code,
    raise_by_code,
    unavailable,
)
from control_plane.adapters.imports.sealed import unseal
from control_plane.adapters.imports.sources import S3Source
from control_plane.core.config import current
from control_plane.core.http import egress

# Maximum bytes of one listing.
MAX_BYTES = 4 << 20
# Maximum number of objects of one folder, and of one page of a listing.
MAX_OBJECTS, PAGE_OBJECTS = 10_000, 1000
MAX_TAGS = 100 * PAGE_OBJECTS
LONGEST_TOKEN = 4096


@dataclass(frozen=True)
class TenantBucket:
    name: str
    endpoint: str  # without a slash at its end
    region: str
    access_key_id: str
    secret_access_key: str
    session_token: str = ""  # of temporary credentials

    def url(self, key: str = "", **query: str) -> str:
        """Return a signed URL for a GET, valid for as long as a transfer may take."""
        path = f"{self.endpoint}/{self.name}" + (f"/{quote(key)}" if key else "")
        request = AWSRequest("GET", f"{path}?{urlencode(query, quote_via=quote)}" if query else path)
        keys = Credentials(self.access_key_id, self.secret_access_key, self.session_token or None)
        signer = S3SigV4QueryAuth(keys, "s3", self.region, current().import_wall_s)
        signer.add_auth(request)
        return str(request.url)


def endpoint_of(endpoint: str, region: str) -> str:
    """Return the endpoint for requests with the bucket in the path, which every server accepts."""
    return endpoint.rstrip("/") or f"https://s3.{region}.amazonaws.com"


def open_bucket(kept: BucketCredentials) -> TenantBucket:
    """Return the bucket of stored credentials. Raises SourceProblemError."""
    text = unseal(kept.sealed)
    if text is None:
        raise SourceProblemError(
            "credentials_sealed", f"The credentials of {kept.bucket} cannot be decrypted any more.", "Set them again."
        )
    return TenantBucket(kept.bucket, endpoint_of(kept.endpoint, kept.region), kept.region, **json.loads(text))


def list_adapter(bucket: TenantBucket, source: S3Source) -> list[RemoteFile]:
    """Return the archive that the source names, or the adapter in the folder.

    Raises SourceProblemError, EgressError, UrlRefusedError.
    """
    if source.is_archive:
        return [RemoteFile(source.key.rpartition("/")[2][-255:], bucket.url(source.key), None, Origin.BUCKET)]
    prefix = f"{source.key}/" if source.key else ""
    objects = _objects(bucket, prefix)
    sizes = {name: size for name, (size, _) in objects.items()}
    tags = {name: tag for name, (_, tag) in objects.items()}
    return adapter_of(sizes, lambda name: bucket.url(prefix + name), source.shown, Origin.BUCKET, tags)


def _objects(bucket: TenantBucket, prefix: str) -> dict[str, tuple[int, str]]:
    """Return size and entity tag of all objects below the prefix, by name."""
    objects, after = dict[str, tuple[int, str]](), ""
    for _ in range(MAX_OBJECTS // PAGE_OBJECTS):
        page, after = _page(_listing(bucket, prefix, after), prefix)
        objects |= page
        if not after:
            return objects
    raise SourceProblemError(
        "too_many_objects",
        f"There are more than {MAX_OBJECTS} objects below it.",
        "Name the folder that holds adapter_config.json itself, like s3://bucket/run/checkpoint-500.",
    )


def _listing(bucket: TenantBucket, prefix: str, after: str) -> bytes:
    query = {"list-type": "2", "max-keys": str(PAGE_OBJECTS), "prefix": prefix}
    address = bucket.url(**query, **({"continuation-token": after} if after else {}))
    answer = egress.get_document(address, {}, MAX_BYTES, allow_private=current().import_allow_private)
    if answer.body is None:
        raise _not_a_listing()
    _check(answer, answer.body, bucket)
    return answer.body


def _check(answer: egress.Document, body: bytes, bucket: TenantBucket) -> None:
    """Raise SourceProblemError with the server's error code, which distinguishes a wrong key from a wrong region."""
    if answer.status == 200:
        return
    status, server_code = answer.status, error_code(Origin.BUCKET, answer.headers, body)
    raise_by_code(status, Origin.BUCKET, answer.headers, body)
    code = f" ({server_code})" if server_code else ""
    if status in (400, 401, 403):
        raise SourceProblemError(
            "source_forbidden",
            f"The bucket answers {status}{code}.",
            f"Set credentials of {bucket.name} that may list and read it (s3:ListBucket, s3:GetObject), with its "
            "region and endpoint.",
        )
    if status == 404:
        raise SourceProblemError(
            "source_not_found", f"The bucket answers 404{code}.", "Check the bucket's name and its endpoint."
        )
    if status == 503:
        raise unavailable(f"The bucket answers 503{code}.")
    check_status(status, Origin.BUCKET)


def _page(body: bytes, prefix: str) -> tuple[dict[str, tuple[int, str]], str]:
    """Return size and entity tag by name below the prefix, and the token of the next page; "" after the last.
    S3's elements have its namespace, those of other servers may have none.
    """
    if b"<!DOCTYPE" in body or b"<!ENTITY" in body or body.count(b"<") > MAX_TAGS:
        raise _not_a_listing()
    try:
        root = ElementTree.fromstring(body.decode())  # UTF-8 only: another encoding would hide the tags checked above
        entries = {
            _text(each, "Key"): (int(_text(each, "Size")), _text(each, "ETag") or _text(each, "LastModified"))
            for each in root.findall("{*}Contents")
        }
    except (ElementTree.ParseError, ValueError):
        raise _not_a_listing() from None
    if not root.tag.endswith("ListBucketResult") or any(size < 0 for size, _ in entries.values()):
        raise _not_a_listing()
    after = _text(root, "NextContinuationToken") if _text(root, "IsTruncated") == "true" else ""
    if len(after) > LONGEST_TOKEN or (not after and _text(root, "IsTruncated") == "true"):
        raise _not_a_listing()
    objects = {key.removeprefix(prefix): entry for key, entry in entries.items() if key.startswith(prefix)}
    objects.pop("", None)  # the folder itself
    return objects, after


def _text(element: ElementTree.Element, name: str) -> str:
    return element.findtext(f"{{*}}{name}") or ""


def _not_a_listing() -> SourceProblemError:
    return SourceProblemError(
        "bucket_answer", "The endpoint's answer is not the listing of a bucket.", "Check the bucket's endpoint."
    )
