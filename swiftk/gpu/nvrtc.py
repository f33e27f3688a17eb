"""NVRTC, the compiler of CUDA C++ that is a library, after a command line: a source to an image, with nvcc's options.

A program of its own, run by its path, so that what a compiler leaves behind, or a crash of it, is not the caller's.
It needs the library of a wheel (nvidia-cuda-nvrtc), and neither a GPU nor a driver nor a compiler for the host.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path


def main(builtins: str, library: str, output: str, source: str, *options: str) -> int:
    ctypes.CDLL(builtins)  # the library opens it by its name alone
    nvrtc, program = ctypes.CDLL(library), ctypes.c_void_p()
    text, name = Path(source).read_bytes(), Path(source).name.encode()
    given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    failed = nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, name, 0, None, None)
    failed = failed or nvrtc.nvrtcCompileProgram(program, len(options), given)
    if program:
        sys.stderr.write(_read(nvrtc, program, "ProgramLog").rstrip(b"\0").decode(errors="replace"))
    if failed:
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        sys.stderr.write(nvrtc.nvrtcGetErrorString(failed).decode() + "\n")
        return 1
    Path(output).write_bytes(_read(nvrtc, program, "CUBIN"))
    return 0


def _read(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    data = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, data)
    return data.raw


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
