"""Launches of composed kernels: arrays checked, one call left to make, on the GPU or on the emulator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from tilekit.arrays import resolve_stream, stream_getter
from tilekit.arrays.staging import CudaStaging, EmulatedStaging, Staging
from tilekit.compose.operands import Arrays
from tilekit.errors import ArgumentError
from tilekit.kernels.launch import Launch
from tilekit.runtime.emulated import EmulatedModule, Work
from tilekit.runtime.scratch import StreamScratch
from tilekit.tiles.call import Call, Scratch

if TYPE_CHECKING:
    from tilekit.compose.kernel import ComposedKernel
    from tilekit.emulator import Device


class BoundLaunch(ABC):
    """A composed kernel bound to arrays; a call launches it.

    Attributes
    ----------
    out
        The output as the caller's library knows it, or a tuple of all outputs.
    """

    def __init__(self, kernel: ComposedKernel, arrays: Arrays, outputs: Sequence[str]) -> None:
        self._kernel = kernel
        self._arrays = arrays  # keeps their memory as long as the launch, which knows addresses only
        self._outputs = outputs
        made = tuple(arrays.given[name] for name in outputs)
        self.out: Any = made[0] if len(made) == 1 else made

    @abstractmethod
    def __call__(self, stream: Any = None) -> Any:
        """Launch on `stream`, or the current stream of the arrays' library; return the outputs."""

    def _launch(self, addresses: Mapping[str, int], resident: int, scratch: Scratch) -> Launch:
        """Grid and parameters."""
        extents = self._arrays.extents
        m, n, k = (extents.get(letter, 1) for letter in "mnk")
        return self._kernel.launch(
            Call(
                m=m,
                n=n,
                k=k,
                matrices=self._arrays.matrices(),
                addresses=addresses,
                numbers=extents,
                resident=resident,
                scratch=scratch,
                cluster_size=self._kernel.cluster,
            )
        )


class DeviceLaunch(BoundLaunch):
    """Arrays in GPU memory: a call is one launch, and does not wait for it."""

    def __init__(self, kernel: ComposedKernel, arrays: Arrays, outputs: Sequence[str]) -> None:
        super().__init__(kernel, arrays, outputs)
        self._view = arrays.views[outputs[0]]
        ordinal = int(self._view.device[1])
        index_of = {parameter.name: index for index, parameter in enumerate(kernel.traced.parameters)}
        digest = sha256(kernel.assembly.encode()).hexdigest()
        shares: list[StreamScratch] = []

        def scratch(name: str, size: int) -> int:
            if name not in index_of:
                raise ArgumentError(
                    f"a component asks for memory {name!r}, but the parameter that points to it has another name; "
                    f"parameters: {', '.join(index_of)}",
                    code="TK-PAR-003",
                )
            # A kernel's launches in a stream follow each other, and leave counters as they found them.
            shares.append(StreamScratch(f"{name} {digest}", size, index_of[name]))
            return 0  # filled in when the stream is known

        addresses = {name: view.address for name, view in arrays.views.items()}
        launch = self._launch(addresses, kernel.resident_clusters(ordinal), scratch)
        self.launch = kernel.cuda.prepare(
            kernel.launch_config(launch.grid), launch.parameters, ordinal=ordinal, shares=shares
        )
        self._current_stream = stream_getter(self._view)

    def __call__(self, stream: Any = None) -> Any:
        self.launch(self._current_stream() if stream is None else resolve_stream(stream, self._view))
        return self.out


class HostLaunch(BoundLaunch, ABC):
    """Arrays in host memory: each call copies them to a device, launches there, and copies the outputs back."""

    def __init__(self, kernel: ComposedKernel, arrays: Arrays, outputs: Sequence[str]) -> None:
        super().__init__(kernel, arrays, outputs)
        # Copies are aligned as the arrays are: what a component cannot take, it says now.
        self._launch({name: view.address for name, view in arrays.views.items()}, 1, lambda name, size: 0)

    def __call__(self, stream: Any = None) -> Any:
        if stream is not None:
            resolve_stream(stream, self._arrays.views[self._outputs[0]])  # raises: there are no streams
        self._run()
        return self.out

    @abstractmethod
    def _run(self) -> None:
        """Copy, launch, wait, copy back."""

    def _upload(self, staging: Staging, resident: int) -> Launch:
        addresses = {name: staging.upload(view) for name, view in self._arrays.views.items()}
        return self._launch(addresses, resident, staging.scratch)

    def _download(self, staging: Staging) -> None:
        for name in self._outputs:
            staging.download(self._arrays.views[name])


class StagedLaunch(HostLaunch):
    """Arrays in host memory, computed on the GPU."""

    def _run(self) -> None:
        kernel = self._kernel
        with CudaStaging() as staging:
            launch = self._upload(staging, kernel.resident_clusters(staging.ordinal))
            kernel.cuda.prepare(kernel.launch_config(launch.grid), launch.parameters, ordinal=staging.ordinal)()
            self._download(staging)


class EmulatedLaunch(HostLaunch):
    """Arrays in host memory, computed by the emulator.

    Attributes
    ----------
    report
        What the emulator reported of the latest call.
    """

    def __init__(
        self, kernel: ComposedKernel, arrays: Arrays, outputs: Sequence[str], options: Mapping[str, Any]
    ) -> None:
        super().__init__(kernel, arrays, outputs)
        self._options = options
        self.report: Any = None
        self._device()

    def _device(self) -> Device:
        """A device of its own for each call, with the options that the arrays were bound with."""
        from tilekit.emulator import Device, LaunchError  # after the checks: the parser takes longer than a launch

        try:
            return Device(self._kernel.target.name, **self._options)
        except LaunchError as error:
            raise ArgumentError(error.message, code="TK-COMP-002") from None
        except TypeError as error:  # an option that it does not have
            raise ArgumentError(f"emulator={self._options}: {error}", code="TK-COMP-002") from None

    def _run(self) -> None:
        kernel = self._kernel
        staging = EmulatedStaging(self._device())
        launch = self._upload(staging, max(1, kernel.target.multiprocessors // kernel.cluster))
        extents = self._arrays.extents
        flops = 2.0 * extents.get("m", 1) * extents.get("n", 1) * extents.get("k", 1)
        prepared = (
            EmulatedModule(staging.device, kernel.assembly)
            .kernel(kernel.name)
            .prepare(kernel.launch_config(launch.grid), launch.parameters, work=Work(flops=flops, tiles=launch.tiles))
        )
        prepared()
        self.report = prepared.report
        self._download(staging)
