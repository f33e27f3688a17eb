"""swiftk run: a message for a chat template, or raw text; texts with nothing to see; what a terminal gets."""

import io
import json
import shutil
import signal

import pytest

import swiftk
from swiftk.api import LM
from swiftk.cli import main, terminal

PROMPT = "how\tmany?"
HOW = {"max_new_tokens": 9, "temperature": 0.8, "seed": 4}
FLAGS = ("-n", "9", "--temperature", "0.8", "--seed", "4")
USER = {"role": "user", "content": PROMPT}
SYSTEM = {"role": "system", "content": "be brief"}


@pytest.fixture(scope="module")
def folder(tiny_dir):
    return tiny_dir("llama3", layers=4)


@pytest.fixture
def run(capsys):
    def call(*arguments):
        return main(["run", *map(str, arguments)]), *capsys.readouterr()

    return call


def without_template(folder, to):
    copy = shutil.copytree(folder, to / "plain")
    (copy / "chat_template.jinja").unlink(missing_ok=True)
    settings = json.loads((copy / "tokenizer_config.json").read_text())
    (copy / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": None}))
    return copy


def ending_at_once(folder, to, prompt):
    """The model, whose greedy text after the prompt is its end."""
    copy = shutil.copytree(folder, to / "ends")
    first = swiftk.generate(copy, prompt, max_new_tokens=1, temperature=0).tokens[0]
    path = copy / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "eos_token_id": first}))
    return copy


@pytest.mark.parametrize(
    ("more", "asked"),
    [
        (("--assistant-early-exit", "2"), {"assistant_early_exit": 2}),
        (("--assistant-early-exit", "auto"), {"assistant_early_exit": "auto"}),
        (
            ("--optimizer", "swift-paper", "--swift", '{"window": 16}'),
            {"optimizer": "swift-paper", "swift": {"window": 16}},
        ),
        (("--optimizer", "None"), {"optimizer": None}),
        (("--gate", "0.6", "--max-draft", "5"), {"gate": 0.6, "max_draft": 5}),
        (("--gate", "swift", "--speculate", "always"), {"gate": "swift", "speculate": "always"}),
        (
            ("--gate", '{"beam": 4, "max_draft": 3, "max_nodes": 20}', "--skip", "int4"),
            {"gate": {"beam": 4, "max_draft": 3, "max_nodes": 20}, "skip": "int4"},
        ),
        (("--acceptance", "rejection"), {"acceptance": "rejection"}),
        (("--draft", "suffix"), {"draft": "suffix"}),
        (("--draft", "None"), {"draft": None}),
        (("--draft", '{"early_exit": 2}'), {"draft": {"early_exit": 2}}),
        (("--no-spec",), {"speculate": False}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_papers_methods_are_options(run, folder, monkeypatch, more, asked):
    """What generate() is asked for, and that the text comes."""
    given, generate = {}, LM.generate

    def noted(lm, prompt, **options):
        given.update(options)
        return generate(lm, prompt, **options)

    monkeypatch.setattr(LM, "generate", noted)
    code, text, errors = run(folder, PROMPT, *FLAGS, *more)
    assert (code, errors) == (0, "") and text
    usual = {"max_new_tokens": 9, "temperature": 0.8, "seed": 4, "drafter": None, "explain": False, "stream": True}
    assert given == {**usual, "skip": "auto", **asked}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--gate", '{"beem": 4}'), "[gate] unknown setting 'beem', want some of confidence"),
        (("--gate", "often"), "[generate] gate='often', want 'auto', 'swift', a threshold in [0, 1] or a TreeRule"),
        (("--draft", "sufix"), "[generate] draft='sufix', want None, a Draft, one of 'auto', 'plan', 'suffix'"),
        (("--draft", "suffix", "--no-spec"), "draft=Draft(drafter='suffix') and speculate=False both say how"),
        (("--optimizer", "slow"), "[generate] optimizer='slow', want one of 'auto'"),
        (("--assistant-early-exit", "two"), "assistant_early_exit='two', want 'auto' or an integer"),
    ],
)
def test_a_method_that_is_not_there_is_named(run, folder, more, words):
    code, text, errors = run(folder, PROMPT, *FLAGS, *more)
    assert (code, text) == (2, "") and words in errors and errors.count("\n") == 1


@pytest.mark.parametrize(
    ("more", "asked"),
    [((), [USER]), (("--system", "be brief"), [SYSTEM, USER]), (("--raw",), PROMPT), (("--system", ""), None)],
)
def test_the_prompt_is_a_message_where_there_is_a_template(run, folder, monkeypatch, more, asked):
    asked = [{"role": "system", "content": ""}, USER] if asked is None else asked
    want = swiftk.generate(folder, asked, **HOW)
    assert run(folder, PROMPT, *FLAGS, *more)[:2] == (0, want.text + "\n")
    monkeypatch.setattr("sys.stdin", io.StringIO(PROMPT))
    found = json.loads(run(folder, "-", *FLAGS, *more, "--json")[1])
    assert (found["prompt_tokens"], found["text"]) == (want.prompt_tokens, want.text)
    assert found.keys() == want.to_dict().keys()


def test_a_model_without_a_template_gets_the_text(run, folder, tmp_path):
    plain = without_template(folder, tmp_path)
    want = swiftk.generate(plain, PROMPT, **HOW)
    assert run(plain, PROMPT, *FLAGS)[:2] == run(plain, PROMPT, *FLAGS, "--raw")[:2] == (0, want.text + "\n")


def test_a_template_may_come_from_a_file(run, folder, tmp_path):
    plain, file = without_template(folder, tmp_path), tmp_path / "other.jinja"
    file.write_text("{{ messages[0].content }}!")
    want = swiftk.generate(plain, [USER], chat_template=file, **HOW)
    assert run(plain, PROMPT, *FLAGS, "--chat-template", file)[1] == want.text + "\n"


def test_a_system_message_needs_a_template(run, folder, tmp_path):
    plain = without_template(folder, tmp_path)
    for model, more, says in (
        (plain, (), f"which {plain} does not have"),
        (folder, ("--raw",), "which --raw leaves out"),
        ("/no/folder", (), "is not a directory"),
    ):
        status, out, err = run(model, PROMPT, "--system", "be brief", *more)
        assert (status, out, err.count("\n")) == (2, "", 1) and says in err


@pytest.mark.parametrize("json_too", [False, True])
@pytest.mark.parametrize(
    ("template", "raw", "says"),
    [(True, True, "leave out --raw"), (True, False, "ask otherwise"), (False, False, "last sentence unfinished")],
)
def test_a_text_that_ends_at_its_first_token_says_so(run, folder, tmp_path, template, raw, says, json_too):
    model = folder if template else without_template(folder, tmp_path)
    model = ending_at_once(model, tmp_path, [USER] if template and not raw else PROMPT)
    more = ("--raw",) * raw + ("--json",) * json_too
    status, out, err = run(model, PROMPT, "--temperature", "0", *more)
    assert status == 0 and (json_too or out == "\n")
    assert err.startswith("nothing to show: the text ended at its first token; ") and says in err
    assert err.count("\n") == 1


def test_a_text_with_something_to_see_says_nothing(run, folder):
    assert run(folder, PROMPT, *FLAGS)[2] == ""


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("colour", [True, False])
def test_a_terminal_gets_no_control_characters_of_a_text(monkeypatch, colour):
    if colour:
        monkeypatch.delenv("NO_COLOR", raising=False)
    else:
        monkeypatch.setenv("NO_COLOR", "1")
    said = "a\tb\n\x1b]0;title\x07\x9b2J\r\x7f\u00e9"
    shown = {}
    for kind in (Terminal, io.StringIO):
        monkeypatch.setattr("sys.stdout", kind())
        screen = terminal.Screen()
        screen.think("hm\x1b")
        screen.think("m")
        screen.write(said, "")
        screen.write("\t", "green")
        screen.end()
        shown[kind] = terminal.sys.stdout.getvalue()
    assert shown[io.StringIO] == said + "\t\n"
    thought = "\x1b[2mhm\\x1bm\x1b[0m\n" if colour else ""
    tab = "\x1b[32m\t\x1b[0m" if colour else "\t"
    assert shown[Terminal] == thought + f"a\tb\n\\x1b]0;title\\x07\\x9b2J\\x0d\\x7f\u00e9{tab}\n"


def test_one_interrupt_and_no_more():
    before, ended = signal.getsignal(signal.SIGINT), []
    with terminal.one_interrupt():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            signal.raise_signal(signal.SIGINT)
            ended.append(True)
    assert ended and signal.getsignal(signal.SIGINT) is before
