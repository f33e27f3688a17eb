"""Draft models of every kind: whatever they say, the text is plain decoding's; and what they say is theirs."""

import itertools
import json
import shutil

import numpy as np
import pytest

import swiftk
from head_contract import (
    BY_CHAIN,
    CHAIN,
    KIND,
    LONG,
    PLAN,
    PROMPTS,
    SAMPLINGS,
    WIDE,
    assert_always_right,
    assert_drafts_after_a_prefix,
    assert_plain,
    assert_said,
    beside,
    counts_of,
    drafts,
    heads_fixture,  # noqa: F401
    opened,
    session_of,
    target_fixture,  # noqa: F401
    tokens_of,
    ways,
)
from head_oracles import EagleOracle, alone, trained_block, trained_eagle, trained_moa
from heads import EAGLES, make_block, make_eagle
from marks import exhaustive
from swiftk import DraftSpec, _core, _testing
from swiftk.draft.draft_spec import DRAFTER_NAMES, MOST_DRAFTERS
from swiftk.files.grow import grow
from swiftk.files.safetensors_io import Tensor, read_folder, write_folder
from swiftk.testing import make_tiny
from timed_rule import random_rule

pytestmark = pytest.mark.skipif("config.getoption('device') != 'cpu'", reason="on a GPU: test_stub_drafters.py")

QUICK = ("dspark", "few", "moa-1", "padded", "specforge", "fusion")
NAMES = [*QUICK, *exhaustive(*(name for name in KIND if name not in QUICK))]
FEW_BITS, GUIDES = ("int8", "int4"), ("specforge", "moa-3", "self")
SEVERAL = ("specforge", "moa-0", "dspark", "moa-1", "model", "eagle1")  # they tap other layers each, or none


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("name", NAMES)
def test_texts_are_plain_decodings(target, heads, name, sampling):
    lm = opened(target, heads[name])
    assert lm.model.drafters == [KIND[name]] and lm.model.drafter_bytes > 0
    assert_plain(lm, 13, sampling, ways(KIND[name]))


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("name", [*GUIDES, *exhaustive(*(name for name in KIND if name not in GUIDES))])
def test_in_few_bits_and_as_guides_of_such_weights(target, heads, name, sampling):
    lm = opened(target, heads[name], draft_weights=list(FEW_BITS))
    asked = ways(KIND[name])[1:4]
    for form in FEW_BITS if KIND[name] != "block" else ():
        guided = {"skip": DraftSpec(weights=(form, "drafter")), "optimizer": None, "speculate": "always"}
        asked += [{**guided, "drafter": "plan"}, {**guided, "drafter": "auto"}]
        asked += [{**guided, "drafter": "plan", "acceptance": "rejection"}]
    assert_plain(lm, 24, sampling, asked, PROMPTS[:3])


@pytest.mark.parametrize("context", [190, *exhaustive(400)])
@pytest.mark.parametrize("name", NAMES)
def test_texts_reach_the_end_of_the_context(target, heads, name, context):
    lm = opened(target, heads[name], context=context)
    for sampling in SAMPLINGS.values():
        (plain,) = assert_plain(lm, -1, sampling, ways(KIND[name])[:4], [LONG])
        assert len(plain) == context - len(LONG)


@pytest.mark.parametrize("name", NAMES)
def test_texts_that_give_way_go_on(target, heads, name):
    """They are read again, and draft as if they had stayed."""
    options = {"max_new_tokens": 60, "ignore_eos": True, **BY_CHAIN}
    prompts = [LONG[i:120] for i in range(3)]
    large = opened(target, heads[name], context=200)
    plain = large.generate_many(prompts, max_new_tokens=60, ignore_eos=True, speculate=False)
    want, kv = large.generate_many(prompts, **options), large._engine.native.kv
    small = opened(target, heads[name], context=200, kv_memory=5 * kv["bytes"] // kv["blocks"])
    found = small.generate_many(prompts, **options)
    assert small._engine.native.totals["preempted"] > 0
    assert tokens_of(found) == tokens_of(want) == tokens_of(plain)
    assert counts_of(found) == counts_of(want)


@pytest.mark.parametrize("name", NAMES)
def test_a_text_that_takes_a_prefix_over_drafts_as_well(target, heads, name):
    assert_drafts_after_a_prefix(opened(target, heads[name]))


def test_a_model_that_drafts_for_itself_is_always_right(target):
    assert_always_right(opened(target, target))


def test_a_model_in_fewer_bits_drafts_for_less(tiny_dir):
    """A draft reads the copy: it is not always right, as the model itself would be. The text is the same."""
    target = tiny_dir("qwen3", dtype="float32", layers=4)
    options = {"max_new_tokens": 150, "ignore_eos": True, "temperature": 1.0, "seed": 5}
    own = opened(target, target)
    plain = own.generate(PROMPTS[2], speculate=False, **options)
    for form in ("int8", "int4", ("int4", "int8")):
        lm = opened(target, target, draft_weights=form)
        found = lm.generate(PROMPTS[2], **options, **BY_CHAIN)
        assert found.tokens == plain.tokens
        assert 0.3 * found.stats.num_draft_tokens < found.stats.num_accepted_draft_tokens
        if form == "int4":
            assert found.stats.num_accepted_draft_tokens < found.stats.num_draft_tokens
        assert own.model.drafter_bytes < lm.model.drafter_bytes < 1.5 * own.model.drafter_bytes


# Drafters of few tokens have these, and texts take them in turn.
FAVOURED = {"logit_bias": dict.fromkeys(np.random.default_rng(0).permutation(320)[:2].tolist(), 100.0)}
FAVOURED["frequency_penalty"] = 2.0
ORACLES = [
    *((EagleOracle, form) for form in EAGLES),
    *((trained_eagle, name) for name in ("specforge", "eagle1-flat")),
    *((trained_block, name) for name, kind in KIND.items() if kind == "block"),
    *((trained_moa, name) for name, kind in KIND.items() if kind == "moa"),
    *((alone, name) for name in ("model", "padded", "fewer")),
]


@pytest.mark.parametrize(("oracle", "name"), ORACLES)
def test_they_say_what_oracles_say(target, heads, oracle, name):
    """They draft chains, and trees, whose nodes on side branches see their own ancestors; in texts that are far ahead
    of them, where a prompt shares its beginning with the last. Where both sides want two tokens, much is accepted."""
    said, session = oracle(heads[name], target), session_of(beside(target, heads[name]), [9])
    trees = [WIDE, *[{"beam": 4, "max_draft": 5}] * 3]
    for seed in range(4):
        by_time = random_rule(seed, min_step_gain=0.0, price=0.001)
        trees += [{**by_time, "max_draft": 9, "p_top1": [max(p, 0.5) for p in by_time["p_top1"]]}]  # best ones first
    proposed = branches = known = 0
    for prompt, rules in ((LONG, [CHAIN] * 4), ([*LONG[:100], 9, 9, 5], [CHAIN] * 4), (PROMPTS[2], trees)):
        for touches in ({}, FAVOURED):
            session.set_sampling(_core.Sampling(**touches))
            session.prefill(np.int32(prompt))
            for rule in (one for one in rules if not touches or "beam" not in one):
                emitted = assert_said(session, said, rule, prompt, **touches)
                assert rule is not CHAIN or session.drafted_from >= 4
                proposed += session.tree_sources.count(PLAN)
                parents = session.tree_parents[1 : session.drafted_from].tolist()
                branches += len(parents) - len(set(parents))
                known += len(session.outcomes)
                session.commit(len(emitted))
    assert proposed > 300 and branches > 10 and known > 30


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    ("name", "taps"), [("dspark", [0, 2]), ("specforge", [0, 2, 5]), ("eagle1", [7]), ("moa-1", [])]
)
def test_they_read_what_training_reads(target, heads, name, taps, dtype):
    """They read outputs of layers, or all that the model's cache holds of a token."""
    session = session_of(beside(target, heads[name], dtype=dtype), PROMPTS[2] * 11)
    drafts(session, 8, **WIDE)
    text = session.history
    training = _core.Taps(_core.Model(str(target), dtype=dtype), taps or [0], len(text))
    outputs, _ = training.read(text.tolist(), logits=False)
    there, want = (session.features, outputs) if taps else (session.kv_rows, training.kv())
    assert want.shape == (len(text), *((64 * len(taps),) if taps else (8, 2, 2, 24)))
    assert np.isfinite(want).all() and there.tobytes() == want[:-1].tobytes()


@pytest.mark.parametrize(
    ("name", "k"),
    [("dspark", 2), ("dspark", 3), *((name, 2) for name in ("eagle1", "specforge", "speculators", "moa-0", "moa-1"))],
)
def test_they_grow_with_their_model(tmp_path, target, heads, name, k):
    """Proposals stay the same, and how sure the head is of them."""
    found = []
    for size in (1, k):
        folders = grow(target, tmp_path / f"{size}", size), grow(heads[name], tmp_path / f"head-{size}", size)
        session = session_of(beside(*folders), PROMPTS[2])
        session.draft(_core.TreeRule(**{**CHAIN, "max_draft": 5}))
        tokens = session.tree_tokens.tolist()
        session.verify()
        found.append((tokens, [chance for chance, _ in session.outcomes]))
    (small, sure), (large, as_sure) = found
    assert small == large and len(small) == 6
    assert name == "moa-0" or sure == pytest.approx(as_sure, rel=1e-3)  # its logits have no norm, and grow, too


@pytest.fixture(scope="module")
def folders(heads):
    return [heads[name] for name in SEVERAL]


class TestSeveralBesideOneModel:
    """Each says what it says alone, and the clock chooses."""

    @pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
    def test_texts_are_plain_decodings(self, target, folders, sampling):
        lm = opened(target, folders, draft_weights="int8")
        kinds = [KIND[name] for name in SEVERAL]
        assert lm.model.drafters == kinds and lm.model.drafter_bytes > 0
        asked = [{}, {"speculate": "always"}]
        asked += [{"drafter": kind, "speculate": "always"} for kind in dict.fromkeys(kinds)]
        asked += [{"skip": DraftSpec(weights=("int8", name))} for name in ("drafter", "drafter-2", "drafter-5")]
        each = [{**BY_CHAIN, "skip": name} for name in DRAFTER_NAMES[: len(SEVERAL)]]
        plain = assert_plain(lm, 24, sampling, asked + each, PROMPTS[:3])
        options = {"max_new_tokens": 24, "ignore_eos": True, "seed": 3, **sampling}
        side_by_side = lm.generate_many(PROMPTS[:3] * 2, each=each, **options)
        assert tokens_of(side_by_side) == plain * 2
        assert {r.stats.skip for r in side_by_side} == {f"the {name}" for name in DRAFTER_NAMES[: len(SEVERAL)]}

    @pytest.mark.parametrize("number", range(len(SEVERAL)), ids=SEVERAL)
    def test_each_says_what_it_says_alone(self, target, folders, number):
        """Beside others it taps a part of what is kept of a token: the same rows, and so the same drafts."""
        among = drafts(session_of(beside(target, *folders), PROMPTS[2], number), 6, **WIDE)
        by_itself = drafts(session_of(beside(target, folders[number]), PROMPTS[2]), 6, **WIDE)
        assert among == by_itself and all(len(tokens) > 4 for tokens, _ in among[0])

    def test_they_take_turns_in_a_text(self, target, folders):
        """Each goes on after what others drafted meanwhile, as if it had been there."""
        texts, model = [], beside(target, *folders)
        for turn in (itertools.cycle(range(len(SEVERAL))), itertools.repeat(1)):
            session, said = session_of(model, PROMPTS[0]), []
            while len(session.history) < 90:
                number = next(turn)
                session.set_skip(_core.DraftSpec(weights=[DRAFTER_NAMES[number]]))
                session.draft(_core.TreeRule(**{**CHAIN, "max_draft": 1}))
                if number == 1:
                    said.append((len(session.history), session.tree_tokens.tolist()))
                session.commit(1 if session.verify() else 0)
            texts.append((session.history.tolist()[:90], said))
        assert texts[0][0] == texts[1][0]
        assert set(map(str, texts[0][1])) <= set(map(str, texts[1][1])) and len(texts[0][1]) > 10

    def test_the_clock_chooses(self, target, folders):
        """Of two heads, one of which is always right and the other never."""
        one, taken = _testing.Planner(beside(target, folders[5], folders[0])), []
        for _ in range(60):
            a = one.next()
            taken.append(a["plan"] if a["drafts"] else -1)
            if not a["drafts"]:
                one.learn(1)
                continue
            right = a["plan"] == 1
            said = [(0.9, 0 if right else -1)] * 3
            one.learn(4 if right else 1, rows=4, draft_steps=3, draft=0.15, verify=1.02, outcomes=said)
        assert set(taken[-20:]) == {1}


def zeros(*shape):
    return Tensor("F32", np.zeros(shape, np.float32))


KEY, LISTED = "eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids"
STATES_HEADS = "layer_self_attention_num_attention_heads"
QWEN2 = {"architectures": ["MOASpecQwen2ForCausalLM"], "model_type": "qwen2"}
BAD_SETTINGS = [
    ("dspark", {"block_size": 1}, "block_size is 1"),
    ("dspark", {"block_size": 100}, "block_size is 100, want at most 64"),
    ("dspark", {"mask_token_id": 4000}, "mask_token_id is 4000, the model has tokens 0..319"),
    ("dspark", {LISTED: [1, 9]}, "want layers of the model, 1..8 ascending"),
    ("dspark", {LISTED: [3, 1]}, "ascending"),
    ("dspark", {"markov_head_type": "gated"}, "markov_head_type='gated' is not supported"),
    ("dspark", {"draft_vocab_size": 100}, r"draft_vocab_size .there is no tensor d2t. is 100 in the draft model and"),
    ("dspark", {"draft_vocab_size": 400}, "draft_vocab_size is 400, the model has 320 tokens"),
    ("dspark", {"confidence_head_with_markov": False}, r"weight has shape .1, 72., the config wants .1, 64."),
    ("dspark", {"speculators_model_type": "mlp"}, "of a head of another kind"),
    ("specforge", {"eagle_config": {KEY: [0, 2, 8]}}, "0..7 ascending"),
    ("specforge", {"eagle_config": {KEY: [2, 0, 5]}}, "ascending"),
    ("specforge", {"eagle_config": {"use_aux_hidden_state": False}}, "use_aux_hidden_state=false"),
    ("specforge", {"eagle_config": {KEY: [0, 2]}}, "the config wants .64, 128."),
    ("specforge", {"norm_output": True}, "norm_output=true is not supported"),
    ("speculators", {KEY: [0, 3, 6]}, "1..8 ascending"),
    ("speculators", {"norm_before_fc": True}, "norm_before_fc=true is not supported"),
    ("fusion", {"layernorms": True}, "layernorms=true is not supported"),
    ("eagle3", {"draft_vocab_size": 400}, "draft_vocab_size is 400, the model has 320"),
    ("eagle3", {"draft_vocab_size": 50}, "tensor d2t has shape .100., the config wants .50."),
    ("eagle3", {"vocab_size": 352}, "vocab_size is 352 in the draft model and 320 in the model"),
    ("eagle3", {"hidden_size": 48}, "hidden_size is 48 in the draft model and 64 in the model"),
    ("eagle1", {"hidden_size": 48}, "hidden_size is 48 in the draft model and 64 in the model"),
    ("narrow", {"target_hidden_size": 48}, "target_hidden_size is 48 in the draft model and 64 in the model"),
    ("moa-0", {"num_hidden_layers": 5}, "num_hidden_layers is 5 in the draft model and 8 in the model"),
    ("moa-0", {"num_key_value_heads": 4}, "num_key_value_heads is 4 in the draft model and 2 in the model"),
    ("moa-0", {"head_dim": 32}, "head_dim is 32 in the draft model and 24 in the model"),
    ("moa-0", {"vocab_size": 999}, "vocab_size is 999 in the draft model and 320 in the model"),
    ("moa-0", {"hidden_size": 48}, "hidden_size is 48 in the draft model and 64 in the model"),
    ("moa-0", {"target_layer_inference": 8}, "target_layer_inference is 8, want fewer than the model's 8 layers"),
    ("moa-0", {"target_layer_inference": -1}, "target_layer_inference is -1, want an integer from 0 on"),
    ("moa-0", {STATES_HEADS: 5}, "is 5, want heads of an even size in 96"),
    ("moa-0", {STATES_HEADS: 2**30}, "want heads of an even size in 96"),
    ("moa-0", {"num_attention_heads": 8}, "q_proj.weight has shape"),
    ("moa-0", {"intermediate_size": "wide"}, "intermediate_size"),
    ("moa-0", QWEN2, r"self_attn\.q_proj\.bias is missing"),
]
BAD_TENSORS = [  # None leaves one out
    ("specforge", "d2t", None, "there is no tensor d2t. is 100 in the draft model and 320 in the model"),
    ("specforge", "midlayer.hidden_norm.weight", None, "tensor midlayer.hidden_norm.weight is missing"),
    ("specforge", "d2t", Tensor("I64", np.zeros(100, np.int64) + 221), "d2t.99. is 221, want that 99 and it"),
    ("specforge", "d2t", Tensor("I64", -np.arange(100)), "d2t.1. is -1, .* that is no other's"),
    ("specforge", "d2t", zeros(100), "tensor d2t has dtype F32, want I64 or I32"),
    ("specforge", "fc_norm.weight", zeros(64), "tensor fc_norm.weight is in the checkpoint"),
    ("eagle1", "layers.1.input_layernorm.weight", None, "tensor layers.1.input_layernorm.weight is missing"),
    ("narrow", "embed_tokens.weight", None, "hidden_size is 32 in the draft model and 64 in the model, which needs"),
    ("moa-0", "Ekv2E.bias", None, "tensor Ekv2E.bias is missing"),
    ("moa-0", "self_attention.self_attn.k_proj.weight", None, "self_attn.k_proj.weight is missing"),
    ("moa-0", "self_attention.self_attn.k_proj.weight", zeros(72, 64), "self_attn has 3 KV heads, want a divisor of"),
    ("moa-0", "cross_attention.self_attn.q_proj.bias", zeros(64), "q_proj.bias is in the"),
    ("moa-0", "layer_self_attention.self_attn.k_proj.weight", zeros(64, 96), "has shape"),
]


class TestWhatDoesNotFit:
    """Errors name both sides."""

    @staticmethod
    def refused(target, folder, words, error=(swiftk.CheckpointError, swiftk.UnsupportedModel)):
        with pytest.raises(error, match=words):
            opened(target, folder)

    @pytest.mark.parametrize(("name", "changes", "words"), BAD_SETTINGS)
    def test_settings(self, tmp_path, target, heads, name, changes, words):
        folder = shutil.copytree(heads[name], tmp_path / "head")
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))
        self.refused(target, folder, words)

    @pytest.mark.parametrize(("name", "tensor", "value", "words"), BAD_TENSORS)
    def test_tensors(self, tmp_path, target, heads, name, tensor, value, words):
        folder = shutil.copytree(heads[name], tmp_path / "head")
        tensors = {**read_folder(heads[name]), tensor: value}
        list(write_folder(folder, {n: t for n, t in tensors.items() if t is not None}))
        unfit = "in the model" in words
        self.refused(target, folder, words, swiftk.UnsupportedModel if unfit else swiftk.CheckpointError)

    def test_another_model(self, tmp_path, target):
        from swiftk.text.bpe import write_bpe

        wide = make_tiny(tmp_path / "wide", "llama2", "float32", hidden_size=48, layers=8)
        words = "hidden_size is 48 in the draft model and 64 in the model"
        self.refused(target, make_block(tmp_path / "head", wide), words, swiftk.UnsupportedModel)
        shallow = make_tiny(tmp_path / "shallow", "llama3", "float32", layers=4)
        words = "it has 4, too few for the usual 1, L / 2 - 1 and L - 4"
        self.refused(shallow, make_eagle(tmp_path / "usual", shallow, "eagle3"), words, swiftk.CheckpointError)
        other = make_tiny(tmp_path / "other", "llama2", "float32", layers=1)
        write_bpe(other, ["zebra zebra quagga quagga zyzzyva " * 9], 320, "")
        self.refused(target, other, "vocabulary is another", swiftk.UnsupportedModel)

    def test_other_files(self, tmp_path, target, heads):
        self.refused(target, tmp_path / "none", "is not a directory", swiftk.CheckpointError)
        with pytest.raises(swiftk.InvalidOption, match="want the path"):
            opened(target, 5)
        folder = shutil.copytree(heads["eagle1"], tmp_path / "pickle")
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        self.refused(target, folder, r"has pytorch_model.bin: .*Convert them: safetensors", swiftk.UnsupportedModel)

    def test_drafters_that_are_not_loaded(self, target, heads):
        lms = [opened(target, drafter) for drafter in (None, heads["dspark"], [heads["specforge"]])]
        for lm, options, words in (
            (lms[0], {"drafter": "block"}, "drafter='block', the model has none"),
            (lms[0], {"skip": "drafter"}, "drafter=FOLDER"),
            (lms[1], {"drafter": "model"}, "the model has block"),
            (lms[2], {"drafter": "moa"}, "drafter='moa', the model has eagle"),
            (lms[2], {"skip": "drafter-7"}, "'drafter-7', the model has own, drafter;"),
        ):
            with pytest.raises(swiftk.InvalidArgument, match=words):
                lm.generate([5], **options)
        with pytest.raises(swiftk.InvalidOption, match=f"names 9 folders, want at most {MOST_DRAFTERS}"):
            opened(target, [heads["dspark"]] * 9)
        with pytest.raises(swiftk.InvalidArgument, match="drafter-2 was not loaded"):
            session_of(lms[1].model, PROMPTS[0], 1)
