"""The page about a text says why figures and charts are not there, and which plan drafted a token."""

from dataclasses import replace

import pytest

from reports import ROUNDS, TEXTS, UNIFORM, Page, made
from swiftk.pages.page import render

WHY = {  # what a text was: (rounds, seconds of a plain step, sources that proposed, reasons by tile, charts left out)
    "a plan and plain steps": (ROUNDS, 0.01, {}, {}, ["Matchness"]),
    "one token": (
        [],
        None,
        {},
        {
            "of drafted tokens accepted": "ended with its first token",
        },
        ["Tokens over time", "Where drafts ended", "Layers", "Matchness"],
    ),
    "a source alone": (
        [(0, 2, 1, None)],
        0.01,
        {"suffix": 3},
        {
            "of drafted tokens accepted": "no draft plan was used: suffix drafted, without a step",
            "a draft step, in plain steps": "no draft plan was used: suffix drafted, without a step",
        },
        ["Layers", "Matchness"],
    ),
    "plain": (
        [(0, 1, 0, None)],
        0.01,
        {},
        {"of drafted tokens accepted": "nothing was drafted"},
        ["Where drafts ended"],
    ),
    "always": (
        [(3, 3, 2, UNIFORM)],
        None,
        {},
        {"tokens/s in plain steps": "every round drafted", "a draft step, in plain steps": "every round drafted"},
        ["Matchness"],
    ),
    "a cut round": (
        [(3, 2, 2, UNIFORM)],
        0.01,
        {},
        {"forecast from these three": "no round that drafted was whole"},
        ["Where drafts ended: no round that drafted was whole"],
    ),
}


@pytest.mark.parametrize("what", WHY)
def test_empty_tiles_and_charts_say_why(what):
    rounds, plain, sources, reasons, left_out = WHY[what]
    result = made(["x"] * (1 + sum(tokens for _, tokens, _, _ in rounds)), rounds, plain=plain)
    if sources:
        result = replace(result, stats=replace(result.stats, proposed_by=sources))
    page = Page(render(result))
    empty = {words for words, value in page.tiles.items() if value == "–"}
    assert empty == set(page.why) and all(page.why.values())
    assert reasons.keys() <= empty
    assert all(said in page.why[words] for words, said in reasons.items())
    assert all(any(one.startswith(chart) for one in page.left_out) for chart in left_out)
    headings = [heading for one in page.left_out for heading in one.split(": ")[0].split(", ")]
    assert all(f"<h2>{heading}</h2>" not in page.source for heading in headings)


def test_logprobs_that_were_not_asked_for_are_reported_of():
    assert "Logprobs were not asked for" in render(made(TEXTS, ROUNDS))
    assert "Logprobs were not asked for" not in render(made(TEXTS, ROUNDS, logprobs=True))


def test_tokens_of_a_plan_name_it():
    hovers = [hover for _, _, hover in Page(render(made(TEXTS, ROUNDS, drafters={}))).tokens]
    assert hovers[2].startswith("token 1002, round 2, by plan: own weights, 4 of 12 sublayers skipped")
