"""K and V of many texts: bounded by what is free, and given back when nothing is under way. In counted bytes."""

import os
import re
import resource

import numpy as np
import pytest

from swiftk import _core
from swiftk.errors import InvalidArgument, OutOfMemory

CONTEXT, SEQUENCES = 1024, 16
pytestmark = pytest.mark.skipif(os.environ.get("SWIFTK_DEVICE") != "cpu", reason="a GPU keeps its memory")


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny_model("llama3", layers=2, max_position_embeddings=8192)


def block_bytes(model):
    """Of a model in bfloat16."""
    return 64 * 2 * model.config["num_kv_heads"] * model.config["head_dim"] * 2 * model.config["num_layers"]


def blocks_for(slots):
    return -(-slots // 64)


@pytest.fixture
def free(monkeypatch):
    """free(bytes): what the library takes to be free."""
    return lambda bytes: monkeypatch.setenv("SWIFTK_DEBUG", f"memory={bytes}")


def end_all(engine, boxes):
    most = 0
    while not engine.idle():
        engine.step(boxes)
        most = max(most, engine.kv["used_blocks"])
    return most


def submit(engine, boxes, seed, n, new):
    prompt = np.random.default_rng(seed).integers(0, 256, n).astype(np.int32)
    return engine.submit(boxes, _core.Request(prompt=prompt, max_new_tokens=new, drafting="off"))


def test_no_more_than_texts_can_use(model):
    engine = _core.Engine(model, context=CONTEXT, sequences=SEQUENCES)
    wanted = blocks_for(CONTEXT + 64) + (SEQUENCES - 1) * blocks_for(CONTEXT // 8 + 64)
    assert engine.kv_bytes == engine.kv["bytes"] == wanted * block_bytes(model)
    assert (engine.kv["blocks"], engine.kv["block_tokens"]) == (wanted, 64)
    assert engine.kv["used_bytes"] == engine.kv["resident_bytes"] == engine.kv["cached_blocks"] == 0
    assert engine.sequences == SEQUENCES


def test_at_most_half_of_what_is_free(model, free):
    free(2 * 30 * block_bytes(model) + 1)
    assert _core.Engine(model, context=CONTEXT, sequences=SEQUENCES).kv["blocks"] == 30


def test_a_text_of_full_length_has_all_that_is_free(model, free):
    whole = blocks_for(CONTEXT + 64)
    free(whole * block_bytes(model))
    assert _core.Engine(model, context=CONTEXT, sequences=SEQUENCES).kv["blocks"] == whole


def test_a_context_that_does_not_fit_is_refused_in_bytes_and_tokens(model, free):
    bytes = blocks_for(CONTEXT + 64) * block_bytes(model)
    free(bytes - 1)
    message = rf"K and V of a text of {CONTEXT} tokens need {bytes} bytes, {bytes - 1} are free: want a context of at "
    with pytest.raises(OutOfMemory, match=message) as refused:
        _core.Engine(model, context=CONTEXT)
    most = int(re.search(r"at most (\d+) tokens", str(refused.value))[1])
    assert _core.Engine(model, context=most).context == most


def test_without_a_context_it_is_what_half_of_the_free_memory_holds(model, free):
    free(2 * 20 * block_bytes(model))
    for engine in (_core.Engine(model), _core.Session(model)):
        assert engine.context == 20 * 64 - 64
    free(2 * 10**9)
    assert _core.Engine(model).context == 8192


def test_memory_that_is_asked_for_is_given(model, free):
    free(1)
    engine = _core.Engine(model, context=CONTEXT, kv_memory=40 * block_bytes(model))
    assert engine.kv["blocks"] == 40


def test_what_is_reported_to_be_free_is_a_number(model, monkeypatch):
    monkeypatch.setenv("SWIFTK_DEBUG", "memory=lots")
    with pytest.raises(InvalidArgument, match=r"\[debug\] memory is 'lots', want the bytes that are free"):
        _core.Engine(model)


def test_idle_blocks_go_back_and_prefixes_stay_up_to_a_half(model):
    """Sixteen long texts fill most of the blocks. Afterwards those of the texts that ended last stay, up to a half."""
    engine, boxes = _core.Engine(model, context=CONTEXT, sequences=SEQUENCES, poison=True), {}
    engine.forget_texts()
    assert engine.kv["resident_bytes"] == 0, "also what was filled with NaN"
    total = engine.kv["blocks"]
    for seed in range(SEQUENCES):
        submit(engine, boxes, seed, 90 + seed, 10)
    last = submit(engine, boxes, 99, 700, 200)
    assert end_all(engine, boxes) * 64 > SEQUENCES * 90
    kv = engine.kv
    assert kv["used_blocks"] == 0 and 0 < kv["cached_blocks"] <= total // 2
    assert kv["resident_bytes"] == kv["cached_blocks"] * block_bytes(model)
    hits = engine.totals["prefix_hits"]
    tokens = [e.token for turn in boxes[last] for e in turn.tokens]
    again = submit(engine, boxes, 99, 700, 200)
    end_all(engine, boxes)
    assert [e.token for turn in boxes[again] for e in turn.tokens] == tokens
    assert engine.totals["prefix_hits"] == hits + 699, "the text that ended last is cached whole"

    engine.give_back()
    assert engine.kv["resident_bytes"] == engine.kv["cached_blocks"] == 0
    again = submit(engine, boxes, 99, 700, 200)
    end_all(engine, boxes)
    assert [e.token for turn in boxes[again] for e in turn.tokens] == tokens, "run again, to the same bits"
    assert engine.totals["prefix_hits"] == hits + 699


def test_what_a_text_holds_stays(model):
    """give_back() between two rounds of a text: its blocks are its own."""
    engine, boxes = _core.Engine(model, context=CONTEXT, sequences=2, poison=True), {}
    first = submit(engine, boxes, 1, 100, 40)
    end_all(engine, boxes)
    engine.give_back()
    second = submit(engine, boxes, 1, 100, 40)
    while not engine.idle():
        engine.step(boxes)
        engine.give_back()
    assert [e.token for t in boxes[second] for e in t.tokens] == [e.token for t in boxes[first] for e in t.tokens]


def test_the_system_has_the_memory(tiny_model):
    """What the process holds falls by nearly as much as is given back."""
    model = tiny_model("llama3", layers=2, max_position_embeddings=65536)
    engine, boxes = _core.Engine(model, context=20000, sequences=1), {}
    submit(engine, boxes, 1, 12000, 1)
    end_all(engine, boxes)
    full, bytes = resident(), engine.kv["resident_bytes"]
    engine.give_back()
    assert full - resident() > 0.8 * bytes > 1e6


def resident():
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()
