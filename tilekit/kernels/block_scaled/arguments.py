"""A call of `tilekit.scaled_matmul` with scales of blocks along K, read once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Self, Unpack, cast

import numpy as np

from tilekit.annotations import checked_values
from tilekit.arrays import ArrayView, NewArrays, host_array, new_arrays, require_same_place, view_of
from tilekit.dtypes import BF16, E2M1, E2M1X2, U8, UE8M0, DType
from tilekit.errors import ArgumentError
from tilekit.kernels.arguments import Arguments, result_type
from tilekit.kernels.block_scaled.layout import laid_out
from tilekit.kernels.block_scaled.quantised import QuantisedResult, QuantisedSpec
from tilekit.kernels.block_scaled.scales import Scales, read_scales
from tilekit.kernels.block_scaled.scaling_chips import takes_scales
from tilekit.kernels.block_scaled.spec import BlockScaledSpec
from tilekit.kernels.epilogue_arguments import EpilogueKeywords
from tilekit.kernels.matmul.arguments import spec_of
from tilekit.kernels.matmul.platforms import read_for
from tilekit.kernels.problem import MatmulCall, MatmulProblem, matrix_view, read_problem
from tilekit.kernels.resolve import resolve_target
from tilekit.kernels.scaled.elsewhere import of_block_scaled
from tilekit.kernels.scaled.keywords import ScaledKeywords
from tilekit.kernels.scaled.views import OPERANDS, SCALES, view_among
from tilekit.kernels.written_arguments import WrittenContext
from tilekit.targets import TARGETS
from tilekit.tile_io.tma import TMA_ALIGNMENT
from tilekit.tile_op.block_scaled import FORMATS, ScaleFormat

CHIPS = tuple(name for name, chip in TARGETS.items() if takes_scales(chip))
"""Whose matrix instructions take scales; arrays in host memory are computed by the emulator of the first."""


@dataclass(frozen=True)
class ScaledProblem(MatmulProblem):
    """A product whose K is counted in bytes, of `packed` elements each."""

    packed: int = 1

    @property
    def flops(self) -> int:
        """Floating-point operations."""
        return super().flops * self.packed


@dataclass(frozen=True, kw_only=True)
class BlockScaledArguments(Arguments):
    """The arguments of a block-scaled product.

    Attributes
    ----------
    format
        How operands are scaled.
    scales
        Those of ``scale_a`` and ``scale_b``.
    quantised
        What is said of the result's format, where it has one.
    """

    format: ScaleFormat
    scales: dict[str, Scales] = field(hash=False)
    quantised: QuantisedResult | None = None

    @classmethod
    def parse(
        cls, a: Any, b: Any, scale_a: Any, scale_b: Any, *, memory: bool = True, **keywords: Unpack[ScaledKeywords]
    ) -> Self:
        """Read and check a call's arguments.

        Parameters
        ----------
        a, b, scale_a, scale_b, keywords
            As `tilekit.scaled_matmul` takes them.
        memory
            False for arrays that are layouts alone: nothing is asked of their memory.

        Raises
        ------
        ArgumentError, DriverError
            Naming the argument.
        """
        given: dict[str, Any] = checked_values(ScaledKeywords, keywords)
        va, vb = _operand(a, "a", -1), _operand(b, "b", 0)
        views = {"scale_a": _scale_view(scale_a, "scale_a"), "scale_b": _scale_view(scale_b, "scale_b")}
        found = _format(va.dtype, vb.dtype, views)
        problem = ScaledProblem(**vars(read_problem(va, vb)), packed=found.packed)
        for name, matrix in (("a", problem.a), ("b", problem.b)):
            if matrix.major != "k":
                raise ArgumentError(
                    f"{name}, {matrix.dtype} of shape {(va if name == 'a' else vb).shape}, is not contiguous along K, "
                    f"along which it is scaled; pass {name} with contiguous "
                    + ("rows" if name == "a" else "columns, for example the .T of an (N, K) array"),
                    code="TK-SCALE-003",
                )
        scales = {
            name: read_scales(name, view, rows, problem.k, found)
            for (name, view), rows in zip(views.items(), (problem.m, problem.n), strict=True)
        }
        require_same_place([("a", va), *views.items()])
        place = given.get("target")
        target, device = resolve_target(va, CHIPS[0] if place is None and va.device == "cpu" else place, memory=memory)
        loaded = read_for(target, va, vb)
        problem = replace(problem, a=loaded.a, b=loaded.b)
        quantised, out, results = QuantisedResult.read(given)
        several = quantised is not None or results is not None
        name = "out[0]" if several else "out"
        written = WrittenContext(results) if quantised is None else WrittenContext(results, before=2, dtype=BF16)
        vo, dtype, shape = None if out is None else matrix_view(out, name), given.get("out_dtype"), None
        if quantised is not None:
            dtype, shape = quantised.element, quantised.shape(problem.m, problem.n)
            vo = None if vo is None else quantised.values(vo)
        epilogue = {name: given[name] for name in ("bias", "scale", "residual", "beta", "epilogue") if name in given}
        call = cls.of(
            problem,
            va,
            vb,
            vo,
            result_type(va, vo if quantised is None else None, dtype),
            cast(EpilogueKeywords, epilogue),
            shape=shape,
            memory=memory,
            out_name=name,
            written=written,
            target=target,
            device=device,
            result=out,
            activation=given.get("activation"),
            config=given.get("config"),
            format=found,
            scales=scales,
            quantised=quantised,
        )
        if quantised is not None:
            quantised.check(call.out)
        return call

    @property
    def elsewhere(self) -> str:
        """What is nearest on a chip without scales of such blocks."""
        return of_block_scaled(self.target, self.format)

    @property
    def arrays(self) -> dict[str, ArrayView]:
        """Everything in memory, by the names of `Addresses`."""
        further = {name: scales.view for name, scales in self.scales.items()}
        if self.quantised is not None and self.quantised.view is not None:
            further["out_scales"] = self.quantised.view
        return {**super().arrays, **further}

    def new_output(self) -> NewArrays:
        """How an output of this layout is made, of bytes where they hold pairs."""
        dtype = self.out.dtype
        return new_arrays(self.a, self.out.shape, U8 if dtype is E2M1X2 else dtype)

    def into(self, result: Any) -> Self:
        """The same call with a new output."""
        made = super().into(result)
        return made if self.quantised is None else replace(made, out=self.quantised.values(made.out))

    def completed(self, stream: int | None = None) -> Self:
        """The same call with new scales of its result, where it has none."""
        found = super().completed(stream)
        if found.quantised is None or found.quantised.view is not None:
            return found
        return replace(found, quantised=found.quantised.completed(found.out, stream))

    @property
    def extra_names(self) -> tuple[str, ...]:
        """What is stored beside the values."""
        return *(() if self.quantised is None else ("out_scales",)), *super().extra_names

    @property
    def words(self) -> dict[str, str]:
        """What the caller calls those arrays that have another name in a launch."""
        return {**super().words, "out_scales": "out[1]"}

    @property
    def results(self) -> Any:
        """What the call returns: the output, or its values and scales."""
        plain = super().results
        if self.quantised is None:
            return plain
        return (self.result, self.quantised.array, *(plain[1:] if isinstance(plain, tuple) else ()))

    @property
    def call(self) -> MatmulCall:
        """What a launch needs beside addresses."""
        found, quantised = super().call, self.quantised
        if quantised is None:
            return found
        numbers = {**found.numbers, "out_scale": quantised.scale}
        return replace(found, matrices={**found.matrices, **quantised.matrices}, numbers=numbers)

    def prepared(self, stream: Any = None) -> Self:
        """The same call with all scales as the tensor core reads them; a kernel lays out those that lie as a matrix."""
        if not any(one.plain for one in self.scales.values()):
            return self
        place = self.target, self.device, stream
        return replace(self, scales={n: laid_out(s, *place) if s.plain else s for n, s in self.scales.items()})

    @cached_property
    def spec(self) -> BlockScaledSpec:
        """The matmul for arrays that lie so."""
        return self.spec_storing(self.store)

    def spec_storing(self, store: str) -> BlockScaledSpec:
        """The matmul that stores in the way `store`."""
        kind: Any = BlockScaledSpec
        if self.quantised is not None:
            how = {"out_scaled": self.quantised.format.name, "scale_layout": self.quantised.layout}
            kind = partial(QuantisedSpec, **cast(Any, how))
        kind = partial(kind, scaled=cast(Any, self.format.name))
        return cast(BlockScaledSpec, spec_of(self.problem, self.out.dtype, self.functions, store=store, kind=kind))


def _operand(array: Any, name: str, k_axis: int) -> ArrayView:
    """View an operand, bytes of packed elements: those of a byte each, in host memory, are packed."""
    view = view_among(array, name, OPERANDS, "e4m3")
    if len(view.shape) != 2:
        raise ArgumentError(
            f"{name} has shape {tuple(view.shape)}: scaled_matmul takes (M, K) @ (K, N); nearest: reshape it to two "
            "dimensions, and call once for each matrix of a batch",
            code="TK-SCALE-004",
        )
    if view.dtype in (U8, E2M1X2):
        return replace(view, dtype=E2M1X2)
    if view.dtype is not E2M1:
        return view
    if view.device != "cpu":
        raise ArgumentError(
            f"{name} is e2m1, a byte each, on {view.place}: kernels read pairs; pass them packed, as uint8 or "
            "torch.float4_e2m1fn_x2",
            code="TK-SCALE-001",
        )
    if view.shape[k_axis] % 2:
        k = view.shape[k_axis]
        raise ArgumentError(
            f"{name} has K={k}: two e2m1 share a byte, so K is even; nearest: {k + 1}, with zeros", code="TK-SCALE-004"
        )
    codes = np.moveaxis(host_array(view).view(np.uint8), k_axis, -1)
    rows, pairs = codes.shape[0], codes.shape[1] // 2
    packed = np.zeros((rows, max(1, -(-pairs // TMA_ALIGNMENT)) * TMA_ALIGNMENT), np.uint8)[:, :pairs]
    packed[...] = codes[:, 0::2] | codes[:, 1::2] << 4
    found = view_of(np.moveaxis(packed, -1, k_axis), name)
    return replace(found, dtype=E2M1X2)


def _scale_view(array: Any, name: str) -> ArrayView:
    view = view_among(array, name, SCALES, "ue8m0")
    return replace(view, dtype=UE8M0) if view.dtype is U8 else view


def _format(a: DType, b: DType, scales: dict[str, ArrayView]) -> ScaleFormat:
    """The format of these types."""
    of_a, of_b = (view.dtype for view in scales.values())
    for found in FORMATS.values():
        if {a.name, b.name} <= set(found.types) and of_a is of_b is found.scale:
            return found
    legal = "; ".join(f"{' or '.join(f.types)} with {f.scale} for {f.block} elements ({n})" for n, f in FORMATS.items())
    legal += "; e4m3 or e5m2 with both scales f32 for 128 elements"
    nearest = next((n for n, f in FORMATS.items() if a.name in f.types), "mxfp8")
    raise ArgumentError(
        f"a is {a}, b is {b}, scale_a is {of_a} and scale_b is {of_b}; legal for both operands: {legal}; nearest: "
        f"{nearest}",
        code="TK-SCALE-001",
    )
