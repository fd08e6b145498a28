"""A call of `tilekit.matmul`, read once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, TypedDict, Unpack, cast

from tilekit.annotations import checked_values
from tilekit.dtypes import DType
from tilekit.epilogue.functions import Activation, ElementwiseSpec
from tilekit.epilogue.written_spec import WrittenSpec
from tilekit.kernels.arguments import result_type, settings
from tilekit.kernels.epilogue_arguments import EpilogueKeywords
from tilekit.kernels.matmul.any_config import AnyConfig
from tilekit.kernels.matmul.own import OwnComponents
from tilekit.kernels.matmul.own_arguments import OwnArguments, OwnKeywords
from tilekit.kernels.matmul.platforms import read_for
from tilekit.kernels.matmul.spec import Accumulation, MatmulSpec, Precision
from tilekit.kernels.problem import MatmulProblem, matrix_view
from tilekit.kernels.resolve import resolve_target
from tilekit.kernels.written_arguments import WrittenContext, split_results
from tilekit.targets import PlaceName


class CallKeywords(TypedDict, total=False):
    """What every call of a product takes by keyword, but for ``stream``, which is not the kernel's."""

    out: Any
    activation: Activation | None
    out_dtype: Any
    config: AnyConfig | None
    target: PlaceName | None


class MatmulKeywords(EpilogueKeywords, CallKeywords, OwnKeywords, total=False):
    """What `tilekit.matmul` takes; it says what each is."""

    precision: Precision | None
    accumulation: Accumulation


@dataclass(frozen=True)
class MatmulArguments(OwnArguments):
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
        out, results = split_results(given.get("out"), given.get("epilogue"))
        name = "out" if results is None else "out[0]"
        vo = None if out is None else matrix_view(out, name)
        dtype = result_type(va, vo, given.get("out_dtype"))
        target, device = resolve_target(va, given.get("target"), memory=memory)
        problem = read_for(target, va, vb)
        call = cls.of(
            problem,
            va,
            vb,
            vo,
            dtype,
            cast(EpilogueKeywords, given),
            memory=memory,
            out_name=name,
            written=WrittenContext(results=results),
            target=target,
            device=device,
            components=given.get("components") or OwnComponents(),
            **settings(given) | {"result": out},
        )
        return call.with_inputs(given.get("arrays"))

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
            components=self.components,
        )


def spec_of(
    problem: MatmulProblem,
    out_dtype: DType,
    functions: ElementwiseSpec | WrittenSpec,
    *,
    store: str = "tma",
    precision: Precision | None = None,
    accumulation: Accumulation = "fast",
    kind: Callable[..., MatmulSpec] = MatmulSpec,
    components: OwnComponents | None = None,
) -> MatmulSpec:
    """The matmul, or what `kind` makes, that computes a problem into outputs of `out_dtype`."""
    return kind(
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
        components=components or OwnComponents(),
    )
