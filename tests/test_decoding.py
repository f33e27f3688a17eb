"""The decoding loop on a scripted session: stop conditions at every offset of a block, nothing emitted beyond."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_session import CONFIDENCE, FakeSession
from swiftk import decoding
from swiftk.cost import CostModel, Mean, RowPrices
from swiftk.decoding import Parts, SessionScorer, decode
from swiftk.detokenizer import Detokenizer
from swiftk.gate import DraftRule, FixedGate, TimedGate
from swiftk.optimizers import auto
from swiftk.optimizers.base import Optimizer
from swiftk.pacing import Pacer
from swiftk.skip import SkipSet
from swiftk.stops import Stopper
from swiftk.sublayers import SublayerPrices
from swiftk.transcript import Transcript
from swiftk.way import Way

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SCRIPT = list(range(26)) * 8
PROMPT = [1, 2, 3, 4, 5, 6]


def spell(ids):
    return "".join(LETTERS[i % 26] for i in ids)


def one_way(max_draft):
    return Optimizer(Way(SkipSet(), CostModel(), FixedGate(DraftRule(max_draft=max_draft))))


def run(session, budget=20, stop_ids=(), strings=(), mode="always", prompt=PROMPT, max_draft=4, optimizer=None):
    optimizer = optimizer or one_way(max_draft)
    parts = Parts(
        Transcript(Stopper(budget, stop_ids, strings, Detokenizer(spell))),
        optimizer,
        Pacer(optimizer.current.costs, mode),
        SessionScorer(session),
    )
    return list(decode(session, prompt, parts)), parts


@pytest.mark.parametrize("budget", range(1, 14))
def test_budget_ends_at_every_offset_of_a_block(budget):
    session = FakeSession(SCRIPT, right=(3, 0, 4))
    events, parts = run(session, budget)
    assert [e.token for e in events] == SCRIPT[:budget]
    assert parts.text.stopper.finish == "length"
    assert session.history == PROMPT + SCRIPT[:budget]
    assert "".join(e.text for e in events) == spell(SCRIPT[:budget])


@pytest.mark.parametrize("end", range(0, 14))
@pytest.mark.parametrize("right", [(0,), (1,), (4,), (3, 0, 2)])
def test_stop_id_ends_at_every_offset_of_a_block(end, right):
    session = FakeSession(SCRIPT, right)
    events, parts = run(session, budget=100, stop_ids=[end])
    assert [e.token for e in events] == SCRIPT[: end + 1]
    assert parts.text.stopper.finish == "stop"
    assert "".join(e.text for e in events) == spell(SCRIPT[:end])
    assert session.history == PROMPT + SCRIPT[: end + 1]
    assert parts.text.recorder.generated == end + 1


@pytest.mark.parametrize("at", range(0, 12))
@pytest.mark.parametrize("length", [1, 2, 5])
def test_stop_string_ends_with_the_token_that_completes_it(at, length):
    session = FakeSession(SCRIPT, right=(4, 2))
    events, parts = run(session, budget=100, strings=[LETTERS[at : at + length], "zzz"])
    assert [e.token for e in events] == SCRIPT[: at + length]
    assert "".join(e.text for e in events) == LETTERS[:at]
    assert parts.text.stopper.finish == "stop"


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
    assert parts.text.stopper.finish == plain_parts.text.stopper.finish
    assert parts.text.recorder.generated == len(events)
    assert sum(parts.text.recorder.accepted_by.values()) == sum(e.drafted for e in events)


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
    assert parts.text.recorder.cached == 8


def test_closing_early_leaves_the_session_ready():
    session = FakeSession(SCRIPT, right=(4,))
    parts = Parts(Transcript(Stopper(50, ())), one_way(4), Pacer(CostModel(), "always"), SessionScorer(session))
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


class HearingGate(FixedGate):
    """Notes what it is told."""

    def __init__(self, rule):
        super().__init__(rule)
        self.heard = []

    def observe(self, outcomes, drafted):
        self.heard.append((list(outcomes), drafted))


def test_a_gate_is_told_the_outcomes_of_whole_rounds():
    session = FakeSession(SCRIPT, right=(3, 0, 4))
    gate = HearingGate(DraftRule(max_draft=4))
    run(session, budget=1 + 4 + 1 + 2, optimizer=Optimizer(Way(SkipSet(), CostModel(), gate)))
    right, wrong = (CONFIDENCE, 0), (CONFIDENCE, -1)
    assert gate.heard == [([right] * 3 + [wrong], 4), ([wrong], 1)]  # the third round is cut: it tells nothing


def learning(layers=8):
    """The default optimizer, wired as generate() does it."""
    plain, rows = Mean(), RowPrices()
    prices = SublayerPrices(
        {"num_layers": layers, "hidden_size": 8, "num_heads": 2, "num_kv_heads": 2, "head_dim": 4, "ffn": 24}
        | {"vocab_size": 32}
    )
    return auto.Auto(
        layers, lambda skip: Way(skip, CostModel(prices.price(skip), plain, rows=rows), TimedGate()), prices
    )


def test_scoring_between_rounds_changes_nothing_and_keeps_to_its_share(monkeypatch):
    session = FakeSession(SCRIPT * 8, right=(3, 0, 4))
    for module in (decoding, auto):
        monkeypatch.setattr(module, "perf_counter", lambda: session.clock)
    events, parts = run(session, budget=1500, mode=True, optimizer=learning())
    assert [e.token for e in events] == (SCRIPT * 8)[:1500]
    assert len({one[:3] for one in session.scores}) > 3
    recorder = parts.text.recorder
    assert recorder.optimizer == pytest.approx(session.scoring * len(session.scores))
    assert recorder.optimizer <= 0.015 * recorder.decode


def test_plain_decoding_scores_nothing():
    session = FakeSession(SCRIPT)
    run(session, budget=200, mode=False, optimizer=learning())
    assert session.scores == []
