"""The largest upload follows the base model: adapters on the experts of a mixture are several times larger."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from lorikeet_testing import peft_files
from lorikeet_testing.tus_requests import ask, creation, metadata

from control_plane.adapters.imports import fetching
from control_plane.adapters.imports.listing import RemoteFile
from control_plane.adapters.imports.problems import SourceProblemError
from control_plane.adapters.registry.upload_bounds import (
    UploadTooLargeError,
    largest_upload,
    largest_upload_bytes,
    limits_for,
    upload_bound,
)
from control_plane.adapters.uploads import spool
from control_plane.adapters.uploads.actions import receive_upload
from control_plane.adapters.uploads.authorization import authorize_upload
from control_plane.adapters.uploads.models import Upload
from control_plane.adapters.uploads.validation_sandbox import largest_limits
from control_plane.billing.limits.models import LimitSet
from control_plane.core.db import run_db
from control_plane.core.http.body_guard import BodyGuard
from control_plane.fleet.base_models.base_model import served_bases
from control_plane.fleet.base_models.models import BaseModel

pytestmark = pytest.mark.django_db(transaction=True)
GB = 10**9
# Qwen3-30B-A3B's; 6.6 GB are rank 64 on all experts in 16 bits.
MIXTURE = {
    "num_layers": 48, "layer_kinds": "e" * 48, "experts": 128, "hidden_size": 2048, "expert_features": 768,
}  # fmt: skip
LARGEST = (2 << 30) + 2 * 64 * 48 * 128 * 3 * (2048 + 768)


def serve_mixture() -> None:
    """Serve a mixture beside the tiny dense base model."""
    (dense,) = BaseModel.objects.all()
    description = {**dense.description, "base_digest": "sha256:mixture"}
    description["geometry"] = {**dense.description["geometry"], **MIXTURE}
    BaseModel.objects.create(
        name="mixture", digest="sha256:mixture", description=description, decided_at=dense.decided_at
    )


@pytest.fixture
def mixture(host: Any) -> None:
    serve_mixture()


@pytest.fixture
def large_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "require_room", lambda size: None)


def limit(settings: Any, size: int) -> None:
    settings.LORIKEET = settings.LORIKEET.model_copy(update={"upload_max_bytes": size})


def test_the_bound_is_that_of_the_engines(acme: Any, mixture: None, settings: Any) -> None:
    bases = served_bases()
    dense, sparse = bases
    assert limits_for(dense).max_bytes == 2 << 30
    assert largest_upload_bytes() == limits_for(sparse).max_bytes == LARGEST
    assert upload_bound(acme.tenant, "support", dense.digest).bytes == 2 << 30
    bound = upload_bound(acme.tenant, "support", "")
    assert bound.bytes == LARGEST
    assert bound.message == (
        f"The adapter is larger than {LARGEST} bytes, the largest file of adapters of mixture up to rank 64."
    )
    request = {"bases": [peft_files.as_candidate(max_rank=64, max_bytes=size) for size in (5, 7, 6)]}
    assert largest_limits(request)["max_bytes"] == 7
    limit(settings, 3 * GB)
    assert limits_for(sparse).max_bytes == largest_upload().bytes == 3 * GB
    assert limits_for(dense).max_bytes == 2 << 30
    assert "LORIKEET_UPLOAD_MAX_BYTES" in largest_upload().fix
    limit(settings, 10 * GB)
    assert largest_upload_bytes() == LARGEST and "LORIKEET" not in largest_upload().fix


def test_without_a_base_the_bound_is_that_of_adapters_without_experts(db: None) -> None:
    assert largest_upload_bytes() == 2 << 30


async def test_a_resumable_upload_declares_its_length(
    acme: Any, mixture: None, large_disk: None, settings: Any
) -> None:
    _, key = await run_db(acme.key)

    async def begin(size: int, base: str = "") -> Any:
        of = metadata(adapter="support", filename="a.tar", **({"base_model": base} if base else {}))
        headers = {**creation(size), "upload-metadata": of}
        return await ask("POST", acme.path("uploads/resumable"), headers, key=key)

    assert (await begin(3 * GB)).status == (await begin(int(7.8 * GB), "mixture")).status == 201
    for answer in (await begin(9 * GB), await begin(3 * GB, "fake-base")):
        assert (answer.status, answer.code) == (413, "upload_too_large")
    options = await ask("OPTIONS", acme.path("uploads/resumable"), {})
    assert int(options.headers["tus-max-size"]) == LARGEST + (1 << 20)
    limit(settings, 4 * GB)
    answer = await begin(5 * GB, "mixture")
    assert (answer.status, answer.code) == (413, "upload_too_large")
    assert "limit of this installation" in str(answer.body)
    await run_db(lambda: LimitSet.objects.create(tenant=acme.tenant, storage_bytes=3 * GB))
    answer = await begin(int(3.5 * GB), "mixture")
    assert (answer.status, answer.code) == (403, "storage_limit_reached")


async def test_a_form_is_read_up_to_the_largest_adapter(acme: Any, mixture: None) -> None:
    _, key = await run_db(acme.key)
    seen = list[int]()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(1)
        await send({"type": "http.response.start", "status": 202, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    for size, status in ((3 * GB, 202), (9 * GB, 413)):
        headers = {"content-type": "multipart/form-data; boundary=x", "content-length": str(size)}
        guard = BodyGuard(app, authorize_upload, lambda size: None, largest_upload_bytes)
        answer = await ask("POST", acme.path("uploads"), headers, key=key, app=guard)
        assert answer.status == status
    assert seen == [1]


def test_a_form_with_files_too_large_for_their_base_is_refused(acme: Any, mixture: None) -> None:
    files = [SimpleNamespace(name="adapter_model.safetensors", size=3 * GB)]
    with pytest.raises(UploadTooLargeError, match="of fake-base up to rank 64"):
        receive_upload(acting=acme.principal(), name="support", description="", files=files, base_model="fake-base")  # type: ignore[arg-type]
    assert not Upload.objects.exists()


def test_an_import_is_refused_by_its_listing(acme: Any, mixture: None, large_disk: None) -> None:
    files = [RemoteFile("adapter_model.safetensors", "", 3 * GB)]
    upload = Upload(tenant=acme.tenant, adapter_name="support")
    fetching._require_room(upload, files)
    upload.base_digest = next(iter(served_bases())).digest
    with pytest.raises(SourceProblemError) as refused:
        fetching._require_room(upload, files)
    assert refused.value.problem["code"] == "upload_too_large"
