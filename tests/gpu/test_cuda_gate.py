"""The gate, which ends a draft's step on a GPU, against its rule in numpy: the kernel on the CPU, and as the stub's."""

import numpy as np
import pytest

import cuda_shim
from cuda_shim import aligned
from gate_state import HALF, LISTED, MOST, RANKS, K, draws, spine, state_of
from stub_cuda import host_fixture, stub_fixture  # noqa: F401

plan = cuda_shim.load_plan()
HALVES = tuple(np.arange(1, 16) / 16)
FALLING = np.linspace(0.5, 1, 16)  # the more confident, the likelier
OTHERS = np.linspace(0.3, 0.02, 16)[:, None] * 0.7 ** np.arange(9)
TIMED = {"by_time": 1, "ranks": K, "p_top1": FALLING, "edges": HALVES, "p_rank": OTHERS}
# The rule, confidence of each step, steps; None: those that the oracle takes.
RULES = {
    "most": ({"most": 4}, [0.5] * 4, 4),
    "all": ({}, [0.5] * MOST, MOST),
    "confidence": ({"confidence": 0.4}, [0.9, 0.41, 0.39, 1.0], 3),
    "stop id": ({"stop_ids": (7, 2002)}, [0.9, 0.9, 0.9, 0.9], 3),
    "only one": ({"most": 1}, [0.9], 1),
    "bad logits": ({}, [0.9, np.nan, 0.9], 2),
    "infinite": ({}, [0.9, 0.9, np.inf, 0.9], 3),
    "by time": (TIMED, [0.95, 0.8, 0.5, 0.2, 0.9, 0.1, 0.7], MOST),
    "back to a runner-up": (TIMED, [0.5, 0.01, 0.01, 0.9, 0.9, 0.9, 0.9], MOST),
    "min_step_gain": ({**TIMED, "min_step_gain": 0.5}, [0.95, 0.8, 0.5, 0.2, 0.9, 0.9, 0.9], None),
    "stop id by time": ({**TIMED, "stop_ids": (2001,)}, [0.95] * MOST, 2),
    "equal worths": ({**TIMED, "p_top1": np.full(16, 0.5), "p_rank": np.full((16, 9), 0.5)}, [0.9] * MOST, MOST),
    "nothing is worth anything": ({**TIMED, "p_top1": np.zeros(16), "min_step_gain": 0.1, "p_rank": 0}, [0.9], 1),
    "few candidates": ({**TIMED, "ranks": 1}, [0.9] * MOST, MOST),
    "bad logits by time": (TIMED, [0.9, np.nan, 0.9], 2),
}


def next_leaf(s, step, log_p, drawn):
    """Adds the step's candidates to those of the steps before; the index of what is read next, or -1."""
    bucket = int((log_p > s["edges"]).sum())
    for rank in range(RANKS):
        there = rank < s["ranks"] and drawn[rank] >= 0
        right = s["p_top1"][bucket] if rank == 0 else s["p_rank"][bucket, rank - 1]
        s["leaf"][step * RANKS + rank] = s["worth"][step] * right if there else -1
    if not s["by_time"]:
        return step * RANKS if log_p >= s["floor"] else -1
    best = int(s["leaf"][: (step + 1) * RANKS].argmax())
    return best if s["leaf"][best] >= max(s["min_step_gain"], 0) else -1


def stepped(arrays):
    """The arrays after a step, and whether there is to be another."""
    state, drawn, token, pos, next_, slot, path, cos, sin, out = arrays = [a.copy() for a in arrays]
    s, step, floats = state[0], int(state[0]["step"]), drawn.view(np.float32)
    lse, ahead, begin = floats[2 * LISTED], step + 1, 1 + step * (2 * K + 1)
    out[begin : begin + 2 * K + 1] = [*drawn[:K], *drawn[LISTED : LISTED + K], drawn[2 * LISTED]]
    chosen = next_leaf(s, step, floats[LISTED] - lse, drawn)
    s["step"] = out[0] = ahead
    if chosen < 0 or ahead >= s["most"] or not np.isfinite(lse):
        return arrays, False
    parent, rank = divmod(chosen, RANKS)
    id = out[1 + parent * (2 * K + 1) + rank]
    if id in s["stop_ids"][: s["stops"]].tolist():
        return arrays, False
    depth = s["depth"][ahead] = s["depth"][parent] + 1
    s["worth"][ahead] = s["leaf"][chosen] if s["by_time"] else 0
    s["path"][ahead] = path[0] = s["path"][parent] | np.uint64(1 << ahead)
    s["leaf"][chosen] = -1
    token[0], slot[0] = id, slot[ahead]
    pos[0], next_[0], cos[0], sin[0] = (row[depth] for row in (pos, next_, cos, sin))
    return arrays, True


def equal(found, want):
    return all(a.tobytes() == b.tobytes() for a, b in zip(found, want, strict=True))


@pytest.fixture(name="library", scope="module")
def library_fixture(tmp_path_factory):
    return cuda_shim.Library(tmp_path_factory.mktemp("gate"), [("gate", [])])


@pytest.mark.parametrize("name", RULES)
def test_the_kernel_follows_the_rule(library, name):
    """Step by step, to the bit, whichever thread comes first."""
    rule, confidences, steps = RULES[name]
    arrays, on, taken = [aligned(a) for a in spine(state_of(**rule))], True, 0
    while on:
        arrays[1][:] = draws(taken, confidences[taken])
        want, on = stepped(arrays)
        again = aligned(np.int32([-1]))  # where the shim's condition is kept
        library.run(0, (1, 1), plan.GATE_SHARED, again, *arrays, K, HALF, seed=taken)
        taken += 1
        assert equal(arrays, want), taken
        assert again[0] == on, taken
    assert steps is None or taken == steps
    assert taken < MOST or steps is not None


@pytest.mark.parametrize("name", RULES)
def test_the_stub_follows_the_rule(host, stub, name):
    """Here a whole spine is one launch, in which every step draws the same."""
    rule, confidences, _ = RULES[name]
    arrays = spine(state_of(**rule))
    arrays[1] = draws(2, confidences[-1])
    places, function = [host.put(a) for a in arrays], host.function("gate")
    graph, again, body = host.loop()
    arguments = np.int64(again), *places, np.int32(K), np.int32(HALF)
    host.capture_into(body, lambda: host.launch(function, (1,), *arguments, threads=128))
    assert host.cu("cuGraphLaunch", host.instantiate(graph), host.stream) == 0
    found = [host.get(p, a.shape, a.dtype) for p, a in zip(places, arrays, strict=True)]
    on, rounds = True, 0
    while on:
        arrays, on = stepped(arrays)
        rounds += 1
    assert equal(found, arrays)
    assert stub.count("loop_rounds") == rounds
    assert stub.count("graph_launches") == 1
