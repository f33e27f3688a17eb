"""Output stays plain decoding's while optimizers score candidates and change the draft's plan between any two
rounds."""

import random

import numpy as np
import pytest

import swiftk
from debug_words import ask
from distribution import DRAWS, VOCAB, chi_square_p, exact_joint
from generating import PROMPT
from marks import exhaustive
from swiftk import _core
from swiftk.draft.draft_spec import DraftSpec
from swiftk.draft.tree_rule import TreeRule
from swiftk.running.director import PassedOver, TextScorer
from swiftk.running.policies import Policy
from swiftk.search.base import DraftConfig, Optimizer

LAYERS = 4
SETS = [
    DraftSpec.uniform(LAYERS),
    DraftSpec([1], [1, 2]),
    DraftSpec([0, 3], []),
    DraftSpec.early_exit(1),
    DraftSpec.early_exit(3),
    DraftSpec([0], [1], 2),
]
SAMPLED = [{"temperature": 0.6, "top_p": 0.95}, {"temperature": 1.5, "top_k": 7, "repetition_penalty": 1.3}]


class Restless(Optimizer):
    """Another plan each round, and scores and proposals between rounds."""

    def __init__(self, seed):
        self.configs, self.rng, self.used = [DraftConfig(skip) for skip in SETS], random.Random(seed), set()
        super().__init__(self.configs[0], None)

    def observe(self, r, plain_seconds):
        """Nothing is learned."""

    def next(self):
        self.current = self.rng.choice(self.configs)
        self.used.add(self.current.skip)
        return self.current

    def step(self, score, progress):
        cached = progress.prompt + progress.generated - 1
        if self.rng.random() < 0.3:
            window = self.rng.randint(1, cached)
            score(self.rng.choice(SETS), window, self.rng.randint(window, cached))
        if self.rng.random() < 0.1:
            score.propose(2)
        return False


class Steady(Optimizer):
    """One plan; it keeps the plain steps that its rounds were compared with."""

    def __init__(self):
        self.plain = []
        super().__init__(DraftConfig(SETS[0]), None)

    def observe(self, r, plain_seconds):
        self.plain.append(plain_seconds)


@pytest.fixture(scope="module")
def lm(tiny_dir):
    return swiftk.load(tiny_dir("llama3", layers=LAYERS))


@pytest.fixture
def directed(monkeypatch):
    """directed(lm, optimizer): from now on it directs all texts that draft."""

    def put(lm, optimizer, rule=None):
        take = lm.policies.take

        def directed(o, skip):
            if o.draft is None:
                return take(o, skip)
            return Policy("ruled" if rule else "planned", "directed", (SETS[0],), rule, None, optimizer)

        monkeypatch.setattr(lm.policies, "take", directed)
        return optimizer

    return put


@pytest.mark.parametrize("rule", [None, TreeRule()], ids=["by time", "swift"])
@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, *SAMPLED], ids=str)
def test_a_plan_that_changes_every_round_changes_no_token(lm, directed, sampling, rule):
    options = {"max_new_tokens": 48, "ignore_eos": True, **sampling}
    want = [lm.generate(PROMPT, seed=seed, speculate=False, **options).tokens for seed in range(6)]
    optimizer = directed(lm, Restless(0), rule)
    for seed in range(6):
        found = lm.generate(PROMPT, seed=seed, drafter="plan", speculate="always", **options)
        assert found.tokens == want[seed]
        assert found.stats.num_draft_tokens > 0
    assert optimizer.used == set(SETS)
    again = [lm.generate(PROMPT, seed=seed, speculate=False, **options).tokens for seed in range(6)]
    assert again == want, "what texts leave for others is the target's own"


@pytest.mark.skipif("config.getoption('device') != 'cpu'", reason="seconds are those of no machine")
@pytest.mark.parametrize(("texts", "plain"), [(1, 1.0), (4, 2.5)])
def test_a_plan_is_judged_by_a_plain_step_of_the_texts_that_ran_with_it(tiny_dir, monkeypatch, directed, texts, plain):
    """A round's seconds are of all its texts, and so is the plain step that they are compared with."""
    ask(monkeypatch, "clock=plan:.1/row:.5/far:.5")
    lm = swiftk.load(tiny_dir("llama3", layers=LAYERS))
    optimizer = directed(lm, Steady())
    lm.generate(PROMPT, n=texts, max_new_tokens=24, ignore_eos=True, drafter="plan")
    assert optimizer.plain and set(optimizer.plain) == {plain}


def test_a_text_that_is_not_there_is_passed_over(lm):
    """It has ended, or gave its memory up: a search knows so, and gets no empty score."""
    ticket = lm._engine.submit(_core.Request(prompt=np.int32(lm.encode(PROMPT)), max_new_tokens=4))
    scorer = TextScorer(ticket)
    for score in (lambda: scorer(SETS[0], 8), lambda: scorer.exits([1, 2], 8)):
        with pytest.raises(PassedOver):
            score()
    assert scorer.propose(2) == [] and scorer.seconds == 0
    ticket.drop()


@pytest.mark.parametrize(("optimizer", "interval"), [("swift", 1), ("swift", None), ("auto", None)])
@pytest.mark.parametrize("sampling", [SAMPLED[0], *exhaustive({"temperature": 0.0}, SAMPLED[1])], ids=str)
def test_real_optimizers_change_no_token(lm, optimizer, interval, sampling):
    lm.forget()
    settings = {"opt_interval": interval, "window": 8, "bayes_interval": 4, "max_score": 1.0}
    quick = {"swift": settings} if optimizer == "swift" else {}
    options = {"max_new_tokens": 64, "ignore_eos": True, **sampling}
    tried = set()
    for seed in range(4):
        want = lm.generate(PROMPT, seed=seed, speculate=False, **options).tokens
        found = lm.generate(PROMPT, seed=seed, speculate="always", optimizer=optimizer, **quick, **options)
        assert found.tokens == want
        tried |= {one.skip for one in found.trace.candidates}
    assert len(tried) > 3 or interval is None  # by the clock: a busy machine may leave it no time


@pytest.mark.parametrize("acceptance", ["coupled", "rejection"])
@pytest.mark.parametrize("sampling", [{"temperature": 0.6, "top_p": 0.8}, *exhaustive({"temperature": 1.0})], ids=str)
def test_a_plan_that_changes_every_round_changes_no_distribution(tiny_dir, directed, sampling, acceptance):
    lm = swiftk.load(tiny_dir("llama3", layers=LAYERS, vocab=VOCAB), threads=1)
    prompt = [3, 1, 4, 1, 5]
    joint = exact_joint(lm.model, sampling)
    optimizer, counts, drafted = directed(lm, Restless(1), TreeRule()), 0 * joint, 0
    for seed in range(DRAWS):
        asked = {"drafter": "plan", "speculate": "always", "acceptance": acceptance, **sampling}
        found = lm.generate(prompt, max_new_tokens=3, ignore_eos=True, seed=seed, **asked)
        counts[found.tokens[0], found.tokens[1]] += 1
        drafted += found.drafted[1]
    assert optimizer.used == set(SETS) and drafted > DRAWS / 20
    assert chi_square_p(counts, joint) > 1e-4
