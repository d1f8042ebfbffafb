"""The vocabulary dealt over ranks: each has some rows of the embedding and of the head, and so some columns of logits.

A step's embeddings are a sum over the ranks, each of which gives those of its tokens and zeros for the rest. Of logits,
ranks exchange no more than is asked for: where every row only wants its likeliest token, the likeliest of each rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from lora_engine.sampling import greedy_tokens

from .parallel import Parallel


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """``size`` tokens, over the ranks of ``parallel``; behind those of the last rank may be padding."""

    size: int
    parallel: Parallel

    def __post_init__(self) -> None:
        if self.rows * (self.parallel.world - 1) >= self.size:
            raise ValueError(
                f"a vocabulary of {self.size} cannot be split over {self.parallel.world} tensor-parallel ranks"
            )

    @property
    def rows(self) -> int:
        """That every rank has, padding included."""
        return -(-self.size // self.parallel.world)

    @property
    def first(self) -> int:
        """This rank's first token."""
        return self.parallel.rank * self.rows

    @property
    def own(self) -> int:
        """How many tokens this rank has."""
        return min(self.rows, self.size - self.first)

    def part(self, matrix: torch.Tensor) -> torch.Tensor:
        """This rank's rows of a ``matrix [size, …]``: ``[rows, …]``, zeros where it has no tokens."""
        if self.parallel.world == 1:
            return matrix
        mine = matrix[self.first : self.first + self.own]
        return mine if self.own == self.rows else F.pad(mine, (0, 0, 0, self.rows - self.own))

    def embed(self, ids: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        """``[tokens, hidden]`` of tokens of all ranks, with this one's ``part`` of the embedding."""
        if self.parallel.world == 1:
            return F.embedding(ids, part)
        places = ids - self.first
        elsewhere = (places < 0) | (places >= self.rows)
        rows = F.embedding(places.masked_fill(elsewhere, 0), part)
        return self.parallel.all_reduce(rows.masked_fill_(elsewhere[:, None], 0))

    def whole(self, logits: torch.Tensor) -> torch.Tensor:
        """``[rows, size]`` of every rank's columns, ``logits [rows, rows of a rank]``."""
        if self.parallel.world == 1:
            return logits
        return self.parallel.all_gather(logits.contiguous()).transpose(0, 1).flatten(1)[:, : self.size]

    def likeliest(self, logits: torch.Tensor) -> torch.Tensor:
        """As ``greedy_tokens`` of ``whole``, for a few bytes of each row."""
        if self.parallel.world == 1:
            return greedy_tokens(logits)
        mine = logits[:, : self.own]
        tokens = greedy_tokens(mine)
        # A row that is not finite on some rank is that rank's. Ids are below 2**24: float32 has them as they are.
        overflowed = tokens < 0
        values = mine.gather(1, tokens.clamp(min=0)[:, None])[:, 0].float().masked_fill(overflowed, float("inf"))
        ids = torch.where(overflowed, tokens, tokens + self.first).float()
        of_ranks = self.parallel.all_gather(torch.stack((values, ids), dim=1))
        best = of_ranks[:, :, 0].argmax(dim=0, keepdim=True)  # of equals the first
        return of_ranks[:, :, 1].gather(0, best)[0].long()
