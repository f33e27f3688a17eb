"""A Mixture of Attentions: shapes of its layers, what its authors' config leaves out, models of other families."""

import pytest

import swiftk
from head_contract import (
    CHAIN,
    GREEDY,
    PROMPTS,
    assert_plain,
    beside,
    drafts,
    heads_fixture,  # noqa: F401
    opened,
    session_of,
    target_fixture,  # noqa: F401
)
from heads import make_moa
from swiftk.testing import make_tiny

pytestmark = pytest.mark.skipif("config.getoption('device') != 'cpu'", reason="on a GPU: test_stub_drafters.py")

ALWAYS = [{"drafter": "moa", "speculate": "always"}]


def test_the_authors_config_does(target, tmp_path, heads):
    """It is the model's own: what it leaves out, tensors say."""
    plain = make_moa(tmp_path / "plain", target, own=False)
    found, want = (drafts(session_of(beside(target, one), PROMPTS[2]), 3, **CHAIN) for one in (plain, heads["moa-0"]))
    assert found == want


@pytest.mark.parametrize("over_states", [2, 8])
@pytest.mark.parametrize("kv_heads", [(1, 1, 1), (4, 2, 1)])
def test_any_number_of_heads(tmp_path, target, over_states, kv_heads):
    lm = opened(target, make_moa(tmp_path / "head", target, 1, heads=over_states, kv_heads=kv_heads))
    assert_plain(lm, 20, GREEDY, ALWAYS, PROMPTS[2:3])


@pytest.mark.parametrize("family", ["llama3.1", "mistral", "qwen2", "llama-bias"])
def test_families(tmp_path, family):
    model = make_tiny(tmp_path / "model", family, "bfloat16", layers=4)
    changes = {"sliding_window": None, "use_sliding_window": False, "rope_scaling": None}
    lm = swiftk.load(model, device="cpu", drafter=make_moa(tmp_path / "head", model, 2, dtype="BF16", changes=changes))
    assert_plain(lm, 30, {"temperature": 1.0}, ALWAYS, PROMPTS[2:3])
