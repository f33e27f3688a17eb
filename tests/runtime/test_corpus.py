"""Drafts from text files of the user's: the index against a slow search, and texts that do not change."""

import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import swiftk
from swiftk import _core, _testing
from swiftk.errors import InvalidArgument, InvalidOption
from swiftk.text import corpus as corpora

LONGEST = 16
tokens = st.lists(st.integers(-1, 3), min_size=1, max_size=60).filter(lambda some: max(some) >= 0)
texts = st.lists(st.integers(0, 4), min_size=1, max_size=24)


def places(corpus, run):
    """Where a run begins, slowly."""
    return [i for i in range(len(corpus) - len(run) + 1) if corpus[i : i + len(run)] == run]


def longest(corpus, text):
    """Tokens of the longest suffix that occurs."""
    most = min(LONGEST, len(text))
    return next((n for n in range(most, 0, -1) if places(corpus, text[-n:])), 0)


def followers(corpus, run):
    """How often each token comes after it."""
    behind = [corpus[i + len(run)] for i in places(corpus, run) if i + len(run) < len(corpus)]
    return {token: behind.count(token) for token in behind if token >= 0}


def source(corpus, text=()):
    made = _testing.Source("corpus", corpus=_core.sources.Corpus(np.array(corpus, np.int32)))
    made.follow(list(text))
    return made


@settings(max_examples=300, deadline=None)
@given(tokens, texts)
def test_the_longest_suffix_is_found_and_what_follows_it(corpus, text):
    made = source(corpus, text)
    at, length = made.root()
    assert length == longest(corpus, text) and (at >= 0) == (length > 0)
    _, said = made.propose((at, length))
    want = followers(corpus, text[-length:]) if length >= 2 else {}
    assert set(said) == set(sorted(want, key=lambda token: -want[token])[:8])
    assert [want[token] for token in said] == sorted(want.values(), reverse=True)[:8]


@settings(max_examples=300, deadline=None)
@given(tokens, texts, texts)
def test_a_path_is_followed_as_if_it_were_text(corpus, text, path):
    made = source(corpus, text)
    place = made.root()
    for token in path:
        place = made.step(place, token)
    assert place == source(corpus, [*text, *path]).root()


def test_long_runs_and_surer_lists_are_in_later_buckets():
    corpus = [*range(20), -1, 0, 1, 7, -1, 5, 6, 9]
    made = source(corpus, range(12))
    sure, said = made.propose(made.root())
    doubtful, two = made.propose(source(corpus, [5, 6]).root())
    assert said == [12] and sorted(two) == [7, 9] and sure == 15 and doubtful < 4


def test_nothing_is_proposed_without_a_corpus():
    made = _testing.Source("corpus")
    made.follow([1, 2, 3])
    assert made.propose(made.step(made.root(), 2)) == (0, [])
    with pytest.raises(InvalidArgument, match=r"\[corpus\] got 2 tokens"):
        _core.sources.Corpus(np.array([-1, -1], np.int32))


PROMPT = "def read_lines(path):\n"
ASKED = {"max_new_tokens": 60, "ignore_eos": True}


@pytest.fixture(scope="module")
def lm():
    return swiftk.load(swiftk.demo_model(), threads=1)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_files_that_hold_the_answer_draft_it(lm, tmp_path, temperature):
    asked = {**ASKED, "temperature": temperature, "seed": 3}
    plain = lm.generate(PROMPT, **asked, speculate=False)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "answer.txt").write_text(PROMPT + plain.text, encoding="utf-8")
    (tmp_path / "notes" / "other.txt").write_text("nothing of it\n", encoding="utf-8")
    drafted = lm.generate(PROMPT, **asked, drafter="corpus", sources={"corpus": tmp_path}, speculate="always")
    assert drafted.tokens == plain.tokens and drafted.sources.count("corpus") > 30
    beside = lm.generate(PROMPT, **asked, sources={"corpus": str(tmp_path / "notes" / "answer.txt")})
    assert beside.tokens == plain.tokens


def test_a_corpus_of_all_texts_is_given_to_load(lm, tmp_path):
    plain = lm.generate(PROMPT, **ASKED, speculate=False)
    (tmp_path / "answer.txt").write_text(PROMPT + plain.text, encoding="utf-8")
    with swiftk.load(swiftk.demo_model(), threads=1, corpus=tmp_path) as own:
        drafted = own.generate(PROMPT, **ASKED, drafter="corpus", speculate="always")
        assert drafted.tokens == plain.tokens and drafted.sources.count("corpus") > 30
        assert own.generate(PROMPT, **ASKED).tokens == own.generate(PROMPT, **ASKED, drafter="plan").tokens
    with pytest.raises(InvalidArgument, match="nowhere does not exist"):
        swiftk.load(swiftk.demo_model(), corpus=tmp_path / "nowhere")


def test_an_index_is_made_once_and_again_when_files_change(lm, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(corpora, "_LOOK", 0.0)
    monkeypatch.setattr(corpora.Corpora, "_read", lambda *of: made.append(of) or "index")
    of = corpora.Corpora(lm.tokenizer)
    (tmp_path / "one.txt").write_text("first")
    assert of.of(tmp_path) == of.of(tmp_path) == "index" and len(made) == 1
    (tmp_path / "two.txt").write_text("second")
    assert of.of(tmp_path) == "index" and len(made) == 2
    (tmp_path / ".hidden").write_text("third")
    assert of.of(tmp_path) == "index" and len(made) == 2


def test_plain_decoding_reads_none(lm, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(corpora.Corpora, "of", lambda _, path: made.append(path))
    (tmp_path / "one.txt").write_text("some words")
    lm.generate(PROMPT, **ASKED, speculate=False, sources={"corpus": tmp_path})
    assert not made
    lm.generate(PROMPT, **ASKED, sources={"corpus": tmp_path})
    assert made == [tmp_path]


def test_long_reading_is_told(lm, tmp_path, monkeypatch, caplog):
    times = iter(range(1000))
    monkeypatch.setattr(corpora, "monotonic", lambda: 2.0 * next(times))
    (tmp_path / "one.txt").write_text("some words\n" * 10)
    with caplog.at_level(logging.INFO, "swiftk"):
        corpora.Corpora(lm.tokenizer).of(tmp_path)
    assert f"reading {tmp_path}: 1 of 1 files" in caplog.text


def test_what_cannot_be_read_is_named(lm, tmp_path):
    def refused(path, match):
        with pytest.raises(InvalidArgument, match=match):
            lm.generate(PROMPT, **ASKED, sources={"corpus": path})

    (tmp_path / "empty").mkdir()
    (tmp_path / "binary.dat").write_bytes(b"\xff\xfe\x00" * 9)
    refused(tmp_path / "nowhere", "nowhere does not exist, want a text file")
    refused(tmp_path / "empty", "empty has no text, want a text file")
    refused(tmp_path / "binary.dat", "binary.dat is not UTF-8")
    with pytest.raises(InvalidArgument, match="has no text"):  # in a folder it is passed over
        corpora.Corpora(lm.tokenizer).of(tmp_path)
    assert lm.generate(PROMPT, **ASKED).tokens  # and the model goes on


@pytest.mark.parametrize(
    "options, match",
    [
        ({"drafter": "corpus"}, "drafter='corpus' has no text, want sources="),
        ({"drafter": "suffix", "sources": {"corpus": "."}}, "drafter='suffix' does not use it"),
        ({"sources": {"corpus": 3}}, "corpus=3, want the path"),
        ({"sources": {"corpus": ""}}, "corpus='', want the path"),
    ],
)
def test_contradictions_are_refused(lm, options, match):
    with pytest.raises((InvalidArgument, InvalidOption), match=match):
        lm.generate(PROMPT, **ASKED, **options)
