"""Types of operands: which registers and constants an instruction of a type takes.

Source: PTX ISA, sections 6.5 and 9.4. Integers and floating-point numbers agree only with bits; half precision and
smaller formats only with bits and with registers of their own type. Widths are checked where code is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from tilekit.emulator.ptx.language.special_registers import SPECIAL_REGISTERS
from tilekit.emulator.ptx.language.syntax import (
    TYPE_BYTES,
    AddressOperand,
    Immediate,
    Operand,
    PairOperand,
    Register,
    RegisterOperand,
    SpecialRegister,
    VectorOperand,
)

if TYPE_CHECKING:
    from tilekit.emulator.ptx.language.forms import Decoded, Form

_ARITHMETIC = (
    *("add", "sub", "mul", "div", "rem", "min", "max", "neg", "abs", "and", "or", "xor", "not", "cnot", "mad", "fma"),
    *("sad", "copysign", "mov", "prmt", "lop3"),
)
_VIDEO = ("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vmad", "vset", "vavrg")
_TYPED = {
    **dict.fromkeys(_ARITHMETIC, "tttt"),
    **dict.fromkeys((name + lanes for name in _VIDEO for lanes in ("", "2", "4")), "iiii"),
    "setp": ".tt.", "selp": "ttt.", "ld": "t", "ldu": "t", "st": ".t", "atom": "t.tt", "red": ".tt", "redux": "tti",
    "popc": "it", "clz": "it", "bfind": "it", "bfe": "ttii", "bfi": "tttii", "dp4a": "iiii", "dp2a": "iiii",
    "mapa": "iii", "cvta": "ii", "isspacep": ".i", "mbarrier": "iiii", "bar": "iii", "barrier": "iii", "vote": "..i",
    "elect": "ii", "nanosleep": "i", "cp": "iiiiii", "wgmma": ".ii", "set": "dtt", "brev": "tt", "sqrt": "tt",
    "rsqrt": "tt", "rcp": "tt", "ex2": "tt", "lg2": "tt", "slct": "dddt",
    "sin": "tt", "cos": "tt", "tanh": "tt", "testp": ".t", "shl": "tt#", "shr": "tt#", "cvt": "dttt",
    "brx": "w",
}  # fmt: skip
"""Operands that have the first type of the instruction (``d``) or the last (``t``), count bits (``#``), are integers
(``i``)."""
_MIXED = {"add": "dtd", "sub": "dtd", "fma": "dttd"}
"""The same of arithmetic in ``.f32`` on sources of half precision."""
_TCGEN05 = {"alloc": ".w", "dealloc": "ww", "cp": ".l", "commit": ".h"}
"""Operands of ``tcgen05`` that are integers of 16, 32 and 64 bits (``h``, ``w``, ``l``)."""
_BITS = {"h": 16, "w": 32, "l": 64}
_INTEGERS = {sign + bits for sign in "us" for bits in ("8", "16", "32", "64")}
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_PACKED = (*_HALVES, "tf32", "e4m3x2", "e5m2x2", "e2m1x2", "e2m3x2", "e3m2x2", "ue8m0x2")
"""Types that are held in registers of bits."""


def type_problem(decoded: Decoded) -> str:
    """What is wrong with the types of the operands; empty when nothing is."""
    opcode = decoded.form.opcode
    if opcode == "mma":
        return _fragments(decoded)
    roles = _roles(decoded.form, decoded.instruction.modifiers)
    if opcode == "tcgen05":
        roles = _tensor_roles(decoded)
    elif opcode == "mov":
        found = _packing(decoded)
        if found:
            return found
    elif opcode == "cp" and decoded.has("bulk"):
        roles = _bulk_roles(decoded)
    if opcode in ("ld", "st"):
        found, plain = _moved(decoded)
        if found or not plain:
            return found
    for (role, kind), operand in zip(roles, decoded.operands, strict=False):
        if role == ".":
            continue
        if isinstance(operand, RegisterOperand):
            wrong = _register(role, kind, operand.register.type)
            found = _why(role, kind, operand.register) if wrong else ""
        else:
            found = _agrees(role, kind, operand)
        if found:
            return found
    return ""


@lru_cache(4096)
def _roles(form: Form, modifiers: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """What each operand is, with the type it has to agree with."""
    roles = _TYPED.get(form.opcode, "")
    kinds = [name for name in modifiers if name in TYPE_BYTES or name in _PACKED]
    if len(kinds) == 2 and form.opcode in _MIXED:
        roles = _MIXED[form.opcode]
    if "wide" in modifiers and form.opcode in ("mul", "mad"):
        return (("i", ""),) * 4
    if form.opcode == "cvt" and len(kinds) != 2:
        return ()
    if not kinds or (form.opcode == "atom" and "b128" in kinds):
        return tuple((role if role in "iw#" else ".", "") for role in roles)
    return tuple((role, kinds[0] if role == "d" else kinds[-1]) for role in roles)


def _agrees(role: str, kind: str, operand: Operand) -> str:
    if isinstance(operand, AddressOperand):
        return ""
    if role == "#":
        constant = isinstance(operand, Immediate) and operand.kind != "int"
        return "a number of bits is an integer" if constant else ""
    for item in _items(operand):
        if isinstance(item, RegisterOperand):
            found = _why(role, kind, item.register)
        elif isinstance(item, Immediate):
            if role in "ihwl":
                found = "" if item.kind == "int" else "a floating-point number where an integer is needed"
            else:
                found = _literal(kind, item)
        elif isinstance(item, SpecialRegister) and item is operand and role in "dt":
            found = _special(kind, item)
        else:
            found = ""
        if found:
            return found
    return ""


@lru_cache(4096)
def _register(role: str, kind: str, given: str) -> bool:
    """Whether a register of a type is wrong: most instructions are alike."""
    return bool(_why(role, kind, Register("", given, 0)))


def _why(role: str, kind: str, register: Register) -> str:
    if role == "#":
        return ""
    return _integer(role, register) if role in "ihwl" else _of_type(kind, register)


def _integer(role: str, register: Register) -> str:
    if register.type[0] == "f":
        return f"register {register.name} is .{register.type}, and an integer is needed"
    if role != "i" and register.bits != _BITS[role]:
        return f"register {register.name} has {register.bits} bits, and {_BITS[role]} are needed"
    return ""


def _of_type(kind: str, register: Register) -> str:
    if _compatible(kind, register):
        return ""
    return f"register {register.name} is .{register.type}, the instruction's type is .{kind}"


def _compatible(kind: str, register: Register) -> bool:
    """Whether a register may be used as a type."""
    given = register.type
    if kind in ("f32", "f64"):
        return given[0] == "b" or (given[0] == "f" and given not in _HALVES)
    if kind in _PACKED:
        return given == kind or (given[0] == "b" and given not in _HALVES)
    return not (kind in _INTEGERS and given[0] == "f" and given[-2:] != "x2")


def _literal(kind: str, constant: Immediate) -> str:
    if kind in ("f32", "f64"):
        return "" if constant.kind != "int" else f"an integer where the type is .{kind}: write {constant.value}.0"
    if kind in _PACKED:
        return f"a constant where the type is .{kind}: mov it to a register"
    if constant.kind == "int" or kind[0] not in "bus" or (kind, constant.kind) in (("b32", "f32"), ("b64", "f64")):
        return ""
    return f"a floating-point number where the type is .{kind}"


def _special(kind: str, register: SpecialRegister) -> str:
    bits = SPECIAL_REGISTERS[register.name].bits
    if kind[0] == "f" or (bits > 1 and bits != 8 * TYPE_BYTES[kind] and kind not in ("u16", "b16", "s16")):
        return f"{register.name} is an integer of {bits} bits, the instruction's type is .{kind}"
    return ""


def _items(operand: Operand) -> Iterator[Operand]:
    if isinstance(operand, VectorOperand):
        yield from operand.items
    elif isinstance(operand, PairOperand):
        yield operand.first
    else:
        yield operand


def _registers(operand: Operand) -> list[Register]:
    return [item.register for item in _items(operand) if isinstance(item, RegisterOperand)]


def _element_types(operand: Operand) -> set[str]:
    """Types of what a vector consists of."""
    specials = {"u32" for item in _items(operand) if isinstance(item, SpecialRegister)}
    return specials | {register.type for register in _registers(operand)}


def _clash(types: set[str]) -> str:
    """Elements of a vector that differ in type are bits, unless they are of both kinds of numbers."""
    first = {name[0] for name in types}
    if "f" in first and first & {"u", "s"}:
        return "registers of one vector are integers or floating-point numbers, not both"
    return ""


# -- loads, stores, moves ----------------------------------------------------------------------------------------------


def _moved(decoded: Decoded) -> tuple[str, bool]:
    """What is wrong with the registers of a load or store, and whether they must also agree as those of arithmetic do.

    As in ptxas, elements of one vector that are stored may differ in type, and are bits then; and a vector of
    floating-point type may lie in integers of its width.
    """
    kind = decoded.get("type")
    stored = decoded.form.opcode == "st"
    vectors = [operand for operand in decoded.operands if isinstance(operand, VectorOperand)]
    registers = [register for operand in decoded.operands for register in _registers(operand)]
    if vectors:
        types = {register.type for register in registers}
        if stored and (len(types) > 1 or len(registers) < len(vectors[0].items)):
            return "", False
        if found := _clash(types):
            return found, False
    if kind[:1] != "f":
        return "", True
    bits = 8 * TYPE_BYTES[kind]
    for register in registers:
        if register.bits != bits and (register.type[0] == "f" or (vectors and register.type[0] in "us")):
            return f"register {register.name} is .{register.type}, the instruction's type is .{kind}", False
    return "", not vectors


def _packing(decoded: Decoded) -> str:
    """A vector on one side of ``mov`` alone is packed or unpacked, which is a matter of bits."""
    modifiers = decoded.instruction.modifiers
    vectors = [operand for operand in decoded.operands if isinstance(operand, VectorOperand)]
    if decoded.get("type") == "b128" and not vectors:
        whole = all(isinstance(item, RegisterOperand) and item.register.bits == 128 for item in decoded.operands)
        return "" if whole else "mov.b128 copies a register of 128 bits, or packs two of .b64"
    registers = [register for operand in decoded.operands for register in _registers(operand)]
    if decoded.get("type") != "b128" and any(register.bits == 128 for register in registers):
        return f"a register of 128 bits is moved by mov.b128, not mov.{decoded.get('type')}"
    if len(vectors) != 1 or "v2" in modifiers or "v4" in modifiers:
        return ""
    kind = decoded.get("type")
    if kind[:1] != "b":
        return f"a vector is packed as bits: mov.b{kind[1:]}"
    widths = [
        item.register.bits if isinstance(item, RegisterOperand) else SPECIAL_REGISTERS[item.name].bits
        for item in vectors[0].items
        if isinstance(item, RegisterOperand | SpecialRegister)
    ]
    if len(widths) == len(vectors[0].items) and sum(widths) != 8 * TYPE_BYTES[kind]:
        return f"the elements have {sum(widths)} bits, the type .{kind} has {8 * TYPE_BYTES[kind]}"
    return ""


# -- matrices and copies -----------------------------------------------------------------------------------------------


def _fragments(decoded: Decoded) -> str:
    """The matrices of ``mma``: D, A, B, C, in the order of the four types."""
    modifiers = decoded.instruction.modifiers
    kinds = [name for name in modifiers if name in TYPE_BYTES or name in _PACKED]
    for operand in decoded.operands:
        if found := _clash(_element_types(operand)):
            return found
    if len(kinds) != 4:
        return ""  # smaller formats
    for position, (kind, operand) in enumerate(zip(kinds, decoded.operands, strict=False)):
        if len(_element_types(operand)) > 1:
            continue  # bits
        for register in _registers(operand):
            if kind in ("f16", "bf16", "tf32") and register.type not in ("b32", f"{kind}x2"):
                return f"register {register.name} is .{register.type}, and a matrix of .{kind} lies in .b32"
            if position in (0, 3) and (found := _of_type(kind, register)):
                return found
    return ""


def _tensor_roles(decoded: Decoded) -> tuple[tuple[str, str], ...]:
    """Descriptors have 64 bits and the instruction descriptor 32."""
    operation = decoded["op"]
    roles = _TCGEN05.get(operation, "")
    if operation == "mma":
        first = "." if isinstance(decoded.operands[1], AddressOperand) else "l"
        metadata = "." if decoded.has("sp") else ""
        roles = f".{first}l{metadata}w" + (".l" if decoded.has("ws") else "")
    return tuple((role, "") for role in roles)


def _bulk_roles(decoded: Decoded) -> tuple[tuple[str, str], ...]:
    """Behind the addresses: the bytes (32 bits), offsets and masks of CTAs or bytes (16 bits), the policy (64 bits)."""
    modifiers = decoded.instruction.modifiers
    roles = ["."] * len(decoded.operands)
    last = len(roles) - 1
    if "L2::cache_hint" in modifiers:
        roles[last] = "l"
        last -= 1
    if "multicast::cluster" in modifiers or "cp_mask" in modifiers:
        roles[last] = "h"
    if not decoded.has("tensor"):
        scalars = [n for n, operand in enumerate(decoded.operands) if not isinstance(operand, AddressOperand)]
        for place in scalars[:1]:
            roles[place] = "w"
    return tuple((role, "") for role in roles)
