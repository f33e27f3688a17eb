"""propose_skips(): the sets that dynamic programming over sublayers gives, found once more through score()'s logits."""

import functools

import numpy as np
import pytest

from decode import decode, open_model, open_session
from swiftk import _core
from swiftk.errors import InvalidArgument
from swiftk.files.safetensors_io import Tensor, read_folder, write_folder
from swiftk.files.safetensors_io import decode as values
from swiftk.testing import make_tiny

PROMPT = [5, 9, 2, 7, 7, 1, 30, 12, 4, 8, 21]


def numbered(sets):
    """Sets of sublayers: attention of layer i is 2 i, its MLP 2 i + 1."""
    return [{2 * i for i in attn} | {2 * i + 1 for i in mlp} for attn, mlp in sets]


def after(model, n=20):
    session = open_session(model)
    decode(session, PROMPT, n)
    return session


def planted(folder, zero, layers=7, seed=0):
    """A model in which the sublayers `zero` add nothing to the residual stream."""
    make_tiny(folder, "llama3", layers=layers, seed=seed)
    tensors = read_folder(folder)
    for s in zero:
        name = f"model.layers.{s // 2}." + ("mlp.down_proj.weight" if s % 2 else "self_attn.o_proj.weight")
        old = tensors[name]
        tensors[name] = Tensor(old.dtype, np.zeros_like(old.bits))
    for path in folder.glob("*.safetensors"):
        path.unlink()
    for _ in write_folder(folder, tensors, 1):
        pass
    return open_model(folder, threads=1)


@pytest.mark.parametrize("layers", [3, 4, 8])
@pytest.mark.parametrize("most", [1, 5, 63])
def test_a_set_of_every_size_that_spares_the_first_and_the_last_layer(tiny_model, layers, most):
    session = after(tiny_model("llama3", layers=layers, threads=1))
    sets = numbered(session.propose_skips(most))
    assert [len(one) for one in sets] == list(range(1, min(most, 2 * (layers - 2)) + 1))
    inner = set(range(2, 2 * layers - 2))
    assert all(one <= inner for one in sets)
    assert most < len(inner) or sets[-1] == inner


@pytest.mark.parametrize("zero", [{2}, {11}, {4, 5}, {3, 6, 8}, {2, 3, 5, 9, 10, 11}], ids=str)
def test_sublayers_that_do_nothing_go_first(tmp_path, zero):
    sets = numbered(after(planted(tmp_path, zero)).propose_skips(10))
    for n, one in enumerate(sets[: len(zero)], 1):
        assert one <= zero and len(one) == n
    assert sets[len(zero) - 1] == zero
    assert all(one & zero for one in sets[len(zero) :])


def test_idle_sublayers_of_the_first_and_the_last_layer_stay(tmp_path):
    sets = numbered(after(planted(tmp_path, {0, 1, 6, 12, 13})).propose_skips(3))
    assert sets[0] == {6}
    assert all(not one & {0, 1, 12, 13} for one in sets)


class Stream:
    """Directions of the residual stream after any steps, solved from the logits of a candidate that ends there."""

    def __init__(self, folder, model, layers):
        self.session, self.layers = after(model), layers
        tensors = read_folder(folder)
        self.norm = values(tensors["model.norm.weight"]).astype(np.float64)
        self.inverse = np.linalg.pinv(values(tensors["lm_head.weight"]).astype(np.float64))
        self.at = functools.cache(self._at)

    def _at(self, skipped, step):
        """After sublayer `step`, with `skipped` left out."""
        out = [*skipped, *([step + 1] if step % 2 == 0 else [])]
        attn, mlp = [s // 2 for s in out if s % 2 == 0], [s // 2 for s in out if s % 2]
        self.session.score(_core.DraftSpec(attn, mlp, step // 2 + 1), window=1)
        x = self.inverse @ self.session.logits[0].astype(np.float64) / self.norm
        return x / np.linalg.norm(x)


def programmed(stream, most):
    """(sets of CLaSp's recursion, smallest difference of cosines that decided one)."""
    best, closest = {0: ()}, 1.0
    for step in range(2, 2 * stream.layers - 2):
        target, now = stream.at((), step), {0: ()}
        for count in range(1, min(most, len(best)) + 1):
            skip = (*best[count - 1], step)
            if count not in best:
                now[count] = skip
                continue
            gain = float((stream.at(skip, step) - stream.at(best[count], step)) @ target)
            closest = min(closest, abs(gain))
            now[count] = skip if gain > 0 else best[count]
        best = now
    return [set(best[count]) for count in range(1, len(best))], closest


@pytest.mark.parametrize("seed", range(6))
def test_sets_are_those_of_the_recursion(tmp_path, seed):
    layers = 6
    folder = make_tiny(tmp_path, "llama3", layers=layers, seed=seed, dtype="float32")
    model = open_model(folder, threads=1)
    want, closest = programmed(Stream(folder, model, layers), 8)
    assert closest > 1e-5, "two cosines are too close for this test's arithmetic: another seed"
    assert numbered(after(model).propose_skips(8)) == want


def test_text_cache_and_what_follows_stay_as_they_are(tiny_model):
    model = tiny_model("llama3", layers=6, threads=1)
    truth = decode(open_session(model), PROMPT, 40).tokens
    session = after(model)
    got = session.history.tolist()[len(PROMPT) :]
    first = session.propose_skips(8)
    assert session.last["score"] > 0
    assert session.propose_skips(8) == first
    assert session.history.tolist() == PROMPT + got
    while len(got) < 40:
        session.draft(_core.TreeRule(max_draft=0))
        got += [e.token for e in session.verify()]
        session.commit(1)
    assert got == truth


@pytest.mark.parametrize("cached", [1, 5, 500])
def test_nothing_is_read_that_was_not_written(tiny_model, cached):
    """What scratch memory held before changes no set."""
    model = tiny_model("llama3", layers=6, threads=1)
    tokens = np.random.default_rng(cached).integers(0, 300, cached).astype(np.int32)
    sets = []
    for poison in (True, False):
        session = _core.Session(model, poison=poison)
        session.prefill(tokens)
        if not poison:
            decode(session, PROMPT, 30)
            session.prefill(tokens)
        sets.append(session.propose_skips(63))
    assert sets[0] == sets[1]


def test_a_small_context_has_room_for_all_rows(tiny_model):
    model = tiny_model("llama3", layers=6, threads=1)
    session = _core.Session(model, context=len(PROMPT) + 1, poison=True)
    session.prefill(np.asarray(PROMPT, np.int32))
    assert session.propose_skips(63) == after(model, 1).propose_skips(63)


@pytest.mark.parametrize("most", [0, -1, 64, 1000])
def test_a_bad_count_is_named(tiny_model, most):
    session = after(tiny_model("llama3", threads=1))
    with pytest.raises(InvalidArgument, match=rf"\[propose\] most is {most} .*want 1\.\.63"):
        session.propose_skips(most)
    assert session.propose_skips(1)


def test_a_text_is_needed(tiny_model):
    session = open_session(tiny_model("llama3", threads=1))
    with pytest.raises(InvalidArgument, match=r"\[propose\] .*0 cached tokens, want .* one token"):
        session.propose_skips(4)


@pytest.mark.parametrize("layers", [1, 2])
def test_models_without_inner_layers_have_nothing_to_skip(tiny_model, layers):
    assert after(tiny_model("llama3", layers=layers, threads=1)).propose_skips(4) == []
