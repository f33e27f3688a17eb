"""What is promised of every family: however it drafts, a text has the tokens and the logits of plain decoding."""

import numpy as np
import pytest

import swiftk
from decode import Rule, decode, open_session
from swiftk import _core
from swiftk.testing import FAMILIES, make_tiny

PROMPT = [int(t) for t in np.random.default_rng(5).integers(3, 300, 21)]
# (attention layers, MLP layers, exit layer, weights, whether the head is trimmed)
DRAFTS = {
    "skip": ((1,), (2,), -1, []),
    "exit": ((), (), 2, []),
    "int4": ((), (), -1, ["int4"]),
    "int3, skip": ((2,), (), -1, ["int3"]),
    "trimmed head": ((), (), -1, [], True),
}
SOME = [token for token in range(300) if token % 8]
LAYERS, SAMPLED = 4, {"temperature": 0.8, "top_p": 0.9, "seed": 5}


@pytest.fixture(scope="module", params=FAMILIES)
def model(request, tiny_dir):
    folder = tiny_dir(request.param, layers=LAYERS)
    return _core.Model(str(folder), threads=1, draft_weights="int4,int3", draft_tokens=SOME)


@pytest.mark.parametrize("sampling", [{}, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("draft", DRAFTS)
def test_every_kind_of_draft(model, draft, sampling):
    """Texts pass the windows of 16 to 32 and the original contexts of 64 tokens."""
    plain = decode(open_session(model, context=128, sampling=sampling), PROMPT, 60, keep_logits=True)
    rule = Rule(DRAFTS[draft], 0.0, 5, width=(4, 3, 2, 1))
    fast = decode(open_session(model, context=128, sampling=sampling), PROMPT, 60, rule, keep_logits=True)
    assert fast.tokens == plain.tokens
    assert fast.accepted > 0, "nothing was accepted: the test would say nothing"
    assert np.array(fast.logits[:60]).tobytes() == np.array(plain.logits).tobytes()


@pytest.mark.parametrize("isa", _core.isas())
def test_every_instruction_set(tiny_dir, isa):
    for family in FAMILIES:
        model = _core.Model(str(tiny_dir(family, layers=LAYERS)), threads=1, isa=isa, draft_weights="int4")
        plain = decode(open_session(model, context=128), PROMPT, 24, keep_logits=True)
        fast = decode(open_session(model, context=128), PROMPT, 24, Rule(DRAFTS["int4"], 0.0, 4), keep_logits=True)
        assert fast.tokens == plain.tokens
        assert np.array(fast.logits[:24]).tobytes() == np.array(plain.logits).tobytes()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_default_on_texts_that_begin_alike(tiny_dir, family):
    """Sources, planner, shared prefixes and batches, against each text alone without drafts."""
    with swiftk.load(tiny_dir(family, layers=LAYERS), threads=1, draft_weights="int4") as lm:
        prompts = [PROMPT * 4, PROMPT * 4 + [7], PROMPT * 3 + [9, 8], [11] + PROMPT]
        options = {"max_new_tokens": 20, "stop_token_ids": []} | SAMPLED
        together = [one.tokens for one in lm.generate_many(prompts, **options)]
        assert together == [lm.generate(prompt, speculate=False, **options).tokens for prompt in prompts]


def test_a_text_takes_the_tables_of_its_length(tmp_path):
    """LongRoPE: texts that may pass the original context have other positions from their first row on, and share no
    rows with those that stay within it."""
    folder = make_tiny(tmp_path, "phi4-mini", dtype="float32", layers=LAYERS, original_max_position_embeddings=160)
    with swiftk.load(folder, threads=1) as lm:
        prompt = PROMPT * 4  # more than a block of tokens, which texts share
        short, long = (lm.generate(prompt, max_new_tokens=n, stop_token_ids=[]).tokens for n in (40, 100))
        assert short != long[:40], "the tables differ too little for this test"
        for n, want in ((40, short), (100, long), (40, short)):
            for speculate in (True, False):
                with swiftk.load(folder, threads=1) as fresh:
                    again = fresh.generate(prompt, max_new_tokens=n, stop_token_ids=[], speculate=speculate)
                assert again.tokens == want
                assert lm.generate(prompt, max_new_tokens=n, stop_token_ids=[], speculate=speculate).tokens == want
