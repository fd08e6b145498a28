"""A launch that stops where it is told to, can be looked at, and goes on: `Kernel.debug`.

The launch runs in a thread of its own, in exactly the order of events of a launch without a debugger; it stands still
while its `Debugger` is not told to go on. Between stops, blocks in which nothing can stop run as a whole.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tilekit.emulator.core.errors import LaunchError
from tilekit.emulator.core.memory.buffer import download
from tilekit.emulator.core.report import LaunchReport
from tilekit.emulator.ptx.compiler.instrument import BlockFunction, InstrumentedProgram, Observer, wait_name
from tilekit.emulator.ptx.execution.warp import WAIT
from tilekit.emulator.ptx.observation.inspection import Inspection
from tilekit.emulator.ptx.observation.stops import Places, Stop

if TYPE_CHECKING:
    from tilekit.emulator.core.schedules import Policy
    from tilekit.emulator.ptx.compiler.control_flow import Block
    from tilekit.emulator.ptx.execution.warp import Fragment, Mask, Warp
    from tilekit.emulator.ptx.kernel import Kernel, LaunchOptions

__all__ = ["Debugger"]


class _AbandonedError(BaseException):
    """Ends the thread of a launch that is not to go on."""


class _Gate(Observer):
    """Decides before each instruction whether the launch stands still; runs in the launch's thread."""

    def __init__(self, pause: Callable[[Warp, int, str], None]) -> None:
        self.steps = 0
        self.stop: Stop | None = None
        self.places = Places(None)
        self.only: Warp | None = None
        self._left = 0
        self._pause = pause
        self._suspended: set[Fragment] = set()

    def aim(self, stop: Stop | None, places: Places) -> None:
        """Go on until ``stop`` (None: to the end)."""
        self.stop, self.places, self.only = stop, places, None

    def aim_at_warp(self, warp: Warp, count: int) -> None:
        """Go on until a warp has executed some instructions."""
        self.stop, self.only, self._left = None, warp, count

    def attach(self, program: InstrumentedProgram) -> None:
        """Run every block instruction by instruction where the launch might stop inside."""

        def function(block: Block, masked: bool) -> BlockFunction:
            whole = program.compile_range(block, block.start, block.end, masked=masked)
            size = block.end - block.start
            singles: list[BlockFunction] = []

            def step(warp: Warp, mask: Mask | None) -> int:
                if not self._may_stop(warp, block):
                    following = whole(warp, mask)
                    if following != WAIT:
                        self._suspended.discard(warp.fragment)
                        self.steps += size
                        return following
                else:
                    if not singles:
                        positions = range(block.start, block.end)
                        singles.extend(program.compile_range(block, at, at + 1, masked=masked) for at in positions)
                    following = block.index + 1
                    for at, single in enumerate(singles, block.start):
                        self._before(warp, at)
                        following = single(warp, mask)
                        if following == WAIT:
                            break
                        self._suspended.discard(warp.fragment)
                        self.steps += 1
                    else:
                        return following
                self._waits(warp)
                return WAIT

            return step

        program.block_function = function

    def _may_stop(self, warp: Warp, block: Block) -> bool:
        """Whether the launch could stop in front of an instruction of a block."""
        if self.only is not None:
            return self.only is warp
        return self._admits(warp, block.end - block.start - 1) and self.places.in_block(block)

    def _admits(self, warp: Warp, ahead: int = 0) -> bool:
        """Whether a warp may stop before an instruction, some instructions ahead."""
        stop = self.stop
        return stop is not None and stop.wait is None and self.steps + ahead >= stop.steps and stop.admits(warp)

    def _before(self, warp: Warp, position: int) -> None:
        """Stand still here if that is asked for."""
        if warp.fragment not in self._suspended:  # else it stood here before it began to wait
            warp.at = position
            if self._left == 0 if self.only is warp else self._admits(warp) and self.places.has(position):
                self._pause(warp, position, "")
        if self.only is warp:  # perhaps since a moment ago
            self._left -= 1

    def _waits(self, warp: Warp) -> None:
        """A warp has begun to wait, or goes on waiting: stand still if that is asked for."""
        fragment = warp.fragment
        if fragment in self._suspended:
            return
        self._suspended.add(fragment)
        stop = self.stop
        if stop is not None and stop.wait is not None and stop.admits(warp) and self.steps >= stop.steps:
            name = wait_name(fragment.blocked)
            if name.startswith(stop.wait):
                self._pause(warp, warp.at, name)


class Debugger(Inspection):
    """A launch that stands still, or has ended.

    Attributes
    ----------
    report
        Of the launch, once it has ended.
    stopped
        Whether it stands still before an instruction; False once it has ended.
    steps
        Instructions executed so far, by all warps.
    """

    def __init__(
        self,
        kernel: Kernel,
        stop: Stop | int | str | None,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        seed: int | None,
        schedule: Policy | None,
        options: LaunchOptions,
    ) -> None:
        self._gate = _Gate(self._pause)
        launch, self._uploads = kernel.prepare(
            grid, block, args, seed=seed, schedule=schedule, observers=[self._gate], **options
        )
        super().__init__(launch)
        self.report: LaunchReport | None = None
        self.stopped = False
        self._fault: BaseException | None = None
        self._abandoned = False
        self._go, self._halted = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=f"launch of {kernel.name}", daemon=True)
        try:
            self._aim(Stop() if stop is None else stop)
        except LaunchError:
            download(self._uploads)
            raise
        self._thread.start()
        self._continue()

    @property
    def steps(self) -> int:
        """Instructions executed so far, by all warps."""
        return self._gate.steps

    # -- going on ----------------------------------------------------------------------------------------------------

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
        places = Places(None) if wanted is None else wanted.places(self.launch.program, self.launch.symbols)
        self._gate.aim(wanted, places)

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
            self.report = self.launch.run()
        except _AbandonedError:
            pass
        except BaseException as fault:  # whatever it is, it belongs into the caller's thread
            self._fault = fault
        finally:
            self.leave()
            download(self._uploads)
            self._halted.release()

    def _pause(self, warp: Warp, position: int, waiting: str) -> None:
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
        names = [parameter.name for parameter in self.launch.program.function.parameters]
        return {names[index]: buffer.read() for index, (_, buffer) in enumerate(self._uploads)}
