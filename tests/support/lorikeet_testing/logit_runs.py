"""Requests of the base and of adapters run in one engine, with the logits of each token."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from lora_engine.engine import Engine
from lora_engine.request import GenerationRequest, SamplingParams

from .shape_runs import captured_logits
from .tiny_models import VOCAB, Adapter

# The tokens of each request, and the logits that each was sampled from.
Answers = dict[str, tuple[list[int], list[torch.Tensor]]]


def requests_of(adapters: Sequence[Adapter], lengths: Sequence[int], new: int, seed: int) -> list[GenerationRequest]:
    """Return a request of random tokens for each of ``lengths``: the base's, then the adapters' in turn."""
    rnd, digests = random.Random(seed), ["", *(adapter.digest for adapter in adapters)]
    # With log-probabilities, every step goes through ``sample``.
    params = SamplingParams(max_tokens=new, ignore_eos=True, logprobs=True)
    return [
        GenerationRequest(str(i), [rnd.randrange(VOCAB) for _ in range(length)], params, digests[i % len(digests)])
        for i, length in enumerate(lengths)
    ]


def run(engine: Engine, requests: Sequence[GenerationRequest]) -> Answers:
    """Run requests together to their end, and check the engine's pool after every step."""
    answers: Answers = {request.request_id: ([], []) for request in requests}
    for request in requests:
        engine.add_request(request)
    with captured_logits() as seen:
        while engine.has_work():
            output = engine.step()
            engine.core.check()
            for delta in output.deltas:
                answers[delta.request_id][0].extend(delta.token_ids)
                answers[delta.request_id][1].append(seen.pop(0))
            assert all(end.error is None for end in output.finished)
    return answers


def tokens_of(answers: Answers) -> dict[str, list[int]]:
    return {name: tokens for name, (tokens, _) in answers.items()}


def logit_error(got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> float:
    """Return the largest error of a token's logits relative to their norm."""
    return max(float((a - b).norm() / b.norm()) for a, b in zip(got, want, strict=True))


def largest_error(got: Answers, want: Answers) -> float:
    """Return the largest error of a token's logits in any request of ``got``."""
    return max(logit_error(got[name][1], want[name][1]) for name in got)
