"""The process of one template: ``python -m lora_engine.chat_templates.process``.

It has compiled the template and has nothing else of its engine, and no secrets. Each rendering is a fork of it with
limits, so it starts from the same state and sees no other conversation. Its standard input carries sockets: the first
one brings ``{source, tool_source}`` and gets the names of variables; each other one brings a rendering's ``{tools,
context}`` and gets ``T`` and the text, ``R`` and the reason of a refusal, or nothing if it was too costly.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from typing import Any, NoReturn

from .environment import CompiledTemplate
from .limited import MEMORY_BYTES, answer_and_exit, limit_memory

PIECE = 64 << 10
TEXT, REFUSED = b"T", b"R"


def main() -> None:
    """Serve until the engine ends or drops the template."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # reaps forks automatically
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in the terminal is for the engine, which then ends
    limit_memory(2 * MEMORY_BYTES)
    with socket.socket(fileno=sys.stdin.fileno()) as control:
        templates: list[CompiledTemplate] = []
        while (job := _next_job(control)) is not None:
            with job:
                if not templates:
                    templates = _compiled(job)
                elif not os.fork():
                    _render(templates, job)


def _next_job(control: socket.socket) -> socket.socket | None:
    _, files, _, _ = socket.recv_fds(control, 1, 1)
    return socket.socket(fileno=files[0]) if files else None


def _render(templates: list[CompiledTemplate], job: socket.socket) -> NoReturn:
    answer_and_exit(lambda: rendered(templates, _read(job)), job.sendall)


def rendered(templates: list[CompiledTemplate], request: dict[str, Any]) -> bytes:
    """Return a rendering's answer. Raises if it ran out of memory."""
    try:
        text = templates[-1 if request["tools"] else 0].render(request["context"])
    except MemoryError:
        raise
    except Exception as error:
        return REFUSED + str(error)[:500].encode(errors="replace")
    data = text.encode(errors="replace")
    if len(data) > request["most"]:
        raise MemoryError
    return TEXT + data


def _compiled(job: socket.socket) -> list[CompiledTemplate]:
    sources = _read(job)
    templates = [CompiledTemplate(source) for source in (sources["source"], sources["tool_source"]) if source]
    job.sendall(json.dumps([sorted(template.variables) for template in templates]).encode())
    return templates


def _read(job: socket.socket) -> Any:
    data = bytearray()
    while piece := job.recv(PIECE):
        data += piece
    return json.loads(data)


if __name__ == "__main__":
    main()
