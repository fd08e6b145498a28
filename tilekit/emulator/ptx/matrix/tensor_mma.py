"""``tcgen05.mma`` in the tensor core's queue: operands checked at issue, a run of instructions executed at once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.errors import ProtocolError
from tilekit.emulator.ptx.copies.bulk import Mask, Value, at_lane
from tilekit.emulator.ptx.matrix.tcgen05 import (
    Part,
    ZeroColumns,
    a_layout,
    accumulate,
    accumulator_parts,
    b_layout,
    check_lane,
    decode_shared,
    load_tensor_a,
    scale_regions,
    scales,
)
from tilekit.emulator.ptx.matrix.tcgen05_descriptors import (
    MmaForm,
    MmaShape,
    OperandLayout,
    decode_instruction_descriptor,
    operand_extents,
    shared_descriptor_problems,
)
from tilekit.emulator.ptx.matrix.tcgen05_sparse import expand, metadata_columns
from tilekit.emulator.ptx.matrix.tensor_order import tensor_unit
from tilekit.emulator.ptx.matrix.tensor_pipe import TensorIssue, one_lane, read_shared, submit
from tilekit.emulator.ptx.matrix.tmem import Region, TensorMemory, split_address

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.cta import Cta
    from tilekit.emulator.ptx.execution.warp import Warp

__all__ = ["MmaOperands", "issue_mma"]


class MmaOperands(NamedTuple):
    """Register values of one ``tcgen05.mma``.

    Attributes
    ----------
    d
        Tensor-memory address of D.
    a
        Shared-memory descriptor of A, or its tensor-memory address.
    b
        Shared-memory descriptor of B.
    enable
        Whether D is read (enable-input-d).
    scale_d
        D is multiplied by 2**-scale_d.
    masks
        Lanes of D that are not written, 32 a word.
    a_scales, b_scales, metadata
        Tensor-memory addresses.
    zero_columns
        The zero-column mask descriptor of ``.ws``.
    """

    d: int
    a: int
    b: int
    enable: bool
    scale_d: int = 0
    masks: tuple[int, ...] = ()
    a_scales: int = 0
    b_scales: int = 0
    metadata: int = 0
    zero_columns: int = 0


class Mma(TensorIssue):
    """One ``tcgen05.mma``."""

    __slots__ = ("form", "operands", "shape")

    def __init__(self, warp: Warp, form: MmaForm, shape: MmaShape, operands: MmaOperands) -> None:
        super().__init__(warp, form.group, "tcgen05.mma")
        self.form = form
        self.shape = shape
        self.operands = operands

    def joins(self, first: object) -> bool:
        """Whether it adds onto what the one before leaves."""
        if not isinstance(first, Mma):
            return False
        mine, others = self.operands, first.operands
        return (
            mine.enable
            and not mine.scale_d
            and (mine.d, mine.masks, mine.zero_columns) == (others.d, others.masks, others.zero_columns)
            and self.form == first.form
            and _unscaled(self.shape) == _unscaled(first.shape)
            and not self._reads_columns_of_d()
        )

    def _reads_columns_of_d(self) -> bool:
        """Whether it reads, as A, scales or metadata, what an instruction of its run may have written."""
        form, shape = self.form, self.shape
        if not (form.a_in_tensor_memory or form.sparse or form.vector):
            return False
        half, column = split_address(self.operands.d)
        parts = accumulator_parts(form, shape, half)
        right = column + parts[0].last - parts[0].first
        reads = (region for index, part in enumerate(parts) for region in self.reads(part, index))
        return any(region.left < right and column < region.right for region in reads)

    def execute(self, run: Sequence[Mma]) -> None:
        """Multiply and accumulate a run of instructions on one accumulator."""
        form, shape = self.form, self.shape
        half, column = check_lane(self.operands.d, _uses_half_lanes(form, shape), "D")
        zero = ZeroColumns(self.operands.zero_columns)
        memories = self.memories("tcgen05.mma")
        layout_b = b_layout(form, shape, zero.shift)
        in_b = [op.operands.b for op in run]
        b = np.concatenate(
            [
                decode_shared(layout_b, shape.b_type, form.packed, read_shared(run, cta, layout_b, in_b, "B"))
                for cta, _ in memories
            ]
        )
        if form.weight_stationary:
            b[zero.mask(shape.m, shape.n)] = 0
        parts = accumulator_parts(form, shape, half)
        for cta, memory in memories:
            a = None
            if not form.a_in_tensor_memory:
                layout_a = a_layout(form, shape)
                data = read_shared(run, cta, layout_a, [op.operands.a for op in run], "A")
                a = decode_shared(layout_a, shape.a_type, form.packed, data)
            for index, part in enumerate(parts):
                self._multiply(run, memory, cta, part, index, column, a, b[part.first : part.last])
            self._record(run, cta, memory, parts, column, layout_b)
        self.cluster.launch.counters.mma_flops += 2 * shape.m * shape.n * form.k * len(run)

    def _multiply(
        self,
        run: Sequence[Mma],
        memory: TensorMemory,
        cta: Cta,
        part: Part,
        index: int,
        column: int,
        a: npt.NDArray[Any] | None,
        b: npt.NDArray[Any],
    ) -> None:
        form, shape = self.form, self.shape
        width = part.last - part.first
        regions = part.regions(column, width)
        disabled = self._disabled(cta)
        for region in regions:
            memory.check(region, "tcgen05.mma into D")
            if self.operands.enable:
                memory.require_written(region, "tcgen05.mma onto D", but=disabled)
        if a is None:
            a = self._tensor_a(run, memory, part)
        if form.sparse:
            a = self._dense_a(run, memory, part, a)
        if form.vector:
            a, b = self._scaled(run, memory, part, index, a, b)
        before = part.read(memory, column, width) if self.operands.enable else None
        exact = cta.launch.exact
        cells = accumulate(form, shape, a, b, before, self.operands.scale_d, exact=exact)
        row = 0
        for region in regions:
            count = region.last - region.first
            values = cells[row : row + count]
            row += count
            if disabled is None:
                memory.write(region, values)
                continue
            keep = ~disabled[region.first : region.last]
            memory.cells[region.first : region.last, region.left : region.right][keep] = values[keep]
            memory.written[region.first : region.last, region.left : region.right][keep] = True

    def _disabled(self, cta: Cta) -> npt.NDArray[np.bool_] | None:
        """Lanes of a CTA that are not written."""
        if not any(self.operands.masks):
            return None
        words = np.array(self.operands.masks, "<u4")[4 * self.ctas.index(cta) :][:4]
        return np.unpackbits(words.view(np.uint8), bitorder="little").astype(np.bool_)

    def _tensor_a(self, run: Sequence[Mma], memory: TensorMemory, part: Part) -> npt.NDArray[Any]:
        columns = []
        for op in run:
            left = self._column_beside_d(op.operands.a, "A")
            for region in part.regions(left, 8):
                memory.check(region, "tcgen05.mma with A")
                memory.require_written(region, "tcgen05.mma with A")
            columns.append(left)
        a = load_tensor_a(part, memory, self.shape.a_type, self.form.packed, columns)
        if self.form.shifted_a:
            a = np.concatenate([a[1:], a[-1:]])
        return a

    def _dense_a(self, run: Sequence[Mma], memory: TensorMemory, part: Part, a: npt.NDArray[Any]) -> npt.NDArray[Any]:
        steps = np.split(a, len(run), axis=1)
        dense = []
        for op, stored in zip(run, steps, strict=True):
            self._column_beside_d(op.operands.metadata, "the metadata")
            left, width = self._metadata(op)
            for region in part.regions(left, width):
                memory.check(region, "sparsity metadata")
                memory.require_written(region, "sparsity metadata")
            dense.append(expand(self.form, stored, memory, part.lanes, left))
        return np.concatenate(dense, axis=1)

    def _column_beside_d(self, address: int, what: str) -> int:
        """The column of an operand that is read in the lanes of D.

        Raises
        ------
        ProtocolError
            If its address names other lanes.
        """
        lane, column = check_lane(address, _uses_half_lanes(self.form, self.shape), what)
        half = split_address(self.operands.d)[0]
        if lane != half:
            raise ProtocolError(
                f"the tensor-memory address {address:#010x} of {what} has lane {lane}, that of D has lane {half}",
                hint="each row of D is made from what lies in its own lane: give both the same lane",
            )
        return column

    def _metadata(self, op: Mma) -> tuple[int, int]:
        return metadata_columns(self.form, split_address(op.operands.metadata)[1], self.shape.selector)

    def _scale_places(self, index: int) -> tuple[int, int, tuple[int, ...]]:
        """Rows of A in a CTA, rows of B in a part, and the quarters that hold B's scales."""
        rows, columns = self.shape.m // self.form.group, self.shape.n
        if rows == 64:  # Each half of the lanes has one half of N.
            return rows, columns // 2, (2 * index, 2 * index + 1)
        return rows, columns, (0, 1, 2, 3)

    def _scaled(
        self, run: Sequence[Mma], memory: TensorMemory, part: Part, index: int, a: npt.NDArray[Any], b: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        rows, columns, quarters = self._scale_places(index)
        form = self.form
        wide: list[list[npt.NDArray[Any]]] = [[], []]
        for op in run:
            shape = op.shape
            for side, (name, address, count, where, first) in enumerate(
                (
                    ("A", op.operands.a_scales, rows, (0, 1, 2, 3), shape.a_scale),
                    ("B", op.operands.b_scales, columns, quarters, shape.b_scale),
                )
            ):
                _, left = check_lane(address, False, f"the scales of {name}")
                for region in scale_regions(left, count, where):
                    memory.check(region, f"tcgen05.mma with the scales of {name}")
                    memory.require_written(region, f"tcgen05.mma with the scales of {name}")
                found = scales(memory, left, count, where, first, form.vector, shape.scale_type)
                wide[side].append(np.repeat(found, form.k // form.vector, axis=1))
        scaled_a = a.astype(np.float64) * np.concatenate(wide[0], axis=1)
        scaled_b = b.astype(np.float64) * np.concatenate(wide[1], axis=1)
        return scaled_a, scaled_b

    def _record(
        self,
        run: Sequence[Mma],
        cta: Cta,
        memory: TensorMemory,
        parts: Sequence[Part],
        column: int,
        layout_b: OperandLayout,
    ) -> None:
        """Tell the race checks what was read and written, by what each instruction was ordered after."""
        if self.operations is None:
            return
        form = self.form
        width = parts[0].last - parts[0].first
        for _, members in itertools.groupby(run, lambda op: op.known):
            same = list(members)
            first = same[0]
            first.tell_shared(cta, operand_extents(layout_b, [op.operands.b for op in same]))
            if not form.a_in_tensor_memory:
                first.tell_shared(cta, operand_extents(a_layout(form, self.shape), [op.operands.a for op in same]))
            for index, part in enumerate(parts):
                for op in same:
                    op.tell(memory, op.reads(part, index), write=False)
                first.tell(memory, part.regions(column, width), write=True)

    def reads(self, part: Part, index: int) -> list[Region]:
        """Tensor memory that it reads besides D, for one part of D."""
        found: list[Region] = []
        operands = self.operands
        if self.form.a_in_tensor_memory:
            found += part.regions(split_address(operands.a)[1], 8)
        if self.form.sparse:
            found += part.regions(*self._metadata(self))
        if self.form.vector:
            rows, columns, quarters = self._scale_places(index)
            found += scale_regions(split_address(operands.a_scales)[1], rows, (0, 1, 2, 3))
            found += scale_regions(split_address(operands.b_scales)[1], columns, quarters)
        return found


@lru_cache(maxsize=256)
def _unscaled(shape: MmaShape) -> MmaShape:
    """A shape but for which of the scales it uses, which may differ between the instructions of a run."""
    return replace(shape, a_scale=0, b_scale=0)


def _uses_half_lanes(form: MmaForm, shape: MmaShape) -> bool:
    """Whether D has 16 of every 32 lanes."""
    return len(accumulator_parts(form, shape, 0)[0].lanes) == 4


def issue_mma(
    warp: Warp,
    form: MmaForm,
    d: Value,
    a: Value,
    b: Value,
    idesc: Value,
    enable: bool | Value,
    scale_d: int,
    masks: tuple[Value, ...],
    scale_addresses: tuple[Value, ...],
    metadata: Value,
    zero_columns: Value,
    mask: Mask | None,
) -> None:
    """``tcgen05.mma``: check the descriptors and queue it."""
    lane = one_lane(warp, mask, "tcgen05.mma")
    if lane is None:
        return
    bits = at_lane(idesc, lane) & 0xFFFFFFFF
    shape, problems = decode_instruction_descriptor(form, bits)
    if problems:
        raise ProtocolError(
            f"instruction descriptor {bits:#010x}: {problems[0]}",
            table="\n".join(problems[1:]),
            details={"idesc": bits},
        )
    operands = MmaOperands(
        d=at_lane(d, lane),
        a=at_lane(a, lane),
        b=at_lane(b, lane),
        enable=bool(enable[lane]) if isinstance(enable, np.ndarray) else bool(enable),
        scale_d=scale_d,
        masks=tuple(at_lane(word, lane) for word in masks),
        a_scales=at_lane(scale_addresses[0], lane) if scale_addresses else 0,
        b_scales=at_lane(scale_addresses[1], lane) if scale_addresses else 0,
        metadata=at_lane(metadata, lane),
        zero_columns=at_lane(zero_columns, lane),
    )
    if warp.cta.launch.protocol:
        _check_operands(form, shape, operands)
    submit(tensor_unit(warp), Mma(warp, form, shape, operands))


def _check_operands(form: MmaForm, shape: MmaShape, operands: MmaOperands) -> None:
    tf32 = form.kind == "tf32"
    layout = b_layout(form, shape, ZeroColumns(operands.zero_columns).shift)
    found = [f"descriptor of B: {p}" for p in shared_descriptor_problems(layout, operands.b, tf32=tf32)]
    if not form.a_in_tensor_memory:
        layout = a_layout(form, shape)
        found += [f"descriptor of A: {p}" for p in shared_descriptor_problems(layout, operands.a, tf32=tf32)]
    if found:
        raise ProtocolError(found[0], table="\n".join(found[1:]))
