"""Variable declarations: type, alignment, array sizes, initialisers (PTX ISA, section 5.4)."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

from tilekit.emulator.ptx.language.lexer import Token
from tilekit.emulator.ptx.language.syntax import TYPE_BYTES, Pointer, Variable
from tilekit.emulator.ptx.language.token_reader import TokenReader

VARIABLE_TYPES = TYPE_BYTES.keys() - {"bf16", "bf16x2"}
"""Types that registers and variables may have: the others are those of instructions."""
_OPAQUE = ("texref", "samplerref", "surfref")
_POINTEES = ("global", "shared", "const", "local")
_INITIALISED = ("global", "const")
_ATTRIBUTES = (".managed", ".unified")


def variable_declarators(reader: TokenReader, space: str, external: bool) -> Iterator[tuple[Variable, Token]]:
    """``.align 16 .b8 name[64] = {…}, other`` after the state space: the variables, and where each is named.

    One at a time, so that an initial value may name one before it.
    """
    align, vector, kind = _type(reader, space)
    if reader.peek() == ";":
        return
    while True:
        variable, shape, name = _declarator(reader, space, align, vector, kind)
        variable.external = external
        if reader.tokens[reader.at].text == "=":
            _initialised(reader, variable, shape)
        if not external and 0 in shape and variable.size == 0:
            reader.fail(f"{name.text} has no size: only an .extern array goes without", name)
        yield variable, name
        if not reader.accept(","):
            break


def parameter(reader: TokenReader, is_entry: bool) -> tuple[Variable, Token]:
    """``.align 8 .b8 name[12]``, or ``.u64 .ptr .global .align 4 name``, after ``.param``."""
    align, vector, kind = _type(reader, "param")
    pointee = _pointee(reader) if reader.tokens[reader.at].text == ".ptr" else ""
    if reader.accept(".align"):
        align = max(align, alignment(reader))
    variable, shape, name = _declarator(reader, "param", align, vector, kind)
    if len(shape) > 1:
        reader.fail(f"{name.text} is an array of one dimension, as every parameter", name)
    if is_entry and 0 in shape:
        reader.fail(f"parameter {name.text} of an .entry has no size", name)
    if pointee and not is_entry:
        reader.fail(f".ptr describes a parameter of an .entry, and {name.text} is one of a .func", name)
    variable.pointee = pointee if pointee != "generic" else ""
    return variable, name


def _type(reader: TokenReader, space: str) -> tuple[int, int, str]:
    """Alignment, components and type."""
    align, vector = 0, 1
    while True:
        token = reader.next()
        text = token.text
        if text == ".align":
            align = alignment(reader)
        elif text == ".attribute":
            _attribute(reader, space)
        else:
            break
    if text in (".v2", ".v4"):
        vector = int(text[2])
        token = reader.next()
        text = token.text
    kind = text[1:]
    if kind in _OPAQUE and vector == 1:
        if space not in ("global", "param") or reader.inside_function:
            reader.fail(f"a .{kind} is a parameter of an .entry, or a variable of the module in .global", token)
        return align, vector, "b64"  # the instructions that use them are refused by name
    if token.kind != "dotted" or kind not in VARIABLE_TYPES or kind == "pred":
        reader.fail(f"expected the type of a variable, for example .b32, found {text!r}", token)
    if vector * TYPE_BYTES[kind] > 16:
        reader.fail(f"a vector takes 16 bytes at most: .v{vector} .{kind} is none", token)
    array = reader.tokens[reader.at + 1].text == "["
    if space in ("param", "frame") and (vector > 1 or (kind == "f16x2" and not array)):
        shown = f".v{vector} .{kind}" if vector > 1 else f".{kind}"
        reader.fail(f"a .param variable is no {shown}: declare .align {vector * TYPE_BYTES[kind]} .b8 name[…]", token)
    return align, vector, kind


def alignment(reader: TokenReader) -> int:
    """The number behind ``.align``."""
    token = reader.tokens[reader.at]
    number = reader.literal("an alignment", bits=31)
    if number < 1 or number & number - 1:
        below = 1 << max(number, 1).bit_length() - 1
        reader.fail(f".align {number}: an alignment is a power of two, for example {below}",
                    token)  # fmt: skip
    return number


def _attribute(reader: TokenReader, space: str) -> None:
    """``(.managed)``, or ``(.unified(…))``."""
    reader.expect("(")
    while True:
        token = reader.next()
        if token.text not in _ATTRIBUTES:
            reader.fail(f"{token.text} is no attribute: {', '.join(_ATTRIBUTES)}", token)
        if token.text == ".managed" and space != "global":
            reader.fail(f".managed is for variables in .global, and this one is in .{space}", token)
        if reader.peek() == "(":
            reader.skip_parentheses()
        if not reader.accept(","):
            break
    reader.expect(")")


def _pointee(reader: TokenReader) -> str:
    """State space that ``.ptr`` names, behind it perhaps an alignment."""
    reader.expect(".ptr")
    pointee = "generic"
    if reader.tokens[reader.at].text[1:] in _POINTEES:
        pointee = reader.next().text[1:]
    if reader.accept(".align"):
        alignment(reader)
    return pointee


def _declarator(
    reader: TokenReader, space: str, align: int, vector: int, kind: str
) -> tuple[Variable, list[int], Token]:
    """``name[4][8]``."""
    name = reader.name("a variable name")
    shape: list[int] = []
    while reader.accept("["):
        shape.append(0 if reader.peek() == "]" and not shape else reader.literal("how many elements"))
        reader.expect("]")
    inner = [*shape, vector] if vector > 1 else shape
    width = TYPE_BYTES[kind]
    size = math.prod(inner) * width
    return Variable(name.text, space, size, max(align, width * vector), kind), inner, name


# -- initial values ----------------------------------------------------------------------------------------------------


def _initialised(reader: TokenReader, variable: Variable, shape: list[int]) -> None:
    """``= {1, 2}``."""
    token = reader.expect("=")
    if variable.space not in _INITIALISED:
        reader.fail(
            f"{variable.name} is in .{variable.space}: variables in .global and .const have initial values", token
        )
    if variable.external:
        reader.fail(f"{variable.name} is .extern: its initial values stand where it is defined", token)
    if variable.type in ("f16", "f16x2"):
        reader.fail(f"a variable of .{variable.type} has no initial values: declare .b8 {variable.name}[…]", token)
    image = bytearray()
    _values(reader, variable, shape, image)
    variable.image = bytes(image)
    if 0 in shape:
        variable.size = len(image)


def _values(reader: TokenReader, variable: Variable, shape: list[int], image: bytearray) -> None:
    """One value, or those in braces, which fill an array of this shape; a part left out is zero."""
    if not shape:
        if reader.peek() == "{":
            reader.fail(f"expected a number for {variable.name}: there are more braces than dimensions")
        _value(reader, variable, image)
        return
    width = TYPE_BYTES[variable.type]
    size, each = math.prod(shape) * width, math.prod(shape[1:]) * width
    begin = len(image)
    opening = reader.tokens[reader.at]
    if not reader.accept("{"):
        reader.fail(f"{variable.name} is an array: its initial values stand in braces")
    if not reader.accept("}"):
        while True:
            if shape[0] and len(image) - begin >= size:
                count = f"{shape[0]} element{'s' * (shape[0] > 1)}"
                reader.fail(f"{variable.name} has more initial values here than {count}", opening)
            if shape[1:] and reader.peek() != "{":
                reader.fail(f"{variable.name} has {len(shape)} dimensions: expected '{{'")
            _values(reader, variable, shape[1:], image)
            if not reader.accept(","):
                break
        reader.expect("}")
    filled = len(image) - begin
    image += bytes(-filled % each if not shape[0] else size - filled)


def _value(reader: TokenReader, variable: Variable, image: bytearray) -> None:
    width = TYPE_BYTES[variable.type]
    token = reader.tokens[reader.at]
    if token.kind == "word" and token.text != "WARP_SZ":
        if variable.type not in ("u32", "u64"):
            reader.fail(f"an address in {variable.name}, whose elements are .{variable.type}", token)
        variable.pointers.append(Pointer(len(image), *_symbol(reader), 0, width))
        variable.pointer_tokens.append(token)
        image += bytes(width)
        return
    operand = reader.constant()
    value = operand.value
    if reader.accept("("):
        shift = max(value.bit_length() - 8, 0)
        if operand.kind != "int" or value != 0xFF << shift or shift % 8 or variable.type[0] == "f":
            reader.fail("a mask is 0xFF, 0xFF00, … up to eight bytes, for an integer", token)
        variable.pointers.append(Pointer(len(image), *_symbol(reader), shift, width))
        variable.pointer_tokens.append(token)
        reader.expect(")")
        image += bytes(width)
        return
    if variable.type[0] == "f":
        if operand.kind == "int":
            reader.fail(f"an integer in {variable.name}, whose elements are .{variable.type}: write {value}.0", token)
        value = _converted(operand.kind, value, variable.type)
    elif operand.kind != "int":
        if variable.type[0] != "b":
            reader.fail(f"a floating-point number in {variable.name}, whose elements are .{variable.type}", token)
        value = _converted(operand.kind, value, "f32") if width == 4 else value
    image += (value & (1 << 8 * width) - 1).to_bytes(width, "little")


def _converted(given: str, bits: int, wanted: str) -> int:
    """The bits of a floating-point number in another format."""
    if given == wanted:
        return bits
    code = {"f32": "<f", "f64": "<d"}
    number = struct.unpack(code[given], bits.to_bytes(4 if given == "f32" else 8, "little"))[0]
    try:
        packed = struct.pack(code[wanted], number)
    except OverflowError:
        packed = struct.pack(code[wanted], math.copysign(math.inf, number))
    return int.from_bytes(packed, "little")


def _symbol(reader: TokenReader) -> tuple[str, int]:
    """``name``, ``generic(name)``, with or without ``+ constant``."""
    name = reader.word("a variable").text
    if name == "generic" and reader.accept("("):
        name = reader.word("a variable").text
        reader.expect(")")
    return name, reader.integer() if reader.accept("+") else 0
