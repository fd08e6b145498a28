"""A compiled kernel of two operands: what families of products have in common.

Each adds what it reads, how many CTAs it wants and which parameters it takes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack, cast

from tilekit.annotations import takes
from tilekit.arrays import ArrayView
from tilekit.kernels.arguments import Arguments
from tilekit.kernels.epilogue_arguments import EpilogueKeywords
from tilekit.kernels.family_kernel import FamilyKernel
from tilekit.kernels.launch import Launch
from tilekit.kernels.launch_call import Addresses, launch_call
from tilekit.kernels.plan import BoundArrays, EmulatorKeywords, Plan
from tilekit.kernels.problem import MatmulCall, MatmulProblem, matrix_view
from tilekit.kernels.written_arguments import WrittenContext, split_results
from tilekit.runtime.emulated import Work
from tilekit.tiles.call import Scratch


class BindKeywords(EpilogueKeywords, EmulatorKeywords, total=False):
    """What `CompiledKernel.bind` takes beside operands and output."""

    device: str | None


class CompiledKernel(FamilyKernel):
    """A kernel for one spec, config and target, of operands A and B and an output."""

    @property
    @abstractmethod
    def k_block(self) -> int:
        """Elements of K that are fetched at once."""

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
        self._require_device(device)
        emulator = {name: value for name, value in given.items() if name in EmulatorKeywords.__annotations__}
        others = {name: value for name, value in given.items() if name not in emulator and name != "device"}
        arguments = replace(self._arguments(a, b, out, others), target=self.target, device=device)
        arguments.require_apart()
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
        written = WrittenContext(results=results)
        return Arguments.of(problem, va, vb, vo, dtype, epilogue, written=written, target=self.target, result=out)

    def bound(self, arguments: Arguments) -> BoundArrays:
        """Return the arrays of a call that this kernel was built for, and how a launch on them is made."""
        return BoundArrays(
            arguments.arrays,
            ("out", *arguments.extra_names),
            arguments.results,
            lambda addresses, resident, scratch: self.launch_of(
                arguments.call, Addresses.of(addresses), resident, scratch
            ),
            lambda launch: self.work(arguments.call.problem, launch),
            arguments.neutral,
        )

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
