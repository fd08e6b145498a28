"""What a matmul may be asked for, on whatever chip: types, layouts, groups, components beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilekit.dtypes import BF16, F16, F32, FNUZ, FP8, S8, S32, DType
from tilekit.epilogue.functions import ElementwiseSpec
from tilekit.errors import ArgumentError
from tilekit.tile_io.copy_plan import WIDTHS

if TYPE_CHECKING:
    from tilekit.kernels.matmul.spec import MatmulSpec
    from tilekit.targets import Target
    from tilekit.tiles.tile import Groups

__all__ = ["OF_WHOLE", "check", "check_floats", "check_payload", "check_types"]

OF_WHOLE = (S32, BF16, F16, F32)
"""What sums of whole numbers are stored as."""


def check_types(a: DType, b: DType, names: tuple[str, str] = ("a", "b"), *, whole: bool = False) -> None:
    """Raise `ArgumentError` (``TK-MM-001``) for a pair of types that no tensor core multiplies as they are.

    With `whole` signed bytes are multiplied, too.
    """
    fnuz = tuple(FNUZ.values())
    alike = (BF16, F16, S8) if whole else (BF16, F16)
    if (a == b and a in alike) or any(a in kind and b in kind for kind in (FP8, fnuz)):
        return
    nearest = f"{names[1]} to {a}" if a in (*alike, *FP8, *fnuz) else "both to bf16"
    legal = "".join(f"{dtype} by {dtype}, " for dtype in alike)
    raise ArgumentError(
        f"{names[0]} is {a} and {names[1]} is {b}: tensor cores multiply {legal}or e4m3/e5m2 by e4m3/e5m2 (or their "
        f"FNUZ kinds). Convert one operand, for example {nearest}.",
        code="TK-MM-001",
    )


def check_floats(target: Target, a: DType, b: DType, names: tuple[str, str] = ("a", "b")) -> None:
    """Raise `ArgumentError` (``TK-MM-001``) for 8-bit floats that a chip does not multiply: any, or of another kind."""
    fnuz = target.has("fnuz_floats")
    kinds = FNUZ if fnuz else {other: own for own, other in FNUZ.items()}
    for name, dtype in zip(names, (a, b), strict=True):
        if dtype in kinds:
            own = kinds[dtype]
            raise ArgumentError(
                f"{name} is {dtype}: of 8-bit floats {target.name} multiplies those of "
                f"{'FNUZ, not of the OCP' if fnuz else 'the OCP, not of FNUZ'}; nearest: {own} ({own.long_name})",
                code="TK-MM-001",
            )
    if (a in FP8 or b in FP8) and target.isa == "ptx" and not target.has("float8_matrix"):
        raise ArgumentError(
            f"{names[0]} is {a} and {names[1]} is {b}: {target.name} has no matrix instruction of 8-bit floats; "
            "nearest: both bf16",
            code="TK-MM-001",
        )


def check(spec: MatmulSpec) -> None:
    """Raise `ArgumentError` for a pair of types that no instruction takes, and for what no kernel does."""
    if spec.groups not in (None, "ends", "counts"):
        legal = "None, 'ends' or 'counts'"
        raise ArgumentError.of("groups", spec.groups, legal=legal, nearest="ends", code="TK-GROUP-001")
    _check_precision(spec)
    _check_output(spec)
    _check_accumulation(spec)
    _check_layouts(spec)
    if spec.groups is not None:
        _check_groups(spec, spec.groups)
    if spec.copies and spec.loads_residual:
        raise ArgumentError(
            f"a residual, a_load={spec.a_load!r}, b_load={spec.b_load!r} and store='tma': the warp that would load "
            "the residual copies operands; nearest: store='direct'",
            code="TK-MM-025",
        )
    _check_components(spec)
    if spec.store not in ("tma", "direct"):
        raise ArgumentError(f"store={spec.store!r}: write 'tma' or 'direct'", code="TK-MM-007")


def _check_precision(spec: MatmulSpec) -> None:
    """Raise `ArgumentError` for operands that no tensor core multiplies, and f32 ones that do not ask for tf32."""
    a, b = spec.a_dtype, spec.b_dtype
    if spec.precision not in (None, "tf32"):
        raise ArgumentError.of(
            "precision", spec.precision, legal="None, or 'tf32' for f32 operands", nearest="tf32", code="TK-MM-023"
        )
    if a == b == F32:
        if spec.precision is None:
            raise ArgumentError(
                "a and b are f32: tensor cores read 10 bits of their mantissa, which must be asked for. Pass "
                "precision='tf32' to tilekit.matmul, or convert both to bf16.",
                code="TK-MM-001",
            )
        return
    spec.check_types()
    if spec.precision is not None:
        raise ArgumentError(
            f"precision={spec.precision!r} with a of {a} and b of {b}: it is for f32 operands; leave it out",
            code="TK-MM-023",
        )


def _check_output(spec: MatmulSpec) -> None:
    """Raise `ArgumentError` for a result of a type that is not written, or not of these operands."""
    if spec.a_dtype == S8 or spec.out_dtype == S32:
        _check_whole(spec)
    elif spec.out_dtype not in spec.outputs:
        legal = ", ".join(dtype.name for dtype in spec.outputs)
        raise ArgumentError.of("out_dtype", spec.out_dtype, legal=legal, nearest=F32, code="TK-DTYPE-001")


def _check_accumulation(spec: MatmulSpec) -> None:
    """Raise `ArgumentError` for promoted sums of what is summed in f32 anyway."""
    if spec.accumulation not in ("fast", "promoted"):
        raise ArgumentError.of(
            "accumulation", spec.accumulation, legal="'fast' or 'promoted'", nearest="fast", code="TK-MM-027"
        )
    if spec.accumulation == "promoted" and spec.a_dtype not in (*FP8, *FNUZ.values()):
        types = " and ".join(dict.fromkeys((str(spec.a_dtype), str(spec.b_dtype))))
        raise ArgumentError(
            f"accumulation='promoted' with operands of {types}: it is for 8-bit operands; "
            "sums of others are f32 anyway, leave it out",
            code="TK-MM-027",
        )


def _check_layouts(spec: MatmulSpec) -> None:
    """Raise `ArgumentError` for majors, loads and residuals that do not fit the types."""
    if spec.out_dtype in FP8 and (spec.functions.residual or spec.groups):
        what = "a residual" if spec.functions.residual else "groups"
        raise ArgumentError(
            f"out_dtype={spec.out_dtype} with {what}: such a matmul writes bf16, f16 or f32; nearest: bf16",
            code="TK-MM-002",
        )
    for name, major in (("a", spec.a_major), ("b", spec.b_major)):
        if major not in ("k", "mn"):
            raise ArgumentError(f"{name}_major={major!r}: write 'k' (K contiguous) or 'mn'", code="TK-MM-003")
    if spec.functions.residual not in (None, spec.out_dtype):
        raise ArgumentError(
            f"the residual is {spec.functions.residual} and the output {spec.out_dtype}: they must agree; nearest: "
            f"a residual of {spec.out_dtype}",
            code="TK-MM-019",
        )
    for name, load, dtype in (("a", spec.a_load, spec.a_dtype), ("b", spec.b_load, spec.b_dtype)):
        if load != "tma" and (load not in WIDTHS or load % dtype.bytes):
            widths = ", ".join(str(width) for width in WIDTHS if width % dtype.bytes == 0)
            raise ArgumentError(
                f"{name}_load={load!r}: of {dtype} legal is 'tma' or {widths} bytes; an array that begins between "
                "its elements has to be copied",
                code="TK-MM-024",
            )


def _check_groups(spec: MatmulSpec, groups: Groups) -> None:
    """Raise `ArgumentError` (``TK-MM-022``) for what a grouped matmul does not have."""
    f = spec.functions
    rows = f.scale_a and isinstance(f, ElementwiseSpec)
    if spec.batched or (f.residual and isinstance(f, ElementwiseSpec)) or rows or f.scale_b:
        raise ArgumentError(
            f"groups={groups!r} with batched={spec.batched}, a residual of {f.residual}, scale_a={f.scale_a}, "
            f"scale_b={f.scale_b}: a grouped matmul has neither batches nor a residual nor scales of rows or "
            "columns",
            code="TK-MM-022",
        )


def _check_components(spec: MatmulSpec) -> None:
    """Raise `ArgumentError` (``TK-MM-028``) for components of the caller's beside what they stand in for."""
    own = spec.components
    if own.functions is not None and spec.functions != ElementwiseSpec():
        raise ArgumentError(
            "components has functions, which stand in the place of bias, scales, residual, activation and "
            "epilogue; leave these out",
            code="TK-MM-028",
        )
    if own.scheduler is not None and spec.groups is not None:
        raise ArgumentError(
            "components has a scheduler of a raster's tiles, and groups of rows are scheduled by their bounds; "
            "leave one of them out",
            code="TK-MM-028",
        )
    for name, load in zip("ab", spec.loads, strict=True):
        if load != "tma" and f"loader_{name}" in own.names:
            raise ArgumentError(
                f"components has a loader of {name}, of which address or pitches are multiples of {load} bytes "
                f"only: the ring is filled by TMA, which needs 16; pass {name} with padded rows",
                code="TK-MM-028",
            )


def check_payload(spec: MatmulSpec, target: Target) -> None:
    """Raise `ArgumentError` (``TK-MM-028``) for a payload of the caller's where there can be none."""
    payload = spec.components.payload
    if payload is None:
        return
    if not target.has("copy_engine") or target.matrix_waves == 1:
        raise ArgumentError(
            f"components has a payload, and on {target.name} one warp's instructions add to its registers, so that "
            "no sums of k-blocks are apart; leave it out",
            code="TK-MM-028",
        )
    for what, there, nearest in (
        ("operands of s8, whose sums are whole numbers", spec.whole, "bf16"),
        ("operands that threads copy", spec.copies, "rows that are padded to a multiple of 16 bytes"),
    ):
        if there:
            raise ArgumentError(f"components has a payload beside {what}; nearest: {nearest}", code="TK-MM-028")
    payload.require_leading(batched=spec.batched, grouped=spec.groups is not None)


def _check_whole(spec: MatmulSpec) -> None:
    """Raise `ArgumentError` for what is not made of sums of whole numbers."""
    if spec.a_dtype != S8 or spec.out_dtype not in OF_WHOLE:
        whole = spec.a_dtype == S8
        legal = ", ".join(dtype.name for dtype in OF_WHOLE) if whole else "bf16, f16, f32, e4m3 or e5m2"
        raise ArgumentError(
            f"out_dtype={spec.out_dtype} with a of {spec.a_dtype}: legal: {legal}; nearest: {S32 if whole else F32}",
            code="TK-MM-002",
        )
    if spec.out_dtype == S32 and (spec.functions != ElementwiseSpec() or spec.components.functions is not None):
        raise ArgumentError(
            "out_dtype=s32 with a bias, scales, a residual, an activation or an epilogue: these are computed in "
            "f32, and sums in s32 are stored as they are; nearest: out_dtype=f32, or leave them out",
            code="TK-MM-002",
        )
