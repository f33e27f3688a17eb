"""What tests of bench/on_gpu.sh share: its modules, its processes, its results."""

import importlib
import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from debug_words import appended
from patience import PATIENCE

BENCH = Path(__file__).resolve().parents[2] / "bench"
GPU = BENCH / "gpu"
NO_DRIVER = {**os.environ, "SWIFTK_DEBUG": appended("driver=/nowhere/libcuda.so.1")}


@pytest.fixture(name="tool")
def tool_fixture(monkeypatch):
    """tool(name) -> a module of bench/gpu."""
    monkeypatch.setattr(sys, "path", [str(GPU), *sys.path])
    yield importlib.import_module
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(BENCH)):
            del sys.modules[name]


def call(*command, env=NO_DRIVER):
    command = [str(c) for c in command]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=env, check=False)


def found(results):
    return json.loads((results / "gpu.json").read_text())


def given(results, **more):
    settings = {"device": "cpu", "tiny": True, "results": results, "models": results / "models", "only": None, **more}
    return Namespace(**settings)
