"""The ops under AddressSanitizer with UndefinedBehaviorSanitizer, and under ThreadSanitizer."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from swiftk._testing import ops

import swiftk
from building import call, find_cmake
from compressed import Compressed, four_bits, gptq
from gguf_files import TYPES, Entry, of_folder, random_blocks
from patience import PATIENCE
from swiftk.testing import make_tiny

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "tests" / "native"

pytestmark = pytest.mark.exhaustive


def build(tmp_path, program, sanitizer, isas):
    """A program of tests/native, with a sanitizer."""
    cmake = find_cmake()
    if cmake is None:
        pytest.skip("needs CMake, which the test extra brings")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    debug = ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O1"]
    how = [f"-DSWIFTK_SANITIZE={sanitizer}", f"-DSWIFTK_ISAS={isas}"]
    call(cmake, *generator, "-S", SOURCE, "-B", tmp_path, *how, *debug)
    call(cmake, "--build", tmp_path, "--target", program, "-j", len(os.sched_getaffinity(0)))
    return tmp_path / program


# The widest vectors overrun the furthest; races do not depend on them, and baseline compiles fastest.
@pytest.mark.parametrize("sanitizer, isa", [("address", ops.isas()[0]), ("thread", "baseline")])
def test_ops_and_weights_from_disk(tmp_path, sanitizer, isa):
    isas = "baseline" if isa == "baseline" else f"baseline;{isa}"  # CMake insists on baseline
    for program, argument in ("ops_check", isa), ("stream_check", tmp_path / "weights"):
        built = build(tmp_path, program, sanitizer, isas)
        done = subprocess.run([built, argument], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr


def test_damaged_files(tmp_path):
    """GGUF files, one of several encodings with its words, folders that GPTQ and bitsandbytes made, and a converted
    model, each damaged in some thousand ways."""
    program = build(tmp_path / "build", "file_fuzz", "address", "baseline")
    sizes = {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2}
    tiny = make_tiny(tmp_path / "tiny", "llama3", layers=1, vocab=40, tokenizer=False, **sizes)
    encodings = {"": "Q8_0", "attn_v": "Q5_1", "ffn_up": "F16", "token_embd": "Q4_0"}
    file = of_folder(tiny, encodings)
    data = random_blocks("Q4_K", 256, 256, np.random.default_rng(1))
    file.tensors["blk.0.ffn_down.weight"] = Entry((256, 256), TYPES["Q4_K"], data)
    words = {"model": "llama", "tokens": [f"<{i}>" for i in range(40)], "scores": [0.0] * 40, "eos_token_id": 2}
    file.metadata |= {f"tokenizer.ggml.{name}": value for name, value in words.items()}
    gguf = file.write(tmp_path / "x.gguf")
    folder = Compressed(tmp_path, *gptq(), layers=1, vocab=40).folder
    (tmp_path / "nf4").mkdir()
    four = Compressed(tmp_path / "nf4", *four_bits(), layers=1, vocab=40).folder
    converted = swiftk.convert(gguf, tmp_path / "converted.gguf")
    others = [
        of_folder(make_tiny(tmp_path / family, family, layers=1, vocab=40, tokenizer=False)).write(
            tmp_path / f"{family}.gguf"
        )
        for family in ("gemma3", "phi4-mini")
    ]
    for model, damaged, runs in (
        (gguf, gguf, 4000),
        *((one, one, 2000) for one in others),
        *((one, one / "model.safetensors", 2000) for one in (folder, four)),
        (converted, converted, 4000),
    ):
        done = subprocess.run(
            [program, model, damaged, str(runs), "1"],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env={**os.environ, "ASAN_OPTIONS": "allocator_may_return_null=1"},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        became = int(done.stdout.split()[2])
        assert 0 < became < runs, done.stdout


def test_engine_and_its_threads(tmp_path):
    """The C host with eight threads that submit while another one steps, two threads to a pass."""
    cmake = find_cmake()
    if cmake is None:
        pytest.skip("needs CMake, which the test extra brings")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    library, hosts, prefix = tmp_path / "library", tmp_path / "hosts", tmp_path / "installed"
    debug = ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O1"]
    thread = ["-DSWIFTK_SANITIZE=thread", "-DSWIFTK_ISAS=baseline", "-DBUILD_SHARED_LIBS=OFF"]
    jobs = ["-j", len(os.sched_getaffinity(0))]
    call(cmake, *generator, "-S", ROOT, "-B", library, *thread, *debug)
    call(cmake, "--build", library, *jobs)
    call(cmake, "--install", library, "--prefix", prefix)
    call(cmake, *generator, "-S", ROOT / "tests" / "embedding", "-B", hosts, f"-DCMAKE_PREFIX_PATH={prefix}")
    call(cmake, "--build", hosts, "--target", "engine")
    model = make_tiny(tmp_path / "model", family="llama3", layers=2)
    done = subprocess.run([hosts / "engine", model, "baseline", "2"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
