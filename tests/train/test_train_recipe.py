"""LayerSkip's formulas by hand, the settings of a run, and the model of the trainer against transformers."""

import json
import math

import numpy as np
import pytest

from swiftk.errors import CheckpointError, InvalidArgument
from swiftk.testing import FAMILIES, make_tiny
from swiftk.train.recipe import Recipe, learning_rate
from swiftk.train.settings import Settings

torch = pytest.importorskip("torch")
from swiftk.train import weights  # noqa: E402
from swiftk.train.model import Decoder  # noqa: E402
from swiftk.train.shape import read_shape  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


# The recipe. Five layers: D(l) = 2^(l/4) - 1.
RATES = [0.0, 2**0.25 - 1, 2**0.5 - 1, 2**0.75 - 1, 1.0]


def test_dropout_rates():
    constant = Recipe(layers=5, steps=9, p_max=0.4)
    assert constant.drop_rates(0) == pytest.approx([0.4 * d for d in RATES])
    assert constant.drop_rates(8) == constant.drop_rates(0)
    scratch = Recipe(layers=5, steps=9, p_max=0.4, schedule="exp")
    assert scratch.drop_rates(0) == [0.0] * 5
    assert scratch.drop_rates(4) == pytest.approx([0.4 * (2**0.5 - 1) * d for d in RATES])
    assert scratch.drop_rates(8) == pytest.approx([0.4 * d for d in RATES])


def test_exit_weights():
    """e(l) by hand: sums of 0..l are 0, 1, 3, 6; the last has 4 + 0.5 * 6."""
    recipe = Recipe(layers=5, steps=10, e_scale=0.5, curriculum="all")
    assert recipe.raw_weights() == [0.0, 0.5, 1.5, 3.0, 7.0]
    assert recipe.exit_weights(3) == pytest.approx([0.0, 0.5 / 12, 1.5 / 12, 3 / 12, 7 / 12])
    assert Recipe(layers=5, steps=10, e_scale=0.0).exit_weights(3) == [0, 0, 0, 0, 1]


def test_rotation():
    recipe = Recipe(layers=7, steps=20, curriculum="rotational", rotation=3)
    on = [[layer for layer, there in enumerate(recipe.enabled(t)) if there] for t in range(4)]
    assert on == [[0, 3, 6], [1, 4, 6], [2, 5, 6], [0, 3, 6]]
    assert sum(recipe.exit_weights(1)) == pytest.approx(1)


def test_gradual():
    """One more every T / 2L = 5 steps, from the last down; all of them by the middle."""
    recipe = Recipe(layers=4, steps=40, curriculum="gradual")
    assert [sum(recipe.enabled(t)) for t in (0, 4, 5, 9, 10, 14, 15, 39)] == [1, 1, 2, 2, 3, 3, 4, 4]
    assert recipe.enabled(5) == [False, False, True, True]


def test_learning_rate():
    rates = [learning_rate(t, 11, 2.0, warmup=4, end=0.1) for t in range(11)]
    assert rates[:4] == [0.5, 1.0, 1.5, 2.0]
    assert rates[4] == pytest.approx(2.0)
    assert rates[7] == pytest.approx(1.1)
    assert rates[10] == pytest.approx(0.2)


def test_layers_are_dropped_as_often_as_asked_per_sample():
    """Mean over 400 steps within five standard deviations, for each layer, and samples apart from each other."""
    recipe = Recipe(layers=5, steps=400, p_max=0.5)
    dropped = ~np.stack([recipe.kept(t, 7, 2, 16) for t in range(400)])  # [t, accumulate, L, batch]
    n = 400 * 2 * 16
    for layer, p in enumerate(recipe.drop_rates(0)):
        share = dropped[:, :, layer].mean()
        assert abs(share - p) <= 5 * math.sqrt(p * (1 - p) / n), f"layer {layer}"
    top = dropped[:, :, -1].reshape(-1, 16)
    assert len(set(top.sum(1))) > 4  # neither all nor none together
    assert abs(np.corrcoef(top[:, 0], top[:, 1])[0, 1]) < 5 / math.sqrt(len(top))
    assert (recipe.kept(3, 7, 2, 16) == recipe.kept(3, 7, 2, 16)).all()
    assert (recipe.kept(3, 7, 2, 16) != recipe.kept(4, 7, 2, 16)).any()


def test_settings_name_what_is_wrong():
    for wrong, message in [
        ({"p_max": 1.5}, "--p-max is 1.5, want 0 to 1"),
        ({"rotation": 0}, "--R is 0, want at least 1"),
        ({"curriculum": "x"}, "--curriculum is 'x', want one of rotational, gradual, all"),
    ]:
        with pytest.raises(InvalidArgument, match=message):
            Settings(**wrong)
    with pytest.raises(InvalidArgument, match="'p_min' is no setting"):
        Settings.from_dict({"p_min": 1})
    assert Settings.from_dict(json.loads(json.dumps(Settings(p_max=0.3).to_dict()))) == Settings(p_max=0.3)


# The model.
def opened(folder, context=16, **options):
    model = Decoder(read_shape(folder, context), **options)
    weights.load(model, folder)
    return model


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_logits_agree_with_transformers(family, tiny_dir):
    transformers = pytest.importorskip("transformers")
    folder = tiny_dir(family, dtype="float32")
    ids = torch.tensor(np.random.default_rng(1).integers(3, 300, (2, 16)))
    want = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()(ids).logits
    model = opened(folder)
    (last,) = model.exits(ids, [False] * (model.shape.L - 1) + [True])
    assert (model.head(last) - want).abs().max() < 2e-5 * want.std()


def by_hand(model, ids, exit, runs):
    """Cross entropy of an exit, sample by sample: the layers it runs, the final norm, the head, float64 softmax."""
    total = 0.0
    for sample, row in zip(ids, runs):
        x = model.model.embed_tokens(sample[None, :-1])
        for layer in [layer for layer in range(exit + 1) if row[layer]]:
            x = model.model.layers[layer](x, model.rotary[0](torch.arange(x.shape[1])))
        logits = model.head(x)[0].double()
        total += -(logits.log_softmax(-1)[torch.arange(len(logits)), sample[1:]]).mean().item()
    return total / len(ids)


@torch.no_grad()
def test_losses_with_dropped_layers(tiny_dir):
    """Each sample passes the layers it drops unchanged, and nothing is rescaled."""
    model = opened(tiny_dir("llama3", dtype="float32", layers=4))
    ids = torch.tensor(np.random.default_rng(2).integers(3, 300, (3, 12)))
    kept = np.array([[1, 1, 1], [0, 1, 1], [0, 0, 0], [1, 0, 1]], bool)  # [L, batch]
    found = model.losses(ids, [True, False, True, True], kept)
    want = [by_hand(model, ids, exit, kept.T) for exit in (0, 2, 3)]
    assert found.tolist() == pytest.approx(want, rel=1e-5)
    assert model.losses(ids, [False, False, False, True]).item() == pytest.approx(
        by_hand(model, ids, 3, np.ones((3, 4), bool)), rel=1e-5
    )


def test_recomputing_changes_no_gradient(tiny_dir):
    folder = tiny_dir("llama3", dtype="float32", layers=3)
    ids = torch.tensor(np.random.default_rng(2).integers(3, 300, (3, 12)))
    kept = np.array([[1, 1, 1], [0, 1, 1], [1, 0, 1]], bool)
    found = []
    for recompute in (False, True):
        model = opened(folder, recompute=recompute)
        model.losses(ids, [True, True, True], kept).sum().backward()
        found.append([p.grad for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found))


def test_context_beyond_what_is_implemented(tiny_dir):
    with pytest.raises(InvalidArgument, match="--context is 17, want at most 16"):
        read_shape(tiny_dir("mistral"), 17)
    with pytest.raises(InvalidArgument, match="--context is 129, want at most 128"):
        read_shape(tiny_dir("llama-dynamic"), 129)
    assert read_shape(tiny_dir("qwen2"), 64).L == 3  # its window is off


def test_a_checkpoint_that_does_not_fit(tmp_path):
    folder = make_tiny(tmp_path, "llama3", layers=2)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 3}))
    with pytest.raises(CheckpointError, match=r"has no tensor model\.layers\.2\."):
        opened(folder)
    (folder / "config.json").write_text(json.dumps({**config, "intermediate_size": 90}))
    with pytest.raises(CheckpointError, match=r"mlp\.\w+\.weight has shape \[.*\], want \["):
        opened(folder)
    biased = make_tiny(tmp_path / "biased", "llama-bias", layers=2)
    config = json.loads((biased / "config.json").read_text())
    (biased / "config.json").write_text(json.dumps({**config, "attention_bias": False}))
    with pytest.raises(CheckpointError, match=r"has a tensor model\.layers\.0\.self_attn\.\w_proj\.bias"):
        opened(biased)
