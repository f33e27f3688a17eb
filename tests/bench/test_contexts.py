"""The study of long contexts: its documents, the keys and values that its lanes share, its verdicts. Nothing about
speed."""

import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

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
    prefixes.forget()
    lane.forget()
    prefixes.give(lane._engine.native, ids)
    assert lane.generate(ids, **options).stats.cached_prompt_tokens == 0
    hits = prefixes._engine.totals["prefix_hits"]
    assert prefixes.read(ids) > 0 and prefixes._engine.totals["prefix_hits"] == hits > 0, "it is computed again"
    kv = lm.kv
    assert prefixes.bytes_of_token == kv["bytes"] // kv["blocks"] // kv["block_tokens"]


def test_layers_with_a_window_read_no_more_than_that(bench):
    of = bench("cells").context_bytes
    assert of(400, [0, 0, 0, 0], 1000) == 400_000
    assert of(400, [512, 512, 512, 0], 1000) == 100 * (3 * 512 + 1000)
    assert of(400, [512, 512, 512, 0], 100) == 40_000


def test_what_is_wanted_after_long_contexts_is_judged(bench):
    def row(context, way, **facts):
        return {"part": f"{context}, document", "context": context, "kind": "document", "sampling": "greedy"} | {
            "way": way,
            "worst": 1.5,
            "best": 2.5,
            **facts,
        }

    rows = [row(1024, "plain", share=0.5), row(1024, "default", speedup=2.0)]
    rows += [row(8192, "plain", share=0.96), row(8192, "default", speedup=2.1), row(8192, "int4, all", speedup=1.0)]
    rows += [row(16384, "plain", share=0.9), row(16384, "default", speedup=1.9), {"part": "4 x 4096", "way": "default"}]
    told = bench("contexts").held(rows)

    assert [line.rpartition(": ")[2] for line in told] == ["reached", "MISSED", "reached", "MISSED"]
    assert "16384" in told[1] and "1.90 times as fast as plain (1.50 to 2.50), 2.00 after 1024 wanted" in told[3]


def test_another_view_is_one_more_entry(bench, monkeypatch):
    long_texts = bench("long_texts")
    monkeypatch.setitem(long_texts.VIEWS, "last 64", {"window": 64})

    class Study:
        given = type("Given", (), {"copies": ["int4"]})
        lm = type("LM", (), {"model": type("Model", (), {"copies": {"int4": 1}})})

    run = long_texts.LongTexts.__new__(long_texts.LongTexts)
    run.study = Study
    ways = {way.name: way.options for way in run.ways(512)}
    assert list(ways) == ["default", "int4, all", "int4, last 64"]
    assert ways["int4, last 64"]["skip"].window == 64


# Texts


def test_documents_begin_at_other_places(bench):
    every = bench("documents").documents(None, Tokenizer(demo_model()), False, 3, 512)
    assert len({tuple(one.tokens[:64]) for one in every}) == 3


@pytest.mark.parametrize(("minutes", "rounds"), [(None, 3), (1.0, 3), (0.7, 2), (0.01, 1)])
def test_all_parts_have_as_many_texts(bench, monkeypatch, tmp_path, minutes, rounds):
    """Three parts of five seconds: a round takes a quarter of a minute."""
    harness, now = bench("harness"), [0.0]
    monkeypatch.setattr(harness, "perf_counter", lambda: now[0])
    words = ["--texts", "3", "--quick", "--out", str(tmp_path), *(["--minutes", str(minutes)] if minutes else [])]
    monkeypatch.setattr(sys, "argv", ["bench", *words])
    study = harness.Study("some", "?", texts=5)
    found = []
    for number, part, work in study.rounds({"a": 1, "b": 2, "c": 3}):
        found.append((number, part, work))
        now[0] += 5
    assert found == [(n, part, work) for n in range(rounds) for part, work in (("a", 1), ("b", 2), ("c", 3))]
    study.finish({"way": "way"})
    cut = [note for note in study.results.notes if note.startswith("cut short")]
    told = f"cut short by the time budget: every part ({rounds} of 3 texts)"
    assert cut == ([told] if rounds < 3 else [])


def test_a_ratio_is_the_geometric_mean_of_texts(bench):
    rows = [{"speedup": 2.0, "over": 4.0, "rate": 5.0}, {"speedup": 0.5, "over": 1.0}, {"speedup": 8.0, "over": None}]
    found = bench("spread").over_texts(rows)
    assert found == {
        "count": 3,
        "speedup": pytest.approx(2.0),
        "over": pytest.approx(2.0),
        "worst": 0.5,
        "best": 8.0,
    }
    assert bench("spread").over_texts([{"tokens": 3}]) == {"count": 1}


def test_rows_of_several_texts_at_a_time(bench):
    """Rates are of all rounds together, ratios are means of rounds, and one text that differs is told of."""
    cell, study = bench("cells").AtOnce(4, False), SimpleNamespace(rows=[])
    for speedup, same in ((1.0, True), (4.0, False)):
        plain = {"tokens": 40, "seconds": 1.0, "rounds": 10, "speedup": 1.0, "same": True}
        default = {"tokens": 40, "seconds": 1 / speedup, "rounds": 5, "speedup": speedup, "over": 3.0, "same": same}
        one = {"tokens": 10, "seconds": 0.5, "rounds": 10, "same": True}
        cell.texts.append({"plain": plain, "default": default, "one": one, "llama.cpp": {**plain, "same": True}})
    del cell.texts[0]["llama.cpp"]["same"], cell.texts[1]["llama.cpp"]
    cell.rows(SimpleNamespace(study=study), "4 x 4096, own")
    plain, default, one, llama = study.rows
    assert (default["speedup"], default["worst"], default["best"], default["count"]) == (pytest.approx(2), 1.0, 4.0, 2)
    assert (default["rate"], default["M"], default["same"]) == (80 / 1.25, 2.0, False)
    assert (plain["same"], one["M"], one["rate"]) == (True, 1.0, 20.0) and "speedup" not in one
    assert llama["count"] == 1 and "same" not in llama


def test_rows_after_a_context(bench):
    """The study's, with ratios that are means over texts."""
    cells, rows = bench("cells"), []

    def add(part, pairs, **of):
        rows.append({"way": "plain", "rate": 10.0, "speedup": 1.0, **of})
        rows.append({"way": "default", "rate": 30.0, "speedup": 3.0, "error": 0.1, **of})
        rows.append({"way": "int4, all", "rate": 30.0, "speedup": 3.0, "error": 0.1, **of})

    model = SimpleNamespace(config={"window": [0]}, weight_bytes=900)
    study = SimpleNamespace(rows=rows, add=add, tokens=0, lm=SimpleNamespace(model=model))
    run = SimpleNamespace(study=study, peer_name="llama.cpp", prefixes=SimpleNamespace(bytes_of_token=1))
    cell = cells.After(100, "retrieval", "greedy", rates=[2e4, 2e4], found=[3, 5])
    for speedup in (1.0, 4.0):
        mine = {"speedup": speedup, "over": 2 * speedup}
        cell.texts.append({"plain": {"speedup": 1.0, "over": 2.0}, "default": mine, "int4, all": mine})
        cell.texts[-1]["llama.cpp"] = {"speedup": 0.5}
        cell.lanes.append(SimpleNamespace(tokens=10, seconds=2 / speedup))
    cell.read = {"plain": [(100, 1.0), (100, 3.0)], "llama.cpp": [(100, 10.0)]}
    cell.rows(run, "100, retrieval, greedy")
    plain, default, view, llama = rows
    assert (plain["share"], plain["found"], plain["prompt"], plain["over"]) == (0.5, "8 of 16", 50.0, pytest.approx(2))
    assert (default["speedup"], default["worst"], default["best"], default["over"]) == (
        pytest.approx(2),
        1.0,
        4.0,
        pytest.approx(4),
    )
    assert (
        "error" not in default
        and default["told"] == "default"
        and (view["view"], view["copied"])
        == (
            "int4, all",
            "int4",
        )
    )
    assert (llama["rate"], llama["speedup"], llama["prompt"], llama["count"]) == (8.0, pytest.approx(0.5), 10.0, 2)


def test_many_texts_are_of_other_documents_in_each_round(bench, monkeypatch):
    """own: from the round's document on. shared: the round's document with other questions."""
    cells, asked = bench("cells"), []

    def document(number):
        return SimpleNamespace(tokens=[number] * 100, asks=lambda length, name: (number, name))

    run = SimpleNamespace(documents=list(map(document, range(4))), at_once=90, peer_name="llama.cpp")
    run.study = SimpleNamespace(tokens=10, models=SimpleNamespace(forget=lambda: None))
    run.prefixes = SimpleNamespace(read=lambda tokens: None)
    monkeypatch.setattr(cells.AtOnce, "_lanes", lambda self, run, stack, prompts: asked.append(prompts) or {})
    monkeypatch.setattr(cells.AtOnce, "_compared", lambda self, lanes, theirs: {})
    for shared in (False, True):
        for number in (0, 1):
            cells.AtOnce(3, shared).measure(run, number)
    own, later, shared, last = asked
    assert [n for n, _ in own] == [0, 1, 2] and [n for n, _ in later] == [1, 2, 3]
    assert [n for n, _ in shared] == [0, 0, 0] and [n for n, _ in last] == [1, 1, 1]
    assert all(Counter(name for _, name in prompts).most_common(1)[0][1] == 1 for prompts in asked)
