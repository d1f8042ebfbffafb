"""The demo adapters, uploaded over HTTP to a running server, or through the same action as the view."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from control_plane.adapters.registry.models import OUT_OF_USE, AdapterVersion, VersionState
from control_plane.adapters.uploads import actions as uploads
from control_plane.adapters.uploads.models import Upload, UploadState
from control_plane.adapters.uploads.spool import SpooledFile
from control_plane.identity.tenants.models import Tenant
from control_plane.management.demo.people import OWNER, owner
from lora_engine.peft_format import CONFIG_FILE, WEIGHTS_FILE, adapter_digest, folder_digests

FILES = (CONFIG_FILE, WEIGHTS_FILE)
POLL_S = 0.2


class DemoServerError(RuntimeError):
    """The running server refused a demo adapter; the message contains its answer."""


@dataclass(frozen=True)
class DemoAdapter:
    """A demo adapter. `description` and `prompt` (its first widget's text) come from its model card, README.md."""

    name: str
    folder: Path
    description: str
    prompt: str


def demo_adapters(folder: Path) -> list[DemoAdapter]:
    """Return the adapters in a folder: every subfolder with the two PEFT files, by name."""
    folders = sorted(folder.iterdir()) if folder.is_dir() else []
    return [_read(each) for each in folders if all((each / name).is_file() for name in FILES)]


def _read(folder: Path) -> DemoAdapter:
    card = folder / "README.md"
    front, body = split_card(card.read_text() if card.is_file() else "")
    paragraphs = [part.strip() for part in body.split("\n\n") if part.strip() and not part.startswith("#")]
    widgets = front.get("widget") or [{}]
    description = " ".join(paragraphs[0].split()) if paragraphs else ""
    return DemoAdapter(folder.name, folder, description, str(widgets[0].get("text", "")))


def split_card(text: str) -> tuple[dict[str, Any], str]:
    """Return a model card's YAML front matter and the text below it."""
    parts = text.split("---\n", 2)
    if len(parts) == 3 and not parts[0].strip():
        return yaml.safe_load(parts[1]) or {}, parts[2].strip()
    return {}, text.strip()


def missing(adapters: list[DemoAdapter]) -> list[DemoAdapter]:
    """Return the adapters whose content is neither a version of the demo tenant nor being uploaded."""
    tenant = Tenant.objects.get(slug=OWNER.tenant)
    return [adapter for adapter in adapters if not _is_there(tenant, adapter)]


def _is_there(tenant: Tenant, adapter: DemoAdapter) -> bool:
    digest = adapter_digest(folder_digests(adapter.folder))
    versions = AdapterVersion.objects.for_tenant(tenant).filter(digest=digest, adapter__name=adapter.name)
    on_the_way = Upload.objects.for_tenant(tenant).filter(
        adapter_name=adapter.name, state__in=[UploadState.RECEIVED, UploadState.VALIDATING]
    )
    return versions.exists() or on_the_way.exists()


def upload_here(adapter: DemoAdapter) -> None:
    """Upload an adapter through the action. A worker validates it, or the next start of an embedded server does."""
    files = [_spool(adapter.folder / name) for name in FILES]
    uploads.receive_upload(acting=owner(), name=adapter.name, description=adapter.description, files=list(files))


def _spool(path: Path) -> SpooledFile:
    content = path.read_bytes()
    file = SpooledFile(path.name, "application/octet-stream", len(content), None)
    file.write(content)
    file.flush()
    return file


def upload_to(url: str, key: str, adapter: DemoAdapter) -> None:
    """Upload an adapter over HTTP, with the demo key. Raises DemoServerError."""
    boundary = uuid.uuid4().hex
    request = urllib.request.Request(
        f"{url.rstrip('/')}/api/tenants/{OWNER.tenant}/uploads",
        data=_multipart(adapter, boundary),
        headers={"Authorization": f"Bearer {key}", "Content-Type": f"multipart/form-data; boundary={boundary}"},
        method="POST",
    )
    try:
        urllib.request.urlopen(request, timeout=60).close()
    except urllib.error.HTTPError as error:
        raise DemoServerError(f"{adapter.name}: {error.code} {error.read().decode(errors='replace')}") from error
    except OSError as error:
        raise DemoServerError(f"{adapter.name}: {url} does not answer: {error}") from error


def _multipart(adapter: DemoAdapter, boundary: str) -> bytes:
    parts: list[bytes] = []
    for field, value in (("name", adapter.name), ("description", adapter.description)):
        parts.append(f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{value}\r\n'.encode())
    for name in FILES:
        disposition = f'Content-Disposition: form-data; name="files"; filename="{name}"'
        parts.append(f"--{boundary}\r\n{disposition}\r\nContent-Type: application/octet-stream\r\n\r\n".encode())
        parts.append((adapter.folder / name).read_bytes() + b"\r\n")
    parts.append(f"--{boundary}--\r\n".encode())
    return b"".join(parts)


def wait_until_settled(wait_s: float) -> dict[str, str]:
    """Wait until no upload is undecided and no version is being staged. Returns the state of each adapter by name."""
    tenant = Tenant.objects.get(slug=OWNER.tenant)
    end = time.monotonic() + wait_s
    while True:
        states = _states(tenant)
        moving = {UploadState.RECEIVED, UploadState.VALIDATING, VersionState.VALIDATED, VersionState.STAGING}
        if not moving & set(states.values()) or time.monotonic() > end:
            return states
        time.sleep(POLL_S)


def _states(tenant: Tenant) -> dict[str, str]:
    """Return the state of each adapter's newest upload, or of its version once it is accepted.

    Adapters whose newest version is archived or deleted are left out: nobody waits for them.
    """
    newest: dict[str, str] = {}
    for upload in Upload.objects.for_tenant(tenant).select_related("version").order_by("created_at"):
        newest[upload.adapter_name] = upload.version.state if upload.version else upload.state
    return {name: state for name, state in newest.items() if state not in OUT_OF_USE}
