"""LayerSkip's training recipe: layer dropout and a loss at early exits, so that a model's first layers draft well.

`python -m swiftk.train --help`. Needs torch (`pip install 'swiftk[train]'`), which nothing else in swiftk does; this
file and whatever --help reads load without it. Formulas: recipe.py; the run: loop.py.
"""
