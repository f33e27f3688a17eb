"""Heads in vLLM's formats, beside vLLM's own package of them (pip install speculators; without it nothing here runs):
the same files, the same states, the same chains of best tokens."""

import json

import numpy as np
import pytest

from heads import make_block, make_eagle
from swiftk import _core
from swiftk.files.safetensors_io import decode, read_folder
from swiftk.testing import make_tiny

pytest.importorskip("speculators")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif("config.getoption('device') != 'cpu'", reason="their side runs on the CPU")

PROMPT, ROUNDS, UNSEEN = [300, 2, 11, 11, 250, 31, 90], 12, 7.0


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("target"), "qwen3", "float32", layers=8)


def tensors(folder):
    stored, kept = read_folder(folder), ("I64", "BOOL")
    return {n: torch.from_numpy(np.array(t.bits if t.dtype in kept else decode(t))) for n, t in stored.items()}


def theirs(model_class, config_class, folder, target, **facts):
    """Their module of a folder's weights, what it shares with the model filled in; and the model's id of each of its
    tokens."""
    from transformers import LlamaConfig, Qwen3Config

    config = json.loads((folder / "config.json").read_text())
    inner = config.get("transformer_layer_config", config)
    shape = {k: v for k, v in inner.items() if k not in ("eagle_config", "architectures", "draft_vocab_size")}
    layers = (Qwen3Config if shape["model_type"] == "qwen3" else LlamaConfig)(**shape)
    layers._attn_implementation = "eager"
    known = {k: v for k, v in config.items() if k in config_class.model_fields and k not in shape}
    known |= {"transformer_layer_config": layers, **facts}
    known.pop("architectures", None)
    module = model_class(config_class(**known)).eval()
    weights = {name.replace("midlayer.", "layers.0."): t for name, t in tensors(folder).items()}
    embedding = tensors(target)["model.embed_tokens.weight"]
    weights = {"embed_tokens.weight": embedding, "lm_head.weight": embedding, **weights}
    weights |= {"verifier_lm_head.weight": torch.zeros_like(weights["lm_head.weight"])}
    weights |= {"verifier_norm.weight": torch.ones(embedding.shape[1])}
    module.load_state_dict(weights, strict=True)
    own = config["draft_vocab_size"]
    return module, weights["d2t"] + torch.arange(own) if "d2t" in weights else torch.arange(own)


def rounds(target, folder, length):
    """(text, drafted, features of all but its last token and what may not be seen) of each round of chains."""
    model = _core.Model(str(target), dtype="float32", drafters=[str(folder)])
    session = _core.Session(model)
    session.set_skip(_core.DraftSpec([], [], -1, ["drafter"]))
    session.prefill(np.int32(PROMPT))
    for _ in range(ROUNDS):
        session.draft(_core.TreeRule(confidence=0.0, max_draft=length, width=(1, 1, 1, 1)))
        text, drafted = session.history.tolist(), session.tree_tokens[1:].tolist()
        hidden = np.full((length + 2, session.features.shape[1]), UNSEEN, np.float32)
        yield text, drafted, torch.from_numpy(np.concatenate([session.features, hidden]))[None]
        session.commit(len(session.verify()))


@pytest.mark.parametrize(("form", "few"), [("dspark", None), ("dspark", 100), ("dflash", None), ("dflash", 77)])
def test_blocks(tmp_path, target, form, few):
    from speculators.models.dflash.config import DFlashSpeculatorConfig
    from speculators.models.dflash.core import DFlashDraftModel
    from speculators.models.dspark.config import DSparkSpeculatorConfig
    from speculators.models.dspark.core import DSparkDraftModel

    folder, spark = make_block(tmp_path / "head", target, form, draft_vocab=few), form == "dspark"
    classes = (DSparkDraftModel, DSparkSpeculatorConfig) if spark else (DFlashDraftModel, DFlashSpeculatorConfig)
    module, ids = theirs(*classes, folder, target, **({"enable_confidence_head": False} if spark else {}))
    size = module.config.block_size
    for text, drafted, features in rounds(target, folder, size - (not spark)):
        tokens = torch.tensor([[*text, *drafted, 0, 0, 0]])[:, : features.shape[1]]
        anchor = torch.zeros_like(tokens)
        anchor[0, len(text) - 1] = 1  # the only place that a block may begin at
        last = torch.zeros(1, features.shape[1], 64)
        with torch.no_grad():
            hidden, logits, *_ = module._backbone_forward(
                features, tokens, anchor, last, torch.zeros_like(tokens), None, max_anchors=1
            )
            logits = logits[0]
            if spark:
                before = tokens[:, len(text) - 1 :][:, :size]
                logits = logits + module.markov_head.block_bias(prev_token_ids=before, hidden_states=hidden)[0]
        assert ids[logits.argmax(-1)].tolist()[not spark :] == drafted


@pytest.mark.parametrize(("form", "few"), [("speculators", 320), ("speculators", 100), ("specforge", 100)])
def test_eagle3(tmp_path, target, form, few):
    from speculators.models.eagle3.config import Eagle3SpeculatorConfig
    from speculators.models.eagle3.core import Eagle3DraftModel

    own = {"draft_vocab_size": few} if form == "speculators" else {"num_attention_heads": 4}
    folder = make_eagle(tmp_path / "head", target, form, changes=own)
    taps = {"eagle_aux_hidden_state_layer_ids": [1, 3, 6]}
    module, ids = theirs(Eagle3DraftModel, Eagle3SpeculatorConfig, folder, target, draft_vocab_size=few, **taps)
    for text, drafted, features in rounds(target, folder, 5):
        tokens = torch.tensor([[*text[1:], *drafted, 0, 0, 0]])[:, : features.shape[1]]
        with torch.no_grad():
            steps = module(features, tokens, torch.zeros_like(tokens), ttt_steps=5)
        assert [int(ids[step[0, len(text) - 2]]) for step in steps] == drafted
