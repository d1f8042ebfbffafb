"""What listens, and for whom: nothing for other machines unless somebody said so, and never a token in the clear."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from control_plane.core.config import Settings, SettingsError, is_local
from lora_engine.config import EngineConfig
from lora_engine.errors import StartupError
from lora_engine.server.listening import bind, make_server
from lora_engine.server.metrics_server import MetricsServer, Pages
from lora_engine.start_progress import StartProgress

OTHERS = ("0.0.0.0:0", "[::]:0", "10.1.2.3:7000", "engine.example.org:7000")


@pytest.mark.parametrize("listen", OTHERS)
async def test_an_engine_with_a_token_but_without_tls_does_not_start(tmp_path: Path, listen: str) -> None:
    config = EngineConfig(model=tmp_path, listen=listen, host_token="secret")
    with pytest.raises(StartupError, match=r"--tls-certificate.*--insecure-tcp"):
        bind(make_server(config), config)


async def test_the_flag_does_without_tls_but_never_without_the_token(tmp_path: Path) -> None:
    config = EngineConfig(model=tmp_path, listen="0.0.0.0:0", insecure_tcp=True)
    with pytest.raises(StartupError, match="LORA_ENGINE_HOST_TOKEN"):
        bind(make_server(config), config)
    config = EngineConfig(model=tmp_path, listen="0.0.0.0:0", insecure_tcp=True, host_token="secret")
    assert bind(make_server(config), config).startswith("0.0.0.0:")


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:0"])
async def test_loopback_needs_neither(tmp_path: Path, listen: str) -> None:
    config = EngineConfig(model=tmp_path, listen=listen)
    assert bind(make_server(config), config)


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("unix:/run/engine.sock", True),
        ("127.0.0.1:7000", True),
        ("[::1]:7000", True),
        ("localhost:7000", True),
        ("10.0.0.2:7000", False),
        ("127.0.0.1.example.org:7000", False),
        ("engine:7000", False),
        ("[::]:7000", False),
    ],
)
def test_the_control_plane_reaches_other_machines_over_tls_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, local: bool
) -> None:
    assert is_local(address) is local
    plain = {"var_dir": tmp_path, "engine_hosts": {"gpu1": address}, "engine_token": "secret"}
    if local:
        assert Settings(**plain).engine_hosts
    else:
        with pytest.raises((SettingsError, ValueError), match=r"gpu1.*LORIKEET_ENGINE_TLS_CA"):
            Settings(**plain)
    assert Settings(**plain, engine_tls_ca=tmp_path / "ca.pem").engine_hosts
    assert Settings(**plain, engine_insecure_tcp=True).engine_hosts


def test_engine_metrics_are_on_loopback_unless_told_otherwise(tmp_path: Path) -> None:
    config = EngineConfig(model=tmp_path)
    pages = Pages(StartProgress())
    pages.metrics = lambda: "figures\n"
    server = MetricsServer(config.metrics_host, 0, pages)
    server.start()
    try:
        address = server._server.server_address[0]
        assert address == "127.0.0.1"
        page = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            f"http://127.0.0.1:{server.port}/metrics", timeout=10
        )
        assert page.read() == b"figures\n"
    finally:
        server.stop()
