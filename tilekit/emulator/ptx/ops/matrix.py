"""``ldmatrix``, ``stmatrix``, ``movmatrix``: matrices of one warp, in memory and in registers (PTX ISA 9.7.14.5)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.arithmetic.lanes import Array
from tilekit.emulator.core.checks.lane_order import COLLECTIVE
from tilekit.emulator.core.errors import MemoryFault, ProtocolError
from tilekit.emulator.ptx.checks.uninitialised import check_read
from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler
from tilekit.emulator.ptx.language.forms import Decoded, form, never
from tilekit.emulator.ptx.language.syntax import VectorOperand
from tilekit.emulator.ptx.matrix.matrix_rows import (
    bytes_from_registers,
    bytes_to_registers,
    load_matrices,
    matrices_from_registers,
    matrices_to_registers,
    widened,
)
from tilekit.emulator.ptx.memory.access import resolve
from tilekit.emulator.ptx.memory.stores import free_place
from tilekit.emulator.ptx.ops.memory import array_address

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.warp import Warp

_ROW = np.dtype((np.void, 16))


def _rows(
    warp: Warp, addresses: Array, count: int, stored: npt.NDArray[Any] | None = None
) -> tuple[Any, npt.NDArray[np.int64]]:
    """Shared memory and the offsets of the rows that the first ``count`` lanes name; ``stored`` are to be written."""
    if warp.fragment.mask is not None:
        raise ProtocolError("ldmatrix and stmatrix need all lanes of the warp together")
    named = addresses[:count]
    values = named.tolist()
    action = "ldmatrix" if stored is None else "stmatrix"
    lowest, highest = min(values), max(values)
    memory, low = resolve(warp, "generic" if lowest >> 32 else "shared", lowest, 16, action)
    end = lowest - low + memory.size
    if highest > end - 16:
        resolve(warp, "generic" if highest >> 32 else "shared", highest, 16, action)
    if highest > end - 16 or memory is not warp.cta.shared:
        raise MemoryFault(
            f"{action} of rows at {lowest:#x} to {highest:#x}: all must lie in the CTA's own shared memory",
            details={"lowest": lowest, "highest": highest},
        )
    offsets = named.astype(np.int64) - (lowest - low)
    if int(np.bitwise_or.reduce(offsets)) & 15:
        bad = next(v for v in values if v & 15)
        raise MemoryFault(f"{action} row at {bad:#x}: the address must be a multiple of 16", details={"address": bad})
    launch = warp.cta.launch
    if stored is not None:
        launch.machine.events += 1
        if memory.barriers:
            warp.cta.cluster.mbarriers.check_store(
                memory.start + low,
                memory.start + low + highest - lowest + 16,
                by=warp.actor,
                instruction=warp.program.instruction(warp.at),
            )
    if memory.shadow is not None:
        memory.shadow.lanes(
            warp.agent,
            offsets + memory.shadow.base,
            16,
            write=stored is not None,
            instruction=warp.program.instruction(warp.at),
            changes=None if stored is None else partial(_changed, memory.data, offsets, memory.shadow.base, stored),
            active=COLLECTIVE,
        )
    return memory, offsets


def _changed(
    data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], start: int, stored: npt.NDArray[Any]
) -> npt.NDArray[np.int64]:
    """Addresses, from ``start``, of the bytes that rows to be stored change."""
    places = offsets[:, None] + np.arange(16)
    changed: npt.NDArray[np.int64] = places[data[places] != stored.view(np.uint8).reshape(-1, 16)]
    return changed + start


def load_matrix(warp: Warp, addresses: Array, count: int, transposed: bool) -> Array:
    """``ldmatrix``: uint32[count, 32]."""
    memory, offsets = _rows(warp, addresses, 8 * count)
    rows = load_matrices(memory.data, offsets)
    if memory.poisoned and warp.cta.launch.protocol:
        check_read(warp, memory, int(offsets[0]), rows.view(np.uint32), 4)
    return matrices_to_registers(rows, transposed)


def store_matrix(warp: Warp, addresses: Array, registers: tuple[Array, ...], transposed: bool) -> None:
    """``stmatrix``."""
    rows = matrices_from_registers(np.concatenate(registers).reshape(-1, 32), transposed)
    memory, offsets = _rows(warp, addresses, 8 * len(registers), rows)
    memory.data.view(_ROW)[offsets >> 4] = rows.view(_ROW).ravel()


def store_matrices(
    warp: Warp,
    count: int,
    transposed: bool,
    positions: tuple[int, ...],
    addresses: tuple[Array, ...],
    registers: tuple[Array, ...],
) -> None:
    """``stmatrix`` of the instructions at ``positions``, each with its addresses and ``count`` registers."""
    number = len(positions)
    place = None
    if number > 1:
        named = np.concatenate(addresses).reshape(number, 32)[:, : 8 * count].ravel()
        place = free_place(warp, "shared" if named.itemsize == 4 else "generic", named, 16)
    if place is None:
        for n, position in enumerate(positions):
            warp.at = position
            store_matrix(warp, addresses[n], registers[n * count : (n + 1) * count], transposed)
        return
    memory, offsets = place
    rows = matrices_from_registers(np.concatenate(registers).reshape(-1, 32), transposed)
    memory.data.view(_ROW)[offsets >> 4] = rows.view(_ROW).ravel()
    warp.cta.launch.machine.events += number


def load_bytes(warp: Warp, addresses: Array, count: int, source: str, tall: bool) -> Array:
    """``ldmatrix`` of 8-bit matrices, or of narrower elements that become bytes; ``tall``: 16 rows, transposed."""
    memory, offsets = _rows(warp, addresses, (16 if tall else 8) * count)
    rows = load_matrices(memory.data, offsets)
    if memory.poisoned and warp.cta.launch.protocol:
        used = {"b4x16_p64": 2, "b6x16_p32": 3}.get(source, 4)
        check_read(warp, memory, int(offsets[0]), np.ascontiguousarray(rows.view(np.uint32)[:, :used]), 4)
    if source != "b8":
        rows = widened(rows, source)
    return bytes_to_registers(rows) if tall else matrices_to_registers(rows)


def store_bytes(warp: Warp, addresses: Array, registers: tuple[Array, ...]) -> None:
    """``stmatrix`` of 8-bit matrices, transposed."""
    rows = bytes_from_registers(np.stack(registers))
    memory, offsets = _rows(warp, addresses, 8 * len(registers), rows)
    memory.data.view(_ROW)[offsets >> 4] = rows.view(_ROW).ravel()


def _count(g: BlockCompiler, i: Decoded, vector: VectorOperand, each: int = 1) -> int:
    count = int(i["count"][1])
    if len(vector.items) != count * each:
        raise g.fail(f"{len(vector.items)} registers, where .x{count} has {count * each}")
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


@form("ldmatrix", "sync aligned shape=m16n16 count=x1|x2 trans space=shared|shared::cta? type=b8", "{d} [a]",
      uniform=never)  # fmt: skip
@form("ldmatrix", "sync aligned shape=m16n16 count=x1|x2 trans space=shared|shared::cta? to=b8x16 "
      "type=b4x16_p64|b6x16_p32", "{d} [a]", uniform=never)  # fmt: skip
@form("ldmatrix", "sync aligned shape=m8n16 count=x1|x2|x4 space=shared|shared::cta? to=b8x16 "
      "type=b4x16_p64|b6x16_p32", "{d} [a]", uniform=never)  # fmt: skip
def ldmatrix_bytes(g: BlockCompiler, i: Decoded) -> None:
    """``ldmatrix`` of 8-bit, 6-bit and 4-bit elements."""
    d, a = i.operands
    assert isinstance(d, VectorOperand)
    tall = i["shape"] == "m16n16"
    count = _count(g, i, d, 2 if tall else 1)
    g.place()
    name = g.temporary()
    g.emit(f"{name} = {g.helper(load_bytes)}(w, {array_address(g, a)}, {count}, {i['type']!r}, {tall})")
    for index, item in enumerate(d.items):
        g.write(item, "u32", f"{name}[{index}]")


@form("stmatrix", "sync aligned shape=m16n8 count=x1|x2|x4 trans space=shared|shared::cta? type=b8", "[a] {a}")
def stmatrix_bytes(g: BlockCompiler, i: Decoded) -> None:
    """``stmatrix`` of 8-bit elements."""
    a, source = i.operands
    assert isinstance(source, VectorOperand)
    _count(g, i, source)
    registers = "".join(g.array(item, "u32") + ", " for item in source.items)
    g.place()
    g.effect(f"{g.helper(store_bytes)}(w, {array_address(g, a)}, ({registers}))")


@form("stmatrix", "sync aligned shape=m8n8 count=x1|x2|x4 trans? space=shared|shared::cta? type=b16", "[a] {a}")
def stmatrix(g: BlockCompiler, i: Decoded) -> None:
    """``stmatrix``."""
    a, source = i.operands
    assert isinstance(source, VectorOperand)
    count = _count(g, i, source)
    if g.stores_later():
        call = f"{g.helper(store_matrices)}(w, {count}, {i.has('trans')}"
        g.store_later(call, array_address(g, a), source.items, lambda: [g.array(item, "u32") for item in source.items])
        return
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
