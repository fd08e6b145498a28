"""``mma.sync`` and ``mma.sp.sync`` (PTX ISA 9.7.14.5, 9.7.14.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilekit.emulator.core.arithmetic.lanes import Array
from tilekit.emulator.core.errors import ProtocolError
from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler
from tilekit.emulator.ptx.language.forms import Decoded, form, never, refuse
from tilekit.emulator.ptx.language.syntax import Immediate, Operand, VectorOperand
from tilekit.emulator.ptx.matrix.mma import Mma, multiply_accumulate
from tilekit.emulator.ptx.matrix.mma_quads import QuadMma, multiply_quads

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.warp import Warp

_TYPES = "f16|bf16|tf32|e4m3|e5m2|s8|u8|s4|u4"
_ABSENT = "it is one of those that only sm_120a has, which the emulator does not run"


def items(operand: Operand) -> tuple[Operand, ...]:
    """The registers of an operand: a list, or one."""
    return operand.items if isinstance(operand, VectorOperand) else (operand,)


def register_texts(g: BlockCompiler, operands: tuple[Operand, ...], counts: tuple[int, ...], kind: str) -> list[str]:
    """Expressions of the registers of A, B and C; the lists of ``D, A, B, C`` must have the given lengths."""
    parts = [items(operand) for operand in operands]
    for given, count, name in zip(parts, counts, "DABC", strict=True):
        if len(given) != count:
            raise g.fail(f"{len(given)} registers for {name}, where the shape has {count}")
    return ["(" + "".join(g.array(item, kind) + ", " for item in part) + ")" for part in parts[1:]]


def _shape(g: BlockCompiler, i: Decoded, *, sparse: bool = False) -> Mma:
    m, k = i["shape"][1:].split("n8k")
    if i["dtype"] != i["ctype"]:
        raise g.fail("C and D have different types")
    try:
        return Mma(
            int(m), int(k), i["atype"], i["btype"], i["ctype"], i.has("satfinite"), i.get("bits"), i.get("rnd", "rn"),
            sparse,
        )  # fmt: skip
    except ValueError as error:
        raise g.fail(str(error)) from None


@form(
    "mma",
    "sync aligned shape=m16n8k4|m16n8k8|m16n8k16|m16n8k32|m16n8k64|m8n8k16|m8n8k32 rows=row columns=col "
    f"satfinite? dtype=f16|f32|s32 atype={_TYPES} btype={_TYPES} ctype=f16|f32|s32",
    "dv av av av",
    uniform=never,
)
@form(
    "mma",
    "sync aligned shape=m8n8k4|m16n8k4|m16n8k8|m16n8k16 rows=row columns=col rnd=rn|rz|rm|rp? dtype=f64 atype=f64 "
    "btype=f64 ctype=f64",
    "dv av av av",
    uniform=never,
)
@form(
    "mma",
    "sync aligned shape=m8n8k128|m16n8k128|m16n8k256 rows=row columns=col dtype=s32 atype=b1 btype=b1 ctype=s32 "
    "bits=xor|and popc",
    "dv av av av",
    uniform=never,
)
def mma_sync(g: BlockCompiler, i: Decoded) -> None:
    """``mma.sync``."""
    shape = _shape(g, i)
    kind = "u64" if i["atype"] == "f64" else "u32"
    counts = (shape.c_registers, shape.a_registers, shape.b_registers, shape.c_registers)
    texts = register_texts(g, i.operands, counts, kind)
    name = g.temporary()
    g.place()
    g.emit(f"{name} = {g.helper(multiply)}(w, {g.constant(shape)}, {', '.join(texts)})")
    for index, item in enumerate(items(i.operands[0])):
        g.write(item, kind, f"{name}[{index}]")


def multiply(warp: Warp, shape: Mma, a: tuple[Array, ...], b: tuple[Array, ...], c: tuple[Array, ...]) -> Array:
    """``mma.sync`` on lists of registers."""
    _begin(warp, 2 * shape.m * 8 * shape.k)
    exact = warp.cta.launch.exact_mma
    return multiply_accumulate(shape, np.stack(a), np.stack(b), np.stack(c), exact=exact)


def _begin(warp: Warp, flops: int) -> None:
    if warp.fragment.mask is not None:
        raise ProtocolError("mma.sync needs all lanes of the warp together")
    warp.cta.launch.counters.mma_flops += flops


# -- sparse A --------------------------------------------------------------------------------------------------------


@form(
    "mma",
    "sp=sp|sp::ordered_metadata sync aligned shape=m16n8k8|m16n8k16|m16n8k32|m16n8k64|m16n8k128 rows=row columns=col "
    f"satfinite? dtype=f16|f32|s32 atype={_TYPES} btype={_TYPES} ctype=f16|f32|s32",
    "dv av av av a #",
    uniform=never,
)
def mma_sparse(g: BlockCompiler, i: Decoded) -> None:
    """``mma.sp.sync``: two of four neighbours of A are there, and metadata says which."""
    shape = _shape(g, i, sparse=True)
    counts = (shape.c_registers, shape.a_registers, shape.b_registers, shape.c_registers)
    texts = register_texts(g, i.operands[:4], counts, "u32")
    metadata, selector = i.operands[4:]
    assert isinstance(selector, Immediate)
    name = g.temporary()
    g.place()
    what = f"{g.constant(shape)}, {', '.join(texts)}, {g.array(metadata, 'u32')}, {selector.value}"
    g.emit(f"{name} = {g.helper(multiply_sparse)}(w, {what})")
    for index, item in enumerate(items(i.operands[0])):
        g.write(item, "u32", f"{name}[{index}]")


def multiply_sparse(
    warp: Warp, shape: Mma, a: tuple[Array, ...], b: tuple[Array, ...], c: tuple[Array, ...], metadata: Array,
    selector: int,
) -> Array:  # fmt: skip
    """``mma.sp.sync`` on lists of registers."""
    _begin(warp, shape.m * 8 * shape.k)
    operands = np.stack(a), np.stack(b), np.stack(c)
    try:
        return multiply_accumulate(
            shape, *operands, metadata=metadata, selector=selector, exact=warp.cta.launch.exact_mma
        )
    except ValueError as error:
        raise ProtocolError(f"mma.sp: {error}") from None


# -- four products of eight lanes ------------------------------------------------------------------------------------


@form(
    "mma",
    "sync aligned shape=m8n8k4 rows=row|col columns=row|col dtype=f16|f32 atype=f16 btype=f16 ctype=f16|f32",
    "dv av av av",
    uniform=never,
)
def mma_quads(g: BlockCompiler, i: Decoded) -> None:
    """``mma.sync.m8n8k4`` of f16."""
    try:
        shape = QuadMma(i["rows"], i["columns"], i["dtype"], i["ctype"])
    except ValueError as error:
        raise g.fail(str(error)) from None
    counts = (4 if i["dtype"] == "f16" else 8, 2, 2, 4 if i["ctype"] == "f16" else 8)
    texts = register_texts(g, i.operands, counts, "u32")
    name = g.temporary()
    g.place()
    g.emit(f"{name} = {g.helper(multiply_in_quads)}(w, {g.constant(shape)}, {', '.join(texts)})")
    for index, item in enumerate(items(i.operands[0])):
        g.write(item, "u32", f"{name}[{index}]")


def multiply_in_quads(
    warp: Warp, shape: QuadMma, a: tuple[Array, ...], b: tuple[Array, ...], c: tuple[Array, ...]
) -> Array:
    """``mma.sync.m8n8k4`` on lists of registers."""
    _begin(warp, 4 * 2 * 8 * 8 * 4)
    return multiply_quads(shape, np.stack(a), np.stack(b), np.stack(c))


_NARROW = "e4m3|e5m2|e3m2|e2m3|e2m1"
_SCALED = "kind=kind::mxf8f6f4|kind::mxf4|kind::mxf4nvf4 block_scale scale=scale_vec::1X|scale_vec::2X|scale_vec::4X?"
_RC = "rows=row columns=col"
refuse("mma", f"sync aligned shape=m16n8k32 {_RC} kind=kind::f8f6f4 dtype=f16|f32 atype={_NARROW} btype={_NARROW} "
       "ctype=f16|f32", "dv av av av", _ABSENT)  # fmt: skip
refuse("mma", f"sync aligned shape=m16n8k32|m16n8k64 {_RC} {_SCALED} dtype=f32 atype={_NARROW} btype={_NARROW} "
       "ctype=f32 stype=ue8m0|ue4m3", "dv av av av a {a} a {a}", _ABSENT)  # fmt: skip
refuse("mma", f"sp=sp::ordered_metadata sync aligned shape=m16n8k64 {_RC} kind=kind::f8f6f4 dtype=f16|f32 "
       f"atype={_NARROW} btype={_NARROW} ctype=f16|f32", "dv av av av a #", _ABSENT)  # fmt: skip
refuse("mma", f"sp=sp::ordered_metadata sync aligned shape=m16n8k64|m16n8k128 {_RC} {_SCALED} dtype=f32 "
       f"atype={_NARROW} btype={_NARROW} ctype=f32 stype=ue8m0|ue4m3", "dv av av av a # a {a} a {a}",
       _ABSENT)  # fmt: skip
