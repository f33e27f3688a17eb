"""The experiments of LayerSkip's paper (arXiv 2404.16710): early exits."""

from ..published import model

SEVERAL = {  # an option: a model as it was published beside the same one that was trained on for early exits, say
    "--models": {"nargs": "+", "type": model, "default": [], "help": "several, in one table; default: --model"}
}
