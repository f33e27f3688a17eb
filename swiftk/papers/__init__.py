"""Searches as the papers describe them: SWIFT, Self-Speculative Decoding, and a Bayesian step for both."""
