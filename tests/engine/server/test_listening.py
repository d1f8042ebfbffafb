from __future__ import annotations

import dataclasses
import socket
import stat
import subprocess
from pathlib import Path

import grpc
import grpc.aio
import pytest
from lorikeet_testing.engine_client import connected, text_request

from lora_engine.config import EngineConfig
from lora_engine.errors import StartupError
from lora_engine.server import arguments
from lora_engine.server.listening import InstanceLock, bind, clear_stale_socket, make_server, socket_path
from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire import engine_pb2_grpc


class TestOverTcp:
    @pytest.fixture
    def config(self, tmp_path):
        return EngineConfig(model=tmp_path, listen="127.0.0.1:0", data_dir=tmp_path / "data", host_token="secret")

    async def test_every_call_needs_the_token(self, host, client):
        async with client.session() as session:
            assert (await session.run(text_request("p"))).usage.outcome == "finished"
        for token in ("", "wrong"):
            async with connected(host.address, token) as stranger:
                for call in (
                    lambda s: s.stub.Describe(pb.DescribeRequest(), metadata=s.metadata),
                    lambda s: s.stub.Watch(pb.WatchRequest(), metadata=s.metadata).read(),
                    lambda s: s.stub.Session(metadata=s.metadata).read(),
                ):
                    with pytest.raises(grpc.RpcError) as caught:
                        await call(stranger)
                    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED

    async def test_a_taken_port_is_an_error(self, host, config):
        with pytest.raises(StartupError, match="another process"):
            bind(make_server(config), dataclasses.replace(config, listen=host.address))


class TestOverTls:
    @pytest.fixture
    def config(self, tmp_path):
        key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
        names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
        make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                "-addext", names, "-keyout", key, "-out", certificate]  # fmt: skip
        subprocess.run(make, check=True, capture_output=True)
        return EngineConfig(
            model=tmp_path, listen="127.0.0.1:0", data_dir=tmp_path / "data", host_token="secret",
            tls_certificate=certificate, tls_key=key,
        )  # fmt: skip

    async def test_the_host_proves_who_it_is(self, host, config):
        trusted = grpc.ssl_channel_credentials(config.tls_certificate.read_bytes())
        metadata = (("authorization", "Bearer secret"),)
        async with grpc.aio.secure_channel(host.address, trusted) as channel:
            stub = engine_pb2_grpc.EngineStub(channel)
            description = await stub.Describe(pb.DescribeRequest(), metadata=metadata)
            assert description.base_model == "letters"
        async with grpc.aio.insecure_channel(host.address) as channel:
            with pytest.raises(grpc.RpcError):
                await engine_pb2_grpc.EngineStub(channel).Describe(pb.DescribeRequest(), metadata=metadata, timeout=5)


async def test_a_socket_is_private(host, config):
    mode = socket_path(config.listen).stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600
    with pytest.raises(StartupError, match="Another engine"):
        bind(make_server(config), config)


def test_a_stale_socket_is_removed_but_nothing_else(tmp_path):
    path = tmp_path / "s.sock"
    clear_stale_socket(path)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    clear_stale_socket(path)
    assert not path.exists()
    path.write_text("precious")
    with pytest.raises(StartupError, match="no socket"):
        clear_stale_socket(path)
    assert path.read_text() == "precious"


@pytest.mark.parametrize(
    ("listen", "words"),
    [
        ("nowhere", "no address"),
        ("0.0.0.0:0", "LORA_ENGINE_HOST_TOKEN"),
        ("example.org:50051", "LORA_ENGINE_HOST_TOKEN"),
        ("unix:/" + "x" * 200, "too long"),
    ],
)
async def test_unusable_addresses(tmp_path, listen, words):
    config = EngineConfig(model=tmp_path, listen=listen)
    with pytest.raises(StartupError, match=words):
        bind(make_server(config), config)


def test_an_instance_lock_is_exclusive_and_ends_with_its_holder(tmp_path):
    path = tmp_path / "new" / "engine.lock"
    lock = InstanceLock(path, "taken")
    with pytest.raises(StartupError, match="taken"):
        InstanceLock(path, "taken")
    lock.release()
    InstanceLock(path, "taken").release()


def test_arguments_are_the_config(monkeypatch):
    assert arguments.parse(["--model", "m"]) == EngineConfig(model=Path("m"))
    monkeypatch.setenv("LORA_ENGINE_HOST_TOKEN", "secret")
    config = arguments.parse(["--model", "m", "--listen", "unix:/x", "--pool-mb", "7", "--drain-seconds", "1.5"])
    assert config == EngineConfig(model=Path("m"), listen="unix:/x", pool_mb=7, drain_seconds=1.5, host_token="secret")
    assert arguments.parse(["--model", "m", "--zone", "eu-1a"]).zone == "eu-1a"
    assert arguments.parse(["--model", "m", "--zone", ""]).zone == "", "as from a label that a node does not have"


def test_switches_can_be_turned_off():
    assert arguments.parse(["--model", "m"]).cuda_graphs
    assert not arguments.parse(["--model", "m", "--no-cuda-graphs"]).cuda_graphs


@pytest.mark.parametrize(
    "wrong", [[], ["--model", "m", "--page-tokens", "0"], ["--model", "m", "--host-arena-mb", "-1"],
              ["--model", "m", "--tls-key", "k"], ["--model", "m", "--gpu-memory-fraction", "nan"],
              ["--model", "m", "--zone", "eu 1"], ["--model", "m", "--zone", "z" * 64]]
)  # fmt: skip
def test_wrong_arguments_exit_with_a_message(wrong, capsys):
    with pytest.raises(SystemExit) as caught:
        arguments.parse(wrong)
    assert caught.value.code == 2
    assert "--" in capsys.readouterr().err


def test_every_setting_is_explained():
    assert set(arguments._HELP) == {field.name for field in dataclasses.fields(EngineConfig)}


def test_help_does_not_show_the_token(monkeypatch, capsys):
    monkeypatch.setenv("LORA_ENGINE_HOST_TOKEN", "very-secret")
    with pytest.raises(SystemExit):
        arguments.parse(["--help"])
    assert "very-secret" not in capsys.readouterr().out
