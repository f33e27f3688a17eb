"""The page about a text: every token once and in order, by where it came from; figures that are the trace's."""

import math
import re
from dataclasses import replace
from html import escape

import pytest

import swiftk
from reports import LAYERS, ROUNDS, TEXTS, UNIFORM, Page, made
from swiftk.draft.draft_spec import DraftSpec
from swiftk.errors import InvalidArgument
from swiftk.pages.charts import KINDS, kept_sets, parts
from swiftk.pages.page import render, report
from swiftk.pages.svg import thinned, ticks
from swiftk.search.base import Candidate


def shown(texts):
    return [t.replace("\0", "␀") for t in texts]


def test_every_token_once_in_order_and_escaped():
    page = Page(render(made(TEXTS, ROUNDS)))
    assert [t for _, t, _ in page.tokens] == shown(TEXTS)
    kinds = ["plain", "plain", "plan", "plan", "bonus", "bonus", "plan", "plan"]
    assert [kind for kind, _, _ in page.tokens] == kinds
    assert all(page.source.count(f"{escape(KINDS[kind])} ({kinds.count(kind)})") == 2 for kind in kinds)
    assert [int(re.match(r"token (\d+)", hover)[1]) for _, _, hover in page.tokens] == list(range(1000, 1008))
    turns = ["the prompt's pass", "round 1", "round 2", "round 2", "round 2", "round 3", "round 4", "round 4"]
    assert [hover.split(", ")[1] for _, _, hover in page.tokens] == turns


def test_logprobs_are_reported():
    hovers = [hover for _, _, hover in Page(render(made(TEXTS, ROUNDS, logprobs=True))).tokens]
    assert hovers[2].endswith("logprob -0.500")


def test_without_a_tokenizer_ids_are_shown():
    page = Page(render(made([""] * 8, ROUNDS)))
    assert page.text.split() == [str(1000 + i) for i in range(8)]


def test_a_lone_surrogate_is_written(tmp_path):
    report(made(["\ud800"], []), tmp_path / "a.html")
    assert "&#55296;" in (tmp_path / "a.html").read_text(encoding="utf-8")


def test_page_needs_nothing_else():
    page = Page(render(made(TEXTS, ROUNDS, candidates=SEARCH)))
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object", "image", "use"}
    names = {name for _, attributes in page.tags for name in attributes}
    assert not {n for n in names if n.startswith("on") or n in ("src", "href", "xlink:href", "action")}
    assert not re.search(r"https?:|//|url\(|@import", page.source.replace("</", ""))


def test_figures_are_the_stats():
    result = made(TEXTS, ROUNDS)
    page, s = Page(render(result)), result.stats
    assert page.tiles["tokens/s"] == f"{s.tokens_per_second:.1f}"
    assert page.tiles["speed-up over plain"] == f"{s.speedup_vs_plain:.2f}x"
    assert page.tiles["tokens per pass of the model"] == f"{s.mean_generated_length:.2f}"
    assert page.tiles["of drafted tokens accepted"] == f"{s.draft_acceptance_rate:.0%}"
    assert page.tiles["a draft step, in plain steps"] == f"{s.draft_cost:.2f}"
    for name, value in s.to_dict().items():
        if isinstance(value, float):
            assert float(page.table[name]) == pytest.approx(value, rel=1e-5)
        else:
            assert page.table[name] == ("–" if value is None else str(value))


def test_time_adds_up():
    result = made(TEXTS, ROUNDS)
    s, found = result.stats, parts(result.trace, result.stats)
    assert sum(seconds for _, seconds, _ in found) == pytest.approx(s.total_seconds)
    named = {name: seconds for name, seconds, _ in found}
    assert (named["draft"], named["verify"], named["disk"]) == (s.draft_seconds, s.verify_seconds, 0)
    assert named["other"] == pytest.approx(4 * 0.0004)


@pytest.mark.parametrize("waited", [0.009, 0.02])  # a part of verifying; more than that
def test_waiting_for_the_disk_is_a_part_of_its_own(waited):
    """Of each of five passes, the prompt's among them."""
    result = made(TEXTS, ROUNDS, disk=(waited, 2_500_000))
    s = result.stats
    named = {name: seconds for name, seconds, _ in parts(result.trace, s)}
    assert sum(named.values()) == pytest.approx(s.total_seconds)
    assert (s.disk_bytes, s.disk_seconds) == (5 * 2_500_000, pytest.approx(5 * waited))
    assert named["disk"] == pytest.approx(5 * waited) and named["prefill"] == pytest.approx(0.5 - waited)
    assert named["verify"] == pytest.approx(max(0, 4 * (0.012 - waited)))
    assert named["verify"] + named["draft"] == pytest.approx(s.verify_seconds + s.draft_seconds - 4 * waited)


def test_reading_from_disk_is_drawn_and_told_of():
    page, without = (Page(render(made(TEXTS, ROUNDS, disk=disk))) for disk in ((0.009, 2_500_000), (0.0, 0)))
    said = "A pass read 0.0025 GB of weights from disk.", "reading weights from disk", "waited for weights from disk"
    assert [words in page.source for words in said] == [True] * 3
    assert [words in without.source for words in said] == [False] * 3
    drawn = [[a for tag, a in one.tags if tag == "rect" and a["class"] == "disk"] for one in (page, without)]
    assert [len(bars) for bars in drawn] == [4, 0]
    heights = {a["class"]: float(a["height"]) for tag, a in page.tags if tag == "rect"}  # of the last round
    assert heights["disk"] / 9 == pytest.approx(heights["verify"] / 3, rel=0.01)
    assert heights["disk"] / 9 == pytest.approx(heights["draft"] / 16, rel=0.01)
    words = "in all 12.5 ms, of which 9 ms waiting for 0.0025 GB from disk (0.2 GB/s)"
    assert page.titles[1].endswith(words) and "disk" not in " ".join(without.titles)


def test_tokens_rise_over_plain_ones_as_the_stats_say():
    result = made(["x"] * 201, [(2, 2, 1, UNIFORM)] * 100)
    paths = {a["class"]: a["d"] for t, a in Page(render(result)).tags if t == "path"}
    one, plain = (float(y) for y in re.findall(r" ([\d.]+)", paths["line even"]))
    top = min(float(y) for y in re.findall(r" ([\d.]+)", paths["bonus"]))  # of what is stacked last
    assert (one - top) / (one - plain) == pytest.approx(result.stats.speedup_vs_plain, rel=0.01)


def test_each_round_says_what_it_took():
    titles = Page(render(made(TEXTS, ROUNDS))).titles
    assert [t for t in titles if t.startswith("round ")] == [
        "round 1: tokens 1, draft steps 0 in 0 ms, verified rows 1 in 12 ms, in all 12.5 ms",
        "round 2: tokens 3, draft steps 3 in 12 ms, verified rows 4 in 12 ms, in all 24.5 ms",
        "round 3: tokens 1, draft steps 2 in 8 ms, verified rows 3 in 12 ms, in all 20.5 ms",
        "round 4: tokens 2, draft steps 4 in 16 ms, verified rows 5 in 12 ms, in all 28.5 ms",
    ]
    many = Page(render(made(["x"] * 199, [(2, 2, 1, UNIFORM)] * 99))).titles
    assert [t.split(",")[0] for t in many if t.startswith("rounds ")][-1] == "rounds 97 to 99"


def test_where_drafts_ended_is_what_the_stats_count():
    result = made(
        ["x"] * 12, [(3, 3, 2, UNIFORM), (2, 1, 0, UNIFORM), (2, 3, 2, UNIFORM), (3, 3, 2, UNIFORM), (4, 1, 1, UNIFORM)]
    )
    ended = [t for t in Page(render(result)).titles if "accepted, " in t]
    assert ended == [
        "1 of 4 rounds: 0 accepted, the model wanted another token",
        "1 of 4 rounds: 2 accepted, the whole draft was accepted",
        "2 of 4 rounds: 2 accepted, the model wanted another token",
    ]
    assert result.stats.acceptance_histogram == (1, 0, 3, 0)


def test_a_copy_that_skips_nothing_has_no_grid():
    rounds = [(3, 3, 2, DraftSpec(weights="int4"))]
    page = Page(render(made(["x"] * 4, rounds)))
    assert page.columns == [] and "<h2>Layers that the draft skips" not in page.source


SEARCH = tuple(
    Candidate(16 * i, "random" if i else "uniform", skip, 0.4 + 0.1 * i, rate, kept, 0.01)
    for i, (skip, rate, kept) in enumerate(
        [
            (UNIFORM, None, True),
            (DraftSpec((0, 2), (5,)), 1.2, False),
            (DraftSpec((1, 2, 3), (0, 5)), 1.3, True),
            (DraftSpec((4,), (4,), 5), 1.1, True),
        ]
    )
)


def filled(page):
    """The grid read back from its squares: layers of attention and of MLPs that are skipped or after the exit."""
    return [{kind: tuple(layers_in(cells, b) for b in page.blocks) for kind, cells in c.items()} for c in page.columns]


def layers_in(cells, block):
    top, height = block
    return [round((y - top) / height * LAYERS) for _, y in cells if top - 1 < y < top + height - 1]


def test_grid_shows_the_kept_sets():
    page = Page(render(made(TEXTS, ROUNDS, candidates=SEARCH)))
    kept = [c.skip for c in SEARCH if c.kept]
    assert [skip for _, skip in kept_sets(made(TEXTS, ROUNDS, candidates=SEARCH).trace)] == kept
    for skip, column in zip(kept, filled(page), strict=True):
        end = LAYERS if skip.exit_layer is None else skip.exit_layer
        assert column["skip"] == ([i for i in skip.attn if i < end], [i for i in skip.mlp if i < end])
        assert column["exit"] == (list(range(end, LAYERS)), list(range(end, LAYERS)))


def test_grid_shows_what_drafted_where_nothing_was_tried():
    result = made(TEXTS, ROUNDS)
    assert [skip for _, skip in kept_sets(result.trace)] == [UNIFORM, DraftSpec.early_exit(2)]
    assert [words for words, _ in kept_sets(result.trace)] == ["from token 2", "from token 6"]
    assert filled(Page(render(result)))[1] == {"skip": ([], []), "exit": ([2, 3, 4, 5], [2, 3, 4, 5])}


def test_many_candidates_stay_readable():
    many = tuple(replace(SEARCH[i % 2], tokens=i, kept=True) for i in range(5000))
    page = Page(render(made(TEXTS, ROUNDS, candidates=many, earlier=4000)))
    assert len(page.columns) == 48
    assert len(page.source) < 200_000
    assert "48 of 5000 shown" in page.source
    assert "this text" in page.source


def test_without_drafts():
    page = Page(render(made(["a", "b"], [(0, 1, 0, None)], reason_off="it does <not> pay")))
    assert "it does &lt;not&gt; pay" in page.source
    assert [kind for kind, _, _ in page.tokens] == ["plain", "plain"]
    assert page.columns == []
    assert page.tiles["of drafted tokens accepted"] == "–"


def test_a_cancelled_text():
    assert "cancelled, in" in render(replace(made(TEXTS, ROUNDS), finish_reason="cancelled"))


@pytest.mark.parametrize("plain", [0.01, None])
@pytest.mark.parametrize("rounds", [[], ROUNDS])
def test_figures_hold_no_nan(plain, rounds):
    page = Page(render(made(TEXTS if rounds else ["x"], rounds, plain=plain)))
    pixels = " ".join(a[n] for _, a in page.tags for n in ("d", "x", "y", "width", "height") if a.get(n))
    numbers = re.findall(r"-?\d+\.?\d*(?:e-?\d+)?", pixels)
    assert all(math.isfinite(float(n)) and abs(float(n)) < 2000 for n in numbers)
    assert not re.search(r"\b(?:nan|inf)\b", page.source)


def test_ten_thousand_tokens(tmp_path):
    result = made(["word "] * 10_001, [(4, 5, 4, UNIFORM)] * 2000, logprobs=True)
    path = report(result, tmp_path / "long.html")
    assert path.stat().st_size < 3_000_000
    assert Page(path.read_text(encoding="utf-8")).text == result.text


def test_a_path_that_cannot_be_written(tmp_path):
    result = made(["x"], [])
    for path in (tmp_path, tmp_path / "none" / "a.html"):
        with pytest.raises(InvalidArgument, match=re.escape(str(path))):
            report(result, path)


def test_a_result_without_trace():
    for result in (replace(made(["x"], []), trace=None), "text"):
        with pytest.raises(InvalidArgument, match=f"{type(result).__name__} without a trace, want a Result"):
            render(result)


def test_trace_costs_results_nothing():
    result = made(TEXTS, ROUNDS)
    assert result == replace(result, trace=None)
    assert "trace" not in repr(result)
    assert "trace" not in result.to_dict()


@pytest.mark.parametrize("low, high", [(0, 1), (-0.5, 0.5), (0.2, 97.3), (0, 10_000), (0, 1e-3)])
def test_ticks_are_round_and_inside(low, high):
    found = ticks(low, high)
    assert 2 <= len(found) <= 8
    assert all(low - 1e-9 <= t <= high + 1e-9 for t in found)
    assert thinned(list(range(100)), 5) == [0, 24, 49, 74, 99]


@pytest.fixture(scope="module")
def demo():
    return swiftk.load(swiftk.demo_model())


@pytest.mark.parametrize("options", [{"speculate": "always"}, {}, {"speculate": False}, {"max_new_tokens": 1}])
def test_page_of_a_real_text(demo, options, tmp_path):
    result = demo.generate("Question: How many", **{"max_new_tokens": 80, "ignore_eos": True, "logprobs": 0, **options})
    assert "".join(result.trace.texts) == result.text
    rounds = [t.round for t in result.trace.rounds]
    assert 1 + sum(r.tokens for r in rounds) == len(result.tokens)
    assert sum(r.draft_steps for r in rounds) == result.stats.num_draft_steps
    assert sum(r.accepted for r in rounds) == sum(result.drafted)
    assert all((t.skip is None) == (t.round.draft_steps == 0) for t in result.trace.rounds)
    if rounds:
        decoding = result.stats.total_seconds - result.stats.time_to_first_token
        assert decoding == pytest.approx(result.trace.rounds[-1].clock, rel=0, abs=1e-12)
    page = Page(report(result, tmp_path / "text.html").read_text(encoding="utf-8"))
    assert page.text == result.text
    own = {"bonus": None, "plain": None}
    assert [own.get(kind, kind) for kind, _, _ in page.tokens] == result.sources
    assert [source is not None for source in result.sources] == result.drafted
    assert all(("by suffix" in hover) == (kind == "suffix") for kind, _, hover in page.tokens)
    spec = {i + 1 for i, r in enumerate(rounds) if r.speculative}
    for kind, _, hover in page.tokens:
        turn = re.search(r"round (\d+)", hover)
        assert (kind != "plain") == (turn is not None and int(turn[1]) in spec)


def test_page_of_ids(tiny_dir, tmp_path):
    lm = swiftk.load(tiny_dir("llama3", layers=4, tokenizer=False))
    result = lm.generate([5, 6, 7], max_new_tokens=24, ignore_eos=True, speculate="always")
    page = Page(report(result, tmp_path / "ids.html").read_text())
    assert [int(t) for t in page.text.split()] == result.tokens
