"""What the operands of an instruction may be, beyond their kind: rules for many forms, and the ranges of constants.

Source: PTX ISA, sections 6.2 to 6.5 and 9.4.

The table of forms says which operands there are; widths are checked where code is made of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilekit.emulator.ptx.language.modifier_rules import modifier_problem
from tilekit.emulator.ptx.language.special_registers import SPECIAL_REGISTERS
from tilekit.emulator.ptx.language.syntax import (
    TYPE_BYTES,
    AddressOperand,
    Immediate,
    Operand,
    PairOperand,
    Register,
    RegisterOperand,
    Sink,
    SpecialRegister,
    SymbolOperand,
    VectorOperand,
)

if TYPE_CHECKING:
    from tilekit.emulator.ptx.language.forms import Decoded

_READS_SPECIAL = ("mov", "cvt")
"""Instructions that read a special register."""
_READS_SYMBOL = {"mov", "cvta", "mapa", "getctarank", "isspacep", "call", "tex", "suld", "sust", "sured", "txq", "suq"}
"""Instructions that take the address of a variable as a value; the refused ones are refused elsewhere."""
_DISCARDS = {"atom", "elect", "mbarrier", "match", "shfl", "setp", "add", "sub", "vote", "activemask"}
"""Instructions whose result may be ``_``."""
_LEADING = {
    "mul": "half", "mad": "half", "mul24": "half", "mad24": "half", "mbarrier": "op", "cvta": "to", "shf": "direction",
    "bar": "cta level op", "barrier": "cta level op", "fence": "kind", "membar": "kind", "tcgen05": "op", "wgmma": "op",
}  # fmt: skip
"""Groups of modifiers that belong to the name of the instruction: they come first, in this order."""

_ARITHMETIC = (
    *("add", "sub", "mul", "div", "rem", "min", "max", "neg", "abs", "and", "or", "xor", "not", "cnot", "mad", "fma"),
    *("sad", "copysign", "mov", "prmt", "lop3"),
)
_TYPED = {
    **dict.fromkeys(_ARITHMETIC, "tttt"),
    "setp": ".tt.", "selp": "ttt.", "ld": "t", "ldu": "t", "st": ".t", "atom": "t.tt", "red": ".tt", "redux": "tti",
    "popc": "it", "clz": "it", "bfind": "it", "bfe": "ttii", "bfi": "tttii", "dp4a": "iiii", "dp2a": "iiii",
    "mapa": "iii", "cvta": "ii", "isspacep": ".i", "mbarrier": "iiii", "bar": "iii", "barrier": "iii", "vote": "..i",
    "elect": "ii", "nanosleep": "i", "cp": "iiiiii", "wgmma": ".ii", "set": ".tt", "brev": "tt", "sqrt": "tt",
    "rsqrt": "tt",
    "rcp": "tt", "ex2": "tt", "lg2": "tt",
    "sin": "tt", "cos": "tt", "tanh": "tt", "testp": ".t", "shl": "tt#", "shr": "tt#",
}  # fmt: skip
"""Operands that have the type of the instruction (``t``), count bits (``#``) or are integers (``i``)."""

_INTEGERS = {sign + bits for sign in "us" for bits in ("8", "16", "32", "64")}
_SPACES = {
    **dict.fromkeys(("shared", "shared::cta", "shared::cluster"), ("shared",)),
    "global": ("global",), "const": ("const",), "local": ("local",), "param": ("param", "frame"),
    "param::entry": ("param",), "param::func": ("param", "frame"), "generic": ("global", "shared", "local"),
}  # fmt: skip
"""Where variables must lie that are named as an address in each state space."""
_WIDE_SPACES = ("generic", "global")
"""State spaces whose addresses take 64 bits."""


def problem(decoded: Decoded) -> str:
    """What is wrong with the operands of an instruction; empty when nothing is."""
    form = decoded.form
    opcode = form.opcode
    if opcode in _LEADING and (found := _order(decoded)):
        return found
    for position, (kind, operand) in enumerate(zip(form.operands, decoded.operands, strict=False)):
        if isinstance(operand, AddressOperand):
            found = _address(decoded, operand, position) or _vector(opcode, operand.coordinates or ())
        elif isinstance(operand, SpecialRegister):
            found = (
                "" if opcode in _READS_SPECIAL else f"mov {operand.name} to a register first: {opcode} does not read it"
            )
        elif isinstance(operand, SymbolOperand):
            found = _symbol(decoded, operand)
        elif isinstance(operand, Sink):
            allowed = kind[0] != "d" or opcode in _DISCARDS
            found = "" if allowed else "the result cannot be dropped: name a register instead of _"
        elif isinstance(operand, VectorOperand):
            found = _vector(opcode, operand.items) or (_words(operand) if opcode == "tcgen05" else "")
        else:
            found = ""
        if found:
            return found
    if (roles := _TYPED.get(opcode)) and (found := _types(decoded, roles)):
        return found
    if opcode == "cvt" and (found := _converted(decoded)):
        return found
    if found := modifier_problem(decoded):
        return found
    if opcode == "cp" and decoded.has("bulk") and (found := _bulk(decoded)):
        return found
    if opcode == "mma" and (found := _mixed(decoded)):
        return found
    if opcode == "wgmma" and (found := _wgmma(decoded)):
        return found
    if opcode in ("setp", "set") and decoded.has("bool") != (len(decoded.operands) == 4):
        return "a predicate behind the operands needs .and, .or or .xor, and they need it"
    if opcode in _MASKED and (found := _masked(decoded)):
        return found
    if opcode == "elect" and not isinstance(decoded.operands[0], PairOperand):
        return "the first operand names a register, or _, and a predicate: _|p"
    if opcode == "cvta" and decoded.get("type") == "u32":
        return "an address has 64 bits"
    if opcode in _RANGES and (found := _ranges(decoded)):
        return found
    return _hint(decoded)


def _symbol(decoded: Decoded, operand: SymbolOperand) -> str:
    """The address of a variable as a value."""
    opcode, variable = decoded.form.opcode, operand.variable
    if opcode not in _READS_SYMBOL or decoded.has("to"):
        return f"mov the address of {variable.name} to a register first"
    if variable.space == "frame":
        return f"{variable.name} is an argument or result of a call, which has no address"
    if opcode == "cvta" and variable.space not in _SPACES[decoded["space"]]:
        return f"{variable.name} is in .{variable.space}, and the instruction converts addresses in .{decoded['space']}"
    if opcode == "mov" and variable.space == "global" and decoded.get("type")[1:] == "32":
        return f"the address of {variable.name} in .global has 64 bits"
    return ""


def _order(decoded: Decoded) -> str:
    """Modifiers that are part of the name."""
    if decoded.get("half") == "wide" and decoded.get("type")[1:] == "64":
        return "a product of 64 bits is not widened: the type has 16 or 32 bits"
    names = [decoded[name] for name in _LEADING[decoded.form.opcode].split() if decoded.has(name)]
    written = list(decoded.instruction.modifiers[: len(names)])
    if names == written:
        return ""
    return f".{'.'.join(names)} comes first: {'.'.join([decoded.form.opcode, *names])}"


def _address(decoded: Decoded, operand: AddressOperand, position: int) -> str:
    base = operand.base
    space = _space(decoded, position)
    if space == "const" and decoded.form.opcode == "st":
        return "constant memory is not written"
    if isinstance(base, RegisterOperand):
        register = base.register
        if register.type[0] not in "bus" or register.bits == 128:
            return f"the address register {register.name} is .{register.type}: an address is an integer or bits"
        if space in _WIDE_SPACES and register.bits == 32:
            return f"an address in {_named(space)} has 64 bits, and {register.name} has 32"
        if space == "tensor" and register.bits != 32:
            return f"an address in tensor memory has 32 bits, and {register.name} has {register.bits}"
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


def _named(space: str) -> str:
    return "generic memory" if space == "generic" else f".{space}"


def _space(decoded: Decoded, position: int) -> str:
    """State space of an address; empty where no rule is known."""
    opcode = decoded.form.opcode
    if opcode in ("ld", "ldu", "st", "atom", "red", "prefetch", "prefetchu", "discard", "applypriority"):
        if decoded.has("async") or decoded.has("bulk"):
            return ""
        return decoded.get("space", "generic")
    if opcode == "cp" and not decoded.has("bulk") and decoded.has("dst"):
        return ("shared", "global")[position]
    if opcode in ("ldmatrix", "stmatrix"):
        return decoded.get("space")
    if opcode == "mbarrier":
        base = decoded.operands[position]
        variable = isinstance(base, AddressOperand) and isinstance(base.base, SymbolOperand)
        return decoded.get("space", "shared" if variable else "generic")
    if opcode == "tcgen05" and (position == 0 or decoded["op"] in ("mma", "ld")):
        return "tensor" if decoded["op"] in ("mma", "ld", "st", "cp", "shift") else ""
    return ""


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


def _words(operand: VectorOperand) -> str:
    """Registers of tensor memory have 32 bits."""
    items = (item.register for item in operand.items if isinstance(item, RegisterOperand))
    wrong = next((register for register in items if register.bits != 32), None)
    return f"register {wrong.name} has {wrong.bits} bits, and 32 are needed" if wrong is not None else ""


# -- types -------------------------------------------------------------------------------------------------------------


def _types(decoded: Decoded, roles: str) -> str:
    kind = decoded.get("type")
    if decoded.form.opcode in ("ld", "st") and kind in ("f32", "f64") and decoded.has("vec"):
        return ""  # ptxas lets the elements of a vector be integers
    if decoded.form.opcode in ("ld", "st"):
        for item in decoded.operands:
            if isinstance(item, RegisterOperand) and (item.register.type[0], kind[0]) == ("f", "f"):
                register = item.register
                if register.bits != 8 * TYPE_BYTES[kind]:
                    return f"register {register.name} is .{register.type}, the instruction's type is .{kind}"
    if decoded.get("half") == "wide":
        roles = "iiii"
    elif kind not in TYPE_BYTES:
        roles = roles.replace("t", ".")
    for role, operand in zip(roles, decoded.operands, strict=False):
        if role == "#" and isinstance(operand, Immediate) and operand.kind != "int":
            return "a number of bits is an integer"
        if role == "i":
            item = operand.first if isinstance(operand, PairOperand) else operand
            if isinstance(item, RegisterOperand) and item.register.type[0] == "f":
                return f"register {item.register.name} is .{item.register.type}, and an integer is needed"
            if isinstance(item, Immediate) and item.kind != "int":
                return "a floating-point number where an integer is needed"
        if role != "t":
            continue
        for item in _items(operand):
            if isinstance(item, RegisterOperand):
                if not _compatible(kind, item.register):
                    return f"register {item.register.name} is .{item.register.type}, the instruction's type is .{kind}"
            elif isinstance(item, Immediate) and (found := _literal(kind, item)):
                return found
            elif isinstance(item, SpecialRegister) and item is operand:
                bits = SPECIAL_REGISTERS[item.name].bits
                if kind[0] == "f" or (bits > 1 and bits != 8 * TYPE_BYTES[kind] and kind not in ("u16", "b16", "s16")):
                    return f"{item.name} is an integer of {bits} bits, the instruction's type is .{kind}"
    return ""


def _converted(decoded: Decoded) -> str:
    """The two types of ``cvt``."""
    kinds = [modifier for modifier in decoded.instruction.modifiers if modifier in TYPE_BYTES]
    if len(kinds) != 2:
        return ""
    for kind, operand in zip((kinds[0], *[kinds[1]] * 3), decoded.operands, strict=False):
        if isinstance(operand, RegisterOperand) and not _compatible(kind, operand.register):
            return f"register {operand.register.name} is .{operand.register.type}, its type here is .{kind}"
    return ""


def _items(operand: Operand) -> Iterator[Operand]:
    if isinstance(operand, VectorOperand):
        yield from operand.items
    elif isinstance(operand, PairOperand):
        yield operand.first
    else:
        yield operand


def _compatible(kind: str, register: Register) -> bool:
    """Whether a register may be used as a type: integers and floating-point numbers only agree with bits (9.4)."""
    given = register.type
    if kind in ("f32", "f64"):
        return given[0] in "fb"
    return not (kind in _INTEGERS and given[0] == "f")


def _literal(kind: str, constant: Immediate) -> str:
    if kind in ("f32", "f64"):
        return "" if constant.kind != "int" else f"an integer where the type is .{kind}: write {constant.value}.0"
    if constant.kind == "int" or kind[0] not in "bus" or kind == "bf16":
        return ""
    if (kind, constant.kind) in (("b32", "f32"), ("b64", "f64")):
        return ""
    return f"a floating-point number where the type is .{kind}"


_MASKED = {"shfl": 5, "vote": 3, "match": 3, "redux": 3}
"""Instructions of a warp, and how many operands they have where ``.sync`` names the lanes."""


def _masked(decoded: Decoded) -> str:
    opcode = decoded.form.opcode
    if any(isinstance(operand, Immediate) and operand.kind != "int" for operand in decoded.operands):
        return "a floating-point number where an integer belongs"
    if decoded.has("sync") != (len(decoded.operands) == _MASKED[opcode]):
        return f"{opcode}.sync ends with the mask of the lanes that take part, for example -1"
    return ""


# -- constants ---------------------------------------------------------------------------------------------------------

_RANGES = ("bar", "barrier", "createpolicy", "mbarrier")


def _ranges(decoded: Decoded) -> str:
    opcode, operation = decoded.form.opcode, decoded.get("op")
    if opcode == "createpolicy":
        return _fraction(decoded)
    constants = {n: each.value for n, each in enumerate(decoded.operands) if isinstance(each, Immediate)}
    if opcode == "mbarrier":
        if "expect_tx" in decoded.instruction.modifiers and isinstance(decoded.operands[-1], AddressOperand):
            return ".expect_tx ends with the number of bytes"
        if operation == "init" and not 1 <= constants.get(1, 1) < 1 << 20:
            return f"an mbarrier counts 1 to {(1 << 20) - 1} arrivals, not {constants[1]}"
        if operation in ("try_wait", "test_wait") and decoded.has("parity") and constants.get(2, 0) not in (0, 1):
            return f"a parity is 0 or 1, not {constants[2]}"
        return ""
    if decoded.has("level"):
        return ""
    number, count = (1, 2) if operation == "red" else (0, 1)
    if not 0 <= constants.get(number, 0) < 16:
        return f"a CTA has barriers 0 to 15, not {constants[number]}"
    if operation == "red" and len(decoded.operands) == 3:
        return ""
    threads = constants.get(count, 32)
    if threads % 32:
        return f"the threads of a barrier are a multiple of 32: {-(-threads // 32) * 32}, not {threads}"
    if operation == "arrive" and not threads:
        return "bar.arrive needs the number of threads that the barrier waits for"
    return ""


def _bulk(decoded: Decoded) -> str:
    for operand in decoded.operands:
        if isinstance(operand, AddressOperand) and operand.coordinates:
            for item in operand.coordinates:
                if isinstance(item, RegisterOperand) and item.register.bits != 32:
                    return f"a coordinate has 32 bits, and {item.register.name} has {item.register.bits}"
    if decoded.has("dst") and len(decoded.operands) > 2 and not decoded.has("tensor"):
        size = decoded.operands[2]
        if isinstance(size, Immediate) and size.value % 16:
            return f"a bulk copy has a multiple of 16 bytes: {-(-size.value // 16) * 16}, not {size.value}"
    return ""


def _mixed(decoded: Decoded) -> str:
    for operand in decoded.operands:
        types = {item.register.type for item in _items(operand) if isinstance(item, RegisterOperand)}
        if len(types) > 1:
            return f"registers of one vector have one type: not .{' and .'.join(sorted(types))}"
    return ""


def _wgmma(decoded: Decoded) -> str:
    operation, operands = decoded.get("op"), decoded.operands
    if operation == "mma_async" and isinstance(operands[3], Immediate) and operands[3].value not in (0, 1):
        return f"the factor of the accumulators is 0 or 1, not {operands[3].value}"
    if operation == "wait_group" and isinstance(operands[0], Immediate) and operands[0].value < 0:
        return f"a number of groups is not negative: {operands[0].value}"
    return ""


def _fraction(decoded: Decoded) -> str:
    last = decoded.operands[-1]
    if not decoded.form.notation.startswith("mode=fractional") or not isinstance(last, Immediate) or last.kind == "int":
        return ""
    code, size = ("<f", 4) if last.kind == "f32" else ("<d", 8)
    value = struct.unpack(code, last.value.to_bytes(size, "little"))[0]
    return "" if 0 < value <= 1 else f"a fraction lies between 0 and 1, and is not {value}"


def _hint(decoded: Decoded) -> str:
    """An operand more than the form needs is the policy of ``.L2::cache_hint``, and belongs to it."""
    operands = decoded.form.operands
    if not operands or not operands[-1].endswith("?") or decoded.form.opcode not in ("ld", "st", "atom", "red"):
        return ""
    given = len(decoded.operands) == len(operands)
    hinted = "L2::cache_hint" in decoded.instruction.modifiers
    if given == hinted:
        return ""
    return "a cache policy needs .L2::cache_hint" if given else ".L2::cache_hint needs a cache policy"
