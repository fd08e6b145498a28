"""TileIO without the copy engine: the load role's threads copy, from addresses and pitches that TMA refuses.

The image is the one TMA makes. Where every row of the operand begins at a multiple of 4 or 8 bytes, ``cp.async`` copies
pieces of that size to their places. Where rows begin anywhere, aligned pieces of 16 bytes are copied, nine for the 128
bytes of a line of the image, the ninth to a place of its own; and when they have landed, the warp that copied a line
shifts it where it lies. No register waits for memory, and there are hardly more copies than of aligned operands.

Nothing is read behind the operand's last element. Its first piece may begin up to 15 bytes before the first one: in the
same allocation, since those begin at multiples of 256 bytes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Protocol, Self

from tilekit.assembly.fit import component
from tilekit.assembly.legal import Count
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import GMEM, SMEM, U32
from tilekit.assembly.values import Operand, RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.errors import ArgumentError
from tilekit.tile_io.copy_plan import PIECE, WIDTHS, WORD, CopyPlan
from tilekit.tile_io.cp_async_pieces import PieceTile
from tilekit.tiles.call import Call, Matrix, fits
from tilekit.tiles.cluster import Multicast, require_alone
from tilekit.tiles.stage import Stage

LONGEST_LINE = (1 << 32) - 1024
"""Bytes along a line of the operand: threads count in 32 bits, to the end of a tile beyond it."""

TURNS_AT_ONCE = 4
"""Pieces that a thread has in registers while it shifts them."""


@component
class CpAsyncLoader:
    """Loads one operand's tiles from global to shared memory, zeros where the operand ends.

    Parameters
    ----------
    w
        The writer. The operand's address (``<name>``), its extents along the contiguous dimension and the other one
        (``<name>_inner``, ``<name>_outer``) and its pitch (``<name>_pitch``, all in elements) become kernel parameters;
        with a batch also ``<name>_batch_pitch``.
    plan
        Who copies what.
    stages
        Stages of the ring.
    batched
        Whether the operand has a batch dimension.
    """

    def __init__(self, w: Writer, plan: CopyPlan, *, stages: Count, batched: bool = False) -> None:
        plan.check()
        self.plan = plan
        self.tile = plan.tile
        self.batched = batched
        name = self.tile.name
        w.uses(self, "plan", name, dtype=self.tile.dtype, contiguous=self.tile.major)
        self.address = w.parameter(name, GMEM, self._address)
        self.inner = w.parameter(f"{name}_inner", U32, lambda call: _line(call.matrix(name)))
        self.outer = w.parameter(f"{name}_outer", U32, lambda call: _outer(call.matrix(name)))
        self.pitch = w.parameter(f"{name}_pitch", U32, lambda call: call.matrix(name).row_pitch)
        self.batch_pitch = None
        if batched:
            self.batch_pitch = w.parameter(f"{name}_batch_pitch", U32, lambda call: call.matrix(name).matrix_pitch)
        self.tails: SharedArray | None = None
        for declared in plan.declared("inputs", stages):
            self.tails = w.shared.place(declared)

    def _address(self, call: Call) -> int:
        matrix, address, width = call.matrix(self.tile.name), call.address(self.tile.name), self.plan.width
        given = address | matrix.pitch | (matrix.batch_pitch if self.batched else 0)
        if width == PIECE:
            given |= matrix.extents[0] * matrix.dtype.bytes
        if given % width and 0 not in matrix.extents:
            fits = next(fitting for fitting in (PIECE, *WIDTHS) if given % fitting == 0)
            raise ArgumentError(
                f"{matrix.name} at address {address:#x}, with rows of {matrix.extents[0] * matrix.dtype.bytes} bytes, "
                f"{matrix.pitch} apart, is copied in pieces of {width} bytes; nearest: a CopyPlan of width={fits}, or "
                f"rows padded to a multiple of {width} bytes",
                code="TK-LOAD-001",
            )
        return address

    prefetches = False
    """Threads bring nothing into L2 ahead of time."""

    brings = 0
    """Bytes that the copy engine brings to a stage: threads copy."""

    def prefetch(self, w: Writer) -> None:
        """Nothing to prefetch: there is no tensor map."""

    def bind(self, w: Writer, stages: SharedArray, multicast: Multicast | None) -> BoundCpAsyncLoader:
        """Prepare this thread's places in a stage; once a role."""
        require_alone(self, self.tile.name, multicast, other="TmaLoader")
        return BoundCpAsyncLoader(w, self, stages)


def _line(matrix: Matrix) -> int:
    """Elements of a line, as threads can count them."""
    size = matrix.dtype.bytes
    if matrix.extents[0] * size > LONGEST_LINE:
        raise ArgumentError(
            f"{matrix.name} has rows of {matrix.extents[0]} contiguous elements; threads, which copy what TMA refuses, "
            f"count up to {LONGEST_LINE // size} of {matrix.dtype}. Align its rows to 16 bytes, or split the problem",
            code="TK-MM-015",
        )
    return matrix.extents[0]


def _outer(matrix: Matrix) -> int:
    """Lines of a matrix."""
    return fits(f"{matrix.name}'s extent across its rows", matrix.extents[1])


class BoundCpAsyncLoader:
    """A `CpAsyncLoader` in a role of as many warps as its plan has.

    Attributes
    ----------
    loader, plan
        What is loaded, and who copies what.
    lane, offset
        This thread in its warp, and the first byte of its pieces in their lines.
    first, line
        First line of the warp's first class, and of this thread's in it; the next class begins a line on.
    row
        The tile's row, or its line along K, that this thread's first line is.
    """

    def __init__(self, w: Writer, loader: CpAsyncLoader, stages: SharedArray) -> None:
        self.loader = loader
        self.plan = plan = loader.plan
        self._stages = stages
        self.lane = w.lane()
        copies = plan.tile.row_bytes // plan.copied
        self.offset = (self.lane % copies) * plan.copied
        self.first = (w.warp() % plan.warps) * plan.classes
        self.line = self.first + (self.lane // copies) * plan.period
        self.row = self.line
        if plan.interleaved:
            self.row = self.first // 2 * 8 + self.first % 2 + self.lane // copies * 2
        self._first_shift = w.variable(U32, 0, "shift")
        self.completes = plan.shifts
        self.writer = CopyWriter((self,))

    def image(self, w: Writer, stage: Value) -> Value:
        """Address of the tile in a stage."""
        return self._stages.at(w, stage)

    def tails(self, w: Writer, stage: Value) -> Value:
        """Address of a stage's ninth pieces."""
        assert self.loader.tails is not None
        return self.loader.tails.at(w, stage)

    def at(self, w: Writer, row: Value, batch: Operand, k: Operand) -> CpAsyncTile | PieceTile:
        """Turn to the tile at `row` of M or N; once a tile."""
        if self.plan.width == PIECE:
            return PieceTile(w, self, row, batch)
        tile = CpAsyncTile(w, self, row, batch)
        if self.plan.shifts:
            self._first_shift.assign(_shift(w, tile.address(w, self.first)))
        return tile

    def complete(self, w: Writer, stage: Value) -> None:
        """Shift this warp's lines, whose copies have landed, to their places; in the tile they were copied for."""
        pitch = self.loader.pitch * (self.plan.tile.bits // 8)
        for index in w.range(self.plan.classes, name="class"):
            shift = (self._first_shift + index * pitch) % PIECE
            for words in range(PIECE // WORD):
                # A shift by nothing is none of the four.
                with w.when((shift - 1 < WORD - 1) if words == 0 else (shift >> 2 == words)):
                    self._shift(w, stage, self.line + index, words, (shift % WORD) * 8)

    def _shift(self, w: Writer, stage: Value, line: Value, words: int, bits: Value) -> None:
        """Shift the lines of a class by so many words and bits: a piece becomes the end of it and what follows."""
        plan, row_bytes = self.plan, self.plan.tile.row_bytes
        image = self.image(w, stage) + line * row_bytes
        last = self.offset == row_bytes - PIECE
        behind = w.select(
            last, self.tails(w, stage) + line * PIECE, image + plan.tile.swizzled(self.offset + PIECE, line), SMEM
        )
        follower = w.variable(SMEM, behind, "follower")
        stride = w.select(last, plan.unit * PIECE, plan.unit * row_bytes)
        own = w.variable(SMEM, image + plan.tile.swizzled(self.offset, line), "own")
        turns = plan.lines // plan.unit
        at_once = next(count for count in range(TURNS_AT_ONCE, 0, -1) if turns % count == 0)
        for _ in w.range(turns // at_once, name="lines"):
            places = [own + turn * plan.unit * row_bytes for turn in range(at_once)]
            pieces = []
            for place in places:
                here = w.isa.memory.load_shared_b32x4(address=place)
                pieces.append((*here, *w.isa.memory.load_shared_b32x4(address=follower)))
                follower.assign(follower + stride)
            w.warp_sync()  # every piece is read by two lanes before it is overwritten
            for place, piece in zip(places, pieces, strict=True):
                pairs = list(pairwise(piece))[words : words + PIECE // WORD]
                moved = [w.ptx.shift.across(low=low, high=high, bits=bits) for low, high in pairs]
                w.isa.memory.store_shared_b32x4(address=place, values=RegisterTile(moved))
            own.assign(own + at_once * plan.unit * row_bytes)


class CpAsyncTile:
    """The copies of one tile: what its k-blocks have in common.

    Positions along a line of the operand are counted in bytes from its first piece, which begins up to 15 bytes before
    the line where lines are shifted.
    """

    def __init__(self, w: Writer, bound: BoundCpAsyncLoader, row: Value, batch: Operand) -> None:
        loader, plan = bound.loader, bound.plan
        self._bound = bound
        self._row = row
        self._size = plan.tile.bits // 8
        self._matrix = loader.address
        if loader.batch_pitch is not None and isinstance(batch, Value):
            self._matrix = loader.address + w.widen_multiply(batch, loader.batch_pitch) * self._size
        self._length = loader.inner * self._size
        self._start = self.address(w, bound.line) + w.widen_multiply(bound.offset, 1)
        groups = -(-plan.lines // (32 * plan.warps)) if plan.shifts else 0
        self._tails = [_Tails(w, self, bound, group) for group in range(groups)]

    def address(self, w: Writer, line: Value) -> Value:
        """Address of the operand's line that is `line` of the tile's first block."""
        if self._bound.plan.tile.major == "k":
            line = line + self._row
        return self._matrix + w.widen_multiply(line, self._bound.loader.pitch) * self._size

    def end(self, w: Writer, address: Value) -> Value:
        """Position of the end of a line that begins at `address`, or whole pieces behind that."""
        return self._length + _shift(w, address) if self._bound.plan.shifts else self._length

    def corner(self, w: Writer, k: Value) -> tuple[Value, Value, Value]:
        """Where the k-block at `k` begins: its position along a line, its distance, and the index of its first line."""
        pitch = self._bound.loader.pitch
        if self._bound.plan.tile.major == "k":
            return k * self._size, w.widen_multiply(k, self._size), self._row
        along = w.widen_multiply(self._row, self._size)
        return self._row * self._size, w.widen_multiply(k, pitch) * self._size + along, k

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Start this thread's copies to `stage` from element `k` on; they are in its open group."""
        loader, plan = self._bound.loader, self._bound.plan
        position, _, first = self.corner(w, k)
        reach = plan.blocks * plan.tile.row_bytes + (PIECE if plan.shifts else 0)
        inside = (position + reach <= self._length) & (first + plan.block_lines <= loader.outer)
        # Of a copy whose size is not known when it is assembled, ptxas makes eight instructions.
        with w.when(inside):
            self._copy(w, stage, k, inside=True)
        with w.when(~inside):
            self._copy(w, stage, k, inside=False)

    def _copy(self, w: Writer, stage: Stage, k: Value, *, inside: bool) -> None:
        """Copy; what may lie beyond the operand's end, piece by piece as far as it goes."""
        bound, plan, loader = self._bound, self._bound.plan, self._bound.loader
        row_bytes = plan.tile.row_bytes
        position, distance, first = self.corner(w, k)
        image = bound.image(w, stage.index)
        step = w.widen_multiply(loader.pitch, plan.unit * self._size)
        copy = getattr(w.ptx.cp_async, f"copy_{plan.copied}")
        start = self._start + distance
        for index in range(plan.classes):
            line, address = bound.line + index, start + w.widen_multiply(loader.pitch, index * self._size)
            target = image + line * row_bytes + plan.tile.swizzled(bound.offset, line)
            sizes: list[Operand] = [plan.copied] * plan.blocks
            if not inside:
                at, end = position + bound.offset, self.end(w, address)
                sizes = [_left(w, at + block * row_bytes, end, plan.copied) for block in range(plan.blocks)]
                room = _left(w, first + line, loader.outer)
            source = _first_piece(address) if plan.shifts else address
            for turn in range(plan.block_lines // plan.unit):
                if turn > 0:
                    source = source + step
                for block, size in enumerate(sizes):
                    to = target + (block * plan.block_lines + turn * plan.unit) * row_bytes
                    piece = (source + block * row_bytes).retyped(GMEM)
                    copy(dst=to, src=piece, bytes=size if inside else w.select(room > turn * plan.unit, size, 0))
        for tails in self._tails:
            tails.load(w, stage, k, inside=inside)


class _Tails:
    """The ninth pieces of 32 lines of a warp: one a lane."""

    def __init__(self, w: Writer, tile: CpAsyncTile, bound: BoundCpAsyncLoader, group: int) -> None:
        plan = bound.plan
        self._tile = tile
        self._bound = bound
        self._lanes = min(32, plan.lines // plan.warps - 32 * group)
        index = bound.lane + 32 * group
        line = (index // plan.classes) * plan.period + index % plan.classes + bound.first
        self._target = line * PIECE
        self._line = line % plan.block_lines if plan.blocks > 1 else line
        row_bytes = plan.tile.row_bytes
        along = (line // plan.block_lines) * row_bytes + row_bytes if plan.blocks > 1 else w.constant(U32, row_bytes)
        self._along = along
        self._start = tile.address(w, self._line) + w.widen_multiply(self._along, 1)

    def load(self, w: Writer, stage: Stage, k: Value, *, inside: bool) -> None:
        """Start the copies to `stage` from element `k` on."""
        if self._lanes == 32:
            self._copy(w, stage, k, inside)
        else:
            with w.when(self._bound.lane < self._lanes):
                self._copy(w, stage, k, inside)

    def _copy(self, w: Writer, stage: Stage, k: Value, inside: bool) -> None:
        position, distance, first = self._tile.corner(w, k)
        size: Operand = PIECE
        if not inside:
            exists = first + self._line < self._bound.loader.outer
            size = w.select(exists, _left(w, position + self._along, self._tile.end(w, self._start), PIECE), 0)
        target = self._bound.tails(w, stage.index) + self._target
        w.ptx.cp_async.copy_16(dst=target, src=_first_piece(self._start + distance).retyped(GMEM), bytes=size)


class LoaderOfCopies(Protocol):
    """Whose copies are in a thread's open group."""

    completes: bool
    """Whether a stage is finished by `complete` once they have landed."""

    def complete(self, w: Writer, stage: Value) -> None:
        """Finish a stage whose copies have landed; by all lanes of the warp that copied."""


class CopyWriter:
    """Groups the copies of a stage, and finishes what has landed.

    Parameters
    ----------
    loaders
        Whose copies.
    """

    def __init__(self, loaders: tuple[LoaderOfCopies, ...]) -> None:
        self._loaders = loaders

    def joined(self, other: Self) -> CopyWriter:
        """The copies of both, which are in a thread's one open group."""
        return CopyWriter((*self._loaders, *other._loaders))

    def commit(self, w: Writer) -> None:
        """Close the group of copies started since the last commit."""
        w.ptx.cp_async.commit()

    def wait(self, w: Writer, pending: int) -> None:
        """Wait until at most `pending` groups are still landing."""
        w.ptx.cp_async.wait(pending=pending)

    def complete(self, w: Writer, stage: Value) -> None:
        """Finish a stage whose copies have landed."""
        finishing = [loader for loader in self._loaders if loader.completes]
        if finishing:
            w.warp_sync()  # a lane may finish what its neighbours have copied
        for loader in finishing:
            loader.complete(w, stage)


def _shift(w: Writer, address: Value) -> Value:
    """Bytes by which an address lies behind the beginning of its piece."""
    result: Value = w.isa.convert.low_word(wide=address) % PIECE
    return result


def _first_piece(address: Value) -> Value:
    """Address of the piece that holds the byte at `address`."""
    return address & -PIECE


def _left(w: Writer, position: Value, end: Value, most: int | None = None) -> Value:
    """What is left from `position` to `end`, but not more than `most`; 0 behind the end."""
    left = end - position
    return w.select(position < end, left if most is None else w.minimum(left, most), 0)
