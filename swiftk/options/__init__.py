"""Options as data: each is declared once, with its kind and range, for callers, the command line and HTTP."""
