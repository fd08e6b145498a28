"""From a call to a launch: the grid, and the value of every parameter that a kernel's components declared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilekit.assembly.types import B16, B32, F32, GMEM, MAP, S32, U32, U64, RegisterType
from tilekit.assembly.writer import Parameter
from tilekit.emulator.core.errors import shown
from tilekit.errors import ArgumentError
from tilekit.runtime import parameters as runtime
from tilekit.tiles.call import Call, Schedule

_KINDS: dict[RegisterType, Callable[[Any], runtime.Parameter]] = {
    U32: runtime.U32,
    S32: runtime.S32,
    B32: runtime.U32,
    U64: runtime.U64,
    F32: runtime.F32,
    GMEM: runtime.Pointer,
    B16: runtime.U16,
}
"""Of each of `PARAMETER_TYPES`."""


@dataclass(frozen=True)
class Launch:
    """Everything one launch needs.

    Attributes
    ----------
    grid
        CTAs.
    parameters
        In order.
    tiles
        Cluster tiles.
    """

    grid: int
    parameters: tuple[runtime.Parameter, ...]
    tiles: int


def bind_parameters(parameters: Sequence[Parameter], schedule: Callable[[Call], Schedule], call: Call) -> Launch:
    """Schedule a launch, and ask every parameter for its value.

    Raises
    ------
    ArgumentError
        ``TK-MM-015`` where a tensor is too large for a tensor map or an index, ``TK-PAR-003`` for a parameter that
        follows from something the call does not have, or that says not what it follows from.
    """
    covers = schedule(call)
    if not isinstance(covers, Schedule):
        name = getattr(schedule, "__qualname__", "schedule")
        said = f"{name} returned {shown(covers)}; legal: a Schedule, of clusters and tiles"
        raise ArgumentError(said, code="TK-COMP-004")
    call = call.covered(covers)
    return Launch(call.ctas, tuple(_value(parameter, call) for parameter in parameters), call.schedule.tiles)


def require_value(parameter: Parameter) -> Callable[[Call], Any]:
    """How the parameter's value follows from a call.

    Raises
    ------
    ArgumentError
        ``TK-PAR-003`` where it does not say.
    """
    if parameter.value is None:
        raise ArgumentError(
            f"kernel parameter {parameter.name!r} does not say how its value follows from a call: declare it with "
            f"w.parameter({parameter.name!r}, {parameter.type}, lambda call: ...)",
            code="TK-PAR-003",
        )
    return parameter.value


def _value(parameter: Parameter, call: Call) -> runtime.Parameter:
    value: runtime.Parameter = require_value(parameter)(call)
    if parameter.type is MAP:
        return value
    try:
        return _KINDS[parameter.type](value)
    except ArgumentError as error:
        raise ArgumentError(f"kernel parameter {parameter.name!r}: {error.message}", code=error.code) from None
