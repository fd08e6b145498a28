"""What each instruction does, family by family."""

from tilekit.emulator.gcn.ops import (
    compare,
    control,
    convert,
    cross_lane,
    floating,
    integer,
    lds,
    matrix,
    memory,
    packed,
    scalar,
    sums,
)
from tilekit.emulator.gcn.ops.table import OPS

__all__ = ["OPS"]

_FAMILIES = (compare, control, convert, cross_lane, floating, integer, lds, matrix, memory, packed, scalar, sums)
