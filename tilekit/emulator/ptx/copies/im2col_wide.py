"""Tensor copies in the modes ``.im2col::w`` and ``.im2col::w::128`` (PTX ISA 5.5.5).

A column walks along W, inside the box, and on into the next image of N; H and D stay where the coordinates put them.
After its pixels come halo pixels: the next ones of the walk in mode W; in mode W128, after the 128 pixels, the ones
that follow each group of 32: first the first halo pixel of all four groups, then the second, and so on.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tilekit.emulator.core.errors import MemoryFault, ProtocolError
from tilekit.emulator.ptx.copies.bulk import (
    Array,
    Load,
    Mask,
    Value,
    active_lanes,
    at_lane,
    barriers_of,
    check_room,
    destinations_of,
)
from tilekit.emulator.ptx.copies.bulk_tensor import source_of, tell_box
from tilekit.emulator.ptx.copies.tensor_copy import WideBox, load_box, written_bytes
from tilekit.emulator.ptx.copies.tensor_map_reads import tensor_map_at
from tilekit.emulator.ptx.memory.tensor_map import TensorMap, WideMode
from tilekit.emulator.ptx.synchronisation.mbarriers import shared_address

if TYPE_CHECKING:
    from tilekit.emulator.core.memory.memory import Allocation
    from tilekit.emulator.ptx.execution.warp import Warp

_GROUP = 32
_LARGEST_HALO = {"W": 511, "W128": 31}
_LARGEST_OFFSET = 31


def wide_copy(
    tensor: TensorMap, mode: WideMode, coords: tuple[int, ...], halo: int, offset: int
) -> tuple[TensorMap, tuple[int, ...]]:
    """Return the map and the coordinates of an ordinary im2col copy that moves what a wide one does.

    Parameters
    ----------
    tensor
        A wide im2col map.
    mode
        That of the instruction.
    coords
        Signed coordinates (c, w, [h, [d,]] n) of the first pixel.
    halo, offset
        The instruction's ``wHalo`` and ``wOffset``.

    Raises
    ------
    ValueError
        If the map has another mode, or a number is out of range.
    """
    pixels = tensor.pixels
    if pixels is None or pixels.wide != mode:
        given = "tiled" if pixels is None else f"im2col of mode {pixels.wide}" if pixels.wide else "im2col"
        raise ValueError(f"mode = {mode!r}: the tensor map is {given}")
    for name, value, largest in (("wHalo", halo, _LARGEST_HALO[mode]), ("wOffset", offset, _LARGEST_OFFSET)):
        if not 0 <= value <= largest:
            raise ValueError(f"{name} = {value}: must lie in 0 to {largest} in mode {mode}")
    if mode == "W":
        ticks = tuple(range(pixels.pixels_per_column + halo))
    else:
        groups = range(_GROUP, 5 * _GROUP, _GROUP)
        ticks = (*range(4 * _GROUP), *(first + further for further in range(halo) for first in groups))
    channel, w, *across, n = coords
    # Along H and D the box is the one position that the coordinates name.
    lower = (pixels.lower[0] + offset, *across)
    upper = (pixels.upper[0] + offset, *(h - extent + 1 for h, extent in zip(across, tensor.dims[2:], strict=False)))
    box = WideBox(lower, upper, pixels.channels_per_pixel, len(ticks), mode, ticks)
    return replace(tensor, pixels=box), (channel, w + offset, *across, n)


def wide_load(
    warp: Warp,
    mode: WideMode,
    destination: Value,
    map_address: Value,
    coordinates: tuple[Value, ...],
    barrier: Value,
    halo: Value,
    shift: Value,
    multicast: Value | None,
    group: int,
    mask: Mask | None,
) -> None:
    """``cp.async.bulk.tensor`` with ``.im2col::w`` or ``.im2col::w::128``."""
    for lane in active_lanes(warp, mask):
        tensor = tensor_map_at(warp, lane, at_lane(map_address, lane))
        address = shared_address("shared", at_lane(destination, lane))
        ctas = None if multicast is None else at_lane(multicast, lane)
        targets, offset = destinations_of(warp, address, ctas)
        where = shared_address("shared", at_lane(barrier, lane))
        barriers = barriers_of(warp, where, targets, multicast is not None, group)
        if offset % 128:
            raise MemoryFault(f"tensor load to {address:#x}: the destination must be a multiple of 128")
        coords = tuple(at_lane(c, lane) for c in coordinates)
        if len(coords) != tensor.rank:
            raise ProtocolError(
                f"the instruction gives {len(coords)} coordinates, the tensor map has rank {tensor.rank}"
            )
        try:
            plain, box = wide_copy(tensor, mode, coords, at_lane(halo, lane) & 0xFFFF, at_lane(shift, lane) & 0xFFFF)
        except ValueError as error:
            raise ProtocolError(f"wide im2col copy: {error}") from None
        check_room(targets, offset, plain.shared_bytes, "tensor load")
        allocation, touched = source_of(warp, plain, box, ())

        def fetch(
            plain: TensorMap = plain,
            box: tuple[int, ...] = box,
            allocation: Allocation = allocation,
            offset: int = offset,
        ) -> Array:
            return load_box(plain, box, allocation.data, plain.address - allocation.start, offset)

        told = partial(tell_box, allocation, touched)
        written = written_bytes(plain, offset)
        warp.cta.launch.machine.submit(
            Load(warp, lane, targets, offset, barriers, plain.transaction_bytes, fetch, told, "TMA load", written)
        )
