"""The functions of CUDA's device runtime that kernels call: ``vprintf``, ``__assertfail``, ``malloc`` and ``free``.

Arguments and results lie in the caller's ``.param`` variables, which are local memory.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tilekit.emulator.core.errors import EmulatorError, MemoryFault
from tilekit.emulator.core.memory.memory import LOCAL_WINDOW, WINDOW
from tilekit.emulator.ptx.execution.printf import format_text
from tilekit.emulator.ptx.memory.access import resolve

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.warp import Mask, Warp

HEAP_BYTES = 8 << 20
"""Size of the heap of ``malloc``, the default of `cudaLimitMallocHeapSize`."""
_LONGEST = 1 << 16


class AssertionFailedError(EmulatorError):
    """An ``assert`` of the kernel failed."""

    title = "assertion failed"


def _bytes_at(warp: Warp, lane: int, address: int, size: int) -> bytes:
    """Bytes at a generic address, as one lane sees them."""
    if address // WINDOW == LOCAL_WINDOW // WINDOW:
        start = address - LOCAL_WINDOW
        if start + size > warp.local.shape[1]:
            raise MemoryFault(f"load of {size} bytes at {start:#x}: outside the local memory of a thread")
        return bytes(warp.local[lane, start : start + size])
    memory, offset = resolve(warp, "generic", address, size, "load")
    return bytes(memory.data[offset : offset + size])


def _string(warp: Warp, lane: int, address: int) -> str:
    """A zero-terminated string."""
    if address == 0:
        return "(null)"
    found = bytearray()
    while len(found) < _LONGEST:
        byte = _bytes_at(warp, lane, address + len(found), 1)
        if byte == b"\0":
            break
        found += byte
    return found.decode("utf-8", "replace")


def _lanes(warp: Warp, mask: Mask | None) -> list[int]:
    return [int(lane) for lane in np.flatnonzero(warp.live if mask is None else mask)]


def _argument(warp: Warp, lane: int, place: int, size: int) -> int:
    return int.from_bytes(bytes(warp.local[lane, place : place + size]), "little")


def _give(warp: Warp, lane: int, place: int, value: int, size: int) -> None:
    warp.local[lane, place : place + size] = np.frombuffer(value.to_bytes(size, "little"), np.uint8)


def device_vprintf(warp: Warp, mask: Mask | None, result: int, text: int, arguments: int) -> None:
    """``vprintf``: what each lane prints goes to standard output and into the launch's report, lowest lane first."""
    for lane in _lanes(warp, mask):
        start = _argument(warp, lane, arguments, 8)

        def fetch(offset: int, size: int, lane: int = lane, start: int = start) -> bytes:
            return _bytes_at(warp, lane, start + offset, size)

        def string(address: int, lane: int = lane) -> str:
            return _string(warp, lane, address)

        shown, taken = format_text(_string(warp, lane, _argument(warp, lane, text, 8)), fetch, string)
        warp.cta.launch.printed.append(shown)
        sys.stdout.write(shown)
        _give(warp, lane, result, taken, 4)


def device_assert(warp: Warp, mask: Mask | None, message: int, file: int, line: int, function: int, size: int) -> None:
    """``__assertfail``: end the launch as CUDA words it, for the lowest lane."""
    lane = _lanes(warp, mask)[0]
    text, where, name = (_string(warp, lane, _argument(warp, lane, place, 8)) for place in (message, file, function))
    thread = tuple(int(part[lane]) for part in warp.tid)
    number = _argument(warp, lane, line, 4)
    raise AssertionFailedError(
        f"{where}:{number}: {name}: block: {list(warp.cta.index)}, thread: {list(thread)} Assertion `{text}` failed.",
        details={"file": where, "line": number, "thread": thread},
    )


def device_malloc(warp: Warp, mask: Mask | None, result: int, size: int) -> None:
    """``malloc``: memory of the device's heap for each lane; null when the heap is full."""
    launch = warp.cta.launch
    heap = launch.memory.heap
    for lane in _lanes(warp, mask):
        count = _argument(warp, lane, size, 8)
        address = 0
        if sum(block.size for block in heap.values()) + count <= HEAP_BYTES:
            allocation = launch.memory.allocate(count, "malloc", align=16, poison=True)
            launch.watch(allocation)
            address = allocation.start
            heap[address] = allocation
        _give(warp, lane, result, address, 8)


def device_free(warp: Warp, mask: Mask | None, address: int) -> None:
    """``free``."""
    memory = warp.cta.launch.memory
    for lane in _lanes(warp, mask):
        pointer = _argument(warp, lane, address, 8)
        if pointer and pointer not in memory.heap:
            raise MemoryFault(
                f"free of {pointer:#x}, which malloc did not give or which was freed", details={"address": pointer}
            )
        if pointer:
            memory.free(memory.heap.pop(pointer))


RUNTIME_CALLS: dict[str, Callable[..., None]] = {
    "vprintf": device_vprintf,
    "__assertfail": device_assert,
    "malloc": device_malloc,
    "free": device_free,
}
"""By name, as the PTX of nvcc calls them."""
