"""A loader with coordinates and a tensor map of its own is a class of the kernel's author; no shipped file changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from tests.composed import Array, Composed, integers
from tilekit.assembly.fragment import Fragment
from tilekit.assembly.fragment_files import parse_fragments
from tilekit.assembly.instruction_sets import PTX
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import GMEM, SMEM, U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import BF16
from tilekit.emulator.ptx.memory.tensor_map import TensorMap
from tilekit.tile_io.payload_loader import AlongColumns, AlongRows, PayloadLoader
from tilekit.tile_io.tma import TmaBox, TmaLoader
from tilekit.tiles.call import Call
from tilekit.tiles.cluster import Cluster
from tilekit.tiles.operand import OperandTile
from tilekit.tiles.stage import Stage
from tilekit.tiles.tile import Tile

A, B = OperandTile("a", BF16, 64, "k"), OperandTile("b", BF16, 32, "k")


class GatherLoader:
    """Loads rows that a list of indices names, each by a copy of its own: a box of one row."""

    prefetches = False
    name = A.name

    def __init__(self, w: Writer) -> None:
        self.map = w.tensor_map("rows_map", lambda call: TmaBox((A.k, 1)).describe(call, "a"))
        self.indices = w.parameter("indices", GMEM, lambda call: call.address("indices"))

    def prefetch(self, w: Writer) -> None:
        """Bring the tensor map close."""
        w.ptx.tma.prefetch_map(map=self.map)

    def bind(self, w: Writer, stages: SharedArray) -> BoundGather:
        """Where the images lie."""
        return BoundGather(self, stages)


@dataclass(frozen=True)
class BoundGather:
    """A `GatherLoader` in a role."""

    loader: GatherLoader
    stages: SharedArray
    writer: None = None

    def at(self, w: Writer, tile: Tile) -> GatheredRows:
        """Turn to the indices of a tile's rows."""
        first = self.loader.indices + w.widen_multiply(tile.row, 4)
        return GatheredRows(self, first)


@dataclass(frozen=True)
class GatheredRows:
    """The rows of one tile."""

    bound: BoundGather
    first: Value

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """A copy for each row."""
        image = self.bound.stages.at(w, stage.index)
        for row in range(A.rows):
            index = w.isa.memory.load_acquire_gpu(address=(self.first + 4 * row).retyped(GMEM))
            target = image + A.offset_of(row)
            w.ptx.tma.load_2d(dst=target, map=self.bound.loader.map, x=k, y=index, full=stage.full)


def test_rows_gathered_through_an_index_list() -> None:
    """A row for each index, in any order and several times; indices behind the last row are rows of zeros."""

    def loading(
        w: Writer, a: OperandTile, b: OperandTile, tiles: dict[str, SharedArray], cluster: Cluster
    ) -> PayloadLoader:
        return PayloadLoader([GatherLoader(w), AlongColumns(TmaLoader(w, b))], tiles)

    kernel = Composed(A, B, loading=loading)
    m, n, k, known = 150, 40, 136, 37
    rng = np.random.default_rng(1)
    indices = rng.integers(0, known + 3, 192).astype(np.int32)
    rows, b = integers(known, k, 2), integers(n, k, 3)
    d, report = kernel.run(rows, b, m, n, k, others={"indices": indices})
    gathered = np.vstack([rows, np.zeros((3, k), rows.dtype)])[indices[:m]].astype(np.float32)
    np.testing.assert_array_equal(d, gathered @ b.astype(np.float32).T)
    assert report.clean


IM2COL = """\
//! fragment  load_im2col_4d
//! about     Copy a column of pixels from (c, x, y, image), moved by the filter's place; its bytes count on `full`.
//! in        dst     smem
//! in        map     map
//! in        c       u32
//! in        x       u32
//! in        y       u32
//! in        image   u32
//! in        right   b16
//! in        down    b16
//! in        full    smem
//! kind      load
//! target    sm_90  ptx 8.0
//! see       PTX ISA, cp.async.bulk.tensor (.im2col)
cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [${dst}], [${map}, \
{${c}, ${x}, ${y}, ${image}}], [${full}], {${right}, ${down}};
"""


@dataclass(frozen=True)
class Images:
    """NHWC images, convolved by filters of `taps` by `taps` with as much padding as keeps their size."""

    count: int
    height: int
    width: int
    channels: int
    taps: int = 3

    def described(self, call: Call) -> TensorMap:
        """The im2col map: its corners are those of the filter's first tap."""
        row = self.channels * 2
        margin = self.taps // 2
        return TensorMap.im2col(
            call.address("a"),
            "bf16",
            (self.channels, self.width, self.height, self.count),
            (row, row * self.width, row * self.width * self.height),
            lower=(-margin, -margin),
            upper=(margin - self.taps + 1, margin - self.taps + 1),
            channels_per_pixel=A.k,
            pixels_per_column=A.rows,
            swizzle="128B",
        )


class Im2colLoader:
    """Loads rows of the matrix that a convolution multiplies: a row an output pixel, K by tap and channel."""

    prefetches = False
    name = A.name

    def __init__(self, w: Writer, images: Images, fragment: Fragment) -> None:
        self.images = images
        self.fragment = fragment
        self.map = w.tensor_map("images_map", images.described)

    def prefetch(self, w: Writer) -> None:
        """Bring the tensor map close."""
        w.ptx.tma.prefetch_map(map=self.map)

    def bind(self, w: Writer, stages: SharedArray) -> BoundIm2col:
        """Where the images of the tile lie."""
        return BoundIm2col(self, stages)


@dataclass(frozen=True)
class BoundIm2col:
    """An `Im2colLoader` in a role."""

    loader: Im2colLoader
    stages: SharedArray
    writer: None = None

    def at(self, w: Writer, tile: Tile) -> Pixels:
        """Turn to the pixels of a tile's rows: which image, line and column the first is in."""
        images = self.loader.images
        image = tile.row // (images.height * images.width)
        within = tile.row - image * (images.height * images.width)
        line = within // images.width
        margin = images.taps // 2
        return Pixels(self, within - line * images.width - margin, line - margin, image)


@dataclass(frozen=True)
class Pixels:
    """The pixels of one tile: where the filter's first tap reads for the first of them."""

    bound: BoundIm2col
    x: Value
    y: Value
    image: Value

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """One copy: of some channels of one tap."""
        loader = self.bound.loader
        tap = k // loader.images.channels
        down = tap // loader.images.taps
        w.place(
            loader.fragment,
            dst=self.bound.stages.at(w, stage.index),
            map=loader.map,
            c=k - tap * loader.images.channels,
            x=self.x,
            y=self.y,
            image=self.image,
            right=w.isa.convert.narrow_u16(wide=tap - down * loader.images.taps),
            down=w.isa.convert.narrow_u16(wide=down),
            full=stage.full,
        )


def unfolded(pixels: Array, taps: int) -> Array:
    """The matrix of a convolution, by its definition."""
    margin = taps // 2
    padded = np.pad(pixels, ((0, 0), (margin, margin), (margin, margin), (0, 0)))
    count, height, width, channels = pixels.shape
    columns = [padded[:, y : y + height, x : x + width] for y in range(taps) for x in range(taps)]
    return np.stack(columns, axis=3).reshape(count * height * width, taps * taps * channels)


@pytest.mark.parametrize("images", [Images(3, 7, 5, 64), Images(2, 4, 9, 128, taps=5), Images(1, 13, 11, 64, taps=1)])
def test_a_convolution_is_a_loader(images: Images, tmp_path: Path) -> None:
    """An im2col map, five coordinates and a fragment of one's own make a convolution of the matmul's other parts."""
    file = tmp_path / "im2col.ptx"
    file.write_text(IM2COL, "utf-8")
    (fragment,) = parse_fragments(file, PTX)

    def loading(
        w: Writer, a: OperandTile, b: OperandTile, tiles: dict[str, SharedArray], cluster: Cluster
    ) -> PayloadLoader:
        return PayloadLoader([Im2colLoader(w, images, fragment), AlongColumns(TmaLoader(w, b))], tiles)

    kernel = Composed(A, B, loading=loading)
    m = images.count * images.height * images.width
    n, k = 40, images.taps**2 * images.channels
    pixels, filters = integers(m, images.channels, 4), integers(n, k, 5)
    d, report = kernel.run(pixels, filters, m, n, k)
    shaped = pixels.reshape(images.count, images.height, images.width, images.channels)
    matrix = unfolded(shaped, images.taps).astype(np.float32)
    np.testing.assert_array_equal(d, matrix @ filters.astype(np.float32).T)
    assert report.clean


class NarrowingLoader:
    """Loads rows of f32 by threads, which write them to the image as bf16."""

    prefetches = False
    name = B.name

    def __init__(self, w: Writer) -> None:
        self.values = w.parameter("values", GMEM, lambda call: call.address("values"))
        self.k = w.parameter("values_k", U32, lambda call: call.k)

    def prefetch(self, w: Writer) -> None:
        """There is no tensor map."""

    def bind(self, w: Writer, stages: SharedArray) -> BoundNarrowing:
        """Which pieces of 8 elements a thread has: two of a row, half a row apart."""
        thread = w.thread() % 128
        return BoundNarrowing(self, stages, thread // 4, thread % 4)


@dataclass(frozen=True)
class BoundNarrowing:
    """A `NarrowingLoader` in a role of four warps; what its threads write is written when they go on."""

    loader: NarrowingLoader
    stages: SharedArray
    row: Value
    piece: Value
    writer: None = None

    def at(self, w: Writer, tile: Tile) -> NarrowedRows:
        """Turn to a tile's columns, which are rows of B."""
        line = w.widen_multiply(tile.column + self.row, self.loader.k) * 4
        return NarrowedRows(self, self.loader.values + line)


@dataclass(frozen=True)
class NarrowedRows:
    """The row of a thread."""

    bound: BoundNarrowing
    line: Value

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Load, round and store both pieces."""
        image = self.bound.stages.at(w, stage.index) + self.bound.row * B.row_bytes
        for half in range(2):
            piece = self.bound.piece + 4 * half
            source = self.line + w.widen_multiply(k + piece * 8, 4)
            values = [
                value
                for part in range(2)
                for value in w.isa.memory.load_global_f32x4(address=(source + 16 * part).retyped(GMEM))
            ]
            packed = [
                w.isa.convert.pack_bf16(low=low, high=high) for low, high in zip(values[::2], values[1::2], strict=True)
            ]
            byte = piece * 16
            part = byte // B.row_bytes
            target = image + part * B.slice_bytes + B.swizzled(byte - part * B.row_bytes, self.bound.row)
            w.isa.memory.store_shared_b32x4(address=target.retyped(SMEM), values=RegisterTile(packed))


@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_what_threads_convert_beside_the_copy_engine(swizzle: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A by the copy engine and B by the same role's threads, which round it on its way into any image."""
    image = replace(B, swizzle_bytes=swizzle, slices=128 // swizzle)
    monkeypatch.setitem(globals(), "B", image)

    def loading(
        w: Writer, a: OperandTile, b: OperandTile, tiles: dict[str, SharedArray], cluster: Cluster
    ) -> PayloadLoader:
        return PayloadLoader([AlongRows(TmaLoader(w, a)), NarrowingLoader(w)], tiles)

    kernel = Composed(A, image, loading=loading, filled_by="threads", engine_bytes=A.transfer_bytes)
    m, n, k = 130, 56, 320
    a, b = integers(m, k, 8), integers(64, k, 9)
    for seed in range(3):
        d, report = kernel.run(a, b, m, n, k, seed=seed, others={"values": b.astype(np.float32)})
        np.testing.assert_array_equal(d, a.astype(np.float32) @ b[:n].astype(np.float32).T)
        assert report.clean, str(report)
