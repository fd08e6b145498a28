"""The kernel that lays scales out as the tensor core reads them: a CTA an atom, a word of four scales a thread."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from tilekit.arrays import new_arrays, view_of
from tilekit.assembly.types import GMEM
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import U8
from tilekit.kernels.block_scaled.scales import Scales
from tilekit.kernels.plain import CTAS, PlainKernel
from tilekit.kernels.plan import Plan
from tilekit.targets import Target
from tilekit.tile_op.block_scaled import ATOM_BYTES, ATOM_COLUMNS, ATOM_ROWS, ATOM_SCALES
from tilekit.tiles.call import fits

LANES = ATOM_ROWS // ATOM_COLUMNS
"""Rows whose words lie one behind another, 16 bytes apart."""


class LayoutKernel(PlainKernel):
    """Copies scales, a byte each, from a matrix of any strides to atoms of 128 rows and 4 scales, zeros behind it."""

    source = "scales"
    threads = ATOM_ROWS
    name = "lay_out_scales"

    def described(self) -> str:
        """What a CTA does."""
        return f"{self.name} for {self.target.name}: a CTA lays out {ATOM_BYTES} bytes, a thread {ATOM_SCALES}"

    def _trace(self, w: Writer) -> None:
        source, target = self._pointer(w, self.source), self._pointer(w, "out")
        n = {name: self._number(w, name) for name in ("rows", "count", "row_pitch", "scale_pitch", "along")}
        thread, atom = w.thread(), w.cta()
        block = atom // n["along"]
        row = block * ATOM_ROWS + (thread // ATOM_COLUMNS + thread % ATOM_COLUMNS * LANES)
        first = (atom - block * n["along"]) * ATOM_SCALES
        start = source + w.widen_multiply(row, n["row_pitch"])
        word: Value | None = None
        for scale in reversed(range(ATOM_SCALES)):
            column = first + scale
            value = w.isa.memory.load_global_u8(
                address=(start + w.widen_multiply(column, n["scale_pitch"])).retyped(GMEM),
                valid=(row < n["rows"]) & (column < n["count"]),
            )
            word = value if word is None else (word << 8) | value
        place = w.widen_multiply(atom, ATOM_BYTES) + w.widen_multiply(thread, ATOM_SCALES)
        w.isa.memory.store_global_b32(address=(target + place).retyped(GMEM), value=word)

    def plan(self, scales: Scales, out: Any, device: str | None) -> Plan:
        """Prepare the launch that lays `scales` out in `out`."""
        blocks, along = scales.laid_out[:2]
        row_pitch, scale_pitch = (fits(f"a stride of {scales.view.dtype} scales", one) for one in scales.view.strides)
        numbers = {"rows": scales.rows, "count": scales.count, "row_pitch": row_pitch, "scale_pitch": scale_pitch}
        return self.bound(scales.view, out, {**numbers, "along": along, CTAS: blocks * along}, device)


layout_kernel = cache(LayoutKernel)
"""The kernel of a chip."""


def laid_out(scales: Scales, target: Target, device: str | None, stream: Any = None) -> Scales:
    """Return the same scales in a new array, laid out in the order of `stream`."""
    out = new_arrays(scales.view, scales.laid_out, U8)(stream)
    if 0 not in scales.laid_out:
        layout_kernel(target).plan(scales, out, device)(stream)
    return replace(scales, view=replace(view_of(out), dtype=scales.view.dtype), plain=False)
