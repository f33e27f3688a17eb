"""prompt_logprobs: what the model says of a prompt's tokens is what it says when it writes them."""

from dataclasses import replace

import numpy as np
import pytest

import swiftk
from swiftk import _core
from swiftk.errors import InvalidArgument
from swiftk.testing import make_tiny


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reported") / "tiny"
    make_tiny(folder, "llama3", "float32", layers=3, max_position_embeddings=2048)
    with swiftk.load(folder, device="cpu", max_sequences=4) as lm:
        yield lm


GREEDY = {"temperature": 0.0, "ignore_eos": True}


def test_they_are_those_of_the_text_that_was_written(lm):
    """By ==, where the prompt takes several passes, and parts of it are cached already."""
    first = lm.generate([5, 9, 17], max_new_tokens=700, logprobs=3, **GREEDY)
    text = [5, 9, 17, *first.tokens]
    for speculate in (False, True):
        again = lm.generate(text, max_new_tokens=3, prompt_logprobs=3, speculate=speculate, **GREEDY)
        assert [t.token for t in again.prompt_logprobs] == text[1:]
        assert again.prompt_logprobs[2:] == [replace(t, piece="") for t in first.logprobs]
        assert again.logprobs is None and again.stats.cached_prompt_tokens == 0
    assert lm.generate(text, max_new_tokens=3, **GREEDY).prompt_logprobs is None


def test_they_are_a_softmax_of_every_row(lm):
    text = [7, 300, 2, 11, 11, 250, 31, 90]
    found = lm.generate(text, max_new_tokens=1, prompt_logprobs=5, **GREEDY).prompt_logprobs
    logits = _core.Taps(lm.model, [0], 64).read(text)[1].astype(np.float64)
    best = logits.max(1, keepdims=True)
    want = logits - best - np.log(np.exp(logits - best).sum(1, keepdims=True))
    for i, reported in enumerate(found):
        assert reported.logprob == pytest.approx(want[i, text[i + 1]], abs=1e-5)
        assert [t for t, _ in reported.top] == np.argsort(-want[i], kind="stable")[:5].tolist()


def test_others_do_not_notice(lm):
    """A text whose prompt is given among texts that decode, and more of them than step at a time."""
    prompts = [[5 + i, 9, 17] * (40 * i + 1) for i in range(7)]
    each = [{"prompt_logprobs": 2} if i % 2 else {} for i in range(7)]
    options = {"max_new_tokens": 40, **GREEDY}
    for its, prompt, found in zip(each, prompts, lm.generate_many(prompts, each=each, **options)):
        alone = lm.generate(prompt, speculate=False, **its, **options)
        assert found.tokens == alone.tokens and found.prompt_logprobs == alone.prompt_logprobs
        assert (found.prompt_logprobs is None) == (not its)
        assert found.prompt_logprobs is None or len(found.prompt_logprobs) == len(prompt) - 1


def test_one_token_and_plain_values(lm):
    found = lm.generate([5], max_new_tokens=2, prompt_logprobs=0, **GREEDY)
    assert found.prompt_logprobs == [] and found.to_dict()["prompt_logprobs"] == []
    reported = lm.generate([5, 6], max_new_tokens=2, prompt_logprobs=1, **GREEDY).to_dict()["prompt_logprobs"]
    assert reported[0]["token"] == 6 and len(reported[0]["top"]) == 1
    with pytest.raises(InvalidArgument, match="prompt_logprobs=65"):
        lm.generate([5, 6], prompt_logprobs=65)
