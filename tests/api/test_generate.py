"""generate(): stops, seeds, samplers, defaults. What drafting may never change is compared with plain decoding."""

import json

import pytest

import swiftk
from decode import TOUCHED
from generating import HARSH, LAYERS, PROMPT, N, drafted, plain
from marks import exhaustive


@pytest.fixture(scope="module")
def lm(tiny_dir):
    return swiftk.load(tiny_dir("llama3", layers=LAYERS))


@pytest.fixture(scope="module")
def demo():
    return swiftk.load(swiftk.demo_model())


SKIPS = [
    "auto",
    [1, 2],
    swiftk.DraftSpec(attn=[0, 3], mlp=[1]),
    swiftk.DraftSpec(exit_layer=1),
    swiftk.DraftSpec(),
    swiftk.DraftSpec(attn=range(LAYERS), mlp=range(LAYERS)),
]
SAMPLERS = [
    {"temperature": 0},
    {"temperature": 0.8, "seed": 3},
    {"temperature": 1.2, "top_p": 0.9, "top_k": 30, "seed": 4},
    {"temperature": 1.0, "min_p": 0.05, "repetition_penalty": 1.3, "seed": 5},
    {"temperature": 1.3, "typical_p": 0.6, "seed": 6},
    {"repetition_penalty": 1.2},
    TOUCHED,
]


@pytest.mark.parametrize("skip", SKIPS, ids=str)
@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
def test_drafts_change_no_token(lm, skip, sampler):
    want, got = plain(lm, **sampler), drafted(lm, skip=skip, **sampler)
    assert got.tokens == want.tokens
    assert got.text == want.text
    assert got.stats.num_draft_tokens > 0
    assert want.stats.num_draft_tokens == 0


@pytest.mark.parametrize(
    "gate", ["auto", "swift", 0.3, swiftk.TreeRule(max_draft=3, max_nodes=5, width=(1, 1, 1, 1))], ids=str
)
@pytest.mark.parametrize("speculate", ["always", *exhaustive(True)])
def test_gates_change_no_token(demo, gate, speculate):
    want = plain(demo, max_new_tokens=120)
    got = demo.generate(PROMPT, max_new_tokens=120, ignore_eos=True, gate=gate, speculate=speculate)
    assert got.tokens == want.tokens
    assert speculate is True or sum(got.stats.accepted_by.values()) > 0  # where it pays is the clock's to say


def test_sampling_by_rejection_repeats_with_its_seed(lm):
    # Its noise belongs to rounds: where a gate or an optimizer goes by the clock, rounds differ between runs.
    options = {"acceptance": "rejection", "temperature": 0.9, "seed": 11, "gate": "swift", "optimizer": None}
    first = drafted(lm, **options)
    assert drafted(lm, **options).tokens == first.tokens
    assert drafted(lm, **{**options, "seed": 12}).tokens != first.tokens


def test_logprobs_are_the_same_bits_with_drafts(lm):
    want, got = plain(lm, logprobs=3), drafted(lm, logprobs=3)
    assert got.logprobs == want.logprobs
    assert len(got.logprobs) == N
    for one in got.logprobs:
        assert len(one.top) == 3
        assert one.top[0] == (one.token, one.logprob)  # greedy: the likeliest
        assert [p for _, p in one.top] == sorted((p for _, p in one.top), reverse=True)
    assert plain(lm).logprobs is None
    assert [t.top for t in plain(lm, logprobs=0, max_new_tokens=2).logprobs] == [(), ()]


@pytest.mark.parametrize("n", range(1, 14))
def test_max_new_tokens_is_exact(lm, n):
    got = drafted(lm, max_new_tokens=n)
    assert got.tokens == plain(lm).tokens[:n]
    assert got.finish_reason == "length"


@pytest.mark.parametrize("at", range(0, 12))
@pytest.mark.parametrize("speculate", ["always", False])
def test_stop_id_is_exact(lm, at, speculate):
    tokens = plain(lm).tokens
    got = drafted(lm, stop_token_ids=[tokens[at]], speculate=speculate)
    end = tokens.index(tokens[at])
    assert got.tokens == tokens[: end + 1]
    assert got.finish_reason == "stop"
    assert got.text == plain(lm, max_new_tokens=end).text if end else got.text == ""
    assert got.stats.generated_tokens == end + 1


@pytest.mark.parametrize("at", [1, 4, 9, 15])
@pytest.mark.parametrize("length", [1, 3])
def test_stop_string_is_exact(demo, at, length):
    full = plain(demo)
    stop = full.text[at : at + length]
    got = drafted(demo, stop=["never this", stop])
    assert got.text == full.text[: full.text.index(stop)]
    assert got.finish_reason == "stop"
    assert got.tokens == full.tokens[: len(got.tokens)]
    assert stop not in demo.decode(got.tokens[:-1])
    assert stop in demo.decode(got.tokens)


def test_eos_ends_the_text_and_is_among_the_tokens(lm, tmp_path, tiny_dir):
    tokens = plain(lm).tokens
    eos = next(t for t in tokens[5:] if tokens.index(t) >= 5)
    folder = tmp_path / "eos"
    folder.mkdir()
    for file in tiny_dir("llama3", layers=LAYERS).iterdir():
        (folder / file.name).symlink_to(file)
    (folder / "generation_config.json").unlink()
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [300, eos]}))
    other = swiftk.load(folder, threads=2)
    got = other.generate(PROMPT, **HARSH)
    assert got.tokens == tokens[: tokens.index(eos) + 1]
    assert got.finish_reason == "stop"
    assert other.generate(PROMPT, max_new_tokens=N, ignore_eos=True, **HARSH).tokens == tokens


def test_the_context_is_a_limit(tiny_dir):
    lm = swiftk.load(tiny_dir("llama3", layers=LAYERS), context=30, threads=2)
    want = plain(lm, [5, 6, 7, 8], max_new_tokens=lm.context)
    assert len(want.tokens) == 26
    assert want.finish_reason == "length"
    assert drafted(lm, [5, 6, 7, 8], max_new_tokens=lm.context).tokens == want.tokens
    assert len(lm.generate(list(range(3, 32)), ignore_eos=True).tokens) == 1


def test_without_a_limit_there_are_256_tokens(lm):
    assert len(lm.generate([5, 6, 7, 8], ignore_eos=True).tokens) == 256


def test_defaults_come_from_generation_config(tmp_path, tiny_dir):
    for file in tiny_dir("llama3", layers=LAYERS).iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "generation_config.json").unlink()
    (tmp_path / "generation_config.json").write_text(
        json.dumps({"do_sample": True, "temperature": 0.7, "max_new_tokens": 7})
    )
    lm = swiftk.load(tmp_path, threads=2)
    assert len(lm.generate(PROMPT, seed=5).tokens) <= 7
    sampled = lm.generate(PROMPT, seed=5, max_new_tokens=30)
    assert sampled.tokens == lm.generate(PROMPT, seed=5, temperature=0.7, max_new_tokens=30).tokens
    assert sampled.tokens != lm.generate(PROMPT, temperature=0, max_new_tokens=30).tokens


def test_seeds(lm):
    sampled = {"temperature": 1.0}
    first = drafted(lm, **sampled)
    assert drafted(lm, seed=first.seed, **sampled).tokens == first.tokens
    assert plain(lm, seed=first.seed, **sampled).tokens == first.tokens
    assert len({drafted(lm, max_new_tokens=2, **sampled).seed for _ in range(4)}) == 4
    assert plain(lm, seed=2**64 - 1, **sampled).seed == 2**64 - 1


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_change_no_token(tiny_dir, lm, threads):
    other = swiftk.load(tiny_dir("llama3", layers=LAYERS), threads=threads)
    options = {"temperature": 0.9, "seed": 8}
    assert drafted(other, **options).tokens == plain(lm, **options).tokens
