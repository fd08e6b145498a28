"""Maps built on the device: ``tensormap.replace`` and ``.cp_fenceproxy``, and the fences of the tensormap proxy.

PTX ISA 9.7.9.27.6, 9.7.13.4 and 9.7.13.15.
"""

from __future__ import annotations

from tilekit.emulator.core.arithmetic.lanes import ONE_LANE, ballot
from tilekit.emulator.core.checks.lane_order import uniform
from tilekit.emulator.core.errors import MemoryFault, ProtocolError
from tilekit.emulator.core.memory.memory import Allocation
from tilekit.emulator.ptx.checks.tensor_maps import MAP_BYTES, Scope
from tilekit.emulator.ptx.compiler.block_compiler import BlockCompiler
from tilekit.emulator.ptx.copies.bulk import Value, active_lanes, at_lane
from tilekit.emulator.ptx.execution.warp import Warp
from tilekit.emulator.ptx.language.forms import Decoded, form
from tilekit.emulator.ptx.language.syntax import Operand
from tilekit.emulator.ptx.memory.access import Mask, resolve
from tilekit.emulator.ptx.memory.tensor_map_fields import replace_field
from tilekit.emulator.ptx.ops.barrier import fence_thread, where_is

_SCOPES = "scope=cta|cluster|gpu|sys"


@form(
    "tensormap",
    "op=replace mode=tile field=global_address space=global|shared::cta? size=b1024 type=b64",
    "[a] a",
)
@form("tensormap", "op=replace mode=tile field=rank space=global|shared::cta? size=b1024 type=b32", "[a] a")
@form(
    "tensormap",
    "op=replace mode=tile field=elemtype|interleave_layout|swizzle_mode|swizzle_atomicity|fill_mode "
    "space=global|shared::cta? size=b1024 type=b32",
    "[a] #",
)
@form(
    "tensormap",
    "op=replace mode=tile field=box_dim|global_dim|element_stride space=global|shared::cta? size=b1024 type=b32",
    "[a] # a",
)
@form("tensormap", "op=replace mode=tile field=global_stride space=global|shared::cta? size=b1024 type=b64", "[a] # a")
def replace(g: BlockCompiler, i: Decoded) -> None:
    """``tensormap.replace``."""
    address, *ordinal, value = i.operands
    dimension = g.scalar(ordinal[0], "u32") if ordinal else "0"
    what = f"{_space(i)!r}, {where_is(g, address)}, {i['field']!r}, {dimension}, {_value(g, value, i['type'])}"
    g.place()
    g.effect(f"{g.helper(replace_in_map)}(w, {what}, {g.mask()})")


def _space(i: Decoded) -> str:
    return i.get("space", "generic").removesuffix("::cta")


def _value(g: BlockCompiler, operand: Operand, kind: str) -> str:
    return g.scalar(operand, kind) if g.is_uniform(operand) else g.array(operand, kind)


def _map(warp: Warp, space: str, address: int, write: bool, active: bytes | None) -> tuple[Allocation, int]:
    """The allocation and offset of a map's 128 bytes, after telling the race check which lanes access them."""
    memory, offset = resolve(warp, space, address, MAP_BYTES, "tensormap access")
    if offset % MAP_BYTES:
        raise MemoryFault(
            f"the tensor map at {address:#x} is not aligned to {MAP_BYTES} bytes",
            hint=f"the nearest legal address is {address // MAP_BYTES * MAP_BYTES:#x}",
        )
    if write and not memory.writable:
        raise MemoryFault(f"tensormap access to {memory.name}, which is read-only")
    if memory.shadow is not None:
        start = memory.shadow.base + offset
        instruction = warp.program.instruction(warp.at)
        lanes = uniform(start, MAP_BYTES, active)
        memory.shadow.span(warp.agent, start, start + MAP_BYTES, write=write, instruction=instruction, lanes=lanes)
    return memory, offset


def replace_in_map(
    warp: Warp, space: str, address: Value, field: str, ordinal: int, value: Value, mask: Mask | None
) -> None:
    """Change a field of the map that each active lane names."""
    for lane in active_lanes(warp, mask):
        memory, offset = _map(warp, space, at_lane(address, lane), True, ONE_LANE[lane].tobytes())
        chosen = memory.data[offset : offset + MAP_BYTES]
        try:
            changed = replace_field(chosen.tobytes(), field, ordinal, at_lane(value, lane))
        except ValueError as error:
            raise ProtocolError(f"tensormap.replace: {error}") from None
        chosen[:] = memoryview(changed)


@form(
    "tensormap",
    f"op=cp_fenceproxy dst=global src=shared::cta proxy=tensormap::generic order=release {_SCOPES} sync aligned",
    "[a] [a] #",
)
def copy_map(g: BlockCompiler, i: Decoded) -> None:
    """``tensormap.cp_fenceproxy``: copy a map to global memory and publish it to the tensormap proxy."""
    target, source, size = i.operands
    _check_size(g, size)
    g.place()
    g.effect(f"{g.helper(publish_map)}(w, {i['scope']!r}, {where_is(g, target)}, {where_is(g, source)}, {g.mask()})")


def _check_size(g: BlockCompiler, size: Operand) -> None:
    if g.scalar(size, "u32") != str(MAP_BYTES):
        raise g.fail(f"a tensor map has {MAP_BYTES} bytes")


def publish_map(warp: Warp, scope: Scope, target: Value, source: Value, mask: Mask | None) -> None:
    """Copy 128 bytes, once for the warp, and release them to the tensormap proxy."""
    lane = active_lanes(warp, mask)[0]
    memory, offset = _map(warp, "shared", at_lane(source, lane), False, None)
    data = memory.data[offset : offset + MAP_BYTES].copy()
    address = at_lane(target, lane)
    memory, offset = _map(warp, "global", address, True, None)
    memory.data[offset : offset + MAP_BYTES] = data
    warp.cta.launch.machine.events += 1
    release_maps(warp, scope, mask, address)


# -- fences ----------------------------------------------------------------------------------------------------------


@form("fence", f"kind=proxy what=tensormap::generic how=release {_SCOPES}", "")
def fence_release(g: BlockCompiler, i: Decoded) -> None:
    """``fence.proxy.tensormap::generic.release``."""
    g.place()
    g.effect(f"{g.helper(release_maps)}(w, {i['scope']!r}, {g.mask()})")


@form("fence", f"kind=proxy what=tensormap::generic how=acquire {_SCOPES}", "[a] #")
def fence_acquire(g: BlockCompiler, i: Decoded) -> None:
    """``fence.proxy.tensormap::generic.acquire``."""
    address, size = i.operands
    _check_size(g, size)
    g.place()
    g.effect(f"{g.helper(acquire_maps)}(w, {i['scope']!r}, {where_is(g, address)}, {g.mask()})")


def release_maps(warp: Warp, scope: Scope, mask: Mask | None, address: int | None = None) -> None:
    """Release what was written before to the tensormap proxy: everything, or the map at an address.

    Like any release, it also publishes what came before it by way of a relaxed store behind it.
    """
    hb = warp.cta.launch.order
    if hb is not None:
        lanes = ballot(warp.live if mask is None else mask)
        hb.maps.release(warp.agent, lanes, scope, warp.program.instruction(warp.at), address)
    fence_thread(warp, mask)


def acquire_maps(warp: Warp, scope: Scope, addresses: Value, mask: Mask | None) -> None:
    """Acquire the map that each active lane names for the tensormap proxy.

    Raises
    ------
    ProtocolError
        If it does not lie in global memory.
    """
    fence_thread(warp, mask)  # a relaxed load before it becomes an acquire
    lanes: dict[int, int] = {}
    for lane in active_lanes(warp, mask):
        address = at_lane(addresses, lane)
        lanes[address] = lanes.get(address, 0) | 1 << lane
    hb = warp.cta.launch.order
    for address, those in lanes.items():
        memory, _ = resolve(warp, "generic", address, MAP_BYTES, "acquire of a tensor map")
        if memory.space != "global":
            raise ProtocolError(
                f"fence.proxy.tensormap::generic.acquire of {address:#x}, in {memory.name}: only of global memory is "
                "it defined",
                hint="a map among the parameters needs no fence",
            )
        if hb is not None and memory.shadow is not None:
            instruction = warp.program.instruction(warp.at)
            hb.maps.acquire(warp.agent, those, scope, instruction, address, memory.shadow)
