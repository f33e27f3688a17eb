"""generate(draft=...): each older spelling is one of it, what contradicts is named, and the text stays the same."""

import re
from dataclasses import replace

import pytest

import swiftk
from generating import PROMPT, plain
from swiftk import Draft, DraftSpec, SourceSettings, SwiftSettings, TreeRule
from swiftk.draft.sources import DRAFTERS
from swiftk.errors import InvalidArgument, InvalidOption
from swiftk.options.generate_options import GenerateOptions

N = 48
EAGLE_2 = {"beam": 10, "max_draft": 6, "max_nodes": 60}
CORPUS = {"corpus": __file__}

# (options as they were, the same by draft=)
SPELLINGS = [
    ({"speculate": False}, None),
    ({"speculate": False, "skip": [1]}, None),
    ({}, "auto"),
    ({"speculate": "always"}, Draft(always=True)),
    *(({"drafter": name}, name) for name in DRAFTERS),
    ({"drafter": "suffix", "sources": {"suffix_ranks": 2}}, {"suffix": {"sources": {"suffix_ranks": 2}}}),
    ({"drafter": "corpus", "sources": CORPUS}, Draft("corpus", sources=SourceSettings(**CORPUS))),
    ({"max_draft": 4}, Draft(max_draft=4)),
    ({"skip": [2, 1]}, Draft.plan([1, 2])),
    ({"skip": "int4"}, {"plan": "int4"}),
    ({"skip": "int4", "speculate": "always"}, {"plan": {"skip": "int4", "always": True}}),
    ({"skip": DraftSpec([1]), "drafter": "auto"}, Draft("auto", skip=DraftSpec([1]))),
    ({"skip": "card.json", "optimizer": None}, Draft.plan("card.json")),
    ({"skip": "card.json", "optimizer": "self-sd"}, {"self_sd": "card.json"}),
    ({"skip": None}, Draft(skip=None)),
    ({"skip": [1], "gate": 0.5, "max_draft": 3}, Draft.plan([1], rule=TreeRule(0.5), max_draft=3)),
    ({"assistant_early_exit": 4}, {"early_exit": 4}),
    ({"skip": DraftSpec.early_exit(4)}, Draft.early_exit(4)),
    ({"assistant_early_exit": "auto"}, "early_exit"),
    ({"optimizer": None}, Draft(search=None)),
    ({"optimizer": "swift"}, "swift"),
    ({"optimizer": "swift", "swift": {"window": 8}, "gate": "swift"}, Draft.swift(window=8)),
    ({"optimizer": "swift", "max_draft": 40}, Draft.swift(max_draft=40)),
    ({"optimizer": "swift-paper"}, {"swift_paper": {}}),
    ({"optimizer": "swift-paper", "swift": {"opt_interval": 3}}, Draft.swift_paper(opt_interval=3)),
    ({"skip": "drafter", "gate": EAGLE_2}, Draft.eagle_tree()),
    ({"skip": "drafter-2", "gate": TreeRule(beam=4, max_draft=3)}, Draft.eagle_tree(4, 3, 64, head="drafter-2")),
]


def short(value):
    return str(value)[:60]


@pytest.mark.parametrize(("older", "draft"), SPELLINGS, ids=short)
def test_older_options_are_spellings_of_it(older, draft):
    if draft == "corpus":
        older = {**older, "sources": CORPUS}
        draft = {"corpus": {"sources": CORPUS}}
    found = GenerateOptions.parse({**older, "temperature": 0.5})
    assert found == GenerateOptions.parse({"draft": draft, "temperature": 0.5})
    assert found == replace(found) and replace(found, seed=3).draft == found.draft


def test_different_options_are_different_drafts():
    found = [GenerateOptions.parse(older).draft for older, _ in SPELLINGS]
    assert len({repr(one) for one in found}) == len(SPELLINGS) - 3  # plain, an early exit and SWIFT's gate: twice each


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("speculate", False), ("skip", [1]), ("assistant_early_exit", 2), ("gate", 0.5), ("max_draft", 3)),
        *(("drafter", "plan"), ("optimizer", None), ("swift", {"window": 8}), ("sources", {"suffix_ranks": 2})),
    ],
)
@pytest.mark.parametrize("draft", [None, "suffix", Draft(), {"early_exit": 2}], ids=str)
def test_it_stands_alone(draft, name, value):
    words = rf"\[generate\] draft=.* and {name}={re.escape(repr(value))} both say how to draft, want one"
    with pytest.raises(InvalidArgument, match=words):
        GenerateOptions.parse({"draft": draft, name: value})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Draft("sufix"), "drafter='sufix', want one of 'auto', 'plan', 'suffix'"),
        (lambda: Draft("suffix", skip=[1]), "drafter='suffix' skips no layers"),
        (lambda: Draft("suffix", search="exits"), "drafter='suffix' skips no layers"),
        (lambda: Draft("auto", rule=TreeRule()), "drafter='auto' is chosen by time"),
        (lambda: Draft("eagle", search=SwiftSettings()), "drafter='eagle' is chosen by time"),
        (lambda: Draft(skip=[1], search=SwiftSettings()), "leave one of them out"),
        (lambda: Draft(skip=[1], search="exits"), "leave one of them out"),
        (lambda: Draft(rule="self-sd"), "searches offline"),
        (lambda: Draft("plan", sources={"suffix_ranks": 2}), "drafter='plan' uses none"),
        (lambda: Draft("suffix", sources=CORPUS), "want 'auto' or 'corpus'"),
        (lambda: Draft(search="swift"), "search='swift', want 'auto', 'exits', None or SwiftSettings"),
        (lambda: Draft(rule=0.5), "rule=0.5, want 'time', 'self-sd' or a TreeRule"),
        (lambda: Draft(skip=3), "skip=3, want 'auto', None, a DraftSpec"),
        (lambda: Draft(max_draft=64), r"max_draft=64, want an integer in 1\.\.63"),
        (lambda: Draft(always=1), "always=1, want True or False"),
        (lambda: Draft.early_exit("soon"), "early_exit='soon', want 'auto' or an integer"),
        (lambda: Draft.swift(gamma=3), "'gamma', want some of opt_interval"),
    ],
)
def test_values_that_exclude_each_other_are_named(make, words):
    with pytest.raises(InvalidArgument, match=words):
        make()


@pytest.mark.parametrize(
    ("value", "error"),
    [
        *(("sufix", InvalidArgument), ({"sufix": {}}, InvalidArgument), ({"suffix": 3}, InvalidArgument)),
        *((3, InvalidOption), ([1], InvalidOption), (True, InvalidOption), ({}, InvalidOption)),
        *(({"early_exit": 2, "swift": {}}, InvalidOption), ({"early_exit": {"k": 2}}, InvalidOption)),
        *(("self_sd", InvalidOption), ({"swift": 3}, InvalidOption), ({"early_exit": "x"}, InvalidOption)),
    ],
    ids=str,
)
def test_another_value_is_refused(value, error):
    with pytest.raises(error, match=r"\[generate\] (draft=|early_exit='x')") as found:
        GenerateOptions.parse({"draft": value})
    assert type(found.value) is error


@pytest.fixture(scope="module")
def demo():
    return swiftk.load(swiftk.demo_model(), threads=1)


@pytest.mark.parametrize("draft", ["plan", "recycle", "early_exit", {"suffix": {"always": True}}], ids=short)
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_the_text_is_plain_decodings(demo, draft, temperature):
    how = {"max_new_tokens": N, "ignore_eos": True, "temperature": temperature, "seed": 5}
    want = plain(demo, **how)
    one = demo.generate(PROMPT, draft=draft, **how)
    many = demo.generate_many([PROMPT] * 2, each=[{}, {"draft": None}], draft=draft, **how)
    stream = demo.submit(PROMPT, draft=draft, verify=True, **how)
    assert all(found.tokens == want.tokens for found in (one, *many, stream.wait()))


@pytest.mark.parametrize(
    ("draft", "steps"),
    [
        (None, False),
        ({"early_exit": {"layers": 2, "always": True}}, True),
        (Draft.swift_paper(window=8), True),
        ({"plan": {"skip": "int4", "always": True}}, True),
    ],
    ids=short,
)
def test_it_decides_whether_there_are_draft_steps(demo, draft, steps):
    found = demo.generate(PROMPT, draft=draft, max_new_tokens=N, ignore_eos=True)
    assert (found.stats.num_draft_tokens > 0) == steps
    assert found.tokens == plain(demo, max_new_tokens=N).tokens
