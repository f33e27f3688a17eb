"""What the gate of a GPU's drafts reads and writes: its state, draws, and the rows of a spine."""

import numpy as np

LISTED, HALF, K, MOST, RANKS = 64, 5, 4, 7, 10
STATE = np.dtype(
    [("step", "i4"), ("most", "i4"), ("stops", "i4"), ("stop_ids", "i4", 32), ("by_time", "i4"), ("ranks", "i4"),
     ("floor", "f4"), ("min_step_gain", "f4"), ("edges", "f4", 15), ("p_top1", "f4", 16), ("p_rank", "f4", (16, 9)),
     ("depth", "i4", 64), ("worth", "f4", 64), ("path", "u8", 64), ("leaf", "f4", 64 * RANKS)]
)  # fmt: skip


def state_of(most=MOST, confidence=0.0, edges=(0.0,) * 15, stop_ids=(), **fields):
    state = np.zeros(1, STATE)
    for name, value in {"most": most, "stops": len(stop_ids), **fields}.items():
        state[name] = value
    with np.errstate(divide="ignore"):
        state["floor"], state["edges"] = np.log(np.float32(confidence)), np.log(np.float32(edges))
    state["stop_ids"][0, : len(stop_ids)] = stop_ids
    state["worth"][0, 0] = state["path"][0, 0] = 1
    return state


def draws(step, confidence):
    """What topk_merge leaves of a row: ids, of which the best is 2000 + step, logits, log sum exp."""
    words = np.random.default_rng(step).integers(0, 1000, 2 * LISTED + 1, dtype=np.int32)
    words[0] = 2000 + step
    words[K - 1] = -1 if step % 2 else words[K - 1]  # none left
    best = np.float32(1.25 + step)
    words.view(np.float32)[LISTED : LISTED + K] = best - np.arange(K, dtype=np.float32)
    words.view(np.float32)[2 * LISTED] = best - np.log(np.float32(confidence))
    return words


def spine(state):
    """state, drawn, token, pos, next, slot, ancestors, cos, sin, out of a spine of MOST rows."""
    rng = np.random.default_rng(4)
    rows = [np.arange(MOST, dtype=np.int32) + first for first in (500, 30, 31, 30)]
    tables = [rng.standard_normal((MOST, HALF)).astype(np.float32) for _ in range(2)]
    path = np.full(MOST, 1, np.uint64)
    return [state, draws(0, 1.0), *rows, path, *tables, np.full(1 + MOST * (2 * K + 1), -5, np.int32)]
