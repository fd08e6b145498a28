"""A kernel of a loaded module: argument and shape checks, parameter block, launch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast, get_args, overload

import numpy as np

from tilekit.emulator.core import room
from tilekit.emulator.core.checked import checked, checked_values
from tilekit.emulator.core.dimensions import Dim3, dim3
from tilekit.emulator.core.errors import LaunchError
from tilekit.emulator.core.memory.buffer import Uploads
from tilekit.emulator.core.observation.stops import Stop
from tilekit.emulator.core.report import LaunchReport
from tilekit.emulator.core.schedules import Policy, Progress
from tilekit.emulator.ptx.arguments import encode
from tilekit.emulator.ptx.execution import lockstep
from tilekit.emulator.ptx.language.syntax import Function, Variable
from tilekit.emulator.ptx.launch import Launch

if TYPE_CHECKING:
    from tilekit.emulator.core.explore import Exploration
    from tilekit.emulator.core.memory.memory import Allocation
    from tilekit.emulator.core.observation.debugger import Debugger
    from tilekit.emulator.ptx.compiler.instrument import Observer
    from tilekit.emulator.ptx.compiler.program import Program
    from tilekit.emulator.ptx.module import Module


class LaunchOptions(TypedDict, total=False):
    """What `Kernel.explore` and `Kernel.debug` hand on to a launch; see `Kernel.launch`."""

    cluster: int | Sequence[int] | None
    shared_bytes: int
    cooperative: bool
    prerequisite: bool | Sequence[Any]
    params: bytes | None
    step_budget: int


class Kernel(room.Kernel):
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

    @overload
    def launch(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any] = (),
        *,
        cluster: int | Sequence[int] | None = None,
        shared_bytes: int = 0,
        cooperative: bool = False,
        prerequisite: bool | Sequence[Any] = False,
        params: bytes | None = None,
        step_budget: int = room.DEFAULT_STEP_BUDGET,
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
        cluster: int | Sequence[int] | None = None,
        shared_bytes: int = 0,
        cooperative: bool = False,
        prerequisite: bool | Sequence[Any] = False,
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
        grid, block, cluster
            Dimensions (x, y, z) in CTAs, threads, CTAs; missing ones are 1. The cluster defaults to
            ``.reqnctapercluster``.
        args
            One value a parameter: a `Buffer`, a tensor map, a NumPy array (uploaded, and updated afterwards), a NumPy
            scalar or raw bytes of the parameter's size, a Python number for a parameter of a plain type, or None for a
            null pointer.
        shared_bytes
            Dynamic shared memory of a CTA, bytes.
        cooperative
            A cooperative launch: its CTAs, which must all fit on the device at once, may meet at barriers of the grid.
        prerequisite
            A programmatic dependent launch, behind a grid that is not over before ``griddepcontrol.wait``: the buffers,
            or arrays of ``args``, that it still uses, or True for all of global memory. An access to them that is not
            ordered behind that wait races with it.
        params
            A ready parameter block instead of ``args``.
        step_budget
            Basic blocks after which the launch is stopped with a report of where every warp is.
        progress
            Called with (CTAs finished, CTAs in the grid, seconds) whenever a cluster ends, or many that ran together.
        seed, schedule
            Order of this launch; None for the device's.
        statistics
            Count instructions, copies, bank conflicts and waits: the report's ``statistics``. Takes twice as long.
        timeline
            File to write what every warp did when, for https://ui.perfetto.dev; also when the launch ends in a fault.
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
        options: LaunchOptions = {
            "cluster": cluster,
            "shared_bytes": shared_bytes,
            "cooperative": cooperative,
            "prerequisite": prerequisite,
            "params": params,
            "step_budget": step_budget,
        }
        return self._run(
            (grid, block, args), options, seed, schedule, stop=stop, statistics=statistics, timeline=timeline,
            progress=progress,
        )  # fmt: skip

    def _counting(self) -> room.Counting:
        from tilekit.emulator.ptx.observation.counting import Counting

        return Counting()

    def _recorder(self) -> room.Recorder:
        from tilekit.emulator.ptx.observation.timeline import Recorder

        return Recorder()

    def prepare(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any] = (),
        *,
        cluster: int | Sequence[int] | None = None,
        shared_bytes: int = 0,
        cooperative: bool = False,
        prerequisite: bool | Sequence[Any] = False,
        params: bytes | None = None,
        step_budget: int = room.DEFAULT_STEP_BUDGET,
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
        clusters = self._cluster(cluster)
        self._check_shape(shape, threads, clusters)
        room.require_time(shape, -(-math.prod(threads) // 32), step_budget)
        aligned = threads[1:] == (1, 1) or threads[0] % 32 == 0
        program = self.module.program(
            self.name, aligned_warps=aligned, each_access=bool(observers) or device.check != "off"
        )
        self._check_shared(program.layout.total_bytes(shared_bytes), shared_bytes)
        if params is None:
            block_bytes, uploads = self._pack(args)
        else:
            block_bytes, uploads = self._check_block(params, args), []
        in_lockstep = None
        used = self._prerequisite(prerequisite, uploads)
        if observers:
            from tilekit.emulator.ptx.compiler.instrument import InstrumentedProgram

            program = InstrumentedProgram(program, observers)
        elif not used:
            in_lockstep = self._lockstep(program, shape, threads, clusters, shared_bytes)
        launch = Launch(
            program,
            self.module.chip,
            device.memory,
            self.module.symbols(self.name),
            grid=shape,
            block=threads,
            cluster=clusters,
            shared_bytes=shared_bytes,
            cooperative=cooperative,
            parameters=block_bytes,
            schedule=device.schedule if schedule is None else schedule,
            seed=device.seed if seed is None else seed,
            check=device.check,
            starts=device.starts,
            exact=device.exact,
            step_budget=step_budget,
            progress=progress,
            observers=observers,
            lockstep=in_lockstep,
            prerequisite=used,
        )
        for observer in observers:
            observer.start(launch)
        return launch, uploads

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

        Memory, and the NumPy arrays among the arguments, are as before afterwards.

        Parameters
        ----------
        tries
            Number of launches: try ``i`` has seed ``seed + i`` and the schedules in turn.
        grid, block, args, options
            As for `launch`.
        accept
            Called after a launch that found nothing, while its results are in memory; False makes it a bad one.
        progress
            Called with (tries done, tries, seconds).

        Returns
        -------
        Exploration
            ``failure`` names seed and schedule, with which `launch` fails in the same way again.
        """
        from tilekit.emulator.core.explore import explore

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
        from tilekit.emulator.ptx.observation.debugger import WarpDebugger

        given = cast(LaunchOptions, checked_values(Kernel.launch, options))
        return WarpDebugger(self, stop, grid, block, args, seed, schedule, given)

    def _lockstep(self, program: Program, grid: Dim3, block: Dim3, cluster: Dim3, shared_bytes: int) -> Program | None:
        """The kernel analysed for many warps at once, where they are many and independent."""
        ctas, warps = math.prod(grid), -(-math.prod(block) // 32)
        if not program.independent or cluster != (1, 1, 1) or ctas * warps < lockstep.FEWEST_WARPS:
            return None
        together = lockstep.group_ctas(ctas, warps, program.layout.total_bytes(shared_bytes))
        return self.module.program(self.name, aligned_warps=False, warps=warps * together)

    # -- shape -------------------------------------------------------------------------------------------------------

    def _cluster(self, cluster: int | Sequence[int] | None) -> Dim3:
        required = self.function.directives.get("reqnctapercluster")
        if cluster is None:
            return dim3("cluster", required or (1, 1, 1))
        given = dim3("cluster", cluster)
        if required and dim3("cluster", required) != given:
            wanted = dim3("cluster", required)
            raise LaunchError.argument("cluster", given, f"{wanted}, as .reqnctapercluster says", wanted)
        return given

    def _check_shape(self, grid: Dim3, block: Dim3, cluster: Dim3) -> None:
        chip = self.module.chip
        threads = math.prod(block)
        if threads > chip.threads_per_cta or block[2] > 64:
            raise LaunchError.argument("block", block, f"at most {chip.threads_per_cta} threads, z at most 64")
        directives = self.function.directives
        if "reqntid" in directives and dim3("block", directives["reqntid"]) != block:
            wanted = dim3("block", directives["reqntid"])
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
                whole = tuple(-(-g // c) * c for g, c in zip(grid, cluster, strict=True))
                raise LaunchError.argument("grid", grid, f"a multiple of the cluster {cluster} in {'xyz'[axis]}", whole)

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

    def _prerequisite(self, given: bool | Sequence[Any], uploads: Uploads) -> list[Allocation]:
        """The memory that the grid ahead still uses."""
        memory = self.module.device.memory
        if isinstance(given, bool):
            return [allocation for allocation in memory.allocations() if allocation.space == "global"] if given else []
        uploaded = {id(array): buffer for array, buffer in uploads}
        found = []
        for index, value in enumerate(given):
            buffer = uploaded.get(id(value), value)
            if not hasattr(buffer, "address"):
                legal = "a Buffer, or an array that is one of args"
                raise LaunchError.argument(f"prerequisite[{index}]", type(value).__name__, legal)
            found.append(memory.at(buffer.address, 1, "prerequisite")[0])
        return found

    def _pack(self, args: Sequence[Any]) -> tuple[bytes, Uploads]:
        parameters = self.parameters
        if len(args) != len(parameters):
            raise LaunchError(
                f"{len(args)} arguments for the {len(parameters)} parameters of {self!r}",
                details={"given": len(args), "expected": len(parameters)},
            )
        block = bytearray(self.parameter_bytes)
        uploads: Uploads = []
        for index, (value, parameter) in enumerate(zip(args, parameters, strict=True)):
            if isinstance(value, np.ndarray):
                if value.dtype.hasobject:
                    raise LaunchError.argument(f"args[{index}]", value, "an array of numbers, and none of objects")
                buffer = self.module.device.buffer(value, name=parameter.name, writable=value.flags.writeable)
                uploads.append((value, buffer))
                value = buffer
            data = encode(index, value, parameter)
            block[parameter.offset : parameter.offset + parameter.size] = data
        return bytes(block), uploads
