"""Keys and values as int8: the numbers are other ones, and drafted texts still have the bits of plain decoding."""

import numpy as np
import pytest

import swiftk
from decode import Rule, decode, open_session
from generating import PROMPT, N, drafted, plain
from heads import make_block, make_eagle, make_moa
from low_bit import FORMS
from swiftk import DraftSpec, _core

pytestmark = pytest.mark.skipif("config.getoption('device') != 'cpu'", reason="a GPU has the weights' dtype alone")

TEXT = [int(t) for t in np.random.default_rng(11).integers(3, 320, 300)]
SAMPLINGS = {"greedy": {}, "sampled": {"temperature": 0.9, "top_k": 40, "seed": 3}}
SPECS = {
    "own": DraftSpec(),
    "int4": DraftSpec(weights="int4"),
    "skips": DraftSpec(attn=[1], mlp=[2]),
    "exit": DraftSpec(exit_layer=3),
    "window": DraftSpec(window=70),
    "all": DraftSpec(attn=[1], exit_layer=3, weights="int4", window=1),
}
FAMILIES = {"llama3": {}, "gemma2": {"dtype": "float32"}, "mistral": {"dtype": "int8"}, "qwen3": {"dtype": "float16"}}


def bits(rows):
    return np.array(rows).tobytes()


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("family", FAMILIES)
def test_drafts_change_no_bit(tiny_dir, family, spec, sampling):
    """Chains and trees of several blocks, in memory that is NaN where nothing was written."""
    folder = tiny_dir(family, layers=4, vocab_size=320)
    model = _core.Model(str(folder), kv_dtype="int8", threads=2, draft_weights="int4", **FAMILIES[family])
    want = decode(open_session(model, sampling=sampling), TEXT, 60, keep_logits=True)
    skip = tuple(spec.arguments().values())
    for rule in (Rule(skip, 0.0, 6), Rule(skip, 0.9, 12), Rule(skip, 0.0, 5, width=(3, 3, 3, 3))):
        got = decode(open_session(model, sampling=sampling), TEXT, 60, rule, keep_logits=True)
        assert got.tokens == want.tokens
        assert bits(got.logits[:60]) == bits(want.logits)


@pytest.mark.parametrize("isa", _core.isas())
def test_logits_are_near_those_of_float32_and_no_more(tiny_dir, isa):
    folder = tiny_dir("llama3", layers=4, vocab_size=320)
    rows = {}
    for kv_dtype in ("float32", "bfloat16", "int8"):
        model = _core.Model(str(folder), dtype="float32", kv_dtype=kv_dtype, isa=isa, threads=1)
        assert model.kv_dtype == kv_dtype
        session = open_session(model)
        session.prefill(np.int32(TEXT))
        rows[kv_dtype] = np.array(session.logits[0])
    lost = {dtype: np.abs(row - rows["float32"]).max() / rows["float32"].std() for dtype, row in rows.items()}
    assert 0 < lost["int8"] < 0.1, lost


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_texts_of_a_batch(tiny_dir, sampling):
    """A text is the same alone and in company, drafted and not; threads do not matter."""
    folder = tiny_dir("llama3", layers=4)
    prompts = [f"Question {i}: how many apples" * (1 + 3 * i) for i in range(5)]
    with swiftk.load(folder, device="cpu", kv_dtype="int8", draft_weights=FORMS, threads=1) as lm:
        alone = [plain(lm, prompt, **sampling).tokens for prompt in prompts]
        assert [drafted(lm, prompt, **sampling).tokens for prompt in prompts] == alone
    options = {"max_new_tokens": 40, "ignore_eos": True, **sampling}
    with swiftk.load(folder, device="cpu", kv_dtype="int8", draft_weights=FORMS, threads=3) as lm:
        for speculate in (True, False):
            texts = lm.generate_many(prompts, speculate=speculate, **options)
            assert [text.tokens for text in texts] == alone


def test_heads_keep_a_dtype_of_their_own(tiny_dir, tmp_path):
    """Whatever reads the model's features, or its keys and values, drafts beside it."""
    folder = tiny_dir("llama3", layers=4)
    heads = {
        "eagle": make_eagle(tmp_path / "eagle", folder, taps=(0, 1, 2)),
        "block": make_block(tmp_path / "block", folder),
        "moa": make_moa(tmp_path / "moa", folder, last=2),
        "model": folder,
    }
    for name, head in heads.items():
        with swiftk.load(folder, device="cpu", kv_dtype="int8", drafter=head) as lm:
            text = lm.generate(PROMPT, max_new_tokens=N, ignore_eos=True, speculate="always", drafter=name)
            assert text.tokens == plain(lm).tokens and text.stats.num_draft_steps > 0, name
