"""Launching on the emulator: the same text, shape and parameters, behind the interface of `prepared`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilekit.errors import ConfigError, EmulationTooLong
from tilekit.runtime.kernarg import KernargLayout, no_tensor_map, shape_problems
from tilekit.runtime.parameters import Layout, Parameter, TensorMap, pack
from tilekit.runtime.prepared import LaunchConfig, PreparedLaunch
from tilekit.settings import settings

if TYPE_CHECKING:
    from pathlib import Path

    from tilekit.emulator import Debugger, Device, Exploration, Kernel, LaunchReport
    from tilekit.emulator.core.schedules import Progress
    from tilekit.emulator.gcn.kernel import Kernel as GcnKernel

__all__ = ["EmulatedKernel", "EmulatedLaunch", "EmulatedModule", "Work", "launch_label", "noted", "noting", "watched"]

# Fitted to matmuls of 2**26 to 2**30 FLOP, tiles of 64x64 to 128x256, full checks, on one core of a 2-core EPYC virtual
# machine: matrix instructions run in NumPy at the first rate, and a tile costs the second for its copies and barriers.
_FLOPS_PER_SECOND = 1.5e9
_SECONDS_PER_TILE = 1.5e-3
_SECONDS_PER_CTA = 1e-3
"""Of one that has no tile, of matmuls and of small kernels."""

_watcher: ContextVar[Progress | None] = ContextVar("watcher", default=None)


@contextmanager
def watched(progress: Progress | None) -> Iterator[None]:
    """Have launches inside report how far they are, as `Kernel.launch(progress=)` of the emulator does."""
    token = _watcher.set(progress)
    try:
        yield
    finally:
        _watcher.reset(token)


_noted: ContextVar[list[Work] | None] = ContextVar("noted", default=None)


@contextmanager
def noting() -> Iterator[list[Work]]:
    """Have calls inside launch nothing, but note what each of their launches would do."""
    found: list[Work] = []
    token = _noted.set(found)
    try:
        yield found
    finally:
        _noted.reset(token)


def noted() -> list[Work] | None:
    """Where launches are noted, if they are."""
    return _noted.get()


def launch_label(name: str, description: str, config: LaunchConfig) -> str:
    """What messages call a launch of a kernel that is built so."""
    return f"{name} [{description}], {config}" if description else f"{name}, {config}"


@dataclass(frozen=True, slots=True)
class Work:
    """How much a launch does, or several, from which their time on the emulator is estimated.

    Attributes
    ----------
    flops : float
        Floating-point operations of all matrix instructions.
    tiles : int
        Operand tiles that pass through shared memory: output tiles times k-blocks.
    ctas : int
        CTAs that are started.
    """

    flops: float
    tiles: int
    ctas: int = 0

    def __add__(self, other: Work) -> Work:
        """What both do."""
        return Work(self.flops + other.flops, self.tiles + other.tiles, self.ctas + other.ctas)

    @property
    def emulated_seconds(self) -> float:
        """Estimated run time on the emulator, in seconds; right within a factor of about three."""
        return self.flops / _FLOPS_PER_SECOND + self.tiles * _SECONDS_PER_TILE + self.ctas * _SECONDS_PER_CTA

    def refuse_if_too_long(self, label: str) -> None:
        """Raise `EmulationTooLong` for what is called `label`, if it exceeds `settings.emulator_limit`."""
        seconds, limit = self.emulated_seconds, settings.emulator_limit
        if seconds > limit:
            facts = (
                f"{label}: the emulator would need about {_duration(seconds)} for {self.flops:.3g} FLOP"
                f"{f' in {self.tiles} tiles' if self.tiles else ''}{f' of {self.ctas} CTAs' if self.ctas else ''}; "
                f"the limit is {_duration(limit)}"
            )
            raise EmulationTooLong(
                f"{facts}. Make the problem smaller, or go ahead inside "
                f"`with tilekit.settings.override(emulator_limit={2 * seconds:.0f}):`, or with "
                f"TILEKIT_EMULATOR_LIMIT={2 * seconds:.0f}",
                seconds=seconds,
                limit=limit,
                facts=facts,
            )


class EmulatedModule:
    """PTX or AMDGCN text, or an AMD code object, loaded into an emulated device.

    Parameters
    ----------
    device : tilekit.emulator.Device
        Where the kernels run, with its seed, schedule and checks.
    text : str or bytes
        A complete module of the chip's language: the very text that would be assembled, or what was made of it.

    Raises
    ------
    tilekit.emulator.EmulatorError
        When the text cannot be parsed.
    """

    def __init__(self, device: Device, text: str | bytes) -> None:
        self._module = device.load(text)

    def kernel(self, name: str) -> EmulatedKernel:
        """Return an entry by name."""
        return EmulatedKernel(name, self._module[name])


class EmulatedKernel:
    """An entry of an `EmulatedModule`."""

    def __init__(self, name: str, handle: Kernel) -> None:
        self.name = name
        self._handle = handle

    def prepare(
        self,
        config: LaunchConfig,
        parameters: Sequence[Parameter],
        *,
        description: str = "",
        reads_early: bool = False,
    ) -> EmulatedLaunch:
        """Pack the parameters for the emulator.

        Parameters
        ----------
        config : LaunchConfig
            The launch's shape.
        parameters : sequence of Parameter
            In the order of the entry's ``.param`` list; addresses are those of the device's buffers.
        description : str, optional
            The kernel's configuration, for errors.
        reads_early : bool, optional
            Whether the kernel may read operands while the kernel ahead runs. Else, with ``config.pdl``, it is an error.

        Raises
        ------
        ConfigError
            ``TK-LAUNCH-003``, for a shape that an AMD chip does not have.
        ArgumentError
            ``TK-PAR-004``, when the parameters are not those of an AMD kernel.
        """
        label = launch_label(self.name, description, config)
        if isinstance(self._handle, _gcn_kernel()):
            return self._prepare_gcn(self._handle, label, config, parameters)
        options = {"cluster": config.cluster, "prerequisite": config.pdl and not reads_early}
        return EmulatedLaunch(self._handle, label, config, parameters, options)

    @staticmethod
    def _prepare_gcn(
        handle: GcnKernel, label: str, config: LaunchConfig, parameters: Sequence[Parameter]
    ) -> EmulatedLaunch:
        problems = shape_problems(config, handle.module.device.chip.name)
        if problems:
            raise ConfigError(problems, what=f"launch of {label}", code="TK-LAUNCH-003")
        listed = handle.arguments
        metadata: dict[str, Any] = {".kernarg_segment_size": handle.field("kernarg_size")}
        if listed is not None:
            metadata[".args"] = [
                {".name": a.name, ".offset": a.offset, ".size": a.size, ".value_kind": a.kind} for a in listed
            ]
        layout = KernargLayout.of(handle.name, metadata).of_launch(config)
        return EmulatedLaunch(handle, label, config, parameters, {}, encode=no_tensor_map, layout=layout)


class EmulatedLaunch(PreparedLaunch):
    """A launch prepared by `EmulatedKernel.prepare`.

    Attributes
    ----------
    report : tilekit.emulator.LaunchReport or None
        What the emulator reported of the latest launch; None before the first.
    """

    def __init__(
        self,
        handle: Kernel,
        label: str,
        config: LaunchConfig,
        parameters: Sequence[Parameter],
        options: Mapping[str, Any],
        *,
        encode: Callable[[TensorMap], bytes] = TensorMap.encode,
        layout: Layout = pack,
    ) -> None:
        super().__init__(label, config, parameters, encode, layout=layout)
        self.report: LaunchReport | None = None
        self._handle = handle
        self._options = options

    def __call__(self, stream: int = 0, *, statistics: bool = False, timeline: str | Path | None = None) -> None:
        """Run to the end; streams have no meaning on the emulator.

        Parameters
        ----------
        statistics, timeline
            As for the emulator's `Kernel.launch`.

        Raises
        ------
        tilekit.emulator.EmulatorError
            Unchanged, for whatever the emulator found.
        """
        wished: dict[str, Any] = {"progress": _watcher.get(), "statistics": statistics, "timeline": timeline}
        self.report = self._handle.launch(**self._shape, **{name: wish for name, wish in wished.items() if wish})

    def explore(self, tries: int, *, seed: int = 0, progress: Progress | None = None) -> Exploration:
        """Run in many orders, as the emulator's `Kernel.explore` does."""
        return self._handle.explore(tries, seed=seed, progress=progress, **self._shape)

    def debug(self, stop: Any) -> Debugger:
        """Start a launch that stops somewhere, as the emulator's `Kernel.debug` does."""
        return self._handle.debug(stop=stop, **self._shape)

    @property
    def _shape(self) -> dict[str, Any]:
        """Grid, CTAs and parameters."""
        config = self.config
        shape = {"grid": config.grid, "block": config.block, "shared_bytes": config.shared_bytes}
        return {**shape, "params": bytes(self._block), **self._options}


def _gcn_kernel() -> type[GcnKernel]:
    from tilekit.emulator.gcn.kernel import Kernel  # when it is launched: the room takes longer to load than a check

    return Kernel


def _duration(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.3g} s"
