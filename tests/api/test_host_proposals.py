"""What a host expects of a text (drafter="host"): proposals that come true are taken, and none changes a token."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import swiftk

ASKED = {"max_new_tokens": 40, "ignore_eos": True}
PROMPT = [5, 9, 7, 201]


@pytest.fixture(scope="module")
def lm():
    with swiftk.load(swiftk.demo_model(), draft_weights="own", max_sequences=3) as found:
        yield found


@pytest.fixture(scope="module")
def wanted(lm):
    return {t: lm.generate(PROMPT, **ASKED, temperature=t, seed=4, speculate=False).tokens for t in (0.0, 1.0)}


@given(st.data())
def test_no_proposal_changes_a_token(lm, wanted, data):
    temperature = data.draw(st.sampled_from([0.0, 1.0]))
    want = wanted[temperature]
    always = data.draw(st.sampled_from([True, "always"]))
    stream = lm.submit(PROMPT, **ASKED, temperature=temperature, seed=4, drafter="host", speculate=always)
    for event in stream:
        assert event.source in (None, "host")
        at = data.draw(st.integers(0, 45), label="at")
        proposal = want[at : at + data.draw(st.integers(0, 9), label="right")]
        stream.propose(proposal + data.draw(st.lists(st.integers(0, 4095), max_size=3), label="more"), at)
    assert stream.result.tokens == want


def test_what_comes_true_is_taken(lm, wanted):
    want = wanted[0.0]
    stream = lm.submit(PROMPT, **ASKED, drafter="host", speculate="always")
    stream.propose(want)
    result = stream.wait()
    assert result.tokens == want
    assert result.sources.count("host") > 25
    assert result.stats.mean_generated_length > 2


def test_a_proposal_waits_for_its_place(lm, wanted):
    want = wanted[0.0]
    stream = lm.submit(PROMPT, **ASKED, drafter="host", speculate="always")
    stream.propose(want[10:], 10)
    result = stream.wait()
    assert result.tokens == want and "host" not in result.sources[:10] and "host" in result.sources[10:]


def test_a_wrong_token_proposes_nothing_after_it(lm, wanted):
    want = wanted[0.0]
    stream = lm.submit(PROMPT, **ASKED, drafter="host", speculate="always")
    stream.propose([(want[3] + 1) % 4096, *want[4:]], 3)
    result = stream.wait()
    assert result.tokens == want and "host" not in result.sources


def test_proposals_go_on_after_what_was_read(lm, wanted):
    want = wanted[0.0]
    stream = lm.submit(PROMPT, **ASKED, drafter="host", speculate="always")
    read = [next(stream) for _ in range(5)]
    stream.propose(want[5:30])
    assert [e.token for e in read] + [e.token for e in stream] == want
    assert "host" in stream.result.sources


def test_refused(lm):
    stream = lm.submit(PROMPT, **ASKED, drafter="host")
    with pytest.raises(swiftk.InvalidArgument, match=r"\[propose\] token 1 is 4096, want 0..4095"):
        stream.propose([1, 4096])
    with pytest.raises(swiftk.InvalidArgument, match="at is -1"):
        stream.propose([1], -5)
    stream.close()
    stream.propose([1, 2])  # it has ended: no error


def test_who_does_not_listen_is_reported_nothing(lm, wanted):
    stream = lm.submit(PROMPT, **ASKED, drafter="suffix", speculate="always")
    stream.propose(wanted[0.0])
    assert "host" not in stream.wait().sources
