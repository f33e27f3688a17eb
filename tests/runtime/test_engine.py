"""Many texts at a time: each is the text that it is alone, whoever shares its rounds."""

import os
import threading
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from decode import requested
from swiftk import _core
from swiftk.draft.sources import DRAFTERS
from swiftk.errors import InvalidArgument

CONTEXT = 384
SAMPLERS = [
    {},
    {"temperature": 0.7},
    {"temperature": 1.0, "top_k": 12},
    {"temperature": 0.8, "top_p": 0.9, "repetition_penalty": 1.2},
    {"repetition_penalty": 1.3},
    {"frequency_penalty": 0.6, "presence_penalty": 0.3, "logit_bias": {7: 2.0, 9: -100.0}, "min_tokens": 9},
    {"temperature": 0.9, "top_p": 0.95, "presence_penalty": -1.0, "logit_bias": {11: 4.0}, "min_tokens": 4},
]
EVERY = [0, 1, 2, 3]
SKIPS = [([], [], -1, []), ([1], [0], -1, []), ([], [], 2, []), (EVERY, EVERY, -1, []), ([], [], -1, [], False, 20)]
RULES = [
    {"confidence": 0.0, "max_draft": 5, "width": (1, 1, 1, 1)},
    {"confidence": 0.2, "max_draft": 9, "width": (6, 4, 2, 1)},
    {"confidence": 0.0, "max_draft": 3, "width": (10, 10, 10, 10), "max_nodes": 40},
]


@dataclass
class Text:
    """A request, and what was known of it."""

    prompt: list
    options: dict
    tokens: list = field(default_factory=list)
    finish: str = ""
    error: object = None

    def receive(self, turn):
        assert not self.finish, "nothing comes behind the end"
        assert len(turn.tokens) <= turn.nodes or not self.tokens
        self.tokens += [emitted.token for emitted in turn.tokens]
        self.finish, self.error = turn.finish, turn.error


def alone(model, text):
    """What plain decoding makes of the request, with a session of its own."""
    # Rotary positions of some models depend on how long a text may become.
    most = min(CONTEXT, len(text.prompt) + text.options["max_new_tokens"])
    session = _core.Session(model, context=most, poison=True)
    session.set_sampling(requested(text.options)["sampling"])
    tokens = [session.prefill(np.int32(text.prompt)).token]
    stops = text.options.get("stop_ids", [])
    while tokens[-1] not in stops and len(tokens) < text.options["max_new_tokens"]:
        if len(text.prompt) + len(tokens) >= CONTEXT:
            break
        session.draft(_core.TreeRule(max_draft=0))
        (emitted,) = session.verify()
        session.commit(1)
        tokens.append(emitted.token)
    return tokens


def run(engine, texts, arrivals=None, cancels=None):
    """Steps until all have ended; arrivals[i]: the round that text i arrives in. Rounds it took."""
    waiting = sorted(range(len(texts)), key=lambda i: arrivals[i] if arrivals else 0)
    ids, boxes, rounds = {}, {}, 0
    while waiting or not engine.idle():
        while waiting and (not arrivals or arrivals[waiting[0]] <= rounds):
            i = waiting.pop(0)
            id = engine.submit(boxes, _core.Request(prompt=np.int32(texts[i].prompt), **requested(texts[i].options)))
            ids[id] = texts[i]
        for id, text in ids.items():
            if cancels and cancels.get(id_of(texts, text)) == len(text.tokens) and not text.finish:
                engine.cancel(id)
        engine.step(boxes)
        for id, box in boxes.items():
            for turn in box:
                ids[id].receive(turn)
            box.clear()
        rounds += 1
        assert rounds < 20000
    return rounds


def id_of(texts, text):
    return next(i for i, one in enumerate(texts) if one is text)


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny_model("llama3", layers=4)


def requests(vocab):
    prefix = st.integers(0, 3).map(lambda seed: np.random.default_rng(seed).integers(0, vocab, 200).tolist())
    prompt = st.builds(
        lambda common, n, own, seed: common[:n] + np.random.default_rng(seed).integers(0, vocab, own).tolist(),
        prefix, st.sampled_from([0, 5, 63, 64, 65, 128, 190]), st.integers(1, 30), st.integers(0, 10**6),
    )  # fmt: skip
    options = st.fixed_dictionaries(
        {
            "max_new_tokens": st.integers(1, 40),
            "seed": st.integers(0, 10**6),
            "sampler": st.sampled_from(SAMPLERS),
            "skips": st.lists(st.sampled_from(SKIPS), min_size=1, max_size=2),
            "rule": st.sampled_from(RULES),
            "drafting": st.sampled_from(["planned", "ruled", "off"]),
            "plans": st.sampled_from(["any", "none", "fixed", "directed"]),
            "sources": st.sampled_from([one.numbers for one in DRAFTERS.values()]),
            "always": st.booleans(),
            "stop_ids": st.lists(st.integers(0, vocab - 1), max_size=20),
        }
    )

    def build(prompt, options):
        sampler = options.pop("sampler")
        return Text(prompt, {**options, **sampler, "rule": _core.TreeRule(**options["rule"])})

    return st.builds(build, prompt, options)


@given(data=st.data())
def test_texts_are_the_same_in_any_company(tiny_model, data):
    on_cpu = os.environ["SWIFTK_DEVICE"] == "cpu"  # which alone rounds weights, keys and values
    dtype = data.draw(st.sampled_from(["auto", "int8", "int4"] if on_cpu else ["auto"]))
    kv_dtype = data.draw(st.sampled_from(["auto", "int8"] if on_cpu else ["auto"]))
    family = data.draw(
        st.sampled_from(["llama3", "gemma3", "olmo3", "phi4-mini", "ministral3"] if on_cpu else ["llama3"])
    )
    model = tiny_model(family, layers=4, head_dim=16, load_dtype=dtype, kv_dtype=kv_dtype)
    vocab = model.config["vocab_size"]
    texts = data.draw(st.lists(requests(vocab), min_size=1, max_size=12))
    arrivals = data.draw(st.lists(st.integers(0, 30), min_size=len(texts), max_size=len(texts)))
    sequences = data.draw(st.sampled_from([1, 2, 5, 16]))
    # From just enough for one text to plenty: what does not fit is preempted and goes on later.
    d = model.config["head_dim"]
    head = {"float32": 4 * d, "int8": d + 4}.get(model.kv_dtype, 2 * d)  # bytes of a key
    block = 64 * 2 * model.config["num_kv_heads"] * head * model.config["num_layers"]
    blocks = data.draw(st.sampled_from([7, 9, 14, 100]))
    engine = _core.Engine(model, context=CONTEXT, sequences=sequences, kv_memory=blocks * block, poison=True)
    cancels = data.draw(st.dictionaries(st.integers(0, len(texts) - 1), st.integers(0, 10), max_size=3))
    run(engine, texts, arrivals, cancels)
    for i, text in enumerate(texts):
        want = alone(model, text)
        if text.finish == "cancelled":
            assert i in cancels and text.tokens == want[: len(text.tokens)]
        else:
            assert text.tokens == want and text.finish in ("stop", "length"), text.error


def read(engine, text):
    """Reads a text alone to its end. Rows of prompts that ran meanwhile."""
    boxes, rows = {}, 0
    id = engine.submit(boxes, _core.Request(prompt=np.int32(text.prompt), **requested(text.options)))
    while not text.finish:
        engine.step(boxes)
        while boxes[id]:
            text.receive(boxes[id].popleft())
        rows += engine.last["prompt_rows"]
    return rows


def test_prefixes_are_found_again(model):
    """A text that begins like one before it runs the rest of its prompt alone, to the same bits; also where it parts in
    the middle of a block, and where the text before is still under way."""
    prompt = np.random.default_rng(1).integers(0, model.config["vocab_size"], 200).tolist()
    engine = _core.Engine(model, context=CONTEXT, sequences=4)
    prompts = [prompt, [*prompt, 1, 2, 3], [*prompt[:150], 7, 7], prompt[:64], [9, *prompt]]
    rows = []
    for one in prompts:
        text = Text(one, {"max_new_tokens": 4})
        rows.append(read(engine, text))
        assert text.tokens == alone(model, text)
    assert rows == [200, 3, 2, 1, 201]

    boxes = {}
    engine.submit(boxes, _core.Request(prompt=np.int32([3, *prompt]), max_new_tokens=100))
    for _ in range(3):
        engine.step(boxes)
    text = Text([3, *prompt[:192], 5], {"max_new_tokens": 4})
    assert 1 <= read(engine, text) <= 2
    assert text.tokens == alone(model, text)


def test_a_prefix_in_use_is_nobodys_to_take(model):
    """A text goes on after blocks that it took over, while another one waits for memory."""
    rng, vocab = np.random.default_rng(2), model.config["vocab_size"]
    block = 64 * 2 * model.config["num_kv_heads"] * model.config["head_dim"] * 4 * model.config["num_layers"]
    engine = _core.Engine(model, context=CONTEXT, sequences=4, kv_memory=7 * block, poison=True)
    prompt = rng.integers(0, vocab, 140).tolist()
    read(engine, Text(prompt, {"max_new_tokens": 1}))
    other = rng.integers(0, vocab, 230).tolist()
    texts = [Text([*prompt, 1], {"max_new_tokens": 50}), Text(other, {"max_new_tokens": 50})]
    run(engine, texts)
    for text in texts:
        assert text.tokens == alone(model, text)


def test_texts_of_one_prompt_read_it_once(model):
    """Handed in together: the first one's prompt runs, of the others' the last token."""
    prompt = np.random.default_rng(4).integers(0, model.config["vocab_size"], 150).astype(np.int32)
    engine, boxes, rows = _core.Engine(model, context=CONTEXT, sequences=4), {}, 0
    asked = [requested({"max_new_tokens": 12, "temperature": 1.0, "seed": n}) for n in range(4)]
    texts = {engine.submit(boxes, _core.Request(prompt=prompt, **asked[n])): n for n in range(4)}
    while not engine.idle():
        engine.step(boxes)
        rows += engine.last["prompt_rows"]
    assert rows == 150 + 3
    for id, seed in texts.items():
        want = alone(model, Text(prompt.tolist(), {"max_new_tokens": 12, "temperature": 1.0, "seed": seed}))
        assert [one.token for turn in boxes[id] for one in turn.tokens] == want


def test_a_long_prompt_delays_nobody_by_more_than_a_chunk(model):
    vocab = model.config["vocab_size"]
    engine = _core.Engine(model, context=CONTEXT, sequences=4)
    boxes = {}
    first = engine.submit(boxes, _core.Request(prompt=np.int32([1, 2, 3]), max_new_tokens=30, drafting="off"))
    engine.submit(
        boxes, _core.Request(prompt=np.random.default_rng(2).integers(0, vocab, 380).astype(np.int32), max_new_tokens=2)
    )
    engine.step(boxes)
    for _ in range(6):
        before = len(boxes[first])
        engine.step(boxes)
        assert len(boxes[first]) == before + 1, "a token every round"
        assert engine.last["prompt_rows"] <= 128


def test_a_last_chunk_of_one_token(model):
    """128 rows of a prompt run beside texts that decode: one of 129 tokens is drawn from after the last of them."""
    prompt = np.random.default_rng(6).integers(0, model.config["vocab_size"], 129).tolist()
    texts = [Text([5, 6, 7], {"max_new_tokens": 30}), Text(prompt, {"max_new_tokens": 5})]
    engine = _core.Engine(model, context=CONTEXT, sequences=4)
    run(engine, texts, arrivals=[0, 2])
    for text in texts:
        assert text.tokens == alone(model, text)


def test_requests_from_many_threads(model):
    """Eight threads submit, and step whenever they wait."""
    engine = _core.Engine(model, context=CONTEXT, sequences=6)
    vocab, boxes, texts = model.config["vocab_size"], {}, []

    def client(n):
        rng = np.random.default_rng(n)
        for _ in range(6):
            prompt = rng.integers(0, vocab, int(rng.integers(1, 90))).tolist()
            text = Text(prompt, {"max_new_tokens": int(rng.integers(1, 12)), "temperature": 1.0, "seed": n})
            box = boxes[engine.submit(boxes, _core.Request(prompt=np.int32(text.prompt), **requested(text.options)))]
            while not text.finish:
                while not box:
                    engine.step(boxes)
                text.receive(box.popleft())
            texts.append(text)

    clients = [threading.Thread(target=client, args=(n,)) for n in range(8)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    assert len(texts) == 48
    for text in texts:
        assert text.finish == "length"
        assert text.tokens == alone(model, text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt": []}, r"\[submit\] the prompt is empty"),
        ({"prompt": [1, -1]}, r"\[submit\] token 1 is -1"),
        ({"prompt": [1] * CONTEXT}, "want fewer than the context of 384"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0, want 1 or more"),
        ({"logprobs": 65}, "logprobs is 65, want 0..64"),
        ({"temperature": -1.0}, "temperature is -1"),
    ],
)
def test_bad_requests_are_refused_and_others_go_on(model, options, message):
    engine = _core.Engine(model, context=CONTEXT, sequences=2)
    good = Text([5, 6, 7], {"max_new_tokens": 6})
    with pytest.raises(InvalidArgument, match=message):
        engine.submit({}, _core.Request(prompt=np.int32(options.pop("prompt", [1])), **requested(options)))
    assert engine.idle()
    read(engine, good)
    assert good.tokens == alone(model, good)


def test_memory_must_hold_one_text(model):
    with pytest.raises(InvalidArgument, match="kv_memory is 1000 bytes, want at least the"):
        _core.Engine(model, context=CONTEXT, kv_memory=1000)
    with pytest.raises(InvalidArgument, match=r"sequences is 0, want 1\.\.256"):
        _core.Engine(model, context=CONTEXT, sequences=0)


def test_scores_between_rounds_leave_no_trace(model):
    """A score has rows of its own, also after a round that committed many tokens: what texts share stays as it was."""
    prompt = [*range(7, 67), 5, 9]
    plan = ([1], [0], -1, [])
    rule = _core.TreeRule(confidence=0.0, max_draft=20)
    drafted = {"drafting": "ruled", "plans": "fixed", "skips": [plan], "rule": rule, "always": True, "sources": []}
    engine = _core.Engine(model, context=CONTEXT, sequences=2, poison=True)
    text, scores = Text(prompt, {"max_new_tokens": 150, **drafted}), 0
    boxes = {}
    id = engine.submit(boxes, _core.Request(prompt=np.int32(prompt), **requested(text.options)))
    while not text.finish:
        engine.step(boxes)
        while boxes[id]:
            text.receive(boxes[id].popleft())
        _, rank, _ = engine.score(id, _core.DraftSpec(*plan), 63, -1)
        scores += len(rank)
    again = Text([*prompt, *text.tokens[:140]], {"max_new_tokens": 8})
    read(engine, again)
    assert scores > 63 and text.tokens == alone(model, text)
    assert again.tokens == text.tokens[140:148]
