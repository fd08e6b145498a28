"""Floating-point arithmetic and comparison (PTX ISA 9.7.3 to 9.7.5), and conversions (9.7.9)."""

from __future__ import annotations

from tilekit.emulator.ptx.arithmetic import floating
from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler
from tilekit.emulator.ptx.language.forms import Decoded, all_sources, form, never
from tilekit.emulator.ptx.language.syntax import Operand, PairOperand, Sink
from tilekit.emulator.ptx.ops.integer import mask_of, set_results
from tilekit.emulator.ptx.ops.memory import byte_register

_HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_COMPARISONS = "compare=eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan"
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def value(g: BlockCompiler, operand: Operand, kind: str, *, ftz: bool = False) -> str:
    """Expression for the operand's values: float32, float64, or float32 of 16-bit kinds (two a lane for x2)."""
    if kind in _HALVES:
        text = f"{g.helper(floating.widen)}({g.array(operand, kind)}, {kind!r})"
    else:
        text = g.array(operand, kind)
    return f"{g.helper(floating.flush)}({text}, {kind!r})" if ftz else text


def places(g: BlockCompiler, i: Decoded) -> list[str]:
    """Template places for the sources of an instruction on f32, flushed where it says so."""
    numbers = [f"{{{n}}}" for n in range(len(i.operands) - 1)]
    return [f"{g.helper(floating.flush)}({number})" for number in numbers] if i.has("ftz") else numbers


def result(g: BlockCompiler, i: Decoded, kind: str, text: str, *, template: bool = False) -> None:
    """Clamp, flush and round as the modifiers say, then assign; a ``template`` has `places` for the sources."""
    if i.has("sat"):
        text = f"{g.helper(floating.saturate)}({text})"
    if i.has("relu"):
        text = f"{g.helper(floating.clamp_negative)}({text})"
    if i.has("ftz") and kind in ("f32", "f16", "f16x2"):
        text = f"{g.helper(floating.flush)}({text}, {kind!r})"
    if kind in _HALVES:
        text = f"{g.helper(floating.narrow)}({text}, {kind!r})"
    if template:
        g.write_later(i.operands[0], kind, text, *((operand, kind) for operand in i.operands[1:]))
    else:
        g.write(i.operands[0], kind, text)


def _ftz(i: Decoded, kind: str) -> bool:
    return i.has("ftz") and kind in ("f32", "f16", "f16x2")


def checked(g: BlockCompiler, kind: str, text: str, *operands: str) -> str:
    """An arithmetic expression with the NaNs that hardware makes; 16-bit kinds get theirs when they are rounded."""
    if kind == "f32":
        return f"{g.helper(floating.clean)}({text})"
    if kind == "f64":
        return f"{g.helper(floating.pass_nan)}({', '.join((text, *operands))})"
    return text


@form("add sub mul", "rnd=rn|rz|rm|rp? ftz? sat? type=f32|f64|f16|bf16|f16x2|bf16x2", "d a b", uniform=never)
def arithmetic(g: BlockCompiler, i: Decoded) -> None:
    """``add``, ``sub``, ``mul``."""
    kind = i["type"]
    sign = {"add": "+", "sub": "-", "mul": "*"}[i.form.opcode]
    direction = i.get("rnd", "rn")
    if kind == "f32" and direction == "rn":
        result(g, i, kind, checked(g, kind, f" {sign} ".join(places(g, i))), template=True)
        return
    a, b = (value(g, x, kind, ftz=_ftz(i, kind)) for x in i.operands[1:])
    if direction == "rn":
        text = checked(g, kind, f"{a} {sign} {b}", a, b)
    elif kind in ("f32", "f64"):
        text = f"{g.helper(floating.directed)}({i.form.opcode!r}, {direction!r}, {a}, {b})"
    else:
        raise g.fail(f"rounding .{direction} needs .f32 or .f64")
    result(g, i, kind, text)


@form("fma", "rnd=rn|rz|rm|rp ftz? sat? relu? oob? type=f32|f64|f16|bf16|f16x2|bf16x2", "d a b c", uniform=never)
@form("mad", "rnd=rn|rz|rm|rp? ftz? sat? type=f32|f64", "d a b c", uniform=never)
def multiply_add(g: BlockCompiler, i: Decoded) -> None:
    """``fma``."""
    kind = i["type"]
    direction = i.get("rnd", "rn")
    if kind == "f32" and direction == "rn" and not i.has("oob"):
        result(g, i, kind, f"{g.helper(floating.multiply_add)}({', '.join(places(g, i))})", template=True)
        return
    a, b, c = (value(g, x, kind, ftz=_ftz(i, kind)) for x in i.operands[1:])
    if i.has("oob"):
        _multiply_add_oob(g, i, kind, f"({a}.astype(float64) * {b} + {c})")
        return
    if direction != "rn":
        text = f"{g.helper(floating.directed)}('fma', {direction!r}, {a}, {b}, {c})"
    elif kind == "f64":
        text = f"{g.helper(floating.multiply_add_wide)}({a}, {b}, {c})"
    else:
        text = f"({a}.astype(float64) * {b} + {c})"
    result(g, i, kind, text)


def _multiply_add_oob(g: BlockCompiler, i: Decoded, kind: str, text: str) -> None:
    """``fma.oob``: zero where a factor is the NaN that fills what lies outside of a tensor."""
    if kind not in _HALVES:
        raise g.fail(".oob needs a type of 16 bits, or a pair of them")
    if i.has("relu"):
        text = f"{g.helper(floating.clamp_negative)}({text})"
    bits = "b32" if kind.endswith("x2") else "b16"
    factors = ", ".join(g.array(x, bits) for x in i.operands[1:3])
    rounded = f"{g.helper(floating.narrow)}({text}, {kind!r})"
    g.write(i.operands[0], bits, f"{g.helper(floating.zero_outside)}({rounded}, {factors})")


@form("add sub mul", "rnd=rn|rz|rm|rp? ftz? type=f32x2", "d a b", uniform=never)
@form("fma", "rnd=rn|rz|rm|rp ftz? type=f32x2", "d a b c", uniform=never)
def packed(g: BlockCompiler, i: Decoded) -> None:
    """``add``, ``sub``, ``mul`` and ``fma`` of two f32 in a 64-bit register."""
    parts = [f"{g.helper(floating.halves)}({g.array(x, 'b64')})" for x in i.operands[1:]]
    if i.has("ftz"):
        parts = [f"{g.helper(floating.flush)}({part})" for part in parts]
    direction = i.get("rnd", "rn")
    if direction != "rn":
        text = f"{g.helper(floating.directed)}({i.form.opcode!r}, {direction!r}, {', '.join(parts)})"
    elif i.form.opcode == "fma":
        text = f"{g.helper(floating.multiply_add)}({', '.join(parts)})"
    else:
        sign = {"add": "+", "sub": "-", "mul": "*"}[i.form.opcode]
        text = checked(g, "f32", f"{parts[0]} {sign} {parts[1]}")
    if i.has("ftz"):
        text = f"{g.helper(floating.flush)}({text})"
    g.write(i.operands[0], "b64", f"({text}).view(uint64)")


@form("add sub", "rnd=rn|rz|rm|rp? sat? type=f32 atype=f16|bf16", "d a b", uniform=never)
@form("fma", "rnd=rn|rz|rm|rp sat? type=f32 atype=f16|bf16", "d a b c", uniform=never)
def mixed(g: BlockCompiler, i: Decoded) -> None:
    """``add``, ``sub`` and ``fma`` in f32 of sources of 16 bits and an f32 last one."""
    opcode = i.form.opcode
    *narrow, last = i.operands[1:]
    parts = [*(value(g, x, i["atype"]) for x in narrow), value(g, last, "f32")]
    direction = i.get("rnd", "rn")
    if direction != "rn":
        text = f"{g.helper(floating.directed)}({opcode!r}, {direction!r}, {', '.join(parts)})"
    elif opcode == "fma":
        text = f"{g.helper(floating.multiply_add)}({', '.join(parts)})"
    else:
        text = checked(g, "f32", f"{parts[0]} {'+' if opcode == 'add' else '-'} {parts[1]}")
    result(g, i, "f32", text)


@form("div", "mode=approx|full|rn|rz|rm|rp ftz? type=f32|f64", "d a b", uniform=never)
def divide(g: BlockCompiler, i: Decoded) -> None:
    """``div``."""
    kind = i["type"]
    a, b = (value(g, x, kind, ftz=_ftz(i, kind)) for x in i.operands[1:])
    if i["mode"] in ("rz", "rm", "rp"):
        result(g, i, kind, f"{g.helper(floating.directed)}('div', {i['mode']!r}, {a}, {b})")
    else:
        result(g, i, kind, checked(g, kind, f"{a} / {b}", b, a))


@form("rcp sqrt", "mode=approx|rn|rz|rm|rp ftz? type=f32|f64", "d a", uniform=never)
@form("rsqrt", "mode=approx ftz? type=f32|f64", "d a", uniform=never)
@form("ex2", "mode=approx ftz? type=f32|f16|f16x2|bf16|bf16x2", "d a", uniform=never)
@form("lg2 sin cos", "mode=approx ftz? type=f32", "d a", uniform=never)
@form("tanh", "mode=approx type=f32|f16|f16x2|bf16|bf16x2", "d a", uniform=never)
def approximate(g: BlockCompiler, i: Decoded) -> None:
    """Reciprocals, roots, exponentials, logarithms and trigonometric functions."""
    kind = i["type"]
    if kind == "f32" and i["mode"] in ("approx", "rn"):
        call = f"{g.helper(floating.approximate)}({i.form.opcode!r}, {places(g, i)[0]})"
        result(g, i, kind, call, template=True)
        return
    a = value(g, i.operands[1], kind, ftz=_ftz(i, kind))
    if i["mode"] in ("rz", "rm", "rp"):
        result(g, i, kind, f"{g.helper(floating.directed)}({i.form.opcode!r}, {i['mode']!r}, {a})")
    else:
        result(g, i, kind, f"{g.helper(floating.approximate)}({i.form.opcode!r}, {a})")


@form("min max", "ftz? nan=NaN? xorsign=xorsign? abs? type=f32|f64|f16|bf16|f16x2|bf16x2", "d a b", uniform=never)
@form("min max", "ftz? nan=NaN? abs? type=f32", "d a b c", uniform=never)
def extremum(g: BlockCompiler, i: Decoded) -> None:
    """``min`` and ``max``: the number where one operand is a NaN, or NaN with ``.NaN``."""
    kind = i["type"]
    values = [value(g, x, kind, ftz=_ftz(i, kind)) for x in i.operands[1:]]
    function = floating.extremum_xor_sign if i.has("xorsign") else floating.extremum
    text = values[0]
    for other in values[1:]:
        text = f"{g.helper(function)}({i.form.opcode!r}, {text}, {other}, {i.has('nan')})"
    result(g, i, kind, text)


@form("neg abs", "ftz? type=f32|f64|f16|bf16|f16x2|bf16x2", "d a", uniform=never)
def negate(g: BlockCompiler, i: Decoded) -> None:
    """``neg`` and ``abs``."""
    kind = i["type"]
    a = value(g, i.operands[1], kind)
    if kind == "f64":
        text = f"{g.helper(floating.negate_wide)}({a}, {i.form.opcode == 'abs'})"
    else:
        text = checked(g, kind, f"-{a}" if i.form.opcode == "neg" else f"abs({a})")
    result(g, i, kind, text)


@form("copysign", "type=f32|f64", "d a b", uniform=never)
def copy_sign(g: BlockCompiler, i: Decoded) -> None:
    """``copysign``: the magnitude of the second with the sign of the first."""
    kind = i["type"]
    a, b = (g.array(x, kind) for x in i.operands[1:])
    g.write(i.operands[0], kind, f"np.copysign({b}, {a})")


@form(
    "setp",
    "compare=eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan bool=and|or|xor? ftz? type=f32|f64|f16|bf16",
    "d|p a b c?",
    uniform=never,
)
def set_predicate(g: BlockCompiler, i: Decoded) -> None:
    """``setp`` on floating point; the forms ending in ``u`` are true for NaN."""
    kind = i["type"]
    a, b = (value(g, x, kind, ftz=_ftz(i, kind)) for x in i.operands[1:3])
    set_results(g, i, i.operands[0], comparison(i["compare"], a, b), scalar=False)


@form("setp", f"{_COMPARISONS} bool=and|or|xor? ftz? type=f16x2|bf16x2", "d|p a b c?", uniform=never)
def set_two_predicates(g: BlockCompiler, i: Decoded) -> None:
    """``setp`` on two numbers a register: the first predicate is the low half's, the second the high half's."""
    kind = i["type"]
    a, b = (value(g, x, kind, ftz=_ftz(i, kind)) for x in i.operands[1:3])
    name = g.temporary()
    g.emit(f"{name} = {comparison(i['compare'], a, b)}")
    both = i.operands[0]
    results = (both.first, both.second) if isinstance(both, PairOperand) else (both,)
    sign = {"and": "&", "or": "|", "xor": "^"}[i.get("bool", "and")]
    third = g.array(i.operands[3], "pred") if len(i.operands) > 3 else ""
    for half, d in enumerate(results):
        text = f"{name}[{half}::2]"
        if not isinstance(d, Sink):
            g.write(d, "pred", f"{text} {sign} {third}" if third else text)


def comparison(compare: str, a: str, b: str) -> str:
    """Expression of an ordered or unordered comparison."""
    if compare in ("num", "nan"):
        ordered = f"(({a} == {a}) & ({b} == {b}))"
        return ordered if compare == "num" else f"~{ordered}"
    unordered = len(compare) == 3
    test = f"({a} {_COMPARE[compare[:2]]} {b})"
    if compare == "ne":
        return f"({test} & ({a} == {a}) & ({b} == {b}))"
    if unordered and compare != "neu":
        return f"({test} | ({a} != {a}) | ({b} != {b}))"
    return test


@form(
    "set",
    "compare=eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan bool=and|or|xor? ftz? dtype=u32|s32|f32 type=f32|f64",
    "d a b c?",
    uniform=never,
)
def set_value(g: BlockCompiler, i: Decoded) -> None:
    """``set`` on floating point: all ones, or 1.0."""
    kind = i["type"]
    a, b = (value(g, x, kind, ftz=_ftz(i, kind)) for x in i.operands[1:3])
    test = comparison(i["compare"], a, b)
    if len(i.operands) > 3:
        sign = {"and": "&", "or": "|", "xor": "^"}[i["bool"]]
        test = f"({test} {sign} {g.array(i.operands[3], 'pred')})"
    if i["dtype"] == "f32":
        g.write(i.operands[0], "f32", f"where({test}, float32(1), float32(0))")
    else:
        g.write(i.operands[0], "b32", f"where({test}, uint32(0xffffffff), uint32(0))")


@form(
    "set",
    f"{_COMPARISONS} bool=and|or|xor? ftz? dtype=f16|bf16|u16|s16|u32|s32 type=f16|bf16",
    "d a b c?",
    uniform=never,
)
@form("set", f"{_COMPARISONS} ftz? dtype=f16x2|bf16x2|u32|s32 type=f16x2|bf16x2", "d a b", uniform=never)
def set_halves(g: BlockCompiler, i: Decoded) -> None:
    """``set`` on 16-bit floating point, one or two a register."""
    kind, to = i["type"], i["dtype"]
    a, b = (value(g, x, kind, ftz=_ftz(i, kind)) for x in i.operands[1:3])
    test = comparison(i["compare"], a, b)
    if len(i.operands) > 3:
        sign = {"and": "&", "or": "|", "xor": "^"}[i["bool"]]
        test = f"({test} {sign} {g.array(i.operands[3], 'pred')})"
    two = kind.endswith("x2")
    if to in _HALVES:
        one = {"f16": 0x3C00, "bf16": 0x3F80}[to.removesuffix("x2")]
        text = f"where({test}, uint16({one}), uint16(0))"
        g.write(i.operands[0], "b32" if two else "b16", f"{text}.view(uint32)" if two else text)
    else:
        bits = 16 if two else int(to[1:])
        text = f"where({test}, uint{bits}({(1 << bits) - 1}), uint{bits}(0))"
        g.write(i.operands[0], f"b{to[1:]}", f"{text}.view(uint32)" if two else text)


@form("testp", "test=finite|infinite|number|notanumber|normal|subnormal type=f32|f64", "d a", uniform=never)
def test_property(g: BlockCompiler, i: Decoded) -> None:
    """``testp``."""
    g.write(i.operands[0], "pred", f"{g.helper(floating.classify)}({g.array(i.operands[1], i['type'])}, {i['test']!r})")


# -- cvt -------------------------------------------------------------------------------------------------------------

_INTEGERS = "u8|u16|u32|u64|s8|s16|s32|s64"


@form("cvt", f"sat? dtype={_INTEGERS} type={_INTEGERS}", "d a", uniform=all_sources)
def convert_integer(g: BlockCompiler, i: Decoded) -> None:
    """``cvt`` between integers: truncate or extend, or clamp with ``.sat``."""
    to, kind = i["dtype"], i["type"]
    d, a = i.operands
    to_tag, to_bits = to[0], int(to[1:])
    if g.results_uniform() and not i.has("sat"):
        text = _narrow_scalar(g, a, kind)
        g.write(
            d,
            to,
            f"{text} & {hex((1 << to_bits) - 1)}" if to_tag == "u" else _signed_result(text, to_bits, d),
            scalar=True,
            wider=True,
        )
        return
    source = _narrow_array(g, a, kind)
    if i.has("sat"):
        text = f"{g.helper(floating.clamp_integer)}({source}, {to!r})"
    else:
        text = f"{source}.astype({'int' if to_tag == 's' else 'uint'}{to_bits})"
    _write_narrow(g, d, to, text)


def _narrow_scalar(g: BlockCompiler, a: Operand, kind: str) -> str:
    bits = int(kind[1:])
    if bits == 8:
        low = f"({g.scalar(a, byte_register(a), wider=True)} & 0xff)"
        return f"signed8({low})" if kind[0] == "s" else low
    return f"({g.scalar(a, kind, wider=True)})"


def _signed_result(text: str, bits: int, d: Operand) -> str:
    return (
        f"signed{bits}({text} & {hex((1 << bits) - 1)}) & 0xffffffffffffffff"
        if bits < 64
        else f"{text} & {mask_of('b64')}"
    )


def _narrow_array(g: BlockCompiler, a: Operand, kind: str) -> str:
    if kind in ("u8", "s8"):
        return f"{g.array(a, byte_register(a), wider=True)}.astype({'int8' if kind == 's8' else 'uint8'})"
    return g.array(a, kind, wider=True)


def _write_narrow(g: BlockCompiler, d: Operand, kind: str, text: str) -> None:
    """Assign an integer to a register at least as wide, extended by its sign."""
    if kind in ("u8", "s8") and byte_register(d) != "b8":
        sixteen = "s16" if kind == "s8" else "u16"
        text = f"{text}.astype({'int16' if kind == 's8' else 'uint16'})"
        g.write(d, sixteen, text, wider=True)
    else:
        g.write(d, kind, text, wider=True)


@form("cvt", f"rnd=rni|rzi|rmi|rpi ftz? sat? dtype={_INTEGERS} type=f16|bf16|f32|f64", "d a", uniform=never)
def convert_to_integer(g: BlockCompiler, i: Decoded) -> None:
    """``cvt`` from floating point to an integer, always clamped."""
    kind = i["type"]
    source = value(g, i.operands[1], kind, ftz=_ftz(i, kind))
    _write_narrow(
        g, i.operands[0], i["dtype"], f"{g.helper(floating.to_integer)}({source}, {i['rnd']!r}, {i['dtype']!r})"
    )


@form("cvt", f"rnd=rn|rz|rm|rp ftz? sat? dtype=f16|bf16|f32|f64 type={_INTEGERS}", "d a", uniform=never)
def convert_from_integer(g: BlockCompiler, i: Decoded) -> None:
    """``cvt`` from an integer to floating point."""
    to = i["dtype"]
    source = _narrow_array(g, i.operands[1], i["type"])
    direction = i["rnd"]
    if to in ("f32", "f64"):
        result(g, i, to, f"{g.helper(floating.from_integer)}({source}, {to[1:]}, {direction!r})")
    else:
        _write_half(g, i, to, f"{g.helper(floating.to_odd)}({source})")


def _write_half(g: BlockCompiler, i: Decoded, to: str, text: str) -> None:
    flags = f"{to!r}, {i.get('rnd', 'rn')!r}, {i.has('satfinite')}, {i.has('relu')}"
    g.write(i.operands[0], "b16", f"{g.helper(floating.convert)}({text}, {flags})")


@form(
    "cvt",
    "rnd=rn|rz|rm|rp? ftz? sat? relu? satfinite? dtype=f16|bf16|f32|f64 type=f16|bf16|f32|f64",
    "d a",
    uniform=never,
)
def convert_float(g: BlockCompiler, i: Decoded) -> None:
    """``cvt`` between floating-point types."""
    to, kind = i["dtype"], i["type"]
    source = value(g, i.operands[1], kind, ftz=i.has("ftz") and kind == "f32")
    if i.has("sat"):
        source = f"{g.helper(floating.saturate)}({source})"
    if to in ("f16", "bf16"):
        _write_half(g, i, to, source)
    elif to == "f64":
        if i.has("ftz"):
            source = f"{g.helper(floating.clean)}({source})"
        g.write(i.operands[0], "f64", f"{source}.astype(float64)")
    elif kind == "f64":
        text = f"{g.helper(floating.to_single)}({source}, {i.get('rnd', 'rn')!r})"
        g.write(i.operands[0], "f32", f"{g.helper(floating.flush)}({text})" if i.has("ftz") else text)
    elif kind == "bf16":
        g.write(i.operands[0], "f32", source)
    else:
        text = f"{g.helper(floating.clean)}({source})"
        g.write(i.operands[0], "f32", f"{g.helper(floating.flush)}({text})" if i.has("ftz") else text)


@form("cvt", "rnd=rni|rzi|rmi|rpi ftz? sat? dtype=f32 type=f32", "d a", uniform=never)
@form("cvt", "rnd=rni|rzi|rmi|rpi sat? dtype=f64 type=f64", "d a", uniform=never)
@form("cvt", "rnd=rni|rzi|rmi|rpi sat? dtype=f16 type=f16", "d a", uniform=never)
@form("cvt", "rnd=rni|rzi|rmi|rpi dtype=bf16 type=bf16", "d a", uniform=never)
def round_to_integral(g: BlockCompiler, i: Decoded) -> None:
    """``cvt.rni`` and the like: to a whole number of the same type."""
    kind = i["type"]
    source = value(g, i.operands[1], kind, ftz=_ftz(i, kind))
    result(g, i, kind, f"{g.helper(floating.round_to_integral)}({source}, {i['rnd']!r})")


@form("cvt", "rnd=rna|rn|rz satfinite? relu? dtype=tf32 type=f32", "d a", uniform=never)
def convert_tf32(g: BlockCompiler, i: Decoded) -> None:
    """``cvt`` to tf32, kept in a 32-bit register."""
    source = g.array(i.operands[1], "f32")
    if i.has("satfinite") and i["rnd"] == "rna":
        g.write(i.operands[0], "b32", f"{g.helper(floating.to_tf32_finite)}({source})")
        return
    flags = f"{i['rnd']!r}, {i.has('satfinite')}, {i.has('relu')}"
    g.write(i.operands[0], "b32", f"{g.helper(floating.convert)}({source}, 'tf32', {flags})")


@form("cvt", "rnd=rn|rz relu? satfinite? dtype=f16x2|bf16x2 type=f32", "d a b", uniform=never)
@form("cvt", "rnd=rn satfinite relu? dtype=e4m3x2|e5m2x2 type=f32", "d a b", uniform=never)
def convert_pair(g: BlockCompiler, i: Decoded) -> None:
    """``cvt`` of two floats to one packed register; the first goes to the upper half."""
    to = i["dtype"]
    d, upper, lower = i.operands
    flags = f"{to[:-2]!r}, {i['rnd']!r}, {i.has('satfinite')}, {i.has('relu')}"
    template = f"{g.helper(floating.convert_pair)}({{0}}, {{1}}, {flags})"
    g.write_later(d, "b16" if to.startswith("e") else "b32", template, (upper, "f32"), (lower, "f32"))


@form("cvt", "rnd=rn satfinite relu? dtype=e4m3x2|e5m2x2 type=f16x2", "d a", uniform=never)
def convert_halves_to_bytes(g: BlockCompiler, i: Decoded) -> None:
    """``cvt`` of two f16 to two fp8."""
    name = g.temporary()
    g.emit(f"{name} = {value(g, i.operands[1], 'f16x2')}")
    flags = f"{i['dtype'][:-2]!r}, 'rn', True, {i.has('relu')}"
    g.write(i.operands[0], "b16", f"{g.helper(floating.convert_pair)}({name}[1::2], {name}[::2], {flags})")


@form("cvt", "rnd=rn relu? dtype=f16x2 type=e4m3x2|e5m2x2", "d a", uniform=never)
def convert_bytes_to_halves(g: BlockCompiler, i: Decoded) -> None:
    """``cvt`` of two fp8 to two f16."""
    text = f"{g.helper(floating.decode_bytes)}({g.array(i.operands[1], 'b16')}, {i['type'][:-2]!r})"
    if i.has("relu"):
        text = f"{g.helper(floating.clamp_negative)}({text})"
    g.write(i.operands[0], "b32", f"{text}.view(uint32)")
