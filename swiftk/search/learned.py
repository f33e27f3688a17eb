"""Statistics of a model, kept from one process to the next: small JSON files in the user's cache folder.
SWIFTK_LEARNED=0 neither reads nor writes any."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..files.folders import cache_folder
from ..files.model_files import ModelFiles, open_model_files

_log = logging.getLogger("swiftk")
_FORMAT = "swiftk learned 1"
SAVE = 30.0  # seconds between two writes of what changes all the time


class LearnedFile:
    """The file of one model, and the drafters beside it. of: what it is true of, a dtype and a device."""

    def __init__(self, models: Sequence[str | os.PathLike[str] | ModelFiles], *of: str) -> None:
        self.enabled = os.environ.get("SWIFTK_LEARNED", "1") != "0"
        names = "-".join(open_model_files(one).fingerprint for one in models)
        self.path = cache_folder() / "learned" / f"{'-'.join([names, *of])}.json"
        self._states: dict[str, Any] | None = None

    def load(self, kind: str) -> Any:
        """The state saved under `kind`, or None. A file that cannot be used is left alone, with a warning."""
        return self._all().get(kind) if self.enabled else None

    def reload(self) -> None:
        """Reads the file again at the next load or save: other processes may have written it."""
        self._states = None

    def save(self, kind: str, state: Any) -> None:
        """Writes it beside the others. A full disk or a folder that may not be written costs a warning, no more."""
        if not self.enabled:
            return
        states = {**self._all(), kind: state}
        part = self.path.with_suffix(f".{os.getpid()}.part")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps({"format": _FORMAT, "states": states}), encoding="utf-8")
            part.replace(self.path)
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            self.enabled = False
            _log.warning("what was learned is not kept: %s: %s", self.path, error.strerror or error)
        self._states = states

    def _all(self) -> dict[str, Any]:
        if self._states is None:
            self._states = _read(self.path)
        return self._states


def _read(path: Path) -> dict[str, Any]:
    try:
        file = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        _log.warning("what was learned before is not used: %s: %s", path, error)
        return {}
    if not isinstance(file, dict) or file.get("format") != _FORMAT or not isinstance(file.get("states"), dict):
        _log.warning('what was learned before is not used: %s is no "%s"', path, _FORMAT)
        return {}
    return file["states"]
