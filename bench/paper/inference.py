"""What happens while a stream is decoded (SWIFT Figure 6): speed-up by text, matchness, where the time goes, and what
learning costs.

The paper has 1000 texts of CNN/DM with LLaMA-2-13B. Here there are some of more tokens, under the paper's own
schedule, the same search within the engine's budget of time, and auto.
"""

from __future__ import annotations

from ..harness import Study
from ..lanes import ABOUT_COLUMNS, AUTO, COLUMNS, Pair, paper_swift, summary, swift
from ..plots import bars, series
from .offline import Written

PARTS = ("draft", "verify", "commit", "search", "other")
FIRST, LASTING = 0.05, 0.01  # shares of time that auto's search may take in the first 200 tokens, and over 1000 or more
NOTES = (
    "The columns from draft to other are shares of the time of decoding, where a plain step counts as verification. "
    "First text is the search's share in that text. First and last are the speed-ups over the first and the last "
    "quarter of the texts. Matchness is that of the set which drafts at the end, over the first tokens of all texts.",
    f"budget kept: auto's search takes at most {FIRST:.0%} of the first text and, after 1000 tokens, {LASTING:.0%} "
    "of all",
    "paper: .8% of the time is the search's and 64.4% the draft's; matchness .45 at first, .98 at the end; 1.53 then",
)


def facts(pairs: list[Pair], written: Written) -> dict[str, object]:
    """Of one way over all texts."""
    seconds, stats = sum(pair.seconds for pair in pairs), [pair.result.stats for pair in pairs]
    spent = {part: sum(getattr(s, f"{part}_seconds") for s in stats) / seconds for part in PARTS[:3]}
    whole, first = summary(pairs), summary(pairs[:1])
    spent["search"] = whole["search"]
    spent["other"] = max(0.0, 1 - sum(spent.values()))
    last = [next((r.skip for r in reversed(p.result.trace.rounds) if r.skip is not None), None) for p in pairs]
    known = {skip: written.matchness(skip) for skip in set(last) if skip is not None}
    quarter = -(-len(pairs) // 4)
    return {
        **spent,
        "first_search": first["search"],
        "kept": first["search"] <= FIRST and (whole["tokens"] < 1000 or whole["search"] <= LASTING),
        "first": summary(pairs[:quarter])["speedup"],
        "last": summary(pairs[-quarter:])["speedup"],
        "speedups": [pair.speedup for pair in pairs],
        "matches": [known.get(skip) for skip in last],
        "matchness": next((known[skip] for skip in reversed(last) if skip is not None), None),
    }


def main() -> None:
    study = Study("paper/inference", __doc__, texts=10, tokens=192, streams=("summarization",))
    for name, _ in study.parts(dict.fromkeys(study.streams)):
        texts = study.texts(name)
        pairs, written = study.measure(texts, [paper_swift(), swift(), AUTO]), Written(study, texts)
        for way, row in study.add(name, pairs).items():
            row |= facts([pair for pair in pairs if pair.way == way], written)
            row["kept"] = row["kept"] if way == "auto" else None
    columns = {"stream": "part", "way": "way", **COLUMNS, **{part: f"{part}:.1%" for part in PARTS}}
    columns |= {"first text": "first_search:.1%", "budget kept": "kept", "first": "first:.3f", "last": "last:.3f"}
    columns["matchness"] = "matchness:.2f"
    panels = [series("speed-up of each text", "speedups", even=1.0), series("matchness of what drafts", "matches")]
    panels.append(bars("search, share of time", "search", part=study.streams[0]))
    study.finish(columns, ABOUT_COLUMNS, *NOTES, panels=panels, width=12)


if __name__ == "__main__":
    main()
