"""The experiments of SWIFT's paper (arXiv 2410.06916), and some of ours on the same streams."""

DEVIATIONS = (
    "SWIFT's paper has models of 7 B parameters and more, 1000 texts a stream, one example before them (CNN/DM, "
    "TinyStories) or five (GSM8K), and at most 64 tokens (CNN/DM, GSM8K), 128 (TinyStories) or 512 (HumanEval and all "
    "analyses). Here the example of a summary is our own, and Wikipedia and C4 stand for TinyStories."
)
