"""Scaled rotary tables to the end of the stretched context, against transformers. Its frequencies are in float32, so an
angle may differ by the position times their rounding; the rest of the arithmetic is float64 here."""

import numpy as np
import pytest
from swiftk._testing import rope_rows

from swiftk import _core
from swiftk.testing import make_tiny

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

ROUNDING = 1e-6  # of a frequency in float32, some operations after another
WIDE = {"layers": 1, "tokenizer": False, "dtype": "float32", "num_attention_heads": 2, "num_key_value_heads": 1}
SHORT = [1.0 + 0.01 * i for i in range(48)]
LONG = [1.0 + 1.2 * i for i in range(48)]
PHI = {"original_max_position_embeddings": 4096, "max_position_embeddings": 131072, "rope_theta": 10000.0}
LLAMA3 = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
# Fields of published models, the original context, and the whole one.
CASES = {
    "llama-3.1": (
        "llama3",
        {"head_dim": 128, "rope_theta": 500000.0, "rope_scaling": {**LLAMA3, "factor": 8.0}},
        8192,
        131072,
    ),
    "llama-3.2": (
        "llama3",
        {"head_dim": 64, "rope_theta": 500000.0, "rope_scaling": {**LLAMA3, "factor": 32.0}},
        8192,
        131072,
    ),
    "qwen2.5-yarn": (
        "qwen2",
        {
            "head_dim": 128,
            "hidden_size": 256,
            "max_position_embeddings": 32768,
            "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
        },
        32768,
        131072,
    ),
    "yarn-original-at-top": (
        "llama2",
        {
            "head_dim": 128,
            "original_max_position_embeddings": 4096,
            "max_position_embeddings": 131072,
            "rope_scaling": {"rope_type": "yarn", "factor": 32.0},
        },
        4096,
        131072,
    ),
    "yarn-mscale": (
        "llama2",
        {
            "head_dim": 64,
            "max_position_embeddings": 163840,
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 40.0,
                "original_max_position_embeddings": 4096,
                "mscale": 0.707,
                "mscale_all_dim": 1.0,
            },
        },
        4096,
        163840,
    ),
    "ministral3": (
        "ministral3",
        {
            "head_dim": 128,
            "max_position_embeddings": 262144,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1000000.0,
                "factor": 16.0,
                "original_max_position_embeddings": 16384,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.1,
            },
        },
        16384,
        262144,
    ),
    "dynamic": (
        "llama2",
        {
            "head_dim": 128,
            "max_position_embeddings": 4096,
            "rope_scaling": {"rope_type": "dynamic", "factor": 8.0},
        },
        4096,
        32768,
    ),
    "linear": (
        "llama2",
        {"head_dim": 128, "max_position_embeddings": 65536, "rope_scaling": {"rope_type": "linear", "factor": 16.0}},
        4096,
        65536,
    ),
    "phi-3-128k": (
        "phi3",
        {**PHI, "hidden_size": 192, "rope_scaling": {"type": "longrope", "short_factor": SHORT, "long_factor": LONG}},
        4096,
        131072,
    ),
    "phi-4-mini": (
        "phi4-mini",
        {
            **PHI,
            "hidden_size": 256,
            "rope_scaling": {"type": "longrope", "short_factor": SHORT, "long_factor": LONG},
        },
        4096,
        131072,
    ),
}


def made(folder, name):
    family, fields, original, most = CASES[name]
    make_tiny(folder, family, **{"max_position_embeddings": most, **WIDE, **fields})
    config = transformers.AutoConfig.from_pretrained(folder)
    assert _core.read_config(str(folder))["max_position"] == most
    return transformers.AutoModelForCausalLM.from_config(config).model.rotary_emb, original, most


def angles(rotary, positions):
    """[positions, d / 2] of the last token of a text that has come so far, and the factor of cosines and sines."""
    rows = []
    for pos in positions:
        rotary(torch.zeros(1), torch.tensor([[pos]]))  # takes the frequencies of this length
        rows.append(pos * rotary.inv_freq.numpy().astype(np.float64))
    return np.stack(rows), rotary.attention_scaling


def wrong_by(got, angle, scale):
    """The largest error of cosines and sines [positions, 2, n], as a multiple of what rounding explains."""
    want = scale * np.stack([np.cos(angle), np.sin(angle)], 1)
    return (np.abs(got - want) / (scale * (ROUNDING * angle + 1e-6))[:, None]).max()


@pytest.mark.parametrize("name", CASES)
def test_tables_to_the_end_of_the_context(tmp_path, name):
    rotary, original, most = made(tmp_path, name)
    long = name.startswith("phi")
    near = [0, 1, 63, original // 2, original - 2, original - 1]
    far = [original, original + 1, 3 * original // 2, most // 2, most // 2 + 1, most - 2, most - 1]
    for positions, stretched in ((near, False), (far, long)):
        angle, scale = angles(rotary, positions)
        n = angle.shape[1]
        for row in rope_rows(str(tmp_path), positions, stretched)[:1]:
            assert wrong_by(row[:, :, :n], angle, scale) < 1
            assert (row[:, 0, n:] == 1).all() and (row[:, 1, n:] == 0).all(), "what does not turn"
    if long:  # all rows of a text that may pass the original context
        frequencies = angles(rotary, [original])[0][0] / original
        rows = rope_rows(str(tmp_path), near, True)[0]
        assert wrong_by(rows[:, :, : len(frequencies)], np.outer(near, frequencies), scale) < 1
        assert wrong_by(rows[:, :, : len(frequencies)], angles(rotary, near)[0], scale) > 10, "the short ones differ"


def test_queries_grow_beyond_the_original_context(tmp_path):
    """Ministral 3: their table is that of keys, times a factor."""
    from transformers.models.ministral3.modeling_ministral3 import get_llama_4_attn_scale

    _, original, most = made(tmp_path, "ministral3")
    positions = [1, original - 1, original, 2 * original - 1, 2 * original, most - 1]
    keys, queries = rope_rows(str(tmp_path), positions)
    want = get_llama_4_attn_scale(torch.tensor([positions]), 0.1, original).numpy().reshape(-1, 1, 1)
    np.testing.assert_allclose(queries, keys * want, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["llama-3.1", "qwen2.5-yarn", "dynamic", "phi-4-mini"])
def test_keys_of_a_text_of_full_length(tmp_path, name):
    """A token that is repeated has the same keys everywhere, turned by its position's angles. A window makes a text of
    that length cheap."""
    family, fields, original, most = CASES[name]
    family = "mistral" if family in ("llama2", "llama3", "qwen2") else family
    make_tiny(tmp_path, family, **{"max_position_embeddings": most, **WIDE, **fields, "sliding_window": 8})
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    rotary = transformers.AutoModelForCausalLM.from_config(config).model.rotary_emb
    model = _core.Model(str(tmp_path), threads=1)
    assert model.config["max_position"] == most
    taps = _core.Taps(model, [0], most)
    taps.read([7] * most, logits=False)
    keys = taps.kv()[:, 0, 0, 0].astype(np.float64)
    positions = [1, 2, original - 1, original, original + 1, most // 2, most - 2, most - 1]
    angle, scale = angles(rotary, [original] if family == "phi4-mini" else positions)
    n = angle.shape[1]
    if family == "phi4-mini":  # the text may pass the original context
        angle = np.outer(positions, angle[0] / original)
    half = model.config["head_dim"] // 2  # pairs are so far from each other, and the first n of them turn
    first, second = keys[0, :n] / scale, keys[0, half : half + n] / scale
    cos, sin = scale * np.cos(angle), scale * np.sin(angle)
    allowed = scale * np.abs(keys[0]).max() * 2 * (ROUNDING * angle + 1e-6)
    got = keys[positions]
    assert (np.abs(got[:, :n] - (first * cos - second * sin)) < allowed).all()
    assert (np.abs(got[:, half : half + n] - (second * cos + first * sin)) < allowed).all()
    others = [*range(n, half), *range(half + n, 2 * half)]
    assert (got[:, others] == keys[0, others]).all()


STRETCHED = {
    "llama3": ("llama3.1", {"max_position_embeddings": 1024, "original_max_position_embeddings": 128}),
    "yarn": (
        "llama2",
        {
            "max_position_embeddings": 128,
            "rope_scaling": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 128},
        },
    ),
    "longrope": ("phi4-mini", {"max_position_embeddings": 1024, "original_max_position_embeddings": 128}),
}


@pytest.mark.parametrize("name", STRETCHED)
@torch.no_grad()
def test_logits_to_the_end_of_the_context(tmp_path, name):
    """On both sides of the original context, and of the last prompt there is room for."""
    family, fields = STRETCHED[name]
    make_tiny(tmp_path, family, **{"layers": 1, "tokenizer": False, "dtype": "float32", **fields})
    model = _core.Model(str(tmp_path), threads=1)
    assert model.config["max_position"] == 1024
    oracle = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = np.random.default_rng(3).integers(3, 300, 1024).astype(np.int32)
    # With the token after 128 a text passes the original context, which LongRoPE's tables depend on.
    for n in (126, 127, *([128] if name != "longrope" else []), 129, 500, 1023):
        session = _core.Session(model, context=n + 1, poison=True)
        session.prefill(ids[:n])
        want = oracle(torch.tensor(ids[:n].astype(np.int64))[None]).logits[0, -1].numpy()
        got = session.logits[0]
        assert np.sqrt(np.mean((got - want) ** 2)) < 1e-5 * want.std(), n


@torch.no_grad()
def test_logits_of_dynamic_scaling_to_the_end_of_the_context(tmp_path):
    """It is that of decoding token by token: each key has the frequencies of the length that the text had then."""
    fields = {"max_position_embeddings": 64, "rope_scaling": {"rope_type": "dynamic", "factor": 8.0}}
    make_tiny(tmp_path, "llama2", **{"layers": 1, "tokenizer": False, "dtype": "float32", **fields})
    model = _core.Model(str(tmp_path), threads=1)
    oracle = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ids = np.random.default_rng(3).integers(3, 300, 511).astype(np.int32)
    assert model.config["max_position"] == 512
    past = None
    for token in ids:
        out = oracle(torch.tensor([[int(token)]]), past_key_values=past, use_cache=True)
        past = out.past_key_values
    session = _core.Session(model, poison=True)
    session.prefill(ids)
    want = out.logits[0, -1].numpy()
    assert np.sqrt(np.mean((session.logits[0] - want) ** 2)) < 1e-5 * want.std()
