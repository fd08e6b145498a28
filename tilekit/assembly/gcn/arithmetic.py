"""Operations of the trace as instructions: on SGPRs where all operands are scalar, else on VGPRs, lane by lane."""

from __future__ import annotations

from tilekit.assembly.gcn import division
from tilekit.assembly.gcn.builder import Builder
from tilekit.assembly.gcn.code import Part
from tilekit.assembly.gcn.operands import Word, is_inline, is_scalar, is_vector
from tilekit.assembly.trace import Operation
from tilekit.assembly.types import PRED, RegisterType

RELATIONS = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "lg"}
"""Comparisons, as scalar instructions and those of floats call them; of floats all are false of NaN, as in PTX."""

_BITWISE = {"and": "and", "or": "or", "xor": "xor"}
_REVERSED = {"v_sub_f32": "v_subrev_f32", "v_sub_u32": "v_subrev_u32"}


def number_suffix(type_: RegisterType) -> str:
    """How mnemonics call a 32-bit type."""
    return {"float": "f32", "signed": "i32"}.get(type_.kind, "u32")


def spell(build: Builder, operation: Operation) -> None:
    """Append the instructions of an operation."""
    result, uniformity = operation.result, build.uniformity
    if result.text in uniformity.constants or result.text in uniformity.same:
        return  # the number, or the other register, stands where it is read
    if operation.type is PRED:
        _predicates(build, operation)
    elif result.type is PRED:
        _compare(build, operation)
    elif all(uniformity.is_scalar(what) for what in operation.operands) and _is_scalar_operation(operation):
        _scalar(build, operation)
    else:
        _vector(build, operation)


def _is_scalar_operation(operation: Operation) -> bool:
    floating = operation.type.kind == "float" and operation.name not in ("move", "select")
    return not floating and operation.name not in ("div", "rem")


# -- predicates --------------------------------------------------------------------------------------------------------


def _predicates(build: Builder, operation: Operation) -> None:
    """An operation on predicates: on all lanes' bits at once."""
    a, *others = (build.mask(what) for what in operation.operands)
    with build.predicate(operation.result) as target:
        match operation.name:
            case "move":
                build.put("s_mov_b64", target, a)
            case "not":
                build.scalar("s_not_b64", target, a)
            case "select":
                b, condition = others
                kept = build.temporary("scalar", 2)
                build.scalar("s_andn2_b64", kept, b, condition)
                chosen = build.temporary("scalar", 2)
                build.scalar("s_and_b64", chosen, a, condition)
                build.put("s_or_b64", target, chosen, kept)
            case name:
                build.scalar(f"s_{name}_b64", target, a, others[0])


def scalar_condition(build: Builder, operation: Operation) -> bool:
    """Append a comparison of scalars; returns what SCC is where it holds."""
    name, type_ = operation.name, operation.type
    a, b = (build.words(what) for what in operation.operands)
    if type_.bits == 64:
        if name in ("eq", "ne"):
            left, right = (_scalar_pair(build, words) for words in (a, b))
            build.put(f"s_cmp_{RELATIONS[name]}_u64", left, right, targets=0)
            return True
        if name in ("gt", "le"):
            a, b = b, a
        spare = build.temporary("scalar")
        build.scalar("s_sub_u32", spare, a[0], b[0])
        build.scalar("s_subb_u32", spare, a[1], b[1])
        return name in ("lt", "gt")
    if type_.bits == 16:
        a, b = ([_low_half(build, word) for word in words] for words in (a, b))
    suffix = "i32" if type_.kind == "signed" else "u32"
    build.scalar(f"s_cmp_{RELATIONS[name]}_{suffix}", a[0], b[0], targets=0)
    return True


def _low_half(build: Builder, word: Word) -> Word:
    if isinstance(word, int):
        return word & 0xFFFF
    masked = build.temporary("scalar")
    build.scalar("s_and_b32", masked, word, 0xFFFF)
    return masked


def _compare(build: Builder, operation: Operation) -> None:
    if _is_scalar_operation(operation) and all(build.uniformity.is_scalar(what) for what in operation.operands):
        holds = scalar_condition(build, operation)
        with build.predicate(operation.result) as target:
            build.put("s_cselect_b64", target, *((0xFFFFFFFF, 0) if holds else (0, 0xFFFFFFFF)))
        return
    type_, relation = operation.type, operation.name
    a, b = (build.words(what) for what in operation.operands)
    if type_.kind == "float":
        suffix, relation = "f32", RELATIONS[relation]
    else:
        suffix = f"{'i' if type_.kind == 'signed' else 'u'}{type_.bits}"
    with build.predicate(operation.result) as target:
        if type_.bits == 64:
            build.vector(f"v_cmp_{relation}_{suffix}", target, build.pair(a), build.pair(b))
        else:
            build.vector(f"v_cmp_{relation}_{suffix}", target, a[0], b[0])


# -- scalars -----------------------------------------------------------------------------------------------------------


def _scalar_pair(build: Builder, words: list[Word]) -> Part:
    return build.pair(words, "scalar")


def _scalar(build: Builder, operation: Operation) -> None:
    name, type_ = operation.name, operation.type
    wide = operation.result.type.bits == 64
    if name == "select":
        first, second, condition = operation.operands
        a, b = build.words(first), build.words(second)
        with build.result(operation.result, "scalar") as target:
            number = build.number(condition)
            if number is not None:
                build.copy_words(target, a if number.value else b)
                return
            build.put("s_cmp_lg_u64", build.mask(condition), 0, targets=0)
            for to, yes, no in zip(target, a, b, strict=True):
                build.scalar("s_cselect_b32", to, yes, no)
        return
    sources = [build.words(what) for what in operation.operands]
    with build.result(operation.result, "scalar") as target:
        if name == "widen":
            _scalar_product(build, target, sources[0][0], sources[1][0])
        elif wide:
            _scalar_wide(build, name, target, sources)
        else:
            _scalar_word(build, name, type_, target[0], *(words[0] for words in sources))


def _scalar_word(build: Builder, name: str, type_: RegisterType, target: Part, a: Word, b: Word = 0) -> None:
    match name:
        case "move":
            build.copy_words([target], [a])
        case "add" | "sub":
            build.scalar(f"s_{name}_u32", target, a, b)
        case "mul":
            a, b = (b, a) if isinstance(a, int) else (a, b)
            if isinstance(b, int) and b.bit_count() == 1:
                build.scalar("s_lshl_b32", target, a, b.bit_length() - 1)
            else:
                build.scalar("s_mul_i32", target, a, b)
        case "min":
            build.scalar(f"s_min_{number_suffix(type_)}", target, a, b)
        case "and" | "or" | "xor":
            build.scalar(f"s_{name}_b32", target, a, b)
        case "not":
            build.scalar("s_not_b32", target, a)
        case "shl" | "shr":
            _scalar_shift(build, name, type_, target, a, b)


def _scalar_shift(build: Builder, name: str, type_: RegisterType, target: Part, a: Word, b: Word) -> None:
    """A shift; by 32 bits or more it leaves zeros, or copies of the sign."""
    signed = name == "shr" and type_.kind == "signed"
    mnemonic = "s_ashr_i32" if signed else "s_lshl_b32" if name == "shl" else "s_lshr_b32"
    if type_.bits == 16 and name == "shr":
        a = _low_half(build, a)
    if isinstance(b, int):
        if b > 31 and not signed:
            build.put("s_mov_b32", target, 0)
        else:
            build.scalar(mnemonic, target, a, min(b, 31))
    elif signed:
        clamped = build.temporary("scalar")
        build.scalar("s_min_u32", clamped, b, 31)
        build.scalar(mnemonic, target, a, clamped)
    else:
        shifted = build.temporary("scalar")
        build.scalar(mnemonic, shifted, a, b)
        build.put("s_cmp_lt_u32", b, 32, targets=0)
        build.put("s_cselect_b32", target, shifted, 0)


def _scalar_product(build: Builder, target: list[Part], a: Word, b: Word) -> None:
    build.scalar("s_mul_i32", target[0], a, b)
    build.scalar("s_mul_hi_u32", target[1], a, b)


def _scalar_wide(build: Builder, name: str, target: list[Part], sources: list[list[Word]]) -> None:
    a, *rest = sources
    match name:
        case "move":
            build.copy_words(target, a)
        case "add" | "sub":
            carried = {"add": "s_addc_u32", "sub": "s_subb_u32"}[name]
            build.scalar(f"s_{name}_u32", target[0], a[0], rest[0][0])
            build.scalar(carried, target[1], a[1], rest[0][1])
        case "mul":
            low, high, other = (build.temporary("scalar") for _ in range(3))
            b = rest[0]
            build.scalar("s_mul_hi_u32", high, a[0], b[0])
            build.scalar("s_mul_i32", other, a[0], b[1])
            build.scalar("s_add_u32", high, high, other)
            build.scalar("s_mul_i32", other, a[1], b[0])
            build.scalar("s_mul_i32", low, a[0], b[0])
            build.scalar("s_add_u32", target[1], high, other)
            build.copy_words(target[:1], [low])
        case "min":
            b = rest[0]
            spare = build.temporary("scalar")
            build.scalar("s_sub_u32", spare, a[0], b[0])
            build.scalar("s_subb_u32", spare, a[1], b[1])
            for to, first, second in zip(target, a, b, strict=True):
                build.scalar("s_cselect_b32", to, first, second)
        case "and" | "or" | "xor":
            for to, left, right in zip(target, a, rest[0], strict=True):
                build.scalar(f"s_{name}_b32", to, left, right)
        case "not":
            for to, left in zip(target, a, strict=True):
                build.scalar("s_not_b32", to, left)
        case "shl" | "shr":
            _scalar_wide_shift(build, name, target, a, rest[0][0])


def _scalar_wide_shift(build: Builder, name: str, target: list[Part], a: list[Word], b: Word) -> None:
    mnemonic = "s_lshl_b64" if name == "shl" else "s_lshr_b64"
    if isinstance(b, int) and b > 63:
        build.copy_words(target, [0, 0])
        return
    if isinstance(b, int):
        build.put(mnemonic, _whole(target), _scalar_pair(build, a), b)
        return
    shifted = build.temporary("scalar", 2)
    build.put(mnemonic, shifted, _scalar_pair(build, a), b)
    halves: list[Word] = [build.word(shifted, i) for i in range(2)]
    build.put("s_cmp_lt_u32", b, 64, targets=0)
    for to, half in zip(target, halves, strict=True):
        build.put("s_cselect_b32", to, half, 0)


# -- vectors -----------------------------------------------------------------------------------------------------------


def _vector(build: Builder, operation: Operation) -> None:
    name, type_ = operation.name, operation.type
    if name == "move":
        home = build.home(operation.result)
        build.copy_words([build.word(home, i) for i in range(home.words)], build.words(operation.operands[0]))
        return
    if name == "select":
        _select(build, operation)
        return
    sources = [build.words(what) for what in operation.operands]
    with build.result(operation.result, "vector") as target:
        if name == "widen":
            _product(build, target, sources[0][0], sources[1][0])
        elif type_.bits == 64:
            _wide(build, name, target, sources)
        else:
            _word(build, name, type_, target[0], *(words[0] for words in sources))


def _select(build: Builder, operation: Operation) -> None:
    first, second, condition = operation.operands
    a, b = build.words(first), build.words(second)
    number = build.number(condition)
    with build.result(operation.result, "vector") as target:
        if number is not None:
            build.copy_words(target, a if number.value else b)
            return
        mask = build.mask(condition)
        for to, yes, no in zip(target, a, b, strict=True):
            choose(build, to, yes, no, mask)


def choose(build: Builder, target: Part, yes: Word, no: Word, mask: Part | int | str) -> None:
    """One of two words by a predicate."""
    yes, no = (word if is_inline(word) or is_vector(word) else build.in_vector(word) for word in (yes, no))
    build.put("v_cndmask_b32", target, no, yes, mask)


def _word(build: Builder, name: str, type_: RegisterType, target: Part, a: Word, b: Word = 0) -> None:
    suffix = number_suffix(type_)
    match name:
        case "add":
            build.vector2(
                f"v_add_{suffix.replace('i', 'u')}", target, a, b, reverse=f"v_add_{suffix.replace('i', 'u')}"
            )
        case "sub":
            mnemonic = f"v_sub_{suffix.replace('i', 'u')}"
            build.vector2(mnemonic, target, a, b, reverse=_REVERSED[mnemonic])
        case "mul" if type_.kind == "float":
            build.vector2("v_mul_f32", target, a, b, reverse="v_mul_f32")
        case "mul":
            multiply(build, target, a, b)
        case "min":
            build.vector2(f"v_min_{suffix}", target, a, b, reverse=f"v_min_{suffix}")
        case "and" | "or" | "xor":
            build.vector2(f"v_{name}_b32", target, a, b, reverse=f"v_{name}_b32")
        case "not":
            build.put("v_not_b32", target, a)
        case "shl" | "shr":
            _shift(build, name, type_, target, a, b)
        case "div" | "rem":
            division.divide(build, name, type_, target, a, b)


def multiply(build: Builder, target: Part, a: Word, b: Word) -> None:
    """The low half of a product of integers."""
    a, b = (b, a) if isinstance(a, int) else (a, b)
    if isinstance(b, int) and b.bit_count() == 1:
        build.vector2("v_lshlrev_b32", target, b.bit_length() - 1, a)
    else:
        build.vector("v_mul_lo_u32", target, a, b)


def _shift(build: Builder, name: str, type_: RegisterType, target: Part, a: Word, b: Word) -> None:
    """A shift; by 32 bits or more it leaves zeros, or copies of the sign."""
    signed = name == "shr" and type_.kind == "signed"
    mnemonic = "v_ashrrev_i32" if signed else "v_lshlrev_b32" if name == "shl" else "v_lshrrev_b32"
    if type_.bits == 16 and name == "shr":
        masked = build.temporary("vector")
        build.vector2("v_and_b32", masked, 0xFFFF, a)
        a = masked
    if isinstance(b, int):
        if b > 31 and not signed:
            build.put("v_mov_b32", target, 0)
        else:
            build.vector2(mnemonic, target, min(b, 31), a)
    elif signed:
        clamped = build.temporary("vector")
        build.vector2("v_min_u32", clamped, 31, build.in_vector(b))
        build.vector2(mnemonic, target, clamped, a)
    else:
        shifted = build.temporary("vector")
        build.vector2(mnemonic, shifted, b, a)
        fits = build.temporary("scalar", 2)
        build.vector("v_cmp_gt_u32", fits, 32, b)
        choose(build, target, shifted, 0, fits)


def _product(build: Builder, target: list[Part], a: Word, b: Word) -> None:
    """The 64-bit product of two words."""
    build.vector("v_mad_u64_u32", _whole(target), "vcc", a, b, 0, targets=2)


def _wide(build: Builder, name: str, target: list[Part], sources: list[list[Word]]) -> None:
    a, *rest = sources
    match name:
        case "add":
            build.vector("v_lshl_add_u64", _whole(target), _pair(build, a), 0, _pair(build, rest[0]))
        case "sub":
            first, second = ([build.in_vector(word) for word in words] for words in (a, rest[0]))
            low = build.temporary("vector")
            build.put("v_sub_co_u32", low, "vcc", first[0], second[0], targets=2)
            build.put("v_subb_co_u32", target[1], "vcc", first[1], second[1], "vcc", targets=2)
            build.copy_words(target[:1], [low])
        case "mul":
            b = rest[0]
            product, upper, other = build.temporary("vector", 2), build.temporary("vector"), build.temporary("vector")
            build.vector("v_mad_u64_u32", product, "vcc", a[0], b[0], 0, targets=2)
            build.vector("v_mul_lo_u32", upper, a[0], b[1])
            build.vector("v_mul_lo_u32", other, a[1], b[0])
            build.vector("v_add3_u32", target[1], upper, other, build.word(product, 1))
            build.copy_words(target[:1], [build.word(product, 0)])
        case "min":
            b = rest[0]
            smaller = build.temporary("scalar", 2)
            build.vector("v_cmp_lt_u64", smaller, build.pair(a), build.pair(b))
            for to, yes, no in zip(target, a, b, strict=True):
                choose(build, to, yes, no, smaller)
        case "and" | "or" | "xor":
            for to, left, right in zip(target, a, rest[0], strict=True):
                build.vector2(f"v_{name}_b32", to, left, right, reverse=f"v_{name}_b32")
        case "not":
            for to, left in zip(target, a, strict=True):
                build.put("v_not_b32", to, left)
        case "shl" | "shr":
            _wide_shift(build, name, target, a, rest[0][0])
        case "div" | "rem":
            division.divide_wide(build, name, target, a, rest[0])


def _whole(words: list[Part]) -> Part:
    """Two words of one register as a pair."""
    return Part(words[0].register, words[0].first, 2)


def _pair(build: Builder, words: list[Word]) -> Part | int:
    """A 64-bit source: a small constant, an aligned pair as it is, or a copy in VGPRs."""
    if words[1] == 0 and isinstance(words[0], int) and words[0] <= 64:
        return words[0]
    if is_scalar(words[0]) and is_scalar(words[1]):
        return build.pair(words, "scalar")
    return build.pair(words)


def _wide_shift(build: Builder, name: str, target: list[Part], a: list[Word], b: Word) -> None:
    mnemonic = "v_lshlrev_b64" if name == "shl" else "v_lshrrev_b64"
    if isinstance(b, int) and b > 63:
        build.copy_words(target, [0, 0])
        return
    if isinstance(b, int):
        build.vector(mnemonic, _whole(target), b, build.pair(a))
        return
    shifted = build.temporary("vector", 2)
    build.vector(mnemonic, shifted, b, build.pair(a))
    halves: list[Word] = [build.word(shifted, i) for i in range(2)]
    fits = build.temporary("scalar", 2)
    build.vector("v_cmp_gt_u32", fits, 64, b)
    for to, half in zip(target, halves, strict=True):
        choose(build, to, half, 0, fits)
