"""Loading: progress, cancelling, options and their errors, and a model that does not fit."""

import json
import os
import re
import struct
import subprocess
import sys

import numpy as np
import pytest

from debug_words import ask
from swiftk import _core
from swiftk.errors import Cancelled, InvalidArgument, OutOfMemory
from swiftk.files.safetensors_io import read_folder
from swiftk.testing import make_tiny


def load(folder, **options):
    return _core.Model(str(folder), **options)


@pytest.fixture
def folder(tmp_path):
    return make_tiny(tmp_path / "model", "llama3", layers=2, tokenizer=False)


def test_progress_counts_every_byte_once(folder):
    calls = []
    load(folder, progress=lambda done, total: calls.append((done, total)))
    done, totals = zip(*calls, strict=True)
    assert list(done) == sorted(done)
    assert done[-1] == totals[-1]
    assert len(set(totals)) == 1
    assert done[-1] == sum(t.bits.nbytes for n, t in read_folder(folder).items() if n != "model.embed_tokens.weight")


@pytest.mark.parametrize("stop", [1, 5, 20])
def test_progress_cancels(folder, stop):
    calls = []

    def progress(done, total):
        calls.append(done)
        return len(calls) < stop

    with pytest.raises(Cancelled, match="cancelled"):
        load(folder, progress=progress)
    assert len(calls) == stop


def test_error_in_progress_comes_through(folder):
    def progress(done, total):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        load(folder, progress=progress)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int5"}, "dtype is 'int5', want auto, float32, bfloat16 or float16"),
        ({"kv_dtype": "int4"}, "kv_dtype is 'int4', want auto, float32, bfloat16 or float16, or int8"),
        ({"isa": "mmx"}, "isa is 'mmx', this machine has .*"),
        ({"threads": -1}, "threads is -1, want 0"),
        ({"threads": 100000}, "threads is 100000, want 0"),
    ],
)
def test_bad_options(folder, options, message):
    with pytest.raises(InvalidArgument, match=message):
        load(folder, **options)


def test_a_model_larger_than_memory_is_refused(tmp_path):
    wide = 2**21  # an embedding of 8.8 TB, in a file of holes
    sizes = {
        "hidden_size": 64,
        "head_dim": 2,
        "num_attention_heads": 2,
        "intermediate_size": 2,
        "layers": 1,
        "tied": True,
    }
    folder = make_tiny(tmp_path, vocab=64, **sizes)
    path, config_path = folder / "model.safetensors", folder / "config.json"
    data, at = path.read_bytes(), 0
    header = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])
    for name, info in header.items():
        if name != "__metadata__":
            info["shape"] = [wide if n == 64 else n for n in info["shape"]]
            size = 2 * int(np.prod(info["shape"]))
            info["data_offsets"] = [at, at + size]
            at += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    try:
        with path.open("r+b") as file:
            file.truncate(8 + len(text) + at)
    except OSError as error:
        pytest.skip(f"no such large file here: {error}")
    config = json.loads(config_path.read_text())
    config_path.write_text(json.dumps({**config, "hidden_size": wide, "vocab_size": wide}))
    with pytest.raises(OutOfMemory, match=r"weights need [0-9.]+ GB of memory, [0-9.]+ GB are available"):
        load(folder)


def test_memory_that_cannot_be_had_is_named(folder):
    code = (
        "import resource, sys, swiftk; lm = swiftk.load(sys.argv[1], threads=1, kv_memory=10**12)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (10**10, 10**10))\n"
        "try: lm.generate([5])\n"
        "except swiftk.OutOfMemory as error: print(error)"
    )
    out = subprocess.run([sys.executable, "-c", code, str(folder)], check=True, capture_output=True, text=True)
    words = r"\[memory\] a buffer of [\d.]+ GB could not be allocated, ([\d.]+) GB are available\n"
    assert float(re.fullmatch(words, out.stdout)[1]) < 10


def test_threads_that_cannot_be_had_are_named(folder):
    code = (
        "import resource, sys, swiftk, swiftk._core; resource.setrlimit(resource.RLIMIT_AS, (4 * 10**9, 4 * 10**9))\n"
        "try: swiftk.load(sys.argv[1], threads=1024)\n"
        "except swiftk.OutOfMemory as error: print(error)"
    )
    out = subprocess.run([sys.executable, "-c", code, str(folder)], check=True, capture_output=True, text=True)
    assert out.stdout.startswith("[threads] none more can be started: ")


def test_isa_from_the_environment(folder, monkeypatch):
    ask(monkeypatch, "isa=mmx")
    with pytest.raises(InvalidArgument, match="isa in SWIFTK_DEBUG is 'mmx'"):
        load(folder)
    last = _core.isas()[-1]
    ask(monkeypatch, f"isa={last}")
    assert load(folder).isa == last
    assert load(folder, isa=_core.isas()[0]).isa == _core.isas()[0]


def test_threads_are_those_this_process_may_use(folder):
    assert 1 <= load(folder).threads <= len(os.sched_getaffinity(0))
    assert load(folder, threads=3).threads == 3


def test_affinity_is_heeded(folder):
    code = (
        "import os, sys; os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1]);"
        "from swiftk import _core; print(_core.Model(sys.argv[1]).threads)"
    )
    out = subprocess.run([sys.executable, "-c", code, str(folder)], check=True, capture_output=True, text=True)
    assert out.stdout.strip() == "1"
