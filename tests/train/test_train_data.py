"""What the trainer reads and keeps: texts, the token file, the order of windows, tables. No torch."""

import gzip
import re

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
    found = token_file(tmp_path, encoder, [prose, lines, packed], "Q: {q}\nA: {a}").train.tolist()
    documents = ["one fox\nand two dogs", "Q: how many\nA: seven", "Q: which\nA: the {brown} one", "Q: why\nA: so"]
    want = [i for text in documents for i in [1, *encoder.backend.encode(text, add_special_tokens=False).ids, 2]]
    assert found == want


def test_a_long_text_loses_nothing_at_its_seams(tmp_path, encoder):
    text = "".join(f"line {i}: the quick brown fox — и ещё\n" for i in range(6000))
    (tmp_path / "long.txt").write_text(text, encoding="utf-8")
    assert len(list(texts.pieces(tmp_path / "long.txt", "{text}"))) > 2
    found = token_file(tmp_path, encoder, [tmp_path / "long.txt"], held_out=0.25)
    ids = [*found.train.tolist(), *found.valid.tolist()]
    assert encoder.backend.decode(ids) == text
    assert (ids.count(1), ids.count(2)) == (1, 1)
    assert len(found.valid) == int(len(ids) * 0.25)


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
