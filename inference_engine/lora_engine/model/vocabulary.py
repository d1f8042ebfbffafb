"""The vocabulary split over ranks: each has some rows of the embedding and of the head, and so some columns of logits.

A step's embeddings are a sum over ranks, each of which contributes its tokens and zeros for all others. Ranks exchange
no more logits than needed: if every row is greedy, only the likeliest token of each rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from lora_engine.sampling import greedy_tokens

from .parallel import Parallel


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A vocabulary of ``size`` tokens over the ranks of ``parallel``; the last rank's tokens may end with padding."""

    size: int
    parallel: Parallel

    def __post_init__(self) -> None:
        if self.rows * (self.parallel.world - 1) >= self.size:
            raise ValueError(
                f"a vocabulary of {self.size} cannot be split over {self.parallel.world} tensor-parallel ranks"
            )

    @property
    def rows(self) -> int:
        """Number of rows that every rank has, padding included."""
        return -(-self.size // self.parallel.world)

    @property
    def first(self) -> int:
        """Id of this rank's first token."""
        return self.parallel.rank * self.rows

    @property
    def num_tokens(self) -> int:
        """Number of tokens of this rank, without padding."""
        return min(self.rows, self.size - self.first)

    def part(self, matrix: torch.Tensor) -> torch.Tensor:
        """Return this rank's rows of a ``matrix [size, …]``: ``[rows, …]``, with zeros for padding."""
        return self.padded(matrix[self.first : self.first + self.num_tokens])

    def padded(self, part: torch.Tensor) -> torch.Tensor:
        """Return the rows of this rank's tokens, ``part [num_tokens, …]``, with zeros for padding: ``[rows, …]``."""
        return part if self.num_tokens == self.rows else F.pad(part, (0, 0, 0, self.rows - self.num_tokens))

    def embed(self, ids: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        """Compute embeddings ``[tokens, hidden]`` of any tokens, with this rank's ``part`` of the matrix."""
        if self.parallel.world == 1:
            return F.embedding(ids, part)
        places = ids - self.first
        elsewhere = (places < 0) | (places >= self.rows)
        rows = F.embedding(places.masked_fill(elsewhere, 0), part)
        return self.parallel.all_reduce(rows.masked_fill_(elsewhere[:, None], 0))

    def whole(self, logits: torch.Tensor) -> torch.Tensor:
        """Gather every rank's columns, ``logits [rows, columns of a rank]``, as ``[rows, size]``."""
        if self.parallel.world == 1:
            return logits
        return self.parallel.all_gather(logits.contiguous()).transpose(0, 1).flatten(1)[:, : self.size]

    def argmax(self, logits: torch.Tensor) -> torch.Tensor:
        """Return ``greedy_tokens`` of ``whole``; ranks exchange only a few bytes of each row."""
        if self.parallel.world == 1:
            return greedy_tokens(logits)
        part = logits[:, : self.num_tokens]
        tokens = greedy_tokens(part)
        # A rank on which a row is not finite wins that row. Token ids are below 2**24: float32 represents them exactly.
        overflowed = tokens < 0
        values = part.gather(1, tokens.clamp(min=0)[:, None])[:, 0].float().masked_fill(overflowed, float("inf"))
        ids = torch.where(overflowed, tokens, tokens + self.first).float()
        of_ranks = self.parallel.all_gather(torch.stack((values, ids), dim=1))
        best = of_ranks[:, :, 0].argmax(dim=0, keepdim=True)  # the first of equals
        return of_ranks[:, :, 1].gather(0, best)[0].long()
