"""Stop strings and ids: found by the first token that completes them, never shown, held back no longer than needed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftk.detokenizer import Detokenizer
from swiftk.stops import Stopper, StopStrings

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
