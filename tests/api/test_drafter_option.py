"""generate(drafter=...): the same text whoever proposes it, who did is reported, contradictions are refused."""

import functools

import pytest

import swiftk
from generating import PROMPT, plain
from marks import exhaustive
from swiftk.draft.sources import DRAFTERS
from swiftk.errors import InvalidArgument
from swiftk.options.generate_options import GenerateOptions

N = 60

OWN = [name for name, one in DRAFTERS.items() if not one.beside]  # others: runtime/test_heads.py


def by(drafter):
    """Options that name it, and what it drafts from."""
    return {"drafter": drafter, **({"sources": {"corpus": __file__}} if drafter == "corpus" else {})}


@pytest.fixture(scope="module")
def demo():
    return swiftk.load(swiftk.demo_model(), threads=1)


@pytest.fixture(scope="module")
def truth(demo):
    """truth(**options): what plain decoding gives."""
    return functools.cache(lambda **options: plain(demo, max_new_tokens=N, **options))


@pytest.mark.parametrize("speculate", [True, "always"])
@pytest.mark.parametrize(
    "options", [{}, {"temperature": 1.0, "top_p": 0.9, "seed": 4}, *exhaustive({"temperature": 0.8, "seed": 3})]
)
@pytest.mark.parametrize("drafter", OWN)
def test_the_text_is_plain_decodings(demo, truth, drafter, options, speculate):
    want = truth(**options)
    got = demo.generate(
        PROMPT, max_new_tokens=N, ignore_eos=True, speculate=speculate, logprobs=2, **by(drafter), **options
    )
    assert got.tokens == want.tokens and got.text == want.text
    asked = set(DRAFTERS[drafter].sources) | ({"plan"} if DRAFTERS[drafter].plan else set())
    assert set(got.sources) <= asked | {None}
    s = got.stats
    assert s.accepted_by == {name: got.sources.count(name) for name in s.accepted_by}
    assert s.accepted_by.get("plan", 0) == s.num_accepted_draft_tokens <= s.num_draft_tokens
    assert set(s.proposed_by) <= asked and sum(s.proposed_by.values()) == s.num_tree_tokens
    assert all(s.accepted_by[name] <= s.proposed_by[name] for name in s.accepted_by)
    assert s.num_draft_tokens == 0 or "plan" in asked
    never = speculate is True and s.num_draft_tokens == 0  # by the clock
    assert (s.skip is None) == ("plan" not in asked or never)


@pytest.mark.parametrize("drafter", OWN)
def test_rejection_repeats_a_text_that_does_not_go_by_the_clock(demo, drafter):
    """And ends where it should. Whether its distribution is the target's is test_sampling's to say."""
    options = {"temperature": 0.9, "seed": 5, "acceptance": "rejection", "speculate": "always", **by(drafter)}
    options["recall"] = False  # what is proposed decides which draws are made
    got = demo.generate(PROMPT, max_new_tokens=N, ignore_eos=True, **options)
    assert len(got.tokens) == N
    if drafter in ("lookup", "lookahead", "parallel", "template"):  # all that they propose, whatever it costs
        assert demo.generate(PROMPT, max_new_tokens=N, ignore_eos=True, **options).tokens == got.tokens


@pytest.mark.parametrize("budget", [1, 2, 3, 7])
def test_the_end_of_the_text_is_kept(demo, budget):
    for drafter in OWN:
        got = demo.generate("the " * 20, max_new_tokens=budget, ignore_eos=True, speculate="always", **by(drafter))
        assert len(got.tokens) == budget
        assert got.tokens == plain(demo, "the " * 20, max_new_tokens=budget).tokens


def test_stop_strings_end_inside_of_a_proposed_block(demo):
    loop = plain(demo, max_new_tokens=200)
    stop = loop.text[-12:]
    want = plain(demo, max_new_tokens=200, stop=[stop])
    got = demo.generate(PROMPT, max_new_tokens=200, ignore_eos=True, stop=[stop], drafter="suffix", speculate="always")
    assert (got.tokens, got.text, got.finish_reason) == (want.tokens, want.text, "stop")


def test_events_report_who_proposed(demo):
    stream = demo.generate(PROMPT, max_new_tokens=N, ignore_eos=True, drafter="suffix", speculate="always", stream=True)
    events = list(stream)
    assert [e.source for e in events] == stream.result.sources
    assert all((e.source is not None) == e.drafted for e in events)
    assert stream.result.to_dict()["sources"] == stream.result.sources


@pytest.mark.parametrize("recall", [None, False, True])
def test_recall_reaches_into_the_text_before(recall):
    options = {"max_new_tokens": 64, "ignore_eos": True, "drafter": "suffix", "speculate": "always", "recall": recall}
    with swiftk.load(swiftk.demo_model(), threads=1) as lm:
        texts = [lm.generate("The river runs through", **options) for _ in range(5)]
    assert all(text.tokens == texts[0].tokens for text in texts)
    first, *later = (text.stats.accepted_by.get("suffix", 0) for text in texts)
    assert first < 45
    assert (max(later) > 45) == bool(recall)


def rounds(lm, **options):
    """Those of a text that sources alone draft, whatever pays."""
    chosen = {"max_new_tokens": N, "ignore_eos": True, "drafter": "template", "speculate": "always", **options}
    result = lm.generate(PROMPT, **chosen)
    assert result.tokens == plain(lm, max_new_tokens=N).tokens
    return result.stats.num_steps


def test_a_matrix_stays_until_it_is_forgotten():
    lm = swiftk.load(swiftk.demo_model(), threads=1)
    first = rounds(lm)
    again = rounds(lm)
    assert again < first
    assert rounds(lm, recall=False) == first
    rounds(lm)
    lm.forget()
    assert rounds(lm) == first


def test_without_a_skip_set_sources_go_on_alone():
    with swiftk.load(swiftk.demo_model(), threads=1) as lm:
        s = lm.generate(PROMPT, max_new_tokens=N, ignore_eos=True, skip=None, speculate="always").stats
    assert s.num_draft_tokens == 0 and s.skip is None
    assert s.proposed_by.keys() == {"suffix", "recycle"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"drafter": "sufix"}, "drafter='sufix', want one of 'auto', 'plan', 'suffix'"),
        ({"drafter": "auto", "gate": 0.5}, "drafter='auto' is chosen by time"),
        ({"drafter": "lookup", "optimizer": "swift"}, "drafter='lookup' is chosen by time"),
        ({"drafter": "recycle", "skip": [1, 2]}, "drafter='recycle' skips no layers"),
        ({"drafter": "parallel", "assistant_early_exit": 2}, "drafter='parallel' skips no layers"),
        ({"drafter": "plan", "sources": {"suffix_ranks": 2}}, "drafter='plan' uses none"),
        ({"optimizer": "swift", "sources": {"suffix_ranks": 2}}, "drafter='plan' uses none"),
        ({"sources": {"sufix": 2}}, "unknown setting 'sufix', want some of suffix_length"),
        ({"sources": 3}, "got 3, want SourceSettings or a mapping"),
    ],
)
def test_what_contradicts_is_refused(options, words):
    with pytest.raises(InvalidArgument, match=words):
        GenerateOptions.parse(options)
    with pytest.raises(TypeError, match="recall"):
        GenerateOptions.parse({"recall": 1})


@pytest.mark.parametrize(
    ("options", "name"),
    [({}, "auto"), ({"gate": 0.5}, "plan"), ({"optimizer": "swift"}, "plan"), ({"gate": "swift"}, "plan")],
)
def test_papers_ways_have_the_plan_alone(options, name):
    assert GenerateOptions.parse(options).draft.drafter == name


def test_a_plan_drafts_in_company_too(demo):
    """Of texts that begin in one round, without a source beside the plan."""
    texts = demo.generate_many([PROMPT] * 3, max_new_tokens=N, ignore_eos=True, drafter="plan", speculate="always")
    want = plain(demo, max_new_tokens=N).tokens
    assert all(r.tokens == want and r.stats.num_accepted_draft_tokens > N / 3 for r in texts)
