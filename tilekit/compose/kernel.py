"""A kernel that a function composes: traced once, inspected like any other, and called with arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tilekit.annotations import call_checked
from tilekit.assembly.errors import TraceError
from tilekit.assembly.legal import Whole, illegal, require_symbol, require_whole
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.writer import MAX_CLUSTER, MAX_PROFILE, Parameter, Role, Writer
from tilekit.compose.declared import Declared
from tilekit.compose.example import example_inputs
from tilekit.compose.explain import explain
from tilekit.compose.schedules import Schedules, schedule_of
from tilekit.drivers.profiler import PROFILE, TileProfiler
from tilekit.dtypes import S32
from tilekit.emulator.core.errors import RaceError
from tilekit.errors import ArgumentError
from tilekit.kernels.assembled import ArrayKernel
from tilekit.kernels.interleavings import Checked, agreeing
from tilekit.kernels.launch import Launch, require_value
from tilekit.kernels.operands import Arrays, Operand, Output, check_operands, read_arrays
from tilekit.kernels.picture import Shown
from tilekit.kernels.plan import BoundArrays, EmulatedPlan, EmulatorKeywords, Plan, plan_for, require_device
from tilekit.kernels.resolve import resolve_target
from tilekit.runtime.emulated import Work
from tilekit.runtime.trace import TileTrace
from tilekit.targets import chip as chip_named
from tilekit.tiles.call import Call, LetteredCall, Schedule, Scratch

if TYPE_CHECKING:
    from tilekit.emulator import LaunchReport


Compose = Callable[[Writer], Schedules]
"""Traces a whole kernel into a writer and returns its scheduler."""


@dataclass(frozen=True)
class Traced:
    """What a kernel function traced.

    Attributes
    ----------
    text
        The module's.
    parameters
        In launch order.
    schedule
        How a launch covers the output.
    shared_bytes
        Shared memory that a launch must ask for, bytes; 0 where the text says it.
    roles, shared
        The roles, and the shared-memory map.
    reaches_memory
        Whether anything in it may; else it writes no output.
    waits
        Whether it waits for the kernels ahead of it in the stream.
    profile
        What it notes of its own times, if anything.
    """

    text: str
    parameters: tuple[Parameter, ...]
    schedule: Callable[[Call], Schedule]
    shared_bytes: int
    roles: tuple[Role, ...]
    shared: tuple[SharedArray, ...]
    reaches_memory: bool
    waits: bool
    profile: TileProfiler | None


class ComposedKernel(ArrayKernel):
    """A kernel composed by a function; `kernel` makes one.

    Parameters
    ----------
    compose
        The function, whose name is the entry's symbol.
    operands
        What the kernel is called with.
    target, threads, cluster
        The chip's name, threads of a CTA, CTAs of a cluster.
    profile_tiles
        Tiles of a CTA whose times the kernel notes; 0 for none.

    Raises
    ------
    ArgumentError
        ``TK-COMP-001`` for operands that cannot be, ``TK-TARGET-001`` for an unknown target.
    TraceError
        ``TK-PART-001`` for a name that is no symbol of assembly text, and for threads or a cluster that no chip has.
    """

    OPTIONS: ClassVar[str | None] = "TK-COMP-002"

    def __init__(
        self,
        compose: Compose,
        operands: Sequence[Operand],
        *,
        target: str,
        threads: int,
        cluster: int = 1,
        profile_tiles: int = 0,
    ) -> None:
        if not callable(compose):
            raise illegal("kernel", "function", compose, "a function that traces the kernel into a Writer")
        self.target = chip_named(target)
        require_whole(
            "kernel", "threads", threads, Whole(self.target.lanes, self.target.max_threads, self.target.lanes)
        )
        require_whole("kernel", "cluster", cluster, Whole(1, MAX_CLUSTER))
        require_whole("kernel", "profile_tiles", profile_tiles, Whole(0, MAX_PROFILE))
        self.operands = check_operands(operands)
        require_symbol("kernel", "function's name", getattr(compose, "__name__", type(compose).__name__))
        self._threads = threads
        self._cluster = cluster
        self._profile_tiles = profile_tiles
        self._compose = compose
        self.__doc__ = compose.__doc__
        self.__module__ = compose.__module__

    def __reduce__(self) -> str:
        """A pickle names the kernel by where it is found, as that of a function does; a copy is the kernel itself."""
        return getattr(self._compose, "__qualname__", self.name)

    def __repr__(self) -> str:
        return f"<{self.name}({', '.join(operand.name for operand in self.operands)}) for {self.target.name}>"

    @property
    def name(self) -> str:
        """The entry's symbol."""
        return self._compose.__name__

    @cached_property
    def traced(self) -> Traced:
        """What the function traced; it runs once.

        Raises
        ------
        TraceError
            ``TK-COMP-004`` where it returns no scheduler, ``TK-COMP-005`` where shared memory exceeds the CTA's,
            ``TK-FIT-001`` for a scheduler whose `schedule` does not take the call, and what tracing raises.
        ArgumentError
            ``TK-PAR-003`` for a parameter that does not say how its value follows from a call.
        """
        w = Writer(
            self.name,
            target=self.target,
            threads=self._threads,
            cluster=self._cluster,
            profile_tiles=self._profile_tiles,
            uses=Declared(self.name, self.operands),
        )
        schedule = schedule_of(self.name, self._compose(w))
        for parameter in w.parameters:
            require_value(parameter)
        return Traced(
            text=w.text(),
            parameters=tuple(w.parameters),
            schedule=schedule,
            shared_bytes=w.shared.size if w.dialect.shared_at_launch else 0,
            roles=tuple(w.roles),
            shared=tuple(w.shared.arrays),
            reaches_memory=w.reaches_memory,
            waits="grid.wait" in w.placed,
            profile=w.profiler if isinstance(w.profiler, TileProfiler) else None,
        )

    @property
    def assembly(self) -> str:
        """The module's text in the chip's instruction set, each line with its role and origin."""
        return self.traced.text

    def described(self) -> str:
        """Operands, roles and warps, the shared-memory map, barriers and who arrives, parameters."""
        return explain(self)

    def shown(self) -> Shown:
        """What of the kernel is drawn."""
        traced = self.traced
        return Shown(
            name=self.name,
            target=self.target,
            threads=self.threads,
            cluster=self.cluster,
            roles=traced.roles,
            launch_registers=None,
            shared=traced.shared,
            shared_bytes=traced.shared_bytes,
        )

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """Launch once, where the arrays are: host memory means the emulator.

        Parameters
        ----------
        arrays, named
            The inputs in order, or any operand by name. Outputs that are not given are made.

        Returns
        -------
        array or tuple of arrays
            The output, or all of them in order.
        """
        return self.bind(*arrays, **named)()

    def bind(
        self,
        *arrays: Any,
        device: str | None = None,
        seed: int = 0,
        emulator: dict[str, Any] | None = None,
        **named: Any,
    ) -> Plan:
        """Check the arrays once and prepare the launch, to be made any number of times.

        Parameters
        ----------
        arrays, named
            As for a call.
        device
            ``"cuda"``, or ``"hip"`` of a kernel for an AMD chip, runs arrays in host memory on the GPU: they are copied
            there and back at each call.
        seed
            Of the emulator's schedule.
        emulator
            Other options of `tilekit.emulator.Device`.

        Raises
        ------
        ArgumentError
            For arrays that are not as the kernel's operands say (``TK-COMP-002``, ``TK-COMP-003``) or that a component
            cannot take; ``TK-API-001`` where the GPU is another chip than the kernel's.
        TraceError
            ``TK-COMP-011`` where nothing that the kernel traces can write an output.
        """
        require_device(self, device, "TK-COMP-002")
        found = read_arrays(self.name, self.operands, arrays, named)
        outputs = [operand.name for operand in self.operands if isinstance(operand, Output)]
        made = tuple(found.given[name] for name in outputs)
        bound = BoundArrays(
            found.views,
            outputs,
            made[0] if len(made) == 1 else made,
            lambda addresses, resident, scratch: self._launch(found, addresses, resident, scratch),
            lambda launch: Work(flops=found.flops, tiles=launch.tiles),
        )
        chosen: dict[str, Any] = {"seed": seed, **(emulator or {})}
        if bound.out.device == "cpu":
            # Copies are aligned as the arrays are: what a component cannot take, it says now.
            bound.launch({name: view.address for name, view in found.views.items()}, 1, lambda name, size: 0)
            if device is not None:
                resolve_target(bound.out, device)
            known = EmulatorKeywords.__annotations__
            for option in chosen.keys() - known.keys():
                raise ArgumentError.of("emulator", option, legal=", ".join(known), code="TK-COMP-002")
        if not self.traced.reaches_memory:
            raise TraceError(
                f"{self.name} traces nothing that writes {', '.join(outputs)}: it places no instruction that reaches "
                "memory; nearest: driver.trace(w), of the driver that it makes",
                code="TK-COMP-011",
            )
        return plan_for(self, bound, device, chosen)

    def emulate(
        self,
        *arrays: Any,
        seed: int = 0,
        emulator: dict[str, Any] | None = None,
        statistics: bool = False,
        timeline: str | Path | None = None,
        **named: Any,
    ) -> LaunchReport:
        """Launch once on the emulator, on arrays in host memory, and return what it reports.

        Parameters
        ----------
        arrays, named, seed, emulator
            As for `bind`; ``kernel.emulate(**kernel.example(m=200))`` makes the inputs.
        statistics, timeline
            As for `EmulatedPlan.emulate`.
        """
        return self._emulated(arrays, named, seed, emulator).emulate(statistics=statistics, timeline=timeline)

    def _emulated(
        self, arrays: Sequence[Any], named: Mapping[str, Any], seed: int, emulator: dict[str, Any] | None
    ) -> EmulatedPlan:
        plan = self.bind(*arrays, seed=seed, emulator=emulator, **named)
        if not isinstance(plan, EmulatedPlan):
            raise ArgumentError(
                f"{self.name}: given arrays in GPU memory; the emulator takes arrays in host memory. Nearest: copies",
                code="TK-COMP-003",
            )
        return plan

    @call_checked
    def profiled(self, tiles: int = 64) -> ComposedKernel:
        """Return the same kernel with notes of when each role worked on each tile, of so many tiles of a CTA.

        Raises
        ------
        ArgumentError
            ``TK-COMP-007`` for a kernel whose roles note nothing: the driver's do, and those of your own where they
            are told to (`TileProfiler.of`).
        """
        require_whole("trace", "tiles", tiles, Whole(1, MAX_PROFILE))
        found = ComposedKernel(
            self._compose,
            self.operands,
            target=self.target.name,
            threads=self._threads,
            cluster=self._cluster,
            profile_tiles=tiles,
        )
        if found.traced.profile is None:
            raise ArgumentError(
                f"{self.name} notes no times: its roles are no driver's that does. Nearest: WarpSpecialized, or "
                "TileProfiler.of(w, activities) and its clocks in the roles of your own",
                code="TK-COMP-007",
            )
        return found

    def trace(self, *arrays: Any, tiles: int = 64, **named: Any) -> TileTrace:
        """Launch with time stamps in every role, and return what each did when: in ns, on the emulator in steps.

        Parameters
        ----------
        arrays, named
            As for `bind`.
        tiles
            Tiles of a CTA to note; later ones leave no record.
        """
        plan = self.profiled(tiles).bind(*arrays, **named)
        if not isinstance(plan, EmulatedPlan):
            plan()  # the first launch loads the kernel
        plan()
        return plan.trace()

    def example(self, seed: int = 0, **given: Any) -> dict[str, Any]:
        """Inputs of small whole numbers, as NumPy arrays by name.

        Parameters
        ----------
        seed
            Of the numbers.
        given
            Extents by letter, 64 where none is given, and arrays by input: ``kernel.example(m=200, index=rows)``. Of an
            input of s32, which may hold indices, the numbers are at least 0 and below every extent.

        Raises
        ------
        ArgumentError
            ``TK-COMP-003`` for what is neither a letter nor an input, and for an extent below 1.
        """
        return example_inputs(self.operands, seed, given)

    def check(self, *, seeds: Sequence[int] = (0, 1, 2), **given: Any) -> Checked:
        """Run the kernel on the emulator, under several interleavings, on small whole numbers.

        Parameters
        ----------
        seeds
            Of the interleavings.
        given
            As for `example`: ``kernel.check(m=200, n=72)``.

        Returns
        -------
        Checked
            What the emulator reported of each run, a tuple. Findings are not raised: ``clean`` is whether there are
            none, and so is the truth of the result, for ``assert kernel.check()``.

        Raises
        ------
        ArgumentError
            ``TK-COMP-006`` where the results of two interleavings differ, ``TK-COMP-010`` where no thread writes an
            element.
        tilekit.emulator.EmulatorError
            For what the emulator faults.
        """
        inputs = self.example(**given)
        outputs = [one.name for one in self.operands if isinstance(one, Output)]
        try:
            return agreeing(self.name, lambda seed: self.bind(**inputs, seed=seed), seeds, outputs=outputs)
        except RaceError as race:
            chosen = inputs.keys() - given.keys()
            indices = [one.name for one in self.operands if one.name in chosen and one.dtype is S32]
            if indices:
                asked = ", ".join(f"{name}=..." for name in indices)
                race.besides.append(
                    f"the numbers in {', '.join(indices)} are check's own, and may be the same twice: where a kernel "
                    f"stores by them, pass check({asked})"
                )
            raise

    # -- what a launch asks -------------------------------------------------------------------------------------------

    def _launch(self, arrays: Arrays, addresses: Mapping[str, int], resident: int, scratch: Scratch) -> Launch:
        """Grid and parameters."""
        m, n, k = arrays.product
        return self.launch(
            LetteredCall(
                m=m,
                n=n,
                k=k,
                batches=arrays.batches,
                matrices=arrays.matrices(),
                addresses=addresses,
                numbers=arrays.extents,
                resident=resident,
                scratch=scratch,
                cluster_size=self.cluster,
            )
        )

    @property
    def parameters(self) -> Sequence[Parameter]:
        """Those of the entry, in launch order."""
        return self.traced.parameters

    @property
    def profile(self) -> TileProfiler | None:
        """What the kernel notes of its own times, if anything."""
        return self.traced.profile

    @property
    def schedule(self) -> Callable[[Call], Schedule]:
        """How a launch covers the output."""
        return self.traced.schedule

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return self._threads

    @property
    def cluster(self) -> int:
        """CTAs of a cluster."""
        return self._cluster

    @property
    def launch_bytes(self) -> int:
        """Dynamic shared memory of a launch, bytes.

        A kernel with accumulators in tensor memory asks for more than half of the shared memory there is: two clusters
        on the same multiprocessors could each hold columns that the other waits for.
        """
        alone = self.target.shared_bytes // 2 if self.target.has("tensor_memory") else 0
        return max(self.traced.shared_bytes, alone)

    @property
    def waits_for_prerequisites(self) -> bool:
        """Whether the function waits for the kernels ahead of it (`Writer.wait_for_prerequisites`)."""
        return self.traced.waits

    @cached_property
    def _digest(self) -> str:
        return sha256(self.assembly.encode()).hexdigest()

    def shared_scratch(self, name: str) -> str | None:
        """Launches of a stream follow each other, and leave counters as they found them; notes are a launch's own."""
        return None if name == PROFILE else f"{name} {self._digest}"


@call_checked
def kernel(*operands: Operand, target: str, threads: int, cluster: int = 1) -> Callable[[Compose], ComposedKernel]:
    """Make a kernel of the function that composes it.

    Parameters
    ----------
    operands
        What the kernel is called with, inputs in the order in which they are passed.
    target
        The chip: ``"sm_90a"``, ``"sm_100a"``, or any other that text can be written for (`tilekit.targets.CHIPS`).
    threads
        Threads of a CTA.
    cluster
        CTAs of a cluster.

    Examples
    --------
    ::

        @kernel(Input("a", BF16, "mk"), Input("b", BF16, "nk"), Output("d", BF16, "mn"), target="sm_90a", threads=384)
        def product(w: Writer) -> StaticScheduler: ...

        d = product(a, b)
    """
    return lambda compose: ComposedKernel(compose, operands, target=target, threads=threads, cluster=cluster)
