"""Trains a byte-level BPE and writes it as the tokenizer files of a checkpoint: any text is tokens, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from ..files.hf_folder import TOKENIZER, TOKENIZER_SETTINGS

SPECIAL = ("<unk>", "<s>", "</s>")  # ids 0, 1, 2
SMALLEST = 256 + len(SPECIAL)  # a token for every byte


def write_bpe(folder: Path, texts: Iterable[str], vocab: int, chat_template: str | None = None) -> None:
    """Bytes, what merges of the texts the vocabulary has room for, and a BOS in front of a text.

    tokenizer.json comes last: where it is there, all of it is.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=list(SPECIAL),
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "clean_up_tokenization_spaces": False,
        **({"chat_template": chat_template} if chat_template else {}),
    }
    (folder / TOKENIZER_SETTINGS).write_text(json.dumps(settings, indent=2))
    partial = folder / f"{TOKENIZER}.partial"
    tokenizer.save(str(partial))
    partial.replace(folder / TOKENIZER)
