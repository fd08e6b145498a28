"""Barriers, fences and mbarriers (PTX ISA 9.7.13)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilekit.emulator.core.arithmetic.lanes import ballot
from tilekit.emulator.core.checks.agents import ALL_LANES
from tilekit.emulator.core.errors import ProtocolError
from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler
from tilekit.emulator.ptx.execution.convergence import meet
from tilekit.emulator.ptx.language.forms import Decoded, always, form, never
from tilekit.emulator.ptx.language.syntax import AddressOperand, Operand, RegisterOperand, Sink
from tilekit.emulator.ptx.ops.memory import array_address, scalar_address
from tilekit.emulator.ptx.synchronisation import mbarriers, rendezvous

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.warp import Mask, Warp

_SPACE = "space=shared|shared::cta|shared::cluster?"
_RESTRICT = "restrict=sync_restrict::shared::cta|sync_restrict::shared::cluster"
_ARRIVE = (
    "op=arrive|arrive_drop expect=expect_tx? part=noComplete? order=release|relaxed? scope=cta|cluster? "
    f"{_SPACE} type=b64"
)


def _number(g: BlockCompiler, operand: Operand | None, default: str) -> str:
    """A barrier number or thread count, which must be the same for the warp."""
    if operand is None:
        return default
    if g.is_uniform(operand):
        return g.scalar(operand, "u32")
    return f"{g.helper(same_in_warp)}(w, {g.array(operand, 'u32')})"


def same_in_warp(warp: Warp, values: object) -> int:
    """The one value of a register that all active lanes must agree on."""
    mask = warp.live if warp.fragment.mask is None else warp.fragment.mask
    found = np.unique(np.asarray(values)[mask])
    if len(found) != 1:
        raise ProtocolError(f"the lanes of a warp give different values {found.tolist()} where one is needed")
    return int(found[0])


# -- CTA and warp ----------------------------------------------------------------------------------------------------


@form("bar", "cta? op=sync", "a a?", flow="wait")
@form("barrier", "cta? op=sync aligned?", "a a?", flow="wait")
def bar_sync(g: BlockCompiler, i: Decoded) -> None:
    """``bar.sync`` (always aligned) and ``barrier.sync``."""
    aligned = i.form.opcode == "bar" or i.has("aligned")
    second = i.operands[1] if len(i.operands) > 1 else None
    g.place()
    call = f"{g.helper(rendezvous.bar_sync)}(w, {_number(g, i.operands[0], '0')}, {_number(g, second, '0')}, {aligned})"
    some = f"{g.condition}.any() and " if g.condition is not None else ""
    g.emit(f"if {some}not {call}: return WAIT")


@form("bar", "cta? op=arrive", "a a", flow="yield")
@form("barrier", "cta? op=arrive aligned?", "a a", flow="yield")
def bar_arrive(g: BlockCompiler, i: Decoded) -> None:
    """``bar.arrive``."""
    aligned = i.form.opcode == "bar" or i.has("aligned")
    g.place()
    number, count = (_number(g, operand, "0") for operand in i.operands)
    g.effect(f"{g.helper(rendezvous.bar_arrive)}(w, {number}, {count}, {aligned})")


@form("bar", "cta? op=red how=popc|and|or type=u32|pred", "d a a a?", uniform=always, flow="wait")
@form("barrier", "cta? op=red how=popc|and|or aligned? type=u32|pred", "d a a a?", uniform=always, flow="wait")
def bar_reduce(g: BlockCompiler, i: Decoded) -> None:
    """``bar.red``: every thread learns a count or a conjunction or disjunction of predicates."""
    aligned = i.form.opcode == "bar" or i.has("aligned")
    d, number, *middle, predicate = i.operands
    count = _number(g, middle[0], "0") if middle else "0"
    g.place()
    name = g.temporary()
    arguments = f"{_number(g, number, '0')}, {count}, {g.array(predicate, 'pred')}, {aligned}"
    g.emit(f"{name} = {g.helper(rendezvous.bar_reduce)}(w, {arguments})")
    g.emit(f"if {name} is None: return WAIT")
    index = {"popc": 0, "and": 1, "or": 2}[i["how"]]
    g.write(d, "u32" if i["how"] == "popc" else "pred", f"{name}[{index}]", scalar=True)


@form("bar", "level=warp op=sync", "a", flow="wait")
def warp_sync(g: BlockCompiler, i: Decoded) -> None:
    """``bar.warp.sync``."""
    if g.program.warps > 1:
        return  # of a lockstep group no two threads touch the same bytes, and so none need to meet
    g.place()
    call = f"{g.helper(meet)}(w, {_number(g, i.operands[0], '0')}, {g.mask()})"
    some = f"{g.condition}.any() and " if g.condition is not None else ""
    g.emit(f"if {some}not {call}: return WAIT")


# -- cluster ---------------------------------------------------------------------------------------------------------


@form("barrier", "level=cluster op=arrive order=release|relaxed? aligned?", "")
def cluster_arrive(g: BlockCompiler, i: Decoded) -> None:
    """``barrier.cluster.arrive``."""
    g.place()
    call = g.helper(rendezvous.cluster_arrive)
    g.effect(f"{call}(w, {i.get('order', 'release') == 'release'})")


@form("barrier", "level=cluster op=wait order=acquire? aligned?", "", flow="wait")
def cluster_wait(g: BlockCompiler, i: Decoded) -> None:
    """``barrier.cluster.wait``."""
    g.place()
    g.emit(f"if not {g.helper(rendezvous.cluster_wait)}(w, True): return WAIT")


# -- fences ----------------------------------------------------------------------------------------------------------


def fence_thread(warp: Warp, mask: Mask | None) -> None:
    """``fence`` and ``membar``: order memory accesses of each thread that executes it as seen by others."""
    hb = warp.cta.launch.order
    if hb is not None:
        hb.fence(warp.agent, ALL_LANES if mask is None else ballot(mask))


def fence_async(warp: Warp) -> None:
    """``fence.proxy.async``: earlier generic accesses come before later asynchronous ones."""
    hb = warp.cta.launch.order
    if hb is not None:
        hb.fence_proxy_async(warp.agent)


def fence_initialisation(warp: Warp) -> None:
    """``fence.mbarrier_init``: publish initialised mbarriers."""
    hb = warp.cta.launch.order
    if hb is not None:
        hb.fence_mbarrier_init(warp.agent)


@form("fence", "how=acq_rel|sc|acquire|release? scope=cta|cluster|gpu|sys", "")
@form("fence", f"how=acquire|release {_RESTRICT} scope=cluster", "")
@form("membar", "level=cta|gl|sys", "")
def fence(g: BlockCompiler, i: Decoded) -> None:
    """``fence`` and ``membar``."""
    g.effect(f"{g.helper(fence_thread)}(w, {g.mask()})")


@form("fence", "kind=proxy what=async space=global|shared::cta|shared::cluster?", "")
@form("fence", f"kind=proxy what=async::generic how=acquire|release {_RESTRICT} scope=cluster", "")
def fence_proxy_async(g: BlockCompiler, i: Decoded) -> None:
    """``fence.proxy.async``."""
    g.effect(f"{g.helper(fence_async)}(w)")


@form("fence", "kind=proxy what=alias", "")
@form("membar", "kind=proxy what=alias|async", "")
def fence_proxy_other(g: BlockCompiler, i: Decoded) -> None:
    """Fences between proxies that the emulator keeps coherent, with the strength of a thread fence."""
    g.effect(f"{g.helper(fence_thread)}(w, {g.mask()})")


@form("fence", "kind=mbarrier_init how=release scope=cluster", "")
def fence_mbarrier_init(g: BlockCompiler, i: Decoded) -> None:
    """``fence.mbarrier_init``."""
    g.effect(f"{g.helper(fence_initialisation)}(w)")


# -- mbarrier --------------------------------------------------------------------------------------------------------


def where_is(g: BlockCompiler, operand: Operand) -> str:
    """Expression of an mbarrier's address: an int when uniform, else an array."""
    return scalar_address(g, operand) if g.is_uniform(operand) else array_address(g, operand)


def space_of(i: Decoded) -> str:
    """``generic`` unless a state space is written: ``shared`` for the CTA's own, ``shared::cluster``."""
    written = i.get("space", "generic")
    return "shared" if written == "shared::cta" else written


def _value(g: BlockCompiler, operand: Operand, kind: str = "u32") -> str:
    return g.scalar(operand, kind) if g.is_uniform(operand) else g.array(operand, kind)


@form("mbarrier", "op=init space=shared|shared::cta? type=b64", "[a] a")
def mbarrier_init(g: BlockCompiler, i: Decoded) -> None:
    """``mbarrier.init``."""
    a, count = i.operands
    g.place()
    call = g.helper(mbarriers.mbarrier_init)
    g.effect(f"{call}(w, {space_of(i)!r}, {where_is(g, a)}, {_value(g, count)}, {g.mask()})")


@form("mbarrier", "op=inval space=shared|shared::cta? type=b64", "[a]")
def mbarrier_inval(g: BlockCompiler, i: Decoded) -> None:
    """``mbarrier.inval``."""
    g.place()
    g.effect(f"{g.helper(mbarriers.mbarrier_inval)}(w, {space_of(i)!r}, {where_is(g, i.operands[0])}, {g.mask()})")


@form("mbarrier", _ARRIVE, "d [a] a?", uniform=never)
@form("mbarrier", _ARRIVE, "[a] a?")
def mbarrier_arrive(g: BlockCompiler, i: Decoded) -> None:
    """``mbarrier.arrive`` and ``arrive_drop``; the third operand is a count, or bytes with ``expect_tx``."""
    operands = list(i.operands)
    d = operands.pop(0) if not isinstance(operands[0], AddressOperand) else Sink()
    address = operands[0]
    number = _number(g, operands[1] if len(operands) > 1 else None, "1")
    count, expect = ("1", number) if i.has("expect") else (number, "0")
    g.place()
    flags = f"{i['op'] == 'arrive_drop'}, {i.has('part')}, {i.get('order', 'release') == 'release'}"
    arguments = f"{space_of(i)!r}, {where_is(g, address)}, {count}, {expect}, {flags}, {g.mask()}"
    call = f"{g.helper(mbarriers.mbarrier_arrive)}(w, {arguments})"
    if isinstance(d, RegisterOperand):
        if g.condition is not None:
            call += f" if {g.condition}.any() else 0"
        g.write(d, "u64", call, scalar=True)
    else:
        g.effect(call)


@form("mbarrier", f"op=expect_tx|complete_tx order=relaxed? scope=cta|cluster? {_SPACE} type=b64", "[a] a")
def mbarrier_transaction(g: BlockCompiler, i: Decoded) -> None:
    """``mbarrier.expect_tx`` and ``mbarrier.complete_tx``."""
    address, size = i.operands
    g.place()
    call = g.helper(mbarriers.mbarrier_transaction)
    arguments = f"{where_is(g, address)}, {_number(g, size, '0')}, {i['op'] == 'complete_tx'}"
    g.effect(f"{call}(w, {space_of(i)!r}, {arguments}, {g.mask()})")


@form(
    "mbarrier",
    "op=test_wait|try_wait parity? order=acquire|relaxed? scope=cta|cluster? space=shared|shared::cta? type=b64",
    "d [a] a a?",
    flow="wait",
)
def mbarrier_wait(g: BlockCompiler, i: Decoded) -> None:
    """``test_wait`` and ``try_wait``: suspended until the phase completes, or until nothing else can run.

    One whose answer nothing reads orders nothing: only "true" does, and it may answer "false" at any time.
    """
    d, address, state = i.operands[:3]
    kind = "u32" if i.has("parity") else "u64"
    acquire = i.get("order", "acquire") == "acquire" and _read_later(g, d)
    g.place()
    name = g.temporary()
    if g.sources_uniform(address, state):
        what = f"{scalar_address(g, address)}, {g.scalar(state, kind)}, {i.has('parity')}, {acquire}"
        call = f"{g.helper(mbarriers.mbarrier_test)}(w, {space_of(i)!r}, {what})"
        if g.condition is not None:
            call = f"{call} if {g.condition}.any() else False"
        g.emit(f"{name} = {call}")
        g.emit(f"if {name} is None: return WAIT")
        g.write(d, "pred", name, scalar=True)
    else:
        call = g.helper(mbarriers.mbarrier_test_lanes)
        arguments = f"{array_address(g, address)}, {g.array(state, kind)}, {i.has('parity')}, {acquire}, {g.mask()}"
        g.emit(f"{name} = {call}(w, {space_of(i)!r}, {arguments})")
        g.emit(f"if {name} is None: return WAIT")
        g.write(d, "pred", name)


def _read_later(g: BlockCompiler, d: Operand) -> bool:
    """Whether something reads what the current instruction, the last of its block, leaves in a register."""
    live = g.program.flow.blocks[g.block.index].live_out
    return isinstance(d, RegisterOperand) and bool(live >> d.register.number & 1)


@form("mbarrier", "op=pending_count type=b64", "d a")
def mbarrier_pending(g: BlockCompiler, i: Decoded) -> None:
    """``mbarrier.pending_count`` of a state token."""
    d, state = i.operands
    if g.results_uniform():
        g.write(d, "u32", f"-({g.scalar(state, 'u64')} >> 43) & 0xfffff", scalar=True)
    else:
        g.write(d, "u32", f"(-({g.array(state, 'u64')}.view(int64) >> 43) & 0xfffff).astype(uint32)")
