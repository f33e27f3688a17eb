"""Whatever happens to the bytes of a model folder, loading it is a SwiftkError or a model that runs: never worse."""

import contextlib
import functools
import re
import struct
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from swiftk import _core
from swiftk.errors import SwiftkError
from swiftk.testing import make_tiny

FILES = ["model.safetensors", "config.json"]


@functools.cache
def base_files():
    with tempfile.TemporaryDirectory() as tmp:
        made = make_tiny(tmp, "llama3", layers=1, vocab=40, hidden_size=16, intermediate_size=8, tokenizer=False)
        return {f.name: f.read_bytes() for f in made.iterdir()}


def survives(name, mutate):
    with tempfile.TemporaryDirectory() as tmp:
        for file, data in base_files().items():
            (Path(tmp) / file).write_bytes(mutate(bytearray(data)) if file == name else data)
        with contextlib.suppress(SwiftkError):
            session = _core.Session(_core.Model(tmp, threads=1), context=16)
            session.prefill(np.array([5, 9, 2, 7, 30, 12], np.int32))


edits = st.lists(st.tuples(st.integers(0, 2**31), st.integers(0, 255)), min_size=1, max_size=4)


@given(name=st.sampled_from(FILES), share=st.floats(0, 1))
def test_any_truncation(name, share):
    survives(name, lambda data: data[: int(share * len(data))])


@given(name=st.sampled_from(FILES), edits=edits, region=st.sampled_from([8, 64, 4096]))
def test_any_mutation(name, edits, region):
    def mutate(data):
        for at, byte in edits:
            data[at % min(region, len(data))] = byte
        return data

    survives(name, mutate)


@given(digits=st.integers(-(2**70), 2**70), which=st.integers(0, 200))
def test_any_number_in_the_header(digits, which):
    def mutate(data):
        (length,) = struct.unpack("<Q", data[:8])
        text, rest = bytes(data[8 : 8 + length]), bytes(data[8 + length :])
        spots = list(re.finditer(rb"(?<=[\[,])\d+(?=[\],])", text))
        spot = spots[which % len(spots)]
        text = text[: spot.start()] + str(digits).encode() + text[spot.end() :]
        return struct.pack("<Q", len(text)) + text + rest

    survives("model.safetensors", mutate)
