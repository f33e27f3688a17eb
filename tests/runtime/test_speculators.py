"""Heads in vLLM's formats, beside vLLM's own package of them (pip install speculators; without it nothing here runs):
the same files, the same states, the same chains of best tokens."""

import pytest

from head_contract import (
    CHAIN,
    PROMPTS,
    beside,
    session_of,
    target_fixture,  # noqa: F401
)
from head_oracles import beyond, settings, tensors
from heads import make_block, make_eagle
from swiftk import _core

pytest.importorskip("speculators")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif("config.getoption('device') != 'cpu'", reason="their side runs on the CPU")


def theirs(model_class, config_class, folder, target, **facts):
    """Their module of a folder's weights, what it shares with the model filled in; and the model's id of each of its
    tokens."""
    from transformers import LlamaConfig, Qwen3Config

    config, inner = settings(folder)
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
    session = session_of(beside(target, folder), PROMPTS[2])
    for _ in range(12):
        session.draft(_core.TreeRule(**{**CHAIN, "max_draft": length}))
        text, drafted = session.history.tolist(), session.tree_tokens[1:].tolist()
        yield text, drafted, torch.from_numpy(beyond(session.features, length + 2))[None]
        session.commit(len(session.verify()))


@pytest.mark.parametrize(("form", "few"), [("dspark", None), ("dspark", 100), ("dflash", None), ("dflash", 77)])
def test_blocks(tmp_path, target, form, few):
    from speculators.models.dflash.config import DFlashSpeculatorConfig
    from speculators.models.dflash.core import DFlashDraftModel
    from speculators.models.dspark.config import DSparkSpeculatorConfig
    from speculators.models.dspark.core import DSparkDraftModel

    unsure, spark = {"enable_confidence_head": False}, form == "dspark"
    folder = make_block(tmp_path / "head", target, form, draft_vocab=few, changes=unsure)
    classes = (DSparkDraftModel, DSparkSpeculatorConfig) if spark else (DFlashDraftModel, DFlashSpeculatorConfig)
    module, ids = theirs(*classes, folder, target)
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
