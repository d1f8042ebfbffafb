"""Machines that join, without a web process: what they would post is handed to the API's own client."""

from __future__ import annotations

import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rest_framework.test import APIClient

from control_plane.fleet.joining.join_tokens import create_token
from control_plane.identity.access.actor import SYSTEM
from lora_engine.config import EngineConfig
from lora_engine.errors import StartupError
from lora_engine.server import joining
from lora_engine.server.identity import HostIdentity

URL = "http://127.0.0.1:8000"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def token(host: str = "", seconds: float = 600) -> str:
    return create_token(actor=SYSTEM, host_name=host, lifetime=timedelta(seconds=seconds))[1]


class Machine:
    """A machine that wants to join as a host."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name, self.port = folder / name, name, free_port()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def config(self, join_token: str = "") -> EngineConfig:
        return EngineConfig(
            model=self.folder,
            listen=self.address,
            data_dir=self.folder,
            join=URL,
            join_token=join_token,
            host_name=self.name,
        )

    def join(self, join_token: str = "") -> HostIdentity:
        """Raises StartupError, with the control plane's own words."""
        identity = joining.joined(self.config(join_token))
        assert identity is not None
        return identity


def post_to_api(url: str, body: dict[str, str]) -> dict[str, Any]:
    answer = APIClient().post("/api/hosts/join", body, format="json")
    if answer.status_code != 201:
        raise StartupError(f"{answer.status_code} {answer.json()['error']['code']}")
    return dict(answer.json())


@pytest.fixture
def api(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve the API at an address that joining machines reach."""
    monkeypatch.setattr(joining, "_post", post_to_api)
