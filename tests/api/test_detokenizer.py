"""Detokenising a token at a time gives the text of all tokens, and never half a character."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

import swiftk
from swiftk.text.detokenizer import Detokenizer
from swiftk.text.tokenizer import Tokenizer

BROKEN = "\N{REPLACEMENT CHARACTER}"


@pytest.fixture(scope="module")
def byte_level():
    return Tokenizer(swiftk.demo_model())


@pytest.fixture(scope="module")
def byte_fallback():
    """A SentencePiece-like tokenizer: words with a leading space mark, all else as byte tokens."""
    words = ["<unk>", "▁the", "▁a", "lo", "▁", "x"]
    vocab = {w: i for i, w in enumerate([*words, *(f"<0x{b:02X}>" for b in range(256))])}
    backend = Backend(models.BPE(vocab=vocab, merges=[], byte_fallback=True, unk_token="<unk>"))
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return backend, len(words)


@given(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters=BROKEN), max_size=60))
@example("🙂🙂🙂 日本語テキスト é̂ \n\n  x = 1")
def test_byte_level_text_comes_back(byte_level, text):
    ids = byte_level.encode(text, special=False)
    detokenizer = Detokenizer(byte_level.decode)
    pieces = [detokenizer.push(i) for i in ids]
    assert "".join(pieces) == byte_level.decode(ids)
    assert not any(BROKEN in piece for piece in pieces)


@given(
    st.lists(
        st.one_of(
            st.integers(1, 5),
            st.characters(min_codepoint=128, blacklist_categories=["Cs"], blacklist_characters=BROKEN),
        ),
        max_size=40,
    )
)
def test_byte_fallback_text_comes_back(byte_fallback, parts):
    backend, first = byte_fallback
    ids = [i for p in parts for i in ([p] if isinstance(p, int) else [first + b for b in p.encode()])]
    detokenizer = Detokenizer(lambda some: backend.decode(some, skip_special_tokens=True))
    pieces = [detokenizer.push(i) for i in ids]
    want = backend.decode(ids, skip_special_tokens=True)
    assert "".join(pieces) == want


def test_a_cut_character_is_no_text(byte_level):
    ids = byte_level.encode("ab日", special=False)
    detokenizer = Detokenizer(byte_level.decode)
    assert "".join(detokenizer.push(i) for i in ids[:-1]) == "ab"


def test_bytes_that_are_no_text_do_not_block_for_ever(byte_fallback):
    backend, first = byte_fallback
    detokenizer = Detokenizer(lambda some: backend.decode(some))
    assert "".join(detokenizer.push(first + 0xFF) for _ in range(40)).count(BROKEN) >= 32
    assert detokenizer.push(5) != ""


def test_the_first_word_keeps_its_space_after_a_prompt(byte_fallback):
    backend, _ = byte_fallback
    assert Detokenizer(backend.decode, [1, 2]).push(1) == " the"
    assert Detokenizer(backend.decode).push(1) == "the"


def test_text_of_a_whole_token_is_not_held_back_with_the_half_character_after_it(byte_fallback):
    backend, first = byte_fallback
    detokenizer = Detokenizer(lambda some: backend.decode(some))
    assert [detokenizer.push(i) for i in (3, first + 0xE2, first + 0x82, first + 0xAC)] == ["lo", "", "", "€"]
