"""Blocks of prompts as files: they have the bits that computing them gives, and nothing else passes for one."""

import os
import shutil

import numpy as np
import pytest
from swiftk._testing import Blocks

from heads import make_block
from swiftk import _core
from swiftk.errors import InvalidArgument
from swiftk.files.safetensors_io import Tensor, read_folder, write_folder
from swiftk.testing import make_tiny

BLOCK, SIZE = _core.SavedBlock.TOKENS, _core.SavedBlock.IDENTITY
ID, OTHER = b"i" * SIZE, b"o" * SIZE
ON_CPU = pytest.mark.skipif("config.getoption('device') != 'cpu'", reason="of a family or dtypes that a GPU has not")
DTYPES = ("float32", "bfloat16", "float16")
HEADER = 8 + SIZE + 8 + 4 + 4  # magic, identity, checksum, number of blocks, stretched


def tokens_of(seed, n, vocab=256):
    return np.random.default_rng(seed).integers(0, vocab, n).astype(np.int32)


def files_of(blocks, tokens, stretched=False, identity=ID):
    """Of each whole block."""
    return [blocks.save(tokens[:end], stretched, identity) for end in range(BLOCK, len(tokens) + 1, BLOCK)]


def load_all(blocks, files, tokens, stretched=False, identity=ID):
    return [blocks.load(file, tokens[: (i + 1) * BLOCK], stretched, identity) for i, file in enumerate(files)]


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny_model("llama3", layers=2)


@pytest.mark.parametrize(
    ("dtype", "kv_dtype"), [*zip(DTYPES, ("auto",) * 3), pytest.param("auto", "int8", marks=ON_CPU)]
)
def test_blocks_of_files_have_the_bits_of_computed_ones(tiny_model, dtype, kv_dtype):
    model = tiny_model("llama3", layers=3, load_dtype=dtype, kv_dtype=kv_dtype)
    tokens = tokens_of(1, 3 * BLOCK + 17)
    computed, loaded = Blocks(model, 8), Blocks(model, 8)
    assert computed.run(tokens) == 0
    files = files_of(computed, tokens)
    assert load_all(loaded, files, tokens) == [True] * 3
    assert loaded.held == 0 and loaded.cached(tokens) == 3
    assert loaded.run(tokens) == 3 * BLOCK, "it computes the rest alone"
    want, got = computed.rows(), loaded.rows()
    assert got.tobytes() == want.tobytes() and np.isfinite(want).all() and len(want) == len(tokens)
    assert files_of(loaded, tokens) == files, "written again, they are the same"
    loaded.leave()
    assert loaded.held == 0


@ON_CPU
@pytest.mark.parametrize("dtype", DTYPES)
def test_features_of_heads_are_there_too(tiny_dir, tmp_path, dtype):
    folder = tiny_dir("llama3", layers=3)
    heads = [str(make_block(tmp_path / "head", folder, layers=1, block=4, taps=(0, 2)))]
    model = _core.Model(str(folder), dtype=dtype, threads=1, draft_weights="int4", drafters=heads)
    tokens = tokens_of(1, 2 * BLOCK + 9)
    computed, loaded = Blocks(model, 4), Blocks(model, 4)
    computed.run(tokens)
    assert load_all(loaded, files_of(computed, tokens), tokens) == [True] * 2
    assert loaded.run(tokens) == 2 * BLOCK
    want, got = computed.features(), loaded.features()
    assert want.shape == (len(tokens), 2 * 64) and np.isfinite(want).all()
    assert got.tobytes() == want.tobytes() and loaded.rows().tobytes() == computed.rows().tobytes()
    without = Blocks(_core.Model(str(folder), dtype=dtype, threads=1), 4)
    with pytest.raises(InvalidArgument, match=r"\[prefix\] it has \d+ bytes, want "):
        without.load(files_of(computed, tokens)[0], tokens[:BLOCK], False, ID)


def test_a_text_whose_blocks_were_loaded_in_other_places(model):
    """Blocks are where there was room, in any order."""
    tokens = tokens_of(2, 3 * BLOCK)
    computed, loaded = Blocks(model, 9), Blocks(model, 9)
    computed.run(tokens)
    for seed in 3, 4:
        loaded.run(tokens_of(seed, 2 * BLOCK + 1))
    loaded.leave()
    assert load_all(loaded, files_of(computed, tokens), tokens) == [True] * 3
    assert loaded.run(tokens) == len(tokens) and loaded.rows().tobytes() == computed.rows().tobytes()


def test_a_block_waits_for_those_before_it(model):
    tokens = tokens_of(1, 2 * BLOCK)
    computed, loaded = Blocks(model, 4), Blocks(model, 4)
    computed.run(tokens)
    first, second = files_of(computed, tokens)
    assert not loaded.load(second, tokens, False, ID)
    assert loaded.cached(tokens) == 0
    assert loaded.load(first, tokens[:BLOCK], False, ID) and loaded.load(first, tokens[:BLOCK], False, ID)
    assert loaded.load(second, tokens, False, ID) and loaded.cached(tokens) == 2


def test_no_block_of_a_text_gives_way_to_the_next_one(model):
    """Three blocks where there are two: the third finds no room, and the first two stay."""
    tokens = tokens_of(1, 3 * BLOCK)
    computed, loaded = Blocks(model, 4), Blocks(model, 2)
    computed.run(tokens)
    assert load_all(loaded, files_of(computed, tokens), tokens) == [True, True, False]
    assert loaded.cached(tokens) == 2 and loaded.held == 0


def test_the_end_of_a_text_gives_way_before_its_beginning(model):
    tokens = tokens_of(1, 3 * BLOCK)
    computed, loaded = Blocks(model, 4), Blocks(model, 4)
    computed.run(tokens)
    load_all(loaded, files_of(computed, tokens), tokens)
    loaded.run(tokens_of(2, 2 * BLOCK))
    assert loaded.cached(tokens) == 2


def test_texts_that_hold_all_memory_keep_it(model):
    tokens, own = tokens_of(1, BLOCK), tokens_of(2, 2 * BLOCK)
    computed, full = Blocks(model, 2), Blocks(model, 2)
    computed.run(tokens)
    full.run(own)
    before = full.rows()
    assert load_all(full, files_of(computed, tokens), tokens) == [False]
    assert full.held == 2 and full.rows().tobytes() == before.tobytes()


def test_what_is_not_cached_has_no_file(model):
    computed, tokens = Blocks(model, 4), tokens_of(1, 2 * BLOCK)
    computed.run(tokens[: BLOCK + 5])
    assert files_of(computed, tokens)[1] == b"" != files_of(computed, tokens)[0]
    assert computed.save(tokens_of(3, BLOCK), False, ID) == b""
    for wrong, identity, message in (
        (tokens[:BLOCK - 1], ID, r"\[prefix\] got 63 tokens, want whole blocks of 64"),
        (tokens[:0], ID, r"got 0 tokens, want whole blocks"),
        (tokens[:BLOCK], b"short", r"the identity has 5 bytes, want 32"),
        (np.full(BLOCK, 999), ID, r"\[prefix\] token 0 is 999, want 0\.\.319"),
        (np.full(BLOCK, -1), ID, r"\[prefix\] token 0 is -1, want"),
    ):  # fmt: skip
        with pytest.raises(InvalidArgument, match=message):
            computed.save(wrong, False, identity)


@ON_CPU
def test_stretched_texts_have_blocks_of_their_own(tiny_model):
    model = tiny_model("phi4-mini", layers=2, original_max_position_embeddings=100)
    tokens = tokens_of(1, BLOCK)
    short, long = Blocks(model, 2), Blocks(model, 2)
    short.run(tokens)
    long.run(tokens, stretched=True)
    assert short.rows().tobytes() != long.rows().tobytes(), "the tables differ too little for this test"
    (file,) = files_of(long, tokens, stretched=True)
    assert long.save(tokens, False, ID) == b""
    loaded = Blocks(model, 2)
    with pytest.raises(InvalidArgument, match="want block 1 with the same rotary tables"):
        loaded.load(file, tokens, False, ID)
    assert loaded.load(file, tokens, True, ID)
    assert (loaded.cached(tokens, False), loaded.cached(tokens, True)) == (0, 1)
    assert loaded.run(tokens, stretched=True) == BLOCK and loaded.rows().tobytes() == long.rows().tobytes()


@pytest.fixture(scope="module")
def file(model):
    computed, tokens = Blocks(model, 3), tokens_of(1, 2 * BLOCK)
    computed.run(tokens)
    return tokens, files_of(computed, tokens)


def refused(model, tokens, file, message, identity=ID):
    blocks = Blocks(model, 3)
    with pytest.raises(InvalidArgument, match=message):
        blocks.load(file, tokens, False, identity)
    assert blocks.held == blocks.cached(tokens) == 0


def test_every_length_is_checked(model, file):
    tokens, (first, _) = file
    for n in range(len(first)):
        if n < HEADER + 40 or n % 997 == 0 or n > len(first) - 9:
            refused(model, tokens[:BLOCK], first[:n], rf"\[prefix\] it has {n} bytes, (fewer|want {len(first)})")
    refused(model, tokens[:BLOCK], first + b"\0", f"it has {len(first) + 1} bytes, want {len(first)}")


def test_every_bit_counts(model, file):
    """Of the header each one; of the rest some."""
    tokens, (first, _) = file
    random = np.random.default_rng(5)
    places = [*range(HEADER), *random.integers(HEADER, len(first), 200), HEADER, len(first) - 1]
    for place in places:
        flipped = bytearray(first)
        flipped[place] ^= 1 << random.integers(8)
        refused(model, tokens[:BLOCK], bytes(flipped), r"\[prefix\] ")


def test_counts_that_lie(model, file):
    """Whatever a file says of itself, no more is read than there is."""
    tokens, (first, second) = file
    for blocks in (0, -1, 2, 1 << 20, (1 << 31) - 1, -(1 << 31)):
        lying = first[: HEADER - 8] + int(blocks).to_bytes(4, "little", signed=True) + first[HEADER - 4 :]
        refused(model, tokens[:BLOCK], lying, f"it is block {blocks} of a text, want block 1")
    refused(model, tokens, first, "it is block 1 of a text, want block 2")
    refused(model, tokens[:BLOCK], second, "it is block 2 of a text, want block 1")


def test_files_of_others(model, file, tiny_model):
    tokens, (first, _) = file
    refused(model, tokens[:BLOCK], first, "it is of another model, build, dtype or kernels", OTHER)
    refused(model, tokens_of(9, BLOCK), first, "it is of other tokens")
    refused(model, tokens[:BLOCK], os.urandom(len(first)), "these are not the bytes of a saved prefix")
    larger = tiny_model("llama3", layers=3)
    refused(larger, tokens[:BLOCK], first, f"it has {len(first)} bytes, want ")


def digest(model):
    return _core.Engine(model, context=128).model_digest()


@ON_CPU
@pytest.mark.parametrize("options", [{}, {"dtype": "int4"}, {"dtype": "float16", "draft_weights": "upper"}], ids=str)
def test_every_weight_counts_that_keys_and_values_depend_on(tmp_path, options):
    """The sign of one in each tensor; but for the last norm and the vocabulary head."""
    folder = make_tiny(tmp_path / "model", "qwen3", layers=2, tied=False, tokenizer=False, attention_bias=True)
    changed, tensors = shutil.copytree(folder, tmp_path / "changed"), dict(read_folder(folder))

    def digest_of(tensors):
        for _ in write_folder(changed, tensors):
            pass
        return digest(_core.Model(str(changed), threads=1, **options))

    usual = digest_of(tensors)
    assert digest_of(tensors) == usual and len(tensors) > 20
    for name, tensor in tensors.items():
        bits = tensor.bits.copy()
        bits.reshape(-1)[np.argmax(bits & 0x7FFF)] ^= 0x8000
        found = digest_of({**tensors, name: Tensor(tensor.dtype, bits)})
        assert (found == usual) == (name in ("model.norm.weight", "lm_head.weight")), name


@ON_CPU
def test_digests_tell_models_apart(tiny_model, tiny_dir):
    """By weights, dtype, kernels and config; not by the folder, copies or threads."""

    usual = digest(tiny_model("llama3", layers=2))
    assert usual == digest(_core.Model(str(tiny_dir("llama3", layers=2)), threads=2, draft_weights="int4"))
    others = [
        tiny_model("llama3", layers=2, seed=1),
        tiny_model("llama3", layers=2, rope_theta=10000.0),
        tiny_model("llama3", layers=2, rms_norm_eps=1e-4),
        tiny_model("llama3.1", layers=2),
        tiny_model("llama3", layers=3),
        tiny_model("llama3", layers=2, load_dtype="float16"),
        _core.Model(str(tiny_dir("llama3", layers=2)), threads=1, kv_dtype="float32"),
        *(tiny_model("llama3", layers=2, isa=isa) for isa in _core.isas() if isa != tiny_model("llama3", layers=2).isa),
    ]
    digests = [usual, *map(digest, others)]
    assert len(set(digests)) == len(digests)
