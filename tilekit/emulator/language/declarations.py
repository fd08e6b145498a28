"""Variable declarations: type, alignment, array sizes, initialisers (PTX ISA, section 5.4)."""

from __future__ import annotations

import math
import struct

from .syntax import TYPE_BYTES, Pointer, Variable
from .token_reader import TokenReader

LARGEST = 1 << 30
"""Bytes of a variable: the emulator has every one of them in memory."""


def variable_declarators(reader: TokenReader, space: str, external: bool, *, single: bool = False) -> list[Variable]:
    """``.align 16 .b8 name[64] = {…}, other`` after the state space."""
    align, vector, kind, pointee = 0, 1, "", ""
    while reader.tokens[reader.at].kind == "dotted":
        token = reader.next()
        text = token.text[1:]
        if text == "align":
            align = reader.integer()
        elif text in ("v2", "v4"):
            vector = int(text[1])
        elif text == "ptr":
            while reader.tokens[reader.at].text in (".global", ".shared", ".const", ".local", ".align"):
                qualifier = reader.next().text[1:]
                if qualifier == "align":
                    reader.integer()
                else:
                    pointee = qualifier
        elif text in TYPE_BYTES and text != "pred":
            kind = text
        elif text in ("texref", "samplerref", "surfref"):
            kind = "b64"  # opaque; the instructions that use them are refused by name
        elif text == "attribute":
            reader.skip_parentheses()
        elif text != "managed":
            reader.fail(f"unexpected {token.text} in a declaration", token)
    if not kind:
        reader.fail("the declaration names no type, for example .b32")
    variables = []
    while True:
        name = reader.word("a variable name")
        shape: list[int] = []
        while reader.accept("["):
            shape.append(0 if reader.peek() == "]" else reader.integer())
            reader.expect("]")
        if vector > 1:
            shape.append(vector)
        width = TYPE_BYTES[kind]
        variable = Variable(name.text, space, math.prod(shape) * width, max(align, width * vector), kind)
        variable.external, variable.pointee = external, pointee
        if variable.size > LARGEST:
            reader.fail(f"{name.text} takes {variable.size:,} bytes: at most {LARGEST:,} are emulated", name)
        if reader.accept("="):
            image = bytearray()
            _initializer(reader, variable, shape, image)
            variable.image = bytes(image)
            if 0 in shape:
                variable.size = len(image)
            elif len(image) > variable.size:
                reader.fail(f"{name.text} has {variable.size} bytes, its initial values {len(image)}", name)
        variables.append(variable)
        if single or not reader.accept(","):
            return variables


def _initializer(reader: TokenReader, variable: Variable, shape: list[int], image: bytearray) -> None:
    """One value, or those in braces, which fill an array of this shape; a part left out is zero."""
    width = TYPE_BYTES[variable.type]
    if reader.accept("{"):
        end = len(image) + math.prod(shape) * width
        while not reader.accept("}"):
            _initializer(reader, variable, shape[1:], image)
            if not reader.accept(",") and reader.peek() != "}":
                reader.fail(f"expected ',' or '}}' in the initial values of {variable.name}")
        image += bytes(max(end - len(image), 0) if shape else 0)
        return
    token = reader.tokens[reader.at]
    if token.kind == "word" and token.text != "WARP_SZ":
        variable.pointers.append(Pointer(len(image), *_symbol(reader), 0, width))
        image += bytes(width)
        return
    operand = reader.constant()
    value = operand.value
    if reader.accept("("):
        shift = max(value.bit_length() - 8, 0)
        if operand.kind != "int" or value != 0xFF << shift or shift % 8 or width != 1:
            reader.fail("a mask is 0xFF, 0xFF00, … up to eight bytes, for an element of one byte", token)
        variable.pointers.append(Pointer(len(image), *_symbol(reader), shift, width))
        reader.expect(")")
        image += bytes(width)
        return
    if operand.kind == "int":
        if variable.type in ("f32", "f64"):
            packed = struct.pack("<f" if variable.type == "f32" else "<d", float(value))
            value = int.from_bytes(packed, "little")
        value &= (1 << 8 * width) - 1
    elif operand.kind == "f64" and variable.type == "f32":
        number = struct.unpack("<d", value.to_bytes(8, "little"))[0]
        value = int.from_bytes(struct.pack("<f", number), "little")
    if value >> 8 * width:
        reader.fail(f"a floating-point number in {variable.name}, whose elements are .{variable.type}", token)
    image += value.to_bytes(width, "little")


def _symbol(reader: TokenReader) -> tuple[str, int]:
    """``name``, ``generic(name)``, with or without ``+ constant``."""
    name = reader.word("a variable").text
    if name == "generic" and reader.accept("("):
        name = reader.word("a variable").text
        reader.expect(")")
    return name, reader.integer() if reader.accept("+") else 0
