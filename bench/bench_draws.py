"""What a draw costs by sampler and vocabulary: seconds of verifying one token, over those of a greedy one."""

import shutil
from time import perf_counter

import numpy as np
import pytest

from swiftk import _core
from swiftk.files.safetensors_io import Tensor, decode, encode, read_folder, write_folder
from swiftk.testing import make_tiny

VOCABS = [4096, 32000, 128256]
SAMPLERS = {
    "greedy": {},
    "temperature .6": {"temperature": 0.6},
    "top_p .95": {"temperature": 0.6, "top_p": 0.95},
    "top_k 20": {"temperature": 0.6, "top_k": 20},
    "min_p .05": {"temperature": 0.6, "min_p": 0.05},
    "top_p .95, penalty 1.1": {"temperature": 0.6, "top_p": 0.95, "repetition_penalty": 1.1},
    "penalty 1.1": {"repetition_penalty": 1.1},
    "counts .3": {"frequency_penalty": 0.3, "presence_penalty": 0.3},
    "bias": {"logit_bias": dict.fromkeys(range(300), -1.0)},
    "flat, top_p .95": {"temperature": 5.0, "top_p": 0.95},
}
COLUMNS = {"vocabulary": "vocabulary", **{name: f"{name}:.0f" for name in SAMPLERS}}
NOTES = (
    "one layer of width 64 and a head of that vocabulary, logits as far apart as a language model's; microseconds, "
    "25th percentile; greedy: all of verify(), the others: what they take beyond it",
    "flat: temperature 5, where the nucleus is thousands of tokens and the whole row is sorted",
)
_TURN = 8  # draws of a sampler before the next one's turn


def model_of(folder, vocab):
    """A tiny model whose likely tokens stand out."""
    made = make_tiny(folder / "made", vocab=vocab, layers=1)
    tensors = read_folder(made)
    norm = tensors["model.norm.weight"]
    tensors["model.norm.weight"] = Tensor(norm.dtype, encode(decode(norm) * np.float32(1.5), norm.dtype))
    shutil.copy(made / "config.json", folder)
    for _ in write_folder(folder, tensors):
        pass
    return _core.Model(str(folder))


@pytest.mark.parametrize("vocab", VOCABS)
def test_draws(benchmark, results, tmp_path, rounds, vocab):
    session = _core.Session(model_of(tmp_path, vocab))
    session.prefill(np.arange(3, 40, dtype=np.int32))
    seconds = {name: [] for name in SAMPLERS}

    def turns():
        for name, sampling in SAMPLERS.items():
            session.set_sampling(_core.Sampling(**sampling, seed=5))
            for _ in range(_TURN):
                session.draft(_core.TreeRule(max_draft=0))
                began = perf_counter()
                session.verify()
                seconds[name].append(perf_counter() - began)

    benchmark.pedantic(turns, rounds=2 * rounds, warmup_rounds=1)
    typical = {name: 1e6 * sorted(found[_TURN:])[len(found) // 4] for name, found in seconds.items()}
    over = {name: taken - (name != "greedy") * typical["greedy"] for name, taken in typical.items()}
    results("draws", "What a draw costs.", COLUMNS, *NOTES).rows.append({"vocabulary": vocab, **over})
