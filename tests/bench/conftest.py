"""Fixtures of tests of the benchmarks."""

import importlib
import json
from pathlib import Path

import pytest

from swiftk import demo_model

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def bench(monkeypatch):
    """bench(name) -> a module of the benchmarks."""
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"bench.{name}")


@pytest.fixture
def chatting(tmp_path):
    """The bundled model with a chat template."""
    folder = tmp_path / "chatting"
    folder.mkdir()
    for file in demo_model().iterdir():
        if file.name != "tokenizer_config.json":
            (folder / file.name).symlink_to(file)
    settings = demo_model() / "tokenizer_config.json"
    told = json.loads(settings.read_text()) if settings.exists() else {}
    told["chat_template"] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}<assistant>"
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    return folder
