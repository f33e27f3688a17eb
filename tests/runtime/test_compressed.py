"""Compressed Hugging Face checkpoints have the bits of what their formats' own words say their weights are."""

import json

import numpy as np
import pytest

from compressed import Compressed, f32, four_bits, gptq, scales, words
from swiftk import _core
from swiftk.errors import CheckpointError, UnsupportedModel
from swiftk.files.safetensors_io import read_folder

IDS = np.random.default_rng(3).integers(3, 300, 60).astype(np.int32)


def logits(path, **options):
    session = _core.Session(_core.Model(str(path), **options), context=len(IDS) + 2, poison=True)
    session.prefill(IDS)
    return session.logits[0].copy()


class Model(Compressed):
    def check(self, dtype):
        """The bits of the plain folder where all is decoded, and nearly these by the format that it is packed in."""
        want = logits(self.plain)
        assert np.isfinite(want).all() and want.std() > 0.01
        np.testing.assert_array_equal(logits(self.folder, dtype="float32"), want)
        assert _core.Model(str(self.folder)).dtype == dtype
        assert np.sqrt(np.mean((logits(self.folder) - want) ** 2)) < 0.05 * want.std()


def bfloat16(x):
    bits = np.asarray(x, f32).view(np.uint32) >> 16
    return ("BF16", bits.astype(np.uint16)), (bits << 16).astype(np.uint32).view(f32)


@pytest.mark.parametrize(
    ("options", "dtype"),
    [
        ({"symmetric": True}, "q4_0"),
        ({}, "q5_0"),
        ({"version": 2}, "q5_0"),
        ({"group": 64, "symmetric": True}, "q4_0"),
        ({"group": -1, "symmetric": True, "version": 2}, "q4_0"),
        ({"bits": 8, "symmetric": True}, "q8_0"),
        ({"bits": 8}, "float32"),  # no zero of bytes but 128
        ({"bits": 2}, "q4_0"),
        ({"order": True}, "float32"),
        ({"group": 16, "symmetric": True}, "float32"),
    ],
    ids=str,
)
def test_gptq(tmp_path, options, dtype):
    Model(tmp_path, *gptq(**options)).check(dtype)


AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # nibble i has column ...


def awq(group=32):
    def make(rows, k, rng):
        codes, zeros = rng.integers(0, 16, (k, rows)), rng.integers(0, 16, (k // group, rows))
        s = scales(rng, k // group, rows)
        mixed = lambda x: words(x.reshape(len(x), -1, 8)[..., AWQ_ORDER].reshape(x.shape), 4, 1)  # noqa: E731
        g = np.arange(k) // group
        parts = {"qweight": mixed(codes), "qzeros": mixed(zeros), "scales": s}
        return parts, np.ascontiguousarray((s[g].astype(f32) * (codes - zeros[g]).astype(f32)).T)

    return {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"}, make


@pytest.mark.parametrize("group", [32, 128])
def test_awq(tmp_path, group):
    Model(tmp_path, *awq(group)).check("q5_0")


def tensors_config(form, bits, kind="int"):
    weights = {"num_bits": bits, "type": kind, "symmetric": True, "strategy": "group"}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups, "ignore": ["lm_head"]}


def pack_quantized(bits=4, group=32, zero=False, order=False):
    def make(rows, k, rng):
        groups = k // group if group else 1
        q = rng.integers(-(1 << (bits - 1)), 1 << (bits - 1), (rows, k))
        zeros = rng.integers(-7, 8, (rows, groups)) if zero else np.zeros((rows, groups), int)
        stored, s = bfloat16(scales(rng, rows, groups, dtype=f32))
        g = np.arange(k) // (k // groups)
        g = rng.permutation(g) if order else g
        offset = 1 << (bits - 1)
        parts = {"weight_packed": words(q + offset, bits, 1), "weight_scale": stored}
        parts["weight_shape"] = np.array([rows, k], np.int64)
        if zero:
            parts["weight_zero_point"] = words(zeros + offset, bits, 0)
        if order:
            parts["weight_g_idx"] = g.astype(np.int32)
        return parts, s[:, g] * (q - zeros[:, g]).astype(f32)

    return tensors_config("pack-quantized", bits), make


@pytest.mark.parametrize(
    ("options", "dtype"),
    [
        ({}, "q4_0"),
        ({"group": 128}, "q4_0"),
        ({"group": 0}, "q4_0"),
        ({"bits": 8}, "q8_0"),
        ({"zero": True}, "q5_0"),
        ({"order": True}, "float32"),
    ],
    ids=str,
)
def test_pack_quantized(tmp_path, options, dtype):
    Model(tmp_path, *pack_quantized(**options)).check(dtype)


@pytest.mark.parametrize(("exact", "dtype"), [(True, "q8_0"), (False, "float32")])
def test_int_quantized(tmp_path, exact, dtype):
    """Scales that float16 does not hold leave float32 alone."""

    def make(rows, k, rng):
        q, s = rng.integers(-128, 128, (rows, k)).astype(np.int8), rng.uniform(1e-4, 4e-4, (rows, 1)).astype(f32)
        s = s.astype(np.float16).astype(f32) if exact else s
        return {"weight": q, "weight_scale": s}, s * q.astype(f32)

    Model(tmp_path, tensors_config("int-quantized", 8), make).check(dtype)


def e4m3(bits):
    """torch.float8_e4m3fn, by the definition of OCP's 8-bit floating point."""
    exponent, fraction = bits >> 3 & 15, (bits & 7).astype(f32)
    size = np.where(exponent > 0, np.ldexp(1 + fraction / 8, exponent.astype(int) - 7), np.ldexp(fraction / 8, -6))
    return np.where(bits >> 7, -size, size).astype(f32)


def test_the_table_of_eight_bit_floats_is_torchs():
    torch = pytest.importorskip("torch")
    bits = np.array([b for b in range(256) if b & 127 != 127], np.uint8)
    want = torch.from_numpy(bits).view(torch.float8_e4m3fn).float().numpy()
    np.testing.assert_array_equal(e4m3(bits).view(np.uint32), want.view(np.uint32))


@pytest.mark.parametrize("kind", ["blocks", "rows", "one"])
def test_fp8(tmp_path, kind):
    def make(rows, k, rng):
        bits = rng.integers(0, 256, (rows, k)).astype(np.uint8)
        bits[bits & 127 == 127] = 0
        shape = {"blocks": (-(-rows // 48), -(-k // 32)), "rows": (rows, 1), "one": (1,)}[kind]
        s = rng.uniform(1e-4, 3e-4, shape).astype(f32)
        name = "weight_scale_inv" if kind == "blocks" else "weight_scale"
        each = np.repeat(np.repeat(s, 48, 0)[:rows], 32, 1)[:, :k] if kind == "blocks" else s
        return {"weight": ("F8_E4M3", bits), name: s}, e4m3(bits) * each

    config = {"quant_method": "fp8", "weight_block_size": [48, 32]}
    config = config if kind == "blocks" else tensors_config("float-quantized", 8, "float")
    Model(tmp_path, config, make).check("float32")


@pytest.mark.parametrize("options", [{}, {"nested": False}, {"kind": "fp4", "size": 128}, {"size": 4096}], ids=str)
def test_bitsandbytes(tmp_path, options):
    Model(tmp_path, *four_bits(**options)).check("float32")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": [3]}, "has no shape of a matrix"),
        ({"shape": [2**40, 1]}, "has rows 1099511627776, want a count"),
        ({"shape": [3, 5]}, "bytes, want codes of four bits for"),
        ({"blocksize": 0}, "has blocksize 0, want a count"),
        ({"blocksize": 32}, "weight.absmax has shape"),
        ({"nested_blocksize": 100}, "weight.nested_absmax has shape"),
        ({"nested_offset": "x"}, "has no nested_offset"),
    ],
)
def test_states_that_do_not_fit(tmp_path, change, message):
    with pytest.raises(CheckpointError, match=message):
        _core.Model(str(Model(tmp_path, *four_bits(**change)).folder))


def test_matrices_that_were_left_as_they_are(tmp_path):
    """A layer that the tool ignored is beside others in the same model: segments of one matrix differ."""
    model = Model(tmp_path, *gptq(symmetric=True))
    plain = read_folder(model.plain)
    for name in ("model.layers.0.self_attn.v_proj", "model.layers.1.mlp.up_proj"):
        for part in ("qweight", "qzeros", "scales", "g_idx"):
            del model.tensors[f"{name}.{part}"]
        model.tensors[f"{name}.weight"] = np.array(plain[f"{name}.weight"].bits)
    model.write()
    model.check("q4_0")


AT = "model.layers.1.mlp.up_proj"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(f"{AT}.scales"), "up_proj.qweight comes without its scales"),
        (lambda t: t.pop(f"{AT}.qzeros"), "up_proj.qweight comes without its qzeros"),
        (lambda t: t.update({f"{AT}.qzeros": t[f"{AT}.qzeros"][:, 1:]}), r"up_proj.qzeros has shape \[4, 31\], want"),
        (
            lambda t: t.update({f"{AT}.scales": t[f"{AT}.scales"].view(np.int16)}),
            "up_proj.scales has dtype I16, want F16",
        ),
        (lambda t: t.update({f"{AT}.g_idx": t[f"{AT}.g_idx"] + 1}), "up_proj.g_idx has group 4 of an input, want 0..3"),
        (lambda t: t.update({f"{AT}.g_idx": t[f"{AT}.g_idx"][1:]}), r"up_proj.g_idx has shape \[127\]"),
        (
            lambda t: t.update({f"{AT}.qweight": t[f"{AT}.qweight"][:8]}),
            r"up_proj.qzeros has shape|up_proj.scales has shape",
        ),
        (lambda t: t.update({f"{AT}.bias": np.zeros(256, f32)}), "up_proj.bias is in the checkpoint"),
    ],
)
def test_parts_that_do_not_belong_together(tmp_path, change, message):
    model = Model(tmp_path, *gptq())
    change(model.tensors)
    with pytest.raises(CheckpointError, match=message):
        _core.Model(str(model.write()))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"quant_method": "gptq", "bits": 3}, r"quantization_config.bits=3 is not supported \(supported: 2, 4, 8"),
        ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "marlin"}, "checkpoint_format='marlin'"),
        ({"quant_method": "gptq", "bits": 4, "is_marlin_format": True}, "is_marlin_format"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"+:.*": {"bits": 8}}}, "dynamic"),
        ({"quant_method": "awq", "bits": 4, "version": "gemv_fast"}, "version='gemv_fast'"),
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, "format='nvfp4-pack-quantized'"),
        (tensors_config("pack-quantized", 3), "weights.num_bits=3"),
        ({"quant_method": "hqq"}, r"quant_method='hqq' is not supported \(supported: gptq, awq"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "load_in_4bit=null is not supported"),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf3"},
            r"bnb_4bit_quant_type='nf3' is not supported \(supported: nf4, fp4\)",
        ),
        ({}, "quant_method=null"),
    ],
    ids=str,
)
def test_what_is_not_read_is_named(tmp_path, config, message):
    model = Model(tmp_path, *gptq())
    its = json.loads((model.folder / "config.json").read_text())
    (model.folder / "config.json").write_text(json.dumps({**its, "quantization_config": config}))
    with pytest.raises(UnsupportedModel, match=message):
        _core.Model(str(model.folder))
