"""python -m swiftk.train: the command line, made from the table of settings. torch loads when a run begins."""

from __future__ import annotations

import argparse
import sys
import textwrap
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from ..cli import guarded, line_width
from ..errors import InvalidArgument
from .drafter_settings import GROUPS as DRAFTER_GROUPS
from .drafter_settings import DrafterSettings
from .settings import GROUPS, Settings, default, flag

_TYPES = {"int": int, "float": float, "str": str}
_DESCRIPTION = """\
Train a LLaMA with LayerSkip's recipe: later layers are dropped more often, and exits after earlier layers are trained
with the same vocabulary head. The result is a Hugging Face folder whose first layers draft well. swiftk.load() and
transformers open it. --resume continues a run that was killed, with the same losses.
"""
_EPILOG = r"""
examples:
  python -m swiftk.train books.txt posts.jsonl --out my-model --steps 5000
  python -m swiftk.train gsm8k.jsonl --template 'Question: {question}\nAnswer: {answer}' --out small --layers 8
  python -m swiftk.train notes.jsonl --model Llama-3.2-1B --out ours --context 2048 --batch 4 --accumulate 8 --recompute
  python -m swiftk.train --resume my-model
  swiftk run my-model "Once upon a time"

Beside the model, OUT/training holds loss.csv (step, lr, loss, loss by exit), valid.csv (held-out loss by exit),
loss.png if matplotlib is installed, and the files that --resume needs.
"""
_DRAFTER = """\
Train a head that drafts for a model. It reads the model's states, as the engine computes them, and predicts the
model's next tokens. The result is a folder that swiftk.load(MODEL, drafter=OUT) opens, in the format of vLLM's
speculators, of SpecForge (eagle3), of EAGLE (eagle2), or of the authors of Mixture of Attentions.
"""
_DRAFTER_EPILOG = r"""
examples:
  python -m swiftk.train drafter --target my-model books.txt --out my-drafter
  python -m swiftk.train.answers prompts.jsonl --target my-model --out answers.jsonl
  python -m swiftk.train drafter --target my-model answers.jsonl --out my-drafter
  python -m swiftk.train drafter --kind moa --target my-model books.txt --out my-other-drafter
  python -m swiftk.train drafter --resume my-drafter
  swiftk run my-model --drafter my-drafter "Once upon a time"

Beside the head, OUT/training holds loss.csv, valid.csv (acceptance by position on held-out text), and the files that
--resume needs.
"""


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0, 2 for a mistake (a line on stderr), 130 when interrupted."""
    return guarded(lambda: _run(sys.argv[1:] if arguments is None else arguments), "swiftk.train")


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["drafter"]:
        return _run_drafter(arguments[1:])
    given = vars(_parser(Settings, GROUPS, _DESCRIPTION, _EPILOG).parse_intermixed_args(arguments))
    out, resumed = given.pop("out", None), given.pop("resume", None)
    if (out is None) == (resumed is None):
        raise InvalidArgument("[train] want --out DIR for a new run, or --resume DIR for one that was interrupted")
    _refuse_changes(Settings, given if resumed else {})
    settings = None if resumed else Settings(**{**given, "data": tuple(given.get("data", ()))})
    try:
        from .loop import begin, train
    except ModuleNotFoundError as error:
        raise InvalidArgument(f"[train] {error.name} is not installed, want: pip install 'swiftk[train]'") from None
    from .prepare import reopen

    if settings is None:
        given.pop("data", None)
        return 0 if train(reopen(Path(resumed), given)) else 130
    return 0 if train(begin(Path(out), settings)) else 130


def _run_drafter(arguments: list[str]) -> int:
    parser = _parser(DrafterSettings, DRAFTER_GROUPS, _DRAFTER, _DRAFTER_EPILOG, " drafter")
    given = vars(parser.parse_intermixed_args(arguments))
    out, resumed = given.pop("out", None), given.pop("resume", None)
    if (out is None) == (resumed is None):
        raise InvalidArgument("[train] want --out DIR for a new drafter, or --resume DIR for one that was interrupted")
    _refuse_changes(DrafterSettings, given if resumed else {})
    given["data"] = tuple(given.get("data", ()))
    settings = None if resumed else DrafterSettings(**given)
    try:
        from . import drafter
    except ModuleNotFoundError as error:
        raise InvalidArgument(f"[train] {error.name} is not installed, want: pip install 'swiftk[train]'") from None
    if settings is None:
        given.pop("data")
        return 0 if drafter.train(*drafter.reopen(Path(resumed), given)) else 130
    return 0 if drafter.train(*drafter.start(Path(out), settings)) else 130


def _refuse_changes(settings: Any, given: dict[str, Any]) -> None:
    """A run that resumes is the same run; only where and how often may change."""
    for f in fields(settings):
        if given.get(f.name) and f.metadata["group"] != "run":
            what = "data" if f.name == "data" else flag(f)
            raise InvalidArgument(f"[resume] {what} is fixed when a run begins, want only options of the last group")


def _parser(
    settings: Any, texts: dict[str, str], description: str, epilog: str, command: str = ""
) -> argparse.ArgumentParser:
    """Options that are not given are absent from the result: defaults are the settings' own."""
    parser = argparse.ArgumentParser(
        prog=f"python -m swiftk.train{command}",
        usage="%(prog)s DATA [DATA ...] --out DIR [options]\n       %(prog)s --resume DIR [options]",
        description=textwrap.dedent(description),
        epilog=epilog,
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, width=line_width(sys.stdout)),
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    where = parser.add_argument_group("where")
    where.add_argument("--out", metavar="DIR", help="the folder to write, new or empty")
    where.add_argument("--resume", metavar="DIR", help="the folder of a run that was interrupted, or killed")
    groups = {name: parser.add_argument_group(name, text) for name, text in texts.items()}
    for f in fields(settings):
        _add(groups[f.metadata["group"]], f)
    return parser


def _add(group: Any, f: Any) -> None:
    text = f.metadata["help"].replace("%", "%%")
    if f.name == "data":
        group.add_argument("data", nargs="*", metavar="DATA", help=text)
        return
    if f.type == "bool":
        group.add_argument(flag(f), dest=f.name, action="store_true", help=text)
        return
    kind = f.type.removesuffix(" | None")
    value = default(f)
    choices = f.metadata.get("choices")
    metavar = "{" + ",".join(choices) + "}" if choices else {"int": "N", "float": "X", "str": "NAME"}[kind]
    help = text if value is None else f"{text} (default: {value})"
    group.add_argument(flag(f), dest=f.name, type=_TYPES[kind], metavar=metavar, help=help)


if __name__ == "__main__":
    sys.exit(main())
