"""Which set a prompt starts with, by prompts before; and where new sets come from."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

import swiftk
from swiftk.draft.draft_spec import DraftSpec
from swiftk.search.domains import Domains
from swiftk.search.sublayers import skip_set, sublayers
from swiftk.search.swift import local_move, random_set
from swiftk.text.tokenizer import Tokenizer

LAYERS = 12
DATA = Path(__file__).resolve().parents[2] / "bench" / "paper" / "data"
KINDS = ["gsm8k", "humaneval", "translation", "summarization"]
ASKED = {"humaneval": "{}", "summarization": "{:.500}\nSummary:"}  # as studies ask a model without a template


@pytest.fixture(scope="module")
def prompts():
    """Tokens of twenty prompts of each kind, as the bundled model has them."""
    tokenizer = Tokenizer(swiftk.demo_model())

    def read(kind):
        lines = (DATA / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines()
        asked = ASKED.get(kind, "Question: {}\nAnswer:")
        return [tokenizer.encode(asked.format(json.loads(line)["turns"][0])) for line in lines[:20]]

    return {kind: read(kind) for kind in KINDS}


def set_of(kind, text=0):
    return DraftSpec(attn=[text], exit_layer=5 + KINDS.index(kind))


def taught(prompts, per_kind, seed=0):
    """A memory of the last `per_kind` prompts of each kind, met in mixed order."""
    met = [(kind, prompts[kind][-1 - i]) for kind in KINDS for i in range(per_kind)]
    random.Random(seed).shuffle(met)
    domains = Domains()
    for kind, prompt in met:
        domains.enter(prompt)
        domains.leave(set_of(kind), 1.5)
    return domains


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("per_kind", "share"), [(1, 0.75), (3, 0.85), (12, 0.9)])
def test_the_right_kind_is_recalled(prompts, per_kind, share, seed):
    domains = taught(prompts, per_kind, seed)
    recalled = [domains.enter(prompt) == set_of(kind) for kind in KINDS for prompt in prompts[kind][:8]]
    assert np.mean(recalled) >= share


def test_an_unknown_kind_is_nobodys(prompts):
    rng = np.random.default_rng(0)
    domains = Domains()
    assert domains.enter(prompts["gsm8k"][0]) is None
    assert domains.best is None
    domains = taught(prompts, 6)
    strangers = [domains.enter(rng.integers(5000, 90_000, 200).tolist()) for _ in range(20)]
    assert strangers == [None] * 20


def test_the_latest_set_of_a_kind_counts(prompts):
    """Sets get better from text to text."""
    domains = taught(prompts, 3)
    for text in range(4):
        domains.enter(prompts["humaneval"][0])
        domains.leave(set_of("humaneval", text), 2.0)
    assert domains.enter(prompts["humaneval"][0]) == set_of("humaneval", 3) == domains.best
    assert domains.enter(prompts["translation"][0]) == set_of("translation")


def test_a_full_memory_keeps_the_kinds_that_come_seldom(prompts):
    domains = taught(prompts, 2)
    for _ in range(10):
        for prompt in prompts["gsm8k"]:
            domains.enter(prompt)
            domains.leave(set_of("gsm8k", 1), 1.5)
            assert len(domains.known) <= 32
    for kind in KINDS[1:]:
        recalled = [domains.enter(prompt) == set_of(kind) for prompt in prompts[kind][:8]]
        assert np.mean(recalled) >= 0.75
    assert domains.enter(prompts["gsm8k"][3]) == set_of("gsm8k", 1)


def test_leaving_without_having_entered_is_nothing():
    domains = Domains()
    domains.leave(DraftSpec(), 1.0)
    assert domains.known == []


@pytest.mark.parametrize("tokens", [[], [7], [2**31 - 1] * 5, list(range(5000))])
def test_any_prompt_may_come(tokens):
    domains = Domains()
    assert domains.enter(tokens) is None
    domains.leave(DraftSpec(), 1.0)
    assert domains.enter(tokens) == (DraftSpec() if tokens else None)


def test_a_memory_comes_back_as_it_was_saved(prompts):
    domains = taught(prompts, 6)
    again = Domains()
    again.restore(json.loads(json.dumps(domains.to_list())), LAYERS)
    assert [d.skip for d in again.known] == [d.skip for d in domains.known]
    assert [d.rate for d in again.known] == [d.rate for d in domains.known]
    for prompt in prompts["translation"][:8] + prompts["gsm8k"][:8]:
        assert again.enter(prompt) == domains.enter(prompt)
    assert again.best == domains.best


GOOD = {"features": [[3, 200], [2000, 90]], "skip": DraftSpec(attn=[1]).to_dict(), "rate": 1.5}


@pytest.mark.parametrize(
    "wrong",
    [
        {"features": [[2048, 1]]},
        {"features": [[-1, 1]]},
        {"features": [[1, 300]]},
        {"features": [1]},
        {"features": "x"},
        {"skip": DraftSpec(attn=[LAYERS]).to_dict()},
        {"skip": {"attn": 3}},
        {"rate": "fast"},
    ],
    ids=str,
)
def test_what_is_no_memory_is_refused_and_nothing_taken_over(wrong):
    domains = Domains()
    domains.restore([GOOD], LAYERS)
    with pytest.raises((ValueError, KeyError, TypeError)):
        domains.restore([GOOD, {**GOOD, **wrong}], LAYERS)
    assert len(domains.known) == 1


# Proposals


@pytest.mark.parametrize("layers", [1, 2, 3, 8, 32])
def test_moves_stay_inside_the_model_and_keep_a_sublayer(layers):
    rng = random.Random(layers)
    skip, seen = DraftSpec.uniform(layers), set()
    for _ in range(400):
        new = local_move(skip, layers, rng).check(layers)
        before, after = sublayers(skip, layers), sublayers(new, layers)
        assert len(before ^ after) <= 6, "three moves of two sublayers"
        assert len(after) < 2 * layers
        skip = new
        seen.add(new)
    assert len(seen) > (2 if layers < 3 else 50)


def test_sets_and_numbers_of_sublayers_are_the_same_thing():
    rng = random.Random(0)
    for _ in range(200):
        numbers = frozenset(rng.sample(range(2 * LAYERS), rng.randint(0, 2 * LAYERS)))
        assert sublayers(skip_set(numbers, LAYERS), LAYERS) == numbers
    assert skip_set({2, 20, 21, 22, 23}, LAYERS) == DraftSpec(attn=[1], exit_layer=10)


@pytest.mark.parametrize("count", [0, 1, 7, 20, 99])
def test_random_sets_spare_the_first_and_the_last_layer(count):
    skip = random_set(count, LAYERS, random.Random(count))
    numbers = sublayers(skip, LAYERS)
    assert len(numbers) == min(count, 2 * (LAYERS - 2))
    assert numbers <= set(range(2, 2 * LAYERS - 2))
