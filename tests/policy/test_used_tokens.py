"""Heads are trimmed to the tokens that a model's texts used in processes before, or to those that are given."""

import gc
import json
import logging

import pytest

import swiftk
from swiftk.errors import InvalidArgument, InvalidOption
from swiftk.files.model_files import open_model_files
from swiftk.search import used_tokens
from swiftk.search.used_tokens import UsedTokens

OPTIONS = {"max_new_tokens": 12, "stop_token_ids": [], "temperature": 0.8, "seed": 3}


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("SWIFTK_CACHE", str(tmp_path))
    monkeypatch.setenv("SWIFTK_LEARNED", "1")
    monkeypatch.setattr(used_tokens, "_FEW", 40)
    return tmp_path


@pytest.fixture
def folder(tiny_dir):
    return tiny_dir("llama3", layers=2)


def file(kept):
    (found,) = kept.glob("learned/*-tokens.json")
    return found


def load(folder, **options):
    return swiftk.load(folder, device="cpu", threads=1, **options)


def test_a_second_process_trims_its_head(kept, folder):
    """To the tokens of prompts, of texts, and those that end them."""
    texts = []
    with load(folder) as lm:
        assert lm.model.draft_tokens == 0
        for start in (5, 70, 130):
            prompt = list(range(start, start + 9))
            texts.append((prompt, lm.generate(prompt, **OPTIONS).tokens))
        ends = lm.defaults.eos_token_ids
    seen = {token for prompt, tokens in texts for token in (*prompt, *tokens)}
    with load(folder) as lm:
        assert lm.model.draft_tokens == len(seen | set(ends)) < lm.config["vocab_size"]
        assert [lm.generate(prompt, **OPTIONS).tokens for prompt, _ in texts] == [tokens for _, tokens in texts]
    counted = dict(json.loads(file(kept).read_text())["states"]["used tokens"])
    assert sum(counted.values()) == 2 * sum(len(prompt) + len(tokens) for prompt, tokens in texts)


def test_few_tokens_say_nothing(kept, folder):
    with load(folder) as lm:
        lm.generate([5, 6, 7], **OPTIONS)
    assert file(kept).exists()
    with load(folder) as lm:
        assert lm.model.draft_tokens == 0


def counted(folder):
    return dict(UsedTokens(open_model_files(folder))._read())


def test_every_thirty_seconds_and_at_the_end(kept, folder, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(used_tokens, "monotonic", lambda: now[0])
    used = UsedTokens(open_model_files(folder))
    used.add([1, 2, 2])
    used.add([3])
    assert counted(folder) == {1: 1, 2: 2}
    now[0] += 31
    used.add([3])
    assert counted(folder) == {1: 1, 2: 2, 3: 2}
    used.add([4])
    used.save()
    assert counted(folder) == {1: 1, 2: 2, 3: 2, 4: 1}
    used.add([5])
    used.forget()
    used.save()
    assert counted(folder) == {1: 1, 2: 2, 3: 2, 4: 1}


def test_models_that_nobody_closes(kept, folder):
    lm = load(folder)
    for token in (5, 70):
        lm.generate([token], **OPTIONS)
    before = counted(folder)
    del lm
    gc.collect()
    assert sum(before.values()) == 13 and sum(counted(folder).values()) == 26


def test_several_processes_count_together(kept, folder):
    one, other = (UsedTokens(open_model_files(folder)) for _ in range(2))
    one.add([1, 2])
    other.add([2, 3])
    assert counted(folder) == {1: 1, 2: 2, 3: 1}


def test_what_texts_share_is_counted_once(kept, folder):
    """Turns of a chat, several texts of one prompt."""
    prompt = list(range(3, 303))
    with load(folder) as lm:
        first, again = (lm.generate(prompt, **OPTIONS) for _ in range(2))
    shared = again.stats.cached_prompt_tokens
    assert shared > 250
    assert sum(counted(folder).values()) == 2 * (len(prompt) + len(first.tokens)) - shared


def test_the_most_frequent_are_kept(kept, folder, monkeypatch):
    monkeypatch.setattr(used_tokens, "_MOST", 2)
    UsedTokens(open_model_files(folder)).add([7, 8, 8, 9, 9, 9])
    assert counted(folder) == {9: 3, 8: 2}


def test_a_trimmed_head_is_a_part_of_the_whole(kept, folder):
    used = UsedTokens(open_model_files(folder))
    used.add([*range(320), *range(100, 180)])
    assert used.ids() == list(range(100, 180))


def test_only_auto_counts(kept, folder):
    for given in ("all", [3, 4, 5]):
        with load(folder, draft_vocab=given) as lm:
            lm.generate([5, 6, 7], **OPTIONS)
    assert not list(kept.glob("learned/*-tokens.json"))


@pytest.mark.parametrize(
    "state", [3, [[1]], [["a", 1]], [[-1, 5]], [[1, 0]], [[1, 2, 3]], {"1": 2}, [[1, 50], [320, 1]]]
)
def test_a_file_that_cannot_be_used_is_a_warning(kept, folder, caplog, state):
    UsedTokens(open_model_files(folder)).add([1])
    content = {"format": "swiftk learned 1", "states": {"used tokens": state}}
    file(kept).write_text(json.dumps(content))
    with caplog.at_level(logging.WARNING, "swiftk"), load(folder) as lm:
        assert lm.model.draft_tokens == 0
    assert "what was learned before is not used" in caplog.text


def test_nothing_is_counted_where_it_is_off(kept, folder, monkeypatch):
    monkeypatch.setenv("SWIFTK_LEARNED", "0")
    with load(folder) as lm:
        lm.generate([5, 6, 7], **OPTIONS)
    assert not (kept / "learned").exists()


def test_nothing_is_counted_where_heads_are_small(kept):
    with swiftk.load(swiftk.demo_model(), device="cpu") as lm:
        lm.generate("A", max_new_tokens=3)
    assert not list(kept.glob("learned/*-tokens.json"))


def test_a_text_file(kept, tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("Tom has 3 apples. How many apples has he?", encoding="utf-8")
    with swiftk.load(swiftk.demo_model(), device="cpu", draft_vocab=words) as lm:
        ids = {*lm.tokenizer.encode(words.read_text()), *lm.defaults.eos_token_ids}
        assert lm.model.draft_tokens == len(ids)


def test_all_keeps_the_head_whole(kept, folder):
    UsedTokens(open_model_files(folder)).add(range(3, 90))
    assert load(folder).model.draft_tokens > 0
    assert load(folder, draft_vocab="all").model.draft_tokens == 0


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ("no/such/words.txt", InvalidArgument, "no/such/words.txt"),
        ([], InvalidOption, "want 'auto', 'all', the path of a text file, or token ids"),
        ([1.5], InvalidOption, "want a token id or a list"),
        ([-1], InvalidArgument, "want a token id or a list"),
        ({"a": 1}, InvalidOption, "draft_vocab"),
        ([10**6], InvalidArgument, r"token 1000000, want 0\.\."),
        ([2**40], InvalidArgument, "draft_tokens"),
    ],
)
def test_mistakes(folder, given, error, words):
    with pytest.raises(error, match=words):
        load(folder, draft_vocab=given)


def test_empty_and_broken_files(tmp_path):
    broken = tmp_path / "words.txt"
    for content, words in ((b"", "is empty, want a text"), (b"\xff\xfe", "words.txt")):
        broken.write_bytes(content)
        with pytest.raises(InvalidArgument, match=words):
            swiftk.load(swiftk.demo_model(), device="cpu", draft_vocab=broken)
