"""A kernel of a loaded module: argument and shape checks, parameter block, launch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import LaunchError
from .launch import Dim3, Launch, Progress
from .report import LaunchReport
from .syntax import TYPE_BYTES, Function, Variable

if TYPE_CHECKING:
    from .device import Buffer
    from .module import Module

DEFAULT_STEP_BUDGET = 200_000_000


class Kernel:
    """One entry of a module.

    Attributes
    ----------
    name
        Of the entry.
    module
        Where it comes from.
    """

    def __init__(self, module: Module, name: str) -> None:
        self.module = module
        self.name = name

    def __repr__(self) -> str:
        return f"<Kernel {self.name}({', '.join(f'.{p.type} {p.name}' for p in self.parameters)})>"

    @property
    def function(self) -> Function:
        """The parsed entry."""
        return self.module.function(self.name)

    @property
    def parameters(self) -> tuple[Variable, ...]:
        """Its parameters, in order."""
        return tuple(self.function.parameters)

    @property
    def parameter_bytes(self) -> int:
        """Size of the parameter block."""
        parameters = self.parameters
        return parameters[-1].offset + parameters[-1].size if parameters else 0

    def launch(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any] = (),
        *,
        cluster: int | Sequence[int] | None = None,
        shared_bytes: int = 0,
        params: bytes | None = None,
        step_budget: int = DEFAULT_STEP_BUDGET,
        progress: Progress | None = None,
    ) -> LaunchReport:
        """Run the kernel to its end.

        Parameters
        ----------
        grid, block, cluster
            Dimensions (x, y, z) in CTAs, threads, CTAs; missing ones are 1. The cluster defaults to
            ``.reqnctapercluster``.
        args
            One value a parameter: a `Buffer`, a tensor map, a NumPy array (uploaded, and updated afterwards), a NumPy
            scalar or raw bytes of the parameter's size, a Python number for a parameter of a plain type, or None for a
            null pointer.
        shared_bytes
            Dynamic shared memory of a CTA, bytes.
        params
            A ready parameter block instead of ``args``.
        step_budget
            Basic blocks after which the launch is stopped with a report of where every warp is.
        progress
            Called with (CTAs finished, CTAs in the grid, seconds) whenever a cluster ends.

        Returns
        -------
        LaunchReport

        Raises
        ------
        LaunchError
            If an argument does not fit the kernel or the chip.
        EmulatorError
            The first fault of the run.
        """
        device = self.module.device
        shape, threads = _dim3("grid", grid), _dim3("block", block)
        clusters = self._cluster(cluster)
        self._check_shape(shape, threads, clusters)
        aligned = threads[1:] == (1, 1) or threads[0] % 32 == 0
        program = self.module.program(self.name, aligned_warps=aligned)
        self._check_shared(program.layout.total_bytes(shared_bytes), shared_bytes)
        if params is None:
            block_bytes, uploads = self._pack(args)
        else:
            block_bytes, uploads = self._check_block(params, args), []
        launch = Launch(
            program,
            self.module.chip,
            device.memory,
            self.module.symbols(self.name),
            grid=shape,
            block=threads,
            cluster=clusters,
            shared_bytes=shared_bytes,
            parameters=block_bytes,
            schedule=device.schedule,
            seed=device.seed,
            check=device.check,
            exact=device.exact,
            step_budget=step_budget,
            progress=progress,
        )
        try:
            return launch.run()
        finally:
            for array, buffer in uploads:
                array[...] = buffer.read()
                buffer.free()

    # -- shape -------------------------------------------------------------------------------------------------------

    def _cluster(self, cluster: int | Sequence[int] | None) -> Dim3:
        required = self.function.directives.get("reqnctapercluster")
        if cluster is None:
            return _dim3("cluster", required or (1, 1, 1))
        given = _dim3("cluster", cluster)
        if required and _dim3("cluster", required) != given:
            wanted = _dim3("cluster", required)
            raise LaunchError.argument("cluster", given, f"{wanted}, as .reqnctapercluster says", wanted)
        return given

    def _check_shape(self, grid: Dim3, block: Dim3, cluster: Dim3) -> None:
        chip = self.module.chip
        threads = math.prod(block)
        if threads > chip.threads_per_cta or block[2] > 64:
            raise LaunchError.argument("block", block, f"at most {chip.threads_per_cta} threads, z at most 64")
        directives = self.function.directives
        if "reqntid" in directives and _dim3("block", directives["reqntid"]) != block:
            wanted = _dim3("block", directives["reqntid"])
            raise LaunchError.argument("block", block, f"{wanted}, as .reqntid says", wanted)
        if "maxntid" in directives and threads > math.prod(directives["maxntid"]):
            raise LaunchError.argument("block", block, f"at most {math.prod(directives['maxntid'])} threads (.maxntid)")
        if grid[0] >= 1 << 31 or grid[1] > 65535 or grid[2] > 65535:
            raise LaunchError.argument("grid", grid, "x below 2^31, y and z at most 65535")
        size = math.prod(cluster)
        if size > chip.clusters:
            raise LaunchError.argument("cluster", cluster, f"at most {chip.clusters} CTAs on {chip.name}")
        for axis, (count, step) in enumerate(zip(grid, cluster, strict=True)):
            if count % step:
                nearest = tuple(-(-g // c) * c for g, c in zip(grid, cluster, strict=True))
                raise LaunchError.argument(
                    "grid", grid, f"a multiple of the cluster {cluster} in {'xyz'[axis]}", nearest
                )

    def _check_shared(self, total: int, dynamic: int) -> None:
        limit = self.module.chip.shared_per_cta
        if dynamic < 0 or total > limit:
            static = total - dynamic
            raise LaunchError.argument(
                "shared_bytes", dynamic, f"0 to {limit - static} ({static} bytes are static)", max(0, limit - static)
            )

    # -- parameters --------------------------------------------------------------------------------------------------

    def _check_block(self, params: bytes, args: Sequence[Any]) -> bytes:
        if len(args):
            raise LaunchError("give args or params, not both")
        if len(params) != self.parameter_bytes:
            raise LaunchError.argument("params", f"{len(params)} bytes", f"{self.parameter_bytes} bytes for {self!r}")
        return bytes(params)

    def _pack(self, args: Sequence[Any]) -> tuple[bytes, list[tuple[np.ndarray[Any, Any], Buffer]]]:
        parameters = self.parameters
        if len(args) != len(parameters):
            raise LaunchError(
                f"{len(args)} arguments for the {len(parameters)} parameters of {self!r}",
                details={"given": len(args), "expected": len(parameters)},
            )
        block = bytearray(self.parameter_bytes)
        uploads: list[tuple[np.ndarray[Any, Any], Buffer]] = []
        for index, (value, parameter) in enumerate(zip(args, parameters, strict=True)):
            if isinstance(value, np.ndarray):
                buffer = self.module.device.buffer(value, name=parameter.name)
                uploads.append((value, buffer))
                value = buffer
            data = _encode(index, value, parameter)
            block[parameter.offset : parameter.offset + parameter.size] = data
        return bytes(block), uploads


def _encode(index: int, value: Any, parameter: Variable) -> bytes:
    """The bytes of one argument, which must be exactly as many as the parameter has."""
    name = f"args[{index}] ({parameter.name})"
    legal = f"{parameter.size} bytes of .{parameter.type}"
    data: bytes
    if value is None:
        data = bytes(8)
    elif hasattr(value, "address"):
        data = int(value.address).to_bytes(8, "little")
    elif isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
    elif isinstance(value, np.generic):
        data = value.tobytes()
    elif isinstance(value, bool | int | float):
        data = _encode_number(name, value, parameter)
    elif hasattr(value, "__bytes__"):
        data = bytes(value)
    else:
        raise LaunchError.argument(name, type(value).__name__, f"{legal}: a Buffer, an array, a scalar or bytes")
    if len(data) != parameter.size:
        raise LaunchError.argument(name, f"{len(data)} bytes ({type(value).__name__})", legal)
    return data


def _encode_number(name: str, value: float, parameter: Variable) -> bytes:
    kind = parameter.type
    if kind in ("f32", "f64", "f16"):
        return np.array([value], f"f{TYPE_BYTES[kind]}").tobytes()
    bits = parameter.size * 8
    if not isinstance(value, int) or not -(1 << bits - 1) <= value < 1 << bits or bits > 64:
        raise LaunchError.argument(name, value, f"an integer of {bits} bits")
    return (value & ((1 << bits) - 1)).to_bytes(parameter.size, "little")


def _dim3(name: str, value: int | Sequence[int]) -> Dim3:
    parts = (value,) if isinstance(value, int) else tuple(int(part) for part in value)
    if not 1 <= len(parts) <= 3 or any(part < 1 for part in parts):
        raise LaunchError.argument(name, value, "one to three positive integers", (1, 1, 1))
    x, y, z = (*parts, 1, 1)[:3]
    return x, y, z
