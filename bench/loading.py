"""How long does a load take, and how much memory: of GGUF files, of folders, and of what `swiftk convert` made of them.

llama.cpp loads the same files where they are GGUF.
"""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import swiftk

from .as_gguf import Missing, quantised
from .decoded import folder_of
from .harness import Study
from .plots import bars
from .process import PYTHON_LLAMA, Peer
from .weights import size

NOTES = (
    "Seconds are those of swiftk.load, or of llama.cpp's function that loads a model: the median of five "
    "processes, with the files in the page cache. Peak memory is what is resident after the model has generated 8 "
    'tokens. It includes pages of mapped files, which processes share. The way "own" loads with '
    'draft_weights="own", without a copy.'
)
TRIES = 5


def sources(study: Study) -> dict[str, tuple[Path, dict[str, str]]]:
    """By name: a model, and options of load()."""
    folder = folder_of(study.folder)
    found = {"bf16 folder": (folder, {}), "bf16 folder, as int4": (folder, {"dtype": "int4"})}
    for kind in ("q8_0", "q4_k_m"):
        try:
            found[f"{kind} file"] = (Path(quantised(study.folder, kind, study.given.python_llama)), {})
        except Missing as error:
            study.results.notes.append(f"left out: {kind} ({error})")
            break
    return found


def main() -> None:
    study, missing = Study("loading", __doc__, options=PYTHON_LLAMA), set()
    with TemporaryDirectory(dir=study.folder.parent) as folder:
        for name, (path, options) in study.parts(sources(study)):
            out = Path(folder) / f"converted{path.suffix}"
            swiftk.convert(path, out, **options)
            own = {**options, "draft_weights": "own"}
            ways = {
                "own": partial(Peer, "swiftk", model=str(path), loading=own),
                "with the copy": partial(Peer, "swiftk", model=str(path), loading=options),
                "converted": partial(Peer, "swiftk", model=str(out)),
            }
            if path.is_file():
                ways["llama.cpp"] = partial(Peer, "llama_cpp", study.given.python_llama, path=str(path))
            sizes = {way: size(out if way == "converted" else path) for way in ways}
            answers: dict[str, list[dict]] = {way: [] for way in ways}
            for _ in study.each(range(1 if study.quick else TRIES)):
                for way, make in ways.items():
                    try:
                        with make(threads=study.threads) as peer:
                            answers[way].append(peer.ask("load"))
                    except Missing as error:
                        missing.add(f"left out: {way} ({error})")
            for way, found in answers.items():
                if not found:
                    continue
                row = {"part": name, "way": way, "GB": sizes[way] / 1e9, "dtype": found[0]["dtype"]}
                row |= {"seconds": median(one["seconds"] for one in found)}
                row |= {"weights_GB": found[0]["weight_bytes"] / 1e9}
                row |= {"memory_GB": max(one["peak_bytes"] for one in found) / 1e9}
                study.rows.append({**row, "per_GB": row["seconds"] / row["GB"]})
            shutil.rmtree(out) if out.is_dir() else out.unlink()
    study.results.notes += sorted(missing)
    columns = {"model": "part", "": "way", "file, GB": "GB:.2f", "weights": "dtype", "weights, GB": "weights_GB:.2f"}
    columns |= {"seconds": "seconds:.2f", "seconds a GB": "per_GB:.2f", "peak memory, GB": "memory_GB:.2f"}
    parts = dict.fromkeys(row["part"] for row in study.rows)
    study.finish(columns, NOTES, panels=[bars(part, "seconds", part=part) for part in parts], height=2.2)


if __name__ == "__main__":
    main()
