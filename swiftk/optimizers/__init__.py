"""Searches for sublayers to skip, while texts are generated: a module per optimizer; base.py says what they share."""
