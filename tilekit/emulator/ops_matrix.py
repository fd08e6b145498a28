"""Matrix fragments of one warp: ``ldmatrix``, ``stmatrix``, ``mma.sync`` (PTX ISA 9.7.14)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .access import resolve
from .block_compiler import BlockCompiler
from .errors import MemoryFault, ProtocolError
from .forms import Decoded, form, never
from .lanes import Array
from .memory import OFFSET_MASK
from .mma import Mma, load_matrices, matrices_from_registers, matrices_to_registers, multiply_accumulate
from .ops_memory import array_address
from .syntax import VectorOperand
from .uninitialised import check_read

if TYPE_CHECKING:
    from .warp import Warp

_ROW = np.dtype((np.void, 16))


def _rows(warp: Warp, addresses: Array, count: int, write: bool) -> tuple[Any, npt.NDArray[np.int64]]:
    """Shared memory and the offsets of the rows that the first 8 * count lanes name."""
    if warp.fragment.mask is not None:
        raise ProtocolError("ldmatrix and stmatrix need all lanes of the warp together")
    values = addresses[: 8 * count].tolist()
    action = "stmatrix" if write else "ldmatrix"
    lowest, highest = min(values), max(values)
    memory, low = resolve(warp, "generic" if lowest >> 32 else "shared", lowest, 16, action)
    resolve(warp, "generic" if highest >> 32 else "shared", highest, 16, action)
    offsets = np.array(values, np.int64) & OFFSET_MASK
    if int(np.bitwise_or.reduce(offsets)) & 15:
        bad = next(v for v in values if v & 15)
        raise MemoryFault(f"{action} row at {bad:#x}: the address must be a multiple of 16", details={"address": bad})
    launch = warp.cta.launch
    if write:
        launch.machine.events += 1
        if memory.barriers:
            warp.cta.cluster.mbarriers.check_store(
                memory.start + low,
                memory.start + int(offsets.max()) + 16,
                by=warp.actor,
                instruction=warp.program.instruction(warp.at),
            )
    if memory.shadow is not None:
        memory.shadow.lanes(
            warp.agent, offsets + memory.shadow.base, 16, write=write, instruction=warp.program.instruction(warp.at)
        )
    return memory, offsets


def load_matrix(warp: Warp, addresses: Array, count: int, transposed: bool) -> Array:
    """``ldmatrix``: uint32[count, 32]."""
    memory, offsets = _rows(warp, addresses, count, False)
    rows = load_matrices(memory.data, offsets)
    if memory.poisoned and warp.cta.launch.protocol:
        check_read(warp, memory, int(offsets[0]), rows.view(np.uint32), 4)
    return matrices_to_registers(rows, transposed)


def store_matrix(warp: Warp, addresses: Array, registers: tuple[Array, ...], transposed: bool) -> None:
    """``stmatrix``."""
    memory, offsets = _rows(warp, addresses, len(registers), True)
    rows = matrices_from_registers(np.stack(registers), transposed)
    memory.data.view(_ROW)[offsets >> 4] = rows.view(_ROW).ravel()


def _count(g: BlockCompiler, i: Decoded, vector: VectorOperand) -> int:
    count = int(i["count"][1])
    if len(vector.items) != count:
        raise g.fail(f"{len(vector.items)} registers, where .x{count} has {count}")
    return count


@form(
    "ldmatrix",
    "sync aligned shape=m8n8 count=x1|x2|x4 trans? space=shared|shared::cta? type=b16",
    "{d} [a]",
    uniform=never,
)
def ldmatrix(g: BlockCompiler, i: Decoded) -> None:
    """``ldmatrix``."""
    d, a = i.operands
    assert isinstance(d, VectorOperand)
    count = _count(g, i, d)
    g.place()
    name = g.temporary()
    g.emit(f"{name} = {g.helper(load_matrix)}(w, {array_address(g, a)}, {count}, {i.has('trans')})")
    for index, item in enumerate(d.items):
        g.write(item, "u32", f"{name}[{index}]")


@form("stmatrix", "sync aligned shape=m8n8 count=x1|x2|x4 trans? space=shared|shared::cta? type=b16", "[a] {a}")
def stmatrix(g: BlockCompiler, i: Decoded) -> None:
    """``stmatrix``."""
    a, source = i.operands
    assert isinstance(source, VectorOperand)
    _count(g, i, source)
    registers = "".join(g.array(item, "u32") + ", " for item in source.items)
    g.place()
    g.effect(f"{g.helper(store_matrix)}(w, {array_address(g, a)}, ({registers}), {i.has('trans')})")


@form("movmatrix", "sync aligned shape=m8n8 trans type=b16", "d a", uniform=never)
def movmatrix(g: BlockCompiler, i: Decoded) -> None:
    """``movmatrix``: transpose a matrix that lies in registers."""
    d, a = i.operands
    name = g.temporary()
    source = g.array(a, "u32")
    g.place()
    g.emit(f"{name} = {g.helper(transpose_matrix)}(w, {source})")
    g.write(d, "u32", name)


def transpose_matrix(warp: Warp, registers: Array) -> Array:
    """``movmatrix`` on the warp's registers."""
    if warp.fragment.mask is not None:
        raise ProtocolError("movmatrix needs all lanes of the warp together")
    result: Array = matrices_to_registers(matrices_from_registers(registers[None]), True)[0]
    return result


_TYPES = "f16|bf16|tf32|f64|e4m3|e5m2|s8|u8"


@form(
    "mma",
    "sync aligned shape=m16n8k4|m16n8k8|m16n8k16|m16n8k32|m8n8k4|m8n8k16 rows=row columns=col kind=kind::f8f6f4? "
    f"satfinite? dtype=f16|f32|f64|s32 atype={_TYPES} btype={_TYPES} ctype=f16|f32|f64|s32",
    "dv av av av",
    uniform=never,
)
def mma_sync(g: BlockCompiler, i: Decoded) -> None:
    """``mma.sync``."""
    m, rest = i["shape"][1:].split("n8k")
    try:
        shape = Mma(int(m), int(rest), i["atype"], i["btype"], i["ctype"], i.has("satfinite"))
    except ValueError as error:
        raise g.fail(str(error)) from None
    if i["dtype"] != i["ctype"]:
        raise g.fail("C and D have different types")
    kind = "u64" if i["atype"] == "f64" else "u32"
    parts = [o.items if isinstance(o, VectorOperand) else (o,) for o in i.operands]
    wanted = (shape.c_registers, shape.a_registers, shape.b_registers, shape.c_registers)
    for given, count, name in zip(parts, wanted, "DABC", strict=True):
        if len(given) != count:
            raise g.fail(f"{len(given)} registers for {name}, where the shape has {count}")
    texts = ["(" + "".join(g.array(item, kind) + ", " for item in part) + ")" for part in parts[1:]]
    name = g.temporary()
    g.place()
    g.emit(f"{name} = {g.helper(multiply)}(w, {g.constant(shape)}, {', '.join(texts)})")
    for index, item in enumerate(parts[0]):
        g.write(item, kind, f"{name}[{index}]")


def multiply(warp: Warp, shape: Mma, a: tuple[Array, ...], b: tuple[Array, ...], c: tuple[Array, ...]) -> Array:
    """``mma.sync`` on lists of registers."""
    if warp.fragment.mask is not None:
        raise ProtocolError("mma.sync needs all lanes of the warp together")
    warp.cta.launch.counters.mma_flops += 2 * shape.m * 8 * shape.k
    exact = warp.cta.launch.exact
    return multiply_accumulate(shape, np.stack(a), np.stack(b), np.stack(c), exact=exact)
