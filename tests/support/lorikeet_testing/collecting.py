"""Uploading and collecting the same few contents against each other, each in a process of its own.

    python -m lorikeet_testing.collecting prepare
    python -m lorikeet_testing.collecting upload NAME     accepts, looks at the files, deletes, again
    python -m lorikeet_testing.collecting collect         removes whatever nothing refers to

Each prints what it did as JSON; `upload` fails if the files of a version that it has are not all there. They go on for
a few seconds, and on a slow disk until each of them has had something to do.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

CONTENTS = 2
SECONDS, TIMEOUT_S = 3.0, 150.0
LEAST = 4


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")
    import django

    django.setup()
    verb, *rest = sys.argv[1:]
    print(json.dumps({"prepare": prepare, "upload": upload, "collect": collect}[verb](*rest)))


def prepare() -> dict[str, Any]:
    from django.core.management import call_command

    from control_plane.fleet.hosts import actions as fleet
    from control_plane.fleet.transport.endpoint import configured_endpoints
    from control_plane.identity.access.actor import SYSTEM
    from control_plane.identity.members.actions import create_tenant
    from lora_engine.wire import engine_pb2 as pb
    from lorikeet_testing.peft_files import GEOMETRY

    call_command("migrate", verbosity=0)
    create_tenant(actor=SYSTEM, slug="acme", name="Acme")
    fleet.sync_hosts(configured_endpoints())
    sizes = {name: getattr(GEOMETRY, name) for name in pb.BaseGeometry.DESCRIPTOR.fields_by_name}
    base = {"base_model": GEOMETRY.name, "base_digest": GEOMETRY.digest, "max_lora_rank": 64}
    fleet.record_boot("local", pb.EngineDescription(boot_id="b", geometry=pb.BaseGeometry(**sizes), **base))
    return {}


def upload(name: str) -> dict[str, Any]:
    from control_plane.adapters.artifacts.configured import artifact_store
    from control_plane.adapters.artifacts.store import FILES
    from control_plane.adapters.registry.archiving import delete_version

    in_this_process()
    acting, rnd, done = caller(), random.Random(name), 0
    store, end = artifact_store(), time.monotonic() + TIMEOUT_S
    while time.monotonic() < end and not (done >= LEAST and collected().exists()):
        version = send(acting, name, rnd.randrange(CONTENTS))
        time.sleep(rnd.uniform(0, 0.02))
        missing = [file for file in FILES if not store.has(version.digest)]
        assert not missing, f"the files of {version.digest} are gone"
        delete_version(acting=acting, version=version)
        done += 1
    return {"uploads": done}


def caller() -> Any:
    from control_plane.identity.access.actor import SYSTEM
    from control_plane.identity.access.principal import Principal
    from control_plane.identity.members.actions import add_member
    from control_plane.identity.tenants.models import Membership, Tenant
    from control_plane.identity.tenants.roles import Role

    tenant = Tenant.objects.get(slug="acme")
    from control_plane.identity.accounts.actions import create_user

    user = create_user(actor=SYSTEM, email=f"{os.getpid()}@acme.example", password="correct horse battery")
    add_member(actor=SYSTEM, tenant=tenant, user=user, role=Role.OWNER)
    return Principal.of_member(Membership.objects.select_related("tenant", "user").get(user=user))


def send(acting: Any, name: str, seed: int) -> Any:
    """An accepted version with the content of that seed."""
    from control_plane.adapters.uploads import actions as uploads
    from control_plane.adapters.uploads import validation_job
    from control_plane.adapters.uploads.models import Upload, UploadState
    from control_plane.adapters.uploads.spool import SpooledFile
    from lorikeet_testing.peft_files import adapter_files

    files = []
    for file, content in adapter_files(seed=seed).items():
        spooled = SpooledFile(file, "application/octet-stream", len(content), None)
        spooled.write(content)
        spooled.flush()
        files.append(spooled)
    received = uploads.receive_upload(acting=acting, name=name, description="", files=list(files))
    decided, end = received, time.monotonic() + TIMEOUT_S
    while decided.state not in (UploadState.ACCEPTED, UploadState.REFUSED):
        assert time.monotonic() < end, f"the upload stayed {decided.state}"
        if not validation_job.validate_next():  # the other process may have taken it
            time.sleep(0.01)
        decided = Upload.objects.select_related("version").get(pk=received.pk)
    assert decided.version is not None, decided.reason
    return decided.version


def in_this_process() -> None:
    """Validate without a child, which costs a second each time."""
    from control_plane.adapters.uploads import validation_job, validation_sandbox
    from lorikeet_testing.platform_fixtures import ScriptedChild

    validation_job.start_child = lambda: ScriptedChild(validation_sandbox.validate)


def collect() -> dict[str, Any]:
    from control_plane.adapters.artifacts import artifact_gc

    removed, began = 0, time.monotonic()
    while (passed := time.monotonic() - began) < SECONDS or (removed < LEAST and passed < TIMEOUT_S):
        removed += artifact_gc.collect(timedelta(0))
    collected().touch()
    return {"removed": removed}


def collected() -> Path:
    """There once the collector is at its end."""
    return Path(os.environ["LORIKEET_VAR_DIR"]) / "collected"


if __name__ == "__main__":
    main()
