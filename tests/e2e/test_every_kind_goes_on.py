"""Requests of every kind whose host is killed, frozen, cut off or replaced answer as undisturbed ones do.

All of them run on one host when that happens, with others ready to go on; beside them are callers that leave, and a
batch. `make test-long` has this with two hosts, and with three all that can happen, early and late in the answers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from lorikeet_testing import faulty_hosts
from lorikeet_testing.faulty_hosts import PAUSE_S, FaultyFleet, running
from lorikeet_testing.request_kinds import (
    KINDS,
    RESPONSES,
    TEXT,
    UNSTREAMED,
    Answer,
    Sender,
    differences,
    every_kind,
    models,
    upload,
    uploads,
)
from lorikeet_testing.web import eventually

HELD = {"stop", "stop that does not come"}
"""Whose text waits for what may be a stop string."""
IN_A_BATCH = [name for name, (path, _) in KINDS.items() if path == TEXT and name not in UNSTREAMED]


@dataclass
class Fleet(FaultyFleet):
    undisturbed: dict[tuple[str, str], Sender] = field(default_factory=dict)

    def prepare(self) -> None:
        """Adapters on all hosts, and stop strings as they come."""
        files = uploads()
        for name in files:
            upload(self.http, name, files[name])
        eventually(lambda: files.keys() <= models(self.http), 60, what="the adapters")
        copies = "select 1 from placements_placement where phase = 'ready'"
        eventually(lambda: len(self.web.query(copies)) == len(files) * len(self.hosts), 60, what="copies on all hosts")
        self.add_stops()

    def ask(self, first: int) -> None:
        """While nothing happens."""
        asked = [one for one in every_kind(self.http, first) if (one.name, one.way) not in self.undisturbed]
        for one in asked:
            one.start()
        for one in asked:
            one.join(120)
            assert not one.error, (one.name, one.way, one.error)
            self.undisturbed[one.name, one.way] = one

    def add_stops(self) -> None:
        """A stop string that is as long as a third of the answer, and one that lacks its end."""
        plain = Sender(self.http, "greedy", "whole")
        plain.run()
        text = plain.answer.texts[0]
        long = text[len(text) // 3 : len(text) * 2 // 3]
        path, body = KINDS["greedy"]
        KINDS["stop"] = (path, {**body, "stop": long})
        KINDS["stop that does not come"] = (path, {**body, "stop": [text[5:-20] + "…"], "n": 2})

    def batch(self) -> str:
        """Its id."""
        lines = [
            json.dumps({"custom_id": name, "method": "POST", "url": KINDS[name][0], "body": KINDS[name][1]})
            for name in IN_A_BATCH
        ]
        sent = self.http.post("/v1/files", data={"purpose": "batch"}, files={"file": ("b.jsonl", "\n".join(lines))})
        assert sent.status_code == 200, sent.text
        body = {"input_file_id": sent.json()["id"], "endpoint": TEXT, "completion_window": "24h"}
        made = self.http.post("/v1/batches", json=body)
        assert made.status_code == 200, made.text
        return str(made.json()["id"])

    def check_batch(self, name: str) -> None:
        batch = eventually(lambda: _completed(self.http.get(f"/v1/batches/{name}").json()), 120, what="the batch")
        assert batch["request_counts"] == {"total": len(IN_A_BATCH), "completed": len(IN_A_BATCH), "failed": 0}, batch
        for line in self.http.get(f"/v1/files/{batch['output_file_id']}/content").text.splitlines():
            row, answer = json.loads(line), Answer()
            answer.add(row["response"]["body"])
            whole = next(one for (name, _), one in self.undisturbed.items() if name == row["custom_id"])
            assert (answer.texts, answer.reasons) == (whole.answer.texts, whole.answer.reasons), row["custom_id"]

    def check(self, asked: list[Sender]) -> None:
        for one in asked:
            one.join(120)
        assert not [(one.name, one.way, one.error) for one in asked if one.error or one.is_alive()]
        found = [(one.name, one.way, difference) for one in asked for difference in self._wrong(one)]
        assert not found, found[:10]
        ids = {one.request_id: one for one in asked}

        def billed() -> bool:
            return {row["request_id"] for row in self.rows(ids)} == ids.keys()

        eventually(billed, 30, what="their rows in the ledger")
        rows = self.rows(ids)
        assert len(rows) == len(ids)
        for row in rows:
            one = ids[row["request_id"]]
            assert row["outcome"] == "finished", row
            if one.name != "several prompts":  # of which each is a row of its own
                assert row["completion_tokens"] == one.answer.usage["completion_tokens"], (one.name, one.way, row)
                assert row["prompt_tokens"] == one.answer.usage["prompt_tokens"], (one.name, one.way, row)
            if one.path != RESPONSES and one.name != "several prompts":
                reasons = ",".join(sorted({*one.answer.reasons.values()}))
                assert row["finish_reason"] == reasons, (one.name, one.way, row)

    def _wrong(self, one: Sender) -> list[str]:
        return differences(vars(one.answer), vars(self.undisturbed[one.name, one.way].answer))

    def strike(self, fault: str, events: int, first: int) -> None:
        """It happens to the host that has them all, once each stream has so many events."""
        self.ready()
        self.ask(first)
        struck, *others = self.hosts
        for host in others:
            host.takes(requests=False)
        time.sleep(0.6)
        asked = every_kind(self.http, first)
        leaving = [Sender(self.http, "greedy", "stream", leaves_after=events + 2) for _ in range(3)]
        for one in [*asked, *leaving]:
            one.start()
        eventually(lambda: all(self._came(one, 1) for one in asked), 60, what="their beginnings")
        for host in others:
            host.takes(requests=True)
        batch = self.batch()
        eventually(lambda: all(self._came(one, events) for one in asked), 60, what="their middles")
        running = sum(one.is_alive() for one in asked)
        mend = getattr(faulty_hosts, fault)(struck)
        try:
            self.check(asked)
            self.check_batch(batch)
        finally:
            mend()
        pause_s, longest = max((self._paused_s(one), one.name) for one in asked if one.name not in HELD)
        print(f"{fault} after {events} events: {running} of {len(asked)} ran, longest pause {pause_s:.2f} s: {longest}")
        assert running > len(asked) // 3
        assert pause_s < PAUSE_S, longest
        for one in leaving:
            one.join(30)

    def _paused_s(self, one: Sender) -> float:
        """Beyond what it waits anyway, as what may be a call does."""
        return one.longest_pause_s - self.undisturbed[one.name, one.way].longest_pause_s

    @staticmethod
    def _came(one: Sender, events: int) -> bool:
        return one.way == "whole" or one.events >= events or not one.is_alive()


def _completed(batch: dict[str, object]) -> dict[str, object] | None:
    return batch if batch["status"] == "completed" else None


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with running(Fleet, tmp_path_factory.mktemp("two"), "ab", {}, max_running=160) as made:
        made.prepare()
        yield made


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with running(Fleet, tmp_path_factory.mktemp("three"), "abc", {}, max_running=160) as made:
        made.prepare()
        yield made


@pytest.mark.long
def test_the_host_of_all_of_them_is_killed(two: Fleet) -> None:
    two.strike("kill", 2, 0)


@pytest.mark.long
@pytest.mark.parametrize(("first", "events"), [(0, 6), (1, 2), (2, 12)])
@pytest.mark.parametrize("fault", ["kill", "freeze", "cut", "silence", "replace"])
def test_whatever_happens_to_it_early_or_late(three: Fleet, fault: str, first: int, events: int) -> None:
    three.strike(fault, events, first)
