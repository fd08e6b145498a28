"""Moves: ``mov`` with packing and unpacking, address conversion, cluster addresses (PTX ISA 9.7.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilekit.emulator.core.arithmetic.lanes import Array
from tilekit.emulator.core.memory.memory import LOCAL_WINDOW, PARAM_WINDOW, RANK_SHIFT, SHARED_WINDOW, WINDOW
from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler
from tilekit.emulator.ptx.compiler.block_registers import representation
from tilekit.emulator.ptx.language.forms import Decoded, form
from tilekit.emulator.ptx.language.syntax import (
    Immediate,
    Operand,
    RegisterOperand,
    Sink,
    SpecialRegister,
    VectorOperand,
)

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.warp import Warp

_PACKED = {"b16": 2, "b32": 4, "b64": 8, "b128": 16}


@form("mov", "type=pred|b16|b32|b64|b128|u16|u32|u64|s16|s32|s64|f16|bf16|f16x2|f32|f64", "dv av")
def move(g: BlockCompiler, i: Decoded) -> None:
    """``mov``: copy, pack a vector into a register, or unpack one."""
    d, a = i.operands
    kind = i["type"]
    if isinstance(d, VectorOperand) or isinstance(a, VectorOperand):
        _repack(g, i, d, a)
        return
    bits = representation(kind)[1]
    if isinstance(a, SpecialRegister):
        _special(g, d, a, bits)
        return
    plain = kind if kind == "pred" else f"u{bits}" if kind[0] not in "f" or bits == 16 else kind
    if bits == 128:
        g.write(d, "b128", g.array(a, "b128"))
        return
    if g.results_uniform():
        g.write(d, plain, g.scalar(a, plain if plain[0] != "f" else f"u{bits}"), scalar=True)
        return
    g.write(d, plain, g.array(a, plain))


@form("mov", "vec=v2|v4 type=b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64", "{d} {a}")
def move_vector(g: BlockCompiler, i: Decoded) -> None:
    """``mov.v2``, ``mov.v4``: every source is read before a result is written, as a vector may be permuted in place."""
    d, a = i.operands
    assert isinstance(d, VectorOperand)
    assert isinstance(a, VectorOperand)
    if not len(d.items) == len(a.items) == int(i["vec"][1]):
        raise g.fail(f"mov.{i['vec']} has {i['vec'][1]} components on either side")
    kind = f"u{representation(i['type'])[1]}"
    uniform = g.results_uniform()
    values = []
    for item in a.items:
        values.append(g.temporary())
        g.emit(f"{values[-1]} = {g.scalar(item, kind) if uniform else g.array(item, kind)}")
    for item, value in zip(d.items, values, strict=True):
        if not isinstance(item, Sink):
            g.write(item, kind, value, scalar=uniform)


def _special(g: BlockCompiler, d: Operand, a: SpecialRegister, bits: int) -> None:
    width, uniform, _ = g.program.special_registers[a.name]
    if width == 1:
        g.write(d, "pred", g.scalar(a, "pred"), scalar=True)
        return
    if uniform:
        g.write(d, f"u{bits}", f"{g.scalar(a, f'u{bits}')} & {hex((1 << bits) - 1)}", scalar=True)
    elif bits == width:
        g.write(d, f"u{bits}", g.array(a, f"u{bits}"))
    else:
        g.write(d, f"u{bits}", f"{g.array(a, f'u{width}')}.astype(uint{bits})")


def _repack(g: BlockCompiler, i: Decoded, d: Operand, a: Operand) -> None:
    """Move between one wide value and the list of its parts, low part first."""
    if i["type"] == "b128":
        _repack_wide(g, d, a)
        return
    total = _PACKED.get(f"b{representation(i['type'])[1]}", 0) * 8
    if isinstance(a, VectorOperand) and isinstance(d, VectorOperand):
        raise g.fail("mov moves a register to a vector or a vector to a register")
    if isinstance(a, VectorOperand):
        part = _part_bits(g, total, a)
        if g.results_uniform():
            terms = [f"{g.scalar(item, f'u{part}')} << {part * n}" for n, item in enumerate(a.items)]
            g.write(d, f"u{total}", " | ".join(terms), scalar=True)
        else:
            sources = [(item, f"u{part}") for item in a.items]
            g.write_later(d, f"u{total}", _packing(g, total, len(sources)), *sources)
        return
    assert isinstance(d, VectorOperand)
    part = _part_bits(g, total, d)
    name = g.temporary()
    if g.is_uniform(a):
        g.emit(f"{name} = {g.scalar(a, f'u{total}')}")
        for n, item in enumerate(d.items):
            if not isinstance(item, Sink):
                g.write(item, f"u{part}", f"({name} >> {part * n}) & {hex((1 << part) - 1)}", scalar=True)
        return
    packed = g.batches.find(a.register.number) if isinstance(a, RegisterOperand) else None
    if packed is not None and packed.template == _packing(g, total, len(d.items)):
        for item, source in zip(d.items, packed.sources, strict=True):
            if not isinstance(item, Sink):
                g.write(item, f"u{part}", source)
        return
    g.emit(f"{name} = {g.helper(unpack)}({g.array(a, f'u{total}')}, {part})")
    for n, item in enumerate(d.items):
        if not isinstance(item, Sink):
            g.write(item, f"u{part}", f"{name}[{n}]")


def _repack_wide(g: BlockCompiler, d: Operand, a: Operand) -> None:
    """Between a 128-bit register, which is kept as two halves, and the list of them."""
    if isinstance(a, VectorOperand) and len(a.items) == 2:
        low, high = (g.array(item, "b64") for item in a.items)
        g.write(d, "b128", f"array(({low}, {high}))")
    elif isinstance(d, VectorOperand) and len(d.items) == 2:
        name = g.temporary()
        g.emit(f"{name} = {g.array(a, 'b128')}")
        for n, item in enumerate(d.items):
            if not isinstance(item, Sink):
                g.write(item, "b64", f"{name}[{n}]")
    else:
        raise g.fail("mov.b128 packs or unpacks two .b64")


def _part_bits(g: BlockCompiler, total: int, vector: VectorOperand) -> int:
    count = len(vector.items)
    if total not in (16, 32, 64) or total % count or total // count not in (8, 16, 32):
        raise g.fail(f"a {total}-bit value has no {count} equal parts of 8, 16 or 32 bits")
    return total // count


def _packing(g: BlockCompiler, total: int, parts: int) -> str:
    """Template of the packing of so many parts, for `BlockCompiler.write_later`."""
    places = ", ".join(f"{{{n}}}" for n in range(parts))
    return f"{g.helper(pack)}({total}, ({places}))"


def pack(total: int, parts: tuple[Array, ...]) -> Array:
    """Values of ``total`` bits from their parts, low first."""
    stacked = np.empty((*parts[0].shape, len(parts)), parts[0].dtype)
    for n, part in enumerate(parts):
        stacked[..., n] = part
    packed: Array = stacked.view(f"u{total // 8}")[..., 0]
    return packed


def unpack(value: Array, part: int) -> Array:
    """The parts of each lane's value: one row a part, low first."""
    return np.ascontiguousarray(value.reshape(-1, 1).view(f"u{part // 8}").T)


@form("cvta", "to? space=global|const|shared|shared::cta|shared::cluster|local|param|param::entry type=u64|u32", "d a")
def convert_address(g: BlockCompiler, i: Decoded) -> None:
    """``cvta``: between a state space's addresses and generic ones; global, const and param addresses are generic."""
    d, a = i.operands
    kind = i["type"]
    space = i["space"].split("::")[0]
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW}.get(space, 0)
    if kind == "u32" and window:
        raise g.fail("a generic address has 64 bits: use cvta.u64")
    shift = "" if not window else f" - {window}" if i.has("to") else f" + {window}"
    mask = f" & {hex((1 << 64) - 1)}" if shift else ""
    if g.results_uniform():
        g.write(d, kind, f"({g.scalar(a, kind)}{shift}){mask}", scalar=True)
    else:
        offset = g.array(Immediate(window), "u64") if window else ""
        sign = " - " if i.has("to") else " + "
        g.write(d, kind, f"{g.array(a, kind)}{sign}{offset}" if window else g.array(a, kind))


@form("isspacep", "space=global|const|local|shared|shared::cta|shared::cluster|param|param::entry", "d a")
def is_space(g: BlockCompiler, i: Decoded) -> None:
    """``isspacep``: whether a generic address lies in a window."""
    d, a = i.operands
    space = i["space"].split("::")
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}.get(space[0])
    uniform = g.results_uniform()
    value = g.scalar(a, "u64") if uniform else g.array(a, "u64")
    if window is None:
        constant = g.helper(is_constant if uniform else are_constant)
        test = f"({value} >= {PARAM_WINDOW + WINDOW}) & ({constant}(w, {value}) == {space[0] == 'const'})"
    elif space[-1] == "cluster":
        test = f"({value} // {WINDOW} == {SHARED_WINDOW // WINDOW})"
    elif space[0] == "shared":
        test = f"(({value} >> {RANK_SHIFT}) == {SHARED_WINDOW >> RANK_SHIFT} + w.cta.rank)"
    else:
        test = f"({value} // {WINDOW} == {window // WINDOW})"
    g.write(d, "pred", test, scalar=uniform)


def is_constant(warp: Warp, address: int) -> bool:
    """Whether a generic address lies in a ``.const`` variable."""
    allocation = warp.cta.launch.memory.find(address)
    return allocation is not None and allocation.space == "const" and address < allocation.start + allocation.size


def are_constant(warp: Warp, addresses: Array) -> Array:
    """The same of each lane's."""
    return np.array([is_constant(warp, address) for address in addresses.tolist()])


@form("mapa", "space=shared::cluster? type=u32|u64", "d a b")
def map_address(g: BlockCompiler, i: Decoded) -> None:
    """``mapa``: the same shared variable in another CTA of the cluster."""
    d, a, b = i.operands
    kind = i["type"]
    low = (1 << RANK_SHIFT) - 1
    if g.results_uniform():
        text = f"({g.scalar(a, kind)} & ~{0xFF << RANK_SHIFT}) | ({g.scalar(b, 'u32')} << {RANK_SHIFT})"
        g.write(d, kind, text, scalar=True)
    else:
        dtype = "uint32" if kind == "u32" else "uint64"
        window = f" | {dtype}({SHARED_WINDOW})" if kind == "u64" else ""
        rank = f"({g.array(b, 'u32')}.astype({dtype}) << {dtype}({RANK_SHIFT}))"
        g.write(d, kind, f"({g.array(a, kind)} & {dtype}({low})) | {rank}{window}")


@form("getctarank", "space=shared::cluster? type=u32|u64", "d a")
def cta_rank(g: BlockCompiler, i: Decoded) -> None:
    """``getctarank``: the CTA that a shared address belongs to."""
    d, a = i.operands
    kind = i["type"]
    if g.results_uniform():
        g.write(d, "u32", f"({g.scalar(a, kind)} >> {RANK_SHIFT}) & 0xff", scalar=True)
    else:
        g.write(d, "u32", f"(({g.array(a, kind)} >> {RANK_SHIFT}) & 255).astype(uint32)")
