"""A lower bound on the tokens of a text is never above what the tokenizer says."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftk.testing import make_tiny
from swiftk.text.token_bound import _NFC, TokenBound, read_token_bound
from swiftk.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_tiny(tmp_path_factory.mktemp("bound") / "tiny", "llama3")


def changed(folder, tmp_path, change):
    """A tokenizer.json with something else in it."""
    spec = json.loads((folder / "tokenizer.json").read_text())
    change(spec)
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    return tmp_path


def forgetful(spec):
    """As SmolLM2's: bytes that no token spells are dropped."""
    for spelling in ("!", "q", "Ģ"):
        spec["model"]["vocab"].pop(spelling, None)


TEXTS = st.text(max_size=200) | st.text(alphabet=" \n\taeq!\x02é漢🙂", max_size=300)


@given(TEXTS)
def test_no_text_has_fewer(folder, text):
    tokenizer, bound = Tokenizer(folder), read_token_bound((folder / "tokenizer.json").read_bytes())
    assert bound.fewest(text) <= len(tokenizer.encode(text, special=False, parse_special=True))


def test_it_is_of_use(folder):
    bound = read_token_bound((folder / "tokenizer.json").read_bytes())
    assert bound.fewest("ab " * 10_000) >= 30_000 // bound.longest > 100


def test_dropped_bytes_do_not_count():
    bound = TokenBound(4, b"!", False)
    assert bound.fewest("!" * 1000) == 0 and bound.fewest("abcde!") == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: spec.update(normalizer={"type": "Strip", "strip_left": True, "strip_right": True}),
        lambda spec: spec.update(pre_tokenizer={"type": "Whitespace"}),
        lambda spec: spec["model"].update(type="Unigram", vocab=[["a", 0.0]]),
        lambda spec: spec["added_tokens"][0].update(rstrip=True),
        lambda spec: (spec.update(normalizer={"type": "NFC"}), forgetful(spec)),
    ],
)
def test_where_text_may_vanish_there_is_none(folder, tmp_path, change):
    assert read_token_bound((changed(folder, tmp_path, change) / "tokenizer.json").read_bytes()) is None


def test_composing_shortens_a_text_by_a_known_factor(folder, tmp_path):
    """Over all characters: what composes to one, against it."""
    composing = changed(folder, tmp_path, lambda spec: spec.update(normalizer={"type": "NFC"}))
    bound = read_token_bound((composing / "tokenizer.json").read_bytes())
    assert bound.composes and bound.fewest("a" * 1000) == -(-1000 // bound.longest)
    assert bound.fewest("é" * 500) == -(-1000 // (bound.longest * _NFC))
    most = shrunk = 0.0
    for code in range(0x110000):
        one = chr(code)
        if not 0xD800 <= code < 0xE000:
            apart = len(unicodedata.normalize("NFD", one).encode())
            shrunk = max(shrunk, len(one.encode()) / apart)
            if unicodedata.is_normalized("NFC", one):
                most = max(most, apart / len(one.encode()))
    assert most * shrunk <= _NFC
