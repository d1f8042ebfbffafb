from __future__ import annotations

import sqlite3
import threading

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lora_engine.server.journal import UsageJournal
from lora_engine.wire import engine_pb2 as pb


def record(request_id: str, tokens: int = 1) -> pb.UsageRecord:
    return pb.UsageRecord(request_id=request_id, tenant="t", completion_tokens=tokens, outcome="finished")


def append(journal: UsageJournal, *records: pb.UsageRecord) -> None:
    written = threading.Event()
    journal.append(records, written.set)
    assert written.wait(10)


def ids(journal: UsageJournal, after: int = 0, limit: int = 0) -> list[str]:
    return [record.request_id for record in journal.pull(after, limit).result()]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "usage.sqlite3"


def test_records_survive_and_acknowledged_ones_do_not(path):
    journal = UsageJournal(path)
    records = [record(f"r{i}", i) for i in range(5)]
    append(journal, *records)
    assert [r.seq for r in records] == [1, 2, 3, 4, 5]
    assert journal.acknowledge(["r1", "r4", "unknown"]).result() == 2
    journal.close()
    journal = UsageJournal(path)
    assert journal.pull(0, 0).result() == [records[0], records[2], records[3]]
    assert "r0" in journal and "r1" not in journal
    assert len(journal) == 3
    # A sequence number is never used twice, even if its record is gone.
    newer = record("r5")
    append(journal, newer)
    assert newer.seq == 6
    journal.close()


def test_another_connection_sees_what_was_committed(path):
    journal = UsageJournal(path)
    append(journal, record("r"))
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM usage").fetchone() == (1,)
    db.close()
    journal.close()


def test_a_damaged_file_is_set_aside(path, caplog):
    path.parent.mkdir()
    path.write_bytes(b"this is no database" * 100)
    journal = UsageJournal(path)
    append(journal, record("r"))
    journal.close()
    assert any(".damaged-" in file.name for file in path.parent.iterdir())
    assert "damaged" in caplog.text


def test_a_disk_that_refuses_delays_but_loses_nothing(path, monkeypatch, caplog):
    monkeypatch.setattr("lora_engine.server.journal._RETRY_S", 0.05)
    journal = UsageJournal(path)
    write, refuse = journal._write, threading.Event()
    refuse.set()

    def full_disk(records):
        if refuse.is_set():
            raise sqlite3.OperationalError("database or disk is full")
        write(records)

    monkeypatch.setattr(journal, "_write", full_disk)
    append(journal, record("r1"))
    append(journal, record("r2"))
    assert journal.failing
    assert ids(journal) == []
    assert len(journal) == 2
    refuse.clear()
    for _ in range(200):
        if not journal.failing:
            break
        threading.Event().wait(0.02)
    assert sorted(ids(journal)) == ["r1", "r2"]
    journal.close()


class JournalMachine(RuleBasedStateMachine):
    """Appends, acknowledgements and restarts in any order agree with a dict."""

    def __init__(self):
        super().__init__()
        import tempfile
        from pathlib import Path

        self._folder = tempfile.TemporaryDirectory()
        self._path = Path(self._folder.name, "usage.sqlite3")
        self.journal = UsageJournal(self._path)
        self.model: dict[str, int] = {}
        self.count = 0

    @rule(size=st.integers(1, 4))
    def append(self, size):
        records = [record(f"r{self.count + i}", i) for i in range(size)]
        self.count += size
        append(self.journal, *records)
        self.model |= {r.request_id: r.completion_tokens for r in records}

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def acknowledge(self, data):
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.model)), max_size=3))
        assert self.journal.acknowledge(chosen).result() == len(set(chosen))
        for request_id in chosen:
            self.model.pop(request_id, None)

    @rule()
    def restart(self):
        self.journal.close()
        self.journal = UsageJournal(self._path)

    @invariant()
    def it_agrees(self):
        pulled = self.journal.pull(0, 0).result()
        assert {r.request_id: r.completion_tokens for r in pulled} == self.model
        assert len(self.journal) == len(self.model)

    def teardown(self):
        self.journal.close()
        self._folder.cleanup()


TestJournal = JournalMachine.TestCase
TestJournal.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
