"""Instructions of a whole warp: shuffles, votes, reductions, elections, register budgets (PTX ISA 9.7.9, 9.7.13)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.arithmetic.lanes import LANES, ONE_LANE, Array, ballot, lane_mask
from tilekit.emulator.core.checks.deadlock import GroupWait
from tilekit.emulator.core.errors import ProtocolError
from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler
from tilekit.emulator.ptx.execution.convergence import require_members
from tilekit.emulator.ptx.language.forms import Decoded, Uniform, always, form, never
from tilekit.emulator.ptx.language.syntax import Immediate, Operand, PairOperand, Sink

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.warp import Warp

Mask = npt.NDArray[np.bool_]


def pair(operand: Operand) -> tuple[Operand, Operand]:
    """The two results of ``d|p``; the second is dropped when it is not written."""
    return (operand.first, operand.second) if isinstance(operand, PairOperand) else (operand, Sink())


# -- shuffle ---------------------------------------------------------------------------------------------------------


def _shuffle_uniform(decoded: Decoded, uniform: Callable[[Operand], bool]) -> tuple[bool, ...]:
    """``shfl.idx`` from one lane of the whole warp gives every lane the same."""
    a, lane, clamp = decoded.operands[1:4]
    whole = isinstance(clamp, Immediate) and clamp.value & 0x1F1F == 0x1F
    same = decoded["mode"] == "idx" and whole and uniform(lane)
    return (same or (uniform(a) and decoded["mode"] == "idx"),) + (same,) * (len(decoded.defs) - 1)


@form("shfl", "sync? mode=up|down|bfly|idx type=b32", "d|p a a a a?", uniform=_shuffle_uniform)
def shuffle(g: BlockCompiler, i: Decoded) -> None:
    """``shfl``."""
    d, p = pair(i.operands[0])
    a, b, c = i.operands[1:4]
    _members(g, i, 4)
    if g.is_uniform(a) and isinstance(p, Sink):  # from whichever lane, and from itself, each receives the same
        g.write(d, "u32", g.scalar(a, "u32"), scalar=True)
        return
    if g.is_uniform(b) and g.is_uniform(c):
        plan = f"{g.helper(shuffle_plan)}({i['mode']!r}, {g.scalar(b, 'u32')}, {g.scalar(c, 'u32')}, {g.program.lanes})"
    else:
        plan = f"{g.helper(shuffle_lanes)}({i['mode']!r}, {g.array(b, 'u32')}, {g.array(c, 'u32')})"
    name = g.temporary()
    source = g.array(a, "u32")
    g.emit(f"{name} = {plan}")
    values = g.temporary()
    g.emit(f"{values} = {source}[{name}[0]]")
    g.write(d, "u32", values)
    if not isinstance(p, Sink):
        g.write(p, "pred", f"{name}[1]")


@lru_cache(256)
def shuffle_plan(mode: str, b: int, c: int, lanes: int) -> tuple[Array, Mask]:
    """Source and in-range predicate of each lane, for uniform operands."""
    return shuffle_lanes(mode, np.full(lanes, b, np.uint32), np.full(lanes, c, np.uint32))


def shuffle_lanes(mode: str, b: Array, c: Array) -> tuple[Array, Mask]:
    """Source and in-range predicate of each lane, of one warp or of many (PTX ISA, ``shfl.sync``)."""
    place = np.arange(b.size)
    lane = place & 31
    b, c = (b & 31).astype(np.int64), c.astype(np.int64)
    clamp, segment = c & 31, (c >> 8) & 31
    highest = (lane & segment) | (clamp & ~segment)
    if mode == "up":
        source = lane - b
        inside = source >= highest
    else:
        source = {"down": lane + b, "bfly": lane ^ b, "idx": (lane & segment) | (b & ~segment)}[mode]
        inside = source <= highest
    return np.where(inside, source, lane) + (place - lane), inside


# -- votes -----------------------------------------------------------------------------------------------------------


def active_lanes(warp: Warp) -> Mask:
    """The lanes that execute the instruction."""
    return warp.live if warp.fragment.mask is None else warp.fragment.mask


def voters(warp: Warp, members: int) -> Mask:
    """The active lanes that a membership mask names."""
    active = active_lanes(warp)
    return active if members == 0xFFFFFFFF else active & lane_mask(members)


def by_groups(warp: Warp, members: int | Array, outcome: Callable[[Mask], int | bool]) -> Any:
    """The outcome for the voters; with a mask that differs between lanes, each lane's for the lanes that it names."""
    if isinstance(members, int):
        return outcome(voters(warp, members))
    active = active_lanes(warp)
    results: Array | None = None
    for mask in np.unique(members[active]).tolist():
        group = active & (members == mask)
        found = outcome(group & lane_mask(mask))
        if results is None:
            results = np.zeros(32, bool if isinstance(found, bool) else np.uint32)
        results[group] = found
    assert results is not None
    return results


def _all_alike(position: int) -> Uniform:
    """Every lane receives the same result when the operand that is the membership mask is the same for all."""

    def uniform(decoded: Decoded, is_uniform: Callable[[Operand], bool]) -> tuple[bool, ...]:
        same = len(decoded.operands) <= position or is_uniform(decoded.operands[position])
        return (same,) * len(decoded.defs)

    return uniform


def _write_outcome(g: BlockCompiler, i: Decoded, kind: str, call: str, position: int) -> None:
    """Write what `by_groups` gives: one value for all, or an array of patterns."""
    one = len(i.operands) <= position or g.is_uniform(i.operands[position])
    g.write(i.operands[0], kind, call, scalar=one)


def _members(g: BlockCompiler, i: Decoded, position: int) -> str:
    """Expression of a membership mask; code that checks it is emitted where lanes may be missing."""
    if len(i.operands) <= position:
        return "0xffffffff"
    operand = i.operands[position]
    members = g.scalar(operand, "u32") if g.is_uniform(operand) else g.array(operand, "u32")
    if g.masked or g.condition is not None or members != "4294967295":
        mask = g.condition or ("m" if g.masked else "w.live")
        g.emit(f"{g.helper(require_members)}(w, {i.index}, {members}, {mask})")
    return members


@form("vote", "sync? mode=all|any|uni type=pred", "d a a?", uniform=_all_alike(2))
@form("vote", "sync? mode=ballot type=b32", "d a a?", uniform=_all_alike(2))
def vote(g: BlockCompiler, i: Decoded) -> None:
    """``vote``."""
    call = f"{g.helper(count_votes)}(w, {i['mode']!r}, {g.array(i.operands[1], 'pred')}, {_members(g, i, 2)})"
    _write_outcome(g, i, "u32" if i["mode"] == "ballot" else "pred", call, 2)


def count_votes(warp: Warp, mode: str, predicate: Mask, members: int | Array) -> Any:
    """The outcome of a vote."""

    def outcome(who: Mask) -> int | bool:
        if mode == "ballot":
            return ballot(predicate & who)
        votes = predicate[who]
        if mode == "any":
            return bool(votes.any())
        return bool(votes.all()) if mode == "all" else bool(votes.all() or not votes.any())

    return by_groups(warp, members, outcome)


@form("activemask", "type=b32", "d", uniform=always)
def active_mask(g: BlockCompiler, i: Decoded) -> None:
    """``activemask``."""
    g.write(i.operands[0], "u32", f"ballot({g.helper(voters)}(w, 0xffffffff))", scalar=True)


def _elect_uniform(decoded: Decoded, uniform: Callable[[Operand], bool]) -> tuple[bool, ...]:
    return (uniform(decoded.operands[1]),) * (len(decoded.defs) - 1) + (False,)


@form("elect", "sync", "d|p a", uniform=_elect_uniform)
def elect(g: BlockCompiler, i: Decoded) -> None:
    """``elect.sync``: the lowest active lane is the leader."""
    d, p = pair(i.operands[0])
    name = g.temporary()
    g.emit(f"{name} = {g.helper(leader)}(w, {_members(g, i, 1)})")
    one = g.is_uniform(i.operands[1])
    if not isinstance(d, Sink):
        g.write(d, "u32", name, scalar=one)
    if not isinstance(p, Sink):
        g.write(p, "pred", f"{g.constant(ONE_LANE)}[{name}]" if one else f"{name} == {g.constant(LANES)}")


def leader(warp: Warp, members: int | Array) -> Any:
    """The lowest of the voters."""
    return by_groups(warp, members, _lowest)


def _lowest(who: Mask) -> int:
    """The lowest of some lanes; 0 of none."""
    return max(who.tobytes().find(1), 0)


@form("match", "mode=any|all sync type=b32|b64", "d|p a a", uniform=never)
def match(g: BlockCompiler, i: Decoded) -> None:
    """``match``: lanes with the same value."""
    d, p = pair(i.operands[0])
    name = g.temporary()
    value = g.array(i.operands[1], i["type"])
    g.emit(f"{name} = {g.helper(match_lanes)}(w, {i['mode'] == 'all'}, {value}, {_members(g, i, 2)})")
    if not isinstance(d, Sink):
        g.write(d, "u32", f"{name}[0]")
    if not isinstance(p, Sink):
        g.write(p, "pred", f"{name}[1]")


def match_lanes(warp: Warp, every: bool, values: Array, members: int | Array) -> tuple[Array, Mask]:
    """For each lane the mask of the lanes that hold its value, and whether all lanes agree."""
    who = active_lanes(warp)
    named = np.broadcast_to(np.uint32(members) if isinstance(members, int) else members, 32)
    together = (named[:, None] >> np.arange(32, dtype=np.uint32) & 1).astype(bool) & who[None, :]
    same = values[:, None] == values[None, :]
    if every:
        agree = (same | ~together).all(1)
        return np.where(agree, [ballot(row) for row in together], 0).astype(np.uint32), agree
    return np.array([ballot(row) for row in same & together], np.uint32), np.full(32, True)


@form("redux", "sync op=add|min|max type=u32|s32", "d a a", uniform=_all_alike(2))
@form("redux", "sync op=and|or|xor type=b32", "d a a", uniform=_all_alike(2))
@form("redux", "sync op=min|max abs? nan=NaN? type=f32", "d a a", uniform=_all_alike(2))
def reduce(g: BlockCompiler, i: Decoded) -> None:
    """``redux``."""
    value = g.array(i.operands[1], i["type"])
    if i["type"] == "f32":
        flags = f"{i['op']!r}, {i.has('abs')}, {i.has('nan')}"
        call = f"{g.helper(reduce_floats)}(w, {flags}, {value}, {_members(g, i, 2)})"
    else:
        call = f"{g.helper(reduce_lanes)}(w, {i['op']!r}, {value}, {_members(g, i, 2)})"
    _write_outcome(g, i, "u32", call, 2)


def reduce_lanes(warp: Warp, operation: str, values: Array, members: int | Array) -> Any:
    """The reduction over the voters, as a 32-bit pattern."""
    functions: dict[str, Any] = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }

    def outcome(who: Mask) -> int:
        chosen = values[who]
        if operation == "add":
            return int(chosen.astype(np.int64).sum()) & 0xFFFFFFFF
        return int(functions[operation].reduce(chosen)) & 0xFFFFFFFF

    return by_groups(warp, members, outcome)


def reduce_floats(warp: Warp, operation: str, magnitude: bool, nan: bool, values: Array, members: int | Array) -> Any:
    """The extremum over the voters, as a 32-bit pattern; NaNs count only with ``.NaN``."""
    functions = (np.minimum, np.maximum) if nan else (np.fmin, np.fmax)
    values = np.abs(values) if magnitude else values
    return by_groups(warp, members, lambda who: int(functions[operation == "max"].reduce(values[who]).view(np.uint32)))


# -- registers -------------------------------------------------------------------------------------------------------


class RegisterWait:
    """A warp that waits for registers that others have to release."""

    __slots__ = ("free", "waiters", "wanted")
    polls = False

    def __init__(self, waiters: list[Any], wanted: int, free: int) -> None:
        self.waiters = waiters
        self.wanted = wanted
        self.free = free

    def describe(self) -> GroupWait:
        """For the deadlock report."""
        return GroupWait(f"{self.wanted} registers for setmaxnreg.inc, of which {self.free} are free in the CTA's pool")


@form("setmaxnreg", "direction=inc|dec sync aligned type=u32", "#", flow="wait")
def set_registers(g: BlockCompiler, i: Decoded) -> None:
    """``setmaxnreg``."""
    count = i.operands[0]
    assert isinstance(count, Immediate)
    if count.value % 8 or not 24 <= count.value <= 256:
        nearest = min(max((count.value + 4) // 8 * 8, 24), 256)
        raise g.fail(f"{count.value} registers; legal: multiples of 8 from 24 to 256, nearest {nearest}")
    g.place()
    g.emit(f"if not {g.helper(change_registers)}(w, {count.value}, {i['direction'] == 'inc'}): return WAIT")


def change_registers(warp: Warp, count: int, increase: bool) -> bool:
    """Move registers between the warp and its CTA's pool; False while there are too few."""
    cta = warp.cta
    if warp.fragment.mask is not None:
        raise ProtocolError("setmaxnreg needs all lanes of the warp together")
    held = warp.register_count or cta.launch.registers_per_thread
    if (increase and held > count) or (not increase and held < count):
        word = "inc" if increase else "dec"
        raise ProtocolError(
            f"setmaxnreg.{word} to {count} registers, but the warp has {held}",
            hint="dec lowers and inc raises the count; the count at launch is 64K registers divided by the threads",
        )
    needed = count - held
    if needed > cta.register_pool:
        fragment = warp.fragment
        fragment.blocked = RegisterWait(cta.pool_waiters, needed * 32, cta.register_pool * 32)
        cta.pool_waiters.append((warp, fragment))
        return False
    cta.register_pool -= needed
    warp.register_count = count
    if needed < 0:
        cta.launch.machine.wake(cta.pool_waiters)
    return True
