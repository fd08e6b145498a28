"""Division of integers, for which there is no instruction."""

from __future__ import annotations

from tilekit.assembly.gcn.builder import Builder
from tilekit.assembly.gcn.code import Branch, Label, Part
from tilekit.assembly.gcn.operands import Word
from tilekit.assembly.types import RegisterType

_ALMOST_2_32 = 0x4F7FFFFE
"""The f32 below 2^32 by two units in the last place: times a reciprocal it is never too large an estimate."""


def divide(build: Builder, name: str, type_: RegisterType, target: Part, a: Word, b: Word) -> None:
    """``div`` or ``rem`` of words; of signed ones towards zero, with the remainder's sign that of `a`."""
    if type_.kind != "signed":
        _unsigned(build, name, target, a, b)
        return
    a_sign, a_size = _sign_and_size(build, a)
    b_sign, b_size = _sign_and_size(build, b)
    sign = a_sign
    if name == "div":
        sign = build.temporary("vector")
        build.vector2("v_xor_b32", sign, b_sign, a_sign)
    found = build.temporary("vector")
    _unsigned(build, name, found, a_size, b_size)
    build.vector2("v_xor_b32", found, found, build.in_vector(sign))
    build.vector2("v_sub_u32", target, found, build.in_vector(sign))


def _sign_and_size(build: Builder, word: Word) -> tuple[Word, Word]:
    """All bits of the sign, and the magnitude."""
    if isinstance(word, int):
        negative = word >> 31
        return 0xFFFFFFFF * negative, -word & 0xFFFFFFFF if negative else word
    sign, size = build.temporary("vector"), build.temporary("vector")
    build.vector2("v_ashrrev_i32", sign, 31, word)
    build.vector2("v_xor_b32", size, word, sign)
    build.vector2("v_sub_u32", size, size, sign)
    return sign, size


def _unsigned(build: Builder, name: str, target: Part, a: Word, b: Word) -> None:
    if isinstance(b, int) and b:
        quotient = _by_constant(build, a, b)
        if name == "div":
            build.copy_words([target], [quotient])
            return
        product = build.temporary("vector")
        build.vector("v_mul_lo_u32", product, quotient, b)
        build.vector2("v_sub_u32", target, a, product)
        return
    quotient, rest = _by_reciprocal(build, build.in_vector(a), build.in_vector(b))
    build.copy_words([target], [quotient if name == "div" else rest])


def magic(divisor: int) -> tuple[int, int, bool]:
    """Factor, shift, and whether the dividend is added, of a division by a constant (Granlund and Montgomery, 1994).

    The quotient of n is ``t >> shift`` with t the high half of ``n * factor``; where n is added,
    ``(t + (n - t >> 1)) >> shift``.
    """
    for shift in range(32):
        factor = -(-(1 << 32 + shift) // divisor)
        if factor < 1 << 32 and factor * divisor - (1 << 32 + shift) <= 1 << shift:
            return factor, shift, False
    bits = (divisor - 1).bit_length()
    return ((1 << 32) * ((1 << bits) - divisor)) // divisor + 1, bits - 1, True


def _by_constant(build: Builder, a: Word, divisor: int) -> Word:
    quotient = build.temporary("vector")
    if divisor.bit_count() == 1:
        build.vector2("v_lshrrev_b32", quotient, divisor.bit_length() - 1, a)
        return quotient
    factor, shift, added = magic(divisor)
    high = build.temporary("vector")
    build.vector("v_mul_hi_u32", high, a, factor)
    if added:
        rest = build.temporary("vector")
        build.vector2("v_sub_u32", rest, a, high)
        build.vector2("v_lshrrev_b32", rest, 1, rest)
        build.vector2("v_add_u32", high, rest, high)
    build.vector2("v_lshrrev_b32", quotient, shift, high)
    return quotient


def _by_reciprocal(build: Builder, a: Part, b: Part) -> tuple[Part, Part]:
    """Quotient and remainder: an estimate of 2^32 / b, made better once, is at most 2 too small a quotient."""
    estimate, error, quotient, rest = (build.temporary("vector") for _ in range(4))
    build.put("v_cvt_f32_u32", estimate, b)
    build.put("v_rcp_iflag_f32", estimate, estimate)
    build.put("v_mul_f32", estimate, _ALMOST_2_32, estimate)
    build.put("v_cvt_u32_f32", estimate, estimate)
    build.put("v_sub_u32", error, 0, b)
    build.put("v_mul_lo_u32", error, error, estimate)
    build.put("v_mul_hi_u32", error, estimate, error)
    build.put("v_add_u32", estimate, estimate, error)
    build.put("v_mul_hi_u32", quotient, a, estimate)
    build.put("v_mul_lo_u32", rest, quotient, b)
    build.put("v_sub_u32", rest, a, rest)
    for _ in range(2):
        more, less = build.temporary("vector"), build.temporary("vector")
        build.put("v_cmp_ge_u32", "vcc", rest, b)
        build.put("v_add_u32", more, 1, quotient)
        build.put("v_cndmask_b32", quotient, quotient, more, "vcc")
        build.put("v_sub_u32", less, rest, b)
        build.put("v_cndmask_b32", rest, rest, less, "vcc")
    return quotient, rest


def divide_wide(build: Builder, name: str, target: list[Part], a: list[Word], b: list[Word]) -> None:
    """``div`` or ``rem`` of 64 bits, a bit of the quotient a turn.

    The dividend goes out at the top of one register, and the quotient comes in at its bottom.
    """
    divisor = build.pair(b)
    moving, rest, less = (build.temporary("vector", 2, n) for n in ("quotient", "rest", "less"))
    build.copy_words([build.word(moving, i) for i in range(2)], a)
    build.copy_words([build.word(rest, i) for i in range(2)], [0, 0])
    turns, fits, over = build.temporary("scalar"), build.temporary("scalar", 2), build.temporary("scalar", 2)
    top_bit, bit = build.temporary("vector"), build.temporary("vector")
    top = build.label("divide")
    build.put("s_mov_b32", turns, 64)
    build.item(Label(top))
    (low, high), (rest_low, rest_high) = ([build.word(p, i) for i in range(2)] for p in (moving, rest))
    build.put("v_lshrrev_b32", top_bit, 31, high)
    build.put("v_lshlrev_b64", moving, 1, moving)
    build.put("v_cmp_gt_i64", over, 0, rest)  # the bit that the shift takes out: then it is larger than any divisor
    build.put("v_lshlrev_b64", rest, 1, rest)
    build.put("v_or_b32", rest_low, rest_low, top_bit)
    build.put("v_cmp_ge_u64", fits, rest, divisor)
    build.put("s_or_b64", fits, fits, over)
    build.put("v_sub_co_u32", build.word(less, 0), "vcc", rest_low, build.word(divisor, 0), targets=2)
    build.put("v_subb_co_u32", build.word(less, 1), "vcc", rest_high, build.word(divisor, 1), "vcc", targets=2)
    build.put("v_cndmask_b32", rest_low, rest_low, build.word(less, 0), fits)
    build.put("v_cndmask_b32", rest_high, rest_high, build.word(less, 1), fits)
    build.put("v_cndmask_b32", bit, 0, 1, fits)
    build.put("v_or_b32", low, low, bit)
    build.put("s_sub_u32", turns, turns, 1)
    build.put("s_cmp_lg_u32", turns, 0, targets=0)
    build.item(Branch(top, "scc1"))
    found = moving if name == "div" else rest
    build.copy_words(target, [build.word(found, i) for i in range(2)])
