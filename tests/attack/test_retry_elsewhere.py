"""A host that refuses, drains, breaks or hangs costs its requests a pause: another one goes on with their answers.

Real web process, three scripted engines. What goes wrong is steered by the prompt, try by try: see
`lorikeet_testing.script`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from lorikeet_testing import script
from lorikeet_testing.browser import receive
from lorikeet_testing.console import Console
from lorikeet_testing.three_hosts import HANG_S, ThreeHosts, events, id_of, text_of
from lorikeet_testing.web import eventually
from websockets.asyncio.client import connect


@pytest.fixture
def hosts(three_hosts: ThreeHosts) -> ThreeHosts:
    three_hosts.ready()
    return three_hosts


ONCE = ["draining", "overloaded", "adapter_not_found", "device_error@0", "die", "cut", "stop"]


@pytest.mark.parametrize(
    ("fault", "stream"), [*((fault, stream) for fault in ONCE for stream in (True, False)), ("hang", True)]
)
def test_before_the_first_token_another_host_is_asked(hosts: ThreeHosts, fault: str, stream: bool) -> None:
    expected = hosts.post("ok", stream=stream)
    answer = hosts.post(fault, stream=stream)
    assert answer.status_code == 200
    request_id = id_of(answer)
    assert hosts.tries(request_id) == [request_id, f"{request_id}.2"]
    assert len(hosts.hosts_of(request_id)) == 2
    row = hosts.row(request_id)
    assert (row["outcome"], row["error_code"]) == ("finished", "")
    # One answer, and the bill of one.
    assert row["prompt_tokens"] == 3  # "<user> tries <fault>"
    assert row["completion_tokens"] == 24
    if stream:
        assert len(text_of(answer).split()) == len(text_of(expected).split()) == 24
    else:
        usage = answer.json()["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (3, 24)
    hosts.ended(request_id)
    eventually(lambda: hosts.abandoned(request_id) == {request_id}, what="the first try abandoned")


MIDST = ["device_error@5", "die@5", "cut@5", "stop@5", "hang@5", "die@23", "draining@5 stop@5 stop@5"]


def said(hosts: ThreeHosts, request_id: str, choice: int = 0) -> str:
    """What an engine says that nothing disturbs."""
    submits = [submit for engine in hosts.engines for submit in engine.submits]
    return script.plan(next(submit for submit in submits if submit.request_id == request_id), choice).text


@pytest.mark.parametrize("fault", MIDST)
def test_a_whole_answer_goes_on_elsewhere(hosts: ThreeHosts, fault: str) -> None:
    answer = hosts.post(fault, n=2)
    assert answer.status_code == 200
    texts = [choice["message"]["content"] for choice in answer.json()["choices"]]
    assert texts == [said(hosts, id_of(answer), choice) for choice in (0, 1)]
    assert "token_ids" not in answer.text
    row = hosts.row(id_of(answer))
    assert (row["outcome"], row["completion_tokens"]) == ("finished", 48)
    hosts.ended(id_of(answer))


@pytest.mark.parametrize("fault", MIDST)
def test_a_stream_goes_on_elsewhere(hosts: ThreeHosts, fault: str) -> None:
    answer = hosts.post(fault, stream=True, n=2, stream_options={"include_usage": True})
    request_id = id_of(answer)
    found = events(answer)
    for number in (0, 1):
        choices = [choice for event in found for choice in event["choices"] if choice["index"] == number]
        text = "".join(choice["delta"].get("content") or "" for choice in choices)
        assert text == said(hosts, request_id, number)
        assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["stop"]
        assert sum("role" in choice["delta"] for choice in choices) == 1
    assert "token_ids" not in answer.text
    prompt = len(f"<user> tries {fault}".split())
    usage = found[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (prompt, 48)
    assert answer.text.endswith("data: [DONE]\n\n")
    row = hosts.row(request_id)
    assert (row["outcome"], row["error_code"]) == ("finished", "")
    assert (row["prompt_tokens"], row["completion_tokens"]) == (prompt, 48)
    hosts.ended(request_id)
    tries = hosts.tries(request_id)
    eventually(lambda: hosts.abandoned(request_id) == {*tries} - {tries[-1]}, what="all but the last try abandoned")


def test_what_was_told_once_is_not_told_again(hosts: ThreeHosts) -> None:
    """The prompt's tokens and log-probabilities; token ids and log-probabilities of the answer go on."""
    body = {
        "model": "support",
        "prompt": "tries die@5 stop@5",
        "max_tokens": 24,
        "return_token_ids": True,
        "logprobs": 1,
    }
    whole = hosts.send("completions", {**body, "prompt_logprobs": 1}).json()["choices"][0]
    assert (len(whole["token_ids"]), len(whole["prompt_token_ids"]), len(whole["prompt_logprobs"])) == (24, 3, 3)
    answer = hosts.send("completions", {**body, "stream": True})
    assert answer.status_code == 200, answer.text
    choices = [choice for event in events(answer) for choice in event["choices"]]
    assert "".join(choice["text"] for choice in choices) == said(hosts, id_of(answer))
    assert sum(len(choice.get("token_ids") or ()) for choice in choices) == 24
    assert sum(len(choice["logprobs"]["tokens"]) for choice in choices if choice.get("logprobs")) == 24
    assert sum(bool(choice.get("prompt_token_ids")) for choice in choices) == 1
    resumed = [submit for engine in hosts.engines for submit in engine.submits if submit.so_far]
    assert not any(submit.HasField("prompt_logprobs") or submit.describe_prompt for submit in resumed[-1:])


def test_a_host_that_cannot_go_on_is_not_asked_to(hosts: ThreeHosts) -> None:
    """One of an older version would begin anew, and say it all again."""
    for engine in hosts.engines:
        engine.behaviour.resumes = False
    try:
        hosts.post("die")  # each session that breaks greets anew
        hosts.post("cut cut")
        eventually(lambda: _fails_in_its_midst(hosts), what="greetings that do not offer to resume")
        assert len(hosts.post("stop@5").json()["choices"][0]["message"]["content"].split()) == 24
    finally:
        for engine in hosts.engines:
            engine.behaviour.resumes = True
        eventually(lambda: not _fails_in_its_midst(hosts), what="greetings that offer to resume")


def _fails_in_its_midst(hosts: ThreeHosts) -> bool:
    return all('"code":"engine_disconnected"' in hosts.post("cut@5", stream=True).text for _ in range(3))


def test_twice(hosts: ThreeHosts) -> None:
    answer = hosts.post("draining die", stream=True)
    request_id = id_of(answer)
    assert len(text_of(answer).split()) == 24
    assert len(hosts.hosts_of(request_id)) == 3
    assert hosts.row(request_id)["outcome"] == "finished"
    eventually(lambda: hosts.abandoned(request_id) == {request_id, f"{request_id}.2"}, what="two tries abandoned")


def test_three_tries_at_most(hosts: ThreeHosts) -> None:
    answer = hosts.post("overloaded overloaded overloaded")
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "overloaded"
    assert answer.headers["retry-after"]
    assert len(hosts.tries(id_of(answer))) == 3
    row = hosts.row(id_of(answer))
    assert (row["outcome"], row["error_code"]) == ("refused", "overloaded")
    assert row["prompt_tokens"] == row["completion_tokens"] == 0


def test_a_request_that_broke_two_hosts_does_not_get_a_third(hosts: ThreeHosts) -> None:
    answer = hosts.post("die device_error@0")
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "device_error"
    assert len(hosts.tries(id_of(answer))) == 2
    row = hosts.row(id_of(answer))
    assert (row["outcome"], row["error_code"]) == ("failed", "device_error")


def test_what_is_the_requests_own_fault_is_told_at_once(hosts: ThreeHosts) -> None:
    answer = hosts.post("context_length_exceeded")
    assert answer.status_code == 400
    assert hosts.tries(id_of(answer)) == [id_of(answer)]


def test_several_prompts_go_their_own_ways(hosts: ThreeHosts) -> None:
    body = {"model": "support", "prompt": ["tries die", "tries ok", "tries draining"], "n": 2, "max_tokens": 24}
    answer = hosts.send("completions", body)
    assert answer.status_code == 200
    assert [len(choice["text"].split()) for choice in answer.json()["choices"]] == [24] * 6
    assert answer.json()["usage"]["completion_tokens"] == 24 * 6
    assert hosts.row(id_of(answer))["completion_tokens"] == 48


def test_on_the_socket_nobody_sees_it(hosts: ThreeHosts) -> None:
    async def talk() -> tuple[str, str, dict[str, Any]]:
        url = f"{hosts.web.url.replace('http', 'ws')}/ws/inference"
        async with connect(url, additional_headers=hosts.web.tenants["acme"].bearer, proxy=None) as socket:
            await receive(socket)
            body = {"model": "support", "messages": [{"role": "user", "content": "tries draining cut"}]}
            await socket.send(json.dumps({"type": "generate", "id": "a", "request": body}))
            accepted = await receive(socket)
            text = ""
            while (frame := await receive(socket))["type"] == "delta":
                text += frame["text"]
            return accepted["request_id"], text, frame

    request_id, text, last = asyncio.run(talk())
    assert (last["type"], last["usage"]["completion_tokens"]) == ("done", 24)
    assert len(text.split()) == 24
    assert hosts.row(request_id)["outcome"] == "finished"


def test_a_client_that_leaves_while_its_host_hangs_is_not_sent_elsewhere(hosts: ThreeHosts) -> None:
    async def leave() -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=HANG_S / 4) as client:
            body = {"model": "support", "messages": [{"role": "user", "content": "tries hang"}], "stream": True}
            with pytest.raises(httpx.ReadTimeout):
                await client.post(
                    f"{hosts.web.url}/v1/chat/completions", json=body, headers=hosts.web.tenants["acme"].bearer
                )

    before = {submit.request_id for engine in hosts.engines for submit in engine.submits}
    asyncio.run(leave())
    after = {submit.request_id for engine in hosts.engines for submit in engine.submits}
    (request_id,) = after - before
    row = hosts.row(request_id)
    assert (row["outcome"], row["completion_tokens"]) == ("aborted", 0)
    hosts.ended(request_id)
    assert hosts.tries(request_id) == [request_id]


def test_the_ledger_has_each_request_once_also_after_recovery(hosts: ThreeHosts) -> None:
    """In the journals lie aborted tries whose hosts could not say so: they are nobody's usage."""
    ids = [id_of(hosts.post("cut draining")), id_of(hosts.post("cut", stream=True))]
    rows = {request_id: hosts.row(request_id) for request_id in ids}
    for request_id in ids:
        eventually(lambda request_id=request_id: hosts.abandoned(request_id), what="the abandoned try")  # type: ignore[misc]
        hosts.ended(request_id)
    assert any(engine.journal.keys() - engine.acknowledged for engine in hosts.engines)
    hosts.recover()
    assert not any(engine.journal.keys() - engine.acknowledged for engine in hosts.engines)
    assert {request_id: hosts.row(request_id) for request_id in ids} == rows
    # Of this and every other test of this module: one row for each request that an engine had, none for its tries.
    had = {submit.request_id.partition(".")[0] for engine in hosts.engines for submit in engine.submits}
    counted = Counter(row["request_id"] for row in hosts.web.query("select request_id from usage_usageevent"))
    assert counted.keys() == had
    assert set(counted.values()) == {1}


def test_limits_are_settled_whatever_happened(hosts: ThreeHosts) -> None:
    """A request that went through three hosts is one request; nothing of it stays reserved; tokens are the bill's."""
    console = Console(hosts.web, hosts.web.tenants["acme"])
    with contextlib.closing(console.http):
        key = console.new_key(concurrency=1, tokens_per_minute=100_000)
        all_faults = ("draining die", "overloaded overloaded overloaded", "die device_error@0", "cut")
        rows = []
        for faults in all_faults:
            eventually(lambda: console.standing(key)["concurrency"] == 0, what="the end of the one before")
            rows.append(hosts.row(id_of(hosts.post(faults, key=key))))
        tokens = sum(row["prompt_tokens"] + row["completion_tokens"] for row in rows)
        assert tokens == (4 + 24) + (3 + 24)  # those that failed brought nothing
        eventually(lambda: console.standing(key)["concurrency"] == 0, what="the end of all")
        assert console.standing(key)["tokens_per_minute"] == pytest.approx(tokens, abs=3)


@pytest.fixture
def alone(hosts: ThreeHosts) -> Iterator[ThreeHosts]:
    """Two of three hosts drain, and the web process knows it."""
    for engine in hosts.engines[1:]:
        engine.draining = True
    eventually(lambda: all(engine.all_saw_draining for engine in hosts.engines[1:]), what="their heartbeats")
    yield hosts
    for engine in hosts.engines:
        engine.draining = False


def test_when_all_others_drain_the_caller_is_told_why_its_own_did_not_answer(alone: ThreeHosts) -> None:
    answer = alone.post("device_error@0 device_error@0 device_error@0")  # its own host may be tried again
    assert answer.status_code in (500, 503)
    assert alone.row(id_of(answer))["outcome"] in ("failed", "refused")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("fault", ["die@5", "stop@5", "die"])
def test_a_lost_host_without_another_one_is_waited_for(alone: ThreeHosts, fault: str, stream: bool) -> None:
    """A supervisor starts it again, and it goes on with what it began."""
    answer = alone.post(fault, stream=stream)
    request_id = id_of(answer)
    assert answer.status_code == 200, answer.text
    text = text_of(answer) if stream else answer.json()["choices"][0]["message"]["content"]
    assert text == said(alone, request_id)
    row = alone.row(request_id)
    assert (row["outcome"], row["error_code"], row["completion_tokens"]) == ("finished", "", 24)
    assert len(alone.hosts_of(request_id)) == 1
    alone.ended(request_id)


@pytest.mark.parametrize("fault", ["die", "die@5"])
def test_others_that_drain_do_not_end_the_wait_for_a_lost_host(hosts: ThreeHosts, fault: str) -> None:
    """That they refuse it says nothing of the request, and nothing of the host that was lost."""
    answer = hosts.post(f"{fault} draining draining ok")
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["message"]["content"] == said(hosts, id_of(answer))
    assert len(hosts.tries(id_of(answer))) == 4
    assert hosts.row(id_of(answer))["outcome"] == "finished"


def test_a_host_that_hangs_without_another_one_is_waited_for(alone: ThreeHosts) -> None:
    """Nobody could do better, and it may go on."""
    engine = alone.engines[0]

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            body = {"model": "support", "messages": [{"role": "user", "content": "tries hang"}], "max_tokens": 3}
            asked = asyncio.ensure_future(
                client.post(f"{alone.web.url}/v1/chat/completions", json=body, headers=alone.web.tenants["acme"].bearer)
            )
            async with asyncio.timeout(30):
                while not engine.running:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(HANG_S * 1.6)
            assert not asked.done()
            for request in engine.running.values():
                request.submit.chat.messages[-1].content = "say at last"
            return await asked

    answer = asyncio.run(ask())
    assert answer.status_code == 200
    assert alone.tries(id_of(answer)) == [id_of(answer)]
