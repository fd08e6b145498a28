"""Descriptors of ``tcgen05``: the 32-bit instruction descriptor and the 64-bit shared-memory descriptor.

See PTX ISA, "Instruction descriptor" and "Shared memory descriptor" of the fifth-generation tensor core. Both are
register values, so their fields are checked when an instruction is issued.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from tilekit.emulator.ptx.matrix.operand_chunks import START, Bounds, Chunks, Descriptor, relative
from tilekit.emulator.ptx.memory.swizzle import SPAN, Swizzle, swizzled

__all__ = [
    "ELEMENT_BITS",
    "MmaForm",
    "MmaShape",
    "OperandLayout",
    "SharedDescriptor",
    "decode_instruction_descriptor",
    "gather",
    "operand_extents",
    "shared_descriptor_problems",
]

ELEMENT_BITS = {
    "f16": 16,
    "bf16": 16,
    "tf32": 32,
    "e4m3": 8,
    "e5m2": 8,
    "e2m3": 6,
    "e3m2": 6,
    "e2m1": 4,
    "s8": 8,
    "u8": 8,
}
"""Width of each operand type. In the kinds of 8-bit operands the narrow ones still occupy a byte each."""

_FORMATS: dict[str, dict[int, str]] = {
    "f16": {0: "f16", 1: "bf16"},
    "tf32": {2: "tf32"},
    "f8f6f4": {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"},
    "i8": {0: "u8", 1: "s8"},
    "mxf4": {1: "e2m1"},
}
_FORMATS["mxf8f6f4"] = _FORMATS["f8f6f4"]
_FORMATS["mxf4nvf4"] = _FORMATS["mxf4"]
_DEPTH = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}
_D_TYPES = {0: "f16", 1: "f32", 2: "s32"}


@dataclass(frozen=True)
class MmaForm:
    """What the text of a ``tcgen05.mma`` says of the operation.

    Attributes
    ----------
    kind
        f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4 or mxf4nvf4.
    group
        CTAs that work together: 1 or 2.
    vector
        Scales of a row in one instruction: 0 without block scaling, else 1, 2 or 4.
    a_in_tensor_memory
        Whether A comes from tensor memory.
    sparse, weight_stationary, shifted_a
        ``.sp``, ``.ws``, ``.ashift``.
    """

    kind: str
    group: int
    vector: int = 0
    a_in_tensor_memory: bool = False
    sparse: bool = False
    weight_stationary: bool = False
    shifted_a: bool = False

    @property
    def packed(self) -> bool:
        """Whether 4-bit elements are stored two a byte."""
        return self.kind in ("mxf4", "mxf4nvf4")

    @property
    def k(self) -> int:
        """Depth of one instruction in elements (logical ones, when sparse)."""
        return _DEPTH[self.kind] * (2 if self.sparse else 1)


@dataclass(frozen=True)
class MmaShape:
    """A decoded instruction descriptor.

    Attributes
    ----------
    m, n
        Rows and columns of D, over both CTAs of a pair.
    a_type, b_type, d_type
        Element types, by PTX's names.
    scale_type
        ue8m0 or ue4m3; empty without block scaling.
    a_scale, b_scale
        Which byte of the scale words the instruction begins at (the scale factor identifiers).
    selector
        Sparsity selector.
    """

    m: int
    n: int
    a_type: str
    b_type: str
    d_type: str
    negate_a: bool
    negate_b: bool
    a_mn_major: bool
    b_mn_major: bool
    saturate: bool
    scale_type: str
    a_scale: int
    b_scale: int
    selector: int
    max_shift: int


@lru_cache(maxsize=1024)
def decode_instruction_descriptor(form: MmaForm, bits: int) -> tuple[MmaShape, tuple[str, ...]]:
    """Return the fields of an instruction descriptor, and what is wrong with them for this form (a line each)."""
    scaled = form.vector > 0
    formats = _FORMATS[form.kind]
    a_code, b_code = bits >> 7 & 7, bits >> 10 & (3 if form.packed else 7)
    shape = MmaShape(
        m=(bits >> 24 & 31) * 16,
        n=(bits >> 17 & 63) * 8,
        a_type=formats.get(a_code, ""),
        b_type=formats.get(b_code, ""),
        d_type="f32" if scaled else _D_TYPES.get(bits >> 4 & 3, ""),
        negate_a=bool(bits >> 13 & 1),
        negate_b=bool(bits >> 14 & 1),
        a_mn_major=bool(bits >> 15 & 1),
        b_mn_major=bool(bits >> 16 & 1),
        saturate=bool(bits >> 3 & 1),
        scale_type=("ue8m0" if bits >> 23 & 1 else "ue4m3") if scaled else "",
        a_scale=bits >> 29 & 3 if scaled else 0,
        b_scale=bits >> 4 & 3 if scaled else 0,
        selector=bits & 3,
        max_shift=0 if scaled else bits >> 30 & 3,
    )
    problems = [*_field_problems(form, shape, bits, a_code, b_code), *_shape_problems(form, shape)]
    return shape, tuple(problems)


def _field_problems(form: MmaForm, shape: MmaShape, bits: int, a_code: int, b_code: int) -> Iterator[str]:
    scaled = form.vector > 0
    reserved = 1 << 6 | ((1 << 3 | 1 << 31) if scaled else (1 << 23 | 1 << 29))
    reserved |= 1 << 12 if form.packed else 0
    if bits & reserved:
        yield f"reserved bits {bits & reserved:#x} are set: must be 0"
    if bool(bits >> 2 & 1) != form.sparse:
        yield f"the sparsity bit is {bits >> 2 & 1}, the instruction is {'sparse' if form.sparse else 'dense'}"
    if shape.selector and not (form.sparse and form.kind in ("f16", "tf32")):
        yield f"sparsity selector = {shape.selector}: must be 0 here"
    if shape.selector > 1:
        yield f"sparsity selector = {shape.selector}: must be 0 or 1"
    legal = ", ".join(f"{code} ({name})" for code, name in _FORMATS[form.kind].items())
    for name, code, given in (("A", a_code, shape.a_type), ("B", b_code, shape.b_type)):
        if not given:
            yield f"format of {name} = {code}: kind::{form.kind} takes {legal}"
    if not scaled:
        accumulators = {"i8": ["s32"], "tf32": ["f32"], "f8f6f4": ["f32", "f16"]}.get(form.kind, ["f32"])
        if form.kind == "f16" and shape.a_type == shape.b_type == "f16":
            accumulators = ["f32", "f16"]
        if shape.d_type not in accumulators:
            yield f"format of D = {bits >> 4 & 3}: {form.kind} operands accumulate in {' or '.join(accumulators)}"
    if shape.max_shift and not form.weight_stationary:
        yield f"maximum shift of B = {shape.max_shift}: only .ws shifts B, must be 0"
    if shape.saturate and form.kind != "i8":
        yield "the saturate bit is set: only kind::i8 saturates"
    if form.kind == "i8" and (shape.negate_a or shape.negate_b):
        yield "integer operands cannot be negated"
    for name, kind, mn_major in (("A", shape.a_type, shape.a_mn_major), ("B", shape.b_type, shape.b_mn_major)):
        if mn_major and kind and ELEMENT_BITS[kind] < 8:
            yield f"{name} is transposed: 4- and 6-bit operands must be K-major"
    if shape.a_mn_major and form.a_in_tensor_memory:
        yield "A is transposed: A in tensor memory must be K-major"
    if scaled:
        yield from _scale_problems(form, shape)


def _scale_problems(form: MmaForm, shape: MmaShape) -> Iterator[str]:
    if shape.scale_type == "ue4m3" and (form.kind != "mxf4nvf4" or form.vector != 4):
        yield "scale type = 0 (ue4m3): only kind::mxf4nvf4 with a scale every 16 elements has it; use 1 (ue8m0)"
    legal = {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}[form.vector]
    for name, given in (("A", shape.a_scale), ("B", shape.b_scale)):
        if given not in legal:
            yield f"scale factor id of {name} = {given}: with .scale_vec::{form.vector}X one of {legal}"


def _shape_problems(form: MmaForm, shape: MmaShape) -> Iterator[str]:
    rows = _legal_rows(form)
    if shape.m not in rows:
        nearest = min(rows, key=lambda m: abs(m - shape.m))
        yield f"M = {shape.m}: {_describe(form)} takes {', '.join(map(str, rows))}; nearest legal {nearest}"
        return
    columns = _legal_columns(form, shape)
    if shape.n not in columns:
        nearest = min(columns, key=lambda n: abs(n - shape.n))
        yield (f"N = {shape.n}: {_describe(form)} with M = {shape.m} takes {_ranges(columns)}; nearest legal {nearest}")


def _describe(form: MmaForm) -> str:
    return f"{'.ws ' if form.weight_stationary else ''}kind::{form.kind} with cta_group::{form.group}"


def _legal_rows(form: MmaForm) -> tuple[int, ...]:
    if form.weight_stationary:
        return (32, 64, 128)
    if form.vector:
        return (128,) if form.group == 1 else (256,) if form.sparse else (128, 256)
    return (64, 128) if form.group == 1 else (128, 256)


def _legal_columns(form: MmaForm, shape: MmaShape) -> list[int]:
    if form.weight_stationary:
        return [64, 128] if form.sparse else [64, 128, 256]
    if form.vector:
        step = 8 * form.group
    elif form.kind == "i8":
        step = 16 * form.group
    else:
        step = 8 if shape.m == 64 else 16
    columns = list(range(step, 257, step))
    if form.kind == "i8" and form.group == 1:
        columns = sorted({8, 24, *columns})
    if shape.b_mn_major and ELEMENT_BITS.get(shape.b_type, 0) == 8:
        columns = [n for n in columns if n % (16 * form.group) == 0]
    return columns


def _ranges(columns: list[int]) -> str:
    if len(columns) < 5:
        return ", ".join(map(str, columns))
    return f"{columns[0]}, {columns[1]}, ... {columns[-1]} (steps of {columns[-1] - columns[-2]})"


# -- shared memory ---------------------------------------------------------------------------------------------------

_SWIZZLES: dict[int, Swizzle | None] = {0: None, 1: "128B_atom_32B", 2: "128B", 4: "64B", 6: "32B"}
_RESERVED = 0xFF << 53 | 3 << 30 | 3 << 14


@dataclass(frozen=True)
class SharedDescriptor(Descriptor):
    """A decoded 64-bit shared-memory descriptor.

    Attributes
    ----------
    version
        1 on this architecture.
    """

    version: int

    @classmethod
    def decode(cls, bits: int) -> SharedDescriptor:
        """Split a descriptor into its fields; an unknown swizzle reads as none."""
        return cls(
            start=(bits & START) << 4,
            leading=(bits >> 16 & 0x3FFF) << 4,
            stride=(bits >> 32 & 0x3FFF) << 4,
            version=bits >> 46 & 7,
            base_offset=bits >> 49 & 7,
            swizzle=_SWIZZLES.get(bits >> 61),
        )


@dataclass(frozen=True)
class OperandLayout:
    """What one operand reads, in 16-byte chunks.

    Attributes
    ----------
    mn_major
        Whether M or N is the contiguous dimension.
    rows
        M or N extent in this CTA.
    depth
        Chunks along K of a K-major operand; elements along K of an MN-major one.
    element_bytes
        Stored bytes of an element of an MN-major operand.
    first_row
        First row read (the column shift of ``.ws``).
    """

    mn_major: bool
    rows: int
    depth: int = 2
    element_bytes: int = 2
    first_row: int = 0

    @cached_property
    def chunks(self) -> int:
        """Chunks along M or N of an MN-major operand."""
        return self.rows * self.element_bytes // 16


@lru_cache(maxsize=4096)
def shared_descriptor_problems(layout: OperandLayout, bits: int, *, tf32: bool = False) -> tuple[str, ...]:
    """Return what is wrong with a shared-memory descriptor, a line each."""
    return tuple(_descriptor_problems(layout, bits, tf32))


def _descriptor_problems(layout: OperandLayout, bits: int, tf32: bool) -> Iterator[str]:
    descriptor = SharedDescriptor.decode(bits)
    if descriptor.version != 1:
        yield f"bits 48:46 (descriptor version) = {descriptor.version}: must be 1 on this architecture"
    if bits & _RESERVED:
        yield f"reserved bits {bits & _RESERVED:#018x} are set: must be 0"
    if bits >> 52 & 1:
        yield "bit 52 (absolute leading offset) is set: not on this architecture, must be 0"
    if bits >> 61 not in _SWIZZLES:
        yield f"swizzle = {bits >> 61}: must be 0 (none), 1 (128B, 32-byte atoms), 2 (128B), 4 (64B) or 6 (32B)"
        return
    swizzle = descriptor.swizzle
    if layout.mn_major and tf32 != (swizzle == "128B_atom_32B"):
        yield (
            "a transposed tf32 operand needs swizzle 1 (128B with 32-byte atoms)"
            if tf32
            else "swizzle 1 (128B with 32-byte atoms) is for transposed tf32 operands only; use 2 (128B)"
        )
    if swizzle is None:
        return
    span = SPAN[swizzle]
    period = (4 if swizzle == "128B_atom_32B" and layout.mn_major else 8) * span
    if not layout.mn_major and layout.depth * 16 > span:
        yield f"swizzle {swizzle}: {layout.depth * 16} bytes along K do not fit its {span}-byte span"
    steps = [("stride byte offset", descriptor.stride, layout.mn_major or layout.rows > 8)]
    if layout.mn_major:
        steps.append(("leading byte offset", descriptor.leading, layout.chunks * 16 > span))
    for name, given, used in steps:
        if used and (given % period or not given):
            nearest = max(round(given / period), 1) * period
            yield (
                f"{name} = {given}: must be a positive multiple of the {period} bytes after which swizzle {swizzle} "
                f"repeats; nearest legal {nearest}"
            )
    if not descriptor.base_offset and descriptor.start % period >= span:
        yield (
            f"start address = {descriptor.start:#x}: begins inside a {period}-byte swizzle pattern, base offset 0; "
            f"nearest legal {descriptor.start // period * period:#x}"
        )


@lru_cache(maxsize=4096)
def _chunks(layout: OperandLayout, starts: tuple[int, ...], rest: tuple[int, ...]) -> Chunks:
    """The operands' chunks: [rows, steps, depth], or [steps, depth, chunks] if MN-major."""
    tables = []
    for start, high in zip(starts, rest, strict=True):
        descriptor = SharedDescriptor.decode(high << START.bit_length())
        address = start * 16 + _linear(layout, descriptor)
        # The base offset shifts the rows of the pattern, not the operand.
        pattern = address - 128 * descriptor.base_offset
        tables.append((address ^ pattern ^ swizzled(pattern, descriptor.swizzle)) // 16)
    return Chunks.of(np.stack(tables, axis=0 if layout.mn_major else 1))


def _linear(layout: OperandLayout, descriptor: SharedDescriptor) -> npt.NDArray[np.int64]:
    """Byte offsets from the start, before the swizzle."""
    span = SPAN[descriptor.swizzle]
    leading, stride = descriptor.leading, descriptor.stride
    if layout.mn_major:
        block = 16 * np.arange(layout.chunks, dtype=np.int64) + layout.first_row * layout.element_bytes
        k = np.arange(layout.depth, dtype=np.int64)[:, None]
        if descriptor.swizzle is None:  # The two offsets change places.
            return block // 16 * stride + k % 8 * 16 + k // 8 * leading
        group = 4 if descriptor.swizzle == "128B_atom_32B" else 8
        return block % span + block // span * leading + k % group * span + k // group * stride
    row = (np.arange(layout.rows, dtype=np.int64) + layout.first_row)[:, None]
    chunk = np.arange(layout.depth, dtype=np.int64)
    step = 16 if descriptor.swizzle else leading
    return row % 8 * span + row // 8 * stride + chunk * step


def operand_extents(layout: OperandLayout, descriptors: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return the shared-memory bytes that an operand reads: int64[n, 2], first byte and byte after the last."""
    base, starts, rest = relative(tuple(descriptors))
    return _chunks(layout, starts, rest).runs + base


def gather(
    shared: npt.NDArray[np.uint8], layout: OperandLayout, descriptors: Sequence[int], bounds: Bounds | None = None
) -> npt.NDArray[np.uint8]:
    """Return an operand's bytes for consecutive instructions.

    Parameters
    ----------
    shared : uint8[bytes]
        The CTA's shared memory.
    layout
        What is read.
    descriptors
        One for each instruction, in any order of addresses.
    bounds
        What of ``shared`` may be read, see `Chunks.read`.

    Returns
    -------
    data : uint8[rows, steps, 16 * depth], or uint8[steps, depth, 16 * chunks] for an MN-major operand

    Raises
    ------
    OperandOutside
        If the operand lies, in part, outside the bounds.
    """
    base, starts, rest = relative(tuple(descriptors))
    chunks = _chunks(layout, starts, rest)
    return chunks.read(shared, base, bounds).reshape(*chunks.table.shape[:-1], -1)
