"""Calls of products with scales of blocks, dense and in groups of rows, read once."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self, Unpack, cast

from tilekit.annotations import checked_values
from tilekit.arrays import ArrayView, require_same_place
from tilekit.dtypes import F32, FP8
from tilekit.errors import ArgumentError
from tilekit.kernels.arguments import Arguments
from tilekit.kernels.blockwise.scales import BLOCK
from tilekit.kernels.blockwise.spec import BlockwiseSpec
from tilekit.kernels.grouped.arguments import GroupedArguments, GroupedKeywords
from tilekit.kernels.matmul.arguments import MatmulArguments
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.kernels.problem import MatmulCall
from tilekit.kernels.scaled.elsewhere import of_blockwise
from tilekit.kernels.scaled.keywords import OF_RESULTS, ScaledKeywords
from tilekit.kernels.scaled.views import view_among
from tilekit.tile_io.tma import TMA_ALIGNMENT
from tilekit.tiles.call import Matrix


class ScaledGroupsKeywords(GroupedKeywords, total=False):
    """What `tilekit.grouped_matmul` takes by keyword, but for ``stream``, with scales of blocks."""

    scale_a: Any
    scale_b: Any


@dataclass(frozen=True, kw_only=True)
class Scaled(Arguments):
    """A call with scales of blocks.

    Attributes
    ----------
    scale_a, scale_b
        Their views.
    """

    scale_a: ArrayView
    scale_b: ArrayView

    @classmethod
    def with_scales(cls, call: Any, a: Any, b: Any, scale_a: Any, scale_b: Any) -> Self:
        """Check the scales against the operands of a call that has none.

        Raises
        ------
        ArgumentError
            ``TK-BLOCK-001`` types of operands, ``TK-BLOCK-002`` shapes and types of scales, ``TK-BLOCK-003`` how they
            lie.
        """
        (*leading, rows, k), (*groups, _, columns) = a.shape, b.shape
        blocks = -(-k // BLOCK)
        wanted = {
            "scale_a": (scale_a, (*leading, rows, blocks), "one f32 for each row of a and 128 of K"),
            "scale_b": (scale_b, (*groups, -(-columns // BLOCK), blocks), "one f32 for 128 columns of b and 128 of K"),
        }
        views = {name: _read(name, *what) for name, what in wanted.items()}
        require_same_place([("a", call.a), *views.items()])
        plain: dict[str, Any] = {field.name: getattr(call, field.name) for field in fields(call)}
        return cls(**plain | views)

    def scaled(self, spec: MatmulSpec) -> BlockwiseSpec:
        """What computes it, where `spec` is the product without scales."""
        given = {field.name: getattr(spec, field.name) for field in fields(MatmulSpec)}
        # Where the tensor core gives stages back, threads that add would read them too late.
        staged = not self.target.has("tensor_memory")
        views = {"scale_load": (self.scale_a, -2), "scale_b_load": (self.scale_b, -1)}
        ways = {
            name: "tma" if staged and self._copied(view, contiguous) else "direct"
            for name, (view, contiguous) in views.items()
        }
        return BlockwiseSpec(**given | {"accumulation": "promoted"} | ways)

    @staticmethod
    def _copied(view: ArrayView, contiguous: int) -> bool:
        """Whether the copy engine can read scales of which those along an axis lie behind each other."""
        pitches = [step for axis, step in enumerate(view.strides) if axis != len(view.shape) + contiguous]
        aligned = not any((view.address | F32.bytes * pitch) % TMA_ALIGNMENT for pitch in pitches)
        return aligned and 0 not in view.shape and view.strides[contiguous] == 1 and pitches[-1] > 0

    @property
    def elsewhere(self) -> str:
        """What is nearest on a chip without such products."""
        return of_blockwise(self.target)

    @property
    def scale_matrices(self) -> dict[str, Matrix]:
        """The scales as the copy engine sees them: those of A's k-block, and of B's columns, lie behind each other."""
        found: dict[str, Matrix] = {}
        for name, view, major in (("scale_a", self.scale_a, "mn"), ("scale_b", self.scale_b, "k")):
            (groups, rows, blocks), (group, pitch, step) = ([1, *of][-3:] for of in (view.shape, view.strides))
            extents, along = ((rows, blocks), step) if major == "mn" else ((blocks, rows), pitch)
            apart = F32.bytes * group * (groups > 1)
            found[name] = Matrix(name, F32, extents, F32.bytes * along, apart, groups, cast(Any, major))
        return found

    @property
    def arrays(self) -> dict[str, ArrayView]:
        """Everything in memory, by the names of `Addresses`."""
        return {**super().arrays, "scale_a": self.scale_a, "scale_b": self.scale_b}

    @property
    def call(self) -> MatmulCall:
        """What a launch needs beside addresses."""
        numbers: dict[str, float] = {}
        for name, view in (("scale_a", self.scale_a), ("scale_b", self.scale_b)):
            steps = [0, *view.strides][-3:]
            numbers |= {f"{name}_{field}": step for field, step in zip(("group", "pitch", "step"), steps, strict=True)}
            numbers[f"{name}_extent"] = view.shape[-2]
        call = super().call
        return replace(call, numbers={**call.numbers, **numbers}, matrices={**call.matrices, **self.scale_matrices})


@dataclass(frozen=True, kw_only=True)
class BlockwiseArguments(Scaled, MatmulArguments):
    """The arguments of a product of two matrices."""

    @classmethod
    def parse(  # type: ignore[override]  # scales of its own
        cls, a: Any, b: Any, scale_a: Any, scale_b: Any, *, memory: bool = True, **keywords: Unpack[ScaledKeywords]
    ) -> Self:
        """Read and check a call's arguments, as `tilekit.scaled_matmul` takes them."""
        va, vb = _operands(a, b)
        if len(va.shape) != 2 or len(vb.shape) != 2:
            raise ArgumentError(
                f"a is {va.shape} and b is {vb.shape}: with scales of blocks a (M, K) and b (K, N) are multiplied; "
                "nearest: tilekit.grouped_matmul with counts, for a batch",
                code="TK-BLOCK-001",
            )
        given = checked_values(ScaledKeywords, keywords)
        plain = {name: value for name, value in given.items() if name not in OF_RESULTS}  # None of these
        call = MatmulArguments.parse(a, b, memory=memory, **cast(Any, plain))
        return cls.with_scales(call, va, vb, scale_a, scale_b)

    def spec_storing(self, store: str) -> BlockwiseSpec:
        """The kernel that stores in the way `store`."""
        return self.scaled(super().spec_storing(store))


@dataclass(frozen=True, kw_only=True)
class GroupedBlockwiseArguments(Scaled, GroupedArguments):
    """The arguments of products of groups of rows."""

    @classmethod
    def parse(
        cls, a: Any, b: Any, ends: Any = None, *, memory: bool = True, **keywords: Unpack[ScaledGroupsKeywords]
    ) -> Self:
        """Read and check a call's arguments, as `tilekit.grouped_matmul` takes them."""
        scale_a, scale_b = keywords.pop("scale_a", None), keywords.pop("scale_b", None)
        plain = cast(GroupedKeywords, keywords)
        va, vb = _operands(a, b)
        call = GroupedArguments.parse(a, b, ends, memory=memory, **plain)
        if call.components:
            raise ArgumentError(
                "components beside scale_a and scale_b: a product with scales of blocks has a payload and accumulators "
                "of its own; nearest: no scales, and a payload that reads them",
                code="TK-MM-028",
            )
        return cls.with_scales(call, va, vb, scale_a, scale_b)

    @cached_property
    def spec(self) -> BlockwiseSpec:
        """The kernel whose tiles are the groups'."""
        return self.scaled(self.plain_spec)


def _operands(a: Any, b: Any) -> tuple[ArrayView, ArrayView]:
    va, vb = (view_among(one, name, "e4m3 or e5m2", "e4m3") for one, name in ((a, "a"), (b, "b")))
    if va.dtype not in FP8 or vb.dtype not in FP8:
        raise ArgumentError(
            f"scale_a and scale_b are scales of blocks of 8-bit operands, e4m3 or e5m2, but a is {va.dtype} and b is "
            f"{vb.dtype}; nearest: e4m3, or a call without such scales",
            code="TK-BLOCK-001",
        )
    return va, vb


def _read(name: str, given: Any, shape: tuple[int, ...], what: str) -> ArrayView:
    """Check scales: f32 of a shape, which run forwards."""
    if given is None:
        raise ArgumentError(f"{name} is None: pass both scales or neither; {what} is needed", code="TK-BLOCK-002")
    view = view_among(given, name, "f32 (float32)", "f32")
    if view.shape != shape or view.dtype != F32:
        turned = (*shape[:-2], shape[-1], shape[-2])
        way = f"{name}.T" if len(shape) == 2 else "it with its last two dimensions exchanged"
        hint = f" ({name} looks transposed: pass {way})" if view.shape == turned != shape else ""
        raise ArgumentError(
            f"{name} is {view.dtype} of shape {view.shape}: {what} is needed; nearest: f32 of shape {shape}{hint}",
            code="TK-BLOCK-002",
        )
    if min(view.strides, default=0) < 0:
        raise ArgumentError(
            f"{name} has strides {view.strides} (elements): scales may not run backwards. Pass a copy, for example "
            f"{name}.copy() of an array or {name}.contiguous() of a tensor",
            code="TK-BLOCK-003",
        )
    return view
