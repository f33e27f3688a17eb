"""Drafts whose attention sees parts of a text: which ones they see, and that no text changes."""

import numpy as np
import pytest
import torch
import transformers

import swiftk
from decode import Rule, decode, open_model, open_session
from swiftk import DraftSpec, _core
from swiftk.errors import InvalidArgument

BLOCK = 64
TEXT = [int(t) for t in np.random.default_rng(11).integers(3, 320, 300)]
CHAIN = {"confidence": 0.0, "tier": (0.5, 0.8, 0.95), "width": (1, 1, 1, 1)}
SAMPLINGS = {"greedy": {}, "sampled": {"temperature": 0.9, "top_k": 40, "seed": 3}}
SPECS = {
    "own": DraftSpec(window=70),
    "int4": DraftSpec(weights="int4", window=1),
    "skips": DraftSpec(attn=[1], mlp=[2], window=64),
    "exit": DraftSpec(exit_layer=3, window=100),
}
LONG = [int(t) for t in np.random.default_rng(12).integers(3, 320, 2400)]  # heavy runs are known from 2,048 tokens on
RUN = 512  # tokens
HEAVY = {
    "own": DraftSpec(window=70, heavy=1),
    "int4": DraftSpec(weights="int4", window=1, heavy=2),
    "skips": DraftSpec(attn=[1], mlp=[2], window=500, heavy=9),
}
FAMILIES = {"llama3": {}, "gemma2": {"dtype": "float32"}, "mistral": {}, "qwen3": {"dtype": "float16"}}


def seen(cached, window):
    """Places of a text that a draft sees, of so many that are cached."""
    unseen = max(0, (cached - window) // BLOCK - 1)
    return [*range(min(BLOCK, cached)), *range(BLOCK * (1 + unseen), cached)]


def drafted(model, text, spec, steps=6):
    """The last token of a text and the chain that is drafted after it."""
    session = open_session(model)
    session.prefill(np.int32(text))
    session.set_skip(_core.DraftSpec(**spec.arguments()))
    session.draft(_core.TreeRule(max_draft=steps, **CHAIN))
    return list(session.tree_tokens)


def test_what_a_draft_does_not_see_changes_nothing_of_it(tiny_dir):
    """With one layer, keys and values are those of single tokens."""
    model = open_model(tiny_dir("llama3", layers=1, vocab_size=320))
    hidden = sorted(set(range(len(TEXT))) - set(seen(len(TEXT), 70)))
    assert hidden == list(range(BLOCK, 3 * BLOCK))
    ours, compared, other = drafted(model, TEXT, DraftSpec(window=70)), 0, np.array(TEXT)
    whole = drafted(model, TEXT, DraftSpec(attn=[], mlp=[]))
    differ = 0
    for seed in range(40):
        other[hidden] = np.random.default_rng(seed).integers(3, 320, len(hidden))
        theirs = drafted(model, other, DraftSpec(window=70))
        if theirs[0] != ours[0]:
            continue  # the target sees all, and went on otherwise
        compared += 1
        assert theirs == ours
        differ += drafted(model, other, DraftSpec()) != whole
    assert compared > 3 and differ > 0, (compared, differ)


def continued(theirs, text, places, token, steps):
    """The tokens that transformers' model adds after a text and `token`, greedy, with keys of these places alone."""
    found = []
    with torch.no_grad():
        whole = theirs(torch.tensor([text]), use_cache=True).past_key_values
        cache, places = transformers.DynamicCache(), torch.tensor(places)
        for number, layer in enumerate(whole.layers):
            cache.update(layer.keys[:, :, places], layer.values[:, :, places], number)
        for at in range(len(text), len(text) + steps):
            out = theirs(
                torch.tensor([[token]]), past_key_values=cache, position_ids=torch.tensor([[at]]), use_cache=True
            )
            token = int(out.logits[0, -1].argmax())
            found.append(token)
    return found


@pytest.mark.parametrize("family", ["llama3", "qwen3"])
def test_it_drafts_what_transformers_makes_of_the_same_keys(tiny_dir, family):
    folder = tiny_dir(family, layers=3, vocab_size=320)
    model = open_model(folder, dtype="float32")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    root, *chain = drafted(model, TEXT, DraftSpec(window=70))
    assert chain == continued(theirs, TEXT, seen(len(TEXT), 70), root, len(chain))
    assert chain != drafted(model, TEXT, DraftSpec())[1:], "the window changed nothing: the test would say nothing"


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("family", FAMILIES)
def test_texts_stay_the_same(tiny_dir, family, spec, sampling):
    """Layers with windows of their own among them."""
    folder = tiny_dir(family, layers=4, vocab_size=320)
    model = _core.Model(str(folder), threads=2, draft_weights="int4", **FAMILIES[family])
    plain = decode(open_session(model, sampling=sampling), TEXT, 60, keep_logits=True)
    for rule in (Rule(tuple(spec.arguments().values()), 0.0, 6), Rule(tuple(spec.arguments().values()), 0.9, 12)):
        fast = decode(open_session(model, sampling=sampling), TEXT, 60, rule, keep_logits=True)
        assert fast.tokens == plain.tokens
        assert np.array(fast.logits[:60]).tobytes() == np.array(plain.logits).tobytes()


def heavy(theirs, text, window, runs):
    """Runs between the first one and the window's beginning to which the last token of a text attends most."""
    with torch.no_grad():
        attention = theirs(torch.tensor([text]), output_attentions=True).attentions
    mass = sum(layer[0, :, -1].sum(0) for layer in attention)[: len(text)]
    end = BLOCK * (1 + max(0, (len(text) - window) // BLOCK - 1)) // RUN * RUN
    found = [float(mass[at : at + RUN].sum()) for at in range(0, end, RUN)]
    best = sorted(range(1, len(found)), key=lambda run: -found[run])[:runs]
    return [place for run in sorted(best) for place in range(run * RUN, (run + 1) * RUN)], end, found


@pytest.mark.parametrize("runs", [1, 2])
def test_heavy_runs_are_those_that_the_last_verification_attended_to(tiny_dir, runs):
    folder = tiny_dir("llama3", layers=3, vocab_size=320, max_position_embeddings=4096)
    session = open_session(open_model(folder, dtype="float32"))
    session.prefill(np.int32(LONG))
    session.draft(_core.TreeRule(max_draft=0, **CHAIN))
    session.verify()  # a plain step, whose root is the last token that is cached then
    session.commit(1)
    text = [int(token) for token in session.history[:-1]]
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    some, end, found = heavy(theirs, text, 70, runs)
    assert max(found[1:]) > 1.001 * sorted(found[1:])[-1 - runs], "no run is heavier: the test would say nothing"
    session.set_skip(_core.DraftSpec(window=70, heavy=runs))
    session.draft(_core.TreeRule(max_draft=6, **CHAIN))
    root, *chain = session.tree_tokens
    places = [*range(BLOCK), *some, *range(end, len(text))]
    assert list(chain) == continued(theirs, text, places, root, len(chain))


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("spec", HEAVY.values(), ids=HEAVY)
def test_texts_with_heavy_runs_stay_the_same(tiny_dir, spec, sampling):
    folder = tiny_dir("mistral", layers=4, vocab_size=320, max_position_embeddings=4096)
    model = _core.Model(str(folder), threads=2, draft_weights="int4")
    plain = decode(open_session(model, sampling=sampling), LONG, 40, keep_logits=True)
    for rule in (Rule(tuple(spec.arguments().values()), 0.0, 6), Rule(tuple(spec.arguments().values()), 0.9, 12)):
        fast = decode(open_session(model, sampling=sampling), LONG, 40, rule, keep_logits=True)
        assert fast.tokens == plain.tokens
        assert np.array(fast.logits[:40]).tobytes() == np.array(plain.logits).tobytes()


def test_heavy_runs_of_texts_that_share_blocks_and_are_preempted(tiny_dir):
    """Three texts that begin alike, with memory for one of them and some blocks more."""
    folder = tiny_dir("llama3", layers=3, vocab_size=320, max_position_embeddings=4096)
    model = _core.Model(str(folder), threads=2, draft_weights="int4")
    prompts = [[*LONG[:2050], *LONG[at : at + 90]] for at in (2100, 2200, 2300)]
    plain = [decode(open_session(model), prompt, 60).tokens[:60] for prompt in prompts]
    block = 64 * 2 * model.config["num_kv_heads"] * model.config["head_dim"] * 2 * model.config["num_layers"]
    engine = _core.Engine(model, context=2304, sequences=3, kv_memory=41 * block, poison=True)
    rule = _core.TreeRule(confidence=0.0, max_draft=5, width=(2, 2, 2, 2))
    options = {"drafting": "ruled", "rule": rule, "plans": "fixed", "always": True, "max_new_tokens": 60}
    skips, boxes = [_core.DraftSpec(**HEAVY["int4"].arguments())], {}
    ids = [engine.submit(boxes, _core.Request(prompt=np.int32(one), skips=skips, **options)) for one in prompts]
    made, preempted = {id: [] for id in ids}, 0
    while not engine.idle():
        engine.step(boxes)
        preempted += engine.last["preempted"]
        for id in ids:
            while boxes[id]:
                made[id] += [one.token for one in boxes[id].popleft().tokens]
    assert preempted > 0, "no text was preempted: the test would say nothing"
    assert list(made.values()) == plain


def test_a_window_as_long_as_the_text_sees_all(tiny_dir):
    model = open_model(tiny_dir("llama3", layers=4, vocab_size=320))
    assert drafted(model, TEXT, DraftSpec(window=300)) == drafted(model, TEXT, DraftSpec())


@pytest.mark.parametrize("window", [0, -1, "64", 1.5, True])
def test_windows_that_are_none(window):
    with pytest.raises(InvalidArgument, match="window="):
        DraftSpec(window=window)


@pytest.mark.parametrize("heavy, window", [(-1, 64), (1, None), ("2", 64), (True, 64)])
def test_heavy_runs_that_are_none(heavy, window):
    with pytest.raises(InvalidArgument, match="heavy="):
        DraftSpec(window=window, heavy=heavy)
    if type(heavy) is int:
        with pytest.raises(InvalidArgument, match="heavy is"):
            open_session(_core.Model(str(swiftk.demo_model()))).set_skip(
                _core.DraftSpec(window=window or 0, heavy=heavy)
            )


def test_a_draft_model_alone_has_no_window():
    with pytest.raises(InvalidArgument, match="drafter"):
        DraftSpec(weights="drafter", window=64).check(4)
