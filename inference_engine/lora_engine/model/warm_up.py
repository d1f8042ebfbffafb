"""Warm-up: prefill steps and every kind of sampling run once at start, so that no request waits for a compiler.

Decode steps are compiled when their graphs are captured.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from itertools import product

import numpy as np
import torch

from lora_engine.memory.page_pool import PagePool
from lora_engine.request import SamplingParams
from lora_engine.sampling import SamplingRow, sample
from lora_kernels.attention import LEAST_SPLIT_KEYS, LONG
from lora_kernels.experts import form_of, least_tokens
from lora_kernels.kernel_variants import KernelVariant
from lora_kernels.work_items import Span, token_tiles

from .loading import prefill_batch
from .transformer import Transformer
from .triton_ops import ALL_GROUPS, USUAL_RANKS, TritonOps, usual_shapes

log = logging.getLogger(__name__)


@torch.inference_mode()
def compile_prefill_steps(model: Transformer, pool: PagePool) -> float:
    """Compile the kernels of short and long prompts, with and without adapters; returns the seconds that it took.

    This overwrites the first pages of an unused ``pool``.
    """
    started = time.perf_counter()
    # A draft head's hidden states have no room for steps as long as these, which may be longer than any that runs.
    layer_inputs, model.layer_inputs = model.layer_inputs, None
    try:
        prefill_steps(model, pool)
    finally:
        model.layer_inputs = layer_inputs
    seconds = time.perf_counter() - started
    log.info("compiled prefill steps in %.1f s", seconds)
    return seconds


def prefill_steps(
    model: Transformer, pool: PagePool, layers: Sequence[int] | None = None, ranks: Sequence[int] = USUAL_RANKS
) -> None:
    """Run prefill steps in ``layers`` (None: all), with adapters of ``ranks``."""
    ops = model.ops
    assert isinstance(ops, TritonOps), "only the Triton backend compiles"
    room = (pool.num_pages - 1 - pool.geometry.state_pages) * pool.geometry.page_tokens
    longest = min(model.shape.max_context, room)
    page = min(pool.geometry.page_tokens, longest)
    steps = {(page, 0), (min(LONG + 1, longest), 0)}
    if LEAST_SPLIT_KEYS + page <= longest:  # the last message of a long conversation: its keys are split
        steps.add((page, LEAST_SPLIT_KEYS))
    if (experts := model.shape.experts) is not None:
        stacks = (layer.experts.gate_up for layer in model.weights.layers if layer.experts is not None)
        least = least_tokens(experts.count, experts.per_token, form_of(next(stacks)))
        steps |= {(tokens, 0) for tokens in least if tokens <= longest}
    for tokens, context in sorted(steps):
        batch = prefill_batch(tokens, pool.geometry, model.device, context)
        logits = model.run(batch.token_ids, batch.logit_rows, ops.plan(batch, pool), layers=layers)
        for shape in usual_shapes(KernelVariant.PREFILL, ranks, ops.invariant):
            plan = ops.plan(batch, pool)
            plan.lora = (ops.lora_plan(token_tiles([Span(0, 0, tokens, 0)], KernelVariant.PREFILL), shape, tokens),)
            plan.groups = ALL_GROUPS
            model.run(batch.token_ids, batch.logit_rows, plan, layers=layers)
    every_token = np.full((logits.shape[1] + 31) // 32, -1, dtype=np.int32)
    for top_p, bias in product((1.0, 0.9), ({}, {0: 1.0})):
        for temperature in (0.0, 1.0):
            sampling = SamplingParams(temperature=temperature, top_p=top_p, logit_bias=bias)
            for mask in (None, every_token):
                sample(logits, [SamplingRow(sampling, seed=0, position=0, mask=mask)] * len(logits))
