"""Loading images into the CUDA driver, and launching their kernels with as little host work as the driver allows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from math import prod
from typing import Any

from tilekit.errors import ArgumentError, AssemblerNotFound, DriverError
from tilekit.runtime import device_faults, driver, tensor_map
from tilekit.runtime.assembler import assemble
from tilekit.runtime.parameters import Parameter
from tilekit.runtime.prepared import LaunchConfig, PreparedLaunch
from tilekit.runtime.resources import Resources
from tilekit.runtime.scratch import StreamScratch

__all__ = ["CudaKernel", "CudaLaunch", "CudaModule", "DriverJitWarning"]

_PORTABLE_CLUSTER = 8
_JIT_LOG_BYTES = 16384
_LOAD_REMEDY = {
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "the image is for another architecture than the device's",
    "CUDA_ERROR_INVALID_IMAGE": "the assembler may be newer than the driver: choose an older one with TILEKIT_PTXAS",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "the text's .version is newer than the driver",
    "CUDA_ERROR_INVALID_PTX": "the log follows",
}
# A launch into the default stream from a thread with no context, or with another device's, answers one of these.
_WRONG_CONTEXT = ("CUDA_ERROR_INVALID_CONTEXT", "CUDA_ERROR_INVALID_HANDLE")


class DriverJitWarning(UserWarning):
    """The driver assembled a kernel, because there is no ptxas; it may have dropped ``setmaxnreg``."""


class CudaModule:
    """An image in the driver, for every device of the process.

    Make one with `load` or `from_ptx`. It stays loaded until `unload`, since a captured graph may still need it.
    """

    def __init__(self, library: Any, resources: Resources | None = None) -> None:
        self._library = library
        self.resources = resources

    @classmethod
    def load(cls, image: bytes, *, assembler_id: str = "") -> CudaModule:
        """Load a cubin.

        Parameters
        ----------
        image : bytes
            What the assembler made.
        assembler_id : str, optional
            Which assembler, for the error's message.

        Raises
        ------
        DriverError
            When the driver refuses the image: wrong architecture, or an assembler newer than the driver.
        """
        origin = f"loading a cubin of {len(image)} bytes" + (f" made by {assembler_id}" if assembler_id else "")
        return cls(_load(image, [], [], origin))

    @classmethod
    def from_ptx(cls, ptx: str, target: str, *, kernel_name: str, config: str = "") -> CudaModule:
        """Assemble PTX text and load it; without ptxas, let the driver assemble it, with a warning.

        Parameters
        ----------
        ptx : str
            A complete PTX module.
        target : str
            Architecture, e.g. ``sm_90a``.
        kernel_name : str
            The entry whose resources are checked.
        config : str, optional
            How it was built, in words, for the disk cache.

        Raises
        ------
        AssemblerError
            When the text cannot be assembled, or only into a slow kernel.
        DriverError
            When the driver refuses the image.

        Warns
        -----
        DriverJitWarning
            When there is no ptxas.
        """
        try:
            assembled = assemble(ptx, target, kernel_name=kernel_name, config=config)
        except AssemblerNotFound as missing:
            module = cls(_load_ptx(ptx, kernel_name))
            warnings.warn(
                f"{missing.message}. The driver assembled {kernel_name} instead: slower to start, unchecked, and "
                "possibly without setmaxnreg",
                DriverJitWarning,
                stacklevel=2,
            )
            return module
        module = cls.load(assembled.image, assembler_id=assembled.assembler_id)
        module.resources = assembled.resources
        return module

    def kernel(self, name: str) -> CudaKernel:
        """Return an entry by name.

        Raises
        ------
        DriverError
            When the image has no such entry (CUDA_ERROR_NOT_FOUND).
        """
        return CudaKernel(
            self, name, driver.call("cuLibraryGetKernel", self._library, name.encode(), during=f"finding {name}")
        )

    def unload(self) -> None:
        """Unload the image. No launch of its kernels may be running, captured or made afterwards."""
        driver.call("cuLibraryUnload", self._library)


class CudaKernel:
    """An entry of a loaded image.

    Parameters
    ----------
    module : CudaModule
        Kept alive as long as the kernel.
    name : str
        The entry's name.
    handle : CUkernel
        The driver's handle.
    """

    def __init__(self, module: CudaModule, name: str, handle: Any) -> None:
        self.module = module
        self.name = name
        self._handle = handle
        self._functions: dict[int, _Function] = {}

    def prepare(
        self,
        config: LaunchConfig,
        parameters: Sequence[Parameter],
        *,
        description: str = "",
        ordinal: int | None = None,
        owns: object = None,
        shares: Sequence[StreamScratch] = (),
    ) -> CudaLaunch:
        """Do everything that a launch needs and that does not change from one to the next.

        Parameters
        ----------
        config : LaunchConfig
            The launch's shape.
        parameters : sequence of Parameter
            In the order of the entry's ``.param`` list.
        description : str, optional
            The kernel's configuration, for errors.
        ordinal : int, optional
            The device; by default that of the current context.
        owns : object, optional
            What must live as long as the launch, such as a `DeviceScratch` whose address is among the parameters.
        shares : sequence of StreamScratch, optional
            Memory shared with the stream's other launches.

        Raises
        ------
        ArgumentError
            When the device has less shared memory than asked for, or a parameter is not legal.
        DriverError
            When the driver refuses something else.
        """
        label = f"{self.name} [{description}], {config}" if description else f"{self.name}, {config}"
        context = driver.context_for(ordinal)
        with driver.activated(context):
            function = self._function(context, config, label)
            return CudaLaunch(self, function, context, label, config, parameters, owns, shares)

    def max_active_clusters(self, config: LaunchConfig, *, ordinal: int | None = None) -> int:
        """Return how many clusters of this shape the device can hold at once (cuOccupancyMaxActiveClusters).

        A persistent kernel's grid is this many clusters. The driver does not promise that all of them run at once.
        """
        context = driver.context_for(ordinal)
        with driver.activated(context):
            function = self._function(context, config, self.name)
            shape = _driver_config(driver.bindings(), config, always_cluster=True)
            return int(driver.call("cuOccupancyMaxActiveClusters", function, shape, during=f"{self.name}, {config}"))

    def _function(self, context: driver.Context, config: LaunchConfig, label: str) -> Any:
        """Return the handle for one context, loaded, and allowed what `config` needs."""
        key = int(context.handle)
        if key not in self._functions:
            self._functions[key] = _Function(driver.call("cuKernelGetFunction", self._handle, during=label))
        function = self._functions[key]
        function.allow(config, context.ordinal, label)
        return function.handle


class CudaLaunch(PreparedLaunch):
    """A launch prepared by `CudaKernel.prepare`; a call is one cuLaunchKernelEx.

    Safe while a stream is being captured into a graph. All parameters, tensor maps too, go through ``kernelParams``:
    only the driver knows at which offsets the image expects them.
    """

    def __init__(
        self,
        kernel: CudaKernel,
        function: Any,
        context: driver.Context,
        label: str,
        config: LaunchConfig,
        parameters: Sequence[Parameter],
        owns: object,
        shares: Sequence[StreamScratch],
    ) -> None:
        super().__init__(label, config, parameters, tensor_map.encode)
        cuda = driver.bindings()
        self.kernel = kernel
        self._owns = owns
        self._shares = shares
        self._context = context
        self._function = function
        self._driver_config = _driver_config(cuda, config)
        self._pointers = self._block.pointers
        self._stream: int | None = None
        self._launch_kernel = cuda.cuLaunchKernelEx
        self._remember = device_faults.remember

    def __call__(self, stream: int = 0) -> None:
        """Launch into a stream, given by its handle; 0 is the default stream.

        Raises
        ------
        KernelFault
            When a kernel launched earlier died.
        DriverError
            When the driver refuses the launch; names kernel and configuration.
        """
        if stream != self._stream:
            self._enter(stream)
        (result,) = self._launch_kernel(self._driver_config, self._function, self._pointers, 0)
        if result:
            self._launch_in_own_context(result)
        self._remember(self.label)

    def _enter(self, stream: int) -> None:
        """Make `stream` the one that launches go into."""
        self._driver_config.hStream = stream
        for block in self._shares:
            self.set_pointer(block.index, block.address(self._context.ordinal, stream))
        self._stream = stream

    def _launch_in_own_context(self, result: Any) -> None:
        """Launch again with the kernel's context current if that can have been the reason, else raise."""
        if getattr(result, "name", "") in _WRONG_CONTEXT:
            with driver.activated(self._context):
                (result,) = self._launch_kernel(self._driver_config, self._function, self._pointers, 0)
        if result:
            raise driver.error_of("cuLaunchKernelEx", result, f"launching {self.label}")


class _Function:
    """A kernel's handle in one context, and what it has been allowed so far."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self._shared_bytes = 0
        self._large_cluster = False
        # Reading an attribute makes a lazily loaded kernel load now: it could not during a stream capture.
        kinds = driver.bindings().CUfunction_attribute
        self._static_bytes = int(
            driver.call(
                "cuFuncGetAttribute", kinds.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, handle, during="loading a kernel"
            )
        )

    def allow(self, config: LaunchConfig, ordinal: int, label: str) -> None:
        """Raise the function's limits to what a launch needs; they are never lowered."""
        cuda = driver.bindings()
        kinds = cuda.CUfunction_attribute
        if config.shared_bytes > self._shared_bytes:
            most = self._most_shared_bytes(cuda, ordinal)
            if config.shared_bytes > most:
                legal = f"at most {most} bytes on device {ordinal}, beside {self._static_bytes} static ones"
                given = config.shared_bytes
                raise ArgumentError.of("shared_bytes", given, legal=legal, nearest=most, code="TK-LAUNCH-002")
            limit = kinds.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.call("cuFuncSetAttribute", self.handle, limit, config.shared_bytes, during=label)
            self._shared_bytes = config.shared_bytes
        if prod(config.cluster) > _PORTABLE_CLUSTER and not self._large_cluster:
            permission = kinds.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            driver.call("cuFuncSetAttribute", self.handle, permission, 1, during=label)
            self._large_cluster = True

    def _most_shared_bytes(self, cuda: Any, ordinal: int) -> int:
        attribute = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        return (
            int(driver.call("cuDeviceGetAttribute", attribute, driver.call("cuDeviceGet", ordinal)))
            - self._static_bytes
        )


def _driver_config(cuda: Any, config: LaunchConfig, *, always_cluster: bool = False) -> Any:
    shape = cuda.CUlaunchConfig()
    shape.gridDimX, shape.gridDimY, shape.gridDimZ = config.grid
    shape.blockDimX, shape.blockDimY, shape.blockDimZ = config.block
    shape.sharedMemBytes = config.shared_bytes
    shape.hStream = 0
    attributes = []
    if always_cluster or prod(config.cluster) > 1:
        cluster = cuda.CUlaunchAttribute()
        cluster.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        cluster.value.clusterDim.x, cluster.value.clusterDim.y, cluster.value.clusterDim.z = config.cluster
        attributes.append(cluster)
    if config.pdl:
        dependent = cuda.CUlaunchAttribute()
        dependent.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        dependent.value.programmaticStreamSerializationAllowed = 1
        attributes.append(dependent)
    if attributes:
        shape.attrs = attributes
    shape.numAttrs = len(attributes)
    return shape


def _load(image: bytes, options: list[Any], values: list[Any], origin: str) -> Any:
    driver.context_for()  # the driver loads into contexts, and a thread may have none yet
    try:
        return driver.call("cuLibraryLoadData", image, options, values, len(options), [], [], 0, during=origin)
    except DriverError as error:
        major, minor = divmod(driver.driver_version() // 10, 100)
        remedy = _LOAD_REMEDY.get(error.result, "")
        error.message += f"; the driver supports CUDA {major}.{minor}" + (f"; {remedy}" if remedy else "")
        raise


def _load_ptx(ptx: str, kernel_name: str) -> Any:
    """Load PTX text through the driver's assembler, with its log in the error."""
    kinds = driver.bindings().CUjit_option
    log = bytearray(_JIT_LOG_BYTES)
    options = [kinds.CU_JIT_ERROR_LOG_BUFFER, kinds.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    try:
        return _load(ptx.encode() + b"\0", options, [log, len(log)], f"assembling {kernel_name} in the driver")
    except DriverError as error:
        text = log.split(b"\0")[0].decode(errors="replace").strip()
        if text:
            error.message = f"{error.message}\n{text}"
        raise
