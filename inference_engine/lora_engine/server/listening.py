"""The server listens on a private Unix socket or on TCP; a lock keeps a second instance from starting."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import stat
from pathlib import Path
from typing import IO

import grpc
import grpc.aio

from lora_engine.config import EngineConfig
from lora_engine.errors import StartupError

from .identity import HostIdentity
from .interceptors import GrantInterceptor, TokenInterceptor

_MAX_MESSAGE_BYTES = 64 << 20
_MAX_SOCKET_PATH = 100  # the operating system's limit is 107
_OPTIONS = [
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),  # two engines on one port must be an error
    ("grpc.keepalive_time_ms", 20_000),  # detects a web host that lost power
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
]


class InstanceLock:
    """A file lock that is released when this process ends for any reason."""

    def __init__(self, path: Path, message: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[str] = path.open("a")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise StartupError(message) from None

    def release(self) -> None:
        self._file.close()


def socket_path(listen: str) -> Path | None:
    """Return the path of a ``unix:`` address, None for TCP. Raises ``StartupError`` for an invalid one."""
    if not listen.startswith("unix:"):
        return None
    path = Path(listen.removeprefix("unix:").removeprefix("//")).absolute()
    if len(os.fsencode(path)) > _MAX_SOCKET_PATH:
        raise StartupError(f"The socket path {path} is too long; use one of at most {_MAX_SOCKET_PATH} bytes.")
    return path


def clear_stale_socket(path: Path) -> None:
    """Remove a dead process's socket. Raises ``StartupError`` if a process listens on it, or it is no socket."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise StartupError(f"{path} exists and is no socket; choose another --listen, or remove it.")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        if probe.connect_ex(str(path)) == 0:
            raise StartupError(f"Another engine listens on {path}; stop it first, or choose another --listen.")
    path.unlink(missing_ok=True)


def make_server(config: EngineConfig) -> grpc.aio.Server:
    """Return a server without services or ports. It checks every call's token (if configured) and certificate."""
    tokens = [TokenInterceptor(config.host_token)] if config.host_token else []
    return grpc.aio.server(interceptors=[*tokens, GrantInterceptor()], options=_OPTIONS)


def bind(server: grpc.aio.Server, config: EngineConfig, identity: HostIdentity | None = None) -> str:
    """Open the configured address and return it with the chosen port. Raises ``StartupError``.

    With an ``identity`` only the control plane of its fleet can connect.
    """
    path = socket_path(config.listen)
    if path is not None:
        return _bind_socket(server, path)
    host, port = _split(config.listen)
    if identity is None and not _is_loopback(host):
        _require_protection(host, config)
    chosen = _open_port(server, config, identity)
    return f"{host}:{chosen}" if port == 0 else config.listen


def _require_protection(host: str, config: EngineConfig) -> None:
    """Raise ``StartupError`` unless a port for other machines has a token, and TLS to protect it on the way."""
    if not config.host_token:
        raise StartupError(
            f"Listening on {host} lets every machine that reaches it use this engine; set --join and --token, "
            "or LORA_ENGINE_HOST_TOKEN and --tls-certificate, or listen on 127.0.0.1 or a Unix socket."
        )
    if not config.tls_certificate and not config.insecure_tcp:
        raise StartupError(
            f"Listening on {host} without TLS sends the host token, prompts and answers in the clear; set "
            "--tls-certificate and --tls-key, listen on 127.0.0.1 or a Unix socket, or set --insecure-tcp if the "
            "network between the machines is encrypted already."
        )


def _bind_socket(server: grpc.aio.Server, path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    clear_stale_socket(path)
    # The socket must never be open to other users, not even for a moment.
    previous = os.umask(0o177)
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise StartupError(f"The engine cannot listen on {path}: {error}. Check the folder's permissions.") from None
    finally:
        os.umask(previous)
    return f"unix:{path}"


def _open_port(server: grpc.aio.Server, config: EngineConfig, identity: HostIdentity | None) -> int:
    try:
        if identity is not None:
            return int(server.add_secure_port(config.listen, identity.server_credentials()))
        if config.tls_certificate and config.tls_key:
            pair = (config.tls_key.read_bytes(), config.tls_certificate.read_bytes())
            return int(server.add_secure_port(config.listen, grpc.ssl_server_credentials([pair])))
        return int(server.add_insecure_port(config.listen))
    except (RuntimeError, OSError) as error:
        raise StartupError(
            f"The engine cannot listen on {config.listen}: {error}. If another process uses the port, stop it or "
            "choose another --listen."
        ) from None


def _split(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdigit() or not host:
        raise StartupError(f"{listen!r} is no address; use unix:/path.sock or host:port, e.g. 127.0.0.1:50051.")
    return host, int(port)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
