"""The promise: speculative output equals plain decoding, token for token and bit for bit, whatever is drafted."""

import os
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decode import Rule, decode, open_session, path_rows
from swiftk import _core
from swiftk.errors import Cancelled

FAMILIES = ["llama3", "qwen3", "qwen2", "mistral"]
if os.environ["SWIFTK_DEVICE"] == "cpu":  # which alone computes the others
    FAMILIES += ["ministral3", "smollm3", "granite", "gemma2", "gemma3", "olmo2", "olmo3", "exaone4", "hunyuan"]
    FAMILIES += ["ernie4.5", "phi4-mini"]
LAYERS = 4
PROMPT = [5, 9, 2, 7, 7, 1, 30, 12, 4, 8, 21]
UNIFORM = ((1,), (1, 2), -1)

layer_sets = st.sets(st.integers(0, LAYERS - 1)).map(sorted)
skips = st.tuples(layer_sets, layer_sets, st.sampled_from([-1, -1, 0, 1, 2, 3, 4]))
rules = st.builds(
    Rule,
    skip=skips,
    confidence=st.sampled_from([0.0, 0.02, 0.1, 0.8, 1.0]),
    max_draft=st.integers(0, 25),
    max_nodes=st.integers(1, 64),
    tier=st.sampled_from([(0.5, 0.8, 0.95), (0.01, 0.02, 0.03)]),
    width=st.tuples(*[st.integers(1, 10)] * 4),
)
TOUCHES = {
    "frequency_penalty": st.sampled_from([-1.5, 0.4, 2.0]),
    "presence_penalty": st.sampled_from([-0.5, 1.0]),
    "logit_bias": st.dictionaries(st.integers(0, 60), st.sampled_from([-100.0, -1.0, 0.5, 3.0, 100.0]), max_size=6),
    "min_tokens": st.integers(0, 30),
    "stop_ids": st.lists(st.integers(0, 60), max_size=30),
}
samplings = st.one_of(
    st.just({}),
    st.just({"repetition_penalty": 1.3}),
    st.fixed_dictionaries(
        {
            "temperature": st.sampled_from([0.3, 0.6, 1.0, 2.0]),
            "top_k": st.sampled_from([0, 1, 5, 50]),
            "top_p": st.sampled_from([1.0, 0.9, 0.3]),
            "min_p": st.sampled_from([0.0, 0.05]),
            "typical_p": st.sampled_from([1.0, 0.6]),
            "repetition_penalty": st.sampled_from([1.0, 1.2, 0.8]),
            "seed": st.integers(0, 2**64 - 1),
        },
        optional=TOUCHES,
    ),
    st.fixed_dictionaries({}, optional=TOUCHES),
)


dtypes = st.sampled_from(["auto", "int8", "int4"])
kv_dtypes = st.sampled_from(["auto", "int8"])


@given(
    family=st.sampled_from(FAMILIES),
    dtype=dtypes,
    kv_dtype=kv_dtypes,
    rule=rules,
    sampling=samplings,
    n=st.integers(1, 40),
)
def test_any_speculation_equals_plain(tiny_model, family, dtype, kv_dtype, rule, sampling, n):
    on_cpu = os.environ["SWIFTK_DEVICE"] == "cpu"  # which alone rounds weights, keys and values
    rounded = {"load_dtype": dtype, "kv_dtype": kv_dtype} if on_cpu else {}
    model = tiny_model(family, layers=LAYERS, **rounded)
    plain = decode(open_session(model, sampling=sampling), PROMPT, n)
    fast = decode(open_session(model, sampling=sampling), PROMPT, n, rule)
    assert fast.tokens == plain.tokens


@pytest.mark.parametrize("isa", _core.isas())
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_logits_of_every_accepted_node_are_the_bits_of_plain_decoding(tiny_model, isa, dtype):
    model = tiny_model("llama3", layers=LAYERS, isa=isa, load_dtype=dtype)
    plain = decode(open_session(model), PROMPT, 40, keep_logits=True)
    rule = Rule(skip=((2,), (3,), -1), confidence=0.0, max_draft=6, width=(4, 4, 4, 4))
    fast = decode(open_session(model), PROMPT, 40, rule, keep_logits=True)
    assert fast.tokens == plain.tokens
    assert fast.accepted > 0, "nothing was accepted: the test would say nothing"
    assert np.array(fast.logits[:40]).tobytes() == np.array(plain.logits).tobytes()


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
def test_thread_count_changes_no_bit(tiny_model, threads):
    model = tiny_model("llama3", layers=LAYERS)
    reference = decode(open_session(model, threads=1), PROMPT, 24, keep_logits=True)
    other = decode(open_session(model, threads=threads), PROMPT, 24, Rule(UNIFORM, 0.0, 5), keep_logits=True)
    assert np.array(other.logits[:24]).tobytes() == np.array(reference.logits).tobytes()


@given(data=st.data(), sampling=samplings)
def test_given_trees_of_any_shape(tiny_model, data, sampling):
    """The true continuation hidden in a random tree is found as far as it goes; the rest is the bonus token."""
    model = tiny_model("llama3", layers=LAYERS)
    truth = decode(open_session(model, sampling=sampling), PROMPT, 12).tokens
    session = open_session(model, sampling=sampling)
    session.prefill(np.asarray(PROMPT, np.int32))
    size = data.draw(st.integers(0, 63))
    tokens, parents, depth = [], [], [0]
    for i in range(size):
        parent = data.draw(st.integers(max(0, i - 6), i))
        right = truth[depth[parent] + 1] if depth[parent] + 1 < len(truth) else 3
        tokens.append(data.draw(st.one_of(st.just(right), st.integers(0, 40))))
        parents.append(parent)
        depth.append(depth[parent] + 1)
    session.set_tree(np.asarray(tokens, np.int32), np.asarray(parents, np.int32))
    emitted = [e.token for e in session.verify()]
    assert emitted == truth[1 : 1 + len(emitted)] or len(emitted) >= len(truth)
    node, expect = 0, 1
    while any(parents[i] == node and tokens[i] == truth[expect] for i in range(size)):
        node = 1 + next(i for i in range(size) if parents[i] == node and tokens[i] == truth[expect])
        expect += 1
        if expect == len(truth):
            return
    assert len(emitted) == expect


@pytest.mark.parametrize("cut", range(8))
def test_a_block_may_be_cut_anywhere(tiny_model, cut):
    """A stop condition takes fewer tokens than were accepted; text, cache and what follows are plain decoding's."""
    model = tiny_model("llama3", layers=LAYERS)
    truth = decode(open_session(model), PROMPT, 24).tokens
    session = open_session(model)
    got = [session.prefill(np.asarray(PROMPT, np.int32)).token]
    chain = truth[1:8]
    session.set_tree(np.asarray(chain, np.int32), np.arange(len(chain), dtype=np.int32))
    emitted = session.verify()
    assert [e.token for e in emitted] == truth[1:9]
    session.commit(cut)
    got += truth[1 : 1 + cut]
    assert list(session.history) == PROMPT + got
    while len(got) < 24:
        session.draft(_core.TreeRule(max_draft=0))
        got += [e.token for e in session.verify()]
        session.commit(1)
    assert got == truth


def test_rejected_siblings_leave_nothing_behind(tiny_model):
    """Accepting an off-spine branch moves its rows; the logits after it are those of plain decoding."""
    model = tiny_model("llama3", layers=LAYERS)
    plain = decode(open_session(model), PROMPT, 12, keep_logits=True)
    truth = plain.tokens
    session = open_session(model)
    session.prefill(np.asarray(PROMPT, np.int32))
    wrong = [(t + 1) % 40 for t in truth]
    # root -> wrong chain of 3 (slots 1..3), then the right chain of 4 after it (slots 4..7)
    tokens = wrong[1:4] + truth[1:5]
    parents = [0, 1, 2, 0, 4, 5, 6]
    session.set_tree(np.asarray(tokens, np.int32), np.asarray(parents, np.int32))
    emitted = session.verify()
    rows = path_rows(session, emitted)
    assert [e.token for e in emitted] == truth[1:6]
    session.commit(len(emitted))
    session.draft(_core.TreeRule(max_draft=0))
    rows += path_rows(session, session.verify())
    assert np.array(rows).tobytes() == np.array(plain.logits[1:7]).tobytes()


@pytest.mark.parametrize("cut", [1, 3, 7, 10])
def test_a_reused_prefix_has_the_bits_of_a_fresh_prefill(tiny_model, cut):
    model = tiny_model("llama3", layers=LAYERS)
    other = PROMPT[:cut] + [33, 3, 18]
    fresh = decode(open_session(model), other, 8, keep_logits=True)
    session = open_session(model)
    decode(session, PROMPT, 20, Rule(UNIFORM, 0.0, 4))
    assert session.reuse(np.asarray(other, np.int32)) == cut
    again = decode(session, other, 8, keep_logits=True)
    assert again.tokens == fresh.tokens
    assert np.array(again.logits).tobytes() == np.array(fresh.logits).tobytes()


def test_prefill_in_pieces_has_the_bits_of_one_pass(tiny_model):
    model = tiny_model("llama3", layers=LAYERS)
    tokens = np.random.default_rng(1).integers(0, 40, 200).astype(np.int32)
    whole = open_session(model)
    whole.prefill(tokens)
    pieces = open_session(model)
    pieces.reuse(tokens)
    for part in np.split(tokens, [1, 2, 50, 51, 117]):
        pieces.extend(part)
    pieces.sample()
    assert whole.logits.tobytes() == pieces.logits.tobytes()


def test_context_end(tiny_model):
    """The last token that fits is emitted, whatever was drafted; then the text is full."""
    model = tiny_model("llama3", layers=LAYERS)
    truth = decode(open_session(model), PROMPT, 21).tokens
    session = open_session(model, context=len(PROMPT) + 21)
    got = [session.prefill(np.asarray(PROMPT, np.int32)).token]
    session.set_skip(_core.DraftSpec(*UNIFORM))
    while len(session.history) < session.context:
        session.draft(_core.TreeRule(confidence=0.0))
        emitted = session.verify()
        session.commit(len(emitted))
        got += [e.token for e in emitted]
    assert got == truth
    session.draft()
    with pytest.raises(ValueError, match="fills the context"):
        session.verify()


def test_cancel_from_another_thread(tiny_model):
    model = tiny_model("llama3", layers=LAYERS)
    truth = decode(open_session(model), PROMPT, 16).tokens
    session = open_session(model)
    got = decode(session, PROMPT, 4).tokens
    thread = threading.Thread(target=session.cancel)
    thread.start()
    thread.join()
    session.draft(_core.TreeRule(max_draft=0))
    with pytest.raises(Cancelled):
        session.verify()
    while len(got) < 16:
        session.draft(_core.TreeRule(max_draft=0))
        got += [e.token for e in session.verify()]
        session.commit(1)
    assert got == truth


def test_two_models_in_one_process(tiny_model):
    a, b = tiny_model("llama3", layers=LAYERS), tiny_model("qwen3", layers=LAYERS)
    alone = [decode(open_session(m), PROMPT, 30).tokens for m in (a, b)]
    together = [None, None]

    def work(i, model):
        together[i] = decode(open_session(model), PROMPT, 30, Rule(UNIFORM, 0.0, 4)).tokens

    threads = [threading.Thread(target=work, args=(i, m)) for i, m in enumerate((a, b))]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert together == alone
