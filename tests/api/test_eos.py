"""Where the tokens that end a text are named."""

import json
import shutil

import pytest

import swiftk
from swiftk.errors import CheckpointError
from swiftk.options.generation_config import read_defaults

FILES = ("generation_config.json", "config.json", "tokenizer_config.json", "special_tokens_map.json")
EOS = [
    ({"generation_config.json": {"eos_token_id": [5, 6]}, "config.json": {"eos_token_id": 4}}, (5, 6)),
    ({"generation_config.json": {"eos_token_id": None}, "config.json": {"eos_token_id": 4}}, (4,)),
    ({"config.json": {"text_config": {"eos_token_id": 9}}}, (9,)),
    ({"tokenizer_config.json": {"eos_token": "</s>"}}, (2,)),
    ({"tokenizer_config.json": {"eos_token": {"content": "</s>", "lstrip": False}}}, (2,)),
    ({"tokenizer_config.json": {"eos_token": None}, "special_tokens_map.json": {"eos_token": "<s>"}}, (1,)),
    ({"tokenizer_config.json": {"eos_token": "x", "added_tokens_decoder": {"44": {"content": "x"}}}}, (44,)),
    ({"tokenizer_config.json": {"eos_token": "a"}}, "a"),
    ({"tokenizer_config.json": {"eos_token": "no such token"}}, ()),
    ({}, ()),
    ({"config.json": {"eos_token_id": []}, "tokenizer_config.json": {"eos_token": "</s>"}}, ()),
]


def write(folder, files):
    shutil.copy(swiftk.demo_model() / "tokenizer.json", folder)
    for name in FILES:
        (folder / name).write_text(json.dumps(files.get(name, {})))


@pytest.mark.parametrize(("files", "want"), EOS)
def test_where_the_eos_is_named(tmp_path, files, want):
    write(tmp_path, files)
    if want == "a":  # a token of the vocabulary that nobody added
        want = (json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]["a"],)
    assert read_defaults(tmp_path).eos_token_ids == want


@pytest.mark.parametrize("wrong", ["x", {"a": 1}, [None], 1.5])
def test_what_is_no_id(tmp_path, wrong):
    write(tmp_path, {"config.json": {"eos_token_id": wrong}})
    with pytest.raises(CheckpointError, match="want an id or a list of ids"):
        read_defaults(tmp_path)
