"""Start and end times of functions in several processes: they are wrapped on import, and write a line per call.

``hooks(folder, parts)`` makes a folder that goes on ``PYTHONPATH`` of what is started: its ``sitecustomize`` wraps the
functions that ``parts`` names, in every process below. ``read`` gives the lines. Costs some 20 us a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_HOOKS = """
import functools, importlib.util, inspect, os, sys, time

PARTS, OUT = {parts!r}, {out!r}

def mark(part, began):
    line = f"{{began}} {{time.time()}} {{os.getpid()}} {{part}}\\n".encode()
    file = os.open(OUT, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line)
    os.close(file)

def wrapped(part, function):
    if inspect.iscoroutinefunction(function):
        @functools.wraps(function)
        async def run(*args, **named):
            began = time.time()
            try:
                return await function(*args, **named)
            finally:
                mark(part, began)
    else:
        @functools.wraps(function)
        def run(*args, **named):
            began = time.time()
            try:
                return function(*args, **named)
            finally:
                mark(part, began)
    return run

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name not in PARTS:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        execute = spec.loader.exec_module
        def run(module):
            execute(module)
            for place, part in PARTS[name].items():
                owner, _, attribute = place.rpartition(".")
                owner = getattr(module, owner) if owner else module
                setattr(owner, attribute, wrapped(part, getattr(owner, attribute)))
        spec.loader.exec_module = run
        return spec

sys.meta_path.insert(0, Finder())
"""


class Mark(NamedTuple):
    """Seconds since the epoch; ``process`` is its id."""

    began: float
    ended: float
    process: int
    part: str


def hooks(folder: Path, parts: Mapping[str, Mapping[str, str]]) -> Path:
    """``parts``: module -> function, or class and method -> what to call it. Returns what to put on ``PYTHONPATH``."""
    place = folder / "hooks"
    place.mkdir()
    (place / "sitecustomize.py").write_text(_HOOKS.format(parts=dict(parts), out=str(folder / "marks")))
    return place


def read(folder: Path, since: float) -> list[Mark]:
    """Return the calls that began after ``since``, in that order."""
    marks = []
    for line in (folder / "marks").read_text().splitlines():
        began, ended, process, part = line.split(" ", 3)
        marks.append(Mark(float(began), float(ended), int(process), part))
    return sorted(mark for mark in marks if mark.began >= since)
