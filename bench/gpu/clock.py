"""How long work takes on the device: as one recorded graph there, by the wall clock on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import torch


def recorded(run: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    """run() as a graph. It runs before, as handles and workspaces are made at first use."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(2):
            run()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def seconds(run: Callable[[], Any], device: str, repeats: int = 7) -> float:
    """Median time of what run() does."""
    taken = []
    if device != "cuda":
        for _ in range(2):
            began = perf_counter()
            run()
            taken.append(perf_counter() - began)
        return min(taken)
    graph = recorded(run)
    for _ in range(repeats + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end) / 1e3)
    return median(taken[2:])
