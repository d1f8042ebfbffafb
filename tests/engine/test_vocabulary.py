"""A vocabulary over ranks: who has which tokens, and the likeliest of all without bringing the logits together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch

from lora_engine.model.parallel import Parallel
from lora_engine.model.vocabulary import Vocabulary
from lora_engine.sampling import greedy_tokens


@dataclass(frozen=True)
class Talking(Parallel):
    """One of several ranks, which run one after another: first each says its part, then all are told all parts."""

    said: list[torch.Tensor] = field(default_factory=list)
    all_said: bool = False

    def all_gather(self, x: torch.Tensor) -> torch.Tensor:
        if not self.all_said:
            self.said.append(x)
        return torch.stack(self.said if self.all_said else [x] * self.world)

    def all_reduce(self, x: torch.Tensor) -> torch.Tensor:
        return self.all_gather(x).sum(0)


def by_ranks(size: int, world: int, ask: Callable[[Vocabulary], torch.Tensor]) -> list[torch.Tensor]:
    said: list[torch.Tensor] = []
    for all_said in (False, True):
        answers = [ask(Vocabulary(size, Talking(rank, world, said=said, all_said=all_said))) for rank in range(world)]
    return answers


@pytest.mark.parametrize(("size", "world"), [(12, 1), (12, 2), (12, 4), (13, 2), (10, 4), (7, 3)])
def test_ranks_together_are_as_one(size: int, world: int) -> None:
    matrix, hidden = torch.randn(size, 6, dtype=torch.float64), torch.randn(5, 6, dtype=torch.float64)
    ids = torch.randint(size, (9,))
    logits = hidden @ matrix.T

    def columns(vocabulary: Vocabulary) -> torch.Tensor:
        part = vocabulary.part(matrix)
        assert part.shape == (vocabulary.rows, 6) and not part[vocabulary.num_tokens :].any()
        return hidden @ part.T

    for embedded in by_ranks(size, world, lambda v: v.embed(ids, v.part(matrix))):
        assert torch.equal(embedded, matrix[ids])
    for whole in by_ranks(size, world, lambda v: v.whole(columns(v))):
        assert torch.allclose(whole, logits)
    for best in by_ranks(size, world, lambda v: v.argmax(columns(v))):
        assert torch.equal(best, logits.argmax(dim=1))


def test_the_likeliest_of_rows_that_are_alike_below_all_padding_or_overflow() -> None:
    """Padding has the logit 0, which must not win; of equal ones the first does; a row that is not finite has none."""
    logits = torch.full((6, 10), -5.0)
    logits[0, [3, 8]] = logits[1, [5, 6]] = logits[2, 9] = -1.0
    logits[3, 4], logits[4, 9], logits[5, 0] = float("inf"), float("nan"), float("-inf")
    padded = torch.nn.functional.pad(logits, (0, 2))
    for best in by_ranks(10, 4, lambda v: v.argmax(padded[:, v.first : v.first + v.rows])):
        assert best.tolist() == greedy_tokens(logits).tolist() == [3, 5, 9, -1, -1, -1]


def test_more_ranks_than_tokens_to_share_are_refused() -> None:
    with pytest.raises(ValueError, match="a vocabulary of 5 cannot be split over 4 tensor-parallel ranks"):
        Vocabulary(5, Parallel(0, 4))
