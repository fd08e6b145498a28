"""Stores to shared memory that complete on an mbarrier, bulk initialisation, and what of this kind is not executed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.arithmetic.lanes import ONE_LANE
from tilekit.emulator.core.checks.lane_order import uniform
from tilekit.emulator.core.errors import MemoryFault
from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler
from tilekit.emulator.ptx.copies.bulk import (
    Combine,
    Load,
    Mask,
    Value,
    active_lanes,
    at_lane,
    barriers_of,
    destinations_of,
)
from tilekit.emulator.ptx.language.forms import ANYTHING, Decoded, form, refuse
from tilekit.emulator.ptx.language.syntax import TYPE_BYTES, VectorOperand
from tilekit.emulator.ptx.memory import access
from tilekit.emulator.ptx.ops.atomic import red
from tilekit.emulator.ptx.ops.barrier import where_is
from tilekit.emulator.ptx.ops.bulk import combination, value
from tilekit.emulator.ptx.ops.memory import store
from tilekit.emulator.ptx.synchronisation.mbarriers import shared_address

if TYPE_CHECKING:
    from random import Random

    from tilekit.emulator.ptx.execution.warp import Warp

_COMPLETE = "complete=mbarrier::complete_tx::bytes"
_STORED = "b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64"


@form(
    "st",
    f"async order=weak? scope=cluster? space=shared::cluster? {_COMPLETE} vec=v2|v4? "
    "type=b32|b64|u32|u64|s32|s64|f32|f64",
    "[a] av [a]",
)
@form("st", f"async order=weak? scope=cluster? space=shared::cluster? {_COMPLETE} type=b128", "[a] a [a]")
def store_async(g: BlockCompiler, i: Decoded) -> None:
    """``st.async``."""
    target, source, barrier = i.operands
    if i["type"] == "b128":
        name = g.temporary()
        g.emit(f"{name} = {g.array(source, 'b128')}")
        g.place()
        where = f"{where_is(g, target)}, ({name}[0], {name}[1]), {where_is(g, barrier)}"
        g.effect(f"{g.helper(issue_stores)}(w, {_space(i)!r}, {where}, {g.mask()})")
        return
    items = source.items if isinstance(source, VectorOperand) else (source,)
    if len(items) != int(i.get("vec", "v1")[1:]):
        raise g.fail(f"{len(items)} elements for .{i.get('vec', 'v1')}")
    bits = TYPE_BYTES[i["type"]] * 8
    parts = "".join(g.array(item, f"u{bits}" if i["type"][0] != "f" else i["type"]) + ", " for item in items)
    g.place()
    where = f"{where_is(g, target)}, ({parts}), {where_is(g, barrier)}"
    g.effect(f"{g.helper(issue_stores)}(w, {_space(i)!r}, {where}, {g.mask()})")


def _space(i: Decoded) -> str:
    """``generic`` unless a state space is written."""
    return "shared" if i.has("space") else "generic"


@form(
    "red",
    f"async order=relaxed? scope=cluster? space=shared::cluster? {_COMPLETE} op=add|min|max|inc|dec|and|or|xor "
    "type=u32|s32|u64|b32",
    "[a] a [a]",
)
def reduce_async(g: BlockCompiler, i: Decoded) -> None:
    """``red.async`` in a CTA's shared memory."""
    target, source, barrier = i.operands
    bits = TYPE_BYTES[i["type"]] * 8
    parts = f"({g.array(source, f'u{bits}')},)"
    g.place()
    what = f"{where_is(g, target)}, {parts}, {where_is(g, barrier)}, {g.mask()}, {combination(g, i)}"
    g.effect(f"{g.helper(issue_stores)}(w, {_space(i)!r}, {what})")


@form("st", f"async mmio? order=release scope=gpu|sys space=global? type={_STORED}", "[a] av")
def store_async_release(g: BlockCompiler, i: Decoded) -> None:
    """``st.async.release``: nothing tells when it is done, so it may be done at once."""
    store(g, i)


@form(
    "red",
    "async mmio? order=release scope=cluster|gpu|sys space=global? op=add type=u32|s32|u64|s64",
    "[a] a",
)
def reduce_async_release(g: BlockCompiler, i: Decoded) -> None:
    """``red.async.release``: nothing tells when it is done, so it may be done at once."""
    red(g, i)


def issue_stores(
    warp: Warp, space: str, destination: Value, parts: tuple[npt.NDArray[Any], ...], barrier: Value,
    mask: Mask | None, combine: Combine | None = None,
) -> None:  # fmt: skip
    """``st.async`` and ``red.async``: a copy, or reduction, for each active lane.

    Neighbouring lanes that store to neighbouring places and count on one barrier make one copy, which lands at once:
    an operation for each lane would take many times as long. Nothing promises that they land together, so with the
    schedule `random` some are taken apart.
    """
    machine = warp.cta.launch.machine
    unit = "st.async" if combine is None else "red.async"
    image = np.stack([np.ascontiguousarray(np.broadcast_to(part, (32,))) for part in parts], axis=1)
    size = image.shape[1] * image.itemsize
    runs: list[tuple[int, int, int, int]] = []  # first lane, lanes, address, barrier
    for lane in active_lanes(warp, mask):
        address = shared_address(space, at_lane(destination, lane))
        bar = shared_address(space, at_lane(barrier, lane))
        if address % size:
            raise access.misaligned(address, size, unit)
        access.resolve(warp, "shared::cluster", address, size, unit)
        if combine is None and runs and runs[-1][2:] == (address - runs[-1][1] * size, bar):
            first, lanes, start, _ = runs[-1]
            if first + lanes == lane:
                runs[-1] = (first, lanes + 1, start, bar)
                continue
        runs.append((lane, 1, address, bar))
    if machine.policy == "random":
        runs = [part for run in runs for part in _taken_apart(machine.rng, run, size)]
    for first, lanes, address, bar in runs:
        targets, offset = destinations_of(warp, address, None)
        barriers = barriers_of(warp, bar, targets, False)
        data = image[first : first + lanes].copy().view(np.uint8).reshape(-1)

        def fetch(data: npt.NDArray[np.uint8] = data) -> npt.NDArray[np.uint8]:
            return data

        load = Load(
            warp, first, targets, offset, barriers, lanes * size, fetch, _no_source, unit, combine=combine,
            asynchronous=False, lanes=lanes,
        )  # fmt: skip
        machine.submit(load)


def _taken_apart(rng: Random, run: tuple[int, int, int, int], size: int) -> Iterator[tuple[int, int, int, int]]:
    """The copies that neighbouring lanes make, ``size`` bytes each: one, two, or now and then one for each lane."""
    first, lanes, address, barrier = run
    choice = rng.randrange(32) if lanes > 1 else 31
    cuts = range(1, lanes) if choice == 0 else [rng.randrange(1, lanes)] if choice < 16 else []
    for start, end in itertools.pairwise((0, *cuts, lanes)):
        yield first + start, end - start, address + start * size, barrier


def _no_source(operation: Any) -> None:
    """Its data comes from registers."""


@form("st", "bulk order=weak? space=shared::cta?", "[a] a #")
def store_bulk(g: BlockCompiler, i: Decoded) -> None:
    """``st.bulk``: set shared memory to zero."""
    target, size, initial = i.operands
    space = "shared" if i.has("space") else "generic"
    g.place()
    g.effect(
        f"{g.helper(clear)}(w, {space!r}, {where_is(g, target)}, {value(g, size, 'u64')}, {value(g, initial, 'u64')}, "
        f"{g.mask()})"
    )


def clear(warp: Warp, space: str, destination: Value, size: Value, initial: Value, mask: Mask | None) -> None:
    """``st.bulk``."""
    instruction = warp.program.instruction(warp.at)
    for lane in active_lanes(warp, mask):
        address, count = shared_address(space, at_lane(destination, lane)), at_lane(size, lane)
        if at_lane(initial, lane):
            raise MemoryFault("st.bulk: the initial value must be 0")
        if count % 8 or count <= 0 or address % 8:
            raise MemoryFault(f"st.bulk of {count} bytes at {address:#x}: both must be positive multiples of 8")
        memory, offset = access.resolve(warp, "shared", address, count, "st.bulk")
        if memory.barriers:
            first = memory.start + offset
            warp.cta.cluster.mbarriers.check_store(first, first + count, by=warp.actor, instruction=instruction)
        if memory.shadow is not None:
            start = memory.shadow.base + offset
            lanes = uniform(start, count, ONE_LANE[lane].tobytes())
            memory.shadow.span(warp.agent, start, start + count, write=True, instruction=instruction, lanes=lanes)
        memory.data[offset : offset + count] = 0
        warp.cta.launch.machine.events += 1


_TYPES = "b32|b64|u32|u64|s32|s64|f16|f16x2|bf16|bf16x2|f32|f64|e4m3|e4m3x2|e4m3x4|e5m2|e5m2x2|e5m2x4"
_OPERATIONS = "add|min|max|inc|dec|and|or|xor"
_ORDER = "order=weak|relaxed|acquire|release? scope=cta|cluster|gpu|sys? space=global?"
_MULTICAST = "a multicast address needs the memory of several devices"
refuse("multimem", f"op=ld_reduce {_ORDER} how={_OPERATIONS} acc=acc::f16|acc::f32? vec=v2|v4|v8? type={_TYPES}",
       "dv [a]", _MULTICAST)  # fmt: skip
refuse("multimem", f"op=st {_ORDER} vec=v2|v4|v8? type={_TYPES}", "[a] av", _MULTICAST)
refuse("multimem", f"op=red {_ORDER} how={_OPERATIONS} vec=v2|v4|v8? type={_TYPES}", "[a] av", _MULTICAST)
refuse("multimem", "op=cp async bulk dst=global src=shared::cta complete=bulk_group", "[a] [a] a", _MULTICAST)
refuse("multimem", f"op=cp reduce async bulk dst=global src=shared::cta complete=bulk_group how={_OPERATIONS} noftz? "
       f"type={_TYPES}", "[a] [a] a", _MULTICAST)  # fmt: skip
_TEXTURES = "textures, samplers and surfaces are not modelled"
refuse("tex tld4 txq suld sust sured suq istypep", ANYTHING, "", _TEXTURES)
