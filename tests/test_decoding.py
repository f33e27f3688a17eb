"""The decoding loop on a scripted session: stop conditions at every offset of a block, nothing emitted beyond."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_session import FakeSession
from swiftk.cost import CostModel, Pacer
from swiftk.decoding import Parts, decode
from swiftk.detokenizer import Detokenizer
from swiftk.gate import DraftRule, FixedGate
from swiftk.optimizer import Optimizer, Way
from swiftk.skip import SkipSet
from swiftk.stats import Recorder
from swiftk.stops import Stopper

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SCRIPT = list(range(26)) * 8
PROMPT = [1, 2, 3, 4, 5, 6]


def spell(ids):
    return "".join(LETTERS[i % 26] for i in ids)


def one_way(max_draft):
    return Optimizer([Way(SkipSet(), CostModel(), FixedGate(DraftRule(max_draft=max_draft)))])


def run(session, budget=20, stop_ids=(), strings=(), mode="always", prompt=PROMPT, max_draft=4):
    parts = Parts(
        Stopper(budget, stop_ids, strings, Detokenizer(spell)),
        one_way(max_draft),
        Pacer(CostModel(), mode),
        Recorder(),
    )
    return list(decode(session, prompt, parts)), parts


@pytest.mark.parametrize("budget", range(1, 14))
def test_budget_ends_at_every_offset_of_a_block(budget):
    session = FakeSession(SCRIPT, right=(3, 0, 4))
    events, parts = run(session, budget)
    assert [e.token for e in events] == SCRIPT[:budget]
    assert parts.stopper.finish == "length"
    assert session.history == PROMPT + SCRIPT[:budget]
    assert "".join(e.text for e in events) == spell(SCRIPT[:budget])


@pytest.mark.parametrize("end", range(0, 14))
@pytest.mark.parametrize("right", [(0,), (1,), (4,), (3, 0, 2)])
def test_stop_id_ends_at_every_offset_of_a_block(end, right):
    session = FakeSession(SCRIPT, right)
    events, parts = run(session, budget=100, stop_ids=[end])
    assert [e.token for e in events] == SCRIPT[: end + 1]
    assert parts.stopper.finish == "stop"
    assert "".join(e.text for e in events) == spell(SCRIPT[:end])
    assert session.history == PROMPT + SCRIPT[: end + 1]
    assert parts.recorder.generated == end + 1


@pytest.mark.parametrize("at", range(0, 12))
@pytest.mark.parametrize("length", [1, 2, 5])
def test_stop_string_ends_with_the_token_that_completes_it(at, length):
    session = FakeSession(SCRIPT, right=(4, 2))
    events, parts = run(session, budget=100, strings=[LETTERS[at : at + length], "zzz"])
    assert [e.token for e in events] == SCRIPT[: at + length]
    assert "".join(e.text for e in events) == LETTERS[:at]
    assert parts.stopper.finish == "stop"


@settings(max_examples=80, deadline=None)
@given(
    st.integers(1, 40),
    st.lists(st.integers(0, 6), min_size=1, max_size=6),
    st.sampled_from(["always", True, False]),
    st.integers(1, 8),
    st.sets(st.integers(0, 25), max_size=2),
    st.lists(st.text(LETTERS[:6], min_size=1, max_size=3), max_size=2),
)
def test_drafts_change_nothing(budget, right, mode, max_draft, stop_ids, strings):
    plain, plain_parts = run(FakeSession(SCRIPT), budget, stop_ids, strings, mode=False)
    events, parts = run(FakeSession(SCRIPT, right), budget, stop_ids, strings, mode, max_draft=max_draft)
    assert [(e.token, e.text) for e in events] == [(e.token, e.text) for e in plain]
    assert parts.stopper.finish == plain_parts.stopper.finish
    assert parts.recorder.generated == len(events)
    assert sum(parts.recorder.accepted) == sum(e.drafted for e in events)


def test_never_drafts_further_than_the_text_may_go():
    session = FakeSession(SCRIPT, right=(9,))
    run(session, budget=7, max_draft=25)
    assert session.calls[0] == 5  # six more tokens: five drafts and the bonus


def test_prompt_goes_in_chunks_and_a_known_prefix_is_kept():
    session = FakeSession(SCRIPT)
    run(session, budget=3)
    assert session.chunks == [4, 2]
    session.chunks.clear()
    _, parts = run(session, budget=3, prompt=PROMPT + SCRIPT[:2] + [9])
    assert session.chunks == [1]
    assert parts.recorder.cached == 8


def test_closing_early_leaves_the_session_ready():
    session = FakeSession(SCRIPT, right=(4,))
    parts = Parts(Stopper(50, ()), one_way(4), Pacer(CostModel(), "always"), Recorder())
    stream = decode(session, PROMPT, parts)
    taken = [next(stream).token for _ in range(3)]
    stream.close()
    assert taken == SCRIPT[:3]
    events, _ = run(session, budget=9)
    assert [e.token for e in events] == SCRIPT[:9]


def test_an_interrupt_between_draft_and_commit_is_survived():
    session = FakeSession(SCRIPT, right=(4,))

    def interrupted():
        raise KeyboardInterrupt

    verify, session.verify = session.verify, interrupted
    with pytest.raises(KeyboardInterrupt):
        run(session)
    session.verify = verify
    events, _ = run(session, budget=9)
    assert [e.token for e in events] == SCRIPT[:9]
