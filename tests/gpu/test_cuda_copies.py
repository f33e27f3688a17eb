"""Copies of the weights in few bits on a GPU: what is loaded, what drafts read, and that no token changes."""

import numpy as np
import pytest

import swiftk
from debug_words import ask
from decode import Rule, decode
from gpu import clean_fixture, gpu_fixture, held, on_stub_only, tokens  # noqa: F401
from low_bit import FORMS, MIXED, PROMPT, WIDE
from swiftk import DraftSpec, _core
from swiftk.errors import InvalidArgument, OutOfMemory
from swiftk.gpu import pack

LAYERS = 4
SKIPS = [
    *(DraftSpec(weights=form) for form in FORMS),
    DraftSpec(attn=[1], mlp=[0], weights=MIXED),
    DraftSpec(exit_layer=2, weights="int4"),
]
SAMPLINGS = {"greedy": {}, "sampled": {"temperature": 0.9, "seed": 3}}


@pytest.fixture(scope="module")
def folder(tiny_dir):
    return tiny_dir("llama3", layers=LAYERS)


@pytest.fixture(scope="module")
def kernels(gpu, folder):
    """A pack with kernels for every form."""
    arch = "stub" if gpu.stub else _core.gpu_info(0)["architecture"]
    return str(pack.ensure(pack.shape_of(folder), arch, draft_weights=",".join(FORMS)))


@pytest.fixture(scope="module")
def model(folder, kernels):
    return _core.Model(str(folder), device="cuda", pack=kernels, draft_weights=",".join(FORMS))


@pytest.mark.parametrize("stepwise", ["0", "1"], ids=["spine", "steps"])
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("skip", SKIPS, ids=str)
def test_no_token_changes(gpu, folder, kernels, skip, sampling, stepwise, monkeypatch):
    """Whether the device takes a draft's steps by itself or the host waits for each: the plan says what they read."""
    ask(monkeypatch, f"stepwise={stepwise}")
    model = _core.Model(str(folder), device="cuda", pack=kernels, draft_weights=",".join(FORMS))
    plain = decode(gpu.session(model, sampling), PROMPT, 24, keep_logits=True)
    rule = Rule(tuple(skip.arguments().values()), **WIDE)
    drafted = decode(gpu.session(model, sampling), PROMPT, 24, rule, keep_logits=True)
    assert drafted.tokens == plain.tokens
    assert np.array(drafted.logits).tobytes() == np.array(plain.logits).tobytes()
    assert drafted.accepted > 0


def scored(session, **plan):
    """How sure a plan is after each of the text's last tokens."""
    return np.array(session.score(_core.DraftSpec(**DraftSpec(**plan).arguments()), window=30)[0])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_copies_say_what_they_say_on_the_cpu(gpu, folder, dtype):
    """As far as activations are not rounded to bytes here; and not what the model's own weights say."""
    arch = "stub" if gpu.stub else _core.gpu_info(0)["architecture"]
    options = {"dtype": dtype, "draft_weights": ",".join(FORMS)}
    built = pack.ensure(pack.shape_of(folder, dtype), arch, draft_weights=options["draft_weights"])
    sessions = []
    for device in ({"device": "cuda", "pack": str(built)}, {}):
        session = gpu.session(_core.Model(str(folder), **options, **device))
        session.prefill(tokens(40, 60))
        sessions.append(session)
    own = scored(sessions[0])
    for form in FORMS:
        there, here = (scored(session, weights=form) for session in sessions)
        assert np.abs(there - here).mean() < 0.02
        assert form == "int8" or np.abs(there - here).mean() < np.abs(there - own).mean() / 3


def test_a_small_head_is_read_in_int8(gpu, tiny_dir):
    """As on the CPU, by kernels that every pack for copies has; one without reads it as the copy's other matrices."""
    small, options = tiny_dir("llama3", layers=16), {"draft_weights": "int4"}
    arch = "stub" if gpu.stub else _core.gpu_info(0)["architecture"]
    built = pack.ensure(pack.shape_of(small), arch, **options)
    model, host = _core.Model(str(small), device="cuda", pack=str(built), **options), _core.Model(str(small), **options)
    sessions = [gpu.session(one) for one in (model, host)]
    for session in sessions:
        session.prefill(tokens(40, 60))
    there, here = (scored(session, exit_layer=0, weights="int4") for session in sessions)
    own = scored(sessions[0], exit_layer=0)
    assert 0 < np.abs(there - own).mean() < 0.01
    assert np.abs(there - here).mean() < 0.01
    rule = Rule(tuple(DraftSpec(weights="int4").arguments().values()), **WIDE)
    assert decode(gpu.session(model), PROMPT, 24, rule).tokens == decode(gpu.session(model), PROMPT, 24).tokens


def test_what_a_load_takes(gpu, folder, kernels, model):
    """A block of each copy beside the model's own, and nothing left behind."""
    on_stub_only(gpu)
    assert list(model.copies) == FORMS
    own = _core.Model(str(folder), device="cuda", pack=kernels)
    before = gpu.stub.counters()
    both = _core.Model(str(folder), device="cuda", pack=kernels, draft_weights="int4")
    after = gpu.stub.counters()
    alone = before["allocations"]
    del own
    assert both.copies["int4"] == model.copies["int4"]
    assert after["bytes"] - before["bytes"] >= both.copies["int4"] + both.weight_bytes
    assert after["allocations"] - alone <= alone + 1


def test_auto_takes_what_fits_and_has_kernels(gpu, folder, kernels, model):
    sizes = model.copies

    def chosen(memory, pack=kernels):
        options = {"draft_weights": "auto", "draft_memory": memory, "device": "cuda", "pack": pack}
        return list(_core.Model(str(folder), **options).copies)

    assert chosen(sizes["int4"]) == ["int4"]
    assert chosen(sizes["int4"] - 1) == ["int3"]
    assert chosen(sizes["int3"] - 1) == []
    arch = "stub" if gpu.stub else _core.gpu_info(0)["architecture"]
    assert chosen(1 << 40, str(pack.ensure(pack.shape_of(folder), arch))) == []


def test_a_pack_without_kernels_for_a_copy(gpu, folder):
    arch = "stub" if gpu.stub else _core.gpu_info(0)["architecture"]
    path = str(pack.ensure(pack.shape_of(folder), arch, draft_weights="int4"))
    assert list(_core.Model(str(folder), device="cuda", pack=path, draft_weights="int4").copies) == ["int4"]
    with pytest.raises(InvalidArgument, match=r"has int3, .*\.pack has no kernels .*--draft-weights int3`"):
        _core.Model(str(folder), device="cuda", pack=path, draft_weights="int4,int3")


def test_too_little_memory(gpu, folder, kernels, clean):
    with pytest.raises(OutOfMemory, match=r"copies for drafting need .* GB of memory"):
        _core.Model(str(folder), device="cuda", pack=kernels, draft_weights="int8", draft_memory=1000)
    if gpu.stub:
        kernels = str(pack.ensure(pack.shape_of(folder), "stub", matmuls="triton", draft_weights=",".join(FORMS)))
        own = _core.Model(str(folder), device="cuda", pack=kernels).weight_bytes
        gpu.stub.set(memory=held(gpu.stub)["bytes"] + own * 2)  # the embedding is there, too
        with pytest.raises(OutOfMemory, match=r"copies for drafting need .* GB of memory"):
            _core.Model(str(folder), device="cuda", pack=kernels, draft_weights=",".join(FORMS))
        assert not _core.Model(str(folder), device="cuda", pack=kernels, draft_weights="auto").copies
        gpu.stub.reset()


def test_copies_beside_matmuls_in_another_layout(gpu, tmp_path):
    """The model's own weights are laid out for CUDA C++, but the copies for Triton as ever."""
    on_stub_only(gpu)
    folder, path = swiftk.demo_model(), tmp_path / "a.pack"
    pack.build(pack.shape_of(folder), "stub", path, matmuls="cuda", draft_weights="int4")
    lm = swiftk.load(folder, device="cuda", pack=path, context=64)
    plain, drafted = (
        lm.generate(PROMPT, max_new_tokens=12, ignore_eos=True, **how)
        for how in ({"speculate": False}, {"speculate": "always", "skip": "int4"})
    )
    assert drafted.tokens == plain.tokens
    assert drafted.stats.draft_acceptance_rate > 0.5


def test_load_builds_kernels_for_the_copies_it_makes(gpu, folder):
    lm = swiftk.load(folder, device="cuda")
    assert list(lm.model.copies) == ["int4"]
    plain = lm.generate(PROMPT, max_new_tokens=24, ignore_eos=True, speculate=False)
    drafted = lm.generate(PROMPT, max_new_tokens=24, ignore_eos=True, speculate="always", skip="int4")
    assert drafted.tokens == plain.tokens
    assert drafted.stats.num_draft_tokens > 0
    assert drafted.stats.draft_weight_bytes == lm.model.copies["int4"]
