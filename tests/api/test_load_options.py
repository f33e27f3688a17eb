"""Options of load(): each is declared once, and load(), the command line and help() have it."""

import inspect
import re

import pytest

import swiftk
from swiftk.cli import COMMANDS, common, main
from swiftk.errors import InvalidArgument
from swiftk.options.fields import table
from swiftk.options.load_options import LoadOptions

NAMES = list(table(LoadOptions))
GIVEN = {  # option: as a command line gives it, and what load() is called with
    "device": ("cpu", "cpu"),
    "dtype": ("float32", "float32"),
    "kv_dtype": ("float16", "float16"),
    "threads": ("3", 3),
    "context": ("77", 77),
    "isa": ("avx2", "avx2"),
    "draft_weights": ("int4,int8", "int4,int8"),
    "drafter": ("folder", ["folder"]),
    "drafter_pack": ("file", ["file"]),
    "draft_vocab": ("words.txt", "words.txt"),
    "draft_memory": ("512MiB", "512MiB"),
    "memory": ("6GB", "6GB"),
    "max_sequences": ("5", 5),
    "kv_memory": ("1.5GB", "1.5GB"),
    "prefix_cache": ("prefixes", "prefixes"),
    "prefix_cache_size": ("2GB", "2GB"),
    "tokenizer": (str(swiftk.demo_model()),) * 2,
    "chat_template": ("template.jinja", "template.jinja"),
    "corpus": ("notes", "notes"),
}
REST = {  # what a command wants besides, and what of load() it has no choice in
    "demo": ((), {"drafter", "drafter_pack"}),
    "run": (("demo", "hello"), set()),
    "chat": (("demo",), set()),
    "serve": (("demo", "--port", "0"), set()),
    "info": (("demo",), set()),
    "check": (("demo",), set()),
    "doctor": ((), set()),
    "bench": (("demo",), set()),
    "tune": (
        ("demo", "--out", "card.json"),
        {"draft_weights", "draft_memory", "draft_vocab", "drafter", "drafter_pack"},
    ),
}


class Loaded(Exception):
    """With what load() was called."""


@pytest.fixture
def loads(monkeypatch):
    """loads(*arguments) -> the options that a command calls load() with."""

    def load(folder, progress=None, **options):
        raise Loaded(options)

    monkeypatch.setattr(common, "load", load)

    def run(*arguments):
        with pytest.raises(Loaded) as found:
            main(list(arguments))
        return found.value.args[0]

    return run


def flag(name):
    return "--" + name.replace("_", "-")


def test_all_commands_and_options_are_here():
    assert set(REST) == set(COMMANDS) - {"pack", "convert"}
    assert set(GIVEN) == set(NAMES) - {"pack"}


@pytest.mark.parametrize("command", [name for name in REST if name not in ("serve", "info")])
def test_commands_pass_them_on(loads, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "template.jinja").write_text("{{ messages }}")
    rest, without = REST[command]
    if command == "tune":
        (tmp_path / "data.txt").write_text("one\n")
        rest = (*rest, "--data", "data.txt")
    for name, (written, value) in GIVEN.items():
        if name not in without:
            assert loads(command, *rest, flag(name), written)[name] == value
    plain = loads(command, *rest)
    assert not set(GIVEN) & set(plain) - without - {"device", "drafter"}  # nothing is given: load() has the defaults


@pytest.mark.parametrize("command", REST)
def test_help_has_each_with_its_words(capsys, command):
    assert main([command, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for name, one in table(LoadOptions).items():
        has = re.search(rf"{flag(name)} (?!is)", shown) is not None
        assert has == (name not in REST[command][1]), name
        if has and not (command == "run" and name == "drafter"):
            assert one.help in shown


def test_help_of_load_has_each():
    assert set(NAMES) <= set(inspect.signature(swiftk.load).parameters)


def test_mistakes_name_the_option(capsys):
    for name, written in (("threads", "5000"), ("kv_memory", "6 parsecs"), ("draft_weights", "int5"), ("isa", "z80")):
        assert main(["run", "demo", "x", flag(name), written]) == 2
        found = capsys.readouterr().err
        assert name in found and written in found and re.search("want|has", found), found


def test_a_server_elsewhere_loads_nothing_here(capsys):
    assert main(["chat", "--url", "http://127.0.0.1:1/v1", "--kv-memory", "1GB"]) == 2
    assert "--kv-memory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("written", "size"),
    [
        *((512, 512), ("512", 512), ("512B", 512), ("6GB", 6 * 10**9), ("6G", 6 * 10**9), ("1.5 GB", 15 * 10**8)),
        *(("512MiB", 512 << 20), ("6Gi", 6 << 30), ("2tib", 2 << 40), ("8k", 8000), ("8KiB", 8192)),
    ],
)
@pytest.mark.parametrize("name", ["kv_memory", "draft_memory", "memory"])
def test_sizes(name, written, size):
    assert getattr(LoadOptions(**{name: written}), name) == size


@pytest.mark.parametrize("written", [0, -1, True, 1.5, "", "GB", "6XB", "-6GB", "1e9", "0MB", "6GBB", b"6GB"])
def test_sizes_that_are_none(written):
    with pytest.raises(InvalidArgument, match=re.escape(f"[load] kv_memory={written!r}, want an integer in 1..")):
        LoadOptions(kv_memory=written)


def test_sizes_hold(tiny_dir):
    with swiftk.load(tiny_dir("llama3", layers=2), device="cpu", context=64, draft_memory="1KB", max_sequences=3) as lm:
        assert (lm.context, lm.model.copies) == (64, {})
