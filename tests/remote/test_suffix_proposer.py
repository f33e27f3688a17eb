"""The client's source of repetitions: what it proposes, and how often it reads a text."""

import random

import pytest

from swiftk import _core, _testing
from swiftk.remote.proposer import SuffixProposer


class Counting:
    """Counts the tokens that an automaton takes in."""

    followed = 0

    def __init__(self, name):
        self._source = Source(name)

    def follow(self, tokens):
        Counting.followed += len(tokens)
        self._source.follow(tokens)

    def __getattr__(self, name):
        return getattr(self._source, name)


Source = _testing.Source


@pytest.fixture
def followed(monkeypatch):
    monkeypatch.setattr(_core.sources, "Source", Counting)
    monkeypatch.setattr(Counting, "followed", 0)
    return lambda: Counting.followed


def from_scratch(text, count):
    source = Source("suffix")
    source.follow(text)
    at, found = source.root(), []
    while len(found) < count:
        _, tokens = source.propose(at)
        if not tokens:
            break
        found.append(tokens[0])
        at = source.step(at, tokens[0])
    return found


@pytest.mark.parametrize("wrong", [0.0, 0.3, 1.0])
def test_a_text_is_taken_in_once(followed, wrong):
    """The server says the next words, right after proposals as often as not: each token is followed once, and
    proposals after verified text are those of an automaton of that text."""
    rng = random.Random(4)
    words = [[rng.randrange(50) for _ in range(6)] for _ in range(5)]
    prompt = [t for _ in range(40) for t in rng.choice(words)]
    proposer, text = SuffixProposer(), []
    proposer.begin(prompt, {})
    for _ in range(200):
        ahead = proposer.propose(text, 4)
        assert ahead == from_scratch([*prompt, *text], 4) or followed() < len(prompt) + len(text)
        more = proposer.propose([*text, *ahead], 4)  # before the server has said what it thinks of those
        if rng.random() < wrong:
            text += [*ahead[: rng.randrange(4)], 50 + rng.randrange(50)]
        else:
            text += [*ahead, *more]
    assert len(prompt) < followed() <= len(prompt) + len(text)


def test_another_text_begins_anew(followed):
    proposer, prompt = SuffixProposer(), [1, 2, 3, 1, 2]
    proposer.begin(prompt, {})
    assert proposer.propose([], 2) == [3, 1]
    assert proposer.propose([7, 1, 2], 1) == from_scratch([*prompt, 7, 1, 2], 1)
    assert proposer.propose([8, 1, 2], 1) == from_scratch([*prompt, 8, 1, 2], 1), "the server said another token"
    assert followed() == 5 + 3 + 8, "all of the other text is read"
    proposer.begin([4, 5, 4], {})
    assert proposer.propose([], 1) == [5]
