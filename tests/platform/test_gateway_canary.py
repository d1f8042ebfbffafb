"""A canary through the real gateway: its share also within one remembered second, and its end when it fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from lorikeet_testing.fake_engine import Behaviour, FakeEngineThread
from lorikeet_testing.seed import digest_of
from lorikeet_testing.web import WebProcess, eventually

OWN, CANARY = digest_of("acme", "support"), digest_of("acme", "support", 2)
ADD = """
import django; django.setup()
from control_plane.identity.tenants.models import Tenant
from lorikeet_testing.seed import add_version
add_version(Tenant.objects.get(slug="acme"), "support", 2)
"""


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    return Behaviour(known_digests_only=True)


@pytest.fixture(scope="module")
def web(engine_thread: FakeEngineThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebProcess]:
    web = WebProcess(tmp_path_factory.mktemp("web") / "var", f"local={engine_thread.engine.address}")
    web.seed()
    web.run("-c", ADD)
    web.start()
    web.wait_until_ready("support")
    yield web
    web.stop()


@pytest.fixture
def api(web: WebProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=web.url, headers=web.tenants["acme"].bearer, trust_env=False, timeout=30) as client:
        yield client


ADAPTER = "/api/tenants/acme/adapters/support"


def ready(api: httpx.Client) -> bool:
    return all(version["state"] == "ready" for version in api.get(ADAPTER).json()["versions"])


def live(api: httpx.Client) -> dict[str, object]:
    (alias,) = api.get(ADAPTER).json()["aliases"]
    return dict(alias)


def ask(api: httpx.Client, times: int) -> None:
    """All within the second for which an admission is remembered."""
    body = {"model": "support", "messages": [{"role": "user", "content": "words 3"}]}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: api.post("/v1/chat/completions", json=body), range(times)))


def test_share_and_end(web: WebProcess, engine_thread: FakeEngineThread, api: httpx.Client) -> None:
    engine = engine_thread.engine
    eventually(lambda: ready(api), 20, what="both versions are ready")
    api.put(f"{ADAPTER}/aliases/live", json={"version": 1})
    started = api.put(f"{ADAPTER}/aliases/live/canary", json={"version": 2, "percent": 50})
    assert started.status_code == 200, started.text
    engine.submits.clear()
    engine.behaviour.broken_digests.add(CANARY)
    ask(api, 80)
    seen = Counter(submit.adapter_digest for submit in engine.submits)
    assert seen.keys() == {OWN, CANARY}
    assert 20 <= seen[CANARY] <= 60
    eventually(lambda: live(api)["canary"] is None, 40, what=f"the canary ends by itself: {web.output()}")
    ended = live(api)
    assert ended["version"] == 1
    assert ended["rolled_back"]["code"] == "error_rate"  # type: ignore[index]
    engine.submits.clear()
    ask(api, 10)
    assert {submit.adapter_digest for submit in engine.submits} == {OWN}
