"""Draft models on a GPU: they change no token, and draft what they draft on the CPU."""

import pytest

import head_contract
import swiftk
from gpu import clean_fixture, gpu_fixture  # noqa: F401
from head_contract import (
    BY_CHAIN,
    CHAIN,
    GREEDY,
    KIND,
    PROMPTS,
    SAMPLED,
    WIDE,
    assert_always_right,
    assert_drafts_after_a_prefix,
    assert_plain,
    beside,
    drafts,
    heads_fixture,  # noqa: F401
    session_of,
    target_fixture,  # noqa: F401
    ways,
)
from marks import exhaustive
from swiftk import _core
from swiftk.draft.draft_spec import DRAFTER_NAMES
from swiftk.gpu import device

pytestmark = pytest.mark.usefixtures("clean")

QUICK = ("model", "fewer", "dspark", "few", "specforge", "fusion", "moa-3")
NAMES = [*QUICK, *exhaustive(*(name for name in KIND if name not in QUICK))]
SEVERAL = ("fusion", "moa-3", "few", "model")


@pytest.fixture
def opened(target):
    """opened(drafter) -> an LM on the GPU, which is closed with the test."""
    lms = []

    def make(drafter, **options):
        lms.append(head_contract.opened(target, drafter, device="cuda", **options))
        return lms[-1]

    yield make
    for lm in lms:
        lm.close()


@pytest.mark.parametrize("sampling", [SAMPLED, *exhaustive(GREEDY)], ids=["sampled", "greedy"])
@pytest.mark.parametrize("name", NAMES)
def test_texts_are_plain_decodings(heads, opened, name, sampling):
    asked = ways(KIND[name])
    assert_plain(opened(heads[name]), 13, sampling, [asked[0], *asked[2:6]], PROMPTS[:3])


@pytest.mark.parametrize("rule", [{**CHAIN, "max_draft": 5}, {**WIDE, "max_draft": 5}], ids=["chain", "tree"])
@pytest.mark.parametrize("name", NAMES)
def test_drafts_are_those_of_the_cpu(target, heads, opened, name, rule):
    there, here = opened(heads[name]).model, beside(target, heads[name])
    assert drafts(session_of(there, PROMPTS[1]), 6, **rule) == drafts(session_of(here, PROMPTS[1]), 6, **rule)


def test_several_beside_one_model(target, heads, opened):
    """Each has kernels and features of its own: what it drafts is what it drafts alone, on the CPU."""
    lm = opened([heads[name] for name in SEVERAL])
    each = [{**BY_CHAIN, "skip": drafter} for drafter in DRAFTER_NAMES[: len(SEVERAL)]]
    assert_plain(lm, 13, GREEDY, each, PROMPTS[:3])
    for number, name in enumerate(SEVERAL):
        here = session_of(beside(target, heads[name]), PROMPTS[1])
        assert drafts(session_of(lm.model, PROMPTS[1], number), 6, **WIDE) == drafts(here, 6, **WIDE)


def test_a_model_that_drafts_for_itself_is_always_right(target, opened):
    assert_always_right(opened(target))


@pytest.mark.parametrize("name", QUICK)
def test_a_text_that_takes_a_prefix_over_drafts_as_well(heads, opened, name):
    assert_drafts_after_a_prefix(opened(heads[name]))


@pytest.mark.parametrize("dtype", ["bfloat16", *exhaustive("float16")])
@pytest.mark.parametrize("name", QUICK)
def test_in_16_bits(heads, opened, name, dtype):
    lm = opened(heads[name], dtype=dtype)
    assert_plain(lm, 13, GREEDY, [BY_CHAIN], PROMPTS[1:2])


def test_a_drafter_needs_kernels_of_its_own(target, heads):
    pack = device.kernels(target, "float32", "cuda")

    def refused(error, words, name, packs):
        given = {"dtype": "float32", "device": "cuda", "pack": pack, "drafters": [str(heads[name])]}
        with pytest.raises(error, match=words):
            _core.Model(str(target), **given, drafter_packs=packs)

    packs_of = lambda name: device.drafter_kernels(heads[name], target, "float32", "cuda")  # noqa: E731
    refused(swiftk.InvalidArgument, "needs 1 kernel pack for the draft model, got 0", "model", [])
    refused(swiftk.CheckpointError, "built for D = 64, the model has 32", "model", [pack])
    refused(swiftk.CheckpointError, "V = 100, the model has 77", "few-dflash", packs_of("few"))
    refused(swiftk.CheckpointError, "other matrices beside the layers", "dspark", packs_of("dflash"))
    refused(swiftk.CheckpointError, "built for", "moa-0", packs_of("moa-0")[::-1])
