"""A bucket of Amazon S3 or a compatible server, read with a tenant's own credentials.

botocore signs addresses and does nothing else: the connections are ours, which go to public addresses only. A signed
address holds no secret, and nothing of it is sent to a server that it redirects to.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from control_plane.adapters.imports.listing import RemoteFile, adapter_of
from control_plane.adapters.imports.problems import Origin, SourceProblemError, check_status, unavailable
from control_plane.adapters.imports.sealed import unseal
from control_plane.adapters.imports.sources import S3Source
from control_plane.adapters.models import BucketCredentials
from control_plane.config import current
from control_plane.http import egress

MOST_BYTES = 4 << 20
# Objects of one folder: as many as one answer holds.
MOST_OBJECTS = 1000
MOST_TAGS = 100 * MOST_OBJECTS
_CODE = re.compile(rb"<Code>([A-Za-z0-9]{1,64})</Code>")


@dataclass(frozen=True)
class TenantBucket:
    name: str
    endpoint: str  # without a slash at its end
    region: str
    access_key_id: str
    secret_access_key: str

    def url(self, key: str = "", **query: str) -> str:
        """Signed, for a GET within the time that a transfer may take."""
        path = f"{self.endpoint}/{self.name}" + (f"/{quote(key)}" if key else "")
        request = AWSRequest("GET", f"{path}?{urlencode(query, quote_via=quote)}" if query else path)
        signer = S3SigV4QueryAuth(
            Credentials(self.access_key_id, self.secret_access_key), "s3", self.region, current().import_wall_s
        )
        signer.add_auth(request)
        return str(request.url)


def endpoint_of(endpoint: str, region: str) -> str:
    """Where a bucket is asked for by its path, which every server understands."""
    return endpoint.rstrip("/") or f"https://s3.{region}.amazonaws.com"


def open_bucket(kept: BucketCredentials) -> TenantBucket:
    """Raises SourceProblemError."""
    text = unseal(kept.sealed)
    if text is None:
        raise SourceProblemError(
            "credentials_sealed", f"The credentials of {kept.bucket} cannot be opened any more.", "Set them again."
        )
    return TenantBucket(kept.bucket, endpoint_of(kept.endpoint, kept.region), kept.region, **json.loads(text))


def list_adapter(bucket: TenantBucket, source: S3Source) -> list[RemoteFile]:
    """The archive that it names, or the adapter in the folder.

    Raises SourceProblemError, EgressError, UrlRefusedError.
    """
    if source.is_archive:
        return [RemoteFile(source.key.rpartition("/")[2][-255:], bucket.url(source.key), None, Origin.BUCKET)]
    prefix = f"{source.key}/" if source.key else ""
    sizes = _sizes(_listing(bucket, prefix), prefix)
    return adapter_of(sizes, lambda name: bucket.url(prefix + name), source.shown, Origin.BUCKET)


def _listing(bucket: TenantBucket, prefix: str) -> bytes:
    address = bucket.url(**{"list-type": "2", "max-keys": str(MOST_OBJECTS), "prefix": prefix})
    status, body = egress.get_document(address, {}, MOST_BYTES, allow_private=current().import_allow_private)
    if body is None:
        raise _not_a_listing()
    _check(status, body, bucket)
    return body


def _check(status: int, body: bytes, bucket: TenantBucket) -> None:
    """Raises SourceProblemError, with the server's own code, which says whether it is the key or the region."""
    if status == 200:
        return
    found = _CODE.search(body)
    code = f" ({found[1].decode()})" if found else ""
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


def _sizes(body: bytes, prefix: str) -> dict[str, int]:
    """Size by name below the prefix. The names of what S3 answers come in its namespace, or, of others, in none."""
    if b"<!DOCTYPE" in body or b"<!ENTITY" in body or body.count(b"<") > MOST_TAGS:
        raise _not_a_listing()
    try:
        root = ElementTree.fromstring(body.decode())  # in no other encoding, where those would look otherwise
        entries = {_text(each, "Key"): int(_text(each, "Size")) for each in root.findall("{*}Contents")}
    except (ElementTree.ParseError, ValueError):
        raise _not_a_listing() from None
    if not root.tag.endswith("ListBucketResult") or any(size < 0 for size in entries.values()):
        raise _not_a_listing()
    if _text(root, "IsTruncated") == "true":
        raise SourceProblemError(
            "too_many_objects",
            f"There are more than {MOST_OBJECTS} objects below it.",
            "Name the folder that holds adapter_config.json itself, like s3://bucket/run/checkpoint-500.",
        )
    return {key.removeprefix(prefix): size for key, size in entries.items() if key.startswith(prefix) and key != prefix}


def _text(element: ElementTree.Element, name: str) -> str:
    return element.findtext(f"{{*}}{name}") or ""


def _not_a_listing() -> SourceProblemError:
    return SourceProblemError(
        "bucket_answer", "The endpoint's answer is no listing of a bucket.", "Check the bucket's endpoint."
    )
