"""LayerSkip's KVQ cache: verifying takes the first steps of drafted rows from drafting, or runs them again. By bits."""

import threading
from pathlib import Path

import numpy as np
import pytest

import swiftk
from decode import Rule, decode, open_session
from generating import drafted, plain
from heads import make_eagle
from swiftk import _core
from swiftk.errors import Cancelled
from timed_rule import random_rule

LAYERS = 4
PROMPT = [5, 9, 2, 7, 7, 1, 30, 12, 4, 8, 21]
EXITS = [((), (), layer) for layer in range(1, LAYERS)]
LATER = [((2,), (), -1), ((), (1,), -1), ((3,), (1, 3), -1), ((), (), -1)]
BOTH = [((2,), (), 3), ((1,), (2,), 3), ((), (0,), 2), ((0,), (), 3), ((), (), 0)]
SHARED = {((2,), (), -1): 4, ((), (1,), -1): 3, ((3,), (1, 3), -1): 3, ((), (), -1): 8}  # by hand, of 8 steps
SHARED |= {((2,), (), 3): 4, ((1,), (2,), 3): 2, ((), (0,), 2): 1, ((0,), (), 3): 0, ((), (), 0): 0}
SHARED |= {skip: 2 * skip[2] for skip in EXITS}
SAMPLINGS = {"greedy": {}, "sampled": {"temperature": 0.9, "top_k": 40, "seed": 3}}
WIDE = {"confidence": 0.0, "max_draft": 5, "width": (3, 3, 3, 3)}


def bits(rows):
    return np.array(rows).tobytes()


@pytest.fixture
def model(tiny_model):
    return tiny_model("llama3", layers=LAYERS)


def opened(model, skip, kvq=True, **sampling):
    session = open_session(model, sampling=sampling)
    session.prefill(np.asarray(PROMPT, np.int32))
    session.set_skip(_core.DraftSpec(*skip))
    session.set_kvq(kvq)
    return session


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("skip", [*EXITS, *LATER, *BOTH], ids=str)
@pytest.mark.parametrize("wide", [True, False])
def test_trees_have_the_same_bits_reused_or_run_again(model, skip, sampling, wide):
    """All rows of a tree have them, siblings and the token after the last step among them."""
    rule = {**WIDE, "width": (3, 3, 3, 3) if wide else (1, 1, 1, 1)}
    on, off = opened(model, skip, **sampling), opened(model, skip, kvq=False, **sampling)
    for _ in range(4):
        nodes = on.draft(_core.TreeRule(**rule))
        assert off.draft(_core.TreeRule(**rule)) == nodes
        reported = [[e.token for e in session.verify()] for session in (on, off)]
        assert reported[0] == reported[1]
        assert list(on.tree_tokens) == list(off.tree_tokens)
        assert bits(on.logits) == bits(off.logits)
        reused = 5 if SHARED[skip] and model.device == "cpu" else 0
        assert on.last["reused_rows"] == reused
        assert on.last["reused_share"] == pytest.approx(reused * SHARED[skip] / (nodes * 2 * LAYERS))
        assert (off.last["reused_rows"], off.last["reused_share"]) == (0, 0)
        for session in (on, off):
            session.commit(len(reported[0]))


@pytest.mark.parametrize("skip", [EXITS[1], LATER[0]], ids=str)
def test_nodes_that_leave_a_beam_change_no_bit(model, skip):
    """A beam drops nodes that it has read: rows before the first of them are reused, and the others run again."""
    sessions, partly = [opened(model, skip, kvq) for kvq in (True, False)], 0
    for _ in range(20):
        rows = []
        for session in sessions:
            session.draft(_core.TreeRule(beam=6, max_draft=4, max_nodes=12))
            emitted = session.verify()
            rows.append((bits(session.logits), session.tree_tokens.tolist()))
            session.commit(len(emitted))
        on = sessions[0]
        assert rows[0] == rows[1] and on.drafted_from < on.last["draft_nodes"] == 19
        partly += 0 < on.last["reused_rows"] < on.drafted_from
    assert partly > 0 or model.device != "cpu"


@pytest.mark.parametrize("rule", [WIDE, {"beam": 4, "max_draft": 4, "max_nodes": 9}], ids=["chain", "beam"])
@pytest.mark.parametrize("skip", [EXITS[1], LATER[1], LATER[2]], ids=str)
def test_what_a_head_reads_is_kept_of_reused_rows(tiny_dir, tmp_path, skip, rule):
    """A head is loaded that reads layers before the exit, at it and after it: the same states, reused or run again."""
    folder = Path(tiny_dir("llama3", layers=LAYERS))
    head = make_eagle(tmp_path / "head", folder, taps=(0, 1, 3))
    sessions = [opened(_core.Model(str(folder), drafters=[str(head)], threads=1), skip, kvq) for kvq in (True, False)]
    reused = 0
    for turn in range(6):
        seen = []
        for session in sessions:
            session.set_skip(_core.DraftSpec(*skip) if turn != 4 else _core.DraftSpec([], [], -1, ["drafter"]))
            session.draft(_core.TreeRule(**rule))
            emitted = [e.token for e in session.verify()]
            seen.append((session.tree_tokens.tolist(), bits(session.logits), emitted))
            session.commit(len(emitted))
            seen[-1] += (bits(session.features),)
        assert seen[0] == seen[1]
        reused += sessions[0].last["reused_rows"]
    assert reused > 10 and sessions[1].last["reused_rows"] == 0


@pytest.mark.parametrize("isa", _core.isas())
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("layer", range(1, LAYERS))
def test_every_exit_has_the_bits_of_plain_decoding(tiny_model, isa, dtype, layer):
    model = tiny_model("llama3", layers=LAYERS, isa=isa, load_dtype=dtype)
    want = decode(open_session(model), PROMPT, 30, keep_logits=True)
    for kvq in (True, False):
        session = open_session(model)
        session.set_kvq(kvq)
        got = decode(session, PROMPT, 30, Rule(((), (), layer), 0.0, 5), keep_logits=True)
        assert got.tokens == want.tokens
        assert bits(got.logits[:30]) == bits(want.logits)


@pytest.mark.parametrize("seed", range(6))
def test_trees_by_time_have_the_same_bits(model, seed):
    rule = random_rule(seed, min_step_gain=0.05)
    sessions = [opened(model, EXITS[1], kvq) for kvq in (True, False)]
    for _ in range(3):
        rows = []
        for session in sessions:
            session.draft(_core.TreeRule(max_draft=6, **rule))
            emitted = session.verify()
            rows.append(bits(session.logits))
            session.commit(len(emitted))
        on, off = sessions
        assert list(on.tree_tokens) == list(off.tree_tokens)
        assert rows[0] == rows[1]
        if model.device == "cpu":
            assert on.last["reused_rows"] == on.drafted_from


def test_weights_are_saved_where_no_row_ran_the_steps(model):
    """A tree of nodes that were all drafted from: rows beyond them cost too much."""
    rule = {**random_rule(1, min_step_gain=0.0), "row_price": [100.0 * i for i in range(64)]}
    session = opened(model, EXITS[0])
    session.draft(_core.TreeRule(max_draft=4, **rule))
    session.verify()
    c = model.config
    attention = c["hidden_size"] * c["head_dim"] * (2 * c["num_heads"] + 2 * c["num_kv_heads"])
    layer = (attention + 3 * c["hidden_size"] * c["ffn"]) * (4 if model.dtype == "float32" else 2)
    assert len(session.tree_tokens) == session.drafted_from == 4
    assert session.last["saved_weight_bytes"] == (layer if model.device == "cpu" else 0)

    session.draft(_core.TreeRule(**WIDE))
    session.verify()
    assert session.last["saved_weight_bytes"] == 0  # siblings ran them


def test_verifying_again_starts_anew(model):
    """The rows that drafting left are used up by the first pass, also by one that was cancelled half-way."""
    want = opened(model, EXITS[1], kvq=False)
    want.draft(_core.TreeRule(**WIDE))
    want.verify()
    session = opened(model, EXITS[1])
    session.draft(_core.TreeRule(**WIDE))
    for _ in range(3):
        session.verify()
        assert bits(session.logits) == bits(want.logits)
    assert session.last["reused_rows"] == 0


def test_a_cancelled_pass_leaves_no_half_done_row(model):
    want = opened(model, EXITS[1], kvq=False)
    want.draft(_core.TreeRule(**WIDE))
    want.verify()
    session = opened(model, EXITS[1])
    stop, cancelled = threading.Event(), 0

    def cancel():
        while not stop.is_set():
            session.cancel()
            stop.wait(2e-5)

    while cancelled <= 10:  # where in a pass is chance
        session.draft(_core.TreeRule(**WIDE))
        stop.clear()
        thread, done = threading.Thread(target=cancel), False
        thread.start()
        for _ in range(10):
            try:
                session.verify()
                done = True
                break
            except Cancelled:
                cancelled += 1
        stop.set()
        thread.join()
        session.clear_cancel()
        if not done:
            session.verify()
        assert bits(session.logits) == bits(want.logits)


def test_switching_between_drafting_and_verifying_is_an_error(model):
    """The tree is forgotten, as when the skip set changes: its rows are not what verification would take them for."""
    session = opened(model, EXITS[0])
    session.draft(_core.TreeRule(**WIDE))
    session.set_kvq(False)
    with pytest.raises(swiftk.errors.InvalidArgument, match="there is no tree"):
        session.verify()


@pytest.mark.parametrize("sampler", [{"temperature": 0}, {"temperature": 0.8, "seed": 3}], ids=str)
@pytest.mark.parametrize("skip", [{"assistant_early_exit": 2}, {"skip": [2, 3]}, {"optimizer": "swift"}], ids=str)
def test_generate_with_and_without(tiny_dir, sampler, skip):
    lm = swiftk.load(tiny_dir("llama3", layers=LAYERS))
    want = plain(lm, **sampler)
    on, off = (drafted(lm, kvq=kvq, **skip, **sampler) for kvq in (True, False))
    assert on.tokens == off.tokens == want.tokens
    assert (off.stats.num_reused_rows, off.stats.reused_step_share, off.stats.saved_weight_bytes) == (0, 0, 0)
    if lm.model.device == "cpu":
        assert on.stats.num_reused_rows == on.stats.num_draft_tokens  # a chain: a row each step
        assert 0 < on.stats.reused_step_share < 1
    assert (want.stats.num_reused_rows, want.stats.reused_step_share) == (0, 0)


def test_kvq_is_true_or_false(tiny_dir):
    with pytest.raises(TypeError, match="kvq=1, want True or False"):
        swiftk.load(tiny_dir("llama3", layers=LAYERS)).generate("a", kvq=1)


def test_rows_of_shared_steps_take_memory_once_a_draft_shares_any(model):
    """A plan that shares no step with the target leaves no rows behind."""
    apart, along = (opened(model, skip) for skip in (((0,), (), 3), ((), (), 2)))
    for session in (apart, along):
        session.draft(_core.TreeRule(**WIDE))
    if model.device == "cpu":
        assert along.workspace_bytes - apart.workspace_bytes == 4 * 64 * model.config["hidden_size"]
    else:
        assert along.workspace_bytes == apart.workspace_bytes
