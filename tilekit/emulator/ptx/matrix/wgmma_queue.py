"""wgmma in flight: queued when issued, executed when waited for.

The four warps of a warpgroup each issue the instruction; it is executed once, for all 64 rows, when the first of them
waits for its group and all four have issued it. Consecutive instructions on the same accumulators become one matrix
product along K. Until a warp has waited, its accumulator and A registers belong to the tensor core.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.core.checks.deadlock import GroupWait
from tilekit.emulator.core.errors import MemoryFault, ProtocolError, Where
from tilekit.emulator.core.memory import footprint
from tilekit.emulator.core.memory.footprint import IN_PAGE, PAGE_BITS, Pieces
from tilekit.emulator.core.memory.memory import RANK_SHIFT
from tilekit.emulator.ptx.checks.uninitialised import check_accumulators, check_operand
from tilekit.emulator.ptx.language.syntax import Instruction
from tilekit.emulator.ptx.matrix.operand_chunks import OperandOutside, outside
from tilekit.emulator.ptx.matrix.wgmma import (
    MatrixDescriptor,
    Operand,
    Wgmma,
    descriptor_problems,
    load_a,
    load_b,
    multiply_accumulate,
    operand_extents,
    registers_a,
)
from tilekit.emulator.ptx.matrix.wgmma_sparse import with_zeros

if TYPE_CHECKING:
    from tilekit.emulator.ptx.execution.cta import Warpgroup
    from tilekit.emulator.ptx.execution.warp import Warp

Rows = slice | tuple[int, ...]
"""Rows of the tile file: a slice where they are consecutive."""


class Collective:
    """One wgmma of a warpgroup."""

    __slots__ = (
        *("a", "a_parts", "accumulate", "b", "form", "instruction", "issuers", "metadata", "operations", "rows"),
        "selector",
    )

    def __init__(
        self, form: Wgmma, rows: Rows, a: int | None, b: int, accumulate: bool, instruction: Instruction
    ) -> None:
        self.form = form
        self.rows = rows
        self.a = a
        self.b = b
        self.accumulate = accumulate
        self.instruction = instruction
        self.a_parts: dict[int, npt.NDArray[np.uint32]] = {}
        self.metadata: dict[int, npt.NDArray[np.uint32]] = {}
        self.selector = 0
        self.issuers = 0
        self.operations: list[Any] = []


class WgmmaQueue:
    """What one warp has issued and not waited for."""

    __slots__ = ("committed", "groups", "issued", "latest", "masks", "open_mask")

    def __init__(self) -> None:
        self.issued = 0
        """Number issued in the launch; the warps of a warpgroup count alike."""
        self.committed: list[int] = []
        """Value of ``issued`` at each commit that has not been waited for."""
        self.masks: list[int] = []
        self.open_mask = 0
        self.groups: Any = None
        self.latest: Any = None
        """The operation of the last wgmma, which the next one shares if the warp has learnt nothing in between."""


def touch_in_flight(warp: Warp, position: int) -> None:
    """Raise: an ordinary instruction uses registers of a wgmma that is not known complete."""
    warp.at = position
    raise ProtocolError(
        "a register of a wgmma in flight is used: its accumulators and A registers may not be touched before "
        "wgmma.wait_group",
        hint="wait for its group first (wgmma.wait_group), or move this instruction before the wgmma",
    )


def issue_wgmma(
    warp: Warp,
    form: Wgmma,
    rows: Rows,
    row_mask: int,
    a: int | None,
    a_rows: Rows | None,
    b: int,
    accumulate: bool,
    mask: npt.NDArray[np.bool_] | None,
    metadata: npt.NDArray[np.uint32] | None = None,
    selector: int = 0,
) -> None:
    """``wgmma.mma_async``: queue it; sparse forms have metadata."""
    group = warp.warpgroup
    queue = warp.wgmma or _queue(warp)
    instruction = warp.program.code[warp.at].instruction
    if mask is not None or len(group.warps) < 4:
        raise ProtocolError(
            "wgmma needs all 128 threads of an aligned warpgroup",
            hint="the block's size must be a multiple of 128 and the branch to it uniform in the warpgroup",
        )
    if warp.unfenced & row_mask:
        raise ProtocolError(
            "wgmma without wgmma.fence: its registers were written by ordinary instructions since the last "
            "wgmma.fence of this warp",
            hint="put wgmma.fence.sync.aligned before the first wgmma of a batch",
        )
    collective: Collective
    if queue.issued < group.executed + len(group.issued):
        collective = group.issued[queue.issued - group.executed]
        if collective.instruction is not instruction or collective.a != a or collective.b != b:
            raise ProtocolError(
                "the warps of a warpgroup issue different wgmmas: descriptors and instruction must agree",
                details={"a": (collective.a, a), "b": (collective.b, b)},
            )
        if collective.accumulate != accumulate:
            raise ProtocolError("the warps of a warpgroup disagree on scale-d of one wgmma")
    else:
        collective = Collective(form, rows, a, b, accumulate, instruction)
        if warp.cta.launch.protocol:
            # Where an operand begins is no matter: stages share what is found out about their descriptors.
            _check_descriptors(form, None if a is None else a & ~0x3FFF, b & ~0x3FFF)
        group.issued.append(collective)
    collective.issuers += 1
    if a_rows is not None:
        collective.a_parts[warp.index % 4] = warp.tile[_index(a_rows)].copy()
    if metadata is not None:
        collective.metadata[warp.index % 4], collective.selector = metadata, selector
    queue.issued += 1
    queue.open_mask |= row_mask
    warp.in_flight |= row_mask
    if queue.groups is not None:
        latest, published = queue.latest, warp.agent.published
        if (
            latest is None
            or latest.epoch != queue.groups.epoch
            or published is None
            or latest.clock is not published.clock
        ):
            latest = queue.latest = queue.groups.issue(instruction)
        collective.operations.append(latest)


def _queue(warp: Warp) -> WgmmaQueue:
    if warp.wgmma is None:
        warp.wgmma = WgmmaQueue()
        hb = warp.cta.launch.order
        if hb is not None:
            groups = hb.groups(warp.agent, "wgmma", waits_with="wgmma.wait_group")
            # One collective operation: whichever warp waits for it knows that all four quarters are done.
            group = warp.warpgroup
            group.identity = group.identity or groups.identity
            groups.identity = group.identity
            warp.wgmma.groups = groups
    queue: WgmmaQueue = warp.wgmma
    return queue


@lru_cache(maxsize=1024)
def _check_descriptors(form: Wgmma, a: int | None, b: int) -> None:
    problems = [f"descriptor of B: {p}" for p in descriptor_problems(form, "b", b)]
    if a is not None:
        problems += [f"descriptor of A: {p}" for p in descriptor_problems(form, "a", a)]
    if problems:
        raise ProtocolError(problems[0], table="\n".join(problems[1:]))


def fence_wgmma(warp: Warp) -> None:
    """``wgmma.fence``: earlier ordinary register accesses come before later wgmmas."""
    warp.unfenced = 0


def commit_wgmma(warp: Warp) -> None:
    """``wgmma.commit_group``: close the open group."""
    queue = _queue(warp)
    queue.committed.append(queue.issued)
    queue.masks.append(queue.open_mask)
    queue.open_mask = 0
    if queue.groups is not None:
        queue.groups.commit()
    group = warp.warpgroup
    if group.waiters:
        warp.cta.launch.machine.wake(group.waiters)


class WgmmaWait:
    """A warp that waits for the other warps of its warpgroup to issue what it waits for."""

    __slots__ = ("waiters",)
    polls = False

    def __init__(self, waiters: list[Any]) -> None:
        self.waiters = waiters

    def describe(self) -> GroupWait:
        """For the deadlock report."""
        return GroupWait("the other warps of its warpgroup, which have not issued the same wgmma")


def wait_wgmma(warp: Warp, keep: int) -> bool:
    """``wgmma.wait_group``: execute all but the ``keep`` youngest committed groups; False to wait for other warps."""
    queue = _queue(warp)
    finished = len(queue.committed) - keep
    if finished <= 0:
        return True
    target = queue.committed[finished - 1]
    group: Warpgroup = warp.warpgroup
    ahead = group.issued[: max(0, target - group.executed)]
    if ahead and ahead[-1].issuers < 4:  # Each warp issues in order: who has issued the last one has issued them all.
        fragment = warp.fragment
        fragment.blocked = WgmmaWait(group.waiters)
        group.waiters.append((warp, fragment))
        return False
    if ahead:
        execute(group, ahead)
        group.latest = ahead[-1].operations
        del group.issued[: len(ahead)]
        group.executed = target
    del queue.committed[:finished], queue.masks[:finished]
    in_flight = queue.open_mask
    for mask in queue.masks:
        in_flight |= mask
    warp.in_flight = in_flight
    hb = warp.cta.launch.order
    if queue.groups is not None and hb is not None:
        queue.groups.wait(keep)
        hb.collective(warp.agent, group.latest)
    return True


def execute(group: Warpgroup, collectives: Sequence[Collective]) -> None:
    """Execute wgmmas in order, runs on the same accumulators as one product."""
    start = 0
    while start < len(collectives):
        first = collectives[start]
        end = start + 1
        while (
            end < len(collectives)
            and collectives[end].form is first.form
            and collectives[end].rows == first.rows
            and collectives[end].accumulate
            and (collectives[end].a is None) == (first.a is None)
            and collectives[end].selector == first.selector
        ):
            end += 1
        _execute_run(group, collectives[start:end])
        start = end


def _execute_run(group: Warpgroup, run: Sequence[Collective]) -> None:
    first = run[0]
    form = first.form
    cta = group.warps[0].cta
    launch = cta.launch
    shared = cta.shared
    b_descriptors = [c.b for c in run]
    try:
        if first.a is None:
            parts = [np.concatenate([c.a_parts[w] for c in run]) for w in range(4)]
            a = registers_a(form, np.concatenate(parts, axis=1))
        else:
            a = load_a(form, shared.data, [c.a for c in run if c.a is not None], bounds=shared.bounds)
        b = load_b(form, shared.data, b_descriptors, bounds=shared.bounds)
    except OperandOutside:
        raise _outside_shared(group, run) from None
    if form.sparse:
        a = _with_zeros(group, run, a)
    if shared.shadow is not None:
        _record_reads(group, run)
    if launch.protocol:
        _check_written(group, run)
    tile = group.tile
    rows = _index(first.rows)
    registers = tile[rows] if first.accumulate else None
    if registers is not None and launch.protocol:
        check_accumulators(group.warps[0], registers, first.rows, first.instruction)
    tile[rows] = multiply_accumulate(form, a, b, registers, exact=launch.exact)
    launch.counters.wgmma_flops += 2 * 64 * form.n * form.k * len(run)


def _with_zeros(group: Warpgroup, run: Sequence[Collective], a: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    metadata = np.stack([[c.metadata[warp] for warp in range(4)] for c in run])
    try:
        return with_zeros(run[0].form, a, metadata, run[0].selector)
    except ValueError as error:
        where = Where(group.warps[0].cta.launch.program.name, instruction=run[0].instruction)
        raise ProtocolError(f"wgmma.mma_async.sp: {error}", where=where) from None


def _outside_shared(group: Warpgroup, run: Sequence[Collective]) -> MemoryFault:
    """The fault for the first operand that leaves shared memory, with its descriptor in words."""
    cta, form = group.warps[0].cta, run[0].form
    name: Operand
    for collective in run:
        where = Where(cta.launch.program.name, instruction=collective.instruction)
        for name, bits in (("a", collective.a), ("b", collective.b)):
            if bits is None:
                continue
            descriptor = MatrixDescriptor.decode(bits)
            start = cta.launch.shared_name(descriptor.start)
            extents = operand_extents(form, name, [bits])
            fault = outside("wgmma", name.upper(), extents, cta.shared, bits, descriptor, start, where)
            if fault is not None:
                return fault
    raise AssertionError("every operand lies in shared memory")


def _index(rows: Rows) -> slice | list[int]:
    return rows if isinstance(rows, slice) else list(rows)


def _check_written(group: Warpgroup, run: Sequence[Collective]) -> None:
    """Report operands that no thread has written."""
    warp, form = group.warps[0], run[0].form
    shared = warp.cta.shared
    check_operand(warp, shared, operand_extents(form, "b", [c.b for c in run]), run[0].instruction, "wgmma's B")
    if run[0].a is not None:
        descriptors = [c.a for c in run if c.a is not None]
        check_operand(warp, shared, operand_extents(form, "a", descriptors), run[0].instruction, "wgmma's A")


def _record_reads(group: Warpgroup, run: Sequence[Collective]) -> None:
    """Tell the race check which shared memory was read, by the group that each instruction belongs to."""
    cta = group.warps[0].cta
    base = cta.rank << RANK_SHIFT
    form = run[0].form
    for _, members in itertools.groupby(run, lambda collective: [id(o) for o in collective.operations]):
        same = list(members)
        a = None if same[0].a is None else tuple(c.a for c in same if c.a is not None)
        first_page, pieces = _read_pieces(form, a, tuple(c.b for c in same), base)
        for operation in same[0].operations:
            cta.shared.shadow.pieces(operation, first_page, pieces, write=False)


@lru_cache(maxsize=4096)
def _read_pieces(form: Wgmma, a: tuple[int, ...] | None, b: tuple[int, ...], base: int) -> tuple[int, Pieces]:
    """The footprint of the operands of a run, in the shared memory that begins at ``base``, and its first page."""
    extents = [operand_extents(form, "b", b)]
    if a is not None:
        extents.append(operand_extents(form, "a", a))
    spans = np.concatenate(extents) + base
    first = int(spans.flat[0])
    return first >> PAGE_BITS, footprint.extents(first & IN_PAGE, (spans - first).tobytes())
