"""All exits by one pass: score_exits() against score(), and the optimizer that goes by it."""

import os

import numpy as np
import pytest

import swiftk
from decode import TOUCHED, decode, open_model, open_session
from generating import plain
from marks import exhaustive
from simulated_text import LAYERS, PLAIN, PROMPT, Generation, World
from simulated_text import model as simulated_model
from swiftk import DraftSpec, TreeRule, _core, _testing
from swiftk.errors import InvalidArgument
from swiftk.files.safetensors_io import Tensor, encode, read_folder, write_folder
from swiftk.files.safetensors_io import decode as values
from swiftk.running.director import EngineMeasured
from swiftk.search import searches
from swiftk.search.base import DraftConfig, Window
from swiftk.search.exits import chain_rate, exits_to_score, pass_price
from swiftk.testing import make_tiny

TEXT = [5, 9, 2, 7, 7, 1, 30, 12, 4, 8, 21]
LAST_OF_SUBLAYERS = ("self_attn.o_proj", "mlp.down_proj")
SAMPLED = {"temperature": 1.1, "seed": 5, "top_p": 0.95, **TOUCHED}


@pytest.fixture
def model(tiny_model):
    return tiny_model("llama3", layers=5)


def after(model, n, sampling=None):
    session = open_session(model, sampling=sampling)
    decode(session, TEXT, n)
    return session


# One pass for all exits


@pytest.mark.parametrize("sampling", [None, *exhaustive(SAMPLED)], ids=["greedy", "sampled"])
@pytest.mark.parametrize(("window", "end"), [(1, -1), (20, -1), (63, 70), (64, 100), (150, -1), (500, 99)])
@pytest.mark.parametrize("exits", [[0, 1, 2, 3, 4, 5], [1, 4], *exhaustive([2])], ids=str)
def test_every_exit_has_the_bits_of_its_own_score(model, sampling, window, end, exits):
    session = after(model, 160, sampling)
    confidence, rank, seconds = session.score_exits(exits, window=window, end=end)
    assert confidence.shape == rank.shape and confidence.dtype == np.float32 and rank.dtype == np.int32
    assert seconds == session.last["score"] > 0
    for i, layer in enumerate(exits):
        own, ranks, _ = session.score(_core.DraftSpec([], [], layer), window=window, end=end)
        assert confidence[i].tobytes() == own.tobytes()
        assert rank[i].tolist() == ranks.tolist()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("isa", _core.isas())
def test_on_every_instruction_set(tiny_dir, isa, dtype):
    if os.environ["SWIFTK_DEVICE"] != "cpu":
        pytest.skip("instruction sets are the CPU's")
    session = after(open_model(tiny_dir("llama3", layers=4), dtype=dtype, isa=isa), 40)
    confidence, rank, _ = session.score_exits([1, 2, 3], window=33)
    for i, layer in enumerate([1, 2, 3]):
        own, ranks, _ = session.score(_core.DraftSpec([], [], layer), window=33)
        assert confidence[i].tobytes() == own.tobytes() and rank[i].tolist() == ranks.tolist()


def test_the_last_exit_is_the_target_and_right(model):
    session = after(model, 80)
    _, rank, _ = session.score_exits([4, 5], window=79)
    assert rank[1].tolist() == [0] * 79
    assert rank[0].tolist() != [0] * 79


def test_text_and_what_follows_stay_as_they_are(model):
    truth = decode(open_session(model), TEXT, 60).tokens
    session = after(model, 30)
    session.set_skip(_core.DraftSpec([], [], 2))
    session.draft(_core.TreeRule(max_draft=3))
    session.score_exits([1, 2, 3, 4], window=30)
    with pytest.raises(InvalidArgument, match="there is no tree"):
        session.verify()
    got = session.history.tolist()[len(TEXT) :]
    while len(got) < 60:
        session.draft(_core.TreeRule(max_draft=2))
        emitted = session.verify()
        session.commit(len(emitted))
        got += [e.token for e in emitted]
    assert got[:60] == truth


@pytest.mark.parametrize("exits", [[], [-1], [6], [2, 2], [3, 1], [0, 1, 99]], ids=str)
def test_bad_exits_are_named(model, exits):
    session = after(model, 20)
    with pytest.raises(InvalidArgument, match=r"\[score\] exits (is empty|has layer -?\d+ at place \d, want rising)"):
        session.score_exits(exits, window=4)
    with pytest.raises(InvalidArgument, match=r"\[score\] window is 0"):
        session.score_exits([1], window=0)
    assert session.score_exits([1], window=4)[1].shape == (1, 4)


def test_a_cancelled_score_leaves_the_session_usable(model):
    session = after(model, 30)
    session.cancel()
    with pytest.raises(swiftk.Cancelled):
        session.score_exits([1, 3], window=20)
    assert session.score_exits([1, 3], window=20)[1].shape == (2, 20)


# Tokens that chains bring


@pytest.mark.parametrize("held", [0.0, 0.3, 0.8, 0.99, 1.0])
@pytest.mark.parametrize("draft", [0.05, 0.4, 1.0])
def test_a_chain_is_worth_what_its_length_brings(held, draft):
    def simulated(length, rounds=20000):
        rng = np.random.default_rng(length)
        right = rng.random((rounds, length)) < held
        return (1 + np.cumprod(right, 1).sum(1)).mean() / (1 + length * (draft + 0.02))

    for length in (0, 1, 3, 8):
        assert chain_rate(held, draft, 0.02, (length,)) == pytest.approx(simulated(length), rel=0.02)
    assert chain_rate(held, draft, 0.02) == max(chain_rate(held, draft, 0.02, (n,)) for n in range(19))


@pytest.mark.parametrize("layers", [1, 2, 3, 8, 16, 32, 80])
@pytest.mark.parametrize("head", [0.001, 0.05, 0.21, 0.6])
def test_exits_to_score_are_as_many_as_heads_are_cheap(layers, head):
    exits = exits_to_score(layers, head)
    assert exits == sorted(set(exits)) and bool(exits) == (layers > 1)
    assert all(0 < layer <= max(1, 0.75 * layers) for layer in exits)
    assert len(exits) >= min(4, int(0.75 * layers))
    if len(exits) > 4:
        assert pass_price(len(exits), head) <= 2


# The optimizer, on simulated texts

CUT = np.concatenate([np.full(8, 1.2), np.full(16, 0.12)])  # harm of sublayers: best cut after the fourth layer
SOON = np.concatenate([np.full(4, 1.2), np.full(20, 0.05)])
HARD = np.full(2 * LAYERS, 0.9)


@pytest.fixture
def play():
    def start(kind, seed=0, make=searches.exits):
        return Generation(World(kind, seed), seed, make=make)

    return start


def best_exit(world, t):
    return max(world.rate(DraftSpec.early_exit(layer), t) for layer in range(1, LAYERS))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", [CUT, SOON], ids=["cut", "soon"])
def test_it_drafts_with_an_exit_near_the_best(play, kind, seed):
    g = play(lambda t: kind, seed).run(400)
    assert g.world.rate(g.auto.current.skip, 0) > 0.95 * best_exit(g.world, 0) > 1.2
    assert {one.skip for one in g.auto.trace} <= {DraftSpec.early_exit(layer) for layer in range(1, LAYERS)}


@pytest.mark.parametrize("seed", range(3))
def test_it_chooses_again_when_the_text_changes(play, seed):
    g = play(lambda t: CUT if t < PROMPT + 1000 else SOON, seed).run(1000)
    before = g.auto.current.skip
    g.run(2500)
    assert g.auto.current.skip.exit_layer < before.exit_layer
    assert g.world.rate(g.auto.current.skip, g.generated + PROMPT) > 0.93 * best_exit(g.world, g.generated + PROMPT)


@pytest.mark.parametrize("seed", range(3))
def test_scoring_keeps_to_its_share(play, seed):
    g = play(lambda t: CUT, seed).run(3000)
    assert max(g.share) < 0.022


def test_where_no_exit_pays_nothing_is_lost(play):
    g = play(lambda t: HARD).run(2000)
    assert np.mean(g.drafted[1000:]) < 0.05
    assert g.generated * PLAIN / g.world.clock > 0.97


def test_drafting_begins_again_when_an_exit_pays(play):
    g = play(lambda t: HARD if t < PROMPT + 1000 else 0.5 * CUT).run(3000)
    assert np.mean(g.drafted[2500:]) > 0.9


def test_what_is_known_carries_over_to_the_next_text(play):
    g = play(lambda t: CUT).run(400)
    found = g.auto.current.skip
    g.start()
    assert g.auto.current.skip == found
    assert g.run(100).auto.current.skip.exit_layer == pytest.approx(found.exit_layer, abs=1)


@pytest.mark.parametrize("length", [1, 8])
def test_a_given_length_decides_by_that_length(length):
    """A dear exit that is right more often pays for drafts of one token, a cheap one for long ones."""
    world, planner = World(lambda t: CUT), _testing.Planner(simulated_model(), directed=True)
    measured = EngineMeasured(lambda: planner)
    race, window = searches.exits(LAYERS, measured, world.prices, length), Window(0, 60, PROMPT + 100)
    for layer, found in zip(range(1, 9), world.exits(range(1, 9), window.tokens, window.end), strict=True):
        one = DraftConfig(DraftSpec.early_exit(layer))
        race._evidence.learn(one, window, found)
        cost = 1 + length * (world.price(one.skip) + measured.row)
        promise = sum(one.windows[0].matchness ** i for i in range(length + 1)) / cost
        assert one.promise == pytest.approx(promise)


# On a model


@pytest.fixture(scope="module")
def silent_from_3(tmp_path_factory):
    """A model that is sure of its tokens and whose layers from the fourth on add nothing: the exit after the third is
    always right."""
    folder = make_tiny(tmp_path_factory.mktemp("silent"), "llama3", layers=8, seed=3)
    tensors = read_folder(folder)
    factors = {f"model.layers.{layer}.{name}.weight": 0 for layer in range(3, 8) for name in LAST_OF_SUBLAYERS}
    for name, factor in {**factors, "lm_head.weight": 40}.items():
        old = tensors[name]
        tensors[name] = Tensor(old.dtype, encode(factor * values(old), old.dtype))
    for path in folder.glob("*.safetensors"):
        path.unlink()
    for _ in write_folder(folder, tensors, 1):
        pass
    return folder


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.9, "top_p": 0.9, "seed": 7}], ids=["greedy", "sampled"])
def test_generate_scores_exits_and_writes_the_same(silent_from_3, sampling):
    lm = swiftk.load(silent_from_3, threads=1)
    options = {"max_new_tokens": 300, "ignore_eos": True, **sampling}
    want = plain(lm, TEXT, **options)
    got = lm.generate(TEXT, assistant_early_exit="auto", speculate="always", **options)
    assert got.tokens == want.tokens
    exits = [turn.skip for turn in got.trace.rounds if turn.skip is not None]
    assert exits and all(skip.exit_layer is not None and not skip.attn and not skip.mlp for skip in exits)
    seen = {one.skip.exit_layer: one.matchness for one in got.trace.candidates}
    assert seen[3] > 0.95


def test_it_goes_with_a_given_length_and_without_kvq(silent_from_3):
    lm = swiftk.load(silent_from_3, threads=1)
    options = {"max_new_tokens": 120, "ignore_eos": True}
    want = plain(lm, TEXT, **options)
    how = {"assistant_early_exit": "auto", "speculate": "always", "kvq": False}
    rule = TreeRule(confidence=0.0, max_draft=4, width=(1,) * 4)
    assert lm.generate(TEXT, **how, gate=rule, **options).tokens == want.tokens
    assert lm.generate(TEXT, **how, num_speculative_tokens=2, **options).tokens == want.tokens


@pytest.mark.parametrize("other", [{"skip": [1]}, {"optimizer": None}, {"optimizer": "swift"}, {"skip": None}], ids=str)
def test_what_contradicts_it_is_named(silent_from_3, other):
    lm = swiftk.load(silent_from_3, threads=1)
    with pytest.raises(InvalidArgument, match=r"assistant_early_exit='auto'|optimizer='swift'"):
        lm.generate(TEXT, assistant_early_exit="auto", **other)


def test_another_word_is_refused(silent_from_3):
    lm = swiftk.load(silent_from_3, threads=1)
    with pytest.raises(TypeError, match=r"assistant_early_exit='best', want 'auto' or an integer"):
        lm.generate(TEXT, assistant_early_exit="best")
