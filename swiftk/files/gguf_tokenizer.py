"""The tokenizer of a GGUF file, built with the `tokenizers` library: byte-level BPE ("gpt2") and SentencePiece's BPE
("llama"). The regular expressions are those of llama.cpp's llama-vocab.cpp, by the name in tokenizer.ggml.pre."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, UnsupportedModel

_NORMAL, _CONTROL, _USER, _BYTE = 1, 3, 4, 6  # of tokenizer.ggml.token_type
_OUT = "tokenizer=PATH names another, of a Hugging Face folder or a GGUF file"

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_ENDS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_START = r"[^\r\n\p{L}\p{N}]?"


def _words(letters: str, numbers: str, after_marks: str = r"[\r\n]*") -> str:
    """Contractions, words with a mark before them, numbers, marks, and space."""
    return rf"{_CONTRACTIONS}|{_START}{letters}+|{numbers}| ?[^\s\p{{L}}\p{{N}}]+{after_marks}|{_ENDS}"


def _cased(numbers: str, contractions: str) -> str:
    """The same by case: a word is capitals and small letters after them."""
    words = rf"{_START}{_UPPER}*{_LOWER}+{contractions}|{_START}{_UPPER}+{_LOWER}*{contractions}"
    return rf"{words}|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_ENDS}"


_THREE = r"\p{N}{1,3}"
_LLAMA3 = (_words(r"\p{L}", _THREE),)
# By what a text is split; each splits what those before it left.
_PATTERNS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "smaug-bpe", "falcon3", "dbrx", "pixtral", "lfm2"), _LLAMA3),
    **dict.fromkeys(("glm4", "chatglm-bpe"), _LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan"), (_words(r"\p{L}", r"\p{N}"),)),
    "qwen35": (_words(r"[\p{L}\p{M}]", r"\p{N}"),),
    "seed-coder": (_words(r"\p{L}", r"\p{N}", ""),),
    "tekken": (_cased(r"\p{N}", ""),),
    **dict.fromkeys(("gpt-4o", "llama4"), (_cased(_THREE, f"{_CONTRACTIONS}?"),)),
    "minicpm5": (_THREE, _words(r"\p{L}", r"\p{N}+")),
    "hunyuan-dense": (
        _THREE,
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_ENDS}",
    ),
}
_GPT2 = ("gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4")
_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone")  # one by one, then as GPT-2
_LIKE_LLAMA3 = ("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "lfm2", "tekken")
_WHOLE_WORDS = (*_LIKE_LLAMA3, "minicpm5")  # a word that is a token is one, whatever merges say
_WITH_BOS = (*_LIKE_LLAMA3, "chameleon")  # where the file does not say


def build(path: Path, metadata: Mapping[str, Any]) -> bytes:
    """tokenizer.json of a file's metadata. path: for messages. Throws UnsupportedModel naming a kind of tokenizer or of
    splitting that is not known, CheckpointError for lists that do not fit together."""
    whole = metadata.get("tokenizer.huggingface.json")
    if isinstance(whole, str):
        return whole.encode()
    kind = metadata.get("tokenizer.ggml.model")
    builders = {"gpt2": _byte_level, "llama": _sentencepiece}
    if kind not in builders:
        known = ", ".join(builders)
        raise UnsupportedModel(f"[tokenizer] {path}: tokenizer.ggml.model={kind!r} is not read (supported: {known})")
    facts = _Facts(path, metadata)
    made = builders[kind](facts)
    _add_tokens(made, facts)
    _add_ends(made, facts)
    return str(made.to_str()).encode()


class _Facts:
    """The metadata of a tokenizer, checked against each other."""

    def __init__(self, path: Path, metadata: Mapping[str, Any]) -> None:
        self.path, self._metadata = path, metadata
        self.tokens: list[str] = self.array("tokens", str)
        if not self.tokens:
            raise CheckpointError(f"[tokenizer] {path}: tokenizer.ggml.tokens is missing, want a list of texts")
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        if len(self.ids) != len(self.tokens):
            raise CheckpointError(f"[tokenizer] {path}: tokenizer.ggml.tokens has a text twice")
        self.types: list[int] = self.array("token_type", int) or [_NORMAL] * len(self.tokens)
        self.same_length("token_type", self.types)

    def get(self, key: str, otherwise: Any = None) -> Any:
        return self._metadata.get(f"tokenizer.ggml.{key}", otherwise)

    def array(self, key: str, kind: type | tuple[type, ...]) -> list[Any]:
        found = self.get(key, [])
        if not isinstance(found, list) or not all(isinstance(one, kind) for one in found[:1]):
            raise CheckpointError(f"[tokenizer] {self.path}: tokenizer.ggml.{key} is no list of its kind")
        return found

    def same_length(self, key: str, values: Sequence[Any]) -> None:
        if len(values) != len(self.tokens):
            raise CheckpointError(
                f"[tokenizer] {self.path}: tokenizer.ggml.{key} has {len(values)} elements, the vocabulary "
                f"{len(self.tokens)}"
            )

    def token_id(self, key: str, otherwise: int | None) -> int | None:
        found = self.get(f"{key}_token_id", otherwise)
        if found is None:
            return None
        if not isinstance(found, int) or not 0 <= found < len(self.tokens):
            want = f"want an id below {len(self.tokens)}"
            raise CheckpointError(f"[tokenizer] {self.path}: tokenizer.ggml.{key}_token_id is {found}, {want}")
        return found


def _byte_level(facts: _Facts) -> Any:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    pre = facts.get("pre")
    if pre in _PATTERNS:
        splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in _PATTERNS[pre]]
        steps = [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    elif pre in _GPT2 or pre in _DIGITS:
        digits = [pre_tokenizers.Digits(individual_digits=True)] if pre in _DIGITS else []
        steps = [*digits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    else:
        known = ", ".join(sorted({*_PATTERNS, *_GPT2, *_DIGITS}))
        got = f"tokenizer.ggml.pre={pre!r} is not known" if pre else "tokenizer.ggml.pre is missing"
        raise UnsupportedModel(f"[tokenizer] {facts.path}: {got} (supported: {known}); {_OUT}")
    merges = []
    for line in facts.array("merges", str):
        at = line.find(" ", 1)  # a piece may begin with a space
        if at < 0:
            raise CheckpointError(f"[tokenizer] {facts.path}: tokenizer.ggml.merges has {line!r}, want two pieces")
        merges.append((line[:at], line[at + 1 :]))
    try:
        made = Tokenizer(models.BPE(vocab=facts.ids, merges=merges, ignore_merges=pre in _WHOLE_WORDS))
    except Exception as error:  # of the library's own kind: a piece that is no token
        raise CheckpointError(f"[tokenizer] {facts.path}: tokenizer.ggml.merges do not fit: {error}") from None
    made.pre_tokenizer = pre_tokenizers.Sequence(steps)
    made.decoder = decoders.ByteLevel()
    return made


def _sentencepiece(facts: _Facts) -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers

    scores = facts.array("scores", (int, float))
    facts.same_length("scores", scores)
    merges = []
    for i, piece in enumerate(facts.tokens):
        if facts.types[i] not in (_NORMAL, _USER):
            continue
        halves = [(piece[:at], piece[at:]) for at in range(1, len(piece))]
        known = [(left, right) for left, right in halves if left in facts.ids and right in facts.ids]
        merges += [(-scores[i], i, facts.ids[left], facts.ids[right], left, right) for left, right in known]
    unknown = facts.token_id("unknown", 0)
    made = Tokenizer(
        models.BPE(
            vocab=facts.ids,
            merges=[pair[-2:] for pair in sorted(merges)],
            byte_fallback=_BYTE in facts.types,
            fuse_unk=True,
            unk_token=None if unknown is None else facts.tokens[unknown],
        )
    )
    prefix = bool(facts.get("add_space_prefix", True))
    spaces = normalizers.Replace(" ", "▁")
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), spaces] if prefix else [spaces])
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip])
    return made


def _add_tokens(made: Any, facts: _Facts) -> None:
    """Tokens that are cut out of a text before it is split."""
    from tokenizers import AddedToken

    for kind, special in ((_CONTROL, True), (_USER, False)):
        texts = [token for token, its in zip(facts.tokens, facts.types, strict=True) if its == kind and token]
        tokens = [AddedToken(text, special=special, normalized=False) for text in texts]
        (made.add_special_tokens if special else made.add_tokens)(tokens)


def _add_ends(made: Any, facts: _Facts) -> None:
    """The tokens that are put around a text."""
    from tokenizers import processors

    sentencepiece = facts.get("model") == "llama"
    with_bos = facts.get("add_bos_token", sentencepiece or facts.get("pre") in _WITH_BOS)
    bos = facts.token_id("bos", 1 if sentencepiece else None) if with_bos else None
    eos = facts.token_id("eos", 2 if sentencepiece else None) if facts.get("add_eos_token", False) else None
    around = {name: i for name, i in (("bos", bos), ("eos", eos)) if i is not None}
    if not around:
        return
    before, after = ([facts.tokens[i]] if i is not None else [] for i in (bos, eos))
    special = [(facts.tokens[i], i) for i in dict.fromkeys(around.values())]
    made.post_processor = processors.TemplateProcessing(
        single=[*before, "$A", *after], pair=[*before, "$A", "$B", *after], special_tokens=special
    )
