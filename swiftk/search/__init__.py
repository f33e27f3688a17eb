"""The search for what drafts best, while texts are generated: a module per idea; base.py says what they share."""
