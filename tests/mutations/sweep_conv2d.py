"""Judge every mutation of the loaders of convolutions: `python -m tests.mutations.sweep_conv2d`.

It takes ten minutes on two cores; with `--page` only the table of docs/mutations.md is written, from the results that
are there.
"""

from __future__ import annotations

import sys

from .conv2d import conv_cases, conv_mutations, why_unnoticed
from .judge import judge
from .recorded import RecordedSweep, Row


def judged(launch: str) -> list[Row]:
    """Launch, family, name and verdict of each of its mutations."""
    case = conv_cases()[launch]
    return [(launch, m.family, m.name, judge(case, m, change).caught) for m, change in conv_mutations(case)]


def convolution(launch: str) -> str:
    """Images and filters."""
    return conv_cases()[launch].shape


SWEEP = RecordedSweep(
    "conv2d",
    "Every mutation of the loaders of convolutions",
    launches=conv_cases,
    about=("convolution", convolution),
    judged=judged,
    why_unnoticed=why_unnoticed,
)

if __name__ == "__main__":
    SWEEP.main(*sys.argv[1:])
