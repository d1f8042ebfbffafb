"""Adapters' chat templates are rendered in separate processes, whose side is ``process.py``."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import weakref
from collections.abc import Mapping
from typing import Any

from .limited import WALL_S, TooCostlyError, close_quietly
from .process import PIECE, REFUSED

PROCESS = "lora_engine.chat_templates.process"
# Factor and free bytes by which the output may exceed the context: a template writes messages, perhaps a few times, and
# its text.
MAX_GROWTH, FREE_BYTES = 16, 64 << 10


class TemplateRefusalError(Exception):
    """The template does not take these messages; the message is the template's."""


class TemplateProcess:
    """A process that renders one template. It may be used from several threads, and ends with the last reference to it.

    Raises ``TooCostlyError`` if the template cannot be compiled within the limits.
    """

    def __init__(self, source: str, tool_source: str | None) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                # -P keeps the working directory off the path; the environment carries no secrets.
                [sys.executable, "-P", "-m", PROCESS],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={
                    "PATH": os.environ.get("PATH", ""),
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    "TZ": os.environ.get("TZ", ""),
                    "LC_ALL": "C.UTF-8",
                },
                start_new_session=True,
            )
        self._end = weakref.finalize(self, _end, self._process, self._control)
        try:
            self._variables = json.loads(self._ask({"source": source, "tool_source": tool_source}))
        except (TooCostlyError, ValueError):
            self._end()
            raise TooCostlyError from None

    def template(self, *, tools: bool) -> IsolatedTemplate:
        """Return the template for requests with tools, which may be another, or for those without."""
        return IsolatedTemplate(self, frozenset(self._variables[-1 if tools else 0]), tools=tools)

    @property
    def has_ended(self) -> bool:
        """True if it was killed from outside: its limits only apply to its forks."""
        return self._process.poll() is not None

    def render(self, context: Mapping[str, Any], *, tools: bool) -> str:
        """Render the context. Raises ``TemplateRefusalError`` and ``TooCostlyError``."""
        most = FREE_BYTES + MAX_GROWTH * len(json.dumps(context))
        answer = self._ask({"tools": tools, "context": context, "most": most})
        text = answer[1:].decode()
        if answer[:1] == REFUSED:
            raise TemplateRefusalError(text)
        return text

    def _ask(self, request: Mapping[str, Any]) -> bytes:
        ours, theirs = socket.socketpair()
        answer = bytearray()
        with ours:
            ours.settimeout(WALL_S)
            try:
                with theirs:
                    socket.send_fds(self._control, [b"."], [theirs.fileno()])
                ours.sendall(json.dumps(request).encode())
                ours.shutdown(socket.SHUT_WR)
                while piece := ours.recv(PIECE):
                    answer += piece
            except OSError:  # the fork ended, or takes too long
                answer.clear()
        if not answer:
            raise TooCostlyError
        return bytes(answer)


class IsolatedTemplate:
    """A template in another process, with the interface of ``CompiledTemplate``."""

    def __init__(self, process: TemplateProcess, variables: frozenset[str], *, tools: bool) -> None:
        self.variables = variables
        self._process = process
        self._tools = tools

    def render(self, context: Mapping[str, Any]) -> str:
        """Render the context. Raises ``TemplateRefusalError`` and ``TooCostlyError``."""
        return self._process.render(context, tools=self._tools)


def _end(process: subprocess.Popen[bytes], control: socket.socket) -> None:
    close_quietly(control.close)
    process.kill()
    process.wait()
