"""Variable declarations: type, alignment, array sizes, initialisers (PTX ISA, section 5.4)."""

from __future__ import annotations

import struct

from .syntax import TYPE_BYTES, Variable
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
        count = vector
        unsized = False
        while reader.accept("["):
            if reader.accept("]"):
                unsized = True
                continue
            count *= reader.integer()
            reader.expect("]")
        width = TYPE_BYTES[kind]
        variable = Variable(name.text, space, 0 if unsized else count * width, max(align, width * vector), kind)
        variable.external, variable.pointee = external, pointee
        if variable.size > LARGEST:
            reader.fail(f"{name.text} takes {variable.size:,} bytes: at most {LARGEST:,} are emulated", name)
        if reader.accept("="):
            image = bytearray()
            _initializer(reader, variable, width, image)
            variable.image = bytes(image)
            if unsized:
                variable.size = len(image)
            elif len(image) > variable.size:
                reader.fail(f"{name.text} has {variable.size} bytes, its initial values {len(image)}", name)
        variables.append(variable)
        if single or not reader.accept(","):
            return variables


def _initializer(reader: TokenReader, variable: Variable, width: int, image: bytearray) -> None:
    if reader.accept("{"):
        while not reader.accept("}"):
            _initializer(reader, variable, width, image)
            reader.accept(",")
        return
    token = reader.tokens[reader.at]
    if token.kind == "word":
        reader.at += 1
        generic = token.text == "generic" and reader.accept("(")
        name = reader.word("a variable").text if generic else token.text
        if generic:
            reader.expect(")")
        addend = reader.integer() if reader.accept("+") else 0
        variable.pointers.append((len(image), name, addend))
        image += bytes(width)
    else:
        operand = reader.number(negative=reader.accept("-"))
        value = operand.value
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
