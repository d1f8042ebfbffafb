"""Callers that come back with their Idempotency-Key, pinned adapters and prefixes, evaluations, canaries and uploads
whose host is killed, frozen, cut off or replaced end as undisturbed ones do, and are in the ledger once.

All of that is under way on one host when it happens. `make test-long` has three hosts and all that can happen.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import httpx
import pytest
from lorikeet_testing import faulty_hosts
from lorikeet_testing.faulty_hosts import MODEL, FaultyFleet, running
from lorikeet_testing.request_kinds import (
    CHAT,
    PLAIN,
    RESPONSES,
    SEEDED,
    TALK,
    TEXT,
    Answer,
    Body,
    Sender,
    differences,
    models,
    upload,
    uploads,
)
from lorikeet_testing.tcp_proxy import TcpProxy
from lorikeet_testing.web import eventually

from lora_engine.peft_format import CONFIG_FILE

BEGINNING = [{"role": "system", "content": "You answer for a parrot. " + "It likes nuts and songs by the sea. " * 8}]
PIRATE = "The log of a ship. " + "The wind was fair and the sea was calm that day. " * 6
CACHED = 64
"""Tokens of each beginning, or more."""
KEYED: dict[str, tuple[str, Body]] = {
    "greedy": (TEXT, PLAIN),
    "seeded": (TEXT, {**PLAIN, **SEEDED, "n": 2}),
    "chat": (CHAT, TALK),
    "response": (RESPONSES, {"model": MODEL, "input": TALK["messages"], "max_output_tokens": 64, "temperature": 0}),
}
PINNED: dict[str, tuple[str, Body]] = {
    "pinned for the base": (CHAT, {**TALK, "messages": [*BEGINNING, *TALK["messages"]]}),
    "pinned for an adapter": (TEXT, {**PLAIN, "model": "pirate", "prompt": f"{PIRATE}Then"}),
}
TOKENS = 64
SET = {"name": "rivers", "metric": "contains", "max_tokens": TOKENS}
QUESTIONS = [f"Tell me about river number {number} and" for number in range(6)]
GRANT = """
import django; django.setup()
from control_plane.identity.access.actor import SYSTEM
from control_plane.billing.limits.actions import set_tenant_limits
from control_plane.billing.limits.values import Limits
from control_plane.identity.tenants.models import Tenant
set_tenant_limits(actor=SYSTEM, tenant=Tenant.objects.get(slug="acme"), limits=Limits(pinned_bytes=8 * 2**20))
"""
TENANT = "/api/tenants/acme"
IN_PROGRESS = "idempotency_in_progress"


class Returning(threading.Thread):
    """A caller that sends its request with a key, and again whenever it has no answer, until it has one.

    ``first`` is the client of its first try, if that is another one: it waits no longer for that once ``is_cut_off``.
    """

    def __init__(
        self, http: httpx.Client, name: str, way: str, *, key: str = "", leaves_after: int = 0, first: Any = None
    ) -> None:
        super().__init__(daemon=True)
        self.name, self.way, self.key = name, way, key or uuid.uuid4().hex
        self._http, self._first, self._leaves_after = http, first, leaves_after
        self.is_cut_off = threading.Event()
        self.tries: list[Sender] = []

    @property
    def last(self) -> Sender:
        return self.tries[-1]

    @property
    def is_answered(self) -> bool:
        return bool(self.tries and self.last.is_alive() is False and self.last.answer.reasons and not self.last.error)

    def run(self) -> None:
        self._try(self._first or self._http, self._leaves_after)
        while self._goes_on():
            self._try(self._http)

    def _try(self, http: httpx.Client, leaves_after: int = 0) -> None:
        asked = Sender(http, self.name, self.way, what=KEYED[self.name], key=self.key, leaves_after=leaves_after)
        self.tries.append(asked)
        asked.start()
        while asked.is_alive() and not (http is self._first and self.is_cut_off.is_set()):
            asked.join(0.05)

    def _goes_on(self) -> bool:
        if IN_PROGRESS in self.last.error:
            time.sleep(0.1)
            return True
        return len(self.tries) == 1 and not self.is_answered


@dataclass
class Fleet(FaultyFleet):
    undisturbed: dict[str, Answer] = field(default_factory=dict)
    told: dict[tuple[str, str], str] = field(default_factory=dict)
    """What a version answers, by its name and the question."""
    uploaded: int = 0
    known: set[str] = field(default_factory=set)
    """Requests that are in the ledger."""
    lost: int = 0
    """Tries whose callers did not hear an id, and how many of these came to their end."""
    lost_answers: int = 0

    def prepare(self) -> None:
        self.program(GRANT)
        files = uploads()
        for name, content in (("pirate", "pirate"), ("support", "pirate"), ("support", "caller")):
            self.brings(name, files[content])
        self._do("PUT", "adapters/pirate/pin")
        for name, model, prompt in (
            ("base", MODEL, {"messages": BEGINNING}),
            ("adapter", "pirate", {"prompt": PIRATE}),
        ):
            self._do("POST", "pinned-prefixes", json={"name": name, "model": model, **prompt})
        self.keeps_pins()
        asked = [Sender(self.http, name, "whole", what=what) for name, what in {**KEYED, **PINNED}.items()]
        for one in asked:
            one.start()
        for one in asked:
            one.join(60)
            assert not one.error, one.error
            self.undisturbed[one.name] = one.answer
        self.hears(MODEL, "support@v1", "support@v2")
        self._do("POST", "evaluation-sets", data=SET, files={"file": ("rivers.jsonl", self._items())})

    def hears(self, *names: str) -> None:
        """What they answer to all questions while nothing happens."""
        asked = [(name, question, self._asks(name, question, "whole")) for name in names for question in QUESTIONS]
        for _, _, one in asked:
            one.start()
        for name, question, one in asked:
            one.join(60)
            assert not one.error, one.error
            self.told[name, question] = one.answer.texts[0]
        self.rows_of([one for _, _, one in asked])

    def _asks(self, model: str, question: str, way: str) -> Sender:
        what = {"model": model, "prompt": question, "max_tokens": TOKENS, "temperature": 0}
        return Sender(self.http, question, way, what=(TEXT, what))

    def _items(self) -> str:
        """What is expected, the base or an adapter says in the end."""
        lines = []
        for number, question in enumerate(QUESTIONS):
            expected = self.told[(MODEL, "support@v1", "support@v2")[number % 3], question][-12:]
            lines.append(json.dumps({"prompt": question, "expected": expected}))
        return "\n".join(lines)

    def score(self, name: str) -> float:
        expected = [json.loads(line)["expected"] for line in self._items().splitlines()]
        right = [text in self.told[name, question] for question, text in zip(QUESTIONS, expected, strict=True)]
        return round(sum(right) / len(right), 6)

    def _do(self, method: str, path: str, **more: Any) -> Any:
        answer = self.http.request(method, f"{TENANT}/{path}", **more)
        assert answer.status_code < 300, (path, answer.text)
        return answer.json()

    def brings(self, name: str, files: dict[str, bytes]) -> None:
        upload(self.http, name, files)
        self.uploaded += 1
        eventually(lambda: name in models(self.http), 60, what=name)
        eventually(self._has_copies, 60, what="copies on all hosts")

    def _has_copies(self) -> bool:
        """Every version is on every host."""
        copies = "select 1 from placements_placement where phase = 'ready'"
        return len(self.web.query(copies)) == self.uploaded * len(self.hosts)

    def keeps_pins(self) -> None:
        """On all hosts that are there."""
        online = {row["name"] for row in self.web.query("select name from hosts_enginehost where state = 'online'")}

        def are_kept() -> bool:
            adapter = {one["host"] for one in self._do("GET", "adapters/pirate/pin")["hosts"] if one["pinned"]}
            prefixes = [
                {one["host"] for one in prefix["hosts"] if one["state"] == "kept"}
                for prefix in self._do("GET", "pins")["prefixes"]
            ]
            return len(prefixes) == 2 and all(found >= online for found in [adapter, *prefixes])

        eventually(are_kept, 60, what="pins")

    # -- what is under way --------------------------------------------------------------------

    def callers(self, events: int, lost: httpx.Client) -> list[Returning]:
        """Of each: one who leaves in the middle, one whose connection is lost when it happens, and two at once."""
        found = []
        for name, way in product(KEYED, ("stream", "whole")):
            if way == "stream":
                found.append(Returning(self.http, name, way, leaves_after=events))
            found.append(Returning(self.http, name, way, first=lost))
            key = uuid.uuid4().hex
            found += [Returning(self.http, name, way, key=key) for _ in range(2)]
        return found

    def evaluate(self, **of: Any) -> str:
        """Its id."""
        return str(self._do("POST", "evaluations", json={"set": "rivers", **of})["id"])

    def evaluation(self, name: str) -> dict[str, Any]:
        return dict(self._do("GET", f"evaluations/{name}"))

    def batch_of(self, evaluation: str) -> dict[str, Any]:
        return dict(self.http.get(f"/v1/batches/{self.evaluation(evaluation)['batch']}").json())

    def another(self) -> str:
        """The id of an upload that becomes the next version of "support", with other content than all before."""
        files = uploads()["pirate"]
        config = json.loads(files[CONFIG_FILE])
        self.uploaded += 1
        config["lora_alpha"] += self.uploaded
        return upload(self.http, "support", {**files, CONFIG_FILE: json.dumps(config).encode()})

    # -- and what comes of it -----------------------------------------------------------------

    def check_callers(self, callers: list[Returning]) -> None:
        for one in callers:
            one.join(120)
        assert not [(one.name, one.way, one.last.error) for one in callers if not one.is_answered]
        for one in callers:
            replayed = Sender(self.http, one.name, one.way, what=KEYED[one.name], key=one.key)
            replayed.run()
            assert replayed.is_replay and not replayed.error, (one.name, one.way, replayed.error)
            for answer in (one.last.answer, replayed.answer):
                found = differences(vars(answer), vars(self.undisturbed[one.name]))
                assert not found, (one.name, one.way, found)
        for key in {one.key for one in callers}:
            tries = [each for one in callers if one.key == key for each in one.tries]
            ran = [each for each in tries if not (each.is_replay or IN_PROGRESS in each.error)]
            ends = [row["outcome"] for row in self.rows_of(ran)]
            unknown = sum(not each.request_id for each in ran)  # lost before a whole answer said its id
            assert ends.count("finished") == 1 or (unknown and "finished" not in ends), (ran[0].name, ran[0].way, ends)
            self.lost += unknown
            self.lost_answers += "finished" not in ends

    def rows_of(self, asked: list[Sender]) -> list[dict[str, Any]]:
        """One of each that has an id: who left before that had no answer begun."""
        ids = {one.request_id for one in asked if one.request_id}
        self.known |= ids
        eventually(lambda: {row["request_id"] for row in self.rows(ids)} == ids, 30, what="their rows")
        rows = self.rows(ids)
        assert len(rows) == len(ids)
        return rows

    def check_pinned(self, pinned: list[Sender]) -> None:
        for one in pinned:
            one.join(120)
            assert not (one.error or one.is_alive()), (one.name, one.error)
            assert not differences(vars(one.answer), vars(self.undisturbed[one.name])), one.name
        rows = self.rows_of(pinned)
        assert all(row["outcome"] == "finished" and row["cached_prompt_tokens"] >= CACHED for row in rows), rows

    def check_canary(self, asked: list[Sender]) -> None:
        """Each goes on with the version that it began with."""
        for one in asked:
            one.join(120)
            assert not (one.error or one.is_alive()), (one.name, one.error)
        numbers = {row["id"]: row["number"] for row in self.web.query("select id, number from registry_adapterversion")}
        texts = {one.request_id: (one.name, one.answer.texts[0]) for one in asked}
        for row in self.rows_of(asked):
            question, text = texts[row["request_id"]]
            assert text == self.told[f"support@v{numbers[row['version_id']]}", question]
        compared = self._do("GET", "adapters/support/aliases/live/canary")
        assert compared["canary"]["failed"] == compared["own"]["failed"] == 0, compared

    def check_evaluation(self, name: str, version: str) -> None:
        ended = eventually(lambda: _over(self.evaluation(name)), 90, what=f"its end: {self.evaluation(name)}")
        assert ended["state"] == "completed", ended
        score, asked = ended["score"], {"base": MODEL, "live": "support@v1", "version": version}
        assert (score["base"], score["live"]["score"], score["score"]) == tuple(map(self.score, asked.values())), ended
        output = self.http.get(f"/v1/files/{self.batch_of(name)['output_file_id']}/content").text.splitlines()
        results = [json.loads(line) for line in output]
        assert len(results) == len(QUESTIONS) * len(asked)
        answers = {result["response"]["request_id"]: result for result in results}
        self.known |= answers.keys()
        for row in self.rows(answers):
            result = answers[row["request_id"]]
            who, _, line = result["custom_id"].partition(":")
            body = result["response"]["body"]
            assert body["choices"][0]["text"] == self.told[asked[who], QUESTIONS[int(line) - 1]], result["custom_id"]
            assert (row["outcome"], row["completion_tokens"]) == ("finished", body["usage"]["completion_tokens"]), row
        assert len(self.rows(answers)) == len(results)

    def check_upload(self, upload: str, evaluation: str) -> None:
        made = eventually(lambda: self._do("GET", f"uploads/{upload}")["version"], 60, what="its version")
        name = f"support@v{made}"
        eventually(lambda: name in models(self.http) or self._is_ready(made), 60, what=f"a ready {name}")
        self.hears(name)
        self.check_evaluation(evaluation, name)

    def _is_ready(self, version: int) -> bool:
        return bool(self._do("GET", f"adapters/support/versions/{version}")["state"] == "ready")

    def check_ledger(self, before: set[str]) -> None:
        """Nothing else is in it, also not from the journal of a host that came back."""
        self.collect_usage()
        rows = self.web.query("select request_id, outcome, completion_tokens from usage_usageevent")
        others = [row for row in rows if row["request_id"] not in before | self.known and row["completion_tokens"] > 1]
        finished = [row for row in others if row["outcome"] == "finished"]
        assert len(others) <= self.lost and len(finished) == self.lost_answers, others

    def strike(self, fault: str, events: int, *, uploads: bool) -> None:
        """It happens to the host that has them all, once each stream has so many events. Callers lose their connection
        at the same moment: it breaks, or if ``events`` is odd nothing comes over it any more."""
        self.ready()
        self.keeps_pins()
        before = {row["request_id"] for row in self.web.query("select request_id from usage_usageevent")}
        self.lost = self.lost_answers = 0
        # Begun anew, as a part of what it is asked stands still: too few requests for its times to be compared.
        self._do("PUT", "adapters/support/aliases/live/canary", json={"version": 2, "percent": 50})
        struck, *others = self.hosts
        evaluation = self.evaluate(adapter="support", version=2)
        for host in others:
            host.takes(requests=False)
        eventually(lambda: self.evaluation(evaluation)["state"] == "running", 30, what="the evaluation")
        eventually(lambda: self.batch_of(evaluation)["status"] == "in_progress", 30, what="its batch")
        way_in = TcpProxy(self.web.port)
        with httpx.Client(
            base_url=way_in.url(self.web.url), headers=self.http.headers, timeout=120, trust_env=False
        ) as lost:
            callers = self.callers(events, lost)
            pinned = [Sender(self.http, name, "stream", what=what) for name, what in PINNED.items() for _ in range(3)]
            canary = [self._asks("support", question, way) for question in QUESTIONS for way in ("stream", "whole")]
            asked = [*pinned, *canary]
            for one in [*asked, *callers]:
                one.start()
            eventually(lambda: self._came(asked, 1), 60, what="their beginnings")
            for host in others:
                host.takes(requests=True)
            uploaded = self.another() if uploads else ""
            second = self.evaluate(upload=uploaded) if uploads else ""
            eventually(lambda: self._came(asked, events), 60, what="their middles")
            running, batch = sum(one.is_alive() for one in [*callers, *asked]), self.batch_of(evaluation)
            mend = getattr(faulty_hosts, fault)(struck)
            way_in.freeze() if events % 2 else way_in.cut()
            for caller in callers:
                caller.is_cut_off.set()
            try:
                self.check_callers(callers)
                self.check_pinned(pinned)
                self.check_canary(canary)
                self.check_evaluation(evaluation, "support@v2")
                if uploads:
                    self.check_upload(uploaded, second)
            finally:
                mend()
                way_in.close()
        print(f"{fault} after {events} events: {running} ran; the batch: {batch['status']} {batch['request_counts']}")
        assert running > (len(callers) + len(asked)) // 2
        if uploads:
            self.ready()
            self.keeps_pins()
            eventually(self._has_copies, 60, what="copies on all hosts")
            self.check_ledger(before)

    @staticmethod
    def _came(asked: list[Sender], events: int) -> bool:
        return all(one.events >= events or one.way == "whole" or not one.is_alive() for one in asked)


def _over(evaluation: dict[str, Any]) -> dict[str, Any] | None:
    return evaluation if evaluation["state"] not in ("waiting", "running") else None


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with running(Fleet, tmp_path_factory.mktemp("two"), "ab", {}, max_running=64) as made:
        made.prepare()
        yield made


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with running(Fleet, tmp_path_factory.mktemp("three"), "abc", {}, max_running=64) as made:
        made.prepare()
        yield made


def test_their_host_is_killed(two: Fleet) -> None:
    two.strike("kill", 4, uploads=False)


@pytest.mark.long
@pytest.mark.parametrize("events", [3, 12])
@pytest.mark.parametrize("fault", ["kill", "freeze", "cut", "silence", "replace"])
def test_whatever_happens_to_it(three: Fleet, fault: str, events: int) -> None:
    three.strike(fault, events, uploads=True)
