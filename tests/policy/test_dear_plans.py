"""Plans that would lose time, on a simulated clock: drafting always, and drafters that have to read a text first."""

import random

import pytest

from heads import make_block, make_eagle
from simulated_text import model
from swiftk import DraftSpec, _core, _testing
from swiftk.testing import make_tiny

PLAN, HEAD = (
    _core.DraftSpec(**DraftSpec([3], [3]).arguments()),
    _core.DraftSpec(**DraftSpec(weights="drafter").arguments()),
)


@pytest.mark.parametrize("always", [False, True])
def test_always_drafts_though_sources_alone_would_go_faster(always):
    """By time, a plan that is dear and wrong takes no step in a text whose proposals come true."""
    one = _testing.Planner(model(), directed=True, always=always)
    one.start_text()
    for _ in range(4):
        one.next(PLAN)
        one.learn(1, verify=1.0)
    for _ in range(60):
        drafts = one.next(PLAN)["drafts"]
        one.learn(6, rows=9, draft_steps=1 if drafts else 0, draft=2.0 if drafts else 0.0, verify=1.05)
    found = one.next(PLAN)
    assert found["drafts"]
    assert (found["min_step_gain"] <= 0.5) == always


def test_steps_of_other_texts_are_none_of_a_plan_that_rests():
    """Drafting was given up while B was directed. A is directed again in rounds whose steps are another text's: nothing
    of them is A's, and it rests its 64 tokens. (What was noted of plan -1 once overwrote what lay before a table.)"""
    a, b = PLAN, _core.DraftSpec(**DraftSpec([2], [2]).arguments())
    one = _testing.Planner(model(), directed=True)
    one.start_text()
    for _ in range(4):
        one.next(a)
        one.learn(1)
    assert one.next(a)["drafts"]
    one.learn(2, rows=5, draft_steps=2, draft=0.2, verify=1.05)
    one.next(b)
    one.learn(1, rows=9, draft_steps=9, draft=9.0, verify=1.05)
    for _ in range(2):
        one.next(b)
        one.learn(1)
    assert one.resting
    for tokens in range(0, 54, 9):
        assert not one.next(a)["drafts"], tokens
        one.learn(9, rows=9, draft_steps=1, draft=0.1, verify=1.05)
    tried = []
    for _ in range(20):
        tried.append(one.next(a)["drafts"])
        one.learn(1)
    assert any(tried)


@pytest.fixture(scope="module")
def headed(tmp_path_factory):
    """A model that a head drafts for, which has to read a text before it drafts in it."""
    base = tmp_path_factory.mktemp("headed")
    target = make_tiny(base / "target", "llama3", layers=4)
    return _core.Model(str(target), drafters=[str(make_block(base / "head", target))], threads=1)


def texts_of_a_head(one, alpha, texts, prompt=200, tokens=300, reading=0.1, c=0.1, length=4, seed=1):
    """[texts] seconds over plain seconds of each, of a head that reads a token in `reading` plain steps and is right
    with probability alpha. It reads what it has not followed when it drafts next."""
    rng, found = random.Random(seed), []
    for _ in range(texts):
        one.start_text()
        total, done, unread = 0.0, 0, prompt
        while done < tokens:
            n, unread = 1, unread + 1
            behind = unread if unread > 16 else 0
            if one.next(HEAD, [behind], tokens - done)["drafts"]:
                while n <= length and rng.random() < alpha:
                    n += 1
                received = [(0.5, 0)] * (n - 1) + [(0.5, -1)] * (n <= length)
                first = c + (0 if behind else reading * unread)
                draft = first + c * (length - 1)
                one.learn(
                    n,
                    rows=length + 1,
                    draft_steps=length,
                    draft=draft,
                    verify=1.05,
                    outcomes=received,
                    proposed=(),
                    reading=reading * behind,
                    read=behind,
                    first_step=first,
                )
                total += draft + reading * behind + 0.05
                unread = n - 1
            else:
                one.learn(1)
            total, done = total + 1, done + n
        found.append(total / done)
    return found


def test_a_head_that_never_helps_reads_one_text_and_no_other(headed):
    """The first, as its price is not known before; neither what it rested in nor other prompts, for a long time."""
    first, *others = texts_of_a_head(_testing.Planner(headed, directed=True), 0.0, 10)
    assert 1.06 < first < 1.08  # 20 plain steps of 300 for the prompt
    assert sum(others) <= 9.1


@pytest.mark.parametrize("tokens, most", [(96, 1.05), (48, 1.0)])
def test_a_trial_of_all_that_may_draft_takes_a_share_of_the_text(headed, tokens, most):
    rate = texts_of_a_head(_testing.Planner(headed, directed=True), 0.0, 1, prompt=100, tokens=tokens, reading=0.02)[0]
    assert rate <= most and (rate > 1) == (most > 1)


def test_a_head_that_helps_reads_every_text(headed):
    assert max(texts_of_a_head(_testing.Planner(headed, directed=True), 0.8, 6)) < 0.65
    assert max(texts_of_a_head(_testing.Planner(headed, directed=True), 0.6, 6)) < 0.87


def test_what_was_read_is_not_held_against_the_first_proposals(headed):
    """Reading the prompt takes two thirds of what drafting may lose at first; a wrong proposal, a third."""
    ended = []
    for seed in range(20):
        planner = _testing.Planner(headed, directed=True)
        ended += texts_of_a_head(planner, 0.55, 1, prompt=100, tokens=128, reading=0.01, seed=seed)
    assert sum(rate > 0.9 for rate in ended) <= 2


def beside_a_copy(base, make):
    """A model with a copy in four bits, and a head."""
    target = make_tiny(base / "target", "llama3", layers=6)
    return _core.Model(str(target), drafters=[str(make(base / "head", target))], draft_weights="int4", threads=1)


@pytest.fixture(scope="module")
def guided(tmp_path_factory):
    """The head may draft, guide the copy, or stay out of it."""
    return beside_a_copy(tmp_path_factory.mktemp("guided"), make_eagle)


ALONE, COPY, GUIDED = range(3)  # plans of that model, as they are offered


def plans_of(one, unread, rounds, left=256.0, tokens=2):
    """The plan that each round took, where whatever drafts brings so many tokens in .3 plain steps."""
    found = []
    for _ in range(rounds):
        a = one.next(None, [unread], left)
        found.append(a["plan"])
        one.learn(tokens, rows=3, draft_steps=1, draft=0.3, verify=1.05, outcomes=[(0.9, 0)] * (tokens - 1)) if a[
            "drafts"
        ] else one.learn(1)
    return found


def test_before_a_head_was_tried_it_reads_what_a_trial_may_cost(guided):
    """Its price is foretold by its multiply-adds. Where a copy drafts, a long prompt waits until the texts before it
    have brought what reading takes, and a short one is read at once."""
    short, long = _testing.Planner(guided), _testing.Planner(guided)
    short.start_text()
    long.start_text()
    assert plans_of(short, 17, 5)[-1] in (ALONE, GUIDED)
    assert set(plans_of(long, 400, 40)) == {COPY}
    assert {ALONE, GUIDED} & set(plans_of(long, 400, 2000))


def test_where_proposals_outrun_all_plans_the_better_of_them_stands_by(guided):
    """A paste makes a text faster than either plan; the head, which was wrong all the time, gains no doubt by it."""
    one = _testing.Planner(guided)
    one.start_text()
    after = []
    for i in range(80):
        plan = one.next(None, [], 256.0)
        if i >= 44:
            after.append(plan["plan"])
        if i >= 40:
            one.learn(20, rows=24, draft_steps=0, draft=0.0, verify=1.2)
        elif not plan["drafts"]:
            one.learn(1)
        elif plan["plan"] == ALONE:
            one.learn(1, rows=3, draft_steps=1, draft=0.02, verify=1.05, outcomes=[(0.1, -1)])
        else:
            one.learn(4, rows=6, draft_steps=3, draft=0.9, verify=1.1, outcomes=[(0.9, 0)] * 3)
    assert ALONE not in after


def test_a_guide_changes_no_token_so_what_is_known_of_its_plan_is_shared(guided):
    """What came true of a guided copy is known of the copy; of another plan, nothing is."""
    one = _testing.Planner(guided, directed=True)
    copy, with_head = (
        _core.DraftSpec(**DraftSpec(weights="int4").arguments()),
        _core.DraftSpec(**DraftSpec(weights=("int4", "drafter")).arguments()),
    )
    before = one.rates(HEAD).counts
    one.start_text()
    for _ in range(4):
        one.next(with_head)
        one.learn(1)
    for _ in range(8):
        assert one.next(with_head)["drafts"]
        one.learn(4, rows=5, draft_steps=4, draft=1.0, verify=1.05, outcomes=[(0.9, 0)] * 3 + [(0.4, -1)])
    assert one.rates(copy).counts == one.rates(with_head).counts
    assert one.rates(with_head).outcomes == 32
    assert one.rates(HEAD).counts == before


GUIDE = _core.DraftSpec(**DraftSpec(weights=("int4", "drafter")).arguments())


def plans_by_a_guide(one, right, rounds):
    """The plan that each round took: int4 brings four tokens in three steps of .6 plain steps, the head is right with
    probability `right` wherever it is asked, by itself in .02 plain steps or before a step of the copy."""
    rng, found = random.Random(3), []
    for _ in range(rounds):
        a = one.next(None, [], 256.0)
        found.append(a["plan"])
        said = [(0.6, 0 if rng.random() < right else -1) for _ in range(6)]
        if not a["drafts"]:
            one.learn(1)
        elif a["plan"] == ALONE:
            n = 1 + next((i for i, (_, rank) in enumerate(said) if rank < 0), 6)
            one.learn(n, rows=7, draft_steps=6, draft=0.12, verify=1.06, outcomes=said[:n])
        else:
            one.learn(
                4,
                rows=6,
                draft_steps=3,
                draft=1.8,
                verify=1.06,
                outcomes=[(0.9, 0)] * 3,
                guide=said[:3] if a["plan"] == GUIDED else (),
            )
    return found


def test_a_head_that_is_right_drafts_alone_and_one_that_never_is_does_not(guided):
    bad, good = _testing.Planner(guided), _testing.Planner(guided)
    bad.start_text()
    good.start_text()
    assert plans_by_a_guide(bad, 0.05, 60)[20:].count(ALONE) == 0
    assert plans_by_a_guide(good, 0.95, 60)[20:].count(ALONE) > 30


def test_what_a_guide_missed_in_one_text_does_not_price_it_out_of_all_others(guided):
    """Where it is right a pass of the copy brings more than one step. It was, in all rounds but the last 40."""
    rng, found, one = random.Random(4), [], _testing.Planner(guided)
    one.start_text()
    for i in range(440):
        right = 0.8 if i < 400 else 0.0
        said = [(0.6, 0 if rng.random() < right else -1) for _ in range(6)]
        passes = 6 - sum(rank == 0 for _, rank in said[:4])
        plan = one.next(None, [], 256.0)["plan"]
        found.append(plan)
        if plan == ALONE:
            one.learn(
                1 + next(i for i, (_, rank) in enumerate([*said, (0, -1)]) if rank < 0),
                rows=7,
                draft_steps=6,
                draft=0.12,
                verify=1.06,
                outcomes=said,
            )
        else:
            passes = passes if plan == GUIDED else 6
            guide = said if plan == GUIDED else ()
            one.learn(
                7,
                rows=9,
                draft_steps=6,
                draft=0.3 * passes,
                verify=1.08,
                outcomes=[(0.9, 0)] * 6,
                guide=guide,
                plan_passes=passes,
            )
    assert found[300:400].count(GUIDED) > 90
    assert found[-1] == GUIDED


def test_what_a_guide_said_is_known_of_it_alone(guided):
    one = _testing.Planner(guided, directed=True)
    before = one.rates(HEAD).outcomes
    one.start_text()
    for _ in range(4):
        one.next(GUIDE)
        one.learn(1)
    assert one.next(GUIDE)["drafts"]
    one.learn(4, rows=5, draft_steps=4, draft=1.0, verify=1.05, outcomes=[(0.9, 0)] * 3, guide=[(0.5, 0), (0.3, -1)])
    assert one.rates(HEAD).outcomes == before + 2
    assert one.rates(HEAD).matchness == 0.5
    assert one.rates(GUIDE).outcomes == 3


@pytest.fixture(scope="module")
def blocked(tmp_path_factory):
    """The head is a block head, which guides nothing."""
    return beside_a_copy(tmp_path_factory.mktemp("blocked"), make_block)


def test_where_a_text_defeats_all_plans_each_is_tried_again_but_seldom(blocked):
    """The copy and the head fail, and rest until they have earned what they lost beyond their chance."""
    one = _testing.Planner(blocked)
    one.start_text()
    tried = {ALONE: [], COPY: []}
    for done in range(600):
        a = one.next(None, [], 256.0)
        if not a["drafts"]:
            one.learn(1)
            continue
        tried[a["plan"]].append(done)
        if a["plan"] == ALONE:
            one.learn(1, rows=5, draft_steps=4, draft=0.3, verify=1.05, outcomes=[(0.1, -1)])
        else:
            one.learn(1, rows=6, draft_steps=5, draft=1.5, verify=1.05, outcomes=[(0.9, -1)])
    for rounds in tried.values():
        assert rounds[0] < 20 and any(i > 60 for i in rounds)
        assert not any(20 < i < 60 for i in rounds) and len(rounds) < 20


def test_a_head_that_was_never_tried_reads_no_long_prompt_because_a_copy_failed(guided):
    """The copy rests for a while, and only for that: what the head promises before it was tried is no reason to read a
    prompt for longer than a trial may take."""
    one = _testing.Planner(guided)
    one.start_text()
    plans = []
    for _ in range(60):
        a = one.next(None, [2000], 96.0)
        plans.append(a["plan"] if a["drafts"] else None)
        one.learn(1, rows=6, draft_steps=5, draft=1.5, verify=1.05, outcomes=[(0.9, -1)]) if a["drafts"] else one.learn(
            1
        )
    assert COPY in plans
    assert not {ALONE, GUIDED} & set(plans)
