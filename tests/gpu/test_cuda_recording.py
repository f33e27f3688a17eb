"""Recordings that the driver refuses, at any of their calls: the same tokens, slower, with a word about it."""

import gc
import logging

import numpy as np
import pytest

import stub_cuda
import swiftk
from debug_words import ask
from decode import decode, open_session
from gpu import clean_fixture, gpu_fixture, on_stub_only  # noqa: F401
from gpu_drafts import LACKING, LAYERS, PROMPT, RULES, SKIP, rounds
from marks import exhaustive
from swiftk import _core
from swiftk.draft.draft_spec import DraftSpec
from swiftk.errors import DeviceError
from swiftk.gpu import device

RULE = RULES["fixed length"]
NOT_SUPPORTED, ILLEGAL_ADDRESS = 801, 700
# Calls of a recording that has begun, and which of them fails.
ENDING = [("cuLaunchKernelEx", n) for n in (1, 2, 9)]
ENDING += [(name, 1) for name in ("cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch")]
IN_TURN, BY_STEPS = "kernels of drafts do not overlap", "drafts go step by step"
BY_KERNELS = "a pass is launched kernel by kernel"

pytestmark = pytest.mark.usefixtures("clean", "stub_only")


@pytest.fixture(name="stub_only")
def stub_only_fixture(gpu):
    on_stub_only(gpu)


@pytest.fixture
def tiny(gpu, tiny_dir):
    """tiny() -> a model."""
    return lambda: gpu.open(tiny_dir("llama3", layers=LAYERS))


@pytest.fixture
def want(gpu, tiny):
    """The rounds of a session to which nothing is refused."""
    found = rounds(gpu.session(tiny()), PROMPT, 4, RULE, at_once=True)
    gpu.stub.reset()
    return found


def begun(gpu, model):
    """A session after its prompt: a draft is what it records next."""
    session = gpu.session(model)
    session.prefill(np.int32(PROMPT))
    session.set_skip(_core.DraftSpec(*SKIP))
    return session


def goes_on(session, want, at_once):
    """Whether the session comes to the same rounds."""
    session.reuse([PROMPT[0] ^ 1])
    return rounds(session, PROMPT, 4, RULE, at_once=at_once) == want


@pytest.mark.parametrize("error", [NOT_SUPPORTED, *exhaustive(1, 2)])
@pytest.mark.parametrize("function", LACKING)
def test_a_loop_that_cannot_begin_is_given_up(gpu, tiny, want, function, error):
    session = begun(gpu, tiny())
    gpu.stub.fail(function, error)
    session.draft(_core.TreeRule(**RULE))
    asked = gpu.stub.count("calls.cuGraphCreate")
    assert goes_on(session, want, at_once=False)
    assert gpu.stub.count("calls.cuGraphCreate") == asked
    assert session.fallbacks.startswith(BY_STEPS) and session.fallbacks.count("\n") == 1


@pytest.mark.parametrize("times", [2, *exhaustive(1)])
@pytest.mark.parametrize("function, after", ENDING)
def test_a_loop_that_fails_is_recorded_once_more_in_turn(gpu, tiny, want, function, times, after):
    """Launches of the second recording do not overlap, so they are made by another function."""
    session = begun(gpu, tiny())
    gpu.stub.fail(function, NOT_SUPPORTED, after)
    if times == 2:
        gpu.stub.fail(function.replace("KernelEx", "Kernel"), NOT_SUPPORTED, after)
    session.draft(_core.TreeRule(**RULE))
    assert session.last["at_once"] == (times == 1)
    captures = gpu.stub.count("captures")
    session.draft(_core.TreeRule(**RULE))
    assert gpu.stub.count("captures") == captures
    assert goes_on(session, want, at_once=times == 1)
    reported = session.fallbacks.splitlines()
    assert len(reported) == times and "CUDA_ERROR_NOT_SUPPORTED" in reported[0]
    assert reported[0].startswith(IN_TURN) and reported[-1].startswith([IN_TURN, BY_STEPS][times - 1])
    # The remains of a failed capture, and they alone, are not freed: a driver crashes then.
    assert gpu.stub.count("damaged_graphs") == (times if function == "cuStreamEndCapture" else 0)


@pytest.mark.parametrize("where", [1, 2, 3, 4])
def test_a_driver_without_overlap_in_loops(gpu, tiny, want, where):
    """Every draft is one launch still, of kernels that do not overlap; those of other passes do."""
    gpu.stub.set(refused_edges=where)
    session = begun(gpu, tiny())
    early = gpu.stub.count("early_launches")
    assert early > 0
    session.draft(_core.TreeRule(**RULE))
    assert session.last["at_once"] and gpu.stub.count("loop_rounds") == session.last["draft_steps"]
    assert gpu.stub.count("early_launches") == early
    session.verify()
    assert gpu.stub.count("early_launches") > early
    assert goes_on(session, want, at_once=True)
    session.set_sampling(_core.Sampling(temperature=1.0, seed=3))  # another loop, recorded in turn from the start
    captures, damaged = (gpu.stub.count(name) for name in ("captures", "damaged_graphs"))
    session.draft(_core.TreeRule(**RULE))
    assert session.last["at_once"] and gpu.stub.count("captures") == captures + 1
    assert gpu.stub.count("damaged_graphs") == damaged == (where in (1, 2))
    assert session.fallbacks.count("\n") == 1 and session.fallbacks.startswith(IN_TURN)


def test_where_nothing_overlaps_a_loop_is_not_recorded_twice(gpu, tiny, want, monkeypatch):
    ask(monkeypatch, "overlap=0")
    session = begun(gpu, tiny())
    gpu.stub.fail("cuStreamEndCapture", 1)
    session.draft(_core.TreeRule(**RULE))
    assert gpu.stub.count("calls.cuGraphCreate") == 1
    assert goes_on(session, want, at_once=False)
    assert session.fallbacks.startswith(BY_STEPS)


def next_token(session):
    session.draft(_core.TreeRule(max_draft=0))
    (emitted,) = session.verify()
    session.commit(1)
    return emitted.token


@pytest.mark.parametrize("function, after", [("cuStreamBeginCapture_v2", 1), *ENDING])
def test_a_pass_that_cannot_be_recorded_is_launched_by_kernels(gpu, tiny, function, after):
    model = tiny()
    plain = decode(gpu.session(model), PROMPT, 12).tokens
    session = gpu.session(model)
    tokens = [session.prefill(np.int32(PROMPT)).token, next_token(session)]
    captures, launches = (gpu.stub.count(name) for name in ("calls.cuStreamBeginCapture_v2", "graph_launches"))
    gpu.stub.fail(function, NOT_SUPPORTED, after)
    tokens += [next_token(session) for _ in range(4)]  # the first of them would be recorded, the others launched so
    assert gpu.stub.count("calls.cuStreamBeginCapture_v2") == captures + 1
    assert gpu.stub.count("calls.cuStreamEndCapture") == gpu.stub.count("captures")
    assert gpu.stub.count("graph_launches") == launches
    assert session.fallbacks.startswith(BY_KERNELS) and session.fallbacks.count("\n") == 1
    assert tokens == plain[:6]
    session.reuse([PROMPT[0] ^ 1])
    assert decode(session, PROMPT, 12).tokens == plain


@pytest.mark.parametrize("what", ["draft", "pass"])
def test_an_error_of_the_device_is_thrown(gpu, tiny, what):
    """It stays, so what is recorded next meets it: no fallback hides that."""
    model = tiny()
    failing, recording = begun(gpu, model), begun(gpu, model)
    next_token(failing)
    next_token(recording)
    gpu.stub.set(eager=1)
    gpu.stub.fail("rmsnorm", ILLEGAL_ADDRESS)
    for session in (failing, recording):
        with pytest.raises(DeviceError, match="ILLEGAL_ADDRESS"):
            next_token(session) if what == "pass" else session.draft(_core.TreeRule(**RULE))
    del model, failing, recording, session  # as long as the device fails: what it has is lost
    gc.collect()
    gpu.stub.reset()


def test_functions_are_loaded_before_anything_is_recorded(gpu, tiny, want):
    session = begun(gpu, tiny())
    assert gpu.stub.count("calls.cuFuncLoad") == gpu.stub.count("functions") > 20
    session.draft(_core.TreeRule(**RULE))
    assert session.last["at_once"] and not session.fallbacks
    assert goes_on(session, want, at_once=True)


@pytest.mark.parametrize("lazy", [False, True])
def test_a_driver_that_loads_nothing_ahead(gpu, tiny_dir, tmp_path, monkeypatch, want, lazy):
    """If it is lazy, a loop of kernels that never ran cannot be recorded, and drafts go step by step."""
    folder = tiny_dir("llama3", layers=LAYERS)
    stub = stub_cuda.Stub(stub_cuda.without(gpu.stub.path, "cuFuncLoad", tmp_path / "libold.so"))
    ask(monkeypatch, f"driver={stub.path}")
    stub.set(lazy=lazy)
    session = open_session(_core.Model(str(folder), device="cuda", pack=str(device.kernels(folder, "auto", "cuda"))))
    assert rounds(session, PROMPT, 4, RULE, at_once=not lazy) == want
    assert bool(stub.log()) == bool(session.fallbacks) == lazy
    assert all("would be loaded while the stream captures" in line for line in stub.log())


def test_what_is_refused_is_in_the_log_once(gpu, tiny_dir, caplog, monkeypatch):
    monkeypatch.setenv("SWIFTK_DEVICE", "cuda")
    lm = swiftk.load(tiny_dir("llama3", layers=LAYERS), device="cuda", draft_weights="own")
    gpu.stub.set(refused_edges=1)
    asked = {"max_new_tokens": 12, "temperature": 0.0, "ignore_eos": True}
    plain = lm.generate(PROMPT, speculate=False, **asked)
    with caplog.at_level(logging.WARNING, "swiftk"):
        found = [lm.generate(PROMPT, speculate="always", skip=DraftSpec.uniform(LAYERS), **asked) for _ in range(2)]
    assert all(r.tokens == plain.tokens for r in found)
    reported = [r.message for r in caplog.records]
    assert len(reported) == 1 and IN_TURN in reported[0] and "not supported (CUDA_ERROR_NOT_SUPPORTED)" in reported[0]
