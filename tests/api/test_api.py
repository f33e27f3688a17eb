"""load() and generate() at the edges: prompts, errors, streams, threads, reuse, statistics, logging, imports."""

import inspect
import itertools
import json
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Sequence

import numpy as np
import pytest

import streamed
import swiftk
from debug_words import ask
from generating import HARSH, LAYERS, PROMPT, N, drafted, plain
from swiftk.errors import Cancelled, CheckpointError, DeviceError, InternalError, InvalidArgument, InvalidOption
from swiftk.running.engine import Ticket
from swiftk.testing import make_tiny


@pytest.fixture(scope="module")
def lm(tiny_dir):
    return swiftk.load(tiny_dir("llama3", layers=LAYERS), threads=2)


@pytest.fixture(scope="module")
def demo():
    return swiftk.load(swiftk.demo_model(), threads=2)


def test_prompt_forms_agree(lm):
    ids = lm.encode(PROMPT)
    want = plain(lm, ids).tokens
    for prompt in (PROMPT, np.array(ids, np.int64), np.array([ids], np.int32), tuple(ids)):
        assert plain(lm, prompt).tokens == want
    messages = [{"role": "user", "content": "hi"}]
    chat = plain(lm, messages)
    assert chat.prompt_tokens == lm.tokenizer.encode("[user] hi\n[assistant]", special=False)


@pytest.mark.parametrize(
    "prompt", ["\ud800", b"a", [], [-1], [320], [1.5], list(range(3, 320)) * 3, None, ["a", "b"], [{"role": "user"}]]
)
def test_bad_prompts_leave_the_model_usable(lm, prompt):
    with pytest.raises(InvalidArgument):
        lm.generate(prompt)
    assert len(plain(lm, max_new_tokens=3).tokens) == 3


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_tokenz": 3}, TypeError),
        ({"stop_token_ids": [320]}, ValueError),
        ({"skip": [LAYERS]}, ValueError),
        ({"skip": "/no/such/card.json"}, ValueError),
        ({"assistant_early_exit": 9}, ValueError),
        ({"optimizer": "x"}, ValueError),
    ],
)
def test_bad_options_leave_the_model_usable(lm, options, error):
    with pytest.raises(error):
        lm.generate(PROMPT, **options)
    with pytest.raises(error):
        lm.generate(PROMPT, stream=True, **options)  # at the call, not at the first event
    assert len(plain(lm, max_new_tokens=3).tokens) == 3


def test_an_empty_text_begins_at_the_bos(lm):
    assert lm.generate("", max_new_tokens=3).prompt_tokens == [1]


def test_special_tokens_of_a_text_are_parsed_when_asked(lm):
    assert lm.generate("a</s>", max_new_tokens=1).prompt_tokens == lm.encode("a</s>")
    assert lm.generate("a</s>", max_new_tokens=1, parse_special=True).prompt_tokens[-1] == 2


@pytest.mark.parametrize("ids", [[320], [-1], [1.5], 5, "ab", None])
def test_decode_takes_ids_of_the_vocabulary(lm, ids):
    with pytest.raises(InvalidArgument, match=r"\[decode\]"):
        lm.decode(ids)
    assert lm.decode([]) == ""


@pytest.mark.parametrize(
    ("arguments", "each"), [(("one",), None), ((5,), None), ((["one"],), [5]), ((["one"],), [{}, {}])]
)
def test_generate_many_names_what_it_wants(lm, arguments, each):
    with pytest.raises(InvalidArgument, match=r"\[generate_many\] .* want "):
        lm.generate_many(*arguments, each=each)


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (swiftk.load, {"threads": int | None, "draft_weights": str | Sequence[str]}),
        (swiftk.generate, {"threads": int | None, "temperature": float | None, "n": int}),
        (swiftk.LM.generate, {"temperature": float | None, "stop": str | Sequence[str], "stream": bool}),
        (swiftk.LM.submit, {"max_new_tokens": int | None}),
        (swiftk.LM.generate_many, {"seed": int | None}),
    ],
)
def test_signatures_show_options(function, names):
    shown = inspect.signature(function).parameters
    assert {name: shown[name].annotation for name in names} == names
    assert not [p for p in shown.values() if p.kind is p.VAR_KEYWORD]


def test_stream_is_the_result_in_pieces(demo):
    want = plain(demo)
    with demo.generate(PROMPT, stream=True, max_new_tokens=N, ignore_eos=True, logprobs=1, **HARSH) as stream:
        with pytest.raises(ValueError, match="not finished"):
            stream.result  # noqa: B018
        events = list(stream)
    assert "".join(e.text for e in events) == want.text == stream.result.text
    assert [e.token for e in events] == want.tokens
    assert [e.drafted for e in events] == stream.result.drafted
    assert sum(e.drafted for e in events) == sum(stream.result.stats.accepted_by.values()) > 0
    assert all(e.logprob <= 0 and len(e.top) == 1 for e in events)


@pytest.mark.parametrize("taken", [0, 1, 2, 5, 9])
def test_an_abandoned_stream_frees_the_model(lm, taken):
    want = plain(lm).tokens
    stream = lm.generate(PROMPT, stream=True, max_new_tokens=N, ignore_eos=True, **HARSH)
    got = [next(stream).token for _ in range(taken)]
    stream.close()
    assert got == want[:taken]
    for _ in zip(range(3), lm.generate(PROMPT, stream=True, max_new_tokens=N), strict=False):
        pass
    assert drafted(lm).tokens == want


def test_threads_take_turns(lm):
    want = {i: plain(lm, [5 + i, 6, 7]).tokens for i in range(4)}
    got = {}

    def work(i):
        got[i] = drafted(lm, [5 + i, 6, 7]).tokens

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert got == want


def test_an_interrupt_leaves_the_model_usable(lm, monkeypatch):
    want, calls = plain(lm).tokens, []
    receive = Ticket.receive

    def interrupted(self):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return receive(self)

    monkeypatch.setattr(Ticket, "receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        drafted(lm)
    assert drafted(lm).tokens == want


def test_prefix_is_taken_over(lm):
    first = plain(lm, [5, 6, 7, 8, 9], max_new_tokens=6)
    again = plain(lm, [5, 6, 7, 8, 9, *first.tokens[:4], 33], max_new_tokens=6)
    assert again.stats.cached_prompt_tokens == 9
    fresh = swiftk.load(lm.folder, threads=2)
    assert plain(fresh, [5, 6, 7, 8, 9, *first.tokens[:4], 33], max_new_tokens=6).tokens == again.tokens


def test_verify_compares(lm, monkeypatch):
    assert drafted(lm, verify=True).tokens == plain(lm).tokens
    stream = type(lm)._stream

    def lies(self, ids, o, *rest, **how):
        found = stream(self, ids, o, *rest, **how)
        if o.draft is None:
            result = found.wait()
            result.tokens[3] += 1
        return found

    monkeypatch.setattr(type(lm), "_stream", lies)
    with pytest.raises(InternalError, match="token 3"):
        drafted(lm, verify=True)


def test_statistics_add_up(demo):
    s = drafted(demo, max_new_tokens=60).stats
    assert s.generated_tokens == 60
    assert s.num_accepted_draft_tokens <= s.num_draft_tokens <= s.num_tree_tokens
    whole = sum(s.acceptance_histogram)  # a last block that was cut left out
    assert s.num_spec_steps - 1 <= whole <= s.num_spec_steps
    accepted = sum(i * n for i, n in enumerate(s.acceptance_histogram))
    assert s.mean_acceptance_length == pytest.approx(1 + accepted / whole)
    assert accepted <= sum(s.accepted_by.values())
    assert s.draft_seconds + s.verify_seconds + s.prefill_seconds <= s.total_seconds * 1.001
    assert s.tokens_per_second > 0
    assert json.dumps(s.to_dict())


def test_speed_up_is_known_once_plain_steps_were_timed(demo):
    s = demo.generate(PROMPT, max_new_tokens=100, ignore_eos=True).stats
    assert s.plain_tokens_per_second > 0
    assert s.speedup_vs_plain > 0
    assert (s.forecast_speedup > 0) == (s.num_spec_steps > 0)
    assert plain(demo).stats.speedup_vs_plain == 1.0


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"speculate": False}, "speculate=False"), ({"skip": None, "drafter": "plan"}, "nothing is skipped")],
)
def test_reason_off(lm, options, reason):
    s = lm.generate(PROMPT, max_new_tokens=4, ignore_eos=True, **options).stats
    assert reason in s.reason_off
    assert (s.speculation, s.num_draft_tokens) == ("off", 0)


def test_a_useless_draft_is_switched_off_with_a_reason(monkeypatch):
    ask(monkeypatch, "clock=plan:.6/row:.03/far:.09")
    everything = swiftk.DraftSpec.layers(range(16))
    with swiftk.load(swiftk.demo_model(), threads=1) as lm:
        asked = {"skip": everything, "gate": 0.0, "temperature": 1.5, "seed": 1}
        s = lm.generate(PROMPT, max_new_tokens=300, ignore_eos=True, **asked).stats
    assert s.num_spec_steps < 20
    assert "draft step costs" in s.reason_off and "are accepted" in s.reason_off


def test_without_a_tokenizer(tiny_dir):
    lm = swiftk.load(tiny_dir("llama3", layers=LAYERS, tokenizer=False), threads=2)
    got = lm.generate([5, 6, 7], max_new_tokens=5, ignore_eos=True)
    assert (got.text, len(got.tokens)) == ("", 5)
    with pytest.raises(InvalidArgument, match="tokenizer"):
        lm.generate("text")
    with pytest.raises(InvalidArgument, match="tokenizer"):
        lm.generate([5], stop="x")


def test_module_level_generate(tiny_dir, lm):
    got = swiftk.generate(tiny_dir("llama3", layers=LAYERS), PROMPT, max_new_tokens=6, ignore_eos=True, threads=1)
    assert got.tokens == plain(lm, max_new_tokens=6).tokens
    with pytest.raises(TypeError, match="did you mean 'temperature'"):
        swiftk.generate("/no/such/dir", PROMPT, temperatur=1)
    both = swiftk.generate(tiny_dir("llama3", layers=LAYERS), PROMPT, n=2, max_new_tokens=2)
    assert len(both) == 2


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"device": "cuda:99"}, DeviceError),
        ({"dtype": "int5"}, InvalidArgument),
        ({"isa": "avx9000", "device": "cpu"}, InvalidArgument),
        ({"context": 1 << 20}, InvalidArgument),
        ({"thread": 1}, InvalidOption),
        ({"progress": 3}, InvalidOption),
    ],
)
def test_bad_load_arguments(tiny_dir, arguments, error):
    with pytest.raises(error):
        swiftk.load(tiny_dir("llama3", layers=LAYERS), **arguments)


def test_bad_folders(tmp_path, tiny_dir):
    with pytest.raises(CheckpointError, match="not a directory"):
        swiftk.load(tmp_path / "none")
    with pytest.raises(CheckpointError, match=r"config\.json"):
        swiftk.load(tmp_path)
    with pytest.raises(CheckpointError, match="`hf download org/name-1B --local-dir DIR` gets it from the Hub"):
        swiftk.load("org/name-1B")
    with pytest.raises(InvalidOption, match="model=5, want the path"):
        swiftk.load(5)


def test_load_reports_progress_and_can_be_cancelled(tiny_dir):
    seen = []
    swiftk.load(tiny_dir("llama3", layers=LAYERS), progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] > 0
    assert [d for d, _ in seen] == sorted(d for d, _ in seen)
    with pytest.raises(Cancelled):
        swiftk.load(tiny_dir("llama3", layers=LAYERS), progress=lambda done, total: False)


def test_load_logs_one_line(tiny_dir, caplog):
    with caplog.at_level(logging.INFO, "swiftk"):
        swiftk.load(tiny_dir("llama3", layers=LAYERS), threads=2)
    assert len(caplog.records) == 1
    assert "2 threads" in caplog.text


def test_the_log_tells_of_a_model_that_is_read_from_disk(tmp_path, caplog, monkeypatch):
    """A conversion, each part of the work under its name, and what stays in memory."""
    monkeypatch.setenv("SWIFTK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("swiftk.api._REPORT", -1.0)
    folder = make_tiny(tmp_path / "plain", "llama3", layers=5, **streamed.SIZES)
    with caplog.at_level(logging.INFO, "swiftk"):
        streamed.load(folder, draft_weights="int4").close()
    said = [record.getMessage() for record in caplog.records]
    assert [line for line in said if "it is converted once, to " in line and str(tmp_path / "cache") in line]
    work = [line.split(":")[0] for line in said if line.endswith("%")]
    assert [name for name, _ in itertools.groupby(work)] == ["converting plain", "loading plain"]
    memory = re.search(r"weights \d+ MB, of these \d+ MB in memory and (\d+) MB read from disk for each pass", said[-1])
    assert memory, said[-1]


def test_a_long_load_reports_the_log(tiny_dir, caplog, monkeypatch):
    monkeypatch.setattr("swiftk.api._REPORT", -1.0)
    with caplog.at_level(logging.INFO, "swiftk"):
        swiftk.load(tiny_dir("llama3", layers=LAYERS), threads=2)
    assert "copies in few bits included: 100 %" in caplog.records[-2].getMessage()


def test_an_import_is_light():
    code = "import sys; before = {*sys.modules}; import swiftk; print(*({*sys.modules} - before))"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    loaded = {name.partition(".")[0] for name in out.split()}
    assert loaded - sys.stdlib_module_names == {"swiftk"}
    assert {name for name in out.split() if name.startswith("swiftk.")} == set()


def test_generating_imports_neither_torch_nor_transformers(tiny_dir):
    code = (
        f"import sys, swiftk; swiftk.generate({str(tiny_dir('llama3', layers=LAYERS))!r}, 'a', max_new_tokens=2); "
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert out.stdout == out.stderr == ""
