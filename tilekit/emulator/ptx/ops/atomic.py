"""``atom`` and ``red`` (PTX ISA 9.7.13.9, 9.7.13.10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.arithmetic import formats
from tilekit.emulator.core.arithmetic.lanes import ONE_LANE, Array
from tilekit.emulator.core.checks.findings import Finding
from tilekit.emulator.core.checks.happens_before import Order
from tilekit.emulator.core.checks.lane_order import uniform
from tilekit.emulator.core.errors import MemoryFault, Where, describe
from tilekit.emulator.ptx.arithmetic.floating import clean, extremum, flush, pass_nan
from tilekit.emulator.ptx.arithmetic.reductions import add_wide_in_l2
from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler
from tilekit.emulator.ptx.language.forms import Decoded, form, never
from tilekit.emulator.ptx.language.syntax import TYPE_BYTES, Operand, VectorOperand
from tilekit.emulator.ptx.memory.access import misaligned, resolve, tell_strong
from tilekit.emulator.ptx.ops.memory import address_space, array_address

if TYPE_CHECKING:
    from tilekit.emulator.core.memory.memory import Allocation
    from tilekit.emulator.ptx.execution.warp import Warp

_SCOPE = "order=relaxed|acquire|release|acq_rel? scope=cta|cluster|gpu|sys?"
_INTEGERS = "op=add|min|max|inc|dec|and|or|xor|exch type=b32|u32|s32|b64|u64|s64"
_FLOATS = "op=add|min|max noftz? vec=v2|v4|v8? type=f16|bf16|f16x2|bf16x2|f32|f64"
_SPACE = "space=global|shared|shared::cta|shared::cluster?"
_HINT = "hint=L2::cache_hint?"
PACKED_HALVES = ("f16x2", "bf16x2")
PACKED_HALVES_HINT = (
    "add f32 there, or single f16 or bf16, or loop over atom.cas.b32; within the own CTA and in global memory packed "
    "halves are added as they should be"
)
"""What to do instead of adding packed halves in a peer's shared memory."""


def atomic(
    warp: Warp,
    space: str,
    operation: str,
    kind: str,
    order: Order,
    addresses: Array,
    values: tuple[Array, ...],
    compare: Array | None,
    mask: npt.NDArray[np.bool_] | None,
) -> Array:
    """Apply an atomic lane by lane, lowest first; the old values, unsigned[count, 32]."""
    width = TYPE_BYTES[kind]
    count = len(values)
    size = width * count
    storage = np.dtype(f"u{width}")
    old = np.zeros((count, 32), storage)
    active = warp.live if mask is None else mask
    launch = warp.cta.launch
    lanes = np.flatnonzero(active).tolist()
    if count == 1 and compare is None and operation == "add" and kind in ("u32", "s32", "u64", "s64", "b32", "b64"):
        first = int(addresses[lanes[0]])
        if all(int(addresses[lane]) == first for lane in lanes):
            memory, offset = _locate(warp, space, first, size)
            view = memory.views[width]
            before = view.item(offset // width)
            steps = np.cumsum(values[0][lanes])
            old[0, lanes] = (np.concatenate([[0], steps[:-1]]).astype(storage) + storage.type(before)).astype(storage)
            view[offset // width] = (before + int(steps[-1])) & ((1 << 8 * width) - 1)
            _tell(warp, space, memory, offset, first, size, order, active)
            launch.machine.events += 1
            return old
    for lane in lanes:
        address = int(addresses[lane])
        memory, offset = _locate(warp, space, address, size)
        view = memory.views[width]
        for index in range(count):
            at = offset // width + index
            before = view[at]
            old[index, lane] = before
            if operation == "cas":
                assert compare is not None
                if before == compare[lane]:
                    view[at] = values[0][lane]
            else:
                given = values[index][lane]
                if kind in ("f32", "f64") and operation == "add" and memory.space == "global":
                    view[at] = _add_in_l2(before, given, kind)
                elif operation == "add" and kind in PACKED_HALVES and _is_peers(warp, memory):
                    # ptxas compiles this to LD, IADD, ST: the words are added as integers.
                    view[at] = _combine_integers("add", "u32", int(before), int(given))
                    _report_integer_sum(warp, kind, memory)
                else:
                    view[at] = combine(operation, kind, before, given)
        _tell(warp, space, memory, offset, address, size, order, ONE_LANE[lane])
    launch.machine.events += 1
    return old


def _locate(warp: Warp, space: str, address: int, size: int) -> tuple[Allocation, int]:
    memory, offset = resolve(warp, space, address, size, "atomic")
    if address % size:
        raise misaligned(address, size, "atomic")
    if not memory.writable:
        raise MemoryFault(f"atomic on {memory.name}, which is read-only")
    return memory, offset


def _is_peers(warp: Warp, memory: Allocation) -> bool:
    """Whether it is the shared memory of another CTA of the cluster."""
    return memory.space == "shared" and memory is not warp.cta.shared


def _report_integer_sum(warp: Warp, kind: str, memory: Allocation) -> None:
    """Add the finding about packed halves in a peer's memory, once for each instruction."""
    instruction = warp.program.instruction(warp.at)
    warp.cta.launch.findings.add(
        Finding(
            "packed-halves",
            f"line {instruction.line} adds .{kind} in a peer's shared memory: ptxas adds the words as integers, "
            "and not atomically",
            (f"by {warp.actor} of CTA {warp.cta.rank} in {memory.name}, at {describe(instruction)}",),
            PACKED_HALVES_HINT,
            Where(warp.program.name, warp.actor, instruction),
        )
    )


def _tell(
    warp: Warp,
    space: str,
    memory: Allocation,
    offset: int,
    address: int,
    size: int,
    order: Order,
    active: npt.NDArray[np.bool_],
) -> None:
    instruction = warp.program.instruction(warp.at)
    if memory.barriers:
        start = memory.start + offset
        warp.cta.cluster.mbarriers.check_store(start, start + size, by=warp.actor, instruction=instruction)
    if memory.shadow is not None:
        start = memory.shadow.base + offset
        lanes = uniform(start, size, active.tobytes())
        memory.shadow.span(
            warp.agent, start, start + size, write=True, atomic=True, instruction=instruction, lanes=lanes
        )
    tell_strong(warp, space, address, order, True, True, active)


def _add_in_l2(old: Any, value: Any, kind: str) -> Any:
    """Addition in global memory: subnormal f32 become zeros, and an f64 NaN passes as it is."""
    if kind == "f64":
        memory, given = (np.array([x], np.uint64).view(np.float64) for x in (old, value))
        return add_wide_in_l2(memory, given).view(np.uint64)[0]
    a, b = (flush(np.array([x], np.uint32).view(np.float32)) for x in (old, value))
    return flush(clean(a + b)).view(np.uint32)[0]


def combine(operation: str, kind: str, old: Any, value: Any) -> Any:
    """The new pattern of one location."""
    if operation == "exch":
        return value
    if kind[0] in "ubs" and kind[1:].isdigit():
        return _combine_integers(operation, kind, int(old), int(value))
    if kind.endswith("x2"):
        single = kind[:-2]
        low = combine(operation, single, int(old) & 0xFFFF, int(value) & 0xFFFF)
        high = combine(operation, single, int(old) >> 16, int(value) >> 16)
        return int(low) | int(high) << 16
    if kind in ("f16", "bf16"):
        a, b = (formats.decode(np.array([int(x)], np.uint16), kind) for x in (old, value))
        return int(formats.encode(_combine_floats(operation, a, b), kind)[0])
    dtype = np.dtype(f"f{TYPE_BYTES[kind]}")
    storage = np.dtype(f"u{TYPE_BYTES[kind]}")
    a, b = (np.array([int(x)], storage).view(dtype) for x in (old, value))
    return _combine_floats(operation, a, b).view(storage)[0]


def _combine_floats(operation: str, a: Array, b: Array) -> Array:
    if operation == "add":
        return clean(a + b) if a.dtype == np.float32 else pass_nan(a + b, b, a)
    return extremum(operation, a, b, False)


def _combine_integers(operation: str, kind: str, old: int, value: int) -> int:
    bits = int(kind[1:])
    ones = (1 << bits) - 1
    if kind[0] == "s" and operation in ("min", "max"):
        sign = 1 << bits - 1
        signed = [(x ^ sign) - sign for x in (old, value)]
        return (min(signed) if operation == "min" else max(signed)) & ones
    match operation:
        case "add":
            return (old + value) & ones
        case "min":
            return min(old, value)
        case "max":
            return max(old, value)
        case "and":
            return old & value
        case "or":
            return old | value
        case "xor":
            return old ^ value
        case "inc":
            return 0 if old >= value else old + 1
    return value if old == 0 or old > value else old - 1


def _emit(g: BlockCompiler, i: Decoded, address: Operand, source: Operand, compare: Operand | None) -> str:
    kind = i["type"]
    bits = TYPE_BYTES[kind] * 8
    parts = source.items if isinstance(source, VectorOperand) else (source,)
    if len(parts) != int(i.get("vec", "v1")[1:]):
        raise g.fail(f"{len(parts)} values, where the instruction takes {i.get('vec', 'one')}")
    values = "".join(g.array(part, f"u{bits}") + ", " for part in parts)
    expected = "None" if compare is None else g.array(compare, f"u{bits}")
    g.place()
    operation = i["op"] if i.has("op") else "cas"
    space = address_space(g, i, address)
    order = i.get("order", "relaxed")
    what = f"{space!r}, {operation!r}, {kind!r}, {order!r}"
    return f"{g.helper(atomic)}(w, {what}, {array_address(g, address)}, ({values}), {expected}, {g.mask()})"


@form("atom", f"{_SCOPE} {_SPACE} {_INTEGERS} {_HINT}", "d [a] a a?", uniform=never)
@form("atom", f"{_SCOPE} {_SPACE} {_FLOATS} {_HINT}", "dv [a] av a?", uniform=never)
@form("atom", f"{_SCOPE} {_SPACE} op=cas type=b16|b32|b64|u32|s32|u64 {_HINT}", "d [a] a a a?", uniform=never)
def atom(g: BlockCompiler, i: Decoded) -> None:
    """``atom``."""
    d, address = i.operands[:2]
    swap = i["op"] == "cas"
    source, compare = (i.operands[3], i.operands[2]) if swap else (i.operands[2], None)
    call = _emit(g, i, address, source, compare)
    bits = TYPE_BYTES[i["type"]] * 8
    parts = d.items if isinstance(d, VectorOperand) else (d,)
    if g.condition is not None:
        call += f" if {g.condition}.any() else np.zeros(({len(parts)}, 32), 'u{bits // 8}')"
    name = g.temporary()
    g.emit(f"{name} = {call}")
    for index, part in enumerate(parts):
        g.write(part, f"u{bits}", f"{name}[{index}]")


@form("atom", f"{_SCOPE} {_SPACE} op=cas type=b128", "d [a] a a", uniform=never)
@form("atom", f"{_SCOPE} {_SPACE} op=exch {_HINT} type=b128", "d [a] a a?", uniform=never)
def atom_wide(g: BlockCompiler, i: Decoded) -> None:
    """``atom.cas.b128`` and ``atom.exch.b128``, on values kept as two 64-bit halves."""
    d, address = i.operands[:2]
    swap = i["op"] == "cas"
    source = g.array(i.operands[3 if swap else 2], "b128")
    compare = g.array(i.operands[2], "b128") if swap else "None"
    g.place()
    what = f"{address_space(g, i, address)!r}, {i.get('order', 'relaxed')!r}, {array_address(g, address)}"
    call = f"{g.helper(exchange_wide)}(w, {what}, {source}, {compare}, {g.mask()})"
    if g.condition is not None:
        call += f" if {g.condition}.any() else np.zeros((2, 32), 'u8')"
    g.write(d, "b128", call)


def exchange_wide(
    warp: Warp, space: str, order: Order, addresses: Array, values: Array, compare: Array | None,
    mask: npt.NDArray[np.bool_] | None,
) -> Array:  # fmt: skip
    """Exchange sixteen bytes lane by lane, lowest first, where they are as expected; the old values."""
    old = np.zeros((2, 32), np.uint64)
    active = warp.live if mask is None else mask
    for lane in np.flatnonzero(active).tolist():
        address = int(addresses[lane])
        memory, offset = _locate(warp, space, address, 16)
        place = memory.views[8][offset // 8 : offset // 8 + 2]
        old[:, lane] = place
        if compare is None or (place == compare[:, lane]).all():
            place[:] = values[:, lane]
        _tell(warp, space, memory, offset, address, 16, order, ONE_LANE[lane])
    warp.cta.launch.machine.events += 1
    return old


@form("red", f"{_SCOPE} {_SPACE} {_INTEGERS} {_HINT}", "[a] a a?")
@form("red", f"{_SCOPE} {_SPACE} {_FLOATS} {_HINT}", "[a] av a?")
def red(g: BlockCompiler, i: Decoded) -> None:
    """``red``."""
    g.effect(_emit(g, i, i.operands[0], i.operands[1], None))
