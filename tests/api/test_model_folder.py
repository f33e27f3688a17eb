"""What people give as a model: a folder loads; of anything else the error says what it is and what to do."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

import swiftk
from swiftk.cli import main
from swiftk.errors import CheckpointError, InvalidArgument, UnsupportedModel
from swiftk.files.model_folder import find, is_model

GGUF, POINTER = b"GGUF\x03\0\0\0" + bytes(24), b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
MODEL = {"config.json": CONFIG, "model.safetensors": b"weights"}


def quantised(**how):
    return {**MODEL, "config.json": {**CONFIG, "quantization_config": how}}


# name: (files below tmp_path, what is given, the error, words of it)
FILES = {
    "a GGUF file that is none": (
        {"m/Llama-3.2-1B-Q4_K_M.gguf": POINTER},
        "m/Llama-3.2-1B-Q4_K_M.gguf",
        CheckpointError,
        ["does not begin as a GGUF file does", "Git LFS"],
    ),
    "a folder of GGUF": (
        {"m/Qwen3-0.6B-Q8_0-00001-of-00002.gguf": GGUF, "m/README.md": b""},
        "m",
        UnsupportedModel,
        [
            "has Qwen3-0.6B-Q8_0-00001-of-00002.gguf: GGUF",
            "Give that file: {tmp}/m/Qwen3-0.6B-Q8_0-00001-of-00002.gguf.",
        ],
    ),
    "a config beside GGUF": ({"m/config.json": CONFIG, "m/x.gguf": GGUF}, "m", UnsupportedModel, ["has x.gguf: GGUF"]),
    "pickles": (
        {"m/config.json": CONFIG, "m/pytorch_model-00001-of-00002.bin": b"PK"},
        "m",
        UnsupportedModel,
        [
            "pytorch_model-00001-of-00002.bin: PyTorch weights",
            "AutoModelForCausalLM.from_pretrained(",
            ".save_pretrained(",
        ],
    ),
    "a pickle": (
        {"m/config.json": CONFIG, "m/pytorch_model.bin": b"PK"},
        "m/pytorch_model.bin",
        UnsupportedModel,
        ["is a file: PyTorch weights", "from_pretrained('{tmp}/m')"],
    ),
    "a .pt file": ({"model.pt": b"PK\x03\x04"}, "model.pt", UnsupportedModel, ["PyTorch weights"]),
    "Meta's files": (
        {"m/consolidated.00.pth": b"PK", "m/params.json": {}},
        "m",
        UnsupportedModel,
        ["Meta's own format"],
    ),
    "a safetensors file": (
        {f"m/{name}": f for name, f in MODEL.items()},
        "m/model.safetensors",
        CheckpointError,
        ["is a file; want", "Give its folder: {tmp}/m."],
    ),
    "a safetensors file alone": (
        {"model.safetensors": b""},
        "model.safetensors",
        CheckpointError,
        ["config.json is needed"],
    ),
    "its config.json": (
        {f"m/{name}": f for name, f in MODEL.items()},
        "m/config.json",
        CheckpointError,
        ["folder: {tmp}/m."],
    ),
    "ONNX": (
        {"m/config.json": CONFIG, "m/model.onnx": b""},
        "m",
        UnsupportedModel,
        ["has model.onnx: ONNX", "hf download"],
    ),
    "an ONNX file": ({"model_q4.onnx": b""}, "model_q4.onnx", UnsupportedModel, ["is a file: ONNX"]),
    "old MLX": ({"m/config.json": CONFIG, "m/weights.npz": b""}, "m", UnsupportedModel, ["has weights.npz: MLX"]),
    "MLX": (
        {**{"m/model.safetensors": b""}, "m/config.json": {**CONFIG, "quantization": {"group_size": 64, "bits": 4}}},
        "m",
        UnsupportedModel,
        ["packed by MLX (4 bits)", "hf download ORG/m "],
    ),
    "AQLM": (
        {f"Llama-AQLM/{n}": f for n, f in quantised(quant_method="aqlm", bits=2).items()},
        "Llama-AQLM",
        UnsupportedModel,
        ["packed by aqlm (2 bits)", "hf download ORG/Llama "],
    ),
    "four bits of another packing": (
        {f"m/{n}": f for n, f in quantised(quant_method="quanto", load_in_4bit=True).items()},
        "m",
        UnsupportedModel,
        ["packed by quanto (4 bits)"],
    ),
    "an unknown packing": (
        {f"m/{n}": f for n, f in quantised(quant_method="novel9").items()},
        "m",
        UnsupportedModel,
        ["novel9"],
    ),
    "an adapter": (
        {"m/adapter_config.json": {"base_model_name_or_path": "org/base"}, "m/adapter_model.safetensors": b""},
        "m",
        UnsupportedModel,
        ["adapter (LoRA) for org/base", "merge_and_unload()"],
    ),
    "TensorFlow": ({"m/config.json": CONFIG, "m/tf_model.h5": b""}, "m", UnsupportedModel, ["TensorFlow or Flax"]),
    "an archive": ({"model.tar.gz": b"\x1f\x8b"}, "model.tar.gz", UnsupportedModel, ["an archive", "Unpack it"]),
    "another file": ({"notes.txt": b"hello"}, "notes.txt", CheckpointError, ["notes.txt is a file; want"]),
    "no config.json": ({"m/model.safetensors": b""}, "m", CheckpointError, ["has no config.json;", "hf download"]),
    "no weights": (
        {"m/config.json": CONFIG, "m/tokenizer.json": {}},
        "m",
        CheckpointError,
        ["has no model.safetensors;"],
    ),
    "weights of another name": (
        {"m/config.json": CONFIG, "m/lora.safetensors": b""},
        "m",
        CheckpointError,
        ["no model.safetensors, only lora.safetensors"],
    ),
    "a trainer's folder": (
        {"m/config.json": CONFIG, "m/training_args.bin": b""},
        "m",
        CheckpointError,
        ["no model.safetensors;"],
    ),
    "an empty folder": ({"m/sub/x": b""}, "m", CheckpointError, ["no config.json and no model.safetensors"]),
    "pointers": (
        {"m/config.json": CONFIG, "m/model.safetensors": POINTER},
        "m",
        CheckpointError,
        ["pointers of Git LFS", "git lfs pull"],
    ),
    "half a download": (
        {"m/config.json": CONFIG, "m/.cache/huggingface/download/a.incomplete": b""},
        "m",
        CheckpointError,
        ["a download did not end", "`hf download` again"],
    ),
    "a folder above": (
        {f"all/m/{n}": f for n, f in MODEL.items()},
        "all",
        CheckpointError,
        ["A model is in {tmp}/all/m: give"],
    ),
    "two folders above": (
        {f"all/x/m/{n}": f for n, f in MODEL.items()},
        "all",
        CheckpointError,
        ["{tmp}/all/x/m: give"],
    ),
    "a folder below": (
        {**{f"m/{n}": f for n, f in MODEL.items()}, "m/original/params.json": {}},
        "m/original",
        CheckpointError,
        ["A model is in {tmp}/m: give"],
    ),
}
CACHE = {
    f"hub/models--org--name/snapshots/{commit}/{name}": f for commit in ("aaa", "bbb") for name, f in MODEL.items()
} | {"hub/models--org--name/refs/main": b"bbb", "hub/models--org--name/blobs/0": b""}
NAMES = {  # given: (the error, words of it)
    "org/name": (CheckpointError, ["looks like a repository of the Hub", "`hf download org/name --local-dir DIR`"]),
    "Qwen/Qwen3-0.6B": (CheckpointError, ["`hf download Qwen/Qwen3-0.6B --local-dir DIR`"]),
    "x/Llama-3.2-1B-Instruct-GGUF": (
        CheckpointError,
        ["`hf download x/Llama-3.2-1B-Instruct-GGUF FILE.gguf --local-dir DIR`", "give its path"],
    ),
    "x/Llama-2-7B-AWQ": (UnsupportedModel, ["in AWQ, which is not read", "ORG/Llama-2-7B "]),
    "x/Llama-2-7B-Chat-GPTQ": (UnsupportedModel, ["in GPTQ, ", "ORG/Llama-2-7B-Chat "]),
    "x/Llama-3.2-1B-bnb-4bit": (UnsupportedModel, ["ORG/Llama-3.2-1B "]),
    "mlx-community/Qwen3-0.6B-4bit": (UnsupportedModel, ["ORG/Qwen3-0.6B "]),
    "x/Llama-3.2-1B-FP8": (UnsupportedModel, ["in FP8", "ORG/Llama-3.2-1B "]),
    "llama3.2:1b": (CheckpointError, ["Ollama", "Download the GGUF file", "hf download ORG/NAME-GGUF FILE.gguf"]),
    "library/qwen3:latest": (CheckpointError, ["Ollama"]),
    "hf.co/x/Llama-3.2-1B-GGUF:Q4_K_M": (CheckpointError, ["`hf download x/Llama-3.2-1B-GGUF FILE.gguf "]),
    "https://huggingface.co/org/name/tree/main": (CheckpointError, ["a Hub address", "`hf download org/name "]),
    "https://huggingface.co/org/name-GGUF/blob/main/x.gguf": (CheckpointError, ["org/name-GGUF FILE.gguf"]),
    "s3://bucket/model": (CheckpointError, ["an address", "Download it"]),
    "no-such-model": (CheckpointError, ["is not a directory"]),
    "": (CheckpointError, ["no config.json"]),
    "a\0b": (CheckpointError, ["is not a directory"]),
}


def lay(root, files):
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())


@pytest.fixture(autouse=True)
def no_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))


def check(call, error, words, root):
    with pytest.raises(error) as found:
        call()
    assert type(found.value) is error
    for one in words:
        assert one.replace("{tmp}", str(root)) in str(found.value)
    assert "\n" not in str(found.value) and "want a Hugging Face folder" in str(found.value)


@pytest.mark.parametrize("name", FILES)
def test_files_and_folders(tmp_path, name):
    files, given, error, words = FILES[name]
    lay(tmp_path, files)
    check(lambda: swiftk.load(tmp_path / given), error, words, tmp_path)


@pytest.mark.parametrize(
    "name", ["a GGUF file that is none", "a folder of GGUF", "an adapter", "AQLM", "no config.json", "a folder above"]
)
def test_drafters_alike(tmp_path, tiny_dir, name):
    files, given, error, words = FILES[name]
    lay(tmp_path, files)
    say = [*words, "drafter"]
    check(lambda: swiftk.load(tiny_dir("llama3", layers=2), drafter=tmp_path / given), error, say, tmp_path)
    check(lambda: swiftk.remote.Head(tiny_dir("llama3", layers=2), tmp_path / given), error, say, tmp_path)


def test_a_head_in_a_pickle_is_converted_as_a_head(tmp_path, tiny_dir):
    lay(tmp_path, {"config.json": CONFIG, "pytorch_model.bin": b"PK"})
    words = ["PyTorch weights", "safetensors.torch.save_file(torch.load("]
    check(lambda: swiftk.load(tiny_dir("llama3", layers=2), drafter=tmp_path), UnsupportedModel, words, tmp_path)


@pytest.mark.parametrize("given", NAMES)
def test_names(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    check(lambda: swiftk.load(given), *NAMES[given], tmp_path)


@pytest.mark.parametrize("given", ["", "models--org--name", "models--org--name/snapshots", "models--org--name/blobs"])
def test_the_cache_of_the_hub_reports_its_snapshots(tmp_path, given):
    lay(tmp_path, CACHE)
    snapshots = tmp_path / "hub/models--org--name/snapshots"
    words = [f"A model is in {snapshots}/bbb, {snapshots}/aaa: give"]  # main's first
    check(lambda: swiftk.load(tmp_path / "hub" / given), CheckpointError, words, tmp_path)
    assert find(snapshots / "aaa") == snapshots / "aaa"


def test_a_name_that_is_downloaded_already(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lay(tmp_path, CACHE)
    words = ["It is downloaded already: {tmp}/hub/models--org--name/snapshots/bbb"]
    check(lambda: swiftk.load("org/name"), CheckpointError, words, tmp_path)


def test_a_misspelt_path_has_a_suggestion(tmp_path):
    lay(tmp_path, {f"SmolLM2-135M/{name}": f for name, f in MODEL.items()})
    words = ["is not a directory", "Did you mean {tmp}/SmolLM2-135M?"]
    check(lambda: swiftk.load(tmp_path / "SmolLM2-135m"), CheckpointError, words, tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_may_not_be_read(tmp_path):
    (tmp_path / "m").mkdir(mode=0)
    check(lambda: swiftk.load(tmp_path / "m"), CheckpointError, ["cannot be read"], tmp_path)


def test_what_is_a_model_is_one(tmp_path, tiny_dir):
    folder = tiny_dir("llama3", layers=2)
    assert find(folder) == find(str(folder)) == folder and is_model(folder)
    shutil.copytree(folder, tmp_path / "m-GGUF")  # only what is inside counts
    lay(tmp_path / "m-GGUF", {"x.gguf": GGUF, "pytorch_model.bin": b"PK", "adapter_config.json": {}})
    assert find(tmp_path / "m-GGUF") == tmp_path / "m-GGUF"


@pytest.mark.parametrize("command", ["run", "chat", "info", "check", "bench", "doctor", "tune", "pack"])
def test_every_command_says_so_in_one_line(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    lay(tmp_path, {"x.onnx": b"", "data.txt": b"one\n"})
    rest = {"run": ["hello"], "tune": ["--data", "data.txt", "--out", "card.json"]}.get(command, [])
    given = ["--model", "x.onnx", "-o", "y", "--arch", "sm_90"] if command == "pack" else ["x.onnx", *rest]
    assert main([command, *given]) == 2
    out, err = capsys.readouterr()
    assert out == "" and re.fullmatch(r"swiftk: .*x\.onnx is a file: ONNX.*hf download.*\n", err)


def test_a_torch_model_that_is_none():
    hf = pytest.importorskip("swiftk.hf")
    with pytest.raises(InvalidArgument, match=r"\[hf\] got 'folder', want a loaded torch model; swiftk\.load"):
        hf.attach("folder")


def test_the_bundled_models_are_found():
    assert all(find(Path(folder)) == folder for folder in (swiftk.demo_model(), swiftk.demo_drafter()))
