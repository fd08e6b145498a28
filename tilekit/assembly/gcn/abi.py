"""What a kernel is handed: initial registers, and the kernarg segment (LLVM, User Guide for AMDGPU)."""

from __future__ import annotations

from dataclasses import dataclass

from tilekit.assembly.errors import TraceError
from tilekit.assembly.gcn.code import Part, Virtual
from tilekit.assembly.trace import Placement, Trace
from tilekit.assembly.types import MAP

GIVEN = ("kernarg", "workgroup", "workitem", "block_count")
"""What a fragment may ask for: the kernarg segment's address, the workgroup's index (both scalars), the work-item's
(x in the lower 10 bits), and the offset in the kernarg segment of the count of workgroups."""

USER_SGPRS = 2
"""The kernarg segment's address."""

_SEGMENT_ALIGNMENT = 8


@dataclass(frozen=True)
class Argument:
    """One argument of the kernarg segment."""

    name: str
    offset: int
    size: int
    kind: str
    address_space: str = ""


class KernelAbi:
    """Initial registers and arguments of one kernel.

    Parameters
    ----------
    trace
        The kernel.

    Attributes
    ----------
    arguments
        In order, hidden ones behind the others.
    offsets
        Of parameters, by name.
    chip
        The chip's name.

    Raises
    ------
    TraceError
        ``TK-TARGET-003`` for a tensor map.
    """

    def __init__(self, trace: Trace) -> None:
        self.chip = trace.target.name
        self.kernarg = Virtual("kernarg", "scalar", 2, 2, fixed=0)
        self.workgroup = Virtual("workgroup", "scalar", fixed=USER_SGPRS)
        self.workitem = Virtual("workitem", "vector", fixed=0)
        self.arguments: list[Argument] = []
        end = 0
        for parameter in trace.parameters:
            type_ = parameter.type
            if type_ is MAP:
                raise TraceError(
                    f"kernel {trace.name!r} has the {type_} parameter {parameter.name!r}, and {trace.target.name} has "
                    "no copy engine; nearest: a gmem parameter",
                    code="TK-TARGET-003",
                )
            size = type_.bits // 8
            offset = _aligned(end, max(size, 4))  # scalar loads bring whole words
            pointer = type_.space == "global"
            kind = "global_buffer" if pointer else "by_value"
            self.arguments.append(Argument(parameter.name, offset, size, kind, "global" if pointer else ""))
            end = offset + size
        self.offsets = {argument.name: argument.offset for argument in self.arguments}
        placed = (line.statement.fragment for line in trace.body.lines() if isinstance(line.statement, Placement))
        if any("block_count" in fragment.given for fragment in placed):
            offset = _aligned(end, 8)
            self.arguments.append(Argument("", offset, 4, "hidden_block_count_x"))
            end = offset + 4
        self._end = end

    @property
    def size(self) -> int:
        """Bytes of the kernarg segment."""
        return _aligned(self._end, _SEGMENT_ALIGNMENT)

    def given(self, name: str) -> Part | str:
        """What stands for a name of `GIVEN`."""
        if name == "block_count":
            return str(self.arguments[-1].offset)
        register: Virtual = getattr(self, name)
        return Part(register, 0, register.words)


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment
