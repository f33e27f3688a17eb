"""Draft models on a GPU: they change no token, and draft what they draft on the CPU."""

import numpy as np
import pytest

import swiftk
from decode import TOUCHED
from gpu import clean_fixture, gpu_fixture  # noqa: F401
from heads import EAGLES, FORMATS, make_block, make_eagle, make_moa
from marks import exhaustive
from swiftk import TreeRule, _core
from swiftk.draft.draft_spec import DRAFTER_NAMES
from swiftk.gpu import device
from swiftk.testing import make_tiny

PROMPTS = ([5, 9, 17, 33], [7] * 70, [300, 2, 11, 11, 250, 31, 90])
GREEDY, SAMPLED = {"temperature": 0.0}, {"temperature": 1.0, "top_p": 0.9, **TOUCHED}
CHAIN = TreeRule(confidence=0.0, max_draft=6, width=(1, 1, 1, 1))
WIDE = TreeRule(confidence=0.0, max_draft=4, width=(5, 4, 3, 2))
BEAM = TreeRule(beam=4, max_draft=3, max_nodes=16)
DRAFTS = {"skip": "drafter", "speculate": "always", "drafter": "plan"}

pytestmark = pytest.mark.usefixtures("clean")


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("target"), "qwen3", "float32", layers=8)


@pytest.fixture(scope="module")
def folders(tmp_path_factory, target):
    """By name: models of another shape, with vocabularies of another size; heads of every
    format."""
    base = tmp_path_factory.mktemp("drafters")
    small = {"layers": 2, "tokenizer": False}
    found = {"model": make_tiny(base / "model", "llama2", "float32", seed=3, layers=2, hidden_size=32)}
    found["padded"] = make_tiny(base / "padded", "llama2", "float32", seed=4, vocab=352, **small)
    found["fewer"] = make_tiny(base / "fewer", "llama2", "float32", seed=5, vocab=288, **small)
    found["self"] = target
    found |= {form: make_block(base / form, target, form) for form in FORMATS}
    found["few"] = make_block(base / "few", target, "dspark", draft_vocab=100)
    found |= {f"moa-{last}": make_moa(base / f"moa-{last}", target, last) for last in (0, 3)}
    found |= {form: make_eagle(base / form, target, form) for form in EAGLES}
    found["few-dflash"] = make_block(base / "few-dflash", target, "dflash", draft_vocab=77)
    return found


KINDS = {"model": "model", "padded": "model", "fewer": "model", "self": "model"}
KINDS |= dict.fromkeys((*FORMATS, "few", "few-dflash"), "block")
KINDS |= dict.fromkeys(EAGLES, "eagle") | dict.fromkeys(("moa-0", "moa-3"), "moa")
NAMES = tuple(KINDS)
QUICK = ("model", "fewer", "dspark", "few", "specforge", "fusion", "moa-3")


def opened(target, drafter, **options):
    """An LM on the GPU. What it holds goes with it."""
    options = {"dtype": "float32", "draft_weights": "own", **options}
    return swiftk.load(target, device="cuda", drafter=drafter, **options)


@pytest.mark.parametrize("sampling", [SAMPLED, *exhaustive(GREEDY)], ids=["sampled", "greedy"])
@pytest.mark.parametrize("name", [*QUICK, *exhaustive(*(name for name in NAMES if name not in QUICK))])
def test_texts_are_plain_decodings(target, folders, name, sampling):
    lm = opened(target, folders[name])
    options = {"max_new_tokens": 24, "ignore_eos": True, "seed": 3, **sampling}
    plain = lm.generate_many(PROMPTS, speculate=False, **options)
    ways = [{"drafter": KINDS[name]}, {"speculate": "always"}, *({**DRAFTS, "gate": g} for g in (CHAIN, WIDE, BEAM))]
    for way in ways:
        together = lm.generate_many(PROMPTS, **options, **way)
        alone = [lm.generate(prompt, **options, **way) for prompt in PROMPTS[:2]]
        assert [r.tokens for r in together] == [r.tokens for r in plain]
        assert [r.tokens for r in alone] == [r.tokens for r in plain[:2]]
        assert "gate" not in way or alone[0].stats.num_draft_tokens > 0
    lm.close()


def test_several_beside_one_model(target, folders):
    """Each has kernels and features of its own: what it drafts is what it drafts alone."""
    names = ("fusion", "moa-3", "few", "model")
    lm = opened(target, [folders[name] for name in names])
    options = {"max_new_tokens": 24, "ignore_eos": True, "gate": CHAIN, **DRAFTS}
    plain = lm.generate_many(PROMPTS, speculate=False, max_new_tokens=24, ignore_eos=True)
    beside = [lm.generate_many(PROMPTS, **{**options, "skip": drafter}) for drafter in DRAFTER_NAMES[: len(names)]]
    lm.close()
    for name, results in zip(names, beside, strict=True):
        one = opened(target, folders[name])
        alone = one.generate_many(PROMPTS, **options)
        one.close()
        for result, want, there in zip(results, plain, alone, strict=True):
            assert result.tokens == want.tokens
            assert result.stats.num_draft_tokens == there.stats.num_draft_tokens > 0
            assert result.stats.num_accepted_draft_tokens == there.stats.num_accepted_draft_tokens


def test_a_model_that_drafts_for_itself_is_always_right(target):
    lm = opened(target, target)
    for sampling in (GREEDY, {"temperature": 1.0}):
        r = lm.generate(PROMPTS[1], max_new_tokens=29, ignore_eos=True, seed=2, gate=CHAIN, **DRAFTS, **sampling)
        assert r.stats.num_accepted_draft_tokens == r.stats.num_draft_tokens
        assert r.stats.mean_generated_length == 7
    lm.close()


def drafts(model, rounds, rule):
    """Trees of some rounds, each by its tokens and parents, and the text that came of them."""
    session = _core.Session(model, poison=True)
    session.set_skip(_core.DraftSpec([], [], -1, ["drafter"]))
    session.prefill(np.int32(PROMPTS[1]))
    found = []
    for _ in range(rounds):
        session.draft(_core.TreeRule(**rule))
        found.append((session.tree_tokens.tolist(), session.tree_parents.tolist()))
        assert not session.last["at_once"]
        session.commit(len(session.verify()))
    return found, session.history.tolist()


def on_both(target, drafter, dtype="float32"):
    packs = {"pack": device.kernels(target, dtype, "cuda")}
    packs["drafter_packs"] = device.drafter_kernels(drafter, target, dtype, "cuda")
    there = _core.Model(str(target), dtype=dtype, device="cuda", drafters=[str(drafter)], **packs)
    return there, _core.Model(str(target), dtype=dtype, drafters=[str(drafter)])


@pytest.mark.parametrize("rule", [{"width": (1, 1, 1, 1)}, {"width": (4, 3, 2, 2)}], ids=["chain", "tree"])
@pytest.mark.parametrize("name", [*QUICK, *exhaustive(*(name for name in NAMES if name not in QUICK))])
def test_drafts_are_those_of_the_cpu(target, folders, name, rule):
    rule = {"confidence": 0.0, "max_draft": 5, **rule}
    there, here = (drafts(model, 6, rule) for model in on_both(target, folders[name]))
    assert there == here


def test_a_text_that_takes_a_prefix_over_drafts_as_well(target, folders):
    prompt = list(range(3, 150))
    options = {"max_new_tokens": 20, "ignore_eos": True, "gate": CHAIN, **GREEDY, **DRAFTS}
    for name in QUICK:
        lm = opened(target, folders[name])
        first, again = (lm.generate(prompt, **options) for _ in range(2))
        assert again.tokens == first.tokens and again.stats.cached_prompt_tokens > 100
        assert again.stats.num_draft_tokens == first.stats.num_draft_tokens
        assert again.stats.num_accepted_draft_tokens == first.stats.num_accepted_draft_tokens
        lm.close()


@pytest.mark.parametrize("dtype", ["bfloat16", *exhaustive("float16")])
@pytest.mark.parametrize("name", QUICK)
def test_in_16_bits(target, folders, name, dtype):
    lm = opened(target, folders[name], dtype=dtype)
    options = {"max_new_tokens": 24, "ignore_eos": True, **GREEDY}
    plain = lm.generate(PROMPTS[1], speculate=False, **options)
    drafted = lm.generate(PROMPTS[1], gate=CHAIN, **options, **DRAFTS)
    assert drafted.tokens == plain.tokens and drafted.stats.num_draft_tokens > 0
    lm.close()


def test_a_drafter_needs_kernels_of_its_own(target, folders):
    pack = device.kernels(target, "float32", "cuda")
    model = {"dtype": "float32", "device": "cuda", "pack": pack, "drafters": [str(folders["model"])]}
    with pytest.raises(swiftk.InvalidArgument, match="needs 1 kernel pack for the draft model, got 0"):
        _core.Model(str(target), **model)
    with pytest.raises(swiftk.CheckpointError, match="built for D = 64, the model has 32"):
        _core.Model(str(target), **model, drafter_packs=[pack])
    of_another = device.drafter_kernels(folders["few"], target, "float32", "cuda")
    with pytest.raises(swiftk.CheckpointError, match="V = 100, the model has 77"):
        _core.Model(str(target), **{**model, "drafters": [str(folders["few-dflash"])]}, drafter_packs=of_another)
    of_another = device.drafter_kernels(folders["dflash"], target, "float32", "cuda")
    with pytest.raises(swiftk.CheckpointError, match="other matrices beside the layers"):
        _core.Model(str(target), **{**model, "drafters": [str(folders["dspark"])]}, drafter_packs=of_another)
    of_another = device.drafter_kernels(folders["moa-0"], target, "float32", "cuda")
    with pytest.raises(swiftk.CheckpointError, match="built for"):
        _core.Model(str(target), **{**model, "drafters": [str(folders["moa-0"])]}, drafter_packs=of_another[::-1])
