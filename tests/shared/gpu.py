"""Models on a GPU for tests: a real one under --device cuda, else the stub of the driver."""

import gc
import os
import struct
from pathlib import Path

import numpy as np
import pytest

import stub_cuda
from debug_words import ask
from decode import open_session
from swiftk import _core
from swiftk.gpu import device


@pytest.fixture(name="gpu", scope="module")
def gpu_fixture(request, tmp_path_factory):
    """gpu.open(folder, dtype) -> _core.Model on the GPU; gpu.stub is the stub, or None on a real one."""
    real = request.config.getoption("--device") == "cuda"
    with pytest.MonkeyPatch.context() as patch:
        if not real:
            path = stub_cuda.library(tmp_path_factory.getbasetemp() / "stub_cuda")
            ask(patch, f"driver={path}", "arch=stub")
        yield Gpu(None if real else stub_cuda.Stub(path))


class Gpu:
    def __init__(self, stub):
        self.stub = stub

    def open(self, folder, dtype="auto", pack=None):
        pack = pack or device.kernels(folder, dtype, "cuda")
        return _core.Model(str(folder), dtype=dtype, device="cuda", pack=str(pack))

    def session(self, model, sampling=None, context=0):
        return open_session(model, context=context, sampling=sampling)


@pytest.fixture(name="clean")
def clean_fixture(gpu):
    """On the stub: the test fails if the driver was used wrongly, or if anything is left behind it."""
    if gpu.stub is None:
        yield
        return
    gc.collect()
    before = held(gpu.stub)
    gpu.stub.reset()
    yield
    gc.collect()
    log = gpu.stub.log()
    gpu.stub.reset()
    assert not log, log
    after = held(gpu.stub)
    assert after == before, (before, after)


def copied(folder, to):
    """A copy of the kernel pack for the GPU of this run."""
    to.write_bytes(Path(device.kernels(folder, "auto", "cuda")).read_bytes())
    return to


def replaced(path, old, new):
    """A copy of a pack with a text of its header exchanged."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = data[8 : 8 + length].replace(old, new, 1)
    assert header != data[8 : 8 + length]
    other = path.with_name("other.pack")
    other.write_bytes(struct.pack("<Q", len(header)) + header + data[8 + length :])
    return other


def held(stub):
    """What the device still holds, by kind."""
    kinds = ("allocations", "bytes", "pinned_allocations", "streams", "events", "modules", "graphs", "graph_execs")
    counters = stub.counters()
    return {kind: counters.get(kind, 0) for kind in kinds}


def tokens(n, vocab, seed=0):
    return np.random.default_rng(seed).integers(1, vocab, n).astype(np.int32)


def logits_after(session, text):
    """The logits row of the last token of a text, computed from nothing."""
    session.reuse([int(text[0]) ^ 1, 0])
    session.prefill(text)
    return session.logits[0].copy()


def chain(n):
    return np.arange(n, dtype=np.int32)


def on_stub_only(gpu):
    if gpu.stub is None:
        pytest.skip("counts what the stub of the driver was asked for")


os.environ.setdefault("SWIFTK_DEVICE", "cpu")
