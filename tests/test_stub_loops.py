"""The stub's graphs that repeat a part of themselves: what a driver refuses is refused."""

import ctypes

import numpy as np
import pytest

from stub_cuda import host_fixture, stub_fixture  # noqa: F401
from test_cuda_gate import HALF, K, spine, state_of
from test_stub_cuda import ILLEGAL_ADDRESS, INVALID_VALUE, take_log

ILLEGAL_STATE, INVALID_CONTEXT = 401, 201


def instantiated(host, graph):
    return host.cu("cuGraphInstantiateWithFlags", ctypes.byref(ctypes.c_uint64()), graph, 0)


def gate_of(host, condition, places=None):
    """A launch of the gate over a spine of its own, whose arrays' addresses are added to `places`."""
    function, places = host.function("gate"), [] if places is None else places
    places += [host.put(a) for a in spine(state_of())]
    arguments = np.int64(condition), *places, np.int32(K), np.int32(HALF)
    return lambda: host.launch(function, (1,), *arguments, threads=128)


def test_a_loop_starts_anew_at_every_launch(host, stub):
    graph, again, body = host.loop()
    places = []
    host.capture_into(body, gate_of(host, again, places))
    made = host.instantiate(graph)
    for launches in (1, 2):
        assert host.cu("cuMemsetD8Async", places[0], 0, 4, host.stream) == 0  # to step 0
        assert host.cu("cuGraphLaunch", made, host.stream) == 0
        assert host.cu("cuStreamSynchronize", host.stream) == 0
        assert stub.count("loop_rounds") == 7 * launches


@pytest.mark.parametrize("what", ["twice", "body", "destroy body", "no node", "capturing"])
def test_what_cannot_be_instantiated(host, stub, what):
    graph, _, body = host.loop()
    code, words = INVALID_VALUE, "the body of a loop"
    if what == "twice":
        host.instantiate(graph)
        result, words = instantiated(host, graph), "once at a time"
    elif what == "body":
        result = instantiated(host, body)
    elif what == "destroy body":
        result = host.cu("cuGraphDestroy", body)
    elif what == "no node":
        host.make("cuGraphConditionalHandleCreate", graph, host.context, 1, 1)
        result, words = instantiated(host, graph), "without a node"
    else:
        assert host.cu("cuStreamBeginCaptureToGraph", host.stream, body, None, None, 0, 1) == 0
        result, code, words = instantiated(host, graph), ILLEGAL_STATE, "being captured"
        assert host.make_last("cuStreamEndCapture", host.stream) == body
    assert result == code
    assert words in take_log(stub)[0]


def test_a_condition_has_one_node_of_its_own_graph(host, stub):
    graph, again, _ = host.loop()
    other = host.loop()[0]
    assert host.add_loop(graph, again)[0] == INVALID_VALUE
    assert host.add_loop(other, again)[0] == INVALID_VALUE
    assert host.cu("cuGraphConditionalHandleCreate", ctypes.byref(ctypes.c_uint64()), graph, 1, 1, 1) == INVALID_CONTEXT
    log = take_log(stub)
    assert "has a node already" in log[0]
    assert "of another graph" in log[1]


def test_a_condition_is_set_by_its_own_graph_alone(host, stub):
    _, again, _ = host.loop()
    assert gate_of(host, again)() == 0
    assert host.cu("cuStreamSynchronize", host.stream) == ILLEGAL_ADDRESS
    assert "no condition" in take_log(stub)[0]


def test_conditions_go_with_their_graph(host, stub):
    graph, again, body = host.loop()
    host.capture_into(body, gate_of(host, again))
    made = host.instantiate(graph)
    host.live.remove(("cuGraphDestroy", graph))
    assert host.cu("cuGraphDestroy", graph) == 0
    assert host.cu("cuGraphLaunch", made, host.stream) == 0
    assert host.cu("cuStreamSynchronize", host.stream) == ILLEGAL_ADDRESS
    assert "was destroyed" in take_log(stub)[0]


def test_what_a_loop_writes_is_a_race_like_any_other(host, stub):
    graph, again, body = host.loop()
    out = []
    host.capture_into(body, gate_of(host, again, out))
    other = host.make("cuStreamCreate", 1)
    assert host.cu("cuGraphLaunch", host.instantiate(graph), host.stream) == 0
    assert host.cu("cuMemsetD8Async", out[-1], 0, 4, other) == 0
    assert host.cu("cuStreamSynchronize", other) == host.cu("cuStreamSynchronize", host.stream) == 0
    assert host.cu("cuStreamDestroy_v2", other) == 0
    assert "a race" in take_log(stub)[0]
