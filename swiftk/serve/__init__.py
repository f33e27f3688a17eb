"""A server of OpenAI's protocol: `swiftk serve`, make_app() for a host of its own, ray_app() for a cluster."""

from importlib import import_module
from typing import Any

_HOME = {"make_app": "app", "ServeSettings": "settings", "ray_app": "cluster"}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
