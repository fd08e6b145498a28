"""A call with components of the caller's, and with the arrays that a payload among these reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypedDict

from tilekit.arrays import ArrayView, require_same_place
from tilekit.errors import ArgumentError
from tilekit.kernels.arguments import Arguments
from tilekit.kernels.matmul.own import OwnComponents
from tilekit.kernels.problem import MatmulCall


class OwnKeywords(TypedDict, total=False):
    """What calls with components of the caller's take by keyword."""

    components: OwnComponents | None
    arrays: dict[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class OwnArguments(Arguments):
    """A call whose kernel may have components of the caller's.

    Attributes
    ----------
    components
        These.
    inputs
        Views of what a payload among these reads.
    """

    components: OwnComponents = field(default_factory=OwnComponents)
    inputs: Mapping[str, ArrayView] = field(default_factory=dict)

    def with_inputs(self, arrays: Mapping[str, Any] | None, *, groups: int | None = None) -> Self:
        """The same call with what a payload of the caller's reads, checked.

        Parameters
        ----------
        arrays
            By the names that the payload declares.
        groups
            Groups of A's rows, each with a matrix of B; None where there are none.

        Raises
        ------
        ArgumentError
            ``TK-COMP-002`` for arrays too few, or of unknown names, ``TK-COMP-003`` for one that is not as it was
            declared, ``TK-MM-028`` for arrays of batches or groups, of which the call has none.
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
        leading = ({"b": p.batches} if p.batched else {}) | ({} if groups is None else {"g": groups})
        views = payload.read(arrays or {}, m=p.m, n=p.n, k=p.k, **leading)
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
        matrices, numbers = payload.matrices(self.inputs), payload.numbers(self.inputs)
        return replace(call, matrices={**call.matrices, **matrices}, numbers={**call.numbers, **numbers})
