"""Imports from a bucket with a tenant's own credentials, against an S3-compatible server."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import obstore
import pytest
from django.utils import timezone
from lorikeet_testing.bucket import BUCKET, bucket
from lorikeet_testing.hub_server import HubServer, running_hub
from lorikeet_testing.peft_files import adapter_files, zip_of
from obstore.store import S3Store

from control_plane.adapters.imports import actions as imports
from control_plane.adapters.imports import bucket as bucket_of_tenant
from control_plane.adapters.imports import fetching
from control_plane.adapters.imports.bucket import TenantBucket
from control_plane.adapters.imports.models import BucketCredentials
from control_plane.adapters.registry.models import AdapterVersion
from control_plane.adapters.uploads import validation_job
from control_plane.adapters.uploads.models import Upload, UploadState
from control_plane.identity.audit.models import AuditEvent

pytestmark = pytest.mark.django_db
FILES = adapter_files()
KEYS = {"access_key_id": "AKIAOFACME", "secret_access_key": "secret-of-acme"}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with bucket() as url:
        own = S3Store.from_url(url.rpartition("/")[0], client_options={"allow_http": True})
        for name, content in {**FILES, "README.md": b"# hello"}.items():
            obstore.put(own, f"runs/a b/{name}", content)
            obstore.put(own, f"many/ü+1 %41/{name}", content)
        for number in range(5):
            obstore.put(own, f"many/ü+1 %41/a/{number}", b"")
        obstore.put(own, "runs/my.zip", zip_of(FILES))
        obstore.put(own, "runs/notes/README.md", b"# hello")
        obstore.put(own, "whole/model.safetensors", b"")
        obstore.put(own, "whole/config.json", b"{}")
        yield os.environ["AWS_ENDPOINT_URL"]


@pytest.fixture(autouse=True)
def private(settings: Any) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"import_allow_private": True})


@pytest.fixture
def keep(acme: Any) -> Callable[..., Any]:
    def post(name: str = BUCKET, **form: Any) -> Any:
        return acme.client().post(acme.path("bucket-credentials"), {"bucket": name, **KEYS, **form}, format="json")

    return post


@pytest.fixture
def bring(acme: Any, host: Any, queue: Any, committing: Any, in_process: None) -> Callable[..., Upload]:
    def run(source: str) -> Upload:
        with committing():
            begun = acme.client().post(acme.path("imports"), {"name": "support", "source": source}, format="json")
            assert begun.status_code == 202, begun.content
            validation_job.validate_next()
        return Upload.objects.select_related("version").get(pk=begun.json()["id"])

    return run


def test_a_folder_and_an_archive(acme: Any, endpoint: str, keep: Any, bring: Any) -> None:
    assert keep(endpoint=endpoint).status_code == 201
    upload = bring(f"s3://{BUCKET}/runs/a b/")
    assert upload.state == UploadState.ACCEPTED, upload.reason
    shown = acme.client().get(acme.path(f"uploads/{upload.pk}")).json()
    assert shown["imported_from"] == {"name": f"s3://{BUCKET}/runs/a b", "revision": None, "commit": None}
    assert [file["name"] for file in shown["files"]] == ["adapter_config.json", "adapter_model.safetensors"]
    assert bring(f"s3://{BUCKET}/runs/my.zip").reused_version


def test_a_folder_that_changes_while_it_is_read(
    endpoint: str, keep: Any, bring: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a training that saves its adapter again: never the settings of one with the weights of the other."""
    own = S3Store.from_url(f"s3://{BUCKET}", client_options={"allow_http": True})
    old, new = adapter_files(), adapter_files(seed=1)
    old["adapter_config.json"] = new["adapter_config.json"].replace(b'"lora_alpha": ', b'"lora_alpha": 1')
    assert old["adapter_config.json"] != new["adapter_config.json"]
    for name, content in old.items():
        obstore.put(own, f"live/{name}", content)
    fetch = fetching._Transfer.run

    def save_after_the_first(transfer: Any, stopped: Any) -> int:
        size = fetch(transfer, stopped)
        for name, content in new.items():
            obstore.put(own, f"live/{name}", content)
        return size

    keep(endpoint=endpoint)
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(fetching._Transfer, "run", save_after_the_first)
        upload = bring(f"s3://{BUCKET}/live")
    assert (upload.state, upload.reason and upload.reason["code"]) == (UploadState.RECEIVED, "source_unavailable")
    Upload.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
    validation_job.validate_next()
    assert Upload.objects.get().state == UploadState.ACCEPTED
    digests = {hashlib.sha256(content).hexdigest() for content in new.values()}
    assert {each.rpartition(":")[2] for each in AdapterVersion.objects.get().file_digests.values()} == digests


def test_a_folder_of_more_objects_than_a_page(
    keep: Any, bring: Any, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_of_tenant, "PAGE_OBJECTS", 2)
    monkeypatch.setattr(bucket_of_tenant, "MAX_OBJECTS", 8)
    keep(endpoint=endpoint)
    upload = bring(f"s3://{BUCKET}/many/ü+1 %41")
    assert upload.state == UploadState.ACCEPTED, upload.reason
    monkeypatch.setattr(bucket_of_tenant, "MAX_OBJECTS", 6)
    assert bring(f"s3://{BUCKET}/many/ü+1 %41").reason["code"] == "too_many_objects"


def test_what_is_no_adapter_is_not_fetched(endpoint: str, keep: Any, bring: Any) -> None:
    keep(endpoint=endpoint)
    assert bring(f"s3://{BUCKET}/whole").reason["code"] == "merged_model"
    nested = bring(f"s3://{BUCKET}/runs").reason
    assert (nested["code"], nested["fix"]) == ("missing_file", f"Import s3://{BUCKET}/runs/a b.")
    assert bring(f"s3://{BUCKET}/runs/notes").reason["code"] == "missing_file"
    assert bring(f"s3://{BUCKET}/nothing.zip").reason["code"] == "source_not_found"
    keep("another", endpoint=endpoint)
    assert bring("s3://another/x").reason["message"] == "The bucket answers 404 (NoSuchBucket)."


def test_credentials_are_kept_and_never_shown(acme: Any, globex: Any, keep: Any) -> None:
    assert "secret" not in keep(endpoint="https://s3.example.org", region="eu-west-1").content.decode()
    keep("second")
    shown = acme.client().get(acme.path("bucket-credentials"))
    assert [(each["bucket"], each["endpoint"], each["region"]) for each in shown.json()] == [
        (BUCKET, "https://s3.example.org", "eu-west-1"),
        ("second", "", "us-east-1"),
    ]
    assert globex.client().get(globex.path("bucket-credentials")).json() == []
    kept = BucketCredentials.objects.get(bucket=BUCKET).sealed + str(list(AuditEvent.objects.values_list("detail")))
    assert not any(secret in kept + shown.content.decode() for secret in KEYS.values())
    assert globex.client().delete(globex.path("bucket-credentials/second")).status_code == 404
    assert acme.client().delete(acme.path("bucket-credentials/second")).status_code == 204
    assert list(BucketCredentials.objects.values_list("bucket", flat=True)) == [BUCKET]
    actions = AuditEvent.objects.filter(action__startswith="bucket_credentials").order_by("id")
    assert [event.action.rpartition(".")[2] for event in actions] == ["set", "set", "remove"]


def test_of_another_tenant_they_are_nothing(acme: Any, globex: Any, host: Any, keep: Any) -> None:
    keep()
    body = {"name": "x", "source": f"s3://{BUCKET}/runs"}
    answer = globex.client().post(globex.path("imports"), body, format="json")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "source")
    assert not Upload.objects.exists()


@pytest.mark.parametrize(
    "endpoint",
    ["http://s3.example.org", "https://127.0.0.1:9000", "https://169.254.169.254", "https://minio", "ftp://a.b",
     "https://s3.example.org/bucket", "https://s3.example.org?x=1", "https://u:p@s3.example.org"],
)  # fmt: skip
def test_endpoints_that_are_refused(keep: Any, settings: Any, endpoint: str) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"import_allow_private": False})
    answer = keep(endpoint=endpoint)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "endpoint_refused")
    assert not BucketCredentials.objects.exists()


@pytest.mark.parametrize(
    "source", ["s3://", "s3://A", "s3://ab", "s3://abc/x/../y", "s3://abc//x", "s3:abc", "s3://abc/a\x01b"]
)
def test_sources_that_are_refused_at_once(acme: Any, keep: Any, source: str) -> None:
    keep("abc")
    answer = acme.client().post(acme.path("imports"), {"name": "x", "source": source}, format="json")
    assert answer.status_code == 400


def test_a_bucket_name_and_their_number(keep: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert keep("No_Bucket").json()["error"]["param"] == "bucket"
    monkeypatch.setattr(imports, "MAX_BUCKETS", 1)
    assert keep().status_code == 201
    assert keep().status_code == 201
    assert keep("second").json()["error"]["code"] == "too_many_buckets"


@pytest.fixture
def strange() -> Iterator[HubServer]:
    """An endpoint that answers whatever a test says."""
    with running_hub() as server:
        yield server


def listing(inside: str) -> bytes:
    return f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{inside}</ListBucketResult>'.encode()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"not xml", "bucket_answer"),
        (b"<Other/>", "bucket_answer"),
        (b"<!DOCTYPE a [<!ENTITY b 'c'>]>" + listing(""), "bucket_answer"),
        (listing("<Contents><Key>x/a</Key><Size>many</Size></Contents>"), "bucket_answer"),
        (listing("<IsTruncated>true</IsTruncated>"), "bucket_answer"),
        (
            listing("<IsTruncated>true</IsTruncated><NextContinuationToken>a</NextContinuationToken>"),
            "too_many_objects",
        ),
        (listing("<Contents><Key>of/another</Key><Size>1</Size></Contents>"), "missing_file"),
    ],
)
def test_an_endpoint_that_answers_otherwise(strange: HubServer, keep: Any, bring: Any, body: bytes, code: str) -> None:
    keep(endpoint=strange.url)
    strange.blobs[f"/{BUCKET}"] = body
    assert bring(f"s3://{BUCKET}/x").reason["code"] == code


def test_keys_that_are_refused_and_a_server_that_is_away(strange: HubServer, keep: Any, bring: Any) -> None:
    keep(endpoint=strange.url)
    strange.status = 403
    assert bring(f"s3://{BUCKET}/x").reason["code"] == "source_forbidden"
    strange.status = 503
    upload = bring(f"s3://{BUCKET}/x")
    assert (upload.state, upload.reason["code"]) == (UploadState.RECEIVED, "source_unavailable")


@pytest.mark.parametrize(
    ("status", "body", "headers", "words"),
    [
        (400, b"<Error><Code>ExpiredToken</Code></Error>", {}, "has ended"),
        (403, b"<Error><Code>InvalidAccessKeyId</Code></Error>", {}, "no such access key id"),
        (403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>", {}, "not that of the access key id"),
        (403, b"<Error><Code>AccessDenied</Code></Error>", {}, "403"),
        (301, b"<Error><Code>PermanentRedirect</Code></Error>", {"x-amz-bucket-region": "eu-west-1"}, "in eu-west-1."),
        (400, b"<Error><Code>AuthorizationQueryParametersError</Code><Region>eu-west-3</Region></Error>", {},
         "in eu-west-3."),
        (301, b"", {"x-amz-bucket-region": "\x01<b>"}, "not in the region of its credentials."),
    ],
)  # fmt: skip
def test_what_the_bucket_itself_calls_a_refusal(
    strange: HubServer, keep: Any, bring: Any, status: int, body: bytes, headers: dict[str, str], words: str
) -> None:
    keep(endpoint=strange.url)
    strange.status, strange.refusal = status, (body, headers)
    for source in (f"s3://{BUCKET}/x", f"s3://{BUCKET}/x.zip"):  # a listing, and an object
        refused = bring(source).reason
        assert (refused["code"], words in refused["message"], bool(refused["fix"])) == ("source_forbidden", True, True)


def test_temporary_credentials_are_sent_with_their_session(
    strange: HubServer, keep: Any, bring: Any, acme: Any
) -> None:
    kept = keep(endpoint=strange.url, session_token="session/of+acme==")
    assert kept.status_code == 201
    assert "session" not in kept.content.decode() + acme.client().get(acme.path("bucket-credentials")).content.decode()
    signed = bucket_of_tenant.open_bucket(BucketCredentials.objects.get()).url("x")
    assert parse_qs(urlsplit(signed).query)["X-Amz-Security-Token"] == ["session/of+acme=="]
    keep(endpoint=strange.url)
    assert "Security-Token" not in bucket_of_tenant.open_bucket(BucketCredentials.objects.get()).url("x")


def test_addresses_are_signed_and_hold_no_secret() -> None:
    url = TenantBucket(BUCKET, "https://s3.example.org", "eu-west-1", **KEYS).url("a b/ü.zip")
    assert urlsplit(url).path == "/adapters/a%20b/%C3%BC.zip"
    query = parse_qs(urlsplit(url).query)
    assert query["X-Amz-Credential"][0].startswith("AKIAOFACME/")
    assert query["X-Amz-Credential"][0].endswith("/eu-west-1/s3/aws4_request")
    assert len(query["X-Amz-Signature"][0]) == 64
    assert KEYS["secret_access_key"] not in url
