"""A tiny model whose tokenizer has added tokens, as chat models have them."""

from tokenizers import Tokenizer

from swiftk.testing import make_tiny

FIRST = 320  # id of the first added token


def tiny_with_marks(folder, shown=(), special=(), normalizer=None):
    """shown: added tokens that texts show; special: those that they leave out."""
    vocab = FIRST + len(shown) + len(special) + 6
    make_tiny(folder, "llama3", layers=2, vocab=FIRST)
    make_tiny(folder, "llama3", layers=2, vocab=vocab, tokenizer=False)
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.add_tokens(list(shown))
    backend.add_special_tokens(list(special))
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.save(str(folder / "tokenizer.json"))
    assert backend.get_vocab_size() == vocab - 6
    return folder
