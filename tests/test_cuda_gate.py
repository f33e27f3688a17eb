"""The gate, which ends a draft's step on a GPU, against its rule in numpy: the kernel on the CPU, and as the stub's."""

import numpy as np
import pytest

import cuda_shim
from cuda_shim import aligned
from stub_cuda import host_fixture, stub_fixture  # noqa: F401

LISTED, HALF, K, MOST = 64, 5, 3, 6
STATE = np.dtype(
    [("step", "i4"), ("most", "i4"), ("stops", "i4"), ("held", "f4"), ("floor", "f4"), ("reach", "f4"),
     ("hold", "f4", 16), ("edges", "f4", 15), ("stop_ids", "i4", 32)]
)  # fmt: skip
HALVES = tuple(np.arange(1, 16) / 16)
FALLING = tuple(np.linspace(0.5, 1, 16))  # the more confident, the likelier
RULES = {
    "most": ({"most": 4}, [0.5] * 4, 4),
    "all": ({}, [0.5] * MOST, MOST),
    "confidence": ({"confidence": 0.4}, [0.9, 0.41, 0.39, 1.0], 3),
    "stop id": ({"stop_ids": (7, 2002)}, [0.9, 0.9, 0.9, 0.9], 3),
    "reach": ({"hold": FALLING, "edges": HALVES, "reach": 0.5}, [0.95, 0.8, 0.5, 0.2, 0.9], None),
    "only one": ({"most": 1}, [0.9], 1),
    "nothing left": ({"hold": (0.0,) * 16, "reach": 0.1}, [0.9], 1),
    "bad logits": ({}, [0.9, np.nan, 0.9], 2),
    "infinite": ({}, [0.9, 0.9, np.inf, 0.9], 3),
}


def state_of(most=MOST, confidence=0.0, hold=(1.0,) * 16, edges=(0.0,) * 15, reach=0.0, stop_ids=()):
    state = np.zeros(1, STATE)
    state["most"], state["held"], state["reach"], state["stops"] = most, 1, reach, len(stop_ids)
    with np.errstate(divide="ignore"):
        state["floor"], state["edges"] = np.log(np.float32(confidence)), np.log(np.float32(edges))
    state["hold"] = hold
    state["stop_ids"][0, : len(stop_ids)] = stop_ids
    return state


def draws(step, confidence):
    """What topk_merge leaves of a row: ids, of which the best is 2000 + step, logits, log sum exp."""
    words = np.random.default_rng(step).integers(0, 1000, 2 * LISTED + 1, dtype=np.int32)
    words[0] = 2000 + step
    best = np.float32(1.25 + step)
    words.view(np.float32)[LISTED : LISTED + K] = best, best - 1, best - 2
    words.view(np.float32)[2 * LISTED] = best - np.log(np.float32(confidence))
    return words


def spine(state):
    """state, drawn, token, pos, next, slot, cos, sin, out of a spine of MOST rows."""
    rng = np.random.default_rng(4)
    rows = [np.arange(MOST, dtype=np.int32) + first for first in (500, 30, 31, 30)]
    tables = [rng.standard_normal((MOST, HALF)).astype(np.float32) for _ in range(2)]
    return [state, draws(0, 1.0), *rows, *tables, np.full(1 + MOST * (2 * K + 1), -5, np.int32)]


def stepped(arrays):
    """The arrays behind a step, and whether there is to be another."""
    state, drawn, *rows, cos, sin, out = [a.copy() for a in arrays]
    s, step, floats = state[0], int(state[0]["step"]), drawn.view(np.float32)
    lse = floats[2 * LISTED]
    log_p, ahead = floats[LISTED] - lse, step + 1
    s["held"] *= s["hold"][int((log_p > s["edges"]).sum())]
    stopped = drawn[0] in s["stop_ids"][: s["stops"]].tolist() or not np.isfinite(lse)
    more = ahead < s["most"]
    s["step"] = out[0] = ahead
    begin = 1 + step * (2 * K + 1)
    out[begin : begin + 2 * K + 1] = [*drawn[:K], *drawn[LISTED : LISTED + K], drawn[2 * LISTED]]
    if more:
        rows[0][0] = drawn[0]
        for row in (*rows[1:], cos, sin):
            row[0] = row[ahead]
    on = more and not stopped and log_p >= s["floor"] and s["held"] >= s["reach"]
    return [state, drawn, *rows, cos, sin, out], bool(on)


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
        library.run(0, (1, 1), 0, again, *arrays, K, HALF, seed=taken)
        taken += 1
        assert equal(arrays, want), taken
        assert again[0] == on, taken
    assert steps is None or taken == steps
    assert 0 < taken < len(confidences) + (steps is not None)


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
