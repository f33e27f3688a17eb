"""LayerSkip's experiments run, on the bundled model and few tokens, and keep what they find. Nothing about speed."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from swiftk import demo_model

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.exhaustive
WORDS = {
    "kvq": ["exit 4, chain of 4", "exit 8, tree of 16", "rows x steps", "predicted"],
    "sweep": ["d = 2", "d = 5", "tree", "best", "accepted"],
    "online": ["exit by time", "auto", "exit 2", "exit 4", "choosing"],
}
DRAWN = importlib.util.find_spec("matplotlib") is not None


def run(script, *options, **env):
    command = [sys.executable, f"bench/layerskip/{script}.py", "--quick", *map(str, options)]
    env = {**os.environ, "SWIFTK_DEVICE": "cpu", **env}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT, env=env)


def report(out, name):
    """(table, facts) that an experiment left, and its picture."""
    picture = out / f"{name}.png"
    assert picture.is_file() == DRAWN
    assert not DRAWN or picture.stat().st_size < 100_000
    return (out / f"{name}.md").read_text(), json.loads((out / f"{name}.json").read_text())


@pytest.mark.parametrize("name", WORDS)
def test_experiment_reports(tmp_path, name):
    done = run(name, "--out", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    table, found = report(tmp_path, name)
    pairs = [pair for part in found["parts"].values() for pair in part["pairs"]]
    assert all(word in table for word in [*WORDS[name], "measured: reads"])
    assert pairs and all(pair["same"] for pair in pairs)
    assert "DIFFERS" not in table
    assert not any(part["cut"] for part in found["parts"].values())


def test_both_ways_of_kvq_run_the_same_rounds(tmp_path):
    done = run("kvq", "--out", tmp_path, "--streams", "english")
    assert done.returncode == 0, done.stdout + done.stderr
    parts = report(tmp_path, "kvq")[1]["parts"]
    for name, part in parts.items():
        on, off = part["sums"]["on"], part["sums"]["off"]
        assert on["rounds"] == off["rounds"] > 0
        assert on["rows"] == off["rows"]
        assert 0 < on["reused"] < on["rows"] and off["reused"] == 0
        assert 0 < on["row_shares"] / on["rows"] < (0.25 if name.startswith("exit 4") else 0.5)
        assert part["depth"] == pytest.approx(0.25 if name.startswith("exit 4") else 0.5, abs=0.1)
        passes = part["passes"]
        assert passes["on"] > 0 and passes["off"] > 0
        assert (passes["rows"], passes["reused"]) in ((5, 4), (16, 5))


def test_sweep_takes_several_models(tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in demo_model().iterdir():
        (copy / file.name).symlink_to(file)
    done = run("sweep", "--model", demo_model(), copy, "--out", tmp_path, "--streams", "english")
    assert done.returncode == 0, done.stdout + done.stderr
    texts = [report(tmp_path, f"sweep-{folder.name}")[0].split("\n\n")[0] for folder in (demo_model().resolve(), copy)]
    assert [line.split("|")[1].strip() for line in texts[0].splitlines()[2:]] == ["4", "8"]
    rows = [[line.split("|") for line in text.splitlines()] for text in texts]
    fixed = [at for at, name in enumerate(rows[0][0]) if name.strip().startswith("d = ")]  # trees go by the clock
    accepted = [[[row[at].split("(")[1] for at in fixed] for row in found[2:]] for found in rows]
    assert fixed and accepted[0] == accepted[1]  # of the same weights


def test_exits_of_a_model_without_a_clock(tmp_path):
    script = ROOT / "bench/layerskip/exits.py"
    command = [sys.executable, str(script), "--instances", "1", "--tokens", "16", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table, found = report(tmp_path, "exits-lm13m")
    assert table == done.stdout
    exits = found["models"]["lm13m"]
    assert [one["layer"] for one in exits] == list(range(1, 17))
    assert exits[-1]["agreement"] == 1 and exits[-1]["accepted"] is None
    assert exits[0]["loss"] > exits[7]["loss"] > exits[15]["loss"] > 2
    assert exits[0]["agreement"] < exits[14]["agreement"] and exits[0]["accepted"] < exits[14]["accepted"]
    assert all(1 <= one["length"] <= 5 for one in exits[:-1])


def test_transformers_beside_swiftk(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    done = run("transformers_peer", "--out", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    table, found = report(tmp_path, "transformers_peer")
    ways = {(way["peer"], way["mode"]): way for way in found["ways"]}
    assert "transformers, early exit" in table and "swiftk, early exit, by time" in table
    for peer in ("swiftk", "transformers"):
        drafts = ways[peer, "early exit"]
        assert 0 < drafts["acceptance"] < 1 < drafts["tokens_per_step"]
        assert ways[peer, "plain"]["acceptance"] is None and ways[peer, "plain"]["tokens_per_step"] == 1
        assert all(way["tokens_per_second"][0] > 0 and way["peak_bytes"] > 0 for way in ways.values())
    lines = [line.split("|") for line in table.splitlines() if line.startswith("| swiftk")]
    assert [line[-3].strip() for line in lines] == ["100%"] * 3  # its own plain text, whatever drafts


def test_a_missing_transformers_is_said(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('torch is not here')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = run("transformers_peer", PYTHONPATH=path)
    assert done.returncode == 1
    assert "torch is not here" in done.stdout and "Traceback" not in done.stderr
