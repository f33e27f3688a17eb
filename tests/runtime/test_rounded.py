"""Weights that are rounded when they are loaded: dtype="int8" and "int4"."""

import numpy as np
import pytest

import swiftk
from decode import Rule, decode, open_session
from swiftk import DraftSpec, _core
from swiftk.errors import InvalidArgument

PROMPT = [5, 9, 2, 7, 7, 1, 30, 12, 4, 8, 21]
LAYERS = 8


@pytest.fixture(scope="module")
def folder(tiny_dir):
    return tiny_dir("llama3", layers=LAYERS)


def logits(folder, **options):
    """After texts of several lengths, [texts, V]: one alone is as near as chance has it."""
    model, rows = _core.Model(str(folder), **options), []
    for end in (45, 60, 75, 90, 105, 120):
        session = _core.Session(model, poison=True)
        session.prefill(np.arange(3, end, dtype=np.int32))
        rows.append(session.logits[0].copy())
    return np.stack(rows)


@pytest.mark.parametrize(("dtype", "form", "most"), [("int8", "q8_0", 0.06), ("int4", "q4_k", 0.35)])
def test_rounded_weights_say_nearly_the_same_in_less_memory(folder, dtype, form, most):
    model, whole = _core.Model(str(folder), dtype=dtype), _core.Model(str(folder), dtype="bfloat16")
    assert (model.dtype, model.kv_dtype) == (form, "float16")
    assert model.weight_bytes < {"int8": 0.56, "int4": 0.4}[dtype] * whole.weight_bytes
    want = logits(folder, dtype="float32")
    error = np.sqrt(np.mean((logits(folder, dtype=dtype) - want) ** 2)) / want.std()
    assert 1e-4 < error < most


def test_four_bits_are_six_in_the_matrices_of_q4_k_m(tiny_dir):
    """v and down of some layers, and the head, by the bytes of panels: 16 rows of 256 inputs have five lines of scales,
    and 32 or 48 of codes."""
    D, F, kv, V = 256, 512, 128, 320
    sizes = {"hidden_size": D, "intermediate_size": F, "num_attention_heads": 4, "num_key_value_heads": 2}
    folder = tiny_dir("llama3", layers=LAYERS, vocab_size=V, **sizes)
    finer = [i for i in range(LAYERS) if i < 1 or i >= 7 or (i - 1) % 3 == 2]
    assert finer == [0, 3, 6, 7]
    four, six = (64 * lines / (16 * 256) for lines in (5 + 32, 5 + 48))  # bytes of a weight
    coarse = D * D + kv * D + D * D + 2 * F * D  # q, k, o, gate and up
    want = LAYERS * coarse * four + V * D * six
    want += (kv * D + D * F) * (len(finer) * six + (LAYERS - len(finer)) * four)
    assert _core.Model(str(folder), dtype="int4").weight_bytes == want
    assert _core.survey(str(folder), dtype="int4")["weight_bytes"] == want


@pytest.mark.parametrize("isa", _core.isas())
@pytest.mark.parametrize("dtype", ["int8", "int4"])
@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.9, "top_k": 40, "seed": 3}], ids=["greedy", "sampled"])
def test_drafts_change_no_bit(folder, dtype, isa, sampling):
    model = _core.Model(str(folder), dtype=dtype, isa=isa, draft_weights="int4,int3")
    plain = decode(open_session(model, sampling=sampling), PROMPT, 40, keep_logits=True)
    for weights in ("int4", "int3", "own"):
        skip = tuple(DraftSpec(attn=[1], weights=weights).arguments().values())
        fast = decode(open_session(model, sampling=sampling), PROMPT, 40, Rule(skip, 0.0, 6), keep_logits=True)
        assert fast.tokens == plain.tokens
        assert np.array(fast.logits[:40]).tobytes() == np.array(plain.logits).tobytes()


def test_generate(folder):
    lm = swiftk.load(folder, device="cpu", dtype="int4")
    assert lm.model.copies == {}  # one would be hardly smaller
    texts = [lm.generate("The quick", max_new_tokens=30, speculate=drafts).tokens for drafts in (True, False)]
    assert texts[0] == texts[1]
    assert set(swiftk.load(folder, device="cpu", dtype="int8").model.copies) == {"int4"}


def test_dtypes_that_there_are_not(folder):
    with pytest.raises(InvalidArgument, match="kv_dtype='int4', want one of auto, bf16"):
        swiftk.load(folder, kv_dtype="int4")
    with pytest.raises(InvalidArgument, match=r"kv_dtype is 'int4', want auto, float32, bfloat16 or float16, or int8$"):
        _core.Model(str(folder), kv_dtype="int4")
    with pytest.raises(InvalidArgument, match=r"dtype is 'int5', want auto, .* or float16, or int8 or int4$"):
        _core.Model(str(folder), dtype="int5")
