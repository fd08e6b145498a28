"""A compiled gemv: what it reads, how it is launched, and which arrays fit it."""

from __future__ import annotations

from functools import cache
from typing import Any

from tilekit.arrays import ArrayView
from tilekit.errors import ArgumentError
from tilekit.kernels.arguments import Arguments
from tilekit.kernels.compiled import CompiledKernel
from tilekit.kernels.gemv.config import GemvConfig
from tilekit.kernels.gemv.explain import explain
from tilekit.kernels.gemv.kernel import GemvText, trace
from tilekit.kernels.gemv.problem import access, read_gemv
from tilekit.kernels.gemv.spec import GemvSpec
from tilekit.kernels.gemv.weights import shape_of
from tilekit.kernels.launch import Launch
from tilekit.kernels.problem import MatmulProblem
from tilekit.runtime import driver
from tilekit.runtime.emulated import Work
from tilekit.targets import Target


class GemvKernel(CompiledKernel):
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

    MISFIT = "TK-GV-007"
    spec: GemvSpec
    config: GemvConfig
    text: GemvText

    def __init__(self, spec: GemvSpec, config: GemvConfig, target: Target) -> None:
        super().__init__(spec, config, target, trace(spec, config, target))

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy or a pickle is the kernel that a process has for spec, config and target."""
        return compiled, (self.spec, self.config, self.target)

    @property
    def reads_early(self) -> bool:
        """Whether operands are read while the kernel ahead runs."""
        return self.spec.weights_ready

    @property
    def k_block(self) -> int:
        """Elements of K in a slot."""
        return shape_of(self.spec).k_block

    def described(self) -> str:
        """The division of the weights among lanes, warps and CTAs, and the bytes on their way."""
        return explain(self.spec, self.config, self.text)

    def _wanted(self, held: int, ordinal: int) -> int:
        """As many as put `ctas_per_sm` on each SM."""
        wanted = driver.devices()[ordinal].sms * self.config.ctas_per_sm // self.text.cluster
        return max(1, min(held, wanted))

    def work(self, problem: MatmulProblem, launch: Launch) -> Work:
        """What the emulator's estimate counts: k-blocks of the groups of columns that one instruction multiplies."""
        groups = -(-problem.n // self.config.tile[1])
        return Work(flops=problem.flops, tiles=groups * -(-problem.k // self.k_block))

    def _read(self, a: ArrayView, b: ArrayView) -> MatmulProblem:
        return read_gemv(a, b)

    def _check_fit(self, arguments: Arguments) -> None:
        spec, problem, a, b = self.spec, arguments.problem, arguments.a, arguments.b
        if problem.m > spec.tokens:
            raise ArgumentError(
                f"a has M={problem.m} rows, but {self.name} was built for up to {spec.tokens}; build a kernel with "
                f"GemvSpec(tokens={max(8, spec.tokens)})",
                code=self.MISFIT,
            )
        for name, view, matrix, built in (("a", a, problem.a, spec.a_access), ("b", b, problem.b, spec.b_access)):
            if 0 not in view.shape and access(view, matrix) < built:
                raise ArgumentError(
                    f"{name} at address {view.address:#x}, with lines of {matrix.extents[0] * view.dtype.bytes} bytes "
                    f"that are {matrix.pitch} bytes apart, cannot be read {built} bytes at a time; build the kernel "
                    f"with GemvSpec({name}_access={access(view, matrix)})",
                    code=self.MISFIT,
                )
        facts = (
            ("a's type", problem.a.dtype, spec.a_dtype),
            ("b's type", problem.b.dtype, spec.b_dtype),
            ("b's major", problem.b.major if 0 not in b.shape else spec.b_major, spec.b_major),
            *arguments.epilogue.facts(spec.functions),
        )
        self._require(facts, "build a kernel for these arrays")


@cache
def compiled(spec: GemvSpec, config: GemvConfig, target: Target) -> GemvKernel:
    """Return the one kernel of the process for this spec, config and target."""
    return GemvKernel(spec, config, target)
