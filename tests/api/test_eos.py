"""Where the tokens that end a text are named, read alike by Python and by the C library."""

import json
import shutil
from pathlib import Path

import pytest

import swiftk
from building import building_in, call
from swiftk.errors import CheckpointError
from swiftk.options.generation_config import read_defaults

ROOT = Path(__file__).resolve().parents[2]
FILES = ("generation_config.json", "config.json", "tokenizer_config.json", "special_tokens_map.json")
PROGRAM = """
#include <cstdio>
#include <exception>
#include "files/eos.h"
int main(int, char** argv) {
  try {
    for (int id : swiftk::read_eos_ids(argv[1])) std::printf("%d ", id);
  } catch (const std::exception& error) {
    std::printf("%s", error.what());
  }
}
"""
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


@pytest.fixture(scope="module")
def native(tmp_path_factory):
    """What csrc/files/eos.cc finds in a folder."""
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("needs a C++ compiler")
    with building_in(tmp_path_factory.getbasetemp() / "eos") as folder:
        program = folder / "eos"
        if not program.is_file():
            (folder / "main.cc").write_text(PROGRAM)
            sources = [folder / "main.cc", ROOT / "csrc" / "files" / "eos.cc", ROOT / "csrc" / "base" / "json.cc"]
            call(compiler, "-std=c++20", f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'kernels'}", *sources, "-o", program)
    return lambda model: call(program, model)


def write(folder, files):
    shutil.copy(swiftk.demo_model() / "tokenizer.json", folder)
    for name in FILES:
        (folder / name).write_text(json.dumps(files.get(name, {})))


@pytest.mark.parametrize(("files", "want"), EOS)
def test_where_the_eos_is_named(tmp_path, native, files, want):
    write(tmp_path, files)
    if want == "a":  # a token of the vocabulary that nobody added
        want = (json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]["a"],)
    assert read_defaults(tmp_path).eos_token_ids == want
    assert tuple(map(int, native(tmp_path).split())) == want


@pytest.mark.parametrize("wrong", ["x", {"a": 1}, [None], 1.5])
def test_what_is_no_id(tmp_path, native, wrong):
    write(tmp_path, {"config.json": {"eos_token_id": wrong}})
    with pytest.raises(CheckpointError, match="want an id or a list of ids"):
        read_defaults(tmp_path)
    assert "want an id or a list of ids" in native(tmp_path)
