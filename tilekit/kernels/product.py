"""A compiled product of matrices: an object that shows its text, its machine code and its budgets, and binds to arrays.

What the families of products have in common: `tilekit.kernels.matmul` and `tilekit.kernels.gemv` add what they read,
how many CTAs they want and which parameters they take.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from tilekit.annotations import checked
from tilekit.arrays import ArrayView, empty_like_library, require_output, require_same_place
from tilekit.errors import ArgumentError
from tilekit.kernels.matmul.extras import Extras
from tilekit.kernels.matmul.place import chip_of
from tilekit.kernels.matmul.plan import DevicePlan, EmulatedPlan, MatmulPlan, StagedPlan
from tilekit.kernels.matmul.problem import MatmulCall, MatmulProblem, matrix_view, output_matrix
from tilekit.runtime import driver
from tilekit.runtime.assembler import Assembled, assemble, disassemble
from tilekit.runtime.emulated import Work
from tilekit.runtime.launch import CudaKernel, CudaModule
from tilekit.runtime.prepared import LaunchConfig
from tilekit.runtime.resources import Resources
from tilekit.targets import Target
from tilekit.tiles.call import Scratch

if TYPE_CHECKING:
    from tilekit.kernels.launch import Launch
from tilekit.kernels.matmul.arguments import Addresses


class ProductKernel(ABC):
    """A kernel for one spec, config and target.

    Attributes
    ----------
    spec, config, target
        What it computes, how, and for which chip.
    text
        What was traced: the PTX, the launch's shape, the parameters.
    """

    MISFIT: ClassVar[str]
    """Code of the error for arrays that do not fit the kernel."""

    def __init__(self, spec: Any, config: Any, target: Target, text: Any) -> None:
        self.spec = spec
        self.config = config
        self.target = target
        self.text = text
        self._resident: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<{self.name} for {self.target.name}: {self.config}>"

    @property
    @abstractmethod
    def k_block(self) -> int:
        """Elements of K that are fetched at once."""

    @property
    def reads_early(self) -> bool:
        """Whether operands are read while the kernel ahead in the stream runs: else they wait for its end."""
        return False

    @property
    def name(self) -> str:
        """The entry's symbol."""
        return str(self.text.name)

    @property
    def ptx(self) -> str:
        """The module's text, each line with its role and origin."""
        return str(self.text.ptx)

    @cached_property
    def assembled(self) -> Assembled:
        """The machine code, from ptxas or the disk cache."""
        return assemble(self.ptx, self.target.name, kernel_name=self.name)

    @property
    def resources(self) -> Resources:
        """Registers, spills, shared memory and barriers, as ptxas reports them."""
        return self.assembled.resources

    @cached_property
    def isa(self) -> str:
        """The machine code, disassembled (SASS)."""
        return disassemble(self.assembled.image)

    @abstractmethod
    def explain(self) -> str:
        """Who does what, with which memory, in words and tables."""

    @cached_property
    def cuda(self) -> CudaKernel:
        """The kernel in the CUDA driver."""
        return CudaModule.from_ptx(self.ptx, self.target.name, kernel_name=self.name).kernel(self.name)

    def resident_clusters(self, ordinal: int) -> int:
        """Clusters of a full grid on a device.

        Raises
        ------
        ArgumentError
            ``TK-API-001`` where it is another chip than the kernel was built for.
        """
        if ordinal not in self._resident:
            self._require_chip(ordinal)
            held = self.cuda.max_active_clusters(self.launch_config(self.text.cluster), ordinal=ordinal)
            self._resident[ordinal] = self._wanted(held, ordinal)
        return self._resident[ordinal]

    def _require_chip(self, ordinal: int) -> None:
        chip_of(driver.devices()[ordinal], self.target.name)

    def _wanted(self, held: int, ordinal: int) -> int:
        """How many clusters a full grid has, of those that the device holds at once."""
        return held

    @property
    def launch_bytes(self) -> int:
        """Dynamic shared memory of a launch, bytes."""
        return int(self.text.shared_bytes)

    def launch_config(self, grid: int) -> LaunchConfig:
        """The launch's shape for a grid of so many CTAs."""
        return LaunchConfig(
            grid=(grid, 1, 1),
            block=(self.text.threads, 1, 1),
            cluster=(self.text.cluster, 1, 1),
            shared_bytes=self.launch_bytes,
            pdl=True,
        )

    @checked
    def bind(
        self,
        a: Any,
        b: Any,
        out: Any = None,
        *,
        bias: Any = None,
        scale: Any = None,
        scale_a: Any = None,
        scale_b: Any = None,
        residual: Any = None,
        beta: float = 1.0,
        device: str | None = None,
        seed: int = 0,
        **emulator: Any,
    ) -> MatmulPlan:
        """Check the arrays once and prepare the launch; calling the result launches it, and returns `out`.

        Parameters
        ----------
        a, b, out, bias, scale, scale_a, scale_b, residual, beta
            Arrays and numbers, as for `tilekit.matmul`; a new `out` is made where it is None. The plan keeps using the
            arrays' memory.
        device
            ``"cuda"`` to run arrays in host memory on the GPU (they are copied there and back at each call); by
            default they are emulated.
        seed, **emulator
            Of the emulator's schedule, and its other options (`tilekit.emulator.Device`).

        Raises
        ------
        ArgumentError
            For arrays that do not fit this kernel, naming the argument; ``TK-API-001`` where the GPU is another chip
            than the kernel was built for.
        """
        if device not in (None, "cuda"):
            raise ArgumentError.of(
                "device", device, legal="None, or 'cuda' for arrays in host memory", nearest="cuda", code=self.MISFIT
            )
        va, vb = matrix_view(a, "a"), matrix_view(b, "b")
        problem = self._read(va, vb)
        if out is None:
            out = empty_like_library(va, problem.out_shape, self.spec.out_dtype)
        vo = matrix_view(out, "out")
        named = [("a", va), ("b", vb)]
        require_output(vo, problem.out_shape, self.spec.out_dtype, named)
        extras = Extras.read(
            problem, vo, bias=bias, scale=scale, scale_a=scale_a, scale_b=scale_b, residual=residual, beta=beta
        )
        extras.check_overlap(vo)
        require_same_place([*named, *extras.views.items(), ("out", vo)])
        operands = {"a": va, "b": vb, "out": vo, **extras.views}
        self._check_fit(problem, operands, extras)
        added = output_matrix(extras.residual, "residual") if extras.residual is not None else None
        call = extras.call(problem, output_matrix(vo), added)
        if 0 in problem.out_shape:
            return MatmulPlan(out, vo)
        if vo.device != "cpu":
            return DevicePlan(self, call, operands, out)
        if device == "cuda":
            self._require_chip(0)
            return StagedPlan(self, call, operands, out)
        return EmulatedPlan(self, call, operands, out, seed=seed, **emulator)

    @abstractmethod
    def arguments(self, call: MatmulCall, addresses: Addresses, resident: int, scratch: Scratch) -> Launch:
        """Grid and parameters of a launch."""

    @abstractmethod
    def work(self, problem: MatmulProblem, launch: Launch) -> Work:
        """What a launch does, for the emulator's estimate of its time."""

    @abstractmethod
    def _read(self, a: ArrayView, b: ArrayView) -> MatmulProblem:
        """Check the operands against each other."""

    @abstractmethod
    def _check_fit(self, problem: MatmulProblem, operands: dict[str, ArrayView], extras: Extras) -> None:
        """Raise `ArgumentError` for arrays that another kernel would take."""

    def _require(self, facts: Iterable[tuple[str, Any, Any]], advice: str) -> None:
        """Compare what is given with what the kernel was built for."""
        for what, given, built in facts:
            if given != built:
                raise ArgumentError(
                    f"{what} is {given}, but {self.name} was built for {built}; {advice}", code=self.MISFIT
                )
