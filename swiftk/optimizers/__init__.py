"""Which sublayers to skip, learned while texts are generated: one module per optimizer, base.py says what they share."""
