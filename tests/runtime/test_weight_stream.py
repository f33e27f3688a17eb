"""Weights that stay in a converted model's file: a pass reads them, and says what a model in memory says."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import swiftk
from debug_words import ask
from decode import Rule, decode, open_session
from streamed import ALONE, PLACE, SIZES, least, make
from swiftk import _core
from swiftk.errors import CheckpointError, OutOfMemory, UnsupportedModel
from swiftk.testing import make_tiny

PROMPT = [5, 9, 2, 7, 7, 1, 30, 12, 4, 8, 21]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make(tmp_path_factory.mktemp("streamed"))


@pytest.fixture(autouse=True)
def as_if_alone(monkeypatch):
    ask(monkeypatch, ALONE)


def run(model, **rule):
    return decode(open_session(model), PROMPT, 24, Rule(**rule) if rule else None, keep_logits=True)


@pytest.mark.parametrize("more", [0, 1, 150_000, 300_000, 600_000])
def test_rows_have_the_bits_of_a_model_in_memory(folder, more):
    model = _core.Model(str(folder), **PLACE, memory=least(folder) + more)
    assert model.memory["streamed"] > 0
    want = run(_core.Model(str(folder)))
    assert np.array(run(model).logits).tobytes() == np.array(want.logits).tobytes()
    for skip in (((), (), -1, ["int4"]), ((1, 3), (2,), -1), ((), (), 2)):  # drafts that read own weights, too
        assert run(model, skip=skip, confidence=0.0, max_draft=5).tokens == want.tokens


def test_memory_is_used_as_the_plan_says(folder):
    need, whole = least(folder), _core.survey(str(folder), **PLACE)
    parts = ("drafts", "head", "kv", "work", "ahead", "layers")
    streamed = []
    for more in (0, 200_000, 400_000, 10**12):
        plan = _core.survey(str(folder), **PLACE, memory=need + more)["memory"]
        assert sum(plan[name] for name in parts) <= plan["limit"] == need + more
        assert plan["layers"] + plan["streamed"] + plan["head"] == whole["weight_bytes"]
        assert plan == _core.Model(str(folder), **PLACE, memory=need + more).memory
        streamed.append(plan["streamed"])
    assert streamed == sorted(streamed, reverse=True) and streamed[0] > streamed[1] > streamed[2] > streamed[3] == 0


def test_what_does_not_fit_is_said(folder):
    with pytest.raises(OutOfMemory, match=r"this process has .*, drafts need .*, K and V"):
        _core.Model(str(folder), **PLACE, memory=least(folder) - 1)
    assert least(folder) < least(folder, context=200)
    assert least(folder, kv_memory=10**6) > least(folder, kv_memory=10**5)


def test_weights_that_exceed_what_is_free_are_streamed_without_being_asked(tmp_path, monkeypatch):
    wide = {"hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 8, "num_key_value_heads": 2}
    source = make_tiny(tmp_path / "plain", "llama3", layers=3, **wide)
    swiftk.convert(source, tmp_path / "made", draft_weights="int3")
    need, weights = least(tmp_path / "made"), _core.survey(str(tmp_path / "made"))["weight_bytes"]
    assert need < weights
    whole = _core.Model(str(tmp_path / "made"), **PLACE)
    assert whole.memory["limit"] == whole.memory["streamed"] == 0
    ask(monkeypatch, f"memory={weights}")
    model = _core.Model(str(tmp_path / "made"), **PLACE)
    assert model.memory["streamed"] > 0
    assert need <= model.memory["limit"] < weights
    assert run(model).tokens == run(whole).tokens


def test_a_model_that_is_not_converted_is_refused(tmp_path):
    source = make_tiny(tmp_path / "plain", "llama3", layers=5, **SIZES)
    need = least(source, draft_weights="own")
    assert _core.survey(str(source), context=64, memory=need)["memory"]["streamed"] > 0
    with pytest.raises(OutOfMemory, match="swiftk convert"):
        _core.Model(str(source), context=64, memory=need - 10**6)


def test_a_copy_that_is_a_part_of_the_weights_is_refused(tmp_path):
    source = make_tiny(tmp_path / "plain", "llama3", layers=5, **SIZES)
    swiftk.convert(source, tmp_path / "made", dtype="float16", draft_weights="upper")
    need = least(tmp_path / "made", draft_weights="upper")
    with pytest.raises(UnsupportedModel, match="'upper' is a part of the weights"):
        _core.Model(str(tmp_path / "made"), **{**PLACE, "draft_weights": "upper"}, memory=need)


def test_few_bit_weights_are_streamed(tmp_path):
    source = make_tiny(tmp_path / "plain", "llama3", layers=5, **{**SIZES, "hidden_size": 256})
    swiftk.convert(source, tmp_path / "made", dtype="int4", draft_weights="int3")
    need = least(tmp_path / "made")
    some, whole = _core.Model(str(tmp_path / "made"), **PLACE, memory=need), _core.Model(str(tmp_path / "made"))
    assert some.memory["streamed"] > 0
    assert np.array(run(some).logits).tobytes() == np.array(run(whole).logits).tobytes()


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A converted model of 30,000 tokens, which has a tokenizer."""
    work = tmp_path_factory.mktemp("wide")
    sizes = {**SIZES, "hidden_size": 512, "intermediate_size": 2048, "vocab_size": 30_000}
    swiftk.convert(make_tiny(work / "plain", "llama3", layers=6, **sizes), work / "model", draft_weights="int3")
    return work / "model"


def test_rows_of_the_embedding_leave_memory(wide):
    file, model = next(wide.glob("*.safetensors")), _core.Model(str(wide), **PLACE, memory=least(wide))
    session = open_session(model)
    session.prefill(np.arange(0, 30_000, 500, dtype=np.int32))
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    assert any(line.endswith(str(file)) for line in lines)
    resident = next(line for line in lines if line.startswith("Rss:"))
    assert int(resident.split()[1]) < 1000  # kB of 30,000


ONE = """
import sys, swiftk
lm = swiftk.load(sys.argv[1], device="cpu", max_sequences=4, context=256, memory=int(sys.argv[2]))
assert lm.model.memory["streamed"] > 0
for temperature in (0.0, 1.0):
    lm.generate_many([[i] * 100 for i in range(4)], max_new_tokens=60, ignore_eos=True, temperature=temperature, seed=1)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) * 1024)
"""


def test_a_process_stays_within_its_memory(wide, monkeypatch):
    monkeypatch.delenv("SWIFTK_DEBUG")
    asked = [sys.executable, "-c", ONE, str(wide)]
    found = subprocess.run([*asked, "1"], capture_output=True, text=True)
    need = int(found.stderr.split("at least ")[1].split()[0])
    for more in (8_000_000, 30_000_000):
        limit = need + more
        ended = subprocess.run([*asked, str(limit)], capture_output=True, text=True, check=True)
        assert int(ended.stdout) < limit


def test_texts_of_several_engines_take_turns(folder):
    model = _core.Model(str(folder), **PLACE, memory=least(folder))
    want = run(_core.Model(str(folder))).tokens
    with ThreadPoolExecutor(3) as pool:
        assert [found.tokens for found in pool.map(lambda _: run(model), range(3))] == [want] * 3


def test_a_file_that_is_written_to_ends_a_text_and_not_the_model(folder):
    model = _core.Model(str(folder), **PLACE, memory=least(folder))
    session = open_session(model)
    session.prefill(np.array(PROMPT, np.int32))
    file = next(folder.glob("*.safetensors"))
    was = file.stat()
    os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns + 1_000_000))
    with pytest.raises(CheckpointError, match="was written to"):
        open_session(model).prefill(np.array(PROMPT, np.int32))
    os.utime(file, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert run(model).tokens == run(_core.Model(str(folder))).tokens
