"""Weights are read from a disk that fails: errors are typed, texts keep their tokens, and go on once the disk does."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import swiftk
from building import call
from patience import PATIENCE
from streamed import ALONE, SIZES
from swiftk.testing import make_tiny

DOUBLE = Path(__file__).resolve().parents[1] / "native" / "faulty_read.c"

# Says what each disk does: tokens, or the error, of a text; then, in its middle, of one whose disk fails there.
PROGRAM = """
import json, os, sys
import swiftk
from streamed import least

folder, memory = sys.argv[1:]
prompt, plain = [5, 9, 2, 7, 7, 1, 30, 12], {"max_new_tokens": 20, "ignore_eos": True}

def disk(word):
    with open(os.environ["FAULTY_READ"], "w", encoding="ascii") as file:
        file.write(word)

def tokens(lm, **options):
    try:
        return lm.generate(prompt, **plain, **options).tokens
    except swiftk.errors.SwiftkError as error:
        return [type(error).__name__, str(error)]

disk("")
place = {"context": 64, "max_sequences": 2}
found = {"whole": tokens(swiftk.load(folder, **place))}
need = least(folder, draft_weights="auto", context=64, sequences=2)
lm = swiftk.load(folder, **place, memory=need)
found["streamed"] = lm.model.memory["streamed"]
for word in "short", "interrupted", "odd", "end", "error":
    disk(word)
    found[word] = tokens(lm)
    disk("")
    found[word + ", after"] = tokens(lm)
    stream = lm.generate(prompt, stream=True, speculate=False, **plain)
    early = [next(stream).token for _ in range(5)]
    disk(word)
    try:
        late = [event.token for event in stream]
    except swiftk.errors.SwiftkError as error:
        late = [type(error).__name__]
        stream.close()
        early = stream.result.tokens
    disk("")
    found[word + ", midway"] = [early, late]
disk("error")
try:
    swiftk.load(folder, **place, memory=need)
except swiftk.errors.SwiftkError as error:
    found["load"] = [type(error).__name__, str(error)]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    here = tmp_path_factory.mktemp("disk")
    call(compiler, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", DOUBLE, "-o", here / "double.so", "-ldl")
    source = make_tiny(here / "plain", "llama3", layers=5, **SIZES)
    swiftk.convert(source, here / "made", draft_weights="int4")
    words = {"LD_PRELOAD": str(here / "double.so"), "FAULTY_READ": str(here / "word"), "SWIFTK_DEBUG": ALONE}
    paths = os.pathsep.join([str(DOUBLE.parents[1] / "shared"), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, here / "made", "0"],
        env={**os.environ, **words, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_model_is_streamed(found):
    assert found["streamed"] > 0
    assert len(found["whole"]) == 20


@pytest.mark.parametrize("word", ["short", "interrupted"])
def test_reads_that_bring_less_go_on(found, word):
    assert found[word] == found[word + ", after"] == found["whole"]
    early, late = found[word + ", midway"]
    assert early + late == found["whole"]


@pytest.mark.parametrize(
    ("word", "said"),
    [("odd", "gave 100 bytes of a page at byte"), ("end", "ends at byte"), ("error", "Input/output error")],
)
def test_reads_that_fail_are_typed_errors(found, word, said):
    kind, message = found[word]
    assert kind == "CheckpointError"
    assert said in message and "model.safetensors" in message
    assert found[word + ", after"] == found["whole"]


@pytest.mark.parametrize("word", ["odd", "end", "error"])
def test_a_text_keeps_the_tokens_that_it_has(found, word):
    early, late = found[word + ", midway"]
    assert late == ["CheckpointError"]
    assert 5 <= len(early) < 20
    assert early == found["whole"][: len(early)]


def test_loading_fails_alike(found):
    assert found["load"][0] == "CheckpointError"
    assert "Input/output error" in found["load"][1]
