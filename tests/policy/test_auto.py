"""The default optimizer on simulated texts, by a simulated clock: what it finds, what it spends, and how it goes on
when the text changes."""

import numpy as np
import pytest

from simulated_text import LAYERS, PLAIN, PROMPT, Generation, World
from swiftk.draft.draft_spec import DraftSpec
from swiftk.search import tuned
from swiftk.search.base import Window

CUT = np.concatenate([np.full(8, 1.2), np.full(16, 0.12)])  # harm of sublayers: best cut after the fourth layer
THIN = np.full(2 * LAYERS, 0.06)  # best thinned
THIN[[0, 1, 8, 9, 10, 11, -4, -3, -2, -1]] = 1.5
HARD = np.full(2 * LAYERS, 0.9)


@pytest.fixture
def play():
    """play(kind, seed): a text whose kind is kind(token)."""

    def start(kind, seed=0, **options):
        return Generation(World(kind, seed), seed, **options)

    return start


def rate(g):
    return g.world.rate(g.auto.current.skip, g.generated + PROMPT)


@pytest.mark.parametrize("seed", range(4))
def test_what_drafts_after_a_while_is_near_the_best_that_was_seen(play, seed):
    g = play(lambda t: CUT, seed).run(600)
    best = max(g.world.rate(skip, 0) for skip in {one.skip for one in g.auto.trace})
    assert best > 1.2 and rate(g) > 0.95 * best


@pytest.mark.parametrize("seed", range(4))
def test_a_change_of_text_is_made_up_for_within_300_tokens(play, seed):
    g = play(lambda t: THIN if t < PROMPT + 1500 else CUT, seed).run(1500)
    g.run(1800)
    own = play(lambda t: CUT, seed).run(1500)
    assert rate(g) >= 0.9 * rate(own) > 1.2


def test_what_was_good_before_is_tried_first(play):
    kinds = {0: CUT, 1: THIN}
    g = play(lambda t: kinds[(t - PROMPT) // 1200 % 2]).run(1200)
    first = g.auto.current.skip
    g.run(2400)
    assert g.auto.current.skip != first
    seen = len(g.auto.trace)
    g.run(2700)
    assert first in {one.skip for one in g.auto.trace[seen:]}
    assert rate(g) > 0.95 * g.world.rate(first, 0)


def test_a_proposal_that_cannot_be_paid_for_yet_is_scored_later(play):
    g = play(lambda t: THIN).run(600)
    assert rate(g) > 1.2
    assert {one.kind for one in g.auto.trace if one.kept} == {"dp"}


def test_text_that_cannot_be_drafted_costs_next_to_nothing(play):
    g = play(lambda t: HARD).run(2000)
    assert np.mean(g.drafted[1000:]) < 0.05
    assert g.generated * PLAIN / g.world.clock > 0.97


@pytest.mark.parametrize("seed", range(4))
def test_a_text_that_turns_bad_costs_a_few_steps(play, seed):
    """However many other sets had promised something before."""
    g = play(lambda t: CUT if t < PROMPT + 1000 else HARD, seed).run(1000)
    before, at = g.world.clock, g.generated
    g.run(1200)
    lost = (g.world.clock - before) / PLAIN - (g.generated - at)
    assert lost < 28, "what was gained lately, an allowance, half of one, and a new search"


def test_when_it_can_be_drafted_again_it_is(play):
    g = play(lambda t: HARD if t < PROMPT + 1000 else 0.5 * CUT).run(3000)
    assert np.mean(g.drafted[2500:]) > 0.9 and rate(g) > 1.2


@pytest.mark.parametrize("seed", range(3))
def test_scoring_keeps_to_its_share(play, seed):
    g = play(lambda t: CUT, seed).run(3000)
    assert max(g.share) < 0.022


@pytest.mark.parametrize("together", [2, 8])
def test_texts_that_decode_together_share_that_time(play, together):
    g = play(lambda t: CUT, together=together).run(3000)
    assert g.share[2999] > 0 and max(g.share) < 0.022 / together


def test_a_set_that_scores_better_than_it_drafts_goes(play):
    g = play(lambda t: 0.8 * CUT)
    liar = DraftSpec.early_exit(2)
    g.world.liars = {liar: 6.0}
    g.run(3000)  # it rests first, longer each time, and what is scored meanwhile takes over
    assert g.auto.current.skip != liar and rate(g) > 1.1
    assert liar in {one.skip for one in g.auto.trace if one.kept}  # it had been believed


def test_it_forgets_the_least_promising(play, monkeypatch):
    monkeypatch.setattr("swiftk.search.race._MOST", 16)
    kinds = [CUT, THIN, HARD]
    g = play(lambda t: kinds[t // 700 % 3])
    for _ in range(4):
        g.run(2500)
        assert len(g.auto._configs) <= 16 and g.auto.current.skip in g.auto._configs
        g.start()
    assert len({one.skip for one in g.auto.trace}) > 16


def test_a_window_too_old_to_keep_is_not_asked_for(play):
    """It would be scored, forgotten, and asked for again."""
    g = play(lambda t: CUT).run(100)
    evidence = g.auto._evidence
    evidence.reopen()
    evidence.incumbent.windows.clear()
    other = g.auto._config("move", DraftSpec([3], [3]))
    evidence.enter(other)
    windows = [Window(number, 32, PROMPT + 40) for number in range(40)]
    for window in windows:
        score = g.world(other.skip, 32, window.end)
        evidence.learn(other, window, score)
        evidence.learn(evidence.incumbent, window, score)
    assert evidence.missing(windows[-tuned.WINDOWS :]) is None
    assert other in evidence.field and min(other.windows) == 40 - tuned.WINDOWS
