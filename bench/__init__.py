"""Benchmarks of swiftk: README.md says what each study answers. `python -m bench.all` runs them."""
