"""Draft models: whatever they say, the text is plain decoding's; and what they say is theirs."""

import json

import numpy as np
import pytest

import swiftk
from decode import TOUCHED
from heads import FORMATS, make_block, make_moa
from marks import exhaustive
from swiftk import TreeRule, _core
from swiftk.files.grow import grow
from swiftk.testing import make_tiny

pytestmark = pytest.mark.skipif("config.getoption('device') != 'cpu'", reason="on a GPU: test_stub_drafters.py")

PROMPTS = ([5, 9, 17, 33], [7] * 70, [300, 2, 11, 11, 250, 31, 90])
GREEDY, SAMPLED = {"temperature": 0.0}, {"temperature": 1.0, "top_p": 0.9, **TOUCHED}
CHAIN = TreeRule(confidence=0.0, max_draft=6, width=(1, 1, 1, 1))
WIDE = TreeRule(confidence=0.0, max_draft=4, width=(5, 4, 3, 2))


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("target"), "qwen3", "float32", layers=4)


@pytest.fixture(scope="module")
def folders(tmp_path_factory, target):
    """By name: random block heads of every format; a model of another shape; and one with a larger vocabulary."""
    base = tmp_path_factory.mktemp("drafters")
    found = {form: make_block(base / form, target, form) for form in FORMATS}
    found["few"] = make_block(base / "few", target, "dspark", draft_vocab=100)
    found["few-dflash"] = make_block(base / "few-dflash", target, "dflash", draft_vocab=77)
    found["model"] = make_tiny(base / "model", "llama2", "float32", seed=3, layers=2, hidden_size=32)
    found |= {f"moa-{last}": make_moa(base / f"moa-{last}", target, last) for last in (0, 1, 3)}
    found["padded"] = make_tiny(base / "padded", "llama2", "float32", seed=4, layers=2, vocab=352, tokenizer=False)
    return found


def kind(name):
    return "block" if name in FORMATS or "few" in name else "moa" if name.startswith("moa") else "model"


def opened(target, folder, **options):
    return swiftk.load(target, device="cpu", dtype="float32", drafter=folder, draft_weights="own", **options)


NAMES = (*FORMATS, "few", "few-dflash", "moa-0", "moa-1", "moa-3", "model", "padded")
QUICK = ["dspark", "few", "moa-1", "padded"]


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("name", QUICK + exhaustive(*(name for name in NAMES if name not in QUICK)))
def test_texts_are_plain_decodings(target, folders, name, sampling):
    lm = opened(target, folders[name])
    options = {"max_new_tokens": 40, "ignore_eos": True, "seed": 3, **sampling}
    plain = lm.generate_many(PROMPTS, speculate=False, **options)
    ways = [
        {"drafter": kind(name), "speculate": "always"},
        {"drafter": kind(name)},
        {"skip": "drafter", "gate": CHAIN, "speculate": "always", "drafter": "plan"},
        {"skip": "drafter", "gate": WIDE, "speculate": "always", "drafter": "plan"},
        {"speculate": "always"},
    ]
    for way in ways:
        together = lm.generate_many(PROMPTS, **options, **way)
        alone = [lm.generate(prompt, **options, **way) for prompt in PROMPTS]
        for one, other, want in zip(together, alone, plain, strict=True):
            assert one.tokens == want.tokens == other.tokens
    assert together[0].stats.num_draft_tokens > 0


@pytest.mark.parametrize("name", ["dspark", "moa-1", "model"])
def test_rejection_keeps_the_papers_rule(target, folders, name):
    lm = opened(target, folders[name])
    options = {"max_new_tokens": 30, "ignore_eos": True, "temperature": 1.0, "acceptance": "rejection", "seed": 1}
    way = {"skip": "drafter", "gate": CHAIN, "speculate": "always", "drafter": "plan", "recall": False}
    first, again = (lm.generate(PROMPTS[0], **options, **way) for _ in range(2))
    assert first.tokens == again.tokens and first.stats.num_draft_tokens > 0


def test_a_model_that_drafts_for_itself_is_always_right(target):
    lm = opened(target, target)
    for sampling in (GREEDY, {"temperature": 1.0}):
        r = lm.generate(PROMPTS[1], max_new_tokens=29, ignore_eos=True, seed=2, skip="drafter", gate=CHAIN,
                        speculate="always", drafter="plan", **sampling)  # fmt: skip
        assert r.stats.num_accepted_draft_tokens == r.stats.num_draft_tokens
        assert r.stats.mean_generated_length == 7


def test_a_model_in_fewer_bits_drafts_for_less(target):
    """A draft reads the copy: it is not always right, as the model itself would be. The text is the same."""
    options = {"max_new_tokens": 150, "ignore_eos": True, "temperature": 1.0, "seed": 5}
    own = opened(target, target)
    plain = own.generate(PROMPTS[2], speculate=False, **options)
    for form in ("int8", "int4", ("int4", "int8")):
        lm = swiftk.load(target, device="cpu", dtype="float32", drafter=target, draft_weights=form)
        found = lm.generate(PROMPTS[2], skip="drafter", gate=CHAIN, drafter="plan", speculate="always", **options)
        assert found.tokens == plain.tokens
        assert 0.3 * found.stats.num_draft_tokens < found.stats.num_accepted_draft_tokens
        if form == "int4":
            assert found.stats.num_accepted_draft_tokens < found.stats.num_draft_tokens
        assert own.model.drafter_bytes < lm.model.drafter_bytes < 1.5 * own.model.drafter_bytes


def test_features_are_those_that_training_reads(target, folders):
    model = _core.Model(str(target), dtype="float32", drafters=[str(folders["dspark"])])
    session = _core.Session(model, poison=True)
    session.set_skip(_core.DraftSpec([], [], -1, ["drafter"]))
    tokens = [session.prefill(np.int32(PROMPTS[1])).token]
    while len(tokens) < 30:
        session.draft(_core.TreeRule(confidence=0.0, max_draft=4, width=(3, 3, 2, 2)))
        tokens += [e.token for e in session.verify()]
        session.commit(len(session.verify()))
    text = session.history
    features, _ = _core.Taps(model, [0, 2], len(text)).read(text.tolist())
    assert session.features.shape == (len(text) - 1, 2 * 64)
    assert session.features.tobytes() == features[:-1].tobytes()


def test_a_text_that_takes_a_prefix_over_drafts_as_well(target, folders):
    prompt = list(range(3, 150))
    way = {"skip": "drafter", "gate": CHAIN, "speculate": "always", "drafter": "plan"}
    options = {"max_new_tokens": 20, "ignore_eos": True, **GREEDY, **way}
    lm = opened(target, folders["dspark"])
    first = lm.generate(prompt, **options)
    again = lm.generate(prompt, **options)
    assert again.tokens == first.tokens and again.stats.cached_prompt_tokens > 100
    assert again.stats.num_draft_tokens == first.stats.num_draft_tokens
    assert again.stats.num_accepted_draft_tokens == first.stats.num_accepted_draft_tokens


def torch_logits(folder, target, features, tokens, anchor):
    """[slots, V] of one block, by the module that is trained, in float64."""
    torch = pytest.importorskip("torch")
    from swiftk.files.safetensors_io import decode, read_folder
    from swiftk.train.block import BlockDrafter
    from swiftk.train.shape import Rope, Shape

    c = json.loads((folder / "config.json").read_text())
    inner = c["transformer_layer_config"]
    d = inner["head_dim"]
    shape = Shape(L=2, D=64, H=3, n_kv=1, d=d, F=inner["intermediate_size"], V=inner["vocab_size"], eps=1e-5, tied=True,
                  qkv_bias=False, o_bias=False, mlp_bias=False, qk_norm=True,
                  ropes=(Rope(tuple(1e4 ** (-2 * i / d) for i in range(d // 2))),))  # fmt: skip
    stored = {name: torch.from_numpy(decode(t).copy()) for name, t in read_folder(folder).items()}
    ids = stored["d2t"].long() + torch.arange(len(stored["d2t"])) if "d2t" in stored else None
    drafter = BlockDrafter(shape, 2, 2, c["block_size"], c.get("markov_rank", 0), c["mask_token_id"], ids,
                           c.get("enable_confidence_head", False))  # fmt: skip
    drafter.load_state_dict(stored)
    weights = read_folder(target)
    embedding = torch.from_numpy(decode(weights["model.embed_tokens.weight"]).copy())
    with torch.no_grad():
        there, text = torch.tensor([[anchor]]), torch.tensor([tokens])
        logits, sure = drafter(
            torch.from_numpy(features)[None], text, there, embedding, lambda states: states @ embedding.T
        )
        sure = sure.sigmoid()[0, 0].numpy()
    return logits[0, 0].numpy(), np.arange(shape.V) if ids is None else ids.numpy(), sure


@pytest.mark.parametrize("name", ["dspark", "few"])
def test_a_block_says_what_the_trained_module_says(target, folders, name):
    """Chains of the best tokens, by an independent implementation."""
    model = _core.Model(str(target), dtype="float32", drafters=[str(folders[name])])
    session = _core.Session(model)
    session.set_skip(_core.DraftSpec([], [], -1, ["drafter"]))
    session.prefill(np.int32(PROMPTS[2]))
    for _ in range(6):
        session.draft(_core.TreeRule(confidence=0.0, max_draft=5, width=(1, 1, 1, 1)))
        text, drafted = session.history.tolist(), session.tree_tokens[1:].tolist()
        assert len(drafted) == 5
        hidden = np.full((7, 128), 1e9, np.float32)  # the module may not see these
        features = np.concatenate([session.features, hidden])
        logits, ids, sure = torch_logits(folders[name], target, features, [*text, *drafted, 0, 0], len(text) - 2)
        assert ids[logits.argmax(-1)].tolist() == drafted
        session.commit(len(session.verify()))
        received = [confidence for confidence, _ in session.outcomes]
        assert received == pytest.approx(sure[: len(received)].tolist(), rel=1e-4)


def test_it_foretells_from_states_alone_or_not_at_all(tmp_path, target):
    """Without the token before, and without a confidence head: then the probability of its best token counts."""
    received = {}
    for name, changes in (
        ("states", {"confidence_head_with_markov": False}),
        ("none", {"enable_confidence_head": False}),
    ):
        folder = make_block(tmp_path / name, target, changes=changes)
        session = _core.Session(_core.Model(str(target), dtype="float32", drafters=[str(folder)]))
        session.set_skip(_core.DraftSpec([], [], -1, ["drafter"]))
        session.prefill(np.int32(PROMPTS[2]))
        found = []
        for _ in range(8):
            session.draft(_core.TreeRule(confidence=0.0, max_draft=5, width=(1, 1, 1, 1)))
            root = int(session.tree_tokens[0])
            session.commit(len(session.verify()))
            found.append((root, session.outcomes[0][0]))
        received[name] = found
    assert [root for root, _ in received["states"]] == [root for root, _ in received["none"]]
    assert received["states"] != received["none"]
    assert all(0 < confidence < 1 for _, confidence in received["states"] + received["none"])


@pytest.mark.parametrize("k", [2, 3])
def test_a_block_grows_with_its_model(tmp_path, target, folders, k):
    """It proposes the same, and is as sure of it."""
    found = []
    for size in (1, k):
        model, head = grow(target, tmp_path / f"{size}", size), grow(folders["dspark"], tmp_path / f"head-{size}", size)
        session = _core.Session(_core.Model(str(model), dtype="float32", drafters=[str(head)]))
        session.set_skip(_core.DraftSpec([], [], -1, ["drafter"]))
        session.prefill(np.int32(PROMPTS[2]))
        session.draft(_core.TreeRule(confidence=0.0, max_draft=5, width=(1, 1, 1, 1)))
        tokens = session.tree_tokens.tolist()
        session.verify()
        found.append((tokens, [confidence for confidence, _ in session.outcomes]))
    (small, sure), (large, as_sure) = found
    assert small == large
    assert sure == pytest.approx(as_sure, rel=1e-3)


@exhaustive
def test_every_format_at_length(target, folders):
    for name in NAMES:
        lm = opened(target, folders[name], context=400)
        options = {"max_new_tokens": 300, "ignore_eos": True, **GREEDY}
        plain = lm.generate(PROMPTS[0], speculate=False, **options)
        assert lm.generate(PROMPTS[0], drafter=kind(name), **options).tokens == plain.tokens


class TestWhatDoesNotFit:
    """Errors name both sides."""

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"block_size": 1}, "block_size is 1"),
            ({"block_size": 100}, "block_size is 100, want at most 64"),
            ({"mask_token_id": 4000}, "mask_token_id is 4000, the model has tokens 0..319"),
            ({"aux_hidden_state_layer_ids": [1, 5]}, "want layers of the model, 1..4 ascending"),
            ({"aux_hidden_state_layer_ids": [3, 1]}, "ascending"),
            ({"markov_head_type": "gated"}, "markov_head_type='gated' is not supported"),
            ({"draft_vocab_size": 100}, r"draft_vocab_size .there is no tensor d2t. is 100 in the draft model and"),
            ({"draft_vocab_size": 400}, "draft_vocab_size is 400, the model has 320 tokens"),
            ({"confidence_head_with_markov": False}, r"weight has shape .1, 72., the config wants .1, 64."),
            ({"speculators_model_type": "mlp"}, "of a head of another kind"),
        ],
    )  # fmt: skip
    def test_heads(self, tmp_path, target, changes, words):
        folder = make_block(tmp_path / "head", target)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))
        with pytest.raises(swiftk.SwiftkError, match=words):
            opened(target, folder)

    def test_hidden_size(self, tmp_path, target):
        other = make_tiny(tmp_path / "other", "llama2", "float32", hidden_size=48, layers=4)
        with pytest.raises(swiftk.UnsupportedModel, match="hidden_size is 48 in the draft model and 64 in the model"):
            opened(target, make_block(tmp_path / "head", other))

    def test_another_vocabulary(self, tmp_path, target):
        from swiftk.text.bpe import write_bpe

        other = make_tiny(tmp_path / "other", "llama2", "float32", layers=1)
        write_bpe(other, ["zebra zebra quagga quagga zyzzyva " * 9], 320, "")
        with pytest.raises(swiftk.UnsupportedModel, match="vocabulary is another"):
            opened(target, other)

    def test_a_folder_that_is_not_there(self, tmp_path, target):
        with pytest.raises(swiftk.CheckpointError, match="is not a directory"):
            opened(target, tmp_path / "none")
        with pytest.raises(swiftk.InvalidOption, match="want the path"):
            opened(target, 5)

    def test_a_drafter_that_is_not_loaded(self, target, folders):
        lm = swiftk.load(target, device="cpu", draft_weights="own")
        with pytest.raises(swiftk.InvalidArgument, match="drafter='block', the model has none"):
            lm.generate([5], drafter="block")
        with pytest.raises(swiftk.InvalidArgument, match="drafter=FOLDER"):
            lm.generate([5], skip="drafter")
        with pytest.raises(swiftk.InvalidArgument, match="the model has block"):
            opened(target, folders["dspark"]).generate([5], drafter="model")
