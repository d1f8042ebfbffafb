"""Requests over HTTP to many adapters of a web process and its engine, while those adapters change at random.

Every adapter answers with its signature (``signatures.py``), so every token of every answer is checked against the
versions that the requested name could mean between the request and its answer. Adapters are uploaded, replaced,
archived and restored through the API as a client does; the engine's tiers are too small for all of them.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from .signatures import BASE, VOCAB, Signature, most_likely_owner, new_signature, save_signed
from .signed_traffic import Tally

PREFIXES, PREFIX_TOKENS = 24, 64  # beginnings of prompts, each of which many adapters have in common
FILES = ("adapter_config.json", "adapter_model.safetensors")
# Seconds in which an upload is decided, or a restored adapter is restored.
PATIENCE_S = 60.0
# Codes that a request may get while its adapter or version is archived, or is being restored.
REFUSALS = frozenset({"adapter_not_found", "model_archived", "model_not_found", "model_not_live", "model_not_ready"})
# Failures of each kind that are described.
MAX_DESCRIBED = 20


@dataclass(eq=False, slots=True)
class HttpVersion:
    """A version of an adapter and the times between which the name, or the version itself, could mean it."""

    number: int
    signature: Signature
    live_from: float = float("inf")  # when its promotion was sent
    live_until: float = float("inf")  # when the promotion of its successor was answered
    archived_from: float = float("inf")  # when its archiving was sent
    archived_since: float = float("inf")  # when its archiving was answered


@dataclass(eq=False, slots=True)
class HttpAdapter:
    name: str
    tenant: int
    versions: list[HttpVersion] = field(default_factory=list)
    # Times at which an archiving was sent and answered, and the restoring was sent and answered; the last may be open.
    archived: list[list[float]] = field(default_factory=list)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def live(self) -> HttpVersion:
        return self.versions[-1]


@dataclass(frozen=True, slots=True)
class Caller:
    slug: str
    headers: dict[str, str]


class SignedHttpTraffic:
    """A run of traffic against a web process: many clients that request, a few that change the adapters."""

    def __init__(
        self,
        url: str,
        callers: Sequence[Caller],
        base: str,
        folder: Path,
        *,
        adapters: int,
        clients: int,
        seed: int,
        prefix: str = "signed",
    ) -> None:
        """``base``: the base model's name. ``clients``: requests under way at once. ``prefix``: of adapters' names."""
        self.tally = Tally()
        self._callers = callers
        self._base = base
        self._folder = folder
        self._rnd = random.Random(seed)
        self._prefix = prefix
        self._num_adapters, self._num_clients = adapters, clients
        self._adapters: list[HttpAdapter] = []
        self._prompts = [self._random_tokens(PREFIX_TOKENS) for _ in range(PREFIXES)]
        limits = httpx.Limits(max_connections=clients + 8)
        self._http = httpx.AsyncClient(base_url=url, timeout=120, trust_env=False, limits=limits)

    async def run(self, may_go_on: Callable[[], bool], changers: int = 2) -> Tally:
        """Request and change adapters while ``may_go_on()`` holds; the first adapters are uploaded before that."""
        async with self._http:
            while len(self._adapters) < min(self._num_adapters, 4):
                await self._create()
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._num_clients):
                    tasks.create_task(self._request_while(may_go_on))
                for _ in range(changers):
                    tasks.create_task(self._change_while(may_go_on))
        return self.tally

    # -- requests

    async def _request_while(self, may_go_on: Callable[[], bool]) -> None:
        while may_go_on():
            await self._request()

    async def _request(self) -> None:
        rnd = self._rnd
        self.tally.requests += 1
        adapter = None if rnd.random() < 0.04 else self._adapters[int(len(self._adapters) * rnd.random() ** 2)]
        version = None
        if adapter is not None and rnd.random() < 0.4:
            version = rnd.choice(adapter.versions[-3:])
        model = self._base if adapter is None else f"{adapter.name}@v{version.number}" if version else adapter.name
        caller = self._callers[adapter.tenant if adapter else rnd.randrange(len(self._callers))]
        prompts = random.Random(adapter.name if adapter else "").choices(self._prompts, k=2)
        prompt = rnd.choice(prompts)[: rnd.choice((0, 16, 32, 48, 64))] + self._random_tokens(rnd.randint(1, 8))
        max_tokens = rnd.randint(24, 64) if rnd.random() < 0.02 else rnd.randint(1, 6)
        body: dict[str, Any] = {"model": model, "prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True,
                                "return_token_ids": True, "n": rnd.choice((1, 1, 1, 2))}  # fmt: skip
        if rnd.random() < 0.5:
            body |= {"temperature": 1, "seed": self.tally.requests}
        else:
            body["temperature"] = 0
        sent = time.monotonic()
        if rnd.random() < 0.3:
            status, answers, code = await self._stream(caller, body, cut=rnd.random() < 0.05)
        else:
            status, answers, code = await self._whole(caller, body)
        self._judge(adapter, version, body, (sent, time.monotonic()), status, answers, code)

    async def _whole(self, caller: Caller, body: dict[str, Any]) -> tuple[int, list[list[int]], str]:
        answer = await self._http.post("/v1/completions", json=body, headers=caller.headers)
        if answer.status_code != 200:
            return answer.status_code, [], answer.json()["error"]["code"]
        return 200, [choice["token_ids"] for choice in answer.json()["choices"]], ""

    async def _stream(self, caller: Caller, body: dict[str, Any], *, cut: bool) -> tuple[int, list[list[int]], str]:
        """Return the tokens of a streamed answer. ``cut``: close the connection after the first event."""
        answers: list[list[int]] = [[] for _ in range(body["n"])]
        request = {**body, "stream": True}
        async with self._http.stream("POST", "/v1/completions", json=request, headers=caller.headers) as answer:
            if answer.status_code != 200:
                return answer.status_code, [], json.loads(await answer.aread())["error"]["code"]
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    return 500, answers, event["error"]["code"]
                for choice in event["choices"]:
                    answers[choice["index"]] += choice.get("token_ids") or []
                if cut:
                    return 499, answers, ""
        return 200, answers, ""

    def _judge(
        self,
        adapter: HttpAdapter | None,
        version: HttpVersion | None,
        body: dict[str, Any],
        span: tuple[float, float],
        status: int,
        answers: list[list[int]],
        code: str,
    ) -> None:
        """Count the answer; a token is wrong if it continues the answer of no version that the name could mean."""
        allowed = [BASE] if adapter is None else _allowed(adapter, version, span)
        self.tally.tokens += sum(map(len, answers))
        for tokens in answers:
            if not any(tokens == each.answer(body["prompt"], body["max_tokens"])[: len(tokens)] for each in allowed):
                self._report_wrong(body, tokens, allowed)
        if status == 200:
            self.tally.finished += 1
            if any(len(tokens) != body["max_tokens"] for tokens in answers):
                self._unexplained(
                    f"{body['model']}: {[len(tokens) for tokens in answers]} of {body['max_tokens']} tokens"
                )
        elif status == 499:
            self.tally.aborted += 1
        elif code in REFUSALS and adapter and _may_be_refused(adapter, version, span):
            self.tally.refused += 1
        else:
            self._unexplained(f"{body['model']} ended with {status} {code}")

    def _report_wrong(self, body: dict[str, Any], tokens: list[int], allowed: list[Signature]) -> None:
        expected = [each.answer(body["prompt"], body["max_tokens"]) for each in allowed]
        self.tally.wrong_tokens += min(
            (sum(a != b for a, b in zip(tokens, answer, strict=False)) for answer in expected), default=len(tokens)
        )
        if len(self.tally.wrong) < MAX_DESCRIBED:
            known = {f"{a.name}@v{v.number}": v.signature for a in self._adapters for v in a.versions}
            owner = most_likely_owner(tokens, {**known, "the base model": BASE})
            self.tally.wrong.append(f"{body['model']} got {tokens} instead of one of {expected}; of {owner}")

    def _unexplained(self, what: str) -> None:
        self.tally.events["unexplained"] += 1
        if len(self.tally.unexplained) < MAX_DESCRIBED:
            self.tally.unexplained.append(what)

    # -- changes of adapters

    async def _change_while(self, may_go_on: Callable[[], bool]) -> None:
        while may_go_on():
            if self.tally.events["adapters"] < self._num_adapters:
                await self._create()
                continue
            adapter = self._rnd.choice(self._adapters)
            async with adapter.lock:
                await self._rnd.choices((self._replace, self._archive_version, self._archive), (6, 2, 2))[0](adapter)

    async def _create(self) -> None:
        number = self.tally.events["adapters"]
        self.tally.events["adapters"] += 1
        adapter = HttpAdapter(f"{self._prefix}-{number}", number % len(self._callers))
        adapter.versions.append(await self._upload(adapter, BASE))
        adapter.live.live_from = 0.0
        await self._until_ready(adapter)
        self._adapters.append(adapter)

    async def _replace(self, adapter: HttpAdapter) -> None:
        """Upload a new version and promote it, beside requests for both."""
        previous = adapter.live
        version = await self._upload(adapter, previous.signature)
        await self._until_ready(adapter)
        version.live_from = time.monotonic()
        adapter.versions.append(version)
        await self._call(adapter, "POST", f"adapters/{adapter.name}/versions/{version.number}/promote")
        previous.live_until = time.monotonic()
        self.tally.events["replaced"] += 1

    async def _archive_version(self, adapter: HttpAdapter) -> None:
        """Archive an earlier version for good: requests that name it are refused from then on."""
        version = next((each for each in adapter.versions[:-1] if each.archived_from == float("inf")), None)
        if version is None:
            return
        version.archived_from = time.monotonic()
        await self._call(adapter, "POST", f"adapters/{adapter.name}/versions/{version.number}/archive")
        version.archived_since = time.monotonic()
        self.tally.events["archived_versions"] += 1

    async def _archive(self, adapter: HttpAdapter) -> None:
        """Archive the adapter, let requests be refused, and restore it."""
        times = [time.monotonic(), float("inf"), float("inf"), float("inf")]
        adapter.archived.append(times)
        await self._call(adapter, "DELETE", f"adapters/{adapter.name}")
        times[1] = time.monotonic()
        await asyncio.sleep(self._rnd.random() / 2)
        rows = await self._call(adapter, "GET", f"archived-adapters?search={adapter.name}&limit=100")
        [row] = [row for row in rows if row["name"] == adapter.name]
        times[2] = time.monotonic()
        await self._call(adapter, "POST", f"archived-adapters/{row['id']}/restore")
        await self._until_ready(adapter)
        times[3] = time.monotonic()
        self.tally.events["archived"] += 1

    async def _upload(self, adapter: HttpAdapter, previous: Signature) -> HttpVersion:
        """Upload a version with a new signature and wait until it is accepted."""
        signature = new_signature(self._rnd, previous)
        folder = self._folder / f"{adapter.name}-{self._rnd.getrandbits(64):x}"
        await asyncio.to_thread(save_signed, folder, signature, random.Random(self._rnd.getrandbits(64)))
        files = [("files", (name, (folder / name).read_bytes())) for name in FILES]
        upload = await self._call(adapter, "POST", "uploads", data={"name": adapter.name}, files=files)
        async with asyncio.timeout(PATIENCE_S):
            while upload["state"] not in ("accepted", "refused"):
                await asyncio.sleep(0.05)
                upload = await self._call(adapter, "GET", f"uploads/{upload['id']}")
        assert upload["state"] == "accepted", upload
        self.tally.events["uploaded"] += 1
        return HttpVersion(upload["version"], signature)

    async def _until_ready(self, adapter: HttpAdapter) -> None:
        """Wait until all versions that are not archived can be requested."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                rows = (await self._call(adapter, "GET", f"adapters/{adapter.name}"))["versions"]
                if {row["state"] for row in rows} <= {"ready", "archived"}:
                    return
                await asyncio.sleep(0.05)

    async def _call(self, adapter: HttpAdapter, method: str, path: str, **options: Any) -> Any:
        """Return the JSON of an answer from the management API. Raises AssertionError if it is an error."""
        caller = self._callers[adapter.tenant]
        url = f"/api/tenants/{caller.slug}/{path}"
        while True:
            answer = await self._http.request(method, url, headers=caller.headers, **options)
            if answer.status_code != 429:
                break
            await asyncio.sleep(float(answer.headers.get("Retry-After", "1")))
        assert answer.is_success, (method, url, answer.text)
        return answer.json() if answer.content else None

    def _random_tokens(self, count: int) -> list[int]:
        return [self._rnd.randrange(VOCAB) for _ in range(count)]


def _allowed(adapter: HttpAdapter, version: HttpVersion | None, span: tuple[float, float]) -> list[Signature]:
    """Return the signatures that an answer may have: none if the name meant nothing during the whole request."""
    sent, ended = span
    if any(times[1] <= sent and ended <= times[2] for times in adapter.archived):
        return []
    if version is not None:
        return [version.signature] if sent < version.archived_since else []
    return [each.signature for each in adapter.versions if each.live_from <= ended and sent <= each.live_until]


def _may_be_refused(adapter: HttpAdapter, version: HttpVersion | None, span: tuple[float, float]) -> bool:
    """Return whether the adapter, or the version, could be archived at a time of the request."""
    sent, ended = span
    if any(times[0] <= ended and sent <= times[3] for times in adapter.archived):
        return True
    return version is not None and version.archived_from <= ended
