"""A web process with three scripted engines, whose faults the prompt steers, try by try: see `script`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from lorikeet_testing.fake_engine import Behaviour, FakeEngine, FakeEngineThread
from lorikeet_testing.web import WebProcess, eventually

HANG_S = 2


class ThreeHosts:
    """A web process and its engines."""

    def __init__(self, folder: Path) -> None:
        quick = Behaviour(steps_per_second=1000)
        self.threads = [FakeEngineThread(f"unix:{folder}/{name}.sock", quick) for name in ("one", "two", "three")]
        addresses = ",".join(f"{number}={thread.engine.address}" for number, thread in enumerate(self.threads))
        settings = {"LORIKEET_ENGINE_HANG_S": str(HANG_S), "LORIKEET_HOST_RETURN_S": "20"}
        self.web = WebProcess(folder / "var", addresses, settings)
        self.web.seed()
        self.web.start()
        self.web.wait_until_ready("support", "fake-base")

        def placed() -> bool:
            named = "placements_placement p join registry_adapterversion v on v.id = p.version_id"
            named += " join registry_adapter a on a.id = v.adapter_id"
            ready = self.web.query(f"select 1 from {named} where a.name = 'support' and p.phase = 'ready'")
            return len(ready) == len(self.threads)

        eventually(placed, 60, what="the adapter on three hosts")

    @property
    def engines(self) -> list[FakeEngine]:
        return [thread.engine for thread in self.threads]

    def tries(self, request_id: str) -> list[str]:
        """Return the ids by which engines knew the request."""
        submits = [submit for engine in self.engines for submit in engine.submits]
        return sorted(s.request_id for s in submits if s.request_id.partition(".")[0] == request_id)

    def hosts_of(self, request_id: str) -> set[str]:
        return {
            engine.address
            for engine in self.engines
            if any(submit.request_id.partition(".")[0] == request_id for submit in engine.submits)
        }

    def rows(self, request_id: str) -> list[dict[str, Any]]:
        """Return the ledger's rows of a request."""
        return self.web.query(f"select * from usage_usageevent where request_id like '{request_id}%'")

    def row(self, request_id: str) -> dict[str, Any]:
        (row,) = eventually(lambda: self.rows(request_id), what="its row in the ledger")
        return dict(row)

    def abandoned(self, request_id: str) -> set[str]:
        abandoned = self.web.query(f"select engine_id from usage_abandonedtry where engine_id like '{request_id}%'")
        return {row["engine_id"] for row in abandoned}

    def ended(self, request_id: str) -> None:
        """Wait until no engine has anything left of the request."""
        running = lambda: [name for engine in self.engines for name in [*engine.running, *engine.waiting]]  # noqa: E731
        eventually(lambda: not any(name.startswith(request_id) for name in running()), what="the end of all tries")

    def recover(self) -> None:
        """Collect the usage in the hosts' journals, as beat does some time later."""
        program = (
            "import django; django.setup()\n"
            "from control_plane.fleet.transport.endpoint import configured_endpoints\n"
            "from control_plane.billing.usage.recovery import recover_usage\n"
            "for endpoint in configured_endpoints().values(): recover_usage(endpoint, leave_to_web_s=0)"
        )
        self.web.run("-c", program)

    # -- calls --------------------------------------------------------------------

    def post(self, faults: str, *, key: str = "", **more: Any) -> httpx.Response:
        body = {"model": "support", "messages": [{"role": "user", "content": f"tries {faults}"}], **more}
        return self.send("chat/completions", body, key)

    def send(self, path: str, body: dict[str, Any], key: str = "") -> httpx.Response:
        headers = {"Authorization": f"Bearer {key}"} if key else self.web.tenants["acme"].bearer
        return httpx.post(f"{self.web.url}/v1/{path}", json=body, headers=headers, trust_env=False, timeout=30)

    def ready(self) -> None:
        """Wait until all three take requests: one that broke its session is connected again."""
        eventually(self._answers, what="three hosts")

    def _answers(self) -> bool:
        before = [len(engine.submits) for engine in self.engines]
        for _ in range(6):
            if self.post("ok", max_tokens=1).status_code != 200:
                return False
        return all(len(engine.submits) > count for engine, count in zip(self.engines, before, strict=True))

    def close(self) -> None:
        self.web.stop()
        for thread in self.threads:
            thread.close()


def id_of(answer: httpx.Response) -> str:
    return str(answer.headers["x-request-id"])


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


def text_of(answer: httpx.Response) -> str:
    return "".join(c["delta"].get("content") or "" for event in events(answer) for c in event.get("choices", []))
