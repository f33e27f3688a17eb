"""score(): outcomes of a candidate on any stretch of the text, in pieces as at once, and nothing else changes."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import reference
from decode import decode, open_model, open_session
from swiftk import _core
from swiftk.errors import InvalidArgument
from swiftk.files.safetensors_io import read_folder, write_folder

LAYERS = 4
PROMPT = [5, 9, 2, 7, 7, 1, 30, 12, 4, 8, 21]
UNIFORM = ((1,), (1, 2), -1)
SKIPS = [UNIFORM, ((), (3,), -1), ((0,), (), -1), ((), (), 2), ((), (), 0)]
RANKS = 10
SAMPLED = {"temperature": 1.1, "seed": 5}


@pytest.fixture
def model(tiny_model):
    return tiny_model("llama3", layers=LAYERS, threads=1)


def after(model, n, sampling=None):
    session = open_session(model, sampling=sampling)
    decode(session, PROMPT, n)
    return session


def continued(session, n=8):
    """Tokens and logits of plain decoding from here."""
    out = []
    for _ in range(n):
        session.draft(_core.TreeRule(max_draft=0))
        token = session.verify()[0].token
        out.append((token, session.logits[0].tobytes()))
        session.commit(1)
    return out


def alike(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a[:2], b[:2], strict=True))


@pytest.mark.parametrize("skip", SKIPS, ids=str)
@pytest.mark.parametrize("sampling", [{}, SAMPLED], ids=["greedy", "sampled"])
def test_text_cache_and_what_follows_stay_as_they_are(model, skip, sampling):
    untouched, session = after(model, 90, sampling), after(model, 90, sampling)
    history = session.history.tolist()
    for window, end in ((15, -1), (100, -1), (63, 70), (1, 1), (200, 99)):
        confidence, rank, seconds = session.score(_core.DraftSpec(*skip), window=window, end=end)
        assert len(confidence) == len(rank) == min(window, 100 if end < 0 else end)
        assert seconds > 0
        assert session.last["score"] == seconds
    assert session.history.tolist() == history
    assert continued(session) == continued(untouched)


def test_the_target_is_right_about_itself(model):
    for sampling in ({}, SAMPLED):
        session = after(model, 80, sampling)
        _, rank, _ = session.score(_core.DraftSpec([], []), window=79)  # all that was generated
        assert rank.tolist() == [0] * 79


def test_under_rejection_candidates_rank_without_noise(model):
    """The text was drawn with noise that no score can know: a rank is that of the token among the logits."""
    session, probe = open_session(model), open_session(model)
    session.set_sampling(_core.Sampling(temperature=1.0, seed=3), "rejection")
    text = [*PROMPT, session.prefill(np.int32(PROMPT)).token]
    while len(text) < 90:
        session.draft(_core.TreeRule(max_draft=0))
        text += [session.verify()[0].token]
        session.commit(1)
    _, rank, _ = session.score(_core.DraftSpec([], []), window=70)
    for r, end in zip(rank[::7], range(len(text) - 71, len(text) - 1, 7)):
        probe.prefill(np.int32(text[: end + 1]))
        order = np.argsort(-probe.logits[0], kind="stable")[:RANKS].tolist()
        assert r == (order.index(text[end + 1]) if text[end + 1] in order else -1)
    assert 0 < np.mean(rank == 0) < 1


def test_a_draft_is_as_right_as_it_is_when_it_drafts(model):
    """One row at a time: the draft's own candidates after the same text."""
    session = after(model, 40)
    session.set_skip(_core.DraftSpec(*UNIFORM))
    before = session.history.tolist()
    session.draft(_core.TreeRule(confidence=0.0, max_draft=1, width=(RANKS,) * 4))
    candidates = session.tree_tokens[1:].tolist()
    session.verify()
    assert len(candidates) == RANKS
    probe = open_session(model)
    probe.prefill(np.asarray([*before, candidates[0]], np.int32))
    own, ranks, _ = probe.score(_core.DraftSpec(*UNIFORM), window=1, end=len(before))
    assert ranks.tolist() == [0]
    assert own[0] == session.outcomes[0][0]
    for i in (1, 5, 9):
        probe.prefill(np.asarray([*before, candidates[i]], np.int32))
        assert probe.score(_core.DraftSpec(*UNIFORM), window=1, end=len(before))[1].tolist() == [i]


@pytest.mark.parametrize("sampling", [{}, SAMPLED], ids=["greedy", "sampled"])
def test_outcomes_are_those_of_the_candidates_logits(model, sampling):
    session = after(model, 50, sampling)
    history, window, end = session.history.tolist(), 20, 45
    confidence, rank, _ = session.score(_core.DraftSpec(*UNIFORM), window=window, end=end)
    logits = session.logits
    assert len(logits) == window
    for i, position in enumerate(range(end - window + 1, end + 1)):
        noise = reference.gumbel(sampling["seed"], position, logits.shape[1], 0)[None] if sampling else None
        scale = 1 / sampling["temperature"] if sampling else 1.0
        ids, best, lse, _ = reference.topk(logits[i : i + 1], RANKS, scale=scale, noise=noise)
        assert confidence[i] == pytest.approx(np.exp(best[0, 0] - lse[0]), rel=1e-5)
        found = ids[0].tolist()
        assert rank[i] == (found.index(history[position]) if history[position] in found else -1)


def in_pieces(session, skip, window, end):
    """Each piece of 63 rows sees the target's keys and values before it."""
    pieces, first = [], end - window
    while first < end:
        n = min(63, end - first)
        pieces.append(session.score(skip, window=n, end=first + n))
        first += n
    return [np.concatenate([piece[i] for piece in pieces]) for i in (0, 1)]


@pytest.fixture
def without_layer(tiny_dir, tmp_path):
    """The model that a draft is which skips layer 1."""
    folder, tensors = Path(tiny_dir("llama3", layers=LAYERS)), {}
    for name, tensor in read_folder(folder).items():
        layer = re.search(r"layers\.(\d+)\.", name)
        if layer and int(layer[1]) == 1:
            continue
        number = int(layer[1]) if layer else 0
        tensors[name.replace(f"layers.{number}.", f"layers.{number - (number > 1)}.") if layer else name] = tensor
    list(write_folder(tmp_path, tensors))
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": LAYERS - 1}))
    return open_model(tmp_path, threads=1)


@pytest.mark.parametrize("end", [155, 64, 129])
def test_a_long_window_has_the_candidates_own_keys_and_values(model, without_layer, end):
    """Over all of a text a draft is a model of its own, bit for bit."""
    session, probe = after(model, 150), open_session(without_layer)
    text = session.history
    confidence, rank, _ = session.score(_core.DraftSpec([1], [1]), window=end, end=end)
    for i in range(end):
        probe.prefill(text[: i + 1].astype(np.int32))
        ids, best, lse, _ = reference.topk(probe.logits[:1], RANKS)
        assert confidence[i] == pytest.approx(np.exp(best[0, 0] - lse[0]), rel=1e-5)
        found = ids[0].tolist()
        assert rank[i] == (found.index(text[i + 1]) if text[i + 1] in found else -1)


@pytest.mark.parametrize("skip", SKIPS, ids=str)
@pytest.mark.parametrize("window", [63, 64, 100, 150])
def test_a_long_window_begins_as_a_short_one(model, skip, window):
    """Its first 63 rows are those of a window that ends with them. Exits have the target's keys and values."""
    session = after(model, 150)
    spec = _core.DraftSpec(*skip)
    whole, pieces = session.score(spec, window=window, end=155), in_pieces(session, spec, window, 155)
    assert alike([part[:63] for part in whole[:2]], [part[:63] for part in pieces])
    exact = window == 63 or spec.exit_layer >= 0 or spec.mlp == [3]
    assert alike(whole, pieces) == exact


def test_where_there_is_no_room_for_them_a_window_is_its_pieces(model):
    session = open_session(model, context=160)
    decode(session, PROMPT, 148)
    for end in (158, 120):
        whole = session.score(_core.DraftSpec(*UNIFORM), window=100, end=end)
        assert alike(whole, in_pieces(session, _core.DraftSpec(*UNIFORM), 100, end))


def test_an_end_is_where_the_text_ended_once(model):
    """A window back in the text says what it said when the text ended there."""
    session = after(model, 30)
    then = session.score(_core.DraftSpec(*UNIFORM), window=20)
    position = len(session.history) - 1
    continued(session, 40)
    assert alike(session.score(_core.DraftSpec(*UNIFORM), window=20, end=position), then)


def test_a_window_longer_than_the_text_is_all_of_it(model):
    session = after(model, 5)
    cached = len(session.history) - 1
    assert len(session.score(_core.DraftSpec(*UNIFORM), window=10**6)[1]) == cached
    assert len(session.score(_core.DraftSpec(*UNIFORM), window=7, end=3)[1]) == 3
    assert len(session.score(_core.DraftSpec(*UNIFORM), window=7, end=0)[1]) == 0


def test_a_draft_under_way_is_forgotten(model):
    session = after(model, 20)
    session.set_skip(_core.DraftSpec(*UNIFORM))
    session.draft(_core.TreeRule(max_draft=3))
    session.score(_core.DraftSpec(*UNIFORM), window=4)
    with pytest.raises(InvalidArgument, match="there is no tree"):
        session.verify()
    assert len(continued(session, 2)) == 2


@pytest.mark.parametrize(
    ("window", "end", "field"), [(0, -1, "window"), (-3, 5, "window"), (5, 31, "end"), (1, 99, "end")]
)
def test_bad_windows_are_named(model, window, end, field):
    session = after(model, 20)  # 30 cached tokens
    with pytest.raises(InvalidArgument, match=rf"\[score\] {field} is {window if field == 'window' else end}, want"):
        session.score(_core.DraftSpec(*UNIFORM), window=window, end=end)
    assert len(session.score(_core.DraftSpec(*UNIFORM), window=30, end=30)[1]) == 30


def test_layers_that_do_not_exist_are_refused(model):
    session = after(model, 20)
    for skip in (((LAYERS,), (), -1), ((), (-1,), -1), ((), (), LAYERS + 1)):
        with pytest.raises(InvalidArgument):
            session.score(_core.DraftSpec(*skip), window=4)
    assert len(continued(session, 2)) == 2
