"""Whether the CTAs of a kernel can tell what others do, and when its warps meet, decided from its text."""

from __future__ import annotations

from tilekit.emulator.ptx.language.forms import Decoded
from tilekit.emulator.ptx.language.syntax import (
    AddressOperand,
    Immediate,
    Operand,
    PairOperand,
    SpecialRegister,
    VectorOperand,
)

_LANEWISE = """
    abs add addc and applypriority bfe bfi bfind bmsk bra brev brkpt brx clz cnot copysign cos createpolicy cvt cvta
    discard div dp2a dp4a ex2 exit fma fns isspacep lg2 lop3 mad mad24 madc max min mov mul mul24 neg not or popc
    prefetch prefetchu prmt rcp rem ret rsqrt sad selp set setp shf shl shr sin slct sqrt sub subc szext tanh testp
    trap xor
"""
_OPCODES = frozenset(_LANEWISE.split())
"""What works on each lane alone, besides loads and stores."""
_ONE_FOR_ALL = ("global", "param", "param::entry", "const")
_SPACES = (*_ONE_FOR_ALL, "generic", "local", "shared", "shared::cta")
_TOLD_APART = ("%tid.", "%ntid.", "%ctaid.", "%nctaid.", "%laneid", "%lanemask_", "%warpid", "%nwarpid", "%gridid",
               "%dynamic_smem_size", "%total_smem_size")  # fmt: skip


def independent(code: list[Decoded]) -> bool:
    """Whether CTAs share only global memory, warps of one also shared memory and a barrier, and none reads a clock."""
    return all(map(_alone, code))


def has_barriers(code: list[Decoded]) -> bool:
    """Whether the warps of a CTA meet."""
    return any(_is_barrier(decoded) for decoded in code)


def differs_between_warps(decoded: Decoded) -> bool:
    """Whether an instruction that gives all lanes of a warp one result may give those of another warp another one."""
    if decoded.form.opcode in ("ld", "ldu"):
        return decoded.get("space", "generic") not in _ONE_FOR_ALL
    return decoded.form.opcode == "shfl"


def _alone(decoded: Decoded) -> bool:
    opcode = decoded.form.opcode
    if opcode == "bar" and decoded.get("level") == "warp":
        return True
    if _is_barrier(decoded):
        return decoded.guard is None and all(isinstance(operand, Immediate) for operand in decoded.operands)
    if not all(map(_plain, decoded.operands)):
        return False
    if opcode in ("ld", "ldu", "st"):
        return decoded.get("space", "generic") in _SPACES and decoded.get("order") in ("", "weak")
    return opcode in _OPCODES or (opcode == "shfl" and decoded.guard is None)


def _is_barrier(decoded: Decoded) -> bool:
    return decoded.form.opcode in ("bar", "barrier") and not decoded.has("level") and decoded.get("op") == "sync"


def _plain(operand: Operand) -> bool:
    match operand:
        case SpecialRegister(name=name):
            return name.startswith(_TOLD_APART)
        case AddressOperand(base=base):
            return _plain(base)
        case VectorOperand(items=items):
            return all(map(_plain, items))
        case PairOperand(first=first, second=second):
            return _plain(first) and _plain(second)
    return True
