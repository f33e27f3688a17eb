"""What the card itself delivers, by the engine's own probe: what later parts compare their reads with."""

from __future__ import annotations

import argparse

import record

import swiftk


def main() -> None:
    given = record.options(argparse.ArgumentParser(description=__doc__)).parse_args()
    with record.Part("hardware", given) as part:
        model = swiftk.load(swiftk.demo_model(), device=given.device).model
        for _ in range(1 if given.tiny else 3):  # the best of several: others may use the card
            reads, flops = model.probe()
            part.keep("read_bytes_per_s", max(part.found["figures"].get("read_bytes_per_s", 0), reads))
            part.add("card", "reads", part.found["figures"]["read_bytes_per_s"] / 1e9, "GB/s")
            part.add("card", "multiply-adds", flops / 1e12, "TFLOP/s")


if __name__ == "__main__":
    main()
