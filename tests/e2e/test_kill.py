"""kill -9 of web, worker, engine, PostgreSQL and Redis at random, under load: nothing is lost, doubled or half done.

Two web processes, the workers that uploads and usage need, one engine, on a PostgreSQL and a Redis of this test. What
the engine produced is noted inside its own journal's file, by a trigger that this test adds there: a record that the
product cannot forget.

It runs in `make test-long`. LORIKEET_KILL_TEST_S is how long processes are killed instead of ten minutes;
LORIKEET_KILL_TEST_SEED repeats a run's choices; LORIKEET_KILL_TEST_RESULTS is a file that gets the run's figures.
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
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import redis
from lorikeet_testing.compose import ROOT, load_compose
from lorikeet_testing.topology import Topology
from lorikeet_testing.web import free_port

from lora_engine.wire import engine_pb2 as pb
from scripts.test_services import Postgres, Redis, Server, ServiceError, server_folder

SECONDS = float(os.environ.get("LORIKEET_KILL_TEST_S", "600"))
SEED = int(os.environ.get("LORIKEET_KILL_TEST_SEED", str(random.randrange(10**6))))
MODEL = "lorikeet-demo"
DEMO = ROOT / "demo" / "adapters" / "pirate"
CLIENTS = 4
# Seconds between two requests of a client. Without a pause the clients use all of the processor that others need too.
PAUSE_S = 0.0 if os.environ.get("LORIKEET_LONG") else 0.1
TUS = {"Tus-Resumable": "1.0.0"}
SECRETS = {"POSTGRES_PASSWORD": "unused", "LORIKEET_SECRET_KEY": "s" * 40}
SETTLE_S = 200.0
# As long as its waits may take together, so that it says itself what did not come.
pytestmark = [pytest.mark.long, pytest.mark.timeout(SECONDS + 1200)]
# For how long a server is away, and how long it may take to start on what a killed one left.
SERVER_AWAY_S = 4.0
RECOVERY_S = 60.0
# A web process that is killed so soon after an engine may not have written what broke off, if PostgreSQL was away too.
NOTED_S = 15.0
SETTINGS = {"LORIKEET_VALIDATE_WALL_S": "15", "LORIKEET_LOG_LEVEL": "WARNING"}


class Fleet:
    """The processes, each of which may be killed and started again."""

    def __init__(self, topology: Topology, servers: dict[str, Server]) -> None:
        self.topology = topology
        self.servers = servers
        self.ports = {"web": topology.port, "web-2": free_port()}
        self.killed: list[tuple[float, str]] = []
        """When, on the monotonic clock, and whom."""

    @property
    def victims(self) -> list[str]:
        workers = ["worker-validation", "worker-validation-2", "worker-staging", "worker-system"]
        return ["web", "web-2", *workers, "engine-cpu", *self.servers]

    def start(self, name: str) -> None:
        if name in self.servers:
            self._start_server(self.servers[name])
        else:
            self.topology.start(name.removesuffix("-2"), name, self.ports.get(name, 0))

    def _start_server(self, server: Server) -> None:
        """As a supervisor: again and again, because children of a killed PostgreSQL hold its memory for a moment."""
        end = time.monotonic() + RECOVERY_S
        while True:
            try:
                return server.start()
            except ServiceError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)

    def start_all(self) -> None:
        for name in ("engine-cpu", "beat", "watcher", *self.victims):
            if name not in self.topology.processes and name not in self.servers:
                self.start(name)

    def kill(self, name: str) -> None:
        self.killed.append((time.monotonic(), name))
        if name in self.servers:
            self.servers[name].kill()
        else:
            self.topology.kill(name)

    def kill_at_random(self, rnd: random.Random, seconds: float) -> None:
        """Each of them in every round, sometimes two at once; a moment later it starts again, as under a supervisor."""
        end = time.monotonic() + seconds
        round_: list[str] = []
        while time.monotonic() < end or {name for _, name in self.killed} != set(self.victims):
            time.sleep(rnd.uniform(1.5, 5.0))
            round_ = round_ or rnd.sample(self.victims, len(self.victims))
            chosen = [round_.pop() for _ in range(min(len(round_), rnd.choice([1, 1, 2])))]
            for name in chosen:
                self.kill(name)
            time.sleep(rnd.uniform(0.0, SERVER_AWAY_S if set(chosen) & set(self.servers) else 1.0))
            for name in sorted(chosen, key=lambda name: name not in self.servers):
                self.start(name)
            self.require_all()

    def require_all(self) -> None:
        """Who was not killed still runs, whatever was away."""
        for name, process in self.topology.processes.items():
            assert process.poll() is None, f"{name} ended by itself\n{self.topology.logs()}"

    def was_killed(self, name: str, since: float, until: float) -> bool:
        return any(name == who and since <= when <= until for when, who in self.killed)

    def url(self, web: str) -> str:
        return f"http://127.0.0.1:{self.ports[web]}"


@dataclass(frozen=True)
class Interrupted:
    """An answer that began and did not end well, of which its client knows the id."""

    id: str
    web: str
    began: float
    ended: float
    why: str


@dataclass
class Load:
    """Clients that go on whatever happens, and what was promised to them."""

    fleet: Fleet
    key: str
    answered: dict[str, dict[str, int]] = field(default_factory=dict)
    interrupted: list[Interrupted] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
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
            except httpx.TimeoutException as error:
                self.errors.append(error)  # whatever is away, an answer comes
                return
            except httpx.TransportError:
                time.sleep(0.2)  # killed while it answered
            except BaseException as error:
                self.errors.append(error)
                return

    def generate(self, rnd: random.Random) -> None:
        self.stopped.wait(PAUSE_S)
        body = {"model": MODEL, "prompt": "Tell me about " + "rivers " * rnd.randint(1, 20), "max_tokens": 12}
        web = self._web(rnd)
        if rnd.random() < 0.5:
            self._stream(web, rnd, {**body, "stream": True, "stream_options": {"include_usage": True}})
            return
        with self._client(web) as client:
            answer = client.post("/v1/completions", json=body)
        if answer.status_code == 200:
            self._note(answer.json())
        else:
            self._note_refusal(answer)

    def _stream(self, web: str, rnd: random.Random, body: dict[str, Any]) -> None:
        goes_away, began, name = rnd.random() < 0.3, time.monotonic(), ""
        why = "broken off"
        try:
            with self._client(web) as client, client.stream("POST", "/v1/completions", json=body) as answer:
                if answer.status_code != 200:
                    answer.read()
                    self._note_refusal(answer)
                    return
                for number, line in enumerate(answer.iter_lines()):
                    if goes_away and number > 4:
                        why = "left by its client"
                        return
                    if not line.startswith("data: {"):
                        continue
                    chunk = json.loads(line.removeprefix("data: "))
                    if "error" in chunk:
                        why = chunk["error"]["code"]
                        continue
                    name = chunk["id"].removeprefix("cmpl-")
                    if chunk.get("usage"):
                        self._note(chunk)
        finally:
            if name and name not in self.answered:
                self.interrupted.append(Interrupted(name, web, began, time.monotonic(), why))

    def _note_refusal(self, answer: httpx.Response) -> None:
        """Only what says that it passes is a refusal here."""
        assert answer.status_code == 503, answer.text
        assert int(answer.headers["Retry-After"]) >= 1
        self.refused[answer.json()["error"]["code"]] += 1
        time.sleep(0.2)

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
        with self._client(self._web(rnd)) as client:
            answer = client.post("/api/tenants/acme/uploads", data={"name": name}, files=form)
        if answer.status_code == 202:
            self.uploads[answer.json()["id"]] = name

    def _upload_in_pieces(self, rnd: random.Random, name: str, data: bytes) -> None:
        """Each piece to any of the web processes, until all are there; what was acknowledged once must stay."""
        said = {"adapter": name, "filename": f"{name}.tar"}
        pairs = ",".join(f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in said.items())
        begin = {**TUS, "Upload-Length": str(len(data)), "Upload-Metadata": pairs}
        with self._client(self._web(rnd)) as client:
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
        with self._client(self._web(rnd)) as client:
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

    @staticmethod
    def _web(rnd: random.Random) -> str:
        return rnd.choice(["web", "web-2"])

    def _client(self, web: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.Client(base_url=self.fleet.url(web), headers=headers, timeout=60, trust_env=False)


def tar_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with server_folder() as folder:
        # What a test database may lose by a kill, this one may not.
        postgres = Postgres(folder / "postgres", synchronous_commit="on")
        queue = Redis(folder / "redis", *load_compose(SECRETS)["services"]["redis"]["command"][1:])
        try:
            postgres.create()
            queue.start()
            yield from _serve(tmp_path / "t", {"postgres": postgres, "redis": queue})
        finally:
            postgres.stop()
            queue.stop()


def _serve(folder: Path, servers: dict[str, Server]) -> Iterator[Fleet]:
    installation = {"LORIKEET_DATABASE_URL": servers["postgres"].url, "LORIKEET_REDIS_URL": servers["redis"].url}
    topology = Topology(folder, free_port(), SETTINGS, installation, forked=True)
    topology.run("migrate")
    made = Fleet(topology, servers)
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
    began = time.monotonic()
    fleet.kill_at_random(random.Random(SEED), SECONDS)
    killing_s = time.monotonic() - began
    load.stop()
    began = time.monotonic()

    topology.eventually("every record is acknowledged", lambda: unacknowledged(fleet) == 0, SETTLE_S)
    assert_events_are_what_the_engine_produced(fleet, load)
    accounts = account_for_interrupted(fleet, load)
    topology.eventually("rollups equal events", lambda: rollups(fleet) == ledger(fleet), SETTLE_S)
    states = "SELECT DISTINCT state FROM registry_adapterversion"
    undecided = "SELECT count(*) FROM uploads_upload WHERE state IN ('arriving', 'received', 'validating')"
    topology.eventually("every upload is decided", lambda: query(fleet, undecided) == [(0,)], SETTLE_S)
    topology.eventually("every version is ready", lambda: query(fleet, states) == [("ready",)], SETTLE_S)
    # A version stays ready while an engine that was killed a moment ago gets it again.
    half = "SELECT count(*) FROM placements_placement WHERE phase <> 'ready'"
    topology.eventually("every placement is ready", lambda: query(fleet, half) == [(0,)], SETTLE_S)
    assert_uploads_are_whole(fleet, load)
    topology.eventually("no lease is left", lambda: leases(fleet) == [])
    figures = {
        "seed": SEED,
        "seconds": round(killing_s),
        "settled_s": round(time.monotonic() - began, 1),
        "kills": Counter(name for _, name in fleet.killed),
        "answers": len(load.answered),
        "interrupted": accounts,
        "refused": load.refused,
        "uploads": len(load.uploads),
        "records": len(produced(fleet)),
    }
    print(json.dumps(figures))
    if path := os.environ.get("LORIKEET_KILL_TEST_RESULTS"):
        with Path(path).open("a") as file:
            file.write(json.dumps(figures) + "\n")
    assert {name for _, name in fleet.killed} == set(fleet.victims)
    assert len(load.answered) > 5


def account_for_interrupted(fleet: Fleet, load: Load) -> Counter[str]:
    """Each answer that broke off is in the ledger, unless everybody who knew of it was killed: how many of which."""
    events = dict(query(fleet, "SELECT substr(request_id, 5, 22), outcome FROM usage_usageevent"))
    accounts: Counter[str] = Counter()
    for answer in load.interrupted:
        if answer.id in events:
            accounts[f"{answer.why}: {events[answer.id]}"] += 1
        else:
            # The engine's journal has what the engine ended, the web process writes what it did not end.
            for who in ("engine-cpu", answer.web):
                assert fleet.was_killed(who, answer.began, answer.ended + NOTED_S), answer
            accounts[f"{answer.why}: lost with engine and web process"] += 1
    return accounts


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
    # An answer that went on when its engine was back is what the last try says.
    abandoned = {row[0] for row in query(fleet, "SELECT engine_id FROM usage_abandonedtry")}
    made = {
        record.request_id.partition(".")[0]: (
            record.outcome, record.prompt_tokens, record.cached_prompt_tokens, record.completion_tokens,
            record.device_us,
        )
        for record in produced(fleet).values()
        if record.request_id not in abandoned
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
    states = dict(query(fleet, "SELECT id::text, state FROM uploads_upload"))
    assert {upload: states.get(upload) for upload in load.uploads} == dict.fromkeys(load.uploads, "accepted")
    for digest, files in query(fleet, "SELECT digest, file_digests FROM registry_adapterversion"):
        folder = next((fleet.topology.folder / "data" / "artifacts").rglob(f"*{digest.removeprefix('sha256:')}*"))
        for name, expected in files.items():
            assert f"sha256:{hashlib.sha256((folder / name).read_bytes()).hexdigest()}" == expected


def leases(fleet: Fleet) -> list[bytes]:
    """Leases of requests in Redis; the watcher's own is held as long as it runs."""
    with redis.Redis.from_url(fleet.topology.redis_url) as connection:
        held = {key for key in connection.scan_iter("*lease*") if b"watch-fleet" not in key}
        return sorted(held)
