"""The test models themselves: reproducible, of the shape that was asked for, lively; and grow keeps the function."""

import json
import subprocess
import sys

import numpy as np
import pytest

from swiftk import _core, demo_model
from swiftk.errors import CheckpointError, InvalidArgument
from swiftk.files.safetensors_io import decode, from_bfloat16, read_folder, to_bfloat16
from swiftk.testing import FAMILIES, grow, make_tiny

IDS = np.random.default_rng(0).integers(3, 300, 30).astype(np.int32)


def logits(folder, dtype="float32"):
    session = _core.Session(_core.Model(str(folder), dtype=dtype))
    rows = []
    for n in range(1, len(IDS) + 1):
        session.prefill(IDS[:n])
        rows.append(session.logits[0])
    return np.stack(rows)


def files(folder):
    return {f.name: f.read_bytes() for f in folder.iterdir()}


def test_same_seed_same_files(tmp_path):
    first, again, other = (
        make_tiny(tmp_path / name, "qwen2", seed=seed) for name, seed in [("a", 1), ("b", 1), ("c", 2)]
    )
    assert files(first) == files(again)
    assert files(first)["model.safetensors"] != files(other)["model.safetensors"]


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_lively(tiny_dir, family):
    rows = logits(tiny_dir(family))
    best = rows.argmax(1)
    top = np.sort(rows, axis=1)
    assert 1.5 < rows.std() < 4
    assert len(set(best)) > len(rows) / 3
    assert np.mean(best == IDS) < 0.2  # does not just repeat its input
    assert (top[:, -1] - top[:, -2]).std() > 0.2


def test_files_are_what_the_libraries_read(tmp_path):
    safe = pytest.importorskip("safetensors.numpy")
    made = make_tiny(tmp_path, "llama3", dtype="float32")
    want = safe.load_file(made / "model.safetensors")
    got = read_folder(made)
    assert set(got) == set(want)
    for name, tensor in got.items():
        np.testing.assert_array_equal(decode(tensor), want[name])


def test_bfloat16_rounds_to_nearest_even():
    x = np.random.default_rng(0).standard_normal(10000).astype(np.float32)
    bits = to_bfloat16(x)
    nearest = np.abs(from_bfloat16(bits) - x)
    for step in (-1, 1):
        assert (nearest <= np.abs(from_bfloat16((bits.astype(np.int32) + step).astype(np.uint16)) - x)).all()
    ties = np.array([0x3F808000, 0x3F818000], np.uint32).view(np.float32)
    assert to_bfloat16(ties).tolist() == [0x3F80, 0x3F82]


def test_tokenizer_and_template(tmp_path):
    tokenizers, jinja2 = pytest.importorskip("tokenizers"), pytest.importorskip("jinja2")
    made = make_tiny(tmp_path, "llama3")
    tokenizer = tokenizers.Tokenizer.from_file(str(made / "tokenizer.json"))
    text = "Question: \u00e9\U0001f600 7?\n"
    ids = tokenizer.encode(text).ids
    assert ids[0] == 1
    assert max(ids) < 320
    assert tokenizer.decode(ids) == text
    template = json.loads((made / "tokenizer_config.json").read_text())["chat_template"]
    chat = [{"role": "user", "content": "Hi"}]
    assert jinja2.Template(template).render(messages=chat, add_generation_prompt=True) == "[user] Hi\n[assistant]"


def test_a_small_vocabulary_has_no_tokenizer(tmp_path):
    assert not (make_tiny(tmp_path, vocab=100) / "tokenizer.json").exists()


@pytest.mark.parametrize("options", [{"family": "gpt2"}, {"dtype": "int8"}])
def test_bad_options(tmp_path, options):
    with pytest.raises(InvalidArgument, match="want one of"):
        make_tiny(tmp_path, **options)


def test_no_torch():
    code = "import sys, swiftk.testing; assert not {'torch', 'transformers', 'tokenizers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# grow


@pytest.mark.parametrize("family", ["llama3.2", "llama-bias", "mistral", "qwen2", "qwen3", "deepseek-coder"])
@pytest.mark.parametrize(("dtype", "k"), [("float32", 2), ("float32", 3), ("bfloat16", 4), ("float16", 2)])
def test_grown_model_computes_the_same(tiny_dir, tmp_path, family, dtype, k):
    small = tiny_dir(family, dtype=dtype)
    big = grow(small, tmp_path / "big", k)
    a, b = _core.Model(str(small)).config, _core.Model(str(big)).config
    for field in ["hidden_size", "ffn", "num_heads", "num_kv_heads"]:
        assert b[field] == k * a[field]
    assert b["head_dim"] == a["head_dim"]
    want = logits(small)
    assert np.abs(logits(big) - want).max() < 2e-5 * want.std()
    assert (big / "tokenizer.json").read_bytes() == (small / "tokenizer.json").read_bytes()


def test_grown_twice_is_grown_at_once(tiny_dir, tmp_path):
    small = tiny_dir("llama3")
    twice = grow(grow(small, tmp_path / "a", 2), tmp_path / "b", 2)
    assert files(twice) == files(grow(small, tmp_path / "c", 4))


def test_grown_by_one_is_a_copy(tiny_dir, tmp_path):
    small = tiny_dir("qwen3")
    assert files(grow(small, tmp_path / "a", 1))["model.safetensors"] == files(small)["model.safetensors"]


def test_shards_grow(tmp_path):
    sharded = make_tiny(tmp_path / "a", "llama3", shards=3)
    single = make_tiny(tmp_path / "b", "llama3")
    a, b = read_folder(grow(sharded, tmp_path / "c", 2)), read_folder(grow(single, tmp_path / "d", 2))
    assert set(a) == set(b)
    for name in a:
        np.testing.assert_array_equal(a[name].bits, b[name].bits)


def test_progress_reaches_the_total(tmp_path):
    calls = []
    grown = grow(demo_model(), tmp_path, 2, progress=lambda done, total: calls.append((done, total)))
    done = [d for d, _ in calls]
    assert done == sorted(done)
    assert len({t for _, t in calls}) == 1
    assert done[-1] == calls[0][1]
    assert done[-1] == sum(t.bits.nbytes for t in read_folder(grown).values())


@pytest.mark.parametrize("k", [0, -1])
def test_bad_factor(tiny_dir, tmp_path, k):
    with pytest.raises(InvalidArgument, match=f"k is {k}"):
        grow(tiny_dir("llama3"), tmp_path, k)


def test_grow_of_nothing(tmp_path):
    with pytest.raises(CheckpointError):
        grow(tmp_path / "none", tmp_path / "big", 2)
