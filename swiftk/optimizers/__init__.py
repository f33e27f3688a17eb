"""Which sublayers to skip, learned while texts are generated: a module per optimizer; base.py says what they share."""
