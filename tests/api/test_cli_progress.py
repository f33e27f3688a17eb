"""Long work shows how far it is: a bar of one line on a terminal, plain lines elsewhere."""

import io
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import streamed
import swiftk
from debug_words import ask
from swiftk.cli import check, common, main, progress, tune
from swiftk.cli.common import Lines
from swiftk.cli.progress import Work, duration
from swiftk.testing import make_tiny


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def console(file):
    lines = Lines(stderr=True)
    lines.file = file
    return lines


@pytest.fixture
def shown(monkeypatch):
    """What goes to stderr, where each report of work is due."""
    monkeypatch.setattr(progress, "EVERY", 0.0)
    file = io.StringIO()
    monkeypatch.setattr(common, "err", console(file))
    return file


def test_piped_a_line_every_so_often(monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 5.0)
    file, clock = io.StringIO(), Clock()
    with Work(console(file), "checking", 100, clock=clock) as work:
        for _ in range(20):
            clock.now += 1.0
            work.advance(5)
    assert file.getvalue().splitlines() == [
        "checking: 25 of 100, 15 s left",
        "checking: 50 of 100, 10 s left",
        "checking: 75 of 100, 5.0 s left",
        "checking: 100 of 100, 0.0 s left",
    ]
    assert work.seconds == 20.0


def test_short_work_is_silent():
    file, clock = io.StringIO(), Clock()
    with Work(console(file), "checking", 2, clock=clock) as work:
        work.advance()
        work.advance()
    assert file.getvalue() == ""


def test_bytes_have_their_unit(monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 0.0)
    file, clock = io.StringIO(), Clock()
    for unit in (10**9, 10**6):
        clock.now = 0.0
        with Work(console(file), "loading m", unit_bytes=True, clock=clock) as work:
            clock.now = 4.0
            work(4 * unit, 16 * unit)
    assert file.getvalue().splitlines() == [
        "loading m: 4.0 of 16.0 GB, 12 s left",
        "loading m: 4.0 of 16.0 MB, 12 s left",
    ]


def test_other_work_has_a_time_of_its_own(monkeypatch):
    """Where less is done than before, and where it is said to begin."""
    monkeypatch.setattr(progress, "EVERY", 0.0)
    file, clock = io.StringIO(), Clock()
    with Work(console(file), "converting m", unit_bytes=True, clock=clock) as work:
        for now, done, total in ((10.0, 2, 2), (11.0, 1, 8), (13.0, 2, 8)):
            clock.now = now
            work(done * 10**9, total * 10**9)
        work.stage("loading m")
        clock.now = 15.0
        work(3 * 10**9, 4 * 10**9)
    assert file.getvalue().splitlines() == [
        "converting m: 2.0 of 2.0 GB, 0.0 s left",
        "converting m: 1.0 of 8.0 GB, 0.0 s left",
        "converting m: 2.0 of 8.0 GB, 6.0 s left",
        "loading m: 3.0 of 4.0 GB, 0.7 s left",
    ]


def test_a_conversion_is_shown_as_one(shown, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SWIFTK_CACHE", str(tmp_path / "cache"))
    ask(monkeypatch, streamed.ALONE)
    folder = make_tiny(tmp_path / "plain", "llama3", layers=5, **streamed.SIZES)
    memory = streamed.least(folder, sequences=1, draft_weights="int4")
    asked = ["run", str(folder), "hello", "-n", "2", "--context=64", "--max-sequences=1", "--draft-weights=int4"]
    asked.append(f"--memory={memory}")
    parts = []
    for _ in range(2):
        assert main(asked) == 0
        found = re.findall(r"(?m)^(\w+ plain)(?: and its few-bit copy)?: .* of ", shown.getvalue())
        parts.append([words for words, _ in itertools.groupby(found)])
        shown.truncate(0)
        shown.seek(0)
    assert parts == [["converting plain", "loading plain"], ["loading plain"]]


SHOWN = """
import sys
from swiftk.cli import common
with common.work(f"loading {sys.argv[1]} and its few-bit copy", unit_bytes=True) as work:
    for done in (1, 7, 16):
        work(done * 10**9, 16 * 10**9)
        work._bar.refresh()
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="how a terminal ends differs")
@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("name", ["m", "a-model-with-a-long-name" * 6])
def test_the_bar_fits_one_line_of_a_terminal(columns, name):
    import pty

    ours, terminal = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    place = {"env": environment, "cwd": Path(swiftk.__file__).parents[1], "stdout": terminal, "stderr": terminal}
    with subprocess.Popen([sys.executable, "-c", SHOWN, name], **place) as child:
        os.close(terminal)
        shown = b""
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:  # the terminal is closed
            pass
    os.close(ours)
    assert child.returncode == 0
    plain = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown.decode())
    bars = [line for line in re.split(r"[\r\n]+", plain) if line.strip() and line != "done"]
    assert all(line.startswith("loading") and len(line) <= columns for line in bars)
    assert any("7.0 of 16.0 GB" in line and "44%" in line and "left" in line for line in bars), bars


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (99.4, "99 s"),
        (100, "2 min"),
        (5900, "98 min"),
        (9000, "2.5 h"),
    ],
)
def test_durations(seconds, words):
    assert duration(seconds) == words


WORDS = {  # command: (arguments, what it says of its progress)
    "run": (["hello", "-n", "4"], ["loading {name}"]),
    "check": (["--quick", "-n", "4"], ["loading {name}", "checking: "]),
    "doctor": ([], ["loading {name}", "measuring: "]),
    "bench": (["-n", "4", "--repeat", "1"], ["loading {name}", "measuring: "]),
    "tune": (
        ["--data", "data.txt", "--out", "card.json", "--steps", "2", "--new-tokens", "8"],
        ["loading {name}", "searching (auto): ", "measuring: "],
    ),
}


@pytest.mark.parametrize("command", WORDS)
def test_piped_commands_report(shown, tiny_dir, tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("swiftk.cli.doctor._SECONDS", 0.0)
    (tmp_path / "data.txt").write_text("Question: who?\n")
    folder, (rest, says) = tiny_dir("llama3", layers=4), WORDS[command]
    assert main([command, str(folder), *rest]) == 0
    found = shown.getvalue()
    for words in says:
        assert re.search(rf"(?m)^{re.escape(words.format(name=folder.name))}.*\d+(\.\d)? of \d+", found), found
    assert "\x1b" not in found and "\r" not in found


def test_check_reports_its_time_before_and_after(shown, tiny_dir, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(check, "err", common.err)
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("one\ntwo\nthree\nfour\n")
    arguments = ["check", str(tiny_dir("llama3", layers=4)), "--prompts", str(prompts), "-n", "32", "--quick"]
    assert main(arguments) == 0
    out, said = capsys.readouterr().out, shown.getvalue()
    ways = int(re.search(r"in (\d+) ways", out)[1])
    assert re.search(rf"--quick: 12% of the whole check \(1 of 4 prompts, 16 of 32 tokens each\), .* {ways} ways", said)
    assert re.search(rf"checking {3 * (2 * ways + 1)} texts: about [\d.]+ (s|min)", said)
    assert re.search(r"together, in [\d.]+ (s|min): ", out)
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["part"], found["texts"]) == (0.125, 3) and found["seconds"] > 0
    assert all(way["tokens"] == 2 * 3 * 16 for way in found["ways"])


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ({"plain": 10, "before": 8, "after": 15, "default": 12}, ["wins", "1.50x plain", "1.25x the default"]),
        (
            {"plain": 10, "before": 8, "after": 12, "default": 24},
            ["loses against the default", "0.50x", "Leave --skip out"],
        ),
        (
            {"plain": 10, "before": 8, "after": 5, "default": 20},
            ["loses: 0.50x", "Do not use it", "the default is faster"],
        ),
        ({"plain": 10, "before": 8, "after": 5, "default": 9}, ["loses: 0.50x", "Do not use it", "plain decoding is"]),
    ],
)
def test_tune_says_what_its_card_is_worth(rates, words):
    assert all(one in tune.verdict(rates) for one in words)


def test_tune_measures_all_four_in_one_run(tiny_dir, tmp_path, capsys):
    data, card = tmp_path / "data.txt", tmp_path / "card.json"
    data.write_text("Question: who?\nQuestion: why?\n")
    asked = ["tune", str(tiny_dir("llama3", layers=4)), "--data", str(data), "--out", str(card), "--steps", "2"]
    assert main([*asked, "--new-tokens", "8", "--json"]) == 0
    found, kept = json.loads(capsys.readouterr().out), json.loads(card.read_text())
    rates = {way: found[f"tokens_per_second_{way}"] for way in ("plain", "before", "after", "default")}
    assert all(rate > 0 for rate in rates.values()) and found["verdict"].startswith("the card ")
    assert all(kept[f"tokens_per_second_{way}"] == rate for way, rate in rates.items())
