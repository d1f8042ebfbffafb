"""Steps with a prompt, run once before the first request: it must not wait for a compiler.

Decode steps are compiled when their graphs are captured.
"""

from __future__ import annotations

import logging
import time

import torch

from lora_engine.memory.page_pool import PagePool
from lora_kernels.attention import LONG
from lora_kernels.forms import Form, LoraShape
from lora_kernels.tiles import Span, token_tiles

from .loading import prefill_batch
from .transformer import Transformer
from .triton_ops import ALL_GROUPS, USUAL_RANKS, LoraPlan, TritonOps

log = logging.getLogger(__name__)


@torch.inference_mode()
def compile_prompt_steps(model: Transformer, pool: PagePool) -> float:
    """Short and long prompts, with and without adapters; overwrites the first pages of an unused ``pool``.

    Returns the seconds that it took.
    """
    ops = model.ops
    assert isinstance(ops, TritonOps), "only the Triton backend compiles"
    started = time.perf_counter()
    room = (pool.num_pages - 1) * pool.geometry.page_tokens
    longest = min(model.shape.cos.shape[0], room)
    for tokens in {min(count, longest) for count in (pool.geometry.page_tokens, LONG + 1)}:
        batch = prefill_batch(tokens, pool.geometry, model.device)
        model.forward(batch, pool)
        for rank in USUAL_RANKS:
            shape = LoraShape(Form.MANY, rank)
            tiles = token_tiles([Span(0, 0, tokens, 0)], Form.MANY).to(model.device)
            plan = ops.plan(batch, pool)
            plan.lora = LoraPlan(tiles, shape, ops.shrink_workspace(shape, tokens))
            plan.groups = ALL_GROUPS
            model.run(batch.token_ids, batch.logit_rows, plan)
    seconds = time.perf_counter() - started
    log.info("compiled what prompts run in %.1f s", seconds)
    return seconds
