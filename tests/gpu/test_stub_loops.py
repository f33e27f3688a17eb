"""The stub's graphs that repeat a part of themselves: what a driver refuses is refused."""

import ctypes

import numpy as np
import pytest

from gate_state import HALF, K, spine, state_of
from stub_cuda import (  # noqa: F401
    CAPTURING,
    ILLEGAL_ADDRESS,
    INVALID_CONTEXT,
    INVALID_VALUE,
    OUT_OF_MEMORY,
    SPOILT,
    host_fixture,
    stub_fixture,
    take_log,
)

ILLEGAL_STATE, NOT_SUPPORTED, UNKNOWN = 401, 801, 999


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


def begin_body(host, body):
    assert host.cu("cuStreamBeginCaptureToGraph", host.stream, body, None, None, 0, 1) == 0


def end_capture(host):
    return host.cu("cuStreamEndCapture", host.stream, ctypes.byref(ctypes.c_uint64()))


@pytest.mark.parametrize("how", ["spoilt", "end"])
def test_a_body_whose_capture_fails_is_freed_under_its_graph(host, stub, how):
    """As drivers do, which crash when that graph is destroyed; nothing of it counts as left."""
    before = stub.count("graphs")
    graph, _, body = host.loop()
    host.live.remove(("cuGraphDestroy", graph))
    begin_body(host, body)
    if how == "spoilt":
        assert host.cu("cuStreamSynchronize", host.stream) == CAPTURING
        assert end_capture(host) == SPOILT
    else:
        stub.fail("cuStreamEndCapture", OUT_OF_MEMORY)
        assert end_capture(host) == OUT_OF_MEMORY
    assert (stub.count("graphs"), stub.count("damaged_graphs")) == (before, 1)
    assert host.cu("cuGraphDestroy", graph) == UNKNOWN
    assert "a driver crashes here" in take_log(stub)[-1]
    graph, _, body = host.loop()
    begin_body(host, body)
    assert end_capture(host) == 0


@pytest.mark.parametrize("where", [1, 2, 3, 4])
def test_early_launches_in_a_body_may_be_refused(host, stub, where):
    function, memory = host.function("rmsnorm", D=16, EPS=1e-5, BLOCK=16), host.put(np.ones(16, np.float32))
    arguments = host.put(np.int32([1])), memory, memory, host.allocate(64)
    stub.set(refused_edges=where)
    for early in (False, True):
        graph, again, body = host.loop()
        gate = gate_of(host, again)
        begin_body(host, body)
        steps = [host.launch(function, (1,), *arguments, early=early)]
        steps += [gate()] if steps == [0] else []
        steps.append(end_capture(host))
        if steps[-1] == 0:
            made = ctypes.c_uint64()
            steps.append(host.cu("cuGraphInstantiateWithFlags", ctypes.byref(made), graph, 0))
            if steps[-1] == 0:
                host.live.append(("cuGraphExecDestroy", made.value))
                steps.append(host.cu("cuGraphLaunch", made.value, host.stream))
        if early and where < 3:
            host.live.remove(("cuGraphDestroy", graph))
        refused = {1: [NOT_SUPPORTED, SPOILT], 2: [0, 0, NOT_SUPPORTED]}.get(where, [0] * where + [NOT_SUPPORTED])
        assert steps == (refused if early else [0] * 5)


def test_functions_are_loaded_when_they_are_launched_first(host, stub):
    arguments = host.put(np.int32([1])), *[host.put(np.ones(16, np.float32)) for _ in range(3)]
    for lazy, launched, loaded in ((1, 0, 0), (1, 1, 0), (1, 0, 1), (0, 0, 0)):
        stub.set(lazy=lazy)
        function = host.function("rmsnorm", load=bool(loaded), D=16, EPS=1e-5, BLOCK=16)
        if launched:
            assert host.launch(function, (1,), *arguments) == 0
        assert host.cu("cuStreamBeginCapture_v2", host.stream, 1) == 0
        refused = lazy and not launched and not loaded
        assert host.launch(function, (1,), *arguments) == (CAPTURING if refused else 0)
        graph = ctypes.c_uint64()
        assert host.cu("cuStreamEndCapture", host.stream, ctypes.byref(graph)) == (SPOILT if refused else 0)
        assert refused or host.cu("cuGraphDestroy", graph.value) == 0
    assert host.cu("cuStreamBeginCapture_v2", host.stream, 1) == 0
    assert host.cu("cuFuncLoad", function) == CAPTURING
    assert end_capture(host) == SPOILT
    log = take_log(stub)
    assert len(log) == 2 and "rmsnorm would be loaded while the stream captures" in log[0]
