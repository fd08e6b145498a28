"""A kernel that a function composes: traced once, inspected like any other, and called with arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from tilekit.assembly.errors import TraceError
from tilekit.assembly.shared import SharedArray
from tilekit.assembly.writer import Parameter, Role, Writer
from tilekit.compose.launch import BoundLaunch, DeviceLaunch, EmulatedLaunch, StagedLaunch
from tilekit.compose.operands import Operand, Output, check_operands, read_arrays
from tilekit.errors import ArgumentError
from tilekit.kernels.assembled import AssembledKernel
from tilekit.kernels.launch import Launch, bind_parameters, require_value
from tilekit.kernels.resolve import resolve_target, target_of
from tilekit.runtime import driver
from tilekit.runtime.prepared import LaunchConfig
from tilekit.targets import chip as chip_named
from tilekit.tiles.call import Call, Schedule


class Schedules(Protocol):
    """What a kernel function returns: whatever says how a launch covers the output, a scheduler."""

    def schedule(self, call: Call) -> Schedule:
        """How a launch covers the output."""


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
    """

    text: str
    parameters: tuple[Parameter, ...]
    schedule: Callable[[Call], Schedule]
    shared_bytes: int
    roles: tuple[Role, ...]
    shared: tuple[SharedArray, ...]


class ComposedKernel(AssembledKernel):
    """A kernel composed by a function; `kernel` makes one.

    Parameters
    ----------
    compose
        The function, whose name is the entry's symbol.
    operands
        What the kernel is called with.
    target, threads, cluster
        The chip's name, threads of a CTA, CTAs of a cluster.

    Raises
    ------
    ArgumentError
        ``TK-COMP-001`` for operands that cannot be, ``TK-TARGET-001`` for an unknown target.
    """

    def __init__(
        self, compose: Compose, operands: Sequence[Operand], *, target: str, threads: int, cluster: int = 1
    ) -> None:
        self.target = chip_named(target)
        self.operands = check_operands(operands)
        self.threads = threads
        self.cluster = cluster
        self._compose = compose
        self._resident: dict[int, int] = {}
        self.__doc__ = compose.__doc__

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
            ``TK-COMP-004`` where it returns no scheduler, ``TK-COMP-005`` where shared memory exceeds the CTA's, and
            what tracing raises.
        ArgumentError
            ``TK-PAR-003`` for a parameter that does not say how its value follows from a call.
        """
        w = Writer(self.name, target=self.target, threads=self.threads, cluster=self.cluster)
        scheduler = self._compose(w)
        if not callable(getattr(scheduler, "schedule", None)):
            raise TraceError(
                f"{self.name} returned {scheduler!r}; a kernel function returns its scheduler (StaticScheduler, "
                "StreamKScheduler, ...), which says how many clusters a launch has",
                code="TK-COMP-004",
            )
        for parameter in w.parameters:
            require_value(parameter)
        self._check_size(w)
        return Traced(
            text=w.text(),
            parameters=tuple(w.parameters),
            schedule=scheduler.schedule,
            shared_bytes=w.shared.size if w.dialect.shared_at_launch else 0,
            roles=tuple(w.roles),
            shared=tuple(w.shared.arrays),
        )

    def _check_size(self, w: Writer) -> None:
        """Check that the chip has the shared memory."""
        over = w.shared.size - self.target.shared_bytes
        if over > 0:
            largest = max(w.shared.arrays, key=lambda array: array.size)
            raise TraceError(
                f"{self.name}: shared memory is {w.shared.size} bytes, {over} over the {self.target.shared_bytes} of a "
                f"CTA; the largest array is {largest.name}, {largest.count} x {largest.stride} bytes. Nearest: fewer "
                "stages, or a smaller tile",
                code="TK-COMP-005",
            )

    @property
    def assembly(self) -> str:
        """The module's text in the chip's instruction set, each line with its role and origin."""
        return self.traced.text

    @property
    def ptx(self) -> str:
        """The same, where the instruction set is PTX.

        Raises
        ------
        ArgumentError
            ``TK-TARGET-003`` where it is another.
        """
        if self.target.isa != "ptx":
            raise ArgumentError(
                f"{self!r} has no PTX: the instruction set of {self.target.name} is {self.target.isa}; nearest: "
                ".assembly",
                code="TK-TARGET-003",
            )
        return self.assembly

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
    ) -> BoundLaunch:
        """Check the arrays once and prepare the launch, to be made any number of times.

        Parameters
        ----------
        arrays, named
            As for a call.
        device
            ``"cuda"`` runs arrays in host memory on the GPU: they are copied there and back at each call.
        seed
            Of the emulator's schedule.
        emulator
            Other options of `tilekit.emulator.Device`.

        Raises
        ------
        ArgumentError
            For arrays that are not as the kernel's operands say (``TK-COMP-002``, ``TK-COMP-003``) or that a component
            cannot take; ``TK-API-001`` where the GPU is another chip than the kernel's.
        """
        if device not in (None, "cuda"):
            legal = "None, or 'cuda' for arrays in host memory"
            raise ArgumentError.of("device", device, legal=legal, nearest="cuda", code="TK-COMP-002")
        found = read_arrays(self.name, self.operands, arrays, named)
        outputs = [operand.name for operand in self.operands if isinstance(operand, Output)]
        view = found.views[outputs[0]]
        if view.device != "cpu":
            return DeviceLaunch(self, found, outputs)
        if device == "cuda":
            resolve_target(view, "cuda")
            return StagedLaunch(self, found, outputs)
        return EmulatedLaunch(self, found, outputs, {"seed": seed, **(emulator or {})})

    # -- what a launch asks -------------------------------------------------------------------------------------------

    def launch(self, call: Call) -> Launch:
        """Grid and parameters of a call."""
        return bind_parameters(self.traced.parameters, self.traced.schedule, call)

    def launch_config(self, grid: int) -> LaunchConfig:
        """The launch's shape for a grid of so many CTAs.

        A kernel with accumulators in tensor memory asks for more than half of the shared memory there is: two clusters
        on the same multiprocessors could each hold columns that the other waits for.
        """
        alone = self.target.shared_bytes // 2 if self.target.has("tensor_memory") else 0
        return LaunchConfig(
            grid=(grid, 1, 1),
            block=(self.threads, 1, 1),
            cluster=(self.cluster, 1, 1),
            shared_bytes=max(self.traced.shared_bytes, alone),
        )

    def resident_clusters(self, ordinal: int) -> int:
        """Clusters that a device holds at once.

        Raises
        ------
        ArgumentError
            ``TK-API-001`` where it is another chip than the kernel's.
        """
        if ordinal not in self._resident:
            target_of(driver.devices()[ordinal], self.target.name)
            self._resident[ordinal] = self.cuda.max_active_clusters(self.launch_config(self.cluster), ordinal=ordinal)
        return self._resident[ordinal]


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
