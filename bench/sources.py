"""Who proposes tokens: the draft plan, sources that cost no draft step, or both by time.

A model of 13 M parameters copies nothing that it would not write anyway. So text that repeats itself is made of its own
words: a prompt, the model's greedy answer, and the prompt again, as in editing code (again: code) or quoting prose.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path[1:1] = [str(Path(__file__).with_name("paper"))]

from plots import picture  # noqa: E402
from runs import Run, Way  # noqa: E402
from streams import Instance, noise, stream  # noqa: E402
from study import Kept, Study  # noqa: E402
from swiftk.sources import DRAFTERS  # noqa: E402
from tables import Table  # noqa: E402
from totals import Totals, of_way  # noqa: E402

AGAIN = {"again: code": "humaneval", "again: prose": "summarization"}
_PROMPT, _ANSWER = 128, 96  # tokens of what is written again
HOT = {"temperature": 1.5}
WAYS = [Way(name, {"drafter": name}) for name in DRAFTERS]
NOTES = (
    "over plan: tokens/s over those of the draft plan alone on the same texts; v: a target pass, with all rows of its "
    "tree, in plain steps; accepted: tokens by what proposed them",
    "lookup, lookahead, parallel and template (Token Recycling's tree) take all that they guess, as their papers do, "
    "until drafting is seen to lose",
    "noise: prompts of random tokens at temperature 1.5, where no source has anything to go by",
)


class SourceStudy(Study):
    """Drafts may read what copies of the weights load() makes."""

    loading: Mapping[str, Any] = {}

    def again(self, name: str) -> list[Instance]:
        """The model's own words, and their beginning once more."""
        found = []
        for one in stream(AGAIN[name], self.model_dir, self.instances):
            prompt = list(one.turns[0][:_PROMPT])
            answer = self.lm.generate(prompt, max_new_tokens=_ANSWER, ignore_eos=True, speculate=False, temperature=0.0)
            found.append(Instance(name, one.number, (tuple(prompt + answer.tokens + prompt),)))
        return found


class Accepted:
    """Accepted tokens of each way, by what proposed them: watch() of measure()."""

    def __init__(self) -> None:
        self.by: dict[str, Counter[str]] = {way.name: Counter() for way in WAYS}

    def __call__(self, _: Instance, one: Run, __: Run) -> None:
        self.by[one.way.name].update(one.result.stats.accepted_by)


def table(kept: Kept) -> Table:
    found = Table(["stream", "drafter", "M", "c", "v", "tokens/s", "speed-up", "over plan", "accepted", "output"])
    for key, part in kept.items():
        plan = Totals.of(of_way(part["pairs"], "plan"))
        found.add(key, "none", "1.00", "", "", f"{plan.plain_rate:.1f}", "1.000", "", "", "")
        for way in WAYS:
            t = Totals.of(of_way(part["pairs"], way.name))
            by = ", ".join(f"{name} {n}" for name, n in part["accepted"].get(way.name, {}).items())
            cost = f"{t.cost:.2f}" if t.cost else ""
            same = "same" if t.same else "DIFFERS"
            figures = [f"{t.rate:.1f}", f"{t.speedup:.3f}", f"{t.rate / plan.rate:.3f}"]
            found.add(key, way.name, f"{t.length:.2f}", cost, f"{t.verify:.2f}", *figures, by, same)
    return found


def paint(kept: Kept, path: Path) -> None:
    with picture(path, panels=len(kept), width=3.2 * len(kept), sharey=True) as axes:
        for axis, (key, part) in zip(axes, kept.items()):
            speeds = [Totals.of(of_way(part["pairs"], way.name)).speedup for way in WAYS]
            axis.barh([way.name for way in WAYS], speeds)
            axis.axvline(1.0, color="#222222", linewidth=0.8)
            axis.set_title(f"{key}: speed-up")
        axes[0].invert_yaxis()


def main() -> None:
    streams = (*AGAIN, "english", "noise")
    study = SourceStudy("sources", __doc__, instances=3, tokens=96, streams=streams, folder="")
    works: dict[str, Any] = {}
    for name in study.streams:
        accepted, options = Accepted(), {"temperature": 0.0}
        if name == "noise":
            instances, options = noise(study.lm.config["vocab_size"], study.instances), HOT
        else:
            instances = study.again(name) if name in AGAIN else study.stream(name)
        work = study.pairs(instances, WAYS, sampling=options, watch=accepted)
        works[name] = work.adding(lambda accepted=accepted: {"accepted": {k: dict(v) for k, v in accepted.by.items()}})
    kept = study.run(works, table, NOTES)
    study.draw(lambda path: paint(kept, path))


if __name__ == "__main__":
    main()
