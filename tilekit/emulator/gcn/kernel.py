"""A kernel of a loaded module: its descriptor, checks of a launch, and the launch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast, get_args, overload

from tilekit.emulator.core import room
from tilekit.emulator.core.checked import checked, checked_values
from tilekit.emulator.core.dimensions import dim3
from tilekit.emulator.core.errors import LaunchError
from tilekit.emulator.core.explore import Exploration, explore
from tilekit.emulator.core.memory.buffer import Uploads
from tilekit.emulator.core.observation.stops import Stop
from tilekit.emulator.core.report import LaunchReport
from tilekit.emulator.core.room import DEFAULT_STEP_BUDGET
from tilekit.emulator.core.schedules import Policy, Progress
from tilekit.emulator.core.symbols import SymbolMap
from tilekit.emulator.gcn.abi import MOST_WORK_ITEMS
from tilekit.emulator.gcn.arguments import pack
from tilekit.emulator.gcn.compiler.program import Program
from tilekit.emulator.gcn.language.syntax import Argument
from tilekit.emulator.gcn.launch import Launch, Watched

if TYPE_CHECKING:
    from tilekit.emulator.core.observation.debugger import Debugger
    from tilekit.emulator.gcn.module import Module
    from tilekit.emulator.gcn.observation.instrument import Observer

__all__ = ["Kernel"]

_MODE_DEFAULTS = {
    "float_round_mode_32": (0, 2, 0), "float_round_mode_16_64": (2, 2, 0), "float_denorm_mode_32": (4, 2, 0),
    "float_denorm_mode_16_64": (6, 2, 3), "dx10_clamp": (8, 1, 1), "ieee_mode": (9, 1, 1), "fp16_overflow": (23, 1, 0),
}  # fmt: skip
"""Fields of MODE that a descriptor sets: first bit, bits, and the default."""


class LaunchOptions(TypedDict, total=False):
    """What `Kernel.explore` and `Kernel.debug` hand on to a launch; see `Kernel.launch`."""

    shared_bytes: int
    params: bytes | None
    step_budget: int


class Kernel(room.Kernel):
    """One kernel of a module.

    Attributes
    ----------
    name
        Its symbol.
    program
        Its code.
    symbols
        Names of its waves' roles and of its LDS.
    vectors
        Vector registers that a lane has here: those that it declares, or uses.
    """

    def __init__(self, module: Module, name: str) -> None:
        self.module = module
        self.name = name
        self._text = module.text.kernels[name]
        self.program: Program = module.program(name)
        self.symbols: SymbolMap = SymbolMap.parse("\n".join(module.text.notes))
        self.vectors: int = max(self.program.rows, 1)

    def __repr__(self) -> str:
        return f"<Kernel {self.name} for {self.module.device.chip.name}>"

    def field(self, name: str, default: int = 0) -> int:
        """A field of the descriptor, by its directive without ``.amdhsa_``."""
        return self._text.fields.get(name, default)

    @property
    def arguments(self) -> list[Argument] | None:
        """Its arguments, hidden ones included; None where the text has no metadata."""
        return self._text.arguments

    @property
    def threads(self) -> int | None:
        """Most threads of a workgroup, as the metadata says."""
        return self._text.threads

    @property
    def mode(self) -> int:
        """The MODE register that waves start with."""
        value = 0
        for name, (first, bits, default) in _MODE_DEFAULTS.items():
            value |= (self.field(name, default) & ((1 << bits) - 1)) << first
        return value

    @overload
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
        stop: None = None,
    ) -> LaunchReport: ...

    @overload
    def launch(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any] = (),
        *,
        stop: Stop | int | str,
        seed: int | None = None,
        schedule: Policy | None = None,
        **options: Unpack[LaunchOptions],
    ) -> Debugger: ...

    @checked
    def launch(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any] = (),
        *,
        shared_bytes: int = 0,
        params: bytes | None = None,
        step_budget: int = room.DEFAULT_STEP_BUDGET,
        progress: Progress | None = None,
        seed: int | None = None,
        schedule: Policy | None = None,
        statistics: bool = False,
        timeline: str | Path | None = None,
        stop: Stop | int | str | None = None,
    ) -> LaunchReport | Debugger:
        """Run the kernel to its end.

        Parameters
        ----------
        grid, block
            Dimensions (x, y, z) in workgroups and threads; missing ones are 1.
        args
            One value an argument: a `Buffer`, a NumPy array (uploaded, and updated afterwards), a NumPy scalar or raw
            bytes of the argument's size, a Python number, or None for a null pointer.
        shared_bytes
            Dynamic LDS of a workgroup, behind what the descriptor declares.
        params
            A ready kernarg segment instead of `args`.
        step_budget
            Basic blocks, counted in waves, after which the launch is stopped.
        progress
            Called with (workgroups finished, workgroups, seconds).
        seed, schedule
            Order of this launch; None for the device's.
        statistics
            Count instructions, matrix work, bytes, bank conflicts and waits: the report's ``statistics``.
        timeline
            File to write what every wave did when, for https://ui.perfetto.dev; also when the launch ends in a fault.
        stop
            A line of the text, a label, or a `Stop` to stop at and look around: what `debug` returns.

        Returns
        -------
        LaunchReport
            Or, with ``stop``, a `Debugger`.

        Raises
        ------
        LaunchError
            If an argument does not fit the kernel or the chip.
        EmulatorError
            The first fault of the run.
        """
        options: LaunchOptions = {"shared_bytes": shared_bytes, "params": params, "step_budget": step_budget}
        return self._run(
            (grid, block, args), options, seed, schedule, stop=stop, statistics=statistics, timeline=timeline,
            progress=progress,
        )  # fmt: skip

    def _counting(self) -> room.Counting:
        from tilekit.emulator.gcn.observation.counting import Counting

        return Counting()

    def _recorder(self) -> room.Recorder:
        from tilekit.emulator.gcn.observation.timeline import Recorder

        return Recorder()

    def prepare(
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
        observers: Sequence[Observer] = (),
    ) -> tuple[Launch, Uploads]:
        """Check a launch and make it, ready to run; see `launch`.

        Returns
        -------
        launch
            Not started.
        uploads
            Each NumPy array among the arguments with its buffer, for `download`.
        """
        device = self.module.device
        room.require_order(schedule, step_budget)
        shape, threads = dim3("grid", grid), dim3("block", block)
        most = self._text.threads or 1024
        if math.prod(threads) > most:
            raise LaunchError.argument("block", threads, f"at most {most} threads")
        for axis, workgroups, width in zip("xyz", shape, threads, strict=True):
            if workgroups * width > MOST_WORK_ITEMS:
                limit = f"at most {MOST_WORK_ITEMS // width} workgroups along {axis}: less than 2**32 threads"
                raise LaunchError.argument("grid", shape, limit)
        room.require_time(shape, -(-math.prod(threads) // 64), step_budget)
        lds_bytes = self._lds(shared_bytes)
        size = self.field("kernarg_size")
        if params is None:
            data, uploads = pack(device, self.name, self.arguments, size, args, shape, threads, shared_bytes)
        else:
            data, uploads = self._given(params, args, size), []
        watched = None
        if observers:
            from tilekit.emulator.gcn.observation.instrument import InstrumentedProgram, ObservedBatch

            watched = Watched(InstrumentedProgram(self.program, observers), ObservedBatch, observers)
        launch = Launch(
            self, device, grid=shape, block=threads, lds_bytes=lds_bytes, arguments=data,
            schedule=device.schedule if schedule is None else schedule, seed=device.seed if seed is None else seed,
            check=device.check, starts=device.starts, step_budget=step_budget, progress=progress,
            exact=device.exact, multiprocessors=device.multiprocessors, watched=watched,
        )  # fmt: skip
        for observer in observers:
            observer.start(launch)
        return launch, uploads

    def _lds(self, dynamic: int) -> int:
        static = self.field("group_segment_fixed_size")
        chip = self.module.device.chip
        limit = chip.lds_bytes
        if static > limit:
            raise LaunchError(
                f"kernel {self.name} has {static} bytes of LDS, and a workgroup on {chip.name} has at most {limit}",
                details={"given": static, "legal": limit},
            )
        if dynamic < 0 or static + dynamic > limit:
            raise LaunchError.argument(
                "shared_bytes", dynamic, f"0 to {limit - static} ({static} bytes are static)", max(0, limit - static)
            )
        return static + dynamic

    @staticmethod
    def _given(params: bytes, args: Sequence[Any], size: int) -> bytes:
        if len(args):
            raise LaunchError("give args or params, not both")
        if size and len(params) < size:
            raise LaunchError.argument("params", f"{len(params)} bytes", f"{size} bytes, as .amdhsa_kernarg_size says")
        return bytes(params)

    @checked
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
        **options: Unpack[LaunchOptions],
    ) -> Exploration:
        """Launch in many orders, each on a fresh copy of the device's memory; stop at the first that goes wrong.

        Parameters are those of `launch` and, as for PTX, `tries`, `schedules`, and `accept`, called after a launch that
        found nothing, while its results are in memory.
        """

        def launch(seed: int, schedule: Policy) -> LaunchReport:
            return self.launch(grid, block, args, seed=seed, schedule=schedule, **options)

        memory = self.module.device.memory
        return explore(self.name, launch, memory, args, tries, schedules, seed, accept, progress)

    @checked
    def debug(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any] = (),
        *,
        stop: Stop | int | str | None = None,
        seed: int | None = None,
        schedule: Policy | None = None,
        **options: Unpack[LaunchOptions],
    ) -> Debugger:
        """Start a launch that stops at ``stop`` (None: before its first instruction), to look around and go on.

        A context manager: leaving it ends the launch. The order of events is that of `launch`.

        Parameters
        ----------
        stop
            A line of the text, a label, or a `Stop`.
        grid, block, args, seed, schedule, options
            As for `launch`.

        Raises
        ------
        LaunchError
            As for `launch`, and if there is nothing at ``stop``.
        """
        from tilekit.emulator.gcn.observation.debugger import WaveDebugger

        given = cast(LaunchOptions, checked_values(Kernel.launch, options))
        return WaveDebugger(self, stop, grid, block, args, seed, schedule, given)
