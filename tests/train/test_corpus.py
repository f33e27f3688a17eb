"""Texts from source trees: which files count, and that the order is theirs alone."""

import json

import pytest
import typer
from typer.testing import CliRunner

from swiftk.train import corpus


def lines(path):
    return [json.loads(line)["text"] for line in path.read_text("utf-8").splitlines()]


def gather(*trees, out, limit=10_000_000):
    app = typer.Typer()
    app.command()(corpus.main)
    found = CliRunner().invoke(app, [*map(str, trees), "--out", str(out), "--limit", str(limit)])
    assert found.exit_code == 0, found.output
    return lines(out / "code.jsonl"), lines(out / "prose.jsonl")


@pytest.fixture
def tree(tmp_path):
    root = tmp_path / "tree"
    (root / "deep").mkdir(parents=True)
    good = "def double(x):\n    return x + x\n" * 10
    (root / "good.py").write_text(good)
    (root / "deep" / "copy.py").write_text(good)
    (root / "deep" / "other.py").write_text(good.replace("double", "zwiefach"), encoding="utf-8")
    (root / "guide.rst").write_text("What a reader wants to know first.\n" * 10)
    (root / "short.py").write_text("x = 1\n")
    (root / "table.py").write_text("rows = [" + "1, 22, 333, 4444,\n" * 50 + "]\n")
    (root / "wide.py").write_text("word = '" + "word " * 200 + "'\n")
    (root / "latin.py").write_bytes(b"# caf\xe9 " * 50)
    (root / "picture.png").write_bytes(b"PNG" * 200)
    (root / "link.py").symlink_to(root / "good.py")
    return root


def test_code_and_prose_once_each(tree, tmp_path):
    code, prose = gather(tree, out=tmp_path / "out")
    assert sorted(text.split("(")[0] for text in code) == ["def double", "def zwiefach"]
    assert prose == [(tree / "guide.rst").read_text()]


def test_a_limit_is_of_a_tree(tree, tmp_path):
    assert len(gather(tree, out=tmp_path / "out", limit=400)[0]) == 1
    other = tmp_path / "other"
    other.mkdir()
    (other / "more.py").write_text("def more(x):\n    return x\n" * 12)
    assert len(gather(tree, other, out=tmp_path / "out", limit=400)[0]) == 2


def test_the_order_does_not_depend_on_the_trees(tree, tmp_path):
    moved = tmp_path / "moved"
    tree.rename(moved)
    (moved / "good.py").rename(moved / "zz.py")
    assert gather(moved, out=tmp_path / "a") == gather(moved, out=tmp_path / "b")
