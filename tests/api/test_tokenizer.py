"""Tokenizer files: the same ids and the same chat prompts as transformers makes of them."""

import json
import shutil

import pytest

import swiftk
from swiftk.errors import CheckpointError, InvalidArgument
from swiftk.testing import make_tiny
from swiftk.text.prompt import token_ids
from swiftk.text.tokenizer import Tokenizer

TEXTS = ["Hello world", " leading", "def f(x):\n    return x + 1\n", "日本語 🙂", "</s> in text", "a" * 300]
TEMPLATE = """{{ bos_token }}{% for m in messages %}{% if loop.index0 > 9 %}{% break %}{% endif %}
    {% if m.role == 'system' and not loop.first %}{{ raise_exception('system comes first') }}{% endif %}
<|{{ m['role'] }}|>{{ m.content | trim }}{% generation %}{{ eos_token }}{% endgeneration %}
{% endfor %}{{ {"a": "<é>", "b": [1, 2]} | tojson }}{% if add_generation_prompt %}<|assistant|>{% endif %}"""
MESSAGES = [
    {"role": "user", "content": " hi "},
    {"role": "assistant", "content": "hello"},
    {"role": "user", "content": "<b>&"},
]


@pytest.fixture
def folder(tmp_path):
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        shutil.copy(swiftk.demo_model() / name, tmp_path / name)
    return tmp_path


def settings(folder, **more):
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))


@pytest.mark.parametrize("more", [{}, {"add_bos_token": False}, {"add_bos_token": True, "add_eos_token": True}])
@pytest.mark.parametrize("post_processor", [True, False])
def test_ids_are_those_of_transformers(folder, more, post_processor):
    transformers = pytest.importorskip("transformers")
    settings(folder, **more)
    if not post_processor:
        path = folder / "tokenizer.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "post_processor": None}))
    theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), Tokenizer(folder)
    for text in TEXTS:
        ids = theirs(text)["input_ids"]
        assert ours.encode(text, parse_special=True) == ids
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


def test_special_tokens_in_a_text_are_text(folder, caplog):
    transformers = pytest.importorskip("transformers")
    theirs, ours = transformers.AutoTokenizer.from_pretrained(folder, split_special_tokens=True), Tokenizer(folder)
    assert ours.encode("a</s>b") == theirs("a</s>b")["input_ids"] != ours.encode("a</s>b", parse_special=True)
    assert [r.getMessage() for r in caplog.records] == [
        "'</s>' in the prompt is text; parse_special=True makes it the special token"
    ]
    assert token_ids("</s>", ours, 4096, 50).size > token_ids("</s>", ours, 4096, 50, parse_special=True).size


def test_truncation_and_padding_of_the_file_are_off(folder):
    path = folder / "tokenizer.json"
    more = {
        "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0},
        "padding": {
            "strategy": {"Fixed": 64},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "<unk>",
        },
    }
    path.write_text(json.dumps({**json.loads(path.read_text()), **more}))
    assert Tokenizer(folder).encode("Hello world, how are you?") == Tokenizer(swiftk.demo_model()).encode(
        "Hello world, how are you?"
    )


@pytest.mark.parametrize("where", ["config", "file", "list"])
def test_chat_template_as_transformers_renders_it(folder, where):
    transformers = pytest.importorskip("transformers")
    if where == "file":
        settings(folder, chat_template="overridden")
        (folder / "chat_template.jinja").write_text(TEMPLATE)
    else:
        entry = (
            TEMPLATE
            if where == "config"
            else [{"name": "tool", "template": "x"}, {"name": "default", "template": TEMPLATE}]
        )
        settings(folder, chat_template=entry)
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    want = theirs.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
    ours = Tokenizer(folder)
    assert ours.render(MESSAGES) == want
    assert ours.encode_chat(MESSAGES) == theirs.encode(want, add_special_tokens=False)


def test_template_problems_are_typed(folder):
    with pytest.raises(InvalidArgument, match="no chat template"):
        Tokenizer(folder).render(MESSAGES)
    settings(folder, chat_template=TEMPLATE)
    with pytest.raises(InvalidArgument, match="system comes first"):
        Tokenizer(folder).render([*MESSAGES, {"role": "system", "content": "x"}])
    settings(folder, chat_template="{% for %}")
    with pytest.raises(CheckpointError, match="does not parse"):
        Tokenizer(folder).render(MESSAGES)


@pytest.mark.parametrize("trims", [False, True])
def test_the_final_message_is_continued_as_transformers_does(folder, trims):
    transformers = pytest.importorskip("transformers")
    settings(folder, chat_template=TEMPLATE if trims else TEMPLATE.replace(" | trim", ""))
    theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), Tokenizer(folder)
    for content in ("hello", "hello ", " x  y\n"):
        chat = [*MESSAGES, {"role": "assistant", "content": content}]
        want = theirs.apply_chat_template(chat, tokenize=False, continue_final_message=True)
        assert ours.render(chat, add_generation_prompt=False, continue_final_message=True) == want
    ids = token_ids(chat, ours, 4096, 500, add_generation_prompt=False, continue_final_message=True)
    assert ids.tolist() == theirs.encode(want, add_special_tokens=False)
    closed = theirs.apply_chat_template(chat, tokenize=False)
    assert ours.render(chat, add_generation_prompt=False) == closed
    assert ours.encode_chat(chat, add_generation_prompt=False, add_special_tokens=True) == theirs.encode(closed)
    with pytest.raises(InvalidArgument, match="set one of them to False"):
        ours.render(chat, continue_final_message=True)
    with pytest.raises(InvalidArgument, match="no text to go on with"):
        ours.render([{"role": "assistant"}], add_generation_prompt=False, continue_final_message=True)


def test_a_template_that_leaves_out_the_final_message(folder):
    settings(folder, chat_template="{{ messages[0].content }}")
    with pytest.raises(InvalidArgument, match="leaves out the last message"):
        Tokenizer(folder).render(MESSAGES, add_generation_prompt=False, continue_final_message=True)


@pytest.mark.parametrize("wrong", ["1 // 0", "[1].index(5)", "[].pop()", "'a' * 10**20"])
def test_what_a_template_raises_is_an_error_of_the_messages(folder, wrong):
    settings(folder, chat_template="{{ " + wrong + " }}")
    with pytest.raises(InvalidArgument, match="the chat template refused the messages"):
        Tokenizer(folder).render(MESSAGES)


def test_the_bos_is_added_or_not(folder):
    ours = Tokenizer(folder)
    assert token_ids("a", ours, 4096, 50).tolist() == [1, *token_ids("a", ours, 4096, 50, add_special_tokens=False)]


def test_special_tokens_are_spelled_on_demand(folder):
    ours = Tokenizer(folder)
    ids = ours.encode("a</s>b", parse_special=True)
    assert ours.decode(ids) == "ab"
    assert ours.decode(ids, skip_special_tokens=False) == "<s>a</s>b"
    assert ours.added() == ours.added(special=True) == {0: "<unk>", 1: "<s>", 2: "</s>"}
    assert ours.added(special=False) == {}


def test_bytes_of_tokens_join_to_the_text(folder):
    ours = Tokenizer(folder)
    bytes_of = ours.token_bytes()
    for text in TEXTS:
        assert b"".join(bytes_of[id] for id in ours.split(text)) == text.encode()


def test_a_template_cannot_reach_python(folder):
    settings(folder, chat_template="{{ ''.__class__.__mro__ }}")
    with pytest.raises(InvalidArgument, match="unsafe"):
        Tokenizer(folder).render(MESSAGES)


def test_without_a_tokenizer_text_is_a_typed_error(tmp_path):
    tokenizer = Tokenizer(tmp_path)
    assert not tokenizer.available
    with pytest.raises(InvalidArgument, match=r"tokenizer\.json"):
        token_ids("text", tokenizer, 100, 50)
    assert token_ids([1, 2], tokenizer, 100, 50).tolist() == [1, 2]


def test_a_broken_tokenizer_names_the_file(folder):
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json"):
        Tokenizer(folder).encode("x")


@pytest.mark.parametrize(
    "prompt",
    [
        [],
        "\ud800",
        [100],
        [-1],
        [1.5],
        [[1], [2]],
        b"bytes",
        {"role": "user"},
        ["two", "texts"],
        [{"role": "user"}],
        None,
        7,
        [1, "a"],
        list(range(50)),
        [2**70],
    ],
)
def test_bad_prompts_are_typed_errors(prompt):
    with pytest.raises(InvalidArgument):
        token_ids(prompt, Tokenizer(swiftk.demo_model()), 100, 50)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "ab\ud800",
            r"character 2 of the text is '\\ud800', half of a surrogate pair; want text that is valid Unicode",
        ),
        (b"ab", "got bytes, want text"),
        (5, "got int, want text"),
    ],
)
def test_what_is_no_text(text, says):
    with pytest.raises(InvalidArgument, match=says):
        Tokenizer(swiftk.demo_model()).encode(text)


def test_an_empty_text_is_the_bos(folder):
    assert token_ids("", Tokenizer(folder), 4096, 50).tolist() == [1]
    path = folder / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "post_processor": None}))
    assert token_ids("", Tokenizer(folder), 4096, 50, bos=7).tolist() == [7]
    with pytest.raises(InvalidArgument, match="the prompt is empty, and the model names no BOS"):
        token_ids("", Tokenizer(folder), 4096, 50)


def test_prompt_forms_that_work():
    np = pytest.importorskip("numpy")
    tokenizer = Tokenizer(swiftk.demo_model())
    for prompt in ([3, 4], (3, 4), np.array([3, 4], np.uint8), np.array([[3, 4]]), [np.int64(3), 4]):
        assert token_ids(prompt, tokenizer, 100, 50).tolist() == [3, 4]
    assert token_ids("Hello", tokenizer, 4096, 50)[0] == 1


def test_variables_of_the_template(tmp_path):
    folder = make_tiny(tmp_path / "tiny", "llama3")
    (folder / "chat_template.jinja").write_text("{{ messages[-1].content }}{% if not thinking %} /no_think{% endif %}")
    tokenizer = Tokenizer(folder)
    said = [{"role": "user", "content": "hi"}]
    assert tokenizer.render(said) == "hi /no_think"
    assert tokenizer.render(said, chat_template_kwargs={"thinking": True}) == "hi"
    for taken in ("messages", "tools", "add_generation_prompt", "bos_token"):
        with pytest.raises(InvalidArgument, match=f"chat_template_kwargs has '{taken}'"):
            tokenizer.render(said, chat_template_kwargs={taken: 1})
