"""The paper's experiments run, on the bundled model and few tokens, and keep what they find. Nothing about speed."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import swiftk
from swiftk import demo_model

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
        "uniform",
        "swift (paper)",
        "auto",
        "greedy",
        "sampled",
        "E(Spd.)",
        "realised / E",
    ],
    "topk": ["k = 10", "k by confidence", "within k"],
    "transfer": ["applied to", "set for", "gsm8k", "summarization", "uniform", "matchness"],
    "ends": ["uniform", "scores, the paper's", "tokens, by time", "matchness"],
    "inference": ["swift (paper)", "draft", "verify", "commit", "search", "other", "matchness"],
    "scaling": ["lm13m", "lm13m-x2", "r .45", "uniform", "swift", "auto"],
    "ablation": ["no early stop", "no dynamic verification", "no optimisation"],
    "gamma": ["gamma 16", "gamma 128", "ms/token"],
    "search": ["S 800, beta 10", "no Bayesian steps", "self-sd, 5 steps", "matchness"],
    "mixed": ["auto", "swift", "self-sd", "recovered", "settled"],
    "defeat": ["cold", "behind easy text", "layers reversed", "holds"],
    "overhead": ["auto", "swift", "share", "holds"],
    "constructed": ["6 drafted", "E(Spd.)", "/ E at v"],
}


def run(script, *options):
    command = [sys.executable, str(PAPER / script), "--quick", *map(str, options)]
    env = {**os.environ, "SWIFTK_DEVICE": "cpu"}
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=ROOT, env=env)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Folder of the results of all experiments."""
    out = tmp_path_factory.mktemp("paper")
    done = run("all.py", "--out", out)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture
def paper(monkeypatch):
    """The experiments' own modules."""
    monkeypatch.syspath_prepend(str(PAPER))
    for name in ("runs", "totals", "streams", "offline"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import runs
    import streams

    return runs, streams


@pytest.mark.parametrize("name", WORDS)
def test_experiment_reports(results, name):
    table = (results / f"{name}.md").read_text()
    found = json.loads((results / f"{name}.json").read_text())

    pairs = [pair for part in found["parts"].values() for pair in part["pairs"]]
    assert all(word in table for word in [*WORDS[name], "measured: reads"])
    assert pairs and all(pair["same"] for pair in pairs)
    assert "DIFFERS" not in table
    assert not any(part["cut"] for part in found["parts"].values())
    drawn = results / f"{name}.png"
    assert drawn.is_file() == (importlib.util.find_spec("matplotlib") is not None)
    assert not drawn.is_file() or drawn.stat().st_size < 100_000


def test_second_run_measures_what_is_missing(results):
    before = json.loads((results / "overhead.json").read_text())["parts"]
    again = run("overhead.py", "--out", results, "--streams", "english", "gsm8k")
    after = json.loads((results / "overhead.json").read_text())["parts"]

    assert again.returncode == 0, again.stderr
    assert list(after) == ["english", "gsm8k"]
    assert after["gsm8k"] == before["gsm8k"]


def test_time_budget_cuts_texts_but_no_part(results, tmp_path):
    done = run("overhead.py", "--out", tmp_path, "--minutes", "0.0001", "--instances", "3")
    found = json.loads((tmp_path / "overhead.json").read_text())["parts"]

    assert done.returncode == 0, done.stderr
    assert {len({pair["instance"] for pair in part["pairs"]}) for part in found.values()} == {1}
    assert all(part["cut"] for part in found.values())
    assert "cut short" in (tmp_path / "overhead.md").read_text()


def test_rows_of_the_main_table_may_be_left_out(tmp_path):
    done = run("main_table.py", "--out", tmp_path, "--streams", "gsm8k", "--ways", "swift", "lookahead")
    found = json.loads((tmp_path / "main_table.json").read_text())["parts"]

    assert done.returncode == 0, done.stderr
    assert {pair["way"] for part in found.values() for pair in part["pairs"]} == {"lookahead", "swift"}
    assert run("main_table.py", "--ways", "magic").returncode == 2


def test_the_paper_s_schedule_is_told_apart(paper):
    runs, _ = paper
    often, spare = runs.paper_swift(window=16).options, runs.swift(window=16).options

    assert often["swift"] == {"opt_interval": 1, "window": 16} and often["speculate"] == "always"
    assert spare["swift"] == {"window": 16} and "speculate" not in spare


def test_offline_search_is_of_the_texts_alone(paper):
    import offline

    _, streams = paper
    texts = offline.Texts(demo_model(), streams.stream("gsm8k", demo_model(), 2))
    first, again = (texts.best(8) for _ in range(2))

    assert first == again and len(first.attn) + len(first.mlp) == 12  # .45 of the 28 inner sublayers
    assert texts(first).rows == 2 * offline.WINDOW
    assert texts(texts.best(1)).matchness <= texts(first).matchness  # the first of the same sets
    assert texts(swiftk.SkipSet()).matchness == 1


def test_ways_go_side_by_side(paper, monkeypatch):
    """A few tokens each in turn, every way on a model of its own; a stream's own time is what counts."""
    runs, _ = paper
    read, loaded = [], []

    def load():
        loaded.append(swiftk.load(demo_model()))
        return loaded[-1]

    advance = runs._advance

    def note(turn, tokens):
        read.append((id(turn[0]), tokens))
        return advance(turn, tokens)

    monkeypatch.setattr(runs, "_advance", note)
    every = runs.side_by_side(runs.Lanes(load), [1, 5, 9], [runs.AUTO, runs.swift()], 30, {})

    assert len(loaded) == 3 and [one.way.name for one in every] == ["plain", "auto", "swift"]
    assert all(one.result.tokens == every[0].result.tokens for one in every)
    assert all(len(one.times) == 30 and one.times == sorted(one.times) for one in every)
    for one in every:
        stats = one.result.stats
        assert one.seconds == pytest.approx(stats.total_seconds - stats.time_to_first_token)
    turns = range(runs.BLOCK, 31 + runs.BLOCK, runs.BLOCK)  # the last one finds the end
    assert [tokens for _, tokens in read] == [end for end in turns for _ in every]
    assert len({stream for stream, _ in read[:3]}) == 3


def test_totals_are_equation_6(paper):
    import totals

    pair = {"tokens": 434, "steps": 100, "draft_steps": 337, "drafted": 337, "accepted": 334}
    pair |= {"same": True, "optimizer_seconds": 0.0}
    seconds = {"plain_seconds": 434.0, "seconds": 300.0, "draft_seconds": 337 * 0.55, "verify_seconds": 110.0}
    slow = {name: 2 * value for name, value in seconds.items()}  # the same on a machine half as fast
    total = totals.Totals.of([{**pair, **seconds}, {**pair, **slow}])

    assert (total.length, round(total.alpha, 2), round(total.cost, 6)) == (4.34, 0.99, 0.55)
    assert round(total.expected, 2) == 1.52  # LLaMA-2-13B on CNN/DM, the paper's Table 4
    assert total.speedup == pytest.approx(434 / 300)
    assert total.verify == pytest.approx(1.1)
    assert total.expected_of_rows == pytest.approx(434 / (337 * 0.55 + 110), rel=0.01)


def test_prompts_fit_the_demo_model(paper):
    _, streams = paper
    assert sum(path.stat().st_size for path in DATA) <= 200_000
    assert {path.stem for path in DATA} == set(streams.NAMES)
    for name in streams.NAMES:
        instances = streams.stream(name, demo_model())
        assert len(instances) == 20
        assert max(sum(len(turn) + 256 for turn in i.turns) for i in instances) < 2048
