"""A call of `tilekit.matmul`, read once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, TypedDict, Unpack, cast

from tilekit.annotations import checked_values
from tilekit.arrays import ArrayView, require_same_place
from tilekit.dtypes import DType
from tilekit.epilogue.functions import Activation, ElementwiseSpec
from tilekit.epilogue.written_spec import WrittenSpec
from tilekit.errors import ArgumentError
from tilekit.kernels.arguments import Arguments, result_type, settings
from tilekit.kernels.epilogue_arguments import EpilogueKeywords
from tilekit.kernels.matmul.any_config import AnyConfig
from tilekit.kernels.matmul.own import OwnComponents
from tilekit.kernels.matmul.platforms import read_for
from tilekit.kernels.matmul.spec import Accumulation, MatmulSpec, Precision
from tilekit.kernels.operands import matrices_of
from tilekit.kernels.problem import MatmulCall, MatmulProblem, matrix_view
from tilekit.kernels.resolve import resolve_target
from tilekit.kernels.written_arguments import split_results
from tilekit.targets import PlaceName


class CallKeywords(TypedDict, total=False):
    """What every call of a product takes by keyword, but for ``stream``, which is not the kernel's."""

    out: Any
    activation: Activation | None
    out_dtype: Any
    config: AnyConfig | None
    target: PlaceName | None


class MatmulKeywords(EpilogueKeywords, CallKeywords, total=False):
    """What `tilekit.matmul` takes; it says what each is."""

    precision: Precision | None
    accumulation: Accumulation
    components: OwnComponents | None
    arrays: dict[str, Any] | None


@dataclass(frozen=True)
class MatmulArguments(Arguments):
    """The arguments of a product of two matrices, or of batches of them.

    Attributes
    ----------
    precision, accumulation
        How products of f32, and sums of 8-bit products, are made.
    components
        Components of the caller's.
    inputs
        Views of what a payload among these reads.
    """

    precision: Precision | None = None
    accumulation: Accumulation = "fast"
    components: OwnComponents = field(default_factory=OwnComponents)
    inputs: Mapping[str, ArrayView] = field(default_factory=dict)

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
            results=results,
            target=target,
            device=device,
            components=given.get("components") or OwnComponents(),
            **settings(given) | {"result": out},
        )
        return call.with_inputs(given.get("arrays"))

    def with_inputs(self, arrays: Mapping[str, Any] | None) -> Self:
        """The same call with what a payload of the caller's reads, checked.

        Raises
        ------
        ArgumentError
            ``TK-COMP-002`` for arrays too few, or of unknown names, ``TK-COMP-003`` for one that is not as it was
            declared.
        """
        payload, p = self.components.payload, self.problem
        if payload is None:
            if arrays:
                raise ArgumentError(
                    f"arrays has {', '.join(map(str, arrays))}, and no component reads it; nearest: leave it out, or "
                    "components=OwnComponents(payload=...)",
                    code="TK-COMP-002",
                )
            return self
        views = payload.read(arrays or {}, m=p.m, n=p.n, k=p.k)
        taken = sorted(set(views) & set(self.arrays))
        if taken:
            raise ArgumentError(
                f"arrays has {taken[0]}, and so has the epilogue; nearest: another name for one of them",
                code="TK-COMP-002",
            )
        require_same_place([("a", self.a), *views.items()])
        return replace(self, inputs=views)

    @property
    def arrays(self) -> dict[str, ArrayView]:
        """Everything in memory, by the names of `Addresses`."""
        return {**super().arrays, **self.inputs}

    @property
    def call(self) -> MatmulCall:
        """What a launch needs beside addresses."""
        call, payload = super().call, self.components.payload
        if payload is None:
            return call
        matrices, numbers = matrices_of(self.inputs), payload.numbers(self.inputs)
        return replace(call, matrices={**call.matrices, **matrices}, numbers={**call.numbers, **numbers})

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
