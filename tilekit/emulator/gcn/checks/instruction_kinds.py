"""What the table of wait states needs to know of an instruction."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tilekit.emulator.gcn.compiler.effects import Effects, is_memory, is_mfma
from tilekit.emulator.gcn.language.syntax import Instruction, Operand, Register
from tilekit.emulator.gcn.matrix.products import FORMATS
from tilekit.emulator.gcn.matrix.shapes import SHAPES
from tilekit.emulator.gcn.memory.outstanding import SCALARS

__all__ = ["Kind", "kind_of", "passes"]

_TRANSCENDENTAL = re.compile(r"v_(exp|log|rcp|rcp_iflag|rsq|sqrt|sin|cos)_f(16|32|64)$")
_PARTIAL = re.compile(r"v_cvt_(scalef32_)?pk_(fp8|bf8|fp4)_|v_fma_mixhi")
_WIDE_STORE = re.compile(r"(buffer|global|flat|scratch)_store_dwordx[34]$")


@dataclass(frozen=True, slots=True)
class Kind:
    """An instruction as the table sees it.

    Attributes
    ----------
    instruction, name, effects
        Which, and the registers that it reads and writes.
    vector, scalar, memory, lds, matrix
        Where it goes: the vector ALU (matrix core included), the scalar ALU, memory (LDS included), LDS, matrix core.
    xdl, double
        Whether a matrix instruction is none of float32's or of doubles', and whether it is of doubles'.
    multiplied, added
        Registers that a matrix instruction, or a dot product, multiplies; those that a matrix instruction adds to.
    transcendental, dot, partial, dpp, to_lds
        Further kinds.
    sources
        Registers among its sources: without a destination whose other half stays.
    moved
        Registers whose lanes DPP moves.
    scalars_read
        Scalar registers that a vector instruction reads as data.
    selector
        Scalar register that says which lane is read or written.
    stored
        Data registers of a store of three or four words.
    """

    instruction: Instruction
    name: str
    effects: Effects
    vector: bool
    scalar: bool
    memory: bool
    lds: bool
    matrix: bool
    xdl: bool
    double: bool
    multiplied: int
    added: int
    transcendental: bool
    dot: bool
    partial: bool
    dpp: bool
    to_lds: bool
    sources: int
    moved: int
    scalars_read: int
    selector: int
    stored: int


def _bits(operand: Operand, accumulators: int) -> int:
    if not isinstance(operand, Register):
        return 0
    first = operand.first + {"s": SCALARS, "v": 0, "a": accumulators}[operand.file]
    return ((1 << operand.count) - 1) << first


def kind_of(i: Instruction, found: Effects, accumulators: int) -> Kind:
    """Return what the table sees in an instruction."""
    name = i.name
    matrix = is_mfma(i)
    bits = [_bits(operand, accumulators) for operand in i.operands]
    dot = name.startswith("v_dot")
    vector = name.startswith("v_") and name != "v_nop"
    shape = SHAPES.get(name)
    sparse = shape is not None and shape.sparse
    scales = sum(bits[4:6]) if matrix and "scale" in name else 0
    moved = i.encoding in ("dpp", "e64_dpp")
    selector = 0
    scalars = found.reads >> SCALARS << SCALARS if vector and not matrix else 0
    if name in ("v_readlane_b32", "v_writelane_b32"):
        scalars = bits[1] >> SCALARS << SCALARS if name == "v_writelane_b32" else 0
        selector = bits[2] >> SCALARS << SCALARS if len(bits) > 2 else 0
    selected = i.modifiers.get("op_sel", [])
    partial = bool(
        _PARTIAL.match(name)
        or i.modifiers.get("dst_sel", "DWORD") != "DWORD"
        or (selected and len(selected) > len(i.operands) - 1 and selected[-1] and not name.startswith("v_pk"))
    )
    return Kind(
        i,
        name,
        found,
        vector,
        name.startswith("s_"),
        is_memory(i),
        name.startswith("ds_"),
        matrix,
        bool(shape) and shape is not None and shape.a not in ("f32", "f64"),
        shape is not None and shape.a == "f64",
        (bits[1] | bits[2] | scales | (bits[3] if sparse else 0)) if matrix or dot else 0,
        (bits[0] if sparse else bits[3]) if matrix and len(bits) > 3 else 0,
        bool(_TRANSCENDENTAL.match(name)),
        dot,
        vector and partial,
        moved,
        i.flag("lds") or name.startswith("global_load_lds"),
        _together(bits[1:]),
        bits[1] if moved and len(bits) > 1 else 0,
        scalars,
        selector,
        _stored(i, bits),
    )


def _together(bits: list[int]) -> int:
    total = 0
    for part in bits:
        total |= part
    return total


def _stored(i: Instruction, bits: list[int]) -> int:
    if not _WIDE_STORE.match(i.name):
        return 0
    if i.name.startswith("buffer"):
        scalar = isinstance(i.operands[-1], Register)
        return 0 if scalar else bits[0]
    return bits[1]


def passes(i: Instruction, chip: str) -> int:
    """Passes of a matrix instruction."""
    shape = SHAPES.get(i.name)
    if shape is None:
        return 0
    big = shape.m == 32
    if shape.m == 4:
        return 2 if shape.a != "f64" else 4
    if shape.a == "f64":
        return 8 if chip == "gfx942" else 16
    if shape.a == "f32":
        return 16 if big else 8
    if shape.a == "f8f6f4":
        formats = [FORMATS[i.modifiers.get(name, 0)] for name in ("cbsz", "blgp")]
        wide = any(name in ("fp8", "bf8") for name in formats)
        return (16 if wide else 8) if big else (8 if wide else 4)
    if shape.blocks > 1:
        return 16 if big else 8
    return 8 if big else 4
