"""The kernel that lays scales out as the tensor core reads them: a CTA an atom, a word of four scales a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from tilekit.arrays import new_arrays, view_of
from tilekit.assembly.types import GMEM, U32
from tilekit.assembly.values import Value
from tilekit.assembly.writer import Parameter, Writer
from tilekit.dtypes import U8
from tilekit.kernels.assembled import AssembledKernel
from tilekit.kernels.block_scaled.scales import Scales
from tilekit.kernels.launch import Launch
from tilekit.kernels.picture import Shown
from tilekit.kernels.plan import BoundArrays, DevicePlan, EmulatedPlan, Plan, StagedPlan
from tilekit.runtime.emulated import Work
from tilekit.targets import Target
from tilekit.tile_op.block_scaled import ATOM_BYTES, ATOM_COLUMNS, ATOM_ROWS, ATOM_SCALES
from tilekit.tiles.call import Call, Matrix, Schedule, Scratch, fits

LANES = ATOM_ROWS // ATOM_COLUMNS
"""Rows whose words lie one behind another, 16 bytes apart."""


class LayoutKernel(AssembledKernel):
    """Copies scales, a byte each, from a matrix of any strides to atoms of 128 rows and 4 scales, zeros behind it."""

    threads = ATOM_ROWS
    cluster = 1
    launch_bytes = 0
    waits_for_prerequisites = False
    name = "lay_out_scales"

    def __init__(self, target: Target) -> None:
        self.target = target
        w = Writer(self.name, target=target, threads=self.threads)
        self._trace(w)
        self._parameters, self._text = tuple(w.parameters), w.text()

    @property
    def assembly(self) -> str:
        """The module's text, each line with its role and origin."""
        return self._text

    @property
    def parameters(self) -> Sequence[Parameter]:
        """Those of the entry, in launch order."""
        return self._parameters

    @property
    def schedule(self) -> Callable[[Call], Schedule]:
        """A CTA an atom."""
        return lambda call: Schedule(atoms := int(call.number("atoms")), atoms)

    def shared_scratch(self, name: str) -> str | None:
        """None: no component asks for memory."""
        return None

    def described(self) -> str:
        """What a CTA does."""
        return f"{self.name} for {self.target.name}: a CTA lays out {ATOM_BYTES} bytes, a thread {ATOM_SCALES}"

    def shown(self) -> Shown:
        """Threads of one kind, and no shared memory."""
        return Shown(self.name, self.target, self.threads, self.cluster, (), None, (), 0)

    @staticmethod
    def _trace(w: Writer) -> None:
        source, target = (w.parameter(name, GMEM, partial(_address, name)) for name in ("scales", "out"))
        n = {
            name: w.parameter(name, U32, partial(_number, name))
            for name in ("rows", "count", "row_pitch", "scale_pitch", "along")
        }
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
        views = {"scales": scales.view, "out": view_of(out, "out")}
        blocks, along = scales.laid_out[:2]
        pitches = (fits(f"a stride of {scales.view.dtype} scales", stride) for stride in scales.view.strides)
        numbers = dict(
            zip(
                ("rows", "count", "row_pitch", "scale_pitch", "along", "atoms"),
                (scales.rows, scales.count, *pitches, along, blocks * along),
                strict=True,
            )
        )

        def launch(addresses: Any, resident: int, scratch: Scratch) -> Launch:
            matrices: dict[str, Matrix] = {}
            return self.launch(Call(1, 1, 1, matrices, addresses, resident, numbers=numbers, scratch=scratch))

        bound = BoundArrays(views, ("out",), out, launch, lambda launch: Work(flops=0, tiles=launch.tiles))
        if views["out"].device != "cpu":
            return DevicePlan(self, bound)
        return StagedPlan(self, bound) if device in ("cuda", "hip") else EmulatedPlan(self, bound, {})


layout_kernel = cache(LayoutKernel)
"""The kernel of a chip."""


def laid_out(scales: Scales, target: Target, device: str | None, stream: Any = None) -> Scales:
    """Return the same scales in a new array, laid out in the order of `stream`."""
    out = new_arrays(scales.view, scales.laid_out, U8)(stream)
    if 0 not in scales.laid_out:
        layout_kernel(target).plan(scales, out, device)(stream)
    return replace(scales, view=replace(view_of(out), dtype=scales.view.dtype), plain=False)


def _address(name: str, call: Call) -> int:
    return call.address(name)


def _number(name: str, call: Call) -> int:
    return int(call.number(name))
