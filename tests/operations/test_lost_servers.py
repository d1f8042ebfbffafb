"""Redis is lost with everything in it, and PostgreSQL fails over to a standby, under load.

One installation has servers of its own: Redis without persistence, and PostgreSQL with a synchronous standby. The
database URL names both.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import redis
from lorikeet_testing.drills import Load, check_ledger, report
from lorikeet_testing.fake_engine import Behaviour, FakeEngineThread
from lorikeet_testing.peft_files import adapter_files
from lorikeet_testing.standby import Standby, url_of_both
from lorikeet_testing.web import SECRET_KEY, WebProcess, eventually

from scripts.test_services import Postgres, Redis, postgres, server_folder
from scripts.test_services import redis as redis_server

pytestmark = [pytest.mark.long, pytest.mark.services]


@dataclass
class Installation:
    web: WebProcess
    engine: FakeEngineThread
    primary: Postgres
    standby: Standby
    redis: Redis

    def http(self, method: str, path: str, **more: Any) -> httpx.Response:
        headers = self.web.tenants["acme"].bearer
        return httpx.request(method, f"{self.web.url}{path}", headers=headers, trust_env=False, timeout=30, **more)

    def load(self) -> Load:
        return Load(self.web.url, self.web.tenants["acme"].key, body)

    def upload(self, name: str, seed: int) -> str:
        files = [("files", (file, content)) for file, content in adapter_files(seed=seed).items()]
        answer = self.http("POST", "/api/tenants/acme/uploads", data={"name": name}, files=files)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def is_accepted(self, upload: str) -> bool:
        rows = self.web.query(f"SELECT state FROM uploads_upload WHERE id = '{upload}'")
        return [row["state"] for row in rows] == ["accepted"]

    def missing(self) -> str:
        """Return the server that readiness misses; "" if none."""
        answer = self.http("GET", "/readyz")
        return "" if answer.status_code == 200 else str(answer.json()["error"]["code"])

    def check_usage(self, load: Load) -> None:
        """The ledger has every answer, and every record of the engine's journal; each was acknowledged."""
        check_ledger(self.web, load.answers)
        engine = self.engine.engine
        eventually(lambda: engine.acknowledged == engine.journal.keys(), 60, what="the journal acknowledged")
        rows = {row["request_id"] for row in self.web.query("SELECT request_id FROM usage_usageevent")}
        assert {name.partition(".")[0] for name in engine.journal} <= rows


def body(number: int) -> dict[str, Any]:
    words = (3, 8, 24, 80)[number % 4]
    return {"model": "support", "messages": [{"role": "user", "content": f"words {words}"}], "max_tokens": words}


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("servers")
    engine = FakeEngineThread(f"unix:{folder}/e.sock", Behaviour(steps_per_second=40))
    with (
        server_folder() as root,
        # wal_level and senders are PostgreSQL's defaults; a commit waits for the standby.
        postgres(root / "postgres", synchronous_commit="on") as primary,
        redis_server(root / "redis") as queue,
    ):
        standby = Standby(root / "standby", primary)
        own = {
            "LORIKEET_DATABASE_URL": url_of_both(primary, standby),
            "LORIKEET_REDIS_URL": queue.url,
            "LORIKEET_SECRET_KEY": SECRET_KEY,
            "LORIKEET_EMBEDDED": "1",
        }
        web = WebProcess(folder / "var", f"local={engine.engine.address}", {}, installation=own)
        try:
            web.seed()
            standby.create()
            web.start()
            web.wait_until_ready("support")
            yield Installation(web, engine, primary, standby, queue)
        finally:
            web.stop()
            engine.close()
            standby.stop()


def test_redis_is_lost_with_everything_in_it(installation: Installation) -> None:
    load = installation.load()
    with load.running():
        first = installation.upload("before", 1)
        with redis.Redis.from_url(installation.redis.url) as connection:
            connection.flushall()
        installation.redis.kill()
        eventually(lambda: installation.missing() == "redis_unavailable", 60, what="noticed")
        load.progress()
        second = installation.upload("meanwhile", 2)
        installation.redis.start()
        eventually(lambda: not installation.missing(), 60, what="ready again")
        load.progress()
        eventually(lambda: installation.is_accepted(first) and installation.is_accepted(second), 120, what="uploads")
    report("redis_lost", {"": load}, "FLUSHALL, SIGKILL, an upload meanwhile, an empty Redis again")
    assert load.failures == []
    installation.check_usage(load)


@dataclass
class Reader:
    """A caller of the API, which needs the database: the outcomes, and when it worked again."""

    installation: Installation
    outcomes: Counter[str] = field(default_factory=Counter)
    last_refusal: float = 0.0
    _stopped: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._repeat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join(60)

    def _repeat(self) -> None:
        while not self._stopped.wait(0.05):
            answer = self.installation.http("GET", "/api/tenants/acme/adapters")
            if answer.status_code == 200:
                self.outcomes["answered"] += 1
            else:
                self.outcomes[f"{answer.status_code} {answer.json()['error']['code']}"] += 1
                self.last_refusal = time.monotonic()


def test_postgres_fails_over_to_its_standby(installation: Installation) -> None:
    load, reader = installation.load(), Reader(installation)
    with load.running(), reader.running():
        eventually(lambda: reader.outcomes["answered"], 60, what="an answer of the API")
        installation.primary.kill()
        eventually(lambda: installation.missing() == "database_unavailable", 60, what="noticed")
        load.progress()
        promoted = time.monotonic()
        installation.standby.promote()
        eventually(lambda: not installation.missing(), 60, what="ready again")
        answered = reader.outcomes["answered"]
        eventually(lambda: reader.outcomes["answered"] > answered + 5, 60, what="answers of the API")
        load.progress()
        after = installation.upload("after", 3)
        eventually(lambda: installation.is_accepted(after), 120, what="an upload on the new primary")
    report(
        "postgres_failover",
        {"": load},
        "SIGKILL of the primary, promotion of the synchronous standby; the URL names both",
        api=dict(reader.outcomes),
        api_refused_after_promotion_s=round(max(0.0, reader.last_refusal - promoted), 1),
    )
    assert load.failures == []
    # The API cannot do without a database; it says so and when to try again.
    assert set(reader.outcomes) == {"answered", "503 database_unavailable"}
    installation.check_usage(load)
