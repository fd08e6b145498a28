"""How a copy reads its tensor map: where it may lie, and what must have been done since it was written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilekit.emulator.core.arithmetic.lanes import ONE_LANE
from tilekit.emulator.core.checks.findings import Finding
from tilekit.emulator.core.checks.lane_order import uniform
from tilekit.emulator.core.errors import MemoryFault, Where, describe
from tilekit.emulator.ptx.checks.tensor_maps import MAP_BYTES
from tilekit.emulator.ptx.memory.access import resolve
from tilekit.emulator.ptx.memory.tensor_map import TensorMap

if TYPE_CHECKING:
    from tilekit.emulator.core.memory.memory import Allocation
    from tilekit.emulator.ptx.execution.warp import Warp

__all__ = ["tensor_map_at"]


def tensor_map_at(warp: Warp, lane: int, address: int) -> TensorMap:
    """The tensor map at the generic address that a lane gives.

    Raises
    ------
    MemoryFault
        If the address is misaligned, in shared memory, or holds no tensor map.
    """
    memory, offset = resolve(warp, "generic", address, MAP_BYTES, "read of a tensor map")
    if address % 64:
        raise MemoryFault(f"the tensor map at {address:#x} is not aligned to 64 bytes")
    if memory.space == "shared":
        raise MemoryFault(
            f"the tensor map at {address:#x} lies in {memory.name}, not among parameters, in .const or in .global",
            hint="publish it in global memory with tensormap.cp_fenceproxy",
        )
    if memory.shadow is not None:
        _check_order(warp, lane, address, memory)
    data = memory.data[offset : offset + MAP_BYTES].tobytes()
    cache = warp.cta.launch.tensor_maps
    found = cache.get(data)
    if found is None:
        try:
            found = cache[data] = TensorMap.decode(data)
        except ValueError as error:
            raise MemoryFault(f"no tensor map at {address:#x}: {error}") from None
    return found


def _check_order(warp: Warp, lane: int, address: int, memory: Allocation) -> None:
    """Note the read as the issuing lane's, and a write of the map that has not been handed over."""
    launch = warp.cta.launch
    assert launch.order is not None  # who casts a shadow has an order
    instruction = warp.program.instruction(warp.at)
    lanes = uniform(address, MAP_BYTES, ONE_LANE[lane].tobytes())
    memory.shadow.span(warp.agent, address, address + MAP_BYTES, write=False, instruction=instruction, lanes=lanes)
    race = launch.order.maps.use(warp.agent, lane, instruction, address, memory.shadow)
    if race is not None:
        launch.findings.race(race)
    elif launch.order.maps.given(warp.agent, lane, address, memory.shadow):
        actor, low = warp.actor, address - memory.start
        launch.findings.add(
            Finding(
                "tensor-map",
                f"{memory.name}+{low:#x}..{low + MAP_BYTES:#x} is used as a tensor map by CTAs that did not acquire it",
                (
                    "written before the launch, whose start does not take maps over for the tensormap proxy",
                    f"read by {actor} of CTA {actor.cta}, cluster {actor.cluster}, at {describe(instruction)}",
                ),
                "execute fence.proxy.tensormap::generic.acquire.sys [map], 128 before the copies, in a thread of each "
                "CTA, or pass the map as a __grid_constant__ parameter",
                Where(warp.program.name, actor, instruction),
            )
        )
