"""The check that an address is free, and the process that uses it otherwise."""

from __future__ import annotations

import errno
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from scripts.launch.progress import Stop


def require_free(host: str, port: int) -> None:
    """Raise Stop, naming the process that listens and the variable to change, unless `port` can be bound."""
    if not 0 < port < 65536:
        raise Stop(f"PORT={port} is not a port number.", "Choose one between 1024 and 65535: make run PORT=8001")
    try:
        _bind_once(host, port)
    except OSError as error:
        raise _explain(error, host, port) from error


def _explain(error: OSError, host: str, port: int) -> Stop:
    if error.errno == errno.EADDRINUSE:
        return Stop(
            f"Port {port} is taken{_describe(listening_process(port))}.",
            f"Stop that process, or choose another port: make run PORT={_next_free(host, port)}",
        )
    if error.errno == errno.EACCES:
        return Stop(f"Port {port} needs root.", "Choose one above 1023: make run PORT=8000")
    return Stop(
        f"Cannot listen on HOST={host}: {error.strerror or error}.",
        "Use an address of this machine: 127.0.0.1, or 0.0.0.0 for all of them.",
    )


def _bind_once(host: str, port: int) -> None:
    with socket.create_server((host, port)):
        pass


def _next_free(host: str, port: int) -> int:
    for candidate in range(port + 1, min(port + 50, 65536)):
        try:
            _bind_once(host, candidate)
        except OSError:
            continue
        return candidate
    return 0


def _describe(pid: int | None) -> str:
    if pid is None:
        return ""
    name = subprocess.run(["ps", "-o", "comm=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return f" by {name.stdout.strip() or 'a process'} (process {pid})"


def listening_process(port: int) -> int | None:
    """Return the id of the process that listens on a TCP port, or None if this user may not see it."""
    if Path("/proc/net/tcp").exists():
        return _owner_of(_listening_inodes(port))
    if not shutil.which("lsof"):
        return None
    seen = subprocess.run(["lsof", "-nP", "-t", f"-iTCP:{port}", "-sTCP:LISTEN"], capture_output=True, text=True)
    return int(seen.stdout.split()[0]) if seen.stdout.split() else None


def _listening_inodes(port: int) -> set[str]:
    """Return the sockets that listen on a port. Linux lists them as `sl address:PORT(hex) remote state(0A) … inode`."""
    inodes = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:] if table.exists() else []:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rsplit(":", 1)[1], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    return inodes


def _owner_of(inodes: set[str]) -> int | None:
    if not inodes:
        return None
    processes = (int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit())
    return next((pid for pid in processes if inodes.intersection(_open_files(pid))), None)


def _open_files(pid: int) -> Iterator[str]:
    """Yield the targets of a process's descriptors; none for a process of another user or one that just ended."""
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                yield str(entry.readlink())
