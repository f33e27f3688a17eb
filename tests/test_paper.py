"""The paper's experiments run, on the bundled model and few tokens, and keep what they find. Nothing about speed."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from swiftk import demo_model

ROOT = Path(__file__).resolve().parent.parent
PAPER = ROOT / "bench" / "paper"
DATA = sorted((PAPER / "data").glob("*.jsonl"))
WORDS = {
    "main_table": ["uniform", "swift", "auto", "greedy", "sampled", "E(Spd.)", "realised / E"],
    "ablation": ["no early stop", "no dynamic verification", "no optimisation"],
    "gamma": ["gamma 16", "gamma 128", "ms/token"],
    "search": ["S 800, beta 10", "no Bayesian steps", "self-sd, 5 steps", "matchness"],
    "mixed": ["auto", "swift", "self-sd", "recovered", "settled"],
    "defeat": ["cold", "behind easy text", "holds"],
    "overhead": ["auto", "swift", "share", "holds"],
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
    for name in ("runs", "streams"):
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


@pytest.mark.parametrize("ways", range(1, 6))
@pytest.mark.parametrize("backwards", [False, True])
def test_every_way_runs_next_to_a_plain_run(paper, ways, backwards):
    runs, _ = paper
    named = [runs.Way(str(i)) for i in range(ways)]
    groups = runs.order(named, backwards)

    assert sorted(w.name for group in groups for w in group if w is not runs.PLAIN) == [w.name for w in named]
    for group in groups:
        assert sum(way is runs.PLAIN for way in group) == 1
        assert all(abs(at - group.index(runs.PLAIN)) <= 1 for at in range(len(group)))


def test_totals_are_equation_6(paper):
    runs, _ = paper
    pair = {"tokens": 434, "steps": 100, "drafted": 337, "accepted": 334, "same": True, "optimizer_seconds": 0.0}
    seconds = {"plain_seconds": 434.0, "seconds": 300.0, "draft_seconds": 337 * 0.55}
    slow = {"plain_seconds": 868.0, "seconds": 600.0, "draft_seconds": 674 * 0.55}  # the same on a machine half as fast
    total = runs.Totals.of([{**pair, **seconds}, {**pair, **slow}])

    assert (total.length, round(total.alpha, 2), round(total.cost, 6)) == (4.34, 0.99, 0.55)
    assert round(total.expected, 2) == 1.52  # LLaMA-2-13B on CNN/DM, the paper's Table 4
    assert total.speedup == pytest.approx(434 / 300)


def test_prompts_fit_the_demo_model(paper):
    _, streams = paper
    assert sum(path.stat().st_size for path in DATA) <= 200_000
    assert {path.stem for path in DATA} == set(streams.NAMES)
    for name in streams.NAMES:
        instances = streams.stream(name, demo_model())
        assert len(instances) == 20
        assert max(sum(len(turn) + 256 for turn in i.turns) for i in instances) < 2048
