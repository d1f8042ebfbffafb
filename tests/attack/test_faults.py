"""PostgreSQL and Redis away: cut, frozen, slow, empty, full, read-only. What goes on, what is said, what heals.

A proxy stands in front of each server and takes it away. One installation serves the whole module, with servers of its
own, because they are harmed: a web process with workers, beat and watcher inside.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import redis
from lorikeet_testing.browser import Signed, page_socket, receive
from lorikeet_testing.fake_engine import Behaviour, FakeEngineThread
from lorikeet_testing.tcp_proxy import TcpProxy, proxied
from lorikeet_testing.web import WebProcess, eventually
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from scripts.test_services import postgres as own_postgres
from scripts.test_services import redis as own_redis
from scripts.test_services import server_folder

pytestmark = pytest.mark.services
GRACE_S = 60
HEALS_WITHIN_S = 30.0
MAX_CONNECTIONS = 30
TERMINATE = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


@dataclass
class Installation:
    web: WebProcess
    engine: FakeEngineThread
    postgres: TcpProxy
    redis: TcpProxy

    def ask(self, tenant: str = "acme", model: str = "support", **headers: str) -> httpx.Response:
        body = {"model": model, "messages": [{"role": "user", "content": "say hi"}]}
        sent = {**self.web.tenants[tenant].bearer, **headers}
        return self._http("POST", "/v1/chat/completions", json=body, headers=sent)

    def get(self, path: str) -> httpx.Response:
        return self._http("GET", path, headers=self.web.tenants["acme"].bearer)

    def restage(self) -> httpx.Response:
        path = "/api/tenants/acme/adapters/support/versions/1/restage"
        return self._http("POST", path, headers=self.web.tenants["acme"].bearer)

    def phase(self) -> str:
        rows = self.web.query(
            "SELECT p.phase FROM placements_placement p JOIN registry_adapterversion v ON v.id = p.version_id "
            "JOIN registry_adapter a ON a.id = v.adapter_id WHERE a.name = 'support'"
        )
        return str(rows[0]["phase"])

    def heal(self) -> None:
        for proxy in (self.postgres, self.redis):
            proxy.restore()
        eventually(lambda: self.get("/readyz").status_code == 200, HEALS_WITHIN_S, what="ready again")

    def _http(self, method: str, path: str, **more: Any) -> httpx.Response:
        return httpx.request(method, f"{self.web.url}{path}", trust_env=False, timeout=30, **more)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    folder = tmp_path_factory.mktemp("faults")
    with (
        server_folder() as root,
        own_postgres(root / "postgres", max_connections=str(MAX_CONNECTIONS)) as postgres,
        own_redis(root / "redis") as queue,
    ):
        own = {"LORIKEET_DATABASE_URL": postgres.url, "LORIKEET_REDIS_URL": queue.url}
        yield from _serve(folder, {**own, "LORIKEET_SECRET_KEY": "s" * 50, "LORIKEET_EMBEDDED": "1"})


def _serve(folder: Path, own: dict[str, str]) -> Iterator[Installation]:
    settings = {
        "LORIKEET_LOGIN_RATE": "1000/min",
        "LORIKEET_LOGIN_ACCOUNT_RATE": "1000/min",
        "LORIKEET_DATABASE_GRACE_S": str(GRACE_S),
        "LORIKEET_DATABASE_ANSWER_S": "4",
    }
    engine = FakeEngineThread(f"unix:{folder}/e.sock", Behaviour(stage_seconds=0.05, known_digests_only=True))
    with (
        proxied(own["LORIKEET_DATABASE_URL"]) as (postgres, database_url),
        proxied(own["LORIKEET_REDIS_URL"]) as (redis_proxy, redis_url),
    ):
        through = {**own, "LORIKEET_DATABASE_URL": database_url, "LORIKEET_REDIS_URL": redis_url}
        web = WebProcess(folder / "var", f"local={engine.engine.address}", settings, installation=through)
        try:
            web.seed()
            yield Installation(web, engine, postgres, redis_proxy)
        finally:
            postgres.restore()
            redis_proxy.restore()
            web.stop()
            engine.close()


@pytest.fixture
def here(started: Installation) -> Iterator[Installation]:
    """The installation, well before and after each test."""
    if started.web.process is None:
        started.postgres.restore()
        started.redis.restore()
        started.web.start()
        started.web.wait_until_ready("support")
    started.heal()
    eventually(lambda: started.ask().status_code == 200, HEALS_WITHIN_S, what="a first answer")
    yield started
    if started.web.process is not None:
        started.heal()


def assert_says_try_again(answer: httpx.Response, *codes: str) -> None:
    assert answer.status_code == 503, answer.text
    assert answer.json()["error"]["code"] in codes
    assert int(answer.headers["Retry-After"]) >= 1


# -- PostgreSQL ------------------------------------------------------------------


def test_inference_goes_on_without_the_database_and_its_usage_is_kept(here: Installation) -> None:
    here.postgres.cut()
    answers = [here.ask() for _ in range(20)]
    assert [answer.status_code for answer in answers] == [200] * 20
    assert_says_try_again(here.ask("globex", "sql"), "database_unavailable")  # not seen lately: nobody can tell
    assert_says_try_again(here.get("/api/tenants/acme/adapters"), "database_unavailable")
    here.heal()
    journal = here.engine.engine.journal
    eventually(lambda: here.engine.engine.acknowledged == journal.keys(), HEALS_WITHIN_S, what="usage acknowledged")
    rows = {row["request_id"] for row in here.web.query("SELECT request_id FROM usage_usageevent")}
    assert rows == journal.keys()


def test_readiness_names_what_is_missing_and_inference_has_its_own(here: Installation) -> None:
    for proxy, part in ((here.postgres, "database"), (here.redis, "redis")):
        proxy.cut()
        began = time.monotonic()
        ready = here.get("/readyz")
        assert time.monotonic() - began < 5
        assert ready.status_code == 503 and ready.json()["error"]["code"] == f"{part}_unavailable"
        parts = ready.json()["parts"]
        assert [name for name, state in parts.items() if state != "ok"] == [part]
        assert here.get("/readyz/inference").status_code == here.get("/livez").status_code == 200
        here.heal()


def test_a_frozen_database_holds_nobody_up_for_long(here: Installation) -> None:
    here.postgres.freeze()
    began = time.monotonic()
    assert here.ask().status_code == 200
    assert here.get("/api/tenants/acme/adapters").status_code == 503
    assert time.monotonic() - began < 20
    assert here.get("/readyz").status_code == 503
    here.heal()
    assert here.get("/api/tenants/acme/adapters").status_code == 200


def test_a_server_that_takes_no_writes_is_left_for_the_primary(here: Installation) -> None:
    """After a failover the pool's connections lead to a standby."""
    database = here.web.installation["LORIKEET_DATABASE_URL"].rpartition("/")[2]
    here.web.query("SELECT 1")
    try:
        execute(here, f'ALTER DATABASE "{database}" SET default_transaction_read_only = on')
        execute(here, TERMINATE)
        eventually(lambda: here.restage().status_code == 503, HEALS_WITHIN_S, what="refused")
    finally:
        execute(here, f'ALTER DATABASE "{database}" RESET default_transaction_read_only')
    eventually(lambda: here.restage().status_code == 202, HEALS_WITHIN_S, what="accepted without a restart")
    eventually(lambda: here.phase() == "ready", HEALS_WITHIN_S, what="staged")


def test_terminated_connections_are_noticed_before_they_are_used(here: Installation) -> None:
    execute(here, TERMINATE)
    answers = [here.get("/api/tenants/acme/adapters").status_code for _ in range(5)]
    assert answers.count(200) >= 4, answers


def execute(here: Installation, sql: str) -> None:
    with psycopg.connect(here.web.installation["LORIKEET_DATABASE_URL"], autocommit=True) as server:
        server.execute("SET default_transaction_read_only = off")
        server.execute(sql.encode())


def test_a_slow_database_slows_inference_down_by_little(here: Installation) -> None:
    here.postgres.delay(1.5)  # each way: an answer takes three seconds
    began = time.monotonic()
    assert [here.ask().status_code for _ in range(3)] == [200] * 3
    assert here.get("/readyz").json()["error"]["code"] == "database_unavailable"
    assert time.monotonic() - began < 10
    here.heal()
    eventually(lambda: here.get("/api/tenants/acme/adapters").status_code == 200, HEALS_WITHIN_S)


def test_a_server_out_of_connections(here: Installation) -> None:
    """`too many clients already`: somebody else took them all, and ours were lost."""
    with contextlib.ExitStack() as others:
        first = others.enter_context(connection(here))
        # One of ours that was ended may give its place back a moment later, and the web process takes it.
        refused = eventually(lambda: refused_without(here, first, others), HEALS_WITHIN_S, what="no connection left")
        # Whether the pool still had a connection when it asked for another one decides between the two.
        assert_says_try_again(refused, "database_unavailable", "database_busy")
        assert here.ask().status_code == 200
        assert here.get("/readyz").status_code == 503
    here.heal()
    assert here.get("/api/tenants/acme/adapters").status_code == 200


def refused_without(here: Installation, first: Any, others: contextlib.ExitStack) -> Any:
    """What is said once there is no connection left; None while there is one."""
    if not starve(here, first, others):
        return None
    answer = here.get("/api/tenants/acme/adapters")
    return None if answer.status_code == 200 else answer


def starve(here: Installation, first: Any, others: contextlib.ExitStack) -> bool:
    """Take every connection that is left. Whether the web process has none; else its are ended."""
    try:
        while True:
            others.enter_context(connection(here))
    except psycopg.OperationalError as error:
        assert "too many clients" in str(error)
    return not first.execute(f"{TERMINATE} AND application_name <> 'others'").fetchall()


def connection(here: Installation) -> Any:
    url = here.web.installation["LORIKEET_DATABASE_URL"]
    return psycopg.connect(url, autocommit=True, application_name="others")


# -- Redis -----------------------------------------------------------------------


def test_without_redis_every_refusal_says_when_to_try_again(here: Installation) -> None:
    person = Signed(here.web.url, here.web.tenants["acme"].email, here.web.tenants["acme"].password)
    for away in (here.redis.cut, here.redis.freeze):
        away()
        assert_says_try_again(person.send("POST", "/api/tenants/acme/socket-ticket"), "redis_unavailable")
        wrong = {"email": "nobody@acme.example", "password": "not the password"}
        assert_says_try_again(person.send("POST", "/api/session", wrong), "redis_unavailable")
        assert here.ask().status_code == 200  # no limits, so nothing to count
        assert here.get("/api/tenants/acme/adapters").status_code == 200
        here.heal()
        eventually(lambda: person.send("POST", "/api/tenants/acme/socket-ticket").status_code == 201, HEALS_WITHIN_S)


async def test_sockets_are_told_to_connect_again_and_inference_goes_on(here: Installation) -> None:
    access = here.web.tenants["acme"]
    person = await asyncio.to_thread(Signed, here.web.url, access.email, access.password)
    ticket = await asyncio.to_thread(person.ticket, "acme")
    async with page_socket(here.web.url, "/ws/console", ticket) as console, inference(here) as socket:
        assert (await receive(console))["type"] == "hello"
        await generate(socket, "a", "words 200")
        await asyncio.to_thread(here.redis.cut)
        error = await next_of(console, "error")
        assert error["error"]["code"] == "redis_unavailable"
        with pytest.raises(ConnectionClosed):
            await receive(console)
        assert console.close_code == 1013
        assert (await next_of(socket, "done"))["id"] == "a"
        await generate(socket, "b", "say hi")
        assert (await next_of(socket, "done"))["id"] == "b"
        await asyncio.to_thread(here.heal)
        await generate(socket, "c", "say hi")
        assert (await next_of(socket, "done"))["id"] == "c"


def inference(here: Installation) -> Any:
    url = here.web.url.replace("http", "ws", 1) + "/ws/inference"
    return connect(url, additional_headers=here.web.tenants["acme"].bearer, proxy=None)


async def generate(socket: ClientConnection, name: str, prompt: str) -> None:
    request = {"model": "support", "messages": [{"role": "user", "content": prompt}]}
    await socket.send(json.dumps({"type": "generate", "id": name, "request": request}))


async def next_of(socket: ClientConnection, kind: str) -> dict[str, Any]:
    while (frame := await receive(socket))["type"] != kind:
        pass
    return frame


@pytest.mark.parametrize("take_away", ["cut", "freeze"])
def test_what_could_not_be_queued_is_queued_when_redis_is_back(here: Installation, take_away: str) -> None:
    getattr(here.redis, take_away)()
    assert here.restage().status_code == 202
    assert here.phase() == "queued"
    here.heal()
    eventually(lambda: here.phase() == "ready", HEALS_WITHIN_S, what="staged")


def test_the_watcher_survives_and_writes_on(here: Installation) -> None:
    here.redis.cut()
    first = seen(here)
    eventually(lambda: seen(here) > first, HEALS_WITHIN_S, what="a heartbeat without Redis")
    here.heal()
    second = seen(here)
    eventually(lambda: seen(here) > second, HEALS_WITHIN_S, what="a heartbeat after it")


def seen(here: Installation) -> Any:
    return here.web.query("SELECT last_seen FROM hosts_enginehost")[0]["last_seen"]


def test_both_away_at_once(here: Installation) -> None:
    here.postgres.cut()
    here.redis.cut()
    assert here.ask().status_code == 200
    assert_says_try_again(here.restage(), "database_unavailable")
    states = here.get("/readyz").json()["parts"]
    assert "ok" not in states.values()
    here.heal()
    assert here.restage().status_code == 202
    eventually(lambda: here.phase() == "ready", HEALS_WITHIN_S, what="staged")


def test_redis_that_forgot_everything(here: Installation) -> None:
    """Scripts, leases, groups, queues: all made again."""
    with direct(here) as server:
        server.script_flush()
        server.flushdb()
    assert here.restage().status_code == 202
    eventually(lambda: here.phase() == "ready", HEALS_WITHIN_S, what="staged")
    Signed(here.web.url, here.web.tenants["acme"].email, here.web.tenants["acme"].password).ticket("acme")


def test_redis_whose_memory_is_full(here: Installation) -> None:
    person = Signed(here.web.url, here.web.tenants["acme"].email, here.web.tenants["acme"].password)
    with direct(here) as server:
        server.config_set("maxmemory-policy", "noeviction")
        server.config_set("maxmemory", 1)
        try:
            assert_says_try_again(person.send("POST", "/api/tenants/acme/socket-ticket"), "redis_unavailable")
            assert here.get("/readyz").json()["error"]["code"] == "redis_unavailable"
            assert here.ask().status_code == 200
        finally:
            server.config_set("maxmemory", 0)
    eventually(lambda: person.send("POST", "/api/tenants/acme/socket-ticket").status_code == 201, HEALS_WITHIN_S)


def test_redis_that_became_a_replica(here: Installation) -> None:
    """After a failover connections lead to a server that answers every write with READONLY."""
    person = Signed(here.web.url, here.web.tenants["acme"].email, here.web.tenants["acme"].password)
    with direct(here) as server:
        server.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            assert_says_try_again(person.send("POST", "/api/tenants/acme/socket-ticket"), "redis_unavailable")
            assert here.get("/readyz").json()["error"]["code"] == "redis_unavailable"
            assert here.ask().status_code == 200
            assert here.restage().status_code == 202
        finally:
            server.execute_command("REPLICAOF", "NO", "ONE")
    eventually(lambda: person.send("POST", "/api/tenants/acme/socket-ticket").status_code == 201, HEALS_WITHIN_S)
    eventually(lambda: here.phase() == "ready", HEALS_WITHIN_S, what="staged")


def test_a_slow_redis_is_as_good_as_none(here: Installation) -> None:
    here.redis.delay(1.5)
    began = time.monotonic()
    assert here.ask().status_code == 200
    assert here.get("/api/tenants/acme/adapters").status_code == 200
    assert here.get("/readyz").json()["error"]["code"] == "redis_unavailable"
    assert time.monotonic() - began < 15


def direct(here: Installation) -> redis.Redis:
    """Past the proxy."""
    return redis.Redis.from_url(here.redis.behind(here.web.installation["LORIKEET_REDIS_URL"]))


# -- the end ---------------------------------------------------------------------


def test_a_web_process_stops_in_time_without_its_servers(here: Installation) -> None:
    for proxy in (here.postgres, here.redis):
        proxy.freeze()
    here.ask()
    began = time.monotonic()
    here.web.stop()  # fails by itself after 20 s
    assert time.monotonic() - began < 15
