"""SmolLM2 and Gemma 3 as they are published: texts, rows and drafts of real files, which `python -m bench.published`
fetches."""

from importlib import import_module
from pathlib import Path
from statistics import geometric_mean

import numpy as np
import pytest
from scipy.special import log_softmax

import swiftk
from swiftk import _core
from swiftk.text.tokenizer import Tokenizer

pytestmark = pytest.mark.exhaustive
PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n",
    [{"role": "user", "content": "Name three colours, and why you like each."}],
    "one two three one two three one two three",
]


def bench(module):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).resolve().parents[2])
        return import_module(f"bench.{module}")


@pytest.fixture(scope="module")
def published():
    def find(name):
        path = bench("published").MODELS[name].path
        if not path.is_file():
            pytest.skip(f"there is no {path}; `python -m bench.published {name}` fetches it")
        return path

    return find


@pytest.fixture(scope="module")
def path(published):
    return published("smollm2")


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
    session = _core.Session(_core.Model(str(path), dtype="float32"), context=len(ids) + 2, poison=True)
    session.prefill(ids)
    got = session.logits[0]
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.no_grad():
        want = model.eval()(torch.tensor(ids.astype(np.int64))[None], use_cache=False).logits[0, -1].numpy()
    assert np.sqrt(np.mean((got - want) ** 2)) < 1e-5 * want.std()


# Plain texts to go on with: Gemma 3 270M was not trained to chat.
BEGINNINGS = [
    "The capital of France is",
    "def fibonacci(n):\n",
    "Once upon a time, in a village by the sea,",
    "The three laws of thermodynamics are:\n1.",
    "Q: What is 12 times 7?\nA:",
]


@pytest.fixture(scope="module")
def gemma(published):
    return published("gemma3")


@pytest.fixture(scope="module")
def gemma_oracle(gemma):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    return transformers.AutoModelForCausalLM.from_pretrained(
        gemma.parent, gguf_file=gemma.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()


def test_drafts_change_no_token_of_gemma(gemma):
    with swiftk.load(gemma) as lm:
        for sampling in ({}, {"temperature": 0.8, "top_p": 0.95, "seed": 7}):
            plain = [lm.generate(p, max_new_tokens=60, speculate=False, **sampling).tokens for p in BEGINNINGS]
            assert [lm.generate(p, max_new_tokens=60, **sampling).tokens for p in BEGINNINGS] == plain
            together = lm.generate_many(BEGINNINGS, max_new_tokens=60, **sampling)
            assert [r.tokens for r in together] == plain


def test_rows_of_gemma_are_those_of_transformers(gemma, gemma_oracle):
    """Past its window of 512. States grow large: beside float64 either errs by some 2e-5, and at some lengths by ten
    times that, which lengths is chance."""
    torch = pytest.importorskip("torch")
    ids = np.random.default_rng(3).integers(0, 200000, 700).astype(np.int32)
    session = _core.Session(_core.Model(str(gemma), dtype="float32"), context=len(ids) + 2, poison=True)
    with torch.no_grad():
        want = gemma_oracle(torch.tensor(ids.astype(np.int64))[None], use_cache=False).logits[0].numpy()
    errors = []
    for n in (5, 80, 300, 511, 513, 600, 700):
        session.prefill(ids[:n])
        errors.append(np.sqrt(np.mean((session.logits[0] - want[n - 1]) ** 2)) / want[n - 1].std())
    assert max(errors) < 1e-3 and geometric_mean(errors) < 1e-4, errors


def test_texts_of_gemma_are_those_of_transformers(gemma, gemma_oracle):
    """Where a token differs, the best two were within what float32 errs by."""
    torch = pytest.importorskip("torch")
    with swiftk.load(gemma, dtype="float32", draft_weights="own") as lm:
        for text in BEGINNINGS:
            got = lm.generate(text, max_new_tokens=64, ignore_eos=True)
            prompt, n = torch.tensor([got.prompt_tokens]), len(got.tokens)
            want = gemma_oracle.generate(prompt, max_new_tokens=n, do_sample=False, eos_token_id=None)[
                0, prompt.shape[1] :
            ]
            differ = [i for i in range(n) if got.tokens[i] != want[i]]
            if differ:
                ids = torch.cat([prompt[0], want[: differ[0]]])[None]
                with torch.no_grad():
                    first, second = gemma_oracle(ids).logits[0, -1].topk(2).values
                assert first - second < 0.01, (text, differ[0])


def test_ends_and_template(path, lm):
    assert _core.token_ids(str(path), "eos_token") == [2, 0]  # <|im_end|>, and <|endoftext|> by its text
    prompt = lm.tokenizer.decode(lm.generate(PROMPTS[2], max_new_tokens=1).prompt_tokens, skip_special_tokens=False)
    assert prompt.count("<|im_start|>") == 3 and prompt.endswith("<|im_start|>assistant\n")


# Without "</s>", which Gemma's file calls an ordinary token and llama.cpp, by its looks, a special one.
NASTY = [
    "",
    " ",
    "  two  spaces, then\ttabs\t\tand\nlines\r\n\r\n\n\nmore ",
    "can't WE'LL they'D 'tis o'clock don’t",
    "3.14159 12345678 1,000,000 0x7fff 1e-9 ١٢٣ ½ ²",
    "日本語のテキスト 中文 한국어 русский العربية עברית हिन्दी ไทย",
    "🙂👩‍👩‍👧‍👦🏳️‍🌈 e\u0301 \u200b\u200d \ufeff \u00a0 \u2028 \x00 \x7f",
    "def f(x):\n    return {'a': [x**2, ~x], \"b\": x!=0}  # ok\n\n\n",
    "<|im_start|>user\nhi<|im_end|> </b> <bos> <unk> [INST] <0x41>",
    "a" * 300 + " " * 40 + "!?" * 50,
    "https://user:pw@example.org:80/a/b?q=1&r=%20#x",
    "ÀÉÎõü ﬁ ǅ ß ſ İ ı",
]


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
@pytest.mark.parametrize("special", [False, True])
def test_ids_are_those_of_llama_cpp(published, name, special):
    llama_cpp = pytest.importorskip("llama_cpp")
    path = published(name)
    ours, theirs = Tokenizer(path), llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    for text in NASTY:
        got = ours.encode(text, special=False, parse_special=special)
        assert got == theirs.tokenize(text.encode(), add_bos=False, special=special), text
        assert ours.encode(text) == theirs.tokenize(text.encode(), add_bos=True, special=False), text


def test_rounding_activations_loses_little(path):
    """Beside the same weights as floats. llama.cpp, which rounds alike, has a divergence of .0028 and 96.7 % on
    Wikipedia, where swiftk has .0028 and 97.0 %."""
    words = [turn for line in bench("texts").lines("summarization") for turn in line["turns"]]
    ids = Tokenizer(path).encode(" ".join(words))
    found = []
    floats, own = (_core.Taps(_core.Model(str(path), **o), [0], 514) for o in ({"dtype": "float32"}, {}))
    for at in range(0, 2048, 512):
        p, q = (log_softmax(np.array(taps.read(ids[at : at + 512])[1], np.float64), -1) for taps in (floats, own))
        found.append([(np.exp(p) * (p - q)).sum(-1).mean(), (p.argmax(-1) == q.argmax(-1)).mean()])
    divergence, same = np.mean(found, 0)
    assert 1e-6 < divergence < 4e-3 and same > 0.95
