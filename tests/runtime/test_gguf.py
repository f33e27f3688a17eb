"""GGUF files: a model has the same bits as from a Hugging Face folder, and a damaged file is an error that names it."""

import json
import struct
from dataclasses import replace

import numpy as np
import pytest

import swiftk
from decode import Rule, decode, open_session
from gguf_files import BLOCKS, TYPES, Entry, File, Typed, dequantised, of_array, of_folder, paired, random_blocks, split
from marks import exhaustive
from swiftk import DraftSpec, _core
from swiftk.errors import CheckpointError, UnsupportedModel
from swiftk.files.model_files import open_model_files
from swiftk.files.safetensors_io import Tensor, read_folder, write_folder
from swiftk.files.safetensors_io import decode as decoded
from swiftk.testing import make_tiny

IDS = np.random.default_rng(3).integers(3, 300, 120).astype(np.int32)
FAMILIES = ["llama1", "llama2", "llama3", "codellama", "yi", "deepseek-coder", "mistral", "qwen2", "qwen3"]
FAMILIES += ["ministral3", "smollm3", "granite", "gemma", "gemma2", "gemma3", "olmo2", "olmo3", "exaone4"]
FAMILIES += ["ernie4.5", "phi3", "seed-oss", "internlm3"]
# Fields that the container cannot say, set to what a reader assumes: llama has no windows; in SmolLM3 every fourth
# layer has no positions; Gemma's scale is that of its sizes; patterns are Gemma's own; EXAONE has windows in a model of
# 64 layers alone; the output projection of Seed-OSS has no bias.
SAID = {
    "mistral": {"sliding_window": None},
    "smollm3": {"no_rope_layers": None, "no_rope_layer_interval": 4, "layers": 5, "rope_theta": 2000000.0},
    "ernie4.5": {"rope_theta": 500000.0},
    "gemma2": {"query_pre_attn_scalar": 24},
    "gemma3": {"query_pre_attn_scalar": 24, "sliding_window_pattern": 6, "layers": 7},
    "exaone4": {"sliding_window": None, "rope_scaling": None},
    "seed-oss": {"attention_out_bias": False},
}
# What matmuls read as it is, and in which form.
CODED = {name: name.lower() for name in ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")}
CODED |= {"Q3_K": "q6_k", "IQ4_NL": "q8_0"}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}


def logits(path, ids=IDS, **options):
    session = _core.Session(_core.Model(str(path), **options), context=len(ids) + 2, poison=True)
    session.prefill(ids)
    return session.logits[0].copy()


def same(path, folder, **options):
    got, want = logits(path, **options), logits(folder, **options)
    assert np.isfinite(want).all()
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_are_a_folders(tmp_path, family):
    """What Python reads, for training: names, order of rows and norms of the folder that a file was made of."""
    folder = make_tiny(tmp_path / "hf", family, dtype="float32", tokenizer=False)
    found = open_model_files(of_folder(folder).write(tmp_path / "x.gguf")).tensors()
    wanted = read_folder(folder)
    assert sorted(found) == sorted(wanted)
    for name, tensor in wanted.items():
        offset = name.endswith("norm.weight") and family.startswith("gemma")  # which the converter adds in float32
        assert np.allclose(decoded(found[name]), decoded(tensor), rtol=0, atol=1e-7 if offset else 0), name
    assert _core.read_config(str(tmp_path / "x.gguf"))["paired"] == _core.read_config(str(folder))["paired"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_file_has_the_bits_of_its_folder(tmp_path, family, dtype):
    folder = make_tiny(tmp_path / "hf", family, dtype=dtype, tokenizer=False, **SAID.get(family, {}))
    same(of_folder(folder).write(tmp_path / "x.gguf"), folder)


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("llama2", {"tie_word_embeddings": True}),
        ("llama-bias", {}),
        ("llama3", {"num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 22}),
        ("llama2", {"max_position_embeddings": 256, "rope_scaling": YARN}),
        ("qwen3", {"tie_word_embeddings": False, "attention_bias": True}),
    ],
)
def test_other_shapes(tmp_path, family, fields):
    folder = make_tiny(tmp_path / "hf", family, dtype="float32", tokenizer=False, **fields)
    same(of_folder(folder).write(tmp_path / "x.gguf"), folder)


@pytest.mark.parametrize("family", ["llama3.1", "llama3.2", "exaone4"])
def test_divisors_of_rotary_frequencies(tmp_path, family):
    window = {"sliding_window": None} if family == "exaone4" else {}
    folder = make_tiny(tmp_path / "hf", family, dtype="float32", tokenizer=False, **window)
    file = of_folder(folder)
    got, want = logits(file.write(tmp_path / "x.gguf")), logits(folder)
    assert np.abs(got - want).max() < 1e-4 * want.std()
    del file.tensors["rope_freqs.weight"]
    assert np.abs(logits(file.write(tmp_path / "y.gguf")) - want).max() > 0.01 * want.std()


@pytest.mark.parametrize("context", [40, 122])
@pytest.mark.parametrize("family", ["hunyuan", "phi4-mini"])
def test_angles_that_the_container_rounds(tmp_path, family, context):
    """The base of Hunyuan, and the factor of LongRoPE, whose tables differ by whether a text may pass 64 positions."""
    folder = make_tiny(tmp_path / "hf", family, dtype="float32", tokenizer=False)
    path = of_folder(folder).write(tmp_path / "x.gguf")
    got, want = logits(path, IDS[: context - 2]), logits(folder, IDS[: context - 2])
    assert np.abs(got - want).max() < 1e-4 * want.std()


def test_windows_of_a_large_exaone(tmp_path):
    sizes = {"layers": 64, "hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
    folder = make_tiny(
        tmp_path / "hf",
        "exaone4",
        dtype="float32",
        tokenizer=False,
        sliding_window_pattern=4,
        rope_scaling=None,
        **sizes,
    )
    path = of_folder(folder).write(tmp_path / "x.gguf")
    assert _core.Model(str(path)).config["window"] == [16, 16, 16, 0] * 16
    same(path, folder)


@pytest.mark.parametrize("paired_too", [True, False])
def test_the_order_of_rotary_pairs_matters(tmp_path, paired_too):
    """llama's q and k are reordered by the converter, those of qwen2 are not."""
    folder = make_tiny(tmp_path / "hf", "llama3", dtype="float32", tokenizer=False)
    file = of_folder(folder)
    if not paired_too:
        x = np.frombuffer(file.tensors["blk.0.attn_q.weight"].data, np.float32).reshape(64, 64)
        file.tensors["blk.0.attn_q.weight"] = of_array(paired(x, 4))
    equal = np.array_equal(logits(file.write(tmp_path / "x.gguf")), logits(folder))
    assert equal == paired_too


def in_blocks(tmp_path, encoding):
    """A model whose matrices are random blocks, and the folder of what they mean."""
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2}
    folder = make_tiny(tmp_path / "hf", "llama3", dtype="float32", layers=2, tokenizer=False, **sizes)
    file, rng = of_folder(folder), np.random.default_rng(5)
    large = {"Q6_K": 64, "Q3_K": 24, "IQ4_XS": 400, "IQ4_NL": 8}.get(encoding, 1)
    scale = {"Q8_0": 1e-3, "MXFP4": 1}.get(encoding, 4e-3) / large
    weights = {name: Tensor(t.dtype, t.bits.copy()) for name, t in read_folder(folder).items()}  # written again below
    names = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj"}
    names |= {"attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj"}
    names |= {"ffn_down": "mlp.down_proj"}
    whole = {"token_embd": "model.embed_tokens", "output": "lm_head"}
    for name, entry in file.tensors.items():
        parts = name.split(".")
        if len(entry.shape) == 1:
            continue
        rows, k = entry.shape
        data = random_blocks(encoding, rows, k, rng, scale)
        file.tensors[name] = Entry(entry.shape, TYPES[encoding], data)
        x = dequantised(encoding, data, k)
        its = parts[2] if parts[0] == "blk" else parts[0]
        if its in ("attn_q", "attn_k"):
            d = 64
            x = x.reshape(-1, d // 2, 2, k).swapaxes(1, 2).reshape(rows, k)
        hf = f"model.layers.{parts[1]}.{names[its]}.weight" if parts[0] == "blk" else f"{whole[its]}.weight"
        weights[hf] = Tensor("F32", np.ascontiguousarray(x, np.float32))
    for _ in write_folder(folder, weights):
        pass
    return file.write(tmp_path / "x.gguf"), folder


@pytest.mark.parametrize("encoding", BLOCKS)
def test_blocks_have_the_bits_of_their_floats(tmp_path, encoding):
    pytest.importorskip("gguf")
    path, folder = in_blocks(tmp_path, encoding)
    same(path, folder, dtype="float32")
    same(path, folder, dtype="bfloat16")


@pytest.mark.parametrize("encoding", [name for name in BLOCKS if name not in CODED])
def test_blocks_without_matmuls_of_their_own_become_floats(tmp_path, encoding):
    path, folder = in_blocks(tmp_path, encoding)
    assert _core.Model(str(path)).dtype == "float32"
    same(path, folder, kv_dtype="float16")


@pytest.mark.parametrize("encoding", CODED)
def test_blocks_stay_as_they_are(tmp_path, encoding):
    path, _ = in_blocks(tmp_path, encoding)
    model = _core.Model(str(path))
    assert (model.dtype, model.kv_dtype) == (CODED[encoding], "float16")
    rows = 2 * (512 + 256 + 1024 + 2 * 256) + model.config["vocab_size"]  # of 256 inputs; the embedding is not kept
    elements, size, _ = BLOCKS[CODED[encoding].upper()]
    whole = rows * 256 / elements * size
    assert whole <= model.weight_bytes <= 1.03 * (whole + 32 * 256 / elements * size)  # panels have 32 rows
    got, want = logits(path), logits(path, dtype="float32")
    assert 0 < np.sqrt(np.mean((got - want) ** 2)) < 0.03 * want.std()


@pytest.mark.parametrize("isa", [_core.isas()[0], *exhaustive(*_core.isas()[1:])])
@pytest.mark.parametrize("encoding", CODED)
def test_drafts_change_no_bit_of_what_blocks_say(tmp_path, encoding, isa):
    path, _ = in_blocks(tmp_path, encoding)
    model = _core.Model(str(path), isa=isa, draft_weights="int4,int3")
    for sampling in ({}, {"temperature": 0.8, "top_p": 0.9, "seed": 5}):
        plain = decode(open_session(model, sampling=sampling), list(IDS[:9]), 40, keep_logits=True)
        for weights in ("int4", "int3", "own"):
            skip = tuple(DraftSpec(attn=[0], weights=weights).arguments().values())
            rule = Rule(skip, 0.0, 6, width=(3, 3, 3, 3))
            fast = decode(open_session(model, sampling=sampling), list(IDS[:9]), 40, rule, keep_logits=True)
            assert fast.tokens == plain.tokens
            assert np.array(fast.logits[:40]).tobytes() == np.array(plain.logits).tobytes()


def test_each_tensor_may_have_its_own_encoding(tmp_path):
    pytest.importorskip("gguf")
    folder = make_tiny(tmp_path / "hf", "llama3", dtype="float32", tokenizer=False)
    mixed = {"attn_q": "Q8_0", "attn_k": "F16", "attn_v": "Q4_0", "ffn_gate": "Q5_1", "token_embd": "Q4_1"}
    path = of_folder(folder, mixed).write(tmp_path / "x.gguf")
    got, want = logits(path), logits(folder)
    assert 0 < np.abs(got - want).mean() < 0.3 * want.std()
    session = _core.Session(_core.Model(str(path)), poison=True)  # rows of the embedding, token by token
    for n in range(1, 9):
        session.prefill(IDS[:n])
    np.testing.assert_array_equal(session.logits[0], logits(path, IDS[:8]))


@pytest.mark.parametrize("parts", [2, 3])
def test_files_in_parts(tmp_path, parts):
    folder = make_tiny(tmp_path / "hf", "qwen2", dtype="float32", tokenizer=False)
    paths = [tmp_path / f"m-{i + 1:05}-of-{parts:05}.gguf" for i in range(parts)]
    for file, path in zip(split(of_folder(folder), parts), paths, strict=True):
        file.write(path)
    same(paths[0], folder)
    with pytest.raises(CheckpointError, match=rf"is part 2 of {parts}, want the first one"):
        _core.Model(str(paths[1]))
    paths[1].unlink()
    with pytest.raises(CheckpointError, match=rf"m-00002-of-0000{parts}\.gguf: cannot be opened"):
        _core.Model(str(paths[0]))
    renamed = paths[0].rename(tmp_path / "other.gguf")
    with pytest.raises(CheckpointError, match=rf"other\.gguf: has {parts} parts, want a name that ends in -00001-of-"):
        _core.Model(str(renamed))


def test_a_second_version_and_another_alignment(tmp_path):
    folder = make_tiny(tmp_path / "hf", "llama2", dtype="float32", tokenizer=False)
    file = replace(of_folder(folder), version=2)
    file.metadata["general.alignment"] = 256
    same(file.write(tmp_path / "x.gguf"), folder)


def test_drafts_change_no_token(tmp_path):
    folder = make_tiny(tmp_path / "hf", "llama3")
    file = of_folder(folder)
    file.metadata |= {"tokenizer.ggml.tokens": [str(i) for i in range(320)], "tokenizer.ggml.eos_token_id": 2}
    lm, want = swiftk.load(file.write(tmp_path / "x.gguf")), swiftk.load(folder)
    ids = [int(i) for i in IDS[:20]]
    assert lm.generate(ids, max_new_tokens=40).tokens == want.generate(ids, max_new_tokens=40).tokens


# What is damaged: (change to a file that is right, the error, its text).
def with_keys(**keys):
    return lambda f: f.metadata.update({name.replace("__", "."): value for name, value in keys.items()})


def without(key):
    return lambda f: f.metadata.pop(key)


def with_field(**fields):
    return lambda f: [setattr(f, name, value) for name, value in fields.items()]


def with_tensor(name="blk.0.attn_q.weight", **fields):
    return lambda f: f.tensors.update({name: replace(f.tensors[name], **fields)})


def array(kind, count, data=b""):
    return Typed(9, struct.pack("<IQ", kind, count) + data)


HUGE, Q = 2**64 - 1, "tensor blk.0.attn_q.weight"
DAMAGED = {
    "magic": (with_field(magic=b"GGML"), CheckpointError, "not a directory|does not begin with GGUF|x.gguf"),
    "version 1": (with_field(version=1), UnsupportedModel, r"is of version 1, which is not read \(supported: 2 and 3"),
    "big endian": (with_field(version=3 << 24), UnsupportedModel, "version 3 in the other byte order"),
    "number of keys": (with_field(pairs=HUGE), CheckpointError, f"truncated, or not GGUF: {HUGE} keys in"),
    "number of keys that wraps": (with_field(pairs=2**60), CheckpointError, f"truncated, or not GGUF: {2**60} keys"),
    "number of tensors": (with_field(count=HUGE), CheckpointError, f"{HUGE} tensors in"),
    "one tensor too many": (with_field(count=30), CheckpointError, "x.gguf"),
    "length of a text": (
        with_keys(general__name=Typed(8, struct.pack("<Q", HUGE))),
        CheckpointError,
        f"general.name has {HUGE} bytes",
    ),
    "length of an array": (with_keys(a=array(4, 2**63)), CheckpointError, f"{2**63} elements of a"),
    "bytes of an array that wrap": (with_keys(a=array(10, 2**61)), CheckpointError, f"{2**61} elements of a"),
    "array of texts": (with_keys(a=array(8, 2**40)), CheckpointError, f"{2**40} elements of a"),
    "array of arrays": (with_keys(a=array(9, 1)), CheckpointError, "a is an array of arrays"),
    "type of a value": (with_keys(a=Typed(13, b"")), CheckpointError, "a has type 13, want 0 to 12"),
    "type of elements": (with_keys(a=array(99, 1)), CheckpointError, "the elements of a has type 99"),
    "truth value": (with_keys(a=Typed(7, b"\2")), CheckpointError, "a is no truth value"),
    "empty key": (lambda f: f.metadata.update({"": 1}), CheckpointError, "is empty, or has a NUL"),
    "NUL in a key": (lambda f: f.metadata.update({"a\0b": 1}), CheckpointError, "is empty, or has a NUL"),
    "long key": (lambda f: f.metadata.update({"k" * 70000: 1}), CheckpointError, "has 70000 bytes, want at most 65535"),
    "alignment 0": (with_keys(general__alignment=0), CheckpointError, "general.alignment is 0, want a power of two"),
    "alignment 48": (with_keys(general__alignment=48), CheckpointError, "alignment is 48, want a power of two"),
    "alignment beyond": (with_keys(general__alignment=2**31), CheckpointError, "truncated: tensor"),
    "alignment of another type": (
        with_keys(general__alignment=Typed(10, 32)),
        CheckpointError,
        "general.alignment is 32, want a U32",
    ),
    "dimensions": (with_tensor(dims=(64, 64, 1, 1, 1)), CheckpointError, f"{Q} has 5 dimensions, want 1 to 4"),
    "many dimensions": (with_tensor(dims=(1,) * 100), CheckpointError, f"{Q} has 100 dimensions"),
    "no dimension": (with_tensor(dims=()), CheckpointError, f"{Q} has 0 dimensions"),
    "a dimension of 0": (with_tensor(dims=(64, 0)), CheckpointError, f"{Q} has a dimension of 0"),
    "negative dimension": (with_tensor(dims=(64, -1)), CheckpointError, f"{Q} has a dimension of -1"),
    "shape that wraps": (with_tensor(dims=(2**32, 2**31, 2)), CheckpointError, f"{Q} has shape .*, more than a file"),
    "shape too large": (with_tensor(dims=(64, 2**40)), CheckpointError, f"truncated: {Q} has"),
    "another shape": (
        with_tensor(dims=(32, 128)),
        CheckpointError,
        f"{Q} has shape .128, 32., the config wants .64, 64",
    ),
    "offset outside": (with_tensor(offset=2**40), CheckpointError, f"{Q} is at offset {2**40}, want"),
    "offset that wraps": (with_tensor(offset=HUGE - 31), CheckpointError, f"{Q} is at offset {HUGE - 31}, want"),
    "offset of another": (with_tensor(offset=0), CheckpointError, f"{Q} is at offset 0, want"),
    "removed type": (
        with_tensor(type=4),
        UnsupportedModel,
        f"{Q} is in unknown type 4, which is not read .supported: F",
    ),
    "type without decoder": (with_tensor(type=16), UnsupportedModel, f"{Q} is in IQ2_XXS, which is not read"),
    "type of a fork": (with_tensor(type=137), UnsupportedModel, f"{Q} is in unknown type 137"),
    "rows that are no blocks": (
        with_tensor("blk.0.ffn_down.weight", type=8),
        CheckpointError,
        "ffn_down.weight has rows of 88, want a multiple of 32 in Q8_0",
    ),
    "a name that is too long": (with_tensor(spelt=struct.pack("<Q", 65) + b"n" * 65), CheckpointError, "has 65 bytes"),
    "a name twice": (
        with_tensor("blk.0.attn_k.weight", spelt=struct.pack("<Q", 19) + b"blk.0.attn_v.weight"),
        CheckpointError,
        "tensor blk.0.attn_v.weight occurs twice",
    ),
    "a tensor missing": (
        lambda f: f.tensors.pop("blk.1.ffn_up.weight"),
        CheckpointError,
        "tensor blk.1.ffn_up.weight is missing, want shape .88, 64",
    ),
    "a tensor of a layer too many": (
        lambda f: f.tensors.update({"blk.0.attn_sinks.weight": f.tensors["output_norm.weight"]}),
        CheckpointError,
        "blk.0.attn_sinks.weight is in the checkpoint, but a llama has none of that name",
    ),
    "a tensor too many": (
        lambda f: f.tensors.update({"rope_factors.weight": f.tensors["output_norm.weight"]}),
        UnsupportedModel,
        "tensor rope_factors.weight is in the file, a llama has none",
    ),
    "no architecture": (without("general.architecture"), CheckpointError, "general.architecture is missing, want"),
    "another architecture": (
        with_keys(general__architecture="mamba"),
        UnsupportedModel,
        "general.architecture='mamba' is not supported .supported: llama, mistral3, qwen2, qwen3",
    ),
    "an architecture that is near to one": (
        with_keys(general__architecture="qwen3moe"),
        UnsupportedModel,
        "architecture='qwen3moe' is not supported .supported: llama, .*; the nearest is qwen3",
    ),
    "no heads": (with_keys(llama__attention__head_count=0), CheckpointError, "head_count is 0, want at least 1"),
    "heads by layer": (
        with_keys(llama__attention__head_count_kv=[2, 2, 1]),
        CheckpointError,
        "head_count_kv is an array of 3, want a number",
    ),
    "KV heads that do not divide": (
        with_keys(llama__attention__head_count_kv=3),
        CheckpointError,
        "num_key_value_heads",
    ),
    "no width": (
        without("llama.embedding_length"),
        CheckpointError,
        "llama.embedding_length is missing, want a number",
    ),
    "a width beyond": (with_keys(llama__embedding_length=2**32 - 1), CheckpointError, "want a number of 32 bits"),
    "no epsilon": (without("llama.attention.layer_norm_rms_epsilon"), CheckpointError, "rms_epsilon is missing"),
    "infinite base": (
        with_keys(llama__rope__freq_base=float("inf")),
        CheckpointError,
        "freq_base is inf, want a number",
    ),
    "experts": (with_keys(llama__expert_count=8), UnsupportedModel, "expert_count=8 is not supported"),
    "a key that is not known": (
        with_keys(llama__attention__key_length_mla=576),
        UnsupportedModel,
        "llama.attention.key_length_mla=576 is not supported",
    ),
    "longrope": (
        with_keys(llama__rope__scaling__type="longrope"),
        CheckpointError,
        "rope_factors_short.weight is missing",
    ),
    "another scaling": (
        with_keys(llama__rope__scaling__type="su"),
        UnsupportedModel,
        "supported: none, linear, yarn, longrope",
    ),
    "partial rotation": (
        with_keys(llama__rope__dimension_count=8),
        UnsupportedModel,
        "dimension_count=8 .*supported: 16",
    ),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = make_tiny(tmp_path_factory.mktemp("gguf"), "llama3", layers=2, tokenizer=False)
    return of_folder(folder)


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files(tmp_path, whole, name):
    change, error, message = DAMAGED[name]
    file = replace(whole, metadata=dict(whole.metadata), tensors=dict(whole.tensors))
    change(file)
    path = file.write(tmp_path / "x.gguf")
    with pytest.raises(error, match=message):
        _core.Model(str(path))


@pytest.mark.parametrize("length", [0, 3, 4, 8, 23, 24, 43, 400, -1])
def test_truncated_files(tmp_path, whole, length):
    path = tmp_path / "x.gguf"
    path.write_bytes(whole.bytes()[: length if length >= 0 else -33])
    with pytest.raises(CheckpointError, match=r"truncated|not a directory|no such"):
        _core.Model(str(path))


def test_an_array_without_end(tmp_path):
    """43 bytes that keep other readers busy for ever: gguf-py, llama.cpp#25378."""
    data = File({"a": array(4, 2**63)}).bytes()[:43]
    (tmp_path / "x.gguf").write_bytes(data)
    with pytest.raises(CheckpointError):
        _core.Model(str(tmp_path / "x.gguf"))


def test_the_config_is_that_of_the_folder(tmp_path):
    folder = make_tiny(tmp_path / "hf", "qwen3", dtype="float32", tokenizer=False)
    its = json.loads(_core.gguf_config(str(of_folder(folder).write(tmp_path / "x.gguf"))))
    given = json.loads((folder / "config.json").read_text())
    names = ["model_type", "hidden_size", "num_hidden_layers", "num_key_value_heads", "head_dim", "vocab_size"]
    names += ["rms_norm_eps", "tie_word_embeddings", "max_position_embeddings"]
    assert {name: its[name] for name in names} == {name: given[name] for name in names}
    assert its["rope_theta"] == given["rope_parameters"]["rope_theta"]
