"""The experiments of SWIFT's paper (arXiv 2410.06916), and some of ours on the same streams."""
