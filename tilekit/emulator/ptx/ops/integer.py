"""Integer arithmetic, comparison, logic and shifts (PTX ISA 9.7.1, 9.7.6 to 9.7.8)."""

from __future__ import annotations

from tilekit.emulator.core.arithmetic.lanes import Array
from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler
from tilekit.emulator.ptx.compiler.block_registers import representation
from tilekit.emulator.ptx.execution.warp import Warp
from tilekit.emulator.ptx.language.forms import Decoded, form, never
from tilekit.emulator.ptx.language.syntax import Immediate, Operand, PairOperand, RegisterOperand, Sink

_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_UNSIGNED_COMPARE = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def mask_of(kind: str) -> str:
    """All ones of a type, as text."""
    return hex((1 << representation(kind)[1]) - 1)


def binary(g: BlockCompiler, i: Decoded, scalar: str, array: str, kind: str = "") -> None:
    """Emit ``d = op(a, b)``: templates over {a} and {b}, for Python integers and for arrays."""
    kind = kind or i["type"]
    d, a, b = i.operands[:3]
    if g.results_uniform():
        text = scalar.format(a=g.scalar(a, kind), b=g.scalar(b, kind))
        g.write(d, kind, text, scalar=True)
    else:
        both = g.sources_uniform(a, b)
        left = g.array(a, kind) if both else g.any(a, kind)
        g.write(d, kind, array.format(a=left, b=g.any(b, kind)))


@form("add", "type=$I", "d a b")
@form("sub", "type=$I", "d a b")
def add(g: BlockCompiler, i: Decoded) -> None:
    """``add`` and ``sub``, wrapping."""
    sign = "+" if i.form.opcode == "add" else "-"
    binary(g, i, f"({{a}} {sign} {{b}}) & {mask_of(i['type'])}", f"{{a}} {sign} {{b}}")


@form("add", "sat type=s32", "d a b")
@form("sub", "sat type=s32", "d a b")
def add_saturating(g: BlockCompiler, i: Decoded) -> None:
    """``add.sat.s32``: clamped to the type's range."""
    sign = "+" if i.form.opcode == "add" else "-"
    d, a, b = i.operands
    wide = f"({g.array(a, 's32')}.astype(int64) {sign} {g.array(b, 's32')})"
    g.write(d, "s32", f"minimum(maximum({wide}, -2147483648), 2147483647).astype(int32)")


@form("mul", "half=lo|hi|wide type=$I", "d a b")
def multiply(g: BlockCompiler, i: Decoded) -> None:
    """``mul.lo``, ``mul.hi``, ``mul.wide``."""
    kind, half = i["type"], i["half"]
    d, a, b = i.operands
    if half == "lo":
        binary(g, i, f"({{a}} * {{b}}) & {mask_of(kind)}", "{a} * {b}")
        return
    tag, bits = representation(kind)
    wide = f"{tag}{bits * 2}"
    if half == "wide":
        if g.results_uniform():
            g.write(d, wide, f"({g.scalar(a, kind)} * {g.scalar(b, kind)}) & {hex((1 << 2 * bits) - 1)}", scalar=True)
        else:
            dtype = f"{'int' if tag == 's' else 'uint'}{bits * 2}"
            g.write(d, wide, f"{g.array(a, kind)}.astype({dtype}) * {g.array(b, kind)}")
        return
    if g.results_uniform():
        text = f"({g.scalar(a, kind)} * {g.scalar(b, kind)} >> {bits}) & {mask_of(kind)}"
        g.write(d, kind, text, scalar=True)
    else:
        g.write(d, kind, f"multiply_high({g.array(a, kind)}, {g.array(b, kind)})")


@form("mad", "half=hi sat type=s32", "d a b c", uniform=never)
def multiply_add_saturating(g: BlockCompiler, i: Decoded) -> None:
    """``mad.hi.sat.s32``: clamped to the type's range."""
    a, b, c = (f"{g.array(x, 's32')}.astype(int64)" for x in i.operands[1:])
    total = f"({a} * {b} >> 32) + {c}"
    g.write(i.operands[0], "s32", f"minimum(maximum({total}, -2147483648), 2147483647).astype(int32)")


@form("mad", "half=lo|hi|wide type=$I", "d a b c")
def multiply_add(g: BlockCompiler, i: Decoded) -> None:
    """``mad.lo``, ``mad.hi``, ``mad.wide``."""
    kind, half = i["type"], i["half"]
    d, a, b, c = i.operands
    tag, bits = representation(kind)
    if half == "wide":
        wide = f"{tag}{bits * 2}"
        if g.results_uniform():
            text = f"({g.scalar(a, kind)} * {g.scalar(b, kind)} + {g.scalar(c, wide)}) & {hex((1 << 2 * bits) - 1)}"
            g.write(d, wide, text, scalar=True)
        else:
            dtype = f"{'int' if tag == 's' else 'uint'}{bits * 2}"
            g.write(d, wide, f"{g.array(a, kind)}.astype({dtype}) * {g.array(b, kind)} + {g.array(c, wide)}")
    elif half == "lo":
        if g.results_uniform():
            text = f"({g.scalar(a, kind)} * {g.scalar(b, kind)} + {g.scalar(c, kind)}) & {mask_of(kind)}"
            g.write(d, kind, text, scalar=True)
        else:
            g.write(d, kind, f"{g.array(a, kind)} * {g.any(b, kind)} + {g.any(c, kind)}")
    elif g.results_uniform():
        text = f"((({g.scalar(a, kind)} * {g.scalar(b, kind)}) >> {bits}) + {g.scalar(c, kind)}) & {mask_of(kind)}"
        g.write(d, kind, text, scalar=True)
    else:
        g.write(d, kind, f"multiply_high({g.array(a, kind)}, {g.array(b, kind)}) + {g.any(c, kind)}")


@form("mul24", "half=lo|hi type=u32|s32", "d a b")
@form("mad24", "half=lo|hi type=u32|s32", "d a b c")
@form("mad24", "half=hi sat type=s32", "d a b c")
def multiply_24(g: BlockCompiler, i: Decoded) -> None:
    """``mul24``, ``mad24``: products of 24-bit operands."""
    kind = i["type"]
    tag = representation(kind)[0]
    wide = "int64" if tag == "s" else "uint64"
    narrow = f"({{}} << 8 >> 8).astype({wide})"
    product = f"{narrow.format(g.array(i.operands[1], kind))} * {narrow.format(g.array(i.operands[2], kind))}"
    shift = " >> 16" if i["half"] == "hi" else ""
    text = f"(({product}){shift}).astype({'int32' if tag == 's' else 'uint32'})"
    if i.has("sat"):
        total = f"{text}.astype(int64) + {g.array(i.operands[3], kind)}"
        text = f"minimum(maximum({total}, -2147483648), 2147483647).astype(int32)"
    elif i.form.opcode == "mad24":
        text += f" + {g.array(i.operands[3], kind)}"
    g.write(i.operands[0], kind, text)


@form("div", "type=$I", "d a b")
def divide(g: BlockCompiler, i: Decoded) -> None:
    """``div``, toward zero."""
    bits = representation(i["type"])[1]
    binary(g, i, f"truncating_divide_int({{a}}, {{b}}, {bits})", "divide({a}, {b})")


@form("rem", "type=$I", "d a b")
def remainder(g: BlockCompiler, i: Decoded) -> None:
    """``rem``, with the dividend's sign."""
    bits = representation(i["type"])[1]
    binary(g, i, f"remainder_int({{a}}, {{b}}, {bits})", "remainder({a}, {b})")


@form("min max", "type=$I", "d a b")
def minimum(g: BlockCompiler, i: Decoded) -> None:
    """``min`` and ``max``."""
    op = i.form.opcode
    binary(g, i, f"{op}({{a}}, {{b}}) & {mask_of(i['type'])}", f"{op}imum({{a}}, {{b}})")


@form("min max", "relu type=s32", "d a b", uniform=never)
def clamped_extremum(g: BlockCompiler, i: Decoded) -> None:
    """``min.relu`` and ``max.relu``: not below zero."""
    d, a, b = i.operands
    g.write(d, "s32", f"maximum({i.form.opcode}imum({g.array(a, 's32')}, {g.array(b, 's32')}), 0)")


@form("neg abs", "type=s16|s32|s64", "d a")
def negate(g: BlockCompiler, i: Decoded) -> None:
    """``neg`` and ``abs``."""
    kind = i["type"]
    sign, call = ("-", "-") if i.form.opcode == "neg" else ("", "abs")
    d, a = i.operands
    if g.results_uniform():
        g.write(d, kind, f"({sign}{call.strip('-')}({g.scalar(a, kind)})) & {mask_of(kind)}", scalar=True)
    else:
        g.write(d, kind, f"{call}({g.array(a, kind)})")


@form("and or xor", "type=b16|b32|b64|pred", "d a b")
def logic(g: BlockCompiler, i: Decoded) -> None:
    """``and``, ``or``, ``xor``."""
    sign = {"and": "&", "or": "|", "xor": "^"}[i.form.opcode]
    binary(g, i, f"{{a}} {sign} {{b}}", f"{{a}} {sign} {{b}}")


@form("not", "type=b16|b32|b64|pred", "d a")
def invert(g: BlockCompiler, i: Decoded) -> None:
    """``not``."""
    kind = i["type"]
    d, a = i.operands
    if g.results_uniform():
        value = g.scalar(a, kind)
        g.write(d, kind, f"not {value}" if kind == "pred" else f"{value} ^ {mask_of(kind)}", scalar=True)
    else:
        g.write(d, kind, f"~{g.array(a, kind)}")


@form("cnot", "type=$B", "d a")
def logical_not(g: BlockCompiler, i: Decoded) -> None:
    """``cnot``: one where the source is zero."""
    kind = i["type"]
    d, a = i.operands
    if g.results_uniform():
        g.write(d, kind, f"int({g.scalar(a, kind)} == 0)", scalar=True)
    else:
        g.write(d, kind, f"({g.array(a, kind)} == 0).astype(uint{representation(kind)[1]})")


@form("shl", "type=$B", "d a b")
def shift_left(g: BlockCompiler, i: Decoded) -> None:
    """``shl``: counts beyond the width give zero."""
    _shift(g, i, "<<", "shift_left")


@form("shr", "type=$B", "d a b")
@form("shr", "type=$I", "d a b")
def shift_right(g: BlockCompiler, i: Decoded) -> None:
    """``shr``: arithmetic for signed types."""
    _shift(g, i, ">>", "shift_right")


def _shift(g: BlockCompiler, i: Decoded, sign: str, helper: str) -> None:
    kind = i["type"]
    d, a, count = i.operands
    bits = representation(kind)[1]
    if g.results_uniform():
        amount = g.scalar(count, "u32")
        amount = f"min({amount}, {bits})" if not amount.isdigit() else str(min(int(amount), bits))
        g.write(d, kind, f"({g.scalar(a, kind)} {sign} {amount}) & {mask_of(kind)}", scalar=True)
    elif isinstance(count, Immediate) and 0 <= count.value < bits:
        tag = representation(kind)[0]
        g.write(d, kind, f"{g.array(a, kind)} {sign} {g.array(count, f'{tag}{bits}')}")
    else:
        g.write(d, kind, f"{helper}({g.array(a, kind)}, {g.array(count, 'u32')})")


@form("setp", "compare=eq|ne|lt|le|gt|ge|lo|ls|hi|hs bool=and|or|xor? type=$I", "d|p a b c?")
@form("setp", "compare=eq|ne bool=and|or|xor? type=$B", "d|p a b c?")
def set_predicate(g: BlockCompiler, i: Decoded) -> None:
    """``setp`` on integers."""
    compare, kind = i["compare"], i["type"]
    if compare in _UNSIGNED_COMPARE:
        compare = _UNSIGNED_COMPARE[compare]
        kind = kind.replace("s", "u")
    d, a, b = i.operands[:3]
    if g.results_uniform():
        set_results(g, i, d, f"{g.scalar(a, kind)} {_COMPARE[compare]} {g.scalar(b, kind)}", scalar=True)
    else:
        both = g.sources_uniform(a, b)
        left = g.array(a, kind) if both else g.any(a, kind)
        set_results(g, i, d, f"{left} {_COMPARE[compare]} {g.any(b, kind)}", scalar=False)


def set_results(g: BlockCompiler, i: Decoded, d: Operand, test: str, *, scalar: bool) -> None:
    """Assign ``p`` and, for ``p|q``, its complement, combined with a third operand if there is one."""
    first, second = (d.first, d.second) if isinstance(d, PairOperand) else (d, Sink())
    extra = i.operands[3] if len(i.operands) > 3 else None
    name = g.temporary()
    if extra is not None:
        sign = {"and": "&", "or": "|", "xor": "^"}[i["bool"]]
        other = g.scalar(extra, "pred") if scalar else g.array(extra, "pred")
        g.emit(f"{name} = {test}")
        positive, negative = f"({name}) {sign} {other}", f"({'not ' if scalar else '~'}{name}) {sign} {other}"
    else:
        g.emit(f"{name} = {test}")
        positive, negative = name, f"{'not ' if scalar else '~'}{name}"
    if isinstance(first, RegisterOperand):
        g.write(first, "pred", positive, scalar=scalar)
    if isinstance(second, RegisterOperand):
        g.write(second, "pred", negative, scalar=scalar)


@form("set", "compare=eq|ne|lt|le|gt|ge|lo|ls|hi|hs bool=and|or|xor? dtype=u32|s32|f32 type=$I", "d a b c?")
@form("set", "compare=eq|ne bool=and|or|xor? dtype=u32|s32|f32 type=$B", "d a b c?")
def set_value(g: BlockCompiler, i: Decoded) -> None:
    """``set``: all ones or zero."""
    compare, kind = i["compare"], i["type"]
    if compare in _UNSIGNED_COMPARE:
        compare, kind = _UNSIGNED_COMPARE[compare], kind.replace("s", "u")
    test = f"({g.array(i.operands[1], kind)} {_COMPARE[compare]} {g.array(i.operands[2], kind)})"
    if len(i.operands) > 3:
        sign = {"and": "&", "or": "|", "xor": "^"}[i["bool"]]
        test = f"({test} {sign} {g.array(i.operands[3], 'pred')})"
    true = "0x3f800000" if i["dtype"] == "f32" else "0xffffffff"
    g.write(i.operands[0], "b32", f"where({test}, uint32({true}), uint32(0))")


@form("selp", "type=b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64", "d a b c")
def select(g: BlockCompiler, i: Decoded) -> None:
    """``selp``: by a predicate."""
    kind = i["type"].replace("s", "u")
    d, a, b, p = i.operands
    if g.results_uniform():
        kind = f"b{representation(kind)[1]}"
        text = f"{g.scalar(a, kind)} if {g.scalar(p, 'pred')} else {g.scalar(b, kind)}"
        g.write(d, kind, text, scalar=True)
    else:
        g.write(d, kind, f"where({g.array(p, 'pred')}, {g.array(a, kind)}, {g.array(b, kind)})")


@form("slct", "ftz? dtype=b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64 type=s32|f32", "d a b c")
def select_by_sign(g: BlockCompiler, i: Decoded) -> None:
    """``slct``: by the sign of a number; a negative subnormal is a zero under ``.ftz``, which is not negative."""
    kind = i["dtype"].replace("s", "u")
    d, a, b, c = i.operands
    limit = "-1.17549435e-38" if i.has("ftz") else "0"
    test = f"({g.array(c, i['type'])} {'>' if i.has('ftz') else '>='} {limit})"
    g.write(d, kind, f"where({test}, {g.array(a, kind)}, {g.array(b, kind)})")


@form("popc clz", "type=b32|b64", "d a")
def count_bits(g: BlockCompiler, i: Decoded) -> None:
    """``popc`` and ``clz``."""
    kind = i["type"]
    d, a = i.operands
    bits = representation(kind)[1]
    if g.results_uniform():
        value = g.scalar(a, kind)
        text = f"({value}).bit_count()" if i.form.opcode == "popc" else f"{bits} - ({value}).bit_length()"
        g.write(d, "u32", text, scalar=True)
    else:
        helper = "population_count" if i.form.opcode == "popc" else "leading_zeros"
        g.write(d, "u32", f"{helper}({g.array(a, kind)})")


@form("bfind", "shiftamt? type=u32|u64|s32|s64", "d a")
def find_highest(g: BlockCompiler, i: Decoded) -> None:
    """``bfind``."""
    g.write(i.operands[0], "u32", f"find_highest({g.array(i.operands[1], i['type'])}, {i.has('shiftamt')})")


@form("brev", "type=b32|b64", "d a")
def reverse(g: BlockCompiler, i: Decoded) -> None:
    """``brev``."""
    g.write(i.operands[0], i["type"], f"reverse_bits({g.array(i.operands[1], i['type'])})")


@form("bfe", "type=u32|u64|s32|s64", "d a b c")
def extract(g: BlockCompiler, i: Decoded) -> None:
    """``bfe``."""
    d, a, b, c = i.operands
    kind = i["type"]
    if kind[0] == "u" and isinstance(b, Immediate) and isinstance(c, Immediate):
        bits = representation(kind)[1]
        position, length = b.value & 0xFF, c.value & 0xFF
        ones = (1 << min(length, max(bits - position, 0))) - 1
        shift = min(position, bits - 1)
        binary(g, i, f"({{a}} >> {shift}) & {ones}", f"({{a}} >> uint{bits}({shift})) & uint{bits}({ones})")
        return
    g.write(d, kind, f"extract_bits({g.array(a, kind)}, {g.array(b, 'u32')}, {g.array(c, 'u32')})")


@form("bfi", "type=b32|b64", "d a b c e")
def insert(g: BlockCompiler, i: Decoded) -> None:
    """``bfi``."""
    d, a, b, c, e = i.operands
    kind = i["type"]
    text = f"insert_bits({g.array(a, kind)}, {g.array(b, kind)}, {g.array(c, 'u32')}, {g.array(e, 'u32')})"
    g.write(d, kind, text)


@form("bmsk", "mode=clamp|wrap type=b32", "d a b")
def bit_mask(g: BlockCompiler, i: Decoded) -> None:
    """``bmsk``: ones from a position."""
    d, a, b = (i.operands[0], *(g.array(x, "u32") for x in i.operands[1:]))
    if i["mode"] == "wrap":
        a, b = f"({a} & 31)", f"({b} & 31)"
    ones = g.array(Immediate(1), "u32")
    g.write(d, "b32", f"shift_left(shift_left({ones}, {b}) - 1, {a})")


@form("lop3", "type=b32", "d a b c #")
def logic_3(g: BlockCompiler, i: Decoded) -> None:
    """``lop3``: a function of three bits."""
    d, a, b, c, table = i.operands
    assert isinstance(table, Immediate)
    if g.results_uniform():
        x, y, z = (f"({g.scalar(o, 'b32')})" for o in (a, b, c))
        terms = [
            f"({x if n & 4 else '~' + x} & {y if n & 2 else '~' + y} & {z if n & 1 else '~' + z})"
            for n in range(8)
            if table.value >> n & 1
        ]
        g.write(d, "b32", f"({' | '.join(terms) or '0'}) & 0xffffffff", scalar=True)
    else:
        text = f"look_up_3({g.array(a, 'b32')}, {g.array(b, 'b32')}, {g.array(c, 'b32')}, {table.value})"
        g.write(d, "b32", text)


@form("lop3", "combine=or|and type=b32", "d|p a b c # a", uniform=never)
def logic_3_to_predicate(g: BlockCompiler, i: Decoded) -> None:
    """``lop3.or`` and ``lop3.and``: also whether the result is not zero, combined with a predicate."""
    results, a, b, c, table, q = i.operands
    assert isinstance(table, Immediate)
    d, p = (results.first, results.second) if isinstance(results, PairOperand) else (results, Sink())
    name = g.temporary()
    what = ", ".join(g.array(operand, "b32") for operand in (a, b, c))
    given = g.array(q, "pred")
    g.emit(f"{name} = look_up_3({what}, {table.value})")
    if not isinstance(d, Sink):
        g.write(d, "b32", name)
    sign = "|" if i["combine"] == "or" else "&"
    g.write(p, "pred", f"({name} != uint32(0)) {sign} {given}")


@form("prmt", "type=b32 mode=f4e|b4e|rc8|ecl|ecr|rc16?", "d a b c")
def permute(g: BlockCompiler, i: Decoded) -> None:
    """``prmt``: bytes of two registers."""
    d, a, b, c = i.operands
    text = f"permute_bytes({g.array(a, 'b32')}, {g.array(b, 'b32')}, {g.array(c, 'b32')}, {i.get('mode')!r})"
    g.write(d, "b32", text + (".copy()" if g.results_uniform() else ""))


@form("shf", "direction=l|r mode=clamp|wrap type=b32", "d a b c")
def funnel(g: BlockCompiler, i: Decoded) -> None:
    """``shf``: funnel shift."""
    d, a, b, c = i.operands
    call = f"funnel_shift({g.array(a, 'b32')}, {g.array(b, 'b32')}, {g.array(c, 'u32')}, {i['direction'] == 'l'}, "
    g.write(d, "b32", f"{call}{i['mode'] == 'wrap'})")


@form("sad", "type=$I", "d a b c")
def absolute_difference(g: BlockCompiler, i: Decoded) -> None:
    """``sad``: |a - b| + c."""
    kind = i["type"]
    d = i.operands[0]
    a, b, c = (g.array(x, kind) for x in i.operands[1:])
    g.write(d, kind, f"{c} + where({a} < {b}, {b} - {a}, {a} - {b})")


@form("szext", "mode=clamp|wrap type=u32|s32", "d a b")
def extend(g: BlockCompiler, i: Decoded) -> None:
    """``szext``: sign- or zero-extend the low bits."""
    d, a, n = i.operands
    count = g.array(n, "u32")
    count = f"({count} & 31)" if i["mode"] == "wrap" else f"minimum({count}, 32)"
    g.write(d, i["type"], f"extract_bits({g.array(a, i['type'])}, 0, {count})")


@form("add sub mad", "half=lo|hi? cc type=u32|s32|u64|s64|b32|b64", "d a b c?", uniform=never)
@form("addc subc madc", "half=lo|hi? cc? type=u32|s32|u64|s64|b32|b64", "d a b c?", uniform=never)
def carry_chain(g: BlockCompiler, i: Decoded) -> None:
    """Extended precision: the carry lives in the warp between instructions."""
    kind = i["type"].replace("s", "u")
    op = i.form.opcode
    if op.startswith("mad"):
        a, b = (g.array(x, i["type"]) for x in i.operands[1:3])
        product = f"({a} * {b})" if i["half"] == "lo" else f"multiply_high({a}, {b})"
        left = f"{product}.view(uint{representation(kind)[1]})"
        right = g.array(i.operands[3], kind)
    else:
        left, right = (g.array(x, kind) for x in i.operands[1:3])
    flags = f"{op.startswith('sub')}, {op.endswith('c')}, {i.has('cc')}"
    g.write(i.operands[0], kind, f"{g.helper(with_carry)}(w, {left}, {right}, {flags})")


def with_carry(warp: Warp, a: Array, b: Array, subtract: bool, carry_in: bool, carry_out: bool) -> Array:
    """Add or subtract with the condition code's carry.

    A subtraction is the addition of the complement, and its carry set when nothing was borrowed: code of nvcc reads it
    with ``addc``, and ptxas compiles it so.
    """
    if subtract:
        b = ~b
    carry = warp.carry.astype(a.dtype) if carry_in else a.dtype.type(subtract)
    partial = a + b
    total: Array = partial + carry
    if carry_out:
        warp.carry = (partial < a) | (total < partial)
    return total
