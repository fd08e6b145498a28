"""Which components a portable kernel may be made of, on which chip, and how each is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tilekit.annotations import call_checked
from tilekit.assembly.writer import Writer
from tilekit.drivers.warp_plan import WarpPlan
from tilekit.dtypes import S32, DType
from tilekit.errors import ArgumentError
from tilekit.targets import Target, chip
from tilekit.tile_io.buffer import BufferLoader
from tilekit.tile_io.buffer_to_lds import BufferToLdsLoader
from tilekit.tile_io.copy_plan import CopyPlan
from tilekit.tile_io.cp_async import CpAsyncLoader
from tilekit.tile_io.payload_loader import OperandLoader
from tilekit.tile_io.registers import RegisterLoader
from tilekit.tile_io.tma import TmaLoader
from tilekit.tile_op.mfma import Mfma
from tilekit.tile_op.mma_sync import MmaSync
from tilekit.tile_op.register_accumulators import RegisterAccumulators
from tilekit.tile_op.tcgen05 import Tcgen05
from tilekit.tile_op.tensor_accumulators import TensorAccumulators
from tilekit.tile_op.tensor_memory import TensorMemory
from tilekit.tile_op.wgmma import ATOM_ROWS, Wgmma
from tilekit.tile_pipeline.barrier_sync import BarrierSync
from tilekit.tile_pipeline.mbarrier_sync import MbarrierSync
from tilekit.tile_pipeline.named_barrier_sync import NamedBarrierSync
from tilekit.tile_pipeline.payload import StandardPayload
from tilekit.tile_pipeline.single_counter_sync import SingleCounterSync
from tilekit.tile_pipeline.split_counter_sync import SplitCounterSync
from tilekit.tile_pipeline.sync import SyncStrategy
from tilekit.tiles.cluster import Cluster
from tilekit.tiles.operand import OperandTile

WARPS = 4
"""Warps that load, and of an instruction of single warps those that multiply."""

NAMED_BARRIERS = 1
"""The first named barrier that is free: 0 is that of the whole CTA."""


@dataclass(frozen=True)
class Parts:
    """What the components of a kernel are made from.

    Attributes
    ----------
    w, plan, cluster
        The writer, the roles, and this CTA's place.
    a, b
        The operands' tiles.
    payload
        Both.
    stages
        Of the ring.
    out
        Type of the output.
    """

    w: Writer
    plan: WarpPlan
    cluster: Cluster
    a: OperandTile
    b: OperandTile
    payload: StandardPayload
    stages: int
    out: DType


Kind = TypeVar("Kind")


@dataclass(frozen=True)
class Choice(Generic[Kind]):
    """A component that a portable kernel may be made of.

    Attributes
    ----------
    kind
        The component.
    needs
        A capability of the chip; empty for none.
    isa
        The instruction set that it is of; empty for one that speaks neutral verbs.
    """

    kind: type[Kind]
    needs: str = ""
    isa: str = ""

    @property
    def name(self) -> str:
        """Of the component."""
        return self.kind.__name__

    def on(self, target: Target) -> bool:
        """Whether a chip has what it takes."""
        return self.isa in ("", target.isa) and (not self.needs or target.has(self.needs))


@dataclass(frozen=True)
class LoadChoice(Choice[Any]):
    """How tiles come to shared memory.

    Attributes
    ----------
    make
        Makes the loader of a tile; takes the bytes that rows begin at multiples of.
    copies
        Whether the load role's threads write stages; else one thread starts the copy engine, which counts bytes.
    """

    make: Callable[[Parts, OperandTile, bool, int], OperandLoader] = NotImplemented
    copies: bool = True


@dataclass(frozen=True)
class SyncChoice(Choice[Any]):
    """How the ring's two sides meet.

    Attributes
    ----------
    make
        Makes the strategy.
    counts_bytes
        Whether copies of the copy engine can count on it.
    in_flight
        Groups of asynchronous reads that may run on while the next stage is awaited.
    """

    make: Callable[[Parts, LoadChoice, OpChoice], SyncStrategy] = NotImplemented
    counts_bytes: bool = False
    in_flight: int = 1


@dataclass(frozen=True)
class OpChoice(Choice[Any]):
    """What multiplies.

    Attributes
    ----------
    plan
        The roles for a chip, a tile and a loader.
    make
        Makes the instruction and its accumulators.
    commits
        Whether only a commit, which arrives on an mbarrier, knows of its reads.
    in_flight
        Groups of reads that it keeps running.
    """

    plan: Callable[[Target, tuple[int, int], bool], WarpPlan] = NotImplemented
    make: Callable[[Parts], tuple[Any, Any]] = NotImplemented
    commits: bool = False
    in_flight: int = 0


# -- the table of loaders ----------------------------------------------------------------------------------------------


def _tma(p: Parts, tile: OperandTile, batched: bool, width: int) -> OperandLoader:
    return TmaLoader(p.w, tile, batched=batched)


def _cp_async(p: Parts, tile: OperandTile, batched: bool, width: int) -> OperandLoader:
    return CpAsyncLoader(p.w, CopyPlan(tile, width), stages=p.stages, batched=batched)


def _by_threads(kind: Callable[..., OperandLoader]) -> Callable[[Parts, OperandTile, bool, int], OperandLoader]:
    return lambda p, tile, batched, width: kind(p.w, tile, role=p.plan["load"], batched=batched)


LOADS = (
    LoadChoice(TmaLoader, "copy_engine", "ptx", _tma, copies=False),
    LoadChoice(CpAsyncLoader, "async_copies", "ptx", _cp_async),
    LoadChoice(BufferToLdsLoader, "loads_to_lds", "gcn", _by_threads(BufferToLdsLoader)),
    LoadChoice(BufferLoader, "", "gcn", _by_threads(BufferLoader)),
    LoadChoice(RegisterLoader, "", "", _by_threads(RegisterLoader)),
)
"""Loaders, the fastest first."""


# -- the table of strategies -------------------------------------------------------------------------------------------


def _mbarriers(p: Parts, load: LoadChoice, op: OpChoice) -> SyncStrategy:
    return MbarrierSync(
        p.w,
        "inputs",
        stages=p.stages,
        stage_bytes=0 if load.copies else p.payload.stage_bytes,
        producers=(p.plan["load"],),
        consumers=(p.plan["mma"],),
        cluster=p.cluster,
        filled_by="threads" if load.copies else "engine",
        released_by="commit" if op.commits else "threads",
    )


def _named(p: Parts, load: LoadChoice, op: OpChoice) -> SyncStrategy:
    sides = {"producers": (p.plan["load"],), "consumers": (p.plan["mma"],)}
    return NamedBarrierSync(p.w, stages=p.stages, first_barrier=NAMED_BARRIERS, **sides)


def _sides(kind: Callable[..., SyncStrategy]) -> Callable[[Parts, LoadChoice, OpChoice], SyncStrategy]:
    return lambda p, load, op: kind(
        p.w, "inputs", stages=p.stages, producers=(p.plan["load"],), consumers=(p.plan["mma"],)
    )


SYNCS = (
    SyncChoice(MbarrierSync, "mbarriers", "ptx", _mbarriers, counts_bytes=True),
    SyncChoice(SplitCounterSync, "", "", _sides(SplitCounterSync)),
    SyncChoice(SingleCounterSync, "", "", _sides(SingleCounterSync)),
    SyncChoice(NamedBarrierSync, "named_barriers", "", _named),
    SyncChoice(BarrierSync, "", "", _sides(BarrierSync), in_flight=0),
)
"""Strategies, the fastest first."""


# -- the table of instructions -----------------------------------------------------------------------------------------


def _waves(target: Target, tile: tuple[int, int], copies: bool) -> WarpPlan:
    return WarpPlan.waves(target, load=WARPS if copies else 1, mma=WARPS, copies=copies)


def _mma_sync(p: Parts) -> tuple[Any, Any]:
    op = MmaSync(p.a, p.b, warps=WARPS, columns=2)
    return op, RegisterAccumulators(op, whole=p.out is S32)


def _mfma(p: Parts) -> tuple[Any, Any]:
    op = Mfma(p.a, p.b, waves=WARPS)
    return op, RegisterAccumulators(op, whole=p.out is S32)


def _warpgroups(target: Target, tile: tuple[int, int], copies: bool) -> WarpPlan:
    groups, columns = tile[0] // ATOM_ROWS, tile[1]
    return WarpPlan.register_accumulators(target, consumers=groups, accumulators=columns // 2, copies=copies)


def _wgmma(p: Parts) -> tuple[Any, Any]:
    op = Wgmma(p.a, p.b, warpgroups=p.a.rows // ATOM_ROWS)
    return op, RegisterAccumulators(op, whole=p.out is S32)


def _tensor_memory(target: Target, tile: tuple[int, int], copies: bool) -> WarpPlan:
    return WarpPlan.tensor_memory(target, scheduler=False, copies=copies)


def _tcgen05(p: Parts) -> tuple[Any, Any]:
    op, mma, epilogue = Tcgen05(p.a, p.b, group=1), p.plan["mma"], p.plan["epilogue"]
    memory = TensorMemory(
        p.w,
        capacity=p.w.target.tensor_columns,
        allocates=mma,
        others=(epilogue,),
        cluster=p.cluster,
        barrier=NAMED_BARRIERS,
    )
    return op, TensorAccumulators(p.w, memory, op, stages=2, mma=mma, epilogue=epilogue, whole=p.out is S32)


OPS = (
    OpChoice(Tcgen05, "tensor_memory", "ptx", _tensor_memory, _tcgen05, commits=True),
    OpChoice(Wgmma, "warpgroup_matrix", "ptx", _warpgroups, _wgmma, in_flight=1),
    OpChoice(MmaSync, "", "ptx", _waves, _mma_sync),
    OpChoice(Mfma, "", "gcn", _waves, _mfma),
)
"""Instructions, the fastest first."""


@dataclass(frozen=True)
class PortableChoice:
    """A loader, a strategy and an instruction that make a kernel for a chip.

    Attributes
    ----------
    load, sync, op
        The components.
    """

    load: type
    sync: type
    op: type

    def __str__(self) -> str:
        return " ".join(kind.__name__ for kind in (self.load, self.sync, self.op))


@call_checked
def portable_choices(target: str) -> tuple[PortableChoice, ...]:
    """Every loader, strategy and instruction that make a portable kernel for a chip; the fastest first.

    Parameters
    ----------
    target
        The chip's name.
    """
    return tuple(PortableChoice(load.kind, sync.kind, op.kind) for op, load, sync in _made(chip(target)))


def _made(target: Target) -> Iterator[tuple[OpChoice, LoadChoice, SyncChoice]]:
    """What a chip's capabilities leave, as far as it fits together."""
    for op in (op for op in OPS if op.on(target)):
        for load in (load for load in LOADS if load.on(target)):
            for sync in (sync for sync in SYNCS if sync.on(target)):
                if not _misfit(op, load, sync):
                    yield op, load, sync


def _misfit(op: OpChoice, load: LoadChoice, sync: SyncChoice) -> str:
    """Why three components make no kernel, whatever the chip; empty where they do."""
    if not load.copies and not sync.counts_bytes:
        return f"the copy engine's bytes count on an mbarrier, and a {sync.name} has none"
    if op.commits and not sync.counts_bytes:
        return f"a commit, which alone knows of {op.name}'s reads, arrives on an mbarrier, and a {sync.name} has none"
    return ""


def chosen(
    target: Target, load: type | None, sync: type | None, op: type | None
) -> tuple[OpChoice, LoadChoice, SyncChoice]:
    """The fastest of what a chip has and the caller allows.

    Raises
    ------
    ArgumentError
        ``TK-COMP-008`` for a component that there is not, that the chip lacks, or that fits none of the others.
    """
    asked = (("op", OPS, op), ("load", LOADS, load), ("sync", SYNCS, sync))
    tables: dict[str, Sequence[Any]] = {}
    for name, table, kind in asked:
        there = [choice for choice in table if choice.on(target)]
        if kind is not None and kind not in [choice.kind for choice in there]:
            known = next((choice for choice in table if choice.kind is kind), None)
            why = "is no component of portable kernels"
            if known is not None:
                what = known.needs or f"instruction set {known.isa}"
                why = f"needs {what}, which {target.name} lacks"
            given = getattr(kind, "__name__", repr(kind))
            legal = ", ".join(choice.name for choice in there)
            raise ArgumentError(
                f"{name}={given} {why}; {target.name} has {legal}; nearest: {there[0].name}", code="TK-COMP-008"
            )
        tables[name] = [choice for choice in there if kind in (None, choice.kind)]
    reason = ""
    for chosen_op in tables["op"]:
        for chosen_load in tables["load"]:
            for chosen_sync in tables["sync"]:
                reason = _misfit(chosen_op, chosen_load, chosen_sync)
                if not reason:
                    return chosen_op, chosen_load, chosen_sync
    nearest = "; ".join(map(str, _nearest(target, load, sync, op)))
    raise ArgumentError(f"on {target.name} {reason}; nearest: {nearest}", code="TK-COMP-008")


def _nearest(target: Target, *kinds: type | None) -> list[PortableChoice]:
    """The choice with the most of the kinds that were asked for."""
    every = portable_choices(target.name)
    return [max(every, key=lambda made: sum(kind in (made.load, made.sync, made.op) for kind in kinds))]
