"""Bound launches: arrays checked, parameters packed, one call left to make."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from tilekit.arrays import ArrayView, resolve_stream, stream_getter
from tilekit.arrays.staging import CudaStaging, EmulatedStaging, Staging
from tilekit.drivers.profiler import TileProfiler
from tilekit.errors import ArgumentError
from tilekit.kernels.launch import Launch
from tilekit.kernels.launch_cache import CachedLaunch
from tilekit.kernels.launch_call import Addresses
from tilekit.kernels.problem import MatmulCall
from tilekit.runtime.emulated import EmulatedModule
from tilekit.runtime.scratch import DeviceScratch, StreamScratch
from tilekit.runtime.trace import TileTrace

if TYPE_CHECKING:
    from tilekit.emulator import Device
    from tilekit.kernels.compiled import CompiledKernel


class Plan:
    """A bound matmul. This base class is the plan of an empty output: nothing to launch.

    Attributes
    ----------
    out
        The output array, as the caller's library knows it.
    ready
        The launch without the arrays, to be made again for any arrays at the same addresses with the same layout; None
        where a call is more than a launch, or depends on more.
    """

    ready: CachedLaunch | None = None

    def __init__(self, out: Any, view: ArrayView) -> None:
        self.out = out
        self._view = view

    def __call__(self, stream: Any = None) -> Any:
        """Launch, without waiting, on `stream` or the current stream of the arrays' library; return the output."""
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

    def __init__(
        self,
        kernel: CompiledKernel,
        call: MatmulCall,
        operands: dict[str, ArrayView],
        out: Any,
    ) -> None:
        super().__init__(out, operands["out"])
        self._operands = operands  # keeps the arrays' memory as long as the plan, which knows addresses only
        ordinal = int(operands["out"].device[1])
        addresses = Addresses(**{name: view.address for name, view in operands.items()})
        owned: dict[str, DeviceScratch] = {}
        index_of = {parameter.name: index for index, parameter in enumerate(kernel.text.parameters)}
        shares: list[StreamScratch] = []

        def scratch(name: str, size: int) -> int:
            if name in ("turns", "workspace", "starts"):
                shares.append(StreamScratch(name, size, index_of[name]))
                return 0  # filled in when the stream is known
            owned[name] = DeviceScratch(size, ordinal)
            return owned[name].address

        launch = kernel.arguments(call, addresses, kernel.resident_clusters(ordinal), scratch)
        self.launch = kernel.cuda.prepare(
            kernel.launch_config(launch.grid),
            launch.parameters,
            description=str(kernel.config),
            ordinal=ordinal,
            owns=owned,
            shares=shares,
        )
        self._profiler, self._scratch, self._name = kernel.text.profile, owned, kernel.name
        self.current_stream = stream_getter(operands["out"])
        if operands["out"].library in ("torch", "cupy"):  # other libraries' streams belong to each array
            self.ready = CachedLaunch(self.launch, self.current_stream)

    def __call__(self, stream: Any = None) -> Any:
        self.launch(self.current_stream() if stream is None else resolve_stream(stream, self._view))
        return self.out

    def trace(self) -> TileTrace:
        """Wait for the latest call and return the times that its kernel noted."""
        if self._profiler is None:
            return super().trace()
        return _trace(self._name, self._profiler, self._scratch["profile"].read(), "ns")


def _trace(kernel: str, profiler: TileProfiler, data: bytes, unit: str) -> TileTrace:
    return TileTrace.of(kernel, [str(lane) for lane in profiler.lanes], profiler.tiles, data, unit)


class HostPlan(Plan, ABC):
    """Arrays in host memory: each call copies them to a device, launches there, and copies the output back."""

    def __init__(
        self,
        kernel: CompiledKernel,
        call: MatmulCall,
        operands: dict[str, ArrayView],
        out: Any,
    ) -> None:
        super().__init__(out, operands["out"])
        self._kernel = kernel
        self._call = call
        self._operands = operands
        self._times: bytes | None = None

    def __call__(self, stream: Any = None) -> Any:
        if stream is not None:
            resolve_stream(stream, self._view)  # raises: arrays in host memory have no streams
        self._run()
        return self.out

    unit = "ns"

    def trace(self) -> TileTrace:
        """Return the times that the kernel noted in the latest call."""
        profiler = self._kernel.text.profile
        if profiler is None or self._times is None:
            return super().trace()
        return _trace(self._kernel.name, profiler, self._times, self.unit)

    @abstractmethod
    def _run(self) -> None:
        """Copy, launch, wait, copy back."""

    def _finish(self, staging: Staging) -> None:
        staging.download(self._operands["out"])
        if self._kernel.text.profile is not None:
            self._times = staging.read_scratch("profile")

    def _arguments(self, staging: Staging, resident: int) -> Launch:
        addresses = Addresses(**{name: staging.upload(view) for name, view in self._operands.items()})
        return self._kernel.arguments(self._call, addresses, resident, staging.scratch)


class StagedPlan(HostPlan):
    """Arrays in host memory, computed on the GPU."""

    def _run(self) -> None:
        kernel = self._kernel
        with CudaStaging() as staging:
            launch = self._arguments(staging, kernel.resident_clusters(staging.ordinal))
            config = kernel.launch_config(launch.grid)
            kernel.cuda.prepare(config, launch.parameters, description=str(kernel.config), ordinal=staging.ordinal)()
            self._finish(staging)


class EmulatedPlan(HostPlan):
    """Arrays in host memory, computed by the emulator.

    Attributes
    ----------
    report
        What the emulator reported of the latest call.
    """

    unit = "steps"

    def __init__(self, *arguments: Any, seed: int = 0, **emulator: Any) -> None:
        super().__init__(*arguments)
        self._emulator = {"seed": seed, **emulator}
        self.report: Any = None
        self._device()

    def _device(self) -> Device:
        """A device of its own for each call, with the options that the arrays were bound with."""
        from tilekit.emulator import Device, LaunchError  # after the checks: the parser takes longer than a launch

        try:
            return Device(self._kernel.target.name, **self._emulator)
        except LaunchError as error:
            raise ArgumentError(error.message) from None

    def _run(self) -> None:
        kernel, problem = self._kernel, self._call.problem
        staging = EmulatedStaging(self._device())
        launch = self._arguments(staging, max(1, staging.device.chip.sms // kernel.text.cluster))
        prepared = (
            EmulatedModule(staging.device, kernel.ptx)
            .kernel(kernel.name)
            .prepare(
                kernel.launch_config(launch.grid),
                launch.parameters,
                description=str(kernel.config),
                work=kernel.work(problem, launch),
                reads_early=kernel.reads_early,
            )
        )
        prepared()
        self.report = prepared.report
        self._finish(staging)
