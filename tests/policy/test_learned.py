"""What was learned is kept between processes, and never believed blindly."""

import json
import logging

import pytest

import swiftk
from marks import exhaustive
from swiftk.cli import main
from swiftk.errors import InvalidArgument
from swiftk.search.learned import LearnedFile

PROMPT = "Question: Tom has 3 apples and buys 4 more. How many apples has he?\nAnswer:"
OPTIONS = {"max_new_tokens": 90, "ignore_eos": True, "temperature": 0.0}


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("SWIFTK_CACHE", str(tmp_path))
    monkeypatch.setenv("SWIFTK_LEARNED", "1")
    return tmp_path


def files(folder):
    return sorted((folder / "learned").glob("*"))


def learned(lm):
    """Outcomes that the planner knows of its plans."""
    return [sum(plan["counts"]) for plan in lm._engine.native.state()["plans"]]


def test_a_second_process_starts_where_the_first_ended(kept):
    first = swiftk.load(swiftk.demo_model(), device="cpu")
    text = first.generate(PROMPT, **OPTIONS)
    assert len(files(kept)) == 1
    saved = json.loads(files(kept)[0].read_text())["states"]["planner"]
    assert sum(saved["plans"][0]["counts"]) == sum(learned(first)) > 0
    second = swiftk.load(swiftk.demo_model(), device="cpu")
    assert learned(second) == pytest.approx(learned(first))
    assert second.generate(PROMPT, **OPTIONS).tokens == text.tokens


def test_keys_and_values_of_another_dtype_have_a_file_of_their_own(kept):
    for number, kv_dtype in enumerate(("auto", "int8", "int8"), 1):
        swiftk.load(swiftk.demo_model(), device="cpu", kv_dtype=kv_dtype).generate(PROMPT, **OPTIONS)
        assert len(files(kept)) == min(number, 2)


def test_a_second_process_starts_with_the_set_that_was_found(kept):
    """Where a search in Python chooses it."""
    first = swiftk.load(swiftk.demo_model(), device="cpu", draft_weights="own")
    text = first.generate(PROMPT, **OPTIONS)
    saved = json.loads(files(kept)[0].read_text())["states"]["greedy"]
    second = swiftk.load(swiftk.demo_model(), device="cpu", draft_weights="own")
    again = second.generate(PROMPT, **{**OPTIONS, "max_new_tokens": 4})
    assert again.stats.skip == str(swiftk.DraftSpec.from_dict(saved["domains"][-1]["skip"]))
    assert again.tokens == text.tokens[:4]


@pytest.mark.parametrize("weights", ["auto", "own"])
def test_forget_starts_from_the_file_again(kept, weights):
    lm = swiftk.load(swiftk.demo_model(), device="cpu", draft_weights=weights)
    lm.generate(PROMPT, **OPTIONS)
    lm.forget()
    assert not lm._engine.started
    assert lm.generate(PROMPT, **OPTIONS).stats.plain_tokens_per_second


@pytest.mark.parametrize("fields", [4, 5, 6])
def test_cards_of_older_builds(kept, fields):
    """Whose sets do not say whether heads are trimmed, or what drafts see."""
    first = swiftk.load(swiftk.demo_model(), device="cpu")
    first.generate(PROMPT, **OPTIONS)
    content = json.loads(files(kept)[0].read_text())
    for plan in content["states"]["planner"]["plans"]:
        assert plan["skip"][4:] == [False, 0, 0]
        del plan["skip"][fields:]
    files(kept)[0].write_text(json.dumps(content))
    second = swiftk.load(swiftk.demo_model(), device="cpu")
    assert learned(second) == pytest.approx(learned(first)) and sum(learned(second)) > 0


PLAN = {"skip": [[], [], -1, ["int4"], False, 0, 0], "price": 0.3, "counts": [1.0] * 176}


@pytest.mark.parametrize("weights", ["auto", *exhaustive("own")])
@pytest.mark.parametrize(
    "content",
    [
        "garbage",
        "[]",
        '{"format": "other", "states": {}}',
        '{"format": "swiftk learned 1", "states": {"greedy": 3, "planner": 3}}',
        {"greedy": {"domains": [{"features": [1]}], "rates": []}, "planner": {}},
        {
            "greedy": {"domains": [], "rates": [{"skip": {"attn": [99]}}]},
            "planner": {"plans": [{**PLAN, "price": -1}], "rows": []},
        },
        {"greedy": {"domains": 5, "rates": []}, "planner": {"plans": [{**PLAN, "counts": [1.0]}], "rows": []}},
        {"greedy": [], "planner": {"plans": [{**PLAN, "counts": [-1.0] * 176}], "rows": []}},
        {"greedy": [], "planner": {"plans": [PLAN], "rows": [[0, 1.0]]}},
    ],
)
def test_a_file_that_cannot_be_used_is_a_warning(kept, caplog, content, weights):
    lm = swiftk.load(swiftk.demo_model(), device="cpu", draft_weights=weights)
    lm.generate(PROMPT, **OPTIONS)
    if isinstance(content, dict):
        content = json.dumps({"format": "swiftk learned 1", "states": content})
    files(kept)[0].write_text(content)
    plain = lm.generate(PROMPT, speculate=False, **OPTIONS).tokens
    with caplog.at_level(logging.WARNING, "swiftk"):
        again = swiftk.load(swiftk.demo_model(), device="cpu", draft_weights=weights).generate(PROMPT, **OPTIONS)
    assert "what was learned before is not used" in caplog.text
    assert again.tokens == plain


def test_a_folder_that_cannot_be_written_is_a_warning(kept, caplog):
    (kept / "learned").write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING, "swiftk"):
        result = swiftk.load(swiftk.demo_model(), device="cpu").generate(PROMPT, **OPTIONS)
    assert len(result.tokens) == OPTIONS["max_new_tokens"]
    assert "not kept" in caplog.text


def test_nothing_is_written_when_it_is_off(kept, monkeypatch):
    monkeypatch.setenv("SWIFTK_LEARNED", "0")
    swiftk.load(swiftk.demo_model(), device="cpu").generate(PROMPT, **OPTIONS)
    assert not files(kept)


def test_models_and_devices_have_files_of_their_own(kept, tiny_dir):
    tiny, demo = [tiny_dir()], [swiftk.demo_model()]
    paths = {LearnedFile(tiny, "bfloat16", "cpu").path, LearnedFile(tiny, "float32", "cpu").path}
    paths |= {LearnedFile(demo, "bfloat16", "cpu").path, LearnedFile(tiny, "float32", "cuda").path}
    assert len(paths) == 4


@pytest.mark.parametrize("optimizer", ["auto", *exhaustive("swift", "self-sd")])
def test_tune_writes_a_card_that_drafts(tmp_path, optimizer, capsys):
    data, card = tmp_path / "p.jsonl", tmp_path / "card.json"
    data.write_text("\n".join(json.dumps({"question": PROMPT}) for _ in range(2)))
    arguments = ["tune", "demo", "--data", str(data), "--out", str(card), "--optimizer", optimizer, "--steps", "4"]
    assert main([*arguments, "--limit", "1", "--new-tokens", "64", "--json", "--device", "cpu"]) == 0
    assert json.loads(capsys.readouterr().out)["optimizer"] == optimizer
    assert json.loads(card.read_text())["steps"] >= 1
    lm = swiftk.load(swiftk.demo_model(), device="cpu")
    asked = {**OPTIONS, "max_new_tokens": 24}
    with_card = lm.generate(PROMPT, skip=str(card), optimizer="self-sd", speculate="always", **asked)
    assert with_card.tokens == lm.generate(PROMPT, speculate=False, **asked).tokens
    assert with_card.stats.num_spec_steps > 0


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("p.jsonl", '{"a": 1}', "line 1 has none of the fields"),
        ("p.jsonl", '{"question": "q"}\nnot json', "line 2 is not JSON"),
        ("p.txt", "", "has no prompt"),
        ("p.gz", "not gzip", "p.gz"),
    ],
)
def test_tune_names_bad_data(tmp_path, name, content, says, capsys):
    (tmp_path / name).write_text(content)
    assert main(["tune", "demo", "--data", str(tmp_path / name), "--out", str(tmp_path / "c.json")]) == 2
    assert says in capsys.readouterr().err


def test_swift_and_self_sd_options():
    from swiftk import GenerateOptions

    assert GenerateOptions(optimizer="swift", swift={"window": 64}).draft.search.window == 64
    for bad, says in (
        ({"optimizer": "self-sd"}, "swiftk tune"),
        ({"optimizer": "swift", "skip": [3]}, "leave one of them out"),
        ({"swift": {"window": 8}}, "optimizer='swift'"),
        ({"optimizer": "swift", "swift": 3}, "SwiftSettings"),
    ):
        with pytest.raises(InvalidArgument, match=says):
            GenerateOptions(**bad)
