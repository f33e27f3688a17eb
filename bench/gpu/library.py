"""The vendor's matrix product (torch.mm) at the row counts of decoding and verifying, in the shapes of a 7 B model."""

from __future__ import annotations

from functools import partial

import clock
import record
import torch

_MATRICES = {"qkv": (12288, 4096), "o_proj": (4096, 4096), "gate_up": (22016, 4096), "down": (4096, 11008),
             "lm_head": (32000, 4096)}
_ROWS = (1, 8, 16, 32, 64)
_COLD = 600_000_000  # bytes of copies that take turns, so that no cache holds the next


def products(x: torch.Tensor, weights: list[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.mm(x, weight.t()) for weight in weights]


def measure(part: record.Part) -> None:
    """GB/s of weights; and whether a row's bits are the same whatever the rows beside it are."""
    device, reads = part.given.device, record.reads(part.given)
    figures, size, same = {}, 0, dict.fromkeys(_ROWS, True)
    for name, (rows, columns) in _MATRICES.items():
        if part.given.tiny:
            rows, columns = rows // 64, columns // 64
        weight = torch.randn(rows, columns, device=device, dtype=torch.bfloat16)
        copies = [weight.clone() for _ in range(1 if part.given.tiny else 2 + _COLD // (2 * weight.numel()))]
        x = torch.randn(max(_ROWS), columns, device=device, dtype=torch.bfloat16)
        alone = torch.mm(x[:1], weight.t())[0]
        size += 2 * weight.numel()
        figures[name] = {n: clock.seconds(partial(products, x[:n], copies), device) / len(copies) for n in _ROWS}
        for n in _ROWS:
            same[n] = same[n] and torch.equal(torch.mm(x[:n], weight.t())[0], alone)
    part.keep("library_seconds", figures)
    total = {n: sum(taken[n] for taken in figures.values()) for n in _ROWS}
    for n in _ROWS:
        bits = "" if same[n] else ", bits differ from one row's"
        part.add("torch.mm, matrices of a 7 B layer and its head", f"{n} rows{bits}", size / total[n] / 1e9, "GB/s",
                 of_reads=size / total[n] / reads if reads else None)
    part.add("torch.mm, matrices of a 7 B layer and its head", "64 rows over one", total[64] / total[1])
