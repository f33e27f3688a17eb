"""SWIFT's search (Figures 8a and 11): its steps S and Bayesian interval beta, and its cost beside Self-SD's.

Steps: the best matchness so far, by S and beta, over a stream of several kinds of text. Cost: seconds spent on
searching, and the speed-up on other texts of the same kind, for Self-SD's search after more and more steps. Searches
score after every round, as in the paper; swift in the second part is the same within the engine's budget of time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from offline import searched
from plots import BY_WAY, break_even, picture
from runs import AUTO, Part, Steps, measure, paper_swift, self_sd, swift, uniform
from study import Kept, Study, Work
from swiftk import SkipSet
from tables import Table
from totals import COLUMNS, Totals, cells, of_way, plain_cells

STEPS, COST = "steps", "cost"
GRID = ((50, 25), (200, 25), (800, 25), (800, 10), (800, None))  # S, beta; None: random search alone
BUDGETS = (5, 10, 20, 40)  # steps of Self-SD's search
TRAINING = 4  # instances that it searches on
NOTES = (
    "steps: of the search, all of them scored; matchness: the best of them; first half, second half: speed-up over "
    "these texts; search s: seconds spent on searching, inside decoding or before it",
    f"self-sd: searches {TRAINING} other instances of the same kind before the stream begins; chains, by its own gate",
)


def name(steps: int, interval: int | None) -> str:
    return f"S {steps}, " + (f"beta {interval}" if interval else "no Bayesian steps")


def ways() -> list[Any]:
    return [paper_swift(name(s, b), max_steps=s, bayes_interval=b or s + 1) for s, b in GRID]


def rows(kept: Kept) -> Iterator[tuple[str, str, Totals, list[Any], dict[str, Any]]]:
    """(part, way, its sums, its pairs, what else is known of it)."""
    for key, part in kept.items():
        for way, facts in part["ways"].items():
            pairs = of_way(part["pairs"], way)
            yield key, way, Totals.of(pairs), pairs, facts


def table(kept: Kept) -> Table:
    found = Table(["part", "way", *COLUMNS, "steps", "matchness", "first half", "second half", "search s"])
    for key, way, total, pairs, facts in rows(kept):
        if way == next(iter(kept[key]["ways"])):
            found.add(key, "plain", *plain_cells(total), *[""] * 5)
        half = (len(pairs) + 1) // 2
        second = f"{Totals.of(pairs[half:]).speedup:.3f}" if pairs[half:] else ""
        best = facts.get("best") or []
        n = facts["steps"]
        found.add(
            key,
            way,
            *cells(total),
            f"{n}" if n else "",
            f"{best[-1]:.3f}" if best else "",
            f"{Totals.of(pairs[:half]).speedup:.3f}",
            second,
            f"{facts['seconds']:.2f}",
        )
    return found


def paint(kept: Kept, path: Path) -> None:
    with picture(path, panels=2, width=10) as (left, right):
        for way, facts in kept[STEPS]["ways"].items():
            best = facts["best"]
            left.step(range(1, len(best) + 1), best, where="post", linewidth=1.4, label=way)
        left.set_title("best matchness over optimisation steps")
        left.set_xlabel("optimisation step")
        left.legend()
        spent = [(way, facts["seconds"], t.speedup) for key, way, t, _, facts in rows(kept) if key == COST]
        offline = [(s, y) for way, s, y in spent if way.startswith("self-sd")]
        right.plot(*zip(*offline), "o-", color=BY_WAY["self-sd"], label="self-sd, before inference")
        learning = [x for x in spent if x[0] in ("auto", "swift", "swift (paper)")]
        for way, seconds, speedup in learning:
            right.plot(max(seconds, 1e-3), speedup, "D", color=BY_WAY[way], label=f"{way}, while generating")
        break_even(right, next(y for way, _, y in spent if way == "uniform"))
        right.set_xscale("log")
        right.set_title("speed-up over seconds spent on searching; line: uniform")
        right.set_xlabel("seconds")
        right.legend()


def cost(study: Study) -> Work:
    instances = study.stream(study.streams[0])
    training = study.stream(study.streams[0], skip=study.instances)[:TRAINING]
    budgets = BUDGETS[:2] if study.quick else BUDGETS
    online = [AUTO, swift(), paper_swift(), uniform(study.lm)]
    spare = [self_sd(SkipSet(), f"self-sd, {n} steps") for n in budgets]

    def do(part: Part) -> dict[str, Any]:
        found = searched(study.lm, training, max(budgets), part.share(of=2))
        offline = {f"self-sd, {f.steps} steps": f for f in found if f.steps in budgets or f is found[-1]}
        study.lanes.forget()
        every = [*online, *(self_sd(f.skip, way) for way, f in offline.items())]
        pairs = measure(study.lanes, instances, every, study.tokens, part=part)
        spent = {way.name: Totals.of(of_way(pairs, way.name)).optimizer_seconds for way in online}
        facts: dict[str, Any] = {way: {"steps": 0, "seconds": s} for way, s in spent.items()}
        facts |= {way: {"steps": f.steps, "seconds": f.seconds, "skip": str(f.skip)} for way, f in offline.items()}
        return {"pairs": pairs, "ways": facts}

    return study.work(instances, [*online, *spare], do, training=training)


def steps(study: Study) -> Work:
    instances = [instance for several in zip(*map(study.stream, study.streams)) for instance in several]
    seen, grid = Steps(), ways()
    work = study.pairs(instances, grid, watch=seen)

    def facts() -> dict[str, Any]:
        spent = {w.name: sum(c.seconds for c in seen.found.get(w.name, ())) for w in grid}
        return {"ways": {w: {"steps": len(seen.best(w)), "seconds": s, "best": seen.best(w)} for w, s in spent.items()}}

    return work.adding(facts)


def main() -> None:
    study = Study("search", __doc__, instances=8, tokens=192, streams=("summarization", "english"))
    kept = study.run({STEPS: steps(study), COST: cost(study)}, table, NOTES)
    study.draw(lambda path: paint(kept, path))


if __name__ == "__main__":
    main()
