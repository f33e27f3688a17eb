"""Layers with a sliding window keep what they may still see: texts have the bits of caches that keep all."""

import os
import re

import numpy as np
import pytest

from decode import TOUCHED, Rule, decode, open_session, requested
from heads import make_block, make_eagle, make_moa
from swiftk import _core
from swiftk.errors import InvalidArgument, OutOfMemory, UnsupportedModel

pytestmark = pytest.mark.skipif(os.environ.get("SWIFTK_DEVICE") != "cpu", reason="a GPU keeps all")
BLOCK, WINDOW, CONTEXT = 64, 48, 4096
ALL = 256  # texts that may run together: with so many an engine has no fewer panes than blocks, and keeps all
SAMPLINGS = {"greedy": {}, "sampled": {"temperature": 0.9, "top_k": 40, "seed": 3}, "touched": {**TOUCHED, "seed": 4}}
RULES = {
    "plain": None,
    "skips": Rule(((1,), (2,), -1), 0.0, 12),
    "exit": Rule(((), (), 4), 0.3, 20),
    "window": Rule(((), (), -1, ["int4"], False, 1), 0.0, 8),
    "heavy": Rule(((), (), -1, ["int4"], False, 20, 2), 0.0, 8),
}
IDENTITY = b"i" * _core.SavedBlock.IDENTITY
RULED = _core.TreeRule(confidence=0.0, max_draft=5, width=(2, 2, 2, 2))
DRAFTED = {"drafting": "ruled", "rule": RULED, "plans": "fixed", "always": True, "skips": [((1, 2), (2,))]}


def tokens_of(seed, n):
    return np.random.default_rng(seed).integers(3, 320, n).astype(np.int32)


@pytest.fixture(scope="module")
def load(tiny_dir):
    """load(options of a load): of six layers the third and the sixth see all of a text."""
    folder = tiny_dir("gemma3", layers=6, vocab_size=320, sliding_window=WINDOW, max_position_embeddings=8192)
    return lambda **options: _core.Model(str(folder), threads=1, draft_weights="int4", **options)


@pytest.fixture(scope="module")
def model(load):
    return load()


@pytest.fixture(scope="module")
def slides(tiny_dir):
    """All layers have a window."""
    folder = tiny_dir("mistral", layers=3, vocab_size=320, sliding_window=100, max_position_embeddings=8192)
    return _core.Model(str(folder), threads=1, draft_weights="int4")


def layer_bytes(model, layers):
    """Of a block in so many layers."""
    kv = _core.Engine(model, context=BLOCK, sequences=1).kv
    return kv["bytes"] // kv["blocks"] // model.config["num_layers"] * layers


def rows_of(model, text):
    """Logits of all rows of a text, by a cache that keeps all."""
    return _core.Taps(model, [], len(text)).read([int(t) for t in text])[1]


class Busy:
    """An engine in which a short text goes on: it is never idle, and gives no memory back."""

    def __init__(self, model, **options):
        self.boxes = {}
        self.engine = _core.Engine(model, context=CONTEXT, poison=True, **options)
        self.engine.submit(self.boxes, _core.Request(prompt=tokens_of(99, 5), max_new_tokens=4000, drafting="off"))

    def run(self, requests):
        """([(token, its log-probability)], leading tokens that were cached) of each text. requests: (prompt, new,
        options)."""
        ids = [
            self.engine.submit(self.boxes, _core.Request(prompt=prompt, max_new_tokens=new, **requested(options)))
            for prompt, new, options in requests
        ]
        while not all(self.boxes[id] and self.boxes[id][-1].finish for id in ids):
            self.engine.step(self.boxes)
        return [
            (
                [(e.token, e.logprob) for turn in self.boxes[id] for e in turn.tokens],
                next(turn.cached for turn in self.boxes[id] if turn.tokens),
            )
            for id in ids
        ]

    def files(self, tokens):
        """Of each of their blocks."""
        ends = range(BLOCK, len(tokens) + 1, BLOCK)
        return [self.engine.save_block(tokens[:end], False, IDENTITY) for end in ends]

    def load(self, files, tokens):
        ends = range(BLOCK, len(tokens) + 1, BLOCK)
        blocks = [
            self.engine.read_block(file, tokens[:end], False, IDENTITY) for file, end in zip(files, ends, strict=True)
        ]
        return self.engine.load_blocks(blocks)


def both(model, requests, **options):
    """What an engine that keeps windows makes of each text, which is what one makes of it that keeps all."""
    busy, whole = Busy(model, **options), Busy(model, sequences=ALL)
    found = busy.run(requests)
    assert [text for text, _ in found] == [whole.run([one])[0][0] for one in requests]
    return busy.engine, found


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_rows_have_the_bits_of_a_cache_that_keeps_all(model, rule, sampling):
    prompt = tokens_of(1, 2300)
    session = open_session(model, sampling=sampling, context=CONTEXT)
    made = decode(session, prompt, 150, rule, keep_logits=True)
    want = rows_of(model, [*prompt, *made.tokens[:-1]])[len(prompt) - 1 :]
    assert np.array(made.logits[: len(want)]).tobytes() == want.tobytes()
    assert rule is None or made.rounds < 150, "nothing was accepted"
    whole = decode(open_session(model, sampling=sampling, context=400), prompt[:200], 40, rule)
    assert whole.tokens == decode(open_session(model, sampling=sampling, context=CONTEXT), prompt[:200], 40).tokens


@pytest.mark.parametrize("kv_dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("drafted", [{"drafting": "off"}, DRAFTED], ids=["plain", "drafted"])
def test_texts_of_an_engine_stay_the_same(load, kv_dtype, drafted):
    requests = [(tokens_of(seed, 900 * seed), 90, {**drafted, "seed": seed}) for seed in (4, 1, 2, 3)]
    requests += [(tokens_of(9, 3700), 60, {**drafted, "temperature": 0.8, "seed": 5, "logprobs": 2})]
    both(load(kv_dtype=kv_dtype), requests, sequences=2)


def test_a_model_whose_layers_all_slide(slides):
    requests = [(tokens_of(seed, 1700 * seed), 70, {**DRAFTED, "seed": seed}) for seed in (1, 2)]
    engine, _ = both(slides, requests, sequences=2)
    assert engine.kv_bytes <= 50 * layer_bytes(slides, 3)
    prompt = tokens_of(3, 1500)
    made = decode(open_session(slides, context=CONTEXT), prompt, 80, RULES["skips"], keep_logits=True)
    want = rows_of(slides, [*prompt, *made.tokens[:-1]])[len(prompt) - 1 :]
    assert np.array(made.logits[: len(want)]).tobytes() == want.tobytes()


@pytest.mark.parametrize("heavy", [0, 2])
def test_drafts_see_as_much_as_layers_with_windows(slides, heavy):
    """However small the draft's own window is: it drafts what the model makes of the text."""
    rule = Rule(((), (), -1, [], False, 1, heavy), 0.0, 9)
    made = decode(open_session(slides, context=CONTEXT), tokens_of(3, 2300), 61, rule)
    assert made.rounds == 6 and made.accepted == 54


def test_bytes_are_those_of_whole_layers_and_of_windows(model):
    """Two layers of six keep all of a text. The others have panes for the window, what is read again, a tree, and the
    rows of a pass; an engine has a quarter of its blocks more for texts that have ended."""
    whole, slide = layer_bytes(model, 2), layer_bytes(model, 4)
    blocks = -(-(CONTEXT + 64) // BLOCK)
    engine = _core.Engine(model, context=CONTEXT, sequences=1)
    assert engine.kv["blocks"] == blocks
    panes, rest = divmod(engine.kv_bytes - blocks * whole, slide)
    assert rest == 0 and 0 < panes - blocks // 4 - (WINDOW + 384 + 64 + 640) // BLOCK < 5
    boxes, most = {}, 0
    engine.submit(boxes, _core.Request(prompt=tokens_of(1, 3500), max_new_tokens=100, drafting="off"))
    while not engine.idle():
        engine.step(boxes)
        if engine.kv["used_blocks"] > 40:
            most = max(most, engine.kv["used_bytes"] - engine.kv["used_blocks"] * whole)
    assert 0 < most <= (WINDOW + 384 + 64 + 128) // BLOCK * slide, "between rounds the rows of a pass are let go of"
    assert _core.Engine(model, context=700, sequences=1).kv_bytes == -(-764 // BLOCK) * (whole + slide), "it keeps all"


def test_a_session_has_panes_for_its_window(model):
    session = open_session(model, context=CONTEXT)
    session.prefill(tokens_of(1, 4000))
    assert session.cache_bytes < 4000 / BLOCK * layer_bytes(model, 2) + 20 * layer_bytes(model, 4)
    with pytest.raises(UnsupportedModel, match="sliding window are not all there, want a shorter context"):
        _ = session.kv_rows
    assert open_session(model, context=300).kv_rows.size == 0


def test_memory_that_is_asked_for_holds_both(model):
    whole, slide = layer_bytes(model, 2), layer_bytes(model, 4)
    for bytes in 70 * (whole + slide), 100 * (whole + slide), 65 * whole + 60 * slide:
        engine = _core.Engine(model, context=CONTEXT, sequences=2, kv_memory=bytes)
        assert bytes - 2 * (whole + slide) < engine.kv_bytes <= bytes
    with pytest.raises(InvalidArgument, match=r"want at least the \d+ of one text of 4096 tokens"):
        _core.Engine(model, context=CONTEXT, sequences=2, kv_memory=65 * whole)


def test_a_longer_context_fits_into_what_is_free(model, monkeypatch):
    free = 2 * 60 * layer_bytes(model, 6)
    monkeypatch.setenv("SWIFTK_DEBUG", f"memory={free}")
    engine = _core.Engine(model, sequences=1)
    assert 1.2 * 60 * BLOCK < engine.context < 8192 and engine.kv_bytes <= free // 2
    monkeypatch.setenv("SWIFTK_DEBUG", f"memory={free // 2}")
    with pytest.raises(OutOfMemory, match=r"want a context of at most \d+") as refused:
        _core.Engine(model, sequences=1, context=8192)
    most = int(re.search(r"at most (\d+) tokens", str(refused.value))[1])
    assert _core.Engine(model, sequences=1, context=most).context == most


@pytest.mark.parametrize("shared", [30, 64, 500, 1000, 1984, 2049, 3300])
def test_texts_that_begin_alike(model, shared):
    """The first text needs more panes than there are: what it passed is gone but for the last of it. What the second
    text then runs again is found by the third one."""
    busy = Busy(model, sequences=2)
    whole = Busy(model, sequences=ALL)
    first = tokens_of(1, 3500)
    second, third = (np.r_[first[:shared], tokens_of(seed, 150)].astype(np.int32) for seed in (2, 3))
    found = {}
    for name, text in {"first": first, "second": second, "third": third, "again": second}.items():
        [(made, found[name])] = busy.run([(text, 40, DRAFTED)])
        assert [made] == [text for text, _ in whole.run([(text, 40, DRAFTED)])], name
    assert found["first"] == 0 and found["third"] == shared and found["again"] == len(second) - 1
    assert found["second"] == (shared if shared == 3300 else 0)


def test_the_longest_beginning_whose_window_is_there(model):
    """All blocks of the first text are there; of its windows that of the second one's end, and some before it."""
    busy, whole, first = Busy(model, sequences=2), Busy(model, sequences=ALL), tokens_of(1, 3500)
    busy.run([(first, 20, DRAFTED)])
    busy.run([(np.r_[first[:1984], tokens_of(2, 60)].astype(np.int32), 20, DRAFTED)])
    for shared, cached in (2900, 1984), (1984, 1984), (1980, 1980), (1920, 1920):
        request = (np.r_[first[:shared], tokens_of(shared, 70)].astype(np.int32), 20, DRAFTED)
        assert busy.run([request]) == [(whole.run([request])[0][0], cached)]


def test_a_text_that_goes_on_hits_at_its_end(model):
    busy = Busy(model, sequences=2)
    prompt, cached = tokens_of(1, 3000), 0
    for turn in range(4):
        [(made, found)] = busy.run([(prompt, 30, {"drafting": "off", "seed": turn})])
        assert found == cached
        prompt = np.r_[prompt, [token for token, _ in made], tokens_of(turn, 11)].astype(np.int32)
        cached = len(prompt) - 12


def test_a_prompt_that_is_answered_often(model):
    """As n= does: the prompt runs once."""
    prompt = tokens_of(1, 2100)
    requests = [(prompt, 50, {"temperature": 0.9, "seed": seed, "drafting": "off"}) for seed in range(6)]
    _, found = both(model, requests, sequences=6)
    assert [cached for _, cached in found[1:]] == [len(prompt) - 1] * 5


@pytest.mark.parametrize("drafted", [{"drafting": "off"}, DRAFTED], ids=["plain", "drafted"])
def test_texts_that_are_preempted(model, drafted):
    bytes = 68 * layer_bytes(model, 2) + 60 * layer_bytes(model, 4)
    requests = [(tokens_of(seed, 1900 + 64 * seed), 150, {**drafted, "seed": seed}) for seed in range(5)]
    engine, _ = both(model, requests, sequences=3, kv_memory=bytes)
    assert engine.totals["preempted"] > 0, "no text was preempted: the test would say nothing"


def test_texts_that_begin_alike_and_are_preempted(model):
    bytes, prompt = 72 * layer_bytes(model, 6), tokens_of(1, 1500)
    requests = [
        (np.r_[prompt, tokens_of(seed, 1500 + seed)].astype(np.int32), 120, {**DRAFTED, "seed": seed})
        for seed in range(6)
    ]
    engine, _ = both(model, requests, sequences=4, kv_memory=bytes)
    assert engine.totals["preempted"] > 0


def test_many_short_texts_between_long_ones(model):
    """Panes go from text to text; what is found of a prefix depends on what is left."""
    busy = Busy(model, sequences=3)
    whole = Busy(model, sequences=ALL)
    rng, base = np.random.default_rng(7), tokens_of(1, 4000)
    for _ in range(12):
        requests = []
        for seed in range(3):
            own = np.r_[base[: rng.integers(1, 3600)], tokens_of(int(rng.integers(99)), int(rng.integers(1, 200)))]
            requests.append((own.astype(np.int32), int(rng.integers(1, 60)), {**DRAFTED, "seed": seed}))
        found = [text for text, _ in busy.run(requests)]
        assert found == [text for text, _ in whole.run(requests)]


def test_idle_memory_goes_back(model):
    busy = Busy(model, sequences=2)
    engine, request = busy.engine, (tokens_of(1, 3700), 20, {"drafting": "off"})
    [(made, _)] = busy.run([request])
    assert 0 < engine.kv["resident_bytes"] < engine.kv_bytes
    engine.cancel(1)
    while not engine.idle():
        engine.step(busy.boxes)
    engine.give_back()
    assert engine.kv["resident_bytes"] == engine.kv["used_bytes"] == engine.kv["cached_blocks"] == 0
    assert busy.run([request]) == [(made, 0)]


def test_a_session_goes_back_to_where_its_window_is(model):
    """Beginnings of a text, some of which are gone, and what follows them."""
    session, text = open_session(model, context=CONTEXT), tokens_of(1, 3000)
    session.prefill(text)
    reused = {}
    for keep in (2990, 2700, 1400, 300, 20):
        prompt = np.r_[text[:keep], tokens_of(keep, 100)].astype(np.int32)
        reused[keep] = session.reuse(prompt)
        for at in range(reused[keep], len(prompt), 500):
            session.extend(prompt[at : at + 500])
        assert session.logits[0].tobytes() == rows_of(model, prompt)[-1].tobytes()
    assert reused[2990] == 2990 and reused[2700] == 2700, "in the last tokens all is there"
    assert reused[1400] == reused[300] == 0 and reused[20] == 20, "what lies far behind the end is gone"


@pytest.mark.parametrize("context", [CONTEXT, 600])
def test_saved_texts_have_the_windows(model, context):
    """Into a session that keeps windows, and from one that keeps all."""
    prompt = tokens_of(1, 2500 if context == CONTEXT else 500)
    first, second = open_session(model, context=context), open_session(model, context=CONTEXT)
    first.prefill(prompt)
    state = first.save()
    second.prefill(tokens_of(2, 3000))
    second.load(state)
    for session in (first, second):
        session.set_skip(_core.DraftSpec((1,), (2,), -1))
        for _ in range(20):
            session.draft(_core.TreeRule(max_draft=5, confidence=0.0, width=(2, 2, 2, 2)))
            session.commit(len(session.verify()))
    assert list(first.history) == list(second.history)
    last = list(second.history)
    earlier = np.int32(last[: len(prompt) - 300])
    reused = second.reuse(earlier)
    assert reused == len(earlier) - 1
    second.extend(earlier[reused:])
    assert second.logits[0].tobytes() == rows_of(model, earlier)[-1].tobytes()


def test_a_saved_text_is_as_long_as_its_layers_see(model):
    """Of 2,500 tokens; and of 500, all of which a session keeps, but a saved text does not have."""
    session = open_session(model, context=CONTEXT)
    session.prefill(tokens_of(1, 2500))
    assert len(session.save()) < 2500 / BLOCK * layer_bytes(model, 2) + 12 * layer_bytes(model, 4) + 20000
    first, second, prompt = open_session(model, context=600), open_session(model, context=600), tokens_of(1, 500)
    first.prefill(prompt)
    second.load(first.save())
    for keep, cached in (495, 494), (100, 0):
        assert first.reuse(prompt[:keep]) == keep - 1 and second.reuse(prompt[:keep]) == cached
        for session in first, second:
            session.prefill(prompt[:keep])
        assert first.logits.tobytes() == second.logits.tobytes()


def test_a_state_without_its_window_is_refused(model):
    session = open_session(model, context=CONTEXT)
    session.prefill(tokens_of(1, 1000))
    state = bytearray(session.save())
    gone = 8 + 32 + 8 + 8 + 4 * 10
    assert int(np.frombuffer(state[gone : gone + 4], np.int32)[0]) == (1000 - 384 - WINDOW + 1) // BLOCK
    for value in (0, 15, -1):
        state[gone : gone + 4] = np.int32(value).tobytes()
        with pytest.raises(InvalidArgument, match="its layers with windows have other blocks than the next token sees"):
            session.load(bytes(state))


def test_scores_are_of_rows_that_see_their_windows(model):
    session = open_session(model, context=CONTEXT)
    decode(session, tokens_of(1, 1500), 200)
    whole = open_session(model, context=CONTEXT)
    whole.prefill(np.int32(session.history[:-1]))
    spec = _core.DraftSpec((1,), (2,), -1)
    for window, end in ((32, -1), (200, -1), (32, 1500), (100, 1450)):
        confidence, rank = session.score(spec, window, end)[:2]
        assert len(rank) == window and np.isfinite(confidence).all()
    assert len(session.score(spec, 32, 200)[1]) == 0
    assert 384 < len(session.score(spec, 1000)[1]) < 600
    session.propose_skips(8)
    session.draft(_core.TreeRule(max_draft=0))
    session.commit(len(session.verify()))


def test_files_of_blocks_say_whether_windows_are_in_them(model):
    text, new = tokens_of(1, 3456), tokens_of(2, 60)
    request = (np.r_[text, new].astype(np.int32), 30, DRAFTED)
    first = Busy(model, sequences=2)
    [(made, _)] = first.run([request])
    files = first.files(text)
    sizes = [len(file) - 4 * BLOCK * (i + 1) for i, file in enumerate(files)]
    assert set(sizes) == {sizes[0], sizes[0] + layer_bytes(model, 4)}, "of some blocks windows are there"
    assert len(files[-1]) == first.engine.saved_bytes(len(files))

    second = Busy(model, sequences=2)
    assert second.load(files, text) == len(files) == second.engine.cached_blocks(text, False)
    assert second.run([request]) == [(made, len(text))]
    short = (np.r_[text[:500], new].astype(np.int32), 30, DRAFTED)
    whole = Busy(model, sequences=ALL)
    assert second.run([short])[0] == (whole.run([short])[0][0], 0), "no window is there so early"
    assert second.files(text)[-1] == files[-1]

    keeps_all = Busy(model, sequences=ALL)
    assert keeps_all.load(files, text) == 0, "the first one lacks what all blocks have there"
    [(again, cached)] = keeps_all.run([request])
    assert (again, cached) == (made, 0)


def test_files_bring_windows_back(model):
    """Blocks that are there, but not what their layers with windows had."""
    text, new = tokens_of(1, 1024), tokens_of(2, 60)
    request = (np.r_[text, new].astype(np.int32), 30, DRAFTED)
    busy = Busy(model, sequences=2)
    [(made, _)] = busy.run([request])
    files = busy.files(text)
    for seed in range(5, 12):
        busy.run([(tokens_of(seed, 400), 5, {"drafting": "off"})])
    assert busy.engine.cached_blocks(text, False) < len(files), "at the end no window is there"
    assert busy.load(files, text) == len(files) == busy.engine.cached_blocks(text, False)
    assert busy.run([request]) == [(made, len(text))]


@pytest.mark.parametrize("kind", ["model", "block", "eagle"])
def test_draft_models_beside_windows(tiny_dir, tmp_path, kind):
    """These keep keys and values of the whole text, and read features of tokens that the window has passed."""
    shape = {"vocab_size": 320, "sliding_window": WINDOW, "max_position_embeddings": 8192}
    folder, full = tiny_dir("gemma3", layers=6, **shape), {"sliding_window": None, "layer_types": None}
    if kind == "model":
        head = tiny_dir("gemma3", layers=2, **shape)
    else:
        make = make_block if kind == "block" else make_eagle
        head = make(tmp_path / "head", folder, changes=full)
    model = _core.Model(str(folder), threads=1, drafters=[str(head)])
    drafted = {**DRAFTED, "skips": [((), (), -1, ["drafter"])]}
    prompt = tokens_of(1, 2600)
    requests = [(prompt, 60, drafted), (np.r_[prompt[:2000], tokens_of(2, 900)].astype(np.int32), 60, drafted)]
    both(model, requests, sequences=2)


def test_a_mixture_of_attentions_reads_all_layers(tiny_dir, tmp_path):
    shape = {"vocab_size": 320, "sliding_window": WINDOW, "max_position_embeddings": 8192}
    folder = tiny_dir("gemma3", layers=6, **shape)
    model = _core.Model(str(folder), threads=1, drafters=[str(make_moa(tmp_path / "moa", folder))])
    session = open_session(model, context=CONTEXT)
    session.prefill(tokens_of(1, 1500))
    assert len(session.kv_rows) == 1500 and np.isfinite(session.kv_rows).all()
    drafted = {**DRAFTED, "skips": [((), (), -1, ["drafter"])]}
    both(model, [(tokens_of(1, 1500), 50, drafted)], sequences=2)
