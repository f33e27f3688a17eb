"""What the planner makes of drafters where prices are given: on a modelled clock, which no busy machine moves.

Texts are real, each begins with nothing learned, and seconds are those of SWIFTK_DEBUG=clock. A drafter whose weights
were shuffled never helps: it shows what looking at it costs.
"""

from __future__ import annotations

import os
from pathlib import Path
from statistics import harmonic_mean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from swiftk import demo_model
from swiftk.files.safetensors_io import Tensor, read_folder, write_folder

from .drafters import DRAFTERS, SAMPLINGS, drafters, ways
from .harness import Study
from .lanes import Way
from .plots import heat

STREAMS = ("gsm8k", "humaneval", "summarization", "english", "mt-bench", "rag")
PRICES = "plan:.30/drafter:.022/opening:.06/row:.03/far:.09/reading:.006"
SHUFFLED = ", shuffled"
NOTES = (
    f"seconds: of a plain step 1, else {PRICES} (plan, drafter: a pass; opening: a draft's first, of a drafter alone; "
    "row, far: a verified row, up to eight and beyond; reading: a token that a drafter has to read first)",
    "auto with: by the planner, beside the copy; chain, tree: so in every round; the drafter's name alone: by time",
    "speed-up, M: harmonic means over texts; least: of the slowest text; of none: speed-up by that without a drafter",
)


def main() -> None:
    os.environ["SWIFTK_DEBUG"] = f"{os.environ.get('SWIFTK_DEBUG', '')},clock={PRICES}"
    study = Study("modelled", __doc__, texts=2, tokens=300, streams=STREAMS, options=DRAFTERS)
    study.threads, study.folder = 1, study.given.model or demo_model()  # seconds are no matter here
    with TemporaryDirectory() as folder:
        named = groups(drafters(study), Path(folder))
        for name, some in study.parts(named):
            models = study.open(study.folder, draft_weights=study.copy, drafter=some)
            for mode, sampling in SAMPLINGS.items():
                texts = [text for stream in study.streams for text in study.texts(stream)]
                for way in drafted(name, models):
                    found = written(study, models, texts, way, sampling)
                    study.rows.append({"way": way.name, "sampling": mode, **found})
            models.close()
    for row in study.rows:
        none = next(r for r in study.rows if r["way"] == "none" and r["sampling"] == row["sampling"])
        row["of_none"] = row["speedup"] / none["speedup"]
    columns = {"way": "way", "sampling": "sampling", "M": "M:.2f", "speed-up": "speedup:.3f", "least": "least:.2f"}
    columns |= {"of none": "of_none:.3f", "output equal": "same"}
    panels = [heat("speed-up", across="sampling")]
    study.finish(
        columns,
        *NOTES,
        f"drafts may read a copy in {study.copy}",
        panels=panels,
        width=4.5,
        height=1.2 + 0.35 * len({row["way"] for row in study.rows}),
    )


def groups(folders: list[Path], scratch: Path) -> dict[str, list[Path]]:
    """Of drafters that are loaded together."""
    named: dict[str, list[Path]] = {"none": []}
    for folder in folders:
        name = folder.resolve().name
        named[name] = [folder]
        named[f"{name}{SHUFFLED}"] = [shuffled(folder, scratch / name)]
    return named | ({"all": folders} if len(folders) > 1 else {})


def drafted(name: str, models: Any) -> list[Way]:
    """By the planner; and where a drafter is looked at, by it alone: by time, as a chain, and as EAGLE-2's tree."""
    kinds = models.plain.model.drafters
    return ways(name, kinds[0]) if len(kinds) == 1 and not name.endswith(SHUFFLED) else [Way(name)]


def shuffled(folder: Path, to: Path) -> Path:
    """A drafter of that shape, with weights of that size, that says nothing."""
    to.mkdir()
    for file in folder.glob("*.json"):
        (to / file.name).write_bytes(file.read_bytes())
    order = np.random.default_rng(1)
    tensors = {name: Tensor(t.dtype, mixed(t.bits, order)) for name, t in read_folder(folder).items()}
    list(write_folder(to, tensors))
    return to


def mixed(bits: np.ndarray, order: np.random.Generator) -> np.ndarray:
    """Ids and masks stay where they are."""
    return bits if bits.dtype.kind in "ib" else order.permutation(bits.reshape(-1)).reshape(bits.shape)


def written(study: Study, models: Any, texts: list[Any], way: Way, sampling: dict[str, Any]) -> dict[str, Any]:
    pairs = study.measure(texts, [way], models, cold=True, **sampling)
    stats = [pair.result.stats for pair in pairs]
    return {
        "M": harmonic_mean((s.generated_tokens - 1) / s.num_steps for s in stats),
        "speedup": harmonic_mean(pair.speedup for pair in pairs),
        "least": min(pair.speedup for pair in pairs),
        "same": all(pair.same for pair in pairs),
    }


if __name__ == "__main__":
    main()
