"""The kernel that adds matrices of f32 which lie one behind the other: the parts of a sum that launches have made."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

from tilekit.arrays import view_of
from tilekit.assembly.types import F32, GMEM
from tilekit.assembly.values import Operand, Value
from tilekit.assembly.writer import Writer
from tilekit.dtypes import DType
from tilekit.epilogue.elements import store_element
from tilekit.kernels.plain import CTAS, PlainKernel
from tilekit.targets import Target
from tilekit.tiles.call import fits

TOGETHER = 8
"""Parts that a thread loads at once."""

SHARERS = 4
"""Threads that share an element where there are few: each adds every fourth part, and they add their sums."""

FEW = 2048
"""Threads a multiprocessor up to which elements are shared: what a chip runs at once."""


class AdditionKernel(PlainKernel):
    """Adds an element of every part, in an order that depends on nothing but their number, and rounds the sum once.

    It starts while the kernel that makes the parts still runs, and waits for its end: a launch would take as long as a
    small addition.

    Parameters
    ----------
    dtype
        Of what is written.
    sharers
        Threads of a warp that share an element: they are a warp's width by so many apart, so that what they load are
        whole sectors.
    target
        The chip.
    """

    waits_for_prerequisites = True

    def __init__(self, dtype: DType, sharers: int, target: Target) -> None:
        self.dtype, self.sharers = dtype, sharers
        super().__init__(target)

    @property
    def name(self) -> str:
        """The entry's symbol."""
        return f"add_parts_{self.dtype.name}" + (f"_shared{self.sharers}" if self.sharers > 1 else "")

    @property
    def elements(self) -> int:
        """Of a CTA."""
        return self.threads // self.sharers

    def described(self) -> str:
        """What a thread does."""
        whose = "a thread adds" if self.sharers == 1 else f"{self.sharers} threads add"
        return f"{self.name} for {self.target.name}: {whose} an element of every part"

    def _trace(self, w: Writer) -> None:
        w.wait_for_prerequisites()
        source, out = self._pointer(w, "source"), self._pointer(w, "out")
        total, parts = self._number(w, "total"), self._number(w, "parts")
        thread, beside = w.thread(), self.target.lanes // self.sharers
        own: Operand = 0
        within = thread
        if self.sharers > 1:
            lane = thread & (self.target.lanes - 1)
            own, within = lane // beside, thread // self.target.lanes * beside + (lane & (beside - 1))
        element = w.cta() * self.elements + within
        inside = element < total
        total_sum = w.variable(F32, 0.0, "sum")
        for first in w.range(parts, step=TOGETHER * self.sharers, name="part"):
            values = []
            for turn in range(TOGETHER):
                part = first + own + turn * self.sharers
                place = w.widen_multiply(part, total) + w.widen_multiply(element, 1)
                values.append(
                    w.isa.memory.load_global_f32(
                        address=(source + place * (F32.bits // 8)).retyped(GMEM),
                        valid=inside & (part < parts),
                    )
                )
            for value in values:
                total_sum.assign(total_sum + value)
        for step in range(self.sharers.bit_length() - 1):
            total_sum.assign(total_sum + w.isa.warp.shuffle_xor_f32(value=total_sum, mask=beside << step))
        place = (out + w.widen_multiply(element, self.dtype.bytes)).retyped(GMEM)
        writes = inside & (own == 0) if isinstance(own, Value) else inside
        store_element(w, self.dtype, address=place, value=total_sum, valid=writes)


_kernel = cache(AdditionKernel)


def add_parts(parts: Any, out: Any, *, target: Target, device: str | None, stream: Any = None) -> None:
    """Write the sum of ``parts`` over their first dimension to ``out``, both in C order.

    `target`, `device` and `stream` are those of a call.
    """
    source, view = view_of(parts, "parts"), view_of(out, "out")
    total = prod(view.shape)
    if total:
        few = total * SHARERS <= FEW * target.multiprocessors and source.shape[0] >= TOGETHER
        kernel = _kernel(view.dtype, SHARERS if few else 1, target)
        numbers = {"total": fits("elements to add", total), "parts": fits("parts", source.shape[0])}
        kernel.bound(source, out, {**numbers, CTAS: -(-total // kernel.elements)}, device)(stream)
