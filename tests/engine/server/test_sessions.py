"""What a web process sees of a host: sessions, requests, refusals, usage."""

from __future__ import annotations

import asyncio
import threading

import pytest
from lorikeet_testing.adapter_files import make_tensors, save_adapter
from lorikeet_testing.engine_client import text_request

from lora_engine.constraints import Constraint, Kind
from lora_engine.peft_format import adapter_digest, folder_digests
from lora_engine.server import status as status_module
from lora_engine.server.session import ClientSession
from lora_engine.structured import Grammars
from lora_engine.wire import engine_pb2 as pb
from lora_engine.wire.adapter_list import AdapterList
from lora_engine.wire.prompt_prefixes import KnownPrefixes, prefix_marks

ABSENT = "sha256:" + "0" * 64


async def eventually(condition, seconds: float = 10):
    async with asyncio.timeout(seconds):
        while not (result := condition()):
            await asyncio.sleep(0.005)
    return result


async def pulled(client, count):
    async with asyncio.timeout(10):
        while len(records := await client.pull()) < count:
            await asyncio.sleep(0.01)
    return records


async def test_many_requests_on_one_session(client, host, engine):
    async with client.session() as session:
        assert session.boot_id == host.lifecycle.boot_id == (await client.wait_ready()).boot_id
        requests = [text_request(f"prompt {i}", max_tokens=1 + i % 7, n=1 + i % 2) for i in range(40)]
        results = await asyncio.gather(*(session.run(request) for request in requests))
    for request, result in zip(requests, results, strict=True):
        sampling = request.sampling
        assert result.text(sampling.n - 1) == "x" * sampling.max_tokens
        assert result.tokens == result.usage.completion_tokens == sampling.max_tokens * sampling.n
        assert result.usage.prompt_tokens == len(request.text)
        assert (result.usage.outcome, result.usage.finish_reason) == ("finished", "length")
        assert result.deltas[-1].finish_reason == "length"
        assert result.usage.seq > 0
    assert len({result.usage.seq for result in results}) == 40
    assert threading.get_ident() not in engine.threads
    assert len(engine.threads) == 1


async def test_tokens_of_requests_with_a_handle_are_told_in_columns(client, host):
    """The same tokens, in the same order, whatever else is in a message; only the first and last are deltas."""
    requests = [text_request(f"prompt {i}", max_tokens=1 + i % 9, n=1 + i % 2, logprobs=i == 5) for i in range(24)]
    for handle, request in enumerate(requests):
        request.handle = handle  # the first has none
        request.describe_prompt, request.echo_token_ids = handle % 3 == 0, True
    async with client.session() as session:
        results = await asyncio.gather(*(session.run(request) for request in requests))
        steps = session.steps
    for request, result in zip(requests, results, strict=True):
        sampling, told = request.sampling, [[] for _ in range(request.sampling.n)]
        for step in steps:
            plain = step.plain
            for handle, text, token in zip(plain.handles, plain.texts, plain.token_ids, strict=True):
                if handle == request.handle:
                    told[0].append((text, token))
            for delta in step.deltas:
                if delta.request_id == request.request_id:
                    assert not told[delta.choice] or not delta.HasField("prompt"), "the prompt comes first"
                    told[delta.choice] += [(delta.text, token) for token in delta.token_ids]
        assert [len(of_choice) for of_choice in told] == [sampling.max_tokens] * sampling.n
        assert all(text == "x" for of_choice in told for text, _ in of_choice)
        first = sum(delta.choice == 0 for delta in result.deltas)
        assert first <= 2 or not request.handle or sampling.logprobs or request.describe_prompt
    assert sum(len(step.plain.handles) for step in steps) > 20


async def test_what_follows_a_delta_in_a_message_is_one_too():
    session, sent = ClientSession(), asyncio.Queue[pb.EngineMessage]()
    sending = asyncio.create_task(session.send_all(sent.put))
    session.add_delta(1, pb.Delta(request_id="a", text="1"), 5)
    assert not session.add_plain(2, 5, "2", 2)
    assert session.add_plain(2, 6, "1", 1) and session.add_plain(3, 6, "2", 2)
    session.add_delta(3, pb.Delta(request_id="b", text="3"), 6)
    step = (await sent.get()).step
    assert (step.step, list(step.plain.handles), list(step.plain.texts)) == (3, [6, 6], ["1", "2"])
    assert session.add_plain(4, 5, "3", 3) and session.add_plain(4, 6, "4", 4)
    assert [*(await sent.get()).step.plain.handles] == [5, 6]
    sending.cancel()


async def test_a_chat_by_the_adapters_own_template(client, host):
    own = pb.ChatTemplate(source="{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}",
                          special_tokens={"eos_token": "!"})  # fmt: skip
    chat = pb.Chat(messages=[pb.ChatMessage(role="user", content="abc")], own_template=own)
    sampling = pb.Sampling(max_tokens=2)
    async with client.session() as session:
        result = await session.run(pb.Submit(request_id="own", chat=chat, sampling=sampling, describe_prompt=True))
        assert result.deltas[0].prompt.text == "abc!"
        chat.own_template.source = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
        refused = await session.run(pb.Submit(request_id="never", chat=chat, sampling=sampling))
        assert refused.error.code == "chat_template_too_costly"
    reply = await host.inputs.tokenize(pb.Submit(chat=pb.Chat(messages=chat.messages, own_template=own)))
    assert b"".join(reply.token_bytes[token] for token in reply.token_ids) == b"abc!"


async def test_a_prompt_is_described_with_the_first_output(client, host):
    """And not before: a request that the engine refuses has no output."""
    request = pb.Submit(
        request_id="r", token_ids=pb.TokenIds(ids=[5, 6, 7]), describe_prompt=True, sampling=pb.Sampling(max_tokens=3)
    )
    async with client.session() as session:
        result = await session.run(request)
    first, *others = result.deltas
    assert list(first.prompt.token_ids) == [5, 6, 7]
    assert first.prompt.text == host.inputs.tokenizer.decode([5, 6, 7])
    assert first.num_tokens == 1
    assert not any(delta.HasField("prompt") for delta in others)


async def test_tokens_of_prompts_and_text_of_tokens(client, host):
    host.description.max_context = 99
    tokenizer = host.inputs.tokenizer
    reply = await client.stub.Tokenize(pb.Submit(text="hello"))
    assert list(reply.token_ids) == tokenizer.encode("hello", add_special_tokens=True)
    assert {*reply.token_bytes} == {*reply.token_ids}
    assert reply.max_context == 99
    chat = pb.Chat(messages=[pb.ChatMessage(role="user", content="hello")])
    assert list((await client.stub.Tokenize(pb.Submit(chat=chat))).token_ids) == tokenizer.encode("hello", False)
    chat.messages[0].role = "robot"
    assert (await client.stub.Tokenize(pb.Submit(chat=chat))).error.code == "invalid_messages"
    ids = tokenizer.encode("hello", add_special_tokens=False)
    assert (await client.stub.Detokenize(pb.TokenIds(ids=ids))).text == tokenizer.decode(ids)
    assert (await client.stub.Detokenize(pb.TokenIds(ids=[1 << 30]))).error.param == "tokens"


async def test_work_for_another_base_model_is_refused(client, host):
    host.description.base_digest = "sha256:own"
    async with client.session() as session:
        assert session.base_digest == "sha256:own"
        for digest, code in (("sha256:own", ""), ("", ""), ("sha256:other", "other_base_model")):
            request = text_request("p")
            request.base_digest = digest
            assert (await session.run(request)).error.code == code
    (failed,) = await client.stage(digest=ABSENT, base_digest="sha256:other")
    assert (failed.phase, failed.error.code) == (pb.StageEvent.FAILED, "other_base_model")
    (*_, missing) = await client.stage(digest=ABSENT, source_uri="file:///nowhere", base_digest="sha256:own")
    assert missing.error.code not in ("", "other_base_model")


async def test_one_message_per_step_for_all_requests(client, engine):
    async with client.session() as session:
        engine.gate.clear()
        requests = [await session.submit(text_request("p", max_tokens=20)) for _ in range(8)]
        await eventually(lambda: engine.num_running == 8)
        engine.gate.set()
        await asyncio.gather(*(request.done.wait() for request in requests))
        with_deltas = [step for step in session.steps if step.deltas]
    assert len(with_deltas) <= 20
    numbers = [step.step for step in session.steps]
    assert numbers == sorted(numbers)


async def test_prompts_of_every_kind(client, engine):
    chat = text_request("")
    chat.chat.messages.add(role="user", content="hello")
    ids = text_request("")
    ids.token_ids.ids.extend([1, 2, 3])
    async with client.session() as session:
        text = text_request("hello")
        for request in (text, chat, ids):
            assert (await session.run(request)).error.code == ""
    prompts = [engine.prompts[request.request_id].prompt_token_ids for request in (text, chat, ids)]
    assert prompts[0] == prompts[1]
    assert prompts[2] == [1, 2, 3]


async def test_sampling_arrives_as_it_was_meant(client, engine):
    async with client.session() as session:
        plain = text_request("p", max_tokens=2)
        full = text_request("p", max_tokens=2, temperature=0.5, top_p=0.25, top_k=3, seed=0, stop=["a"], n=2,
                            logit_bias={5: -1.0}, stop_token_ids=[7], logprobs=True, top_logprobs=2)  # fmt: skip
        await session.run(plain)
        result = await session.run(full)
    sampling = engine.prompts[plain.request_id].sampling
    assert (sampling.top_p, sampling.repetition_penalty, sampling.n, sampling.seed) == (1.0, 1.0, 1, None)
    sampling = engine.prompts[full.request_id].sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0.5, 0.25, 3, 0)
    assert (sampling.stop, sampling.stop_token_ids, sampling.logit_bias) == (("a",), (7,), {5: -1.0})
    (logprob,) = result.deltas[0].logprobs
    assert [entry.token_id for entry in logprob.top] == [87, 88]
    assert logprob.token.encode() == logprob.token_bytes


async def test_token_ids_only_when_asked(client):
    async with client.session() as session:
        quiet, echo = text_request("p"), text_request("p")
        echo.echo_token_ids = True
        assert not (await session.run(quiet)).deltas[0].token_ids
        assert list((await session.run(echo)).deltas[0].token_ids) == [87]


def bad_requests():
    no_prompt = text_request("x")
    no_prompt.ClearField("text")
    no_id = text_request("x")
    no_id.request_id = ""
    robot = text_request("x")
    robot.chat.messages.add(role="robot", content="beep")
    return {
        "no prompt": (no_prompt, "empty_prompt"),
        "no id": (no_id, "invalid_request"),
        "template": (robot, "invalid_messages"),
        "adapter": (text_request("x", digest=ABSENT), "adapter_not_found"),
        "long": (text_request("x" * 20_000), "context_length_exceeded"),
        "temperature": (text_request("x", temperature=9), "invalid_value"),
        "nan": (text_request("x", top_p=float("nan")), "invalid_value"),
        "stops": (text_request("x", stop=["s"] * 65), "invalid_value"),
    }


@pytest.mark.parametrize("name", bad_requests())
async def test_bad_requests_are_answered_and_the_host_goes_on(client, host, name):
    request, code = bad_requests()[name]
    async with client.session() as session:
        refused = await session.run(request)
        assert refused.error.code == code
        assert refused.error.message and refused.error.fix
        assert refused.usage.outcome == "refused"
        assert (await session.run(text_request("ok"))).usage.outcome == "finished"
    assert len(await client.pull()) == 1
    assert await eventually(lambda: host.requests.idle)


async def test_request_ids_are_never_used_twice(client, engine):
    async with client.session() as session, client.session() as other:
        engine.gate.clear()
        request = text_request("p")
        first = await session.submit(request)
        await eventually(lambda: engine.num_running)
        assert (await other.run(request)).error.code == "duplicate_request"
        engine.gate.set()
        await first.done.wait()
        assert first.usage.outcome == "finished"
        other.requests.clear()
        assert (await other.run(request)).error.code == "duplicate_request"
    (record,) = await client.pull()
    assert record.completion_tokens == 8


async def test_abort_keeps_what_was_computed(client, engine):
    async with client.session() as session:
        request = text_request("p", max_tokens=1_000_000)
        running = await session.submit(request)
        await running.first_delta.wait()
        await session.abort("unknown")
        await session.abort(request.request_id)
        await asyncio.wait_for(running.done.wait(), 10)
        assert running.usage.outcome == "aborted"
        assert running.usage.completion_tokens >= running.tokens > 0
        assert not running.finished.HasField("error")
    assert len(await client.pull()) == 1


async def test_only_the_own_session_may_abort(client, engine):
    async with client.session() as session, client.session() as other:
        request = text_request("p", max_tokens=1_000_000)
        running = await session.submit(request)
        await running.first_delta.wait()
        await other.abort(request.request_id)
        await other.run(text_request("p"))
        assert not running.done.is_set()


async def test_a_long_prompt_can_be_aborted_while_it_is_read(client, host, engine):
    async with client.session() as session:
        request = text_request("x" * 9000, max_tokens=1_000_000)
        running = await session.submit(request)
        await session.abort(request.request_id)
        await asyncio.wait_for(running.done.wait(), 10)
        assert running.usage.outcome == "aborted"


async def test_a_lost_session_aborts_its_requests_and_keeps_their_usage(client, host, engine):
    async with client.session() as session:
        for _ in range(3):
            await (await session.submit(text_request("p", max_tokens=1_000_000))).first_delta.wait()
    await eventually(lambda: host.requests.idle)
    records = await pulled(client, 3)
    assert {record.outcome for record in records} == {"aborted"}
    assert all(record.completion_tokens for record in records)


async def test_a_half_closed_session_ends_with_its_last_request(client):
    async with client.session() as session:
        requests = [await session.submit(text_request("p")) for _ in range(3)]
        await session.half_close()
        await asyncio.wait_for(session.ended(), 10)
        assert all(request.usage.outcome == "finished" for request in requests)


async def test_a_failing_step_fails_its_requests_and_no_others(client, engine):
    async with client.session() as session:
        hit = await session.submit(text_request("p", max_tokens=1_000_000))
        await hit.first_delta.wait()
        engine.fail_next.append(RuntimeError("device on fire"))
        await asyncio.wait_for(hit.done.wait(), 10)
        assert hit.error.code == "engine_error"
        assert hit.usage.outcome == "failed"
        assert hit.usage.completion_tokens > 0
        assert (await session.run(text_request("p"))).usage.outcome == "finished"


async def test_a_step_that_fails_twice_still_answers(client, engine):
    async with client.session() as session:
        hit = await session.submit(text_request("p", max_tokens=1_000_000))
        await hit.first_delta.wait()
        engine.fail_next.extend([RuntimeError("one"), RuntimeError("two")])
        await asyncio.wait_for(hit.done.wait(), 10)
        assert hit.error.code == "engine_error"
        assert (await session.run(text_request("p"))).usage.outcome == "finished"


async def test_usage_waits_until_it_is_acknowledged(client, host):
    async with client.session() as session:
        for _ in range(5):
            await session.run(text_request("p"))
    records = await client.pull()
    assert [record.seq for record in records] == sorted(record.seq for record in records)
    assert await client.pull(after_seq=records[2].seq) == records[3:]
    assert await client.pull(limit=2) == records[:2]
    ack = pb.AckUsageRequest(request_ids=[records[0].request_id, "unknown"])
    assert (await client.stub.AckUsage(ack)).acknowledged == 1
    assert (await client.stub.AckUsage(ack)).acknowledged == 0
    assert await client.pull() == records[1:]
    assert (await client.status()).unacknowledged_usage == 4


async def test_draining_refuses_new_requests_only(client, engine):
    async with client.session() as session:
        engine.gate.clear()
        running = await session.submit(text_request("p"))
        await eventually(lambda: engine.num_running)
        reply = await client.stub.Drain(pb.DrainRequest())
        assert reply.running == 1
        refused = await session.run(text_request("p"))
        assert refused.error.code == "draining"
        assert refused.error.retry_after_ms > 0
        assert (await client.status()).draining
        engine.gate.set()
        await asyncio.wait_for(running.done.wait(), 10)
        assert running.usage.outcome == "finished"
        await client.stub.Drain(pb.DrainRequest(undo=True))
        assert (await session.run(text_request("p"))).usage.outcome == "finished"


async def test_heartbeats(client):
    async with client.session() as session:
        running = await session.submit(text_request("p", max_tokens=1_000_000))
        await running.first_delta.wait()
        watch = client.stub.Watch(pb.WatchRequest(interval_ms=100))
        statuses = [await watch.read() for _ in range(4)]
    watch.cancel()
    last = statuses[-1]
    assert last.steps > statuses[0].steps
    assert last.tokens_per_second > 0
    assert last.running == 1
    pool = last.pool
    assert pool.free + pool.kv + pool.cached_prefix + pool.adapter + pool.reserved == pool.total


async def test_staging_serving_and_dropping_an_adapter(client, host, engine, tmp_path):
    folder = save_adapter(tmp_path / "adapter", make_tensors())
    digests = folder_digests(folder)
    digest = adapter_digest(digests)
    stage = {"digest": digest, "source_uri": f"file://{folder}", "file_digests": digests}
    events = await client.stage(**stage)
    assert events[-1].phase == pb.StageEvent.READY
    assert (events[-1].rank, events[-1].pool_pages > 0) == (4, True)
    async with client.session() as session:
        assert (await session.run(text_request("p", digest=digest))).usage.adapter_digest == digest
    (resident,) = (await client.status()).adapters
    assert (resident.digest, resident.tier, resident.rank) == (digest, pb.AdapterResidency.HOST, 4)
    assert (await client.stub.DropAdapter(pb.DropAdapterRequest(digest=digest))).was_resident
    assert engine.dropped == [digest]
    async with client.session() as session:
        assert (await session.run(text_request("p", digest=digest))).error.code == "adapter_not_found"
    bad = await client.stage(**(stage | {"digest": ABSENT}))
    assert bad[-1].phase == pb.StageEvent.FAILED
    assert bad[-1].error.code == "digest_mismatch"


async def test_pinned_adapters_are_the_engines_and_the_last_to_leave_host_memory(client, host, engine, tmp_path):
    digests = folder_digests(folder := save_adapter(tmp_path / "adapter", make_tensors()))
    digest = adapter_digest(digests)
    await client.stage(digest=digest, source_uri=f"file://{folder}", file_digests=digests)
    reply = await client.stub.PinAdapters(pb.PinAdaptersRequest(digests=[digest, digest, ABSENT]))
    assert list(reply.digests) == engine.pinned == [digest, ABSENT], "each once, those not here yet too"
    assert not (await client.stub.PinAdapters(pb.PinAdaptersRequest())).digests
    assert engine.pinned == []


async def test_metrics_tell_what_happened(client, host):
    async with client.session() as session:
        await session.run(text_request("pppp"))
        await session.run(text_request("p", digest=ABSENT))
    host.metrics.status = await host.status.read()
    text = host.metrics.text()
    assert 'lora_engine_requests_total{outcome="finished"} 1' in text
    assert 'lora_engine_requests_total{outcome="refused"} 1' in text
    assert 'lora_engine_errors_total{code="' in text
    assert "lora_engine_inter_token_objective_ms 25" in text
    assert "lora_engine_prefill_limited_steps_total 17" in text
    assert "lora_engine_completion_tokens_total 8" in text
    assert 'lora_engine_pool_pages{kind="free"} 9' in text
    assert 'lora_engine_first_token_seconds_bucket{le="+Inf"}' in text


async def test_a_status_tells_each_tenants_share_and_how_good_forecasts_are(client, host):
    status = await client.status()
    (share,) = status.tenants
    assert (share.tenant, share.waiting, share.reason) == ("acme", 3, "own_quota")
    assert (share.owed, share.received) == (0.5, 0.25)
    assert status.refused_early == 7 and status.forecast.requests == 12
    gap = status.service_gap
    assert (gap.gap, gap.bound, gap.ahead, gap.behind) == (3.0, 8.0, "acme", "other")
    times = status.load_times
    assert (times.to_device.loads, times.to_device.seconds_per_byte, times.from_disk.loads) == (4, 1e-9, 0)
    host.metrics.status = status
    text = host.metrics.text()
    assert 'lora_engine_tenant_owed{tenant="acme"} 0.5' in text
    assert 'lora_engine_tenant_output_tokens_total{tenant="acme"} 8' in text
    assert status.merging.adapter_digest == "sha256:merged"
    assert "lora_engine_merges_total 3" in text and "lora_engine_merged_steps_total 90" in text
    assert "lora_engine_refused_early_total 7" in text and "lora_engine_forecast_error_p90 0.11" in text


@pytest.mark.parametrize(("read", "reader"), [("heartbeat", "_heartbeat"), ("load", "_load")])
async def test_callers_of_one_heartbeat_get_theirs_though_a_later_caller_began_the_next(
    host, monkeypatch, read, reader
):
    """One caller is cancelled, and the next heartbeat begins before the first is there."""
    states = [asyncio.get_running_loop().create_future() for _ in range(2)]
    begun = iter(states)

    async def wait() -> str:
        return await next(begun)

    monkeypatch.setattr(getattr(host.status, reader), "_read", wait)
    first = [asyncio.create_task(getattr(host.status, read)()) for _ in range(3)]
    await asyncio.sleep(0)
    monkeypatch.setattr(status_module, "_SHARED_S", -1)
    second = asyncio.create_task(getattr(host.status, read)())
    await asyncio.sleep(0)
    first[1].cancel()
    await asyncio.sleep(0)
    states[0].set_result("the first")
    assert await first[0] == await first[2] == "the first"
    assert first[1].cancelled() and not second.done()
    states[1].set_result("the second")
    assert await second == "the second"


async def test_between_heartbeats_comes_the_load_alone(client):
    statuses = client.stub.Watch(pb.WatchRequest(interval_ms=300, load_every_ms=100), metadata=client.metadata)
    found = [await anext(aiter(statuses)) for _ in range(4)]
    statuses.cancel()
    assert [status.load_only for status in found] == [False, True, True, False]
    for status in found:
        assert (status.first_token.seconds, status.tenants[0].first_token_s) == (0.25, 0.75)
    assert not any(status.HasField("load_times") or status.adapters for status in found[1:3])
    assert found[0].HasField("load_times")


async def test_heartbeats_tell_of_adapters_what_changed_if_they_are_asked_to(client, tmp_path):
    request = pb.WatchRequest(interval_ms=100, adapter_changes=True)
    statuses, known = aiter(client.stub.Watch(request, metadata=client.metadata)), AdapterList()
    first = await anext(statuses)
    assert not first.adapter_changes and known.observe(first) and not known.by_digest
    digests = folder_digests(save_adapter(tmp_path / "adapter", make_tensors(4)))
    digest = adapter_digest(digests)
    await client.stage(digest=digest, source_uri=f"file://{tmp_path}/adapter", file_digests=digests)
    changed = [known.observe(await anext(statuses)) for _ in range(6)]
    assert set(known.by_digest) == {digest}
    assert 1 <= sum(changed) < 6 and not changed[-1]


async def test_heartbeats_tell_which_prompts_are_cached_to_those_that_ask(client):
    asked = text_request("a long prompt, " * 40)
    async with client.session() as session:
        await session.run(asked)
    # All but the first are heartbeats of the load, however slowly this test reads them.
    known, request = KnownPrefixes(), pb.WatchRequest(interval_ms=600_000, load_every_ms=100, prefixes=True)
    statuses = aiter(client.stub.Watch(request, metadata=client.metadata))
    known.observe(await anext(statuses))
    assert known.share(prefix_marks(asked)) > 0.6
    later = text_request("another one, " * 40)
    async with client.session() as session:
        await session.run(later)
    assert not known.share(prefix_marks(later))
    while not known.share(prefix_marks(later)):
        load = await anext(statuses)
        assert load.load_only
        known.observe(load)
    assert known.share(prefix_marks(later)) > 0.6 and known.share(prefix_marks(asked)) > 0.6
    status = await client.status()
    assert not status.prefixes and not status.prefixes_kept


async def test_a_host_that_keeps_no_prefixes_tells_none(client, engine):
    engine.cached_tokens = None
    request = pb.WatchRequest(interval_ms=600_000, load_every_ms=100, prefixes=True)
    statuses = aiter(client.stub.Watch(request, metadata=client.metadata))
    await anext(statuses)
    async with client.session() as session:
        await session.run(text_request("a long prompt, " * 40))
    load = await anext(statuses)
    assert load.load_only and not load.prefixes


async def test_who_waits_and_why_can_be_asked(client):
    reply = await client.stub.ListWaiting(pb.ListWaitingRequest(tenant="acme"))
    (waiting,) = reply.requests
    assert (waiting.tenant, waiting.waited_ms, waiting.predicted_ms) == ("acme", 1500, 250)
    assert (waiting.reason, waiting.text) == ("own_queue", "behind 3 requests")


async def test_whose_each_page_is_can_be_asked(client):
    found = await client.stub.MapPages(pb.MapPagesRequest())
    assert (list(found.owner_of), list(found.lengths)) == ([1, 0], [3, 97])
    free, owner = found.owners
    assert (free.kind, free.HasField("age_s")) == (pb.PageOwner.FREE, False)
    assert (owner.kind, owner.tenant, owner.age_s) == (pb.PageOwner.KV, "acme", 1.5)


async def test_a_weight_that_is_no_number_is_refused(client):
    async with client.session() as session:
        submit = text_request("p")
        submit.slo.weight = float("nan")
        error = (await session.run(submit)).error
    assert error.code == "invalid_value" and error.param == "slo.weight"


async def test_constraints_reach_the_engine_compiled(client, host, engine, monkeypatch):
    tokenizer = host.inputs.tokenizer
    tokenizer.eos_token_ids = frozenset({0})
    grammars = Grammars(tokenizer, tokenizer.vocab_size)
    monkeypatch.setattr(host.inputs, "grammars", grammars)
    compiled_on = set()
    compile_ = grammars.compile

    def compiled(constraint):
        compiled_on.add(threading.current_thread().name.split("_")[0])
        return compile_(constraint)

    monkeypatch.setattr(grammars, "compile", compiled)
    choice = pb.Constraint(kind=pb.Constraint.CHOICE, text='["yes", "no"]')
    async with client.session() as session:
        for _ in range(2):
            request = text_request("p")
            request.constraint.CopyFrom(choice)
            assert (await session.run(request)).usage.outcome == "finished"
            assert engine.prompts[request.request_id].grammar is grammars.find(Constraint(Kind.CHOICE, choice.text))
        assert compiled_on == {"grammars", "MainThread"}  # the second time it was there
        for wrong in (pb.Constraint(kind=pb.Constraint.REGEX, text="("), pb.Constraint(kind=77)):
            request = text_request("p")
            request.constraint.CopyFrom(wrong)
            refused = await session.run(request)
            assert refused.error.code == "invalid_constraint" and refused.error.fix
            assert refused.usage.outcome == "refused"
    grammars.close()
