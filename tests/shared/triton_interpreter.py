"""Triton kernels in Triton's interpreter, in a process of its own: it has to be chosen before Triton is imported.
Under --device cuda, the same kernels on the GPU.

A launch goes over a pipe, and what the kernel wrote is copied back into the caller's arrays. Dots are summed along K
one by one, as the tensor core goes through K in steps: a matrix library picks an order by the shape of the whole.
"""

import importlib
import importlib.util
import os
import pickle
import subprocess
import sys
import traceback
import types
from pathlib import Path

import numpy as np
import pytest

from swiftk.gpu import debug

HERE = Path(__file__).resolve().parent
KERNELS = HERE.parents[1] / "kernels" / "triton"


def kernels(module):
    """A file of kernels/triton (or a kernel of the tests), as a module of a package that is not on the disk."""
    package = sys.modules.setdefault("swiftk_triton", types.ModuleType("swiftk_triton"))
    package.__path__ = [str(KERNELS), str(HERE)]
    return importlib.import_module(f"swiftk_triton.{module}")


manifest = kernels("manifest")
cdiv = manifest.cdiv

# Set by --device, and by the stub of the driver, which runs no Triton kernels.
ON_GPU = os.environ.get("SWIFTK_DEVICE") == "cuda" and not debug.value("driver")
# The interpreter computes bfloat16 wrongly.
DTYPES = ["float32", "float16", "bfloat16"] if ON_GPU else ["float32", "float16"]


def unwritten(shape, dtype):
    """NaN everywhere; bfloat16 as its bits."""
    return np.full(shape, 0x7FC0, np.uint16) if dtype == "bfloat16" else np.full(shape, np.nan, dtype)


@pytest.fixture(name="interpreter", scope="module")
def interpreter_fixture():
    if importlib.util.find_spec("triton") is None:
        pytest.skip("needs triton")
    if ON_GPU:
        yield Gpu()
        return
    with Interpreter() as interpreter:
        yield interpreter


class Gpu:
    """Launches as the interpreter's, by Triton's own launcher."""

    def launch(self, module, function, grid, arguments, constants, **options):
        import torch

        def tensor(a):
            there = torch.from_numpy(np.ascontiguousarray(a))
            if a.dtype == np.uint16:
                there = there.view(torch.bfloat16)
            return there.cuda()

        passed = [tensor(a) if isinstance(a, np.ndarray) else a for a in arguments]
        getattr(kernels(module), function)[grid](*passed, **constants, **options)
        for mine, theirs in zip(arguments, passed):
            if isinstance(mine, np.ndarray):
                bits = theirs.view(torch.uint16) if mine.dtype == np.uint16 else theirs
                mine[...] = bits.cpu().numpy()


class Interpreter:
    def __enter__(self):
        environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, __file__], env=environment, **pipes)
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def launch(self, module, function, grid, arguments, constants, **_):
        """arguments: arrays and scalars in order."""
        pickle.dump((module, function, grid, arguments, constants), self.process.stdin)
        self.process.stdin.flush()
        result = pickle.load(self.process.stdout)
        if isinstance(result, str):
            raise RuntimeError(result)
        for mine, theirs in zip(arguments, result):
            if hasattr(mine, "shape"):
                mine[...] = theirs


class Pack:
    """The kernels of a shape, with the constants that the manifest gives them."""

    def __init__(self, interpreter, shape, dtype="float32", eps=1e-5, forms=(), **head):
        """shape: of cases.py; head: what the shape of a head that drafts has beside."""
        self.interpreter, self.shape = interpreter, shape
        flags = {"qk_norm": shape.qk_norm, "qkv_bias": shape.bias, "o_bias": shape.bias, "mlp_bias": shape.bias}
        sizes = {"D": shape.D, "H": shape.H, "KV": shape.n_kv, "HD": shape.d, "F": shape.F, "V": shape.V}
        entries = manifest.entries({**sizes, **flags, "dtype": dtype, "eps": eps, **head}, forms=forms)
        self.entries = {e.name: e for e in entries}

    def run(self, name, grid, *arguments):
        e = self.entries[name]
        assert len(arguments) == len(e.signature)
        self.interpreter.launch(e.module, e.function, grid, list(arguments), e.constants, **e.options)

    def matmul(self, name, tokens, n, outputs, *arguments):
        """n rows in programs of `tokens`, and a token tile beyond them."""
        self.run(f"{name}.{tokens}", self.grid(f"{name}.{tokens}", n, outputs), np.int32([n]), *arguments)

    def grid(self, name, n, outputs):
        constants = self.entries[name].constants
        return cdiv(outputs, constants["ROWS"]), cdiv(n, constants["TOKENS"]) + 1


def ordered_dot(self, a, b, d, input_precision, max_num_imprecise_acc):
    """d + a b, from the first k to the last; of each of a batch."""
    if a.data.ndim == 3:
        each = [ordered_dot(self, *(type(d)(t.data[i], t.dtype) for t in (a, b, d)), 0, 0) for i in range(len(a.data))]
        return type(d)(np.stack([product.data for product in each]), d.dtype.scalar)
    terms = np.empty((a.data.shape[1] + 1, *d.data.shape), d.data.dtype)
    terms[0] = d.data
    np.multiply(a.data.T[:, :, None], b.data[:, None, :], out=terms[1:], dtype=terms.dtype)
    return type(d)(np.add.reduce(terms, 0), d.dtype.scalar)


def patch_once(interpreter):
    """Triton's language is turned into the interpreter's once, for good, and not for every call of a function.

    And a scalar becomes an index: Triton 3.6 makes arrays of one element of scalars, which numpy since 2.4 refuses.
    """
    patch, done = interpreter._patch_lang, set()

    def patched(fn):
        languages = frozenset(name for name in ("tl", "core") if name in fn.__globals__)
        if languages not in done:
            done.add(languages)
            patch(fn)
            interpreter.tl.tensor.__index__ = lambda self: int(self.handle.data.squeeze())
        return interpreter._LangPatchScope()

    interpreter._patch_lang = patched


def serve(requests, replies):
    import torch
    from triton.runtime import interpreter

    interpreter.InterpreterBuilder.create_dot = ordered_dot
    patch_once(interpreter)
    np.seterr(all="ignore")
    while True:
        try:
            module, function, grid, arguments, constants = pickle.load(requests)
        except EOFError:
            return
        try:
            passed = [torch.from_numpy(a) if isinstance(a, np.ndarray) else a for a in arguments]
            getattr(kernels(module), function)[grid](*passed, **constants)
            result = arguments
        except Exception:
            result = traceback.format_exc()
        pickle.dump(result, replies)
        replies.flush()


if __name__ == "__main__":
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a kernel or library prints must not run into the replies
    serve(sys.stdin.buffer, channel)
