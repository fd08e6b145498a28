"""Judge mutations of block-scaled products: `python -m tests.mutations.sweep_scaled`.

It takes five minutes on a core; with `--page` only the table of docs/mutations.md is written, from the results that are
there.
"""

from __future__ import annotations

import sys

from .judge import judge
from .recorded import RecordedSweep, Row
from .scaled import scaled_cases, scaled_mutations, why_unnoticed


def judged(launch: str) -> list[Row]:
    """Launch, family, name and verdict of each of its mutations that is tried."""
    case = scaled_cases()[launch]
    return [(launch, m.family, m.name, judge(case, m).caught) for m in scaled_mutations(case)]


def product(launch: str) -> str:
    """Shape and format."""
    case = scaled_cases()[launch]
    return f"{'x'.join(map(str, case.shape))} of {case.kind}"


SWEEP = RecordedSweep(
    "scaled",
    "Mutations of block-scaled products",
    launches=scaled_cases,
    about=("product", product),
    judged=judged,
    why_unnoticed=why_unnoticed,
)

if __name__ == "__main__":
    SWEEP.main(*sys.argv[1:])
