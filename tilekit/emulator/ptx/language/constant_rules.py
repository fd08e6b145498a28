"""Ranges of constants, and operands that a modifier asks for.

Source: PTX ISA, the sections of the instructions.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tilekit.emulator.ptx.language.syntax import AddressOperand, Immediate, PairOperand

if TYPE_CHECKING:
    from tilekit.emulator.ptx.language.forms import Decoded

_MASKED = {"shfl": 5, "vote": 3, "match": 3, "redux": 3}
"""Instructions of a warp, and how many operands they have where ``.sync`` names the lanes."""
_LINE = 128
"""Bytes that ``discard`` and ``applypriority`` work on."""


def constant_problem(decoded: Decoded) -> str:
    """What is wrong with the constants of an instruction or the number of its operands; empty when nothing is."""
    rule = _RULES.get(decoded.form.opcode)
    return rule(decoded) if rule is not None else ""


def _masked(decoded: Decoded) -> str:
    opcode = decoded.form.opcode
    if any(isinstance(operand, Immediate) and operand.kind != "int" for operand in decoded.operands):
        return "a floating-point number where an integer belongs"
    if decoded.has("sync") != (len(decoded.operands) == _MASKED[opcode]):
        return f"{opcode}.sync ends with the mask of the lanes that take part, for example -1"
    return ""


def _barrier(decoded: Decoded) -> str:
    opcode, operation = decoded.form.opcode, decoded.get("op")
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


def _copied(decoded: Decoded) -> str:
    size = decoded.operands[2] if decoded.has("dst") and len(decoded.operands) > 2 else None
    if decoded.has("bulk"):
        if isinstance(size, Immediate) and not decoded.has("tensor") and size.value % 16:
            return f"a bulk copy has a multiple of 16 bytes: {-(-size.value // 16) * 16}, not {size.value}"
        return ""
    if size is None:
        return ""
    hinted = "L2::cache_hint" in decoded.instruction.modifiers
    if len(decoded.operands) == (3 if hinted else 5):
        return ".L2::cache_hint needs a cache policy" if hinted else "a cache policy needs .L2::cache_hint"
    read = decoded.operands[3] if len(decoded.operands) > 3 else None
    if isinstance(read, Immediate) and not hinted and not 0 <= read.value <= 16:
        return f"a copy reads 0 to 16 bytes, not {read.value}"
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


def _line(decoded: Decoded) -> str:
    size = decoded.operands[-1]
    if isinstance(size, Immediate) and size.value != _LINE:
        return f"the bytes are {_LINE}, not {size.value}"
    return ""


def _compared(decoded: Decoded) -> str:
    if decoded.has("bool") == (len(decoded.operands) == 4):
        return ""
    return "a predicate behind the operands needs .and, .or or .xor, and they need it"


def _elected(decoded: Decoded) -> str:
    if isinstance(decoded.operands[0], PairOperand):
        return ""
    return "the first operand names a register, or _, and a predicate: _|p"


def _carried(decoded: Decoded) -> str:
    """The operands of a carry chain: ``mad`` has three sources."""
    wanted = 4 if decoded.form.opcode in ("mad", "madc") else 3
    if len(decoded.operands) == wanted:
        return ""
    return f"{wanted} operands are needed, and {len(decoded.operands)} are given"


def _hint(decoded: Decoded) -> str:
    """An operand more than the form needs is the policy of ``.L2::cache_hint``, and belongs to it."""
    operands = decoded.form.operands
    if not operands or not operands[-1].endswith("?"):
        return ""
    given = len(decoded.operands) == len(operands)
    hinted = "L2::cache_hint" in decoded.instruction.modifiers
    if given == hinted:
        return ""
    return "a cache policy needs .L2::cache_hint" if given else ".L2::cache_hint needs a cache policy"


_RULES = {
    **dict.fromkeys(_MASKED, _masked),
    **dict.fromkeys(("bar", "barrier", "mbarrier"), _barrier),
    **dict.fromkeys(("ld", "st", "atom", "red"), _hint),
    **dict.fromkeys(("setp", "set"), _compared),
    **dict.fromkeys(("discard", "applypriority"), _line),
    **dict.fromkeys(("add", "addc", "sub", "subc", "mad", "madc"), _carried),
    "createpolicy": _fraction,
    "cp": _copied,
    "wgmma": _wgmma,
    "elect": _elected,
}
"""The rule of each instruction that has one."""
