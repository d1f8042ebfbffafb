"""Sampling: distributions, penalties, determinism, independence from the batch."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from lora_engine import sampling
from lora_engine.errors import RequestError
from lora_engine.request import SamplingParams, TokenLogprob
from lora_engine.sampling import SamplingRow, gumbel
from lora_engine.sampling import sample as sample_on_device

VOCAB = 50


def sample(logits: torch.Tensor, rows: list[SamplingRow]) -> tuple[list[int], list[TokenLogprob | None]]:
    samples = sample_on_device(logits, rows)
    tokens = samples.tokens.tolist()
    return tokens, samples.logprobs(tokens, rows)


def row(position: int = 0, seed: int = 7, **params: object) -> SamplingRow:
    return SamplingRow(SamplingParams(**params), seed, position)  # type: ignore[arg-type]


def draw(logits: torch.Tensor, count: int, **params: object) -> Counter[int]:
    rows = [row(position=i, **params) for i in range(count)]
    tokens, _ = sample(logits.expand(count, -1), rows)
    return Counter(tokens)


def test_greedy_is_argmax() -> None:
    logits = torch.randn(5, VOCAB)
    assert sample(logits, [row() for _ in range(5)])[0] == logits.argmax(-1).tolist()


def test_frequencies_follow_the_softmax() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -30.0])
    counts = draw(logits, 40_000, temperature=1.3)
    wanted = torch.softmax(logits / 1.3, -1)
    for token in range(5):
        assert counts[token] / 40_000 == pytest.approx(float(wanted[token]), abs=0.012)


def test_top_k_top_p_and_min_p_keep_what_they_should() -> None:
    logits = torch.log(torch.tensor([0.4, 0.3, 0.2, 0.1]))
    assert set(draw(logits, 2000, temperature=1.0, top_k=2)) == {0, 1}
    assert set(draw(logits, 2000, temperature=1.0, top_p=0.69)) == {0, 1}
    assert set(draw(logits, 2000, temperature=1.0, top_p=0.71)) == {0, 1, 2}
    assert set(draw(logits, 2000, temperature=1.0, min_p=0.6)) == {0, 1}
    assert set(draw(logits, 200, temperature=2.0, top_p=1e-6)) == {0}


def test_a_token_depends_on_seed_and_position_only() -> None:
    logits = torch.randn(6, VOCAB)
    rows = [row(position=i, seed=i * 11, temperature=1.0, top_p=0.9) for i in range(6)]
    mixed, _ = sample(logits, rows)
    alone = [sample(logits[i : i + 1], [rows[i]])[0][0] for i in range(6)]
    assert mixed == alone
    reseeded = [row(position=i, seed=i * 11 + 1, temperature=1.0) for i in range(6)]
    assert len({tuple(sample(logits * 0, r)[0]) for r in (rows, reseeded)}) == 2


def test_noise_is_standard_gumbel_and_uncorrelated_across_positions() -> None:
    seeds = torch.full((200,), 3, dtype=torch.int64)
    noise = gumbel(seeds, torch.arange(200), 1000)
    assert noise.isfinite().all()
    assert float(noise.mean()) == pytest.approx(0.5772, abs=0.01)
    assert float(noise.std()) == pytest.approx(1.2825, abs=0.02)
    correlation = torch.corrcoef(noise)
    assert float((correlation - torch.eye(200)).abs().max()) < 0.2


@pytest.mark.parametrize("bits", [0, -1], ids=["least", "most"])
def test_no_token_has_infinite_noise(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be chosen whatever its score: over a large vocabulary, in every hundredth draw."""
    monkeypatch.setattr(sampling, "_mix", lambda z: torch.full_like(z, bits))
    noise = gumbel(torch.tensor([1]), torch.tensor([2]), 3)
    assert noise.isfinite().all()
    assert (noise > 20 if bits == 0 else noise < -2).all()


def test_large_noise_is_fine_grained() -> None:
    """The largest of a large vocabulary decides: its distribution must not be that of a few coarse steps."""
    largest = gumbel(torch.arange(60), torch.zeros(60, dtype=torch.int64), 200_000).flatten().topk(200).values
    assert len(largest.unique()) == 200


def test_equal_scores_are_kept_together() -> None:
    logits = torch.tensor([2.0, 1.0, 1.0, 1.0, 0.0])
    assert set(draw(logits, 500, temperature=1.0, top_k=2)) == {0, 1, 2, 3}
    assert set(draw(logits, 500, temperature=1.0, top_p=0.5)) == {0, 1, 2, 3}


def test_penalties_match_their_definitions() -> None:
    logits = torch.tensor([[1.0, 0.9, -0.5, 0.2]])
    counted = SamplingRow(
        SamplingParams(presence_penalty=0.5, frequency_penalty=0.25), 0, 0, output_counts=Counter({0: 2})
    )
    assert sample(logits, [counted])[0] == [1]  # 1 - 0.5 - 2 * 0.25 = 0 < 0.9
    repeated = SamplingRow(SamplingParams(repetition_penalty=2.0), 0, 0, prompt_tokens=frozenset({0, 1}))
    assert sample(torch.tensor([[1.0, 0.9, -0.5, 0.6]]), [repeated])[0] == [3]
    biased = SamplingRow(SamplingParams(logit_bias={2: 100.0}), 0, 0)
    assert sample(logits, [biased])[0] == [2]


def test_each_row_has_its_own_penalties() -> None:
    logits = torch.randn(4, VOCAB)
    rows = [
        SamplingRow(SamplingParams(frequency_penalty=1.5), 0, 0, output_counts=Counter({3: 2, 7: 1})),
        row(),
        SamplingRow(SamplingParams(repetition_penalty=3.0, logit_bias={5: 4.0}), 0, 0, frozenset({1, 2, 5})),
        row(logit_bias={9: -50.0, 5: 2.0}, presence_penalty=1.0),
    ]
    before = logits.clone()
    mixed, _ = sample(logits, rows)
    assert torch.equal(logits, before)  # what log-probabilities are read from
    assert mixed == [sample(logits[i : i + 1], [rows[i]])[0][0] for i in range(4)]


@pytest.mark.gpu
def test_choosing_never_waits_for_the_device() -> None:
    """Else the host could not prepare the next step while this one runs."""
    logits = torch.randn(5, 5000, device="cuda", dtype=torch.bfloat16)
    rows = [
        row(),
        row(temperature=1.0),
        row(temperature=0.8, top_p=0.9, top_k=20, min_p=0.01, logprobs=True, top_logprobs=3),
        SamplingRow(SamplingParams(presence_penalty=1.0), 0, 0, output_counts=Counter({3: 2})),
        row(logit_bias={2: 100.0}, repetition_penalty=1.1),
    ]
    sample_on_device(logits, rows)  # compiles
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        samples = sample_on_device(logits, rows)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    tokens = samples.tokens.tolist()
    assert tokens[4] == 2
    on_host = sample_on_device(logits.cpu(), rows)
    assert tokens == on_host.tokens.tolist()
    scored, wanted = samples.logprobs(tokens, rows)[2], logits[2].float().log_softmax(-1)
    assert scored is not None and scored.logprob == pytest.approx(float(wanted[tokens[2]]), abs=1e-3)


def test_logprobs_are_those_of_the_model_before_temperature() -> None:
    logits = torch.randn(2, VOCAB)
    tokens, logprobs = sample(logits, [row(logprobs=True, top_logprobs=3, temperature=0.5), row()])
    wanted = torch.log_softmax(logits, -1)
    first = logprobs[0]
    assert logprobs[1] is None and first is not None
    assert first.logprob == pytest.approx(float(wanted[0, tokens[0]]))
    assert [t for t, _ in first.top] == wanted[0].topk(3).indices.tolist()


def test_mixed_greedy_and_random_rows() -> None:
    logits = torch.randn(4, VOCAB)
    rows = [row(), row(temperature=1.0), row(), row(temperature=0.7, top_k=5)]
    tokens, _ = sample(logits, rows)
    best = logits.argmax(-1).tolist()
    assert (tokens[0], tokens[2]) == (best[0], best[2])
    assert tokens[3] in logits[3].topk(5).indices.tolist()


def test_the_least_repetition_penalty_is_accepted_as_it_comes_from_the_wire() -> None:
    """As float32, 0.01 is less than 0.01."""
    for number in (0.01, float(torch.tensor(0.01))):
        SamplingParams(repetition_penalty=number).validate(10)
    with pytest.raises(RequestError, match="repetition_penalty"):
        SamplingParams(repetition_penalty=0.0099).validate(10)
    with pytest.raises(RequestError, match="temperature"):
        SamplingParams(temperature=-1e-9).validate(10)
