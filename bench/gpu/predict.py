"""What an H200 will take, computed from the machine code of packs and a page of constants: no GPU is needed.

    PYTHONPATH=. python bench/gpu/predict.py [--only 7b,8b] [--out bench/results/gpu/predicted]

constants.py: what the machine can do. images.py: what a kernel's code asks of it. timing.py and attention_time.py: how
long a kernel takes. steps.py: kernels in order. Here: the cases, and what is written down about them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import models
import record
import run
from contexts import CONTEXTS
from steps import CHUNK, FORM, Model, Step
from subject import CONTEXT, KINDS, ROWS

from swiftk import pack
from tables import Table

NAMES = ("7b", "1b", "8b", "13b")
PARTS = ("matmuls", "attention", "norms", "draws", "launches")
LIMIT = {"7b": 4096, "13b": 4096}  # of contexts
Models = dict[tuple[str, str], Model]


def depth(rows: int) -> int:
    """Depth of a tree in which the first of four children goes on."""
    return -(-rows // 4) if rows > 1 else 0


def measures(model: Model) -> dict[str, float]:
    """As bench/gpu/decode.py names them, and some that it has not; steps in ms, drafts in us, the rest a second."""
    one, in_turn = model.seconds(CONTEXT, 1), model.seconds(CONTEXT, 1, overlap=False)
    found = {"one row": 1 / model.seconds(CONTEXT + 64, 1), "step of one row": one * 1e3,
             "step of one row, launches overlap": one * 1e3, "step of one row, launches in turn": in_turn * 1e3,
             "in turn over overlapped": in_turn / one}
    alone = model.step(CONTEXT, 1).parts()["matmuls"]
    for rows in ROWS[1:]:
        found[f"matmuls of {rows} rows over one"] = model.step(CONTEXT, rows).parts()["matmuls"] / alone
    for context in CONTEXTS:
        if context <= LIMIT.get(model.name, 1 << 17):
            one, behind = model.seconds(context, 1), "" if context == CONTEXT else f" behind {context} tokens"
            found[f"one row behind {context} tokens"] = 1 / one
            for rows in ROWS[1:]:
                for kind, deep in (("", 0), (" of a tree", depth(rows))):
                    taken = model.seconds(context, rows, deep)
                    found[f"verify {rows} rows{kind} over one{behind}"] = taken / one
    for form in ("own", FORM):
        found[f"draft step, {form} weights"] = model.draft_step("" if form == "own" else form).seconds * 1e6
    for count in (512, 2048):
        taken = model.prompt(count)
        found |= {f"prefill of {count}": count / taken, f"prompt of {count}": taken * 1e3}
    return found


CASES: list[tuple[str, str, Callable[[Model], Step]]] = [
    *((name, "one row", lambda model: model.step(CONTEXT, 1)) for name in NAMES),
    *(("7b", f"{n} rows, a {kind}", lambda model, n=n, deep=deep: model.step(CONTEXT, n, depth(n) * deep))
      for n in (8, 16, 64) for kind, deep in (("chain", 0), ("tree", 1))),
    *(("8b", f"one row behind {n}", lambda model, n=n: model.step(n, 1)) for n in (1024, 8192, 16000)),
    *(("8b", f"16 rows behind {n}, a {kind}", lambda model, n=n, deep=deep: model.step(n, 16, deep))
      for n in (1024, 8192) for kind, deep in (("chain", 0), ("tree", 4))),
    *((name, "draft step, int4", lambda model: model.draft_step(FORM)) for name in ("7b", "8b", "1b")),
    *(("7b", f"pass of a prompt, {CHUNK} rows behind {n}", lambda model, n=n: model.step(n, CHUNK)) for n in (0, 1536)),
]


def limits_of(step: Step) -> str:
    """What limits the attention and the matmuls of a layer in the middle."""
    middle = step.kernels[len(step.kernels) // 2 :][:8]
    attention = [k.limit for k in middle if k.name.startswith("attention")]
    matmuls = Counter(k.limit for k in middle if "." in k.name)
    return "; ".join([", ".join(dict.fromkeys(attention)), *(f"{n} {limit}" for limit, n in matmuls.most_common())])


def run_cases(found: Models) -> list[dict[str, Any]]:
    rows = []
    for name, case, take in CASES:
        for kind in ("cuda", "triton"):
            if (name, kind) in found:
                step = take(found[name, kind])
                parts = {part: step.parts().get(part, 0.0) * 1e3 for part in PARTS}
                rows.append({"case": f"{models.label(name)}, {case}", "matmuls": kind, "ms": step.seconds * 1e3,
                             "parts": parts, "limits": limits_of(step)})
    return rows


def cases_table(rows: list[dict[str, Any]], earlier: list[dict[str, Any]]) -> Table:
    before = {(row["case"], row["matmuls"]): row["ms"] for row in earlier}
    table = Table(["case", "matmuls", *(["before, ms"] if before else []), "ms", "a second", *PARTS,
                   "limits: attention; matmuls of a layer"])
    for row in rows:
        was = [record.short(before.get((row["case"], row["matmuls"]), float("nan")))] if before else []
        table.add(row["case"], {"cuda": "C++", "triton": "Triton"}[row["matmuls"]], *was, record.short(row["ms"]),
                  record.short(1e3 / row["ms"]), *(record.short(row["parts"][part]) for part in PARTS), row["limits"])
    return table


def kernels_table(model: Model, rows: int) -> Table:
    """The arithmetic of a layer and the end of a pass, kernel by kernel, in us."""
    step = model.step(CONTEXT, rows)
    table = Table(["kernel", "registers", "shared, KB", "a processor", "MB", "cycles a round", "rounds", "start",
                   "limits", "later waves", "end", "launch", "in the step"])
    middle = next(i for i, k in enumerate(step.kernels) if i > 8 and k.name == "rmsnorm")
    chosen = [*range(middle, middle + 8), *range(len(step.kernels) - 4, len(step.kernels))]
    for i in chosen:
        kernel, image = step.kernels[i], model.kernels[step.kernels[i].name]
        limits = sorted(kernel.limits.items(), key=lambda item: -item[1])[:3]
        table.add(kernel.name, str(image.registers), f"{image.shared / 1024:.1f}", str(image.resident),
                  f"{kernel.bytes / 1e6:.1f}", f"{kernel.facts.get('round', 0):.0f}",
                  f"{kernel.facts.get('rounds', 0):.0f}", f"{kernel.start * 1e6:.2f}",
                  ", ".join(f"{name} {value * 1e6:.2f}" for name, value in limits), f"{kernel.rest * 1e6:.2f}",
                  f"{kernel.end * 1e6:.2f}", f"{step.gaps[i] * 1e6:.2f}", f"{step.own[i] * 1e6:.2f}")
    return table


def attention_table(found: Models) -> Table:
    """A layer's attention by itself, in us."""
    counts = [(1, 0), *((n, deep) for n in (8, 16, 64) for deep in (0, depth(n)))]
    table = Table(["a layer, us", "behind", *(f"{n} rows, {'tree' if deep else 'chain'}" for n, deep in counts)])
    for name in NAMES:
        model = next((m for (n, _), m in found.items() if n == name), None)
        for context in (128, 1024, 4000, 8192, 16000):
            if model and context < LIMIT.get(name, 1 << 17):
                each = ([kernel.alone * 1e6 for kernel in model.attention(context, *count)] for count in counts)
                table.add(models.label(name), str(context), *(" + ".join(f"{t:.1f}" for t in taken) for taken in each))
    return table


def measures_table(found: dict[str, dict[str, float]]) -> Table:
    table = Table(["measure", *found])
    for measure in dict.fromkeys(key for values in found.values() for key in values):
        table.add(measure, *(record.short(values[measure]) if measure in values else "" for values in found.values()))
    return table


# Estimates by hand, made from instruction counts before there was this model, and before chains were verified without
# ancestors: (matmuls in Triton, in C++). Ranges are here with their middle.
BY_HAND = {
    ("7b", "step of one row"): (3.95, 3.40), ("7b", "one row"): (250, 290), ("8b", "one row"): (225, 255),
    ("1b", "one row"): (1020, 1250), ("7b", "matmuls of 16 rows over one"): (1.15, 1.05),
    ("7b", "matmuls of 64 rows over one"): (1.5, 1.15), ("7b", "verify 8 rows over one"): (1.15, 1.12),
    ("7b", "verify 16 rows over one"): (1.3, 1.22), ("7b", "verify 64 rows over one"): (1.8, 1.48),
    ("7b", "prompt of 512"): (44, 25), ("7b", "prompt of 2048"): (180, 100),
    ("7b", "draft step, int4 weights"): (1900, 1900),
}  # fmt: skip

WHY = """Where they differ by more than 15 %: prompts, since 64 rows of y pass shared memory beside 128 rows of W, and
80 % of its rate is taken for reached, and since attention of a prompt goes through tiles for 16 rows at a time.
Chains of 16 and 64 rows, where they have no branches: by hand they were taken token by token (1.07 and 1.2 without)."""


def by_hand_table(values: dict[str, dict[str, float]]) -> Table:
    table = Table(["measure", "by hand: Triton", "C++", "here: Triton", "C++", "here over by hand: Triton", "C++"])
    for (name, measure), (triton, cuda) in BY_HAND.items():
        here = [values.get(models.label(name) + KINDS[kind], {}).get(measure) for kind in ("triton", "cuda")]
        if None not in here:
            table.add(f"{models.label(name)}, {measure}", str(triton), str(cuda), *map(record.short, here),
                      f"{here[0] / triton:.2f}", f"{here[1] / cuda:.2f}")
    return table


# What a guess of constants.py is worth: (its name, another value).
DOUBTS = (("reads", 4.1e12), ("l2", 5.5e12), ("clock", 1.98e9), ("memory_latency", 0.9e-6), ("early_launch", 1.0e-6),
          ("reached", 1.0), ("bulk_copy", 435.0), ("tile_end", 1.0e-6), ("host", 40e-6))


def doubts_table(model: Model) -> Table:
    """How far a step moves with each constant, in %."""
    steps: dict[str, Callable[[Model], float]] = {
        "one row": lambda m: m.seconds(CONTEXT, 1), "16 rows": lambda m: m.seconds(CONTEXT, 16),
        "64 rows": lambda m: m.seconds(CONTEXT, 64), "one row behind 4096": lambda m: m.seconds(4096, 1),
        "prompt of 512": lambda m: m.prompt(512), "draft step, int4": lambda m: m.draft_step(FORM).seconds,
    }  # fmt: skip
    base = {name: take(model) for name, take in steps.items()}
    table = Table(["constant", "taken for", "if it were", *steps])
    for constant, value in DOUBTS:
        other = model.on(replace(model.machine, **{constant: value}))
        moved = (f"{take(other) / base[name] - 1:+.1%}" for name, take in steps.items())
        table.add(constant, f"{getattr(model.machine, constant):g}", f"{value:g}", *moved)
    return table


def sections(found: Models, rows: list[dict[str, Any]], values: dict[str, Any], made: str,
             earlier: list[dict[str, Any]]) -> Iterable[str]:
    yield f"# Predicted for an H200\n\n{made}\n\n{__doc__.strip().splitlines()[0]}"
    yield ("## Steps\n\nParts in ms, on the device; what the host adds to a step is in the measures. A part is what it "
           "adds, so without what is hidden under others.\n\n" + cases_table(rows, earlier).markdown())
    yield ("## Measures\n\nAs bench/gpu/decode.py names them, for bench/gpu/record.py to lay what came beside: steps "
           "and prompts in ms, drafts in us, one row and prefill in tokens a second.\n\n"
           + measures_table(values).markdown())
    yield "## Attention\n\nThe launches of a layer, by themselves.\n\n" + attention_table(found).markdown()
    for (name, kind), model in found.items():
        if name == "7b":
            yield (f"## Kernels: {models.label(name)}{KINDS[kind]}\n\nA layer and the end of a step of one row, us. "
                   "Of limits the largest counts. In the step: less what was fetched before inputs were there.\n\n"
                   + kernels_table(model, 1).markdown())
    yield "## Estimates by hand\n\n" + by_hand_table(values).markdown() + "\n\n" + WHY
    if ("7b", "cuda") in found:
        yield ("## Doubts\n\nLlama-2-7B, matmuls in CUDA C++: how a step moves if a constant is another.\n\n"
               + doubts_table(found["7b", "cuda"]).markdown())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(NAMES), help="some of 7b, 1b, 8b, 13b")
    parser.add_argument("--out", type=Path, default=record.BENCH / "results" / "gpu" / "predicted")
    given = parser.parse_args()
    if not Path(pack.__file__).is_relative_to(record.ROOT):
        parser.error(f"kernels would be those of {Path(pack.__file__).parent}, not of this tree: want PYTHONPATH=.")
    found = {(name, kind): Model(name, kind) for name in given.only.split(",") for kind in ("cuda", "triton")}
    values = {models.label(name) + KINDS[kind]: measures(model) for (name, kind), model in found.items()}
    rows = run_cases(found)
    built = ", ".join(dict.fromkeys(model.kernels.header["built_with"] for model in found.values()))
    commit = run.machine().get("commit", "unknown")
    command = " ".join(["PYTHONPATH=. python bench/gpu/predict.py", *sys.argv[1:]])
    made = f"`{command}`, commit {commit}, kernels built with {built}."
    before = given.out.with_name(given.out.name + "_before.json")
    earlier = json.loads(before.read_text())["cases"] if before.is_file() else []
    given.out.parent.mkdir(parents=True, exist_ok=True)
    text = {"made": made, "predicted": values, "cases": rows}
    given.out.with_suffix(".json").write_text(json.dumps(text, indent=1) + "\n")
    given.out.with_suffix(".md").write_text("\n\n".join(sections(found, rows, values, made, earlier)) + "\n")
    print(cases_table(rows, earlier).markdown())


if __name__ == "__main__":
    main()
