"""EAGLE heads of every format: what they say is theirs, wherever a tree branches, and the text is plain decoding's."""

import json

import numpy as np
import pytest

import swiftk
from decode import TOUCHED
from eagle_oracle import EagleOracle
from heads import EAGLES, make_eagle
from marks import exhaustive
from source_rules import LOOPS, SUFFIX, all_of
from swiftk import TreeRule, _core
from swiftk.files.grow import grow
from swiftk.files.safetensors_io import Tensor, decode, read_folder, write_folder
from swiftk.testing import make_tiny
from timed_rule import random_rule

pytestmark = pytest.mark.skipif("config.getoption('device') != 'cpu'", reason="on a GPU: test_stub_drafters.py")

PROMPTS = (
    [5, 9, 17, 33],
    [7] * 70,
    [300, 2, 11, 11, 250, 31, 90],
    list(np.random.default_rng(0).integers(3, 320, 150)),
)
GREEDY, SAMPLED = {"temperature": 0.0}, {"temperature": 1.0, "top_p": 0.9, **TOUCHED}
CHAIN = TreeRule(confidence=0.0, max_draft=6, width=(1, 1, 1, 1))
WIDE = TreeRule(confidence=0.0, max_draft=4, width=(5, 4, 3, 2))
RANKS = 10  # children of a node at most
PLAN = 1  # the source of what a draft step proposes


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("target"), "qwen3", "float32", layers=8)


@pytest.fixture(scope="module")
def folders(tmp_path_factory, target):
    base = tmp_path_factory.mktemp("heads")
    return {form: make_eagle(base / form, target, form) for form in EAGLES}


def opened(target, folder, **options):
    return swiftk.load(target, device="cpu", dtype="float32", drafter=folder, draft_weights="own", **options)


def session_of(target, folder, prompt, **options):
    session = _core.Session(_core.Model(str(target), dtype="float32", drafters=[str(folder)]), poison=True, **options)
    session.set_skip(_core.DraftSpec([], [], -1, ["drafter"]))
    session.prefill(np.int32(prompt))
    return session


def paths(session):
    """Tokens from the root to each node, the root's left out."""
    found = []
    for token, parent in zip(session.tree_tokens.tolist(), session.tree_parents.tolist(), strict=True):
        found.append([] if parent < 0 else [*found[parent], token])
    return found


def assert_said(session, oracle):
    """What it proposed after nodes that it read is the best by the oracle. Returns how many it proposed."""
    text, features, ways = session.history.tolist(), session.features, paths(session)
    assert features.shape[0] == len(text) - 1
    logits, proposed = {}, 0
    for node in range(1, len(ways)):
        parent = int(session.tree_parents[node])
        if parent >= session.drafted_from or session.tree_sources[node] != PLAN:
            continue
        proposed += 1
        if parent not in logits:
            logits[parent] = oracle.logits(text, features, ways[parent])
        said = logits[parent]
        assert said[session.tree_tokens[node]] >= np.sort(said)[-RANKS] - 1e-3
    return proposed


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("form", [EAGLES[0], EAGLES[-1], *exhaustive(*EAGLES[1:-1])])
def test_texts_are_plain_decodings(target, folders, form, sampling):
    lm = opened(target, folders[form])
    assert lm.model.drafters == ["eagle"] and lm.model.drafter_bytes > 0
    options = {"max_new_tokens": 24, "ignore_eos": True, "seed": 3, **sampling}
    plain = lm.generate_many(PROMPTS, speculate=False, **options)
    ways = [
        {"drafter": "eagle", "speculate": "always"},
        {"drafter": "eagle"},
        {"skip": "drafter", "gate": CHAIN, "speculate": "always", "drafter": "plan"},
        {"skip": "drafter", "gate": WIDE, "speculate": "always", "drafter": "plan"},
        {"speculate": "always"},
    ]
    alone = [lm.generate(prompt, **options, **ways[0]) for prompt in PROMPTS]
    assert [r.tokens for r in alone] == [r.tokens for r in plain]
    for way in ways:
        together = lm.generate_many(PROMPTS, **options, **way)
        assert [r.tokens for r in together] == [r.tokens for r in plain]
        assert way.get("speculate") != "always" or together[0].stats.num_draft_tokens > 0


@pytest.mark.parametrize("form", EAGLES)
def test_chains_are_the_oracles(target, folders, form):
    """Through rounds that accept, and texts that are far behind: the next prompt shares a beginning with the last."""
    oracle = EagleOracle(folders[form], target)
    session = session_of(target, folders[form], PROMPTS[3])
    for prompt in (None, [*PROMPTS[3][:100], 9, 9, 5]):
        if prompt is not None:
            session.prefill(np.int32(prompt))
        for _ in range(4):
            session.draft(_core.TreeRule(confidence=0.0, max_draft=5, width=(1, 1, 1, 1)))
            text, drafted = session.history.tolist(), session.tree_tokens[1:].tolist()
            assert len(drafted) == 5
            for i, token in enumerate(drafted):
                assert oracle.logits(text, session.features, drafted[:i]).argmax() == token
            session.verify()
            # First the accepted tokens, then tokens that the head's own states have not seen.
            session.commit(len(session.verify()))


@pytest.mark.parametrize("form", EAGLES)
def test_trees_are_the_oracles(target, folders, form):
    """Nodes on side branches read the states of their own parents, and see their own ancestors."""
    oracle = EagleOracle(folders[form], target)
    session = session_of(target, folders[form], PROMPTS[2])
    proposed = branches = 0
    for seed in range(8):
        by_time = {**random_rule(seed, min_step_gain=0.0, price=0.001), "max_draft": 9}
        session.draft(_core.TreeRule(**(by_time if seed % 2 else {"beam": 4, "max_draft": 5})))
        proposed += assert_said(session, oracle)
        parents = session.tree_parents[1 : session.drafted_from].tolist()
        branches += len(parents) - len(set(parents))
        session.commit(len(session.verify()))
    assert proposed > 200 and branches > 20


def test_proposals_of_others_are_read_in_turn(target, folders):
    """A step may read a chain that the text's repetitions propose: each node waits for its parent's state. How sure the
    head is of its best token, after each node on the way that the text took, is the oracle's word."""
    oracle = EagleOracle(folders["specforge"], target)
    session = session_of(target, folders["specforge"], PROMPTS[2] * 6)
    session.set_sampling(_core.Sampling(**LOOPS))
    chained = 0
    for _ in range(8):
        session.draft(_core.TreeRule(**{**all_of(SUFFIX), "chain": 3, "min_step_gain": 0.0}, max_draft=3))
        text, features, ways = session.history.tolist(), session.features, paths(session)
        node, sure = 0, []
        for emitted in session.verify():
            if node < session.drafted_from:
                said, seen = oracle.logits(text, features, ways[node]), [*set(text + ways[node])]
                scores = said.copy()
                scores[seen] = np.where(said[seen] > 0, said[seen] / 0.5, said[seen] * 0.5)
                sure.append(np.exp(said[scores.argmax()] - np.logaddexp.reduce(said)))
                parent = session.tree_parents[node]
                chained += parent > 0 and PLAN not in (session.tree_sources[node], session.tree_sources[parent])
            node = next((i for i, way in enumerate(ways) if way == [*ways[node], emitted.token]), len(ways))
        assert [confidence for confidence, _ in session.outcomes] == pytest.approx(sure, rel=1e-3)
        session.commit(len(session.verify()))
    assert chained > 5


def beam_tree(logits, beam, steps, most):
    """EAGLE-2's tree, slowly: the paths of its nodes, and of those that were read. logits: of a path."""
    level, read, chances = [()], {()}, {(): 1.0}
    for step in range(steps):
        for path in level:
            said = logits(path)
            p = np.exp(said - np.logaddexp.reduce(said))
            chances |= {(*path, int(t)): chances[path] * p[t] for t in np.argsort(-p, kind="stable")[:beam]}
        reached = [path for path in chances if len(path) == step + 1]
        level = sorted(reached, key=lambda path: -chances[path])[: min(beam, 64 - len(read))]
        read |= set(level if step + 1 < steps else ())
    return set(sorted(chances, key=lambda path: -chances[path])[:most]), read


@pytest.mark.parametrize(("beam", "steps", "most"), [(4, 3, 20), (10, 6, 60), (10, 6, 12), (3, 5, 14), (1, 4, 64)])
def test_a_beam_is_the_papers(target, folders, beam, steps, most):
    oracle = EagleOracle(folders["eagle3"], target)
    session = session_of(target, folders["eagle3"], PROMPTS[0])
    for _ in range(3):
        session.draft(_core.TreeRule(beam=beam, max_draft=steps, max_nodes=most))
        text, features = session.history.tolist(), session.features
        want, read = beam_tree(lambda path: oracle.logits(text, features, path), beam, steps, most)  # noqa: B023
        assert {tuple(path) for path in paths(session)} == want
        assert (session.last["draft_steps"], session.last["draft_nodes"]) == (steps, len(read))
        assert session.drafted_from == len(want & read), "others were read and left"
        session.commit(len(session.verify()))


def test_beams_give_plain_decoding(target, folders):
    lm = opened(target, folders["specforge"])
    way = {"skip": "drafter", "drafter": "plan", "gate": TreeRule(beam=6, max_draft=4, max_nodes=40)}
    for sampling in (GREEDY, SAMPLED, {**SAMPLED, "acceptance": "rejection", "recall": False}):
        options = {"max_new_tokens": 30, "ignore_eos": True, "seed": 4, **sampling}
        beams = lm.generate_many(PROMPTS, speculate="always", **way, **options)
        again = lm.generate_many(PROMPTS, speculate="acceptance" in sampling and "always", **way, **options)
        assert [r.tokens for r in beams] == [r.tokens for r in again]
        s = beams[0].stats
        assert 0 < s.num_draft_tokens == s.num_draft_steps, "a place a step"
        assert s.num_draft_nodes > 2 * s.num_draft_steps, "a step reads a level"
        assert s.num_accepted_draft_tokens <= s.num_draft_tokens
    with pytest.raises(swiftk.InvalidArgument, match="beam is 11"):
        lm.generate([5], **{**way, "gate": TreeRule(beam=11)})


def test_rejection_keeps_the_papers_rule(target, folders):
    lm = opened(target, folders["specforge"])
    options = {"max_new_tokens": 30, "ignore_eos": True, "temperature": 1.0, "acceptance": "rejection", "seed": 1}
    way = {"skip": "drafter", "gate": CHAIN, "speculate": "always", "drafter": "plan", "recall": False}
    first, again = (lm.generate(PROMPTS[0], **options, **way) for _ in range(2))
    assert first.tokens == again.tokens and first.stats.num_draft_tokens > 0


def test_drafts_are_of_its_own_tokens(target, folders):
    own = read_folder(folders["eagle3"])["d2t"].bits
    known = set((own + np.arange(len(own))).tolist())
    session = session_of(target, folders["eagle3"], PROMPTS[0])
    for _ in range(5):
        session.draft(_core.TreeRule(confidence=0.0, max_draft=4, width=(9, 9, 9, 9)))
        assert len(session.tree_tokens) > 20 and set(session.tree_tokens[1:].tolist()) <= known
        session.commit(len(session.verify()))


def shape_of_heads():
    from swiftk.train.shape import Rope, Shape

    rope = Rope(tuple(1e4 ** (-2 * i / 16) for i in range(8)))
    return Shape(L=1, D=64, H=3, n_kv=1, d=16, F=72, V=320, eps=1e-5, tied=True, qkv_bias=False, o_bias=False,
                 mlp_bias=False, qk_norm=False, ropes=(rope,))  # fmt: skip


def test_the_trained_module_says_the_same(target, folders):
    torch = pytest.importorskip("torch")
    from swiftk.train.eagle import EagleDrafter

    folder = folders["specforge"]
    stored = read_folder(folder)
    ids = stored["d2t"].bits + np.arange(100)
    module = EagleDrafter(shape_of_heads(), 3, torch.from_numpy(ids))
    kept = {"I64", "BOOL"}
    module.load_state_dict(
        {n: torch.from_numpy(np.array(t.bits if t.dtype in kept else decode(t))) for n, t in stored.items()}
    )
    embedding = torch.from_numpy(decode(read_folder(target)["model.embed_tokens.weight"]).copy())
    session = session_of(target, folder, PROMPTS[2])
    for _ in range(6):
        session.draft(_core.TreeRule(confidence=0.0, max_draft=5, width=(1, 1, 1, 1)))
        text, drafted = session.history.tolist(), session.tree_tokens[1:].tolist()
        unseen = np.full((len(drafted) + 1, 3 * 64), 1e3, np.float32)
        features = torch.from_numpy(np.concatenate([session.features, unseen]))
        with torch.no_grad():
            steps = module(features[None], torch.tensor([[*text, *drafted]]), embedding, 5)
        said = [int(module.ids[step[0, len(text) - 2].argmax()]) for step in steps]
        assert said == drafted
        session.commit(len(session.verify()))


def test_the_trained_module_of_the_older_kind_says_the_same(tmp_path, target):
    torch = pytest.importorskip("torch")
    from swiftk.train.eagle2 import Eagle2Drafter

    one_layer = {"changes": {"num_hidden_layers": 1}, "drop": ("embed_tokens.weight",)}
    folder = make_eagle(tmp_path / "head", target, "eagle1", **one_layer)
    module = Eagle2Drafter(shape_of_heads())
    module.load_state_dict({n: torch.from_numpy(decode(t).copy()) for n, t in read_folder(folder).items()})
    model = {n: torch.from_numpy(decode(t).copy()) for n, t in read_folder(target).items()}
    embedding, norm = model["model.embed_tokens.weight"], model["model.norm.weight"]
    head = model.get("lm_head.weight", embedding)
    eps = json.loads((target / "config.json").read_text())["rms_norm_eps"]
    session = session_of(target, folder, PROMPTS[2])
    for _ in range(6):
        session.draft(_core.TreeRule(confidence=0.0, max_draft=5, width=(1, 1, 1, 1)))
        text, drafted = session.history.tolist(), session.tree_tokens[1:].tolist()
        unseen = np.full((len(drafted) + 1, 64), 1e3, np.float32)
        outputs = torch.from_numpy(np.concatenate([session.features, unseen]))
        features = torch.nn.functional.rms_norm(outputs, norm.shape, norm, eps)
        with torch.no_grad():
            steps = module(features[None], torch.tensor([[*text, *drafted]]), embedding, 5)
        assert [int((step[0, len(text) - 2] @ head.T).argmax()) for step in steps] == drafted
        session.commit(len(session.verify()))


@exhaustive
@pytest.mark.parametrize("form", EAGLES)
def test_every_format_at_length(target, folders, form):
    lm = opened(target, folders[form], context=400)
    options = {"max_new_tokens": 300, "ignore_eos": True}
    for sampling in (GREEDY, SAMPLED):
        plain = lm.generate(PROMPTS[0], **options, speculate=False, seed=1, **sampling)
        for way in ({"drafter": "eagle"}, {"drafter": "eagle", "speculate": "always"}, {"speculate": "always"}):
            assert lm.generate(PROMPTS[0], **options, seed=1, **sampling, **way).tokens == plain.tokens


@pytest.mark.parametrize("form", ["eagle1", "specforge", "speculators"])
def test_it_grows_with_its_model(tmp_path, target, folders, form):
    drafts = []
    for k in (1, 2):
        model, head = grow(target, tmp_path / f"{k}", k), grow(folders[form], tmp_path / f"head-{k}", k)
        session = session_of(model, head, PROMPTS[0])
        session.draft(_core.TreeRule(confidence=0.0, max_draft=5, width=(1, 1, 1, 1)))
        drafts.append(session.tree_tokens.tolist())
    assert drafts[0] == drafts[1] and len(drafts[0]) == 6


class TestWhatDoesNotFit:
    """Errors name both sides."""

    @pytest.mark.parametrize(
        ("form", "changes", "words"),
        [
            ("specforge", {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 2, 8]}}, "0..7 ascending"),
            ("specforge", {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 0, 5]}}, "ascending"),
            ("specforge", {"eagle_config": {"use_aux_hidden_state": False}}, "use_aux_hidden_state=false"),
            ("specforge", {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 2]}}, "the config wants .64, 128."),
            ("speculators", {"eagle_aux_hidden_state_layer_ids": [0, 3, 6]}, "1..8 ascending"),
            ("speculators", {"norm_before_fc": True}, "norm_before_fc=true is not supported"),
            ("specforge", {"norm_output": True}, "norm_output=true is not supported"),
            ("fusion", {"layernorms": True}, "layernorms=true is not supported"),
            ("eagle3", {"draft_vocab_size": 400}, "draft_vocab_size is 400, the model has 320"),
            ("eagle3", {"draft_vocab_size": 50}, "tensor d2t has shape .100., the config wants .50."),
            ("eagle3", {"vocab_size": 352}, "vocab_size is 352 in the draft model and 320 in the model"),
            ("narrow", {"target_hidden_size": 48}, "target_hidden_size is 48 in the draft model and 64 in the model"),
            ("eagle1", {"hidden_size": 48}, "hidden_size is 48 in the draft model and 64 in the model"),
            ("eagle3", {"hidden_size": 48}, "hidden_size is 48 in the draft model and 64 in the model"),
        ],
    )  # fmt: skip
    def test_configs(self, tmp_path, target, form, changes, words):
        folder = make_eagle(tmp_path / "head", target, form)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))
        with pytest.raises(swiftk.SwiftkError, match=words):
            opened(target, folder)

    @pytest.mark.parametrize(
        ("form", "name", "words"),
        [
            ("specforge", "d2t", "there is no tensor d2t. is 100 in the draft model and 320 in the model"),
            ("specforge", "midlayer.hidden_norm.weight", "tensor midlayer.hidden_norm.weight is missing"),
            ("eagle1", "layers.1.input_layernorm.weight", "tensor layers.1.input_layernorm.weight is missing"),
            ("narrow", "embed_tokens.weight", "hidden_size is 32 in the draft model and 64 in the model, which needs"),
        ],
    )
    def test_missing_tensors(self, tmp_path, target, form, name, words):
        with pytest.raises(swiftk.SwiftkError, match=words):
            opened(target, make_eagle(tmp_path / "head", target, form, drop=(name,)))

    @pytest.mark.parametrize(
        ("name", "tensor", "words"),
        [
            ("d2t", Tensor("I64", np.zeros(100, np.int64) + 221), "d2t.99. is 221, want that 99 and it"),
            ("d2t", Tensor("I64", -np.arange(100)), "d2t.1. is -1, .* that is no other's"),
            ("d2t", Tensor("F32", np.zeros(100, np.float32)), "tensor d2t has dtype F32, want I64 or I32"),
            ("fc_norm.weight", Tensor("F32", np.zeros(64, np.float32)), "tensor fc_norm.weight is in the checkpoint"),
        ],
    )
    def test_other_tensors(self, tmp_path, target, name, tensor, words):
        folder = make_eagle(tmp_path / "head", target)
        tensors = {n: Tensor(t.dtype, t.bits.copy()) for n, t in read_folder(folder).items()}
        list(write_folder(folder, {**tensors, name: tensor}))
        with pytest.raises(swiftk.CheckpointError, match=words):
            opened(target, folder)

    def test_too_few_layers_for_the_usual_ones(self, tmp_path):
        shallow = make_tiny(tmp_path / "target", "llama3", "float32", layers=4)
        with pytest.raises(swiftk.CheckpointError, match="it has 4, too few for the usual 1, L / 2 - 1 and L - 4"):
            opened(shallow, make_eagle(tmp_path / "head", shallow, "eagle3"))

    def test_a_pickle(self, tmp_path, target):
        folder = make_eagle(tmp_path / "head", target, "eagle1")
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        with pytest.raises(swiftk.UnsupportedModel, match=r"has pytorch_model.bin: .*Convert them: safetensors"):
            opened(target, folder)
