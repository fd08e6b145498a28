"""A case of any kind, run on the emulator or on a GPU and held to float64 of each entry's own queries and keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.attention.cases import Called, largest_errors
from tilekit.kernels.attention.arguments import AttentionArguments
from tilekit.kernels.attention.compiled import chosen

MOST_UNITS = 4.0
"""How far an element may be off, in units of rounding."""


def run(case: Called, *, seed: int = 0, target: str = "sm_90a", config: Any = None, **emulator: Any) -> Any:
    """Run a case on the emulator into poisoned outputs, and return these; the seed is of operands and interleaving."""
    given, _ = case.call(seed)
    out, lse = case.outputs()
    arguments = AttentionArguments.parse(**given, out=out, lse=lse, target=target, **case.options)
    chosen(arguments, config).plan(arguments, seed=seed, **emulator)()
    return out, lse


def check(case: Called, *, seed: int = 0, **how: Any) -> Any:
    """Run a case on the emulator and hold it to float64; return the output."""
    out, lse = run(case, seed=seed, **how)
    error, wrong = largest_errors(case, case.call(seed)[1], out, lse)
    assert error < MOST_UNITS
    assert wrong < (1e-4 if "softcap" not in case.options else 2e-3 * case.options["softcap"])
    return out


def check_on_gpu(cases: Iterable[Called]) -> None:
    """Run cases on the GPU, and hold each to float64."""
    from tests.attention.gpu_check import checked, most_wrong

    for number, case in enumerate(cases):
        error, wrong = checked(case, number)
        assert error < MOST_UNITS, case
        assert wrong < most_wrong(case), case
