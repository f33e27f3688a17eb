"""Blocks as files store them mean what the gguf package says, bit for bit."""

import numpy as np
import pytest

from gguf_files import BLOCKS, dequantised, random_blocks
from swiftk import _testing

pytest.importorskip("gguf")


@pytest.mark.parametrize("encoding", BLOCKS)
@pytest.mark.parametrize("scale", [0.02, 3000.0, 6e-6])  # the last ones are below float16's normal numbers
def test_blocks_decode_to_the_same_bits(encoding, scale):
    data = random_blocks(encoding, 1, 400 * 256, np.random.default_rng(1), scale)
    want = dequantised(encoding, data, 400 * 256)[0]
    assert np.abs(want).max() > 0
    np.testing.assert_array_equal(_testing.ops.decode(encoding, data).view(np.uint32), want.view(np.uint32))


def test_every_scale_of_mxfp4():
    data = b"".join(bytes([e]) + bytes(range(0, 256, 16)) for e in range(255))
    want = dequantised("MXFP4", data, 32).ravel()
    np.testing.assert_array_equal(_testing.ops.decode("MXFP4", data), want)


@pytest.mark.parametrize(("encoding", "dtype"), [("F32", np.float32), ("F16", np.float16)])
def test_elements_that_are_stored_as_they_are(encoding, dtype):
    x = np.random.default_rng(2).standard_normal(77).astype(dtype)
    np.testing.assert_array_equal(_testing.ops.decode(encoding, x.tobytes()), x.astype(np.float32))


def test_bfloat16_elements():
    bits = np.random.default_rng(3).integers(0, 0x7F80, 77).astype(np.uint16)
    want = (bits.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(_testing.ops.decode("BF16", bits.tobytes()), want)
