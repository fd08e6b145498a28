"""What the operands of an instruction may be, beyond their kind: addresses, variables, special registers, vectors.

Source: PTX ISA, sections 6.2 to 6.5. The table of forms says which operands there are; their types and constants have
rules of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilekit.emulator.ptx.language.constant_rules import constant_problem
from tilekit.emulator.ptx.language.modifier_rules import modifier_problem
from tilekit.emulator.ptx.language.special_registers import SPECIAL_REGISTERS
from tilekit.emulator.ptx.language.syntax import (
    AddressOperand,
    Immediate,
    Operand,
    PairOperand,
    RegisterOperand,
    Sink,
    SpecialRegister,
    SymbolOperand,
    VectorOperand,
)
from tilekit.emulator.ptx.language.type_rules import type_problem

if TYPE_CHECKING:
    from tilekit.emulator.ptx.language.forms import Decoded

_READS_SPECIAL = ("mov", "cvt")
"""Instructions that read a special register."""
_READS_SYMBOL = {"mov", "cvta", "mapa", "getctarank", "isspacep", "call", "tex", "suld", "sust", "sured", "txq", "suq"}
"""Instructions that take the address of a variable as a value; the refused ones are refused elsewhere."""
_DISCARDS = {"atom", "elect", "mbarrier", "match", "shfl", "setp", "vote", "activemask"}
"""Instructions whose result may be ``_``."""
_SPACES = {
    **dict.fromkeys(("shared", "shared::cta", "shared::cluster"), ("shared",)),
    "global": ("global",), "const": ("const",), "local": ("local",), "param": ("param", "frame"),
    "param::entry": ("param",), "param::func": ("param", "frame"), "map": ("global",),
    "generic": ("global", "shared", "local"),
}  # fmt: skip
"""Where variables must lie that are named as an address in each state space."""
_WIDE_SPACES = ("generic", "global")
"""State spaces whose addresses take 64 bits."""


def problem(decoded: Decoded) -> str:
    """What is wrong with the operands of an instruction; empty when nothing is."""
    form = decoded.form
    opcode = form.opcode
    if found := modifier_problem(form, decoded.instruction.modifiers, tuple(decoded.fields.items())):
        return found
    for position, (kind, operand) in enumerate(zip(form.operands, decoded.operands, strict=False)):
        if isinstance(operand, RegisterOperand):
            found = _sum(decoded, operand) if kind[0] == "d" and "+" in operand.register.name else ""
        elif isinstance(operand, AddressOperand):
            found = _address(decoded, operand, position)
            if not found and operand.coordinates is not None:
                found = _vector(opcode, operand.coordinates) or _coordinates(decoded, operand.coordinates)
        elif isinstance(operand, SpecialRegister):
            found = (
                "" if opcode in _READS_SPECIAL else f"mov {operand.name} to a register first: {opcode} does not read it"
            )
        elif isinstance(operand, SymbolOperand):
            found = _symbol(decoded, operand)
        elif isinstance(operand, Sink):
            allowed = kind[0] != "d" or opcode in _DISCARDS
            found = "" if allowed else "the result cannot be dropped: name a register instead of _"
        elif isinstance(operand, PairOperand) and kind[0] == "d":
            found = _pair(operand)
        elif isinstance(operand, VectorOperand):
            found = _vector(opcode, operand.items) or (_words(operand) if opcode == "tcgen05" else "")
        else:
            found = ""
        if found:
            return found
    return type_problem(decoded) or constant_problem(decoded)


def _sum(decoded: Decoded, result: RegisterOperand) -> str:
    """``register + constant`` as a result; only the addition that the parser puts before its reader has it."""
    source, addend = (*decoded.operands, None, None)[1:3]
    if isinstance(source, RegisterOperand) and isinstance(addend, Immediate):
        made = f"{source.register.name}+{addend.value}"
        if decoded.form.opcode == "add" and result.register.name == made:
            return ""
    return f"the result is a register, not {result.register.name}"


def _pair(operand: PairOperand) -> str:
    """Two results: registers, of which one may be dropped."""
    if isinstance(operand.first, Sink) and isinstance(operand.second, Sink):
        return "both results are dropped: name a register"
    if all(isinstance(item, RegisterOperand | Sink) for item in (operand.first, operand.second)):
        return ""
    return "the two results are registers, or one of them _"


def _symbol(decoded: Decoded, operand: SymbolOperand) -> str:
    """The address of a variable as a value."""
    opcode, variable = decoded.form.opcode, operand.variable
    if opcode not in _READS_SYMBOL or decoded.has("to"):
        return f"mov the address of {variable.name} to a register first"
    if variable.space == "frame" and not variable.owned:
        return f"{variable.name} is an argument or result of a call, which has no address"
    if opcode == "cvta" and variable.space not in _SPACES[decoded["space"]]:
        return f"{variable.name} is in .{variable.space}, and the instruction converts addresses in .{decoded['space']}"
    if opcode == "mov" and decoded.get("type")[:1] == "f":
        return f"the address of {variable.name} is an integer"
    if opcode == "mov" and variable.space == "global" and decoded.get("type")[1:] == "32":
        return f"the address of {variable.name} in .global has 64 bits"
    return ""


def _address(decoded: Decoded, operand: AddressOperand, position: int) -> str:
    base = operand.base
    space = _space(decoded, position)
    if space == "const" and decoded.form.opcode == "st":
        return "constant memory is not written"
    if isinstance(base, RegisterOperand):
        register = base.register
        if register.type[0] not in "bus" or register.bits == 128:
            return f"the address register {register.name} is .{register.type}: an address is an integer or bits"
        if space in _WIDE_SPACES and register.bits == 32 and not _narrow(decoded):
            return f"an address in {_named(space)} has 64 bits, and {register.name} has 32"
        if space == "tensor" and (register.bits != 32 or register.type[0] == "s"):
            return f"an address in tensor memory is .b32 or .u32, and {register.name} is .{register.type}"
    elif isinstance(base, SpecialRegister):
        return f"mov {base.name} to a register first: it is no address"
    elif isinstance(base, Immediate):
        if space != "local":
            return "a constant is no address: mov it to a register"
    elif isinstance(base, SymbolOperand) and base.variable.space == "param" and decoded.form.opcode == "st":
        return f"{base.variable.name} is a parameter of the kernel, which it does not write"
    elif isinstance(base, SymbolOperand) and space in _SPACES and base.variable.space not in _SPACES[space]:
        lies = base.variable.space.replace("frame", "param")
        return f"{base.variable.name} is in .{lies}, and the instruction reaches {_named(space)}"
    return ""


def _narrow(decoded: Decoded) -> bool:
    """Whether ptxas takes 32 bits for any address of an instruction."""
    return decoded.form.opcode == "cp" or "tensormap" in decoded.instruction.modifiers


def _named(space: str) -> str:
    return {"generic": "generic memory", "map": "a tensor map in .global"}.get(space, f".{space}")


def _space(decoded: Decoded, position: int) -> str:
    """State space of an address; empty where no rule is known."""
    opcode = decoded.form.opcode
    if opcode in ("ld", "ldu", "st", "atom", "red", "prefetch", "prefetchu", "discard", "applypriority"):
        if decoded.has("async") or decoded.has("bulk"):
            return ""
        return decoded.get("space", "generic")
    if opcode == "cp":
        return _copied(decoded, position)
    if opcode in ("ldmatrix", "stmatrix"):
        return decoded.get("space")
    if opcode == "mbarrier":
        base = decoded.operands[position]
        variable = isinstance(base, AddressOperand) and isinstance(base.base, SymbolOperand)
        return decoded.get("space", "shared" if variable else "generic")
    if opcode == "tcgen05" and (position == 0 or decoded["op"] in ("mma", "ld")):
        if decoded["op"] == "alloc":
            return decoded.get("space")
        return "tensor" if decoded["op"] in ("mma", "ld", "st", "cp", "shift") else ""
    return ""


def _copied(decoded: Decoded, position: int) -> str:
    """State spaces of a copy: what is written, what is read, the mbarrier; a tensor map lies in global memory."""
    operand = decoded.operands[position]
    if isinstance(operand, AddressOperand) and operand.coordinates is not None:
        return "map"
    if position == 0 and decoded.has("dst"):
        return decoded["dst"]
    source = 1 if decoded.has("dst") else 0
    return decoded.get("src") if position == source else "shared"


def _vector(opcode: str, items: tuple[Operand, ...]) -> str:
    widths: dict[int, str] = {}
    for item in items:
        if isinstance(item, RegisterOperand):
            widths[item.register.bits] = item.register.name
        elif isinstance(item, SpecialRegister):
            widths[SPECIAL_REGISTERS[item.name].bits] = item.name
    if len(widths) > 1:
        first, other, *_ = widths.values()
        return f"{first} and {other} of one vector have different widths"
    if items and all(isinstance(item, Sink) for item in items) and opcode in ("ld", "mov", "ldu"):
        return "a vector of _ alone has no type: name a register"
    return ""


def _coordinates(decoded: Decoded, items: tuple[Operand, ...]) -> str:
    rows = decoded.get("mode") in ("tile::gather4", "tile::scatter4")
    wanted = 5 if rows else int(decoded.get("dim", "0")[0])
    if wanted and len(items) != wanted:
        return f"{wanted} coordinates are needed, and {len(items)} are given"
    for item in items:
        if isinstance(item, RegisterOperand) and (item.register.bits != 32 or item.register.type[0] == "f"):
            return f"a coordinate is an integer of 32 bits, and {item.register.name} is .{item.register.type}"
        if isinstance(item, Immediate) and item.kind != "int":
            return "a coordinate is an integer, not a floating-point number"
    return ""


def _words(operand: VectorOperand) -> str:
    """Registers of tensor memory have 32 bits."""
    for item in operand.items:
        if isinstance(item, SpecialRegister):
            return f"mov {item.name} to a register first: tcgen05 does not read it"
        if isinstance(item, RegisterOperand) and item.register.bits != 32:
            return f"register {item.register.name} has {item.register.bits} bits, and 32 are needed"
    return ""
