"""A mixture of experts against a loop over tokens in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from lorikeet_testing.fp8_checkpoints import rounded_to_fp8

import lora_kernels.experts as kernels
from lora_kernels.experts import ClampedSwiglu, SigmoidScores, config_of, grouped_experts, least_tokens, route
from lora_kernels.fp8 import quantise_rows
from lora_kernels.fp8_tensors import BLOCK, FP8, Fp8Matrix, Fp8Stack, quantise
from lora_kernels.mxfp4 import MXFP4_NARROW, PLACES, Mxfp4Stack, dequantised, factors, ptx_of_part

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.bfloat16, torch.float16] if DEVICE == "cuda" else [torch.float32, torch.float16]
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 2e-2}
# With inputs rounded to FP8: now and then one between two values is rounded up here and down there.
FP8_TOLERANCE = {torch.float32: 4e-3, torch.float16: 1e-2, torch.bfloat16: 4e-2}
Read = Callable[[torch.Tensor], torch.Tensor]
Stack = torch.Tensor | Fp8Stack


def by_token(
    x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, logits: torch.Tensor, per_token: int,
    renormalised: bool, read: Read = torch.Tensor.double,
) -> torch.Tensor:  # fmt: skip
    """Compute the mixture in float64; ``read`` rounds the input of a product."""
    out = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
    for token, row in enumerate(logits.double().softmax(dim=1)):
        weights, experts = row.topk(per_token)
        for weight, expert in zip(weights / weights.sum() if renormalised else weights, experts, strict=True):
            gate, up = (gate_up[expert].double() @ read(x[token])).chunk(2)
            out[token] += weight * (down[expert].double() @ read(F.silu(gate) * up))
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("tokens", "experts", "per_token", "hidden", "inner", "renormalised"),
    [(1, 4, 2, 48, 40, True), (7, 6, 3, 64, 75, False), (90, 3, 2, 80, 33, True), (100, 3, 2, 32, 16, False)],
)
def test_experts_of_each_token(
    tokens: int, experts: int, per_token: int, hidden: int, inner: int, renormalised: bool, dtype: torch.dtype
) -> None:
    x = torch.randn(tokens, hidden + 3, device=DEVICE).to(dtype)[:, :hidden]
    gate_up = (torch.randn(experts, 2 * inner, hidden, device=DEVICE) / hidden**0.5).to(dtype)
    down = (torch.randn(experts, hidden, inner, device=DEVICE) / inner**0.5).to(dtype)
    logits = torch.randn(tokens, experts, device=DEVICE)
    logits[tokens // 3 :, 0] += 5.0  # most tokens have the same expert
    routing = route(logits, per_token, renormalised=renormalised)
    got = grouped_experts(x, gate_up, down, routing, "silu")
    want = by_token(x, gate_up, down, logits, per_token, renormalised)
    assert float((got.double() - want).norm() / want.norm()) < TOLERANCE[dtype]
    out = torch.full((tokens, hidden), torch.nan, dtype=dtype, device=DEVICE)
    assert grouped_experts(x, gate_up, down, routing, "silu", out) is out
    assert torch.equal(got, out)


def in_fp8(matrices: torch.Tensor, parts: int, in_blocks: bool) -> Fp8Stack:
    """Round ``matrices [experts, parts * rows, columns]``, with the scales of checkpoints."""
    (experts, rows, columns), device = matrices.shape, matrices.device
    rows //= parts
    stack = Fp8Stack.empty(experts, parts, rows, columns, in_blocks, device)
    for expert, of_expert in enumerate(matrices):
        for part, matrix in enumerate(of_expert.split(rows)):
            rounded = quantise(matrix)
            if in_blocks:
                scale = torch.rand(-(-rows // BLOCK), -(-columns // BLOCK), device=device) * 0.01 + 0.001
                rounded = Fp8Matrix((torch.randn(rows, columns, device=device) * 5).to(FP8), scale)
            stack.place(expert, part, rounded)
    return stack


@pytest.mark.parametrize("in_blocks", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("tokens", "experts", "per_token", "hidden", "inner"),
    [(1, 4, 2, 192, 130), (90, 3, 2, 130, 40), (100, 3, 2, 32, 16)],
)
def test_experts_in_fp8_multiply_rounded_inputs(
    tokens: int, experts: int, per_token: int, hidden: int, inner: int, dtype: torch.dtype, in_blocks: bool
) -> None:
    x, logits = torch.randn(tokens, hidden, device=DEVICE).to(dtype), torch.randn(tokens, experts, device=DEVICE)
    gate_up = in_fp8(torch.randn(experts, 2 * inner, hidden, device=DEVICE) / hidden**0.5, 2, in_blocks)
    down = in_fp8(torch.randn(experts, hidden, inner, device=DEVICE) / inner**0.5, 1, in_blocks)
    plain = [torch.stack([stack.dequantised(expert, torch.float32) for expert in range(experts)])
             for stack in (gate_up, down)]  # fmt: skip
    got = grouped_experts(x, gate_up, down, route(logits, per_token, renormalised=True), "silu")
    group = BLOCK if in_blocks else 10_000
    read = lambda row: rounded_to_fp8(row.to(dtype), group).double()  # noqa: E731
    want = by_token(x, *plain, logits, per_token, True, read)
    assert float((got.double() - want).norm() / want.norm()) < FP8_TOLERANCE[dtype]


@pytest.mark.parametrize("weighted", [False, True])
def test_experts_are_added_to_an_mlp_of_all_tokens(weighted: bool) -> None:
    """Times the sigmoid of a score, or as it is; activations that a norm has rounded to FP8 are not rounded again."""
    dtype, (tokens, experts, hidden, inner) = DTYPES[0], (21, 5, 64, 40)
    x, logits = torch.randn(tokens, hidden, device=DEVICE).to(dtype), torch.randn(tokens, experts + 3, device=DEVICE)
    gate_up = in_fp8(torch.randn(experts, 2 * inner, hidden, device=DEVICE) / hidden**0.5, 2, False)
    down = in_fp8(torch.randn(experts, hidden, inner, device=DEVICE) / inner**0.5, 1, False)
    routing = route(logits[:, :experts], 2, renormalised=True)
    mlp, score = torch.randn(tokens, hidden, device=DEVICE).to(dtype), logits[:, experts] if weighted else None
    alone = grouped_experts(x, gate_up, down, routing, "silu")
    out, rounded = mlp.clone(), replace(quantise_rows(x, gate_up.first), full=x)
    assert grouped_experts(rounded, gate_up, down, routing, "silu", out, onto=True, score=score) is out
    want = mlp.double() * (1.0 if score is None else score.double().sigmoid()[:, None]) + alone.double()
    assert float((out.double() - want).norm() / want.norm()) < TOLERANCE[dtype]
    rounded.data.zero_()
    assert not grouped_experts(rounded, gate_up, down, routing, "silu").any()
    with pytest.raises(ValueError, match="give out, or leave onto False"):
        grouped_experts(x, gate_up, down, routing, "silu", onto=True)
    with pytest.raises(ValueError, match="set full to the values before they were rounded"):
        grouped_experts(replace(rounded, full=None), gate_up, down, routing, "silu")


def in_mxfp4(experts: int, parts: int, rows: int, columns: int, largest: int = 125) -> tuple[Mxfp4Stack, torch.Tensor]:
    """Return random matrices as a stack, and their plain values; ``largest`` is that of six scales."""
    sizes = experts, parts * rows, columns // 32
    blocks = torch.randint(256, (*sizes, 16), dtype=torch.uint8, device=DEVICE)
    scales = torch.randint(largest - 5, largest + 1, sizes, dtype=torch.uint8, device=DEVICE)
    stack = Mxfp4Stack.empty(experts, parts * rows, columns, torch.device(DEVICE), largest > MXFP4_NARROW)
    for expert in range(experts):
        for part in range(parts):
            at = slice(part * rows, (part + 1) * rows)
            stack.place(expert, part, blocks[expert, at], scales[expert, at])
    plain = dequantised(blocks, scales, torch.float32)
    assert all(torch.equal(stack.dequantised(expert, torch.float32), plain[expert]) for expert in range(experts))
    assert stack.shape == plain.shape
    return stack, plain


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "hidden", "inner"), [(1, 96, 160), (90, 64, 96), (100, 32, 32)])
def test_experts_in_mxfp4_are_those_of_their_plain_values(
    tokens: int, hidden: int, inner: int, dtype: torch.dtype
) -> None:
    """Odd and even numbers of scales, fewer and more outputs than a program computes, every configuration."""
    x, logits = torch.randn(tokens, hidden, device=DEVICE).to(dtype), torch.randn(tokens, 3, device=DEVICE)
    (gate_up, plain_gate_up), (down, plain_down) = in_mxfp4(3, 2, inner, hidden), in_mxfp4(3, 1, hidden, inner)
    got = grouped_experts(x, gate_up, down, route(logits, 2, renormalised=True), "silu")
    want = by_token(x, plain_gate_up, plain_down, logits, 2, True)
    assert float((got.double() - want).norm() / want.norm()) < TOLERANCE[dtype]


@pytest.mark.parametrize("largest", [5, MXFP4_NARROW, MXFP4_NARROW + 1, 139])
def test_scales_of_mxfp4_of_any_size(largest: int) -> None:
    """The smallest and the largest that are multiplied at once, and larger ones; gate and up make no large numbers."""
    dtype = DTYPES[0]
    x, logits = torch.randn(9, 64, device=DEVICE).to(dtype), torch.randn(9, 3, device=DEVICE)
    (gate_up, plain_gate_up), (down, plain_down) = in_mxfp4(3, 2, 32, 64), in_mxfp4(3, 1, 64, 32, largest)
    got = grouped_experts(x, gate_up, down, route(logits, 2, renormalised=True), "silu").double()
    want = by_token(x, plain_gate_up, plain_down, logits, 2, True)
    assert float((got - want).norm() / want.norm()) < TOLERANCE[dtype]


def run_ptx(code: str, words: torch.Tensor, factor: int) -> torch.Tensor:
    """Run PTX of 32-bit words without branches, as a GPU would; returns its result as pairs of bfloat16."""
    held = {"$1": words, "$2": torch.full_like(words, factor)}
    operations: dict[str, Callable[..., torch.Tensor]] = {
        "shl.b32": lambda a, b: (a << b) & 0xFFFFFFFF,
        "shr.u32": lambda a, b: a >> b,
        "and.b32": lambda a, b: a & b,
        "or.b32": lambda a, b: a | b,
        "mov.b32": lambda a: torch.full_like(words, a),
        "mul.bf16x2": lambda a, b: (halves(a) * halves(b)).view(torch.int32).flatten().long() & 0xFFFFFFFF,
    }
    for line in code.strip("{} ").split(";")[1:-1]:
        name, *places = line.replace(",", " ").split()
        values = [held[place] if place in held else int(place, 0) for place in places[1:]]
        held[places[0]] = operations[name](*values)
    return halves(held["$0"])


def halves(words: torch.Tensor) -> torch.Tensor:
    return words.int()[:, None].view(torch.bfloat16)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("part", range(4))
def test_ptx_for_values_in_mxfp4(part: int, wide: bool) -> None:
    """Every word, in both halves of a register, with the smallest and the largest scales."""
    low = torch.arange(1 << 16)
    words = low | low.flip(0) << 16
    for scale in (0, 1, 63, 127, MXFP4_NARROW, *((MXFP4_NARROW + 1, 251) if wide else ())):
        factor = (scale << 7 or 1 << 6) if wide else (scale + 126) << 7
        got = run_ptx(ptx_of_part(part, wide=wide), words, factor << 16 | factor)
        at, sign = PLACES[part]
        codes = torch.stack((low, low.flip(0)), dim=1)
        plain = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])[codes >> at & 7] * (1 - 2 * (codes >> sign & 1))
        assert torch.equal(got.float(), plain * factors(torch.tensor(scale, dtype=torch.uint8)))


@pytest.mark.parametrize("tokens", [1, 70])
def test_biases_and_a_clamped_activation(tokens: int) -> None:
    """With one program for few pairs and with many; the limit is reached by a third of the values."""
    dtype, hidden, inner, experts = DTYPES[0], 48, 33, 4

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=DEVICE).to(dtype)

    x, logits = random(tokens, hidden), torch.randn(tokens, experts, device=DEVICE)
    gate_up, down = random(experts, 2 * inner, hidden) / hidden**0.5, random(experts, hidden, inner)
    biases = random(experts, 2 * inner), random(experts, hidden)
    routing = route(logits, 2, renormalised=True)
    clamped = ClampedSwiglu(1.702, 1.0)
    best, chosen = logits.double().topk(2)

    def error(gate_up: Stack, down: Stack, plain: Sequence[torch.Tensor], read: Read) -> float:
        got = grouped_experts(x, gate_up, down, routing, clamped, None, None, *biases)
        want = torch.zeros(tokens, hidden, dtype=torch.float64, device=DEVICE)
        for weight, expert in zip(best.softmax(1).T, chosen.T, strict=True):  # of the chosen ones alone
            both = torch.einsum("toh,th->to", plain[0][expert].double(), read(x)) + biases[0][expert]
            gate, up = both.chunk(2, 1)
            gate, up = gate.clamp(max=1.0), up.clamp(-1.0, 1.0)
            inner = read((gate * (1.702 * gate).sigmoid() * (up + 1)).to(dtype))
            want += weight[:, None] * (torch.einsum("toi,ti->to", plain[1][expert].double(), inner) + biases[1][expert])
        return float((got.double() - want).norm() / want.norm())

    assert error(gate_up, down, (gate_up, down), torch.Tensor.double) < TOLERANCE[dtype]
    stacks = in_fp8(gate_up, 2, False), in_fp8(down, 1, False)
    plain = [torch.stack([stack.dequantised(e, torch.float32) for e in range(experts)]) for stack in stacks]
    assert error(*stacks, plain, lambda rows: rounded_to_fp8(rows, 10_000).double()) < FP8_TOLERANCE[dtype]
    x[0] = torch.nan
    assert grouped_experts(x, gate_up, down, routing, clamped, None, None, *biases)[0].isnan().all()
    with pytest.raises(ValueError, match="a bias is"):
        grouped_experts(x, gate_up, down, routing, clamped, None, None, biases[1], biases[0])


@pytest.mark.parametrize("tokens", [1, 75, 600])
def test_pairs_are_sorted_by_expert_and_then_by_token(tokens: int) -> None:
    """600 tokens have more blocks of pairs than a program reads counts of at a time."""
    logits = torch.randn(tokens, 5, device=DEVICE)
    routing = route(logits, 2, renormalised=False)
    weights, experts = logits.softmax(dim=1).topk(2, dim=1)
    assert routing.experts.tolist() == experts.tolist()
    torch.testing.assert_close(routing.weights, weights)
    assert routing.order.tolist() == experts.flatten().argsort(stable=True).tolist()
    assert routing.starts.tolist() == [int((experts < expert).sum()) for expert in range(6)]


@pytest.mark.parametrize(("experts", "groups", "kept"), [(6, 1, 1), (12, 4, 2), (32, 8, 3)])
def test_sigmoids_choose_experts_of_the_best_groups(experts: int, groups: int, kept: int) -> None:
    logits, correction = torch.randn(40, experts, device=DEVICE), torch.randn(experts, device=DEVICE)
    scores = logits.double().sigmoid()
    by_group = (scores + correction).view(40, groups, -1)
    best = by_group.topk(2, dim=2)[0].sum(2).topk(kept, dim=1)[1]
    allowed = torch.zeros(40, groups, dtype=torch.bool, device=DEVICE).scatter_(1, best, True)
    chosen = by_group.masked_fill(~allowed[:, :, None], -torch.inf).flatten(1).topk(3, dim=1)[1]
    weights = scores.gather(1, chosen)
    for renormalised in (True, False):
        routing = route(logits, 3, renormalised=renormalised, sigmoid=SigmoidScores(correction, groups, kept, 2.5))
        assert routing.experts.tolist() == chosen.tolist()
        want = 2.5 * (weights / weights.sum(1, keepdim=True) if renormalised else weights)
        torch.testing.assert_close(routing.weights, want.float())
    with pytest.raises(ValueError, match="corrections are"):
        route(logits, 3, renormalised=True, sigmoid=SigmoidScores(correction[:-1], groups, kept, 1.0))


def test_rows_of_padding_stay_in_range_and_alone() -> None:
    logits = torch.randn(4, 6, device=DEVICE)
    x, gate_up, down = (torch.randn(*shape, device=DEVICE) for shape in ((4, 32), (6, 32, 32), (6, 32, 16)))
    want = grouped_experts(x, gate_up, down, route(logits, 2, renormalised=True), "gelu_tanh")
    logits[1], x[1] = torch.nan, torch.nan
    routing = route(logits, 2, renormalised=True)
    got = grouped_experts(x, gate_up, down, routing, "gelu_tanh")
    assert set(routing.experts.flatten().tolist()) <= set(range(6))
    assert torch.equal(got[[0, 2, 3]], want[[0, 2, 3]])
    gate, up = (x[0] @ gate_up[routing.experts[0, 0]].T).chunk(2)
    assert torch.isfinite(F.gelu(gate, approximate="tanh") * up).all()


@pytest.mark.parametrize("form", kernels.CONFIGS)
def test_each_configuration_has_a_smallest_step(form: int) -> None:
    configs = [*kernels.CONFIGS[form]]
    for experts, per_token in ((128, 8), (8, 2), (64, 8), (32, 4)):
        chosen = [config_of(tokens * per_token, experts, form) for tokens in least_tokens(experts, per_token, form)]
        assert chosen == configs
        before = [
            config_of((tokens - 1) * per_token, experts, form) for tokens in least_tokens(experts, per_token, form)[1:]
        ]
        assert before == configs[:-1]


def test_shapes_that_do_not_fit_are_refused() -> None:
    x, logits = torch.zeros(2, 32, device=DEVICE), torch.zeros(2, 4, device=DEVICE)
    routing = route(logits, 2, renormalised=True)
    gate_up, down = torch.zeros(4, 32, 32, device=DEVICE), torch.zeros(4, 32, 16, device=DEVICE)
    with pytest.raises(ValueError, match="5 experts"):
        route(logits, 5, renormalised=True)
    with pytest.raises(ValueError, match="experts are"):
        grouped_experts(x, gate_up, down[:, :, :8], routing, "silu")
    with pytest.raises(ValueError, match="routing is of 2 tokens"):
        grouped_experts(x[:1], gate_up, down, routing, "silu")
    with pytest.raises(ValueError, match="contiguous"):
        grouped_experts(x, gate_up, down.transpose(1, 2).contiguous().transpose(1, 2), routing, "silu")
    with pytest.raises(ValueError, match="out is"):
        grouped_experts(x, gate_up, down, routing, "silu", x[:1])
    with pytest.raises(ValueError, match="use silu, gelu_tanh or"):
        grouped_experts(x, gate_up, down, routing, "relu")
    with pytest.raises(ValueError, match="quantise both in one way, or neither"):
        grouped_experts(x, in_fp8(gate_up, 2, False), down, routing, "silu")
