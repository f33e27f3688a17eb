"""SmolLM2 as it is published: texts, rows and drafts of a real file. `python -m bench.published smollm2` fetches it."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import swiftk
from swiftk import _core

pytestmark = pytest.mark.exhaustive
PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n",
    [{"role": "user", "content": "Name three colours, and why you like each."}],
    "one two three one two three one two three",
]


@pytest.fixture(scope="module")
def path():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).resolve().parents[2])
        its = import_module("bench.published").MODELS["smollm2"].path
    if not its.is_file():
        pytest.skip(f"there is no {its}; `python -m bench.published smollm2` fetches it")
    return its


@pytest.fixture(scope="module")
def lm(path):
    return swiftk.load(path)


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.8, "top_p": 0.95, "seed": 7}])
def test_drafts_change_no_token(lm, sampling):
    plain = [lm.generate(p, max_new_tokens=60, speculate=False, **sampling) for p in PROMPTS]
    drafted = [lm.generate(p, max_new_tokens=60, **sampling) for p in PROMPTS]
    together = lm.generate_many(PROMPTS, max_new_tokens=60, **sampling)
    assert [r.tokens for r in drafted] == [r.tokens for r in plain]
    assert [r.tokens for r in together] == [r.tokens for r in plain]
    assert sum(r.stats.num_accepted_draft_tokens for r in drafted) > 0


def test_it_says_what_it_should(lm):
    assert lm.generate(PROMPTS[0], max_new_tokens=4).text.startswith(" Paris")
    answer = lm.generate([{"role": "user", "content": "What is 2 + 2?"}], max_new_tokens=60)
    assert answer.finish_reason == "stop" and "4" in answer.text and "<|im_end|>" not in answer.text


def test_rows_are_those_of_transformers(path):
    """Which decodes the same file by the gguf package, and reads q and k in an order of its own making."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    pytest.importorskip("accelerate")  # transformers asks for it
    ids = np.random.default_rng(3).integers(0, 49152, 80).astype(np.int32)
    session = _core.Session(_core.Model(str(path)), context=len(ids) + 2, poison=True)
    session.prefill(ids)
    got = session.logits[0]
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.no_grad():
        want = model.eval()(torch.tensor(ids.astype(np.int64))[None], use_cache=False).logits[0, -1].numpy()
    assert np.sqrt(np.mean((got - want) ** 2)) < 1e-5 * want.std()


def test_ends_and_template(path, lm):
    assert _core.token_ids(str(path), "eos_token") == [2, 0]  # <|im_end|>, and <|endoftext|> by its text
    prompt = lm.tokenizer.decode(lm.generate(PROMPTS[2], max_new_tokens=1).prompt_tokens, skip_special_tokens=False)
    assert prompt.count("<|im_start|>") == 3 and prompt.endswith("<|im_start|>assistant\n")
