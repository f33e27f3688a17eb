"""A draft whose numbers overflow proposes nothing there: no text fails for what its draft alone does."""

import numpy as np
import pytest

import swiftk
from decode import TOUCHED
from heads import make_eagle
from swiftk import DraftSpec, TreeRule
from swiftk.files.safetensors_io import Tensor, read_folder, write_folder
from swiftk.testing import make_tiny

PROMPTS = [[5, 9, 17, 33, 5, 9, 17], [7] * 30]
SAMPLINGS = {"greedy": {"temperature": 0.0}, "sampled": {"temperature": 1.0, "top_p": 0.9, **TOUCHED}}
WAYS = {
    "auto": {"drafter": "auto"},
    "alone": {"drafter": "eagle"},
    "chain": {"skip": "drafter", "optimizer": None, "gate": TreeRule(confidence=0.0, max_draft=6), "drafter": "plan"},
    "guide": {"skip": DraftSpec(weights=("int4", "drafter")), "optimizer": None, "drafter": "plan"},
    "rejection": {"skip": "drafter", "optimizer": None, "drafter": "plan", "acceptance": "rejection"},
}


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    """Beside a head that says numbers at first, and none when it has read what it said itself."""
    base = tmp_path_factory.mktemp("overflow")
    target = make_tiny(base / "target", "qwen3", "float32", layers=6)
    head = make_eagle(base / "head", target, "eagle1")
    large = {
        name: Tensor(t.dtype, (t.bits.view(np.float32) * (1e30 if "fc" in name else 1)).view(t.bits.dtype))
        for name, t in read_folder(head).items()
    }
    list(write_folder(head, large))
    with swiftk.load(target, device="cpu", drafter=head, draft_weights="int4") as lm:
        yield lm


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("way", WAYS)
def test_a_head_that_overflows_changes_no_text(lm, way, sampling):
    options = {"max_new_tokens": 40, "ignore_eos": True, "seed": 3, **SAMPLINGS[sampling]}
    lm.forget()
    plain = lm.generate_many(PROMPTS, speculate=False, **options)
    drafted = lm.generate_many(PROMPTS, speculate="always", **options, **WAYS[way])
    assert sum(r.stats.num_draft_steps for r in drafted) > 0
    assert [len(r.tokens) for r in drafted] == [40, 40]
    if (way, sampling) != ("rejection", "sampled"):  # other draws than plain decoding's
        assert [r.tokens for r in drafted] == [r.tokens for r in plain]
