"""A kernel ready to run: decoded instructions, blocks, uniformity, where each register and variable lives."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tilekit.emulator.core.arithmetic import lanes
from tilekit.emulator.core.memory.memory import PARAM_WINDOW, RESERVED_SHARED
from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler
from tilekit.emulator.ptx.compiler.block_registers import representation
from tilekit.emulator.ptx.compiler.control_flow import build_control_flow, members
from tilekit.emulator.ptx.compiler.uniformity import analyse_uniformity
from tilekit.emulator.ptx.compiler.unwritten import Watched
from tilekit.emulator.ptx.compiler.webs import split_webs
from tilekit.emulator.ptx.execution import lockstep_memory, lockstep_warps
from tilekit.emulator.ptx.execution.convergence import require_together
from tilekit.emulator.ptx.execution.warp import POISON, SPLIT, WAIT, YIELD
from tilekit.emulator.ptx.language.forms import Decoded
from tilekit.emulator.ptx.language.independent import independent
from tilekit.emulator.ptx.language.special_registers import IN_LOCKSTEP, SPECIAL_REGISTERS
from tilekit.emulator.ptx.language.syntax import (
    Function,
    Instruction,
    Procedure,
    Register,
    RegisterOperand,
    SymbolOperand,
    Variable,
    VectorOperand,
)
from tilekit.emulator.ptx.matrix.tensor_order import touch_loading
from tilekit.emulator.ptx.matrix.wgmma_queue import touch_in_flight

if TYPE_CHECKING:
    from tilekit.emulator.ptx.chips import Chip


_LOCKSTEP_HELPERS = (
    lockstep_memory.load_uniform,
    lockstep_memory.load_lanes,
    lockstep_memory.store_lanes,
    lockstep_warps.bar_sync,
    lockstep_warps.require_members,
    lockstep_warps.require_together,
)
"""What generated code calls instead of the functions of these names, where many warps run together."""


def base_namespace(warps: int) -> dict[str, Any]:
    """What generated code may name besides the helpers that emitters add, where ``warps`` run together."""
    names = {name: getattr(lanes, name) for name in dir(lanes) if not name.startswith("_")} | lanes.sized(warps)
    for kind in (
        "uint8",
        "int8",
        "uint16",
        "int16",
        "float16",
        "uint32",
        "int32",
        "float32",
        "uint64",
        "int64",
        "float64",
    ):
        names[kind] = getattr(np, kind)
    for function in ("where", "copyto", "minimum", "maximum", "abs", "fmin", "fmax", "rint", "array", "count_nonzero"):
        names[function] = getattr(np, function)
    names.update(WAIT=WAIT, SPLIT=SPLIT, YIELD=YIELD, np=np)
    names.update(touch_in_flight=touch_in_flight, require_together=require_together)
    if warps > 1:
        names |= {helper.__name__: helper for helper in _LOCKSTEP_HELPERS}
    return names


class Program:
    """One kernel, analysed for one kind of block shape.

    Attributes
    ----------
    code
        Decoded instructions.
    each_access
        Whether every access to memory is made by itself, in the text's order, and what lanes learn from each other is
        kept: for checks and observers, which look at them.
    warps, lanes
        How many run together: one warp of 32 lanes, or a lockstep group.
    special_registers
        As what runs together sees them.
    homes
        Array type each register is kept in between blocks, such as ``f32``, by register number.
    tile_rows
        Rows of the warp's tile file that the registers of wgmma and tcgen05.ld occupy, by register number.
    fences_tensor_memory
        Whether the text has any ``tcgen05.fence``, and so keeps to the rules of tcgen05's memory model.
    uses_wait
        Whether it uses registers that an asynchronous unit writes after the wait only, see `tensor_order`.
    poison
        What a warp's registers hold before they are written.
    independent
        Whether its warps cannot tell what the others do.
    watched
        Reads of registers that may come before anything has written them.
    full, masked
        Compiled block functions, filled on first use.
    polling_blocks
        Whether a block, left for a join, is in a loop that polls memory, filled on first use.
    register_loops
        Whether a block is in a loop that looks at registers only, filled on first use.
    common_work
        Whether a block is for whole warps, and the registers it writes once for all lanes, filled on first use.
    """

    def __init__(
        self,
        function: Function,
        code: list[Decoded],
        chip: Chip,
        addresses: dict[str, int],
        *,
        aligned_warps: bool,
        warps: int = 1,
        each_access: bool = True,
    ) -> None:
        self.name = function.name
        self.each_access = each_access
        self.warps = warps
        self.lanes = 32 * warps
        self.special_registers = SPECIAL_REGISTERS if warps == 1 else IN_LOCKSTEP
        self.function = function
        self.chip = chip
        self._addresses = addresses
        first_flow = build_control_flow(code, function.procedures)
        self.code, self.registers = split_webs(code, first_flow, function.registers)
        code = self.code
        self.flow = build_control_flow(code, function.procedures)
        self.procedures = {procedure.name: procedure for procedure in function.procedures}
        self.uniformity = analyse_uniformity(
            code,
            self.flow.blocks,
            self.special_registers,
            aligned_warps=aligned_warps and warps == 1,
            varying=self._procedure_registers(),
            lockstep=warps > 1,
        )
        self.namespace = base_namespace(warps)
        self.tile_rows: dict[int, int] = {}
        self._place_tiles()
        self.homes = self._choose_homes()
        self.poison = [POISON[home] if warps == 1 else np.tile(POISON[home], warps) for home in self.homes]
        self.fences_tensor_memory = any(d.form.opcode == "tcgen05" and "fence" in d["op"] for d in code)
        self.uses_wait = self.fences_tensor_memory or not any(map(_loads_tensor_memory, code))
        self.independent = independent(code)
        self.watched = Watched(self)
        self.tile_row_count = len(self.tile_rows)
        count = len(self.flow.blocks)
        self.full: list[Any] = [None] * count
        self.masked: list[Any] = [None] * count
        self.sources: dict[tuple[int, bool], str] = {}
        self.polling_blocks: dict[tuple[int, int], bool] = {}
        self.register_loops: dict[int, bool] = {}
        self.common_work: dict[int, tuple[bool, int]] = {}
        self.layout = SharedLayout(function, code)
        self.local_bytes = _place(v for v in function.variables if v.space in ("local", "frame"))
        self._framed: set[int] = set()
        for procedure in function.procedures:
            procedure.frame_bytes = _place(procedure.variables)
            self._framed |= {id(variable) for variable in procedure.variables}

    # -- registers ---------------------------------------------------------------------------------------------------

    def is_uniform(self, register: Register) -> bool:
        """Whether the register is kept as one Python value."""
        if register.number in self.tile_rows or register.bits > 64:
            return False
        return self.uniformity.is_uniform(register.number)

    def is_contested(self, register: Register) -> bool:
        """Whether inactive lanes must keep their value when a part of the warp writes the register."""
        return bool(self.uniformity.contested >> register.number & 1) or register.number in self.tile_rows

    def read_from(self, block: int) -> list[int]:
        """Numbers of the registers whose values may be read by who goes on at a block; none behind the last one."""
        blocks = self.flow.blocks
        return members(blocks[block].live_in) if 0 <= block < len(blocks) else []

    def home_tag(self, register: Register) -> str:
        """Representation in which the register's array is kept: ``u``, ``s``, ``f`` or ``b``."""
        return self.homes[register.number][0]

    def _place_tiles(self) -> None:
        """Give what asynchronous units write consecutive rows, and wgmma's A fragments rows after them."""
        for position in (0, 1):
            for decoded in self.code:
                loads = _loads_tensor_memory(decoded) and position == 0
                if not (loads or decoded.form.opcode == "wgmma") or len(decoded.operands) <= position:
                    continue
                if loads:
                    self.namespace["touch_in_flight"] = touch_loading
                operand = decoded.operands[position]
                if isinstance(operand, VectorOperand):
                    for item in operand.items:
                        if isinstance(item, RegisterOperand):
                            self.tile_rows.setdefault(item.register.number, len(self.tile_rows))

    def _choose_homes(self) -> list[str]:
        votes: list[Counter[str]] = [Counter() for _ in self.registers]
        for decoded in self.code:
            kind = decoded.get("type") or decoded.get("dtype")
            if not kind or kind not in ("f32", "f64", "f16", "s32", "s64", "s16"):
                continue
            tag, bits = representation(kind)
            for register in (*decoded.defs, *decoded.uses):
                if register.bits == bits:
                    votes[register.number][tag] += 1
        homes = []
        for register, vote in zip(self.registers, votes, strict=True):
            if register.type == "pred":
                homes.append("b1")
            elif register.bits in (16, 32, 64) and vote and register.number not in self.tile_rows:
                uses = sum(vote.values())
                tag, most = vote.most_common(1)[0]
                homes.append(f"{tag if most * 2 > uses else 'u'}{register.bits}")
            else:
                homes.append(f"u{register.bits}")
        return homes

    # -- variables ---------------------------------------------------------------------------------------------------

    def symbol_expression(self, variable: Variable, addend: int) -> str:
        """Python expression for a variable's address in its own space (generic for parameters and global memory)."""
        if variable.space == "shared":
            return f"(w.cta.shared_base + {self.layout.offset(variable) + addend})"
        if variable.space == "param":
            return str(PARAM_WINDOW + variable.offset + addend)
        if id(variable) in self._framed:
            return f"(w.fragment.frame + {variable.offset + addend})"
        if variable.space in ("local", "frame"):
            return str(variable.offset + addend)
        return str(self._addresses[variable.name] + addend)

    # -- procedures --------------------------------------------------------------------------------------------------

    def procedure_at(self, position: int) -> Procedure | None:
        """The procedure that an instruction belongs to; None for the kernel's own."""
        return next((p for p in self.procedures.values() if p.start <= position < p.end), None)

    def frame_bytes(self, position: int) -> int:
        """Size of the frame that an instruction's function has."""
        procedure = self.procedure_at(position)
        return self.local_bytes if procedure is None else procedure.frame_bytes

    @cached_property
    def tile_registers(self) -> tuple[int, ...]:
        """Numbers of the registers in the tile file, by row."""
        return tuple(sorted(self.tile_rows, key=self.tile_rows.__getitem__))

    @cached_property
    def procedure_of_address(self) -> dict[int, Procedure]:
        """The procedures by what a pointer to them holds."""
        return {procedure.address: procedure for procedure in self.procedures.values()}

    def _procedure_registers(self) -> int:
        """Bit set of the registers of procedures: each lane has its own, since lanes may be in different calls."""
        found = 0
        for procedure in self.procedures.values():
            for decoded in self.code[procedure.start : procedure.end]:
                for register in (*decoded.defs, *decoded.uses):
                    found |= 1 << register.number
        return found

    # -- code --------------------------------------------------------------------------------------------------------

    def compile_block(self, index: int, *, masked: bool) -> Any:
        """The function of a block, compiled on first use."""
        source, code = BlockCompiler(self, self.flow.blocks[index], masked=masked).compile()
        self.sources[index, masked] = source
        scope: dict[str, Any] = {}
        exec(code, self.namespace, scope)
        function = scope["block"]
        (self.masked if masked else self.full)[index] = function
        return function

    def last_instruction(self, block: int) -> int:
        """Position of a block's last instruction."""
        return self.flow.blocks[block].end - 1

    def instruction(self, position: int) -> Instruction:
        """The instruction at a position of the code."""
        return self.code[position].instruction


def _loads_tensor_memory(decoded: Decoded) -> bool:
    return decoded.form.opcode == "tcgen05" and decoded["op"] == "ld"


class SharedLayout:
    """Where a kernel's shared variables lie: static ones from the first usable byte, then dynamic memory."""

    def __init__(self, function: Function, code: list[Decoded]) -> None:
        used = {id(v): v for v in function.variables if v.space == "shared"}
        for decoded in code:
            for operand in decoded.operands:
                base = getattr(operand, "base", operand)
                if isinstance(base, SymbolOperand) and base.variable.space == "shared":
                    used[id(base.variable)] = base.variable
        static = [v for v in used.values() if not v.external or v.size]
        dynamic = [v for v in used.values() if v.external and not v.size]
        self.static_bytes = _place(static, RESERVED_SHARED) - RESERVED_SHARED
        align = max([16, *(v.align for v in dynamic)])
        base = RESERVED_SHARED + self.static_bytes
        self.dynamic_base = -(-base // align) * align
        self._offsets = {id(v): v.offset for v in static} | {id(v): self.dynamic_base for v in dynamic}
        self._static = static

    def offset(self, variable: Variable) -> int:
        """Offset of a variable in the CTA's shared memory."""
        return self._offsets[id(variable)]

    def static_variable(self, name: str) -> Variable | None:
        """The static variable of a name."""
        return next((variable for variable in self._static if variable.name == name), None)

    def static_name(self, offset: int) -> str:
        """Static variable that a byte belongs to, with its offset inside; empty in dynamic memory."""
        for variable in self._static:
            if variable.offset <= offset < variable.offset + variable.size:
                inside = offset - variable.offset
                return f"{variable.name}+{inside:#x}" if inside else variable.name
        return ""

    def total_bytes(self, dynamic: int) -> int:
        """Shared memory of a CTA without the reserved kilobyte."""
        return self.dynamic_base - RESERVED_SHARED + dynamic


def _place(variables: Any, start: int = 0) -> int:
    """Lay variables out one after another; returns the end."""
    for variable in variables:
        start = -(-start // variable.align) * variable.align
        variable.offset = start
        start += variable.size
    return start


def place_parameters(function: Function) -> int:
    """Lay out a kernel's parameters as the driver's parameter block has them; returns its size."""
    return _place(function.parameters)
