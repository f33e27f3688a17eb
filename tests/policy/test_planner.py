"""The planner on a simulated clock: what it may lose, what it learns of prices and of who is right, and how near its
trees come to the best."""

import functools
import itertools
import random
import tempfile
from statistics import harmonic_mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulated_text import model, play
from swiftk import DraftSpec, _core, _testing
from swiftk.draft.cost import tokens_per_round
from swiftk.testing import make_tiny

PLAN = _core.DraftSpec(**DraftSpec([3], [3]).arguments())
SUFFIX, LOOKUP = 2, 4
ROW = 0.01  # what a simulated row costs beyond the first, in plain steps
CHANCE = 1.0  # plain steps that a way to draft may lose at first


def planner(**options):
    one = _testing.Planner(model(), **options)
    one.start_text()
    return one


@functools.cache
def copied():
    """A model with three copies, each a plan."""
    tiny = make_tiny(tempfile.mkdtemp(), "llama3", layers=2)
    return _core.Model(str(tiny), threads=1, draft_weights="int8,int4,int3")


def three_plans():
    one = _testing.Planner(copied())
    one.start_text()
    return one


# Bounds of losses


def simulate(c, alpha, length=4, tokens=4000, noise=0.0, plain=1.0, change=None, seed=0, **options):
    """(seconds over plain seconds, planner) of a text on a machine where a draft step costs c plain steps, of chains of
    this length."""
    rng, one = random.Random(seed), planner(directed=True, **options)
    total = done = 0.0
    while done < tokens:
        if change is not None and done > tokens / 2:
            alpha = change
        jitter = plain * (1 + noise * rng.random() * (10 if noise and rng.random() < 0.01 else 1))
        if one.next(PLAN)["drafts"]:
            accepted = 0
            while accepted < length and rng.random() < alpha:
                accepted += 1
            draft, verify, n = c * length * jitter, 1.05 * jitter, accepted + 1
            one.learn(n, rows=length + 1, draft_steps=length, draft=draft, verify=verify)
        else:
            draft, verify, n = 0.0, jitter, 1
            one.learn(1, verify=verify)
        total += (draft + verify) / (1 + 0.5 * noise)
        done += n
    return total / (done * plain), one


@pytest.mark.parametrize(("c", "alpha"), [(0.6, 0.3), (0.9, 0.6), (1.0, 0.0), (0.5, 0.1), (2.0, 0.9)])
@pytest.mark.parametrize("plain", [1.0, 1e-3])
def test_a_bad_draft_costs_at_most_two_percent(c, alpha, plain):
    ratio, one = simulate(c, alpha, plain=plain)
    assert ratio <= 1.02
    assert one.reason_off


@pytest.mark.parametrize(("c", "alpha"), [(0.1, 0.8), (0.28, 0.95), (0.4, 0.9), (0.2, 0.6)])
def test_a_good_draft_is_kept(c, alpha):
    ratio, one = simulate(c, alpha)
    ideal = (4 * c + 1.05) / tokens_per_round(alpha, 4)
    assert ratio <= ideal * 1.06
    assert not one.resting and not one.reason_off


@pytest.mark.parametrize("seed", range(5))
def test_noise_neither_stops_a_good_draft_nor_keeps_a_bad_one(seed):
    good, _ = simulate(0.2, 0.9, noise=0.3, seed=seed)
    bad, _ = simulate(0.8, 0.3, noise=0.3, seed=seed)
    assert good < 0.65
    assert bad < 1.05


def changing_speed(slow, c, alpha, seed):
    """Tokens per plain step of a text of 128 tokens, on a machine that is slower by this factor, or not, for some
    fifteen rounds at a time. A plain step is what it would be at that time."""
    rng, one = random.Random(seed), planner()
    total = done = lasts = 0
    speed = slow
    while done < 128:
        if not lasts:
            speed, lasts = (1.0 if speed > 1 else slow), rng.randint(1, 15)
        found = one.next()
        steps = min(5, found["max_draft"]) if found["drafts"] else 0
        n = 1
        while n <= steps and rng.random() < alpha:
            n += 1
        right = [(0.9, 0)] * (n - 1) + [(0.9, -1)] * (n <= steps)
        draft, verify = c * steps, 1 + 2 * ROW * steps
        seconds = {"draft": draft * speed, "verify": verify * speed}
        one.learn(n, rows=1 + steps, draft_steps=steps, outcomes=right, **seconds)
        total, done, lasts = total + draft + verify, done + n, lasts - 1
    return done / total


@pytest.mark.parametrize(("c", "alpha"), [(0.3, 0.9), (0.4, 0.85), (0.05, 0.6)])
def test_a_machine_that_changes_its_speed_does_not_stop_a_good_draft(c, alpha):
    """It makes drafts look dear, or cheap, until the plain step is measured again."""
    steady, changing = (harmonic_mean(changing_speed(by, c, alpha, seed) for seed in range(20)) for by in (1.0, 2.0))
    assert changing >= 0.93 * steady


@pytest.mark.parametrize(("c", "alpha"), [(0.3, 0.3), (0.6, 0.3)])
def test_a_machine_that_changes_its_speed_does_not_keep_a_bad_draft(c, alpha):
    steady, changing = (harmonic_mean(changing_speed(by, c, alpha, seed) for seed in range(20)) for by in (1.0, 2.0))
    assert changing >= 0.98 * steady


def test_drafting_comes_back_when_it_pays_again():
    assert simulate(0.3, 0.95, change=0.1, tokens=8000)[1].resting
    better, one = simulate(0.3, 0.1, change=0.95, tokens=8000)
    assert not one.resting
    assert better < 0.9


def test_always_is_always():
    assert simulate(2.0, 0.0, always=True, tokens=200)[0] > 5


def test_the_reason_is_in_numbers():
    one = simulate(0.61, 0.48)[1]
    assert "a draft step costs 0.61 of a target step" in one.reason_off


@given(st.floats(0.0, 0.2), st.integers(1, 63), st.floats(0.0, 0.6), st.integers(0, 2**32))
def test_sources_alone_lose_no_more_than_their_budget(row, proposed, alpha, seed):
    """On a machine where a row costs what it costs, however much they propose."""
    rng, one, lost = random.Random(seed), planner(plans=False, sources=[LOOKUP]), 0.0
    for done in range(1, 600):
        found = one.next()
        assert not found["drafts"]
        rows, accepted = min(found["rows"], 1 + proposed) if found["proposals"] else 1, 0
        assert rows >= 1
        while accepted + 1 < rows and rng.random() < alpha:
            accepted += 1
        seconds = 1 + row * (rows - 1)
        one.learn(accepted + 1, rows=rows, verify=seconds)
        lost += seconds - accepted - 1
        wrong = row * proposed  # one tree, before it was known what its rows cost
        assert lost <= 1 + 0.01 * done + wrong


@given(st.lists(st.floats(0.02, 0.9), min_size=4, max_size=4), st.floats(0.0, 0.3), st.integers(0, 2**32))
def test_all_ways_together_lose_no_more_than_their_chances_and_what_tokens_brought(prices, alpha, seed):
    """Three plans and sources, wrong most of the time; the last round of each try may take more than was left."""
    rng, one, lost = random.Random(seed), three_plans(), 0.0
    tries, dearest, drafted = 0, 0.0, False
    for done in range(1, 500):
        found = one.next()
        steps = min(4, found["max_draft"]) if found["drafts"] else 0
        rows = 1 + max(steps, min(3, found["rows"] - 1) if found["proposals"] else 0)
        n = 1
        while n < rows and rng.random() < alpha:
            n += 1
        draft, verify = prices[found["plan"]] * steps if steps else 0.0, 1 + ROW * (rows - 1)
        one.learn(n, rows=rows, draft_steps=steps, draft=draft, verify=verify, outcomes=[(0.9, -1)] * bool(steps))
        lost += draft + verify - n
        tries, drafted = tries + (rows > 1 and not drafted), rows > 1
        dearest = max(dearest, draft + verify - 1)
        assert lost <= 4 * CHANCE + 0.01 * done + tries * dearest


def lose(one, most=1000):
    """Drafts at a loss until it is given up; rounds it took."""
    for n in range(1, most):
        drafts = one.next(PLAN)["drafts"]
        if one.learn(1, rows=2, draft_steps=1, draft=0.4, verify=1.0) if drafts else one.learn(1):
            return n
    raise AssertionError("never given up")


def test_another_plan_takes_over_once_and_on_half_the_allowance():
    one = planner(directed=True)
    first = lose(one)
    assert one.lost_rate == pytest.approx(1 / 1.4, rel=0.01)
    one.go_on()
    assert one.next(_core.DraftSpec(**DraftSpec([4], [4]).arguments()))["drafts"]
    second = lose(one)
    one.go_on()
    assert second < 0.75 * first
    assert not one.next(PLAN)["drafts"] and one.resting


def several(good, tokens, seed=0, c=0.3):
    """(seconds over plain seconds, tokens that each plan's rounds got) of a text that three plans may draft: chains of
    `good` come true, those of the others never, which all say that they are sure."""
    rng, one = random.Random(seed), three_plans()
    spent, by_plan = 0.0, {}
    while (done := sum(by_plan.values())) < tokens:
        found = one.next()
        plan = found["plan"] if found["drafts"] else None
        steps = min(4, found["max_draft"]) if found["drafts"] else 0
        right = [plan == good and rng.random() < 0.95 for _ in range(steps)]
        n = 1 + next((i for i, hit in enumerate(right) if not hit), steps)
        received = [(0.9, 0 if hit else -1) for hit in right[:n]]
        one.learn(n, rows=1 + steps, draft_steps=steps, draft=c * steps, verify=1 + ROW * steps, outcomes=received)
        spent += c * steps + 1 + ROW * steps
        by_plan[plan] = by_plan.get(plan, 0) + n
    return spent / done, by_plan


@pytest.mark.parametrize("good", [0, 1, 2])
def test_a_plan_that_loses_makes_way_for_another(good):
    best = (4 * 0.3 + 1 + 4 * ROW) / tokens_per_round(0.95, 4)
    ratio, by_plan = several(good, 400)
    assert by_plan[good] > 300
    assert ratio < best + 0.15, "what the others lose is little"


@pytest.mark.parametrize("tokens", [300, 4000])
def test_many_plans_that_lose_cost_little_more_than_one(tokens):
    ratio, by_plan = several(None, tokens)
    assert set(by_plan) == {None, 0, 1, 2}, "each was tried"
    assert ratio < (1.03 if tokens < 1000 else 1.02)


def test_gains_make_good_for_failures():
    one = planner(directed=True)
    first = lose(one)
    one.go_on()
    for _ in range(200):
        one.learn(3, rows=2, draft_steps=1, draft=0.4, verify=1.0) if one.next(PLAN)["drafts"] else one.learn(1)
    assert not one.resting
    assert lose(one) > first, "the credit of what was gained"
    one.go_on()
    assert one.next(PLAN)["drafts"]


def test_waking_ends_a_rest_and_its_growth():
    one = simulate(1.0, 0.0)[1]
    assert one.resting and not one.next(PLAN)["drafts"]
    one.wake()
    assert not one.resting
    lose(one)
    rested = 0
    while not one.next(PLAN)["drafts"]:
        one.learn(1)
        rested += 1
    assert 64 <= rested < 80, "a rest after waking is as short as the first one, and what was overdrawn is earned"


@pytest.mark.parametrize("tokens", [16, 64, 100, 400])
def test_a_text_that_begins_is_a_new_chance_and_a_bounded_one(tokens):
    """Drafts that never come true lose 2 %, and what the first text may lose, however many texts begin."""
    one, lost, tried, most = planner(directed=True), 0.0, 0, 6400
    for _ in range(most // tokens):
        one.start_text()
        drafted = 0
        for _ in range(tokens):
            drafts = one.next(PLAN)["drafts"]
            one.learn(1, rows=2, draft_steps=1, draft=0.4) if drafts else one.learn(1)
            drafted += drafts
        lost += 0.4 * drafted
        tried += drafted > 0
    assert lost <= 1.5 + 0.02 * most
    assert tried >= 0.6 * most / max(tokens, 128)


def test_what_a_search_costs_beside_rounds_is_drafting_s_to_earn():
    one, drafted = planner(directed=True), 0
    for _ in range(300):
        drafts = one.next(PLAN)["drafts"]
        drafted += drafts
        if drafts:
            one.learn(2, rows=2, draft_steps=1, draft=0.3, verify=1.0)
            one.charge(1.0)
        else:
            one.learn(1)
    assert drafted < 60, "two tokens for 2.3 plain steps"


# Some drafts rest while others go on


def with_sources(draft_cost, proposal_cost, proposed, tokens=4000):
    """(seconds over plain seconds, what rounds did) where drafts are never right, and `proposed` tokens a round of what
    sources propose."""
    one, total, done, did = planner(directed=True, sources=[SUFFIX]), 0.0, 0, []
    while done < tokens:
        found = one.next(PLAN)
        if found["drafts"]:
            did.append("draft")
            seconds, n = 1.0 + draft_cost, 1
            one.learn(1, rows=3, draft_steps=1, draft=draft_cost, verify=1.0)
        elif found["proposals"]:
            did.append("proposal")
            seconds, n = 1.0 + proposal_cost, 1 + proposed
            one.learn(n, rows=5, verify=seconds)
        else:
            did.append("plain")
            seconds, n = 1.0, 1
            one.learn(1)
        total, done = total + seconds, done + n
    return total / done, did


def test_where_drafting_rests_other_sources_go_on():
    ratio, did = with_sources(0.5, 0.1, 1)
    assert did[-500:].count("proposal") > 480
    assert ratio < 0.65


def test_sources_that_lose_rest_too():
    ratio, did = with_sources(0.5, 0.1, 0)
    assert did.count("proposal") > 20, "they were tried"
    assert did[-1000:].count("plain") > 600
    assert ratio < 1.035


def test_sources_alone_rest_where_they_lose():
    """Without a plan there is nothing that would rest before them, and nothing that goes on meanwhile."""
    one, total, done, did = planner(plans=False, sources=[SUFFIX]), 0.0, 0, []
    while done < 224:
        proposals = one.next()["proposals"]
        seconds = 1.4 if proposals else 1.0
        one.learn(1, rows=8 if proposals else 1, verify=seconds)
        did.append(proposals)
        total, done = total + seconds, done + 1
    assert 3 <= sum(did) <= 9, "they were tried, and soon given up"
    assert total / done < 1.02


def test_the_plain_step_s_price_is_kept_fresh():
    _, did = with_sources(0.5, 0.1, 1)
    longest = max(len(list(group)) for kind, group in itertools.groupby(did) if kind != "plain")
    assert longest <= 65


# Prices of rows


def priced(truth, rows=(2, 4, 8, 14, 32), rounds=300, seed=0, spikes=0.0, drift=0.0):
    """[64] of a machine on which n rows take truth(n) plain steps."""
    rng, one = random.Random(seed), planner(plans=False)
    for i in range(rounds):
        speed = 1 + drift * i / rounds
        one.learn(1, verify=speed)
        for _ in range(4):
            n = rng.choice(rows)
            one.learn(1, rows=n, verify=speed * truth(n) * (10 if rng.random() < spikes else 1))
    return one.row_prices(64)


def linear(n):
    return 1 + 0.02 * (n - 1)


@pytest.mark.parametrize(("spikes", "drift"), [(0.0, 0.0), (0.1, 0.0), (0.0, 5.0), (0.1, 5.0)])
def test_row_prices_are_found_on_a_busy_machine_that_changes_its_speed(spikes, drift):
    table = priced(linear, spikes=spikes, drift=drift)
    assert table[:32] == pytest.approx([linear(n) - 1 for n in range(1, 33)], rel=0.02, abs=1e-3)


def test_rounds_far_from_a_plain_one_say_nothing():
    """The machine's speed changes after a plain step: only a few rounds are compared with it."""
    one = planner(plans=False)
    one.learn(1)
    for _ in range(6):
        one.learn(1, rows=8, verify=1.1)
    for _ in range(50):
        one.learn(1, rows=8, verify=9.0)
    assert one.row_prices(8)[7] == pytest.approx(0.1)


def test_where_no_others_are_they_count_until_the_next_plain_step():
    """A tree that was never seen beside a plain step is not taken to cost less than it did."""
    one = planner(plans=False)
    one.learn(1)
    for _ in range(6):
        one.learn(1, rows=8, verify=1.1)
    unseen = one.row_prices(24)[23]
    one.learn(1, rows=24, verify=4.0)
    assert one.row_prices(24)[23] == pytest.approx(3.0) and one.row_prices(8)[7] == pytest.approx(0.1)
    one.learn(1)
    assert one.row_prices(24)[23] == pytest.approx(unseen)


@pytest.mark.parametrize("seed", range(4))
def test_row_prices_never_fall(seed):
    rng, one = random.Random(seed), planner(plans=False)
    for _ in range(100):
        one.learn(1)
        one.learn(1, rows=rng.randint(2, 64), verify=rng.uniform(0.8, 1.5))
        table = one.row_prices(64)
        assert table[0] == 0 < table[1]
        assert all(b >= a for a, b in itertools.pairwise(table))


def test_beyond_what_was_measured_rows_may_be_bound_by_arithmetic():
    table = priced(linear, rows=(2, 8))
    assert table[7] == pytest.approx(7 * 0.02, rel=0.02)
    assert table[9] == pytest.approx(9 * 0.02, rel=0.02), "so that it is found out how far rows stay cheap"
    assert table[63] == pytest.approx(table[9] + 54 * 0.09, rel=0.02)
    dear = priced(lambda n: 1 + 0.1 * (n - 1), rows=(2, 8))
    assert dear[63] == pytest.approx(63 * 0.1, rel=0.02)
    cheap = priced(lambda n: 1.0, rows=(2, 8))
    assert cheap[7] < 0.01
    assert cheap[63] > 0.5, "no measurement says that 64 rows are free"


def test_rows_that_turn_out_cheap_are_believed_so_further_on():
    """Each measurement beyond few rows, which are eight here, counts as its rows, and the belief before as one."""
    cheap = lambda n: 1 + 0.002 * (n - 1)  # noqa: E731
    further = [priced(cheap, rows=(2, 8, *more))[63] for more in ((), (10,), (10, 12), (10, 12, 16))]
    assert further == sorted(further, reverse=True)
    assert further[0] > 4.5 and further[1] < 1.9 and further[3] < 0.65
    dear = priced(lambda n: 1 + 0.002 * min(n - 1, 7) + 0.09 * max(0, n - 8), rows=(2, 8, 10))
    assert dear[63] == pytest.approx(7 * 0.002 + 56 * 0.09, rel=0.02), "nothing is believed cheap that was seen dear"


def test_a_step_in_the_prices_is_seen():
    """Kernels take rows in tiles: 17 rows may cost twice 16."""
    table = priced(lambda n: 1.0 if n <= 16 else 2.0, rows=(8, 16, 20, 24))
    assert table[15] < 0.01 and table[19] == pytest.approx(1.0)


# How far and wide


class Text:
    """Draft tokens of random confidence; the best is right with calibrated(confidence), else the runner-up half the
    time."""

    def __init__(self, calibrated, seed):
        self.calibrated, self.rng = calibrated, random.Random(seed)

    def outcome(self, _=0):
        confidence = self.rng.betavariate(2, 0.7)
        if self.rng.random() < self.calibrated(confidence):
            return confidence, 0
        return confidence, 1 if self.rng.random() < 0.5 else -1


def drafted(c, calibrated, rounds=400, seed=0, row=ROW, **options):
    """(tokens per plain step of the last two thirds, the rules of all rounds)."""
    text, one, tokens, spent, rules = Text(calibrated, seed), planner(directed=True, **options), 0, 0.0, []
    for i in range(rounds):
        rule = one.next(PLAN)
        rules.append(rule)
        n, steps, rows, received = play(rule, text.outcome) if rule["drafts"] else (1, 0, 1, [])
        verify = 1 + row * (rows - 1)
        one.learn(n, rows=rows, draft_steps=steps, draft=c * steps, verify=verify, outcomes=received)
        if i >= rounds // 3:
            tokens += n
            spent += c * steps + verify
    return tokens / spent, rules


def best_fixed(c, calibrated):
    """Best rate among thresholds and lengths, without siblings."""
    rates = []
    for epsilon in (0.0, 0.4, 0.7, 0.9):
        for length in (1, 2, 4, 8, 16):
            text, tokens, spent = Text(calibrated, 7), 0, 0.0
            for _ in range(1500):
                n, alive = 0, True
                while n < length:
                    confidence, rank = text.outcome()
                    n += 1
                    alive = alive and rank == 0
                    tokens += alive
                    if confidence < epsilon:
                        break
                tokens += 1
                spent += 1 + (c + ROW) * n
            rates.append(tokens / spent)
    return max(rates)


@pytest.mark.parametrize("c", [0.1, 0.3, 0.55])
@pytest.mark.parametrize(
    "calibrated", [lambda p: p, lambda p: p**3, lambda p: 0.97], ids=["honest", "overconfident", "sure"]
)
def test_it_is_as_fast_as_the_best_fixed_rule(c, calibrated):
    rate = sum(drafted(c, calibrated, seed=s)[0] for s in range(2)) / 2
    assert rate >= 0.95 * max(1, best_fixed(c, calibrated))  # with the plain rounds that keep prices fresh


def test_it_drafts_little_where_drafts_are_dear_and_wrong():
    rate, rules = drafted(0.9, lambda p: 0.1)
    assert rate > 0.97
    assert sum(rule["drafts"] for rule in rules[100:]) < 20
