"""Whatever happens to the bytes of a GGUF file, loading it is a SwiftkError or a model that runs: never worse."""

import contextlib
import functools
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gguf_files import of_folder
from swiftk import _core
from swiftk.errors import SwiftkError
from swiftk.files.gguf import GgufFile
from swiftk.testing import make_tiny

families = st.sampled_from(["llama3", "gemma3", "olmo3", "phi4-mini"])


@functools.cache
def base(family="llama3"):
    with tempfile.TemporaryDirectory() as tmp:
        sizes = {"hidden_size": 32, "intermediate_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1}
        file = of_folder(make_tiny(tmp, family, layers=1, vocab=40, tokenizer=False, **sizes))
        tokens = [f"<{i}>" for i in range(40)]
        file.metadata |= {
            "tokenizer.ggml.model": "llama",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.scores": [0.0] * 40,
            "tokenizer.ggml.eos_token_id": 2,
        }
        return file.bytes()


def survives(data):
    with tempfile.TemporaryDirectory() as tmp:
        path = Path(tmp) / "x.gguf"
        path.write_bytes(data)
        with contextlib.suppress(SwiftkError):
            session = _core.Session(_core.Model(str(path), threads=1), context=16)
            session.prefill(np.array([5, 9, 2, 7, 30, 12], np.int32))
        with contextlib.suppress(SwiftkError):
            files = GgufFile(path)
            assert files.config
            files.token_ids("eos_token")
            files.tokenizer_json()


@pytest.mark.parametrize("family", ["llama3", "gemma3", "olmo3", "phi4-mini"])
def test_the_file_itself_runs(family):
    with tempfile.TemporaryDirectory() as tmp:
        path = Path(tmp) / "x.gguf"
        path.write_bytes(base(family))
        session = _core.Session(_core.Model(str(path), threads=1), context=16)
        assert session.prefill(np.array([5, 9, 2, 7, 30, 12], np.int32)).token < 40
        assert GgufFile(path).token_ids("eos_token") == [2] and GgufFile(path).tokenizer_json()


@given(family=families, share=st.floats(0, 1))
def test_any_truncation(family, share):
    survives(base(family)[: int(share * len(base(family)))])


edits = st.lists(st.tuples(st.integers(0, 2**31), st.integers(0, 255)), min_size=1, max_size=4)


@given(family=families, edits=edits, region=st.sampled_from([24, 200, 3000, 2**30]))
def test_any_mutation(family, edits, region):
    data = bytearray(base(family))
    for at, byte in edits:
        data[at % min(region, len(data))] = byte
    survives(bytes(data))


@given(family=families, at=st.integers(0, 3000), number=st.integers(0, 2**64 - 1), size=st.sampled_from([1, 4, 8]))
def test_any_number_in_the_header(family, at, number, size):
    data = bytearray(base(family))
    data[at : at + size] = (number % 2 ** (8 * size)).to_bytes(size, "little")
    survives(bytes(data))
