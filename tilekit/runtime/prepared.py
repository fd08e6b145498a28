"""What CUDA and the emulator have in common: a launch's shape, and a launch prepared once and made many times."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from tilekit.errors import ConfigError
from tilekit.runtime.parameters import Layout, Parameter, ParameterBlock, TensorMap, pack

__all__ = ["LaunchConfig", "PreparedLaunch"]

_GRID_LIMITS = (2**31 - 1, 65535, 65535)
_BLOCK_LIMITS = (1024, 1024, 64)
_THREADS_LIMIT = 1024
_CLUSTER_LIMIT = 16  # CTAs; above 8 the size is not portable, and needs the kernel's permission
_AXES = "xyz"


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """The shape of a launch.

    Attributes
    ----------
    grid : tuple of int
        CTAs along x, y, z (not clusters).
    block : tuple of int
        Threads of a CTA along x, y, z.
    cluster : tuple of int
        CTAs of a cluster along x, y, z; must divide the grid.
    shared_bytes : int
        Dynamic shared memory of a CTA, in bytes.
    pdl : bool
        Programmatic dependent launch: the kernel may start before the one ahead of it in the stream has ended, and
        waits for it by ``griddepcontrol.wait``.

    Raises
    ------
    ConfigError
        Listing everything that no device can launch.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0
    pdl: bool = False

    def __post_init__(self) -> None:
        problems = []
        for name, extents, limits in (
            ("grid", self.grid, _GRID_LIMITS),
            ("block", self.block, _BLOCK_LIMITS),
            ("cluster", self.cluster, (_CLUSTER_LIMIT,) * 3),
        ):
            for axis, extent, limit in zip(_AXES, extents, limits, strict=True):
                if not 1 <= extent <= limit:
                    nearest = min(max(extent, 1), limit)
                    problems.append(f"{name}.{axis} = {extent}: must lie in 1 to {limit}; nearest legal {nearest}")
        if not problems:
            problems += self._joint_problems()
        if self.shared_bytes < 0:
            problems.append(f"shared_bytes = {self.shared_bytes}: must not be negative; nearest legal 0")
        if problems:
            raise ConfigError(problems, what="launch", code="TK-LAUNCH-001")

    def _joint_problems(self) -> list[str]:
        problems = []
        if prod(self.block) > _THREADS_LIMIT:
            problems.append(f"block = {self.block}: {prod(self.block)} threads, at most {_THREADS_LIMIT}")
        if prod(self.cluster) > _CLUSTER_LIMIT:
            problems.append(f"cluster = {self.cluster}: {prod(self.cluster)} CTAs, at most {_CLUSTER_LIMIT}")
        for axis, extent, size in zip(_AXES, self.grid, self.cluster, strict=True):
            if extent % size:
                nearest = -(-extent // size) * size
                problems.append(
                    f"grid.{axis} = {extent}: must be a multiple of cluster.{axis} = {size}; nearest {nearest}"
                )
        return problems

    def __str__(self) -> str:
        parts = [f"grid {_product(self.grid)}", f"block {_product(self.block)}"]
        if prod(self.cluster) > 1:
            parts.append(f"cluster {_product(self.cluster)}")
        parts.append(f"{self.shared_bytes} B dynamic shared memory")
        return ", ".join(parts) + (", PDL" if self.pdl else "")


class PreparedLaunch(ABC):
    """A kernel with its launch shape and its parameters, ready to be launched any number of times.

    Calling it launches. Parameters can be replaced in between; nothing else can. An instance belongs to one thread at a
    time.

    Parameters
    ----------
    label : str
        Kernel and configuration, as errors name them.
    config : LaunchConfig
        The launch's shape.
    parameters : sequence of Parameter
        In the order of the entry's ``.param`` list.
    encode : callable
        The device's encoder of tensor maps.
    layout : callable, optional
        Lays the parameters out; by default as ``.param`` space has them.
    """

    def __init__(
        self,
        label: str,
        config: LaunchConfig,
        parameters: Sequence[Parameter],
        encode: Callable[[TensorMap], bytes],
        *,
        layout: Layout = pack,
    ) -> None:
        self.label = label
        self.config = config
        self._block = ParameterBlock(parameters, encode, layout)
        self._encode = encode

    @abstractmethod
    def __call__(self, stream: int = 0) -> None:
        """Launch into a stream, given by its handle; 0 is the default stream."""

    def set_pointer(self, index: int, address: int) -> None:
        """Replace the address of the `Pointer` parameter at ``index`` for the launches to come."""
        self._block.set_pointer(index, address)

    def set_u32(self, index: int, value: int) -> None:
        """Replace the value of the `U32` parameter at ``index`` for the launches to come."""
        self._block.set_u32(index, value)

    def set_tensor_map(self, index: int, tensor_map: TensorMap | bytes) -> None:
        """Replace the tensor map at ``index``: by a description, or by what this device's encoder made of one."""
        encoded = tensor_map if isinstance(tensor_map, bytes) else self._encode(tensor_map)
        self._block.set_tensor_map(index, encoded)


def _product(extents: Sequence[int]) -> str:
    return "x".join(map(str, extents))
