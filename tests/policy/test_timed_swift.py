"""SWIFT's search within a budget of time, on a simulated text: a set is right at a position with a probability of its
own, by the position's luck, so that two sets on the same tokens can be compared."""

import numpy as np
import pytest

from simulated_text import CONFIG, LAYERS, model
from swiftk import _core, _testing
from swiftk.draft.draft_spec import DraftSpec
from swiftk.options.swift_settings import SwiftSettings
from swiftk.papers.timed_swift import TimedSwift, Trial
from swiftk.running.director import EngineMeasured
from swiftk.search.base import Progress, Score
from swiftk.search.proposals import sublayers
from swiftk.search.sublayers import SublayerPrices

PLAIN, PROMPT = 0.05, 40
UNIFORM = DraftSpec.uniform(LAYERS)


class Text:
    """truth(skip): how often a set is right. Rounds of `chain` drafted tokens; a score costs what its rows do."""

    def __init__(self, truth, seed=0, chain=4, **settings):
        settings.setdefault("bayes", False)
        self.truth, self.chain = truth, chain
        self.luck = np.random.default_rng(seed).random(100_000)
        self.planner = _testing.Planner(model(), directed=True)
        measured = EngineMeasured(lambda: self.planner)
        self.optimizer = TimedSwift(LAYERS, measured, SublayerPrices(CONFIG), SwiftSettings(**settings))
        self.generated, self.seconds, self.scoring, self.resting = 1, 0.0, 0.0, False
        self.scored = []  # (set, rows, end)

    def right(self, skip, position):
        return bool(self.luck[position] < self.truth(skip))

    def score(self, skip, rows, end=None):
        self.scored.append((skip, rows, end))
        assert end - rows >= PROMPT
        assert end <= PROMPT + self.generated - 1, "tokens that are not cached were scored"
        rank = [0 if self.right(skip, p) else -1 for p in range(end - rows + 1, end + 1)]
        seconds = 0.3 * PLAIN * (1 + rows / 16)
        self.scoring += seconds
        self.seconds += seconds
        return Score(np.full(rows, 0.9, np.float32), np.array(rank, np.int32), seconds)

    def start(self, prompt=range(PROMPT)):
        self.generated, self.seconds = 1, 0.0
        self.optimizer.start(list(prompt))

    def go_on(self, tokens):
        """Whether drafting would have been woken."""
        woken, until = False, self.generated + tokens
        while self.generated < until:
            at = PROMPT + self.generated  # of the next token
            received, taken = [], 1
            if not self.resting:
                for i in range(self.chain):
                    received.append(self.right(self.optimizer.current.skip, at + i))
                    if not received[-1]:
                        break
                    taken += 1
                seen = _core.AcceptanceRates(thinned=True)
                seen.add([(0.9, 0 if one else -1) for one in received])
                self.planner.learned(_core.DraftSpec(**self.optimizer.current.skip.arguments()), seen)
            self.generated += taken
            self.seconds += PLAIN * (1 + 0.5 * len(received))
            progress = Progress(PROMPT, self.generated, self.seconds, PLAIN, self.resting, taken, received)
            woken |= self.optimizer.step(self.score, progress)
        return woken


def of_the_count(settings, skip):
    return len(sublayers(skip, LAYERS)) == settings.skipped(LAYERS, 0.0)


def keeping_low(skip):
    """Better the more low sublayers are kept: a slope that a search can climb."""
    return 0.45 + 0.5 * np.mean([s >= LAYERS for s in sublayers(skip, LAYERS)])


def test_starts_uniform_and_climbs():
    text = Text(keeping_low, max_score=1.0)
    text.start()
    assert text.optimizer.current.skip == UNIFORM
    text.go_on(6000)
    assert keeping_low(text.optimizer.current.skip) > keeping_low(UNIFORM) + 0.05
    assert all(of_the_count(text.optimizer.settings, skip) for skip, _, _ in text.scored)


@pytest.mark.parametrize("tokens", [128, 500, 2000])
def test_keeps_its_budget(tokens):
    text = Text(keeping_low, max_score=1.0)
    text.start()
    text.go_on(tokens)
    assert text.scored
    assert text.scoring <= (0.03 if tokens < 200 else 0.025) * text.seconds + PLAIN


def test_what_is_not_better_is_seldom_kept():
    changes = []
    for seed in range(20):
        text = Text(lambda _: 0.8, seed, max_score=1.0)
        draw = np.random.default_rng(100 + seed)
        text.right = lambda skip, position, draw=draw: bool(draw.random() < 0.8)  # unlike in everything but the share
        text.start()
        text.go_on(3000)
        changes += [one.kept for one in text.optimizer.trace]
    assert np.mean(changes) < 0.12


def test_bad_sets_cost_eight_tokens():
    text = Text(lambda skip: 0.9 if skip == UNIFORM else 0.1, max_score=1.0)
    text.start()
    text.go_on(1500)
    assert len(text.scored) > 10
    assert {rows for _, rows, _ in text.scored} == {8}
    assert text.optimizer.current.skip == UNIFORM


def test_no_token_is_looked_at_twice():
    text = Text(lambda _: 0.8, max_score=1.0)
    text.start()
    text.go_on(4000)
    seen = {}
    for skip, rows, end in text.scored:
        positions = set(range(end - rows + 1, end + 1))
        assert not positions & seen.setdefault(skip, set())
        seen[skip] |= positions
    assert max(map(len, seen.values())) > 40


def test_what_drafts_live_ends_the_search():
    text = Text(lambda skip: 0.99)
    text.start()
    text.go_on(600)
    assert "matchness" in text.optimizer.stopped
    before = len(text.scored)
    text.go_on(2000)
    assert len(text.scored) == before


@pytest.mark.parametrize(("settings", "why"), [({"max_steps": 5}, "5 steps"), ({"tolerance": 6}, "without gain")])
def test_ends(settings, why):
    text = Text(lambda skip: 0.9 if skip == UNIFORM else 0.3, max_score=1.0, **settings)
    text.start()
    text.go_on(3000)
    assert why in text.optimizer.stopped


def test_a_text_that_goes_worse_begins_the_search_again():
    hard = []
    text = Text(lambda skip: 0.4 if hard else 0.99)
    text.start()
    text.go_on(600)
    assert text.optimizer.stopped
    hard.append(True)
    text.go_on(400)
    assert text.optimizer.stopped is None
    before = len(text.scored)
    text.go_on(2000)
    assert len(text.scored) > before


def test_prompts_of_a_kind_start_with_its_set_and_others_search_again():
    text = Text(keeping_low, max_score=1.0, max_steps=20)
    code, prose = range(PROMPT), range(1000, 1000 + PROMPT)
    text.start(code)
    text.go_on(8000)
    assert text.optimizer.stopped
    found = text.optimizer.current
    assert found.skip != UNIFORM
    found.rounds = 1  # as the loop's rounds would have counted
    text.optimizer.finish()
    text.start(code)
    assert text.optimizer.current.skip == found.skip
    assert text.optimizer.stopped, "a prompt of a known kind"
    text.start(prose)
    assert text.optimizer.stopped is None


def test_at_rest_only_what_could_wake_is_scored():
    text = Text(lambda skip: 0.2)
    text.start()
    text.go_on(100)
    text.optimizer.give_up(0.01)  # far below what it had promised: no set of this price pays
    text.resting, before = True, len(text.scored)
    assert not text.go_on(2000)
    assert len(text.scored) == before


def test_a_set_that_would_pay_wakes_drafting():
    text = Text(lambda skip: 0.25 if skip == UNIFORM else 0.95, max_score=1.0)
    text.start()
    text.go_on(60)
    text.optimizer.give_up(0.95)
    text.resting = True
    assert text.go_on(2000)
    assert text.optimizer.current.skip != UNIFORM


def test_sets_that_would_not_pay_do_not():
    text = Text(lambda skip: 0.3, max_score=1.0)
    text.start()
    text.go_on(60)
    text.optimizer.give_up(0.9)
    text.resting = True
    assert not text.go_on(3000)


def test_the_set_before_is_gone_back_to():
    text = Text(keeping_low, max_score=1.0)
    text.start()
    text.optimizer.current.tokens, text.optimizer.current.steps = 120.0, 100.0
    text.optimizer._adopt(DraftSpec([3], [4]))
    assert text.optimizer.give_up(0.9)
    assert text.optimizer.current.skip == UNIFORM
    assert not text.optimizer.give_up(0.9), "once"


def test_what_was_not_drafted_is_not_compared():
    trial = Trial("random", DraftSpec(), 0.5, low=100, high=100)
    found = Score(np.ones(4, np.float32), np.array([0, -1, 0, 0], np.int32), 0.1)
    trial.learn(found, 104, {101: False, 102: True})
    assert (trial.right, trial.rows, trial.paired, trial.ahead, trial.behind) == (3, 4, 2, 1, 1)
