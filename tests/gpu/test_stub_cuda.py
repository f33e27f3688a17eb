"""The stub of the CUDA driver itself: that what a real device would punish is found, and what it would do is done."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from building import call
from stub_cuda import (  # noqa: F401
    CAPTURING,
    GIVEN,
    ILLEGAL_ADDRESS,
    INVALID_CONTEXT,
    INVALID_HANDLE,
    INVALID_IMAGE,
    INVALID_VALUE,
    LAUNCH_FAILED,
    MISALIGNED,
    NO_DEVICE,
    NOT_FOUND,
    NOT_READY,
    OUT_OF_MEMORY,
    SPOILT,
    Host,
    host_fixture,
    image,
    library,
    stub_fixture,
    take_log,
    without,
)


def scale_x2(host, x, n):
    """A launch that adds a row to itself: x += x (a residual of the unit matrix). Returns the launch."""
    n_ptr, unit = host.put(np.int32([1])), host.put(np.eye(n, dtype=np.float32))
    copy = host.allocate(4 * n)
    function = host.function("residual", N=n, K=n, HAS_BIAS=0, ROWS=16, TOKENS=8, BLOCK_K=16)

    def launch():
        assert host.cu("cuMemcpyDtoDAsync_v2", copy, x, 4 * n, host.stream) == 0
        return host.launch(function, (1, 1), n_ptr, copy, unit, 0, x)

    return launch


def test_memory_keeps_bytes_and_starts_poisoned(host, stub):
    data = np.arange(1000, dtype=np.uint8)
    assert np.array_equal(host.get(host.put(data), 1000, np.uint8), data)
    assert np.isnan(host.get(host.allocate(64), 16)).all()
    counters = stub.counters()
    assert (counters["allocations"], counters["bytes"], counters["peak_bytes"]) == (2, 1064, 1064)
    assert (counters["h2d"], counters["h2d_bytes"], counters["d2h_bytes"]) == (1, 1000, 1064)


def test_device_memory_is_out_of_the_hosts_reach(stub):
    code = (
        "import ctypes, sys; from stub_cuda import Host, Stub\n"
        "p = Host(Stub(sys.argv[1])).allocate(64); print('here', flush=True); ctypes.string_at(p, 1)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run([sys.executable, "-c", code, stub.path], env=environment, capture_output=True, text=True)
    assert done.stdout.startswith("here") and done.returncode != 0


@pytest.mark.parametrize("what", ["freed", "past", "host", "twice", "size 0"])
def test_bad_addresses_are_refused_and_reported(host, stub, what):
    array, p = np.zeros(64, np.uint8), host.make("cuMemAlloc_v2", 64)
    to, size, source = p, 64, array.ctypes.data
    if what == "size 0":
        assert host.cu("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), 0) == INVALID_VALUE
    elif what == "past":
        assert host.cu("cuMemcpyHtoDAsync_v2", p + 1, source, 64, host.stream) == INVALID_VALUE
    elif what == "host":
        assert host.cu("cuMemcpyHtoDAsync_v2", source, p, 64, host.stream) == INVALID_VALUE
    assert host.cu("cuMemFree_v2", p) == 0
    if what == "freed":
        assert host.cu("cuMemcpyHtoDAsync_v2", to, source, size, host.stream) == INVALID_VALUE
    elif what == "twice":
        assert host.cu("cuMemFree_v2", p) == INVALID_VALUE
    words = {"past": "of an allocation of 64", "host": "no device address", "size 0": "0 bytes"}
    assert words.get(what, "freed bytes") in take_log(stub)[0]


def test_out_of_memory_is_no_violation(host, stub):
    stub.set(memory=1000)
    host.allocate(600)
    assert host.cu("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), 600) == OUT_OF_MEMORY
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert host.cu("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total)) == 0
    assert (free.value, total.value) == (400, 1000)


def test_pinned_memory_is_read_and_written_when_the_stream_runs(host, stub):
    source, target, p = host.pinned(8), host.pinned(8), host.allocate(8)
    source[:] = 1
    assert host.cu("cuMemcpyHtoDAsync_v2", p, source.ctypes.data, 8, host.stream) == 0
    assert host.cu("cuMemcpyDtoHAsync_v2", target.ctypes.data, p, 8, host.stream) == 0
    assert (target == 255).all()
    source[:] = 2  # too early
    assert host.cu("cuStreamSynchronize", host.stream) == 0
    assert (target == 2).all()
    stub.set(eager=1)
    assert host.cu("cuMemsetD8Async", p, 7, 8, host.stream) == 0
    assert host.cu("cuMemcpyDtoHAsync_v2", target.ctypes.data, p, 8, host.stream) == 0
    assert (target == 7).all()


def test_pageable_memory_is_read_at_once(host):
    source, p = np.full(8, 1, np.uint8), host.allocate(8)
    assert host.cu("cuMemcpyHtoDAsync_v2", p, source.ctypes.data, 8, host.stream) == 0
    source[:] = 2
    assert (host.get(p, 8, np.uint8) == 1).all()


def test_copies_take_their_direction_from_addresses(host):
    data, back = np.arange(8, dtype=np.uint8), np.empty(8, np.uint8)
    p, q = host.allocate(8), host.allocate(8)
    for to, source in ((p, data.ctypes.data), (q, p), (back.ctypes.data, q)):
        assert host.cu("cuMemcpyAsync", to, source, 8, host.stream) == 0
    assert np.array_equal(back, data)


def test_events_order_streams(host):
    other, event = host.make("cuStreamCreate", 1), host.make("cuEventCreate", 0)
    target, p = host.pinned(8), host.allocate(8)
    assert host.cu("cuMemsetD8Async", p, 3, 8, host.stream) == 0
    assert host.cu("cuEventRecord", event, host.stream) == 0
    assert host.cu("cuStreamWaitEvent", other, event, 0) == 0
    assert host.cu("cuMemcpyDtoHAsync_v2", target.ctypes.data, p, 8, other) == 0
    assert host.cu("cuStreamSynchronize", other) == 0
    assert (target == 3).all()
    assert host.cu("cuEventQuery", event) == 0
    assert host.cu("cuEventRecord", event, other) == 0
    assert [host.cu("cuEventQuery", event) for _ in range(2)] == [NOT_READY, 0]
    milliseconds = ctypes.c_float(-1)
    assert host.cu("cuEventElapsedTime", ctypes.byref(milliseconds), event, event) == 0
    assert milliseconds.value == 0
    assert host.cu("cuEventDestroy_v2", event) == host.cu("cuStreamDestroy_v2", other) == 0


def test_work_that_nothing_orders_is_a_race(host, stub):
    p = host.allocate(8)
    assert host.cu("cuMemsetD8_v2", p, 0, 8) == 0  # on the null stream, which host.stream does not wait for
    assert host.cu("cuMemsetD8Async", p, 1, 8, host.stream) == 0
    assert (host.get(p, 8, np.uint8) == 1).all()
    assert host.cu("cuCtxSynchronize") == 0
    assert (host.get(p, 8, np.uint8) == 0).all()
    assert "a race" in take_log(stub)[0]


def test_the_null_stream_waits_for_streams_in_order_with_it(stub):
    host = Host(stub, flags=0)
    p, back = host.allocate(8), np.empty(8, np.uint8)
    assert host.cu("cuMemsetD8_v2", p, 1, 8) == host.cu("cuMemsetD8Async", p, 2, 8, host.stream) == 0
    assert host.cu("cuMemcpyDtoH_v2", back.ctypes.data, p, 8) == 0
    assert (back == 2).all()
    host.close()
    assert not take_log(stub)


def capture(host, *steps, mode=1):
    """An executable graph of what the steps give to the stream."""
    assert host.cu("cuStreamBeginCapture_v2", host.stream, mode) == 0
    for step in steps:
        assert step() == 0
    graph = host.make_last("cuStreamEndCapture", host.stream)
    count = ctypes.c_size_t()
    assert host.cu("cuGraphGetNodes", graph, None, ctypes.byref(count)) == 0
    exec_ = host.make("cuGraphInstantiateWithFlags", graph, 0)
    assert host.cu("cuGraphDestroy", graph) == 0
    host.live.append(("cuGraphExecDestroy", exec_))
    return exec_, count.value


def test_graphs_replay_what_was_captured(host, stub):
    source, x = host.pinned(4, np.float32), host.allocate(16)
    upload = lambda: host.cu("cuMemcpyHtoDAsync_v2", x, source.ctypes.data, 16, host.stream)  # noqa: E731
    double = scale_x2(host, x, 4)
    exec_, nodes = capture(host, upload, double)
    assert nodes == 3
    assert stub.count("launches") == 0
    for value in (1, 5):
        source[:] = value
        assert host.cu("cuGraphLaunch", exec_, host.stream) == 0
        assert (host.get(x, 4) == 2 * value).all()
    counters = stub.counters()
    assert (counters["captures"], counters["instantiations"], counters["graph_launches"]) == (1, 1, 2)
    assert (counters["launches"], counters["launches.residual"], counters["calls.cuLaunchKernel"]) == (2, 2, 1)


@pytest.mark.parametrize("what", ["allocate", "synchronise", "pageable", "copy", "free", "query"])
def test_what_may_synchronise_spoils_a_capture(host, stub, what):
    p, array = host.allocate(8), np.zeros(8, np.uint8)
    assert host.cu("cuStreamBeginCapture_v2", host.stream, 1) == 0
    code = {
        "allocate": lambda: host.cu("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), 8),
        "synchronise": lambda: host.cu("cuStreamSynchronize", host.stream),
        "pageable": lambda: host.cu("cuMemcpyHtoDAsync_v2", p, array.ctypes.data, 8, host.stream),
        "copy": lambda: host.cu("cuMemcpyDtoH_v2", array.ctypes.data, p, 8),
        "free": lambda: host.cu("cuMemFree_v2", p),
        "query": lambda: host.cu("cuStreamQuery", None),
    }[what]()
    assert code == CAPTURING
    assert host.cu("cuMemsetD8Async", p, 0, 8, host.stream) == SPOILT
    assert host.cu("cuStreamEndCapture", host.stream, ctypes.byref(ctypes.c_uint64())) == SPOILT
    assert host.cu("cuMemsetD8Async", p, 0, 8, host.stream) == 0
    assert len(take_log(stub)) == 2


def test_a_graph_finds_memory_that_is_gone(host, stub):
    x = host.make("cuMemAlloc_v2", 16)
    exec_, _ = capture(host, scale_x2(host, x, 4))
    assert host.cu("cuMemFree_v2", x) == 0
    assert host.cu("cuGraphLaunch", exec_, host.stream) == 0
    assert host.cu("cuStreamSynchronize", host.stream) == ILLEGAL_ADDRESS
    assert host.cu("cuStreamSynchronize", host.stream) == ILLEGAL_ADDRESS  # and so is every call from then on
    assert "freed bytes" in take_log(stub)[0]


def test_faults(host, stub):
    stub.fail("cuMemAlloc_v2", OUT_OF_MEMORY, 2)
    p = host.allocate(16)
    assert host.cu("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), 16) == OUT_OF_MEMORY
    launch = scale_x2(host, p, 4)
    stub.fail("residual", LAUNCH_FAILED)
    assert launch() == 0
    assert host.cu("cuStreamSynchronize", host.stream) == LAUNCH_FAILED
    assert host.cu("cuMemsetD8Async", p, 0, 16, host.stream) == LAUNCH_FAILED
    assert not take_log(stub)


def test_launches_are_checked(host, stub):
    n, x = host.put(np.int32([1])), host.put(np.zeros((1, 16), np.float32))
    function = host.function("rmsnorm", D=16, EPS=1e-5, BLOCK=16)
    arguments = (n, x, x, x)
    assert host.launch(function, (1,), *arguments, threads=48) == INVALID_VALUE
    assert host.launch(function, (0,), *arguments) == INVALID_VALUE
    assert host.launch(function, (1,), *arguments, shared=50000) == INVALID_VALUE
    assert host.cu("cuFuncSetAttribute", function, 8, 50000) == 0
    assert host.launch(function, (1,), *arguments, shared=50000) == 0
    assert host.cu("cuFuncSetAttribute", function, 8, 300000) == INVALID_VALUE
    assert host.cu("cuModuleLoadData", ctypes.byref(ctypes.c_uint64()), b"\x7fELF") == INVALID_IMAGE
    assert host.cu("cuModuleLoadData", ctypes.byref(ctypes.c_uint64()), image("no_such_kernel")) == INVALID_IMAGE
    assert host.cu("cuLaunchKernel", 5, 1, 1, 1, 32, 1, 1, 0, host.stream, None, None) == INVALID_HANDLE
    assert host.cu("cuStreamSynchronize", 12345) == INVALID_HANDLE
    module = host.make("cuModuleLoadData", image("rmsnorm", D=16, EPS=1e-5, BLOCK=16))
    assert host.cu("cuModuleGetFunction", ctypes.byref(ctypes.c_uint64()), module, b"qkv") == NOT_FOUND
    assert host.cu("cuModuleUnload", module) == 0
    assert len(take_log(stub)) == 9


@pytest.mark.parametrize(
    "rows, offset, code, words",
    [
        (3, 0, LAUNCH_FAILED, "do not cover 3"),
        (2, 8, MISALIGNED, "multiple of 16"),
        (2, 64, ILLEGAL_ADDRESS, "elements 16 to 32"),
    ],
)
def test_kernels_fail_where_a_device_would(host, stub, rows, offset, code, words):
    n, x = host.put(np.int32([rows])), host.put(np.ones((2, 16), np.float32))
    y = host.allocate(128)
    function = host.function("rmsnorm", D=16, EPS=1e-5, BLOCK=16)
    assert host.launch(function, (2,), n, x + offset, x, y) == 0
    assert host.cu("cuStreamSynchronize", host.stream) == code
    assert words in take_log(stub)[0]


def test_a_thread_needs_a_context(host, stub):
    assert host.cu("cuCtxSetCurrent", None) == 0
    assert host.cu("cuMemAlloc_v2", ctypes.byref(ctypes.c_uint64()), 8) == INVALID_CONTEXT
    assert host.cu("cuCtxSetCurrent", host.context) == 0
    assert "no context" in take_log(stub)[0]


def test_what_is_left_in_a_context_is_reported(stub):
    stub.reset()
    host = Host(stub)
    host.allocate(8)
    assert host.cu("cuCtxSetCurrent", None) == 0
    assert host.cu("cuDevicePrimaryCtxRelease_v2", ctypes.c_int(0)) == 0
    assert [line.split(": ")[1] for line in take_log(stub)] == ["1 allocations left", "1 streams left"]
    assert stub.count("allocations") == stub.count("streams") == 0


def test_devices_to_order(stub):
    stub.reset()
    stub.set(devices=0)
    assert stub.library.cuInit(0) == NO_DEVICE
    stub.set(devices=1, major=8, minor=6)
    value = ctypes.c_int()
    for attribute, expected in ((75, 8), (76, 6), (16, 132), (97, 232448)):
        assert stub.library.cuDeviceGetAttribute(ctypes.byref(value), attribute, 0) == 0
        assert value.value == expected
    name = ctypes.c_char_p()
    assert stub.library.cuGetErrorName(NOT_READY, ctypes.byref(name)) == 0
    assert name.value == b"CUDA_ERROR_NOT_READY"
    stub.reset()


def test_a_driver_may_lack_a_function(stub, tmp_path):
    old = ctypes.CDLL(str(without(stub.path, "cuLaunchKernelEx", tmp_path / "libcuda.so.1")))
    assert hasattr(old, "cuLaunchKernel") and not hasattr(old, "cuLaunchKernelEx")


@pytest.mark.exhaustive
@pytest.mark.skipif(GIVEN in os.environ, reason="this is the inner run")
def test_under_sanitizers(tmp_path):
    path = library(tmp_path, sanitize="address")
    runtimes = [call("c++", f"-print-file-name={name}").strip() for name in ("libasan.so", "libstdc++.so")]
    if not Path(runtimes[0]).is_file():
        pytest.skip("the compiler has no shared AddressSanitizer")
    preload = " ".join(runtimes)  # the second, for AddressSanitizer to see exceptions thrown
    environment = {**os.environ, GIVEN: str(path), "LD_PRELOAD": preload, "ASAN_OPTIONS": "detect_leaks=0"}
    files = [Path(__file__).with_name(f"test_stub_{name}.py") for name in ("cuda", "kernels", "loops")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "", "--noconftest", *files],
        env=environment, cwd=Path(__file__).parent, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
