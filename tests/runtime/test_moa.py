"""A Mixture of Attentions: what it reads is the model's cache, what it says is what the trained module says."""

import itertools
import json

import numpy as np
import pytest

import swiftk
from heads import make_moa
from moa_oracle import trained
from swiftk import TreeRule, _core
from swiftk.testing import grow, make_tiny
from timed_rule import random_rule

pytestmark = pytest.mark.skipif("config.getoption('device') != 'cpu'", reason="on a GPU: test_stub_drafters.py")

PROMPT = [300, 2, 11, 11, 250, 31, 90]
CHAIN = TreeRule(confidence=0.0, max_draft=5, width=(1, 1, 1, 1))
LAYERS = 4
LAST = (0, 1, 3)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("target"), "qwen3", "float32", layers=LAYERS)


@pytest.fixture(scope="module")
def folders(tmp_path_factory, target):
    base = tmp_path_factory.mktemp("moa")
    own = {last: make_moa(base / str(last), target, last) for last in LAST}
    return own | {(last, "Qwen2"): make_moa(base / f"qwen2-{last}", target, last, form="Qwen2") for last in LAST}


def opened(target, folder, **options):
    return swiftk.load(target, device="cpu", dtype="float32", drafter=folder, draft_weights="own", **options)


def session_of(target, folder, dtype="float32", **options):
    session = _core.Session(_core.Model(str(target), dtype=dtype, drafters=[str(folder)]), **options)
    session.set_skip(_core.DraftSpec([], [], -1, ["drafter"]))
    return session


def a_round(session, **rule):
    session.draft(_core.TreeRule(**(rule or {"confidence": 0.0, "max_draft": 5, "width": (1, 1, 1, 1)})))
    session.commit(len(session.verify()))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_k_and_v_are_those_that_training_reads(target, folders, dtype):
    session = session_of(target, folders[1], dtype, poison=True)
    session.prefill(np.int32([*PROMPT * 11]))
    for _ in range(8):
        a_round(session, confidence=0.0, max_draft=4, width=(3, 3, 2, 2))
    text = session.history
    taps = _core.Taps(_core.Model(str(target), dtype=dtype), [0], len(text))
    taps.read(text.tolist(), logits=False)
    kv = taps.kv()
    assert kv.shape == (len(text), LAYERS, 2, 2, 24) and np.isfinite(kv).all()
    assert session.kv_rows.tobytes() == kv[:-1].tobytes()


@pytest.mark.parametrize("last", LAST)
@pytest.mark.parametrize("form", ["Llama", "Qwen2"])
def test_it_says_what_the_trained_module_says(target, folders, last, form):
    """Chains of the best tokens; then trees, whose nodes have the best after their paths as children."""
    folder = folders[last if form == "Llama" else (last, form)]
    propose = trained(target, folder, last)
    session = session_of(target, folder)
    session.prefill(np.int32(PROMPT))
    for _ in range(5):
        session.draft(_core.TreeRule(confidence=0.0, max_draft=5, width=(1, 1, 1, 1)))
        text, drafted = session.history.tolist(), session.tree_tokens[1:].tolist()
        assert len(drafted) == 5
        assert propose(text, drafted)[:-1].argmax(-1).tolist() == drafted
        session.commit(len(session.verify()))
    nodes = 0
    for seed in range(4):
        rule = random_rule(seed, min_step_gain=0.02, price=0.002)
        rule["p_top1"] = [max(p, 0.5) for p in rule["p_top1"]]  # the best one is the first child
        session.draft(_core.TreeRule(**rule, max_draft=12))
        text, tokens, parents = session.history.tolist(), session.tree_tokens.tolist(), session.tree_parents.tolist()
        for node in range(session.drafted_from):
            children = {tokens[i] for i, parent in enumerate(parents) if parent == node}
            path, at = [], node
            while at > 0:
                path, at = [tokens[at], *path], parents[at]
            best = np.argsort(-propose(text, path)[-1])
            assert children == set(best[: len(children)].tolist())
            nodes += len(children)
        session.commit(len(session.verify()))
    assert nodes > 20


def test_the_authors_config_does(target, tmp_path, folders):
    """It is the model's own: what it leaves out, tensors say."""
    plain = make_moa(tmp_path / "plain", target, own=False)
    drafts = []
    for folder in (folders[0], plain):
        session = session_of(target, folder)
        session.prefill(np.int32(PROMPT))
        session.draft(_core.TreeRule(confidence=0.0, max_draft=5, width=(1, 1, 1, 1)))
        drafts.append(session.tree_tokens.tolist())
    assert drafts[0] == drafts[1] and len(drafts[0]) == 6


@pytest.mark.parametrize("last", LAST)
def test_drafts_do_not_depend_on_company(target, folders, last):
    """Nor on what was cached how; and a text of one token, before which there is nothing to see, drafts as well."""
    lm = opened(target, folders[last])
    prompts = [PROMPT, [7] * 70, [9], list(range(3, 200)), PROMPT]
    options = {"max_new_tokens": 24, "ignore_eos": True, "temperature": 0.0, "gate": CHAIN, "speculate": "always"}
    way = {"skip": "drafter", "drafter": "plan", **options}
    together = lm.generate_many(prompts, **way)
    again = [lm.generate(prompt, **way) for prompt in prompts]
    for one, other in itertools.chain(zip(together, again, strict=True), [(together[0], together[4])]):
        assert one.tokens == other.tokens
        assert one.stats.num_draft_tokens == other.stats.num_draft_tokens > 0
        assert one.stats.num_accepted_draft_tokens == other.stats.num_accepted_draft_tokens


@pytest.mark.parametrize("heads", [2, 8])
@pytest.mark.parametrize("kv_heads", [(1, 1, 1), (4, 2, 1)])
def test_any_number_of_heads(tmp_path, target, heads, kv_heads):
    lm = opened(target, make_moa(tmp_path / "head", target, 1, heads=heads, kv_heads=kv_heads))
    options = {"max_new_tokens": 20, "ignore_eos": True, "temperature": 0.0}
    plain = lm.generate(PROMPT, speculate=False, **options)
    assert lm.generate(PROMPT, drafter="moa", speculate="always", **options).tokens == plain.tokens


@pytest.mark.parametrize("family", ["llama3.1", "mistral", "qwen2", "llama-bias"])
def test_families(tmp_path, family):
    model = make_tiny(tmp_path / "model", family, "bfloat16", layers=LAYERS)
    changes = {"sliding_window": None, "use_sliding_window": False, "rope_scaling": None}
    lm = swiftk.load(model, device="cpu", drafter=make_moa(tmp_path / "head", model, 2, dtype="BF16", changes=changes))
    options = {"max_new_tokens": 30, "ignore_eos": True, "temperature": 1.0, "seed": 4}
    plain = lm.generate(PROMPT, speculate=False, **options)
    assert lm.generate(PROMPT, drafter="moa", speculate="always", **options).tokens == plain.tokens


@pytest.mark.parametrize("last", [0, 1])
def test_it_grows_with_its_model(tmp_path, target, folders, last):
    drafts = []
    for k in (1, 2):
        session = session_of(grow(target, tmp_path / f"{k}", k), grow(folders[last], tmp_path / f"head-{k}", k))
        session.prefill(np.int32(PROMPT))
        session.draft(_core.TreeRule(confidence=0.0, max_draft=5, width=(1, 1, 1, 1)))
        drafts.append(session.tree_tokens.tolist())
    assert drafts[0] == drafts[1] and len(drafts[0]) == 6


class TestWhatDoesNotFit:
    """Errors name both sides."""

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"num_hidden_layers": 5}, "num_hidden_layers is 5 in the draft model and 4 in the model"),
            ({"num_key_value_heads": 4}, "num_key_value_heads is 4 in the draft model and 2 in the model"),
            ({"head_dim": 32}, "head_dim is 32 in the draft model and 24 in the model"),
            ({"vocab_size": 999}, "vocab_size is 999 in the draft model and 320 in the model"),
            ({"hidden_size": 48}, "hidden_size is 48 in the draft model and 64 in the model"),
            ({"target_layer_inference": 4}, "target_layer_inference is 4, want fewer than the model's 4 layers"),
            ({"target_layer_inference": -1}, "target_layer_inference is -1, want an integer from 0 on"),
            ({"layer_self_attention_num_attention_heads": 5}, "is 5, want heads of an even size in 96"),
            ({"layer_self_attention_num_attention_heads": 2**30}, "want heads of an even size in 96"),
            ({"num_attention_heads": 8}, "q_proj.weight has shape"),
            ({"intermediate_size": "wide"}, "intermediate_size"),
        ],
    )
    def test_configs(self, tmp_path, target, changes, words):
        folder = make_moa(tmp_path / "head", target)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))
        with pytest.raises(swiftk.SwiftkError, match=words):
            opened(target, folder)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda t: t.pop("Ekv2E.bias"), "tensor Ekv2E.bias is missing"),
            (lambda t: t.pop("self_attention.self_attn.k_proj.weight"), "self_attn.k_proj.weight is missing"),
            (lambda t: t.update({"cross_attention.self_attn.q_proj.bias": t["Ekv2E.bias"]}), "q_proj.bias is in the"),
            (lambda t: t.update({"layer_self_attention.self_attn.k_proj.weight": t["Ekv2E.weight"]}), "has shape"),
        ],
    )
    def test_tensors(self, tmp_path, target, change, words):
        from swiftk.files.safetensors_io import Tensor, read_folder, write_folder

        folder = make_moa(tmp_path / "head", target)
        tensors = {name: Tensor(t.dtype, np.array(t.bits)) for name, t in read_folder(folder).items()}
        change(tensors)
        for _ in write_folder(folder, tensors):
            pass
        with pytest.raises(swiftk.CheckpointError, match=words):
            opened(target, folder)

    def test_a_bias_that_is_missing(self, tmp_path, target):
        folder = make_moa(tmp_path / "head", target)
        config = json.loads((folder / "config.json").read_text())
        names = {"architectures": ["MOASpecQwen2ForCausalLM"], "model_type": "qwen2"}
        (folder / "config.json").write_text(json.dumps({**config, **names}))
        with pytest.raises(swiftk.CheckpointError, match=r"self_attn\.q_proj\.bias is missing"):
            opened(target, folder)

    def test_kv_heads_that_do_not_divide(self, tmp_path, target):
        with pytest.raises(swiftk.CheckpointError, match="self_attn has 3 KV heads, want a divisor of its 4"):
            opened(target, make_moa(tmp_path / "head", target, kv_heads=(3, 2, 2)))
