"""A head at the client: what it reads comes from the server, its proposals are those that it makes there, and the text
is the server's own, token for token."""

import itertools

import numpy as np
import pytest

import swiftk
from decode import TOUCHED
from heads import make_block, make_eagle, make_moa
from marks import exhaustive
from swiftk import _core, remote
from swiftk.remote.features import Features
from swiftk.testing import make_tiny

pytest.importorskip("websockets")
from patience import PATIENCE
from relay import Relay
from serving import dial, serving

KINDS = ("eagle3", "eagle1", "block", "moa", "moa2")  # the last: two layers of the target run after it
NAMES = dict(zip(KINDS, ("drafter", "drafter-2", "drafter-3", "drafter-4", "drafter-5")))
ASKED = {"max_new_tokens": 60, "ignore_eos": True}
PROMPT = [5, 9, 17, 33, *range(40, 100), 7, 7, 9]
GREEDY = {"temperature": 0.0}
SAMPLED = {"temperature": 1.0, "seed": 7, "top_p": 0.95, **TOUCHED}
SAMPLINGS = {"greedy": GREEDY, "sampled": SAMPLED}
EXACT = {"features": "float32", "dtype": "float32", "draft_weights": "own"}


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    """Slow enough that a client of a busy machine is in time."""
    return make_tiny(tmp_path_factory.mktemp("target"), "qwen3", "float32", layers=8, intermediate_size=2000)


@pytest.fixture(scope="module")
def folders(tmp_path_factory, target):
    base = tmp_path_factory.mktemp("heads")
    made = [make_eagle(base / "eagle3", target), make_eagle(base / "eagle1", target, "eagle1")]
    made += [make_block(base / "block", target), make_moa(base / "moa", target)]
    made += [make_moa(base / "moa2", target, last=2)]
    return dict(zip(KINDS, made))


class Recorded(remote.Head):
    """Keeps what it is given, and what it proposes."""

    def __init__(self, target, head, **options):
        super().__init__(target, head, threads=1, **options)

    def begin(self, prompt, sampling):
        super().begin(prompt, sampling)
        self.rows, self.proposals, self.bytes = np.zeros((0, self.features.width), np.float32), [], 0

    def know(self, first, rows):
        assert first <= len(self.rows)
        self.bytes += len(rows) * self.features.bytes
        self.rows = np.concatenate([self.rows[:first], rows])
        super().know(first, rows)

    def propose(self, text, count):
        found = super().propose(text, count)
        self.proposals.append(([*self._prompt, *text], self.known, found))
        return found


def states(lm, kind, prompt, **asked):
    """(tokens, what the head reads of the text but the last two) as the engine says it."""
    events = list(lm.submit(prompt, features=NAMES[kind], speculate=False, **asked))
    return [e.token for e in events], np.concatenate([e.features for e in events if e.features is not None])


QUICK = [("eagle3", "sampled"), ("moa2", "greedy"), ("block", "greedy")]


@pytest.mark.parametrize(
    ("kind", "sampling"),
    [*QUICK, *exhaustive(*(case for case in itertools.product(KINDS, SAMPLINGS) if case not in QUICK))],
)
def test_the_text_is_the_servers(url, lm, target, folders, kind, sampling):
    asked = {**ASKED, "max_new_tokens": 200}  # of a model so small that a client is hardly in time
    want = lm.generate(PROMPT, **asked, **SAMPLINGS[sampling], speculate=False)
    head = Recorded(target, folders[kind])
    with dial(url, head) as line:
        got = line.generate(PROMPT, **asked, **SAMPLINGS[sampling])
        proposals = head.proposals
        again = line.generate(PROMPT[:20], **ASKED, **SAMPLINGS[sampling])
    assert (got.tokens, got.text, got.finish_reason) == (want.tokens, want.text, want.finish_reason)
    assert again.tokens == lm.generate(PROMPT[:20], **ASKED, **SAMPLINGS[sampling], speculate=False).tokens
    assert sum(len(found) for *_, found in proposals) > 0
    assert got.received > got.rounds and got.lost == 0


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("kind", KINDS)
def test_proposals_are_those_of_the_server(lm, target, folders, kind, sampling):
    """Bit for bit the same states, and so the same chains, whether they are made at once or go on."""
    sampling = {"seed": 0, **sampling}
    tokens, rows = states(lm, kind, PROMPT, **ASKED, **sampling)
    assert rows.dtype == np.float32 and len(rows) == len(PROMPT) + 58 and np.isfinite(rows).all()
    head = remote.Head(target, folders[kind], **EXACT)
    head.begin(PROMPT, sampling)
    session = lm.session
    session.set_skip(_core.DraftSpec([], [], -1, [NAMES[kind]]))
    session.set_sampling(_core.Sampling(**sampling))
    session.prefill(np.int32(PROMPT))
    for _ in range(12):
        session.draft(_core.TreeRule(confidence=0.0, max_draft=4, width=(1, 1, 1, 1)))
        text, want = session.history.tolist()[len(PROMPT) :], session.tree_tokens[1:].tolist()
        assert text == tokens[: len(text)] and len(want) == 4
        end = len(PROMPT) + len(text) - 1
        head.know(head.known, rows[head.known : end])
        assert head.propose(text, 2) == want[:2]
        assert head.propose([*text, *want[:2]], 9)[:2] == want[2:]
        assert head.propose([*text, want[0]], 3) == want[1:]
        session.commit(len(session.verify()))


@pytest.mark.parametrize("kind", KINDS)
def test_what_travels_is_what_the_engine_has(url, lm, target, folders, kind):
    """All of it in order, however it was cut into frames; as bfloat16 in half as many bytes."""
    prompt = PROMPT * 5
    _, want = states(lm, kind, prompt, **ASKED, **SAMPLED)
    received = {}
    for dtype in ("float32", "bfloat16"):
        head = Recorded(target, folders[kind], **{**EXACT, "features": dtype})
        with dial(url, head) as line:
            got = line.generate(prompt, **ASKED, **SAMPLED)
        assert len(head.rows) > len(prompt) and head.bytes == head.rows.size * (4 if dtype == "float32" else 2)
        if dtype == "float32":
            assert head.rows.tobytes() == want[: len(head.rows)].tobytes()
        else:
            np.testing.assert_allclose(head.rows, want[: len(head.rows)], rtol=2**-8)
        received[dtype] = got.received
        assert head.bytes < got.received < head.bytes + 60 * len(got.tokens) + 40 * len(prompt)
    assert received["bfloat16"] < 0.6 * received["float32"]


def test_states_survive_a_lack_of_memory(target, folders):
    """Texts that give way are read again, and go on where they were."""
    way = {"dtype": "float32", "draft_weights": "own", "context": 200, "kv_memory": 1, "device": "cpu"}
    prompts = [PROMPT[i:] for i in range(3)]
    with swiftk.load(target, **{**way, "kv_memory": None}, drafter=folders["eagle3"]) as large:
        want = [states(large, "eagle3", prompt, **{**ASKED, "max_new_tokens": 100}) for prompt in prompts]
    with pytest.raises(swiftk.InvalidArgument, match="want at least") as refused:
        swiftk.load(target, **way, drafter=folders["eagle3"]).generate([5])
    least = int(str(refused.value).partition(" the ")[2].split()[0])
    with swiftk.load(target, **{**way, "kv_memory": least}, drafter=folders["eagle3"]) as small:
        each = [{"features": "drafter", **ASKED, "max_new_tokens": 100}] * 3
        streams, gave_way = small.submit_many(prompts, each), 0
        received = [[] for _ in streams]
        while len(received) > sum(s._result is not None for s in streams):
            small.step()
            gave_way += small.last_round["preempted"]
            for events, stream in zip(received, streams):
                events += stream.poll()[0]
    assert gave_way > 0
    for (tokens, rows), events in zip(want, received):
        assert [e.token for e in events] == tokens
        reported = np.concatenate([e.features for e in events if e.features is not None])
        assert len(PROMPT) < len(reported) <= len(rows) and reported.tobytes() == rows[: len(reported)].tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_lines_that_break(url, lm, target, folders, kind):
    """What came before is not reported again; where the server forgot the text, neither."""
    want, rows = states(lm, kind, PROMPT, **ASKED, **SAMPLED)
    for _ in range(20):  # tokens wait for no features: all may be said before the line is there again
        head = Recorded(target, folders[kind], **EXACT)
        whole = len(PROMPT) * head.features.bytes
        relay = Relay(url, [whole // 2, 2 * whole, 3000])
        with dial(relay.url, head) as line:
            got = line.generate(PROMPT, **ASKED, **SAMPLED)
        relay.close()
        assert got.tokens == want and got.lost >= 1 and got.alone_from is None
        assert head.rows.tobytes() == rows[: len(head.rows)].tobytes()
        if len(head.rows) > len(PROMPT):
            return
    pytest.fail("no features came behind a broken line")


def test_a_server_that_forgot_begins_anew(lm, target, folders):
    want, rows = states(lm, "eagle3", PROMPT, **ASKED, **SAMPLED)
    with serving(lm, kept=0.0) as (url, _):
        for _ in range(20):  # tokens wait for no features: all may be said before the line breaks
            head = Recorded(target, folders["eagle3"], **EXACT)
            relay = Relay(url, [(len(PROMPT) + 5) * head.features.bytes])
            with dial(relay.url, head) as line:
                got = line.generate(PROMPT, **ASKED, **SAMPLED)
            relay.close()
            assert got.tokens == want
            assert head.rows.tobytes() == rows[: len(head.rows)].tobytes()
            assert head.bytes == head.rows.size * 4  # none came twice
            if got.lost:
                return
    pytest.fail("no line broke")


def test_who_goes_on_alone(url, lm, target, folders):
    asked = {**ASKED, "max_new_tokens": 900, **SAMPLED}  # longer than the line lasts
    with swiftk.load(target, dtype="float32", draft_weights="own", device="cpu", threads=1) as own:
        for model, reason in ((None, "lost"), (own, "length")):
            relay = Relay(url, [])
            with dial(relay.url, remote.Head(target, folders["eagle3"], model=model)) as line:
                text = line.stream(PROMPT, **asked)
                next(text)
                relay.close()
                line._patience = 0  # nobody will answer
                list(text)
            want = lm.generate(PROMPT, **asked, speculate=False).tokens
            assert text.result.finish_reason == reason
            assert text.result.tokens == want[: len(text.result.tokens)]


def test_a_client_needs_no_layers(url, lm, target, folders, tmp_path):
    small = remote.cut(target, tmp_path / "small")
    size = (small / "model.safetensors").stat().st_size
    assert size < 0.5 * (target / "model.safetensors").stat().st_size
    with pytest.raises(swiftk.CheckpointError, match="there are 2 tensors, the config has 8 layers"):
        swiftk.load(small)
    last = remote.cut(target, tmp_path / "last", layers=2)
    assert size < (last / "model.safetensors").stat().st_size < 0.5 * (target / "model.safetensors").stat().st_size
    for kind, cut in (("eagle1", small), ("moa2", last)):
        text, rows = states(lm, kind, PROMPT, **ASKED, **GREEDY)
        found = []
        for folder in (target, cut):
            head = remote.Head(folder, folders[kind], **EXACT)
            head.begin(PROMPT, {**GREEDY, "seed": 0})
            head.know(0, rows)
            found.append(head.propose(text[: len(rows) - len(PROMPT) + 1], 6))
        assert found[0] == found[1] and len(found[0]) == 6
    with pytest.raises(swiftk.CheckpointError, match=r"layers\.6"):
        remote.Head(small, folders["moa2"])
    with pytest.raises(swiftk.InvalidArgument, match=r"layers is 8, want 0\.\.7"):
        remote.cut(target, tmp_path / "all", layers=8)
    with dial(url, remote.Head(small, folders["eagle1"])) as line:
        assert line.generate(PROMPT, **ASKED).tokens == lm.generate(PROMPT, **ASKED, speculate=False).tokens


def refused(url, head, words):
    with dial(url, head) as line, pytest.raises(swiftk.InvalidArgument, match=words):
        line.generate(PROMPT, **ASKED)


def test_heads_that_do_not_fit_the_server(url, lm, target, folders, tmp_path):
    other = make_eagle(tmp_path / "taps", target, taps=(1, 2, 6))
    refused(
        url,
        remote.Head(target, other),
        r"400.*eagle of layers \[1, 2, 6\], 192 .* at the server: eagle of layers \[0, 2, 5\]",
    )
    refused(
        url, remote.Head(target, make_moa(tmp_path / "moa", target, seed=1)), r"moa of states \w+, 96 .*moa of states"
    )
    wide = make_tiny(tmp_path / "wide", "qwen3", "float32", layers=8, hidden_size=96)
    refused(url, remote.Head(wide, make_eagle(tmp_path / "of_wide", wide)), "288 floats a token.*192 floats a token")
    with swiftk.load(target, dtype="float32", draft_weights="own", device="cpu") as bare, serving(bare) as (none, _):
        refused(none, remote.Head(target, folders["eagle3"]), "none, as none was loaded.*--drafter")
    assert lm.generate(PROMPT, max_new_tokens=3).tokens


def test_another_vocabulary(url, folders, target, tmp_path):
    small = remote.cut(target, tmp_path / "small")
    words = (small / "tokenizer.json").read_text()
    (small / "tokenizer.json").write_text(words.replace('"!"', '"!!!"', 1))
    head = remote.Head(small, folders["block"])
    with dial(url, head) as line, pytest.raises(swiftk.UnsupportedModel, match="vocabulary"):
        line.generate(PROMPT, **ASKED)


def test_heads_that_do_not_fit_here(target, folders, tmp_path):
    wide = make_tiny(tmp_path / "wide", "qwen3", "float32", layers=8, hidden_size=96)
    with pytest.raises(swiftk.UnsupportedModel, match="hidden_size is 64 in the draft model and 96 in the model"):
        remote.Head(wide, folders["eagle3"])
    with pytest.raises(swiftk.UnsupportedModel, match="is a model, want a head"):
        remote.Head(target, target)
    with pytest.raises(swiftk.CheckpointError, match="not a directory"):
        remote.Head(target, tmp_path / "none")
    with pytest.raises(swiftk.InvalidArgument, match="want an LM or None"):
        remote.Head(target, folders["eagle3"], model=str(target))
    with pytest.raises(swiftk.InvalidArgument, match="bfloat16, float32"):
        remote.Head(target, folders["eagle3"], features="int8")


def test_what_is_reported_must_fit(target, folders):
    head = remote.Head(target, folders["eagle3"], **EXACT)
    head.begin(PROMPT, {**GREEDY, "seed": 0})
    rows = np.ones((len(PROMPT), head.features.width), np.float32)
    with pytest.raises(swiftk.InvalidArgument, match="want a multiple of 192, of tokens from 0 on"):
        head.know(1, rows)
    with pytest.raises(swiftk.InvalidArgument, match="multiple of 192"):
        head.know(0, rows[:, 1:])
    assert head.propose([3], 4) == []
    head.know(0, rows)
    with pytest.raises(swiftk.InvalidArgument, match="want at least"):
        head.propose([], 4)
    with pytest.raises(swiftk.InvalidArgument, match=r"want 0\.\.319"):
        head.propose([320], 4)
    assert len(head.propose([3], 4)) == 4
    assert head.propose([3] * 80, 4) == []  # a tree has 64 nodes
    assert len(head.propose([3], 4)) == 4
    head.know(len(PROMPT), np.full((1, head.features.width), np.nan, np.float32))
    for _ in range(2):
        with pytest.raises(swiftk.NumericalError, match="NaN"):
            head.propose([3, 4], 4)
    head.begin(PROMPT, {**GREEDY, "seed": 0})
    head.know(0, rows)
    head.know(len(PROMPT), np.ones((1000, head.features.width), np.float32))  # beyond the context
    assert head.known == 512 and head.propose([3] * 600, 4) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kind": "eagle"}, "want a map of kind"),
        ({"kind": "eagle", "taps": [-1], "width": 3}, "want a head's kind"),
        ({"kind": "eagle", "taps": [1], "width": 3, "dtype": "int8"}, "bfloat16, float32"),
        ({"kind": "eagle", "taps": [1], "width": 0}, "at the server"),
    ],
)
def test_what_is_asked_for_is_checked(url, given, words):
    from websockets.sync.client import connect

    from swiftk.remote import frames

    with connect(url.replace("http", "ws") + frames.PATH, compression=None, open_timeout=PATIENCE) as line:
        line.send(frames.pack("begin", version=2, prompt=[5], options=ASKED, features=given))
        frame = frames.unpack(line.recv(PATIENCE), "error", "begun")
    assert words in frame["message"] and frame["status"] == 400


@pytest.mark.parametrize(("version", "op"), [(1, "begun"), (2, "begun"), (3, "begun"), (4, "error")])
def test_versions(url, version, op):
    from websockets.sync.client import connect

    from swiftk.remote import frames

    with connect(url.replace("http", "ws") + frames.PATH, compression=None, open_timeout=PATIENCE) as line:
        line.send(frames.pack("begin", version=version, prompt=[5], options={"max_new_tokens": 4}))
        frame = frames.unpack(line.recv(PATIENCE), "error", "begun")
        assert frame["op"] == op and (op == "begun" or "want 1 or 2 or 3" in frame["message"])
        while op == "begun" and frames.unpack(line.recv(PATIENCE), "tokens", "end")["op"] != "end":
            pass


def test_rows_travel_as_they_are_or_rounded():
    rows = np.random.default_rng(0).standard_normal((5, 6), np.float32)
    exact = Features("eagle", [1], 6, dtype="float32")
    assert exact.unpacked(b"".join(exact.packed(rows))).tobytes() == rows.tobytes()
    rounded = Features("eagle", [1], 6)
    assert rounded.bytes == 12 and len(rounded.packed(rows)) == 5
    np.testing.assert_allclose(rounded.unpacked(b"".join(rounded.packed(rows))), rows, rtol=2**-8)
    with pytest.raises(swiftk.InvalidArgument, match="13 bytes, want 12 a token"):
        rounded.unpacked(b"1" * 13)


def test_features_of_no_drafter(lm):
    with pytest.raises(swiftk.InvalidArgument, match="the model has drafter, drafter-2"):
        lm.submit([5], features="drafter-8")
    with pytest.raises(swiftk.InvalidArgument, match="want the name of a drafter"):
        lm.submit([5], features="eagle")
