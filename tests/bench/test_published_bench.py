"""Benchmarks of models that are not the bundled one: their texts, weights and answers. Nothing about speed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import swiftk
from patience import PATIENCE
from swiftk import demo_model
from swiftk.text.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parents[2]


# Texts


def test_a_model_with_a_template_is_asked_by_it(bench, chatting):
    texts, tokenizer = bench("texts"), Tokenizer(chatting)
    asked, raw = texts.Prompts(chatting), texts.Prompts(chatting, chat=False)
    assert asked.chat and not raw.chat and not texts.Prompts(demo_model()).chat
    words = texts.lines("writing")[0]["turns"]

    def told(text):
        return [tokenizer.decode(turn, skip_special_tokens=False) for turn in text.turns]

    first, then = told(asked.text("writing", words))
    assert first == f"<user>{words[0]}</s><assistant>"
    assert then == f"</s><user>{words[1]}</s><assistant>", "it begins with the end of the answer before it"
    first, then = told(raw.text("writing", words))
    assert first == f"<s>Question: {words[0]}\nAnswer:" and then == f"\nQuestion: {words[1]}\nAnswer:"


def test_examples_stand_before_the_papers_prompts(bench, chatting):
    texts, tokenizer = bench("texts"), Tokenizer(chatting)
    question = texts.lines("gsm8k")[0]["turns"][0]
    for chat in (False, True):
        text = texts.Prompts(chatting, chat, shots=True).stream("gsm8k", 1)[0]
        told = tokenizer.decode(text.prompt, skip_special_tokens=False)
        places = [told.index(part) for asked, answer in texts.shots("gsm8k") for part in (asked, answer)]
        assert len(places) == 10 and places == sorted(places) and places[-1] < told.index(question)
    assert texts.shots("qa") == [] and len(texts.shots("summarization")) == 1
    measured = {line["turns"][0] for name in ("gsm8k", "summarization") for line in texts.lines(name)}
    assert not measured & {asked for name in ("gsm8k", "summarization") for asked, _ in texts.shots(name)}


def test_a_long_turn_keeps_its_first_word_and_its_end(bench):
    texts, tokenizer = bench("texts"), Tokenizer(demo_model())
    article = "Summarize: " + " ".join(f"number {i}" for i in range(2000))
    text = texts.Prompts(demo_model()).text("summarization", [article], most=100)
    told = tokenizer.decode(text.prompt, skip_special_tokens=True)
    assert 80 < len(text.prompt) <= 110
    assert told.startswith("Summarize: ") and told.endswith("number 1999\nSummary:") and "number 0 " not in told


def test_all_categories_of_spec_bench_have_texts(bench):
    texts = bench("texts")
    assert len(texts.CATEGORIES) == 13
    for name in texts.CATEGORIES:
        assert len(texts.lines(name)) >= 5
    of_mt_bench = [line for name in texts.CATEGORIES[:8] for line in texts.lines(name)]
    assert len(of_mt_bench) == len(texts.lines("mt-bench")) == 40
    assert {line["category"] for line in texts.lines("mt-bench")[:8]} == set(texts.CATEGORIES[:8])


# Weights


def test_a_copy_as_fine_as_the_file_is_flattered(bench):
    weights = bench("weights")
    files = SimpleNamespace(config={weights.DECODED: "Q4_1"})
    whole = SimpleNamespace(config={})
    packed = SimpleNamespace(config={"quantization_config": {"config_groups": {"a": {"weights": {"num_bits": 8}}}}})

    assert weights.encoding(files) == "Q4_1" and weights.encoding(packed) == "int8" and weights.encoding(whole) is None
    assert weights.flattered({"int4"}, files, "bfloat16") and weights.flattered({"int3", "int8"}, files, "auto")
    assert not weights.flattered({"int3"}, files, "bfloat16") and not weights.flattered(set(), files, "bfloat16")
    assert weights.flattered({"int8"}, packed, "auto") and not weights.flattered({"int4"}, packed, "auto")
    assert not weights.flattered({"int8", "int4", "upper"}, whole, "auto")
    assert weights.flattered({"int4"}, whole, "int4"), "weights that were rounded at loading"
    assert weights.told(files, "bfloat16") == "bfloat16, decoded from Q4_1" and weights.told(whole, "auto")


@pytest.fixture
def quantised(bench, tmp_path, monkeypatch):
    """quantised(model, kind) -> the bundled model's file, or that of another one."""
    pytest.importorskip("gguf")
    pytest.importorskip("llama_cpp")
    monkeypatch.setenv("SWIFTK_CACHE", str(tmp_path / "cache"))
    return lambda model, kind: Path(bench("as_gguf").quantised(Path(model), kind, sys.executable))


def test_a_file_is_quantised_again(bench, quantised):
    """Its kind is the new one, and it still has its words."""
    encoding, open_files = bench("weights").encoding, bench("harness").open_model_files
    once = quantised(demo_model(), "q8_0")
    twice = quantised(once, "q4_0")
    assert [encoding(open_files(one)) for one in (once, twice)] == ["Q8_0", "Q4_0"]
    assert Tokenizer(twice).encode("Two words.") == Tokenizer(once).encode("Two words.")
    made = twice.stat().st_mtime_ns
    assert quantised(once, "q4_0") == twice and twice.stat().st_mtime_ns == made
    with pytest.raises(bench("as_gguf").Missing, match=r"no kind 'q9'.*q4_k_m"):
        quantised(once, "q9")


def test_copies_of_a_file_s_kind_are_flattered_by_what_it_was_made_of(bench, quantised, monkeypatch, tmp_path):
    """int4 of Q8_0 says nothing new where the weights were Q4_0 before."""
    process, coarse = bench("process"), quantised(demo_model(), "q4_0")
    options = {**bench("as_gguf").KIND, **process.PYTHON_LLAMA}

    def study(*words):
        monkeypatch.setattr(sys, "argv", ["bench", "--quick", "--out", str(tmp_path), *map(str, words)])
        return bench("harness").Study("some", "?", options=options)

    plain, fine = study("--kind", "q8_0"), study("--model", coarse, "--kind", "q8_0")
    assert plain.folder == quantised(demo_model(), "q8_0") and plain.out == tmp_path / "q8_0"
    assert fine.folder == quantised(coarse, "q8_0") and fine.out == tmp_path / f"{coarse.stem}-q8_0"
    assert not plain.flatters(["int4"]) and fine.flatters(["int4"]) and fine.copy == "int3"
    plain.finish({"way": "way"})
    fine.finish({"way": "way"})
    told = [json.loads((one.out / "some.json").read_text())["settings"] for one in (plain, fine)]
    assert [(one["model"], one["weights"], one["made of"]) for one in told] == [
        (demo_model().name, "Q8_0", "16 bits"),
        (coarse.name, "Q8_0", "Q4_0"),
    ]
    with pytest.raises(SystemExit, match=r"--kind q9 needs llama\.cpp"):
        study("--kind", "q9")


def test_a_gguf_file_becomes_the_folder_that_it_was_made_of(bench, tmp_path, monkeypatch):
    pytest.importorskip("gguf")
    monkeypatch.setenv("SWIFTK_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "lm13m.gguf"
    command = [sys.executable, ROOT / "bench" / "peers" / "gguf_export.py", demo_model(), file, "--dtype", "bf16"]
    subprocess.run(list(map(str, command)), check=True, timeout=PATIENCE)
    folder = bench("decoded").folder_of(file)
    assert folder == bench("decoded").folder_of(file) and bench("decoded").folder_of(folder) == folder

    mine, its = (swiftk.load(one, draft_weights="own") for one in (demo_model(), folder))
    options = {"max_new_tokens": 24, "temperature": 0.0, "ignore_eos": True}
    assert mine.generate([1, 5, 9], **options).tokens == its.generate([1, 5, 9], **options).tokens
    assert bench("weights").encoding(its.files) is None


def test_a_model_is_named_or_a_path(bench, tmp_path):
    published = bench("published")
    assert published.model(str(demo_model())) == demo_model()
    with pytest.raises(SystemExit, match="one of smollm2"):
        published.model(str(tmp_path / "nothing"))


def test_results_of_other_models_lie_apart(bench):
    place, out = bench("results").place, Path("out")
    assert place(out, None, None, None) == out
    assert place(out, Path("a/b.Q4_1.gguf"), None, "bfloat16", "avx2") == out / "b.Q4_1-bfloat16-avx2"
    assert place(out, Path("a/b.Q4_1.gguf"), "q8_0", None, None) == out / "b.Q4_1-q8_0"


# Lanes


def test_an_error_is_of_texts_and_not_of_their_number(bench):
    error = bench("spread").error
    assert error([1.0], [1.0]) is None
    assert error([2.0] * 10, [1.0] * 10) == 0
    few, many = ([1.0, 3.0] * n for n in (5, 500))
    assert 0.25 < error(few, [1.0] * 10) < 0.4 and error(many, [1.0] * 1000) < 0.05  # about 1 / sqrt(n)


def test_every_way_has_its_model_and_loads_once(bench):
    lanes = bench("lanes")
    models = lanes.Models(demo_model(), draft_weights="own")
    one, other = models.of(lanes.PLAIN), models.of(lanes.DEFAULT)
    three = models.of(lanes.INT3)
    assert one is not other and one.model is other.model and models.of(lanes.DEFAULT) is other
    assert three.model is not one.model and list(three.model.copies) == ["int3"]
    models.close()


def test_turns_follow_behind_the_end_of_an_answer(bench, monkeypatch):
    """The token that ended an answer is the later turn's; a turn of one token has no time."""
    lanes, texts = bench("lanes"), bench("texts")
    asked, answers = [], iter([([7, 2], "stop"), ([8], "stop"), ([9, 9], "length")])

    def write(lms, prompt, ways, tokens, **sampling):
        if tokens == 8:
            return []
        asked.append(list(prompt))
        tokens, finish = next(answers)
        return [SimpleNamespace(tokens=tokens, finish_reason=finish)] * len(ways)

    monkeypatch.setattr(lanes, "write", write)
    models = SimpleNamespace(of=lambda way: way, forget=lambda: None)
    text = texts.Text("some", ((1,), (2, 3), (2, 4)))
    (pairs,) = lanes.measure(models, [text], [lanes.DEFAULT], 30)
    assert asked == [[1], [1, 7, 2, 3], [1, 7, 2, 3, 2, 4]]
    assert [pair.plain.tokens for pair in pairs] == [[7, 2], [9, 9]]


def test_what_is_wanted_is_judged(bench):
    held = bench("published_model").held

    def row(stream, mode, way, speedup, same=True):
        return {
            "part": f"{stream}, {mode}",
            "stream": stream,
            "sampling": mode,
            "way": way,
            "speedup": speedup,
            "same": same,
        }

    rows = [
        row("all", "greedy", "default", 2.3),
        row("all", "T .7", "default", 1.7),
        row("qa", "greedy", "suffix", 0.96, False),
    ]
    greedy, hot, slowest, unequal = held(rows)
    assert greedy.endswith("reached") and hot.endswith("MISSED")
    assert slowest == "slowest: suffix, qa, greedy: 0.960 of 0.97 wanted: MISSED" and "in 1 of 3" in unequal
    rows += [row("all", "greedy", "one head", 2.9), row("all", "greedy", "another", 3.1)]
    _, best, *_ = held(rows, ["one head", "another"])
    assert best == "another, greedy: 3.10 of 3.0 wanted: reached"


# Quality


def test_programs_run_without_network_time_and_memory(bench):
    passes = bench("quality").passes
    try:
        assert passes("print('x')")
    except subprocess.SubprocessError:
        pytest.skip("no namespaces of networks here")
    assert not passes("assert 1 == 2")
    assert not passes("while True: pass", seconds=1)
    assert not passes("import time; time.sleep(60)", seconds=1)
    assert not passes("x = bytearray(1 << 31)")
    assert not passes("open('a', 'wb', 0).write(b'x')")
    assert not passes("import os; assert os.environ.get('HOME')")
    listening = __import__("socket").create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    assert not passes(f"import socket; socket.create_connection(('127.0.0.1', {port}), 1)")
    listening.close()


def test_what_a_program_starts_ends_with_it(bench, tmp_path):
    passes = bench("quality").passes
    try:
        passes("import os, time\nif os.fork() == 0:\n    time.sleep(47)")
    except subprocess.SubprocessError:
        pytest.skip("no namespaces of networks here")
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "time.sleep(47)" not in found


def test_an_answer_becomes_a_program(bench):
    program = bench("quality").program
    prompt, test = "import math\n\n\ndef f(x):\n    '''Doc.'''\n", "def check(g):\n    assert g(3) == 6"
    own = "def f(x):\n    return math.floor(2 * x)"
    for answer in (
        "    return math.floor(2 * x)\n\nprint(f(",  # a rest of the function, and what goes on behind it
        f"Here it is:\n```python\n{own}\n```\nIt doubles.",
        own,
    ):
        exec(program(prompt, answer, test, "f"), {})
    with pytest.raises(AssertionError):
        exec(program(prompt, "    return x", test, "f"), {})


def test_scores(bench):
    quality = bench("quality")
    assert quality.pass_at(1, [(10, 5), (10, 0)]) == 0.25
    assert quality.pass_at(10, [(10, 1), (10, 0)]) == 0.5 and quality.pass_at(2, [(4, 2)]) == pytest.approx(5 / 6)
    assert quality.last_number("It is $1,234.50, or 7.0.") == "7" and quality.last_number("none") is None
    assert quality.last_number("-3 and 1,000") == "1000" and quality.last_number("so -3") == "-3"
    assert quality.rouge_l("the cat sat", "The cat sat.") == 1 and quality.rouge_l("a b", "c d") == 0
    assert quality.rouge_l("a a", "a") == pytest.approx(2 / 3), "each word once"
    assert quality.rouge_l("a x b", "a b c d") == pytest.approx(2 * 2 / 7)
    assert quality.opening("Summarize: One. Two! Three? Four.") == "One. Two! Three?"


@pytest.mark.exhaustive
def test_every_study_takes_another_model(tmp_path, chatting):
    """Nothing of the bundled model is loaded beside it; the chat template is used, and said to be."""
    for name in ("published_model", "quality", "drafters", "modelled", "layerskip.sweep"):
        command = [sys.executable, "-m", f"bench.{name}", "--quick", "--model", str(chatting), "--out", str(tmp_path)]
        command += ["--streams", "gsm8k"] if name != "published_model" else ["--streams", "qa"]
        env = {**os.environ, "SWIFTK_DEVICE": "cpu"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=ROOT, env=env)
        assert done.returncode == 0, done.stderr
        found = json.loads((tmp_path / "chatting" / f"{name.replace('.', '/')}.json").read_text())
        assert "chat template" in found["settings"]["prompts"] and found["settings"]["model"] == "chatting"
        assert all(row.get("same", True) for row in found["rows"])


@pytest.mark.exhaustive
def test_windows_are_scored(bench, tmp_path):
    """Every search of the ablation scores candidates, and what is too short is an error."""
    offline, lanes = bench("paper.offline"), bench("lanes")
    study = SimpleNamespace(layers=16, eos=False, small=swiftk.load(demo_model(), draft_weights="own"), progress=print)
    study.results = SimpleNamespace(name="some")
    texts = bench("texts").Prompts(demo_model()).stream("gsm8k", 2)
    for window in bench("paper.ablation").WINDOWS.values():
        found = offline.swift_searched(study, texts, lanes.paper_swift(window=window, max_steps=3), 3)
        assert found.steps >= 3
    with pytest.raises(SystemExit, match="longer than its window"):
        offline.swift_searched(study, texts, lanes.paper_swift(window=offline.NEW), 3)


def test_even_sets_leave_out_as_many(bench):
    evenly = bench("paper.offline").evenly
    for count in (1, 7, 12, 28):
        skip = evenly(16, count)
        assert len(skip.attn) + len(skip.mlp) == count
        assert not {0, 15} & {*skip.attn, *skip.mlp}
    assert np.ptp(np.diff(sorted([2 * i for i in evenly(16, 7).attn] + [2 * i + 1 for i in evenly(16, 7).mlp]))) <= 1
