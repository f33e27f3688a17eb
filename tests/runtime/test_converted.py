"""`swiftk convert`: a model as it lies in memory. What is loaded of it has the bits of what it was made of."""

import hashlib
import json
import shutil
import struct
import subprocess
import sys

import numpy as np
import pytest
from swiftk._testing import ops

import swiftk
from compressed import Compressed, gptq
from debug_words import ask
from decode import Rule, decode, open_session
from gguf_files import of_array, of_folder, split
from heads import make_block
from swiftk import _core
from swiftk.errors import Cancelled, CheckpointError, InvalidArgument, OutOfMemory, UnsupportedModel
from swiftk.files.safetensors_io import read_folder
from swiftk.testing import make_tiny

PROMPT = [5, 9, 2, 7, 7, 1, 30, 12, 4, 8, 21]
SIZES = {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2}
WIDE = {"hidden_size": 512, "intermediate_size": 1536, "num_attention_heads": 8, "num_key_value_heads": 8}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("plain"), "llama3", layers=3, **SIZES)


def open_(path, **options):
    return _core.Model(str(path), **{"draft_weights": "auto", **options})


def run(model, **rule):
    return decode(open_session(model), PROMPT, 24, Rule(**rule) if rule else None, keep_logits=True)


def check(source, out, **options):
    """Rows, drafts by each copy and their statistics are equal; the converted model names what it holds."""
    swiftk.convert(source, out, **options)
    was, now = open_(source, **options), open_(out, **{name: options[name] for name in options.keys() & {"isa"}})
    assert (now.dtype, now.copies, now.weight_bytes) == (was.dtype, was.copies, was.weight_bytes)
    assert np.array(run(now).logits).tobytes() == np.array(run(was).logits).tobytes()
    for copy in was.copies:
        one, other = (run(m, skip=((), (), -1, [copy]), confidence=0.0, max_draft=5) for m in (was, now))
        assert one.accepted == other.accepted and one.tokens == other.tokens == run(was).tokens
    return now


@pytest.mark.parametrize("isa", _core.isas())
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dtype": "float32", "draft_weights": "own"},
        {"dtype": "float16", "draft_weights": "upper"},
        {"draft_weights": "int8,int3"},
        {"dtype": "int8"},
        {"dtype": "int4"},
    ],
    ids=str,
)
def test_a_folder(folder, tmp_path, options, isa):
    check(folder, tmp_path / "out", isa=isa, **options)
    made = {file.name for file in (tmp_path / "out").iterdir()}
    assert made == {file.name for file in folder.iterdir()}
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (folder / "tokenizer.json").read_bytes()


@pytest.mark.parametrize("tied", [False, True])
def test_a_gguf_file(tmp_path, tied):
    pytest.importorskip("gguf")
    source = make_tiny(tmp_path / "hf", "llama3", layers=2, tie_word_embeddings=tied, **SIZES)
    file = of_folder(source, {"": "Q4_0", "attn_v": "Q8_0", "ffn_down": "Q5_1", "token_embd": "F16"})
    file.metadata |= {"general.alignment": 128, "some.list": ["a", ""], "some.flag": True}
    path = file.write(tmp_path / "in.gguf")
    now = check(path, tmp_path / "out.gguf", draft_weights="int3")
    assert now.dtype == "q4_0"
    before, after = (_core.gguf_metadata(str(p)) for p in (path, tmp_path / "out.gguf"))
    assert after.pop("swiftk.padding").strip() == "" and after == before
    check(tmp_path / "out.gguf", tmp_path / "again.gguf")
    assert (tmp_path / "again.gguf").read_bytes() == (tmp_path / "out.gguf").read_bytes()
    its_reader = pytest.importorskip("gguf").GGUFReader(tmp_path / "out.gguf")
    assert its_reader.get_field("llama.block_count").contents() == 2
    assert {t.name for t in its_reader.tensors} >= {
        "swiftk.own",
        "swiftk.int3",
        "swiftk.converted",
        "token_embd.weight",
    }


def test_vectors_in_blocks_are_refused_at_once(folder, tmp_path):
    file = of_folder(folder)
    file.tensors["output_norm.weight"] = of_array(np.ones(SIZES["hidden_size"], np.float32), "Q8_0")
    path = file.write(tmp_path / "in.gguf")
    for use in (open_, lambda source: swiftk.convert(source, tmp_path / "out.gguf")):
        with pytest.raises(UnsupportedModel, match=r"output_norm.weight is a vector in Q8_0, want F32, BF16 or F16"):
            use(path)
    assert list(tmp_path.iterdir()) == [path]


def test_parts_become_one_file(folder, tmp_path):
    for i, part in enumerate(split(of_folder(folder), 2), 1):
        part.write(tmp_path / f"x-{i:05}-of-00002.gguf")
    check(tmp_path / "x-00001-of-00002.gguf", tmp_path / "one.gguf")


def test_compressed_folders(tmp_path):
    assert check(Compressed(tmp_path, *gptq(symmetric=True)).folder, tmp_path / "out").dtype == "q4_0"


def test_shards(tmp_path):
    check(make_tiny(tmp_path / "in", "qwen2", layers=2, shards=2, **SIZES), tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.index.json"))


def test_texts(folder, tmp_path):
    swiftk.convert(folder, tmp_path / "out", dtype="int4", draft_weights="own")
    one, other = swiftk.load(folder, dtype="int4"), swiftk.load(tmp_path / "out")
    for sampling in ({}, {"temperature": 0.9, "seed": 3}):
        a, b = (lm.generate("abc", max_new_tokens=40, **sampling) for lm in (one, other))
        assert a.tokens == b.tokens
    info = _core.survey(str(tmp_path / "out"), draft_weights="auto")
    assert info["dtype"] == "q4_k" and info["weight_bytes"] == open_(tmp_path / "out").weight_bytes


def test_the_same_bytes_on_every_instruction_set(folder, tmp_path):
    """So that a file made on one machine is read on another."""
    made = set()
    for isa in set(_core.isas()) - {"baseline"}:  # which has no fused multiplications to search scales by
        (tmp_path / isa).mkdir()
        _core.convert(str(folder), str(tmp_path / isa), isa=isa, dtype="int4", draft_weights="int3,int8")
        made.add((tmp_path / isa / "model.safetensors").read_bytes())
    assert len(made) == 1


def test_what_it_was_converted_with_stays(folder, tmp_path):
    out = swiftk.convert(folder, tmp_path / "out", dtype="float16", draft_weights="int3")
    for same in ({}, {"dtype": "float16"}, {"draft_weights": "int3"}, {"draft_weights": "own"}):
        assert open_(out, **same).dtype == "float16"
    assert list(open_(out).copies) == ["int3"] and not open_(out, draft_weights="own").copies
    with pytest.raises(InvalidArgument, match="dtype is 'int8', the model was converted with 'float16'"):
        open_(out, dtype="int8")
    with pytest.raises(InvalidArgument, match="draft_weights has int4, the model was converted with int3"):
        open_(out, draft_weights="int4")
    with pytest.raises(InvalidArgument, match="upper"):
        open_(swiftk.convert(folder, tmp_path / "other"), draft_weights="upper")


def test_python_reads_no_panels(folder, tmp_path):
    with pytest.raises(CheckpointError, match="converted"):
        read_folder(swiftk.convert(folder, tmp_path / "out"))


def test_a_converted_model_drafts_for_another(folder, tmp_path):
    out = swiftk.convert(folder, tmp_path / "out")
    one, other = (swiftk.load(folder, drafter=[d]) for d in (folder, out))
    a, b = (
        lm.generate("abc", max_new_tokens=30, skip="drafter", speculate="always", drafter="plan") for lm in (one, other)
    )
    assert a.tokens == b.tokens == one.generate("abc", max_new_tokens=30, speculate=False).tokens
    assert b.stats.num_accepted_draft_tokens > 0


def test_a_head_at_a_client_wants_parts(folder, tmp_path):
    out, head = swiftk.convert(folder, tmp_path / "out"), make_block(tmp_path / "head", folder)
    with pytest.raises(UnsupportedModel, match="a converted model is read whole; want the one that it was made of"):
        swiftk.remote.Head(target=out, head=head)


def test_places(folder, tmp_path):
    out = swiftk.convert(folder, tmp_path / "out")
    with pytest.raises(InvalidArgument, match="is there already"):
        swiftk.convert(folder, out)
    swiftk.convert(folder, out, force=True, dtype="int8")
    assert open_(out).dtype == "q8_0"
    with pytest.raises(InvalidArgument, match="is the model itself"):
        swiftk.convert(out, out, force=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgument, match="want a folder"):
        swiftk.convert(folder, tmp_path / "file", force=True)


def test_nothing_is_left_of_what_was_cancelled(folder, tmp_path):
    (tmp_path / "out").mkdir()
    reports = []

    def stop(done, total):
        reports.append((done, total))
        return done < total / 2

    with pytest.raises(Cancelled):
        _core.convert(str(folder), str(tmp_path / "out"), progress=stop)
    assert len(reports) > 2 and not list((tmp_path / "out").iterdir())
    with pytest.raises(CheckpointError, match="cannot be written"):
        _core.convert(str(folder), str(tmp_path / "nowhere"))


def test_progress_counts_the_bytes_of_the_file(folder, tmp_path):
    reports = []
    out = swiftk.convert(folder, tmp_path / "out", progress=lambda *report: reports.append(report))
    done, totals = zip(*reports, strict=True)
    assert {*totals} == {(out / "model.safetensors").stat().st_size} == {done[-1]}
    assert list(done) == sorted({*done})


def test_a_full_disk_is_named(folder, tmp_path):
    """A limit on the sizes of files stands for it."""
    (tmp_path / "model.safetensors").write_text("old")
    code = (
        "import resource, sys, swiftk._core; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try: swiftk._core.convert(*sys.argv[1:])\n"
        "except swiftk.CheckpointError as error: print(error)"
    )
    command = [sys.executable, "-c", code, str(folder), str(tmp_path)]
    out = subprocess.run(command, check=True, capture_output=True, text=True)
    assert out.stdout == f"[checkpoint] {tmp_path}/model.safetensors: cannot be written: File too large\n"
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("model.safetensors", "old")]


def test_a_model_larger_than_memory(folder, tmp_path, monkeypatch):
    """It is converted; only what is chosen by itself, or has a limit, asks for memory."""
    whole = swiftk.convert(folder, tmp_path / "whole", draft_weights="int4,int3")
    ask(monkeypatch, "memory=1000")
    with pytest.raises(OutOfMemory, match="the weights need"):
        open_(folder)
    out = swiftk.convert(folder, tmp_path / "out", draft_weights="int4,int3")
    assert (out / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert not _core.survey(str(swiftk.convert(folder, tmp_path / "auto")), draft_weights="auto")["copies"]
    with pytest.raises(OutOfMemory, match=r"copies for drafting need .* 0\.000 GB are available"):
        swiftk.convert(folder, tmp_path / "limited", draft_weights="int4", draft_memory=1000)


@pytest.mark.parametrize("again", [False, True])
def test_memory_is_that_of_a_matrix(tmp_path, again):
    source = make_tiny(tmp_path / "in", "llama3", layers=20, **WIDE)
    if again:
        source = swiftk.convert(source, tmp_path / "once", draft_weights="int8")
    code = (
        "import re, sys, swiftk._core; from pathlib import Path\n"
        "peak = lambda: int(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1]) * 1024\n"
        "swiftk._core.survey(sys.argv[1])\n"
        "before = peak(); swiftk.convert(*sys.argv[1:], draft_weights='int8', threads=1); print(peak() - before)"
    )
    command = [sys.executable, "-c", code, str(source), str(tmp_path / "out")]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert grown < (source / "model.safetensors").stat().st_size / 3


class Safetensors:
    """A converted folder whose tensors and table can be written anew."""

    def __init__(self, folder):
        self.path = folder / "model.safetensors"
        data = self.path.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        header, data = json.loads(data[8 : 8 + length]), data[8 + length :]
        del header["__metadata__"]
        order = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
        self.tensors = {n: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for n, t in order}
        self.table = json.loads(self.tensors["swiftk.converted"][2])

    def write(self, misaligned=0):
        table = self.table if isinstance(self.table, bytes) else json.dumps(self.table).encode()
        self.tensors["swiftk.converted"] = ("I8", None, table)
        header, data = {}, b""
        for name, (dtype, shape, its) in self.tensors.items():
            shape = [len(its)] if dtype == "I8" else shape
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(its)]}
            data += its
        text = json.dumps(header).encode()
        text += b" " * (-(len(text) + 8) % 4096 + misaligned)
        self.path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def removed(key):
    return lambda c: c.table.pop(key)


def put(value, *path):
    def edit(c):
        at = c.table
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value

    return edit


DAMAGE = {
    "no table": (lambda c: setattr(c, "table", b"{"), CheckpointError, "swiftk.converted"),
    "a list": (lambda c: setattr(c, "table", b"[]"), CheckpointError, "layout is missing"),
    **{key: (removed(key), CheckpointError, f"{key} is missing") for key in ("layout", "dtype", "blocks", "matrices")},
    "another layout": (put(99, "layout"), CheckpointError, "not those that this build makes"),
    "no layout": (put(1e30, "layout"), CheckpointError, "not those that this build makes"),
    "another format": (put("float32", "blocks", "own", 3), CheckpointError, "not those that this build makes"),
    "too few": (lambda c: c.table["blocks"]["own"].pop(), CheckpointError, "not those that this build makes"),
    "no block": (put([], "blocks", "int5"), CheckpointError, "swiftk.int5 is missing"),
    "its own are not there": (lambda c: c.table["blocks"].pop("own"), InvalidArgument, "own"),
    "no list": (put("x", "blocks", "own"), CheckpointError, "is no list"),
    "numbers": (put([1], "blocks", "own"), CheckpointError, "got 1, want a text"),
    "a matrix of three": (put(["a", "F32", 1], "matrices", 0), CheckpointError, "want \\[name, encoding, rows, k\\]"),
    "an unknown encoding": (put("X", "matrices", 0, 1), CheckpointError, "which is no encoding"),
    "another encoding": (put("Q8_0", "matrices", 0, 1), CheckpointError, "panels of own"),
    "no rows": (put(0, "matrices", 0, 2), CheckpointError, "want a count"),
    "huge": (put(2**62, "matrices", 0, 2), CheckpointError, "cannot have the shape"),
    "another shape": (put(17, "matrices", 0, 2), CheckpointError, "the config wants"),
    "another name": (put("x", "matrices", 0, 0), CheckpointError, "is missing"),
    "a norm": (put("model.norm.weight", "matrices", 0, 0), CheckpointError, "occurs twice"),
    "another dtype": (put("float17", "dtype"), InvalidArgument, "float17"),
    "copies named twice": (put("int4,int4,int3", "draft_weights"), InvalidArgument, "draft_weights has int3"),
    "unknown copies": (put("int5", "draft_weights"), InvalidArgument, "int5"),
}


@pytest.fixture(scope="module")
def converted(folder, tmp_path_factory):
    return swiftk.convert(folder, tmp_path_factory.mktemp("converted") / "out", draft_weights="int4")


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named(converted, tmp_path, name):
    shutil.copytree(converted, tmp_path / "x")
    edit, error, message = DAMAGE[name]
    file = Safetensors(tmp_path / "x")
    file.write()
    open_(tmp_path / "x")  # what this test writes is well but for the edit
    edit(file)
    file.write()
    with pytest.raises(error, match=message):
        open_(tmp_path / "x")


@pytest.mark.parametrize("name", ["model.norm.weight", "model.embed_tokens.weight"])
def test_rows_that_must_be_there(converted, tmp_path, name):
    """Of what is no matrix of a converted model."""
    shutil.copytree(converted, tmp_path / "x")
    file = Safetensors(tmp_path / "x")
    _, shape, _ = file.tensors.pop(name)
    file.table["matrices"].append([name, "BF16", *([1] * (2 - len(shape))), *shape])
    file.write()
    with pytest.raises((CheckpointError, UnsupportedModel), match=name):
        open_(tmp_path / "x")


@pytest.mark.parametrize("cut", [1, 64, 4096])
def test_a_short_block(converted, tmp_path, cut):
    shutil.copytree(converted, tmp_path / "x")
    file = Safetensors(tmp_path / "x")
    dtype, shape, data = file.tensors["swiftk.own"]
    file.tensors["swiftk.own"] = (dtype, shape, data[:-cut])
    file.write()
    with pytest.raises(CheckpointError, match=r"not those that this build makes|does not begin at a multiple of 64"):
        open_(tmp_path / "x")


def test_misaligned_panels(converted, tmp_path):
    shutil.copytree(converted, tmp_path / "x")
    Safetensors(tmp_path / "x").write(misaligned=1)
    with pytest.raises(CheckpointError, match="does not begin at a multiple of 64 bytes"):
        open_(tmp_path / "x")


# The version of packed bytes (kPanelLayout in kernels/format.h), and their digest. If the bytes change, the version has
# to rise, so that a build refuses files that another version made.
LAYOUT, BYTES = 1, "a9a96871f19c9611"


def test_panels_are_those_of_their_number(converted):
    kernels, digest = ops.Kernels("", 2), hashlib.sha256()
    rng = np.random.default_rng(5)
    w = (rng.integers(-128, 128, (75, 512)) / 64).astype(np.float16)
    for name in ("float32", "bfloat16", "float16", "planes", "int8", "int4", "int3"):
        digest.update(np.asarray(kernels.pack([w], name).data).tobytes())
    for name, size in {
        "Q8_0": 34,
        "Q4_0": 18,
        "Q4_1": 20,
        "Q5_0": 22,
        "Q5_1": 24,
        "Q4_K": 144,
        "Q5_K": 176,
        "Q6_K": 210,
    }.items():
        raw = rng.integers(0, 60, (75, 512 // (256 if "K" in name else 32) * size), np.uint8)
        digest.update(np.asarray(kernels.pack([raw], name.lower()).data).tobytes())
    assert Safetensors(converted).table["layout"] == LAYOUT
    assert digest.hexdigest()[:16] == BYTES
