"""A kernel as lowering leaves it, made shorter: the passes over `Code`, and their order."""

from __future__ import annotations

from functools import partial

from tilekit.assembly.errors import RegisterError
from tilekit.assembly.gcn.argument_loads import with_late_argument_loads, with_wide_argument_loads
from tilekit.assembly.gcn.code import Code
from tilekit.assembly.gcn.constants import with_constants
from tilekit.assembly.gcn.copies import with_copies_read_through
from tilekit.assembly.gcn.dead import without_dead
from tilekit.assembly.gcn.finish import Finished, finish
from tilekit.assembly.gcn.folds import with_folds
from tilekit.assembly.gcn.offsets import with_shifted_offsets

__all__ = ["finish_improved", "improved"]


def improved(code: Code) -> Code:
    """Return a kernel that does the same with fewer instructions; registers have no place yet."""
    code = with_shifted_offsets(with_constants(code))
    code = with_folds(without_dead(with_copies_read_through(code)))
    return without_dead(with_copies_read_through(code))


def finish_improved(code: Code, *, chip: str, waves_per_simd: int | None = None) -> Finished:
    """Finish the shortest kernel that has room: arguments side by side, and operands read later, hold registers longer.

    Where none has, arguments are loaded where they are read, and no sooner; at last those of inner loops, too.

    Raises
    ------
    RegisterError
        Where not even the kernel as it is has room (``TK-REG-001``).
    """
    shorter = improved(code)
    for change in (
        with_wide_argument_loads,
        lambda code: code,
        with_late_argument_loads,
        partial(with_late_argument_loads, before_loops=True),
    ):
        try:
            return finish(change(shorter), chip=chip, waves_per_simd=waves_per_simd)
        except RegisterError:
            continue
    return finish(code, chip=chip, waves_per_simd=waves_per_simd)
