"""Conversations, written shortly."""


def said(*texts):
    """Messages of turns, the last one not answered yet."""
    return [{"role": "user" if i % 2 == 0 else "assistant", "content": text} for i, text in enumerate(texts)]
