"""Loading code objects into the HIP runtime, and launching their kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any

from tilekit.emulator import EmulatorError
from tilekit.emulator.gcn.abi import MOST_WORK_ITEMS
from tilekit.emulator.gcn.binary.code_object import CodeObject, CodeObjectKernel
from tilekit.errors import ArgumentError, AssemblerError, ConfigError, HipError
from tilekit.runtime import device_faults, hip
from tilekit.runtime.assembler import assemble
from tilekit.runtime.kernarg import KernargLayout, no_tensor_map, shape_problems
from tilekit.runtime.parameters import Parameter
from tilekit.runtime.prepared import LaunchConfig, PreparedLaunch
from tilekit.runtime.scratch import StreamScratch

__all__ = ["HipKernel", "HipLaunch", "HipModule"]

# The runtime's keys of the list that hands over a whole kernarg segment (hip_runtime_api.h).
_BUFFER_POINTER, _BUFFER_SIZE, _END = 1, 2, 3
_STATIC_LDS = 65536  # bytes of dynamic LDS that a kernel may have without being allowed more
_LOAD_REMEDY = {
    "hipErrorNoBinaryForGpu": "the code object is for another chip than the device's",
    "hipErrorInvalidImage": "the code object is newer than the ROCm runtime, or for another chip",
    "hipErrorInvalidKernelFile": "the code object is newer than the ROCm runtime, or for another chip",
}


class HipModule:
    """A code object in the HIP runtime, loaded on the device that was current.

    Parameters
    ----------
    image : bytes
        The code object, of whatever compiler.

    Raises
    ------
    AssemblerError
        When the image is no code object (``TK-ASM-010``).
    HipError
        When the runtime refuses it, for example because it is for another chip.
    """

    def __init__(self, image: bytes) -> None:
        try:
            self.code_object = CodeObject.read(image)
        except EmulatorError as error:
            raise AssemblerError(str(error), code="TK-ASM-010") from error
        chip = self.code_object.chip.name
        self._image = image
        try:
            self._module = hip.call("hipModuleLoadData", image, during=f"loading a code object for {chip}")
        except HipError as error:
            error.message += f"; {_LOAD_REMEDY[error.result]}" if error.result in _LOAD_REMEDY else ""
            raise

    @classmethod
    def from_text(cls, text: str, target: str, *, kernel_name: str, config: str = "") -> HipModule:
        """Assemble AMDGCN text and load it; `config` says in words how it was built.

        Raises
        ------
        AssemblerError, AssemblerNotFound
            As `tilekit.runtime.assembler.assemble` does.
        HipError
            When the runtime refuses the image.
        """
        return cls(assemble(text, target, kernel_name=kernel_name, config=config).image)

    def kernel(self, name: str) -> HipKernel:
        """Return a kernel by name.

        Raises
        ------
        ArgumentError
            When the code object has none of that name.
        """
        kernel = self.code_object.kernels.get(name)
        if kernel is None:
            legal = f"a kernel of the code object: {', '.join(self.code_object.kernels) or 'it has none'}"
            raise ArgumentError.of("name", name, legal=legal, code="TK-ASM-007")
        handle = hip.call("hipModuleGetFunction", self._module, name.encode(), during=f"finding {name}")
        return HipKernel(self, kernel, handle)

    def unload(self) -> None:
        """Unload the code object. No launch of its kernels may be running or made afterwards."""
        hip.call("hipModuleUnload", self._module)


class HipKernel:
    """A kernel of a loaded code object, from `HipModule.kernel`."""

    def __init__(self, module: HipModule, kernel: CodeObjectKernel, handle: Any) -> None:
        self.module = module
        self.name = kernel.name
        self.layout = KernargLayout.of(kernel.name, kernel.metadata)
        self._kernel = kernel
        self._handle = handle
        self._dynamic_lds = 0

    def prepare(
        self,
        config: LaunchConfig,
        parameters: Sequence[Parameter],
        *,
        description: str = "",
        ordinal: int | None = None,
        owns: object = None,
        shares: Sequence[StreamScratch] = (),
    ) -> HipLaunch:
        """Do everything that a launch needs and that does not change from one to the next.

        Parameters
        ----------
        config : LaunchConfig
            The launch's shape; the grid in workgroups.
        parameters : sequence of Parameter
            In the order of the kernel's arguments.
        description : str, optional
            The kernel's configuration, for errors.
        ordinal : int, optional
            The device, that of the module; by default launches go to the one that is current, which it must be.
        owns : object, optional
            What must live as long as the launch.
        shares : sequence of StreamScratch, optional
            Memory shared with the stream's other launches.

        Raises
        ------
        ConfigError
            ``TK-LAUNCH-003``, for a shape that the chip or the kernel does not allow.
        ArgumentError
            ``TK-PAR-004`` when the parameters are not those of the kernel, ``TK-LAUNCH-002`` for too much LDS.
        HipError
            When the runtime refuses something else.
        """
        label = f"{self.name} [{description}], {config}" if description else f"{self.name}, {config}"
        problems = list(self._problems(config))
        if problems:
            raise ConfigError(problems, what=f"launch of {label}", code="TK-LAUNCH-003")
        self._allow_lds(config.shared_bytes, label)
        return HipLaunch(self, self._handle, label, config, parameters, ordinal, owns, shares)

    def _problems(self, config: LaunchConfig) -> Sequence[str]:
        found = shape_problems(config, self.module.code_object.chip.name)
        threads, most = prod(config.block), int(self._kernel.metadata.get(".max_flat_workgroup_size", 1024))
        if threads > most:
            found.append(f"block = {config.block}: {threads} threads, and {self.name} was built for at most {most}")
        for axis, workgroups, size in zip("xyz", config.grid, config.block, strict=True):
            if workgroups * size > MOST_WORK_ITEMS:
                nearest = MOST_WORK_ITEMS // size
                found.append(
                    f"grid.{axis} = {workgroups}: {workgroups * size} work-items, fewer than 2**32; nearest {nearest}"
                )
        return found

    def _allow_lds(self, dynamic: int, label: str) -> None:
        """Check dynamic LDS, and raise the kernel's limit to it where it is above what every kernel may have."""
        chip = self.module.code_object.chip
        most = chip.lds_bytes - self._kernel.descriptor.lds_bytes
        if dynamic > most:
            legal = f"at most {most} bytes on {chip.name}, beside {self._kernel.descriptor.lds_bytes} static ones"
            raise ArgumentError.of("shared_bytes", dynamic, legal=legal, nearest=most, code="TK-LAUNCH-002")
        if dynamic > max(_STATIC_LDS, self._dynamic_lds):
            kind = hip.bindings().hipFuncAttribute.hipFuncAttributeMaxDynamicSharedMemorySize
            hip.call("hipFuncSetAttribute", self._handle, kind, dynamic, during=label)
            self._dynamic_lds = dynamic


class HipLaunch(PreparedLaunch):
    """A launch prepared by `HipKernel.prepare`; a call is one hipModuleLaunchKernel.

    The whole kernarg segment is handed over as its bytes.
    """

    def __init__(
        self,
        kernel: HipKernel,
        handle: Any,
        label: str,
        config: LaunchConfig,
        parameters: Sequence[Parameter],
        ordinal: int | None,
        owns: object,
        shares: Sequence[StreamScratch],
    ) -> None:
        super().__init__(label, config, parameters, no_tensor_map, layout=kernel.layout.of_launch(config))
        self.kernel = kernel
        self._ordinal = ordinal
        self._owns = owns
        self._shares = shares
        self._stream: int | None = None
        self._handle = handle
        self._size = ctypes.c_size_t(len(bytes(self._block)))
        self._extra = (ctypes.c_void_p * 5)(
            _BUFFER_POINTER, self._block.address, _BUFFER_SIZE, ctypes.addressof(self._size), _END
        )
        self._launch_kernel = hip.bindings().hipModuleLaunchKernel

    def __call__(self, stream: int = 0) -> None:
        """Launch into a stream, given by its handle; 0 is the default stream.

        Raises
        ------
        KernelFault
            When a kernel launched earlier died.
        HipError
            When the runtime refuses the launch; names kernel and configuration.
        """
        with hip.activated(self._ordinal) as ordinal:
            if stream != self._stream:
                for block in self._shares:
                    self.set_pointer(block.index, block.address(ordinal, stream))
                self._stream = stream
            self._launch(stream)

    def _launch(self, stream: int) -> None:
        (result,) = self._launch_kernel(
            self._handle,
            *self.config.grid,
            *self.config.block,
            self.config.shared_bytes,
            stream or None,
            None,
            ctypes.addressof(self._extra),
        )
        if int(result):
            raise hip.error_of("hipModuleLaunchKernel", result, f"launching {self.label}")
        device_faults.remember(self.label)
