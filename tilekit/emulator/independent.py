"""Whether the warps of a kernel can tell what the others do, decided from its text."""

from __future__ import annotations

from .forms import Decoded
from .syntax import AddressOperand, Operand, PairOperand, SpecialRegister, SymbolOperand, VectorOperand

_LANEWISE = """
    abs add addc and applypriority bfe bfi bfind bmsk bra brev brkpt brx clz cnot copysign cos createpolicy cvt cvta
    discard div dp2a dp4a ex2 exit fma fns isspacep lg2 lop3 mad mad24 madc max min mov mul mul24 neg not or popc
    prefetch prefetchu prmt rcp rem ret rsqrt sad selp set setp shf shl shr sin slct sqrt sub subc szext tanh testp
    trap xor
"""
_OPCODES = frozenset(_LANEWISE.split())
"""What works on each lane alone, besides loads and stores."""
_SPACES = ("generic", "global", "param", "param::entry", "const", "local")
_TOLD_APART = ("%tid.", "%ntid.", "%ctaid.", "%nctaid.", "%laneid", "%lanemask_", "%warpid", "%nwarpid", "%gridid",
               "%dynamic_smem_size", "%total_smem_size")  # fmt: skip


def independent(code: list[Decoded]) -> bool:
    """Whether nothing but plain accesses to global memory leads from one warp to another, and no clock is read."""
    return all(map(_alone, code))


def _alone(decoded: Decoded) -> bool:
    opcode = decoded.form.opcode
    if opcode == "bar":
        return decoded.get("level") == "warp"
    if not all(map(_plain, decoded.operands)):
        return False
    if opcode in ("ld", "ldu", "st"):
        return decoded.get("space", "generic") in _SPACES and decoded.get("order") in ("", "weak")
    return opcode in _OPCODES


def _plain(operand: Operand) -> bool:
    match operand:
        case SpecialRegister(name=name):
            return name.startswith(_TOLD_APART)
        case SymbolOperand(variable=variable):
            return variable.space != "shared"
        case AddressOperand(base=base):
            return _plain(base)
        case VectorOperand(items=items):
            return all(map(_plain, items))
        case PairOperand(first=first, second=second):
            return _plain(first) and _plain(second)
    return True
