"""A matmul kernel: the components that a spec and a config select for a chip, traced by the driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.writer import Parameter, Role, Writer
from tilekit.drivers.profiler import TileProfiler
from tilekit.drivers.warp_specialized import WarpSpecialized
from tilekit.kernels.matmul import blackwell, hopper
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tiles.call import Call, Schedule

_Composer = Callable[[Writer, MatmulSpec, Any, Target], WarpSpecialized]
_COMPOSERS: dict[str, _Composer] = {"sm_90a": hopper.compose, "sm_100a": blackwell.compose}
"""Who declares a chip's components; each takes its own chip's configs, which `KernelConfig.check` has seen to."""


@dataclass(frozen=True)
class KernelText:
    """A traced kernel: its text, and what a launch must know about it.

    Attributes
    ----------
    name, target, ptx
        Entry symbol, assembler target, module text.
    parameters
        In launch order.
    schedule
        How a launch covers the output.
    threads, cluster, shared_bytes
        Launch shape: threads of a CTA, CTAs of a cluster, dynamic shared memory.
    roles, shared
        For `explain`: the roles, and the shared-memory map.
    stages
        Input stages built.
    profile
        What the kernel notes of its own times, if anything.
    """

    name: str
    target: Target
    ptx: str
    parameters: tuple[Parameter, ...]
    schedule: Callable[[Call], Schedule]
    threads: int
    cluster: int
    shared_bytes: int
    roles: tuple[Role, ...]
    shared: tuple[SharedArray, ...]
    stages: int
    profile: TileProfiler | None


def trace(spec: MatmulSpec, config: KernelConfig, target: Target) -> KernelText:
    """Trace the kernel that `spec` and `config` describe.

    Raises
    ------
    ArgumentError
        For operands that no matrix instruction of the target reads.
    ConfigError
        Listing every rule the config violates.
    """
    spec.check(target)
    config.check(target, spec)
    w = Writer(spec.name, target=target, threads=config.warps(target, spec).threads, cluster=config.cluster_size)
    kernel = _COMPOSERS[target.name](w, spec, config, target)
    kernel.trace(w)
    return KernelText(
        name=spec.name,
        target=target,
        ptx=w.text(),
        parameters=tuple(w.parameters),
        schedule=kernel.scheduler.schedule,
        threads=kernel.warps.threads,
        cluster=config.cluster_size,
        shared_bytes=w.shared.size,
        roles=tuple(w.roles),
        shared=tuple(w.shared.arrays),
        stages=kernel.inputs.stages,
        profile=kernel.profiler,
    )
