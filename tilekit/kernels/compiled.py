"""A compiled kernel: an object that shows its text, its machine code and its budgets, and binds to arrays.

What the families have in common: each adds what it reads, how many CTAs it wants and which parameters it takes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Unpack, cast

from tilekit.annotations import takes
from tilekit.arrays import ArrayView
from tilekit.assembly.writer import Parameter
from tilekit.drivers.profiler import TileProfiler
from tilekit.errors import ArgumentError
from tilekit.kernels.arguments import Arguments
from tilekit.kernels.assembled import AssembledKernel
from tilekit.kernels.epilogue_arguments import EpilogueKeywords
from tilekit.kernels.launch import Launch
from tilekit.kernels.launch_call import Addresses, launch_call
from tilekit.kernels.picture import Shown
from tilekit.kernels.plan import BoundArrays, DevicePlan, EmulatedPlan, EmulatorKeywords, Plan, StagedPlan
from tilekit.kernels.problem import MatmulCall, MatmulProblem, matrix_view
from tilekit.kernels.written_arguments import split_results
from tilekit.runtime.emulated import Work
from tilekit.targets import Target
from tilekit.tiles.call import Call, Schedule, Scratch


class BindKeywords(EpilogueKeywords, EmulatorKeywords, total=False):
    """What `CompiledKernel.bind` takes beside operands and output."""

    device: str | None


class CompiledKernel(AssembledKernel):
    """A kernel for one spec, config and target.

    Attributes
    ----------
    spec, config, target
        What it computes, how, and for which chip.
    text
        What was traced: the module's text, the launch's shape, the parameters.
    """

    MISFIT: ClassVar[str]
    """Code of the error for arrays that do not fit the kernel."""

    def __init__(self, spec: Any, config: Any, target: Target, text: Any) -> None:
        self.spec = spec
        self.config = config
        self.target = target
        self.text = text

    def __repr__(self) -> str:
        return f"<{self.name} for {self.target.name}: {self.config}>"

    @property
    @abstractmethod
    def k_block(self) -> int:
        """Elements of K that are fetched at once."""

    @property
    def name(self) -> str:
        """The entry's symbol."""
        return str(self.text.name)

    @property
    def assembly(self) -> str:
        """The module's text in the chip's instruction set, each line with its role and origin."""
        return str(self.text.assembly)

    def shown(self) -> Shown:
        """What of the kernel is drawn."""
        return Shown(
            name=self.name,
            target=self.target,
            threads=self.threads,
            cluster=self.cluster,
            roles=getattr(self.text, "roles", ()),
            launch_registers=self.launch_registers,
            shared=self.text.shared,
            shared_bytes=self.text.shared_bytes,
        )

    @property
    def launch_registers(self) -> int | None:
        """Registers a thread as it is launched, where that is a choice of the config."""
        return None

    @property
    def parameters(self) -> Sequence[Parameter]:
        """Those of the entry, in launch order."""
        return cast("Sequence[Parameter]", self.text.parameters)

    @property
    def schedule(self) -> Callable[[Call], Schedule]:
        """How a launch covers the output."""
        return cast("Callable[[Call], Schedule]", self.text.schedule)

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return int(self.text.threads)

    @property
    def cluster(self) -> int:
        """CTAs of a cluster."""
        return int(self.text.cluster)

    @property
    def launch_bytes(self) -> int:
        """Dynamic shared memory of a launch, bytes."""
        return int(self.text.shared_bytes)

    @property
    def waits_for_prerequisites(self) -> bool:
        """Whether the kernel itself waits for those ahead of it: every family's does, where the chip can."""
        return True

    @property
    def description(self) -> str:
        """The config, for errors of launches."""
        return str(self.config)

    @property
    def profile(self) -> TileProfiler | None:
        """What the kernel notes of its own times, if anything."""
        return cast("TileProfiler | None", self.text.profile)

    def shared_scratch(self, name: str) -> str | None:
        """Counters and workspaces are shared, by all kernels of a stream; what a launch notes is its own."""
        shared = name in ("turns", "workspace", "starts") or name.endswith(("_parts", "_counters"))
        return name if shared else None

    @takes(BindKeywords)
    def bind(self, a: Any, b: Any, out: Any = None, **keywords: Unpack[BindKeywords]) -> Plan:
        """Check the arrays once and prepare the launch; calling the result launches it, and returns `out`.

        Parameters
        ----------
        a, b, out, bias, scale, scale_a, scale_b, residual, beta, epilogue
            Arrays and numbers, as for `tilekit.matmul`; a new `out` is made where it is None. The plan keeps using the
            arrays' memory.
        device
            ``"cuda"``, of kernels for AMD chips ``"hip"``, to run arrays in host memory on the GPU (they are copied
            there and back at each call); by default they are emulated.
        seed, schedule, check, exact, multiprocessors, starts
            Of the emulator, as `tilekit.emulator.Device` takes them.

        Raises
        ------
        ArgumentError
            For arrays that do not fit this kernel, naming the argument; ``TK-API-001`` where the GPU is another chip
            than the kernel was built for.
        """
        return self._bound(a, b, out, keywords)

    def _bound(self, a: Any, b: Any, out: Any, given: Mapping[str, Any]) -> Plan:
        """What `bind` does, whichever keywords it takes."""
        device = given.get("device")
        own = self.device
        if device not in (None, own):
            raise ArgumentError.of(
                "device", device, legal=f"None, or {own!r} for arrays in host memory", nearest=own, code=self.MISFIT
            )
        emulator = {name: value for name, value in given.items() if name in EmulatorKeywords.__annotations__}
        others = {name: value for name, value in given.items() if name not in emulator and name != "device"}
        arguments = replace(self._arguments(a, b, out, others), target=self.target, device=device)
        if out is None:
            arguments = arguments.into(arguments.new_output()())
        arguments = arguments.completed()
        self._check_fit(arguments)
        return self.plan(arguments, **cast(EmulatorKeywords, emulator))

    def _arguments(self, a: Any, b: Any, out: Any, given: Mapping[str, Any]) -> Arguments:
        """Read operands, an output or None, and what else a call has."""
        va, vb = matrix_view(a, "a"), matrix_view(b, "b")
        out, results = split_results(out, given.get("epilogue"))
        vo = None if out is None else matrix_view(out, "out")
        epilogue = cast(EpilogueKeywords, given)
        problem, dtype = self._read(va, vb), self.spec.out_dtype
        return Arguments.of(problem, va, vb, vo, dtype, epilogue, results=results, target=self.target, result=out)

    def plan(self, arguments: Arguments, **emulator: Unpack[EmulatorKeywords]) -> Plan:
        """Prepare the launch for arguments that this kernel was built for."""
        bound = BoundArrays(
            arguments.arrays,
            ("out", *arguments.extra_names),
            arguments.results,
            lambda addresses, resident, scratch: self.launch_of(
                arguments.call, Addresses.of(addresses), resident, scratch
            ),
            lambda launch: self.work(arguments.call.problem, launch),
        )
        if arguments.empty:
            return Plan(bound)
        if arguments.out.device != "cpu":
            return DevicePlan(self, bound)
        if arguments.device is not None:
            self.require_chip(0)
            return StagedPlan(self, bound)
        return EmulatedPlan(self, bound, emulator)

    swapped = False
    """Whether the kernel multiplies the transposes in the other order."""

    def launch_of(self, call: MatmulCall, addresses: Addresses, resident: int, scratch: Scratch) -> Launch:
        """Grid and parameters of a launch, on a device that runs so many clusters at once."""
        return self.launch(
            launch_call(
                call,
                addresses,
                resident_clusters=resident,
                scratch=scratch,
                cluster_size=self.cluster,
                swapped=self.swapped,
            )
        )

    @abstractmethod
    def work(self, problem: MatmulProblem, launch: Launch) -> Work:
        """What a launch does, for the emulator's estimate of its time."""

    @abstractmethod
    def _read(self, a: ArrayView, b: ArrayView) -> MatmulProblem:
        """Check the operands against each other."""

    @abstractmethod
    def _check_fit(self, arguments: Arguments) -> None:
        """Raise `ArgumentError` for arrays that another kernel would take."""

    def _require(self, facts: Iterable[tuple[str, Any, Any]], advice: str) -> None:
        """Compare what is given with what the kernel was built for."""
        for what, given, built in facts:
            if given != built:
                raise ArgumentError(
                    f"{what} is {given}, but {self.name} was built for {built}; {advice}", code=self.MISFIT
                )
