"""LayerSkip's experiments run, on the bundled model and few tokens, and keep what they find. Nothing about speed."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from patience import PATIENCE
from swiftk import demo_model

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.exhaustive
DRAWN = importlib.util.find_spec("matplotlib") is not None


def run(name, *options, **env):
    command = [sys.executable, "-m", f"bench.layerskip.{name}", "--quick", *map(str, options)]
    env = {**os.environ, "SWIFTK_DEVICE": "cpu", **env}
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=ROOT, env=env)


def report(out, name):
    """(table, rows) that an experiment left, and its picture."""
    out = out / "layerskip"
    picture = out / f"{name}.png"
    assert picture.is_file() == DRAWN
    assert not DRAWN or picture.stat().st_size < 100_000
    return (out / f"{name}.md").read_text(), json.loads((out / f"{name}.json").read_text())["rows"]


def test_sweep_reports(tmp_path):
    done = run("sweep", "--out", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    table, rows = report(tmp_path, "sweep")
    words = ["d = 2", "d = 8", "by time", "exit 4", "exit 8", "exit by time", "auto", "measured: reads"]
    assert all(word in table for word in words)
    assert all(row["same"] for row in rows if row["way"] != "plain")


def test_models_are_swept_in_one_table(tmp_path):
    copy = tmp_path / "continued"
    copy.symlink_to(demo_model())
    done = run("sweep", "--out", tmp_path, "--streams", "english", "--models", demo_model(), copy)
    assert done.returncode == 0, done.stderr
    _, rows = report(tmp_path, "sweep")
    assert {row["part"] for row in rows} == {
        f"{model}, {part}" for model in ("lm13m", "continued") for part in ("exit 4", "exit 8", "chosen")
    }


def test_both_ways_of_kvq_run_the_same_rounds(tmp_path):
    done = run("kvq", "--out", tmp_path, "--streams", "english", "--tokens", "16")
    assert done.returncode == 0, done.stdout + done.stderr
    _, rows = report(tmp_path, "kvq")
    parts = {row["part"] for row in rows}
    shapes = ("chain of 4", "chain of 12", "tree of 16")
    assert parts == {f"exit {layer}, {shape}" for layer in (4, 8) for shape in shapes}
    for name in parts:
        off, on = (next(r for r in rows if r["part"] == name and r["way"] == way) for way in ("off", "on"))
        assert on["rows"] == off["rows"] > 0 and on["same"] and off["same"]
        assert 0 < on["reused"] < on["rows"] and off["reused"] == 0
        assert 0 < on["row_shares"] < (0.25 if name.startswith("exit 4") else 0.5)


def test_exits_of_a_model_without_a_clock(tmp_path):
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in demo_model().iterdir():
        (copy / file.name).symlink_to(file)
    done = run("exits", "--models", demo_model(), copy, "--tokens", "16", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    table, rows = report(tmp_path, "exits")
    assert table.splitlines()[0] in done.stdout
    exits = [row for row in rows if row["model"] == "lm13m"]
    assert [{**row, "model": "copy"} for row in exits] == [row for row in rows if row["model"] == "copy"]
    assert [one["layer"] for one in exits] == list(range(1, 17))
    assert exits[-1]["agrees"] == 1 and "accepted" not in exits[-1]
    assert exits[0]["loss"] > exits[7]["loss"] > exits[15]["loss"] > 2
    assert exits[0]["agrees"] < exits[14]["agrees"] and exits[0]["accepted"] < exits[14]["accepted"]
    assert all(1 <= one["M"] <= 5 for one in exits[:-1])


def test_transformers_beside_swiftk(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    done = run("transformers_peer", "--out", tmp_path, "--tokens", "16")
    assert done.returncode == 0, done.stdout + done.stderr
    _, rows = report(tmp_path, "transformers_peer")
    ways = {row["way"]: row for row in rows}
    assert "swiftk, early exit, by time" in ways and len(ways) == 5
    for peer in ("swiftk", "transformers"):
        drafts, plain = ways[f"{peer}, early exit"], ways[f"{peer}, plain"]
        assert 0 < drafts["alpha"] < 1 < drafts["M"]
        assert plain["alpha"] is None and plain["M"] == 1
    assert all(row["rate"] > 0 and row["memory_GB"] > 0 for row in rows)
    assert all(row["equal"] == "1 of 1" for row in rows if row["way"].startswith("swiftk"))


def test_a_missing_transformers_is_said(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('torch is not here')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = run("transformers_peer", PYTHONPATH=path)
    assert done.returncode == 0
    assert "left out: transformers, plain" in done.stdout and "torch is not here" in done.stdout
