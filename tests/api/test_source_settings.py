"""Settings of sources: they change trees and never a token, and what is out of range is named."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import swiftk
from decode import Rule, decode, open_session
from generating import PROMPT as TEXT
from generating import plain
from source_rules import LAYERS, LOOKAHEAD, LOOKUP, LOOPS, PARALLEL, PROMPT, SETS, SUFFIX, all_of
from swiftk import _core
from swiftk.draft.source_settings import SourceSettings
from swiftk.errors import InvalidArgument
from swiftk.options.generate_options import GenerateOptions
from timed_rule import samplings

N = 60
setting = st.fixed_dictionaries(
    {},
    optional={
        "suffix_length": st.integers(1, 6),
        "suffix_matches": st.integers(1, 64),
        "suffix_ranks": st.integers(1, 8),
        "lookup_ngram": st.integers(1, 16),
        "lookup_tokens": st.integers(1, 63),
        "parallel_tokens": st.integers(1, 63),
    },
)
windows = st.sampled_from([(5, 7, 7), (2, 2, 1), (2, 63, 1), (2, 56, 8), (3, 24, 8), (16, 2, 2), (9, 4, 4), (4, 5, 1)])


@given(
    ids=st.sampled_from([*SETS, (LOOKAHEAD,), (PARALLEL,), (LOOKUP, SUFFIX)]),
    each=st.lists(st.tuples(setting, windows, st.sampled_from([None, True, False])), min_size=1, max_size=4),
    sampling=samplings,
    cut=st.integers(0, 9),
)
def test_settings_change_no_token(tiny_model, ids, each, sampling, cut):
    """Between texts, and between two rounds of one."""
    model = tiny_model("llama3", layers=LAYERS, threads=1)
    want = decode(open_session(model, sampling=sampling), PROMPT, 40).tokens
    session, rule = open_session(model, sampling=sampling), all_of(*ids)
    for given_settings, (n, w, g), recall in each:
        chosen = {**given_settings, "lookahead_ngram": n, "lookahead_window": w, "lookahead_guesses": g}
        session.set_recall(recall)
        session.set_sources(_core.SourceSettings(**chosen))
        assert decode(session, PROMPT, 40, Rule(max_draft=0, timed=rule)).tokens == want
    got = [session.prefill(np.asarray(PROMPT, np.int32)).token]
    while len(got) < 40:
        session.draft(_core.TreeRule(**rule, max_draft=0))
        if len(got) % 10 == cut:
            session.set_sources(_core.SourceSettings(**{**chosen, "parallel_tokens": 1 + len(got)}))
            with pytest.raises(InvalidArgument, match="there is no tree"):
                session.verify()
            session.draft(_core.TreeRule(**rule, max_draft=0))
        got += [e.token for e in session.verify()]
        session.commit(len(session.history) and len(got) + len(PROMPT) - len(session.history))
    assert got[:40] == want


def test_settings_are_what_is_done(tiny_model):
    """Trees of one source are as large as it was given."""
    session = open_session(tiny_model("llama3", layers=LAYERS, threads=1), sampling=LOOPS)
    decode(session, PROMPT, 100)

    def proposed(source, **chosen):
        session.set_sources(_core.SourceSettings(**chosen))
        session.draft(_core.TreeRule(**all_of(source), max_draft=0))
        return session.last["proposed"][source]

    assert [proposed(PARALLEL, parallel_tokens=n) for n in (1, 20, 63)] == [1, 20, 63]
    assert [proposed(LOOKUP, lookup_tokens=n) for n in (1, 4, 20)] == [1, 4, 20]
    assert proposed(LOOKAHEAD, lookahead_ngram=3, lookahead_window=24, lookahead_guesses=8) == 23  # one level so far
    assert 0 < proposed(SUFFIX, suffix_ranks=1) <= proposed(SUFFIX, suffix_ranks=8)
    assert proposed(SUFFIX, suffix_length=64) == 0


@pytest.fixture(scope="module")
def demo():
    return swiftk.load(swiftk.demo_model())


def test_settings_say_how_far_sources_go():
    lm = swiftk.load(swiftk.demo_model())
    options = {"max_new_tokens": N, "ignore_eos": True, "speculate": "always"}
    want = plain(lm, max_new_tokens=N).tokens
    for drafter, chosen in [
        ("parallel", {"parallel_tokens": 3}),
        ("lookahead", {"lookahead_ngram": 3, "lookahead_window": 20, "lookahead_guesses": 4}),
        ("lookup", SourceSettings(lookup_ngram=1, lookup_tokens=3)),
        ("auto", {"suffix_length": 4, "suffix_ranks": 1}),
        ("parallel", None),
    ]:
        got = lm.generate(TEXT, drafter=drafter, sources=chosen, **options)
        assert got.tokens == want
        if drafter == "parallel":
            most = 3 if chosen else 7
            assert got.stats.proposed_by["parallel"] <= most * got.stats.num_steps
            assert got.stats.proposed_by["parallel"] > (most - 1) * (got.stats.num_steps - most)


BOUNDS = {
    "suffix_length": (1, 64),
    "suffix_matches": (1, 64),
    "suffix_ranks": (1, 8),
    "lookup_ngram": (1, 16),
    "lookup_tokens": (1, 63),
    "lookahead_ngram": (2, 16),
    "lookahead_window": (2, 63),
    "lookahead_guesses": (1, 8),
    "parallel_tokens": (1, 63),
}
SMALL = {"lookahead_ngram": 2, "lookahead_window": 2, "lookahead_guesses": 1}


@pytest.mark.parametrize("field", BOUNDS)
def test_a_setting_out_of_its_range_is_named(demo, field):
    """By the runtime as by the package, within the same bounds."""
    low, high = BOUNDS[field]
    for value in (low, high):
        good = SMALL | {field: value}
        assert GenerateOptions(sources=good).draft.sources.arguments() == {**SourceSettings().arguments(), **good}
        demo.session.set_sources(_core.SourceSettings(**good))
    for value in (low - 1, high + 1):
        with pytest.raises(InvalidArgument, match=rf"\[sources\] {field}={value}, want an integer in {low}..{high}"):
            GenerateOptions(sources=SMALL | {field: value})
        with pytest.raises(InvalidArgument, match=rf"\[sources\] {field} is {value}, want {low}..{high}"):
            demo.session.set_sources(_core.SourceSettings(**SMALL | {field: value}))
    with pytest.raises(InvalidArgument, match=field):
        SourceSettings(**{field: True})
    assert set(BOUNDS) == {one.name for one in dataclasses.fields(SourceSettings)} - {"corpus"}


def test_a_window_must_fit_a_tree(demo):
    large = {"lookahead_ngram": 5, "lookahead_window": 9, "lookahead_guesses": 8}
    words = r"\(lookahead_ngram - 1\) \* \(lookahead_window \+ lookahead_guesses\) is 68, want at most 64"
    with pytest.raises(InvalidArgument, match=words):
        GenerateOptions.parse({"sources": large})
    with pytest.raises(InvalidArgument, match=words):
        demo.session.set_sources(_core.SourceSettings(**large))
    GenerateOptions.parse({"sources": {**large, "lookahead_window": 8}})
