"""Logprobs over HTTP: entries join to the text and their bytes to its bytes, whole and streamed."""

import asyncio

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, processors

import swiftk
from swiftk.running.result import TokenLogprobs
from swiftk.serve.logprobs import Entries, completion_shape
from swiftk.testing import make_tiny
from swiftk.text.detokenizer import Detokenizer
from swiftk.text.stops import Stopper
from swiftk.text.tokenizer import Tokenizer

pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")

from patience import PATIENCE  # noqa: E402
from serving import lines, serving  # noqa: E402
from swiftk.serve.answers import Answer  # noqa: E402

BROKEN = "\N{REPLACEMENT CHARACTER}"
VOCAB = 320


def write_sentencepiece(folder):
    """A tokenizer as Llama 2 has it: words with a mark for their space, all else as bytes."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "▁", "▁the", "▁a", "lo", "x", "hel", "▁hel"]
    backend = Backend(
        models.BPE(
            vocab={w: i for i, w in enumerate(words)}, merges=[("▁", "hel")], byte_fallback=True, unk_token="<unk>"
        )
    )
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    backend.save(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module", params=["byte-level", "sentencepiece"])
def served(request, tmp_path_factory):
    folder = make_tiny(tmp_path_factory.mktemp("logprobs") / "tiny", "llama3", layers=2, vocab=VOCAB)
    if request.param == "sentencepiece":
        write_sentencepiece(folder)
    lm = swiftk.load(folder, device="cpu", threads=1)
    with serving(lm) as (url, _), httpx.Client(base_url=url, timeout=PATIENCE) as client:
        yield client, lm


def probs(probs, text, offset=0):
    """Checks a completion's logprobs against its text."""
    assert "".join(probs["tokens"]) == text
    assert probs["text_offset"] == [offset + len("".join(probs["tokens"][:i])) for i in range(len(probs["tokens"]))]
    return probs


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("prompt", ["hello", "", [1, 2], "日"])
def test_completions_join_to_the_text(served, prompt, seed):
    client, lm = served
    asked = {"prompt": prompt, "max_tokens": 40, "temperature": 1.0, "seed": seed, "logprobs": 5}
    choice = client.post("/v1/completions", json=asked).json()["choices"][0]
    found = probs(choice["logprobs"], choice["text"])
    want = lm.generate(prompt, max_new_tokens=40, temperature=1.0, seed=seed, logprobs=5)
    assert found["token_logprobs"] == [one.logprob for one in want.logprobs]
    assert all(len(top) == 5 for top in found["top_logprobs"])
    tops = [[logprob for _, logprob in one.top] for one in want.logprobs]
    assert [list(top.values()) for top in found["top_logprobs"]] == tops
    if BROKEN not in choice["text"]:
        assert bytes(b for own in found["bytes"] for b in own) == choice["text"].encode()
    chunks = [c["choices"][0] for c in lines(client.post("/v1/completions", json={**asked, "stream": True}))]
    joined = {key: [x for c in chunks if c["logprobs"] for x in c["logprobs"][key]] for key in found}
    assert joined == found


@pytest.mark.parametrize("seed", range(6))
def test_chats_join_to_the_text(served, seed):
    client, _ = served
    messages = [{"role": "user", "content": "hello"}]
    asked = {
        "messages": messages,
        "max_tokens": 30,
        "temperature": 1,
        "seed": seed,
        "logprobs": True,
        "top_logprobs": 4,
    }
    choice = client.post("/v1/chat/completions", json=asked).json()["choices"][0]
    content = choice["logprobs"]["content"]
    text = choice["message"]["content"]
    assert "".join(one["token"] for one in content) == text
    assert all(len(one["top_logprobs"]) == 4 for one in content)
    if BROKEN not in text:
        assert bytes(b for one in content for b in one["bytes"]) == text.encode()
    chunks = [c["choices"][0] for c in lines(client.post("/v1/chat/completions", json={**asked, "stream": True}))]
    assert [one for c in chunks if c["logprobs"] for one in c["logprobs"]["content"]] == content


def test_answers_are_written_beside_the_event_loop(served, monkeypatch):
    """An echo of a long prompt with alternatives takes seconds."""
    on_a_loop, real = [], Answer.whole

    def whole(*args):
        on_a_loop.append(asyncio._get_running_loop() is not None)
        return real(*args)

    monkeypatch.setattr(Answer, "whole", whole)
    assert served[0].post("/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200
    assert on_a_loop == [False]


def test_a_stop_string_cuts_entries_too(served):
    client, _ = served
    asked = {"prompt": "hello", "max_tokens": 60, "temperature": 1.0, "logprobs": 1}
    cut = 0
    for seed in range(8):
        whole = client.post("/v1/completions", json={**asked, "seed": seed}).json()["choices"][0]["text"]
        stop = whole[len(whole) // 2 :][:2]
        for included in (False, True):
            some = {**asked, "seed": seed, "stop": stop, "include_stop_str_in_output": included}
            choice = client.post("/v1/completions", json=some).json()["choices"][0]
            assert choice["text"] == whole[: whole.find(stop) + (len(stop) if included else 0)] and stop in whole
            found = probs(choice["logprobs"], choice["text"])
            chunks = [c["choices"][0] for c in lines(client.post("/v1/completions", json={**some, "stream": True}))]
            assert [t for c in chunks if c["logprobs"] for t in c["logprobs"]["tokens"]] == found["tokens"]
            cut += not found["tokens"][-1]
    assert cut


@pytest.mark.parametrize("prompt", ["hello the 日本 lo", "", [1, 100, 200, 210], [1, 260, 261, 260]])
def test_an_echo_joins_to_prompt_and_text(served, prompt):
    client, lm = served
    asked = {"prompt": prompt, "max_tokens": 8, "temperature": 0, "logprobs": 2, "echo": True}
    choice = client.post("/v1/completions", json=asked).json()["choices"][0]
    found = probs(choice["logprobs"], choice["text"])
    start = prompt if isinstance(prompt, str) else lm.decode(prompt)
    assert choice["text"].startswith(start)
    assert found["token_logprobs"][0] is None and found["top_logprobs"][0] is None
    n = len(lm.encode(prompt)) if isinstance(prompt, str) else len(prompt)
    assert len(found["tokens"]) == n + 8 or choice["finish_reason"] == "stop"
    assert "".join(found["tokens"][:n]) == start


def entries_of(tokenizer, ids, prompt=(), strings=(), ends=()):
    """(entries, the text) of tokens, whose alternatives are all of them."""
    detokenizer = Detokenizer(tokenizer.decode, prompt)
    stopper = Stopper(len(ids) + 1, ends, strings, detokenizer)
    entries, out, text = Entries(tokenizer, stopper.begins), [], ""
    for id in ids:
        new = stopper.push(id)
        text += new
        top = tuple((other, -1.0) for other in ids[:5])
        out += entries.push([TokenLogprobs(id, -1.0, top, stopper.piece)], new, stopper.finish is not None)
        if stopper.finish:
            break
    return out + entries.push([], "", True), text


@pytest.fixture(scope="module", params=["byte-level", "sentencepiece"])
def tokenizer(request, tmp_path_factory):
    folder = make_tiny(tmp_path_factory.mktemp(request.param), "llama3", layers=1, vocab=VOCAB)
    if request.param == "sentencepiece":
        write_sentencepiece(folder)
    return Tokenizer(folder)


@example(" ", [], "")  # a decoder drops the first of two spaces
@example("  the", [], "")
@given(st.text(max_size=20), st.lists(st.text(min_size=1, max_size=3), max_size=1), st.sampled_from(["", "the", " "]))
def test_bytes_join_to_the_text(tokenizer, text, strings, before):
    text = text.replace(BROKEN, "")
    entries, shown = entries_of(tokenizer, tokenizer.split(text), tokenizer.encode(before), strings)
    assert "".join(entry.text for entry in entries) == shown
    assert b"".join(entry.bytes for entry in entries) == shown.encode()


def test_half_characters_have_bytes_and_no_text(tokenizer):
    entries, text = entries_of(tokenizer, tokenizer.split("日x")[-4:], [1, 2, 270])
    assert text == "日x" and [(e.text, e.bytes) for e in entries] == [
        ("", b"\xe6"), ("", b"\x97"), ("日", b"\xa5"), ("x", b"x"),
    ]  # fmt: skip
    shape = completion_shape(entries)
    assert shape["text_offset"] == [0, 0, 0, 1]
    assert shape["top_logprobs"][0].keys() == {"bytes:\\xe6", "bytes:\\x97", "bytes:\\xa5", "x"} - {
        "bytes:\\x97", "bytes:\\xa5",
    } | {BROKEN, f"token_id:{entries[2].token}"}  # fmt: skip
    assert shape["top_logprobs"][2].keys() >= {"日"}


def test_a_token_that_ends_the_text_adds_nothing(tokenizer):
    entries, text = entries_of(tokenizer, [*tokenizer.split("x"), 2], ends=[2])
    assert text == "x" and [(e.text, e.bytes) for e in entries][-2:] == [("x", b"x"), ("", b"")]
    assert [other.text for other in entries[-1].top][-1] == "</s>"


def test_a_first_word_has_a_space_only_after_others(tmp_path):
    write_sentencepiece(tmp_path)
    tokenizer = Tokenizer(tmp_path)
    the = [260]
    for prompt, want in (([1], "the"), ([], "the"), ([1, *the], " the"), ([*the, 1], " the")):
        ((entry,), text) = entries_of(tokenizer, the, prompt)
        assert (entry.text, entry.bytes, text) == (want, want.encode(), want)
        assert entry.top[0].text == want


def test_entries_without_a_tokenizer(tmp_path):
    entries = Entries(Tokenizer(tmp_path), True)
    (entry,) = entries.push([TokenLogprobs(7, -1.0, ((8, -2.0),))], "")
    assert (entry.text, entry.bytes, entry.top[0].text) == ("7", b"", "8")
