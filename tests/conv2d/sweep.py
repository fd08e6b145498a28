"""Run generated convolutions of fresh seeds on the emulator: `python -m tests.conv2d.sweep 500 1000 sm_90a sm_80`.

The arguments are how many seeds, the first one, and the chips, all if none is named. Prints what went wrong, and how
many cases were of which kernel; exits with 1 if anything was wrong.
"""

from __future__ import annotations

import sys
from collections import Counter

from tests.conv2d.convolutions import CONFIGS, drawn
from tilekit.kernels.conv2d.arguments import ConvArguments


def main(count: int, first: int, *chips: str) -> int:
    """Run so many seeds from `first` on, on each of the chips."""
    wrong, kernels = 0, Counter[str]()
    for seed in range(first, first + count):
        for chip in chips or CONFIGS:
            case = drawn(seed, chip)
            arrays = case.arrays()
            arguments = ConvArguments.parse(arrays["x"], arrays["w"], target=chip, **case.keywords)
            spec = arguments.spec
            kernels[f"{chip} {', '.join(spec.swaps) or 'matmul'}"] += 1
            try:
                case.run(seed=seed)
            except Exception as error:
                wrong += 1
                print(f"{case}: {case!r}\n  {type(error).__name__}: {str(error)[:2000]}", flush=True)
    for name, cases in kernels.most_common():
        print(f"{cases:6} {name}")
    print(f"{sum(kernels.values())} cases, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
