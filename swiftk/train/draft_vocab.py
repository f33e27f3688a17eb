"""The tokens that a drafter has logits of: all of the model's, or the most frequent ones, which make its head small.

d2t and t2d are EAGLE-3's tables, which SpecForge and speculators write, too.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

_COUNTED = 1 << 22  # tokens at a time


class DraftVocab(nn.Module):
    """A part of a drafter that has the tables; they are not trained."""

    d2t: Tensor  # [its tokens] how much further on the model's id of a token is
    t2d: Tensor  # [V] which of the model's it has

    def set_ids(self, ids: Tensor, V: int) -> None:
        """ids: tokens that it may draft, ascending."""
        self.register_buffer("d2t", ids - torch.arange(len(ids)))
        self.register_buffer("t2d", torch.zeros(V, dtype=torch.bool).index_fill(0, ids, True))

    @property
    def ids(self) -> Tensor:
        return self.d2t + torch.arange(len(self.d2t), device=self.d2t.device)

    def likely(self, target: Tensor) -> tuple[Tensor, Tensor]:
        """The model's distribution over these tokens alone [..., its tokens], and whether its best token is one of them
        [...]: who learns leaves the others out. target [..., V]: the model's logits."""
        return target[..., self.ids].softmax(-1), self.t2d[target.argmax(-1)]


def frequent(tokens: np.ndarray, count: int, V: int) -> Tensor:
    """The most frequent of them, ascending."""
    seen = np.zeros(V, np.int64)
    for at in range(0, len(tokens), _COUNTED):
        seen += np.bincount(tokens[at : at + _COUNTED], minlength=V)
    return torch.from_numpy(np.sort(np.argsort(-seen, kind="stable")[:count]))
