"""The tensor core's queue: ``tcgen05.mma``, ``cp``, ``shift`` and ``commit``, executed in the order of issue.

What one thread issues runs in order and lands when the scheduler says so; a commit arrives on its mbarrier when
everything before it has landed. Consecutive mmas on one accumulator become one matrix product.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .bulk import InFlight, active_lanes, at_lane
from .errors import MemoryFault, ProtocolError, Where
from .findings import Finding
from .mbarriers import barrier_at, changed, shared_address
from .memory import OFFSET_MASK
from .tcgen05 import (
    Part,
    ZeroColumns,
    a_layout,
    accumulate,
    accumulator_parts,
    b_layout,
    check_lane,
    load_shared,
    load_tensor_a,
    scale_regions,
    scales,
)
from .tcgen05_descriptors import (
    MmaForm,
    MmaShape,
    OperandLayout,
    decode_instruction_descriptor,
    gather,
    operand_extents,
    shared_descriptor_problems,
)
from .tcgen05_sparse import expand, metadata_columns
from .tensor_order import TensorUnit, tensor_memory, tensor_unit
from .tmem import Region, TensorMemory, split_address

if TYPE_CHECKING:
    from .cta import Cta
    from .warp import Warp

Value = int | npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

__all__ = ["CopyForm", "issue_commit", "issue_copy", "issue_mma", "issue_shift"]


class TensorPipe:
    """The queue of one warp, as the scheduler sees it: each landing executes what is next."""

    __slots__ = ("queue",)
    done = False

    def __init__(self, queue: deque[Any]) -> None:
        self.queue = queue

    @property
    def where(self) -> Where:
        """Where the next operation was issued."""
        where: Where = self.queue[0].where
        return where

    def land(self) -> bool:
        """Execute the next operation, or run of mmas; True when nothing is left."""
        queue = self.queue
        first = queue[0]
        run = [first]
        if isinstance(first, Mma):
            for other in itertools.islice(queue, 1, None):
                if not isinstance(other, Mma) or other.key != first.key or not other.continues:
                    break
                run.append(other)
        first.execute(run)
        for operation in run:
            queue.popleft()
            operation.finish()
        return not queue


def _submit(unit: TensorUnit, operation: Any) -> None:
    unit.queue.append(operation)
    if len(unit.queue) == 1:
        operation.cluster.launch.machine.submit(TensorPipe(unit.queue))


def group_of(warp: Warp, group: int) -> list[Cta]:
    """The CTAs that a tcgen05 instruction of this warp works on, the even one first.

    Raises
    ------
    ProtocolError
        If a pair is needed and the cluster has none here.
    """
    cta = warp.cta
    if group == 1:
        return [cta]
    even = cta.rank & ~1
    if even + 1 >= len(cta.cluster.ctas):
        raise ProtocolError(
            f"cta_group::2 needs a pair of CTAs; CTA {cta.rank} of a cluster of {len(cta.cluster.ctas)} has no peer",
            hint="launch with a cluster of an even number of CTAs",
        )
    return cta.cluster.ctas[even : even + 2]


def one_lane(warp: Warp, mask: Mask | None, what: str) -> int | None:
    """The lane that issues an instruction; None when no lane does.

    Raises
    ------
    ProtocolError
        If several lanes would issue it, each once.
    """
    lanes = active_lanes(warp, mask)
    if len(lanes) > 1:
        raise ProtocolError(
            f"{what} is executed by {len(lanes)} lanes, and each of them issues it",
            hint="elect one lane of one warp (elect.sync), and branch or predicate on it",
            details={"lanes": len(lanes)},
        )
    return lanes[0] if lanes else None


class TensorIssue(InFlight):
    """An operation in the tensor core's queue."""

    __slots__ = ("ctas", "operations")

    def __init__(self, warp: Warp, group: int, unit: str) -> None:
        super().__init__(warp)
        self.ctas = group_of(warp, group)
        side = tensor_unit(warp)
        side.issued = True
        self.operations = side.pipelined(unit, self.where.instruction)

    @property
    def known(self) -> tuple[int, int]:
        """The same for operations that are ordered after the same, and published together."""
        if self.operations is None:
            return 0, 0
        shared = self.operations[0]
        return id(shared.clock), shared.epoch

    def memories(self, what: str) -> list[tuple[Cta, TensorMemory]]:
        """The tensor memories it works on, whose CTAs must be alive."""
        for cta in self.ctas:
            if cta.live_warps == 0:
                raise ProtocolError(
                    f"CTA {cta.rank} exited before a {what} that works on it was complete",
                    hint="wait for its tcgen05.commit, and with cta_group::2 meet at a cluster barrier before the exit",
                )
        return [(cta, tensor_memory(cta)) for cta in self.ctas]

    def tell(self, memory: TensorMemory, regions: Sequence[Region], *, write: bool) -> None:
        """Report accesses to tensor memory."""
        if self.operations is not None and memory.shadow is not None:
            for region in regions:
                memory.shadow.region(self.operations[1], region, write=write)

    def tell_shared(self, cta: Cta, extents: npt.NDArray[np.int64]) -> None:
        """Report reads of a CTA's shared memory."""
        shadow = cta.shared.shadow
        if self.operations is not None and shadow is not None:
            shadow.extents(self.operations[0], (extents + shadow.base).tolist(), write=False)


# -- mma -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MmaOperands:
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

    __slots__ = ("form", "key", "operands", "shape")

    def __init__(self, warp: Warp, form: MmaForm, shape: MmaShape, operands: MmaOperands) -> None:
        super().__init__(warp, form.group, "tcgen05.mma")
        self.form = form
        self.shape = shape
        self.operands = operands
        plain = replace(shape, a_scale=0, b_scale=0)
        self.key = (form, plain, operands.d, operands.masks, operands.zero_columns)

    @property
    def continues(self) -> bool:
        """Whether it adds onto what the one before leaves."""
        return self.operands.enable and not self.operands.scale_d

    def execute(self, run: Sequence[Mma]) -> None:
        """Multiply and accumulate a run of instructions on one accumulator."""
        form, shape = self.form, self.shape
        half, column = check_lane(self.operands.d, _uses_half_lanes(form, shape), "D")
        zero = ZeroColumns(self.operands.zero_columns)
        memories = self.memories("tcgen05.mma")
        layout_b = b_layout(form, shape, zero.shift)
        b = np.concatenate(
            [
                _load_operand(cta, layout_b, shape.b_type, form.packed, [op.operands.b for op in run])
                for cta, _ in memories
            ]
        )
        if form.weight_stationary:
            b[zero.mask(shape.m, shape.n)] = 0
        parts = accumulator_parts(form, shape, half)
        for cta, memory in memories:
            a = None
            if not form.a_in_tensor_memory:
                a = _load_operand(cta, a_layout(form, shape), shape.a_type, form.packed, [op.operands.a for op in run])
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
        for region in regions:
            memory.check(region, "tcgen05.mma into D")
            if self.operands.enable:
                memory.require_written(region, "tcgen05.mma onto D")
        if a is None:
            a = self._tensor_a(run, memory, part)
        if form.sparse:
            a = self._dense_a(run, memory, part, a)
        if form.vector:
            a, b = self._scaled(run, memory, part, index, a, b)
        before = part.read(memory, column, width) if self.operands.enable else None
        cells = accumulate(form, shape, a, b, before, self.operands.scale_d)
        disabled = self._disabled(cta)
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
            _, left = check_lane(op.operands.a, _uses_half_lanes(self.form, self.shape), "A")
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
            left, width = self._metadata(op)
            for region in part.regions(left, width):
                memory.check(region, "sparsity metadata")
                memory.require_written(region, "sparsity metadata")
            dense.append(expand(self.form, stored, memory, part.lanes, left))
        return np.concatenate(dense, axis=1)

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


def _uses_half_lanes(form: MmaForm, shape: MmaShape) -> bool:
    """Whether D has 16 of every 32 lanes."""
    return len(accumulator_parts(form, shape, 0)[0].lanes) == 4


def _load_operand(cta: Cta, layout: OperandLayout, kind: str, packed: bool, descriptors: list[int]) -> npt.NDArray[Any]:
    try:
        return load_shared(layout, kind, packed, cta.shared.data, descriptors)
    except IndexError:
        raise _beyond(cta) from None


def _beyond(cta: Cta) -> MemoryFault:
    return MemoryFault(
        f"a tcgen05 operand lies beyond the end of shared memory of CTA {cta.rank} ({cta.shared.size} bytes)",
        hint="check the descriptor's start, leading and stride offsets",
    )


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
    _submit(tensor_unit(warp), Mma(warp, form, shape, operands))


def _check_operands(form: MmaForm, shape: MmaShape, operands: MmaOperands) -> None:
    tf32 = form.kind == "tf32"
    layout = b_layout(form, shape, ZeroColumns(operands.zero_columns).shift)
    found = [f"descriptor of B: {p}" for p in shared_descriptor_problems(layout, operands.b, tf32=tf32)]
    if not form.a_in_tensor_memory:
        layout = a_layout(form, shape)
        found += [f"descriptor of A: {p}" for p in shared_descriptor_problems(layout, operands.a, tf32=tf32)]
    if found:
        raise ProtocolError(found[0], table="\n".join(found[1:]))


# -- cp and shift ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CopyForm:
    """A shape of ``tcgen05.cp``.

    Attributes
    ----------
    rows, chunks
        Rows of the source, and 16-byte chunks of each.
    places
        For each destination 32-lane quarter (of a row shorter than that, each lane) the first source row.
    expansion
        Bits of the packed elements that are spread to a byte each: 0, 4 or 6.
    """

    rows: int
    chunks: int
    places: tuple[int, ...]
    group: int
    expansion: int = 0

    @property
    def layout(self) -> OperandLayout:
        """How the source lies in shared memory."""
        return OperandLayout(False, self.rows, self.chunks)

    def regions(self, lane: int, column: int) -> list[Region]:
        """Cells that are written, in the order of `places`."""
        height = min(32, self.rows)
        first = lane if height < 32 else 0
        step = 32 if height == 32 else 1
        if height < 32:  # One row to a quarter.
            return [Region(first + 32 * q, first + 32 * q + step, column, column + 4 * self.chunks) for q in range(4)]
        return [Region(32 * q, 32 * q + 32, column, column + 4 * self.chunks) for q in range(4)]


class Copy(TensorIssue):
    """One ``tcgen05.cp``."""

    __slots__ = ("address", "descriptor", "form")

    def __init__(self, warp: Warp, form: CopyForm, address: int, descriptor: int) -> None:
        super().__init__(warp, form.group, "tcgen05.cp")
        self.form = form
        self.address = address
        self.descriptor = descriptor

    def execute(self, run: Sequence[Copy]) -> None:
        """Copy, in each CTA of the group from its own shared to its own tensor memory."""
        form = self.form
        lane, column = split_address(self.address)
        for cta, memory in self.memories("tcgen05.cp"):
            try:
                data = gather(cta.shared.data, form.layout, [self.descriptor])[:, 0]
            except IndexError:
                raise _beyond(cta) from None
            self.tell_shared(cta, operand_extents(form.layout, [self.descriptor]))
            words = np.ascontiguousarray(_expanded(data, form.expansion)).view(np.uint32)
            regions = form.regions(lane, column)
            for region, first in zip(regions, form.places, strict=True):
                memory.check(region, "tcgen05.cp")
                memory.write(region, words[first : first + region.last - region.first])
            self.tell(memory, regions, write=True)


def _expanded(data: npt.NDArray[np.uint8], bits: int) -> npt.NDArray[np.uint8]:
    """Spread sixteen packed elements of 4 or 6 bits to a byte each: e2m1 to bits 5:2, the others to bits 5:0."""
    if not bits:
        return data
    groups = data.reshape(len(data), -1, 16)
    fields = np.unpackbits(groups[:, :, : 2 * bits], axis=-1, bitorder="little").reshape(len(data), -1, bits)
    codes = np.packbits(fields, axis=-1, bitorder="little")[..., 0]
    return codes << np.uint8(2) if bits == 4 else codes


def issue_copy(warp: Warp, form: CopyForm, address: Value, descriptor: Value, mask: Mask | None) -> None:
    """``tcgen05.cp``: check the descriptor and queue it."""
    lane = one_lane(warp, mask, "tcgen05.cp")
    if lane is None:
        return
    target, bits = at_lane(address, lane), at_lane(descriptor, lane)
    first = split_address(target)[0]
    if first and (form.rows >= 32 or first >= 32):
        raise ProtocolError(f"tcgen05.cp to lane {first}; legal: {'0' if form.rows >= 32 else '0 to 31'}")
    problems = shared_descriptor_problems(form.layout, bits) if warp.cta.launch.protocol else ()
    if problems:
        raise ProtocolError(f"descriptor of tcgen05.cp: {problems[0]}", table="\n".join(problems[1:]))
    _submit(tensor_unit(warp), Copy(warp, form, target, bits))


class Shift(TensorIssue):
    """One ``tcgen05.shift``: every lane takes the 32 bytes of the next one; the last keeps its own."""

    __slots__ = ("address",)

    def __init__(self, warp: Warp, group: int, address: int) -> None:
        super().__init__(warp, group, "tcgen05.shift")
        self.address = address

    def execute(self, run: Sequence[Shift]) -> None:
        """Shift the rows in each CTA of the group."""
        lane, column = split_address(self.address)
        region = Region(lane, 128, column, column + 8)
        for _, memory in self.memories("tcgen05.shift"):
            memory.check(region, "tcgen05.shift")
            cells = memory.read(region)
            cells[:-1] = cells[1:].copy()
            self.tell(memory, [region], write=True)


def issue_shift(warp: Warp, group: int, address: Value, mask: Mask | None) -> None:
    """``tcgen05.shift.down``: queue it."""
    lane = one_lane(warp, mask, "tcgen05.shift")
    if lane is None:
        return
    target = at_lane(address, lane)
    first = split_address(target)[0]
    if first % 32:
        raise ProtocolError(f"tcgen05.shift at lane {first}: must be a multiple of 32; nearest {first // 32 * 32}")
    _submit(tensor_unit(warp), Shift(warp, group, target))


# -- commit ----------------------------------------------------------------------------------------------------------


class Commit(InFlight):
    """One ``tcgen05.commit``: an arrival when everything before it has landed."""

    __slots__ = ("barriers", "snapshot")

    def __init__(self, warp: Warp, barriers: list[Any]) -> None:
        super().__init__(warp)
        self.barriers = barriers
        self.snapshot = tensor_unit(warp).committed()

    def execute(self, run: Sequence[Commit]) -> None:
        """Arrive once on each barrier."""
        for cta, barrier in self.barriers:
            if cta.live_warps == 0:
                raise ProtocolError(
                    f"CTA {cta.rank} exited before a tcgen05.commit arrived on its mbarrier",
                    hint="wait for the mbarrier, or meet at a cluster barrier, before the CTA ends",
                )
            phase = barrier.phase
            if self.snapshot is not None:
                barrier.arriving.add(self.snapshot)
            barrier.arrive(1, by=self.where.actor, instruction=self.where.instruction)
            changed(self.cluster, barrier, phase)


def issue_commit(
    warp: Warp, group: int, space: str, address: Value, multicast: Value | None, mask: Mask | None
) -> None:
    """``tcgen05.commit``: queue an arrival."""
    lane = one_lane(warp, mask, "tcgen05.commit")
    if lane is None:
        return
    group_of(warp, group)
    cluster = warp.cta.cluster
    where = shared_address(space, at_lane(address, lane))
    ranks = [where >> 24]
    if multicast is not None:
        bits = at_lane(multicast, lane) & 0xFFFF
        ranks = [rank for rank in range(16) if bits >> rank & 1]
        if not ranks or ranks[-1] >= len(cluster.ctas):
            raise ProtocolError(
                f"multicast mask {bits:#x} in a cluster of {len(cluster.ctas)} CTAs",
                hint=f"legal: 1 to {(1 << len(cluster.ctas)) - 1:#x}, one bit for each CTA",
            )
    elif ranks[0] >= len(cluster.ctas):
        raise MemoryFault(f"the mbarrier address {where:#x} is not in shared memory of this cluster")
    barriers = []
    for rank in ranks:
        cta = cluster.ctas[rank]
        place = cta.shared_base | where & OFFSET_MASK
        barriers.append((cta, barrier_at(warp, place)))
    unit = tensor_unit(warp)
    if not unit.issued and warp.cta.launch.protocol:
        warp.cta.launch.findings.add(
            Finding(
                "protocol",
                "tcgen05.commit by a thread that has issued no mma, cp or shift: it tracks nothing",
                hint="the thread that issues the mmas must commit them",
                where=Where(warp.program.name, warp.actor, warp.program.instruction(warp.at)),
            )
        )
    _submit(unit, Commit(warp, barriers))
