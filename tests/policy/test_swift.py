"""SWIFT's optimizer on scripted scores: what it proposes, what it keeps, when it ends; and its Bayesian helper."""

import logging
import os
from types import SimpleNamespace

import numpy as np
import pytest

import swiftk
from patience import until
from swiftk.draft.draft_spec import DraftSpec
from swiftk.errors import InvalidArgument
from swiftk.options.generate_options import GenerateOptions
from swiftk.options.swift_settings import SwiftSettings, paper_ratio
from swiftk.papers import bayes
from swiftk.papers.swift import Swift
from swiftk.search import base
from swiftk.search.base import _TRACED, Candidate, Progress, Score
from swiftk.search.sublayers import sublayers
from swiftk.search.swift import Sets

LAYERS = 16
INNER = set(range(2, 2 * LAYERS - 2))


def scored(matchness, rows=32):
    rank = np.where(np.arange(rows) < round(matchness * rows), 0, -1).astype(np.int32)
    return Score(np.full(rows, 0.5, np.float32), rank, 1e-3)


def swift(**settings):
    settings.setdefault("bayes", False)
    settings.setdefault("opt_interval", 1)
    return Swift(SimpleNamespace(now=0.0), Sets(LAYERS, SwiftSettings(**settings)))  # goes by scores alone


def run(optimizer, truth, steps, window=32, per_round=1, resting=False):
    """`steps` rounds of a text; truth(skip) is a set's matchness. Returns the sets that were scored."""
    asked = []

    def score(skip, rows, end=None):
        asked.append(skip)
        assert rows == optimizer.settings.window
        assert end == 3 + rows, "all candidates of a text are scored on its first tokens"
        return scored(truth(skip))

    optimizer.start([1, 2, 3])
    for i in range(steps):
        generated = window + 1 + i * per_round
        optimizer.step(score, Progress(3, generated, 0.05 * generated, 0.04, resting))
    return asked


def overlap(skip):
    """Best where low sublayers are kept."""
    return np.mean([s >= 14 for s in sublayers(skip, LAYERS)])


def test_starts_uniform_and_any_other_set_replaces_it():
    optimizer = swift(max_score=1.0)
    assert optimizer.current.skip == DraftSpec.uniform(LAYERS)
    asked = run(optimizer, lambda _: 0.1, 20)
    assert len(asked) == 20
    assert optimizer.current.skip == asked[0], "as in the paper's code, where nothing is known of the uniform set"


@pytest.mark.parametrize("interval", [1, 3])
def test_a_candidate_every_so_many_rounds(interval):
    assert len(run(swift(max_score=1.0, opt_interval=interval), overlap, 30)) == 30 // interval


def test_rests_with_drafting():
    optimizer = swift(max_score=1.0)
    assert not run(optimizer, overlap, 30, resting=True)
    run(optimizer, overlap, 1)
    assert optimizer.unpaid > 0
    run(optimizer, overlap, 1, resting=True)
    assert optimizer.unpaid == 0


def test_waits_for_its_context():
    optimizer = swift(window=50)
    optimizer.start([1])
    optimizer.step(lambda *_: pytest.fail("scored without context"), Progress(1, 50, 1.0, 0.04))
    assert not optimizer.trace


@pytest.mark.parametrize("ratio", [0.2, 0.45, 0.5, 0.9])
def test_candidates_skip_the_asked_share_of_inner_sublayers(ratio):
    optimizer = swift(skip_ratio=ratio, max_score=1.0)
    asked = run(optimizer, overlap, 60)
    for one in asked:
        if one != DraftSpec.uniform(LAYERS):
            skipped = sublayers(one, LAYERS)
            assert skipped <= INNER
            assert len(skipped) == int(2 * (LAYERS - 2) * ratio)


def test_keeps_the_best_set():
    optimizer = swift(max_score=1.0)
    run(optimizer, overlap, 200, per_round=0)
    assert overlap(optimizer.current.skip) == max(overlap(c.skip) for c in optimizer.trace)
    assert overlap(optimizer.current.skip) > overlap(DraftSpec.uniform(LAYERS))


def test_the_best_score_is_kept_from_text_to_text():
    optimizer = swift(max_score=1.0)
    run(optimizer, lambda _: 0.8, 5)
    best = optimizer.current.skip
    run(optimizer, lambda _: 0.7, 50)
    assert optimizer.current.skip == best


@pytest.mark.parametrize(
    ("settings", "truth", "why"),
    [
        ({"max_steps": 7, "max_score": 1.0}, overlap, "7 steps"),
        ({"tolerance": 5, "max_score": 1.0}, lambda _: 0.5, "without gain"),
        ({"max_score": 0.6}, lambda _: 0.75, "matchness 0.750"),
    ],
)
def test_ends(settings, truth, why):
    optimizer = swift(**settings)
    run(optimizer, truth, 100, per_round=0)
    assert why in optimizer.sets.stopped
    before = len(optimizer.trace)
    run(optimizer, truth, 20)
    assert len(optimizer.trace) == before, "a search that ended goes on"


@pytest.mark.parametrize(
    "settings",
    [
        *({"max_steps": -1}, {"window": 0}, {"window": True}, {"tolerance": 0}, {"max_score": 0}, {"skip_ratio": 1.5}),
        *({"opt_interval": 0}, {"opt_interval": True}, {"alpha": 0}, {"kappa": -1}, {"bayes": 1}, {"wait": "no"}),
    ],
)
def test_bad_settings_are_named(settings):
    with pytest.raises(InvalidArgument, match=next(iter(settings))):
        SwiftSettings(**settings)


def test_unknown_settings_are_named():
    with pytest.raises(InvalidArgument, match=r"'gamma'.*window"):
        GenerateOptions.parse({"optimizer": "swift", "swift": {"gamma": 3}})


@pytest.mark.parametrize(
    ("layers", "billions", "ratio"),
    [(40, 13, 0.45), (48, 34, 0.5), (60, 34, 0.45), (80, 70.6, 0.4), (80, 69, 0.5), (16, 1.2, 0.45), (32, 8, 0.45)],
)
def test_the_ratio_is_the_papers_of_the_nearest_size(layers, billions, ratio):
    assert paper_ratio(layers, billions * 1e9) == ratio
    assert SwiftSettings().skipped(layers, billions * 1e9) == int(2 * (layers - 2) * ratio)
    assert SwiftSettings(skip_ratio=0.3).skipped(layers, billions * 1e9) == int(2 * (layers - 2) * 0.3)


def told(dimensions=6, points=12, seed=0, waits=True):
    rng = np.random.default_rng(seed)
    suggestions = bayes.Suggestions(dimensions, seed, waits=waits)
    for _ in range(points):
        point = (rng.random(dimensions) < 0.5).astype(float)
        suggestions.tell(point.tolist(), float(point[:2].sum() - point[2:].sum()))
    return suggestions


def test_suggestions_come_later_and_point_uphill():
    suggestions = told()
    suggestions.waits = False  # and yet not in idle time: other tests leave none
    suggestions.ask()
    point = until(suggestions.answer)
    assert len(point) == 6
    assert np.mean(point[:2]) > np.mean(point[2:])
    suggestions.close()


def test_those_who_wait_have_their_answer_at_once():
    suggestions = told()
    suggestions.ask()
    assert len(suggestions.answer()) == 6
    suggestions.close()


def test_waiting_ends_with_the_process():
    suggestions = told()
    suggestions.ask()
    suggestions._process.kill()
    assert suggestions.answer() is None


def test_bayesian_steps_happen_on_fast_models(tiny_dir):
    lm = swiftk.load(tiny_dir("llama3", layers=6), device="cpu")
    settings = {"window": 8, "opt_interval": 1, "bayes_interval": 5, "max_steps": 12, "max_score": 1.0}
    options = {"max_new_tokens": 120, "ignore_eos": True, "optimizer": "swift", "speculate": "always"}
    trace = lm.generate([5, 9, 2, 7], swift=settings, **options).trace
    assert [i for i, one in enumerate(trace.candidates, 1) if one.kind == "bayes"] == [5, 10]


def test_a_process_that_dies_ends_suggestions_with_a_warning(caplog):
    suggestions = told(waits=False)
    suggestions.ask()
    process = suggestions._process
    process.kill()
    process.wait()
    with caplog.at_level(logging.WARNING, "swiftk"):
        until(lambda: suggestions.answer() is None and suggestions._closed)
    assert "goes on at random" in caplog.text
    suggestions.ask()
    assert suggestions.answer() is None


def test_without_the_package_there_is_one_warning(monkeypatch, caplog):
    monkeypatch.setattr(bayes, "find_spec", lambda name: None)
    suggestions = told()
    with caplog.at_level(logging.WARNING, "swiftk"):
        suggestions.ask()
        suggestions.ask()
    assert caplog.text.count("bayesian-optimization") == 1
    assert suggestions.answer() is None


def test_closing_leaves_no_process():
    suggestions = told()
    suggestions.ask()
    pid = suggestions._process.pid
    suggestions.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_bayesian_steps_score_vertices(monkeypatch):
    asked = []
    answers = SimpleNamespace(
        tell=lambda point, score: asked.append(point),
        ask=lambda: None,
        answer=lambda: np.linspace(0, 1, 2 * LAYERS - 4).tolist(),
        close=lambda: None,
    )
    optimizer = swift(bayes=True, max_score=1.0)
    monkeypatch.setattr(optimizer.sets, "suggestions", answers)
    run(optimizer, overlap, 3, per_round=0)
    best = [c for c in optimizer.trace if c.kind == "bayes"]
    assert sublayers(best[0].skip, LAYERS) == frozenset(sorted(INNER)[-SwiftSettings().skipped(LAYERS, 0.0) :])
    assert all(set(point) <= {0.0, 1.0} for point in asked)


def test_a_long_life_keeps_the_latest_of_its_trace():
    optimizer = swift()
    optimizer.trace += [
        Candidate(i, "random", DraftSpec(), 0.5, None, kept=False, seconds=0.1) for i in range(2 * _TRACED)
    ]
    assert optimizer.trim() == _TRACED == len(optimizer.trace)
    assert [one.tokens for one in optimizer.trace] == list(range(_TRACED, 2 * _TRACED))
    assert optimizer.trim() == _TRACED


def test_reports_tell_new_candidates_from_those_that_are_left(monkeypatch, tmp_path):
    monkeypatch.setattr(base, "_TRACED", 2)
    lm = swiftk.load(swiftk.demo_model(), device="cpu")
    options = {"max_new_tokens": 80, "ignore_eos": True, "optimizer": "swift", "speculate": "always"}
    results = [lm.generate("The river", swift={"window": 8, "opt_interval": 1}, **options) for _ in range(3)]
    traces = [result.trace for result in results]
    assert [trace.earlier for trace in traces] == [0, 2, 2]
    assert len(traces[0].candidates) > 2
    assert traces[1].candidates[:2] == traces[0].candidates[-2:]
    assert all(swiftk.report(result, tmp_path / "page.html").stat().st_size > 0 for result in results)
