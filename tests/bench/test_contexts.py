"""The study of long contexts: its documents, the keys and values that its lanes share, its verdicts. Nothing about
speed."""

from pathlib import Path

import pytest

import swiftk
from swiftk import demo_model
from swiftk.text.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parents[2]


def test_prompts_of_a_document_have_their_length_and_begin_alike(bench, chatting):
    documents = bench("documents")
    for tokenizer, chat in ((Tokenizer(demo_model()), False), (Tokenizer(chatting), True)):
        one, other = (documents.Document(tokenizer, chat, documents.whole(None), i, 2, 2048) for i in (0, 1))
        plain, asked = one.goes_on(1000), one.asks(1000, "Corin")
        told = tokenizer.decode(asked, skip_special_tokens=False)
        at = len(tokenizer.encode(told[: told.index("The access code of Aldwin")]))

        assert len(plain) == len(asked) == 1000
        assert plain[:900] == asked[:900] == one.tokens[:900] != other.tokens[:900]
        assert 128 < at < 400, "a draft with a window does not see the facts"
        assert told.count("What is the access code of Corin?") == 1 and f"Corin is {documents.CODES['Corin']}." in told
        assert told.endswith("?</s><assistant>" if chat else "Answer: The access code of Corin is")
        with pytest.raises(ValueError, match="tokens"):
            one.asks(10, "Corin")
        with pytest.raises(ValueError, match="tokens"):
            one.goes_on(len(one.tokens) + 100)


def test_the_text_of_a_file_is_taken(bench, tmp_path):
    file = tmp_path / "long.txt"
    file.write_text("one two three\n" * 500)
    documents = bench("documents")
    whole = documents.whole(file)
    assert whole == file.read_text()
    document = documents.Document(Tokenizer(demo_model()), False, whole, 0, 1, 500)
    assert Tokenizer(demo_model()).decode(document.goes_on(50)).startswith("one two three")


def test_lanes_begin_with_keys_and_values_that_another_computed(bench):
    ids = bench("texts").long_prompt(demo_model(), 300)
    options = {"max_new_tokens": 12, "temperature": 0.0, "ignore_eos": True}
    lm, lane = (swiftk.load(demo_model(), threads=1) for _ in range(2))
    prefixes = bench("documents").Prefixes(lm.model, 512)
    assert prefixes.read(ids[:200]) > 0
    assert prefixes.read(ids[:200]) == 0, "it is there"
    assert prefixes.read(ids) > 0

    want = lm.generate(ids, **options)
    prefixes.give(lane._engine.native, ids)
    found = lane.generate(ids, **options)
    assert (want.stats.cached_prompt_tokens, found.stats.cached_prompt_tokens) == (0, 256)
    assert found.tokens == want.tokens

    lane.forget()
    prefixes.give(lane._engine.native, [*ids[:70], 5, *ids[71:]])
    assert lane.generate(ids, **options).stats.cached_prompt_tokens == 64
    kv = lm.kv
    assert prefixes.bytes_of_token == kv["bytes"] // kv["blocks"] // kv["block_tokens"]


def test_layers_with_a_window_read_no_more_than_that(bench):
    of = bench("contexts").context_bytes
    assert of(400, [0, 0, 0, 0], 1000) == 400_000
    assert of(400, [512, 512, 512, 0], 1000) == 100 * (3 * 512 + 1000)
    assert of(400, [512, 512, 512, 0], 100) == 40_000


def test_what_is_wanted_after_long_contexts_is_judged(bench):
    def row(context, way, **facts):
        return {"part": f"{context}, document", "context": context, "kind": "document", "sampling": "greedy"} | {
            "way": way,
            **facts,
        }

    rows = [row(1024, "plain", share=0.5), row(1024, "default", speedup=2.0)]
    rows += [row(8192, "plain", share=0.96), row(8192, "default", speedup=2.1), row(8192, "int4, all", speedup=1.0)]
    rows += [row(16384, "plain", share=0.9), row(16384, "default", speedup=1.9), {"part": "4 x 4096", "way": "default"}]
    told = bench("contexts").held(rows)

    assert [line.rpartition(": ")[2] for line in told] == ["reached", "MISSED", "reached", "MISSED"]
    assert "16384" in told[1] and "2.00 after 1024 wanted" in told[3]


def test_another_view_is_one_more_entry(bench, monkeypatch):
    contexts = bench("contexts")
    monkeypatch.setitem(contexts.VIEWS, "last 64", {"window": 64})

    class Study:
        given = type("Given", (), {"copies": ["int4"]})
        lm = type("LM", (), {"model": type("Model", (), {"copies": {"int4": 1}})})

    run = contexts.Contexts.__new__(contexts.Contexts)
    run.study = Study
    ways = {way.name: way.options for way in run.ways(512)}
    assert list(ways) == ["default", "int4, all", "int4, last 64"]
    assert ways["int4, last 64"]["skip"].window == 64
