"""swiftk: LLaMA-family models, faster, with not one token changed. Importing this loads neither runtime nor numpy."""

from __future__ import annotations

import logging
from importlib import import_module
from pathlib import Path
from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import LM as LM
    from .api import convert as convert
    from .api import generate as generate
    from .api import load as load
    from .draft.draft_spec import DraftSpec as DraftSpec
    from .draft.source_settings import SourceSettings as SourceSettings
    from .draft.tree_rule import TreeRule as TreeRule
    from .options.drafting import Draft as Draft
    from .options.generate_options import GenerateOptions as GenerateOptions
    from .options.load_options import LoadOptions as LoadOptions
    from .options.swift_settings import SwiftSettings as SwiftSettings
    from .pages.page import report as report
    from .running.result import Event as Event
    from .running.result import Result as Result
    from .running.stats import Stats as Stats
    from .running.stream import Stream as Stream

    SkipSet, DraftRule = DraftSpec, TreeRule

__version__ = "0.1.0"

# The bare source tree holds no extension: Python started inside it takes the installed package's.
__path__ = extend_path(__path__, __name__)

_HOME = {
    "LM": "api",
    "Stream": "running.stream",
    "convert": "api",
    "generate": "api",
    "load": "api",
    "report": "pages.page",
    "GenerateOptions": "options.generate_options",
    "LoadOptions": "options.load_options",
    "Event": "running.result",
    "Result": "running.result",
    "Draft": "options.drafting",
    "DraftSpec": "draft.draft_spec",
    "Stats": "running.stats",
    "TreeRule": "draft.tree_rule",
    "SwiftSettings": "options.swift_settings",
    "SourceSettings": "draft.source_settings",
    "SwiftkError": "errors",
    "InvalidArgument": "errors",
    "InvalidOption": "errors",
    "ContextExceeded": "errors",
    "CheckpointError": "errors",
    "UnsupportedModel": "errors",
    "NumericalError": "errors",
    "Cancelled": "errors",
    "OutOfMemory": "errors",
    "DeviceError": "errors",
    "InternalError": "errors",
}
_ALIASES = {"SkipSet": "DraftSpec", "DraftRule": "TreeRule"}  # the names that these had before
_SUBMODULES = ("errors", "hf", "remote", "serve", "testing")
__all__ = ["__version__", "demo_drafter", "demo_model", *_HOME]

logging.getLogger("swiftk").addHandler(logging.NullHandler())


def demo_model() -> Path:
    """Directory of the small trained model that ships with the package."""
    return Path(__file__).parent / "models" / "lm13m"


def demo_drafter() -> Path:
    """Directory of a head that was trained for it (EAGLE-2)."""
    return Path(__file__).parent / "models" / "lm13m-eagle2"


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f".{_HOME[name]}", __name__), name)
        globals()[name] = value
        return value
    if name in _ALIASES:
        return __getattr__(_ALIASES[name])
    if name in _SUBMODULES:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module 'swiftk' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ALIASES, *_SUBMODULES})
