"""Models whose layers stay in a file, since memory is bounded; what else the process has is none of a plan's."""

import pytest

import swiftk
from debug_words import ask
from swiftk import _core
from swiftk.errors import OutOfMemory
from swiftk.testing import make_tiny

ALONE = "memory=1e12"  # of SWIFTK_DEBUG: the process counts as nothing
SIZES = {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2}
PLACE = {"context": 64, "draft_weights": "auto"}


def make(work, layers=5):
    """A converted model with few-bit copies, in a folder of `work`."""
    source = make_tiny(work / "plain", "llama3", layers=layers, **SIZES)
    return swiftk.convert(source, work / "model", draft_weights="int4,int3")


def least(folder, **place):
    """The memory beside which no layer fits."""
    asked = {**PLACE, **place}
    with pytest.raises(OutOfMemory, match=r"want at least \d+ bytes") as found:
        _core.survey(str(folder), **asked, memory=1)
    return int(str(found.value).split("at least ")[1].split()[0])


def load(folder, **place):
    """The LM whose layers are all read for each pass."""
    with pytest.MonkeyPatch.context() as patch:
        ask(patch, ALONE)
        memory = least(folder, sequences=1, **place)
        return swiftk.load(folder, device="cpu", max_sequences=1, memory=memory, **{**PLACE, **place})
