"""What a suffix automaton answers, by comparing strings."""

BUCKETS = [1, 2, 3, 4, 5, 7, 9, 12, 16, 24, 40]  # longest match of the first ones


def follower(text, match):
    """The token after the latest occurrence of `match` that has one; None without."""
    n = len(match)
    ends = [i for i in range(n, len(text)) if text[i - n : i] == match]
    return text[ends[-1]] if ends else None


def longest_match(text, path):
    """The longest suffix of text + path that occurs in the text with a token after it."""
    whole = text + path
    return next(whole[i:] for i in range(len(whole) + 1) if i == len(whole) or follower(text, whole[i:]) is not None)


def slow_proposal(text, path):
    match = longest_match(text, path)
    followers = [follower(text, match[i:]) for i in range(len(match))]
    return sum(len(match) > most for most in BUCKETS), list(dict.fromkeys(followers))
