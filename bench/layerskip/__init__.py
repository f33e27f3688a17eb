"""The experiments of LayerSkip's paper (arXiv 2404.16710): early exits."""
