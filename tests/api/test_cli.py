"""The command line: what it prints, where, and with which status."""

import io
import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import streamed
import swiftk
from debug_words import ask
from heads import make_block
from swiftk.cli import doctor, main
from swiftk.cli.check import skip_sets
from swiftk.running.engine import Ticket


@pytest.fixture(scope="module")
def folder(tiny_dir):
    return str(tiny_dir("llama3", layers=4))


@pytest.fixture
def swift(capsys):
    """swift(*arguments) -> (status, stdout, stderr)."""

    def run(*arguments):
        status = main(list(arguments))
        return status, *capsys.readouterr()

    return run


def test_version_and_help(swift):
    assert swift("--version") == (0, f"swiftk {swiftk.__version__}\n", "")
    status, out, _ = swift("--help")
    assert status == 0
    assert swift() == (0, out, "")
    for command in ("demo", "run", "chat", "info", "check", "doctor", "bench"):
        assert command in out


@pytest.mark.parametrize("command", ["demo", "run", "chat", "info", "check", "doctor", "bench"])
def test_help_of_each(swift, command):
    status, out, _ = swift(command, "--help")
    assert status == 0
    assert "Usage" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "/no/such/dir", "x"),
        ("run",),
        ("info", "/no/such/dir"),
        ("dance",),
        ("run", "demo", "\udcff"),
        ("run", "demo", "x", "--threads", "5000"),
        ("run", "org/name", "x"),
        ("check", "/nowhere"),
        ("run", "demo", "x", "--temperature", "-1"),
        ("run", "demo", "x", "--temperatur", "1"),
        ("run", "demo", "x", "--top-p", "2"),
        ("run", "demo", "x", "--skip", "/no/card.json"),
        ("run", "demo", "x", "--report", "/no/folder/page.html"),
        ("bench", "/nowhere"),
        ("check", "demo", "--prompts", "/no/file"),
    ],
)
def test_mistakes_are_one_line_and_status_2(swift, arguments):
    status, out, err = swift(*arguments)
    assert status == 2
    assert err.startswith("swiftk: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert out == ""


def test_run_prints_the_text_alone(swift, folder):
    said = [{"role": "user", "content": "Question: how"}]
    want = swiftk.generate(folder, said, max_new_tokens=12, temperature=0.8, seed=4)
    arguments = ("run", folder, "Question: how", "--max-new-tokens", "12", "--temperature", "0.8", "--seed", "4")
    assert swift(*arguments)[:2] == (0, want.text + "\n")
    assert swift(*arguments, "--no-spec")[:2] == (0, want.text + "\n")
    status, out, err = swift(*arguments, "--stats")
    assert (status, out) == (0, want.text + "\n")
    assert "tokens/s" in err


def test_run_reads_stdin_and_writes_json(swift, folder, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("Question: how"))
    status, out, _ = swift("run", folder, "-", "-n", "5", "--json", "--stop", "zzzz")
    found = json.loads(out)
    assert status == 0
    assert len(found["tokens"]) <= 5
    assert found["stats"]["generated_tokens"] == len(found["tokens"])


@pytest.mark.parametrize("received", [0, 1, 4])
def test_an_interrupted_run_prints_what_there_is(swift, folder, monkeypatch, received):
    asked = ("run", folder, "Question: how", "-n", "12", "--no-spec")
    want, calls, receive = swift(*asked)[1], [], Ticket.receive

    def interrupted(self):
        calls.append(1)
        if len(calls) == received + 1:
            raise KeyboardInterrupt
        return receive(self)

    monkeypatch.setattr(Ticket, "receive", interrupted)
    status, out, _ = swift(*asked, "--json")
    found = json.loads(out)
    assert (status, found["finish_reason"]) == (130, "cancelled")
    assert len(found["tokens"]) == received and want.startswith(found["text"])
    calls.clear()
    assert swift(*asked)[:2] == (130, found["text"] + "\n")


def test_a_text_that_ends_at_the_default_length_says_so(swift, folder):
    assert "ended after 256 tokens; --max-new-tokens" in swift("run", folder, "Question: how", "--no-spec")[2]


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_run_writes_a_report(swift, folder, tmp_path, how):
    page = tmp_path / "page.html"
    status, out, _ = swift("run", folder, "Question: how", "-n", "5", "--report", str(page), *how)
    assert status == 0
    assert page.read_text(encoding="utf-8").count('title="token ') == 5
    assert swift("run", folder, "Question: how", "-n", "5")[1] == out or how


def test_info(swift, folder):
    status, out, _ = swift("info", folder, "--json")
    found = json.loads(out)
    assert status == 0
    assert (found["family"], found["layers"], found["vocab_size"], found["context"]) == ("llama", 4, 320, 512)
    assert found["weight_bytes"] > 0
    assert found["cache_bytes"] > 0
    status, out, _ = swift("info", folder)
    assert status == 0
    assert found["isa"] in out


def test_info_and_doctor_report_of_a_drafter(swift, folder, tmp_path):
    drafter = str(make_block(tmp_path / "head", Path(folder)))
    status, out, _ = swift("info", folder, "--drafter", drafter, "--json")
    found = json.loads(out)
    assert status == 0 and found["drafters"] == "block" and found["drafter_weight_bytes"] > 0
    status, out, _ = swift("doctor", folder, "--drafter", drafter, "--json")
    costs = {draft["draft"]: draft["draft_cost"] for draft in json.loads(out)["drafts"]}
    assert status == 0 and costs["block drafter"] > 0


def test_check_agrees(swift, folder, tmp_path, monkeypatch):
    ask(monkeypatch, "clock=plan:.3/drafter:.03/row:.03/far:.09")  # on a busy machine a copy does not pay
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("hello\n\nQuestion: who?\n")
    status, out, _ = swift("check", folder, "--tokens", "12", "--prompts", str(prompts), "--json")
    found = json.loads(out)
    assert status == 0
    assert found["identical"]
    ways = {way["way"]: way for way in found["ways"]}
    assert {"default", "int4 copy alone", "recycle alone", "template alone", "skips all after half"} <= ways.keys()
    assert found["texts"] == 6 and all(way["tokens"] == 2 * 6 * 12 for way in ways.values())
    assert found["drafted"] == sum(way["drafted"] for way in ways.values())
    assert all(way["drafted"] > 0 for name, way in ways.items() if name.endswith(("copy alone", "always", "nothing")))


def test_check_names_the_first_divergence(swift, folder, monkeypatch):
    generate = swiftk.LM.generate_many

    def lies(self, prompts, each, **options):
        results = generate(self, prompts, each=each, **options)
        if len(prompts) > 1 and options.get("skip") == "int4":  # beside others alone
            results[3].tokens[5] = 7777
        return results

    monkeypatch.setattr(swiftk.LM, "generate_many", lies)
    status, out, _ = swift("check", folder, "--tokens", "8")
    assert status == 1
    assert re.search(r"int4 copy alone, together, sampled, prompt 'Question.*': token 5 is 7777, plain", out)
    assert len(re.findall(r"1 differ\b", out)) == 1 and out.splitlines()[-1].endswith(": 1 texts differ")


def test_skip_sets_fit_any_depth():
    for layers in (1, 2, 3, 32):
        for skip in skip_sets(layers).values():
            skip.check(layers)


def test_doctor_measures(swift, folder):
    status, out, _ = swift("doctor", folder, "--json")
    found = json.loads(out)
    assert status == 0
    assert found["read_bytes_per_second"] > 1e8
    assert found["rows"]["1"] == 1.0
    assert [d["draft"] for d in found["drafts"]] == ["int4 copy", "every second layer", "exit at half"]
    assert all(d["draft_cost"] > 0 for d in found["drafts"])
    assert found["default"]["tokens"] == 96
    assert found["disk_bytes_per_second"] is found["share_of_disk_speed"] is None


def test_doctor_keeps_ratios_where_the_machine_changes_its_speed():
    """Each figure is compared with a plain step beside it: a machine that gets eight times slower changes none."""
    calls = itertools.count()

    def cost(share):
        speed = 8.0 if next(calls) > 60 else 1.0  # from some turn on
        return share * speed

    every = {1: lambda: cost(1.0), 2: lambda: cost(1.1), "draft": lambda: cost(0.5)}
    plain, share = doctor._in_turn(every, lambda: None)
    assert plain in (1.0, 8.0)
    assert share == pytest.approx({1: 1.0, 2: 1.1, "draft": 0.5})


def test_doctor_takes_fewer_turns_where_each_takes_long(monkeypatch):
    """A turn has its samples at least once, the first counts where it is alone, and progress comes to its end."""
    calls = []
    for seconds, samples in ((0.001, doctor._TURNS * doctor._SAMPLES), (3.0, 6), (15.0, 1), (30.0, 0)):
        calls.clear()
        monkeypatch.setattr(doctor, "perf_counter", lambda seconds=seconds: seconds * len(calls))
        steps = itertools.count()
        found = doctor._in_turn({1: lambda: calls.append(1) or (1.0 if len(calls) > 1 else 5.0)}, steps.__next__)
        assert len(calls) == 1 + samples
        assert found == (1.0 if samples else 5.0, {1: 1.0})
        assert next(steps) == doctor._TURNS + 1


def test_doctor_measures_a_model_on_disk(swift, tmp_path, monkeypatch):
    ask(monkeypatch, streamed.ALONE)
    monkeypatch.setattr(doctor, "_SECONDS", 0.0)
    model = streamed.make(tmp_path)
    memory = streamed.least(model, sequences=1, context=300)
    asked = "doctor", str(model), "--context=300", "--max-sequences=1", f"--memory={memory}", "--device=cpu"
    status, out, _ = swift(*asked, "--json")
    found = json.loads(out)
    assert status == 0 and found["memory"]["streamed"] > 0 and found["default"]["tokens"] > 0
    speed, plain = found["disk_bytes_per_second"], found["plain_step_seconds"]
    assert found["share_of_disk_speed"] == pytest.approx(found["memory"]["streamed"] / plain / speed)
    assert {"int4 copy", "every second layer"} <= {draft["draft"] for draft in found["drafts"]}
    status, out, _ = swift(*asked)
    assert re.search(r"its \S+ [KM]B from disk at \d+% of the disk's speed, \S+ GB/s", out)
    assert re.search(r"read from disk for each pass +\S+ [KM]B", out)


def test_bench_compares(swift, folder):
    status, out, _ = swift("bench", folder, "--tokens", "24", "--repeat", "1", "--json")
    found = json.loads(out)
    assert status == 0
    assert found["plain"]["ratio"] == 1.0
    assert all(f["identical"] for f in found.values())


@pytest.mark.parametrize("reason", ["drafting lost time: a draft step costs 2.00", "draft step costs 0.61"])
def test_why_drafting_was_off_is_said_once(swift, folder, monkeypatch, reason):
    generate = swiftk.LM.generate

    def off(self, prompt, **options):
        result = generate(self, prompt, **options)
        return replace(result, stats=replace(result.stats, speculation="mixed", reason_off=reason))

    monkeypatch.setattr(swiftk.LM, "generate", off)
    status, out, _ = swift("bench", folder, "--tokens", "4", "--repeat", "1")
    assert status == 0
    assert out.splitlines()[-1] == f"speculation mixed: {reason}"


def test_demo_shows_identical_texts(swift):
    status, out, _ = swift("demo", "-n", "24")
    assert status == 0
    assert out.count("identical") >= 3
    assert "Question:" in out


def test_demo_fails_if_outputs_differ(swift, monkeypatch):
    generate = swiftk.LM.generate

    def lies(self, prompt, **options):
        result = generate(self, prompt, **options)
        if options.get("speculate") is False:
            result.tokens[2] += 1
        return result

    monkeypatch.setattr(swiftk.LM, "generate", lies)
    status, out, _ = swift("demo", "-n", "8")
    assert status == 1
    assert "differs at token 2" in " ".join(out.split())


def test_demo_grows_a_model_once(swift, monkeypatch, tmp_path):
    monkeypatch.setenv("SWIFTK_CACHE", str(tmp_path))
    first = swift("demo", "-n", "4", "--grow", "2")
    (folder,) = tmp_path.glob("grown/*/lm13m-x2")
    made = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    second = swift("demo", "-n", "4", "--grow", "2")
    assert (first[0], second[0]) == (0, 0)
    assert made == {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    assert list(folder.parent.iterdir()) == [folder]


def test_no_color_is_honoured(swift, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in swift("demo", "-n", "4")[1]
