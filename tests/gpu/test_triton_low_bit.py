"""Triton's matmuls on weights of few bits, in the interpreter: against the oracle on what the bits say."""

import numpy as np
import pytest
from swiftk._testing import ops

from cases import LOW_BIT, LOW_BIT_LOSS, Shape
from low_bit import parts, unpack, unpack_fragments
from marks import exhaustive
from reference import stored, value
from triton_interpreter import DTYPES, interpreter_fixture  # noqa: F401
from triton_matmuls import Matmuls, close, normal

SHAPES = [  # columns that fill no block of 128, or one, or several; halves of heads that fill no panel of 32
    Shape("odd", D=67, H=6, n_kv=3, d=20, F=50, V=101),
    Shape("biased", D=300, H=1, n_kv=1, d=34, F=33, V=40, bias=True),
    Shape("normed", D=128, H=2, n_kv=1, d=64, F=130, V=35, qk_norm=True),
    Shape("narrow", D=1, H=1, n_kv=1, d=2, F=1, V=1),
]
OTHERS = exhaustive(*((shape, 8, 2) for shape in (SHAPES[0], *SHAPES[2:])), (SHAPES[1], 64, 40))
STORED = {"qkv", "gate_up"}  # whose results have the dtype of the weights

each_form = pytest.mark.parametrize("form", LOW_BIT)


@each_form
@pytest.mark.parametrize("shape, tokens, n", [(SHAPES[1], 8, 2), *OTHERS], ids=str)
@pytest.mark.parametrize("dtype", DTYPES[:: len(DTYPES) - 1])
def test_matmuls(interpreter, form, shape, tokens, n, dtype):
    case = Matmuls(interpreter, shape, dtype, n, form)
    for op in case.w:
        close(case.run(op, np.arange(n), tokens), case.expected(op), dtype if op in STORED else "float32", slack=4)


@pytest.mark.parametrize("form", ["int4", *exhaustive("int8", "int3")])
def test_a_row_has_its_bits_in_every_bucket(interpreter, form):
    case = Matmuls(interpreter, Shape("", D=140, H=1, n_kv=1, d=12, F=40, V=50, bias=True), DTYPES[-1], 40, form)
    for op in case.w:
        many = case.run(op, np.arange(40), 64)
        for tokens, rows in ((8, [37]), (16, [5, 37, 6, 2, 9, 39, 1, 0, 3]), (32, list(range(38, 18, -1)))):
            assert case.run(op, rows, tokens).tobytes() == many[rows].tobytes()


@each_form
def test_fragments_hold_what_panels_hold(form):
    """The same codes and scales in another order; what fills blocks and panels up is nothing."""
    rng, kernels = np.random.default_rng(0), ops.Kernels("", 2)
    for rows, columns in ((32, 128), (101, 67), (70, 513), (1, 1)):
        w = stored(normal(rng, rows, columns), "bfloat16")
        panels, fragments = (kernels.pack([w], form, fragments=f).data for f in (False, True))
        assert np.array_equal(unpack_fragments(fragments, form, columns), unpack(panels, form, columns))
        whole = unpack_fragments(fragments, form, -(-columns // 128) * 128)
        assert not whole[rows:].any() and not whole[:, columns:].any()
        (kept,) = parts(fragments, form, columns, [rows], unpack=unpack_fragments)
        lost = np.sqrt(((kept - value(w)) ** 2).sum() / (value(w) ** 2).sum())
        assert lost <= LOW_BIT_LOSS[form] or columns < 32


@each_form
def test_bits_of_a_weight(form):
    """Where rows and columns are whole, scales cost a quarter of a bit."""
    packed = ops.Kernels("", 1).pack([stored(np.ones((64, 4096)), "bfloat16")], form, fragments=True)
    assert packed.bytes * 8 == 64 * 4096 * (LOW_BIT[form] + 0.25 + 32 / 4096)


@each_form
@pytest.mark.parametrize("n", [3, 40])
def test_rows_after_the_last_are_not_used(interpreter, form, n):
    """Nor are columns after the last, whatever a block has there."""
    case = Matmuls(interpreter, Shape("", D=140, H=1, n_kv=1, d=2, F=1, V=37), "float32", n, form)
    tokens, expected = 8 if n < 8 else 64, case.expected("lm_head")
    tiles = case.packed["lm_head"].reshape(4, -1).copy()
    tiles.view(np.float32)[2:, :16].reshape(-1)[5:] = np.nan  # scales of rows 37 to 63
    tiles[:, 32 + 64 * LOW_BIT[form] :][:, :16] |= 0x7F7F7F00  # scales of columns 160 to 255
    case.packed["lm_head"] = tiles.reshape(-1)
    close(case.run("lm_head", np.arange(n), tokens), expected, slack=4)
