"""A taken port names its holder and a free one."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from scripts.launch.ports import listening_process, require_free
from scripts.launch.progress import Stop


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def test_a_taken_port_says_who_and_what_to_do(taken: int) -> None:
    with pytest.raises(Stop) as stopped:
        require_free("127.0.0.1", taken)
    assert f"Port {taken} is taken by" in stopped.value.message
    assert str(os.getpid()) in stopped.value.message
    suggested = int(stopped.value.fix.rsplit("PORT=", 1)[1])
    require_free("127.0.0.1", suggested)


def test_the_listener_is_found(taken: int) -> None:
    assert listening_process(taken) == os.getpid()


def test_a_free_port_passes_and_stays_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = int(server.getsockname()[1])
    require_free("127.0.0.1", port)
    require_free("127.0.0.1", port)
    assert listening_process(port) is None


@pytest.mark.parametrize("port", [0, 70000])
def test_no_port_number(port: int) -> None:
    with pytest.raises(Stop, match="not a port number"):
        require_free("127.0.0.1", port)


def test_no_address_of_this_machine() -> None:
    with pytest.raises(Stop, match="Cannot listen on HOST="):
        require_free("name.invalid", 8000)
