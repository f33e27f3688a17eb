"""Texts from any thread and in forked processes: submitted, read, cancelled, left alone."""

import os
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import swiftk
from swiftk.errors import InvalidArgument

N = 24
PROMPT = [5, 6, 7, 8]
DRAFTED = {"skip": [1], "gate": 0.0, "optimizer": None, "speculate": "always"}  # by the loop in Python
WAYS = [{}, {"speculate": False}, DRAFTED]


@pytest.fixture(scope="module")
def lm(tiny_dir):
    return swiftk.load(tiny_dir("llama3", layers=4), threads=2, context=256, max_sequences=4)


@pytest.fixture(scope="module")
def alone(lm):
    """alone(prompt, **options): the tokens of plain decoding."""

    def tokens(prompt, **options):
        return lm.generate(prompt, **{"max_new_tokens": N, "ignore_eos": True, **options, "speculate": False}).tokens

    return tokens


def options(**more):
    return {"max_new_tokens": N, "ignore_eos": True, **more}


@pytest.mark.parametrize("way", WAYS, ids=["planned", "plain", "directed"])
def test_a_pool_of_three_threads_serves_ten_clients(lm, alone, way):
    """Clients' streams are read in turns of a few events, by whichever thread is free."""
    prompts = [[5 + i, 6, 7] for i in range(10)]
    want = [alone(p, temperature=1.0, seed=i) for i, p in enumerate(prompts)]
    with ThreadPoolExecutor(3) as pool:
        opened = list(pool.map(lambda i: lm.submit(prompts[i], **options(temperature=1.0, seed=i, **way)), range(10)))
        got = [[] for _ in prompts]

        def some(i):
            for _, event in zip(range(3), opened[i]):
                got[i].append(event.token)
            return len(got[i]) == N

        left = list(range(10))
        while left:
            done = list(pool.map(some, left))
            left = [i for i, ended in zip(left, done, strict=True) if not ended]
    assert got == want


@pytest.mark.parametrize("way", WAYS, ids=["planned", "plain", "directed"])
def test_an_error_in_a_loop_over_a_stream_holds_nobody_up(lm, alone, way):
    kept = []
    try:
        for event in lm.submit(PROMPT, **options(**way)):
            raise KeyError(event.token)
    except KeyError as error:
        kept.append(error)  # and with it the frame, and the stream in it
    assert "test_an_error" in "".join(traceback.format_exception(kept[0]))
    assert lm.generate(PROMPT, **options(**way)).tokens == alone(PROMPT)


@pytest.mark.parametrize("way", WAYS, ids=["planned", "plain", "directed"])
def test_many_streams_in_one_thread(lm, alone, way):
    streams = [lm.submit([7, i], **options(**way)) for i in range(6)]
    got = [[] for _ in streams]
    while any(len(one) < N for one in got):
        for tokens, stream in zip(got, streams, strict=True):
            tokens += [event.token for _, event in zip(range(2), stream)]
    assert got == [alone([7, i]) for i in range(6)]


@pytest.mark.parametrize("way", WAYS, ids=["planned", "plain", "directed"])
def test_a_cancelled_text_keeps_what_came(lm, alone, way):
    stream = lm.submit(PROMPT, **options(max_new_tokens=200, **way))
    first = next(stream)
    canceller = threading.Thread(target=stream.cancel)
    canceller.start()
    canceller.join()
    result = stream.wait()
    assert result.finish_reason == "cancelled"
    assert [first.token, *result.tokens[1:]] == alone(PROMPT, max_new_tokens=200)[: len(result.tokens)]
    assert len(result.tokens) < 200
    assert lm.generate(PROMPT, **options(**way)).tokens == alone(PROMPT)


def test_one_text_is_cancelled_and_others_go_on(lm, alone):
    streams = [lm.submit([9, i], **options()) for i in range(3)]
    next(streams[1])
    streams[1].cancel()
    results = [stream.wait() for stream in streams]
    assert [r.finish_reason for r in results] == ["length", "cancelled", "length"]
    assert [results[i].tokens for i in (0, 2)] == [alone([9, i]) for i in (0, 2)]


def test_cancelling_all_from_another_thread(lm):
    started, found = threading.Event(), []

    def work():
        stream = lm.submit(PROMPT, **options(max_new_tokens=240))
        for _ in stream:
            started.set()
        found.append(stream.result.finish_reason)

    worker = threading.Thread(target=work)
    worker.start()
    started.wait()
    lm.cancel()
    worker.join()
    assert found[0] in ("cancelled", "length")


@pytest.mark.parametrize("way", WAYS, ids=["planned", "plain", "directed"])
@pytest.mark.parametrize("read", [0, 1, 5])
def test_a_closed_stream_has_its_result(lm, alone, way, read):
    stream = lm.submit(PROMPT, **options(**way))
    got = [event.token for _, event in zip(range(read), stream)]
    stream.close()
    stream.close()
    assert list(stream) == []
    result = stream.result
    assert result.finish_reason == "cancelled"
    assert result.tokens[:read] == got
    assert result.tokens == alone(PROMPT)[: len(result.tokens)]


def test_dropped_streams_leave_the_engine_idle(lm):
    for _ in range(30):
        stream = lm.submit(PROMPT, **options())
        next(stream)
        del stream
    lm.generate(PROMPT, **options(max_new_tokens=2))
    assert not lm._engine._boxes
    while not lm._engine.native.idle():
        lm._engine.native.step({})


def test_generate_many_is_each_alone(lm, alone):
    prompts = [[5], [5, 6, 7] * 20, [8] * 90, [5, 6, 7] * 20, [1, 2]] * 2
    each = [{"seed": i, "temperature": 0.0 if i % 3 else 1.0, "max_new_tokens": 1 + 4 * i} for i in range(10)]
    each[4] |= DRAFTED
    results = lm.generate_many(prompts, each=each, ignore_eos=True)
    for prompt, its, result in zip(prompts, each, results, strict=True):
        assert result.tokens == alone(prompt, **{k: its[k] for k in ("seed", "temperature", "max_new_tokens")})
        assert result.stats.generated_tokens == its["max_new_tokens"]
    assert lm.generate_many([]) == []


def test_a_bad_prompt_among_many_starts_none(lm):
    before = dict(lm._engine._boxes)
    with pytest.raises(InvalidArgument, match="token 1 is -1"):
        lm.generate_many([[5], [5, -1]], **options())
    assert lm._engine._boxes == before
    with pytest.raises(InvalidArgument, match="want 2 mappings of options, one a prompt"):
        lm.generate_many([[5], [6]], each=[{}])


def test_n_texts_differ_by_their_seeds(lm, alone):
    prompt = list(range(3, 150))
    results = lm.generate(prompt, n=4, **options(temperature=1.0, seed=11))
    assert [r.seed for r in results] == [11, 12, 13, 14]
    assert [r.tokens for r in results] == [alone(prompt, temperature=1.0, seed=11 + i) for i in range(4)]
    assert len(lm.generate(prompt, n=2, stream=True, **options())) == 2
    for n in (0, -1, 1.5, True):
        with pytest.raises(InvalidArgument, match="want a number of texts, 1 or more"):
            lm.generate(prompt, n=n)


def test_stop_strings_end_one_of_many():
    lm = swiftk.load(swiftk.demo_model(), threads=2)
    whole = lm.generate("The sea is", **options(max_new_tokens=40))
    stop = whole.text[20:26]
    results = lm.generate_many(["The sea is"] * 3, each=[{}, {"stop": [stop]}, {}], **options(max_new_tokens=40))
    assert [r.text for r in results] == [whole.text, whole.text[: whole.text.index(stop)], whole.text]
    assert [r.finish_reason for r in results] == ["length", "stop", "length"]


def test_a_closed_model_says_so(tiny_dir):
    with swiftk.load(tiny_dir("llama3", layers=4), threads=2, context=128) as lm:
        assert "llama3" in repr(lm) or lm.folder.name in repr(lm)
        stream = lm.submit(PROMPT, **options())
        next(stream)
    assert "closed" in repr(lm)
    assert stream.wait().finish_reason in ("cancelled", "length")
    with pytest.raises(InvalidArgument, match="is closed; load it again"):
        lm.generate(PROMPT)
    lm.close()


def in_child(work):
    """What work() returns in a forked process."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = repr(work())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    return answer


@pytest.mark.parametrize("way", WAYS, ids=["planned", "plain", "directed"])
def test_a_forked_process_generates(lm, alone, way):
    """As a server does that loads its model once and forks: before a text, and while one is under way."""
    want = alone(PROMPT)
    asked = options(**way)
    assert in_child(lambda: lm.generate(PROMPT, **asked).tokens) == repr(want)
    stream = lm.submit(PROMPT, **asked)
    got = [next(stream).token]
    assert in_child(lambda: lm.generate(PROMPT, **asked).tokens) == repr(want)
    assert in_child(lambda: lm.generate_many([PROMPT] * 3, **asked)[2].tokens) == repr(want)
    assert [*got, *(event.token for event in stream)] == want


def test_a_stream_does_not_go_along_to_a_forked_process(lm):
    stream = lm.submit(PROMPT, **options())
    next(stream)
    stream._ready.clear()
    assert in_child(lambda: next(stream)).startswith("InvalidArgument: [stream] this text is under way in process")
    stream.close()


def test_a_fork_while_other_threads_step(lm, alone):
    want = alone(PROMPT)
    stop = threading.Event()

    def load():
        while not stop.is_set():
            lm.generate(np.int32([9, 9]), **options(max_new_tokens=100))

    others = [threading.Thread(target=load) for _ in range(2)]
    for one in others:
        one.start()
    try:
        for _ in range(3):
            assert in_child(lambda: lm.generate(PROMPT, **options()).tokens) == repr(want)
    finally:
        stop.set()
        for one in others:
            one.join()
    assert lm.generate(PROMPT, **options()).tokens == want
