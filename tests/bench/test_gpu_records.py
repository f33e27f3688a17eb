"""Results of bench/on_gpu.sh: rows are kept whatever ends a part; beside them what was wanted."""

import os
import signal
from multiprocessing.process import BaseProcess

import pytest

from on_gpu import found, given, tool_fixture  # noqa: F401
from patience import PATIENCE, until


def test_targets_count_on_a_gpu_alone(tool, tmp_path, capsys):
    record = tool("record")
    for device, met in (("cpu", None), ("cuda", False)):
        with record.Part("decode", given(tmp_path, device=device, tiny=False)) as part:
            part.add("7b", "one row", 280.0, "tokens/s", of_reads=0.91, at_least=290)
        (row,) = found(tmp_path)["parts"]["decode"]["rows"]
        assert row.get("met") == met
    text = (tmp_path / "gpu.md").read_text()
    assert all(word in text for word in ("decode: 7b", "280 tokens/s", "91%", ">= 290", "missed", "decode: done"))


def test_a_row_takes_the_place_of_the_one_before(tool, tmp_path, capsys):
    record = tool("record")
    with record.Part("decode", given(tmp_path)) as part:
        for same in (False, True):
            part.add("7b", "rows equal", same, must=True)
            part.add("7b", "rounds", int(same))
            assert part.failures == (not same)
    assert [row["value"] for row in found(tmp_path)["parts"]["decode"]["rows"]] == [True, 1]


def test_a_measurement_that_fails_costs_no_other(tool, tmp_path, capsys):
    record = tool("record")

    def broken(part):
        raise RuntimeError("no memory")

    part = record.Part("hardware", given(tmp_path))
    part.attempt("reads", broken, part)
    part.add("card", "copies", 2)
    with pytest.raises(SystemExit):
        part.__exit__(None, None, None)
    kept = found(tmp_path)["parts"]["hardware"]
    assert kept["state"] == "done, 1 failures"
    assert kept["notes"] == ["reads: RuntimeError: no memory"]
    assert len(kept["rows"]) == 1


LATE, ENDED = 7, 8  # seconds, which pass as soon as the process that is waited for has a row


def test_a_process_that_crashes_or_hangs_costs_no_other_measurement(tool, tmp_path, capfd, monkeypatch):
    record = tool("record")
    join = BaseProcess.join

    def wait(process, seconds=None):
        if seconds not in (LATE, ENDED):
            return join(process, seconds)
        name, case = ("decode", "8b") if seconds == LATE else ("contexts", "7b")
        until(lambda: case in [row["case"] for row in found(tmp_path)["parts"][name]["rows"]])
        if seconds == ENDED:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(BaseProcess, "join", wait)
    part = record.Part("decode", given(tmp_path))
    part._write()

    def measured(name, then):
        part.add(name, "one row", 280.0, "tokens/s")
        then()

    ends = {"7b": lambda: None, "1b": lambda: os.kill(os.getpid(), signal.SIGKILL), "8b": signal.pause,
            "13b": lambda: 1 / 0}  # fmt: skip
    for name, then in ends.items():
        part.apart(name, LATE if name == "8b" else PATIENCE, measured, name, then)
    assert [row["case"] for row in part.found["rows"]] == [*ends]
    notes = ["1b: crashed with signal 9", "8b: not done in 7 s", "13b: ZeroDivisionError: division by zero"]
    assert part.found["notes"] == notes
    assert part.failures == 3
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit), record.Part("contexts", given(tmp_path)) as part:
        part.apart("7b", ENDED, measured, "7b", signal.pause)
    signal.signal(signal.SIGTERM, before)
    assert found(tmp_path)["parts"]["contexts"]["rows"], "what was measured before the part's limit is kept"


SHORT = [(0.0, "0.0"), (1.0, "1.00"), (0.04567, "0.0457"), (290.4, "290"), (4312.7, "4313"), (7, "7"), (True, "yes"),
         (False, "no"), (float("nan"), "nan")]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), SHORT)
def test_short(tool, value, text):
    assert tool("record").short(value) == text
