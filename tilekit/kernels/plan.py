"""Bound launches: parameters packed, one call left to make."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from tilekit.annotations import call_checked
from tilekit.arrays import ArrayView, resolve_stream, stream_getter
from tilekit.arrays.filling import fill
from tilekit.arrays.staging import CudaStaging, EmulatedStaging, HipStaging, Staging
from tilekit.drivers.profiler import PROFILE, TileProfiler
from tilekit.errors import ArgumentError, CallError, FindingWarning
from tilekit.kernels.launch import Launch
from tilekit.kernels.launch_cache import CachedLaunch
from tilekit.runtime.emulated import EmulatedLaunch, EmulatedModule, Work, launch_label, noted
from tilekit.runtime.prepared import PreparedLaunch
from tilekit.runtime.scratch import DeviceScratch, HipScratch, StreamScratch
from tilekit.runtime.trace import TileTrace
from tilekit.tiles.call import Scratch

if TYPE_CHECKING:
    from tilekit.emulator import Debugger, Device, Exploration, LaunchReport
    from tilekit.emulator.core.schedules import Progress
    from tilekit.kernels.assembled import AssembledKernel


class EmulatorKeywords(TypedDict, total=False):
    """Options of the emulated device (`tilekit.emulator.Device`), which checks them."""

    seed: int
    schedule: Any
    check: Any
    exact: Any
    multiprocessors: Any
    starts: Any


@dataclass(frozen=True)
class BoundArrays:
    """The arrays of a call, checked, and how a launch on them is made.

    Attributes
    ----------
    views
        Of each array, by the name that its address has in a launch.
    outputs
        Names of those that the kernel writes.
    result
        What the call returns: the output as the caller's library knows it, or a tuple of all outputs.
    launch
        Grid and parameters, from addresses by name, the clusters that the device runs at once, and a source of memory.
    work
        What a launch does, for the emulator's estimate of its time.
    neutral
        What totals of no element are, by the names of their arrays.
    """

    views: Mapping[str, ArrayView]
    outputs: Sequence[str]
    result: Any
    launch: Callable[[Mapping[str, int], int, Scratch], Launch]
    work: Callable[[Launch], Work]
    neutral: Mapping[str, float] = field(default_factory=dict)

    @property
    def out(self) -> ArrayView:
        """The first output, whose device and stream are the launch's."""
        return self.views[self.outputs[0]]


class Plan:
    """A bound call. This base class is the plan of a call without elements: nothing to launch.

    Attributes
    ----------
    out
        The output array, as the caller's library knows it, or a tuple of all outputs.
    cacheable
        The launch without the arrays, to be made again for any arrays at the same addresses with the same layout; None
        where a call is more than a launch, or depends on more.
    """

    cacheable: CachedLaunch | None = None

    def __init__(self, bound: BoundArrays) -> None:
        self.out = bound.result
        self._view = bound.out
        self._totals = [(bound.views[name], value) for name, value in bound.neutral.items()]

    @call_checked
    def __call__(self, stream: Any = None, *more: Any) -> Any:
        """Launch, without waiting, on `stream` or the current stream of the arrays' library; return the output."""
        if more:
            raise _bound_already()
        for view, value in self._totals:
            fill(view, value, resolve_stream(stream, self._view))
        return self.out

    def trace(self) -> TileTrace:
        """Wait for the latest call and return the times that its kernel noted.

        Raises
        ------
        ArgumentError
            ``TK-MM-021`` for a kernel built without ``profile_tiles``.
        """
        raise ArgumentError(
            "this kernel notes no times; build it with profile_tiles=16 in its config, or as many tiles as a CTA has",
            code="TK-MM-021",
        )


class DevicePlan(Plan):
    """Arrays in GPU memory: a call is one launch."""

    def __init__(self, kernel: AssembledKernel, bound: BoundArrays) -> None:
        super().__init__(bound)
        self._arrays = bound.views  # keeps the arrays' memory as long as the plan, which knows addresses only
        ordinal = int(bound.out.device[1])
        addresses = {name: view.address for name, view in bound.views.items()}
        own_memory = DeviceScratch if kernel.target.isa == "ptx" else HipScratch
        owned: dict[str, DeviceScratch | HipScratch] = {}
        index_of = {parameter.name: index for index, parameter in enumerate(kernel.parameters)}
        shares: list[StreamScratch] = []

        def scratch(name: str, size: int) -> int:
            shared = kernel.shared_scratch(name)
            if shared is None:
                owned[name] = own_memory(size, ordinal)
                return owned[name].address
            if name not in index_of:
                raise ArgumentError(
                    f"a component asks for memory {name!r}, but the parameter that points to it has another name; "
                    f"parameters: {', '.join(index_of)}",
                    code="TK-PAR-003",
                )
            shares.append(StreamScratch(shared, size, index_of[name], own_memory))
            return 0  # filled in when the stream is known

        launch = bound.launch(addresses, kernel.resident_clusters(ordinal), scratch)
        self.launch: PreparedLaunch = kernel.loaded(ordinal).prepare(
            kernel.launch_config(launch.grid),
            launch.parameters,
            description=kernel.description,
            ordinal=ordinal,
            owns=owned,
            shares=shares,
        )
        self._profiler, self._scratch, self._name = kernel.profile, owned, kernel.name
        self.current_stream = stream_getter(bound.out)
        if bound.out.library in ("torch", "cupy"):  # other libraries' streams belong to each array
            self.cacheable = CachedLaunch(self.launch, self.current_stream)

    def __call__(self, stream: Any = None, *more: Any) -> Any:
        if more:
            raise _bound_already()
        if self._profiler is not None:
            self._scratch[PROFILE].clear()  # where CTAs claim tiles, one may note fewer than at the launch before
        self.launch(self.current_stream() if stream is None else resolve_stream(stream, self._view))
        return self.out

    def trace(self) -> TileTrace:
        """Wait for the latest call and return the times that its kernel noted."""
        if self._profiler is None:
            return super().trace()
        return _trace(self._name, self._profiler, self._scratch[PROFILE].read(), "ns")


def _bound_already() -> CallError:
    """The error for a plan that is called with arrays."""
    return CallError(
        "a bound kernel is called with a stream, or nothing: bind was given its arrays; nearest: bind others, and call "
        "what that returns"
    )


def _trace(kernel: str, profiler: TileProfiler, data: bytes, unit: str) -> TileTrace:
    return TileTrace.of(kernel, [str(lane) for lane in profiler.lanes], profiler.tiles, data, unit)


class HostPlan(Plan, ABC):
    """Arrays in host memory: each call copies them to a device, launches there, and copies the outputs back."""

    def __init__(self, kernel: AssembledKernel, bound: BoundArrays) -> None:
        super().__init__(bound)
        self._kernel = kernel
        self._bound = bound
        self._times: bytes | None = None

    @call_checked
    def __call__(self, stream: Any = None, *more: Any) -> Any:
        if more:
            raise _bound_already()
        if stream is not None:
            resolve_stream(stream, self._view)  # raises: arrays in host memory have no streams
        self._run()
        return self.out

    unit = "ns"

    def trace(self) -> TileTrace:
        """Return the times that the kernel noted in the latest call."""
        profiler = self._kernel.profile
        if profiler is None or self._times is None:
            return super().trace()
        return _trace(self._kernel.name, profiler, self._times, self.unit)

    @abstractmethod
    def _run(self) -> None:
        """Copy, launch, wait, copy back."""

    def _finish(self, staging: Staging) -> None:
        for name in self._bound.outputs:
            staging.download(self._bound.views[name])
        if self._kernel.profile is not None:
            self._times = staging.read_scratch(PROFILE)

    def _launch(self, staging: Staging, resident: int) -> Launch:
        addresses = {name: staging.upload(view, name) for name, view in self._bound.views.items()}
        return self._bound.launch(addresses, resident, staging.scratch)


class StagedPlan(HostPlan):
    """Arrays in host memory, computed on the GPU."""

    def _run(self) -> None:
        kernel = self._kernel
        with CudaStaging() if kernel.target.isa == "ptx" else HipStaging() as staging:
            launch = self._launch(staging, kernel.resident_clusters(staging.ordinal))
            config = kernel.launch_config(launch.grid)
            loaded = kernel.loaded(staging.ordinal)
            loaded.prepare(config, launch.parameters, description=kernel.description, ordinal=staging.ordinal)()
            self._finish(staging)


class EmulatedPlan(HostPlan):
    """Arrays in host memory, computed by the emulator.

    Attributes
    ----------
    report
        What the emulator reported of the latest call.
    """

    unit = "steps"

    def __init__(self, kernel: AssembledKernel, bound: BoundArrays, options: Mapping[str, Any]) -> None:
        super().__init__(kernel, bound)
        self._options = options
        self.report: Any = None
        self._device()

    def _device(self) -> Device:
        """A device of its own for each call, with the options that the arrays were bound with."""
        from tilekit.emulator import Device, LaunchError  # after the checks: the parser takes longer than a launch

        try:
            return Device(self._kernel.target.name, **self._options)
        except LaunchError as error:
            raise ArgumentError(error.message, code=self._kernel.OPTIONS) from None

    def _run(self) -> None:
        works = noted()
        if works is not None:
            works.append(self._work()[1])
            return
        report = self.emulate()
        if not report.clean:
            found = "\n".join(map(str, report.findings))
            warnings.warn(f"{self._kernel.name}, on the emulator: {found}", FindingWarning, stacklevel=3)

    def _work(self) -> tuple[str, Work]:
        """What a launch is called, and what it does; nothing is copied, but copies are aligned as the arrays are."""
        kernel, addresses = self._kernel, {name: view.address for name, view in self._bound.views.items()}
        launch = self._bound.launch(addresses, self._resident(self._device()), lambda name, size: 0)
        label = launch_label(kernel.name, kernel.description, kernel.launch_config(launch.grid))
        return label, replace(self._bound.work(launch), ctas=launch.grid)

    def _resident(self, device: Device) -> int:
        """Clusters that the device runs at once."""
        return max(1, device.units // self._kernel.cluster)

    @call_checked
    def emulate(self, *, statistics: bool = False, timeline: str | Path | None = None) -> LaunchReport:
        """Launch once, watched, and return what the emulator reports.

        Parameters
        ----------
        statistics
            Count instructions, copies and conflicts.
        timeline
            File for who did what when, for ui.perfetto.dev.

        Raises
        ------
        EmulationTooLong
            Before anything is copied, when the estimate exceeds `settings.emulator_limit`.
        tilekit.emulator.EmulatorError
            Unchanged, for whatever the emulator found.
        """
        label, work = self._work()
        work.refuse_if_too_long(label)
        staging, prepared = self._prepared()
        prepared(statistics=statistics, timeline=timeline)
        self.report = prepared.report
        self._finish(staging)
        return cast("LaunchReport", self.report)

    def explore(self, tries: int, *, seed: int = 0, progress: Progress | None = None) -> Exploration:
        """Launch in many orders, each on the arrays as they are; stop at the first that goes wrong."""
        return self._prepared()[1].explore(tries, seed=seed, progress=progress)

    def debug(self, stop: Any) -> Debugger:
        """Start a launch that stops at a line, a label or an event, as the emulator's `Kernel.debug` does."""
        return self._prepared()[1].debug(stop)

    def _prepared(self) -> tuple[EmulatedStaging, EmulatedLaunch]:
        """Copy the arrays to a new device and prepare a launch there."""
        kernel = self._kernel
        staging = EmulatedStaging(self._device())
        launch = self._launch(staging, self._resident(staging.device))
        staging.protect(self._bound.views[name] for name in self._bound.outputs)
        return staging, EmulatedModule(staging.device, kernel.assembly).kernel(kernel.name).prepare(
            kernel.launch_config(launch.grid),
            launch.parameters,
            description=kernel.description,
            reads_early=kernel.reads_early,
        )


def require_device(kernel: AssembledKernel, device: str | None, code: str) -> None:
    """Check the `device` of a `bind`: where arrays in host memory go.

    Raises
    ------
    ArgumentError
        With the family's `code`.
    """
    own = kernel.device
    if device not in (None, own):
        raise ArgumentError.of(
            "device", device, legal=f"None, or {own!r} for arrays in host memory", nearest=own, code=code
        )


def plan_for(kernel: AssembledKernel, bound: BoundArrays, device: str | None, emulator: Mapping[str, Any]) -> Plan:
    """The plan of bound arrays: on the GPU where they are there or are to go there, else on the emulator.

    Parameters
    ----------
    kernel, bound
        The kernel, and its arrays.
    device
        ``"cuda"`` or ``"hip"`` where arrays in host memory go to the GPU.
    emulator
        Options of `tilekit.emulator.Device`.

    Raises
    ------
    ArgumentError
        ``TK-API-001`` where the GPU is another chip than the kernel's.
    """
    if bound.out.device != "cpu":
        return DevicePlan(kernel, bound)
    if device is not None:
        kernel.require_chip(0)
        return StagedPlan(kernel, bound)
    return EmulatedPlan(kernel, bound, emulator)
