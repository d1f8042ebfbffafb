"""No token of a wrong adapter or version over HTTP: the small form of `benchmarks/signatures.py --rest`."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lorikeet_testing import signed_http
from lorikeet_testing.engine_process import EngineProcess
from lorikeet_testing.signatures import Signature, new_signature, save_base, save_signed
from lorikeet_testing.signed_http import Caller, SignedHttpTraffic
from lorikeet_testing.signed_traffic import Tally
from lorikeet_testing.web import WebProcess

ADAPTERS, CLIENTS = 4, 8
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebProcess]:
    folder = tmp_path_factory.mktemp("signatures")
    save_base(folder / "model")
    options = ("--model-name", "signatures", "--dtype", "float32", "--pool-mb", "1", "--host-arena-mb", "4")
    engine = EngineProcess(folder / "model", folder, *options)
    web = WebProcess(folder / "var", f"local={engine.address}")
    try:
        web.seed(adapters=False)
        web.start()
        web.wait_until_ready("signatures")
        yield web
    finally:
        web.stop()
        engine.end()


async def run(web: WebProcess, folder: Path, prefix: str, is_enough: Callable[[Tally], bool]) -> Tally:
    callers = [Caller(slug, access.bearer) for slug, access in web.tenants.items()]
    traffic = SignedHttpTraffic(
        web.url, callers, "signatures", folder, adapters=ADAPTERS, clients=CLIENTS, seed=1, prefix=prefix
    )
    until = time.monotonic() + LIMIT_S
    await traffic.run(lambda: time.monotonic() < until and not is_enough(traffic.tally))
    assert is_enough(traffic.tally), traffic.tally
    return traffic.tally


async def test_every_token_is_of_the_version_that_was_named(web: WebProcess, tmp_path: Path) -> None:
    def is_enough(tally: Tally) -> bool:
        return tally.requests >= 200 and tally.events["replaced"] >= 3 and tally.events["archived"] >= 1

    # A second run after a failure must not meet the versions of the first.
    tally = await run(web, tmp_path, f"signed-{time.monotonic_ns():x}", is_enough)
    assert (tally.wrong_tokens, tally.wrong, tally.unexplained) == (0, [], [])
    assert tally.finished + tally.aborted + tally.refused == tally.requests


async def test_answers_of_another_adapter_are_noticed(
    web: WebProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save_another(folder: Path, signature: Signature, rnd: random.Random) -> str:
        return save_signed(folder, new_signature(rnd, signature), rnd)

    monkeypatch.setattr(signed_http, "save_signed", save_another)
    tally = await run(web, tmp_path, "other", lambda tally: tally.requests >= 40)
    assert tally.wrong_tokens > 40 and tally.wrong
