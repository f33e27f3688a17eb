"""Stop strings and ids: found by the first token that completes them, never shown, held back no longer than needed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftk.text.detokenizer import Detokenizer
from swiftk.text.stops import Stopper, StopStrings

AB = st.text("ab", max_size=8)


def reference(pieces, strings):
    """(shown text, pieces read): by searching everything again after every piece."""
    text = ""
    for i, piece in enumerate(pieces):
        text += piece
        found = [text.find(s) for s in strings if s in text]
        if found:
            return text[: min(found)], i + 1
    return text, len(pieces)


HIDDEN = st.tuples(AB, st.booleans())


@given(st.lists(HIDDEN, max_size=8), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3), st.booleans())
def test_text_that_is_not_shown_is_searched(pieces, strings, include):
    """Against a search of the whole, whose characters are then shown or not."""
    search, shown, read = StopStrings(strings, include), "", 0
    for piece, hidden in pieces:
        text, complete = search.push(piece, hidden)
        shown += text
        read += 1
        if complete:
            break
    else:
        shown += search.flush()
    visible = [not hidden for piece, hidden in pieces[:read] for _ in piece]
    whole = "".join(piece for piece, _ in pieces[:read])
    assert (reference([piece for piece, _ in pieces], strings))[1] == read
    end = len(whole)
    if found := [(whole.find(s), whole.find(s) + len(s)) for s in strings if s in whole]:
        end = min(found)[1 if include else 0]
    assert shown == "".join(c for c, seen in zip(whole[:end], visible) if seen)


@given(st.lists(AB, max_size=8), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_same_as_searching_the_whole_text(pieces, strings):
    search, shown, read = StopStrings(strings), "", 0
    for piece in pieces:
        text, complete = search.push(piece)
        shown += text
        read += 1
        assert "".join(pieces).startswith(shown)
        if complete:
            break
    else:
        shown += search.flush()
    assert (shown, read) == reference(pieces, strings)


def test_holds_back_only_what_may_begin_a_stop_string():
    search = StopStrings(["\n\nUser:"])
    assert search.push("hello\n") == ("hello", False)
    assert search.push("\nU") == ("", False)
    assert search.push("nder") == ("\n\nUnder", False)
    assert search.push("x") == ("x", False)


def test_the_earlier_of_two_stop_strings_wins():
    assert StopStrings(["lo w", "hello"]).push("say hello world") == ("say ", True)


@pytest.mark.parametrize(
    ("token", "budget", "finish"), [(9, 5, "stop"), (1, 1, "length"), (9, 1, "stop"), (1, 5, None)]
)
def test_ids_and_budget(token, budget, finish):
    stopper = Stopper(budget, [9])
    assert stopper.push(token) == ""
    assert stopper.finish == finish


def test_held_text_is_shown_when_the_end_comes_otherwise():
    words = {1: "a", 2: "b"}
    stopper = Stopper(9, [7], ["abc"], Detokenizer(lambda ids: "".join(words.get(i, "") for i in ids)))
    assert [stopper.push(t) for t in (1, 2, 7)] == ["", "", "ab"]
    stopper = Stopper(2, [7], ["abc"], Detokenizer(lambda ids: "".join(words.get(i, "") for i in ids)))
    assert [stopper.push(t) for t in (1, 2)] == ["", "ab"]


WORDS = {1: "a", 2: "b", 3: "c", 8: "", 9: ""}
HIDES = {8: "<end>", 9: "<|x|>"}


def pushed(tokens, strings, **more):
    """(texts, finish) of what a stopper is given."""
    stopper = Stopper(9, [7], strings, Detokenizer(lambda ids: "".join(WORDS.get(i, "") for i in ids)), **more)
    texts = []
    for token in tokens:
        texts.append(stopper.push(token))
        if stopper.finish:
            break
    return texts, stopper.finish


def test_a_stop_string_may_be_a_special_token_or_contain_one():
    assert pushed([1, 8, 2], ["<end>"], hidden=HIDES) == (["a", ""], "stop")
    assert pushed([1, 8, 2, 3], ["<end>b"], hidden=HIDES) == (["a", "", ""], "stop")
    assert pushed([1, 2, 9, 3], ["b<|x|>c"], hidden=HIDES) == (["a", "", "", ""], "stop")
    assert pushed([1, 8, 3], ["<end>b"], hidden=HIDES) == (["a", "", "c"], None)  # what is hidden stays so
    assert pushed([1, 8, 2], ["<end>"]) == (["a", "", "b"], None)


def test_special_tokens_that_are_kept_are_spelled():
    assert pushed([1, 8, 9, 2], [], hidden=HIDES, kept=["<end>"]) == (["a", "<end>", "", "b"], None)
    assert pushed([1, 8, 2], ["d>b"], hidden=HIDES, kept=["<end>"]) == (["a", "<en", ""], "stop")
    stopper = Stopper(9, [7], hidden=HIDES, kept=["<end>"])
    assert (stopper.push(8), stopper.piece, stopper.push(9), stopper.piece) == ("<end>", "<end>", "", "")


def test_the_stop_string_is_shown_where_that_is_asked():
    assert pushed([1, 2, 3], ["bc"], include_stop=True) == (["a", "", "bc"], "stop")
    assert pushed([1, 2, 7], ["bc"], include_stop=True) == (["a", "", "b"], "stop")
    assert pushed([1, 8], ["<end>"], hidden=HIDES, include_stop=True) == (["a", ""], "stop")


def test_stop_strings_are_looked_for_after_the_first_tokens():
    assert pushed([1, 2, 1, 2], ["ab"], min_tokens=2) == (["a", "b", "", ""], "stop")
    assert pushed([1, 2, 1, 2], ["ab"], min_tokens=1) == (["a", "b", "", ""], "stop")
    assert pushed([1, 2], ["ab"]) == (["", ""], "stop")


def test_a_text_that_may_not_be_longer_than_it_must_ends():
    stopper = Stopper(2, (), min_tokens=2)
    stopper.push(1)
    assert stopper.finish is None
    stopper.push(1)
    assert stopper.finish == "length"
