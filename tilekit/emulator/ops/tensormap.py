"""``tensormap.replace`` and ``tensormap.cp_fenceproxy``: maps built on the device (PTX ISA 9.7.9.27.6, 9.7.13.15)."""

from __future__ import annotations

from ..arithmetic.lanes import ONE_LANE
from ..checks.lane_order import uniform
from ..compiler.block_compiler import BlockCompiler
from ..errors import MemoryFault, ProtocolError
from ..execution.warp import Warp
from ..language.forms import Decoded, form
from ..language.syntax import Operand
from ..memory.access import Mask, resolve
from ..memory.bulk import Value, active_lanes, at_lane
from ..memory.memory import Allocation
from ..memory.tensor_map_fields import replace_field
from .barrier import fence_thread, where_is

_SIZE = 128


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
    memory, offset = resolve(warp, space, address, _SIZE, "tensormap access")
    if offset % _SIZE:
        raise MemoryFault(
            f"the tensor map at {address:#x} is not aligned to {_SIZE} bytes",
            hint=f"the nearest legal address is {address // _SIZE * _SIZE:#x}",
        )
    if write and not memory.writable:
        raise MemoryFault(f"tensormap access to {memory.name}, which is read-only")
    if memory.shadow is not None:
        start = memory.shadow.base + offset
        instruction = warp.program.instruction(warp.at)
        lanes = uniform(start, _SIZE, active)
        memory.shadow.span(warp.agent, start, start + _SIZE, write=write, instruction=instruction, lanes=lanes)
    return memory, offset


def replace_in_map(
    warp: Warp, space: str, address: Value, field: str, ordinal: int, value: Value, mask: Mask | None
) -> None:
    """Change a field of the map that each active lane names."""
    for lane in active_lanes(warp, mask):
        memory, offset = _map(warp, space, at_lane(address, lane), True, ONE_LANE[lane].tobytes())
        chosen = memory.data[offset : offset + _SIZE]
        try:
            changed = replace_field(chosen.tobytes(), field, ordinal, at_lane(value, lane))
        except ValueError as error:
            raise ProtocolError(f"tensormap.replace: {error}") from None
        chosen[:] = memoryview(changed)


@form(
    "tensormap",
    "op=cp_fenceproxy dst=global src=shared::cta proxy=tensormap::generic order=release scope=cta|cluster|gpu|sys "
    "sync aligned",
    "[a] [a] #",
)
def copy_map(g: BlockCompiler, i: Decoded) -> None:
    """``tensormap.cp_fenceproxy``: copy a map to global memory and publish it to the tensormap proxy."""
    target, source, size = i.operands
    if g.scalar(size, "u32") != str(_SIZE):
        raise g.fail(f"a tensor map has {_SIZE} bytes")
    g.place()
    g.effect(f"{g.helper(publish_map)}(w, {where_is(g, target)}, {where_is(g, source)}, {g.mask()})")


def publish_map(warp: Warp, target: Value, source: Value, mask: Mask | None) -> None:
    """Copy 128 bytes, once for the warp, and order them before what follows."""
    lane = active_lanes(warp, mask)[0]
    memory, offset = _map(warp, "shared", at_lane(source, lane), False, None)
    data = memory.data[offset : offset + _SIZE].copy()
    memory, offset = _map(warp, "global", at_lane(target, lane), True, None)
    memory.data[offset : offset + _SIZE] = data
    warp.cta.launch.machine.events += 1
    fence_thread(warp)
