"""Results in a block-scaled format: the spec of a product whose epilogue quantises, and what such a call says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal, Self, cast, get_args

from tilekit.arrays import ArrayView, new_arrays, require_output
from tilekit.assembly.shared import SharedDeclaration
from tilekit.assembly.types import F32
from tilekit.assembly.writer import Role, Writer
from tilekit.drivers.warp_specialized import Epilogue
from tilekit.dtypes import DTYPES, E2M1, E2M1X2, E4M3, U8, UE8M0, DType, as_dtype
from tilekit.epilogue.fusion import Fusion
from tilekit.epilogue.quantised import QuantisedEpilogue, ScaleLayout, element_of
from tilekit.epilogue.written_spec import WrittenSpec
from tilekit.errors import ArgumentError
from tilekit.kernels.block_scaled.scales import Scales, require_laid_out
from tilekit.kernels.block_scaled.spec import BlockScaledSpec
from tilekit.kernels.problem import IN_C_ORDER, matrix_view, output_matrix
from tilekit.kernels.scaled.whole import require_whole
from tilekit.kernels.written_arguments import split_results
from tilekit.targets import TARGETS, Target
from tilekit.tile_op.accumulators import AccumulatorLayout
from tilekit.tile_op.block_scaled import FORMATS, ScaleFormat
from tilekit.tiles.call import Matrix


@dataclass(frozen=True)
class QuantisedSpec(BlockScaledSpec):
    """A block-scaled product whose epilogue quantises.

    Attributes
    ----------
    out_dtype
        What a byte of the result holds: e4m3, or a pair of e2m1.
    out_scaled
        The result's format.
    scale_layout
        How its scales lie.
    """

    out_dtype: DType = E4M3
    out_scaled: Literal["mxfp8", "mxfp4", "nvfp4"] = "mxfp8"
    scale_layout: ScaleLayout = "rows"
    outputs = (E4M3, E2M1X2)
    stores_rows = True
    precise = True

    def check_types(self) -> None:
        super().check_types()
        if self.out_dtype is not element_of(FORMATS[self.out_scaled]):
            legal = f"{element_of(FORMATS[self.out_scaled])} for {self.out_scaled}"
            raise ArgumentError.of("out_dtype", self.out_dtype, legal=legal, code="TK-SCALE-006")
        if self.functions.residual is not None:
            raise ArgumentError(
                f"a residual of {self.functions.residual} with out_dtype={self.out_scaled!r}: what is quantised is "
                "computed from the product, a scale, a bias and an activation; nearest: out_dtype='bf16', then "
                "tilekit.quantise",
                code="TK-SCALE-006",
            )
        if isinstance(self.functions, WrittenSpec) and self.functions.reduces:
            raise ArgumentError(
                f"epilogue {self.functions.graph.name} makes totals with out_dtype={self.out_scaled!r}: a thread that "
                "quantises has whole rows, and totals are made where a warp shares them; nearest: out_dtype='bf16' "
                "with totals, then tilekit.quantise",
                code="TK-SCALE-006",
            )

    def check(self, target: Target) -> None:
        """Raise `ArgumentError` for a chip whose threads do not have whole rows, and what the product raises."""
        if not target.has("tensor_memory"):
            able = ", ".join(chip.name for chip in TARGETS.values() if chip.has("tensor_memory"))
            raise ArgumentError(
                f"out_dtype={self.out_scaled!r} on {target.name}: results are quantised where threads read whole rows "
                f"from tensor memory; legal: {able}, or bf16, f16 and f32; nearest: bf16, then tilekit.quantise",
                code="TK-SCALE-006",
            )
        super().check(target)

    def storing(
        self, w: Writer, layout: AccumulatorLayout, functions: Fusion, *, role: Role, buffers: int, **how: Any
    ) -> Epilogue:
        """What quantises and stores."""
        whole = None
        if FORMATS[self.out_scaled].scale is not UE8M0:
            whole = w.parameter("out_scale", F32, lambda call: call.number("out_scale"))
        made = QuantisedEpilogue(
            w,
            layout,
            functions,
            scaled=self.out_scaled,
            rows=how["rows"],
            columns=how["columns"],
            whole=whole,
            role=role if self.store == "tma" else None,
            buffers=buffers,
            scale_layout=self.scale_layout,
        )
        return cast(Epilogue, made)

    def storing_memory(
        self, layout: AccumulatorLayout, *, warpgroups: int, buffers: int
    ) -> tuple[SharedDeclaration, ...]:
        """Shared memory of what quantises: images of values that the copy engine stores."""
        if self.store != "tma":
            return ()
        return QuantisedEpilogue.declared(layout, self.out_scaled, warps=warpgroups * layout.waves, buffers=buffers)

    @property
    def swaps(self) -> tuple[str, ...]:
        """What a kernel has in the place of a plain matmul's component."""
        return *super().swaps, "QuantisedEpilogue for StagedEpilogue: a thread has a row, and makes its blocks' scales"

    @property
    def name(self) -> str:
        """A symbol that tells kernels apart in a profile."""
        return f"{super().name}_to_{self.out_scaled}{'' if self.scale_layout == 'rows' else '_128x4'}"


@dataclass(frozen=True)
class QuantisedResult:
    """What a call says of a result that is quantised.

    Attributes
    ----------
    format
        Its format.
    scale
        What everything is multiplied by besides.
    layout
        How its scales lie.
    array, view
        Of its scales, which the caller's library knows and we; None until there are any.
    """

    format: ScaleFormat
    scale: float = 1.0
    layout: ScaleLayout = "rows"
    array: Any = None
    view: ArrayView | None = None

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> tuple[Self | None, Any, Sequence[Any] | None]:
        """Of a call's keywords, what is said of a quantised result, if it is one; where its values go; and further out.

        These are arrays for what a Python epilogue stores beside the result; None where the caller has none.
        """
        asked, scale, out = given.get("out_dtype"), given.get("out_scale"), given.get("out")
        layout = given.get("scale_layout")
        found = FORMATS.get(asked) if isinstance(asked, str) else None
        if found is None and isinstance(asked, str) and not _is_dtype(asked):
            every = (*FORMATS, *(one.name for one in DTYPES))
            nearest = get_close_matches(asked, every, 1, 0.0)[0]
            legal = f"{', '.join(every[: len(FORMATS)])} with scales made of the result; or {', '.join(every[3:])}"
            raise ArgumentError.of("out_dtype", asked, legal=legal, nearest=nearest, code="TK-SCALE-006")
        if found is None and asked is not None and as_dtype(asked, "out_dtype") in (E2M1, E2M1X2):
            raise ArgumentError.of(
                "out_dtype", asked, legal="'mxfp4' or 'nvfp4', of which elements are e2m1", nearest="mxfp4",
                code="TK-SCALE-006",
            )  # fmt: skip
        if found is not None and given.get("residual") is not None:
            raise ArgumentError(
                f"residual with out_dtype={asked!r}: what is quantised is computed from the product, a scale, a bias "
                "and an activation; nearest: out_dtype='bf16', then tilekit.quantise",
                code="TK-SCALE-006",
            )
        if scale is not None and (found is None or found.scale is UE8M0):
            raise ArgumentError(
                f"out_scale={scale} with out_dtype={asked!r}: legal: with out_dtype='nvfp4', whose scales are over one "
                "of the whole; leave it out",
                code="TK-SCALE-006",
            )
        if layout is not None and found is None:
            raise ArgumentError(
                f"scale_layout={layout!r} with out_dtype={asked!r}: legal: with out_dtype {', '.join(FORMATS)}, whose "
                "result has scales; leave it out",
                code="TK-SCALE-006",
            )
        if layout not in (None, *get_args(ScaleLayout)):
            raise ArgumentError.of(
                "scale_layout", layout, legal="'rows', or '128x4' as the tensor core reads them", nearest="128x4",
                code="TK-SCALE-006",
            )  # fmt: skip
        require_whole("out_scale", scale, code="TK-SCALE-006")
        written = given.get("epilogue") is not None
        if found is None:
            if isinstance(out, (tuple, list)) and not written:
                raise ArgumentError(
                    f"out is a tuple of {len(out)} with out_dtype={asked!r}: legal: one array, or with out_dtype "
                    f"{', '.join(FORMATS)} its values and scales",
                    code="TK-SCALE-006",
                )
            return None, *split_results(out, given.get("epilogue"))
        if out is None:
            return cls(found, scale or 1.0, layout or "rows"), None, None
        if not isinstance(out, (tuple, list)) or len(out) < 2 or (len(out) > 2 and not written):
            raise ArgumentError(
                f"out is {'a tuple of ' + str(len(out)) if isinstance(out, (tuple, list)) else 'one array'} with "
                f"out_dtype={asked!r}: legal: (values, scales)",
                code="TK-SCALE-006",
            )
        scales = matrix_view(out[1], "out[1]")
        return cls(found, scale or 1.0, layout or "rows", out[1], scales), out[0], tuple(out[2:]) or None

    @property
    def element(self) -> DType:
        """What a byte of the result holds."""
        return element_of(self.format)

    def shape(self, m: int, n: int) -> tuple[int, int]:
        """Of the bytes of an (m, n) result."""
        if n % self.format.packed:
            raise ArgumentError(
                f"b has {n} columns with out_dtype={self.format.name!r}: two e2m1 share a byte, so N is even; nearest: "
                f"{n + 1}, with zeros",
                code="TK-SCALE-006",
            )
        return m, n // self.format.packed

    def values(self, view: ArrayView) -> ArrayView:
        """The result's bytes, of whatever type, as elements."""
        return replace(view, dtype=E2M1X2) if view.dtype is U8 and self.element is E2M1X2 else view

    def scale_shape(self, out: ArrayView) -> tuple[int, ...]:
        """Of the scales of a result."""
        rows, size = out.shape
        count = -(-size * self.format.packed // self.format.block)
        return (rows, count) if self.layout == "rows" else Scales.blocks(rows, count)

    def check(self, out: ArrayView) -> None:
        """Raise `ArgumentError` for the caller's scales of a result, if they are of another shape or type."""
        if self.view is not None:
            byte = self.view.dtype is U8 and self.format.scale is UE8M0
            require_output(self.view, self.scale_shape(out), U8 if byte else self.format.scale, (), "out[1]")
            if self.layout == "rows":
                output_matrix(self.view, "out[1]", hint=IN_C_ORDER)
            else:
                require_laid_out("out[1]", self.view)

    def completed(self, out: ArrayView, stream: Any) -> Self:
        """The same with new scales, if there are none; CuPy has no 8-bit floats, and its ue8m0 are uint8."""
        if self.view is not None:
            return self
        dtype = U8 if out.library == "cupy" and self.format.scale is UE8M0 else self.format.scale
        made = new_arrays(out, self.scale_shape(out), dtype)(stream)
        return replace(self, array=made, view=matrix_view(made, "out[1]"))

    @property
    def matrices(self) -> dict[str, Matrix]:
        """What the epilogue's parameters follow from, where scales lie as a matrix."""
        if self.view is None or self.layout != "rows":
            return {}
        return {"out_scales": output_matrix(self.view, "out[1]", hint=IN_C_ORDER)}


def _is_dtype(name: str) -> bool:
    """Whether a name is an element type's."""
    try:
        as_dtype(name, "out_dtype")
    except ArgumentError:
        return False
    return True
