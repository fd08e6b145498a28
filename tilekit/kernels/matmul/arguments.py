"""A call of `tilekit.matmul`, read once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, Unpack, cast

from tilekit.annotations import checked_values
from tilekit.dtypes import DType
from tilekit.epilogue.functions import Activation, ElementwiseSpec
from tilekit.kernels.arguments import Arguments, result_type
from tilekit.kernels.epilogue_arguments import EpilogueKeywords
from tilekit.kernels.matmul.any_config import AnyConfig
from tilekit.kernels.matmul.platforms import read_for
from tilekit.kernels.matmul.spec import Accumulation, MatmulSpec, Precision
from tilekit.kernels.problem import MatmulProblem, matrix_view
from tilekit.kernels.resolve import resolve_target
from tilekit.targets import PlaceName


class MatmulKeywords(EpilogueKeywords, total=False):
    """What `tilekit.matmul` takes by keyword, but for ``stream``, which is not the kernel's; it says what each is."""

    out: Any
    activation: Activation | None
    out_dtype: Any
    precision: Precision | None
    accumulation: Accumulation
    config: AnyConfig | None
    target: PlaceName | None


@dataclass(frozen=True)
class MatmulArguments(Arguments):
    """The arguments of a product of two matrices, or of batches of them.

    Attributes
    ----------
    precision, accumulation
        How products of f32, and sums of 8-bit products, are made.
    """

    precision: Precision | None = None
    accumulation: Accumulation = "fast"

    @classmethod
    def parse(cls, a: Any, b: Any, *, memory: bool = True, **keywords: Unpack[MatmulKeywords]) -> Self:
        """Read and check a call's arguments.

        Parameters
        ----------
        a, b, keywords
            As `tilekit.matmul` takes them.
        memory
            False for arrays that are layouts alone: nothing is asked of their memory.

        Raises
        ------
        ArgumentError, DriverError
            Naming the argument.
        """
        given = checked_values(MatmulKeywords, keywords)
        va, vb = matrix_view(a, "a"), matrix_view(b, "b")
        out = given.get("out")
        vo = None if out is None else matrix_view(out, "out")
        dtype = result_type(va, vo, given.get("out_dtype"))
        target, device = resolve_target(va, given.get("target"), memory=memory)
        problem = read_for(target, va, vb)
        return cls.of(
            problem,
            va,
            vb,
            vo,
            dtype,
            cast(EpilogueKeywords, given),
            memory=memory,
            target=target,
            device=device,
            result=out,
            activation=given.get("activation"),
            config=given.get("config"),
            precision=given.get("precision"),
            accumulation=given.get("accumulation", "fast"),
        )

    @cached_property
    def spec(self) -> MatmulSpec:
        """The matmul for arrays that lie so."""
        return self.spec_storing(self.store)

    def spec_storing(self, store: str) -> MatmulSpec:
        """The matmul that stores in the way `store`."""
        return spec_of(
            self.problem,
            self.out.dtype,
            self.functions,
            store=store,
            precision=self.precision,
            accumulation=self.accumulation,
        )


def spec_of(
    problem: MatmulProblem,
    out_dtype: DType,
    functions: ElementwiseSpec,
    *,
    store: str = "tma",
    precision: Precision | None = None,
    accumulation: Accumulation = "fast",
) -> MatmulSpec:
    """The matmul that computes a problem into outputs of `out_dtype`."""
    return MatmulSpec(
        a_dtype=problem.a.dtype,
        b_dtype=problem.b.dtype,
        out_dtype=out_dtype,
        a_major=problem.a.major,
        b_major=problem.b.major,
        batched=problem.batched,
        functions=functions,
        store=store,
        precision=precision,
        a_load=problem.a.load,
        b_load=problem.b.load,
        accumulation=accumulation,
    )
