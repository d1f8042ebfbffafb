"""A scripted engine, a web process in front of it, and their clients: one of each per test module.

A module that needs another engine or other settings overrides `behaviour` or `web_settings`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lorikeet_testing.console import Console
from lorikeet_testing.fake_engine import Behaviour, FakeEngine, FakeEngineThread
from lorikeet_testing.web import WebProcess, eventually

if TYPE_CHECKING:  # slow to import, and few modules need it
    from openai import OpenAI


@pytest.fixture
def fake_host(tmp_path: Path) -> Iterator[FakeEngineThread]:
    """A scripted engine for one test, beside its thread."""
    thread = FakeEngineThread(f"unix:{tmp_path}/e.sock")
    yield thread
    thread.close()


@pytest.fixture(scope="module")
def behaviour() -> Behaviour:
    """The initial behaviour of the module's engine."""
    return Behaviour()


@pytest.fixture(scope="module")
def engine_thread(behaviour: Behaviour, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeEngineThread]:
    """The module's scripted engine, on a thread of this process."""
    thread = FakeEngineThread(f"unix:{tmp_path_factory.mktemp('engine')}/e.sock", replace(behaviour))
    yield thread
    thread.close()


@pytest.fixture(scope="module")
def web_settings() -> dict[str, str]:
    """Environment variables of the module's web process."""
    return {}


@pytest.fixture(scope="module")
def web(
    engine_thread: FakeEngineThread, web_settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WebProcess]:
    """The module's web process, with every adapter of both tenants ready."""
    folder = tmp_path_factory.mktemp("web") / "var"
    web = WebProcess(folder, f"local={engine_thread.engine.address}", web_settings)
    web.seed()
    web.start()
    web.wait_until_ready("support", "pirate", "fake-base")
    web.wait_until_ready("sql", tenant="globex")
    yield web
    if web.process is not None:
        web.stop()


@pytest.fixture
def engine(engine_thread: FakeEngineThread, behaviour: Behaviour) -> Iterator[FakeEngine]:
    """The module's engine, idle, at its first speed, with nothing recorded. It serves again after the test."""
    engine = engine_thread.engine
    engine.behaviour.steps_per_second = behaviour.steps_per_second
    eventually(lambda: not (engine.running or engine.waiting), what="an idle engine")
    engine.submits.clear()
    engine.aborts.clear()
    yield engine
    if not engine.running_server:
        engine_thread.start()


@pytest.fixture
def openai_client(web: WebProcess) -> Iterator[OpenAI]:
    """Acme's client of the official package, without its retries."""
    from openai import OpenAI

    with OpenAI(base_url=f"{web.url}/v1", api_key=web.tenants["acme"].key, max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def console(web: WebProcess) -> Iterator[Console]:
    """The session of acme's owner in the module's web process."""
    console = Console(web, web.tenants["acme"])
    yield console
    console.http.close()
