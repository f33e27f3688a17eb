"""The paper's experiments run, on the bundled model and few tokens, and keep what they find. Nothing about speed."""

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import swiftk
from patience import PATIENCE
from swiftk import demo_model
from swiftk.running.stats import Stats

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.exhaustive
PAPER = ROOT / "bench" / "paper"
DATA = sorted((PAPER / "data").glob("*.jsonl"))
WORDS = {
    "main_table": [
        "lookahead",
        "parallel",
        "layerskip",
        "self-sd",
        "self-sd, tree",
        "uniform",
        "swift (paper)",
        "auto",
        "all, greedy",
        "all, sampled",
        "E(Spd.)",
        "realised / E",
    ],
    "topk": ["k = 10", "by conf.", "within k"],
    "transfer": ["applied to", "set for", "gsm8k", "summarization", "evenly", "matchness"],
    "inference": ["swift (paper)", "draft", "verify", "commit", "search", "other", "budget kept", "matchness"],
    "scaling": ["lm13m", "lm13m-x2", "r 0.45", "uniform", "swift", "auto"],
    "ablation": ["no early stop", "no dynamic verification", "no optimisation", "window 128", "ms a candidate"],
    "search": ["uniform", "8 scores", "8, beta 10", "no Bayesian", "tokens, by time", "self-sd^c", "self-sd, tree"],
    "mixed": ["auto", "swift", "self-sd", "recovered", "settled"],
    "defeat": ["cold", "behind easy text", "layers reversed", "holds"],
    "constructed": ["6 drafted", "E(Spd.)", "/ E at v"],
}


def run(study, *options):
    command = [sys.executable, "-m", f"bench.{study}", "--quick", *map(str, options)]
    env = {**os.environ, "SWIFTK_DEVICE": "cpu"}
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=ROOT, env=env)


@pytest.fixture
def bench(monkeypatch):
    """bench(name) -> a module of the benchmarks."""
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"bench.{name}")


@pytest.mark.parametrize("name", WORDS)
def test_experiment_reports(tmp_path, name):
    done = run(f"paper.{name}", "--out", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    table = (tmp_path / "paper" / f"{name}.md").read_text()
    found = json.loads((tmp_path / "paper" / f"{name}.json").read_text())

    assert all(word in table for word in [*WORDS[name], "measured: reads"])
    drafted = [row for row in found["rows"] if row["way"] != "plain"]
    assert drafted and all(row["same"] for row in drafted)
    assert "cut short" not in table
    drawn = tmp_path / "paper" / f"{name}.png"
    assert drawn.is_file() == (importlib.util.find_spec("matplotlib") is not None)
    assert not drawn.is_file() or drawn.stat().st_size < 100_000


def test_every_search_of_the_ablation_scores_candidates(tmp_path):
    done = run("paper.ablation", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "paper" / "ablation.json").read_text())["rows"]
    searched = [row for row in rows if row["way"] not in ("plain", "no optimisation")]
    assert len(searched) == 2 * 6 and all(row["candidates"] > 0 for row in searched)
    assert all(row["candidates"] == 0 for row in rows if row["way"] == "no optimisation")


def test_sets_that_are_compared_skip_as_much(tmp_path):
    done = run("paper.transfer", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "paper" / "transfer.json").read_text())["rows"]
    assert {row["skipped"] for row in rows if row["way"] != "plain"} == {12}


def test_time_budget_cuts_texts_but_no_part(tmp_path):
    done = run("paper.ablation", "--out", tmp_path, "--minutes", "0.0001", "--texts", "3")
    found = json.loads((tmp_path / "paper" / "ablation.json").read_text())

    assert done.returncode == 0, done.stderr
    assert {row["texts"] for row in found["rows"]} == {1}
    assert "cut short by the time budget: summarization (1 of 3), english (1 of 3)" in found["notes"][-1]


def test_ways_may_be_left_out(tmp_path):
    done = run("paper.main_table", "--out", tmp_path, "--streams", "gsm8k", "--ways", "swift", "lookahead")
    found = json.loads((tmp_path / "paper" / "main_table.json").read_text())

    assert done.returncode == 0, done.stderr
    assert {row["way"] for row in found["rows"]} == {"plain", "lookahead", "swift"}
    refused = run("paper.main_table", "--ways", "magic")
    assert refused.returncode == 1 and "no way 'magic'" in refused.stderr


def test_the_paper_s_schedule_is_told_apart(bench):
    lanes = bench("lanes")
    often, spare = lanes.paper_swift(window=16).options, lanes.swift(window=16).options

    assert often["swift"] == {"opt_interval": 1, "window": 16} and often["speculate"] == "always"
    assert spare["swift"] == {"window": 16} and "speculate" not in spare


def test_offline_search_is_of_the_texts_alone(bench):
    offline, texts = bench("paper.offline"), bench("texts")
    study = SimpleNamespace(small=swiftk.load(demo_model(), draft_weights="own"), eos=False)
    written = offline.Written(study, texts.Prompts(demo_model()).stream("gsm8k", 2))
    first, again = (written.best(8) for _ in range(2))

    assert first == again and len(first.attn) + len(first.mlp) == 12  # .45 of the 28 inner sublayers
    assert len(written.scores(first)[1]) == 2 * offline.WINDOW
    assert written.matchness(written.best(1)) <= written.matchness(first)  # the first of the same sets
    assert written.matchness(swiftk.DraftSpec()) == 1


def test_lanes_go_on_in_turn(bench):
    """A few tokens each, to the end of all; whoever went first goes last in the next round, and none follows itself."""
    heard = []

    class Lane:
        def __init__(self, name, most):
            self.name, self.most = name, most

        def go_on(self, tokens):
            heard.append((self.name, tokens))
            return tokens < self.most

    bench("lanes").in_turn([Lane("a", 6), Lane("b", 6), Lane("c", 6)], block=2)
    assert [name for name, _ in heard] == [*"abc", *"bca", *"cab"]

    heard.clear()
    bench("lanes").in_turn([Lane("a", 6), Lane("b", 2)], block=2)
    assert heard == [("a", 2), ("b", 2), ("a", 4), ("a", 6)]


def test_ways_go_side_by_side(bench):
    """Every way on a model of its own; a stream's own time is what counts."""
    lanes, texts = bench("lanes"), bench("texts")
    models, text = lanes.Models(demo_model(), draft_weights="own"), texts.Text("some", ((1, 5, 9), (7,)))
    (pairs,) = lanes.measure(models, [text], [lanes.AUTO, lanes.swift()], 30)

    assert [pair.way for pair in pairs] == ["auto", "swift"] * 2 and all(pair.same for pair in pairs)
    assert len({models.of(way) for way in (lanes.PLAIN, lanes.AUTO, lanes.swift())}) == 3
    first, then = pairs[0], pairs[2]
    assert first.seconds == pytest.approx(first.result.trace.rounds[-1].clock)
    assert then.plain.prompt_tokens == [1, 5, 9, *first.plain.tokens, 7], "a turn follows on the plain answer"
    assert lanes.summary(pairs[::2])["texts"] == 1, "two turns of one text"


def test_summaries_are_equation_6(bench):
    lanes = bench("lanes")

    def pair(factor):
        spent = {"time_to_first_token": 1.0, "total_seconds": 1.0 + 300 * factor, "optimizer_seconds": 30.0 * factor}
        counted = {"generated_tokens": 435, "num_steps": 100, "num_draft_steps": 337, "num_draft_tokens": 337}
        passes = {"draft_seconds": 337 * 0.55 * factor, "verify_seconds": 110.0 * factor}
        drafted = Stats(**spent, **counted, **passes, num_accepted_draft_tokens=334)
        plain = Stats(time_to_first_token=1.0, total_seconds=1.0 + 434 * factor)
        skip = swiftk.DraftSpec(weights="int4")
        trace = SimpleNamespace(rounds=[SimpleNamespace(skip=None), SimpleNamespace(skip=skip)])
        result, beside = (SimpleNamespace(stats=s, tokens=[0] * 435, trace=trace) for s in (drafted, plain))
        return lanes.Pair("way", object(), result, beside)

    every = [pair(1), pair(2)]
    row = lanes.summary(every)  # the same on a machine half as fast

    assert (row["M"], round(row["alpha"], 2), round(row["c"], 6)) == (4.34, 0.99, 0.55)
    assert round(row["E"], 2) == 1.52  # LLaMA-2-13B on CNN/DM, the paper's Table 4
    assert row["speedup"] == pytest.approx(434 / 300)
    assert row["v"] == pytest.approx(1.1)
    assert row["of_E_at_v"] == pytest.approx(434 / 300 / (434 / (337 * 0.55 + 110)), rel=0.01)
    assert row["worst"] == pytest.approx(434 / 300) and row["error"] == pytest.approx(0) and row["copy"] == "int4"
    assert row["without_search"] == pytest.approx(434 / 270) and row["search"] == pytest.approx(0.1)


def test_results_are_read_as_they_were_written(bench, tmp_path):
    """Five digits of each number, a row a line; the table says yes, NO and nothing."""
    results = bench("results")
    rows = [{"way": "a", "x": 1 / 3, "same": True}, {"way": "b", "x": np.float64(2), "same": False}, {"way": "c"}]
    one = results.Results("some/study", "Why?", {"way": "way", "x": "x:.2f", "equal": "same"}, "make it", {"n": 1})
    one.rows += rows
    one.write(tmp_path)
    text = (tmp_path / "some" / "study.json").read_text()
    found = json.loads(text)

    assert found["rows"] == [{**rows[0], "x": 0.33333}, rows[1], rows[2]]
    assert (found["study"], found["command"], found["settings"]) == ("some/study", "make it", {"n": 1})
    assert sum(line.startswith('  {"way"') for line in text.splitlines()) == 3
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in one.table().splitlines()]
    assert cells[0] == ["way", "x", "equal"] and cells[2:] == [["a", "0.33", "yes"], ["b", "2.00", "NO"], ["c", "", ""]]
    current = results.is_current
    assert current("some/study", tmp_path, smoke=False) and not current("another", tmp_path, smoke=False)


def test_prompts_fit_the_demo_model(bench):
    texts = bench("texts")
    assert sum(path.stat().st_size for path in DATA) <= 200_000
    assert {path.stem for path in DATA} == set(texts.STREAMS)
    for name in texts.STREAMS:
        for shots in (False, True):
            some = texts.Prompts(demo_model(), shots=shots).stream(name)
            assert len(some) == (40 if name == "mt-bench" else 20)
            assert max(sum(len(turn) + 256 for turn in text.turns) for text in some) < 2048
