"""A launch that stops where it is told to, can be looked at, and goes on: `Kernel.debug`.

The launch runs in a thread of its own, in exactly the order of events of a launch without a debugger; it stands still
while its `Debugger` is not told to go on. What runs (a warp, or waves in step), and what there is to look at, is said
by the room of its language.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from tilekit.emulator.core.errors import Actor, LaunchError
from tilekit.emulator.core.memory.buffer import Uploads, download
from tilekit.emulator.core.observation.states import View
from tilekit.emulator.core.observation.stops import Places, Stop
from tilekit.emulator.core.report import LaunchReport

__all__ = ["Debugger", "Gate", "Launched"]

R = TypeVar("R")
W = TypeVar("W")


class Launched(Protocol):
    """A launch, as far as a debugger drives it."""

    def run(self) -> LaunchReport:
        """Run to the end."""


class _AbandonedError(BaseException):
    """Ends the thread of a launch that is not to go on."""


class Gate(ABC, Generic[R, W]):
    """Decides before each instruction whether the launch stands still; runs in the launch's thread.

    `R` is what runs, `W` a warp: the same, or one of several in step.

    Attributes
    ----------
    steps
        Instructions executed so far, by all warps.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.stop: Stop | None = None
        self.places = Places(None)
        self.only: W | None = None
        self.pause: Callable[[W, int, str], None]
        self._left = 0

    @abstractmethod
    def members(self, runner: R) -> Iterable[tuple[W, Actor]]:
        """The warps that a runner is, with their names."""

    def aim(self, stop: Stop | None, places: Places) -> None:
        """Go on until ``stop`` (None: to the end)."""
        self.stop, self.places, self.only = stop, places, None

    def aim_at_warp(self, warp: W, count: int) -> None:
        """Go on until a warp has executed some instructions."""
        self.stop, self.only, self._left = None, warp, count

    def may_stop(self, runner: R, start: int, end: int, each: int = 1) -> bool:
        """Whether the launch could stop in front of an instruction between two positions; `each` is steps of one."""
        if self.only is not None:
            return self._has(runner, self.only)
        return self._admitted(runner, (end - start - 1) * each) is not None and self.places.between(start, end)

    def before(self, runner: R, position: int) -> None:
        """Stand still here if that is asked for."""
        if self.only is not None:
            if self._left == 0 and self._has(runner, self.only):
                self.pause(self.only, position, "")
        else:
            found = self._admitted(runner)
            if found is not None and self.places.has(position):
                self.pause(found, position, "")
        if self.only is not None and self._has(runner, self.only):  # perhaps since a moment ago
            self._left -= 1

    def begins_to_wait(self, runner: R, position: int, name: str) -> None:
        """A runner has begun to wait: stand still if that is asked for."""
        stop = self.stop
        if stop is None or stop.wait is None or self.steps < stop.steps or not name.startswith(stop.wait):
            return
        for member, actor in self.members(runner):
            if stop.admits(actor):
                self.pause(member, position, name)
                return

    def _has(self, runner: R, warp: W) -> bool:
        return any(member is warp for member, _ in self.members(runner))

    def _admitted(self, runner: R, ahead: int = 0) -> W | None:
        """The warp that may stop before an instruction, some steps ahead."""
        stop = self.stop
        if stop is None or stop.wait is not None or self.steps + ahead < stop.steps:
            return None
        return next((member for member, actor in self.members(runner) if stop.admits(actor)), None)


class Debugger(View):
    """A launch that stands still, or has ended.

    Attributes
    ----------
    report
        Of the launch, once it has ended.
    stopped
        Whether it stands still before an instruction; False once it has ended.
    """

    def __init__(self, name: str, launch: Launched, uploads: Uploads, gate: Gate[Any, Any]) -> None:
        self.report: LaunchReport | None = None
        self.stopped = False
        self._gate = gate
        self._uploads = uploads
        self._running = launch
        gate.pause = self._pause
        self._fault: BaseException | None = None
        self._abandoned = False
        self._go, self._halted = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=f"launch of {name}", daemon=True)

    def begin(self, stop: Stop | int | str | None) -> None:
        """Start the launch, which goes on to its first stop.

        Raises
        ------
        LaunchError
            If there is nothing at ``stop``.
        """
        try:
            self._aim(Stop() if stop is None else stop)
        except LaunchError:
            download(self._uploads)
            raise
        self._thread.start()
        self._continue()

    # -- what a room says --------------------------------------------------------------------------------------------

    @abstractmethod
    def place(self, warp: Any, position: int, waits_for: str) -> None:
        """Note where the launch stands: a warp before an instruction, or at one that waits."""

    @abstractmethod
    def leave(self) -> None:
        """Note that the launch stands nowhere."""

    @abstractmethod
    def warp_at(self, warp: int, cta: int = 0) -> Any:
        """A warp of the cluster that stands still."""

    @abstractmethod
    def places(self, stop: Stop) -> Places:
        """The instructions that a stop means."""

    @abstractmethod
    def parameter_names(self) -> list[str]:
        """The kernel's parameters, in order."""

    # -- going on ----------------------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """Instructions executed so far, by all warps."""
        return self._gate.steps

    def resume(self, stop: Stop | int | str | None = None) -> Self:
        """Go on to the next place that ``stop`` describes, or to the end.

        Raises
        ------
        LaunchError
            If there is nothing at ``stop``, or the launch has ended.
        EmulatorError
            The fault that ends the launch.
        """
        self._require_stopped()
        self._aim(stop)
        return self._continue()

    def step(self, count: int = 1, *, warp: int | None = None, cta: int = 0) -> Self:
        """Execute ``count`` instructions, of whichever warps are next; or go on until one warp has executed them.

        Parameters
        ----------
        warp, cta
            Index of the warp in its CTA, and the CTA's rank in the cluster that stands still.

        Raises
        ------
        LaunchError
            If the launch has ended, or there is no such warp.
        EmulatorError
            The fault that ends the launch.
        """
        self._require_stopped()
        if count < 1:
            raise LaunchError.argument("count", count, "1 or more", 1)
        if warp is None:
            self._gate.aim(Stop(steps=self.steps + count), Places(None))
        else:
            self._gate.aim_at_warp(self.warp_at(warp, cta), count)
        return self._continue()

    def finish(self) -> LaunchReport:
        """Go on to the end.

        Raises
        ------
        EmulatorError
            The fault that ends the launch.
        """
        if self.stopped:
            self.resume()
        assert self.report is not None
        return self.report

    def close(self) -> None:
        """End the launch where it stands."""
        if self._thread.is_alive():
            self._abandoned = True
            self._go.release()
            self._thread.join()
            self.stopped = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- the two threads ---------------------------------------------------------------------------------------------

    def _require_stopped(self) -> None:
        if not self.stopped:
            raise LaunchError("the launch has ended; start another one with Kernel.debug")

    def _aim(self, stop: Stop | int | str | None) -> None:
        wanted = None if stop is None else Stop.of(stop)
        self._gate.aim(wanted, Places(None) if wanted is None else self.places(wanted))

    def _continue(self) -> Self:
        """Let the launch's thread go on, until it stands still or has ended."""
        self.stopped = False
        self._go.release()
        self._halted.acquire()
        if self._fault is not None:
            fault, self._fault = self._fault, None
            raise fault
        return self

    def _run(self) -> None:
        self._go.acquire()
        try:
            self.report = self._running.run()
        except _AbandonedError:
            pass
        except BaseException as fault:  # whatever it is, it belongs into the caller's thread
            self._fault = fault
        finally:
            self.leave()
            download(self._uploads)
            self._halted.release()

    def _pause(self, warp: Any, position: int, waiting: str) -> None:
        """Stand still, in the launch's thread."""
        self.place(warp, position, waiting)
        self.stopped = True
        self._halted.release()
        self._go.acquire()
        if self._abandoned:
            raise _AbandonedError

    # -- arguments ---------------------------------------------------------------------------------------------------

    @property
    def arrays(self) -> Mapping[str, Any]:
        """Contents of the NumPy arrays among the arguments as they are on the device now, by parameter."""
        names = self.parameter_names()
        return {names[index]: buffer.read() for index, (_, buffer) in enumerate(self._uploads)}
