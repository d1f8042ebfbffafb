"""LoRA on experts: each pair of a token and an expert has the rows of its own adapter and its own expert in the pool.

The products with A come first, for all pairs (``shrink_experts``). Those with B are part of the products of the experts
(``experts.py``), where a program adds them up for each adapter among its pairs before the activation. The pairs of an
expert are in order of tokens, so an adapter's are adjacent, and a program has few of them. A program of a prompt's step
has more pairs, and may have many: then the products with B are computed before (``expand_experts``), for a few pairs in
each program.

With ``ResidencyTables``, an expert's rows may lie in page-locked host memory instead, which a program then reads
through the bus: its address is the pool's plus a distance. Any routing is served, whatever lies in the pool.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from .fp8_tensors import FP8
from .kernel_variants import block_columns
from .pdl import grid_dependency_wait, launch_dependents, pdl_options
from .tables import EXPERT_FIELDS, EXPERT_MODULES, FP8_ROWS, HOST_ROWS, HOST_UNIT, SlotTables

# Slots, more than any table has.
_FAR = tl.constexpr(1 << 30)
_FIELDS = tl.constexpr(EXPERT_FIELDS)
_MODULES = tl.constexpr(EXPERT_MODULES)
_FP8_ROWS = tl.constexpr(FP8_ROWS)
_HOST_ROWS, _HOST_BITS = tl.constexpr(HOST_ROWS), tl.constexpr(8 * HOST_UNIT)
# Ranks of a program. One of a pair reads so many times so many elements of x at a time.
_RANKS, _PARTS, _COLUMNS = 16, 4, 256
# Pairs of a program of the experts' products from which on those with B are computed before, unless all its pairs have
# the same adapter.
MANY = 64
# Pairs per expert up to which each pair has programs of its own, which read A again for each.
_FEW = 4
# Programs that share the adapters of a block of few pairs; each of their warps reads so many elements of x at a time.
# With more, fewer programs fit on a multiprocessor, and the next kernel starts only when all have.
_ADAPTERS, _WAYS, _WAY_COLUMNS = 4, 4, 64
# Pairs of a program, and warps and elements of x read at a time, where an expert has many pairs. Each of the few
# adapters among so few pairs has a product of all of them.
_BLOCK, _BLOCK_WARPS, _BLOCK_COLUMNS = 16, 1, 256
# Outputs that a program of ``expand_experts`` computes at a time, its warps, and the programs that share a block's.
_EXPANDED, _EXPAND_WARPS, _EXPAND_PROGRAMS = 256, 2, 2


class ExpertLora(NamedTuple):
    """The adapters of a step on the experts of ``layer``.

    ``slots [tokens]`` int32: each token's adapter in ``tables``, 0: none. ``pool [pages, page_elems]`` is the layer's,
    with pool rows of ``kv_dim`` elements. ``max_rank`` bounds the rank of their modules.
    """

    slots: torch.Tensor
    pool: torch.Tensor
    tables: SlotTables
    layer: int
    kv_dim: int
    max_rank: int

    @property
    def pools(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The pool in its dtype, and as FP8 (``FP8_ROWS`` in ``tables``) if any adapter may have that."""
        return self.pool, self.pool.view(FP8) if self.tables.fp8_rows else self.pool

    @property
    def residency(self) -> tuple[torch.Tensor, ...]:
        """The tensors of ``ResidencyTables``: rows of slots, places, distances of host memory, and counts."""
        tables = self.tables.residency
        if tables is None:
            return (self.slots,) * 4  # nothing is read
        return tables.row_of, tables.places, tables.host, tables.counts


@triton.jit
def range_of_slots(slots):
    """Return the smallest and the largest of ``slots`` above 0; the largest is 0 if there is none.

    A program that knows both needs no search among its pairs if they have one adapter.
    """
    return tl.min(tl.where(slots > 0, slots, _FAR), axis=0), tl.max(slots, axis=0)


@triton.jit
def have_one_slot(slots, ok):
    """Return whether all pairs that are ``ok`` have the same adapter, or all none."""
    return tl.min(tl.where(ok, slots, _FAR), axis=0) == tl.max(tl.where(ok, slots, 0), axis=0)


@triton.jit
def next_slot(slots, slot, highest):
    """Return the smallest of ``slots`` above ``slot``, or a number above ``highest``."""
    following = _FAR + 0 * slot
    if slot < highest:
        following = tl.min(tl.where(slots > slot, slots, _FAR), axis=0)
    return following


@triton.jit
def module_entry(modules_ptr, slot, layer, slot_stride, module):
    """Return the place of a module's entry in the table of experts' modules."""
    return modules_ptr + slot.to(tl.int64) * slot_stride + (layer * _MODULES + module) * _FIELDS


@triton.jit
def source_of(entry, MODULE: tl.constexpr):
    """Return which of gate's and up's products with A a module uses: gate's for both if they have the same A."""
    source = 0
    if MODULE == 1:
        same = (tl.load(entry) == tl.load(entry - _FIELDS)) & (tl.load(entry - _FIELDS + 4) > 0)
        source = tl.where(same, 0, 1)
    return source


@triton.jit
def first_row(
    entry, slot, layer, expert, row_of_ptr, places_ptr, host_ptr, slot_stride, EXPERTS: tl.constexpr,
    RESIDENCY: tl.constexpr,
):  # fmt: skip
    """Return the first pool row of an expert's factor, whose fields begin at ``entry``, and where it counts from.

    That is 0 for the adapter's pages, else the distance of host memory in ``HOST_UNIT`` bytes.
    """
    first, step = tl.load(entry), tl.load(entry + 1)
    moved = expert * step
    host = tl.zeros((), dtype=tl.int64)
    if RESIDENCY:
        row = tl.load(row_of_ptr + slot)
        if (row > 0) & (step > 0):
            of_layer = row.to(tl.int64) * (slot_stride // (_MODULES * _FIELDS)) + layer
            moved = tl.load(places_ptr + of_layer * EXPERTS + expert)
            if moved >= _HOST_ROWS:
                moved -= _HOST_ROWS
                host = tl.load(host_ptr + of_layer)
    return first + moved, host


@triton.jit
def _count(slot, pairs, layer, expert, row_of_ptr, counts_ptr, slot_stride, EXPERTS: tl.constexpr):
    """Count pairs of an adapter and an expert, if only some of its experts may lie in the pool."""
    row = tl.load(row_of_ptr + slot)
    if row > 0:
        of_layer = row.to(tl.int64) * (slot_stride // (_MODULES * _FIELDS)) + layer
        tl.atomic_add(counts_ptr + of_layer * EXPERTS + expert, pairs, sem="relaxed")


@triton.jit
def _rows_of(
    pages_ptr, pool_row, mask, host, UNIT: tl.constexpr, KV_DIM: tl.constexpr, ROWS_PER_PAGE: tl.constexpr,
    RESIDENCY: tl.constexpr,
):  # fmt: skip
    """Return the places of pool rows of an adapter, whose pages begin at ``pages_ptr``, or in its ``host`` memory."""
    if RESIDENCY:
        page = tl.load(pages_ptr + pool_row // ROWS_PER_PAGE, mask=mask & (host == 0), other=0)
        places = page.to(tl.int64) * (ROWS_PER_PAGE * KV_DIM) + (pool_row % ROWS_PER_PAGE) * KV_DIM
        places = tl.where(host == 0, places, host * UNIT + pool_row.to(tl.int64) * KV_DIM)
    else:
        page = tl.load(pages_ptr + pool_row // ROWS_PER_PAGE, mask=mask, other=0)
        places = page.to(tl.int64) * (ROWS_PER_PAGE * KV_DIM) + (pool_row % ROWS_PER_PAGE) * KV_DIM
    return places


@triton.jit
def _wait_for_x(FIRST: tl.constexpr, PDL: tl.constexpr):
    """Wait for the kernel that computes x, unless that was done before, and only then let the next kernel start.

    When it starts, everything before this kernel is thus complete, and it needs to wait for this kernel's output alone.
    """
    if FIRST > 0:
        grid_dependency_wait(PDL)
        launch_dependents(PDL)


@triton.jit
def _sum_of_pair(
    x_ptr, pool_ptr, pages_ptr, first, host, rows, rows_ok, FIRST: tl.constexpr, IN: tl.constexpr, KV_DIM: tl.constexpr,
    ROWS_PER_PAGE: tl.constexpr, RESIDENCY: tl.constexpr, BLOCK_R: tl.constexpr, PARTS: tl.constexpr,
    BLOCK_K: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Return the products of rows of A with one row of x, ``[BLOCK_R]``."""
    PER_ROW: tl.constexpr = (IN + KV_DIM - 1) // KV_DIM
    UNIT: tl.constexpr = _HOST_BITS // pool_ptr.dtype.element_ty.primitive_bitwidth
    inner = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_R,), dtype=tl.float32)
    for k in range(0, IN, PARTS * BLOCK_K):
        column = k + tl.arange(0, PARTS) * BLOCK_K
        row = first + rows[:, None] * PER_ROW + (column // KV_DIM)[None, :]
        ok = rows_ok[:, None] & (column < IN)[None, :]
        at = _rows_of(pages_ptr, row, ok, host, UNIT, KV_DIM, ROWS_PER_PAGE, RESIDENCY) + (column % KV_DIM)[None, :]
        columns = column[:, None] + inner[None, :]
        a = tl.load(
            pool_ptr + at[:, :, None] + inner[None, None, :],
            mask=rows_ok[:, None, None] & (columns < IN)[None, :, :],
            other=0.0,
        )
        _wait_for_x(FIRST, PDL)
        x = tl.load(x_ptr + columns, mask=columns < IN, other=0.0)
        total += tl.sum(tl.sum(a.to(tl.float32) * x.to(tl.float32)[None, :, :], axis=2), axis=1)
    return total


@triton.jit
def _sums_in_ways(
    x_rows, pool_ptr, pages_ptr, first, host, rows, rows_ok, mine, FIRST: tl.constexpr, IN: tl.constexpr,
    KV_DIM: tl.constexpr, ROWS_PER_PAGE: tl.constexpr, RESIDENCY: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_R: tl.constexpr, WAYS: tl.constexpr, BLOCK_K: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Return the products of rows of A with rows of x, ``[BLOCK_M, BLOCK_R]``; each warp multiplies its columns.

    All of A that a round needs is on its way before the first product.
    """
    PER_ROW: tl.constexpr = (IN + KV_DIM - 1) // KV_DIM
    UNIT: tl.constexpr = _HOST_BITS // pool_ptr.dtype.element_ty.primitive_bitwidth
    inner = tl.arange(0, BLOCK_K)
    acc = tl.zeros((WAYS, BLOCK_R, BLOCK_M), dtype=tl.float32)
    for k in range(0, IN, WAYS * BLOCK_K):
        column = k + tl.arange(0, WAYS) * BLOCK_K
        row = first + rows[None, :] * PER_ROW + (column // KV_DIM)[:, None]
        ok = rows_ok[None, :] & (column < IN)[:, None]
        at = _rows_of(pages_ptr, row, ok, host, UNIT, KV_DIM, ROWS_PER_PAGE, RESIDENCY) + (column % KV_DIM)[:, None]
        columns = column[:, None] + inner[None, :]
        a = tl.load(
            pool_ptr + at[:, :, None] + inner[None, None, :],
            mask=rows_ok[None, :, None] & (columns < IN)[:, None, :],
            other=0.0,
        )
        _wait_for_x(FIRST, PDL)
        x = tl.load(
            x_rows[None, None, :] + columns[:, :, None],
            mask=mine[None, None, :] & (columns < IN)[:, :, None],
            other=0.0,
        )
        acc = tl.dot(a.to(x.dtype), x, acc, input_precision="ieee")
    return tl.trans(tl.sum(acc, axis=0))


@triton.jit
def _sums_of_block(
    x_rows, pool_ptr, pages_ptr, first, host, rows, rows_ok, mine, IN: tl.constexpr, KV_DIM: tl.constexpr,
    ROWS_PER_PAGE: tl.constexpr, RESIDENCY: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_R: tl.constexpr,
    BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Return the products of rows of A with rows of x, ``[BLOCK_M, BLOCK_R]``."""
    PER_ROW: tl.constexpr = (IN + KV_DIM - 1) // KV_DIM
    UNIT: tl.constexpr = _HOST_BITS // pool_ptr.dtype.element_ty.primitive_bitwidth
    columns = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_R), dtype=tl.float32)
    for k in range(0, IN, BLOCK_K):
        row = first + rows * PER_ROW + k // KV_DIM
        at = _rows_of(pages_ptr, row, rows_ok, host, UNIT, KV_DIM, ROWS_PER_PAGE, RESIDENCY)
        ok = k + columns < IN
        a = tl.load(pool_ptr + (at + k % KV_DIM)[None, :] + columns[:, None], mask=ok[:, None] & rows_ok[None, :],
                    other=0.0)  # fmt: skip
        x = tl.load(x_rows[:, None] + (k + columns)[None, :], mask=mine[:, None] & ok[None, :], other=0.0)
        acc = tl.dot(x, a.to(x.dtype), acc, input_precision="ieee")
    return acc


@triton.jit(do_not_specialize=["layer"])
def _shrink_pairs_kernel(
    x_ptr, h_ptr, pool_ptr, fp8_pool_ptr, order_ptr, experts_ptr, slots_ptr, pages_ptr, modules_ptr, row_of_ptr,
    places_ptr, host_ptr, counts_ptr, layer, x_stride, pages_stride, slot_stride, IN: tl.constexpr,
    PER_TOKEN: tl.constexpr, BY_TOKEN: tl.constexpr, FIRST: tl.constexpr, NUM_MODULES: tl.constexpr,
    KV_DIM: tl.constexpr, ROWS_PER_PAGE: tl.constexpr, MAX_RANK: tl.constexpr, FP8: tl.constexpr,
    RESIDENCY: tl.constexpr, EXPERTS: tl.constexpr, BLOCK_R: tl.constexpr, PARTS: tl.constexpr, BLOCK_K: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Multiply ``BLOCK_R`` rows of A of a module by one sorted pair's input.

    For down, the routing and the factors are read ahead of the wait: gate's and up's products, the kernel before, can
    have started only when the routing was complete.
    """
    if FIRST == 0:
        grid_dependency_wait(PDL)
        launch_dependents(PDL)
    place, part = tl.program_id(0), tl.program_id(1)
    block, module = part // NUM_MODULES, part % NUM_MODULES
    pair = tl.load(order_ptr + place, cache_modifier=".cg")
    token = (pair // PER_TOKEN).to(tl.int64)
    slot = tl.load(slots_ptr + token)
    expert = tl.load(experts_ptr + pair, cache_modifier=".cg")
    if slot == 0:
        grid_dependency_wait(PDL)
        return
    if RESIDENCY and FIRST == 0:
        if part == 0:
            _count(slot, 1, layer, expert, row_of_ptr, counts_ptr, slot_stride, EXPERTS)
    entry = module_entry(modules_ptr, slot, layer, slot_stride, FIRST + module)
    rank = tl.load(entry + 4)
    if module == 1:
        if source_of(entry, 1) == 0:
            rank = 0
    if block * BLOCK_R >= rank:
        grid_dependency_wait(PDL)
        return
    first, host = first_row(
        entry, slot, layer, expert, row_of_ptr, places_ptr, host_ptr, slot_stride, EXPERTS, RESIDENCY
    )
    rows = block * BLOCK_R + tl.arange(0, BLOCK_R)
    rows_ok = rows < rank
    x_row = x_ptr + (token if BY_TOKEN else place.to(tl.int64)) * x_stride
    pages = pages_ptr + slot * pages_stride
    if FP8 > 0 and first >= _FP8_ROWS:
        sums = _sum_of_pair(
            x_row, fp8_pool_ptr, pages, first - _FP8_ROWS, host, rows, rows_ok, FIRST, IN, KV_DIM, ROWS_PER_PAGE * FP8,
            RESIDENCY, BLOCK_R, PARTS, BLOCK_K, PDL,
        )  # fmt: skip
    else:
        sums = _sum_of_pair(
            x_row, pool_ptr, pages, first, host, rows, rows_ok, FIRST, IN, KV_DIM, ROWS_PER_PAGE, RESIDENCY, BLOCK_R,
            PARTS, BLOCK_K, PDL,
        )  # fmt: skip
    out = h_ptr + (place * NUM_MODULES + module).to(tl.int64) * MAX_RANK + rows
    tl.store(out, sums.to(h_ptr.dtype.element_ty), mask=rows_ok)


@triton.jit(do_not_specialize=["layer"])
def _shrink_blocks_kernel(
    x_ptr, h_ptr, pool_ptr, fp8_pool_ptr, order_ptr, starts_ptr, slots_ptr, pages_ptr, modules_ptr, row_of_ptr,
    places_ptr, host_ptr, counts_ptr, layer, x_stride, pages_stride, slot_stride, IN: tl.constexpr,
    PER_TOKEN: tl.constexpr, BY_TOKEN: tl.constexpr, FIRST: tl.constexpr, NUM_MODULES: tl.constexpr,
    KV_DIM: tl.constexpr, ROWS_PER_PAGE: tl.constexpr, MAX_RANK: tl.constexpr, FP8: tl.constexpr,
    RESIDENCY: tl.constexpr, EXPERTS: tl.constexpr, EXPERTS_PAD: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_R: tl.constexpr, WAYS: tl.constexpr, BLOCK_K: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Multiply A of a module by the inputs of a block of an expert's sorted pairs, for each adapter among them.

    ``WAYS`` 0: each warp multiplies all columns. What is read ahead of the wait is as in ``_shrink_pairs_kernel``.
    """
    if FIRST == 0:
        grid_dependency_wait(PDL)
        launch_dependents(PDL)
    expert, start, stop = block_of_pairs(starts_ptr, tl.program_id(0), EXPERTS, EXPERTS_PAD, BLOCK_M)
    if expert >= EXPERTS:
        grid_dependency_wait(PDL)
        return
    module, number = tl.program_id(1), tl.program_id(2)
    places = start + tl.arange(0, BLOCK_M)
    places_ok = places < stop
    tokens = tl.load(order_ptr + places, mask=places_ok, other=0, cache_modifier=".cg").to(tl.int64) // PER_TOKEN
    slots = tl.load(slots_ptr + tokens, mask=places_ok, other=0)
    x_rows = x_ptr + (tokens if BY_TOKEN else places.to(tl.int64)) * x_stride
    slot, highest = range_of_slots(slots)
    # Each of several programs takes every so many adapters.
    passed = 0
    while slot <= highest:
        if passed % tl.num_programs(2) == number:
            mine = slots == slot
            entry = module_entry(modules_ptr, slot, layer, slot_stride, FIRST + module)
            rank = tl.load(entry + 4)
            if module == 1:
                if source_of(entry, 1) == 0:
                    rank = 0
            if RESIDENCY and FIRST == 0:
                if module == 0:
                    pairs = tl.sum(mine.to(tl.int32), axis=0)
                    _count(slot, pairs, layer, expert, row_of_ptr, counts_ptr, slot_stride, EXPERTS)
            first, host = first_row(
                entry, slot, layer, expert, row_of_ptr, places_ptr, host_ptr, slot_stride, EXPERTS, RESIDENCY
            )
            pages = pages_ptr + slot * pages_stride
            for r in range(0, rank, BLOCK_R):
                rows = r + tl.arange(0, BLOCK_R)
                rows_ok = rows < rank
                if FP8 > 0 and first >= _FP8_ROWS:
                    if WAYS > 0:
                        acc = _sums_in_ways(
                            x_rows, fp8_pool_ptr, pages, first - _FP8_ROWS, host, rows, rows_ok, mine, FIRST, IN,
                            KV_DIM, ROWS_PER_PAGE * FP8, RESIDENCY, BLOCK_M, BLOCK_R, WAYS, BLOCK_K, PDL,
                        )  # fmt: skip
                    else:
                        acc = _sums_of_block(
                            x_rows, fp8_pool_ptr, pages, first - _FP8_ROWS, host, rows, rows_ok, mine, IN, KV_DIM,
                            ROWS_PER_PAGE * FP8, RESIDENCY, BLOCK_M, BLOCK_R, BLOCK_K,
                        )  # fmt: skip
                else:
                    if WAYS > 0:
                        acc = _sums_in_ways(
                            x_rows, pool_ptr, pages, first, host, rows, rows_ok, mine, FIRST, IN, KV_DIM, ROWS_PER_PAGE,
                            RESIDENCY, BLOCK_M, BLOCK_R, WAYS, BLOCK_K, PDL,
                        )  # fmt: skip
                    else:
                        acc = _sums_of_block(
                            x_rows, pool_ptr, pages, first, host, rows, rows_ok, mine, IN, KV_DIM, ROWS_PER_PAGE,
                            RESIDENCY, BLOCK_M, BLOCK_R, BLOCK_K,
                        )  # fmt: skip
                out = h_ptr + (places.to(tl.int64)[:, None] * NUM_MODULES + module) * MAX_RANK + rows[None, :]
                tl.store(out, acc.to(h_ptr.dtype.element_ty), mask=mine[:, None] & rows_ok[None, :])
        passed += 1
        slot = next_slot(slots, slot, highest)
    grid_dependency_wait(PDL)


@triton.jit
def block_of_pairs(starts_ptr, block, EXPERTS: tl.constexpr, EXPERTS_PAD: tl.constexpr, BLOCK_M: tl.constexpr):
    """Return the expert of a block of sorted pairs (``EXPERTS``: there is no such block), and its first and last
    (exclusive) pair.
    """
    experts = tl.arange(0, EXPERTS_PAD)
    ok = experts < EXPERTS
    # Not through the L1 cache: a kernel that starts before the last one has ended may find an earlier layer's there.
    first = tl.load(starts_ptr + experts, mask=ok, other=0, cache_modifier=".cg")
    last = tl.load(starts_ptr + experts + 1, mask=ok, other=0, cache_modifier=".cg")
    blocks = (last - first + BLOCK_M - 1) // BLOCK_M
    ends = tl.cumsum(blocks, axis=0)
    expert = tl.sum((ok & (ends <= block)).to(tl.int32), axis=0)
    mine = experts == expert
    start = tl.sum(tl.where(mine, first + (block - ends + blocks) * BLOCK_M, 0), axis=0)
    stop = tl.sum(tl.where(mine, last, 0), axis=0)
    return expert, start, tl.minimum(stop, start + BLOCK_M)


@triton.jit
def factor_of(
    modules_ptr, scales_ptr, row_of_ptr, places_ptr, host_ptr, slot, layer, expert, column, slot_stride,
    MODULE: tl.constexpr, FIRST: tl.constexpr, KV_DIM: tl.constexpr, RESIDENCY: tl.constexpr, EXPERTS: tl.constexpr,
):  # fmt: skip
    """Return a module's rank, which of ``h`` it uses, its scale, and where B lies from output ``column`` on."""
    entry = module_entry(modules_ptr, slot, layer, slot_stride, FIRST + MODULE)
    rank = tl.load(entry + 4)
    source = source_of(entry, MODULE)
    scale = tl.load(scales_ptr + slot.to(tl.int64) * (slot_stride // _FIELDS) + layer * _MODULES + FIRST + MODULE)
    first, host = first_row(
        entry + 2, slot, layer, expert, row_of_ptr, places_ptr, host_ptr, slot_stride, EXPERTS, RESIDENCY
    )
    return rank, source, scale, first + column // KV_DIM, host


@triton.jit
def _ranks_of_b(
    pool_ptr, fp8_pool_ptr, pages_ptr, first, host, rows, rank, column, columns_ok, OUT: tl.constexpr,
    KV_DIM: tl.constexpr, ROWS_PER_PAGE: tl.constexpr, FP8: tl.constexpr, RESIDENCY: tl.constexpr,
    BLOCK_N: tl.constexpr, dtype: tl.constexpr,
):  # fmt: skip
    """Return ranks ``rows`` of B from output ``column`` on, ``[ranks, BLOCK_N]`` in ``dtype``."""
    PER_ROW: tl.constexpr = (OUT + KV_DIM - 1) // KV_DIM
    UNIT: tl.constexpr = _HOST_BITS // pool_ptr.dtype.element_ty.primitive_bitwidth
    FP8_UNIT: tl.constexpr = _HOST_BITS // 8
    ok = rows < rank
    in_row = column % KV_DIM + tl.arange(0, BLOCK_N)
    if FP8 > 0 and first >= _FP8_ROWS:
        at = _rows_of(
            pages_ptr, first - _FP8_ROWS + rows * PER_ROW, ok, host, FP8_UNIT, KV_DIM, ROWS_PER_PAGE * FP8, RESIDENCY
        )
        b = tl.load(fp8_pool_ptr + at[:, None] + in_row[None, :], mask=ok[:, None] & columns_ok[None, :],
                    other=0.0).to(dtype)  # fmt: skip
    else:
        at = _rows_of(pages_ptr, first + rows * PER_ROW, ok, host, UNIT, KV_DIM, ROWS_PER_PAGE, RESIDENCY)
        b = tl.load(pool_ptr + at[:, None] + in_row[None, :], mask=ok[:, None] & columns_ok[None, :],
                    other=0.0).to(dtype)  # fmt: skip
    return b


@triton.jit
def _ranks_of_h(h_ptr, places, source, rows, rank, mine, NUM_MODULES: tl.constexpr, MAX_RANK: tl.constexpr):
    """Return ranks ``rows`` of shrunk inputs, ``[pairs, ranks]``, with zeros for pairs that are not ``mine``."""
    h_rows = h_ptr + (places.to(tl.int64) * NUM_MODULES + source) * MAX_RANK
    return tl.load(h_rows[:, None] + rows[None, :], mask=mine[:, None] & (rows < rank)[None, :], other=0.0)


@triton.jit
def add_expert_lora(
    acc, second, h_ptr, pool_ptr, fp8_pool_ptr, pages_ptr, modules_ptr, scales_ptr, row_of_ptr, places_ptr, host_ptr,
    slots, lowest, highest, places, expert, column, columns_ok, layer, pages_stride, slot_stride, MODULE: tl.constexpr,
    MODULES: tl.constexpr, FIRST: tl.constexpr, NUM_MODULES: tl.constexpr, OUT: tl.constexpr, KV_DIM: tl.constexpr,
    ROWS_PER_PAGE: tl.constexpr, MAX_RANK: tl.constexpr, FP8: tl.constexpr, RESIDENCY: tl.constexpr,
    EXPERTS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Add ``scale * B^T h`` of each pair's adapter to ``acc [BLOCK_M, BLOCK_N]``, from output ``column`` on.

    With two ``MODULES``, that of the following one is added to ``second``. ``slots [BLOCK_M]`` are the pairs' adapters,
    0 for none and for rows without a pair, with their ``range_of_slots``; ``places`` their sorted places. ``PDL``: the
    kernel before is ``shrink_experts``, and only ``h`` is read behind the wait for it.
    """
    slot = lowest
    dtype: tl.constexpr = h_ptr.dtype.element_ty
    while slot <= highest:
        mine = slots == slot
        pages = pages_ptr + slot * pages_stride
        rank, source, scale, first, host = factor_of(
            modules_ptr, scales_ptr, row_of_ptr, places_ptr, host_ptr, slot, layer, expert, column, slot_stride, MODULE,
            FIRST, KV_DIM, RESIDENCY, EXPERTS,
        )  # fmt: skip
        most = rank
        if MODULES == 2:
            rank2, source2, scale2, first2, host2 = factor_of(
                modules_ptr, scales_ptr, row_of_ptr, places_ptr, host_ptr, slot, layer, expert, column, slot_stride,
                MODULE + 1, FIRST, KV_DIM, RESIDENCY, EXPERTS,
            )  # fmt: skip
            most = tl.maximum(rank, rank2)
            part2 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        part = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        # One stage: a pipeline would read h ahead of the wait.
        for r in tl.range(0, most, BLOCK_R, num_stages=1):
            rows = r + tl.arange(0, BLOCK_R)
            b = _ranks_of_b(
                pool_ptr, fp8_pool_ptr, pages, first, host, rows, rank, column, columns_ok, OUT, KV_DIM, ROWS_PER_PAGE,
                FP8, RESIDENCY, BLOCK_N, dtype,
            )  # fmt: skip
            if MODULES == 2:
                b2 = _ranks_of_b(
                    pool_ptr, fp8_pool_ptr, pages, first2, host2, rows, rank2, column, columns_ok, OUT, KV_DIM,
                    ROWS_PER_PAGE, FP8, RESIDENCY, BLOCK_N, dtype,
                )  # fmt: skip
            grid_dependency_wait(PDL)
            h = _ranks_of_h(h_ptr, places, source, rows, rank, mine, NUM_MODULES, MAX_RANK)
            if MODULES == 2:
                h2 = _ranks_of_h(h_ptr, places, source2, rows, rank2, mine, NUM_MODULES, MAX_RANK)
                part2 = tl.dot(h2, b2, part2, input_precision="ieee")
            part = tl.dot(h, b, part, input_precision="ieee")
        # An adapter whose factors are not finite must not change the pairs of others.
        acc += tl.where(mine[:, None], part * scale, 0.0)
        if MODULES == 2:
            second += tl.where(mine[:, None], part2 * scale2, 0.0)
        slot = next_slot(slots, slot, highest)
    return acc, second


@triton.jit
def add_lora_of_block(
    acc, h_ptr, pool_ptr, fp8_pool_ptr, pages_ptr, factor, slot, places, places_ok, column, columns_ok, pages_stride,
    NUM_MODULES: tl.constexpr, OUT: tl.constexpr, KV_DIM: tl.constexpr, ROWS_PER_PAGE: tl.constexpr,
    MAX_RANK: tl.constexpr, FP8: tl.constexpr, RESIDENCY: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr,
):  # fmt: skip
    """Add ``scale * B^T h`` of the adapter ``slot``, which all pairs of a block have, to ``acc [pairs, BLOCK_N]``.

    ``factor`` is what ``factor_of`` returns. The scale is a factor of h, except in float16: the products need no
    registers but those of ``acc``.
    """
    dtype: tl.constexpr = h_ptr.dtype.element_ty
    pages = pages_ptr + slot * pages_stride
    rank, source, scale, first, host = factor
    for r in tl.range(0, rank, BLOCK_R, num_stages=1):
        rows = r + tl.arange(0, BLOCK_R)
        b = _ranks_of_b(
            pool_ptr, fp8_pool_ptr, pages, first, host, rows, rank, column, columns_ok, OUT, KV_DIM, ROWS_PER_PAGE, FP8,
            RESIDENCY, BLOCK_N, dtype,
        )  # fmt: skip
        h = _ranks_of_h(h_ptr, places, source, rows, rank, places_ok, NUM_MODULES, MAX_RANK)
        if dtype == tl.float16:  # in which h times the scale could be infinite
            acc += tl.dot(h, b, input_precision="ieee") * scale
        else:
            acc = tl.dot((h.to(tl.float32) * scale).to(dtype), b, acc, input_precision="ieee")
    return acc


@triton.jit(do_not_specialize=["layer"])
def _expand_blocks_kernel(
    h_ptr, out_ptr, pool_ptr, fp8_pool_ptr, order_ptr, starts_ptr, slots_ptr, pages_ptr, modules_ptr, scales_ptr,
    row_of_ptr, places_ptr, host_ptr, layer, pages_stride, slot_stride, OUT: tl.constexpr, PER_TOKEN: tl.constexpr,
    FIRST: tl.constexpr, NUM_MODULES: tl.constexpr, KV_DIM: tl.constexpr, ROWS_PER_PAGE: tl.constexpr,
    MAX_RANK: tl.constexpr, FP8: tl.constexpr, RESIDENCY: tl.constexpr, EXPERTS: tl.constexpr,
    EXPERTS_PAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Compute the deltas of a block of an expert's sorted pairs, for ``BLOCK_N`` outputs of each module.

    ``TILE``: the pairs of a program that reads them.
    """
    expert, start, stop = block_of_pairs(starts_ptr, tl.program_id(0), EXPERTS, EXPERTS_PAD, BLOCK_M)
    if expert >= EXPERTS:
        return
    of_expert, last = tl.load(starts_ptr + expert), tl.load(starts_ptr + expert + 1)
    of_tile = start - (start - of_expert) % TILE
    of_program = of_tile + tl.arange(0, TILE)
    tokens_of_program = tl.load(order_ptr + of_program, mask=of_program < last, other=0) // PER_TOKEN
    slots_of_program = tl.load(slots_ptr + tokens_of_program, mask=of_program < last, other=0)
    if have_one_slot(slots_of_program, of_program < last):
        return  # that program computes them itself
    rows = start + tl.arange(0, BLOCK_M)
    rows_ok = rows < stop
    tokens = tl.load(order_ptr + rows, mask=rows_ok, other=0).to(tl.int64) // PER_TOKEN
    slots = tl.load(slots_ptr + tokens, mask=rows_ok, other=0)
    lowest, highest = range_of_slots(slots)
    for column in range(tl.program_id(1) * BLOCK_N, OUT, tl.num_programs(1) * BLOCK_N):
        n = column + tl.arange(0, BLOCK_N)
        n_ok = n < OUT
        for module in tl.static_range(NUM_MODULES):
            acc, _ = add_expert_lora(
                tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32), 0, h_ptr, pool_ptr, fp8_pool_ptr, pages_ptr,
                modules_ptr, scales_ptr, row_of_ptr, places_ptr, host_ptr, slots, lowest, highest, rows, expert, column,
                n_ok, layer, pages_stride, slot_stride, module, 1, FIRST, NUM_MODULES, OUT, KV_DIM, ROWS_PER_PAGE,
                MAX_RANK, FP8, RESIDENCY, EXPERTS, BLOCK_M, BLOCK_N, 16, False,
            )  # fmt: skip
            out = out_ptr + (rows.to(tl.int64)[:, None] * NUM_MODULES + module) * OUT + n[None, :]
            tl.store(out, acc.to(out_ptr.dtype.element_ty), mask=rows_ok[:, None] & n_ok[None, :])


def workspace_shapes(
    pairs: int, inner: int, hidden: int, max_rank: int, *, expanded: bool
) -> list[tuple[int, int, int]]:
    """Return the shapes of what ``shrink_experts`` and, if ``expanded``, ``expand_experts`` return for the products
    of ``pairs`` pairs with gate and up, and with down.
    """
    products = (2, inner), (1, hidden)
    return [(pairs, modules, n) for modules, outputs in products for n in (max_rank, *([outputs] if expanded else []))]


def shrink_experts(
    x: torch.Tensor,
    lora: ExpertLora,
    routing: tuple[torch.Tensor, ...],
    first: int,
    modules: int,
    pairs_a_block: int,
    *,
    by_pair: bool = True,
    overlapped: bool = False,
) -> torch.Tensor:
    """Compute the products with A of ``modules`` modules from ``first`` on: ``[pairs, modules, max_rank]``.

    ``x`` is ``[tokens, in]`` for gate and up, ``[pairs, in]`` by sorted pairs for down, with contiguous rows;
    ``routing`` is that of ``experts.route``. Where an expert has few pairs, each has programs of its own, if
    ``by_pair``; otherwise the order of a pair's sums is the same for any number of pairs. Rows of pairs without an
    adapter, and ranks beyond the adapter's, are undefined. ``overlapped``: the next kernel may start at once, and must
    wait before it reads them or writes anything. Before that it may read what is older than these products.
    """
    experts, _, order, starts = routing
    pairs, inputs, (pool, tables) = order.shape[0], x.shape[1], (lora.pool, lora.tables)
    h = torch.empty(pairs, modules, lora.max_rank, dtype=x.dtype, device=x.device)
    columns = block_columns(lora.kv_dim, _COLUMNS)
    common = {
        "IN": inputs, "PER_TOKEN": experts.shape[1], "BY_TOKEN": first == 0,
        "FIRST": first, "NUM_MODULES": modules, "KV_DIM": lora.kv_dim, "ROWS_PER_PAGE": pool.shape[1] // lora.kv_dim,
        "MAX_RANK": lora.max_rank, "FP8": tables.fp8_rows, "RESIDENCY": tables.residency is not None,
        "EXPERTS": starts.shape[0] - 1, "BLOCK_R": _RANKS, **(pdl_options(x) if overlapped else {"PDL": False}),
    }  # fmt: skip
    tensors = lora.slots, tables.pages, tables.experts, *lora.residency, lora.layer
    strides = x.stride(0), tables.pages.stride(0), tables.experts.stride(0)
    # Programs of pairs would read an expert's A from host memory once for each of its pairs.
    few_pairs = 1 if tables.residency is not None else _FEW
    if by_pair and pairs <= few_pairs * (starts.shape[0] - 1):
        grid = pairs, modules * triton.cdiv(lora.max_rank, _RANKS)
        # One stage in both kernels of few pairs: a pipeline would read x ahead of the wait.
        _shrink_pairs_kernel[grid](
            x, h, *lora.pools, order, experts, *tensors, *strides, PARTS=_PARTS, BLOCK_K=columns, num_stages=1, **common
        )  # fmt: skip
        return h
    count, few = starts.shape[0] - 1, pairs_a_block < MANY
    block = pairs_a_block if few else _BLOCK
    options = (
        {"WAYS": _WAYS, "BLOCK_K": block_columns(lora.kv_dim, _WAY_COLUMNS), "num_warps": _WAYS, "num_stages": 1}
        if few
        else {"WAYS": 0, "BLOCK_K": min(columns, _BLOCK_COLUMNS), "num_warps": _BLOCK_WARPS}
    )
    _shrink_blocks_kernel[(pairs // block + min(pairs, count), modules, _ADAPTERS if few else 1)](
        x, h, *lora.pools, order, starts, *tensors, *strides, EXPERTS_PAD=triton.next_power_of_2(count),
        BLOCK_M=block, **options, **common,
    )  # fmt: skip
    return h


def expand_experts(
    h: torch.Tensor,
    lora: ExpertLora,
    routing: tuple[torch.Tensor, ...],
    first: int,
    outputs: int,
    pairs_a_block: int,
) -> torch.Tensor:
    """Compute ``scale * B^T h`` of each module: ``[pairs, modules, outputs]`` of ``h`` by ``shrink_experts``.

    They are zeros for pairs without an adapter, and undefined where all pairs of a block of ``pairs_a_block`` have one
    adapter, or none (``have_one_slot``). ``first`` is the first module, as in ``shrink_experts``.
    """
    experts, _, order, starts = routing
    pairs, modules, _ = h.shape
    count, tables = starts.shape[0] - 1, lora.tables
    out = torch.empty(pairs, modules, outputs, dtype=h.dtype, device=h.device)
    columns = block_columns(lora.kv_dim, _EXPANDED)
    programs = min(_EXPAND_PROGRAMS, triton.cdiv(outputs, columns))
    _expand_blocks_kernel[(pairs // _BLOCK + min(pairs, count), programs)](
        h, out, *lora.pools, order, starts, lora.slots, tables.pages, tables.experts, tables.expert_scales,
        *lora.residency[:3], lora.layer, tables.pages.stride(0), tables.experts.stride(0), OUT=outputs,
        PER_TOKEN=experts.shape[1], FIRST=first, NUM_MODULES=modules, KV_DIM=lora.kv_dim,
        ROWS_PER_PAGE=lora.pool.shape[1] // lora.kv_dim, MAX_RANK=lora.max_rank, FP8=tables.fp8_rows,
        RESIDENCY=tables.residency is not None, EXPERTS=count, EXPERTS_PAD=triton.next_power_of_2(count),
        BLOCK_M=_BLOCK, BLOCK_N=columns, TILE=pairs_a_block, num_warps=_EXPAND_WARPS,
    )  # fmt: skip
    return out
