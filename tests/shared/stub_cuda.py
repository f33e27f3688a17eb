"""The stub of the CUDA driver (tests/native/stub_cuda): built once a run, its own functions, a small host on top."""

import ctypes
import functools
import gc
import json
import os
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from building import building_in, call, find_cmake

SOURCE = Path(__file__).parents[1] / "native" / "stub_cuda"
GIVEN = "SWIFTK_STUB_CUDA"  # a library to use instead of building one
NON_BLOCKING = 1
INVALID_VALUE, OUT_OF_MEMORY, NO_DEVICE, INVALID_IMAGE, INVALID_CONTEXT = 1, 2, 100, 200, 201
INVALID_HANDLE, NOT_FOUND, NOT_READY, ILLEGAL_ADDRESS, MISALIGNED, LAUNCH_FAILED = 400, 500, 600, 700, 716, 719
CAPTURING, SPOILT, IMPLICIT = 900, 901, 906
OVERLAP = 6  # launch attribute: programmatic stream serialization


@functools.cache
def library(folder, sanitize=""):
    """Path of the library, built below a run's temporary folder, by one of its processes."""
    if os.environ.get(GIVEN):
        return Path(os.environ[GIVEN])
    cmake = find_cmake()
    if cmake is None or not (shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("needs CMake and a C++ compiler")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    # Speed does not matter there, and -O1 compiles in half the time.
    quick = ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O1"] if sanitize else []
    with building_in(folder) as shared:
        call(cmake, *generator, "-S", SOURCE, "-B", shared, f"-DSWIFTK_SANITIZE={sanitize}", *quick)
        call(cmake, "--build", shared, "-j", len(os.sched_getaffinity(0)))
        return shared / "libstub_cuda.so"


@pytest.fixture(name="stub", scope="session")
def stub_fixture(tmp_path_factory):
    """The stub, loaded into this process."""
    return Stub(library(tmp_path_factory.getbasetemp() / "stub_cuda"))


def take_log(stub):
    """The log, which is empty afterwards."""
    log = stub.log()
    stub.reset()
    return log


def without(path, symbol, to):
    """A copy of the library that lacks a symbol: its name there is changed in the first letter."""
    data = path.read_bytes()
    assert f"\0{symbol}\0".encode() in data
    to.write_bytes(data.replace(f"\0{symbol}\0".encode(), f"\0_{symbol[1:]}\0".encode()))
    return to


class Stub:
    """The stub's own functions. A library that other code of this process loads from the same path is the same one."""

    def __init__(self, path):
        self.path = Path(path)
        self.library = ctypes.CDLL(str(path))
        for name in ("stub_counters", "stub_log"):
            getattr(self.library, name).restype = ctypes.c_size_t
        self.library.stub_kernel.restype = ctypes.c_char_p

    def _text(self, function):
        size = function(None, ctypes.c_size_t(0))
        text = ctypes.create_string_buffer(size)
        function(text, ctypes.c_size_t(size))
        return text.value.decode()

    def counters(self):
        """Counts since the last reset by name; see api_stub.cc."""
        return json.loads(self._text(self.library.stub_counters))

    def count(self, name):
        return self.counters().get(name, 0)

    def log(self):
        """What was done wrong, a line each."""
        return self._text(self.library.stub_log).splitlines()

    def fail(self, name, error, after=1):
        """The `after`-th call of a driver function, or run of a kernel, from now on gives this error, once."""
        self.library.stub_fail(name.encode(), error, after)

    def arguments(self, kernel):
        """A kernel's arguments as letters; see kernel.h."""
        return self.library.stub_kernel(kernel.encode()).decode()

    def set(self, **settings):
        for name, value in settings.items():
            assert self.library.stub_set(name.encode(), ctypes.c_longlong(value)), f"no setting {name}"

    def reset(self):
        """Forgets counts, log, faults, settings and the failure of the device; what is allocated stays."""
        self.library.stub_reset()


def image(kernel, dtype="float32", **constants):
    """A kernel's image in a pack of the architecture "stub"."""
    return json.dumps({"kernel": kernel, "constants": {"DT": dtype, **constants}}).encode()


def address_of(data):
    """Address of bytes, for as long as they live."""
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value


class Host:
    """A program that uses the driver: a context, a stream, memory, launches. Errors are AssertionErrors."""

    def __init__(self, stub, flags=NON_BLOCKING):
        self.library = stub.library
        self.live = []
        assert self.cu("cuInit", 0) == 0
        self.context = self.make("cuDevicePrimaryCtxRetain", 0)
        assert self.cu("cuCtxSetCurrent", self.context) == 0
        self.stream = self.make("cuStreamCreate", flags)

    def close(self):
        """Leaves nothing after."""
        self.cu("cuStreamDestroy_v2", self.stream)
        for release, handle in reversed(self.live):
            assert self.cu(release, handle) == 0
        assert self.cu("cuCtxSetCurrent", None) == 0  # what is current would be restored by whoever comes next
        assert self.cu("cuDevicePrimaryCtxRelease_v2", ctypes.c_int(0)) == 0

    def cu(self, name, *arguments):
        """A driver function's result; integers are passed as 64 bits, which an int parameter takes too."""
        return getattr(self.library, name)(*(ctypes.c_uint64(a) if isinstance(a, int) else a for a in arguments))

    def make(self, name, *arguments):
        """The handle or address that a function writes to its first parameter."""
        made = ctypes.c_uint64(0)
        assert self.cu(name, ctypes.byref(made), *arguments) == 0, name
        return made.value

    def make_last(self, name, *arguments):
        """The same where it is the last parameter."""
        made = ctypes.c_uint64(0)
        assert self.cu(name, *arguments, ctypes.byref(made)) == 0, name
        return made.value

    def allocate(self, size):
        address = self.make("cuMemAlloc_v2", size)
        self.live.append(("cuMemFree_v2", address))
        return address

    def pinned(self, count, dtype=np.uint8):
        """An array in pinned memory."""
        size = count * np.dtype(dtype).itemsize
        address = self.make("cuMemHostAlloc", size, 0)
        self.live.append(("cuMemFreeHost", address))
        return np.frombuffer((ctypes.c_char * size).from_address(address), dtype)

    def put(self, array):
        """The address of a copy on the device."""
        array = np.ascontiguousarray(array)
        address = self.allocate(max(array.nbytes, 1))
        assert self.cu("cuMemcpyHtoDAsync_v2", address, array.ctypes.data, array.nbytes, self.stream) == 0
        return address

    def get(self, address, shape, dtype=np.float32):
        """An array copied from the device when its work is done."""
        array = np.empty(shape, dtype)
        assert self.cu("cuMemcpyDtoHAsync_v2", array.ctypes.data, address, array.nbytes, self.stream) == 0
        return array

    def function(self, kernel, dtype="float32", *, load=True, **constants):
        module = self.make("cuModuleLoadData", image(kernel, dtype, **constants))
        self.live.append(("cuModuleUnload", module))
        function = self.make("cuModuleGetFunction", module, kernel.encode())
        assert not load or self.cu("cuFuncLoad", function) == 0
        return function

    def add_loop(self, graph, handle):
        """(result, body) of a node of `graph` that repeats its body while the condition after `handle` is not 0."""
        node = np.zeros(32, np.uint64)  # CUgraphNodeParams
        node[0], node[2], node[3], node[5] = 13, handle, 1 | 1 << 32, self.context
        made = ctypes.byref(ctypes.c_uint64())
        result = self.cu("cuGraphAddNode_v2", made, graph, None, None, 0, node.ctypes.data)
        return result, result == 0 and ctypes.cast(int(node[4]), ctypes.POINTER(ctypes.c_uint64))[0]

    def loop(self):
        """(graph, condition, body) of a graph that is one loop, whose body is empty."""
        graph = self.make("cuGraphCreate", 0)
        self.live.append(("cuGraphDestroy", graph))
        handle = self.make("cuGraphConditionalHandleCreate", graph, self.context, 1, 1)
        result, body = self.add_loop(graph, handle)
        assert result == 0
        return graph, handle, body

    def capture_into(self, body, *launches):
        assert self.cu("cuStreamBeginCaptureToGraph", self.stream, body, None, None, 0, 1) == 0
        results = [launch() for launch in launches]
        made = self.make_last("cuStreamEndCapture", self.stream)  # first: an open capture spoils what follows
        assert (results, made) == ([0] * len(launches), body)

    def instantiate(self, graph):
        made = self.make("cuGraphInstantiateWithFlags", graph, 0)
        self.live.append(("cuGraphExecDestroy", made))
        return made

    def launch(self, function, grid, *arguments, threads=32, shared=0, early=False):
        """The driver's result. Integers are passed as pointers are, other scalars as numpy's of the right type."""
        values = [np.uint64(a) if isinstance(a, int) else a for a in (*arguments, 0, 0)]
        boxes = [np.array([v]) for v in values]
        pointers = (ctypes.c_void_p * len(boxes))(*(b.ctypes.data for b in boxes))
        grid = (*grid, 1, 1)[:3]
        if early:
            attribute = struct.pack("<I4xi60x", OVERLAP, 1)
            config = struct.pack("<7I4xQQI4x", *grid, threads, 1, 1, shared, self.stream, address_of(attribute), 1)
            return self.cu("cuLaunchKernelEx", config, function, pointers, None)
        return self.cu("cuLaunchKernel", function, *grid, threads, 1, 1, shared, self.stream, pointers, None)

    def run(self, kernel, dtype, constants, grid, *arguments):
        """Launches and waits."""
        assert self.launch(self.function(kernel, dtype, **constants), grid, *arguments) == 0
        assert self.cu("cuStreamSynchronize", self.stream) == 0


@pytest.fixture(name="host")
def host_fixture(stub):
    """A Host on a fresh stub; the test fails if it ends with a violation it has not looked at, or leaves anything."""
    gc.collect()  # models of earlier tests: one that is released during a capture spoils it
    stub.reset()
    host = Host(stub)
    yield host
    log = stub.log()
    stub.reset()
    host.close()
    assert not log
    assert not stub.log()
