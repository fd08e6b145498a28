"""What each room offers: devices, modules and kernels, as far as they are the same whatever the chip.

`Device` is the door: called with a chip's name, it makes a device of the room that has this chip.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar, get_args

from tilekit.emulator.core.checked import checked
from tilekit.emulator.core.chip_names import nearest_by_number
from tilekit.emulator.core.errors import LaunchError, nearest
from tilekit.emulator.core.explore import Exploration
from tilekit.emulator.core.memory.buffer import Buffer, Uploads, as_array, download
from tilekit.emulator.core.memory.memory import GlobalMemory
from tilekit.emulator.core.observation.trace import require_writable
from tilekit.emulator.core.report import LaunchReport
from tilekit.emulator.core.schedules import Check, Policy, Progress, Starts

if TYPE_CHECKING:
    from tilekit.emulator.core.observation.debugger import Debugger
    from tilekit.emulator.core.observation.stops import Stop

__all__ = ["DEFAULT_STEP_BUDGET", "ChipLike", "Device", "Kernel", "Module"]

_T = TypeVar("_T")

DEFAULT_STEP_BUDGET = 200_000_000
"""Basic blocks after which a launch is stopped."""


class ChipLike(Protocol):
    """What every room knows of a chip."""

    @property
    def name(self) -> str:
        """As compilers spell it."""


class Counting(Protocol):
    """An observer that counts while a launch runs."""

    def result(self) -> Any:
        """The counts, when the launch has ended."""


class Recorder(Protocol):
    """An observer that notes what every warp or wave does when."""

    def write(self, path: str | Path) -> None:
        """Write what was noted, when the launch has ended."""


def require_order(schedule: Policy | None, step_budget: int) -> None:
    """Raise `LaunchError` for an unknown schedule, or a budget that no launch can keep."""
    if schedule is not None and schedule not in get_args(Policy):
        legal = get_args(Policy)
        raise LaunchError.argument("schedule", schedule, ", ".join(legal), nearest(str(schedule), legal) or legal[0])
    if step_budget < 1:
        raise LaunchError.argument("step_budget", step_budget, "1 or more", 1)


def require_time(grid: Sequence[int], warps: int, step_budget: int) -> None:
    """Raise `LaunchError` for a grid whose warps, so many a CTA, cannot run one basic block each within the budget."""
    at_least = math.prod(grid) * warps
    if at_least > step_budget:
        legal = f"at most {step_budget // warps:,} CTAs: each warp runs a basic block or more, and {step_budget=}"
        error = LaunchError.argument("grid", tuple(grid), legal)
        error.hint = f"give step_budget={at_least} or more if the launch is really that long"
        raise error


class Kernel(ABC):
    """A kernel of a module.

    Attributes
    ----------
    name
        Its symbol.
    """

    name: str

    @abstractmethod
    def launch(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any] = (),
        *,
        shared_bytes: int = 0,
        params: bytes | None = None,
        step_budget: int = DEFAULT_STEP_BUDGET,
        progress: Progress | None = None,
        seed: int | None = None,
        schedule: Policy | None = None,
        statistics: bool = False,
        timeline: str | Path | None = None,
    ) -> LaunchReport:
        """Run the kernel to its end."""

    @abstractmethod
    def explore(
        self,
        tries: int,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any] = (),
        *,
        schedules: Sequence[Policy] = get_args(Policy),
        seed: int = 0,
        accept: Callable[[LaunchReport], bool] | None = None,
        progress: Progress | None = None,
        shared_bytes: int = 0,
        params: bytes | None = None,
        step_budget: int = DEFAULT_STEP_BUDGET,
    ) -> Exploration:
        """Launch in many orders; stop at the first that goes wrong."""

    @abstractmethod
    def debug(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any] = (),
        *,
        stop: Stop | int | str | None = None,
        seed: int | None = None,
        schedule: Policy | None = None,
        shared_bytes: int = 0,
        params: bytes | None = None,
        step_budget: int = DEFAULT_STEP_BUDGET,
    ) -> Debugger:
        """Start a launch that stops at ``stop``, to look around and go on."""

    prepare: Callable[..., tuple[Any, Uploads]]
    """Check a launch and make it, ready to run, with the arrays that were uploaded for it; each room has its own."""

    @abstractmethod
    def _counting(self) -> Counting:
        """What counts a launch of this room."""

    @abstractmethod
    def _recorder(self) -> Recorder:
        """What records a launch of this room."""

    def _run(
        self,
        where: tuple[int | Sequence[int], int | Sequence[int], Sequence[Any]],
        options: Mapping[str, Any],
        seed: int | None,
        schedule: Policy | None,
        *,
        stop: Stop | int | str | None,
        statistics: bool,
        timeline: str | Path | None,
        progress: Progress | None,
    ) -> LaunchReport | Debugger:
        """Launch and watch as `launch` was asked to; `where` is its grid, block and arguments."""
        if stop is not None:
            if statistics or timeline is not None or progress is not None:
                raise LaunchError(
                    "stop with statistics, timeline or progress: those follow a launch that runs to its end; leave "
                    "them out, or leave stop out"
                )
            return self.debug(*where, stop=stop, seed=seed, schedule=schedule, **options)
        counting = self._counting() if statistics else None
        recorder = None
        if timeline is not None:
            require_writable(timeline)
            recorder = self._recorder()
        observers = [observer for observer in (counting, recorder) if observer is not None]
        launch, uploads = self.prepare(
            *where, **options, progress=progress, seed=seed, schedule=schedule, observers=observers
        )
        try:
            report: LaunchReport = launch.run()
        finally:
            if recorder is not None and timeline is not None:
                recorder.write(timeline)
            download(uploads)
        return report if counting is None else replace(report, statistics=counting.result())


class Module(ABC):
    """Text on a device; ``module["name"]`` is a kernel.

    Attributes
    ----------
    device
        Where it was loaded.
    """

    device: Device

    @property
    @abstractmethod
    def kernels(self) -> tuple[str, ...]:
        """Names of the module's kernels."""

    @abstractmethod
    def __getitem__(self, name: str) -> Kernel: ...

    def __iter__(self) -> Iterator[str]:
        return iter(self.kernels)


class Device:
    """An emulated GPU: of NVIDIA for chips such as ``sm_90a``, of AMD for ``gfx942`` and ``gfx950``.

    ``Device("gfx942", seed=3)`` is a `GcnDevice`, ``Device("sm_90a")`` a `PtxDevice`: subclasses of this one, with what
    only their chips have. To name the type of one of them, use those names.

    Parameters
    ----------
    target
        Chip.
    seed
        Of every random choice of the schedule: the same seed runs the same way.
    schedule
        ``adversarial`` lands asynchronous work as late as the rules allow, ``random`` at random moments, ``fair`` at
        once.
    check
        ``full``: everything, races included. ``protocol``: rules of use. ``off``: only what would break the run.
    starts
        Order in which CTAs or workgroups start: ``ascending``, ``descending`` or ``random``.
    options
        What the chip's device has besides, as its class says.

    Attributes
    ----------
    chip
        Of which ``chip.name`` is the target.
    memory
        What has been allocated on the device.
    units
        Its multiprocessors, or compute units.
    """

    chips: ClassVar[Mapping[str, ChipLike]] = {}
    """Chips of the room by name; none for `Device` itself."""
    _rooms: ClassVar[list[type[Device]]] = []
    _options: ClassVar[tuple[str, ...]] = ()

    chip: ChipLike
    units: int

    def __init_subclass__(cls, *, chips: Mapping[str, ChipLike] | None = None, **rest: Any) -> None:
        """Make a class that says which chips it has a room; note which options a class takes."""
        super().__init_subclass__(**rest)
        signature = inspect.signature(cls.__init__)
        _, *parameters = signature.parameters.values()
        # The signature of `__new__` would be shown in its place.
        cls.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        cls._options = tuple(p.name for p in parameters if p.kind is not p.VAR_KEYWORD and p.name != "target")
        if chips is not None:
            cls.chips = chips
            Device._rooms.append(cls)

    def __new__(cls, target: str = "sm_90a", **options: Any) -> Self:
        """Make an object of the room that has the chip, or of the room that was called."""
        room: type[Any] = (
            cls if cls is not Device else _chosen(target, {chip: room for room in Device._rooms for chip in room.chips})
        )
        for name in options:
            if name not in room._options:
                raise _no_option(target, name, room._options)
        made: Self = super().__new__(room)
        return made

    @checked
    def _set(self, target: str, seed: int, schedule: Policy, check: Check, starts: Starts) -> None:
        """Take the options that every room has."""
        choices = ("schedule", schedule, Policy), ("check", check, Check), ("starts", starts, Starts)
        for name, given, legal in ((name, given, get_args(kind)) for name, given, kind in choices):
            if given not in legal:
                raise LaunchError.argument(name, given, ", ".join(legal), nearest(given, legal) or legal[0])
        self.chip = _chosen(target, self.chips)
        self.seed = seed
        self.schedule: Policy = schedule
        self.check: Check = check
        self.starts: Starts = starts
        self.memory = GlobalMemory()

    if TYPE_CHECKING:  # each room's class has its own

        def load(self, text: Any) -> Module:
            """Load a text of the chip's assembly language.

            Raises
            ------
            EmulatorError
                Naming line and column of what cannot be read or executed.
            """

    @checked
    def buffer(self, array: Any, name: str = "", *, writable: bool = True) -> Buffer:
        """Copy an array to the device; a kernel that writes to what is not `writable` faults."""
        return Buffer(self.memory, as_array(array), name or "a buffer", writable=writable)


def _chosen(target: object, known: Mapping[str, _T]) -> _T:
    """What is known of a chip."""
    if not isinstance(target, str) or target not in known:
        close = (nearest_by_number(target, known) or nearest(target, known)) if isinstance(target, str) else ""
        raise LaunchError.argument("target", target, ", ".join(known), close or None)
    return known[target]


def _no_option(target: str, name: str, known: Sequence[str]) -> LaunchError:
    elsewhere = next((room for room in Device._rooms if name in room._options), None)
    if elsewhere is not None:
        hint = f"leave it out: a device such as {list(elsewhere.chips)[-1]} has it"
    else:
        close = nearest(name, known)
        hint = f"did you mean {close}=?" if close else ""
    return LaunchError(
        f"a device for {target} has no option {name!r}; legal: {', '.join(known)}",
        hint=hint,
        details={"option": name, "legal": tuple(known)},
    )
