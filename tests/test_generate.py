"""generate() and load(): prompts, options, stops, streams, errors, reuse. What drafting may never change is compared."""
import json
import logging
import subprocess
import sys
import threading

import numpy as np
import pytest

import swiftk
from swiftk.errors import Cancelled, CheckpointError, InternalError, InvalidArgument

LAYERS = 4
N = 40


@pytest.fixture(scope="module")
def lm(tiny_dir):
    return swiftk.load(tiny_dir("llama3", layers=LAYERS), threads=2)


@pytest.fixture(scope="module")
def demo():
    return swiftk.load(swiftk.demo_model(), threads=2)


PROMPT = "Question: how many apples"
HARSH = {"speculate": "always", "gate": 0.0, "max_draft": 6}


def plain(lm, prompt=PROMPT, **options):
    return lm.generate(prompt, **{"max_new_tokens": N, "ignore_eos": True, **options, "speculate": False})


def drafted(lm, prompt=PROMPT, **options):
    return lm.generate(prompt, **{"max_new_tokens": N, "ignore_eos": True, **HARSH, **options})


SKIPS = ["auto", [1, 2], swiftk.SkipSet(attn=[0, 3], mlp=[1]), swiftk.SkipSet(exit_layer=1), swiftk.SkipSet(),
         swiftk.SkipSet(attn=range(LAYERS), mlp=range(LAYERS))]
SAMPLERS = [{"temperature": 0}, {"temperature": 0.8, "seed": 3}, {"temperature": 1.2, "top_p": 0.9, "top_k": 30, "seed": 4},
            {"temperature": 1.0, "min_p": 0.05, "repetition_penalty": 1.3, "seed": 5}, {"repetition_penalty": 1.2}]


@pytest.mark.parametrize("skip", SKIPS, ids=str)
@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_drafts_change_no_token(lm, skip, sampler):
    want, got = plain(lm, **sampler), drafted(lm, skip=skip, **sampler)
    assert got.tokens == want.tokens
    assert got.text == want.text
    assert got.stats.num_draft_tokens > 0
    assert want.stats.num_draft_tokens == 0


@pytest.mark.parametrize("gate", ["auto", "swift", 0.3, swiftk.DraftRule(max_draft=3, max_nodes=5, width=(1, 1, 1, 1))], ids=str)
@pytest.mark.parametrize("speculate", [True, "always"])
def test_gates_change_no_token(demo, gate, speculate):
    want = plain(demo, max_new_tokens=120)
    got = demo.generate(PROMPT, max_new_tokens=120, ignore_eos=True, gate=gate, speculate=speculate)
    assert got.tokens == want.tokens
    assert got.stats.num_accepted_draft_tokens > 0


def test_sampling_by_rejection_repeats_with_its_seed(lm):
    options = {"acceptance": "rejection", "temperature": 0.9, "seed": 11}
    first = drafted(lm, **options)
    assert drafted(lm, **options).tokens == first.tokens
    assert drafted(lm, **{**options, "seed": 12}).tokens != first.tokens


def test_logprobs_are_the_same_bits_with_drafts(lm):
    want, got = plain(lm, logprobs=3), drafted(lm, logprobs=3)
    assert got.logprobs == want.logprobs
    assert len(got.logprobs) == N
    for one in got.logprobs:
        assert len(one.top) == 3
        assert one.top[0] == (one.token, one.logprob)  # greedy: the likeliest
        assert [p for _, p in one.top] == sorted((p for _, p in one.top), reverse=True)
    assert plain(lm).logprobs is None
    assert [t.top for t in plain(lm, logprobs=0, max_new_tokens=2).logprobs] == [(), ()]


@pytest.mark.parametrize("n", range(1, 14))
def test_max_new_tokens_is_exact(lm, n):
    got = drafted(lm, max_new_tokens=n)
    assert got.tokens == plain(lm).tokens[:n]
    assert got.finish_reason == "length"


@pytest.mark.parametrize("at", range(0, 12))
@pytest.mark.parametrize("speculate", ["always", False])
def test_stop_id_is_exact(lm, at, speculate):
    tokens = plain(lm).tokens
    got = drafted(lm, stop_token_ids=[tokens[at]], speculate=speculate)
    end = tokens.index(tokens[at])
    assert got.tokens == tokens[:end + 1]
    assert got.finish_reason == "stop"
    assert got.text == plain(lm, max_new_tokens=end).text if end else got.text == ""
    assert got.stats.generated_tokens == end + 1


@pytest.mark.parametrize("at", [1, 4, 9, 15])
@pytest.mark.parametrize("length", [1, 3])
def test_stop_string_is_exact(demo, at, length):
    full = plain(demo)
    stop = full.text[at:at + length]
    got = drafted(demo, stop=["never this", stop])
    assert got.text == full.text[:full.text.index(stop)]
    assert got.finish_reason == "stop"
    assert got.tokens == full.tokens[:len(got.tokens)]
    assert stop not in demo.decode(got.tokens[:-1])
    assert stop in demo.decode(got.tokens)


def test_eos_ends_the_text_and_is_among_the_tokens(lm, tmp_path, tiny_dir):
    tokens = plain(lm).tokens
    eos = next(t for t in tokens[5:] if tokens.index(t) >= 5)
    folder = tmp_path / "eos"
    folder.mkdir()
    for file in tiny_dir("llama3", layers=LAYERS).iterdir():
        (folder / file.name).symlink_to(file)
    (folder / "generation_config.json").unlink()
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [300, eos]}))
    other = swiftk.load(folder, threads=2)
    got = other.generate(PROMPT, **HARSH)
    assert got.tokens == tokens[:tokens.index(eos) + 1]
    assert got.finish_reason == "stop"
    assert other.generate(PROMPT, max_new_tokens=N, ignore_eos=True, **HARSH).tokens == tokens


def test_without_a_limit_the_context_is_the_limit(tiny_dir):
    lm = swiftk.load(tiny_dir("llama3", layers=LAYERS), context=30, threads=2)
    want = lm.generate([5, 6, 7, 8], ignore_eos=True, speculate=False)
    assert len(want.tokens) == 26
    assert want.finish_reason == "length"
    assert lm.generate([5, 6, 7, 8], ignore_eos=True, **HARSH).tokens == want.tokens
    assert len(lm.generate(list(range(3, 32)), ignore_eos=True).tokens) == 1


def test_defaults_come_from_generation_config(tmp_path, tiny_dir):
    for file in tiny_dir("llama3", layers=LAYERS).iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "generation_config.json").unlink()
    (tmp_path / "generation_config.json").write_text(json.dumps({"do_sample": True, "temperature": 0.7, "max_new_tokens": 7}))
    lm = swiftk.load(tmp_path, threads=2)
    assert len(lm.generate(PROMPT, seed=5).tokens) <= 7
    sampled = lm.generate(PROMPT, seed=5, max_new_tokens=30)
    assert sampled.tokens == lm.generate(PROMPT, seed=5, temperature=0.7, max_new_tokens=30).tokens
    assert sampled.tokens != lm.generate(PROMPT, temperature=0, max_new_tokens=30).tokens


def test_seeds(lm):
    sampled = {"temperature": 1.0}
    first = drafted(lm, **sampled)
    assert drafted(lm, seed=first.seed, **sampled).tokens == first.tokens
    assert plain(lm, seed=first.seed, **sampled).tokens == first.tokens
    assert len({drafted(lm, max_new_tokens=2, **sampled).seed for _ in range(4)}) == 4
    assert plain(lm, seed=2**64 - 1, **sampled).seed == 2**64 - 1


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_change_no_token(tiny_dir, lm, threads):
    other = swiftk.load(tiny_dir("llama3", layers=LAYERS), threads=threads)
    options = {"temperature": 0.9, "seed": 8}
    assert drafted(other, **options).tokens == plain(lm, **options).tokens


def test_prompt_forms_agree(lm):
    ids = lm.encode(PROMPT)
    want = plain(lm, ids).tokens
    for prompt in (PROMPT, np.array(ids, np.int64), np.array([ids], np.int32), tuple(ids)):
        assert plain(lm, prompt).tokens == want
    messages = [{"role": "user", "content": "hi"}]
    chat = plain(lm, messages)
    assert chat.prompt_tokens == lm.tokenizer.encode("[user] hi\n[assistant]", special=False)


@pytest.mark.parametrize("prompt", ["", [], [-1], [320], [1.5], list(range(3, 320)) * 3, None, ["a", "b"], [{"role": "user"}]])
def test_bad_prompts_leave_the_model_usable(lm, prompt):
    with pytest.raises(InvalidArgument):
        lm.generate(prompt)
    assert len(plain(lm, max_new_tokens=3).tokens) == 3


@pytest.mark.parametrize("options, error", [
    ({"max_tokenz": 3}, TypeError), ({"stop_token_ids": [320]}, ValueError), ({"skip": [LAYERS]}, ValueError),
    ({"skip": "/no/such/card.json"}, ValueError), ({"assistant_early_exit": 9}, ValueError), ({"optimizer": "x"}, ValueError)])
def test_bad_options_leave_the_model_usable(lm, options, error):
    with pytest.raises(error):
        lm.generate(PROMPT, **options)
    with pytest.raises(error):
        lm.generate(PROMPT, stream=True, **options)  # at the call, not at the first event
    assert len(plain(lm, max_new_tokens=3).tokens) == 3


def test_stream_is_the_result_in_pieces(demo):
    want = plain(demo)
    with demo.generate(PROMPT, stream=True, max_new_tokens=N, ignore_eos=True, logprobs=1, **HARSH) as stream:
        with pytest.raises(ValueError, match="not finished"):
            stream.result  # noqa: B018
        events = list(stream)
    assert "".join(e.text for e in events) == want.text == stream.result.text
    assert [e.token for e in events] == want.tokens
    assert [e.drafted for e in events] == stream.result.drafted
    assert sum(e.drafted for e in events) == stream.result.stats.num_accepted_draft_tokens > 0
    assert all(e.logprob <= 0 and len(e.top) == 1 for e in events)


@pytest.mark.parametrize("taken", [0, 1, 2, 5, 9])
def test_an_abandoned_stream_frees_the_model(lm, taken):
    want = plain(lm).tokens
    stream = lm.generate(PROMPT, stream=True, max_new_tokens=N, ignore_eos=True, **HARSH)
    got = [next(stream).token for _ in range(taken)]
    stream.close()
    assert got == want[:taken]
    for _ in zip(range(3), lm.generate(PROMPT, stream=True, max_new_tokens=N)):
        pass
    assert drafted(lm).tokens == want


def test_a_second_call_under_an_open_stream_is_a_clear_error(lm):
    stream = lm.generate(PROMPT, stream=True, max_new_tokens=N, ignore_eos=True)
    next(stream)
    with pytest.raises(InvalidArgument, match="still streaming"):
        lm.generate(PROMPT)
    assert len(list(stream)) == N - 1


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


def test_interrupt_and_cancel_leave_the_model_usable(lm, monkeypatch):
    want = plain(lm).tokens
    session, calls = lm.session, []

    class Interrupted:
        def __getattr__(self, name):
            return getattr(session, name)

        def verify(self):
            calls.append(1)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return session.verify()

    monkeypatch.setattr(lm, "session", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        drafted(lm)
    monkeypatch.setattr(lm, "session", session)
    assert drafted(lm).tokens == want
    stream = lm.generate(PROMPT, stream=True, max_new_tokens=N, ignore_eos=True)
    next(stream)
    lm.cancel()
    with pytest.raises(Cancelled):
        list(stream)
    assert drafted(lm).tokens == want


def test_prefix_is_taken_over(lm):
    first = plain(lm, [5, 6, 7, 8, 9], max_new_tokens=6)
    again = plain(lm, [5, 6, 7, 8, 9, *first.tokens[:4], 33], max_new_tokens=6)
    assert again.stats.cached_prompt_tokens == 9
    fresh = swiftk.load(lm.folder, threads=2)
    assert plain(fresh, [5, 6, 7, 8, 9, *first.tokens[:4], 33], max_new_tokens=6).tokens == again.tokens


def test_verify_compares(lm, monkeypatch):
    assert drafted(lm, verify=True).tokens == plain(lm).tokens
    once = type(lm)._once

    def lies(self, ids, o, skip):
        result = yield from once(self, ids, o, skip)
        if o.speculate:
            result.tokens[3] += 1
        return result

    monkeypatch.setattr(type(lm), "_once", lies)
    with pytest.raises(InternalError, match="token 3"):
        drafted(lm, verify=True)


def test_statistics_add_up(demo):
    s = drafted(demo, max_new_tokens=60).stats
    assert s.generated_tokens == 60
    assert s.num_accepted_draft_tokens <= s.num_draft_tokens <= s.num_tree_tokens
    assert s.mean_acceptance_length == pytest.approx(1 + s.num_accepted_draft_tokens / s.num_spec_steps)
    assert sum(s.acceptance_histogram) == s.num_spec_steps
    assert sum(i * n for i, n in enumerate(s.acceptance_histogram)) == s.num_accepted_draft_tokens
    assert s.draft_seconds + s.verify_seconds + s.prefill_seconds <= s.total_seconds * 1.001
    assert s.tokens_per_second > 0
    assert json.dumps(s.to_dict())


def test_speed_up_is_known_once_plain_steps_were_timed(demo):
    s = demo.generate(PROMPT, max_new_tokens=100, ignore_eos=True).stats
    assert s.plain_tokens_per_second > 0
    assert s.speedup_vs_plain > 0
    assert (s.expected_speedup > 0) == (s.num_spec_steps > 0)
    assert plain(demo).stats.speedup_vs_plain == 1.0


@pytest.mark.parametrize("options, reason", [({"speculate": False}, "speculate=False"), ({"skip": None}, "nothing is skipped")])
def test_reason_off(lm, options, reason):
    s = lm.generate(PROMPT, max_new_tokens=4, ignore_eos=True, **options).stats
    assert reason in s.reason_off
    assert (s.speculation, s.num_draft_tokens) == ("off", 0)


def test_a_useless_draft_is_switched_off_with_a_reason(demo):
    everything = swiftk.SkipSet.layers(range(16))
    s = demo.generate(PROMPT, max_new_tokens=300, ignore_eos=True, skip=everything, gate=0.0, temperature=1.5, seed=1).stats
    assert s.num_spec_steps < 100
    assert "draft step costs" in s.reason_off
    assert "break-even" in s.reason_off


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


@pytest.mark.parametrize("arguments, error", [({"device": "cuda"}, InvalidArgument), ({"dtype": "int4"}, InvalidArgument),
                                              ({"isa": "avx9000"}, InvalidArgument), ({"context": 1 << 20}, InvalidArgument)])
def test_bad_load_arguments(tiny_dir, arguments, error):
    with pytest.raises(error):
        swiftk.load(tiny_dir("llama3", layers=LAYERS), **arguments)


def test_bad_folders(tmp_path, tiny_dir):
    with pytest.raises(CheckpointError, match="not a directory"):
        swiftk.load(tmp_path / "none")
    with pytest.raises(CheckpointError, match="config.json"):
        swiftk.load(tmp_path)


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


def test_import_is_quick_and_light():
    code = ("import sys, time; t = time.perf_counter(); import swiftk; s = time.perf_counter() - t; "
            "assert not {'torch', 'transformers', 'tokenizers', 'numpy', 'rich'} & set(sys.modules), sys.modules.keys(); print(s)")
    best = min(float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)
               for _ in range(3))
    assert best < 0.5


def test_generating_imports_neither_torch_nor_transformers(tiny_dir):
    code = (f"import sys, swiftk; swiftk.generate({str(tiny_dir('llama3', layers=LAYERS))!r}, 'a', max_new_tokens=2); "
            "assert not {'torch', 'transformers'} & set(sys.modules)")
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert out.stdout == out.stderr == ""
