"""How long tests wait for what must come: so long that a busy machine decides nothing, and one that hangs ends."""

import time

PATIENCE = 600  # seconds


def until(holds):
    """What holds() returns once it is true."""
    end = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found
