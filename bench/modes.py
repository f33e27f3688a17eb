"""Everything that can draft, on the same texts: sublayers skipped, an early exit, copies of the weights in fewer bits,
tokens that cost no draft step, and the default, which chooses among all of them by time.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).with_name("paper"))]

from plots import heat, picture  # noqa: E402
from runs import SAMPLED, Way, swift  # noqa: E402
from sources import SourceStudy  # noqa: E402
from study import Kept  # noqa: E402
from swiftk import SkipSet  # noqa: E402
from swiftk.sources import DRAFTERS  # noqa: E402
from tables import Table  # noqa: E402
from totals import Totals, of_way  # noqa: E402

FORMS = ("int8", "int4", "int3")
SAMPLINGS = {"greedy": {"temperature": 0.0}, "T .6": SAMPLED, "T 1": {"temperature": 1.0}}
STREAMS = ("gsm8k", "humaneval", "summarization", "english")
EXIT = 3 / 16  # of the layers
NOTES = (
    "M: tokens per target pass; alpha: the plan's tokens accepted, of the places it drafted; c, v: a draft step and a "
    "target pass in plain steps; E: M over a pass and its draft steps, Equation 6 where the plan alone drafts; "
    "at v: of the same with a target pass at its measured v, which Equation 6 takes for 1",
    "memory: of copies of the weights, as a share of the model's own; auto has all three copies to choose from",
    "lookup, lookahead, parallel and template (Token Recycling's tree) take all that they guess, as their papers do, "
    "up to as many rows as they may lose",
    "plain again: what the machine's drift makes of the same decoding",
)


class ModeStudy(SourceStudy):
    loading = {"draft_weights": FORMS}  # noqa: RUF012


def ways(n_layers: int) -> list[Way]:
    def alone(skip: object) -> dict[str, object]:
        return {"skip": skip, "optimizer": None}

    return [
        Way("plain again", {"speculate": False}),
        Way("uniform skip", alone(SkipSet.uniform(n_layers))),
        swift(),
        Way("early exit", alone(SkipSet.early_exit(max(1, round(EXIT * n_layers))))),
        *(Way(form, alone(form)) for form in FORMS),
        *(Way(name, {"drafter": name}) for name, one in DRAFTERS.items() if not one.plan),
        Way("auto"),
    ]


def table(kept: Kept) -> Table:
    columns = ["M", "alpha", "c", "v", "tokens/s", "speed-up", "E", "realised / E", "at v", "memory", "output"]
    found = Table(["stream", "way", *columns])
    for key, part in kept.items():
        names = list(dict.fromkeys(pair["way"] for pair in part["pairs"]))
        plain = Totals.of(of_way(part["pairs"], names[0])).plain_rate
        found.add(key, "plain", "1.00", "", "", "", f"{plain:.1f}", "1.000", "", "", "", "", "")
        for name in names:
            t = Totals.of(of_way(part["pairs"], name))
            draft = [f"{t.alpha:.2f}", f"{t.cost:.2f}"] if t.alpha else ["", ""]
            expected = [f"{t.expected:.3f}", f"{t.speedup / t.expected:.3f}", f"{t.speedup / t.expected_of_rows:.3f}"]
            found.add(
                key,
                name,
                f"{t.length:.2f}",
                *draft,
                f"{t.verify:.2f}",
                f"{t.rate:.1f}",
                f"{t.speedup:.3f}",
                *expected,
                part["memory"].get(name, ""),
                "same" if t.same else "DIFFERS",
            )
    return found


def paint(kept: Kept, path: Path) -> None:
    """A map of speed-ups for each sampling: what can draft, by stream."""
    names = list(dict.fromkeys(pair["way"] for part in kept.values() for pair in part["pairs"]))
    modes = {mode: [key for key in kept if key.endswith(f", {mode}")] for mode in SAMPLINGS}
    shown = {mode: keys for mode, keys in modes.items() if keys}
    with picture(path, panels=len(shown), width=3.6 * len(shown), height=4.4, sharey=True) as axes:
        for axis, (mode, keys) in zip(axes, shown.items()):
            values = [[Totals.of(of_way(kept[key]["pairs"], name)).speedup for key in keys] for name in names]
            heat(axis, values, names, [key.removesuffix(f", {mode}") for key in keys])
            axis.set_title(f"{mode}: speed-up")


def main() -> None:
    study = ModeStudy("modes", __doc__, instances=2, tokens=128, streams=STREAMS, folder="")
    every = ways(study.lm.config["num_layers"])
    sizes = {form: size / study.lm.model.weight_bytes for form, size in study.lm.model.copies.items()}
    memory = {**{form: f"{share:.1%}" for form, share in sizes.items()}, "auto": f"{sum(sizes.values()):.1%}"}
    works = {
        f"{name}, {mode}": study.pairs(study.stream(name), every, sampling=options).adding(lambda: {"memory": memory})
        for name in study.streams
        for mode, options in SAMPLINGS.items()
    }
    kept = study.run(works, table, NOTES)
    study.draw(lambda path: paint(kept, path))


if __name__ == "__main__":
    main()
