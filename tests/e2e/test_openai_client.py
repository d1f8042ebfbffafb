"""The official OpenAI client works unchanged: streaming and not, every demo adapter, errors."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from lorikeet_testing.launched import ROOT, Access

QUESTION = "Where is my order?"


@pytest.fixture(scope="module")
def client(access: Access) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{access.url}/v1", api_key=access.key, max_retries=0, timeout=60) as made:
        yield made


@pytest.fixture(scope="module")
def model_names(client: openai.OpenAI) -> list[str]:
    """The base and the demo's own adapters, whatever other tests have uploaded beside them."""
    bundled = {"lorikeet-demo", *(folder.name for folder in (ROOT / "demo" / "adapters").iterdir())}
    listed = [model.id for model in client.models.list()]
    assert bundled <= set(listed)
    return [name for name in listed if name in bundled]


def ask(client: openai.OpenAI, model: str, question: str = QUESTION) -> str:
    answer = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": question}], temperature=0, max_tokens=60
    )
    assert answer.choices[0].finish_reason in {"stop", "length"}
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    return answer.choices[0].message.content or ""


def test_the_base_model_and_the_adapters_are_listed(client: openai.OpenAI, model_names: list[str]) -> None:
    assert len(model_names) >= 5
    assert client.models.retrieve(model_names[0]).id == model_names[0]


def test_every_adapter_speaks_differently(client: openai.OpenAI, model_names: list[str]) -> None:
    answers = {model: ask(client, model) for model in model_names}
    assert all(answers.values()), answers
    assert len(set(answers.values())) == len(answers), answers


def test_streamed_and_whole_answers_are_the_same(client: openai.OpenAI, model_names: list[str]) -> None:
    for model in model_names:
        stream = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": QUESTION}], temperature=0, max_tokens=60,
            stream=True, stream_options={"include_usage": True},
        )  # fmt: skip
        chunks = list(stream)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == ask(client, model)
        assert len([chunk for chunk in chunks if chunk.choices]) > 2
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.completion_tokens > 0


def test_text_completions(client: openai.OpenAI, model_names: list[str]) -> None:
    answer = client.completions.create(model=model_names[0], prompt="Once upon a time", max_tokens=12, temperature=0)
    streamed = client.completions.create(
        model=model_names[0], prompt="Once upon a time", max_tokens=12, temperature=0, stream=True
    )
    assert answer.choices[0].text
    assert "".join(chunk.choices[0].text for chunk in streamed if chunk.choices) == answer.choices[0].text


def test_sampling_parameters_are_honoured(client: openai.OpenAI, model_names: list[str]) -> None:
    def sample(seed: int) -> list[str]:
        answer = client.chat.completions.create(
            model=model_names[0], messages=[{"role": "user", "content": "Tell me a story."}],
            temperature=1.0, top_p=0.95, seed=seed, n=2, max_tokens=24,
        )  # fmt: skip
        return [choice.message.content or "" for choice in answer.choices]

    first = sample(1)
    assert len(first) == 2
    assert sample(1) == first
    assert sample(2) != first


def test_stop_and_log_probabilities(client: openai.OpenAI, model_names: list[str]) -> None:
    whole = ask(client, model_names[0])
    word = whole.split()[2]
    answer = client.chat.completions.create(
        model=model_names[0], messages=[{"role": "user", "content": QUESTION}], temperature=0, max_tokens=60,
        stop=[word], logprobs=True, top_logprobs=3,
    )  # fmt: skip
    assert word not in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].logprobs is not None
    first = (answer.choices[0].logprobs.content or [])[0]
    assert first.logprob <= 0
    assert len(first.top_logprobs) == 3


def test_errors_are_the_clients_own_exceptions(client: openai.OpenAI, access: Access, model_names: list[str]) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        ask(client, "no-such-adapter")
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as too_long:
        ask(client, model_names[0], "word " * 20_000)
    assert too_long.value.code == "context_length_exceeded"
    stranger = client.with_options(api_key="lk_wrong_key")
    with pytest.raises(openai.AuthenticationError):
        ask(stranger, model_names[0])
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model=model_names[0], messages=[{"role": "user", "content": "x"}], temperature=9)
    assert wrong.value.param == "temperature"
