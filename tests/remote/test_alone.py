"""A Mixture of Attentions at a client that goes on without its server, or keeps a part of a text from it."""

import numpy as np
import pytest

import swiftk
from head_oracles import trained_moa
from heads import make_eagle, make_moa
from marks import exhaustive
from swiftk import remote
from swiftk.remote import frames
from swiftk.remote.alone import speak, stopper
from swiftk.remote.line import Line
from swiftk.testing import make_tiny
from swiftk.text.tokenizer import Tokenizer

pytest.importorskip("websockets")
from relay import Relay, cut
from serving import dial

LAST = (0, 2)
ASKED = {"max_new_tokens": 150, "ignore_eos": True}
PROMPT = [5, 9, 17, 33, *range(40, 100), 7, 7, 9]
PRIVATE = [111, 222, 311, *range(120, 200), 44]
EXACT = {"features": "float32", "dtype": "float32", "draft_weights": "own"}


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("target"), "qwen3", "float32", layers=4)


@pytest.fixture(scope="module")
def folders(tmp_path_factory, target):
    base = tmp_path_factory.mktemp("heads")
    return {last: make_moa(base / str(last), target, last) for last in LAST} | {
        "eagle": make_eagle(base / "e", target, taps=(0, 1, 2))
    }


def knowing(lm, target, folder, name, sampling):
    """A head that knows the states of the prompt."""
    events = list(lm.submit(PROMPT, features=name, speculate=False, max_new_tokens=3, ignore_eos=True))
    rows = np.concatenate([e.features for e in events if e.features is not None])[: len(PROMPT)]
    head = remote.Head(target, folder, **EXACT)
    head.begin(PROMPT, {"seed": 0, **sampling})
    head.know(0, rows)
    return head


@pytest.mark.parametrize(("last", "name"), [(0, "drafter"), (2, "drafter-2")])
def test_it_says_what_the_trained_module_says(lm, target, folders, last, name):
    """150 tokens after what the server said, many more than a tree has; and after as many that others gave."""
    oracle = trained_moa(folders[last], target)
    head, text = knowing(lm, target, folders[last], name, {"temperature": 0.0}), [3]
    for _ in range(150):
        text.append(head.next(text))
    said = oracle([*PROMPT, 3], None, text[1:])[0][:-1].argmax(-1).tolist()
    assert said == text[1:] and len(set(said)) > 5
    given = [3, *PRIVATE, *PRIVATE]
    head = knowing(lm, target, folders[last], name, {"temperature": 0.0})
    assert head.next(given) == oracle([*PROMPT, 3], None, given[1:])[0][-1].argmax()
    with pytest.raises(swiftk.InvalidArgument, match="one that only grows"):
        head.next([4, *given[1:]])


def test_it_draws_as_the_sampler_says(lm, target, folders):
    """The same seed, the same draws; penalties count what it said itself."""
    asked = {"temperature": 0.7, "seed": 3, "frequency_penalty": 2.0}
    texts = []
    for sampling in (asked, asked, {**asked, "seed": 4}, {**asked, "frequency_penalty": 0.0}):
        head, text = knowing(lm, target, folders[0], "drafter", sampling), [3]
        for _ in range(90):
            text.append(head.next(text))
        texts.append(text)
    assert texts[0] == texts[1] and texts[0] != texts[2] and len(set(texts[0])) > len(set(texts[3]))


@pytest.mark.parametrize("last", LAST)
def test_a_head_goes_on(url, lm, target, folders, last):
    """From where the server was last heard, as it says itself, and marked as unverified."""
    want = lm.generate(PROMPT, max_new_tokens=400, ignore_eos=True, speculate=False).tokens
    relay = Relay(url, [])
    head = remote.Head(target, folders[last], threads=1)
    with dial(relay.url, head) as line:
        got, pieces = cut(relay, line, PROMPT, max_new_tokens=400, ignore_eos=True)
    assert (got.alone_by, got.finish_reason, len(got.tokens)) == ("head", "length", 400)
    assert 0 < got.alone_from < 400 and got.tokens[: got.alone_from] == want[: got.alone_from]
    assert [p.alone for p in pieces] == sorted(p.alone for p in pieces)
    assert [t for p in pieces if p.alone for t in p.tokens] == got.tokens[got.alone_from :]
    assert "".join(p.text for p in pieces) == got.text
    again = got.tokens[: got.alone_from]
    while len(again) < 400:
        again.append(head.next(again) if len(again) == len(got.tokens) else got.tokens[len(again)])
    assert again == got.tokens


class Says:
    """What was written down."""

    alone, context = True, 40

    def __init__(self, target, tokens):
        self.tokenizer, self.tokens = Tokenizer(target), tokens

    def next(self, text):
        return self.tokens[len(text)]


@pytest.mark.parametrize(
    ("asked", "ends", "most", "count", "reason"),
    [
        ({}, [], 9, 9, "length"),
        ({}, [], None, 30, "length"),  # as many as fit
        ({"max_new_tokens": -1}, [], -1, 30, "length"),
        ({}, [42], 20, 13, "stop"),
        ({"stop": "<the>"}, [], 20, 5, "stop"),
    ],
)
def test_where_its_text_ends(target, asked, ends, most, count, reason):
    tokens = list(range(30, 70))  # letters
    head = Says(target, tokens)
    stop = {"stop": head.tokenizer.decode([34])} if "stop" in asked else {}
    stops, text = stopper(head, [5] * 10, frames.options_of(asked | stop), ends, most), []
    shown = "".join(speak(head, text, stops))
    assert (text, stops.finish) == (tokens[:count], reason)
    shows = tokens[: count - 1] if reason == "stop" else tokens[:count]
    assert shown == head.tokenizer.decode(shows)


def test_other_heads_are_lost(url, target, folders):
    head = remote.Head(target, folders["eagle"])
    head.begin(PROMPT, {"seed": 0, "temperature": 0.0})
    assert not head.alone
    with pytest.raises(swiftk.UnsupportedModel, match="want a Mixture of Attentions"):
        head.next([3])


@pytest.fixture
def seen(monkeypatch):
    """All that clients send."""
    sent, send = [], Line.send

    def keeps(self, frame):
        sent.append(frame)
        send(self, frame)

    monkeypatch.setattr(Line, "send", keeps)
    return sent


@pytest.mark.parametrize("last", [0, *exhaustive(2)])
def test_private_tokens_stay(url, lm, target, folders, seen, last):
    """The server gets the prompt, and neither the rest, nor the text, nor the options."""
    head = remote.Head(target, folders[last], **EXACT)
    asked = {"max_new_tokens": 80, "temperature": 0.0, "stop": "never said", "logit_bias": {301: 0.5}}
    with dial(url, head) as line:
        got = line.generate(PROMPT, private=PRIVATE, ignore_eos=True, **asked)
        text = line.stream(PROMPT, private=PRIVATE, ignore_eos=True, **asked)
        pieces = list(text)
    assert len(got.tokens) == 80 and (got.alone_from, got.alone_by, got.finish_reason) == (0, "head", "length")
    assert text.result.tokens == got.tokens == [t for p in pieces for t in p.tokens] and all(p.alone for p in pieces)
    assert got.prompt_tokens == [*PROMPT, *PRIVATE]
    begun = [frames.unpack(frame, "begin") for frame in seen]
    assert len(begun) == 2
    for frame in begun:
        assert frame.keys() == {"op", "version", "prompt", "options", "features", "states"}
        assert frame["prompt"] == PROMPT and frame["options"] == {"max_new_tokens": 1}


def test_the_head_sees_both(lm, url, target, folders):
    """What it says depends on private tokens, and is what the trained module says after both."""
    oracle = trained_moa(folders[2], target)
    texts = []
    for private in (PRIVATE, [*PRIVATE[:-1], 45]):
        with dial(url, remote.Head(target, folders[2], **EXACT)) as line:
            texts.append(line.generate(PROMPT, private=private, max_new_tokens=30, ignore_eos=True).tokens)
    assert texts[0] != texts[1]
    said, _ = oracle([*PROMPT, PRIVATE[0]], None, [*PRIVATE[1:], *texts[0]])
    assert said[len(PRIVATE) - 1 : -1].argmax(-1).tolist() == texts[0]


def test_long_prompts_come_whole(lm, url, target, folders):
    """The server has said its two tokens long before the states are all here."""
    prompt = (PROMPT * 7)[:440]
    head = remote.Head(target, folders[2], **EXACT)
    with dial(url, head) as line:
        got = line.generate(prompt, private="secret", max_new_tokens=9, ignore_eos=True)
    assert head.known == len(prompt) and len(got.tokens) == 9
    assert got.received > len(prompt) * head.features.bytes


@pytest.mark.parametrize(
    ("who", "private", "words"),
    [("suffix", [1], "want a Head"), (0, [], "want one at least"), ("eagle", [1], "want a Mixture of Attentions")],
)
def test_who_cannot_keep_it(url, target, folders, who, private, words):
    drafter = who if who == "suffix" else remote.Head(target, folders[who])
    with dial(url, drafter) as line, pytest.raises(swiftk.InvalidArgument, match=words):
        line.generate(PROMPT, private=private, max_new_tokens=4)
