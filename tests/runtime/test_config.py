"""config.json: what is read, what is refused by name, and JSON that is not JSON."""

import json

import pytest

from swiftk import _core
from swiftk.errors import CheckpointError, UnsupportedModel
from swiftk.testing import make_tiny

REMOVE = object()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return {
        f: make_tiny(tmp_path_factory.mktemp(f), f, tokenizer=False) for f in ["llama2", "mistral", "qwen2", "qwen3"]
    }


@pytest.fixture
def load_with(folders, tmp_path):
    """load_with(family, field=value, ...) -> the model whose config.json has these fields changed."""

    def load(family, **fields):
        config = json.loads((folders[family] / "config.json").read_text())
        for name, value in fields.items():
            if value is REMOVE:
                config.pop(name, None)
            else:
                config[name] = value
        return load_text(family, json.dumps(config))

    def load_text(family, text):
        for file in folders[family].glob("*.safetensors"):
            (tmp_path / file.name).symlink_to(file) if not (tmp_path / file.name).exists() else None
        (tmp_path / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())
        return _core.Model(str(tmp_path), threads=1)

    load.text = load_text
    return load


LONG = {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
UNSUPPORTED = [
    (
        {"model_type": "mixtral"},
        f"config.model_type='mixtral' is not supported \\(supported: {', '.join(_core.families())}",
    ),
    ({"architectures": ["LlamaForSequenceClassification"]}, "config.architectures=.*supported: LlamaForCausalLM"),
    (
        {"rope_scaling": {"rope_type": "ntk", "factor": 2.0}},
        "config.rope_scaling.rope_type='ntk' is not supported "
        "\\(supported: default, linear, dynamic, llama3, yarn, longrope\\)",
    ),
    ({"rope_scaling": {"type": "su"}}, "config.rope_scaling.type='su' is not supported"),
    (
        {"rope_scaling": {**LONG, "short_mscale": 0.7}},
        "config.rope_scaling.short_mscale=0.7 is not supported \\(supported: none\\)",
    ),
    ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "config.rope_parameters.full_attention="),
    ({"partial_rotary_factor": 0.5}, "config.partial_rotary_factor=0.5 is not supported \\(supported: 1\\)"),
    ({"rope_parameters": {"partial_rotary_factor": 0.25}}, "config.rope_parameters.partial_rotary_factor=0.25"),
    ({"hidden_act": "gelu"}, "config.hidden_act='gelu' is not supported \\(supported: 'silu', 'gelu_pytorch_tanh'\\)"),
    (
        {"quantization_config": {"quant_method": "hqq"}},
        r"config.quantization_config.quant_method='hqq' is not supported \(supported: gptq, awq",
    ),
    ({"use_bidirectional_attention": True}, "config.use_bidirectional_attention=true is not supported"),
    ({"head_dim": 15}, "config.head_dim=15 is not supported \\(supported: even"),
]


@pytest.mark.parametrize(
    ("type", "nearest"),
    [
        ("qwen3_5", "qwen3"),
        ("qwen3_next", "qwen3"),
        ("qwen3_moe", "qwen3"),
        ("gemma3n", "gemma3_text"),
        ("gemma4", "gemma3_text"),
        ("granitemoehybrid", "granite"),
        ("olmoe", "olmo3"),
        ("olmo_hybrid", "olmo3"),
        ("exaone_moe", "exaone4"),
        ("ernie4_5_moe", "ernie4_5"),
        ("phimoe", "phi3"),
        ("lfm2", None),
        ("mamba2", None),
        ("gpt_oss", None),
    ],
)
def test_what_is_near_to_a_family_that_is_not_read(load_with, type, nearest):
    end = f"; the nearest is {nearest}\\)" if nearest else "internlm3\\)"
    with pytest.raises(
        UnsupportedModel, match=f"config.model_type='{type}' is not supported \\(supported: llama, .*{end}"
    ):
        load_with("llama2", model_type=type, architectures=["AnyForCausalLM"])


@pytest.mark.parametrize(("fields", "message"), UNSUPPORTED)
def test_unsupported(load_with, fields, message):
    with pytest.raises(UnsupportedModel, match=message):
        load_with("llama2", **fields)


@pytest.mark.parametrize(
    ("family", "fields", "message"),
    [
        (
            "mistral",
            {"attention_bias": True},
            "config.attention_bias=true is not supported \\(supported: false for mistral\\)",
        ),
        ("qwen2", {"mlp_bias": True}, "config.mlp_bias=true is not supported \\(supported: false for qwen2\\)"),
        (
            "qwen3",
            {"layer_types": ["full_attention", "linear_attention", "full_attention"]},
            "config.layer_types\\[1\\]='linear_attention' is not supported",
        ),
        (
            "mistral",
            {"layer_types": ["full_attention"] * 3},
            "config.layer_types\\[0\\]='full_attention' is not supported",
        ),
    ],
)
def test_unsupported_in_a_family(load_with, family, fields, message):
    with pytest.raises(UnsupportedModel, match=message):
        load_with(family, **fields)


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
WRONG = [
    ({"hidden_size": REMOVE}, "config.hidden_size is missing, want a positive 32-bit integer"),
    ({"hidden_size": "64"}, "config.hidden_size is '64', want a positive"),
    ({"hidden_size": 0}, "config.hidden_size is 0"),
    ({"hidden_size": -64}, "config.hidden_size is -64"),
    ({"hidden_size": 64.5}, "config.hidden_size is 64.5"),
    ({"hidden_size": 2**31}, "config.hidden_size is 2147483648"),
    ({"hidden_size": 2**80}, "config.hidden_size is 1.2089"),
    ({"hidden_size": True}, "config.hidden_size is true"),
    ({"hidden_size": 66}, "config.hidden_size is 66, want a multiple of num_attention_heads=4"),
    ({"num_key_value_heads": 3}, "config.num_key_value_heads is 3, want a divisor of num_attention_heads=4"),
    ({"num_key_value_heads": 0}, "config.num_key_value_heads is 0"),
    ({"num_hidden_layers": None}, "config.num_hidden_layers is missing"),
    ({"num_hidden_layers": 1 << 28}, "config.num_hidden_layers is 268435456, want at most 65536"),
    ({"num_hidden_layers": 50000}, "there are [0-9]+ tensors, the config has 50000 layers"),
    ({"num_hidden_layers": 4}, "tensor model.layers.3.input_layernorm.weight is missing"),
    ({"vocab_size": REMOVE}, "config.vocab_size is missing"),
    ({"vocab_size": 321}, "model.embed_tokens.weight has shape \\[320, 64\\], the config wants \\[321, 64\\]"),
    ({"intermediate_size": []}, "config.intermediate_size is \\[\\]"),
    ({"max_position_embeddings": 0}, "config.max_position_embeddings is 0"),
    ({"rms_norm_eps": 0}, "config.rms_norm_eps is 0, want a positive number"),
    ({"rms_norm_eps": "small"}, "config.rms_norm_eps is 'small'"),
    ({"rope_theta": -1}, "config.rope_theta is -1"),
    ({"rope_scaling": "linear"}, "config.rope_scaling is 'linear', want an object"),
    ({"rope_scaling": {"type": 3}}, "config.rope_scaling.type is 3, want a name"),
    ({"rope_scaling": {"type": "linear"}}, "config.rope_scaling.factor is missing"),
    (
        {"rope_scaling": {**LONG, "long_factor": [1.0]}},
        "config.rope_scaling.long_factor is .*, want a list of 8 positive",
    ),
    ({"rope_scaling": {**LONG, "short_factor": [0.0] * 8}}, "config.rope_scaling.short_factor is 0, want a list of 8"),
    (
        {"rope_scaling": {**LONG, "original_max_position_embeddings": 1}},
        "original_max_position_embeddings is 1, want at",
    ),
    ({"rope_scaling": {"type": "linear", "factor": 0}}, "config.rope_scaling.factor is 0"),
    ({"rope_scaling": {"type": "dynamic", "factor": 0.5}}, "config.rope_scaling.factor is 0.5, want at least 1"),
    ({"rope_scaling": {**LLAMA3, "low_freq_factor": 4.0}}, "high_freq_factor is 4, want more than low_freq_factor"),
    ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "config.rope_scaling.low_freq_factor is missing"),
    ({"attention_bias": "no"}, "config.attention_bias is 'no', want true or false"),
    ({"attention_bias": True}, "tensor model.layers.0.self_attn.q_proj.bias is missing"),
    ({"tie_word_embeddings": 1}, "config.tie_word_embeddings is 1"),
    ({"model_type": REMOVE}, "config.model_type is missing, want one of llama"),
    ({"model_type": 5}, "config.model_type is 5"),
    ({"architectures": "LlamaForCausalLM"}, "config.architectures is 'LlamaForCausalLM', want a list"),
    ({"model_type": "qwen3", "architectures": None, "head_dim": 16}, "q_norm.weight is missing"),
]


@pytest.mark.parametrize(("fields", "message"), WRONG)
def test_wrong_fields(load_with, fields, message):
    with pytest.raises(CheckpointError, match=message):
        load_with("llama2", **fields)


@pytest.mark.parametrize(
    ("types", "message"),
    [
        (["full_attention"] * 2, "want a list of 3 names"),
        ("full", "want a list of 3"),
        (["sliding_attention"] * 3, "as no sliding_window is set"),
    ],
)
def test_wrong_layer_types(load_with, types, message):
    with pytest.raises(CheckpointError, match=message):
        load_with("qwen3", layer_types=types)


def test_biases_that_the_config_does_not_announce(load_with):
    with pytest.raises(CheckpointError, match=r"k_proj\.bias is in the checkpoint, but a llama has none of that name"):
        load_with("qwen2", model_type="llama", architectures=["LlamaForCausalLM"])


BAD_JSON = {
    "": "byte 0: want a value, got the end of the text",
    "{": "byte 1: want a key, got the end",
    '{"a" 1}': "byte 5: want ':', got '1'",
    '{"a": 1,}': "byte 8: want a key, got '}'",
    '{"a": 1 "b": 2}': "byte 8: want '}', got '\"'",
    '{"a": [1, 2}': "byte 11: want '\\]', got '}'",
    '{"a": 1, "a": 2}': "key 'a' twice in one object",
    '{"a": 01}': "byte 7: want '}', got '1'",
    '{"a": +1}': "want a value, got '\\+'",
    '{"a": .5}': "want a value, got '.'",
    '{"a": 1.}': "want a digit behind the point",
    '{"a": 1e}': "want a digit in the exponent",
    '{"a": 1e999}': "number out of range",
    '{"a": NaN}': "want a value, got 'N'",
    '{"a": tru}': "want true",
    '{"a": "x}': "string without an end",
    '{"a": "\n"}': "control character byte 0x0a in a string",
    '{"a": "\\x"}': "unknown escape 'x'",
    '{"a": "\\u12g4"}': "want four hexadecimal digits, got 'g'",
    '{"a": "\\ud800"}': "lone high surrogate",
    '{"a": "\\udc00"}': "lone low surrogate",
    '{"a": "\\ud800\\u0041"}': "lone high surrogate",
    '{"a": 1} x': "byte 9: text behind the value",
    "// c\n{}": "want a value, got '/'",
    "\ufeff{}": "byte 0: want a value, got byte 0xef",
    "[" * 100 + "]" * 100: "nested deeper than 64",
    "[" * 1000000: "nested deeper than 64",
    "[]": "got \\[\\], want an object",
}


@pytest.mark.parametrize("text", BAD_JSON, ids=range(len(BAD_JSON)))
def test_bad_json(load_with, text):
    with pytest.raises(CheckpointError, match=BAD_JSON[text]) as caught:
        load_with.text("llama2", text)
    assert "config.json" in str(caught.value)


BAD_UTF8 = [
    b"\x80",
    b"\xc3",
    b"\xc0\xaf",
    b"\xe0\x80\xaf",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\xf0\x80\x80\x80",
    b"\xff",
]


@pytest.mark.parametrize("sequence", BAD_UTF8)
def test_bad_utf8(load_with, sequence):
    with pytest.raises(CheckpointError, match="byte 7: invalid UTF-8"):
        load_with.text("llama2", b'{"a": "' + sequence + b'"}')


def test_text_of_every_kind_passes(load_with, folders):
    config = json.loads((folders["llama2"] / "config.json").read_text())
    config["note"] = '\x7f \u00e9 \u20ac \U0001f600 " \\ / \b\f\n\r\t'
    config["numbers"] = [0, -0, 1.5e-3, -2e10, 1e-320, 2**63, 10**30]
    config["nested"] = [[[{}]], None, True, False]
    for ascii in [True, False]:
        text = json.dumps(config, ensure_ascii=ascii, indent=3)
        assert load_with.text("llama2", text).config["hidden_size"] == 64


def test_config_of_the_model(load_with):
    config = load_with("qwen2", use_sliding_window=True, sliding_window=9, max_window_layers=1).config
    assert config["window"] == [0, 9, 9]
    assert config["model_type"] == "qwen2"
    assert config["dtype"] == "bfloat16"
    assert (config["hidden_size"], config["ffn"], config["vocab_size"], config["num_layers"]) == (64, 88, 320, 3)
    assert (config["num_heads"], config["num_kv_heads"], config["head_dim"]) == (4, 2, 16)


@pytest.mark.parametrize(
    "fields",
    [
        {"torch_dtype": "float16"},
        {"torch_dtype": REMOVE, "dtype": "float16"},
        {"torch_dtype": "torch.float16"},
        {"torch_dtype": "float32", "dtype": "float16"},
    ],
)
def test_dtype_of_the_config(load_with, fields):
    model = load_with("llama2", **fields)
    assert model.config["dtype"] == "float16"
    assert model.dtype == "bfloat16"


@pytest.mark.parametrize(
    ("family", "heads", "kv_heads", "head_dim"),
    [("llama2", 4, 4, 16), ("mistral", 8, 8, 8), ("qwen2", 32, 32, 2), ("qwen3", 32, 32, 128)],
)
def test_defaults_of_the_shape(tmp_path, family, heads, kv_heads, head_dim):
    made = make_tiny(
        tmp_path, family, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim, layers=1
    )
    config = json.loads((made / "config.json").read_text())
    for field in ["num_key_value_heads", "head_dim", "max_position_embeddings"]:
        config.pop(field)
    (made / "config.json").write_text(json.dumps(config))
    read = _core.Model(str(made)).config
    assert (read["num_kv_heads"], read["head_dim"]) == (kv_heads, head_dim)
    transformers = pytest.importorskip("transformers")
    want = transformers.AutoConfig.from_pretrained(made)
    assert (want.num_key_value_heads, want.head_dim) == (kv_heads, head_dim) if family != "qwen2" else kv_heads
    assert read["max_position"] == want.max_position_embeddings
