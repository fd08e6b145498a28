"""A compiled matmul: one object that shows its text, its machine code and its budgets, and binds to arrays."""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any

from tilekit.arrays import ArrayView, empty_like_library, require_output, require_same_place
from tilekit.errors import ArgumentError
from tilekit.kernels.matmul.arguments import Addresses, MatmulLaunch, Scratch, launch_arguments
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.explain import explain
from tilekit.kernels.matmul.extras import Extras
from tilekit.kernels.matmul.kernel import KernelText, trace
from tilekit.kernels.matmul.plan import DevicePlan, EmulatedPlan, MatmulPlan, StagedPlan
from tilekit.kernels.matmul.problem import (
    TMA_ALIGNMENT,
    MatmulCall,
    MatmulProblem,
    Matrix,
    matrix_view,
    output_matrix,
    read_problem,
    store_kind,
)
from tilekit.kernels.matmul.spec import Load, MatmulSpec
from tilekit.runtime.assembler import Assembled, Resources, assemble, disassemble
from tilekit.runtime.launch import CudaKernel, CudaModule
from tilekit.runtime.prepared import LaunchConfig
from tilekit.targets import Target


class MatmulKernel:
    """A matmul for one spec, config and target; any shape the spec's majors allow.

    Parameters
    ----------
    spec, config, target
        What to compute, how, and for which chip.

    Raises
    ------
    ConfigError
        Listing every rule the config violates.
    """

    def __init__(self, spec: MatmulSpec, config: KernelConfig, target: Target) -> None:
        self.spec = spec
        self.config = config
        self.target = target
        self.text: KernelText = trace(spec, config, target)
        self._resident: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<{self.name} for {self.target.name}: {self.config}>"

    @property
    def k_block(self) -> int:
        """Elements of K in a stage."""
        return self.config.k_block(self.spec.a_dtype)

    @property
    def name(self) -> str:
        """The entry's symbol."""
        return self.text.name

    @property
    def ptx(self) -> str:
        """The module's text, each line with its role and origin."""
        return self.text.ptx

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
        return disassemble(self.assembled.cubin)

    def explain(self) -> str:
        """Roles and warps, registers, the shared-memory map, barriers and who arrives, bytes and FLOPs per tile."""
        return explain(self.spec, self.config, self.text)

    @cached_property
    def cuda(self) -> CudaKernel:
        """The kernel in the CUDA driver."""
        return CudaModule.from_ptx(self.ptx, self.target.name, kernel_name=self.name).kernel(self.name)

    def resident_clusters(self, ordinal: int) -> int:
        """Clusters the device holds at once."""
        if ordinal not in self._resident:
            self._resident[ordinal] = self.cuda.max_active_clusters(
                self.launch_config(self.text.cluster), ordinal=ordinal
            )
        return self._resident[ordinal]

    @property
    def launch_bytes(self) -> int:
        """Dynamic shared memory of a launch, bytes.

        A kernel with accumulators in tensor memory asks for more than half of what there is: two clusters on the same
        multiprocessors could each hold columns that the other waits for.
        """
        alone = self.target.shared_bytes // 2 if self.target.tensor_columns else 0
        return max(self.text.shared_bytes, alone)

    def launch_config(self, grid: int) -> LaunchConfig:
        """The launch's shape for a grid of so many CTAs."""
        return LaunchConfig(
            grid=(grid, 1, 1),
            block=(self.text.threads, 1, 1),
            cluster=(self.text.cluster, 1, 1),
            shared_bytes=self.launch_bytes,
            pdl=True,
        )

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
            For arrays that do not fit this kernel, naming the argument.
        """
        if device not in (None, "cuda"):
            raise ArgumentError.of(
                "device", device, legal="None, or 'cuda' for arrays in host memory", nearest="cuda", code="TK-MM-016"
            )
        va, vb = matrix_view(a, "a"), matrix_view(b, "b")
        problem = read_problem(va, vb)
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
        matrix = output_matrix(vo)
        added = output_matrix(extras.residual, "residual") if extras.residual is not None else None
        self._check_fit(problem, matrix, vo, extras, added)
        operands = {"a": va, "b": vb, "out": vo, **extras.views}
        call = extras.call(problem, matrix, added)
        if problem.m == 0 or problem.n == 0 or problem.batches == 0:
            return MatmulPlan(out, vo)
        if vo.device != "cpu":
            return DevicePlan(self, call, operands, out)
        if device == "cuda":
            return StagedPlan(self, call, operands, out)
        return EmulatedPlan(self, call, operands, out, seed=seed, **emulator)

    def arguments(self, call: MatmulCall, addresses: Addresses, resident: int, scratch: Scratch) -> MatmulLaunch:
        """Grid and parameters of a launch."""
        return launch_arguments(self.text, self.config, call, addresses, resident_clusters=resident, scratch=scratch)

    def _check_fit(
        self,
        problem: MatmulProblem,
        matrix: Matrix,
        out: ArrayView,
        extras: Extras,
        added: Matrix | None,
    ) -> None:
        spec = self.spec
        if spec.store == "tma" and 0 not in out.shape and store_kind(out.address, matrix) == "direct":
            raise ArgumentError(
                f"out at address {out.address:#x}, with rows of {out.shape[-1] * out.dtype.bytes} bytes that are "
                f"{matrix.pitch} bytes apart, cannot be written by the copy engine, which needs multiples of 16; build "
                "the kernel with MatmulSpec(store='direct'), or pass an out of padded rows with a whole number of 16 "
                "bytes",
                code="TK-MM-016",
            )
        for operand, load in zip((problem.a, problem.b), spec.loads, strict=True):
            self._check_loadable(operand, load)
        if extras.residual is not None and added is not None and spec.loads_residual and 0 not in out.shape:
            self._check_readable(extras.residual, added)
        facts = (
            ("a's type", problem.a.dtype, spec.a_dtype),
            ("b's type", problem.b.dtype, spec.b_dtype),
            ("a's major", problem.a.major, spec.a_major),
            ("b's major", problem.b.major, spec.b_major),
            ("batching", problem.batched, spec.batched),
            *extras.facts(spec.functions),
        )
        for what, given, built in facts:
            if given != built:
                raise ArgumentError(
                    f"{what} is {given}, but {self.name} was built for {built}; build a kernel for these arrays, or "
                    "call tilekit.matmul, which does",
                    code="TK-MM-016",
                )

    @staticmethod
    def _check_loadable(operand: Matrix, load: Load) -> None:
        if operand.load == "tma" or (load != "tma" and load <= operand.load):
            return
        needed = TMA_ALIGNMENT if load == "tma" else load
        raise ArgumentError(
            f"{operand.name}'s address and pitches (its rows are {operand.pitch} bytes apart) are multiples of "
            f"{operand.load} bytes only, and the kernel was built for multiples of {needed}; "
            f"build the kernel with MatmulSpec({operand.name}_load={operand.load}), or pass an array of padded rows",
            code="TK-MM-016",
        )

    @staticmethod
    def _check_readable(residual: ArrayView, added: Matrix) -> None:
        if store_kind(residual.address, added) == "direct":
            raise ArgumentError(
                f"residual at address {residual.address:#x}, with rows {added.pitch} bytes apart, cannot be read by "
                "the copy engine, which needs multiples of 16; build the kernel with MatmulSpec(store='direct'), or "
                "pass a residual of padded rows",
                code="TK-MM-016",
            )


@cache
def compiled(spec: MatmulSpec, config: KernelConfig, target: Target) -> MatmulKernel:
    """Return the one kernel of the process for this spec, config and target."""
    return MatmulKernel(spec, config, target)
