"""Drafts that a GPU takes by itself: the trees of a draft taken step by step, one launch and one wait each."""

import shutil

import numpy as np
import pytest

import stub_cuda
from debug_words import ask
from decode import Rule, decode, open_session
from gpu import clean_fixture, copied, gpu_fixture, on_stub_only, replaced, tokens  # noqa: F401
from gpu_drafts import LACKING, LAYERS, PROMPT, RULES, SKIP, TIMED, rounds
from marks import exhaustive
from swiftk import _core
from swiftk.errors import SwiftkError
from swiftk.files.safetensors_io import Tensor, read_folder, write_folder
from swiftk.gpu import device, pack

SAMPLINGS = {"greedy": {}, "sampled": {"temperature": 0.9, "seed": 3}}

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture(name="pair")
def pair_fixture(gpu, monkeypatch):
    """pair(folder) -> the same model, drafting at once and step by step."""

    def make(folder):
        kernels = device.kernels(folder, "auto", "cuda")
        if "gate" not in pack.read_header(kernels)["kernels"]:
            pytest.skip("kernels were built without NVRTC and nvcc")
        at_once = gpu.open(folder)
        with monkeypatch.context() as patch:
            ask(patch, "stepwise")
            by_steps = gpu.open(folder)
        return at_once, by_steps

    return make


@pytest.mark.parametrize(
    "sampling", [SAMPLINGS["sampled"], *exhaustive(SAMPLINGS["greedy"])], ids=["sampled", "greedy"]
)
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_trees_are_those_of_single_steps(pair, tiny_dir, rule, sampling):
    at_once, by_steps = (open_session(m, sampling=sampling) for m in pair(tiny_dir("llama3", layers=LAYERS)))
    want = rounds(by_steps, PROMPT, 8, rule, at_once=False)
    assert rounds(at_once, PROMPT, 8, rule, at_once=True) == want
    assert len(set(want[3::6])) > 1 or "max_draft" in rule, "all drafts have one length"
    turned = any(parents[i] != i - 1 for parents, read in zip(want[2::6], want[3::6], strict=True) for i in range(read))
    assert turned or rule is not RULES["by time, to the end"], "every step reads the child of the last"


@pytest.mark.parametrize("family", ["qwen3", "mistral", "llama-bias"])
@pytest.mark.parametrize("length", [250, *exhaustive(1, 120)])
def test_in_other_families_and_across_splits(pair, tiny_dir, family, length):
    extra = {"mistral": {"sliding_window": 7}}.get(family, {})
    models = pair(tiny_dir(family, layers=3, max_position_embeddings=512, **extra))
    prompt = tokens(length, models[0].config["vocab_size"], length)
    for rule in ({"confidence": 0.0, "max_draft": 9}, {**TIMED, "max_draft": 9, "row_price": [0.0] * 30}):
        at_once, by_steps = (rounds(open_session(m), prompt, 3, rule, ((1,), (0,), -1)) for m in models)
        assert at_once == by_steps


def test_up_to_the_end_of_the_context(pair, tiny_dir):
    """A draft near it has fewer steps; the last round none."""
    found = []
    for model in pair(tiny_dir("llama3", layers=LAYERS)):
        session = open_session(model, context=40)
        run = rounds(session, PROMPT, 1, RULES["fixed length"])
        while len(session.history) < 40:
            session.draft(_core.TreeRule(confidence=0.0))
            run += [session.drafted_from, [e.token for e in session.verify()]]
            session.commit(len(run[-1]))
        found.append(run)
    assert found[0] == found[1]


def test_sources_join_drafts_of_either_kind(pair, tiny_dir):
    """Where they lead there is no step; where they do not, a draft is taken at once, and their leaves join its tree."""
    table = [[p, *[0.1] * 7] for p in np.linspace(0.2, 0.95, 16)]
    rule = {**RULES["by time"], "min_step_gain": 0.4, "sources": [(2, table), (3, table)], "chain": 4}
    loops = {"temperature": 0.2, "seed": 3}
    models = pair(tiny_dir("llama3", layers=LAYERS))
    at_once, by_steps = (open_session(m, sampling=loops) for m in models)
    plain = decode(open_session(models[0], sampling=loops), PROMPT, 40).tokens
    for session in (at_once, by_steps):
        timed = {name: value for name, value in rule.items() if name != "confidence"}
        assert decode(session, PROMPT, 40, Rule(SKIP, max_draft=8, timed=timed)).tokens == plain
    at_once.forget_sources()  # what they know of the text already would leave nothing to a draft
    found = [at_once.prefill(np.int32(PROMPT)).token]
    kinds = set()
    while len(found) < 60:
        at_once.draft(_core.TreeRule(**rule))
        kinds.add((at_once.last["at_once"], max(at_once.tree_sources)))
        found += [e.token for e in at_once.verify()]
        at_once.commit(len(found) - (len(at_once.history) - len(PROMPT)))
    assert any(taken and source > 1 for taken, source in kinds)


def drafted(stub, session, **rule):
    """What a draft asked of the driver."""
    before = stub.counters()
    session.draft(_core.TreeRule(**rule))
    after = stub.counters()
    session.commit(len(session.verify()))
    return {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}


def test_a_draft_is_one_launch_and_one_wait(gpu, tiny_dir):
    on_stub_only(gpu)
    session = gpu.session(gpu.open(tiny_dir("llama3", layers=LAYERS)))
    session.prefill(np.int32(PROMPT))
    session.set_skip(_core.DraftSpec(*SKIP))
    assert drafted(gpu.stub, session, confidence=0.0, max_draft=5)["instantiations"] == 1
    for _ in range(4):  # until there is enough memory to copy from
        drafted(gpu.stub, session, confidence=0.0, max_draft=5)
    for _ in range(5):
        counted = drafted(gpu.stub, session, confidence=0.0, max_draft=5)
        calls = {name: n for name, n in counted.items() if name.startswith("calls.cu") and "Ctx" not in name}
        calls.pop("calls.cuEventSynchronize")  # waits for memory to copy from, which is free long since
        assert calls == {
            "calls.cuMemcpyHtoDAsync_v2": 1,
            "calls.cuEventRecord": 1,
            "calls.cuGraphLaunch": 1,
            "calls.cuMemcpyDtoHAsync_v2": 1,
            "calls.cuStreamSynchronize": 1,
        }
        assert (counted["graph_launches"], counted["loop_rounds"]) == (1, 5)


def test_what_changes_from_draft_to_draft_records_nothing(gpu, tiny_dir):
    """Neither do epsilon, tables, lengths and stop ids, nor seeds, temperatures and texts."""
    on_stub_only(gpu)
    session = gpu.session(gpu.open(tiny_dir("llama3", layers=LAYERS)), {"temperature": 1.0, "seed": 1})
    session.prefill(np.int32(PROMPT))
    session.set_skip(_core.DraftSpec(*SKIP))
    session.draft(_core.TreeRule(confidence=0.0, max_draft=3))
    gpu.stub.reset()
    for seed, rule in enumerate(RULES.values()):
        session.set_sampling(_core.Sampling(temperature=0.5 + seed, seed=seed))
        session.reuse([7 + seed])
        session.prefill(tokens(30 + 5 * seed, 128, seed))
        session.draft(_core.TreeRule(**rule if "row_price" in rule else {**rule, "width": (10, 5, 3, 1)}))
    assert gpu.stub.count("loop_rounds") > len(RULES)
    assert gpu.stub.count("calls.cuGraphCreate") == 0  # prompts are recorded, too, but not as loops
    session.set_sampling()
    session.draft(_core.TreeRule(confidence=0.0))
    assert gpu.stub.count("calls.cuGraphCreate") == 1


def test_a_new_skip_set_records_its_own_draft(gpu, tiny_dir):
    on_stub_only(gpu)
    session = gpu.session(gpu.open(tiny_dir("llama3", layers=LAYERS)))
    rule = {"confidence": 0.0, "max_draft": 5, "width": (1, 1, 1, 1)}
    for skip in 2 * (((1,), (1, 2), -1), ((2,), (), -1)):
        rounds(session, PROMPT, 6, rule, skip)
    gpu.stub.reset()
    rounds(session, PROMPT, 6, rule, ((), (0, 3), -1))
    assert gpu.stub.count("instantiations") == 1


@pytest.mark.parametrize("lacking", ["version", "gate", *exhaustive(*LACKING)])
def test_without_loops_drafts_go_step_by_step(gpu, tiny_dir, tmp_path, monkeypatch, lacking):
    on_stub_only(gpu)
    folder = tiny_dir("llama3", layers=LAYERS)
    want = rounds(gpu.session(gpu.open(folder)), PROMPT, 4, RULES["epsilon"])
    kernels, stub = device.kernels(folder, "auto", "cuda"), gpu.stub
    if lacking == "gate":
        kernels = replaced(copied(folder, tmp_path / "a.pack"), b'"gate": {', b'"gait": {')
    elif lacking == "version":
        gpu.stub.set(driver_version=12030)
    else:
        stub = stub_cuda.Stub(stub_cuda.without(gpu.stub.path, lacking, tmp_path / "libold.so"))
        ask(monkeypatch, f"driver={stub.path}")
    model = _core.Model(str(folder), device="cuda", pack=str(kernels))
    assert rounds(open_session(model), PROMPT, 4, RULES["epsilon"], at_once=False) == want
    assert not stub.log()


@pytest.mark.parametrize("how", ["penalty", "top_p", "rejection", "many stop ids", "bias", "min_tokens"])
def test_what_needs_the_host_between_steps_goes_step_by_step(gpu, tiny_dir, how):
    on_stub_only(gpu)
    model = gpu.open(tiny_dir("llama3", layers=LAYERS))
    rule = {**RULES["fixed length"], "stop_ids": list(range(100, 133)) if how == "many stop ids" else []}
    sampling = {
        "penalty": {"repetition_penalty": 1.2},
        "top_p": {"top_p": 0.9},
        "bias": {"logit_bias": {3: 1.0}},
        "min_tokens": {"min_tokens": 40},
    }.get(how, {})
    acceptance = "rejection" if how == "rejection" else "coupled"
    session = open_session(model, sampling={"temperature": 1.0, "seed": 2, **sampling}, acceptance=acceptance)
    rounds(session, PROMPT, 3, rule, at_once=False)
    session.set_sampling()
    rounds(session, PROMPT[:4], 3, RULES["fixed length"], at_once=True)


@pytest.mark.parametrize("function", ["cuGraphLaunch", "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"])
def test_a_draft_that_fails_leaves_the_session_usable(gpu, tiny_dir, function):
    on_stub_only(gpu)
    session = gpu.session(gpu.open(tiny_dir("llama3", layers=LAYERS)))
    rule = RULES["fixed length"]
    want = rounds(session, PROMPT, 3, rule)
    session.prefill(np.int32(PROMPT))
    for skip in (((2,), (), -1), SKIP):  # to be recorded, and recorded
        if function == "cuGraphLaunch" and skip != SKIP:
            continue  # the first launch is part of the recording: test_cuda_recording.py
        session.set_skip(_core.DraftSpec(*skip))
        gpu.stub.fail(function, 1)
        with pytest.raises(SwiftkError, match=r"^\[cuda\] "):
            session.draft(_core.TreeRule(**rule))
        session.reuse([PROMPT[0] ^ 1])
        assert rounds(session, PROMPT, 3, rule, at_once=True) == want


def test_nothing_is_built_on_bad_logits(pair, tiny_dir, tmp_path):
    """A token that drafts come to has an embedding of NaN."""
    folder, rule = tiny_dir("llama3", layers=LAYERS), RULES["fixed length"]
    session = open_session(pair(folder)[0])
    rounds(session, PROMPT, 0, rule)
    session.draft(_core.TreeRule(**rule))
    text = session.tree_tokens.tolist()[: session.drafted_from]
    step = next(i for i, token in enumerate(text) if token not in text[:i] and token not in PROMPT and i > 0)
    tensors = read_folder(folder)
    table = tensors["model.embed_tokens.weight"].bits.copy()
    table[text[step]] = 0x7FC0
    tensors["model.embed_tokens.weight"] = Tensor("BF16", table)
    shutil.copytree(folder, tmp_path / "bad")
    list(write_folder(tmp_path / "bad", tensors))
    for model in pair(tmp_path / "bad"):
        session = open_session(model)
        rounds(session, PROMPT, 0, rule)
        session.draft(_core.TreeRule(**rule))
        assert session.drafted_from == step + 1 and step not in session.tree_parents
        assert session.tree_tokens.tolist()[: step + 1] == text[: step + 1]


def test_a_cancelled_draft_leaves_the_session_usable(gpu, tiny_dir):
    session = gpu.session(gpu.open(tiny_dir("llama3", layers=LAYERS)))
    want = rounds(session, PROMPT, 2, RULES["fixed length"])
    session.prefill(np.int32(PROMPT))
    session.cancel()
    with pytest.raises(SwiftkError, match="cancelled"):
        session.draft(_core.TreeRule(confidence=0.0))
    session.reuse([PROMPT[0] ^ 1])
    assert rounds(session, PROMPT, 2, RULES["fixed length"]) == want


def test_whole_texts_are_those_of_plain_decoding(gpu, tiny_dir):
    model = gpu.open(tiny_dir("llama3", layers=LAYERS))
    for sampling in SAMPLINGS.values():
        plain = decode(gpu.session(model, sampling), PROMPT, 60)
        fast = decode(gpu.session(model, sampling), PROMPT, 60, Rule(SKIP, 0.2, 8))
        assert fast.tokens[:60] == plain.tokens
        assert fast.accepted > 0
