"""Epilogue that quantises: a scale for each block of a row, made of its largest element, and elements divided by it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Literal

from tilekit.assembly.fit import checked, component
from tilekit.assembly.legal import OWN_RULE, Count, illegal
from tilekit.assembly.shared import SharedDeclaration
from tilekit.assembly.types import F32, GMEM, S32, U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Role, Writer, require_warpgroups
from tilekit.dtypes import E2M1X2, E4M3, UE8M0, DType
from tilekit.epilogue.elements import store_element
from tilekit.epilogue.fusion import Fusion, enter, require_fusion
from tilekit.epilogue.row_images import SWIZZLES, Keep, RowImages
from tilekit.tile_op.accumulators import AccumulatorLayout, Warpgroup
from tilekit.tile_op.block_scaled import (
    ATOM_BYTES,
    ATOM_COLUMNS,
    ATOM_ROWS,
    ATOM_SCALES,
    FORMATS,
    ScaleFormat,
)
from tilekit.tile_op.tensor_accumulators import TensorConsumer
from tilekit.tiles.tile import Side, Tile

ScaleLayout = Literal["rows", "128x4"]
"""How scales of a result lie: as a matrix, or as the tensor core reads them."""

AT_ONCE = 32
"""Columns that are read from tensor memory together: a block, or two."""

TOP = {"e4m3": 8, "e2m1x2": 2}
"""The largest power of two of an element type."""

NO_NUMBER = 255
"""The scale, and the exponent in an f32, of what is no number."""

SMALLEST_NORMAL = 2.0**-126
"""Of f32: smaller numbers have an inverse beyond the largest."""

LANES = 32
"""Rows of an atom of scales that lie one behind another, 16 bytes apart."""


def element_of(found: ScaleFormat) -> DType:
    """What a byte of a result in a format holds."""
    return E4M3 if found.packed == 1 else E2M1X2


@component
class QuantisedEpilogue:
    """Every thread has a row of the tile in tensor memory, and so whole blocks of it, which it quantises and stores.

    Values, ``d``, leave through shared memory and the copy engine, or byte by byte from registers. Of scales,
    ``out_scales``, a thread stores a byte a block, or where they are laid out a word for four.

    Parameters
    ----------
    w
        The writer; addresses, the values' tensor map and pitches become kernel parameters.
    layout
        How a warpgroup holds the accumulators: 128 rows, those of the tile.
    functions
        What is done with each element before.
    scaled
        The format.
    rows, columns
        M and N.
    whole
        Of NVFP4, the scale of the whole, f32.
    role
        The role that stores, where values leave through shared memory: their rows are multiples of 16 bytes. None: from
        registers.
    buffers
        Images in flight of each warp, up to 128 bytes of its rows.
    scale_layout
        ``"rows"``, or ``"128x4"``: atoms of 128 rows and 4 scales, zeros behind the last of either.

    Raises
    ------
    TraceError
        ``TK-EPI-001`` for functions that do not fit, ``TK-PART-001`` for a layout without whole rows.
    """

    side: ClassVar[Side] = "rows"
    """Along what of a tile the accumulators' rows go."""

    def __init__(
        self,
        w: Writer,
        layout: AccumulatorLayout,
        functions: Annotated[Fusion, OWN_RULE],
        *,
        scaled: Literal["mxfp8", "mxfp4", "nvfp4"],
        rows: Value,
        columns: Value,
        whole: Value | None = None,
        role: Role | None = None,
        buffers: Count = 2,
        scale_layout: ScaleLayout = "rows",
    ) -> None:
        require_fusion(functions, type(self).__name__, transposed=False, source=None)
        if functions.reduces_rows:
            given = f"a {type(functions).__name__} that combines elements of a row"
            raise illegal("QuantisedEpilogue", "functions", given, "functions of elements alone")
        self.scaled = FORMATS[scaled]
        if (whole is None) != (self.scaled.scale is UE8M0):
            legal = "an f32 value of nvfp4" if whole is None else "None: of nvfp4 alone there is a scale of the whole"
            raise illegal("QuantisedEpilogue", "whole", whole, legal)
        self.laid_out, self.out = scale_layout == "128x4", element_of(self.scaled)
        step = ATOM_SCALES * self.scaled.block if self.laid_out else AT_ONCE
        step = max(step, SWIZZLES[-1] * self.out.packed if role is not None else 0)
        if (layout.blocks, layout.rows, len(layout.parts)) != (1, ATOM_ROWS, 1) or layout.columns % step:
            given = f"{layout.blocks} of {layout.rows} rows in {len(layout.parts)} parts, {layout.columns} columns"
            legal = f"{ATOM_ROWS} rows of the tile, each a thread's, and columns in steps of {step}"
            raise illegal("QuantisedEpilogue", "layout", given, legal)
        self.layout, self.functions = layout, functions
        self.rows, self.columns, self.whole = rows, columns, whole
        self.images: RowImages | None = None
        if role is not None:
            require_warpgroups("QuantisedEpilogue", "role", role, layout.waves)
            self.images = RowImages(w, out=self.out, columns=layout.columns, role=role, buffers=buffers)
        else:
            self.address = w.parameter("d", GMEM, lambda call: call.address("d"))
            self.pitch = w.parameter("row_pitch", U32, lambda call: call.matrix("d").row_pitch)
        self.scales = w.parameter("out_scales", GMEM, lambda call: call.address("out_scales"))
        if not self.laid_out:
            self.scale_pitch = w.parameter("out_scale_pitch", U32, lambda call: call.matrix("out_scales").row_pitch)

    @staticmethod
    def declared(layout: AccumulatorLayout, scaled: str, *, warps: int, buffers: int) -> tuple[SharedDeclaration, ...]:
        """Shared memory that it takes where values leave through it."""
        return RowImages.declared(element_of(FORMATS[scaled]), layout.columns, warps=warps, buffers=buffers)

    def prefetch(self, w: Writer) -> None:
        """Bring the output's tensor map close."""
        if self.images is not None:
            self.images.storer.prefetch(w)

    def initialise(self, w: Writer) -> None:
        """Nothing to prepare: there are no barriers."""

    @checked
    def bind(self, w: Writer, group: Warpgroup) -> BoundQuantised:
        """Prepare a thread's row; once a role."""
        return BoundQuantised(w, self, group)


class _FromRegisters:
    """Values that threads store themselves, a byte at a time, those that the output has."""

    def __init__(self, epilogue: QuantisedEpilogue, row: Value) -> None:
        self._e, self._row = epilogue, row
        self.columns = epilogue.layout.columns

    @contextmanager
    def piece(self, w: Writer, tile: Tile, index: int) -> Iterator[Keep]:
        """What stores elements of the row from a column on."""
        e = self._e
        row, packed = tile.row + self._row, e.out.packed
        inside = row < e.rows
        line = e.address + w.widen_multiply(row, e.pitch)

        def keep(left: int, values: Sequence[Value]) -> None:
            start = line + w.widen_multiply((tile.column + left) // packed, 1)
            for at in range(0, len(values), packed):
                valid = inside & (tile.column + (left + at) < e.columns)
                address = (start + at // packed).retyped(GMEM)
                _store_byte(w, e.out, address, values[at : at + packed], valid)

        yield keep

    def finish(self, w: Writer) -> None:
        """Nothing in flight: the stores are the threads' own."""


def _store_byte(w: Writer, dtype: DType, address: Value, values: Sequence[Value], valid: Value) -> None:
    """Round an f32 to 8 bits, or two to e2m1, and store the byte if `valid`."""
    if dtype != E2M1X2:
        store_element(w, dtype, address=address, value=values[0], valid=valid)
        return
    byte = w.ptx.quantise.pack_e2m1x4(first=values[0], second=values[1], third=0.0, fourth=0.0)
    w.isa.memory.store_global_b8(address=address, value=byte, valid=valid)


class _ScaleRows:
    """Scales that lie as a matrix: a byte of each block that the output has."""

    together = 1
    """Scales that are kept at once."""

    def __init__(self, epilogue: QuantisedEpilogue, row: Value) -> None:
        self._e, self._row = epilogue, row

    def at(self, w: Writer, tile: Tile) -> Keep:
        """What keeps the scales of a tile's blocks, from a column of it on."""
        e, size = self._e, self._e.scaled.block
        row = tile.row + self._row
        inside = row < e.rows
        line = e.scales + w.widen_multiply(row, e.scale_pitch)

        def keep(left: int, codes: Sequence[Value]) -> None:
            for index, code in enumerate(codes):
                column = tile.column + (left + index * size)
                place = (line + w.widen_multiply(column // size, 1)).retyped(GMEM)
                valid = inside & (column < e.columns)
                w.isa.memory.store_global_b8(address=place, value=w.isa.convert.narrow_u16(wide=code), valid=valid)

        return keep


class _ScaleAtoms:
    """Scales as the tensor core reads them: a word of four in an atom of 128 rows, zeros of rows that there are not."""

    together = ATOM_SCALES

    def __init__(self, epilogue: QuantisedEpilogue, row: Value) -> None:
        self._e, self._row = epilogue, row
        self._step = ATOM_SCALES * epilogue.scaled.block
        self._along = (epilogue.columns + (self._step - 1)) // self._step
        # Words of rows 32 apart lie side by side.
        self._place = row % LANES * (ATOM_COLUMNS * ATOM_SCALES) + row // LANES * ATOM_SCALES

    def at(self, w: Writer, tile: Tile) -> Keep:
        """What keeps the scales of a tile's blocks, fours of them; its rows are those of an atom."""
        e = self._e
        inside, exists = tile.row + self._row < e.rows, tile.row < e.rows
        line, first_atom = e.scales + w.widen_multiply(self._place, 1), tile.row // ATOM_ROWS * self._along

        def keep(left: int, codes: Sequence[Value]) -> None:
            for first in range(0, len(codes), ATOM_SCALES):
                word = codes[first + ATOM_SCALES - 1]
                for code in reversed(codes[first : first + ATOM_SCALES - 1]):
                    word = (word << 8) | code
                column = tile.column + (left + first * e.scaled.block)
                place = line + w.widen_multiply(first_atom + column // self._step, ATOM_BYTES)
                bits = w.isa.convert.bits_f32(whole=w.select(inside, word, 0).retyped(S32))
                valid = exists & (column < e.columns)
                w.isa.memory.store_global_f32(address=place.retyped(GMEM), value=bits, valid=valid)

        return keep


class BoundQuantised:
    """A `QuantisedEpilogue` in a role."""

    def __init__(self, w: Writer, epilogue: QuantisedEpilogue, group: Warpgroup) -> None:
        self._e = e = epilogue
        e.functions.bind(w)
        self._thread = group.thread
        self._way = _FromRegisters(e, group.thread) if e.images is None else e.images.bind(w, group)
        self._largest = None if e.whole is None else e.whole * 6.0
        self._scales = (_ScaleAtoms if e.laid_out else _ScaleRows)(e, group.thread)

    def store(self, w: Writer, accumulators: TensorConsumer, tile: Tile) -> None:
        """Quantise and store this thread's row of `tile`."""
        e, size, width = self._e, self._e.scaled.block, self._way.columns
        enter(w, e.functions, tile)
        keep_scales = self._scales.at(w, tile)
        codes: list[Value] = []
        rows = None
        if e.functions.uses_rows:
            rows = e.functions.rows(w, tile.row + self._thread, apart=0, batch=tile.batch)
        for index, first in enumerate(range(0, e.layout.columns, width)):
            with self._way.piece(w, tile, index) as keep:
                for left in range(first, first + width, AT_ONCE):
                    sums = accumulators.row(w, left, AT_ONCE)
                    if left + AT_ONCE >= e.layout.columns:
                        accumulators.done(w)
                    values = self._applied(w, sums, tile.column + left, tile, rows)
                    scaled: list[Value] = []
                    for block in range(0, AT_ONCE, size):
                        code, divided = self._divided(w, values[block : block + size])
                        scaled += divided
                        codes.append(code)
                    keep(left, scaled)
                    if len(codes) >= self._scales.together:
                        keep_scales(left + AT_ONCE - len(codes) * size, codes)
                        codes = []

    def finish(self, w: Writer) -> None:
        """Wait for what the stores read."""
        self._way.finish(w)

    def _applied(self, w: Writer, sums: RegisterTile, column: Value, tile: Tile, rows: Any) -> list[Value]:
        """What the functions make of sums from `column` on; zeros where the output has ended, whatever was summed."""
        e, values = self._e, []
        for first in range(0, len(sums), 2):
            pair = e.functions.columns(w, column + first, batch=tile.batch)
            for odd in range(2):
                value = e.functions.apply(w, sums[first + odd], pair, odd, rows, 0)
                values.append(w.select(column + (first + odd) < e.columns, value, 0.0, F32))
        return values

    def _divided(self, w: Writer, block: list[Value]) -> tuple[Value, list[Value]]:
        """The scale of a block, and its elements divided by it."""
        most = w.constant(U32, 0)
        for value in block:
            most = w.ptx.quantise.larger_size(value=value, most=most)
        if self._largest is None:
            return self._power(w, most, block)
        return self._quotient(w, most, block, self._largest)

    def _power(self, w: Writer, most: Value, block: list[Value]) -> tuple[Value, list[Value]]:
        """A power of two: that of the largest element, over that of the type's. Its inverse is exact."""
        top = TOP[self._e.out.name]
        exponent = most >> 23
        code = w.select(exponent > top, exponent - top, 0)
        code = w.select(exponent == NO_NUMBER, NO_NUMBER, code)
        inverse = w.select(code == NO_NUMBER, NO_NUMBER << 23 | 1 << 22, (254 - code) << 23)
        factor = w.isa.convert.bits_f32(whole=inverse.retyped(S32))
        return code, [value * factor for value in block]

    def _quotient(self, w: Writer, most: Value, block: list[Value], largest: Value) -> tuple[Value, list[Value]]:
        """e4m3: the largest element over the type's and the whole's scale; both are multiplied as f32."""
        quantise, convert = w.ptx.quantise, w.isa.convert
        size = convert.bits_f32(whole=most.retyped(S32))
        pair = convert.pack_e4m3(low=quantise.divide_nearest(a=size, b=largest), high=0.0)
        code = convert.join_bytes(first=pair, second=convert.narrow_u16(wide=w.constant(U32, 0)))
        half, _ = convert.widen_fp8x4(packed=code, type="e4m3")
        low, _ = convert.unpack(packed=half)
        factor = convert.widen_f16(narrow=low) * self._e.whole
        factor = w.select(factor < SMALLEST_NORMAL, 1.0, factor, F32)
        inverse = quantise.divide_nearest(a=w.constant(F32, 1.0), b=factor)
        return code.retyped(U32), [value * inverse for value in block]


__all__ = ["QuantisedEpilogue"]
