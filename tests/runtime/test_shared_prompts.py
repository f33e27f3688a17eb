"""Prompts share the rows of a pass: by rounds, exact, never by time."""

import ctypes
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decode import requested
from source_rules import all_of
from swiftk import _core

CONTEXT = 1024
BESIDE, PASS = 128, 512  # rows of prompts where another text gets its next token from the pass, and otherwise


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny_model("llama3", layers=2, max_position_embeddings=8192)


def on_cpu():
    return os.environ["SWIFTK_DEVICE"] == "cpu"


def tokens_of(seed, n, vocab=256):
    return np.random.default_rng(seed).integers(0, vocab, n).astype(np.int32)


class Even:
    """A constraint that Python holds: even tokens alone, or odd ones."""

    def __init__(self, odd):
        self._bits = 0xAAAAAAAA if odd else 0x55555555

    def allow(self, path, address, size):
        words = (ctypes.c_uint32 * (size // 4)).from_address(address)
        for i in range(len(words)):
            words[i] = self._bits
        return True

    def forced(self):
        return []

    def took(self, tokens):
        pass


def alone(model, prompt, new, **options):
    """What an engine that has nothing else to do makes of the request: its tokens, and those reported of the prompt."""
    engine, boxes = _core.Engine(model, context=CONTEXT, sequences=1, poison=True), {}
    received = receive(
        engine, boxes, engine.submit(boxes, _core.Request(prompt=prompt, max_new_tokens=new, drafting="off", **options))
    )
    return received["tokens"], received["prompt"]


def receive(engine, boxes, id):
    while not boxes[id] or not boxes[id][-1].finish:
        engine.step(boxes)
    return reported(boxes[id])


def reported(turns):
    return {
        "tokens": [e.token for turn in turns for e in turn.tokens],
        "prompt": [(e.token, e.logprob) for turn in turns for e in turn.prompt],
        "finish": turns[-1].finish if turns else "",
    }


def test_a_short_prompt_runs_in_the_next_pass_beside_a_long_one(model):
    engine, boxes = _core.Engine(model, context=7000, sequences=4), {}
    long = engine.submit(boxes, _core.Request(prompt=tokens_of(1, 6000), max_new_tokens=1, drafting="off"))
    engine.step(boxes)
    assert engine.last["prompt_rows"] == PASS, "alone it has passes of its own"
    engine.step(boxes)
    short = engine.submit(boxes, _core.Request(prompt=tokens_of(2, 35), max_new_tokens=1, drafting="off"))
    engine.step(boxes)
    assert [len(turn.tokens) for turn in boxes[short]] == [1] and not boxes[long], "of the next pass"
    assert (engine.last["prompts"], engine.last["prompt_rows"]) == (2, BESIDE)
    cached = 2 * PASS + BESIDE - 35
    while not boxes[long]:
        engine.step(boxes)
        left, most = 6000 - cached, max(BESIDE, min(PASS, 2**20 // cached))
        assert engine.last["prompt_rows"] == min(left, most if on_cpu() else PASS)
        cached += engine.last["prompt_rows"]
    assert cached == 6000


def test_short_prompts_starve_no_long_one(model):
    """The oldest prompt has half of the rows, however many shorter ones come."""
    engine, boxes = _core.Engine(model, context=2000, sequences=8), {}
    long = engine.submit(boxes, _core.Request(prompt=tokens_of(1, 1000), max_new_tokens=1, drafting="off"))
    rounds = 0
    while not boxes[long]:
        for n in range(3):
            engine.submit(boxes, _core.Request(prompt=tokens_of((rounds, n), 50), max_new_tokens=1, drafting="off"))
        engine.step(boxes)
        assert engine.last["prompt_rows"] == BESIDE
        rounds += 1
    assert rounds == -(-1000 // (BESIDE // 2))


def test_the_shortest_of_those_that_wait_is_next(model):
    engine, boxes = _core.Engine(model, context=2000, sequences=8), {}
    lengths = [900, 700, 300, 150, 500]
    ids = [
        engine.submit(boxes, _core.Request(prompt=tokens_of(n, n), max_new_tokens=1, drafting="off")) for n in lengths
    ]
    ends, rounds = {}, 0
    while len(ends) < len(ids):
        engine.step(boxes)
        rounds += 1
        for n, id in zip(lengths, ids):
            if boxes[id]:
                ends.setdefault(n, rounds)
    # 256 rows of a pass for the oldest, 256 for the shortest of the others; in its last one it leaves 124 to these.
    assert ends == {150: 1, 300: 2, 500: 4, 900: 4, 700: 5}
    assert rounds == -(-sum(lengths) // PASS), "no row is lost"


def test_prompts_that_begin_alike_run_their_prefix_once(model):
    """They wait for who runs it, the short one, too; one that has nothing in common waits for none."""
    engine, boxes, rows = _core.Engine(model, context=2000, sequences=8, poison=True), {}, 0
    prefix = tokens_of(1, 333)
    ends = [tokens_of(2, 600), tokens_of(3, 20), tokens_of(4, 37)]
    prompts = [np.concatenate([prefix, end]) for end in ends] + [tokens_of(5, 41)]
    ids = [engine.submit(boxes, _core.Request(prompt=prompt, max_new_tokens=3, drafting="off")) for prompt in prompts]
    engine.step(boxes)
    assert boxes[ids[3]], "nothing in common"
    rows += engine.last["prompt_rows"]
    while not engine.idle():
        engine.step(boxes)
        rows += engine.last["prompt_rows"]
    in_blocks = 333 % 64  # of the last block of the prefix, copied where it is full by then
    assert 333 + 600 + 20 + 37 + 41 <= rows <= 333 + 600 + 20 + 37 + 41 + 2 * in_blocks
    for prompt, id in zip(prompts, ids):
        assert reported(boxes[id])["tokens"] == alone(model, prompt, 3)[0]


def requests():
    prompt = st.builds(
        lambda common, n, own, seed: np.concatenate([tokens_of(common, 700)[:n], tokens_of(seed, own)]),
        st.integers(0, 1), st.sampled_from([0, 0, 63, 64, 129, 400]), st.sampled_from([1, 2, 35, 127, 128, 129, 250]),
        st.integers(2, 10**6),
    )  # fmt: skip
    options = st.fixed_dictionaries(
        {
            "prompt_logprobs": st.sampled_from([-1, -1, 0, 2]),
            "temperature": st.sampled_from([0.0, 0.8]),
            "seed": st.integers(0, 99),
            "odd": st.sampled_from([None, None, False, True]),
            "drafting": st.sampled_from(["off", "planned"]),
        }
    )
    return st.tuples(prompt, st.integers(1, 20), options)


@given(
    texts=st.lists(requests(), min_size=2, max_size=7),
    blocks=st.sampled_from([18, 21, 200]),
    data=st.data(),
)
def test_texts_are_the_same_whoever_shares_their_passes(model, texts, blocks, data):
    """With prefixes in common, prompts that are given, grammars, cancelled prompts, and too little memory for all."""
    arrives = data.draw(st.lists(st.integers(0, 6), min_size=len(texts), max_size=len(texts)))
    cancels = data.draw(st.dictionaries(st.integers(0, len(texts) - 1), st.integers(0, 8), max_size=2))
    block = 64 * 2 * model.config["num_kv_heads"] * model.config["head_dim"] * 2 * model.config["num_layers"]
    engine = _core.Engine(model, context=CONTEXT, sequences=5, kv_memory=blocks * block, poison=True)
    assert engine.kv["blocks"] == blocks
    boxes, ids, rounds = {}, {}, 0

    def options_of(options):
        odd = options["odd"]
        constraint = None if odd is None else Even(odd)
        given = {k: v for k, v in options.items() if k not in ("odd", "drafting")}
        return requested({**given, "constraint": constraint})

    while len(ids) < len(texts) or not engine.idle():
        for i, (prompt, new, options) in enumerate(texts):
            if arrives[i] == rounds:
                mode = options["drafting"]
                ids[i] = engine.submit(
                    boxes, _core.Request(prompt=prompt, max_new_tokens=new, drafting=mode, **options_of(options))
                )
            if i in ids and cancels.get(i) == rounds - arrives[i]:
                engine.cancel(ids[i])
        engine.step(boxes)
        rounds += 1
        assert rounds < 2000
    for i, (prompt, new, options) in enumerate(texts):
        tokens, prompt_reported = alone(model, prompt, new, **options_of(options))
        found = reported(boxes[ids[i]])
        if found["finish"] == "cancelled":
            assert i in cancels and found["tokens"] == tokens[: len(found["tokens"])]
        else:
            assert (found["tokens"], found["prompt"]) == (tokens, prompt_reported)
    assert engine.kv["used_blocks"] == 0, "nothing is held for texts that have ended"


def test_time_in_the_queue_is_of_the_engine_s_clock(model, monkeypatch):
    """Two lanes: the third text waits until one of the first has ended."""
    monkeypatch.setenv("SWIFTK_DEBUG", "clock=row:0")
    engine, boxes = _core.Engine(model, context=256, sequences=2), {}
    for n in (3, 6, 2):
        engine.submit(boxes, _core.Request(prompt=tokens_of(n, 9), max_new_tokens=n, drafting="off"))
    while not engine.idle():
        engine.step(boxes)
    assert [box[0].queued for box in boxes.values()] == [0, 0, 3], "a round takes a second"
    assert engine.totals["queued_seconds"] == 3


def test_what_is_counted(model):
    engine, boxes = _core.Engine(model, context=256, sequences=2), {}
    prompt = tokens_of(1, 150)
    receive(engine, boxes, engine.submit(boxes, _core.Request(prompt=prompt, max_new_tokens=2, drafting="off")))
    receive(
        engine,
        boxes,
        engine.submit(
            boxes,
            _core.Request(prompt=np.append(prompt, 3), max_new_tokens=2, sampling=_core.Sampling(stop_ids=range(256))),
        ),
    )
    receive(engine, boxes, engine.submit(boxes, _core.Request(prompt=prompt, max_new_tokens=1, prompt_logprobs=0)))
    gone = engine.submit(boxes, _core.Request(prompt=prompt, max_new_tokens=50))
    engine.cancel(gone)
    engine.step(boxes)
    ends = {"submitted": 4, "full": 2, "stopped": 1, "cancelled": 1, "failed": 0, "preempted": 0}
    assert {name: engine.totals[name] for name in ends} == ends
    assert (engine.totals["prefix_queries"], engine.totals["prefix_hits"]) == (150 + 151, 150)


@pytest.mark.parametrize("sources", [[2], [3], [4], [2, 3]])
def test_no_text_depends_on_those_before_it(model, sources):
    """Under rejection, too, where the tokens depend on what is proposed: by a rule, in the same rounds."""
    rule = _core.TreeRule(max_draft=0, **all_of(*sources))
    options = {"drafting": "ruled", "rule": rule, "always": True, "plans": "none", "sources": sources}
    asked = requested({"temperature": 0.9, "seed": 5, "max_new_tokens": 60, "acceptance": "rejection", **options})
    found = []
    for before in (None, None, 7, 8):
        engine, boxes = _core.Engine(model, context=512, sequences=1, poison=True), {}
        if before is not None:
            receive(
                engine,
                boxes,
                engine.submit(boxes, _core.Request(prompt=tokens_of(before, 60), **{**asked, "recall": True})),
            )
        found.append(
            receive(
                engine, boxes, engine.submit(boxes, _core.Request(prompt=tokens_of(1, 60), **{**asked, "recall": True}))
            )["tokens"]
        )
    assert found[0] == found[1] == found[2] == found[3]
