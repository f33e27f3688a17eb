"""A drafter near the user: the client drafts the text of a model on a server, and the server verifies the drafts.

    with swiftk.remote.connect("http://HOST:8000", drafter="small-model") as line:
        print(line.generate("def main():", max_new_tokens=100))

The text is the server's own, token for token, for any draft and any number of broken connections: prompt, options and
seed decide it. This is the setting of Mixture of Attentions (arXiv 2410.03804), whose authors published no code for
it.
"""

from importlib import import_module
from typing import Any

from ..errors import InvalidArgument

_HOME = {"Remote": "client", "RemoteText": "client", "connect": "client", "Proposer": "proposer", "Lost": "line"}
_HOME |= {"Head": "head", "TreeHead": "head", "Tree": "tree", "cut": "head"}
_HOME |= {"RemotePiece": "result", "RemoteResult": "result"}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        try:
            return getattr(import_module(f".{_HOME[name]}", __name__), name)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            raise InvalidArgument(f"[remote] {missing} is not installed, want: pip install 'swiftk[remote]'") from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
