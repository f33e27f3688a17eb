"""SWIFTK_DEBUG in tests. Words are appended, since the last one counts: a test adds to what its fixtures ask for."""

import os


def appended(*words, to=None):
    return ",".join([os.environ.get("SWIFTK_DEBUG", "") if to is None else to, *words])


def ask(monkeypatch, *words):
    monkeypatch.setenv("SWIFTK_DEBUG", appended(*words))
