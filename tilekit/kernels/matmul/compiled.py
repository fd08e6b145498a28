"""A compiled matmul: what it reads, how it is launched, and which arrays fit it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, ClassVar, Unpack

from tilekit.annotations import takes
from tilekit.arrays import ArrayView
from tilekit.errors import ArgumentError
from tilekit.kernels.arguments import Arguments
from tilekit.kernels.compiled import BindKeywords, CompiledKernel
from tilekit.kernels.launch import Launch
from tilekit.kernels.matmul.arguments import MatmulArguments
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.explain import explain
from tilekit.kernels.matmul.kernel import KernelText, trace
from tilekit.kernels.matmul.platforms import read_for
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.kernels.plan import Plan
from tilekit.kernels.problem import MatmulProblem, store_kind
from tilekit.runtime.emulated import Work
from tilekit.targets import Target
from tilekit.tile_io.tma import TMA_ALIGNMENT
from tilekit.tiles.call import Load, Matrix


class MatmulBindKeywords(BindKeywords, total=False):
    """What `MatmulKernel.bind` takes beside operands and output."""

    arrays: dict[str, Any] | None


class MatmulKernel(CompiledKernel):
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

    MISFIT = "TK-MM-016"
    CALL: ClassVar[str] = "tilekit.matmul"
    """Which call builds one for its arrays."""

    spec: MatmulSpec
    config: KernelConfig
    text: KernelText

    def __init__(self, spec: MatmulSpec, config: KernelConfig, target: Target) -> None:
        super().__init__(spec, config, target, trace(spec, config, target))

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy or a pickle is the kernel that a process has for spec, config and target."""
        return compiled, (self.spec, self.config, self.target, type(self))

    @property
    def k_block(self) -> int:
        """Elements of K in a stage."""
        return self.config.k_block(self.spec.a_dtype, self.spec.block_bytes)

    @property
    def launch_registers(self) -> int:
        """Registers a thread as it is launched."""
        return self.config.warps(self.target, self.spec).launch_registers

    def described(self) -> str:
        """Roles and warps, registers, the shared-memory map, barriers and who arrives, bytes and FLOPs per tile."""
        return explain(self.spec, self.config, self.text)

    @property
    def launch_bytes(self) -> int:
        """Dynamic shared memory of a launch, bytes.

        A kernel with accumulators in tensor memory asks for more than half of what there is: two clusters on the same
        multiprocessors could each hold columns that the other waits for.
        """
        alone = self.target.shared_bytes // 2 if self.text.exclusive else 0
        return max(self.text.launch_bytes, alone)

    @property
    def swapped(self) -> bool:  # type: ignore[override]
        """Whether it multiplies the transposes in the other order."""
        return self.config.swap_ab

    def work(self, problem: MatmulProblem, launch: Launch) -> Work:
        """What the emulator's estimate counts: k-blocks in all, of every CTA tile."""
        ctas = launch.tiles * self.config.cluster_size // self.config.cluster_k
        return Work(flops=problem.flops, tiles=ctas * -(-problem.k // self.k_block))

    @takes(MatmulBindKeywords)
    def bind(self, a: Any, b: Any, out: Any = None, **keywords: Unpack[MatmulBindKeywords]) -> Plan:
        """Prepare a launch, as every kernel does; `arrays` are what a payload of the caller's reads, by name."""
        return self._bound(a, b, out, keywords)

    def _arguments(self, a: Any, b: Any, out: Any, given: Mapping[str, Any]) -> Arguments:
        plain = super()._arguments(a, b, out, given)
        own = {one.name: getattr(plain, one.name) for one in fields(Arguments)}
        return MatmulArguments(**own, components=self.spec.components).with_inputs(given.get("arrays"))

    def _read(self, a: ArrayView, b: ArrayView) -> MatmulProblem:
        return read_for(self.target, a, b)

    def _check_fit(self, arguments: Arguments) -> None:
        spec, problem, out = self.spec, arguments.problem, arguments.out
        matrix = arguments.out_matrix
        if spec.store == "tma" and not arguments.empty and store_kind(out.address, matrix) == "direct":
            raise ArgumentError(
                f"out at address {out.address:#x}, with rows of {out.shape[-1] * out.dtype.bytes} bytes that are "
                f"{matrix.pitch} bytes apart, cannot be written {self._wide_stores}, which needs multiples of 16; "
                "build the kernel with MatmulSpec(store='direct'), or pass an out of padded rows with a whole "
                "number of 16 bytes",
                code=self.MISFIT,
            )
        for operand, load in zip((problem.a, problem.b), spec.loads, strict=True):
            self._check_loadable(operand, load)
        if spec.loads_residual and not arguments.empty:
            self._check_readable(arguments)
        facts = (
            ("a's type", problem.a.dtype, spec.a_dtype),
            ("b's type", problem.b.dtype, spec.b_dtype),
            ("a's major", problem.a.major, spec.a_major),
            ("b's major", problem.b.major, spec.b_major),
            ("batching", problem.batched, spec.batched),
            ("groups", self._kind_of(arguments), spec.groups),
            ("what is multiplied", problem.multiplied, "images" if spec.own_loaders else "two matrices"),
            *arguments.epilogue.facts(spec.functions),
        )
        self._require(facts, f"build a kernel for these arrays, or call {self.CALL}, which does")

    def _kind_of(self, arguments: Arguments) -> str | None:
        """How a call's groups of rows are told, where it has any."""
        return None

    @property
    def _wide_stores(self) -> str:
        """How an output is stored that need not be stored element by element."""
        return "by the copy engine" if self.target.has("copy_engine") else "several elements at once"

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
    def _check_readable(arguments: Arguments) -> None:
        residual, added = arguments.epilogue.residual, arguments.residual_matrix
        if residual is not None and added is not None and store_kind(residual.address, added) == "direct":
            raise ArgumentError(
                f"residual at address {residual.address:#x}, with rows {added.pitch} bytes apart, cannot be read by "
                "the copy engine, which needs multiples of 16; build the kernel with MatmulSpec(store='direct'), or "
                "pass a residual of padded rows",
                code="TK-MM-016",
            )


@cache
def compiled(spec: MatmulSpec, config: KernelConfig, target: Target, kind: Callable[..., MatmulKernel]) -> MatmulKernel:
    """Return the one kernel of the process for this spec, config and target, of those that bind what `kind` does."""
    return kind(spec, config, target)
