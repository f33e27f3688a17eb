"""Arithmetic, and no measurement: tokens per second of a model of 8 B parameters in 16 bits on a machine with 8 GB. Its
int4 copy is in memory, and its layers are read from disk for each pass. Prints a table for swiftk/README.md."""

from __future__ import annotations

from swiftk.draft.cost import best_round

WEIGHTS, COPY = 15.0e9, 4.3e9  # bytes that a pass reads from disk; that a draft step reads in memory
DISKS, MEMORIES = (1e9, 3e9, 7e9), (30e9, 60e9)  # bytes per second
ACCEPTED = (0.8, 0.9, 0.95)  # of a chain's tokens, each, where those before it are
LONGEST = 63


def main() -> None:
    heads = ["disk, GB/s", "memory, GB/s", "plain, tokens/s", *(f"{one:.0%} accepted" for one in ACCEPTED)]
    print("| " + " | ".join(heads) + " |\n|" + "---:|" * len(heads))
    for disk in DISKS:
        for memory in MEMORIES:
            plain = disk / WEIGHTS
            found = (best_round(accepted, COPY / memory, WEIGHTS / disk, LONGEST) for accepted in ACCEPTED)
            cells = [f"{rate:.2f} ({rate / plain:.1f}x, {n})" for rate, n in found]
            print(f"| {disk / 1e9:.0f} | {memory / 1e9:.0f} | {plain:.2f} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
