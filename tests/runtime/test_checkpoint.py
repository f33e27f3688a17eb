"""Malformed checkpoints give named errors; odd but legal ones load; no mutation of a file is worse than an error."""

import json
import shutil
import struct

import numpy as np
import pytest

from swiftk import _core
from swiftk.errors import CheckpointError
from swiftk.files.safetensors_io import Tensor, decode, encode, read_folder, write_folder
from swiftk.testing import make_tiny

IDS = np.array([5, 9, 2, 7, 30, 12], np.int32)
Q0, Q1 = "model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.q_proj.weight"


def load(folder, **options):
    return _core.Model(str(folder), **options)


def logits(model):
    session = _core.Session(model)
    session.prefill(IDS)
    return session.logits[0]


@pytest.fixture
def folder(tmp_path):
    return make_tiny(tmp_path / "model", "llama3", layers=2, tokenizer=False)


def split(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def join(path, header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def edit(change):
    """A corruption that changes the parsed header."""

    def corrupt(path):
        header, data = split(path)
        change(header)
        join(path, header, data)

    return corrupt


def raw(change):
    """A corruption of the bytes."""
    return lambda path: path.write_bytes(change(path.read_bytes()))


def set_field(name, **fields):
    return edit(lambda header: header[name].update(fields))


MALFORMED = {
    "empty": (raw(lambda b: b""), "truncated: 0 bytes"),
    "seven bytes": (raw(lambda b: b[:7]), "truncated: 7 bytes"),
    "no header": (raw(lambda b: b[:8]), "truncated.*in a file of 8"),
    "cut in the header": (raw(lambda b: b[:100]), "truncated.*header of [0-9]+ bytes in a file of 100"),
    "cut in the data": (raw(lambda b: b[:-2]), "truncated: tensor lm_head.weight ends at byte"),
    "header length huge": (raw(lambda b: b"\xff" * 8 + b[8:]), "header of 18446744073709551615 bytes"),
    "a text file": (raw(lambda b: b"version https://git-lfs.github.com/spec/v1\n"), "not safetensors"),
    "header not JSON": (lambda p: join(p, b"{'a': 1}", b""), "not valid JSON at byte 1: want a key, got '''"),
    "header a list": (lambda p: join(p, b"[]", b""), "header is \\[\\], want an object"),
    "header empty": (lambda p: join(p, b"", b""), "not valid JSON at byte 0"),
    "no tensors": (lambda p: join(p, b"{}", b""), "there are 0 tensors, the config has [0-9]+ layers"),
    "bytes behind": (raw(lambda b: b + b"\0\0"), "2 bytes behind the last tensor belong to none"),
    "tensor missing": (lambda p: without(p, Q1), f"tensor {Q1} is missing, want shape \\[64, 64\\]"),
    "head missing": (lambda p: without(p, "lm_head.weight"), "tensor lm_head.weight is missing"),
    "tensor a number": (edit(lambda h: h.update({Q0: 3})), f"tensor {Q0} has no dtype"),
    "dtype missing": (edit(lambda h: h[Q0].pop("dtype")), f"tensor {Q0} has no dtype"),
    "shape missing": (edit(lambda h: h[Q0].pop("shape")), f"shape of tensor {Q0} is missing"),
    "shape negative": (set_field(Q0, shape=[-64, -64]), f"shape of tensor {Q0} has -64"),
    "shape fractional": (set_field(Q0, shape=[64.0, 64]), f"shape of tensor {Q0} has 64, want counts"),
    "shape huge": (set_field(Q0, shape=[2**62, 2**62]), f"tensor {Q0} has 8192 bytes, which is not BF16"),
    "shape too small": (set_field(Q0, shape=[64, 63]), f"tensor {Q0} has 8192 bytes, which is not BF16 \\[64, 63\\]"),
    "shape transposed": (
        set_field("lm_head.weight", shape=[64, 320]),
        "tensor lm_head.weight has shape \\[64, 320\\], the config wants \\[320, 64\\]",
    ),
    "shape flat": (set_field(Q0, shape=[4096]), f"tensor {Q0} has shape \\[4096\\], the config wants \\[64, 64\\]"),
    "dtype F64": (set_field(Q0, dtype="F64", shape=[32, 32]), f"tensor {Q0} has dtype F64, want F32, BF16 or F16"),
    "dtype I8": (set_field(Q0, dtype="I8", shape=[64, 128]), f"tensor {Q0} has dtype I8"),
    "dtype unknown": (set_field(Q0, dtype="F6_E2M3"), f"tensor {Q0} has dtype F6_E2M3"),
    "dtype too wide": (set_field(Q0, dtype="F32"), f"tensor {Q0} has 8192 bytes, which is not F32 \\[64, 64\\]"),
    "offsets missing": (edit(lambda h: h[Q0].pop("data_offsets")), f"data_offsets of tensor {Q0} is missing"),
    "offsets negative": (set_field(Q0, data_offsets=[-8, 8184]), f"data_offsets of tensor {Q0} has -8"),
    "offsets reversed": (set_field(Q0, data_offsets=[8192, 0]), f"{Q0} are \\[8192, 0\\], want \\[begin, end\\]"),
    "offsets three": (set_field(Q0, data_offsets=[0, 1, 2]), f"{Q0} are \\[0, 1, 2\\]"),
    "offsets huge": (set_field(Q0, data_offsets=[2**63 - 8192, 2**63]), f"data_offsets of tensor {Q0} has"),
    "offsets outside": (set_field(Q0, data_offsets=[2**40, 2**40 + 8192]), f"truncated: tensor {Q0} ends"),
    "offsets overlap": (set_field(Q0, data_offsets=[0, 8192]), "tensor .* overlaps the one before it"),
    "an adapter": (lambda p: with_extra(p, "model.layers.0.self_attn.q_proj.bias"), "self_attn.q_proj.bias is in the"),
}


def without(path, name):
    tensors = {n: Tensor(t.dtype, t.bits.copy()) for n, t in read_folder(path.parent).items() if n != name}
    list(write_folder(path.parent, tensors))


def with_extra(path, name):
    tensors = {n: Tensor(t.dtype, t.bits.copy()) for n, t in read_folder(path.parent).items()}
    list(write_folder(path.parent, {**tensors, name: Tensor("F32", np.zeros(64, np.float32))}))


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_file(folder, case):
    corrupt, message = MALFORMED[case]
    corrupt(folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=message) as caught:
        load(folder)
    assert isinstance(caught.value, ValueError)
    assert str(folder) in str(caught.value) or "tensor" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "message"), [("nothing", "no such directory|cannot be opened"), ("a-file", "cannot be opened")]
)
def test_folder_that_is_none(tmp_path, name, message):
    (tmp_path / "a-file").write_text("text")
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path / name)


@pytest.mark.parametrize("other", ["pytorch_model.bin", "model.gguf", None])
def test_folder_without_weights(folder, other):
    (folder / "model.safetensors").unlink()
    if other:
        (folder / other).write_bytes(b"x")
    with pytest.raises(CheckpointError, match=f"found {other}, want" if other else "neither model.safetensors nor"):
        load(folder)


def test_directory_in_place_of_the_file(folder):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").mkdir()
    with pytest.raises(CheckpointError, match="not a regular file"):
        load(folder)


# Shards


@pytest.fixture
def sharded(tmp_path):
    return make_tiny(tmp_path / "sharded", "llama3", layers=2, shards=3, tokenizer=False)


def test_shards_are_the_single_file(folder, sharded):
    assert len(list(sharded.glob("model-*-of-00003.safetensors"))) == 3
    np.testing.assert_array_equal(logits(load(folder)), logits(load(sharded)))


def set_index(folder, change):
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))


BAD_INDEX = {
    "no map": (lambda i: i.pop("weight_map"), "weight_map is missing"),
    "map a list": (lambda i: i.update(weight_map=[]), "weight_map is \\[\\], want an object"),
    "shard a number": (lambda i: i["weight_map"].update({Q0: 7}), f"tensor {Q0} is in 7, want the name of a file"),
    "shard above": (
        lambda i: i["weight_map"].update({Q0: "../x.safetensors"}),
        "want the name of a file in the same folder",
    ),
    "shard absolute": (
        lambda i: i["weight_map"].update({Q0: "/etc/passwd"}),
        "want the name of a file in the same folder",
    ),
    "shard in a folder": (
        lambda i: i["weight_map"].update({Q0: "a/../../x"}),
        "want the name of a file in the same folder",
    ),
    "shard cut short": (lambda i: i["weight_map"].update({Q0: "a\0b"}), "want the name of a file in the same folder"),
    "shard missing": (lambda i: i["weight_map"].update({Q0: "gone.safetensors"}), "gone.safetensors: cannot be opened"),
    "promised tensor": (
        lambda i: i["weight_map"].update({"x": "model-00001-of-00003.safetensors"}),
        "00001-of-00003.safetensors: tensor x is missing, which .* promises",
    ),
    "tensor missing": (lambda i: i["weight_map"].pop(Q1), f"tensor {Q1} is missing"),
}


@pytest.mark.parametrize("case", BAD_INDEX)
def test_bad_index(sharded, case):
    change, message = BAD_INDEX[case]
    set_index(sharded, change)
    with pytest.raises(CheckpointError, match=message):
        load(sharded)


def test_index_not_json(sharded):
    (sharded / "model.safetensors.index.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"index\.json: not valid JSON at byte 1"):
        load(sharded)


def test_truncated_shard_is_named(sharded):
    path = sharded / "model-00002-of-00003.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"model-00002-of-00003\.safetensors: truncated"):
        load(sharded)


# Odd but legal


def rewrite(folder, change):
    tensors = {name: change(name, Tensor(t.dtype, t.bits.copy())) for name, t in read_folder(folder).items()}
    list(write_folder(folder, tensors))


def as_dtype(t, dtype):
    return Tensor(dtype, encode(decode(t), dtype))


def test_norms_in_another_dtype(folder):
    want = logits(load(folder))
    rewrite(folder, lambda name, t: as_dtype(t, "F32") if "norm" in name else t)
    np.testing.assert_array_equal(logits(load(folder)), want)


def test_parts_of_one_matrix_in_unlike_dtypes(folder):
    want = logits(load(folder))
    rewrite(folder, lambda name, t: as_dtype(t, "F32") if ".k_proj" in name or ".up_proj" in name else t)
    model = load(folder)
    assert model.dtype == "bfloat16"
    np.testing.assert_array_equal(logits(model), want)


@pytest.mark.parametrize("padding", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_data_at_odd_addresses(tmp_path, padding, dtype):
    folder = make_tiny(tmp_path, "qwen2", dtype=dtype, tokenizer=False)
    want = logits(load(folder))
    header, data = split(folder / "model.safetensors")
    text = json.dumps(header).encode()
    join(folder / "model.safetensors", text + b" " * (-len(text) % 8 + padding), data)
    np.testing.assert_array_equal(logits(load(folder)), want)


def test_unused_tensors_do_not_matter(folder):
    want = logits(load(folder))
    path = folder / "model.safetensors"
    for name in ["model.layers.0.self_attn.rotary_emb.inv_freq", "model.layers.7.mlp.up_proj.weight", "extra.weight"]:
        with_extra(path, name)
    np.testing.assert_array_equal(logits(load(folder)), want)


def test_the_file_may_go_once_loaded(folder):
    model = load(folder)
    shutil.rmtree(folder)
    assert np.isfinite(logits(model)).all()
