"""What rests where drafts do not pay, and what goes on meanwhile, on a simulated clock."""

import itertools

from swiftk.cost import CostModel, Round
from swiftk.pacing import Pacer


def with_sources(draft_cost, guess_cost, guessed, tokens=4000):
    """(seconds over plain seconds, what rounds did) where drafts are never right, and `guessed` tokens a round of what
    sources guess."""
    pacer, total, done, did = Pacer(CostModel(), True), 0.0, 0, []
    pacer.start()
    while done < tokens:
        if pacer.draft_next():
            r = Round(1.0 + draft_cost, draft_cost, 1, 1.0, 3, 1, 0)
        elif pacer.guess_next():
            r = Round(1.0 + guess_cost, verify_seconds=1.0 + guess_cost, verify_rows=5, tokens=1 + guessed)
        else:
            r = Round(1.0, verify_seconds=1.0)
        did.append("draft" if r.draft_steps else "guess" if r.speculative else "plain")
        total, done = total + r.seconds, done + r.tokens
        if pacer.observe(r):
            pacer.settle()
    return total / done, did


def test_where_drafting_rests_sources_go_on():
    ratio, did = with_sources(0.5, 0.1, 1)
    assert did[-500:].count("guess") > 480
    assert ratio < 0.65


def test_sources_that_lose_rest_too():
    ratio, did = with_sources(0.5, 0.1, 0)
    assert did.count("guess") > 20, "they were tried"
    assert did[-1000:].count("plain") > 600
    assert ratio < 1.035


def test_sources_alone_rest_where_they_lose():
    """Without a plan there is nothing that would rest before them, and nothing that goes on meanwhile."""
    pacer, total, done, did = Pacer(CostModel(), True, plan=False), 0.0, 0, []
    pacer.start()
    while done < 224:
        assert not pacer.guess_next()
        guesses = pacer.draft_next()
        r = Round(1.4, verify_seconds=1.4, verify_rows=8) if guesses else Round(1.0, verify_seconds=1.0)
        did.append(guesses)
        total, done = total + r.seconds, done + r.tokens
        if pacer.observe(r):
            pacer.settle()
    assert 4 <= sum(did) <= 9, "they were tried, and soon given up"
    assert total / done < 1.02


def test_what_a_search_costs_beside_rounds_is_drafting_s_to_earn():
    pacer = Pacer(CostModel(), True)
    pacer.start()
    drafted = 0
    for _ in range(300):
        drafts = pacer.draft_next()
        r = Round(1.3, 0.3, 1, 1.0, 2, 2, 1) if drafts else Round(1.0, verify_seconds=1.0)
        drafted += drafts
        if pacer.observe(r):
            pacer.settle()
        if drafts:
            pacer.charge(1.0)
    assert drafted < 60, "two tokens for 2.3 plain steps"


def test_sources_are_not_asked_where_plain_steps_are_measured():
    for mode in (False, "always"):
        assert not Pacer(CostModel(), mode).guess_next()
    _, did = with_sources(0.5, 0.1, 1)
    longest = max(len(list(group)) for kind, group in itertools.groupby(did) if kind != "plain")
    assert longest <= 65  # the plain step's price is kept fresh
