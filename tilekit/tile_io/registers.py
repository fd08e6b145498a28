"""TileIO through registers on every chip: the load role's threads load from global memory and write to the image.

Nothing but ordinary loads and stores: no copy engine, no asynchronous copies, no buffers. The image is the one TMA
makes. Where rows of the operand begin at multiples of 16 bytes, and a k-block ends inside it, a thread loads pieces of
16 bytes; else element by element, so that any address, any pitch and any extent will do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Final

from tilekit.assembly.errors import TraceError
from tilekit.assembly.fit import component
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.types import B32, GMEM, U32
from tilekit.assembly.values import Operand, RegisterTile, Value
from tilekit.assembly.writer import Role, Writer
from tilekit.tile_io.pieces import PIECE, PIECES, BoundPieces
from tilekit.tiles.call import Call, fits
from tilekit.tiles.cluster import Multicast, require_alone
from tilekit.tiles.operand import ATOM_ROWS, SWIZZLE_BYTES, OperandTile
from tilekit.tiles.stage import Stage

WORD_BITS: Final = 32

AT_ONCE: Final = 4
"""Pieces that a thread has in registers."""

Load = Callable[[Writer, Value, Value], RegisterTile]
"""Loads a thread's piece, given its line of the operand and its first element there."""


@component
class RegisterLoader:
    """Loads one operand's tiles from global memory through registers to shared memory, zeros where K ends.

    Rows of M or N behind the operand's last one are zeros or repeat it: no sum of theirs is stored.

    Parameters
    ----------
    w
        The writer. The operand's address (``<name>``), its extents along the contiguous dimension and the other one
        (``<name>_inner``, ``<name>_outer``) and its pitch (``<name>_pitch``, all in elements) become kernel parameters;
        with a batch also ``<name>_batch_pitch``.
    tile
        The image to fill.
    role
        The role that loads, all of its threads.
    batched
        Whether the operand has a batch dimension.

    Raises
    ------
    TraceError
        ``TK-TRACE-017`` for a tile that the role's threads cannot share out.
    """

    prefetches = False
    """Threads bring nothing into L2 ahead of time."""

    def __init__(self, w: Writer, tile: OperandTile, *, role: Role, batched: bool = False) -> None:
        self.tile = tile
        self.batched = batched
        self.first_thread = w.lanes * role.warps.start
        self.lines_apart = w.lanes * len(role.warps) // PIECES
        self._check(role)
        name = tile.name
        w.uses(self, "tile", name, dtype=tile.dtype, contiguous=tile.major)
        self.address = w.parameter(name, GMEM, lambda call: call.address(name))
        self.inner = w.parameter(f"{name}_inner", U32, lambda call: self._extent(call, 0))
        self.outer = w.parameter(f"{name}_outer", U32, lambda call: self._extent(call, 1))
        self.pitch = w.parameter(f"{name}_pitch", U32, lambda call: call.matrix(name).row_pitch)
        self.batch_pitch = None
        if batched:
            self.batch_pitch = w.parameter(f"{name}_batch_pitch", U32, lambda call: call.matrix(name).matrix_pitch)

    def _check(self, role: Role) -> None:
        tile = self.tile
        if tile.swizzle_bytes != SWIZZLE_BYTES or tile.bits not in (8, 16, 32) or tile.swizzle.atom != PIECE:
            raise TraceError(
                f"RegisterLoader fills images of elements of 8, 16 or 32 bits whose swizzle of {SWIZZLE_BYTES} bytes "
                f"keeps {PIECE} together; tile {tile.name!r} has elements of {tile.bits} bits, major={tile.major!r} "
                f"and swizzle_bytes={tile.swizzle_bytes}; nearest: major='k', swizzle_bytes={SWIZZLE_BYTES}",
                code="TK-TRACE-017",
            )
        if role.one_thread:
            raise TraceError(
                f"one thread of role {role.name!r} loads no tile {tile.name!r}: a RegisterLoader is for all threads of "
                "its role; nearest: one_thread=False",
                code="TK-TRACE-017",
            )
        apart = self.lines_apart
        if apart % ATOM_ROWS or self.block_lines % apart:
            unit = apart if apart % ATOM_ROWS == 0 else ATOM_ROWS * apart
            nearest = -(-self.block_lines // unit) * unit
            raise TraceError(
                f"{len(role.warps)} warps of role {role.name!r} load {apart} lines of tile {tile.name!r} at once: "
                f"whole swizzles of {ATOM_ROWS} lines, of its {self.block_lines}; nearest: {nearest} lines, or another "
                "number of warps",
                code="TK-TRACE-017",
            )

    def _extent(self, call: Call, axis: int) -> int:
        matrix = call.matrix(self.tile.name)
        # Threads count to the end of a tile beyond the last element.
        return fits(f"{matrix.name}'s extent {axis}", matrix.extents[axis] + self.tile.bytes) - self.tile.bytes

    @property
    def elements(self) -> int:
        """Elements of a piece."""
        return 8 * PIECE // self.tile.bits

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return self.tile.bits // 8

    @property
    def block_lines(self) -> int:
        """Lines of the image that are one pitch of the operand apart."""
        return self.tile.image_rows if self.tile.major == "k" else self.tile.slice_k

    @property
    def places(self) -> list[tuple[int, int]]:
        """What a thread loads of a stage: blocks of lines, and lines of a block behind its first one."""
        blocks = self.tile.bytes // (self.block_lines * SWIZZLE_BYTES)
        return [(block, line) for block in range(blocks) for line in range(0, self.block_lines, self.lines_apart)]

    def prefetch(self, w: Writer) -> None:
        """Nothing to prefetch: there is no tensor map."""

    def bind(self, w: Writer, stages: SharedArray, multicast: Multicast | None) -> BoundRegisterLoader:
        """Prepare this thread's places in a stage; once a role."""
        require_alone(self, self.tile.name, multicast, other="TmaLoader" if w.target.has("copy_engine") else "")
        return BoundRegisterLoader(w, self, stages)


class BoundRegisterLoader(BoundPieces):
    """A `RegisterLoader` in a role; `along` counts elements."""

    writer = None

    def __init__(self, w: Writer, loader: RegisterLoader, stages: SharedArray) -> None:
        self.loader = loader
        super().__init__(w, loader.first_thread, loader.elements, stages)

    def at(self, w: Writer, row: Value, batch: Operand, k: Operand) -> RegisterTileCopies:
        """Turn to the tile at `row` of M or N; once a tile."""
        return RegisterTileCopies(w, self, row, batch)


class RegisterTileCopies:
    """The loads of one tile: what its k-blocks have in common."""

    def __init__(self, w: Writer, bound: BoundRegisterLoader, row: Value, batch: Operand) -> None:
        loader = bound.loader
        self._bound = bound
        self._row = row
        self._matrix = loader.address
        if loader.batch_pitch is not None and isinstance(batch, Value):
            self._matrix = loader.address + w.widen_multiply(batch, loader.batch_pitch) * loader.size
        first = w.isa.convert.low_word(wide=self._matrix.retyped(GMEM))
        self._aligned = ((first | loader.pitch * loader.size) & (PIECE - 1)) == 0

    def load(self, w: Writer, stage: Stage, k: Value) -> None:
        """Copy this thread's pieces to `stage` from element `k` on."""
        tile, loader = self._bound.loader.tile, self._bound.loader
        inside = k + tile.k <= (loader.inner if tile.major == "k" else loader.outer)
        if tile.major != "k":
            inside = inside & (self._row + tile.image_rows <= loader.inner)
        whole = inside & self._aligned
        with w.when(whole):
            self._copy(w, stage, k, self._piece)
        with w.when(~whole):
            self._copy(w, stage, k, self._elements)

    def _copy(self, w: Writer, stage: Stage, k: Value, load: Load) -> None:
        """Have as many pieces on their way as registers allow before the first one is written."""
        loader = self._bound.loader
        image = self._bound.image(w, stage.index)
        for first in range(0, len(loader.places), AT_ONCE):
            places = loader.places[first : first + AT_ONCE]
            pieces = [load(w, *self._place(k, block, line)) for block, line in places]
            for (block, line), piece in zip(places, pieces, strict=True):
                address = image + (block * loader.block_lines + line) * SWIZZLE_BYTES
                w.isa.memory.store_shared_b32x4(address=address, values=piece)

    def _place(self, k: Value, block: int, line: int) -> tuple[Value, Value]:
        """Line of the operand, and the first element there, of the thread's piece of a line of a block."""
        tile, bound = self._bound.loader.tile, self._bound
        if tile.major == "k":  # blocks are slices of K
            return self._row + bound.line + line, k + bound.along + block * tile.slice_k
        part, chunk = divmod(block, tile.image_rows // tile.chunk)  # blocks are chunks of M or N in slices of K
        return k + bound.line + (part * tile.slice_k + line), self._row + bound.along + chunk * tile.chunk

    def _start(self, w: Writer, line: Value, element: Value) -> Value:
        loader = self._bound.loader
        start = self._matrix + w.widen_multiply(line, loader.pitch) * loader.size
        return (start + w.widen_multiply(element, loader.size)).retyped(GMEM)

    def _piece(self, w: Writer, line: Value, element: Value) -> RegisterTile:
        """The whole of it: rows of M or N behind the operand's are as its last one."""
        last = self._bound.loader.outer - 1
        piece: RegisterTile = w.isa.memory.load_global_b32x4(address=self._start(w, w.minimum(line, last), element))
        return piece

    def _elements(self, w: Writer, line: Value, element: Value) -> RegisterTile:
        """Each of its elements, where the operand has it, else 0."""
        loader, bits = self._bound.loader, self._bound.loader.tile.bits
        load = getattr(w.isa.memory, f"load_global_u{bits}")
        start, exists = self._start(w, line, element), line < loader.outer
        values = [
            load(address=(start + index * loader.size).retyped(GMEM), valid=exists & (element + index < loader.inner))
            for index in range(loader.elements)
        ]
        each = WORD_BITS // bits
        words = [values[first : first + each] for first in range(0, len(values), each)]
        return RegisterTile([_joined(word, bits).retyped(B32) for word in words])


def _joined(values: list[Value], bits: int) -> Value:
    """A word of some values of so many bits, the lowest first."""
    shifted = [value << (bits * index) if index else value for index, value in enumerate(values)]
    return reduce(lambda one, other: one | other, shifted)
