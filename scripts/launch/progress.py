"""Lines about the progress of steps, and errors with what to do."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

# Characters of a step's title.
TITLE_WIDTH = 30


class Stop(Exception):
    """The end of setup or start by an error: `message` says what happened, `fix` what to do."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(f"{message} {fix}")
        self.message = message
        self.fix = fix


class Progress:
    """A printer of one line a step: a mark, the step, its result, its duration.

    On a terminal the line of the running step shows the seconds so far. In a file or a CI log only finished steps are
    printed, and a first line for those that may take minutes.
    """

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self.out = out
        self.live = out.isatty()
        self._lock = threading.Lock()

    def say(self, text: str = "") -> None:
        with self._lock:
            print(text, file=self.out, flush=True)

    @contextmanager
    def step(self, title: str, slow: str = "") -> Iterator[Note]:
        """Time the block. `slow` is printed at its start, for a step that may take minutes."""
        note = Note()
        started = time.monotonic()
        ticker = self._start_ticker(title, slow, started)
        try:
            yield note
        except BaseException:
            self._finish(ticker, "✗", title, note.text, started)
            raise
        self._finish(ticker, "✓", title, note.text, started)

    def _start_ticker(self, title: str, slow: str, started: float) -> threading.Event:
        done = threading.Event()
        if self.live:
            threading.Thread(target=self._tick, args=(done, title, slow, started), daemon=True).start()
        elif slow:
            self.say(f"  … {title}: {slow}")
        return done

    def _tick(self, done: threading.Event, title: str, slow: str, started: float) -> None:
        while not done.wait(0.2):
            with self._lock:
                if not done.is_set():
                    seconds = f"{time.monotonic() - started:4.0f} s"
                    print(f"\r\033[K  … {title:<{TITLE_WIDTH}} {slow} {seconds}", end="", file=self.out, flush=True)

    def _finish(self, ticker: threading.Event, mark: str, title: str, text: str, started: float) -> None:
        seconds = f"{time.monotonic() - started:.1f} s"
        with self._lock:
            ticker.set()
            start = "\r\033[K" if self.live else ""
            detail = f"{text}  " if text else ""
            print(f"{start}  {mark} {title:<{TITLE_WIDTH}} {detail}{seconds}", file=self.out, flush=True)


class Note:
    """The result of a step for its line, such as "up to date"."""

    def __init__(self) -> None:
        self.text = ""
