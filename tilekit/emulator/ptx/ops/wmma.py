"""``wmma``: matrices loaded, multiplied and stored by a warp (PTX ISA 9.7.14.4)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from tilekit.emulator.core.arithmetic.lanes import Array
from tilekit.emulator.core.errors import MemoryFault, ProtocolError
from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler
from tilekit.emulator.ptx.language.forms import Decoded, form, never
from tilekit.emulator.ptx.language.syntax import AddressOperand, Immediate, Operand
from tilekit.emulator.ptx.matrix.mma import BITS, Mma
from tilekit.emulator.ptx.matrix.wmma import Wmma
from tilekit.emulator.ptx.memory import access
from tilekit.emulator.ptx.ops.barrier import same_in_warp
from tilekit.emulator.ptx.ops.memory import address_kind, address_space, scalar_address
from tilekit.emulator.ptx.ops.mma import items, register_texts

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.warp import Warp

_SHAPES = "m16n16k16|m8n32k16|m32n8k16|m16n16k8|m8n8k4|m8n8k32|m8n8k128"
_SPACE = "space=global|shared|shared::cta?"
_TYPES = "bf16|tf32|s8|u8|s4|u4"
_LAYOUT = "row|col"
_OF_ACCUMULATOR = {"m16n16k8": "tf32", "m8n8k4": "f64", "m8n8k32": "s4", "m8n8k128": "b1"}
"""A type of A that the shape of an accumulator goes with; the others have f16's shapes."""


def _matrices(g: BlockCompiler, shape: str, dtype: str) -> Wmma:
    m, n, k = map(int, re.findall(r"\d+", shape))
    try:
        return Wmma(m, n, k, dtype)
    except ValueError as error:
        raise g.fail(str(error)) from None


def _where(g: BlockCompiler, i: Decoded, operand: Operand, stride: Operand | None, default: int) -> str:
    """Expressions of the address, which the whole warp shares, and of the stride in elements."""
    assert isinstance(operand, AddressOperand)
    if g.is_uniform(operand):
        address = scalar_address(g, operand)
    else:
        address = f"{g.helper(same_in_warp)}(w, {g.array(operand.base, address_kind(g, operand))}) + {operand.addend}"
    step = stride if stride is not None else Immediate(default)
    text = g.scalar(step, "u32") if g.is_uniform(step) else f"{g.helper(same_in_warp)}(w, {g.array(step, 'u32')})"
    return f"{address_space(g, i, operand)!r}, {address}, {text}"


def _count(g: BlockCompiler, operand: Operand, wanted: int) -> tuple[Operand, ...]:
    registers = items(operand)
    if len(registers) != wanted:
        raise g.fail(f"{len(registers)} registers, where the fragment has {wanted}")
    return registers


@form("wmma", f"op=load matrix=a|b sync aligned layout={_LAYOUT} shape={_SHAPES} {_SPACE} "
      f"type=f16|f64|b1|{_TYPES}", "dv [a] a?", uniform=never)  # fmt: skip
def load_operand(g: BlockCompiler, i: Decoded) -> None:
    """``wmma.load.a`` and ``.b``."""
    name = i["matrix"]
    shape = _matrices(g, i["shape"], i["type"])
    _load(g, i, shape.operand_places(name), shape.k if (i["layout"] == "row") == (name == "a") else 0, shape)


@form("wmma", f"op=load matrix=c sync aligned layout={_LAYOUT} shape={_SHAPES} {_SPACE} type=f16|f32|f64|s32",
      "dv [a] a?", uniform=never)  # fmt: skip
def load_accumulator(g: BlockCompiler, i: Decoded) -> None:
    """``wmma.load.c``."""
    shape = _matrices(g, i["shape"], _OF_ACCUMULATOR.get(i["shape"], "f16"))
    _load(g, i, shape.accumulator_places(i["type"]), shape.n if i["layout"] == "row" else shape.m, shape)


def _load(g: BlockCompiler, i: Decoded, places: Any, width: int, shape: Wmma) -> None:
    d, address = i.operands[:2]
    rows, columns = places
    registers = _count(g, d, len(rows))
    width = width or (shape.m if i["matrix"] == "a" else shape.n)
    stride = i.operands[2] if len(i.operands) > 2 else None
    row_major = i["layout"] == "row"
    outer, inner = (rows, columns) if row_major else (columns, rows)
    bits = {"f32": 32, "s32": 32, **BITS}[i["type"]]
    where = _where(g, i, address, stride, width)
    name = g.temporary()
    g.place()
    g.emit(f"{name} = {g.helper(load_fragment)}(w, {where}, {g.constant((outer, inner))}, {bits})")
    for index, item in enumerate(registers):
        g.write(item, "u64" if bits == 64 else "u32", f"{name}[{index}]")


def _addresses(warp: Warp, address: int, stride: int, places: tuple[Array, Array], bits: int, what: str) -> Array:
    """The address of every element in bytes (of the first in a byte), [registers, 32, elements].

    CUDA asks less of the stride than PTX does: 16 bytes, also where a fragment is larger.
    """
    if warp.fragment.mask is not None:
        raise ProtocolError(f"{what} needs all lanes of the warp together")
    outer, inner = places
    fragment = len(outer) * (8 if bits == 64 else 4)
    if address % fragment:
        raise MemoryFault(
            f"{what} at {address:#x}: the address must be a multiple of {fragment}, the bytes of a fragment",
            details={"address": address},
        )
    align = 8 * min(fragment, 16)
    if stride * bits % align:
        raise MemoryFault(
            f"{what} with a stride of {stride} elements: must be a multiple of {align // bits}",
            hint=f"the nearest legal stride is {-(-stride * bits // align) * align // bits}",
        )
    where: Array = address + (outer * stride + inner) * bits // 8
    return where


def load_fragment(
    warp: Warp, space: str, address: int, stride: int, places: tuple[Array, Array], bits: int
) -> list[Array]:
    """The registers of a fragment, from memory."""
    where = _addresses(warp, address, stride, places, bits, "wmma.load")
    whole = min(bits * where.shape[2], 32) // 8 if bits < 64 else 8
    registers = []
    for lanes in where:
        if bits < 8 or (lanes[:, -1] - lanes[:, 0] == whole - bits // 8).all():
            registers.append(_load_lanes(warp, space, lanes[:, 0], whole))
            continue
        word = np.zeros(32, np.uint32)
        for element in range(lanes.shape[1]):
            part = _load_lanes(warp, space, lanes[:, element], bits // 8)
            word |= part.astype(np.uint32) << np.uint32(bits * element)
        registers.append(word)
    return registers


def _load_lanes(warp: Warp, space: str, addresses: Array, width: int) -> Array:
    found: Array = access.load_lanes(warp, space, addresses, width, 1, None, None)
    return found


@form("wmma", f"op=store matrix=d sync aligned layout={_LAYOUT} shape={_SHAPES} {_SPACE} type=f16|f32|f64|s32",
      "[a] av a?")  # fmt: skip
def store_accumulator(g: BlockCompiler, i: Decoded) -> None:
    """``wmma.store.d``."""
    address, source = i.operands[:2]
    shape = _matrices(g, i["shape"], _OF_ACCUMULATOR.get(i["shape"], "f16"))
    rows, columns = shape.accumulator_places(i["type"])
    registers = _count(g, source, len(rows))
    row_major = i["layout"] == "row"
    stride = i.operands[2] if len(i.operands) > 2 else None
    where = _where(g, i, address, stride, shape.n if row_major else shape.m)
    bits = {"f16": 16, "f64": 64}.get(i["type"], 32)
    texts = "".join(g.array(item, "u64" if bits == 64 else "u32") + ", " for item in registers)
    places = g.constant((rows, columns) if row_major else (columns, rows))
    g.place()
    g.effect(f"{g.helper(store_fragment)}(w, {where}, {places}, {bits}, ({texts}))")


def store_fragment(
    warp: Warp, space: str, address: int, stride: int, places: tuple[Array, Array], bits: int,
    registers: tuple[Array, ...],
) -> None:  # fmt: skip
    """Store the registers of an accumulator."""
    where = _addresses(warp, address, stride, places, bits, "wmma.store")
    for lanes, register in zip(where, registers, strict=True):
        if lanes.shape[1] == 1 or (lanes[:, 1] - lanes[:, 0] == bits // 8).all():
            access.store_lanes(warp, space, lanes[:, 0], (register,), register.itemsize, None, None)
            continue
        halves = np.ascontiguousarray(register).view(np.uint16).reshape(32, 2)
        for element in range(2):
            access.store_lanes(warp, space, lanes[:, element], (halves[:, element],), 2, None, None)


# -- products --------------------------------------------------------------------------------------------------------


@form(
    "wmma",
    f"op=mma sync aligned alayout={_LAYOUT} blayout={_LAYOUT} shape={_SHAPES} dtype=f16|f32 ctype=f16|f32",
    "dv av av av",
    uniform=never,
)
@form(
    "wmma",
    f"op=mma sync aligned alayout={_LAYOUT} blayout={_LAYOUT} shape={_SHAPES} rnd=rn|rz|rm|rp? dtype=f32|s32|f64 "
    f"atype=f64|{_TYPES} btype=f64|{_TYPES} ctype=f32|s32|f64 satfinite?",
    "dv av av av",
    uniform=never,
)
@form(
    "wmma",
    "op=mma bits=xor|and popc sync aligned alayout=row blayout=col shape=m8n8k128 dtype=s32 atype=b1 btype=b1 "
    "ctype=s32",
    "dv av av av",
    uniform=never,
)
def wmma_mma(g: BlockCompiler, i: Decoded) -> None:
    """``wmma.mma``; where A and B lay in memory makes no difference to their fragments."""
    dtype = i.get("atype", "f16")
    shape = _matrices(g, i["shape"], dtype)
    if dtype != i.get("btype", "f16"):
        raise g.fail("A and B have different types")
    # The types, rounding and saturation of the product; any shape of mma.sync stands for the others.
    like = {"f16": 16, "bf16": 16, "tf32": 8, "f64": 4, "s8": 16, "u8": 16, "s4": 32, "u4": 32, "b1": 128}[dtype]
    c_type = "f32" if dtype == "f16" and "f32" in (i["dtype"], i["ctype"]) else i["ctype"]
    try:
        op = Mma(16, like, dtype, dtype, c_type, i.has("satfinite"), i.get("bits"), i.get("rnd", "rn"))
    except ValueError as error:
        raise g.fail(str(error)) from None
    if dtype != "f16" and i["dtype"] != i["ctype"]:
        raise g.fail("C and D have different types")
    kind = "u64" if dtype == "f64" else "u32"
    counts = tuple(shape.registers(n, t) for n, t in (("d", i["dtype"]), ("a", ""), ("b", ""), ("c", i["ctype"])))
    texts = register_texts(g, i.operands, counts, kind)
    name = g.temporary()
    g.place()
    what = f"{g.constant(shape)}, {g.constant(op)}, {', '.join(texts)}, {i['ctype']!r}, {i['dtype']!r}"
    g.emit(f"{name} = {g.helper(multiply_fragments)}(w, {what})")
    for index, item in enumerate(items(i.operands[0])):
        g.write(item, kind, f"{name}[{index}]")


def multiply_fragments(
    warp: Warp, shape: Wmma, op: Mma, a: tuple[Array, ...], b: tuple[Array, ...], c: tuple[Array, ...], c_type: str,
    d_type: str,
) -> Array:  # fmt: skip
    """``wmma.mma`` on lists of registers."""
    if warp.fragment.mask is not None:
        raise ProtocolError("wmma.mma needs all lanes of the warp together")
    launch = warp.cta.launch
    launch.counters.mma_flops += 2 * shape.m * shape.n * shape.k
    return shape.multiply(op, np.stack(a), np.stack(b), np.stack(c), c_type, d_type, exact=launch.exact_mma)
