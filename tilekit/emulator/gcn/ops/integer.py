"""Vector instructions on integers and bits."""

from __future__ import annotations

from tilekit.emulator.gcn.compiler.emitter import Emitter
from tilekit.emulator.gcn.compiler.operands import unsupported
from tilekit.emulator.gcn.language.syntax import Instruction
from tilekit.emulator.gcn.ops.table import Handler, begin_vector, op, vector

_ALL = {
    "v_mov_b32": ("u32", "b32", "{0}"),
    "v_mov_b64": ("u64", "u64", "{0}"),
    "v_not_b32": ("u32", "u32", "~{0}"),
    "v_bfrev_b32": ("u32", "u32", "reverse({0})"),
    "v_ffbh_u32": ("u32", "u32", "first_high({0})"),
    "v_ffbl_b32": ("u32", "u32", "first_low({0})"),
    "v_ffbh_i32": ("u32", "i32", "first_sign({0})"),
    "v_bcnt_u32_b32": ("u32", "u32 u32", "count_bits({0}) + {1}"),
    "v_and_b32": ("u32", "u32 u32", "{0} & {1}"),
    "v_or_b32": ("u32", "u32 u32", "{0} | {1}"),
    "v_xor_b32": ("u32", "u32 u32", "{0} ^ {1}"),
    "v_xnor_b32": ("u32", "u32 u32", "~({0} ^ {1})"),
    "v_lshlrev_b32": ("u32", "u32 u32", "{1} << ({0} & 31)"),
    "v_lshrrev_b32": ("u32", "u32 u32", "{1} >> ({0} & 31)"),
    "v_ashrrev_i32": ("i32", "i32 i32", "{1} >> ({0} & 31)"),
    "v_lshlrev_b64": ("u64", "u32 u64", "{1} << ({0} & 63).astype(u8)"),
    "v_lshrrev_b64": ("u64", "u32 u64", "{1} >> ({0} & 63).astype(u8)"),
    "v_ashrrev_i64": ("i64", "u32 i64", "{1} >> ({0} & 63).astype(i8)"),
    "v_lshlrev_b16": ("u16", "u16 u16", "{1} << ({0} & 15)"),
    "v_lshrrev_b16": ("u16", "u16 u16", "{1} >> ({0} & 15)"),
    "v_ashrrev_i16": ("i16", "i16 i16", "{1} >> ({0} & 15)"),
    "v_mul_lo_u16": ("u16", "u16 u16", "{0} * {1}"),
    "v_mad_u16": ("u16", "u16 u16 u16", "{0} * {1} + {2}"),
    "v_mad_i16": ("i16", "i16 i16 i16", "{0} * {1} + {2}"),
    "v_mad_legacy_u16": ("u16", "u16 u16 u16", "{0} * {1} + {2}"),
    "v_mul_lo_u32": ("u32", "u32 u32", "{0} * {1}"),
    "v_mul_hi_u32": ("u32", "u32 u32", "multiply_high_u32({0}, {1})"),
    "v_mul_hi_i32": ("i32", "i32 i32", "multiply_high_i32({0}, {1})"),
    "v_mul_u32_u24": ("u32", "u32 u32", "low24({0}) * low24({1})"),
    "v_mul_i32_i24": ("i32", "u32 u32", "low24_signed({0}) * low24_signed({1})"),
    "v_mul_hi_u32_u24": ("u32", "u32 u32", "multiply_high_u32(low24({0}), low24({1}))"),
    "v_mul_hi_i32_i24": ("i32", "u32 u32", "multiply_high_i32(low24_signed({0}), low24_signed({1}))"),
    "v_mad_u32_u24": ("u32", "u32 u32 u32", "low24({0}) * low24({1}) + {2}"),
    "v_mad_i32_i24": ("i32", "u32 u32 i32", "low24_signed({0}) * low24_signed({1}) + {2}"),
    "v_mad_u32_u16": ("u32", "u16 u16 u32", "{0}.astype(u4) * {1}.astype(u4) + {2}"),
    "v_mad_i32_i16": ("i32", "i16 i16 i32", "{0}.astype(i4) * {1}.astype(i4) + {2}"),
    "v_add3_u32": ("u32", "u32 u32 u32", "{0} + {1} + {2}"),
    "v_lshl_add_u32": ("u32", "u32 u32 u32", "({0} << ({1} & 31)) + {2}"),
    "v_add_lshl_u32": ("u32", "u32 u32 u32", "({0} + {1}) << ({2} & 31)"),
    "v_lshl_or_b32": ("u32", "u32 u32 u32", "({0} << ({1} & 31)) | {2}"),
    "v_and_or_b32": ("u32", "u32 u32 u32", "({0} & {1}) | {2}"),
    "v_or3_b32": ("u32", "u32 u32 u32", "{0} | {1} | {2}"),
    "v_xad_u32": ("u32", "u32 u32 u32", "({0} ^ {1}) + {2}"),
    "v_lshl_add_u64": ("u64", "u64 u32 u64", "({0} << ({1} & 7).astype(u8)) + {2}"),
    "v_bfe_u32": ("u32", "u32 u32 u32", "extract_u32({0}, {1}, {2})"),
    "v_bfe_i32": ("u32", "u32 u32 u32", "extract_i32({0}, {1}, {2})"),
    "v_bfi_b32": ("u32", "u32 u32 u32", "({0} & {1}) | (~{0} & {2})"),
    "v_bfm_b32": ("u32", "u32 u32", "field_mask({0}, {1})"),
    "v_alignbit_b32": ("u32", "u32 u32 u32", "align_bits({0}, {1}, {2})"),
    "v_alignbyte_b32": ("u32", "u32 u32 u32", "align_bytes({0}, {1}, {2})"),
    "v_perm_b32": ("u32", "u32 u32 u32", "permute_bytes({0}, {1}, {2})"),
    "v_min_i32": ("i32", "i32 i32", "minimum_of({0}, {1})"),
    "v_max_i32": ("i32", "i32 i32", "maximum_of({0}, {1})"),
    "v_min_u32": ("u32", "u32 u32", "minimum_of({0}, {1})"),
    "v_max_u32": ("u32", "u32 u32", "maximum_of({0}, {1})"),
    "v_min_i16": ("i16", "i16 i16", "minimum_of({0}, {1})"),
    "v_max_i16": ("i16", "i16 i16", "maximum_of({0}, {1})"),
    "v_min_u16": ("u16", "u16 u16", "minimum_of({0}, {1})"),
    "v_max_u16": ("u16", "u16 u16", "maximum_of({0}, {1})"),
    "v_min3_i32": ("i32", "i32 i32 i32", "minimum_of(minimum_of({0}, {1}), {2})"),
    "v_max3_i32": ("i32", "i32 i32 i32", "maximum_of(maximum_of({0}, {1}), {2})"),
    "v_min3_u32": ("u32", "u32 u32 u32", "minimum_of(minimum_of({0}, {1}), {2})"),
    "v_max3_u32": ("u32", "u32 u32 u32", "maximum_of(maximum_of({0}, {1}), {2})"),
    **{
        f"v_{name}3_{kind}": (kind, f"{kind} {kind} {kind}", f"{name}imum_of({name}imum_of({{0}}, {{1}}), {{2}})")
        for name in ("min", "max") for kind in ("i16", "u16")
    },
    **{
        f"v_med3_{kind}": (kind, f"{kind} {kind} {kind}",
                           "maximum_of(minimum_of({0}, {1}), minimum_of(maximum_of({0}, {1}), {2}))")
        for kind in ("i16", "u16")
    },
    "v_mad_legacy_i16": ("i16", "i16 i16 i16", "{0} * {1} + {2}"),
    "v_med3_i32": ("i32", "i32 i32 i32",
                   "maximum_of(minimum_of({0}, {1}), minimum_of(maximum_of({0}, {1}), {2}))"),
    "v_med3_u32": ("u32", "u32 u32 u32",
                   "maximum_of(minimum_of({0}, {1}), minimum_of(maximum_of({0}, {1}), {2}))"),
    "v_mbcnt_lo_u32_b32": ("u32", "u32 u32", "count_bits({0} & BELOW_LOW) + {1}"),
    "v_mbcnt_hi_u32_b32": ("u32", "u32 u32", "count_bits({0} & BELOW_HIGH) + {1}"),
}  # fmt: skip
for _name, (_result, _sources, _expression) in _ALL.items():
    vector(_name, _result, _sources, _expression)


_SUMS = {"add": "{0} + {1}", "sub": "{0} - {1}", "subrev": "{1} - {0}"}
_RANGES = {"u32": (0, 0xFFFFFFFF), "i32": (-(1 << 31), (1 << 31) - 1), "u16": (0, 0xFFFF), "i16": (-32768, 32767)}


def _sum(name: str, kind: str) -> Handler:
    def handler(e: Emitter, i: Instruction) -> None:
        begin_vector(e, i, i.operands[1:], 2)
        a, b = e.source(0, kind), e.source(1, kind)
        if i.modifiers.get("clamp"):
            wide = _SUMS[name].format(f"{a}.astype(i8)", f"{b}.astype(i8)")
            low, high = _RANGES[kind]
            e.put(i.operands[0], f"held({wide}, {low}, {high}).astype({kind[0]}{int(kind[1:]) // 8})", kind)
        else:
            e.put(i.operands[0], _SUMS[name].format(a, b), kind)

    return handler


for _name in _SUMS:
    for _kind in ("u32", "i32", "u16", "i16"):
        if (_name, _kind) not in (("subrev", "i32"), ("subrev", "i16")):
            op(f"v_{_name}_{_kind}")(_sum(_name, _kind))


@op("v_nop")
def nop(e: Emitter, i: Instruction) -> None:
    """Do nothing."""


@op("v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32")
def accumulator_move(e: Emitter, i: Instruction) -> None:
    """Copy between the two kinds of vector registers."""
    begin_vector(e, i, i.operands[1:], 1)
    e.put(i.operands[0], e.source(0, "u32"), "u32")


@op("v_swap_b32")
def swap(e: Emitter, i: Instruction) -> None:
    """Exchange two registers."""
    begin_vector(e, i, i.operands[1:], 1)
    a, b = e.vector(i.operands[0], 1), e.vector(i.operands[1], 1)
    e.add(f"t = U[{a}].copy()")
    e.row(a, f"U[{b}]")
    e.row(b, "t")


@op("v_bitop3_b32")
def bit_function(e: Emitter, i: Instruction) -> None:
    """Any function of three bits."""
    begin_vector(e, i, i.operands[1:], 3)
    table = i.modifiers.get("bitop3", 0)
    e.put(i.operands[0], f"look_up_3({e.source(0, 'u32')}, {e.source(1, 'u32')}, {e.source(2, 'u32')}, {table})", "u32")


@op("v_bitop3_b16")
def bit_function_16(e: Emitter, i: Instruction) -> None:
    """Any function of three bits, of 16."""
    begin_vector(e, i, i.operands[1:], 3)
    table = i.modifiers.get("bitop3", 0)
    parts = [f"{e.source(n, 'u16')}.astype(u4)" for n in range(3)]
    e.put(i.operands[0], f"look_up_3({', '.join(parts)}, {table}).astype(u2)", "u16")


_CARRYING = {
    "v_add_co_u32": (0, 1, "+"), "v_sub_co_u32": (0, 1, "-"), "v_subrev_co_u32": (1, 0, "-"),
    "v_addc_co_u32": (0, 1, "+"), "v_subb_co_u32": (0, 1, "-"), "v_subbrev_co_u32": (1, 0, "-"),
}  # fmt: skip


@op(*_CARRYING)
def carrying(e: Emitter, i: Instruction) -> None:
    """Add or subtract with carry out, and in."""
    first, second, sign = _CARRYING[i.name]
    takes = i.name in ("v_addc_co_u32", "v_subb_co_u32", "v_subbrev_co_u32")
    if len(i.operands) != 4 + takes:
        raise unsupported(i, f"takes {4 + takes} operands")
    sources = i.operands[2:4]
    begin_vector(e, i, sources, 2)
    carry = f" {sign} {e.mask(i.operands[4])}.astype(i8)" if takes else ""
    a, b = e.source(first, "u32"), e.source(second, "u32")
    e.add(f"t = {a}.astype(i8) {sign} {b}.astype(i8){carry}")
    e.add("t = spread_rows(t, W)")
    e.put(i.operands[0], "t.astype(u4)", "u32")
    lanes, e.lanes = e.lanes, "None"
    e.put_mask(i.operands[1], "(t >> 32) != 0")
    e.lanes = lanes


@op("v_mad_u64_u32", "v_mad_i64_i32")
def mad64(e: Emitter, i: Instruction) -> None:
    """Product of two words and a 64-bit addend, with carry out."""
    if len(i.operands) != 5:
        raise unsupported(i, "takes 5 operands")
    begin_vector(e, i, i.operands[2:], 3)
    signed = i.name == "v_mad_i64_i32"
    kind = "i" if signed else "u"
    a, b, c = (e.source(n, f"{kind}{size}") for n, size in ((0, 32), (1, 32), (2, 64)))
    e.add(f"p = spread_rows({a}.astype({kind}8) * {b}.astype({kind}8), W)")
    e.add(f"c = {c}")
    e.add("t = p + c")
    overflow = "((p ^ t) & (c ^ t)) < 0" if signed else "t < p"
    e.add(f"o = {overflow}")
    e.put(i.operands[0], "t", f"{kind}64")
    e.put_mask(i.operands[1], "o")
