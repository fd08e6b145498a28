"""A compiled gemv: one object that shows its text, its machine code and its budgets, and binds to arrays."""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any

from tilekit.arrays import ArrayView, empty_like_library, require_output, require_same_place
from tilekit.errors import ArgumentError
from tilekit.kernels.gemv.arguments import launch_arguments
from tilekit.kernels.gemv.config import GemvConfig
from tilekit.kernels.gemv.explain import explain
from tilekit.kernels.gemv.kernel import GemvText, trace
from tilekit.kernels.gemv.problem import access, read_gemv
from tilekit.kernels.gemv.spec import GemvSpec
from tilekit.kernels.gemv.weights import shape_of
from tilekit.kernels.matmul.arguments import Addresses, MatmulLaunch, Scratch
from tilekit.kernels.matmul.extras import Extras
from tilekit.kernels.matmul.plan import DevicePlan, EmulatedPlan, MatmulPlan, StagedPlan
from tilekit.kernels.matmul.problem import MatmulCall, MatmulProblem, matrix_view, output_matrix
from tilekit.runtime import driver
from tilekit.runtime.assembler import Assembled, Resources, assemble, disassemble
from tilekit.runtime.launch import CudaKernel, CudaModule
from tilekit.runtime.prepared import LaunchConfig
from tilekit.targets import Target


class GemvKernel:
    """A gemv for one spec, config and target; any N and K, and up to ``spec.tokens`` rows.

    Parameters
    ----------
    spec, config, target
        What to compute, how, and for which chip.

    Raises
    ------
    ConfigError
        Listing every rule the config violates.
    """

    def __init__(self, spec: GemvSpec, config: GemvConfig, target: Target) -> None:
        self.spec = spec
        self.config = config
        self.target = target
        self.text: GemvText = trace(spec, config, target)
        self._resident: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<{self.name} for {self.target.name}: {self.config}>"

    @property
    def k_block(self) -> int:
        """Elements of K in a slot."""
        return shape_of(self.spec).k_block

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
        """The division of the weights among lanes, warps and CTAs, and the bytes on their way."""
        return explain(self.spec, self.config, self.text)

    @cached_property
    def cuda(self) -> CudaKernel:
        """The kernel in the CUDA driver."""
        return CudaModule.from_ptx(self.ptx, self.target.name, kernel_name=self.name).kernel(self.name)

    def resident_clusters(self, ordinal: int) -> int:
        """Clusters of the grid that fill the device: `ctas_per_sm` on each SM, and at most what it holds at once."""
        if ordinal not in self._resident:
            held = self.cuda.max_active_clusters(self.launch_config(self.text.cluster), ordinal=ordinal)
            wanted = driver.devices()[ordinal].sms * self.config.ctas_per_sm // self.text.cluster
            self._resident[ordinal] = max(1, min(held, wanted))
        return self._resident[ordinal]

    def launch_config(self, grid: int) -> LaunchConfig:
        """The launch's shape for a grid of so many CTAs."""
        return LaunchConfig(
            grid=(grid, 1, 1),
            block=(self.text.threads, 1, 1),
            cluster=(self.text.cluster, 1, 1),
            shared_bytes=self.text.shared_bytes,
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
            Arrays and numbers, as for `tilekit.matmul`, with at most ``spec.tokens`` rows of `a`; a new `out` is made
            where it is None. The plan keeps using the arrays' memory.
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
                "device", device, legal="None, or 'cuda' for arrays in host memory", nearest="cuda", code="TK-GV-007"
            )
        va, vb = matrix_view(a, "a"), matrix_view(b, "b")
        problem = read_gemv(va, vb)
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
        added = output_matrix(extras.residual, "residual") if extras.residual is not None else None
        self._check_fit(problem, va, vb, extras)
        operands = {"a": va, "b": vb, "out": vo, **extras.views}
        call = extras.call(problem, output_matrix(vo), added)
        if problem.m == 0 or problem.n == 0:
            return MatmulPlan(out, vo)
        kernel: Any = self  # a plan asks of its kernel what both families have
        if vo.device != "cpu":
            return DevicePlan(kernel, call, operands, out)
        if device == "cuda":
            return StagedPlan(kernel, call, operands, out)
        return EmulatedPlan(kernel, call, operands, out, seed=seed, **emulator)

    def arguments(self, call: MatmulCall, addresses: Addresses, resident: int, scratch: Scratch) -> MatmulLaunch:
        """Grid and parameters of a launch, which needs no memory of its own."""
        return launch_arguments(self.text, self.spec, self.config, call, addresses, resident_clusters=resident)

    def _check_fit(
        self,
        problem: MatmulProblem,
        a: ArrayView,
        b: ArrayView,
        extras: Extras,
    ) -> None:
        spec = self.spec
        if problem.m > spec.tokens:
            raise ArgumentError(
                f"a has M={problem.m} rows, but {self.name} was built for up to {spec.tokens}; build a kernel with "
                f"GemvSpec(tokens={max(8, spec.tokens)})",
                code="TK-GV-007",
            )
        for name, view, matrix, built in (("a", a, problem.a, spec.a_access), ("b", b, problem.b, spec.b_access)):
            if 0 not in view.shape and access(view, matrix) < built:
                raise ArgumentError(
                    f"{name} at address {view.address:#x}, with lines of {matrix.extents[0] * view.dtype.bytes} bytes "
                    f"that are {matrix.pitch} bytes apart, cannot be read {built} bytes at a time; build the kernel "
                    f"with GemvSpec({name}_access={access(view, matrix)})",
                    code="TK-GV-007",
                )
        facts = (
            ("a's type", problem.a.dtype, spec.a_dtype),
            ("b's type", problem.b.dtype, spec.b_dtype),
            ("b's major", problem.b.major if 0 not in b.shape else spec.b_major, spec.b_major),
            *extras.facts(spec.functions),
        )
        for what, given, built_for in facts:
            if given != built_for:
                raise ArgumentError(
                    f"{what} is {given}, but {self.name} was built for {built_for}; build a kernel for these arrays",
                    code="TK-GV-007",
                )


@cache
def compiled(spec: GemvSpec, config: GemvConfig, target: Target) -> GemvKernel:
    """Return the one kernel of the process for this spec, config and target."""
    return GemvKernel(spec, config, target)
