"""Triton kernels in Triton's interpreter, in a process of its own: it has to be chosen before Triton is imported.

`Interpreter.run` sends a launch over a pipe and copies what the kernel wrote back into the caller's arrays. Dots are
summed along K one by one, as the tensor core does in steps: a matrix library picks an order by the shape of the whole.
"""

import importlib
import os
import pickle
import subprocess
import sys
import types
from pathlib import Path

KERNELS = Path(__file__).resolve().parents[1] / "kernels" / "triton"


def kernels(module):
    """A file of kernels/triton, as a module of a package that is not on the disk."""
    package = sys.modules.setdefault("swiftk_triton", types.ModuleType("swiftk_triton"))
    package.__path__ = [str(KERNELS)]
    return importlib.import_module(f"swiftk_triton.{module}")


class Interpreter:
    def __enter__(self):
        environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def run(self, module, function, grid, arguments, constants):
        """arguments: arrays and scalars in order. None is a pointer that nothing may follow."""
        pickle.dump((module, function, grid, arguments, constants), self.process.stdin)
        self.process.stdin.flush()
        result = pickle.load(self.process.stdout)
        if isinstance(result, str):
            raise RuntimeError(result)
        for mine, theirs in zip(arguments, result):
            if hasattr(mine, "shape") and mine.shape:
                mine[...] = theirs


def ordered_dot(self, a, b, d, input_precision, max_num_imprecise_acc):
    """d + a b, from the first k to the last."""
    total = d.data.copy()
    left, right = a.data.astype(total.dtype), b.data.astype(total.dtype)
    for k in range(left.shape[1]):
        total += left[:, k : k + 1] * right[k : k + 1]
    return type(d)(total, d.dtype.scalar)


def serve(requests, replies):
    import numpy as np
    import torch
    from triton.runtime import interpreter

    interpreter.InterpreterBuilder.create_dot = ordered_dot
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
        except Exception as error:
            import traceback

            result = f"{error!r}\n{traceback.format_exc()}"
        pickle.dump(result, replies)
        replies.flush()


if __name__ == "__main__":
    channel = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a kernel or library prints must not run into the replies
    serve(sys.stdin.buffer, channel)
