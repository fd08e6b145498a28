"""Epilogue that quantises: a scale for each block of a row, made of its largest element, and elements divided by it."""

from __future__ import annotations

from typing import Annotated

from tilekit.assembly.fit import OWN_RULE, component
from tilekit.assembly.types import F32, GMEM, S32, U32
from tilekit.assembly.values import RegisterTile, Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import UE8M0, DType
from tilekit.epilogue.fusion import Fusion, require_fusion
from tilekit.tile_op.accumulators import AccumulatorLayout, Warpgroup
from tilekit.tile_op.block_scaled import ScaleFormat
from tilekit.tile_op.tensor_accumulators import TensorConsumer
from tilekit.tiles.tile import Tile

AT_ONCE = 32
"""Columns that are read from tensor memory together: a block, or two."""

TOP = {"e4m3": 8, "e2m1x2": 2}
"""The largest power of two of an element type."""

NO_NUMBER = 255
"""The scale, and the exponent in an f32, of what is no number."""


@component
class QuantisedEpilogue:
    """Every thread has a row of the tile in tensor memory, and so whole blocks of it, which it quantises and stores.

    Elements come from registers in pieces of 16 bytes, or where the output does not allow that, byte by byte; of each
    block's scale a byte.

    Parameters
    ----------
    w
        The writer; addresses and row pitches of elements and scales become kernel parameters, and of a format whose
        scales are no powers of two the scale of the whole.
    layout
        How a warpgroup holds the accumulators.
    functions
        What is done with each element before.
    scaled
        The format.
    out
        What a byte of the output holds.
    rows, columns
        M and N.
    wide
        Whether address, pitch and rows of the output are multiples of 16 bytes.

    Raises
    ------
    TraceError
        ``TK-EPI-001`` for functions that do not fit.
    """

    def __init__(
        self,
        w: Writer,
        layout: AccumulatorLayout,
        functions: Annotated[Fusion, OWN_RULE],
        *,
        scaled: ScaleFormat,
        out: DType,
        rows: Value,
        columns: Value,
        wide: bool,
    ) -> None:
        require_fusion(functions, type(self).__name__, transposed=False, source=None)
        self.layout, self.functions, self.scaled, self.out = layout, functions, scaled, out
        self.rows, self.columns, self.wide = rows, columns, wide
        self.address = w.parameter("d", GMEM, lambda call: call.address("d"))
        self.pitch = w.parameter("row_pitch", U32, lambda call: call.matrix("d").row_pitch)
        self.scales = w.parameter("out_scales", GMEM, lambda call: call.address("out_scales"))
        self.scale_pitch = w.parameter("out_scale_pitch", U32, lambda call: call.number("out_scale_pitch"))
        if scaled.scale is not UE8M0:
            self.whole = w.parameter("out_scale", F32, lambda call: call.number("out_scale"))
            self.largest = w.parameter("out_largest", F32, lambda call: call.number("out_largest"))

    def prefetch(self, w: Writer) -> None:
        """Nothing to prefetch: there is no tensor map."""

    def initialise(self, w: Writer) -> None:
        """Nothing to prepare: threads store for themselves."""

    def bind(self, w: Writer, group: Warpgroup) -> BoundQuantised:
        """Prepare a thread's row; once a role."""
        return BoundQuantised(w, self, group)


class BoundQuantised:
    """A `QuantisedEpilogue` in a role."""

    def __init__(self, w: Writer, epilogue: QuantisedEpilogue, group: Warpgroup) -> None:
        self._e = epilogue
        epilogue.functions.bind(w)
        self._row = group.thread

    def store(self, w: Writer, accumulators: TensorConsumer, tile: Tile) -> None:
        """Quantise and store this thread's row of `tile`."""
        e, size = self._e, self._e.scaled.block
        row = tile.row + self._row
        inside = row < e.rows
        line = e.address + w.widen_multiply(row, e.pitch)
        scales = e.scales + w.widen_multiply(row, e.scale_pitch)
        for left in range(0, e.layout.columns, AT_ONCE):
            sums = accumulators.row(w, left, AT_ONCE)
            if left + AT_ONCE >= e.layout.columns:
                accumulators.done(w)
            column = tile.column + left
            values = self._applied(w, sums, column, tile)
            scaled: list[Value] = []
            for first in range(0, AT_ONCE, size):
                block = values[first : first + size]
                code, divided = self._divided(w, block)
                scaled += divided
                place = (scales + w.widen_multiply((column + first) // size, 1)).retyped(GMEM)
                valid = inside & (column + first < e.columns)
                w.isa.memory.store_global_b8(address=place, value=code, valid=valid)
            self._store(w, line, scaled, column, inside)

    def finish(self, w: Writer) -> None:
        """Nothing in flight: the stores are the threads' own."""

    def _applied(self, w: Writer, sums: RegisterTile, column: Value, tile: Tile) -> list[Value]:
        """What the functions make of sums from `column` on; zeros where the output has ended, whatever was summed."""
        e, values = self._e, []
        for first in range(0, len(sums), 2):
            pair = e.functions.columns(w, column + first, batch=tile.batch)
            for odd in range(2):
                value = e.functions.apply(w, sums[first + odd], pair, odd, None, 0)
                values.append(w.select(column + (first + odd) < e.columns, value, 0.0, F32))
        return values

    def _divided(self, w: Writer, block: list[Value]) -> tuple[Value, list[Value]]:
        """The scale of a block, and its elements divided by it."""
        most = w.constant(U32, 0)
        for value in block:
            most = w.ptx.quantise.larger_size(value=value, most=most)
        if self._e.scaled.scale is UE8M0:
            return self._power(w, most, block)
        return self._quotient(w, most, block)

    def _power(self, w: Writer, most: Value, block: list[Value]) -> tuple[Value, list[Value]]:
        """A power of two: that of the largest element, over that of the type's. Its inverse is exact."""
        top = TOP[self._e.out.name]
        exponent = most >> 23
        code = w.select(exponent > top, exponent - top, 0)
        code = w.select(exponent == NO_NUMBER, NO_NUMBER, code)
        inverse = w.select(code == NO_NUMBER, NO_NUMBER << 23 | 1 << 22, (254 - code) << 23)
        factor = w.isa.convert.bits_f32(whole=inverse.retyped(S32))
        return w.isa.convert.narrow_u16(wide=code), [value * factor for value in block]

    def _quotient(self, w: Writer, most: Value, block: list[Value]) -> tuple[Value, list[Value]]:
        """e4m3: the largest element over the type's and the whole's scale; both are multiplied as f32."""
        e, quantise, convert = self._e, w.ptx.quantise, w.isa.convert
        size = convert.bits_f32(whole=most.retyped(S32))
        code = convert.pack_e4m3(low=quantise.divide_nearest(a=size, b=e.largest), high=0.0)
        half, _ = convert.widen_fp8x4(packed=convert.join_bytes(first=code, second=code), type="e4m3")
        low, _ = convert.unpack(packed=half)
        factor = convert.widen_f16(narrow=low) * e.whole
        factor = w.select(factor == 0.0, 1.0, factor, F32)
        return code, [quantise.divide_nearest(a=value, b=factor) for value in block]

    def _store(self, w: Writer, line: Value, values: list[Value], column: Value, inside: Value) -> None:
        """Pack elements from `column` on and store those that the output has."""
        e = self._e
        join = w.isa.convert.join_bytes
        if e.out.packed == 2:
            pack = w.ptx.quantise.pack_e2m1x4
            halves = [
                pack(first=a, second=b, third=c, fourth=d)
                for a, b, c, d in zip(*(values[at::4] for at in range(4)), strict=True)
            ]
        else:
            pack = w.isa.convert.pack_e4m3
            halves = [pack(low=low, high=high) for low, high in zip(values[::2], values[1::2], strict=True)]
        each = 2 * e.out.packed
        start = line + w.widen_multiply(column // e.out.packed, 1)
        if e.wide:
            words = [join(first=low, second=high) for low, high in zip(halves[::2], halves[1::2], strict=True)]
            for first in range(0, len(words), 4):
                valid = inside & (column + 2 * first * each < e.columns)
                w.isa.memory.store_global_b32x4(
                    address=(start + 4 * first).retyped(GMEM),
                    values=RegisterTile(words[first : first + 4]),
                    valid=valid,
                )
            return
        for index, half in enumerate(halves):
            high = w.isa.convert.narrow_u16(wide=join(first=half, second=half).retyped(U32) >> 8)
            for odd, byte in enumerate((half, high)):
                at = 2 * index + odd
                valid = inside & (column + at * e.out.packed < e.columns)
                w.isa.memory.store_global_b8(address=(start + at).retyped(GMEM), value=byte, valid=valid)


__all__ = ["QuantisedEpilogue"]
