"""What a draft is, as data: what it skips, by which rule it grows, which sources propose, what passes cost."""
