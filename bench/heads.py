"""Which head drafts best, without a clock: kinds of heads trained alike on a model's own answers, by how often each
place of a draft is the model's own on answers that were held out. EAGLE, then what Mixture of Attentions adds to it, as
its Table 5 has it (arXiv 2410.03804): cross attention, layer self attention, target layer inference.

    python -m swiftk.train.answers prompts.jsonl --target MODEL --invent 9000 --out answers.jsonl
    python -m bench.heads --model MODEL --data answers.jsonl --heads FOLDER

Heads are kept in FOLDER, whole ones are not trained again, and one that was interrupted goes on.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

from torch import Tensor

from swiftk.files.safetensors_io import decode, read_folder
from swiftk.train import drafter, log
from swiftk.train.drafter_settings import DrafterSettings
from swiftk.train.moa import Moa

from .harness import Study
from .lanes import GREEDY
from .plots import lines

PLACES = 7  # of a draft
STEPS, BATCH, CONTEXT = 1000, 8, 384


class LastStates(Moa):
    """Without layer self attention: cross attention reads the model's last states, as its authors' ablation does."""

    def observed(self, kv: Tensor, after: Tensor) -> Tensor:
        return after


DRAFTS = {"steps_ahead": PLACES, "ahead": PLACES, "block": PLACES}
HEADS: dict[str, dict[str, Any]] = {
    "eagle2": {"kind": "eagle2"},
    "moa-last-states": {"kind": "moa"},
    "moa": {"kind": "moa"},
    "moa-1": {"kind": "moa", "target_layers": 1},
    "eagle3": {"kind": "eagle3", "draft_vocab": 8192},
    "block": {"kind": "block", "draft_vocab": 8192},
    "model": {"kind": "model"},
}
COLUMNS = {"head": "part", "parameters, M": "million:.1f", "steps": "steps", "minutes": "minutes:.0f"}
COLUMNS |= {"M, greedy chain": "M:.2f", **{f"place {i + 1}": f"place_{i + 1}:.3f" for i in range(PLACES)}}
NOTES = (
    f"A draft has {PLACES} places. The column of a place shows how often its token is the model's own if all tokens "
    "before it are. M is the number of tokens that a pass brings with a greedy chain of that length. Minutes are those "
    "of a training that was not interrupted. The head moa-last-states has no layer self attention, and after moa-1 the "
    "model's last layer runs.",
    "paper: EAGLE to cross attention +26 % tokens a pass (+33 % by time), layer self attention +6 %, and target layer "
    "inference raises them, for Llama-3-8B (Table 5)",
)
OPTIONS: dict[str, dict[str, Any]] = {
    "--data": {"nargs": "+", "metavar": "FILE", "help": "texts to learn from, as the trainer reads them"},
    "--heads": {"type": Path, "metavar": "FOLDER", "help": "where heads are kept; default: nowhere"},
    "--threads": {"type": int, "help": "of each training; several at a time do more on one thread each"},
    "--steps": {"type": int, "help": f"of training each; default {STEPS}"},
    "--batch": {"type": int, "help": f"sequences of {CONTEXT} tokens in a step; default {BATCH}"},
}


def data_of(study: Study) -> tuple[str, ...]:
    """Files to learn from; of a smoke test, the model's own text."""
    if study.given.data:
        return tuple(study.given.data)
    if not study.quick:
        raise SystemExit("[heads] want --data FILE, texts of which heads learn")
    with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
        prompts = [text.prompt for text in study.texts("gsm8k", 8)]
        found = study.small.generate_many(prompts, max_new_tokens=96, ignore_eos=True, **GREEDY)
        file.write("\n\n".join(one.text for one in found))
    return (file.name,)


def trained(folder: Path, s: DrafterSettings, kinds: dict[str, Any]) -> float | None:
    """Minutes that it took; None: some of it was done before."""
    began, there = perf_counter(), (folder / "training" / "run.json").is_file()
    folder, s = drafter.reopen(folder, {}) if there else drafter.start(folder, s)
    rows = log.read(folder / "training" / "valid.csv")
    whole = rows and int(rows[-1][0]) == s.steps
    if not whole and not drafter.train(folder, s, kinds):
        raise SystemExit(f"[heads] {folder} was interrupted; the same command goes on")
    return None if there else (perf_counter() - began) / 60


def row_of(folder: Path) -> dict[str, Any]:
    """What the last validation found."""
    last = log.read(folder / "training" / "valid.csv")[-1]
    step, M, *places = map(float, last)
    values = sum(decode(tensor).size for tensor in read_folder(folder).values())
    return {"steps": int(step), "M": M, "million": values / 1e6} | {f"place_{i}": x for i, x in enumerate(places, 1)}


def main() -> None:
    study = Study("heads", __doc__, options=OPTIONS)
    given, context = study.given, 48 if study.quick else CONTEXT
    steps, batch = (2, 2) if study.quick else (given.steps or STEPS, given.batch or BATCH)
    precision = "bfloat16" if study.lm.model.isa in ("amx", "avx512bf16") else "float32"
    common = {"data": data_of(study), "target": str(study.folder), "steps": steps, "batch": batch, "context": context}
    common |= {
        "precision": precision,
        "threads": given.threads or study.threads,
        "held_out": 0.3 if study.quick else 0.02,
        "eval_batches": 16,
        **DRAFTS,
    }
    with tempfile.TemporaryDirectory() as nowhere:
        kept = given.heads or Path(nowhere)
        for name, its in study.parts({name: HEADS[name] for name in study.chosen(HEADS)}):
            kinds = {**drafter.KINDS, "moa": LastStates} if name == "moa-last-states" else drafter.KINDS
            minutes = trained(kept / name, DrafterSettings(**common, **its), kinds)
            study.rows.append({"part": name, "minutes": minutes, **row_of(kept / name)})
    study.results.settings |= {"steps": steps, "batch": batch, "context": context}
    told = [{"part": row["part"], "place": i, "right": row[f"place_{i}"]} for row in study.rows for i in range(1, 8)]
    panels = [lines("right, all before being right", "right", "place", "part", None, "place of a draft")]
    study.finish(COLUMNS, *NOTES, panels=[lambda axis, _: panels[0](axis, told)])


if __name__ == "__main__":
    main()
