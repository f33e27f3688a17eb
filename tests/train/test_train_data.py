"""What the trainer reads and keeps: texts, the token file, the order of windows, tables. No torch."""

import gzip
import json
import re
import shutil

import numpy as np
import pytest

from swiftk.errors import CheckpointError, InvalidArgument
from swiftk.train import log, texts, tokens


@pytest.fixture
def encoder(tiny_dir):
    return tokens.Encoder.read(tiny_dir("llama3"), eos=2)


def token_file(folder, encoder, files, template="{text}", held_out=0.0, context=8):
    tokens.build(folder / "tokens", files, template, encoder, held_out, lambda done, total: None)
    return tokens.read(folder / "tokens", context, held_out)


def test_documents_are_text_files_and_json_lines(tmp_path, encoder):
    prose, lines, packed = tmp_path / "a.txt", tmp_path / "b.jsonl", tmp_path / "c.jsonl.gz"
    prose.write_text("one fox\nand two dogs")
    lines.write_text('{"q": "how many", "a": "seven"}\n\n{"q": "which", "a": "the {brown} one"}\n')
    packed.write_bytes(gzip.compress(b'{"q": "why", "a": "so"}\n'))
    found = token_file(tmp_path, encoder, [prose, lines, packed], "Q: {q}\nA: {a}").train.ids.tolist()
    documents = ["one fox\nand two dogs", "Q: how many\nA: seven", "Q: which\nA: the {brown} one", "Q: why\nA: so"]
    want = [i for text in documents for i in [1, *encoder.backend.encode(text, add_special_tokens=False).ids, 2]]
    assert found == want


def test_a_long_text_loses_nothing_at_its_seams(tmp_path, encoder):
    text = "".join(f"line {i}: the quick brown fox — и ещё\n" for i in range(6000))
    (tmp_path / "long.txt").write_text(text, encoding="utf-8")
    assert len(list(texts.pieces(tmp_path / "long.txt", "{text}"))) > 2
    found = token_file(tmp_path, encoder, [tmp_path / "long.txt"], held_out=0.25)
    ids = [*found.train.ids.tolist(), *found.valid.ids.tolist()]
    assert encoder.backend.decode(ids) == text
    assert (ids.count(1), ids.count(2)) == (1, 1)
    assert len(found.valid) == int(len(ids) * 0.25)


CHATML = "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}</s>\n{% endfor %}" + (
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)
CHAT = [
    {"role": "user", "content": "one fox"},
    {"role": "assistant", "content": "two dogs"},
    {"role": "user", "content": "and?"},
    {"role": "assistant", "content": "three"},
]


@pytest.fixture
def chats(tiny_dir, tmp_path):
    """An encoder of a model with a chat template."""
    folder = tmp_path / "chats"
    shutil.copytree(tiny_dir("llama3"), folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": CHATML}))
    return tokens.Encoder.read(folder, eos=2)


def learned(encoder, text):
    """What is learned of it, in pieces."""
    marks = text.marks & tokens.LEARNED
    cuts = np.flatnonzero(np.diff(marks)) + 1
    parts = zip(np.split(text.ids, cuts), np.split(marks, cuts), strict=True)
    return [encoder.backend.decode(ids.tolist(), skip_special_tokens=False) for ids, own in parts if own[0]]


def test_of_chats_and_answers_what_is_said_is_learned(tmp_path, chats):
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": CHAT}) + '\n{"prompt": "who", "completion": " me"}\n')
    found = token_file(tmp_path, chats, [tmp_path / "a.jsonl"], None).train
    written = "<s>user\none fox</s>\n<s>assistant\ntwo dogs</s>\n<s>user\nand?</s>\n<s>assistant\nthree</s>"
    assert learned(chats, found) == ["two dogs</s>", "three</s>", " me</s>"]
    begins = np.flatnonzero(found.marks & tokens.FIRST)
    assert chats.backend.decode(found.ids[: begins[1]].tolist(), skip_special_tokens=False) == written
    assert (found.ids[0], found.ids[begins[1]]) == (1, 1) and len(begins) == 2
    asked = list(texts.prompts(tmp_path / "a.jsonl", None))
    assert asked == [CHAT[:3], "who"]


def test_a_template_that_writes_earlier_messages_anew_is_refused(tmp_path, chats):
    path = chats.template.folder / "tokenizer_config.json"
    anew = CHATML.replace("{{ m.content }}", "{{ m.content }}{{ loop.last }}")
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": anew}))
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": CHAT}))
    with pytest.raises(InvalidArgument, match=r"a.jsonl line 1: \[chat\] the chat template writes"):
        token_file(tmp_path, tokens.Encoder.read(path.parent, eos=2), [tmp_path / "a.jsonl"], None)


def test_segments_are_of_one_document_and_learned():
    marks = np.zeros(40, np.uint8)
    marks[[0, 5, 30]] |= tokens.FIRST
    marks[8:12] |= tokens.LEARNED
    marks[20:] |= tokens.LEARNED
    text = tokens.Text(np.arange(40), marks)
    assert tokens.segments(text, 10, 4).tolist() == [[5, 11], [15, 11], [25, 5], [30, 10]]
    assert tokens.segments(text, 10, 6).tolist() == [[5, 11], [15, 11], [30, 10]]
    batch = tokens.rows(text, [(5, 11), (25, 5)])
    assert batch.tokens.tolist() == [[*range(5, 16)], [25, 26, 27, 28, 29, 0, 0, 0, 0, 0, 0]]
    assert np.flatnonzero(batch.learned[0]).tolist() == [3, 4, 5, 6]
    assert np.flatnonzero(batch.counts[0]).tolist() == [2, 3, 4, 5]
    assert np.flatnonzero(batch.counts[1]).tolist() == [0, 1, 2, 3]


def test_batches_have_each_segment_once_and_alike():
    rng = np.random.default_rng(0)
    found = np.stack([np.arange(1003) * 100, rng.integers(4, 100, 1003)], 1)
    batches = tokens.Batches(found, 8, seed=5)
    count = 1003 // 8
    for epoch in range(2):
        seen = np.concatenate([batches.at(epoch * count + i) for i in range(count)])
        assert len(np.unique(seen[:, 0])) == count * 8
        lengths = seen[:, 1].reshape(count, 8)
        assert (lengths.max(1, keepdims=True) - lengths).mean() < 2  # padding; 40 or so if they were in any order
    again = tokens.Batches(found, 8, seed=5)
    assert (again.at(count + 3) == batches.at(count + 3)).all() and (again.at(3) != batches.at(count + 3)).any()


@pytest.mark.parametrize(
    ("name", "content", "template", "message"),
    [
        ("a.txt", None, "{text}", "does not exist, want a text file"),
        ("a.txt", b"", "{text}", "is empty, want text"),
        ("a.txt", b" \n\n", "{text}", "holds no text"),
        ("a.txt", b"caf\xe9 au lait", "{text}", "is not UTF-8"),
        ("a.jsonl", b"\n\n", "{text}", "holds no text"),
        ("a.jsonl", b'{"text": "x"}\n{"text"', "{text}", "line 2 is not JSON"),
        ("a.jsonl", b"[1]", "{text}", "line 1 is list, want an object"),
        ("a.jsonl", b'{"body": "x"}', "{text}", "line 1 has no field 'text', want text; its fields with text: body"),
        ("a.jsonl", b'{"text": 3}', "{text}", "line 1 has field 'text' of type int"),
        (
            "a.jsonl",
            b'{"prompt": "x"}',
            None,
            "line 1 has no field 'completion', want text",
        ),
        ("a.jsonl", b'{"messages": "x"}', None, "line 1 has messages that are no list of objects"),
        ("a.jsonl", b'{"messages": [{"role": "user"}]}', None, "line 1 has messages that are no list of objects"),
        (
            "a.jsonl",
            b'{"messages": [{"role": "user", "content": "x"}]}',
            None,
            "line 1 has no message of the assistant",
        ),
        ("a.jsonl", b'{"text": "x"}', "no field", "--template is 'no field', want text with names"),
        ("a.jsonl", b'{"text": "x"}', "{text.__class__}", "--template is "),
        ("a.jsonl", b'{"text": "x"}', "{text", "--template '{text' does not parse"),
        ("a.txt.gz", b"no gzip", "{text}", "cannot be read"),
        ("a.txt.gz", gzip.compress(b"text " * 99, mtime=0)[:-9], "{text}", "cannot be read"),
    ],
)
def test_bad_data(tmp_path, encoder, name, content, template, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)

    def read():
        texts.check([path], template)
        token_file(tmp_path, encoder, [path], template)

    with pytest.raises(InvalidArgument, match=r"\[data\] .*" + re.escape(message)):
        read()
    assert not (tmp_path / "tokens").exists()
    assert not (tmp_path / "tokens.partial").exists()


def test_too_little_data(tmp_path, encoder):
    (tmp_path / "a.txt").write_text("a fox and a dog")
    with pytest.raises(InvalidArgument, match=r"tokens to train on, want 200: 2 x --context"):
        token_file(tmp_path, encoder, [tmp_path / "a.txt"], context=100)
    (tmp_path / "b.txt").write_text("a fox and a dog " * 100)
    with pytest.raises(InvalidArgument, match=r"tokens held out, want more than --context 100"):
        token_file(tmp_path, encoder, [tmp_path / "b.txt"], held_out=0.01, context=100)


def test_a_damaged_token_file(tmp_path, encoder):
    (tmp_path / "a.txt").write_text("a fox and a dog " * 9)
    token_file(tmp_path, encoder, [tmp_path / "a.txt"])
    with open(tmp_path / "tokens" / "train.bin", "ab") as file:
        file.write(b"x")
    with pytest.raises(CheckpointError, match=r"is no token file, or damaged: train\.bin has \d+ bytes, want"):
        tokens.read(tmp_path / "tokens", 8, 0.0)


def test_each_epoch_sees_every_window_once():
    order = tokens.Order(tokens=1000, context=16, seed=5)
    count = (1000 - 16) // 16
    epochs = [order.starts(epoch * count, count) for epoch in range(3)]
    for starts in epochs:
        assert len(set(starts)) == count
        assert len({start % 16 for start in starts}) == 1
        assert min(starts) >= 0
        assert max(starts) + 17 <= 1000
    assert epochs[0] != epochs[1] != epochs[2]
    fresh = tokens.Order(tokens=1000, context=16, seed=5)
    assert fresh.starts(2 * count - 3, 6) == [*epochs[1][-3:], *epochs[2][:3]]  # wherever one begins


def test_a_log_keeps_rows_up_to_its_step(tmp_path):
    path = tmp_path / "loss.csv"
    first = log.Log(path, ["step", "loss", "exit_1"], 0)
    for step in range(1, 6):
        first.add(step, [1 / step, None])
    first.close()
    with open(path, "a") as file:
        file.write("6,0.16")  # cut short by a kill
    second = log.Log(path, ["step", "loss", "exit_1"], 3)
    second.add(4, [0.1 + 0.2, 2.0])
    second.close()
    rows = log.read(path)
    assert [row[0] for row in rows] == ["1", "2", "3", "4"]
    assert float(rows[2][1]) == 1 / 3
    assert rows[3] == ["4", "0.30000000000000004", "2.0"]
    assert rows[0][2] == ""
