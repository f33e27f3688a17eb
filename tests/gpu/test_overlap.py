"""Launches that overlap: which are, where they cannot be, and that the stub's device finds those that may not."""

import ctypes
import re

import numpy as np
import pytest

import stub_cuda
from debug_words import ask
from decode import Rule, decode
from gpu import clean_fixture, gpu_fixture, on_stub_only  # noqa: F401
from stub_cuda import host_fixture, stub_fixture  # noqa: F401
from swiftk.gpu import device, pack

PROMPT = [5, 9, 2, 7, 7, 1, 30, 12]
RULE = Rule(((1,), (1, 2), -1), 0.0, 5)
IN_TURN = ("topk_partial", "topk_merge", "gate", "move_rows", "pack")  # kernels that wait for all before them
CAPTURING, SPOILT = 900, 901
SIZES = {"D": 16, "EPS": 1e-5, "BLOCK": 16}


@pytest.fixture
def folder(tiny_dir):
    return tiny_dir("llama3", layers=4)


def pack_of(folder, path, matmuls):
    pack.build(pack.shape_of(folder), device.architecture("cuda"), path, matmuls=matmuls)
    return path


def run(gpu, folder, kernels=None):
    """(tokens, early launches, launches that could have been early) of a text, drafted in part."""
    session = gpu.session(gpu.open(folder, pack=kernels))
    tokens = decode(session, PROMPT, 24).tokens
    session.reuse([PROMPT[0] ^ 1, 0])
    assert decode(session, PROMPT, 24, RULE).tokens[:24] == tokens
    counted = gpu.stub.counters()
    could = counted["launches"] - sum(counted.get(f"launches.{name}", 0) for name in IN_TURN)
    return tokens, counted.get("early_launches", 0), could


@pytest.mark.parametrize("matmuls", ["triton", "cuda"])
@pytest.mark.usefixtures("clean")
def test_every_launch_of_a_pass_is_early(gpu, folder, tmp_path, matmuls):
    on_stub_only(gpu)
    _, early, could = run(gpu, folder, pack_of(folder, tmp_path / "a.pack", matmuls))
    assert early == could > 1000


@pytest.mark.parametrize("why", ["environment", "gpu", "driver", "function"])
@pytest.mark.usefixtures("clean")
def test_where_they_cannot_overlap_kernels_run_in_turn(gpu, folder, monkeypatch, tmp_path, why):
    on_stub_only(gpu)
    want = run(gpu, folder)[0]
    gpu.stub.reset()
    settings = {"gpu": {"major": 8, "minor": 6}, "driver": {"driver_version": 12020}}.get(why, {})
    gpu.stub.set(**settings)
    if why == "environment":
        ask(monkeypatch, "overlap=0")
    if why == "function":
        old = stub_cuda.without(gpu.stub.path, "cuLaunchKernelEx", tmp_path / "libold.so")
        ask(monkeypatch, f"driver={old}")
        monkeypatch.setattr(gpu, "stub", stub_cuda.Stub(old))
    tokens, early, could = run(gpu, folder)
    assert (tokens, early) == (want, 0) and could > 1000
    assert gpu.stub.count("calls.cuLaunchKernelEx") == 0
    assert not gpu.stub.log()


KERNELS = ("rmsnorm", "qkv", "qk_norm_rope", "attention_split", "attention_merge", "residual", "gate_up", "lm_head")


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_that_forgets_to_wait_is_found(gpu, tiny_dir, tmp_path, kernel):
    """The runtime takes the pack's word for it; the kernel itself has no wait."""
    on_stub_only(gpu)
    folder = tiny_dir("qwen3")
    path = pack_of(folder, tmp_path / "a.pack", "cuda")
    data = path.read_bytes()
    image = re.compile(rb'\{"kernel": "%s"[^}]*"EARLY": true' % kernel.encode())
    changed = image.sub(lambda m: m[0].replace(b": true", b":false"), data)
    assert len(changed) == len(data) and changed != data
    path.write_bytes(changed)
    gpu.stub.reset()
    decode(gpu.session(gpu.open(folder, pack=path)), PROMPT, 4)
    log = gpu.stub.log()
    gpu.stub.reset()
    assert log and all(line.startswith(f"{kernel}: ") and "a race" in line for line in log)


# The stub's device


class Chain:
    """x -> y by a norm, launch after launch, each of its own function."""

    def __init__(self, host):
        self.host = host
        self.n = host.put(np.int32([1]))
        self.memory = {name: host.put(np.ones(16, np.float32)) for name in "wxyz"}
        self.functions = {waits: host.function("rmsnorm", **SIZES, EARLY=waits) for waits in (False, True)}

    def norm(self, source, target, *, early=True, waits=True):
        m = self.memory
        arguments = (self.n, m[source], m["w"], m[target])
        return self.host.launch(self.functions[waits], (1,), *arguments, early=early)


RACES = {
    "reads": ([("x", "y"), ("y", "z")], "reads what work given before may still write"),
    "writes": ([("x", "y"), ("z", "y")], "writes what work given before may still write"),
    "writes over": ([("x", "y"), ("z", "x")], "writes what work given before may still read"),
    "two back": ([("x", "y"), ("w", "z"), ("w", "x")], "writes what work given before may still read"),
}


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("case", RACES)
def test_what_an_early_kernel_may_not_touch_before_it_waits(host, stub, case, recorded):
    chain, (steps, words) = Chain(host), RACES[case]
    for waits in (True, False):
        if recorded:
            assert host.cu("cuStreamBeginCapture_v2", host.stream, 1) == 0
        for i, step in enumerate(steps):
            last = i == len(steps) - 1
            assert chain.norm(*step, early=i > 0, waits=waits or not last) == 0
        if recorded:
            graph = host.make_last("cuStreamEndCapture", host.stream)
            exec_ = host.make("cuGraphInstantiateWithFlags", graph, 0)
            host.live += [("cuGraphDestroy", graph), ("cuGraphExecDestroy", exec_)]
            assert host.cu("cuGraphLaunch", exec_, host.stream) == 0
        assert host.cu("cuStreamSynchronize", host.stream) == 0
        assert (not stub.log()) if waits else all(words in line for line in stub.log())
    assert stub.log()
    stub.reset()


def test_what_was_over_before_the_others_began_is_free(host):
    """The third starts beside the second alone, which began when the first was over."""
    chain = Chain(host)
    assert chain.norm("x", "y", early=False) == 0
    assert chain.norm("w", "z", early=False) == 0
    assert chain.norm("y", "x", waits=False) == 0
    assert host.cu("cuStreamSynchronize", host.stream) == 0


def test_weights_that_the_kernel_before_writes_may_not_come_ahead(host, stub):
    shape = dict.fromkeys(("qk_norm", "qkv_bias", "o_bias", "mlp_bias"), False)
    shape |= {"D": 16, "H": 2, "KV": 1, "HD": 8, "F": 16, "V": 16, "dtype": "float16"}
    entries = {e.name: e for e in pack.pack_cuda.entries(shape, "stub", True)[0]}
    half, packed = {"dtype": "float16"}, host.allocate(1 << 16)
    n, y, logits = host.put(np.int32([1])), host.put(np.ones(16, np.float16)), host.allocate(64)
    rows = pack.pack_cuda.plan().rows_of_units("lm_head", shape, entries["pack.lm_head"].constants["UNIT"])
    source, numbers = host.put(np.ones((16, 16), np.float16)), [np.int32(value) for value in rows]
    lay_out = host.function("pack", **half, **entries["pack.lm_head"].constants)
    multiply = host.function("lm_head", **half, **entries["lm_head.8"].constants)
    for between in (True, False):
        assert host.launch(lay_out, (64,), source, packed, *numbers, threads=256) == 0
        if between:
            assert host.cu("cuStreamSynchronize", host.stream) == 0
            assert Chain(host).norm("x", "y", early=False) == 0
        grid = (entries["lm_head.8"].constants["GRID"], 1)
        assert host.launch(multiply, grid, n, y, packed, logits, threads=192, early=True) == 0
        assert host.cu("cuStreamSynchronize", host.stream) == 0
        assert bool(stub.log()) != between
    assert stub.log() == ["lm_head: a race: it reads what work given before may still write"]
    stub.reset()


def test_early_launches_want_a_driver_that_records_them(host, stub):
    chain = Chain(host)
    stub.set(driver_version=12020)
    assert host.cu("cuStreamBeginCapture_v2", host.stream, 1) == 0
    assert chain.norm("x", "y") == CAPTURING
    assert host.cu("cuStreamEndCapture", host.stream, ctypes.byref(ctypes.c_uint64())) == SPOILT
    assert "an early launch cannot be captured" in stub.log()[0]
    stub.reset()
