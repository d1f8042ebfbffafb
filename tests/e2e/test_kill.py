"""kill -9 of web, worker and engine at random, under load: afterwards nothing is lost, doubled or half done.

Two web processes, the workers that uploads and usage need, one engine, on PostgreSQL and Redis. What the engine
produced is noted inside its own journal's file, by a trigger that this test adds there: a record that the product
cannot forget.

LORIKEET_KILL_TEST_S is how long processes are killed, by default half a minute; LORIKEET_KILL_TEST_SEED repeats
a run's choices.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import os
import random
import signal
import sqlite3
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx
import psycopg
import pytest
import redis
from lorikeet_testing.compose import ROOT
from lorikeet_testing.topology import Topology
from lorikeet_testing.web import free_port

from lora_engine.wire import engine_pb2 as pb

SECONDS = float(os.environ.get("LORIKEET_KILL_TEST_S", "35"))
SEED = int(os.environ.get("LORIKEET_KILL_TEST_SEED", str(random.randrange(10**6))))
MODEL = "lorikeet-demo"
DEMO = ROOT / "demo" / "adapters" / "pirate"
CLIENTS = 4
TUS = {"Tus-Resumable": "1.0.0"}
SETTLE_S = 200.0
# As long as its waits may take together, so that it says itself what did not come.
pytestmark = [pytest.mark.timeout(SECONDS + 1200)]
SETTINGS = {"LORIKEET_VALIDATE_WALL_S": "15", "LORIKEET_LOG_LEVEL": "WARNING"}


class Fleet:
    """The processes, each of which may be killed and started again."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self.ports = {"web": topology.port, "web-2": free_port()}
        self.killed: list[str] = []

    @property
    def victims(self) -> list[str]:
        workers = ["worker-validation", "worker-validation-2", "worker-staging", "worker-system"]
        return ["web", "web-2", *workers, "engine-cpu"]

    def start(self, name: str) -> None:
        self.topology.start(name.removesuffix("-2"), name, self.ports.get(name, 0))

    def start_all(self) -> None:
        for name in ("engine-cpu", "beat", "watcher", *self.victims):
            if name not in self.topology.processes:
                self.start(name)

    def kill_at_random(self, rnd: random.Random, seconds: float) -> None:
        """Each of them in every round, sometimes two at once; a moment later it starts again, as under a supervisor."""
        end = time.monotonic() + seconds
        round_: list[str] = []
        while time.monotonic() < end:
            time.sleep(rnd.uniform(1.5, 5.0))
            round_ = round_ or rnd.sample(self.victims, len(self.victims))
            chosen = [round_.pop() for _ in range(min(len(round_), rnd.choice([1, 1, 2])))]
            for name in chosen:
                self.topology.kill(name)
                self.killed.append(name)
            time.sleep(rnd.uniform(0.0, 1.0))
            for name in chosen:
                self.start(name)

    def url(self, rnd: random.Random) -> str:
        return f"http://127.0.0.1:{self.ports[rnd.choice(['web', 'web-2'])]}"


@dataclass
class Load:
    """Clients that go on whatever happens, and what was promised to them."""

    fleet: Fleet
    key: str
    answered: dict[str, dict[str, int]] = field(default_factory=dict)
    uploads: dict[str, str] = field(default_factory=dict)
    stopped: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    def start(self) -> None:
        work: list[Callable[[random.Random], None]] = [self.generate] * CLIENTS
        for number, job in enumerate([*work, self.upload]):
            thread = threading.Thread(target=self._repeat, args=[job, random.Random(SEED + number)], daemon=True)
            thread.start()
            self.threads.append(thread)

    def stop(self) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join(90)
            assert not thread.is_alive(), "a client still waits for an answer"
        assert not self.errors, self.errors

    def _repeat(self, job: Callable[[random.Random], None], rnd: random.Random) -> None:
        while not self.stopped.is_set():
            try:
                job(rnd)
            except httpx.TransportError:
                time.sleep(0.2)  # killed while it answered
            except BaseException as error:
                self.errors.append(error)
                return

    def generate(self, rnd: random.Random) -> None:
        body = {"model": MODEL, "prompt": "Tell me about " + "rivers " * rnd.randint(1, 20), "max_tokens": 12}
        with self._client(rnd) as client:
            if rnd.random() < 0.5:
                answer = client.post("/v1/completions", json=body)
                if answer.status_code == 200:
                    self._note(answer.json())
                else:
                    assert answer.status_code in (500, 503), answer.text
                    time.sleep(0.2)
            else:
                self._stream(client, rnd, {**body, "stream": True, "stream_options": {"include_usage": True}})

    def _stream(self, client: httpx.Client, rnd: random.Random, body: dict[str, Any]) -> None:
        goes_away = rnd.random() < 0.3
        with client.stream("POST", "/v1/completions", json=body) as answer:
            for number, line in enumerate(answer.iter_lines()):
                if goes_away and number > 4:
                    return
                if line.startswith("data: {"):
                    chunk = json.loads(line.removeprefix("data: "))
                    if chunk.get("usage"):
                        self._note(chunk)

    def _note(self, answer: dict[str, Any]) -> None:
        self.answered[answer["id"].removeprefix("cmpl-")] = answer["usage"]

    def upload(self, rnd: random.Random) -> None:
        """The same weights under a configuration of its own, so that each upload is content of its own."""
        name = f"a{rnd.randrange(10**9)}"
        files = {
            "adapter_config.json": (DEMO / "adapter_config.json").read_bytes() + b" " * rnd.randint(1, 2000),
            "adapter_model.safetensors": (DEMO / "adapter_model.safetensors").read_bytes(),
        }
        if rnd.random() < 0.5:
            self._upload_whole(rnd, name, files)
        else:
            self._upload_in_pieces(rnd, name, tar_of(files))
        self.stopped.wait(3)

    def _upload_whole(self, rnd: random.Random, name: str, files: dict[str, bytes]) -> None:
        form = [("files", (file, content)) for file, content in files.items()]
        with self._client(rnd) as client:
            answer = client.post("/api/tenants/acme/uploads", data={"name": name}, files=form)
        if answer.status_code == 202:
            self.uploads[answer.json()["id"]] = name

    def _upload_in_pieces(self, rnd: random.Random, name: str, data: bytes) -> None:
        """Each piece to any of the web processes, until all are there; what was acknowledged once must stay."""
        said = {"adapter": name, "filename": f"{name}.tar"}
        pairs = ",".join(f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in said.items())
        begin = {**TUS, "Upload-Length": str(len(data)), "Upload-Metadata": pairs}
        with self._client(rnd) as client:
            created = client.post("/api/tenants/acme/uploads/resumable", headers=begin)
        if created.status_code != 201:
            return
        path, acknowledged = created.headers["Location"], 0
        while acknowledged < len(data):
            with contextlib.suppress(httpx.TransportError):
                acknowledged = self._send_piece(rnd, path, data, acknowledged)
            time.sleep(0.1)
        self.uploads[path.rpartition("/")[2]] = name

    def _send_piece(self, rnd: random.Random, path: str, data: bytes, acknowledged: int) -> int:
        with self._client(rnd) as client:
            there = client.head(path, headers=TUS)
            if there.status_code != 200:
                return acknowledged
            offset = int(there.headers["Upload-Offset"])
            assert offset >= acknowledged, f"{acknowledged} bytes were acknowledged, {offset} are there"
            piece = data[offset : offset + len(data) // 4 + 1]
            typed = {**TUS, "Upload-Offset": str(offset), "Content-Type": "application/offset+octet-stream"}
            answer = client.patch(path, headers=typed, content=piece) if piece else there
            assert answer.status_code in (200, 204, 409, 410, 423, 500, 503), answer.text
            return int(answer.headers["Upload-Offset"]) if answer.status_code in (200, 204) else offset

    def _client(self, rnd: random.Random) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.Client(base_url=self.fleet.url(rnd), headers=headers, timeout=60, trust_env=False)


def tar_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("kill") / "t"
    topology = Topology(folder, free_port(), SETTINGS)
    topology.run("migrate")
    made = Fleet(topology)
    try:
        made.start_all()
        yield made
    finally:
        codes = topology.stop()
        assert set(codes.values()) <= {0, -signal.SIGTERM}, codes


def journal(fleet: Fleet) -> sqlite3.Connection:
    return sqlite3.connect(fleet.topology.folder / "engine" / "usage.sqlite3", timeout=30)


def tap(fleet: Fleet) -> None:
    """Let the journal's database keep a copy of every record that the engine writes into it."""
    with contextlib.closing(journal(fleet)) as db, db:
        db.execute("CREATE TABLE produced (request_id TEXT PRIMARY KEY, record BLOB)")
        db.execute(
            "CREATE TRIGGER tap AFTER INSERT ON usage BEGIN "
            "INSERT OR IGNORE INTO produced VALUES (NEW.request_id, NEW.record); END"
        )


def produced(fleet: Fleet) -> dict[str, pb.UsageRecord]:
    with contextlib.closing(journal(fleet)) as db:
        rows = db.execute("SELECT request_id, record FROM produced").fetchall()
    return {request_id: pb.UsageRecord.FromString(raw) for request_id, raw in rows}


def unacknowledged(fleet: Fleet) -> int:
    with contextlib.closing(journal(fleet)) as db:
        return int(db.execute("SELECT count(*) FROM usage").fetchone()[0])


def query(fleet: Fleet, sql: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(fleet.topology.database_url, autocommit=True) as connection:
        return connection.execute(sql.encode()).fetchall()


def test_kill_anything_at_any_time(fleet: Fleet) -> None:
    print(f"seed {SEED}, {SECONDS:.0f} s")
    topology = fleet.topology
    load = Load(fleet, prepared(fleet))
    load.start()
    fleet.kill_at_random(random.Random(SEED), SECONDS)
    load.stop()
    fleet.start_all()

    topology.eventually("every record is acknowledged", lambda: unacknowledged(fleet) == 0, SETTLE_S)
    assert_events_are_what_the_engine_produced(fleet, load)
    topology.eventually("rollups equal events", lambda: rollups(fleet) == ledger(fleet), SETTLE_S)
    states = "SELECT DISTINCT state FROM adapters_adapterversion"
    undecided = "SELECT count(*) FROM adapters_upload WHERE state IN ('arriving', 'received', 'validating')"
    topology.eventually("every upload is decided", lambda: query(fleet, undecided) == [(0,)], SETTLE_S)
    topology.eventually("every version is ready", lambda: query(fleet, states) == [("ready",)], SETTLE_S)
    assert_uploads_are_whole(fleet, load)
    topology.eventually("no lease is left", lambda: leases(fleet) == [])
    print(
        f"killed {len(fleet.killed)}: {fleet.killed}; {len(load.answered)} answers, {len(load.uploads)} uploads, "
        f"{len(produced(fleet))} records of the engine"
    )
    assert set(fleet.killed) == set(fleet.victims)
    assert len(load.answered) > 5


def prepared(fleet: Fleet) -> str:
    """Everything serves, a tenant exists, the tap is in place. Returns its key."""
    topology = fleet.topology
    create = ("manage.py", "create_tenant", "acme", "--owner", "ada@example.org", "--key", "first")
    key = next(word for word in topology.run("web", sys.executable, *create).split() if word.startswith("lk_"))
    for name in fleet.ports:
        topology.eventually(f"{name} answers", partial(answers, fleet, name, key), 120)
    topology.eventually("the first are acknowledged", lambda: unacknowledged(fleet) == 0)
    tap(fleet)
    return key


def answers(fleet: Fleet, web: str, key: str) -> bool:
    answer = httpx.post(
        f"http://127.0.0.1:{fleet.ports[web]}/v1/completions",
        headers={"Authorization": f"Bearer {key}"},
        json={"model": MODEL, "prompt": "Hello", "max_tokens": 1},
        timeout=60,  # whom it does not wait for is counted all the same
        trust_env=False,
    )
    return answer.status_code == 200


def assert_events_are_what_the_engine_produced(fleet: Fleet, load: Load) -> None:
    columns = "request_id, outcome, prompt_tokens, cached_prompt_tokens, completion_tokens, device_us"
    rows = query(fleet, f"SELECT {columns} FROM usage_usageevent WHERE outcome <> 'refused'")
    events = {row[0]: row[1:] for row in rows}
    made = {
        record.request_id: (
            record.outcome, record.prompt_tokens, record.cached_prompt_tokens, record.completion_tokens,
            record.device_us,
        )
        for record in produced(fleet).values()
    }  # fmt: skip
    before_the_tap = len(fleet.ports)  # the first answer of each
    assert len(rows) == len(events), "an event was written twice"
    # Of a request that broke off the ledger has what its caller received, whatever the engine had made of it.
    failed = {name: values for name, values in events.items() if values[0] == "failed"}
    for name, (_, prompt, cached, completion, _) in failed.items():
        assert (prompt, cached) == (0, 0)
        assert name not in made or completion <= made[name][3]
    others = {name: values for name, values in made.items() if name not in failed}
    assert {name: events.get(name) for name in others} == others
    assert len(events) - len(failed) == len(others) + before_the_tap
    by_public_id = {name[4:26]: values for name, values in events.items()}
    for answer, usage in load.answered.items():
        _, prompt, _, completion, _ = by_public_id[answer]
        assert (prompt, completion) == (usage["prompt_tokens"], usage["completion_tokens"])


SUMS = "sum(prompt_tokens), sum(cached_prompt_tokens), sum(completion_tokens), sum(device_us)"
DIMENSIONS = "tenant_id, adapter_id, version_id, api_key_id, outcome"


def ledger(fleet: Fleet) -> list[tuple[Any, ...]]:
    hour = "date_trunc('hour', created_at AT TIME ZONE 'UTC')"
    return query(
        fleet, f"SELECT {DIMENSIONS}, {hour} AS h, count(*), {SUMS} FROM usage_usageevent GROUP BY {DIMENSIONS}, h "
        "ORDER BY outcome, h"
    )  # fmt: skip


def rollups(fleet: Fleet) -> list[tuple[Any, ...]]:
    dimensions = ", ".join(f"s.{name}" for name in DIMENSIONS.split(", "))
    return query(
        fleet, f"SELECT {dimensions}, start AT TIME ZONE 'UTC' AS h, sum(requests), {SUMS} FROM usage_hourlyusage u "
        f"JOIN usage_series s ON s.id = u.series_id GROUP BY {dimensions}, h ORDER BY outcome, h"
    )  # fmt: skip


def assert_uploads_are_whole(fleet: Fleet, load: Load) -> None:
    """Every upload that was answered with 202 became a version whose files are there, byte for byte."""
    states = dict(query(fleet, "SELECT id::text, state FROM adapters_upload"))
    assert {upload: states.get(upload) for upload in load.uploads} == dict.fromkeys(load.uploads, "accepted")
    for digest, files in query(fleet, "SELECT digest, file_digests FROM adapters_adapterversion"):
        folder = next((fleet.topology.folder / "data" / "artifacts").rglob(f"*{digest.removeprefix('sha256:')}*"))
        for name, expected in files.items():
            assert f"sha256:{hashlib.sha256((folder / name).read_bytes()).hexdigest()}" == expected
    half = query(fleet, "SELECT phase, count(*) FROM fleet_placement WHERE phase <> 'ready' GROUP BY phase")
    assert half == []


def leases(fleet: Fleet) -> list[bytes]:
    """Leases of requests in Redis; the watcher's own is held as long as it runs."""
    with redis.Redis.from_url(fleet.topology.redis_url) as connection:
        held = {key for key in connection.scan_iter("*lease*") if b"watch-fleet" not in key}
        return sorted(held)
