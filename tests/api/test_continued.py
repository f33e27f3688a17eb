"""A text that is cut anywhere and continued is the text that was not cut: tokens, what is shown, and why it ends."""

import pytest

import swiftk
from swiftk.errors import InvalidArgument

PROMPT = "Question: Natalia sold 48 clips in April. How many"
DAY = {"type": "json_schema", "schema": {"type": "object", "properties": {"day": {"type": "integer"}}}}
HOW = {
    "greedy": {},
    "sampled": {"temperature": 1.0, "seed": 5},
    "penalties": {"frequency_penalty": 1.1, "presence_penalty": -0.4, "repetition_penalty": 1.1, "seed": 2},
    "min_tokens": {"temperature": 1.0, "seed": 8, "min_tokens": 25, "logit_bias": {2: 6.0}},
    "stop": {"stop": ["sold 48 clips in March", "<<48*4"], "include_stop_str_in_output": True},
    "all of it": {"max_new_tokens": -1},
}


@pytest.fixture(scope="module")
def lm():
    with swiftk.load(swiftk.demo_model(), draft_weights="own", threads=1, context=96) as found:
        yield found


@pytest.mark.parametrize("how", HOW)
def test_what_follows_is_what_would_have_followed(lm, how):
    options = {"max_new_tokens": 40, **HOW[how]}
    whole = lm.generate(PROMPT, stream=True, **options)
    pieces = [event.text for event in whole]
    whole, n = whole.result, len(whole.result.tokens)
    assert n > 4
    for cut in {1, n // 3, n // 2, n - 1}:
        prompt = [*whole.prompt_tokens, *whole.tokens[:cut]]
        for speculate in (False, "always"):
            rest = lm.generate(prompt, continued_tokens=cut, speculate=speculate, **options)
            assert rest.tokens == whole.tokens[cut:]
            assert rest.text == "".join(pieces[cut:]) and rest.finish_reason == whole.finish_reason


def test_a_grammar_goes_on(lm):
    pytest.importorskip("llguidance")
    options = {"max_new_tokens": 40, "temperature": 1.0, "seed": 1, "response_format": DAY}
    whole = lm.generate(PROMPT, **options)
    for cut in range(1, len(whole.tokens)):
        rest = lm.generate([*whole.prompt_tokens, *whole.tokens[:cut]], continued_tokens=cut, **options)
        assert rest.tokens == whole.tokens[cut:] and rest.finish_reason == whole.finish_reason
    with pytest.raises(InvalidArgument, match="response_format does not allow the text to continue"):
        lm.generate(PROMPT, continued_tokens=2, response_format=DAY)


def test_nothing_is_left_to_follow(lm):
    whole = lm.generate(PROMPT, max_new_tokens=9)
    rest = lm.generate([*whole.prompt_tokens, *whole.tokens], continued_tokens=9, max_new_tokens=9)
    assert (rest.tokens, rest.text, rest.finish_reason) == ([], "", "length")


def test_more_than_the_prompt_has(lm):
    with pytest.raises(InvalidArgument, match=r"continued_tokens=3, want fewer than the prompt's 3 tokens"):
        lm.generate([5, 6, 7], continued_tokens=3)
