"""swiftk info: the sizes that load() has, by headers alone."""

import json
import os
import re
import resource
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import streamed
import swiftk
from debug_words import ask
from heads import make_block, make_eagle, make_moa
from swiftk.cli import main
from swiftk.draft.cost import best_round
from swiftk.testing import make_tiny


@pytest.fixture
def info(capsys):
    def run(*arguments):
        status = main(["info", *map(str, arguments), "--json"])
        out, err = capsys.readouterr()
        return json.loads(out) if status == 0 else err

    return run


MODELS = {
    "llama3": {"layers": 4},
    "qwen2": {"layers": 3},
    "qwen3": {"layers": 3},
    "mistral": {"layers": 3},
}
OPTIONS = [
    {},
    {"draft_weights": "own"},
    {"draft_weights": "int8,int3"},
    {"dtype": "float32"},
    {"dtype": "float16", "draft_weights": "upper"},
    {"draft_memory": "1KB"},
    {"context": 77, "isa": "avx2"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("family", MODELS)
def test_sizes_are_what_loading_takes(info, tiny_dir, family, options):
    folder = tiny_dir(family, **MODELS[family])
    found = info(folder, *(f"--{name.replace('_', '-')}={value}" for name, value in options.items()), "--device=cpu")
    with swiftk.load(folder, device="cpu", **options) as lm:
        assert found["weight_bytes"] == lm.model.weight_bytes
        assert found["draft_weight_bytes"] == sum(lm.model.copies.values())
        assert found["draft_weights"] == (", ".join(lm.model.copies) or "none")
        assert found["load_bytes"] == lm.model.weight_bytes + sum(lm.model.copies.values())
        config, size = lm.config, 4 if lm.model.dtype == "float32" else 2
        numbers = 2 * config["num_layers"] * config["num_kv_heads"] * config["head_dim"]
        assert 1 <= found["kv_bytes_per_token"] / (numbers * size) < 1.5  # small heads are padded
        assert found["cache_bytes"] == found["kv_bytes_per_token"] * lm.context
        for name in ("isa", "dtype", "threads"):
            assert found[name] == getattr(lm.model, name)
        assert (found["context"], found["family"]) == (lm.context, config["model_type"])
        assert found["tokenizer"] == lm.tokenizer.available


HEADS = {"block": make_block, "eagle": make_eagle, "moa": make_moa}


@pytest.mark.parametrize("kind", [*HEADS, "model"])
def test_drafters_have_their_kind_and_size(info, tiny_dir, tmp_path, kind):
    folder = Path(tiny_dir("llama3", layers=6))
    drafter = folder if kind == "model" else HEADS[kind](tmp_path / "head", folder)
    found = info(folder, "--drafter", drafter, "--device=cpu")
    with swiftk.load(folder, device="cpu", drafter=drafter) as lm:
        assert (found["drafters"], found["drafter_weight_bytes"]) == (kind, lm.model.drafter_bytes)
        assert found["load_bytes"] == found["weight_bytes"] + found["draft_weight_bytes"] + lm.model.drafter_bytes


def huge(folder):
    """A model of 16 GB whose weights are a hole in a file."""
    D, F, V, L, kv = 4096, 14336, 128256, 32, 1024
    shapes = {"model.embed_tokens.weight": [V, D], "model.norm.weight": [D], "lm_head.weight": [V, D]}
    for i in range(L):
        at = f"model.layers.{i}."
        shapes |= {at + f"{name}.weight": [D] for name in ("input_layernorm", "post_attention_layernorm")}
        shapes |= {
            at + f"self_attn.{n}_proj.weight": [rows, D] for n, rows in (("q", D), ("k", kv), ("v", kv), ("o", D))
        }
        shapes |= {at + f"mlp.{n}_proj.weight": [F, D] for n in ("gate", "up")}
        shapes |= {at + "mlp.down_proj.weight": [D, F]}
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    folder.mkdir()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    config = {"model_type": "llama", "hidden_size": D, "intermediate_size": F, "num_hidden_layers": L, "vocab_size": V}
    config |= {"num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072}
    (folder / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16"}))
    return at


def test_a_model_larger_than_memory_is_reported_of_without_being_read(tmp_path):
    """On a machine with a gigabyte for all of it."""
    size = huge(tmp_path / "m")
    code = "import sys; from swiftk.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, "info", str(tmp_path / "m"), "--json", "--device", "cpu", "--threads", "1"],
        capture_output=True,
        text=True,
        cwd=Path(swiftk.__file__).parents[1],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (1 << 30, 1 << 30)),
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    table = 2 * 128256 * 4096  # the embedding, which is read where it lies
    norms = 2 * 4096 * 65
    assert found["weight_bytes"] == size - table - norms
    assert found["cache_bytes"] == 131072 * 131072  # 128 KB of each of so many tokens


@pytest.fixture
def alone(monkeypatch):
    """What the process has is none of a plan's."""
    ask(monkeypatch, streamed.ALONE)


@pytest.mark.parametrize("more", [0, 300_000, 10**9])
def test_the_plan_is_what_loading_makes_of_memory(info, alone, tmp_path, monkeypatch, more):
    """Of a model that is not converted, and once it is."""
    monkeypatch.setenv("SWIFTK_CACHE", str(tmp_path / "cache"))
    folder = make_tiny(tmp_path / "plain", "llama3", layers=5, **streamed.SIZES)
    memory = streamed.least(folder, sequences=1, draft_weights="int4") + more
    asked = "--memory", memory, "--context", 64, "--max-sequences", 1, "--device", "cpu", "--draft-weights", "int4"
    before = info(folder, *asked)
    options = {"context": 64, "max_sequences": 1, "draft_weights": "int4"}
    with swiftk.load(folder, device="cpu", memory=memory, **options) as lm:
        plan, copies = lm.model.memory, lm.model.copies
        assert (lm.source == folder) == (plan["streamed"] == 0)
    for found in (before, info(folder, *asked)):
        assert {**found["memory"], "process": 0} == {**plan, "process": 0}
        kept = found["weight_bytes"] - plan["streamed"]
        assert found["load_bytes"] == kept + found["draft_weight_bytes"] and found["draft_weight_bytes"] > 0
        disk = found["disk"]
        assert (disk is None) == (plan["streamed"] == 0) == (more == 10**9)
        if disk:
            assert disk["plain_pass_seconds"] == plan["streamed"] / disk["disk_bytes_per_second"]
            assert disk["plain_tokens_per_second"] == 1 / disk["plain_pass_seconds"]
            step = min(copies.values()) / disk["read_bytes_per_second"]
            for alpha, its in disk["at_acceptance"].items():
                want = best_round(float(alpha), step, disk["plain_pass_seconds"], 60)
                assert (its["tokens_per_second"], its["draft_length"]) == want


def test_the_plan_has_what_was_asked_for_keys_and_values(info, alone, tmp_path):
    folder = streamed.make(tmp_path)
    asked = "--memory", "1GB", "--context", 64, "--device", "cpu"
    assert info(folder, *asked, "--kv-memory", 123_456)["memory"]["kv"] == 123_456
    one, many = (info(folder, *asked, "--max-sequences", n)["memory"]["kv"] for n in (1, 16))
    assert 0 < one < many


def test_a_plan_without_copies_forecasts_no_drafts(info, alone, tmp_path):
    folder = streamed.make(tmp_path)
    memory = streamed.least(folder, sequences=1, draft_weights="own")
    asked = "--memory", memory, "--context", 64, "--max-sequences", 1, "--device", "cpu", "--draft-weights", "own"
    assert info(folder, *asked)["disk"]["at_acceptance"] == {}


def test_a_person_reads_the_plan(capsys, alone, tmp_path):
    folder = streamed.make(tmp_path)
    asked = ["info", str(folder), "--device=cpu", "--context=64", "--max-sequences=1"]
    assert main([*asked, f"--memory={streamed.least(folder, sequences=1)}"]) == 0
    out = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for words in ("keys and values", "rows under way", "layers that stay in memory", "read from disk for each pass"):
        assert any(re.fullmatch(rf"{words} (none|[\d,.]+ [MK]B)", line) for line in out), words
    assert any(re.fullmatch(r"disk [\d.]+ GB/s", line) for line in out)
    assert any(re.fullmatch(r"a plain pass, expected \S+ s, \S+ tokens/s", line) for line in out)
    said = r"drafts of which 9[05]% are accepted \S+ tokens/s, \d+ tokens a draft"
    assert sum(bool(re.fullmatch(said, line)) for line in out) == 2
    assert main([*asked, "--memory=1KB"]) == 2
    assert re.match(r"swiftk: \[load\] memory is 1000 bytes, want at least \d+ bytes: ", capsys.readouterr().err)
    assert main(asked) == 0
    assert "from disk" not in capsys.readouterr().out


def damage(change):
    def on(path):
        data = path.read_bytes()
        path.write_bytes(change(data))

    return on


def header(change):
    def on(path):
        data = path.read_bytes()
        (n,) = struct.unpack("<Q", data[:8])
        found = json.loads(data[8 : 8 + n])
        change(found)
        text = json.dumps(found).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + n :])

    return on


NORM = "model.norm.weight"
DAMAGES = {
    "cut in the length": (damage(lambda data: data[:5]), "truncated"),
    "cut in the header": (damage(lambda data: data[:40]), "truncated, or not safetensors"),
    "cut in the data": (damage(lambda data: data[:-100]), "model.safetensors"),
    "no JSON": (damage(lambda data: data[:8] + b"x" + data[9:]), "model.safetensors"),
    "a tensor less": (header(lambda found: found.update(other=found.pop(NORM))), NORM),
    "another shape": (header(lambda found: found[NORM].update(shape=[3])), NORM),
    "another dtype": (header(lambda found: found[NORM].update(dtype="I8")), NORM),
    "offsets outside": (header(lambda found: found[NORM].update(data_offsets=[0, 1 << 40])), NORM),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_headers_are_errors_that_name_the_place(info, tmp_path, name):
    folder = make_tiny(tmp_path / "m", "llama3", layers=2)
    change, words = DAMAGES[name]
    change(folder / "model.safetensors")
    said = info(folder)
    assert said.startswith("swiftk: ") and said.count("\n") == 1 and words in said and str(folder) in said


def test_a_person_reads_units(capsys, tiny_dir):
    assert main(["info", str(tiny_dir("llama3", layers=4))]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "memory after loading" in out and "K and V of a token" in out and "KB" in out and "few-bit copies" in out
