"""bench/gpu/attention.py without a GPU: the engine's kernels in Triton's interpreter beside a double of flash-attn."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GPU, SHARED = ROOT / "bench" / "gpu", ROOT / "tests" / "shared"

INTERPRETED = """
import sys
sys.path[:0] = sys.argv[1:3]
if sys.argv[4] == "True":
    import flash_attn_double
    sys.modules["flash_attn"] = flash_attn_double
from triton.runtime import interpreter
from triton_interpreter import patch_once
patch_once(interpreter)
import attention, record
from argparse import Namespace
from pathlib import Path
with record.Part("peers", Namespace(device="cpu", tiny=True, results=Path(sys.argv[3]))) as part:
    attention.measure(part)
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("installed", [False, True])
def test_attention_beside_flash_attn(tmp_path, installed):
    """The engine's kernels in the interpreter, with the grids of the runtime; the peer's results are theirs."""
    pytest.importorskip("triton")
    command = [sys.executable, "-c", INTERPRETED, GPU, SHARED, tmp_path, str(installed)]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "gpu.json").read_text())["parts"]["peers"]["rows"]
    assert sum(row["measure"].startswith("swiftk, ") and row["value"] > 0 for row in rows) == 6
    if installed:
        apart = [row["value"] for row in rows if row["measure"].startswith("largest difference")]
        assert len(apart) == 6 and max(apart) < 2e-3
    else:
        assert [row["value"] for row in rows if row["measure"].startswith("flash_attn")] == ["not installed"] * 6
        assert "not installed" in (tmp_path / "gpu.md").read_text()
