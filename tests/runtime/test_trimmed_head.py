"""Drafts by a vocabulary head that is trimmed to some tokens: they propose no others, and change no text."""

import numpy as np
import pytest

import swiftk
from decode import Rule, decode, open_session, requested
from grammars import Only
from heads import make_block, make_eagle, make_moa
from swiftk import DraftSpec, _core
from swiftk.errors import InvalidArgument, UnsupportedModel
from swiftk.testing import make_tiny

PROMPT = [int(t) for t in np.random.default_rng(5).integers(3, 300, 21)]
SOME = [int(t) for t in np.random.default_rng(7).permutation(320)[:131]]
SAMPLINGS = {"greedy": {}, "sampled": {"temperature": 0.9, "top_k": 40, "seed": 3}}
SPECS = {
    "own": DraftSpec(trimmed=True),
    "int4": DraftSpec(weights="int4", trimmed=True),
    "skips": DraftSpec(attn=[1], mlp=[2], trimmed=True),
    "exit": DraftSpec(exit_layer=2, trimmed=True),
}
FEW = {"llama3": {}, "gemma2": {"dtype": "float32"}, "granite": {"dtype": "float16"}, "exaone4": {}, "qwen3": {}}


def loaded(folder, tokens=SOME, **options):
    return _core.Model(str(folder), threads=2, draft_tokens=tokens, **{"draft_weights": "int4", **options})


def rule(spec, **fields):
    return Rule(tuple(spec.arguments().values()), 0.0, 6, **fields)


def followed(model, spec, sampling, length=40):
    """(plain, drafted), whose logits are compared; sampled texts draw by the same noise."""
    plain = decode(open_session(model, sampling=sampling), PROMPT, length, keep_logits=True)
    fast = decode(open_session(model, sampling=sampling), PROMPT, length, rule(spec), keep_logits=True)
    assert fast.tokens == plain.tokens
    assert np.array(fast.logits[:length]).tobytes() == np.array(plain.logits).tobytes()
    return plain, fast


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("family", FEW)
def test_texts_stay_the_same(tiny_dir, family, spec, sampling):
    """Tied heads and others, with logits that are scaled and capped."""
    model = loaded(tiny_dir(family, layers=4, vocab_size=320, **FEW[family]))
    usual = set(decode(open_session(model, sampling=sampling), PROMPT, 40).tokens)
    # Half of what the text has: so that some drafts are right, and others cannot be.
    model = loaded(tiny_dir(family, layers=4, vocab_size=320, **FEW[family]), [*SOME, *sorted(usual)[::2]])
    _, fast = followed(model, spec, sampling)
    assert fast.accepted > 0, "nothing was accepted: the test would say nothing"


@pytest.mark.parametrize("isa", _core.isas())
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "int4"])
def test_every_instruction_set(tiny_dir, isa, dtype):
    model = loaded(tiny_dir("llama3", layers=4, vocab_size=320), range(0, 320, 2), dtype=dtype, isa=isa)
    followed(model, SPECS["own"], {})
    followed(model, SPECS["own"], SAMPLINGS["sampled"])


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_weights_in_few_bits_have_the_logits_of_the_whole_head(tiny_dir, dtype, tied):
    folder = tiny_dir("llama3", layers=4, vocab_size=320, tie_word_embeddings=tied)
    session = open_session(loaded(folder, [*range(319, -1, -1), 5], dtype=dtype))
    decode(session, PROMPT, 40)
    whole, trimmed = (session.score(_core.DraftSpec(trimmed=one), 40) for one in (False, True))
    assert len(whole[0]) > 30 and whole[0].tobytes() == trimmed[0].tobytes()
    assert list(whole[1]) == list(trimmed[1])


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_of_a_list_of_all_tokens_every_draft_is_right(tiny_dir, sampling):
    model = loaded(tiny_dir("llama3", layers=4, vocab_size=320), range(319, -1, -1), dtype="int8")
    fast = decode(open_session(model, sampling=sampling), PROMPT, 40, rule(SPECS["own"], width=(1, 1, 1, 1)))
    assert fast.accepted == 40 - 1 - fast.rounds


@pytest.mark.parametrize("acceptance", ["coupled", "rejection"])
def test_no_other_token_is_drafted(tiny_dir, acceptance):
    model = loaded(tiny_dir("qwen3", layers=4, vocab_size=320))
    session = open_session(model, sampling={"temperature": 1.0, "seed": 4}, acceptance=acceptance)
    session.prefill(np.asarray(PROMPT, np.int32))
    session.set_skip(_core.DraftSpec(trimmed=True))
    drafted, right = [], 0
    for _ in range(40):
        session.draft(_core.TreeRule(confidence=0.0, max_draft=5))
        drafted += list(session.tree_tokens)[1:]
        emitted = session.verify()
        right += sum(e.drafted for e in emitted)
        session.commit(len(emitted))
    assert set(drafted) <= set(SOME) and len(set(drafted)) > 20
    assert right > 0


def test_rows_of_all_layers_are_run_once(tiny_dir):
    """The draft's layers are the target's own, so that only the head is left to run."""
    model = loaded(tiny_dir("llama3", layers=4, vocab_size=320))
    on, off = (open_session(model) for _ in range(2))
    off.set_kvq(False)
    for session in (on, off):
        session.prefill(np.asarray(PROMPT, np.int32))
        session.set_skip(_core.DraftSpec(trimmed=True))
    for _ in range(4):
        nodes = [session.draft(_core.TreeRule(confidence=0.0, max_draft=5)) for session in (on, off)]
        emitted = [[e.token for e in session.verify()] for session in (on, off)]
        assert nodes[0] == nodes[1] and emitted[0] == emitted[1]
        assert np.array(on.logits).tobytes() == np.array(off.logits).tobytes()
        assert on.last["reused_rows"] > 0 and off.last["reused_rows"] == 0
        for session in (on, off):
            session.commit(len(emitted[0]))


def test_texts_together(tiny_dir):
    """By the default, and by the trimmed head in every round, beside texts that draft by other plans."""
    with swiftk.load(tiny_dir("gemma3", layers=4), threads=2, draft_vocab=SOME, draft_weights="int4") as lm:
        prompts = [PROMPT * 4, PROMPT * 4 + [7], PROMPT * 3 + [9, 8], [11, *PROMPT]]
        for sampling in SAMPLINGS.values():
            options = {"max_new_tokens": 24, "stop_token_ids": [], **sampling}
            alone = [lm.generate(prompt, speculate=False, **options).tokens for prompt in prompts]
            for skips in ([None] * 4, [SPECS["own"]] * 4, [SPECS["own"], SPECS["int4"], SPECS["exit"], None]):
                how = [{"skip": skip, "speculate": "always"} if skip else {} for skip in skips]
                streams = lm.submit_many(prompts, [{**options, **its} for its in how])
                results = [stream.wait() for stream in streams]
                assert [one.tokens for one in results] == alone
            assert sum(sum(one.drafted) for one in results) > 0


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_a_grammar_that_allows_what_the_head_lacks(tiny_dir, sampling):
    """What it allows is proposed before what it forbids, whatever the head knows."""
    model = loaded(tiny_dir("llama3", layers=4, vocab_size=320))
    lacking = [token for token in range(3, 320) if token not in SOME][:40]

    def run(tokens, **given):
        engine, boxes = _core.Engine(model, context=128), {}
        options = {"max_new_tokens": 20, **sampling, **given, "constraint": Only(*tokens)}
        id = engine.submit(boxes, _core.Request(prompt=np.int32(PROMPT), **requested(options)))
        while not engine.idle():
            engine.step(boxes)
        turns = list(boxes[id])
        assert turns[-1].error is None
        proposed = {node[0] for turn in turns for node in turn.tree}
        return [e.token for turn in turns for e in turn.tokens], proposed

    fixed = {"drafting": "planned", "plans": "fixed", "always": True, "explain": True, "sources": []}
    for allowed in (lacking, [*lacking[:5], *SOME[:5]]):
        plain, _ = run(allowed, drafting="off")
        drafted, proposed = run(allowed, skips=[tuple(SPECS["own"].arguments().values())], **fixed)
        assert drafted == plain and set(plain) <= set(allowed)
        assert proposed and proposed <= set(allowed)


@pytest.mark.parametrize("kind", ["eagle", "block"])
def test_beside_heads(tiny_dir, tmp_path, kind):
    """Which read what layers leave, so that no rows are kept; or propose tokens to a copy, whose head is trimmed."""
    target = tiny_dir("llama3", layers=6, vocab_size=320)
    make = make_eagle if kind == "eagle" else make_block
    model = loaded(target, drafters=[str(make(tmp_path / "head", target))])
    guided = [DraftSpec(weights=("int4", "drafter"), trimmed=True)] if kind == "eagle" else []
    for spec in (SPECS["own"], SPECS["int4"], *guided):
        followed(model, spec, {})
    with pytest.raises(InvalidArgument, match="has a head of its own, want trimmed off"):
        open_session(model).set_skip(_core.DraftSpec(weights=["drafter"], trimmed=True))


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("kind", ["eagle1", "block", "moa", "moa-2", "specforge"])
def test_heads_that_share_the_vocabulary_head_read_the_trimmed_one(tiny_dir, tmp_path, kind, sampling):
    """Also after layers of the model's; a head with tokens of its own keeps them."""
    target, head = tiny_dir("llama3", layers=6, vocab_size=320), tmp_path / "head"
    if kind.startswith("moa"):
        make_moa(head, target, last=int(kind[4:] or 0))
    elif kind == "block":
        make_block(head, target)
    else:
        make_eagle(head, target, kind)
    drafted = {}
    for tokens in (SOME, list(range(320))):
        model = loaded(target, tokens, drafters=[str(head)])
        session = open_session(model, sampling=sampling)
        session.prefill(np.asarray(PROMPT, np.int32))
        session.set_skip(_core.DraftSpec(weights=["drafter"]))
        found = drafted.setdefault(len(tokens), set())
        for _ in range(30):
            session.draft(_core.TreeRule(confidence=0.0, max_draft=4))
            found.update(list(session.tree_tokens)[1:])
            session.commit(len(session.verify()))
        followed(model, DraftSpec(weights="drafter"), sampling)
    some, every = drafted.values()
    assert len(some) > 20 and not every <= set(SOME)
    assert (some <= set(SOME)) == (kind != "specforge")


def test_the_planner_is_offered_both_heads(tiny_dir):
    folder = tiny_dir("llama3", layers=4)
    for copies, count in (("own", 1), ("int4", 3), ("int4,int3", 5)):
        with swiftk.load(folder, threads=1, draft_vocab=SOME, draft_weights=copies) as lm:
            lm.generate(PROMPT, max_new_tokens=2)
            plans = [plan["skip"] for plan in lm._engine.native.state()["plans"]]
            assert len(plans) == count and sum(plan[4] for plan in plans) == (count + 1) // 2


@pytest.mark.parametrize("tokens", [[-1, 3], [3, 5000], [2**31 - 1]])
def test_tokens_that_the_model_lacks(tiny_dir, tokens):
    outside = next(token for token in tokens if not 0 <= token < 320)
    with pytest.raises(InvalidArgument, match=rf"draft_vocab has token {outside}, want 0\.\.319"):
        loaded(tiny_dir("llama3", vocab_size=320), tokens)


def test_a_plan_needs_one(tiny_dir):
    folder = tiny_dir("llama3")
    with pytest.raises(InvalidArgument, match="trimmed needs a trimmed head, want a load that names its tokens"):
        open_session(_core.Model(str(folder))).set_skip(_core.DraftSpec(trimmed=True))
    lm = swiftk.load(folder, threads=1, draft_vocab="all")
    with pytest.raises(InvalidArgument, match="the model has no trimmed head"):
        lm.generate(PROMPT, skip=DraftSpec(trimmed=True))
    with pytest.raises(InvalidArgument, match="trimmed='yes', want True or False"):
        DraftSpec.from_dict({"trimmed": "yes"})
    drafter = DraftSpec(weights="drafter", trimmed=True)
    with pytest.raises(InvalidArgument, match="want one of both"):
        drafter.check(4, ("drafter", "trimmed"))


def test_converted_models(tmp_path):
    """Rows of a tied head are in their files, for they are the embedding's; of another one they are not."""
    for tied in (True, False):
        folder = make_tiny(tmp_path / f"in-{tied}", "llama3", layers=2, tie_word_embeddings=tied)
        out = swiftk.convert(folder, tmp_path / f"out-{tied}", dtype="int8", draft_weights="own")
        assert _core.Model(str(folder)).trimming_pays
        assert _core.Model(str(out)).trimming_pays == tied
        if tied:
            followed(loaded(out, draft_weights="own"), SPECS["own"], {})
        else:
            with pytest.raises(UnsupportedModel, match="want the model that it was made of"):
                loaded(out, draft_weights="own")


def test_sizes_are_known_before_it_is_loaded(tiny_dir):
    folder = str(tiny_dir("llama3", vocab_size=320))
    found, model = _core.survey(folder, draft_tokens=SOME), loaded(folder)
    assert found["draft_tokens"] == model.draft_tokens == len(set(SOME))
    assert found["trimmed_bytes"] == model.trimmed_bytes > 0


def test_small_heads_are_not_worth_it():
    assert not swiftk.load(swiftk.demo_model(), threads=1).model.trimming_pays
