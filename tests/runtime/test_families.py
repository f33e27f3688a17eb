"""Logits against transformers in float32, on a tiny checkpoint of every family: whole sequences and token by token."""

import json

import numpy as np
import pytest

from swiftk import _core, demo_model
from swiftk.files.safetensors_io import Tensor, read_folder, write_folder
from swiftk.testing import FAMILIES, make_tiny

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

LENGTHS = [1, 2, 17, 40, 90, 126]  # around the windows (16, 32) and past the original contexts (64) of the tiny models
# Largest error of a row allowed: root mean square, in standard deviations of the logits. The cache has the dtype of the
# weights; for bfloat16 some instruction sets round activations as well, and transformers in bfloat16 is no closer.
TOLERANCE = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 4e-2}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
# Fields of config.json beyond the families' usual; None: the field is absent.
VARIANTS = {
    "qwen3-layer-types": (
        "qwen3",
        {
            "use_sliding_window": True,
            "sliding_window": 16,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "qwen3-bias": ("qwen3", {"attention_bias": True, "tie_word_embeddings": False}),
    "qwen2-null-window": ("qwen2", {"use_sliding_window": True, "sliding_window": None, "max_window_layers": 0}),
    "qwen2-all-slide": ("qwen2", {"use_sliding_window": True, "max_window_layers": 0, "sliding_window": 7}),
    "mistral-null-window": ("mistral", {"sliding_window": None}),
    "mistral-head-dim": ("mistral", {"head_dim": 32, "num_attention_heads": 3, "num_key_value_heads": 1}),
    "llama-tied-with-bias": ("llama2", {"attention_bias": True, "tie_word_embeddings": True}),
    "llama-odd-sizes": (
        "llama3",
        {
            "hidden_size": 36,
            "intermediate_size": 33,
            "num_attention_heads": 3,
            "num_key_value_heads": 3,
            "vocab_size": 301,
        },
    ),
    "llama-rope-in-both": ("llama2", {"rope_theta": 100.0, "rope_parameters": {"rope_theta": 70000.0}}),
    "llama-rope-at-top": ("llama2", {"rope_theta": 700.0, "rope_parameters": {"rope_type": "linear", "factor": 2.5}}),
    "llama3-original-at-top": ("llama3.1", {"original_max_position_embeddings": 32}),
    "llama-yarn": ("llama2", {"max_position_embeddings": 256, "rope_scaling": YARN}),
    "llama-yarn-all-fields": (
        "llama2",
        {
            "max_position_embeddings": 256,
            "rope_parameters": {
                **YARN,
                "rope_theta": 50000.0,
                "beta_fast": 16.0,
                "beta_slow": 2.0,
                "attention_factor": 1.3,
            },
        },
    ),
    "llama-large-eps": ("llama2", {"rms_norm_eps": 0.5}),
    "llama-yarn-mscale": ("llama2", {"rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.3}}),
    "llama-yarn-not-whole": ("llama2", {"rope_parameters": {**YARN, "truncate": False}}),
    "smollm3-windows": (
        "smollm3",
        {"use_sliding_window": True, "sliding_window": 16, "no_rope_layers": None, "no_rope_layer_interval": 2},
    ),
    "smollm3-layer-types": (
        "smollm3",
        {
            "use_sliding_window": True,
            "sliding_window": 16,
            "layer_types": ["sliding_attention"] + ["full_attention"] * 2,
        },
    ),
    "granite-bias": ("granite", {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": None}),
    "gemma-untied": ("gemma", {"tie_word_embeddings": False, "hidden_act": "gelu", "num_key_value_heads": 1}),
    "gemma2-other-caps": ("gemma2", {"attn_logit_softcapping": 2.0, "final_logit_softcapping": None}),
    "gemma2-no-cap": ("gemma2", {"attn_logit_softcapping": None, "layer_types": ["full_attention"] * 3}),
    "gemma3-by-type": (
        "gemma3",
        {
            "layers": 7,
            "sliding_window_pattern": 6,
            "rope_scaling": None,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 20000.0},
            },
        },
    ),
    "gemma3-caps": ("gemma3", {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 20.0, "attention_bias": True}),
    "olmo2-bias": ("olmo2", {"attention_bias": True, "num_key_value_heads": 1}),
    "olmo3-default-types": ("olmo3", {"layer_types": None, "layers": 5, "rope_scaling": None}),
    "exaone4-no-window": ("exaone4", {"sliding_window": None, "layer_types": ["full_attention"] * 3}),
    "exaone4-layer-types": ("exaone4", {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}),
    "hunyuan-bias": ("hunyuan", {"attention_bias": True, "rope_scaling": None}),
    "ernie-no-bias": ("ernie4.5", {"use_bias": False, "tie_word_embeddings": False}),
    "phi3-partial": ("phi3", {"partial_rotary_factor": 0.5, "num_attention_heads": 2}),
    "phi4-mini-factor": ("phi4-mini", {"original_max_position_embeddings": 200, "max_position_embeddings": 400}),
    "seed-oss-mlp-bias": ("seed-oss", {"attention_bias": False, "attention_out_bias": False, "mlp_bias": True}),
    "internlm3-no-bias": ("internlm3", {"qkv_bias": False, "bias": False}),
    "ministral-by-default": ("ministral", {"layer_types": None}),
    "ministral3-window": ("ministral3", {"sliding_window": 16}),
}


def tokens(n, seed=3):
    return np.random.default_rng(seed).integers(3, 300, n).astype(np.int32)


def oracle(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    return model.eval()


@torch.no_grad()
def whole(model, ids):
    return model(torch.tensor(ids.astype(np.int64))[None], use_cache=False).logits[0].numpy()


@torch.no_grad()
def stepwise(model, ids):
    rows, past = [], None
    for t in ids:
        out = model(torch.tensor([[int(t)]]), past_key_values=past, use_cache=True)
        past = out.past_key_values
        rows.append(out.logits[0, -1].numpy())
    return np.stack(rows)


def error(got, want):
    rows = np.sqrt(np.mean((np.atleast_2d(got) - np.atleast_2d(want)) ** 2, axis=1))
    return rows.max() / want.std()


def decoded(model, ids):
    """A row for every token, each computed alone after what is cached."""
    session = _core.Session(model, context=len(ids) + 2, poison=True)
    rows = []
    for n in range(1, len(ids) + 1):
        session.prefill(ids[:n])
        rows.append(session.logits[0])
    return np.stack(rows)


def prefilled(model, ids, context=0):
    """The last row of a prompt that runs in one piece."""
    session = _core.Session(model, context=context or len(ids) + 2, poison=True)
    session.prefill(ids)
    return session.logits[0]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", list(TOLERANCE))
def test_prompts_of_every_length_and_decoding(tiny_dir, family, dtype):
    folder = tiny_dir(family, dtype=dtype)
    model, ids = _core.Model(str(folder)), tokens(max(LENGTHS))
    assert model.dtype == dtype
    want = whole(oracle(folder), ids)
    for n in LENGTHS:
        got = prefilled(model, ids[:n], context=len(ids) + 2)  # rotary positions of some depend on it
        assert error(got, want[n - 1]) < TOLERANCE[dtype], n
    assert error(decoded(model, ids), want) < TOLERANCE[dtype]


@pytest.mark.parametrize("prefixes", [("language_model.model.", "language_model."), ("model.language_model.", "")])
@pytest.mark.parametrize(
    ("family", "around"), [("gemma3", "Gemma3"), ("ministral3", "Mistral3"), ("mistral", "Mistral3")]
)
def test_a_text_model_within_one_that_reads_pictures(tiny_dir, tmp_path, family, around, prefixes):
    """As its folder alone, in both ways in which such files name its tensors; those of pictures are passed over."""
    alone = tiny_dir(family, dtype="float32")
    text = json.loads((alone / "config.json").read_text())
    whole = {
        "model_type": around.lower(),
        "architectures": [f"{around}ForConditionalGeneration"],
        "tie_word_embeddings": text.pop("tie_word_embeddings"),
        "torch_dtype": text.pop("torch_dtype"),
        "text_config": text,
        "vision_config": {"hidden_size": 8},
    }
    (tmp_path / "config.json").write_text(json.dumps(whole))
    model, others = prefixes
    named = {"vision_tower.patch.weight": Tensor("F32", np.zeros((4, 8), np.float32))}
    for name, tensor in read_folder(alone).items():
        named[model + name.removeprefix("model.") if name.startswith("model.") else others + name] = tensor
    for _ in write_folder(tmp_path, named):
        pass
    got, want = _core.Model(str(tmp_path)), _core.Model(str(alone))
    assert (got.config, got.dtype) == (want.config, "float32")
    assert prefilled(got, tokens(40)).tobytes() == prefilled(want, tokens(40)).tobytes()


@pytest.mark.parametrize("isa", _core.isas())
@pytest.mark.parametrize("stored", list(TOLERANCE))
@pytest.mark.parametrize("loaded", list(TOLERANCE))
def test_dtypes_convert_at_load(tiny_dir, isa, stored, loaded):
    folder = tiny_dir("qwen3", dtype=stored)
    model, ids = _core.Model(str(folder), dtype=loaded, isa=isa), tokens(50)
    assert (model.dtype, model.isa) == (loaded, isa)
    tolerance = max(TOLERANCE[loaded], TOLERANCE["float32"])
    assert error(decoded(model, ids), whole(oracle(folder), ids)) < tolerance


@pytest.mark.parametrize("variant", VARIANTS)
def test_variants(tmp_path, variant):
    family, fields = VARIANTS[variant]
    folder = make_tiny(tmp_path, family, dtype="float32", **fields)
    model, ids = _core.Model(str(folder)), tokens(100)
    want = whole(oracle(folder), ids)
    assert error(decoded(model, ids), want) < TOLERANCE["float32"]
    assert error(prefilled(model, ids), want[-1]) < TOLERANCE["float32"]


@pytest.mark.parametrize(
    "field",
    [
        "rms_norm_eps",
        "rope_theta",
        "tie_word_embeddings",
        "hidden_act",
        "sliding_window",
        "max_window_layers",
        "use_sliding_window",
        "torch_dtype",
    ],
)
@pytest.mark.parametrize("family", ["llama2", "mistral", "qwen2-sliding", "qwen3"])
def test_an_absent_field_has_the_default_of_its_family(tmp_path, family, field):
    folder = make_tiny(tmp_path, family, dtype="float32", tie_word_embeddings=False, rms_norm_eps=1e-6, layers=2)
    config = json.loads((folder / "config.json").read_text())
    config.pop(field, None)
    (folder / "config.json").write_text(json.dumps(config))
    model, ids = _core.Model(str(folder)), tokens(40)
    assert error(decoded(model, ids), whole(oracle(folder), ids)) < TOLERANCE["float32"]


@pytest.mark.parametrize(
    ("family", "field"),
    [
        ("ministral3", "rope_parameters"),
        ("smollm3", "no_rope_layers"),
        ("smollm3", "tie_word_embeddings"),
        ("granite", "embedding_multiplier"),
        ("granite", "attention_multiplier"),
        ("granite", "logits_scaling"),
        ("gemma", "hidden_act"),
        ("gemma2", "sliding_window"),
        ("gemma2", "query_pre_attn_scalar"),
        ("gemma2", "hidden_activation"),
        ("gemma3", "rope_theta"),
        ("gemma3", "rope_local_base_freq"),
        ("gemma3", "sliding_window_pattern"),
        ("olmo3", "layer_types"),
        ("olmo3", "rms_norm_eps"),
        ("exaone4", "sliding_window_pattern"),
        ("hunyuan", "rope_scaling"),
        ("phi3", "sliding_window"),
        ("phi4-mini", "partial_rotary_factor"),
        ("seed-oss", "attention_bias"),
    ],
)
def test_an_absent_field_of_other_families(tmp_path, family, field):
    folder = make_tiny(tmp_path, family, dtype="float32", layers=7, tokenizer=False)
    config = json.loads((folder / "config.json").read_text())
    del config[field]
    if field == "partial_rotary_factor":
        config["rope_scaling"] = None
    (folder / "config.json").write_text(json.dumps(config))
    model, ids = _core.Model(str(folder)), tokens(40)
    assert error(decoded(model, ids), whole(oracle(folder), ids)) < TOLERANCE["float32"]


def test_dynamic_rope_beyond_the_original_context_is_that_of_token_by_token_decoding(tiny_dir):
    folder = tiny_dir("llama-dynamic", dtype="float32")
    model, ids = _core.Model(str(folder)), tokens(200)
    assert model.config["max_position"] == 4 * 128
    want = stepwise(oracle(folder), ids)
    assert error(decoded(model, ids), want) < TOLERANCE["float32"]
    # A row depends on its position alone: a prompt in one piece has the rows of decoding.
    assert error(prefilled(model, ids), want[-1]) < TOLERANCE["float32"]


def test_greedy_text_is_that_of_transformers(tiny_dir):
    folder = tiny_dir("llama3.2", dtype="float32")
    ids, n = tokens(12), 40
    session = _core.Session(_core.Model(str(folder)))
    got = [session.prefill(ids).token]
    while len(got) < n:
        session.draft(_core.TreeRule(max_draft=0))
        emitted = session.verify()
        session.commit(len(emitted))
        got += [e.token for e in emitted]
    prompt = torch.tensor(ids.astype(np.int64))[None]
    want = oracle(folder).generate(prompt, max_new_tokens=n, do_sample=False, eos_token_id=None)
    assert got == want[0, len(ids) :].tolist()


def test_the_demo_model():
    folder, ids = demo_model(), tokens(70)
    want = whole(oracle(folder), ids)
    assert error(decoded(_core.Model(str(folder), dtype="float32"), ids), want) < TOLERANCE["float32"]
    assert error(decoded(_core.Model(str(folder)), ids), want) < TOLERANCE["bfloat16"]
