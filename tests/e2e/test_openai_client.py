"""The official OpenAI client works unchanged: streaming and not, every demo adapter, errors."""

from __future__ import annotations

import math
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


def test_errors_are_the_clients_own_exceptions(client: openai.OpenAI, model_names: list[str]) -> None:
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


def test_vectors_of_the_base_and_of_an_adapter(client: openai.OpenAI) -> None:
    texts = ["Where is my order?", "Where is my parcel?", "Ahoy 🦜"]
    by_model = {name: client.embeddings.create(model=name, input=texts) for name in ("lorikeet-demo", "pirate")}
    for answer in by_model.values():
        assert [item.index for item in answer.data] == [0, 1, 2]
        assert all(math.isclose(sum(x * x for x in item.embedding), 1, abs_tol=1e-5) for item in answer.data)
        assert answer.usage.prompt_tokens == answer.usage.total_tokens > 3
    base, pirate = (answer.data[0].embedding for answer in by_model.values())
    assert base != pytest.approx(pirate, abs=1e-3)


def test_formats_dimensions_pooling_and_tokens(client: openai.OpenAI) -> None:
    text = "Where is my order?"
    whole = client.embeddings.create(model="pirate", input=text).data[0].embedding
    numbers = client.embeddings.create(model="pirate", input=text, encoding_format="float").data[0].embedding
    assert numbers == pytest.approx(whole, abs=1e-8)
    few = client.embeddings.create(model="pirate", input=text, dimensions=8).data[0].embedding
    length = math.sqrt(sum(x * x for x in whole[:8]))
    assert few == pytest.approx([x / length for x in whole[:8]], abs=1e-6)
    mean = client.embeddings.create(model="pirate", input=text, extra_body={"pooling": "mean"}).data[0].embedding
    assert mean != pytest.approx(whole, abs=1e-3)
    tokens = client.post("../tokenize", body={"model": "pirate", "prompt": text}, cast_to=object)
    assert isinstance(tokens, dict)
    by_tokens = client.embeddings.create(model="pirate", input=tokens["tokens"]).data[0].embedding
    assert by_tokens == pytest.approx(whole, abs=1e-6)
    told = client.post("../detokenize", body={"model": "pirate", "tokens": tokens["tokens"]}, cast_to=object)
    assert told == {"prompt": f"<|begin|>{text}"}


def test_a_prompt_is_scored(client: openai.OpenAI) -> None:
    choice = client.completions.create(
        model="pirate", prompt="Where is my order?", echo=True, logprobs=2, max_tokens=0
    ).choices[0]
    assert choice.text == "Where is my order?"
    assert choice.logprobs is not None
    assert choice.logprobs.token_logprobs is not None
    assert choice.logprobs.top_logprobs is not None
    first, *others = choice.logprobs.token_logprobs
    assert first is None
    assert all(value < 0 for value in others)
    for value, top in zip(others, choice.logprobs.top_logprobs[1:], strict=True):
        assert value in top.values()
