"""Draft models of every kind beside one model, and parts of the contract that they keep on every device."""

from functools import partial

import numpy as np
import pytest

import swiftk
from decode import TOUCHED
from distribution import touched
from heads import EAGLES, FORMATS, make_block, make_eagle, make_moa
from swiftk import TreeRule, _core
from swiftk.draft.draft_spec import DRAFTER_NAMES
from swiftk.testing import make_tiny

LONG = np.random.default_rng(0).integers(3, 320, 150).tolist()
PROMPTS = ([5, 9, 17, 33], [7] * 70, [300, 2, 11, 11, 250, 31, 90], LONG, [9])  # nothing comes before a single token
GREEDY, SAMPLED = {"temperature": 0.0}, {"temperature": 1.0, "top_p": 0.9, **TOUCHED}
SAMPLINGS = {"greedy": GREEDY, "sampled": SAMPLED}
CHAIN = {"confidence": 0.0, "max_draft": 6, "width": (1, 1, 1, 1)}
WIDE = {"confidence": 0.0, "max_draft": 4, "width": (5, 4, 3, 2)}
BEAM = {"beam": 4, "max_draft": 3, "max_nodes": 16}
DRAFTS = {"skip": "drafter", "speculate": "always", "drafter": "plan"}
BY_CHAIN, BY_WIDE, BY_BEAM = ({**DRAFTS, "gate": TreeRule(**rule)} for rule in (CHAIN, WIDE, BEAM))
REJECTS = {"acceptance": "rejection", "recall": False}
PLAN = 1  # the source of what a draft step proposes


def model_of(**shape):
    """An independent model of another shape."""
    shape = {"layers": 2, "tokenizer": False, **shape}
    return lambda folder, target: make_tiny(folder, "llama2", "float32", **shape)


ONE_LAYER = {"form": "eagle1", "changes": {"num_hidden_layers": 1}, "drop": ("embed_tokens.weight",)}
KINDS = {
    "model": {
        "model": model_of(seed=3, hidden_size=32, tokenizer=None),
        "padded": model_of(seed=4, vocab=352),
        "fewer": model_of(seed=5, vocab=288),
        "self": lambda folder, target: target,
    },
    "block": {
        **{form: partial(make_block, form=form) for form in FORMATS},
        "few": partial(make_block, draft_vocab=100),
        "few-dflash": partial(make_block, form="dflash", draft_vocab=77),
        "foretells-from-states": partial(make_block, changes={"confidence_head_with_markov": False}),
        "foretells-nothing": partial(make_block, changes={"enable_confidence_head": False}),
    },
    "moa": {
        **{f"moa-{last}": partial(make_moa, last=last) for last in (0, 1, 3)},
        **{f"moa-{last}-biased": partial(make_moa, last=last, form="Qwen2") for last in (0, 1, 3)},
    },
    "eagle": {
        **{form: partial(make_eagle, form=form) for form in EAGLES},
        "eagle1-flat": partial(make_eagle, **ONE_LAYER),
    },
}
MAKERS = {name: make for makers in KINDS.values() for name, make in makers.items()}
KIND = {name: kind for kind, makers in KINDS.items() for name in makers}


class Heads(dict):
    """Folders by name, each made when it is first asked for."""

    def __init__(self, base, target):
        super().__init__()
        self.base, self.target = base, target

    def __missing__(self, name):
        self[name] = MAKERS[name](self.base / name, self.target)
        return self[name]


@pytest.fixture(name="target", scope="module")
def target_fixture(tiny_dir):
    return tiny_dir("qwen3", dtype="float32", layers=8)


@pytest.fixture(name="heads", scope="module")
def heads_fixture(tmp_path_factory, target):
    return Heads(tmp_path_factory.mktemp("heads"), target)


def opened(target, drafter, **options):
    """An LM beside which a drafter, or several, are loaded as they are stored."""
    options = {"device": "cpu", "dtype": "float32", "draft_weights": "own", **options}
    return swiftk.load(target, drafter=drafter, **options)


def beside(target, *folders, dtype="float32"):
    return _core.Model(str(target), dtype=dtype, drafters=[str(folder) for folder in folders])


def session_of(model, prompt, number=0):
    """A session that drafts by one of the model's drafters."""
    session = _core.Session(model, poison=True)
    session.set_skip(_core.DraftSpec(weights=[DRAFTER_NAMES[number]]))
    session.prefill(np.int32(prompt))
    return session


def paths(session):
    """Tokens from the root to each node, the root's left out."""
    found = [()]
    for token, parent in zip(session.tree_tokens.tolist()[1:], session.tree_parents.tolist()[1:], strict=True):
        found.append((*found[parent], token))
    return found


def drafts(session, rounds, **rule):
    """Trees of some rounds, each by its tokens and parents, and the text that came of them."""
    found = []
    for _ in range(rounds):
        session.draft(_core.TreeRule(**rule))
        found.append((session.tree_tokens.tolist(), session.tree_parents.tolist()))
        assert not session.last["at_once"]
        session.commit(len(session.verify()))
    return found, session.history.tolist()


def ways(kind):
    """Ways to draft by a drafter of that kind: by the clock, and by rules."""
    clocked = [{"drafter": kind}, {"drafter": kind, "speculate": "always"}, {"speculate": "always"}]
    return [*clocked, BY_CHAIN, BY_WIDE, BY_BEAM, {**BY_CHAIN, **REJECTS}, {**BY_BEAM, **REJECTS}]


def tokens_of(results):
    return [r.tokens for r in results]


def counts_of(results):
    return [(r.stats.num_draft_tokens, r.stats.num_accepted_draft_tokens) for r in results]


def assert_plain(lm, length, sampling, asked, prompts=PROMPTS):
    """Texts drafted in each way are plain decoding's, and are drafted; by a rule that knows no clock they draft alone
    as they do in company, whatever was cached. Draws under rejection are others: there they are those of texts alone.
    Returns the plain texts."""
    options = {"max_new_tokens": length, "ignore_eos": True, "seed": 3, **sampling}
    plain = tokens_of(lm.generate_many(prompts, speculate=False, **options))
    for way in asked:
        together = lm.generate_many(prompts, **options, **way)
        exact = sampling["temperature"] == 0 or "acceptance" not in way
        assert not exact or tokens_of(together) == plain, way
        drafted = [count for count, _ in counts_of(together)]
        assert way.get("speculate") != "always" or sum(drafted) > 0, way
        if exact or "gate" in way:
            alone = [lm.generate(prompt, **options, **way) for prompt in prompts]
            assert tokens_of(alone) == tokens_of(together), way
            assert "gate" not in way or (counts_of(alone) == counts_of(together) and min(drafted) > 0), way
    return plain


def assert_always_right(lm):
    """The model drafts for itself: every draft is accepted, and blocks are as long as they can be."""
    for sampling in (GREEDY, {"temperature": 1.0}):
        stats = lm.generate(PROMPTS[1], max_new_tokens=29, ignore_eos=True, seed=2, **BY_CHAIN, **sampling).stats
        assert stats.num_accepted_draft_tokens == stats.num_draft_tokens
        assert stats.mean_generated_length == 7


def assert_drafts_after_a_prefix(lm):
    """A text that takes rows of another one over drafts as well."""
    options = {"max_new_tokens": 20, "ignore_eos": True, **GREEDY, **BY_CHAIN}
    first, again = (lm.generate(list(range(3, 150)), **options) for _ in range(2))
    assert again.stats.cached_prompt_tokens > 100
    assert (again.tokens, *counts_of([again])) == (first.tokens, *counts_of([first]))


def assert_said(session, said, rule, prompt=(), **touches):
    """Drafts and verifies a tree. The proposals after each node that was read are the best by the oracle, and how sure
    the drafter was of its best, where the text came by, is the oracle's word. Returns the emitted tokens. touches: of
    the session's sampler, as distribution.touched() takes them."""
    session.draft(_core.TreeRule(**rule))
    text, features, parents = session.history.tolist(), session.features, session.tree_parents.tolist()
    assert len(features) == len(text) - 1
    found, answers, sure = paths(session), {}, {}
    for node in reversed(range(session.drafted_from)):  # a path answers for its beginnings
        path = found[node]
        if path not in answers:
            logits, foretold = said(text, features, path)
            rows = zip(logits, [None] * len(logits) if foretold is None else foretold, strict=True)
            answers |= {path[:i]: row for i, row in enumerate(rows)}
        logits, sure[path] = answers[path]
        scores = touched(logits, prompt=prompt, generated=[*text[len(prompt) :], *path], **touches)
        if sure[path] is None:
            sure[path] = np.exp(logits[scores.argmax()] - np.logaddexp.reduce(logits))
        children = [found[i][-1] for i, at in enumerate(parents) if at == node and session.tree_sources[i] == PLAN]
        best = np.sort(scores)[-max(1, parents.count(node)) :]  # sources propose some of these, too
        assert all(scores[children] >= best[0] - 1e-3)
    emitted = [e.token for e in session.verify()]
    taken = [tuple(emitted[:i]) for i in range(len(emitted))]
    assert [chance for chance, _ in session.outcomes] == pytest.approx([sure[x] for x in taken if x in sure], rel=1e-3)
    return emitted
