"""A matmul kernel: the components that a spec and a config select for a chip, traced by the driver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilekit.assembly.shared import SharedArray
from tilekit.assembly.writer import Parameter, Role, Writer
from tilekit.drivers.profiler import TileProfiler
from tilekit.kernels.matmul.compose import compose
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.targets import Target
from tilekit.tiles.call import Call, Schedule


@dataclass(frozen=True)
class KernelText:
    """A traced kernel: its text, and what a launch must know about it.

    Attributes
    ----------
    name, target, assembly
        Entry symbol, assembler target, module text.
    parameters
        In launch order.
    schedule
        How a launch covers the output.
    threads, cluster, shared_bytes
        Launch shape: threads of a CTA, CTAs of a cluster, shared memory.
    launch_bytes
        Shared memory that a launch must ask for; 0 where the text says it.
    roles, shared
        For `explain`: the roles, and the shared-memory map.
    stages
        Input stages built.
    exclusive
        Whether a multiprocessor may hold one CTA of it only: two could wait for each other's allocations for ever.
    profile
        What the kernel notes of its own times, if anything.
    """

    name: str
    target: Target
    assembly: str
    parameters: tuple[Parameter, ...]
    schedule: Callable[[Call], Schedule]
    threads: int
    cluster: int
    shared_bytes: int
    launch_bytes: int
    roles: tuple[Role, ...]
    shared: tuple[SharedArray, ...]
    stages: int
    exclusive: bool
    profile: TileProfiler | None


def trace(spec: MatmulSpec, config: KernelConfig, target: Target) -> KernelText:
    """Trace the kernel that `spec` and `config` describe.

    Raises
    ------
    ArgumentError
        For operands that no matrix instruction of the target reads.
    ConfigError
        Listing every rule the config violates.
    TraceError
        ``TK-SHARED-002`` where a component allocated other shared memory than it declared for the config's budget.
    """
    spec.check(target)
    config.check(target, spec)
    threads = config.warps(target, spec).threads
    w = Writer(spec.name, target=target, threads=threads, cluster=config.cluster_size, resident=config.resident)
    kernel = compose(w, spec, config, target)
    kernel.trace(w)
    w.shared.check(config.memory(spec).declared(kernel.inputs.stages), spec.name)
    return KernelText(
        name=spec.name,
        target=target,
        assembly=w.text(),
        parameters=tuple(w.parameters),
        schedule=kernel.scheduler.schedule,
        threads=kernel.warps.threads,
        cluster=config.cluster_size,
        shared_bytes=w.shared.size,
        launch_bytes=w.shared.size if w.dialect.shared_at_launch else 0,
        roles=tuple(w.roles),
        shared=tuple(w.shared.arrays),
        stages=kernel.inputs.stages,
        exclusive=kernel.accumulators.allocated,
        profile=kernel.profiler,
    )
