"""A GGUF file as a model: its tokenizer, template and ends are those of the folder that it was made of."""

import itertools
import json

import pytest

import swiftk
from gguf_files import Typed, of_folder
from swiftk.cli import main
from swiftk.errors import CheckpointError, InvalidArgument, UnsupportedModel
from swiftk.files.gguf_tokenizer import _DIGITS, _GPT2, _PATTERNS, build
from swiftk.testing import make_tiny
from swiftk.text.tokenizer import Tokenizer

TEXTS = [
    "",
    " ",
    "The quick fox",
    "  two  spaces\n\n\tand tabs ",
    "can't WE'LL",
    "3.14 12345",
    "日本語 🙂 é",
    "</s> in",
    "a" * 99,
]


@pytest.fixture
def folder(tmp_path):
    return make_tiny(tmp_path / "hf", "llama3", dtype="float32")


def byte_level(folder, **changes):
    """A File with the tokenizer of a folder that make_tiny() made."""
    its = json.loads((folder / "tokenizer.json").read_text())
    ids = its["model"]["vocab"] | {token["content"]: token["id"] for token in its["added_tokens"]}
    special = {token["content"] for token in its["added_tokens"]}
    merges = [one if isinstance(one, str) else " ".join(one) for one in its["model"]["merges"]]
    tokens = sorted(ids, key=ids.get)
    file = of_folder(folder)
    file.metadata |= {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [Typed(5, 3 if token in special else 1) for token in tokens],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": ids["<s>"],
        "tokenizer.ggml.eos_token_id": ids["</s>"],
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.chat_template": json.loads((folder / "tokenizer_config.json").read_text())["chat_template"],
    }
    for name, value in changes.items():
        key = "tokenizer.ggml." + name
        if value is None:
            del file.metadata[key]
        else:
            file.metadata[key] = value
    return file


def test_texts_and_chats_are_those_of_the_folder(tmp_path, folder):
    lm, want = swiftk.load(byte_level(folder).write(tmp_path / "x.gguf")), swiftk.load(folder)
    for text in TEXTS:
        assert lm.tokenizer.encode(text) == want.tokenizer.encode(text)
    chat = [{"role": "user", "content": "how many apples?"}]
    for prompt in ("The quick brown", chat):
        got, its = (one.generate(prompt, max_new_tokens=24, temperature=0.8, seed=3) for one in (lm, want))
        assert (got.text, got.prompt_tokens) == (its.text, its.prompt_tokens)
    assert lm.generate("x", max_new_tokens=1).prompt_tokens[:2].count(want.tokenizer.encode("")[0]) == 1  # one BOS


PAGE = [
    "can't WE'LL they'D 'tis o'clock don\u2019t  two  spaces\tand\ttabs\nlines\r\n\r\n\n\nmore ",
    "3.14159 12345678 1,000,000 0x7fff 1e-9 \u0661\u0662\u0663 \u00bd \u00b2 v1.2.3-rc4 (a+b)*c != d/e // f",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8 \u4e2d\u6587\u5b57 \ud55c\uad6d\uc5b4 "
    "\u0440\u0443\u0441\u0441\u043a\u0438\u0439 "
    "\u0e44\u0e17\u0e22 \u00c0\u00c9\u00ee\u00f5\u00fc",
    "def f(x):\n    return {'a': [x**2, ~x], \"b\": x!=0}  # ok\n\n\nclass HTTPServer2:\n\tpass\n",
    "\U0001f642\U0001f469\u200d\U0001f467 \u00a0 https://user:pw@example.org:80/a/b?q=1&r=%20#x ...!?!? CamelCaseWORDs",
]
MARKED = "\u0939\u093f\u0928\u094d\u0926\u0940 \u0930\u093e\u091c e\u0301"  # letters with marks


@pytest.fixture(scope="module")
def unsplit(tmp_path_factory):
    """The GGUF file of a model whose tokenizer has learned merges across words, so that ids show every split."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        decoders.ByteLevel(),
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        [*PAGE, MARKED] * 2,
        trainers.BpeTrainer(vocab_size=900, special_tokens=["<s>", "</s>"], initial_alphabet=alphabet),
    )
    folder = make_tiny(tmp_path_factory.mktemp("unsplit") / "hf", "llama3", vocab=made.get_vocab_size(), layers=1)
    (folder / "tokenizer.json").write_text(made.to_str())
    return folder


@pytest.mark.parametrize("pre", sorted({*_PATTERNS, *_GPT2, *_DIGITS}))
def test_texts_are_split_as_llama_cpp_splits_them(tmp_path, unsplit, pre):
    llama_cpp = pytest.importorskip("llama_cpp")
    path = byte_level(unsplit, pre=pre, add_bos_token=None).write(tmp_path / "x.gguf")
    ours, theirs = Tokenizer(path), llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    # The models' own tokenizers count combining marks as letters; llama.cpp's expressions for these three do not.
    page = PAGE if pre in ("gpt-4o", "llama4", "tekken") else [*PAGE, MARKED]
    for text in page:
        assert ours.encode(text) == theirs.tokenize(text.encode(), add_bos=True, special=False), text


def test_a_tokenizer_from_elsewhere(tmp_path, folder):
    path = byte_level(folder, pre="novel9").write(tmp_path / "x.gguf")
    with pytest.raises(UnsupportedModel, match="tokenizer=PATH names another"):
        swiftk.load(path).generate("x", max_new_tokens=1)
    got = swiftk.load(path, tokenizer=folder).generate("The", max_new_tokens=9)
    want = swiftk.load(folder).generate("The", max_new_tokens=9)
    assert (got.text, got.prompt_tokens) == (want.text, want.prompt_tokens)
    assert main(["run", str(path), "The quick", "-n", "4", "--tokenizer", str(folder)]) == 0
    with pytest.raises(InvalidArgument, match="has no tokenizer, want"):
        swiftk.load(path, tokenizer=tmp_path)
    small = make_tiny(tmp_path / "small", "llama3", vocab_size=90, tokenizer=False)
    with pytest.raises(InvalidArgument, match=r"has 320 tokens, the model 90"):
        swiftk.load(small, tokenizer=folder)


def test_commands(tmp_path, folder, capsys):
    path = str(byte_level(folder).write(tmp_path / "x.gguf"))
    assert main(["run", path, "The quick", "-n", "4"]) == 0
    assert main(["info", path]) == 0
    assert "x.gguf" in capsys.readouterr().out


def test_a_draft_model_may_be_a_file(tmp_path, folder):
    draft = byte_level(make_tiny(tmp_path / "small", "llama3", dtype="float32", layers=1)).write(tmp_path / "d.gguf")
    plain = swiftk.load(folder).generate("The quick", max_new_tokens=30).tokens
    assert swiftk.load(folder, drafter=draft).generate("The quick", max_new_tokens=30).tokens == plain


def test_all_ends_count(tmp_path, folder):
    file = byte_level(folder, eot_token_id=9)
    tokens = list(file.metadata["tokenizer.ggml.tokens"])
    tokens[300] = "<|im_end|>"  # known by its text
    file.metadata["tokenizer.ggml.tokens"] = tokens
    assert swiftk._core.token_ids(str(file.write(tmp_path / "x.gguf")), "eos_token") == [2, 9, 300]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"pre": None}, UnsupportedModel, r"tokenizer\.ggml\.pre is missing \(supported: .*gpt-2"),
        ({"pre": "novel9"}, UnsupportedModel, r"tokenizer\.ggml\.pre='novel9' is not known .supported"),
        ({"model": "bert"}, UnsupportedModel, r"tokenizer\.ggml\.model='bert' is not read .supported: gpt2, llama"),
        ({"tokens": None}, CheckpointError, r"tokenizer\.ggml\.tokens is missing"),
        ({"tokens": [str(i % 9) for i in range(320)]}, CheckpointError, "has a text twice"),
        ({"tokens": [str(i) for i in range(320)]}, CheckpointError, "merges do not fit"),
        ({"token_type": [1, 1]}, CheckpointError, "token_type has 2 elements, the vocabulary 320"),
        ({"merges": ["nospace"]}, CheckpointError, "merges has 'nospace', want two pieces"),
        ({"bos_token_id": 320}, CheckpointError, "bos_token_id is 320, want an id below 320"),
        ({"model": "llama", "scores": [0.0]}, CheckpointError, "scores has 1 elements, the vocabulary 320"),
    ],
)
def test_tokenizers_that_are_not_right(tmp_path, folder, changes, error, message):
    path = byte_level(folder, **changes).write(tmp_path / "x.gguf")
    with pytest.raises(error, match=message):
        swiftk.load(path).generate("x", max_new_tokens=1)


class SentencePiece:
    """Its algorithm: of two neighbours that are a piece together, those of the highest score are joined, and the first
    of equals; characters that are no piece are bytes."""

    def __init__(self, tokens, scores):
        self.ids, self.scores = {token: i for i, token in enumerate(tokens)}, scores

    def encode(self, text, prefix=True):
        text = text.replace(" ", "▁")
        parts = list("▁" + text if prefix and text else text)
        while True:
            joined = [(self.scores[self.ids[a + b]], -i) for i, (a, b) in enumerate(itertools.pairwise(parts))
                      if a + b in self.ids]  # fmt: skip
            if not joined:
                break
            i = -max(joined)[1]
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        ids = []
        for part in parts:
            ids += [self.ids[part]] if part in self.ids else [self.ids[f"<0x{byte:02X}>"] for byte in part.encode()]
        return ids


def sentencepiece(**changes):
    pieces = [
        "▁",
        "▁▁",
        "th",
        "he",
        "the",
        "▁the",
        "▁t",
        "in",
        "ing",
        "▁in",
        "er",
        "re",
        "ere",
        "an",
        "and",
        "▁a",
        "▁an",
    ]
    pieces += ["▁and", "qu", "ick", "ck", "ic", "quick", "aa", "aaaa", "é"]
    letters = [chr(c) for c in range(33, 127)]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), *pieces, *letters]
    scores = [0.0] * 259 + [-float(i) for i in range(len(pieces))] + [-100.0 - i for i in range(len(letters))]
    types = [2, 3, 3] + [6] * 256 + [1] * (len(pieces) + len(letters))
    lists = {"model": "llama", "tokens": tokens, "scores": scores, "token_type": types, **changes}
    return {f"tokenizer.ggml.{name}": value for name, value in lists.items() if value is not None}


@pytest.mark.parametrize("prefix", [True, False])
@pytest.mark.parametrize(
    "text",
    ["", " ", "the", "there and then", "  in the  ring ", "quick quicker", "naïve é 日本 🙂", "aaaaaaa", "a\nb\t\0"],
)
def test_sentencepiece_is_its_algorithm(tmp_path, folder, text, prefix):
    metadata = sentencepiece(add_space_prefix=prefix)
    file = of_folder(folder)
    file.metadata |= metadata
    tokenizer = Tokenizer(file.write(tmp_path / "x.gguf"))
    want = SentencePiece(metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"]).encode(text, prefix)
    assert tokenizer.encode(text) == [1, *want]  # BOS where nothing is said of it
    assert tokenizer.decode(want) == text


def test_a_whole_tokenizer_in_the_metadata_comes_first(folder):
    whole = (folder / "tokenizer.json").read_text()
    assert build(folder, {"tokenizer.huggingface.json": whole, "tokenizer.ggml.model": "bert"}) == whole.encode()
