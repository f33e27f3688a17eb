"""What is piped: lines as long as they are, whatever COLUMNS says; a terminal's lines end at its edge."""

import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import swiftk
from swiftk.cli import COMMANDS, doctor, main
from swiftk.train.__main__ import main as train

# In long paths, a name that rich would take for markup, if it looked for any.
PLACES = {"short": "m", "long": "/".join(["[bold]" + "path" * 20, "of" * 40, "more than two hundred letters" * 3])}


@pytest.fixture(params=PLACES)
def place(request, tmp_path):
    """A folder with a short or a long path."""
    folder = tmp_path / PLACES[request.param]
    folder.mkdir(parents=True)
    assert (len(str(folder)) > 200 + len(str(tmp_path))) == (request.param == "long")
    return folder


@pytest.fixture
def model(place, tiny_dir):
    return Path(shutil.copytree(tiny_dir("llama3", layers=4), place / "model"))


@pytest.fixture
def piped(capsys, monkeypatch):
    """piped(*arguments) -> (stdout, stderr), lists of lines in which columns are one space apart."""
    monkeypatch.setenv("COLUMNS", "20")

    def run(*arguments, status=0):
        assert main([str(a) for a in arguments]) == status
        return [[" ".join(line.split()) for line in text.splitlines()] for text in capsys.readouterr()]

    return run


def fits(pattern, lines):
    """How many of the lines are of the pattern, whole."""
    return sum(bool(re.fullmatch(pattern, line)) for line in lines)


def test_info(piped, model):
    out, _ = piped("info", model)
    assert f"model {model}" in out
    assert fits("K and V of a full context .* MB", out) == fits("chat template (True|False)", out) == 1


def test_pack(piped, place):
    path = place / "a.pack"
    out, _ = piped("pack", "--model", "demo", "--arch", "stub", "-o", path)
    assert piped("pack", "--show", path)[0] == out
    assert fits(re.escape(str(path)) + r": .* [KM]B for stub, built with .*", out) == 1
    assert fits(r"shape: D \d+, .*, dtype \w+, .*", out) == 1
    assert "kernel warps shared memory image" in out
    assert fits(r"[\w.]+ \d+ [\d,]+ [\d,]+", out) == len(swiftk.gpu.pack.read_header(path)["kernels"])


def test_check(piped, model, place, monkeypatch):
    prompts = place / "prompts.txt"
    prompts.write_text("Question: who?\n")
    asked = "check", model, "--tokens", "6", "--prompts", prompts
    out, _ = piped(*asked)
    assert "what drafts tokens from drafts result" in out
    said = r"3 texts \(greedy, sampled, penalised\) in (\d+) ways, each text alone and all together, in [\d.]+ \w+: "
    said += r"\d+ tokens, .*: "
    ways = int(re.fullmatch(said + "all identical to plain decoding", out[-1])[1])
    assert fits(r"[\w ',]+ 36 \d+ identical", out) == ways > 10
    generate = swiftk.LM.generate_many

    def lies(self, prompts, each, **options):
        results = generate(self, prompts, each=each, **options)
        for result in results if options.get("speculate") == "always" else ():
            result.tokens[5] = 7777
        return results

    monkeypatch.setattr(swiftk.LM, "generate_many", lies)
    out, _ = piped(*asked, status=1)
    says = (
        r".*, (alone|together), \w+, prompt 'Question: who\?': token 5 is 7777, plain decoding gives \d+ \(margin .*\)"
    )
    assert fits(says, out) == 8
    assert re.fullmatch(said + rf"{6 * (ways - 1)} texts differ", out[-1])


def test_bench_and_demo(piped, model):
    out, _ = piped("bench", model, "--tokens", "8", "--repeat", "1")
    assert "tok/s ratio forecast tok/pass accepted draft cost output" in out
    assert fits(r"always drafting [\d.]+ [\d.]+x .* identical", out) == 1
    out, _ = piped("demo", "-n", "8")
    assert fits(r"Three texts with drafting, then without: .* layers, .* threads\. .* little sense\.", out) == 1
    assert fits("Green tokens were drafted by an int4 copy of the weights, .*, and verified by the model.", out) == 1
    assert "prompt plain tok/s swiftk tok/s ratio tok/step accepted output" in out
    assert fits(r"arithmetic [\d.]+ .* identical", out) == 1


def test_doctor(piped, model, monkeypatch):
    monkeypatch.setattr(doctor, "_SECONDS", 0.0)
    out, _ = piped("doctor", model)
    assert fits(r".* kernels, .* threads, .*: reads .* GB/s, computes .* GFLOP/s", out) == 1
    assert "rows in a pass 1 2 4 6 8 10 12 14 16" in out
    assert "draft plain steps pays from at 0.6 at 0.8 at 0.9 at 0.95" in out
    assert fits(r"int4 copy [\d.]+ ([\d.]+|never) .*x", out) == 1
    assert fits(r"the default, on a text of 96 tokens: accepted .*", out) == 1


def test_tune(piped, model, place):
    prompts, card = place / "prompts.txt", place / "card.json"
    prompts.write_text("Question: who?\n")
    out, _ = piped("tune", model, "--data", prompts, "--out", card, "--steps", "2", "--new-tokens", "8")
    assert f"written to {card}: skip={str(card)!r}" in out
    assert fits(r"found set [\d.]+ [\d.]+", out) == 1


def test_run_and_chat(piped, model, monkeypatch):
    _, err = piped("run", model, "Question: how", "-n", "6", "--temperature", "1", "--seed", "4", "--stats")
    assert fits(r"6 tokens \(length\), .* tokens/s, first after .* s, seed 4", err) == 1
    monkeypatch.setattr("sys.stdin", io.StringIO("/system\n"))
    _, err = piped("chat", "demo")
    plain = "this checkpoint has no chat template: the conversation is written as a plain transcript"
    assert err == [plain, "there is no system message"]


def test_errors(piped, place):
    missing = place / "no" / "such"
    for arguments, says in (
        (("info", missing), f"swiftk: .*{re.escape(str(missing))}.*"),
        (("tune", "demo", "--data", "x", "-o", missing), rf"swiftk: \[tune\] --out .*{place.name}/no is not a folder"),
        (("run", "demo", "x", f"--{place}"), f"swiftk: No such option: --{re.escape(str(place))}.*"),
        (("bench", "demo", "--tokens", place), "swiftk: Invalid value for '--tokens'.* integer.*"),
        (("run", "demo", "x", "--report", missing / "a.html"), rf"swiftk: .*{re.escape(str(missing))}.*"),
    ):
        out, err = piped(*arguments, status=2)
        assert (len(out), len(err)) == (0, 1)
        assert re.fullmatch(says, err[0]), err


def test_help(piped, capsys):
    out, _ = piped("--help")
    assert "pack Build GPU kernels ahead of time." in out
    assert "--version Print the version." in out
    for command in COMMANDS:
        assert fits(rf"Usage: swiftk {command} \[OPTIONS\].*", piped(command, "--help")[0]) == 1
    out, _ = piped("pack", "--help")
    assert fits(r"--draft-weights .* Few-bit copies to support: int4, .*, joined by commas; own: none\..*", out) == 1
    with pytest.raises(SystemExit):
        train(["--help"])
    out = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert fits(r"--resume DIR +the folder of a run that was interrupted, or killed", out) == 1


def test_a_process_of_its_own(model, place):
    """COLUMNS from the start, and standard input a terminal or not: only where output goes counts."""
    command = [sys.executable, "-m", "swiftk"]
    found = {"env": {**os.environ, "COLUMNS": "30"}, "cwd": Path(swiftk.__file__).parents[1], "text": True}
    done = subprocess.run([*command, "info", model], **found, capture_output=True, check=True)
    assert f"model {model}" in [" ".join(line.split()) for line in done.stdout.splitlines()]
    done = subprocess.run([*command, "info", place / "no"], **found, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert str(place / "no") in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="how a terminal ends differs")
def test_a_terminal_is_as_wide_as_it_is(model):
    import pty

    ours, terminal = pty.openpty()
    environment = {**os.environ, "COLUMNS": "30", "TERM": "xterm", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "swiftk", "info", str(model)]
    with subprocess.Popen(command, env=environment, cwd=Path(swiftk.__file__).parents[1], stdout=terminal) as child:
        os.close(terminal)
        shown = b""
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:  # the terminal is closed
            pass
    os.close(ours)
    assert child.returncode == 0
    lines = shown.decode().splitlines()
    assert max(map(len, lines)) <= 30
    assert str(model) not in shown.decode() and model.name in shown.decode()
