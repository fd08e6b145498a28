"""Scalar arithmetic: instructions on registers that a wave has once."""

from __future__ import annotations

from tilekit.emulator.gcn.compiler.emitter import Emitter
from tilekit.emulator.gcn.compiler.operands import index_mode, unsupported
from tilekit.emulator.gcn.language.syntax import EXEC, M0, Call, Constant, Instruction, Register
from tilekit.emulator.gcn.ops.table import op

_M = "0xFFFFFFFF"
_TWO: dict[str, tuple[str, str]] = {
    "s_add_u32": ("t = {0} + {1}", "t > M32"),
    "s_sub_u32": ("t = {0} - {1}", "t < 0"),
    "s_addc_u32": ("t = {0} + {1} + choose(B.scc, 1, 0)", "t > M32"),
    "s_subb_u32": ("t = {0} - {1} - choose(B.scc, 1, 0)", "t < 0"),
    "s_add_i32": ("t = {0} + {1}", "((({0} ^ t) & ({1} ^ t)) >> 31 & 1) != 0"),
    "s_sub_i32": ("t = {0} - {1}", "((({0} ^ {1}) & ({0} ^ t)) >> 31 & 1) != 0"),
    "s_and_b32": ("t = {0} & {1}", "t != 0"),
    "s_or_b32": ("t = {0} | {1}", "t != 0"),
    "s_xor_b32": ("t = {0} ^ {1}", "t != 0"),
    "s_andn2_b32": ("t = {0} & ~{1} & M32", "t != 0"),
    "s_orn2_b32": ("t = ({0} | ~{1}) & M32", "t != 0"),
    "s_nand_b32": ("t = ~({0} & {1}) & M32", "t != 0"),
    "s_nor_b32": ("t = ~({0} | {1}) & M32", "t != 0"),
    "s_xnor_b32": ("t = ~({0} ^ {1}) & M32", "t != 0"),
    "s_lshl_b32": ("t = ({0} << ({1} & 31)) & M32", "t != 0"),
    "s_lshr_b32": ("t = {0} >> ({1} & 31)", "t != 0"),
    "s_ashr_i32": ("t = (signed({0}) >> ({1} & 31)) & M32", "t != 0"),
    "s_min_i32": ("c = signed({0}) < signed({1}); t = choose(c, {0}, {1})", "c"),
    "s_max_i32": ("c = signed({0}) > signed({1}); t = choose(c, {0}, {1})", "c"),
    "s_min_u32": ("c = {0} < {1}; t = choose(c, {0}, {1})", "c"),
    "s_max_u32": ("c = {0} > {1}; t = choose(c, {0}, {1})", "c"),
    "s_bfe_u32": ("t = field_of({0}, {1})", "t != 0"),
    "s_bfe_i32": ("t = signed_field_of({0}, {1})", "t != 0"),
    "s_absdiff_i32": ("t = signed({0}) - signed({1}); t = choose(t < 0, -t, t) & M32", "t != 0"),
    **{f"s_lshl{n}_add_u32": (f"t = ({{0}} << {n}) + {{1}}", "t > M32") for n in (1, 2, 3, 4)},
    "s_mul_i32": ("t = {0} * {1}", ""),
    "s_mul_hi_u32": ("t = product_high({0}, {1}, False)", ""),
    "s_mul_hi_i32": ("t = product_high({0}, {1}, True)", ""),
    "s_bfm_b32": ("t = ((1 << ({0} & 31)) - 1) << ({1} & 31)", ""),
    "s_pack_ll_b32_b16": ("t = ({0} & 0xFFFF) | ({1} & 0xFFFF) << 16", ""),
    "s_pack_lh_b32_b16": ("t = ({0} & 0xFFFF) | ({1} & 0xFFFF0000)", ""),
    "s_pack_hh_b32_b16": ("t = ({0} >> 16) | ({1} & 0xFFFF0000)", ""),
}
"""Two sources: what is computed, and SCC afterwards; without the latter it stays."""
_ONE: dict[str, tuple[str, str]] = {
    "s_mov_b32": ("t = {0}", ""),
    "s_not_b32": ("t = {0} ^ M32", "t != 0"),
    "s_abs_i32": ("t = choose(signed({0}) < 0, -{0}, {0}) & M32", "t != 0"),
    "s_brev_b32": ("t = reverse_word({0})", ""),
    "s_bcnt1_i32_b32": ("t = count_word({0})", "t != 0"),
    "s_bcnt0_i32_b32": ("t = count_word({0} ^ M32)", "t != 0"),
    "s_ff1_i32_b32": ("t = lowest_bit({0})", ""),
    "s_flbit_i32_b32": ("t = zeros_above({0}, 32)", ""),
    "s_sext_i32_i8": ("t = (({0} & 0xFF ^ 0x80) - 0x80) & M32", ""),
    "s_sext_i32_i16": ("t = (({0} & 0xFFFF ^ 0x8000) - 0x8000) & M32", ""),
}
_WIDE_TWO = {
    "s_and_b64": "and64({0}, {1})", "s_or_b64": "or64({0}, {1})", "s_xor_b64": "xor64({0}, {1})",
    "s_andn2_b64": "and64({0}, not64({1}))", "s_orn2_b64": "or64({0}, not64({1}))",
    "s_nand_b64": "not64(and64({0}, {1}))", "s_nor_b64": "not64(or64({0}, {1}))",
    "s_xnor_b64": "not64(xor64({0}, {1}))",
}  # fmt: skip
_SHIFTS = {"s_lshl_b64": "shift64(number({0}), {1}, 'left')", "s_lshr_b64": "shift64(number({0}), {1}, 'right')",
           "s_ashr_i64": "shift64(number({0}), {1}, 'signed')"}  # fmt: skip
_SAVING = {
    "s_and_saveexec_b64": "and64({0}, {1})", "s_or_saveexec_b64": "or64({0}, {1})",
    "s_xor_saveexec_b64": "xor64({0}, {1})", "s_andn2_saveexec_b64": "and64({0}, not64({1}))",
    "s_orn2_saveexec_b64": "or64({0}, not64({1}))", "s_andn1_saveexec_b64": "and64(not64({0}), {1})",
    "s_orn1_saveexec_b64": "or64(not64({0}), {1})", "s_nand_saveexec_b64": "not64(and64({0}, {1}))",
    "s_nor_saveexec_b64": "not64(or64({0}, {1}))", "s_xnor_saveexec_b64": "not64(xor64({0}, {1}))",
}  # fmt: skip


def _check(i: Instruction, count: int) -> None:
    if len(i.operands) != count:
        raise unsupported(i, f"takes {count} operands, and the text has {len(i.operands)}")


def _arithmetic(e: Emitter, i: Instruction, parts: list[str], code: str, flag: str) -> None:
    for place, part in enumerate(parts):
        if not part.isidentifier() and not part.isdigit():
            e.add(f"{'ab'[place]} = {part}")
            parts[place] = "ab"[place]
    e.add(code.format(*parts))
    wraps = code.startswith(("t = {0} +", "t = {0} -", "t = {0} *", "t = ({0} <<")) or "bfm" in i.name
    if flag:
        e.add(f"B.scc = settle({flag.format(*parts)})")
    e.put_scalar(i.operands[0], "t & M32" if wraps else "t")


@op(*_TWO)
def two(e: Emitter, i: Instruction) -> None:
    """Two sources."""
    _check(i, 3)
    e.begin(i, i.operands[1:])
    _arithmetic(e, i, [e.scalar(operand) for operand in i.operands[1:]], *_TWO[i.name])


@op(*_ONE)
def one(e: Emitter, i: Instruction) -> None:
    """One source."""
    _check(i, 2)
    e.begin(i, i.operands[1:])
    _arithmetic(e, i, [e.scalar(i.operands[1])], *_ONE[i.name])


def _short(i: Instruction) -> int:
    """The 16-bit constant of an instruction, sign extended."""
    operand = i.operands[-1]
    if not isinstance(operand, Constant) or isinstance(operand.value, float):
        raise unsupported(i, "takes a 16-bit number")
    return (operand.value & 0xFFFF ^ 0x8000) - 0x8000


@op("s_movk_i32", "s_addk_i32", "s_mulk_i32", "s_cmovk_i32")
def with_short(e: Emitter, i: Instruction) -> None:
    """A 16-bit constant, moved, added or multiplied."""
    _check(i, 2)
    value = _short(i) & 0xFFFFFFFF
    e.begin(i, ())
    if i.name == "s_movk_i32":
        e.put_scalar(i.operands[0], str(value))
        return
    e.add(f"a = {e.scalar(i.operands[0])}")
    if i.name == "s_cmovk_i32":
        e.put_scalar(i.operands[0], f"choose(B.scc, {value}, a)")
    elif i.name == "s_mulk_i32":
        e.put_scalar(i.operands[0], f"a * {value} & M32")
    else:
        e.add(f"t = a + {value}")
        e.add(f"B.scc = settle((((a ^ t) & ({value} ^ t)) >> 31 & 1) != 0)")
        e.put_scalar(i.operands[0], "t & M32")


_SIGNS = {"eq": "==", "lg": "!=", "gt": ">", "ge": ">=", "lt": "<", "le": "<="}


@op(*(f"s_cmp_{name}_{kind}" for name in _SIGNS for kind in ("i32", "u32")))
def compare(e: Emitter, i: Instruction) -> None:
    """Compare two words."""
    _check(i, 2)
    e.begin(i, i.operands)
    _, _, name, kind = i.name.split("_")
    a, b = (e.scalar(operand) for operand in i.operands)
    if kind == "i32" and name not in ("eq", "lg"):
        a, b = f"signed({a})", f"signed({b})"
    e.add(f"B.scc = settle({a} {_SIGNS[name]} {b})")


@op(*(f"s_cmpk_{name}_{kind}" for name in _SIGNS for kind in ("i32", "u32")))
def compare_short(e: Emitter, i: Instruction) -> None:
    """Compare a word with a 16-bit constant."""
    _check(i, 2)
    e.begin(i, i.operands)
    _, _, name, kind = i.name.split("_")
    a = e.scalar(i.operands[0])
    if kind == "i32":
        e.add(f"B.scc = settle(signed({a}) {_SIGNS[name]} {_short(i)})")
    else:
        e.add(f"B.scc = settle({a} {_SIGNS[name]} {_short(i) & 0xFFFF})")


@op("s_cmp_eq_u64", "s_cmp_lg_u64")
def compare_wide(e: Emitter, i: Instruction) -> None:
    """Compare two pairs."""
    _check(i, 2)
    e.begin(i, i.operands)
    a, b = (e.scalar64(operand) for operand in i.operands)
    e.add(f"B.scc = settle(number({a}) {'==' if 'eq' in i.name else '!='} number({b}))")


@op("s_bitcmp0_b32", "s_bitcmp1_b32")
def test_bit(e: Emitter, i: Instruction) -> None:
    """Test one bit."""
    _check(i, 2)
    e.begin(i, i.operands)
    a, b = (e.scalar(operand) for operand in i.operands)
    e.add(f"B.scc = settle(({a} >> ({b} & 31) & 1) == {i.name[8]})")


@op("s_bitset0_b32", "s_bitset1_b32")
def set_bit(e: Emitter, i: Instruction) -> None:
    """Set or clear one bit."""
    _check(i, 2)
    e.begin(i, i.operands)
    a, b = (e.scalar(operand) for operand in i.operands)
    bit = f"(1 << ({b} & 31))"
    e.put_scalar(i.operands[0], f"{a} | {bit}" if i.name[8] == "1" else f"{a} & ~{bit}")


@op("s_cselect_b32", "s_cmov_b32")
def select(e: Emitter, i: Instruction) -> None:
    """One of two words by SCC."""
    e.begin(i, i.operands[1:])
    first = e.scalar(i.operands[1])
    second = e.scalar(i.operands[2] if i.name == "s_cselect_b32" else i.operands[0])
    e.put_scalar(i.operands[0], f"choose(B.scc, {first}, {second})")


@op("s_cselect_b64", "s_cmov_b64")
def select_wide(e: Emitter, i: Instruction) -> None:
    """One of two pairs by SCC."""
    e.begin(i, i.operands[1:])
    first = e.scalar64(i.operands[1])
    second = e.scalar64(i.operands[2] if i.name == "s_cselect_b64" else i.operands[0])
    e.put_scalar64(i.operands[0], f"choose64(B.scc, {first}, {second})")


@op(*_WIDE_TWO)
def wide_two(e: Emitter, i: Instruction) -> None:
    """Two pairs."""
    _check(i, 3)
    e.begin(i, i.operands[1:])
    e.add(f"t = {_WIDE_TWO[i.name].format(*(e.scalar64(operand) for operand in i.operands[1:]))}")
    e.add("B.scc = nonzero(t)")
    e.put_scalar64(i.operands[0], "t")


@op(*_SHIFTS)
def wide_shift(e: Emitter, i: Instruction) -> None:
    """Shift a pair."""
    _check(i, 3)
    e.begin(i, i.operands[1:])
    e.add(f"t = {_SHIFTS[i.name].format(e.scalar64(i.operands[1]), e.scalar(i.operands[2]))}")
    e.add("B.scc = nonzero(t)")
    e.put_scalar64(i.operands[0], "t")


@op("s_mov_b64", "s_not_b64", "s_wqm_b64")
def wide_one(e: Emitter, i: Instruction) -> None:
    """One pair."""
    _check(i, 2)
    if i.name == "s_wqm_b64":
        raise unsupported(i, "is not executed")
    e.begin(i, i.operands[1:])
    source = e.scalar64(i.operands[1])
    if i.name == "s_mov_b64":
        e.put_scalar64(i.operands[0], source)
        return
    e.add(f"t = not64({source})")
    e.add("B.scc = nonzero(t)")
    e.put_scalar64(i.operands[0], "t")


@op("s_bcnt1_i32_b64", "s_bcnt0_i32_b64", "s_ff1_i32_b64", "s_flbit_i32_b64")
def wide_counts(e: Emitter, i: Instruction) -> None:
    """Count bits of a pair, or find one."""
    _check(i, 2)
    e.begin(i, i.operands[1:])
    source = f"number({e.scalar64(i.operands[1])})"
    if "bcnt" in i.name:
        e.add(f"t = count_word({source if '1' in i.name[:7] else f'number(not64({source}))'})")
        e.add("B.scc = settle(t != 0)")
    else:
        e.add(f"t = lowest_bit({source})" if "ff1" in i.name else f"t = zeros_above({source}, 64)")
    e.put_scalar(i.operands[0], "t")


@op("s_bfe_u64", "s_bfe_i64", "s_bfm_b64", "s_brev_b64")
def wide_fields(e: Emitter, i: Instruction) -> None:
    """Fields of a pair."""
    e.begin(i, i.operands[1:])
    if i.name == "s_bfm_b64":
        e.put_scalar64(i.operands[0], f"wide_mask({e.scalar(i.operands[1])}, {e.scalar(i.operands[2])})")
        return
    if i.name != "s_bfe_u64":
        raise unsupported(i, "is not executed")
    e.add(f"t = wide_field(number({e.scalar64(i.operands[1])}), {e.scalar(i.operands[2])})")
    e.add("B.scc = nonzero(t)")
    e.put_scalar64(i.operands[0], "t")


@op(*_SAVING)
def save_exec(e: Emitter, i: Instruction) -> None:
    """Keep EXEC and combine it with a pair."""
    _check(i, 2)
    e.begin(i, i.operands[1:])
    e.add("x = B.exec_mask()")
    e.add(f"t = {_SAVING[i.name].format(e.scalar64(i.operands[1]), 'x')}")
    e.put_scalar64(i.operands[0], "x")
    e.add("B.scc = nonzero(t)")
    e.put_scalar64(Register("s", EXEC, 2), "t")


@op("s_set_gpr_idx_on", "s_set_gpr_idx_idx", "s_set_gpr_idx_mode", "s_set_gpr_idx_off")
def index_registers(e: Emitter, i: Instruction) -> None:
    """Set M0's index and mode; what instructions under an index become is said by :mod:`.indexing`."""
    e.begin(i, ())
    if i.name == "s_set_gpr_idx_off":
        return
    keep, parts = 0xFFFFFFFF, []
    if i.name != "s_set_gpr_idx_mode":
        _check(i, 2 if i.name == "s_set_gpr_idx_on" else 1)
        keep &= ~0xFF
        parts.append(f"({e.scalar(i.operands[0])} & 0xFF)")
    if i.name != "s_set_gpr_idx_idx":
        keep &= ~0xF000
        parts.append(str(index_mode(i) << 12))
    e.put_scalar(Register("s", M0, 1), " | ".join([f"word(S, {M0}) & {keep}", *parts]))


@op("s_movrels_b32", "s_movrels_b64", "s_movreld_b32", "s_movreld_b64")
def move_relative(e: Emitter, i: Instruction) -> None:
    """Move from, or to, the scalar register that M0 counts from the one in the text."""
    _check(i, 2)
    e.begin(i, i.operands[1:])
    target, source = i.operands
    wide = i.name.endswith("64")
    if "movrels" in i.name:
        if not isinstance(source, Register) or source.file != "s":
            raise unsupported(i, "needs a scalar register to count from")
        if wide:
            e.put_scalar64(target, f"join64(B.scalar_at({source.first}), B.scalar_at({source.first + 1}))")
        else:
            e.put_scalar(target, f"B.scalar_at({source.first})")
        return
    if not isinstance(target, Register) or target.file != "s":
        raise unsupported(i, "needs a scalar register to count from")
    if wide:
        e.add(f"x, y = halves({e.scalar64(source)})")
        e.add(f"B.put_scalar_at({target.first}, x)")
        e.add(f"B.put_scalar_at({target.first + 1}, y)")
    else:
        e.add(f"B.put_scalar_at({target.first}, {e.scalar(source)})")


@op("s_nop", "s_setprio", "s_sethalt", "s_incperflevel", "s_decperflevel", "s_icache_inv", "s_ttracedata",
    "s_dcache_inv", "s_dcache_wb", "s_sendmsg")  # fmt: skip
def nothing(e: Emitter, i: Instruction) -> None:
    """Change nothing that a program can see."""


_HARDWARE = {"HW_REG_MODE": 1, "HW_REG_HW_ID": 4, "HW_REG_XCC_ID": 20}


@op("s_setreg_imm32_b32", "s_setreg_b32")
def set_hardware_register(e: Emitter, i: Instruction) -> None:
    """Write bits of the MODE register; other hardware registers are not there."""
    _check(i, 2)
    register, start, size = _hardware(i, i.operands[0])
    if register != 1:
        raise unsupported(i, "writes a hardware register that is not modelled; HW_REG_MODE is")
    e.begin(i, i.operands[1:])
    e.add(f"B.set_mode({start}, {size}, {e.scalar(i.operands[1])})")


@op("s_getreg_b32")
def get_hardware_register(e: Emitter, i: Instruction) -> None:
    """Read bits of the MODE register, or of those that say where a wave runs: here on the first compute unit."""
    register, start, size = _hardware(i, i.operands[1])
    if register not in _HARDWARE.values():
        raise unsupported(i, f"reads a hardware register that is not modelled; {', '.join(_HARDWARE)} are")
    e.begin(i, ())
    if register != 1:
        e.put_scalar(i.operands[0], "0")
        return
    e.put_scalar(i.operands[0], f"B.mode >> {start} & {(1 << size) - 1}")


def _hardware(i: Instruction, operand: object) -> tuple[int, int, int]:
    if isinstance(operand, Call) and operand.name == "hwreg" and operand.arguments:
        name, *rest = operand.arguments
        number = _HARDWARE.get(name, 0) if isinstance(name, str) else name
        numbers = [value for value in rest if isinstance(value, int)]
        return number, numbers[0] if numbers else 0, numbers[1] if len(numbers) > 1 else 32
    if isinstance(operand, Constant) and isinstance(operand.value, int):
        value = operand.value
        return value & 63, value >> 6 & 31, (value >> 11 & 31) + 1
    raise unsupported(i, "needs hwreg(...) there")


@op("s_memtime", "s_memrealtime")
def time(e: Emitter, i: Instruction) -> None:
    """A clock: instructions run so far."""
    e.begin(i, ())
    e.put_scalar64(i.operands[0], "B.ticks()")
