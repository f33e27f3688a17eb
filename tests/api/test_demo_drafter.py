"""The head that ships with the demo model: it changes no token, and says much of what the model says."""

import pytest

import swiftk
from swiftk import TreeRule

PROMPTS = [
    "Question: Tom has 5 apples and buys 7 more. How many apples does he have?\nAnswer:",
    "def read_lines(path):\n",
]
CHAIN = {
    "skip": "drafter",
    "drafter": "plan",
    "gate": TreeRule(confidence=0.0, max_draft=5, width=(1, 1, 1, 1)),
    "speculate": "always",
}


@pytest.fixture(scope="module")
def lm():
    with swiftk.load(swiftk.demo_model(), drafter=swiftk.demo_drafter()) as found:
        yield found


@pytest.mark.parametrize(
    "way", [{}, {"drafter": "eagle"}, {"speculate": "always"}, CHAIN], ids=["auto", "eagle", "always", "chain"]
)
@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {"temperature": 1.0, "seed": 5}], ids=["greedy", "T 1"])
def test_no_token_changes(lm, way, sampling):
    for prompt in PROMPTS:
        asked = {"max_new_tokens": 60, "ignore_eos": True, **sampling}
        assert lm.generate(prompt, **asked, **way).tokens == lm.generate(prompt, **asked, speculate=False).tokens


def test_much_of_what_it_says_is_the_models(lm):
    stats = [lm.generate(p, max_new_tokens=100, ignore_eos=True, temperature=0.0, **CHAIN).stats for p in PROMPTS]
    assert sum(s.generated_tokens for s in stats) > 2 * sum(s.num_steps for s in stats)
