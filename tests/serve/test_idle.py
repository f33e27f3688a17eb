"""A server without requests returns the memory of keys and values."""

import asyncio
import threading

import pytest

import swiftk
from patience import PATIENCE
from swiftk.serve.texts import Texts
from swiftk.testing import make_tiny


@pytest.fixture(scope="module")
def lm(tmp_path_factory):
    folder = make_tiny(tmp_path_factory.mktemp("idle") / "tiny", "llama3")
    with swiftk.load(folder, device="cpu", threads=1) as found:
        yield found


def test_prefixes_stay_while_the_server_is_busy_and_go_when_it_is_idle(lm, monkeypatch):
    returned = threading.Event()
    give_back = lm.give_back
    monkeypatch.setattr(lm, "give_back", lambda: (give_back(), returned.set()))
    options = {"max_new_tokens": 3, "temperature": 0.0, "ignore_eos": True}

    async def one(texts):
        (text,) = await texts.start(lm.prepare([list(range(5, 105))], [options]))
        return (await text.wait()).tokens

    texts = Texts(lm, idle=PATIENCE)
    first = asyncio.run(one(texts))
    assert lm._engine.native.kv["cached_blocks"] == 2 and not returned.is_set()
    texts.close()
    texts = Texts(lm, idle=0.0)
    assert returned.wait(PATIENCE) and lm._engine.native.kv["resident_bytes"] == 0
    assert asyncio.run(one(texts)) == first, "the thread goes on, to the same tokens"
    texts.close()
