"""The kernel that adds matrices of f32 which lie one behind the other: the parts of a sum that launches have made."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

from tilekit.arrays import view_of
from tilekit.assembly.types import F32, GMEM
from tilekit.assembly.writer import Writer
from tilekit.dtypes import DType
from tilekit.epilogue.elements import store_element
from tilekit.kernels.plain import CTAS, PlainKernel
from tilekit.targets import Target
from tilekit.tiles.call import fits

TOGETHER = 4
"""Parts that a thread loads at once."""


class AdditionKernel(PlainKernel):
    """A thread adds an element of every part, in their order, and rounds the sum once."""

    def __init__(self, dtype: DType, target: Target) -> None:
        self.dtype = dtype
        super().__init__(target)

    @property
    def name(self) -> str:
        """The entry's symbol."""
        return f"add_parts_{self.dtype.name}"

    def described(self) -> str:
        """What a thread does."""
        return f"{self.name} for {self.target.name}: a thread adds an element of every part"

    def _trace(self, w: Writer) -> None:
        source, out = self._pointer(w, "source"), self._pointer(w, "out")
        total, parts = self._number(w, "total"), self._number(w, "parts")
        element = w.cta() * self.threads + w.thread()
        inside = element < total
        total_sum = w.variable(F32, 0.0, "sum")
        for first in w.range(parts, step=TOGETHER, name="part"):
            values = []
            for part in range(TOGETHER):
                place = w.widen_multiply(first + part, total) + w.widen_multiply(element, 1)
                values.append(
                    w.isa.memory.load_global_f32(
                        address=(source + place * (F32.bits // 8)).retyped(GMEM),
                        valid=inside & (first + part < parts),
                    )
                )
            for value in values:
                total_sum.assign(total_sum + value)
        place = (out + w.widen_multiply(element, self.dtype.bytes)).retyped(GMEM)
        store_element(w, self.dtype, address=place, value=total_sum, valid=inside)


_kernel = cache(AdditionKernel)


def add_parts(parts: Any, out: Any, *, target: Target, device: str | None, stream: Any = None) -> None:
    """Write the sum of ``parts`` over their first dimension to ``out``, both in C order.

    `target`, `device` and `stream` are those of a call.
    """
    source, view = view_of(parts, "parts"), view_of(out, "out")
    total = prod(view.shape)
    if total:
        kernel = _kernel(view.dtype, target)
        numbers = {"total": fits("elements to add", total), "parts": fits("parts", source.shape[0])}
        kernel.bound(source, out, {**numbers, CTAS: -(-total // kernel.threads)}, device)(stream)
