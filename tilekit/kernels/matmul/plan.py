"""Bound launches: arrays checked, parameters packed, one call left to make."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from tilekit.arrays import ArrayView, resolve_stream, stream_getter
from tilekit.arrays.staging import CudaStaging, EmulatedStaging, Staging
from tilekit.kernels.matmul.arguments import Addresses, MatmulLaunch
from tilekit.kernels.matmul.problem import MatmulCall
from tilekit.kernels.ready import ReadyLaunch
from tilekit.runtime.emulated import EmulatedModule, Work
from tilekit.runtime.scratch import DeviceScratch

if TYPE_CHECKING:
    from tilekit.kernels.matmul.compiled import MatmulKernel


class MatmulPlan:
    """A bound matmul. This base class is the plan of an empty output: nothing to launch.

    Attributes
    ----------
    out
        The output array, as the caller's library knows it.
    ready
        The launch without the arrays, to be made again for any arrays at the same addresses with the same layout; None
        where a call is more than a launch, or depends on more.
    """

    ready: ReadyLaunch | None = None

    def __init__(self, out: Any, view: ArrayView) -> None:
        self.out = out
        self._view = view

    def __call__(self, stream: Any = None) -> Any:
        """Launch, without waiting, on `stream` or the current stream of the arrays' library; return the output."""
        return self.out


class DevicePlan(MatmulPlan):
    """Arrays in GPU memory: a call is one launch."""

    def __init__(
        self,
        kernel: MatmulKernel,
        call: MatmulCall,
        operands: dict[str, ArrayView],
        out: Any,
    ) -> None:
        super().__init__(out, operands["out"])
        self._operands = operands  # keeps the arrays' memory as long as the plan, which knows addresses only
        ordinal = int(operands["out"].device[1])
        addresses = Addresses(**{name: view.address for name, view in operands.items()})
        owned: list[DeviceScratch] = []

        def scratch(size: int) -> int:
            owned.append(DeviceScratch(size, ordinal))
            return owned[-1].address

        launch = kernel.arguments(call, addresses, kernel.resident_clusters(ordinal), scratch)
        self.launch = kernel.cuda.prepare(
            kernel.launch_config(launch.grid),
            launch.parameters,
            description=str(kernel.config),
            ordinal=ordinal,
            owns=owned,
        )
        self.current_stream = stream_getter(operands["out"])
        if operands["out"].library in ("torch", "cupy"):  # other libraries' streams belong to each array
            self.ready = ReadyLaunch(self.launch, self.current_stream)

    def __call__(self, stream: Any = None) -> Any:
        self.launch(self.current_stream() if stream is None else resolve_stream(stream, self._view))
        return self.out


class HostPlan(MatmulPlan, ABC):
    """Arrays in host memory: each call copies them to a device, launches there, and copies the output back."""

    def __init__(
        self,
        kernel: MatmulKernel,
        call: MatmulCall,
        operands: dict[str, ArrayView],
        out: Any,
    ) -> None:
        super().__init__(out, operands["out"])
        self._kernel = kernel
        self._call = call
        self._operands = operands

    def __call__(self, stream: Any = None) -> Any:
        if stream is not None:
            resolve_stream(stream, self._view)  # raises: arrays in host memory have no streams
        self._run()
        return self.out

    @abstractmethod
    def _run(self) -> None:
        """Copy, launch, wait, copy back."""

    def _arguments(self, staging: Staging, resident: int) -> MatmulLaunch:
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
            staging.download(self._operands["out"])


class EmulatedPlan(HostPlan):
    """Arrays in host memory, computed by the emulator.

    Attributes
    ----------
    report
        What the emulator reported of the latest call.
    """

    def __init__(self, *arguments: Any, seed: int = 0, **emulator: Any) -> None:
        super().__init__(*arguments)
        self._emulator = {"seed": seed, **emulator}
        self.report: Any = None

    def _run(self) -> None:
        from tilekit.emulator import Device  # after the checks: parsing and NumPy cost more than a launch

        kernel, problem = self._kernel, self._call.problem
        staging = EmulatedStaging(Device(kernel.target.name, **self._emulator))
        launch = self._arguments(staging, kernel.target.multiprocessors // kernel.text.cluster)
        k_blocks = -(-problem.k // kernel.k_block)
        tiles = -(-problem.m // kernel.config.tile[0]) * -(-problem.n // kernel.config.tile[1]) * problem.batches
        prepared = (
            EmulatedModule(staging.device, kernel.ptx)
            .kernel(kernel.name)
            .prepare(
                kernel.launch_config(launch.grid),
                launch.parameters,
                description=str(kernel.config),
                work=Work(flops=problem.flops, tiles=tiles * k_blocks),
            )
        )
        prepared()
        self.report = prepared.report
        staging.download(self._operands["out"])
