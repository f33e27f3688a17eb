"""CUDA C++ kernels on the CPU: kernels/cuda over tests/native/cuda_shim, all cases of a test in one library."""

import ctypes
import importlib.util
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "kernels" / "cuda"
SHIM = ROOT / "tests" / "native" / "cuda_shim"


def load_plan():
    """kernels/cuda/plan.py."""
    spec = importlib.util.spec_from_file_location("swiftk_cuda_plan", KERNELS / "plan.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def source(cases):
    """A translation unit with the kernel `function` of each (file, defines) in a namespace and a caller of its own."""
    text = ["#include <device.h>", '#include "matmul.cuh"', '#include "gate_rule.h"']
    for i, (file, defines) in enumerate(cases):
        names = [d[2:].split("=") for d in defines]
        text += [f"#define {name} {value}" for name, value in names]
        text += [f"namespace case{i} {{", "using namespace ::swiftk;", f'#include "{file}.cu"', "}"]
        text += [
            f'extern "C" const char* run{i}(unsigned x, unsigned y, size_t shared, void** arguments,',
            "    const shim::Range* memory, size_t ranges, uint64_t seed) {",
            f"  using namespace case{i}::swiftk;",
            f"  return shim::launch(case{i}::swiftk::{file}, x, y, kEntryCluster, kEntryThreads, shared, arguments,",
            "                      memory, ranges, seed);",
            "}",
        ]
        text += [f"#undef {name}" for name, _ in names]
    return "\n".join(text) + "\n"


class Range(ctypes.Structure):
    _fields_ = (("begin", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


class Library:
    """Kernels built for the CPU. bulk: with copies as Hopper makes them, else as machines before it do."""

    def __init__(self, folder, cases, bulk=True):
        compiler = shutil.which("g++") or shutil.which("c++")
        if compiler is None:
            pytest.skip("needs a C++ compiler")
        file, built = Path(folder) / "kernels.cc", Path(folder) / "kernels.so"
        file.write_text(source(cases))
        includes = [f"-I{path}" for path in (SHIM, KERNELS, ROOT / "kernels")]
        flags = ["-std=c++20", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-Wall", "-Wno-unknown-pragmas"]
        command = [
            compiler,
            *flags,
            "-Werror",
            f"-DSWIFTK_SHIM_BULK={int(bulk)}",
            *includes,
            "-o",
            str(built),
            str(file),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        self.functions = ctypes.CDLL(str(built))

    def run(self, case, grid, shared, *arguments, seed=0):
        """Arrays are passed by their address, None as null, other arguments as int."""
        arrays = [a for a in arguments if isinstance(a, np.ndarray)]
        values = [argument(a) for a in arguments]
        places = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        memory = (Range * len(arrays))(*((a.ctypes.data, a.nbytes) for a in arrays))
        function = getattr(self.functions, f"run{case}")
        function.restype = ctypes.c_char_p
        size = ctypes.c_size_t
        function.argtypes = [
            ctypes.c_uint,
            ctypes.c_uint,
            size,
            ctypes.c_void_p,
            ctypes.c_void_p,
            size,
            ctypes.c_uint64,
        ]
        error = function(*grid, shared, places, memory, len(arrays), seed)
        assert error is None, error.decode()


def argument(a):
    if isinstance(a, np.ndarray):
        return ctypes.c_void_p(a.ctypes.data)
    return ctypes.c_void_p() if a is None else ctypes.c_int(a)


def aligned(array):
    """A copy at a multiple of 128 bytes."""
    array = np.ascontiguousarray(array)
    room = np.empty(array.nbytes + 128, np.uint8)
    at = -room.ctypes.data % 128
    out = room[at : at + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out
