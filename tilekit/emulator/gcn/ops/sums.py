"""Vector instructions that sum over the parts of registers: dot products, absolute differences, packing with limits."""

from __future__ import annotations

from collections.abc import Callable

from tilekit.emulator.gcn.compiler.emitter import Emitter
from tilekit.emulator.gcn.compiler.operands import unsupported
from tilekit.emulator.gcn.language.syntax import Instruction
from tilekit.emulator.gcn.ops.table import begin_vector, op, vector

_ALL = {
    "v_sad_u8": ("u32", "u32 u32 u32", "differences({0}, {1}, 8) + {2}"),
    "v_sad_hi_u8": ("u32", "u32 u32 u32", "(differences({0}, {1}, 8) << 16) + {2}"),
    "v_sad_u16": ("u32", "u32 u32 u32", "differences({0}, {1}, 16) + {2}"),
    "v_sad_u32": ("u32", "u32 u32 u32", "maximum_of({0}, {1}) - minimum_of({0}, {1}) + {2}"),
    "v_msad_u8": ("u32", "u32 u32 u32", "differences({0}, {1}, 8, True) + {2}"),
    "v_lerp_u8": ("u32", "u32 u32 u32", "average_bytes({0}, {1}, {2})"),
    "v_cvt_pk_u16_u32": ("u32", "u32 u32", "saturated_pair({0}, {1}, 0, 65535)"),
    "v_cvt_pk_i16_i32": ("u32", "i32 i32", "saturated_pair({0}, {1}, -32768, 32767)"),
    "v_sat_pk_u8_i16": ("u32", "u32", "saturated_bytes(*parts({0}, 16, True), 0, 255)"),
    "v_trig_preop_f64": ("f64", "f64 u32", "two_over_pi({0}, {1})"),
}
for _name, (_result, _sources, _expression) in _ALL.items():
    vector(_name, _result, _sources, _expression)


def _integers(size: int, signed: bool) -> Callable[[Emitter, Instruction], None]:
    def handler(e: Emitter, i: Instruction) -> None:
        sources = (*i.operands[1:], i.operands[0]) if _accumulates(i) else i.operands[1:]
        _plain(i, 3)
        begin_vector(e, i, sources, 3)
        a, b, c = (e.source(n, "u32") for n in range(3))
        clamp = i.flag("clamp")
        e.row(e.vector(i.operands[0], 1), f"dot_parts({a}, {b}, {c}, {size}, {signed}, {clamp})")

    return handler


def _accumulates(i: Instruction) -> bool:
    return i.name.split("_")[1].endswith("c")


def _plain(i: Instruction, count: int) -> None:
    """Refuse halves taken in another order, or negated."""
    usual = {"op_sel": 0, "op_sel_hi": 1, "neg_lo": 0, "neg_hi": 0}
    for name, value in usual.items():
        if any(chosen != value for chosen in i.modifiers.get(name, [value] * count)):
            raise unsupported(i, f"with {name} is not executed")


for _name, _size, _signed in (
    ("v_dot2_i32_i16", 16, True), ("v_dot2c_i32_i16", 16, True), ("v_dot2_u32_u16", 16, False),
    ("v_dot4_i32_i8", 8, True), ("v_dot4c_i32_i8", 8, True), ("v_dot4_u32_u8", 8, False),
    ("v_dot8_i32_i4", 4, True), ("v_dot8c_i32_i4", 4, True), ("v_dot8_u32_u4", 4, False),
):  # fmt: skip
    op(_name)(_integers(_size, _signed))


@op("v_dot2_f32_f16", "v_dot2_f32_bf16", "v_dot2c_f32_f16", "v_dot2c_f32_bf16")
def dot_halves(e: Emitter, i: Instruction) -> None:
    """Dot product of two halves, added to a float32."""
    if i.name.endswith("bf16"):
        e.begin(i, ())
        e.only_on("gfx950")
    sources = (*i.operands[1:], i.operands[0]) if _accumulates(i) else i.operands[1:]
    _plain(i, 3)
    begin_vector(e, i, sources, 3)
    kind = "bf16" if i.name.endswith("bf16") else "f16"
    e.put(
        i.operands[0], f"dot_halves({e.source(0, 'u32')}, {e.source(1, 'u32')}, {e.source(2, 'f32')}, {kind!r})", "f32"
    )


@op("v_qsad_pk_u16_u8", "v_mqsad_pk_u16_u8", "v_mqsad_u32_u8")
def windows(e: Emitter, i: Instruction) -> None:
    """Absolute differences of four bytes and those at four places of eight bytes, each added to its own sum."""
    wide = i.name.endswith("u32_u8")
    masked = i.name.startswith("v_mq")
    number = e.vector(i.operands[0], 4 if wide else 2)
    added = e.vector(i.operands[3], 4 if wide else 2)
    begin_vector(e, i, i.operands[1:], 3)
    e.add(f"y = {e.source(1, 'u32')}")
    e.add(f"s = [differences(w, y, 8, {masked}) for w in windows({e.source(0, 'u64')})]")
    if wide:
        e.add(f"s = [p + U[{added} + n] for n, p in enumerate(s)]")
    else:
        e.add(f"s = [(p + (U[{added} + n // 2] >> (16 * (n % 2)))) & 0xFFFF for n, p in enumerate(s)]")
        e.add("s = [s[0] | s[1] << 16, s[2] | s[3] << 16]")
    for place in range(4 if wide else 2):
        e.row(number + place, f"s[{place}]")


@op("v_ashr_pk_i8_i32", "v_ashr_pk_u8_i32")
def shifted_bytes(e: Emitter, i: Instruction) -> None:
    """Two words shifted right and held within a byte each, into one half of a register."""
    number = e.vector(i.operands[0], 1)
    begin_vector(e, i, i.operands[1:], 3)
    e.only_on("gfx950")
    by = f"({e.source(2, 'u32')} & 31).astype(i4)"
    least, most = (-128, 127) if "_i8_" in i.name else (0, 255)
    e.add(f"t = saturated_bytes({e.source(0, 'i32')} >> {by}, {e.source(1, 'i32')} >> {by}, {least}, {most})")
    high = i.modifiers.get("op_sel", [0])[-1]
    kept = "0xFFFF" if high else "0xFFFF0000"
    e.row(number, f"(U[{number}] & {kept}) | " + ("t << 16" if high else "t"))
