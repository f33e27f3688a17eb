"""The parts of bench/on_gpu.sh, and its ladder: rungs that tell kernels, loops and overlap apart, and what follows.

Plain data and rules; the standard library alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_TRITON, _CUDA = {"matmuls": "triton"}, {"matmuls": "cuda"}  # words of SWIFTK_DEBUG
_IN_TURN, _BY_HOST = {"overlap": "0"}, {"stepwise": "1"}
SETTINGS = (*_TRITON, *_IN_TURN, *_BY_HOST)


@dataclass(frozen=True)
class Part:
    """A script of this folder under a limit in seconds. It is not run where a part that it needs is known to fault."""

    script: str
    seconds: int
    debug: dict[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    models: tuple[str, ...] = ()  # in the order of worth
    any_model: bool = True

    def chosen(self, only: list[str] | None) -> tuple[str, ...]:
        """Its models, those asked for instead where it takes any."""
        return tuple(only) if only and self.models and self.any_model else self.models


LADDER = {
    "smoke": Part("smoke", 60, {**_TRITON, **_IN_TURN, **_BY_HOST}),
    "loops": Part("smoke", 45, {**_TRITON, **_IN_TURN}, ("smoke",)),
    "overlap": Part("smoke", 45, {**_TRITON, **_BY_HOST}, ("smoke",)),
    "triton": Part("smoke", 45, _TRITON, ("smoke", "loops", "overlap")),
    "cuda": Part("smoke", 45, _CUDA, ("smoke",)),
    "many": Part("smoke", 75, needs=("smoke",), arguments=("--texts", "many")),
    "heads": Part("smoke", 75, needs=("smoke",), arguments=("--texts", "heads")),
    "same bits": Part("suite", 150, needs=("smoke",), arguments=("--short",)),
}
PARTS = {
    "build": Part("build", 150),
    **LADDER,
    "sanitizer": Part("smoke", 150, LADDER["smoke"].debug, arguments=("--short",)),
    "hardware": Part("hardware", 60),
    "decode": Part("decode", 240, needs=("smoke",), models=("7b", "1b", "8b", "13b")),
    "contexts": Part("contexts", 150, needs=("smoke",), models=("7b", "8b")),
    "bits": Part("bits", 100, needs=("smoke",), models=("1b", "7b")),
    "speculation": Part("speculation", 130, needs=("smoke",), models=("grown",), any_model=False),
    "tests": Part("suite", 260, needs=("smoke",)),
}
ORDER = ("build", "ladder", "hardware", "decode", "contexts", "bits", "speculation", "tests")
ENDED = "not run: "
BY_DEVICE = "drafts are taken by the device"


def words(debug: str) -> dict[str, str]:
    """A list like that of SWIFTK_DEBUG, by word."""
    split = (word.partition("=") for word in debug.split(",") if word)
    return {name: value if equals else "1" for name, equals, value in split}


def joined(words: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in words.items())


def outcome(part: Mapping[str, Any] | None) -> str:
    """How a part ended, in a word: "" of one that was not run, "ok", "wrong", "broken", "hung" or "crashed"."""
    state = part["state"] if part else ENDED
    if part is None or state.startswith(ENDED):
        return ""
    if any(row.get("met") is False and row.get("must") for row in part["rows"]):
        return "wrong"
    found = {"done": "ok", "stopped at its limit": "hung", "killed": "hung"}.get(state)
    return found or ("crashed" if state.startswith("crashed") else "broken")


def faults(parts: Mapping[str, Any]) -> dict[str, str]:
    """Rungs that did not end well, and how."""
    found = {name: outcome(parts.get(name)) for name in LADDER}
    return {name: how for name, how in found.items() if how not in ("", "ok")}


def settings(parts: Mapping[str, Any]) -> dict[str, str]:
    """What later parts run with, so that they go around what faults."""
    found, out = faults(parts), {}
    if found.keys() & {"loops", "triton"}:
        out |= _BY_HOST
    if "overlap" in found:
        out |= _IN_TURN
    if "cuda" in found:
        out |= _TRITON
    return out


def says(parts: Mapping[str, Any]) -> str:
    """What the pattern of the rungs means, in a line; "" where none was run."""
    if not any(outcome(parts.get(name)) for name in LADDER):
        return ""
    found, blame = faults(parts), []
    for rung, what in _MEANS.items():
        if rung in found:
            blame.append(f"{what} ({rung}: {found[rung]})")
    loops = parts.get("loops", {"rows": []})
    if any(row["measure"] == BY_DEVICE and not row["value"] for row in loops["rows"]):
        blame.append("loops are not used: drafts go step by step")
    if not blame:
        missing = [name for name in LADDER if not outcome(parts.get(name))]
        return f"nothing faults; not tried: {', '.join(missing)}" if missing else "nothing faults"
    ended = [name for name in ORDER if name in PARTS and set(PARTS[name].needs) & found.keys()]
    chosen = joined(settings(parts))
    later = f"; later parts run with SWIFTK_DEBUG={chosen}" if chosen else ""
    return "; ".join(blame) + (f"; ended: {', '.join(ended)}" if ended else later)


_MEANS = {
    "smoke": "kernels fault, launched in turn and by the host",
    "loops": "kernels work, loops on the device fault",
    "overlap": "kernels work, launches that overlap fault",
    "triton": "loops and overlap work, but not together",
    "cuda": "the C++ matmuls fault in a model",
    "many": "one text works, several at a time do not",
    "heads": "models work, trained heads do not",
    "same bits": "tests of equal bits fail",
}
