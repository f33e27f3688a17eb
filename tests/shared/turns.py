"""What an engine reports of a round, without one."""

from types import SimpleNamespace

from swiftk.draft.sources import NAMES

USUAL = {"draft": 0.625, "verify": 1.0, "commit": 0.01, "steps": 4, "drafted": 4, "draft_nodes": 6}
USUAL |= {"nodes": 7, "reused_rows": 4, "reused_share": 0.25, "saved_weight_bytes": 1000}
USUAL |= {"disk": 0.0, "disk_bytes": 0}
USUAL |= {"proposed": [1, 6, 2, *[0] * (len(NAMES) - 3)]}


def turn(**fields):
    """As _core.Turn has them."""
    assert fields.keys() <= USUAL.keys()
    return SimpleNamespace(**{**USUAL, **fields})
