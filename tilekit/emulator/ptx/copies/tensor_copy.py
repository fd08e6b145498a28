"""Bulk tensor copies: the box of a tensor map, from global memory to its image in shared memory and back.

An *image* is the box as it lies in shared memory: dimension 0 fastest, its 16-byte chunks moved by the swizzle of the
absolute shared address. Under a swizzle every row starts a new span, so rows narrower than that leave *holes*, which a
load does not write. Global memory is one allocation's bytes; the caller checks `footprint` against it.

See PTX ISA, "Tensors" and ``cp.async.bulk.tensor``. What the manual leaves open (holes, fill patterns, conversions,
which coordinates fault) was found by hundreds of random copies on an H200.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import le, mul
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilekit.emulator.ptx.arithmetic.reductions import ReduceOp, reduction
from tilekit.emulator.ptx.copies.box_image import Bytes, check_shared, converted, filled, placed, spread, unplaced
from tilekit.emulator.ptx.memory.tensor_map import PixelBox, TensorMap

__all__ = ["Footprint", "WideBox", "beyond_row", "footprint", "load_box", "reduce_box", "store_box", "written_bytes"]


@dataclass(eq=False)
class Footprint:
    """The global bytes that a copy touches: equally long runs.

    Attributes
    ----------
    begin, end
        First address touched and the one after the last; 0 if the whole box is out of bounds.
    run
        Bytes in each run.
    shape, strides
        Number of runs along each dimension, outermost first, and bytes from one to the next.
    scattered
        Address of each run, int64, where no strides give it.
    """

    begin: int
    end: int
    run: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    scattered: npt.NDArray[np.int64] | None = None

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """Absolute address of each run, int64."""
        if self.scattered is not None:
            return self.scattered
        starts = np.full(1, self.begin, np.int64)
        for extent, stride in zip(self.shape, self.strides, strict=True):
            starts = (starts[:, None] + stride * np.arange(extent)).ravel()
        return starts


class _Block(NamedTuple):
    """The in-bounds part of a tiled box, outermost dimension first; dimension 0 counted in bytes."""

    offset: int  # of its first byte from the map's address
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    inside: tuple[slice, ...]  # where it lies in the packed box
    whole: bool  # nothing is out of bounds


@dataclass(frozen=True, eq=False)
class _Column:
    """The in-bounds part of an im2col column: one run of channel bytes for each pixel inside."""

    offset: int  # of the first channel's byte from a pixel's start
    run: int
    skipped: int  # bytes of out-of-bounds channels before the run
    pixels: npt.NDArray[np.int64]  # offsets of the pixels from the map's address
    inside: npt.NDArray[np.bool_]  # which of the column's pixels they are


@dataclass(frozen=True)
class WideBox(PixelBox):
    """The box of one copy through a wide im2col map, as `im2col_wide` makes it.

    Attributes
    ----------
    ticks
        Which steps of the walk each pixel of the column is, halo pixels among them.
    """

    ticks: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Plan:
    """What every copy through one map has in common: dimension 0 in bytes of packed atoms, the rest in elements."""

    extents: tuple[int, ...]
    written_extents: tuple[int, ...]
    counts: tuple[int, ...]
    steps: tuple[int, ...]
    strides: tuple[int, ...]
    last_whole: tuple[int, ...]  # the greatest coordinates at which the whole box is in bounds
    whole: _Block  # that box at the origin
    packed_bytes: int


def load_box(
    tensor_map: TensorMap,
    coords: Sequence[int],
    global_bytes: Bytes,
    base_offset: int,
    shared_address: int,
    offsets: Sequence[int] = (),
) -> Bytes:
    """Return the image of a box, as a load writes it to shared memory.

    Parameters
    ----------
    tensor_map
        A legal map.
    coords
        Signed element coordinates of the box's first element, innermost first; for im2col (c, w, [h, [d,]] n).
    global_bytes : uint8[bytes]
        The allocation that holds the tensor.
    base_offset
        Where ``tensor_map.address`` lies in it.
    shared_address
        Destination in the CTA's shared memory: a multiple of 128.
    offsets
        im2col offsets (w, [h, [d]]) added to every pixel of the column; none for a tiled map.

    Returns
    -------
    image : uint8[tensor_map.shared_bytes]
        A new array. Elements out of bounds hold zero, or NaN if the map says so. Holes and the gaps of padded types
        hold zero too, but a load leaves those bytes of shared memory alone: see `written_bytes`.

    Raises
    ------
    ValueError
        If coordinates, offsets or addresses break a rule of the instruction.
    """
    check_shared(shared_address)
    if tensor_map.pixels is None:
        packed = _load_tiled(tensor_map, _plan(tensor_map), coords, global_bytes, base_offset)
    else:
        packed = _load_column(tensor_map, tensor_map.pixels, coords, offsets, global_bytes, base_offset)
    return placed(tensor_map, spread(tensor_map, packed), shared_address)


def store_box(
    tensor_map: TensorMap,
    coords: Sequence[int],
    global_bytes: Bytes,
    base_offset: int,
    image: Bytes,
    shared_address: int,
) -> None:
    """Write the in-bounds elements of an image to global memory, as a store does; parameters as for `load_box`.

    The hardware writes rows in whole 16-byte units: where the extent of dimension 0 is no multiple of that, up to 15
    bytes beyond it are overwritten too.

    Raises
    ------
    ValueError
        If coordinates (negative ones fault), image size or addresses break a rule of the instruction.
    """
    packed = unplaced(tensor_map, image, shared_address)
    if tensor_map.pixels is None:
        plan = _plan(tensor_map)
        block = _block(tensor_map, plan, coords, True)
        if block is not None:
            box = np.ndarray(plan.whole.shape, np.uint8, packed)
            _view(block, np.dtype(np.uint8), global_bytes, base_offset)[...] = box[block.inside]
        return
    column = _column(tensor_map, tensor_map.pixels, tuple(coords), (), True)
    if column is not None:
        rows, pixels = _rows(column, packed, global_bytes, base_offset)
        pixels[column.pixels // 16] = rows[column.inside]


def reduce_box(
    tensor_map: TensorMap,
    coords: Sequence[int],
    global_bytes: Bytes,
    base_offset: int,
    image: Bytes,
    shared_address: int,
    op: ReduceOp,
) -> None:
    """Combine the in-bounds elements of an image into global memory, as ``cp.reduce.async.bulk.tensor`` does.

    Parameters are those of `store_box`; ``op`` is one of PTX's reductions, done in the map's element type. f16 and bf16
    sums are rounded to nearest even and keep subnormals. Like a store, a reduction acts on whole 16-byte units.

    Raises
    ------
    ValueError
        If the element type has no such reduction, or as for `store_box`.
    """
    dtype, combine = reduction(tensor_map.dtype, op)
    packed = unplaced(tensor_map, image, shared_address)
    if tensor_map.pixels is None:
        plan = _plan(tensor_map)
        block = _block(tensor_map, plan, coords, True)
        if block is not None:
            target = _view(block, dtype, global_bytes, base_offset)
            box = np.ndarray(plan.whole.shape, np.uint8, packed)
            target[...] = combine(target, np.ascontiguousarray(box[block.inside]).view(dtype))
        return
    column = _column(tensor_map, tensor_map.pixels, tuple(coords), (), True)
    if column is not None:
        rows, pixels = _rows(column, packed, global_bytes, base_offset)
        where = column.pixels // 16
        held, added = pixels[where], np.ascontiguousarray(rows[column.inside])
        pixels[where] = combine(held.view(dtype), added.view(dtype)).view(rows.dtype)


def written_bytes(tensor_map: TensorMap, shared_address: int) -> npt.NDArray[np.bool_] | None:
    """Return which bytes of an image a load writes, as bool[tensor_map.shared_bytes]; None if it writes them all."""
    element = tensor_map.element
    if tensor_map.row_bytes == tensor_map.row_pitch and element.global_bytes == element.shared_bytes:
        return None
    ones = np.ones(tensor_map.transaction_bytes, np.uint8)
    return placed(tensor_map, spread(tensor_map, ones), shared_address).astype(np.bool_)


def footprint(
    tensor_map: TensorMap, coords: Sequence[int], offsets: Sequence[int] = (), *, stores: bool = False
) -> Footprint:
    """Return the global bytes that a load of the box at ``coords`` reads, or that a store or reduction writes.

    Parameters and errors are those of `load_box` and `store_box`.
    """
    if tensor_map.pixels is not None:
        column = _column(tensor_map, tensor_map.pixels, tuple(coords), tuple(offsets), stores)
        if column is not None:
            starts = column.pixels + (tensor_map.address + column.offset)
            begin, end = int(starts.min()), int(starts.max()) + column.run
            return Footprint(begin, end, column.run, (), (), starts)
    else:
        block = _block(tensor_map, _plan(tensor_map), coords, stores)
        if block is not None:
            begin, run = tensor_map.address + block.offset, block.shape[-1]
            shape, strides = block.shape[:-1], block.strides[:-1]
            end = begin + run + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
            return Footprint(begin, end, run, shape, strides)
    return Footprint(0, 0, 0, (0,), (0,))


def beyond_row(tensor_map: TensorMap, address: int) -> str:
    """Say why a store wrote a byte that is no element, behind a row's end in the same 16-byte unit; else ""."""
    element = tensor_map.element
    row = tensor_map.dims[0] // element.atom * element.global_bytes
    written = -(-row // 16) * 16
    place = address - tensor_map.address
    if tensor_map.strides:
        place %= tensor_map.strides[0]
    if not row <= place < written:
        return ""
    return (
        f"a tensor store writes rows in whole 16-byte units: those of {tensor_map.dims[0]} x {tensor_map.dtype}, {row} "
        f"bytes, as {written}. Rows need {written} bytes of their own, up to the next row and behind the last one; or "
        "store rows that are no multiple of 16 bytes with st"
    )


def _plan(tensor_map: TensorMap) -> _Plan:
    """What copies through a map have in common, kept with the map: to hash it would take longer than to use it."""
    kept = vars(tensor_map)
    if "copy_plan" not in kept:
        kept["copy_plan"] = _new_plan(tensor_map)
    plan: _Plan = kept["copy_plan"]
    return plan


def _new_plan(tensor_map: TensorMap) -> _Plan:
    if tensor_map.interleave and tensor_map.element_strides[0] != 1:
        raise ValueError(
            f"element_strides[0] = {tensor_map.element_strides[0]}: steps between the slices of an interleaved tensor "
            "are not modelled; nearest legal 1"
        )
    element = tensor_map.element
    size = element.global_bytes
    counts = (tensor_map.counts[0] // element.atom * size, *tensor_map.counts[1:])
    extents = (tensor_map.dims[0] // element.atom * size, *tensor_map.dims[1:])
    steps = (1, *tensor_map.element_strides[1:])
    strides = (1, *tensor_map.strides)
    return _Plan(
        extents=extents,
        written_extents=(-(-extents[0] // 16) * 16, *extents[1:]),
        counts=counts,
        steps=steps,
        strides=strides,
        last_whole=tuple(e - (c - 1) * s - 1 for e, c, s in zip(extents, counts, steps, strict=True)),
        whole=_Block(
            offset=0,
            shape=counts[::-1],
            strides=tuple(step * stride for step, stride in zip(steps, strides, strict=True))[::-1],
            inside=(slice(None),) * tensor_map.rank,
            whole=True,
        ),
        packed_bytes=tensor_map.transaction_bytes,
    )


def _check_coords(tensor_map: TensorMap, coords: Sequence[int], stores: bool) -> int:
    """Check the coordinates and return the first one in bytes."""
    if len(coords) != tensor_map.rank:
        raise ValueError(f"coords has {len(coords)} entries: the tensor map has rank {tensor_map.rank}")
    # The corner of an im2col box may be negative, a store's box may not.
    if stores and tensor_map.pixels is None and min(coords) < 0:
        axis = next(i for i, coord in enumerate(coords) if coord < 0)
        raise ValueError(
            f"coords[{axis}] = {coords[axis]}: a store's coordinates must not be negative; nearest legal 0"
        )
    element = tensor_map.element
    first = coords[0] * element.global_bytes
    if first % (16 * element.atom):
        unit = 16 * element.atom // math.gcd(16, element.global_bytes)
        nearest = round(coords[0] / unit) * unit
        raise ValueError(
            f"coords[0] = {coords[0]}: the box must begin at a multiple of 16 bytes, which is {unit} elements of "
            f"{tensor_map.dtype}; nearest legal {nearest}"
        )
    return first // element.atom


def _block(tensor_map: TensorMap, plan: _Plan, coords: Sequence[int], stores: bool) -> _Block | None:
    """Return the part of a tiled box that lies inside the tensor, or None if nothing does."""
    starts = (_check_coords(tensor_map, coords, stores), *coords[1:])
    if min(starts) >= 0 and all(map(le, starts, plan.last_whole)):
        return _Block(sum(map(mul, starts, plan.strides)), *plan.whole[1:])
    extents = plan.written_extents if stores else plan.extents
    offset = 0
    whole = True
    shape, strides, inside = [], [], []
    for start, extent, count, step, stride in zip(starts, extents, plan.counts, plan.steps, plan.strides, strict=True):
        low = 0 if start >= 0 else -(start // step)
        high = min(count, -((start - extent) // step))
        if low >= high:
            return None
        whole = whole and high - low == count
        offset += (start + low * step) * stride
        shape.append(high - low)
        strides.append(step * stride)
        inside.append(slice(low, high))
    return _Block(offset, tuple(shape[::-1]), tuple(strides[::-1]), tuple(inside[::-1]), whole)


def _view(block: _Block, dtype: np.dtype[Any], global_bytes: Bytes, base_offset: int) -> npt.NDArray[Any]:
    """Return the block as a view of global memory; the last dimension in elements of ``dtype``."""
    size = dtype.itemsize
    return np.ndarray(
        (*block.shape[:-1], block.shape[-1] // size),
        dtype,
        global_bytes,
        base_offset + block.offset,
        (*block.strides[:-1], size),
    )


def _load_tiled(
    tensor_map: TensorMap, plan: _Plan, coords: Sequence[int], global_bytes: Bytes, base_offset: int
) -> Bytes:
    block = _block(tensor_map, plan, coords, False)
    if block is not None and block.whole:
        return converted(tensor_map, _view(block, np.dtype(np.uint8), global_bytes, base_offset)).reshape(-1)
    packed = filled(tensor_map, plan.packed_bytes)
    if block is not None:
        box = np.ndarray(plan.whole.shape, np.uint8, packed)
        box[block.inside] = converted(tensor_map, _view(block, np.dtype(np.uint8), global_bytes, base_offset))
    return packed


@lru_cache(maxsize=64)  # A copy is asked for its footprint first and moved later.
def _column(
    tensor_map: TensorMap, box: PixelBox, coords: tuple[int, ...], offsets: tuple[int, ...], stores: bool
) -> _Column | None:
    """Walk an im2col column and return the part that lies inside the tensor, or None if nothing does."""
    if tensor_map.interleave:
        raise ValueError(
            f"interleave = {tensor_map.interleave!r}: im2col copies of interleaved tensors are not modelled"
        )
    first = _check_coords(tensor_map, coords, stores)
    spatial = tensor_map.rank - 2
    if offsets and len(offsets) != spatial:
        raise ValueError(f"offsets has {len(offsets)} entries: rank {tensor_map.rank} has {spatial} spatial dimensions")
    element = tensor_map.element
    extent = tensor_map.dims[0] // element.atom * element.global_bytes
    if stores:
        extent = -(-extent // 16) * 16
    low, high = max(first, 0), min(first + box.channels_per_pixel // element.atom * element.global_bytes, extent)
    walked, position = _walk(tensor_map, box, coords[1:])
    if low >= high:
        return None
    inside = np.ones(box.pixels_per_column, np.bool_)
    for values, shift, extent in zip(walked, (*(offsets or (0,) * spatial), 0), tensor_map.dims[1:], strict=True):
        # Negative positions are huge as unsigned ones.
        inside &= (values + shift).view(np.uint64) < extent
    pixels = position[inside] + sum(map(mul, offsets, tensor_map.strides))
    return _Column(low, high - low, low - first, pixels, inside) if pixels.size else None


@lru_cache(maxsize=256)  # Every filter tap and channel block of a convolution walks the same pixels.
def _walk(
    tensor_map: TensorMap, box: PixelBox, cursor: tuple[int, ...]
) -> tuple[list[npt.NDArray[np.int64]], npt.NDArray[np.int64]]:
    """Return the positions of a column's pixels along each dimension (w, [h, [d,]] n), and their byte offsets."""
    ticks = np.array(box.ticks) if isinstance(box, WideBox) else np.arange(box.pixels_per_column)
    walked = []
    for i, start in enumerate(cursor[:-1]):
        begin, last = box.lower[i], tensor_map.dims[i + 1] - 1 + box.upper[i]
        step = tensor_map.element_strides[i + 1]
        # The first pixel of a wide column may lie left of its box.
        if not begin <= start <= last and not (isinstance(box, WideBox) and i == 0 and start < begin):
            raise ValueError(
                f"coords[{i + 1}] = {start}: must lie in the map's pixel box, {begin} to {last}; "
                f"nearest legal {min(max(start, begin), last)}"
            )
        # The first sweep starts at the cursor, every later one at the box's lower corner.
        ahead, sweep = (last - start) // step + 1, (last - begin) // step + 1
        later = ticks - ahead
        walked.append(np.where(later < 0, start + ticks * step, begin + later % sweep * step))
        ticks = np.where(later < 0, 0, 1 + later // sweep)
    walked.append(cursor[-1] + ticks)
    position = sum(values * stride for values, stride in zip(walked, tensor_map.strides, strict=True))
    return walked, np.asarray(position, np.int64)


def _rows(column: _Column, packed: Bytes, global_bytes: Bytes, base_offset: int) -> tuple[Any, Any]:
    """Return the channel runs as records: one for each pixel of the packed column, one each 16 bytes of the tensor."""
    record = np.dtype((np.void, column.run))
    pitch = packed.size // column.inside.size
    rows = np.ndarray((column.inside.size,), record, packed, column.skipped, (pitch,))
    offset = base_offset + column.offset
    pixels = np.ndarray(((global_bytes.size - offset - column.run) // 16 + 1,), record, global_bytes, offset, (16,))
    return rows, pixels


def _load_column(
    tensor_map: TensorMap,
    box: PixelBox,
    coords: Sequence[int],
    offsets: Sequence[int],
    global_bytes: Bytes,
    base_offset: int,
) -> Bytes:
    column = _column(tensor_map, box, tuple(coords), tuple(offsets), False)
    packed = filled(tensor_map, tensor_map.transaction_bytes)
    if column is not None:
        rows, pixels = _rows(column, packed, global_bytes, base_offset)
        rows[column.inside] = converted(tensor_map, pixels[column.pixels // 16])
    return packed
