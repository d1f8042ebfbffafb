"""Each volume is full for a while under load: the engine's journal, the artifacts, PostgreSQL's with the transcripts.

Each is a small tmpfs, which only root can mount. tests/attack/test_full_disk.py has the same for single calls.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from lorikeet_testing.drills import Load, check_ledger, report
from lorikeet_testing.engine_process import EngineProcess
from lorikeet_testing.small_disk import Disk, mounted_disk
from lorikeet_testing.web import ROOT, SECRET_KEY, WebProcess, eventually

from scripts.test_services import Postgres, ServiceError, postgres, redis, server_folder

pytestmark = [pytest.mark.long, pytest.mark.e2e, pytest.mark.services]
MODEL = "lorikeet-demo"
ADAPTER = ROOT / "demo" / "adapters" / "pirate"
MB = 1 << 20
# PostgreSQL writes its log in files of 16 MB.
POSTGRES = {"synchronous_commit": "on", "max_wal_size": "48MB", "min_wal_size": "32MB"}
RECORD_TEXTS = """
import django; django.setup()
from control_plane.gateway.transcripts.models import Recording
from control_plane.identity.tenants.models import Tenant
Recording.objects.create(tenant=Tenant.objects.get(slug="acme"), enabled=True)
"""


@dataclass
class Installation:
    web: WebProcess
    engine: Path  # the folder of the engine
    postgres: Postgres
    disks: dict[str, Disk]

    def http(self, method: str, path: str, **more: Any) -> httpx.Response:
        headers = self.web.tenants["acme"].bearer
        return httpx.request(method, f"{self.web.url}{path}", headers=headers, trust_env=False, timeout=60, **more)

    def upload(self, seed: int) -> httpx.Response:
        # Content of its own: the same weights under another configuration.
        contents = {
            name: (ADAPTER / name).read_bytes() for name in ("adapter_config.json", "adapter_model.safetensors")
        }
        contents["adapter_config.json"] += b" " * seed
        files = [("files", (name, content)) for name, content in contents.items()]
        return self.http("POST", "/api/tenants/acme/uploads", data={"name": f"a{seed}"}, files=files)

    def state(self, upload: str) -> str:
        return str(self.web.query(f"SELECT state FROM uploads_upload WHERE id = '{upload}'")[0]["state"])

    def unacknowledged(self) -> int:
        with closing(sqlite3.connect(self.engine / "data" / "usage.sqlite3", timeout=30)) as journal:
            return int(journal.execute("SELECT count(*) FROM usage").fetchone()[0])

    def served_by(self, host: str) -> int:
        """Return how many requests of the ledger ended on a host."""
        finished = f"SELECT count(*) AS n FROM usage_usageevent WHERE host = '{host}' AND outcome = 'finished'"
        return int(self.web.query(finished)[0]["n"])

    def settle(self, load: Load) -> None:
        """Every answer is in the ledger, and the engine has no record left."""
        check_ledger(self.web, load.answers, 120)
        eventually(lambda: self.unacknowledged() == 0, 120, what="an empty journal")

    def load(self) -> Load:
        return Load(self.web.url, self.web.tenants["acme"].key, body)


def body(number: int) -> dict[str, Any]:
    # Long prompts: their texts are recorded.
    messages = [{"role": "user", "content": f"{number}: " + "Tell me about rivers. " * 10}]
    return {"model": MODEL, "messages": messages, "max_tokens": (4, 16, 40)[number % 3], "temperature": 0}


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("disks")
    sizes = {"journal": 16 * MB, "artifacts": 16 * MB, "postgres": 256 * MB}
    with server_folder() as root, ExitStack() as stack:
        places = {name: (root if name == "postgres" else folder) / f"{name}-disk" for name in sizes}
        disks = {name: stack.enter_context(mounted_disk(places[name], size)) for name, size in sizes.items()}
        server = stack.enter_context(postgres(disks["postgres"].folder / "server", **POSTGRES))
        queue = stack.enter_context(redis(root / "redis"))
        own = {
            "LORIKEET_DATABASE_URL": server.url,
            "LORIKEET_REDIS_URL": queue.url,
            "LORIKEET_SECRET_KEY": SECRET_KEY,
            "LORIKEET_EMBEDDED": "1",
        }
        settings = {"LORIKEET_ARTIFACT_DIR": str(disks["artifacts"].folder / "artifacts")}
        engine_folder = disks["journal"].folder
        engines = {"small": engine_folder, "other": folder}
        addresses = []
        for name, place in engines.items():
            engine = EngineProcess(ROOT / "demo" / "model", place, "--model-name", MODEL, "--max-running", "4")
            stack.callback(engine.end)
            addresses.append(f"{name}={engine.address}")
        web = WebProcess(folder / "var", ",".join(addresses), settings, installation=own)
        web.seed(adapters=False)
        web.run("-c", RECORD_TEXTS)
        web.start()
        stack.callback(web.stop)
        made = Installation(web, engine_folder, server, disks)
        online = "SELECT 1 FROM hosts_enginehost WHERE state = 'online'"
        eventually(lambda: len(web.query(online)) == 2, 60, what="two hosts")
        eventually(lambda: made.http("POST", "/v1/chat/completions", json=body(0)).status_code == 200, 60)
        upload = made.upload(9).json()["id"]
        eventually(lambda: made.state(upload) == "accepted", 120, what="an adapter")
        yield made


def test_the_disk_of_the_journal_is_full(installation: Installation) -> None:
    """A host that cannot write usage refuses requests, and another has them; it takes requests again by itself."""
    load = installation.load()
    with load.running():
        eventually(lambda: installation.served_by("small"), 60, what="a request on the host")
        installation.disks["journal"].fill()
        load.progress()
        load.progress()
        installation.disks["journal"].free()
        before = installation.served_by("small")
        eventually(lambda: installation.served_by("small") > before, 120, what="a request on the host again")
    report(
        "disk_full_journal", {"": load}, "--data-dir of one of two engines is full, then has room", engine="demo model"
    )
    assert load.failures == []
    installation.settle(load)


def test_the_disk_of_the_artifacts_is_full(installation: Installation) -> None:
    load = installation.load()
    with load.running():
        accepted = installation.upload(1)
        assert accepted.status_code == 202, accepted.text
        eventually(lambda: installation.state(accepted.json()["id"]) == "accepted", 120, what="an upload")
        installation.disks["artifacts"].fill()
        refused = installation.upload(2)
        assert (refused.status_code, refused.json()["error"]["code"]) == (507, "storage_full"), refused.text
        load.progress()
        installation.disks["artifacts"].free()
        again = installation.upload(2)
        assert again.status_code == 202, again.text
        eventually(lambda: installation.state(again.json()["id"]) == "accepted", 120, what="the upload again")
    report("disk_full_artifacts", {"": load}, "an upload meanwhile is refused, and accepted again", engine="demo model")
    assert load.failures == []
    installation.settle(load)


def test_the_disk_of_postgres_is_full(installation: Installation) -> None:
    load, codes = installation.load(), set[str]()

    def write() -> int:
        answer = installation.http("POST", "/api/tenants/acme/adapters/a9/versions/1/restage")
        if answer.status_code != 202:
            codes.add(f"{answer.status_code} {answer.json()['error']['code']}")
        return answer.status_code

    def serves() -> bool:
        """Start the server again if it ended, as its supervisor does, and write."""
        process = installation.postgres._process
        assert process is not None
        if process.poll() is not None:
            try:
                installation.postgres.start()
            except ServiceError:
                return False
        return write() == 202

    with load.running():
        eventually(lambda: write() == 202, 60, what="a write")
        installation.disks["postgres"].fill()
        eventually(lambda: write() in (503, 507), 120, what="a refused write")
        load.progress()
        load.progress()
        installation.disks["postgres"].free()
        eventually(serves, 120, what="writes again")
        load.progress()
    report("disk_full_postgres", {"": load}, "the database's disk is full, then has room", refused=sorted(codes))
    assert load.failures == []
    assert codes <= {"507 database_full", "503 database_unavailable"}
    installation.settle(load)
