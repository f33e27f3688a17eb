"""SWIFT's search within a budget of time, on a simulated text: a set is right at a position with a probability of its
own, by the position's luck, so that two sets on the same tokens can be compared."""

import numpy as np
import pytest

from simulated_text import CONFIG, LAYERS, SimulatedMeasured, model
from swiftk import _core, _testing
from swiftk.draft.cost import Round
from swiftk.draft.draft_spec import DraftSpec
from swiftk.options.swift_settings import SwiftSettings
from swiftk.search import searches
from swiftk.search.base import Progress, Score
from swiftk.search.sublayers import SublayerPrices, sublayers
from swiftk.search.swift import Sets

PLAIN, PROMPT = 0.05, 40
UNIFORM = DraftSpec.uniform(LAYERS)


class Text:
    """truth(skip): how often a set is right. Rounds of `chain` drafted tokens; a score costs what its rows do."""

    def __init__(self, truth, seed=0, chain=4, **settings):
        settings.setdefault("bayes", False)
        self.truth, self.chain = truth, chain
        self.luck = np.random.default_rng(seed).random(100_000)
        self.planner = _testing.Planner(model(), directed=True)
        measured = SimulatedMeasured(self.planner, self)
        self.sets = Sets(LAYERS, SwiftSettings(**settings))
        self.optimizer = searches.swift(measured, SublayerPrices(CONFIG), self.sets)
        self.generated, self.seconds, self.scoring, self.resting = 1, 0.0, 0.0, False
        self.scored = []  # (set, rows, end)

    @property
    def clock(self):
        return self.seconds

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
            seconds = PLAIN * (1 + 0.5 * len(received))
            self.seconds += seconds
            if received:
                self.optimizer.observe(Round(seconds, draft_steps=len(received), tokens=taken), PLAIN)
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
    assert all(skip == UNIFORM or of_the_count(text.sets.settings, skip) for skip, _, _ in text.scored)


@pytest.mark.parametrize("tokens", [128, 500, 2000])
def test_keeps_its_budget(tokens):
    text = Text(keeping_low, max_score=1.0)
    text.start()
    text.go_on(tokens)
    assert text.scored
    assert text.scoring <= (0.03 if tokens < 200 else 0.025) * text.seconds + PLAIN


def test_what_is_not_better_is_seldom_kept():
    kept, tried = 0, 0
    for seed in range(20):
        text = Text(lambda _: 0.8, seed, max_score=1.0)
        draw = np.random.default_rng(100 + seed)
        text.right = lambda skip, position, draw=draw: bool(draw.random() < 0.8)  # unlike in everything but the share
        text.start()
        text.go_on(3000)
        kept += sum(one.kept for one in text.optimizer.trace)
        tried += len({skip for skip, _, _ in text.scored})
    assert tried > 200 and kept < 0.12 * tried


def test_bad_sets_are_scored_once():
    text = Text(lambda skip: 0.9 if skip == UNIFORM else 0.1, max_score=1.0)
    text.start()
    text.go_on(1500)
    asked = [skip for skip, _, _ in text.scored if skip != UNIFORM]
    assert len(set(asked)) > 0.9 * len(asked) > 10, "but for one that came up again"
    assert text.optimizer.current.skip == UNIFORM


@pytest.mark.parametrize("window", [8, 64])
def test_a_score_looks_at_the_asked_window_at_most(window):
    text = Text(keeping_low, max_score=1.0, window=window)
    text.start()
    text.go_on(1500)
    assert {rows for _, rows, _ in text.scored} == ({8} if window == 8 else {20, 32})


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
    before = len(text.scored)
    text.go_on(2000)
    assert len(text.scored) == before


@pytest.mark.parametrize(("settings", "why"), [({"max_steps": 5}, "5 steps"), ({"tolerance": 6}, "without gain")])
def test_ends(settings, why):
    text = Text(lambda skip: 0.9 if skip == UNIFORM else 0.3, max_score=1.0, **settings)
    text.start()
    text.go_on(3000)
    assert why in text.sets.stopped


def test_a_text_that_goes_worse_begins_the_search_again():
    hard = []
    text = Text(lambda skip: 0.4 if hard else 0.99)
    text.start()
    text.go_on(600)
    before = len(text.scored)
    text.go_on(400)
    assert len(text.scored) == before
    hard.append(True)
    text.go_on(1000)
    assert len(text.scored) > before


def test_prompts_of_a_kind_start_with_its_set_and_others_search_again():
    text = Text(keeping_low, max_score=1.0, max_steps=60)
    code, prose = range(PROMPT), range(1000, 1000 + PROMPT)
    text.start(code)
    text.go_on(20000)
    assert text.sets.stopped
    found = text.optimizer.current
    assert found.skip != UNIFORM
    found.rounds = 1  # as the loop's rounds would have counted
    text.optimizer.finish()
    text.start(code)
    assert text.optimizer.current.skip == found.skip
    assert text.sets.stopped, "a prompt of a known kind"
    text.start(prose)
    assert text.sets.stopped is None


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
    text.optimizer._adopt(text.optimizer._config("swap", DraftSpec([3], [4])))
    assert text.optimizer.give_up(0.9)
    assert text.optimizer.current.skip == UNIFORM
    assert not text.optimizer.give_up(0.9), "once"
