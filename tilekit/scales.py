"""Operands and scales for `tilekit.scaled_matmul`: quantised, made numbers again, and laid out for the tensor core.

Arrays are NumPy's, torch's or CuPy's; nothing is imported that has not come in. CuPy has no 8-bit floats, so of its
arrays only MXFP4 is made, whose scales are uint8.
"""

from __future__ import annotations

import difflib
import sys
from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np

from tilekit.annotations import call_checked, number
from tilekit.arrays import is_array, masked, memory_for, require_no_gradient, view_of
from tilekit.dtypes import E2M1, E2M1X2, E4M3, E5M2, F32, U8, UE8M0, DType, as_dtype
from tilekit.emulator.core.errors import shown
from tilekit.errors import ArgumentError
from tilekit.kernels.block_scaled.layout import laid_out
from tilekit.kernels.block_scaled.scales import Scales
from tilekit.kernels.resolve import resolve_target
from tilekit.kernels.scaled.whole import LEAST, require_whole
from tilekit.targets import TARGETS, PlaceName
from tilekit.tile_op.block_scaled import FORMATS, ScaleFormat

__all__ = ["Quantised", "dequantise", "lay_out_scales", "quantise"]

_LARGEST = {"e4m3": 448.0, "e5m2": 57344.0, "e2m1x2": 6.0}
_MIDDLES = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
"""Between neighbours of e2m1; of two equally near ones the even code is taken."""

_QUIETLY: Final = np.errstate(all="ignore")
"""Numbers beyond f32's become its infinities, without a warning of NumPy's."""

_TABLES = {
    E4M3: np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32),
    E5M2: np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e5m2).astype(np.float32),
    UE8M0: np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(np.float32),
    **dict.fromkeys((E2M1, E2M1X2), np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)),
}
"""What each code stands for."""


class Quantised(NamedTuple):
    """A matrix in a block-scaled format.

    Attributes
    ----------
    values
        (rows, K) of 8-bit floats, or (rows, K / 2) pairs of e2m1 as uint8.
    scales
        (rows, K / block), rounded up.
    scale
        What everything is multiplied by besides: 1 but for NVFP4.
    """

    values: Any
    scales: Any
    scale: float


@call_checked
@_QUIETLY
def quantise(x: Any, to: str = "mxfp8", *, dtype: Any = None, scale: float | None = None) -> Quantised:
    """Round a matrix to a format whose blocks of K, the last dimension, have scales.

    Parameters
    ----------
    x
        (rows, K) of floats. K is even for formats of e2m1.
    to
        ``"mxfp8"``, ``"mxfp4"`` or ``"nvfp4"``.
    dtype
        Of MXFP8's elements: e4m3, as by default, or e5m2. Those of the others are e2m1.
    scale
        Of NVFP4: that of the whole, by default its largest number / 2688, and 1.18e-38 if that is less: the smallest
        number whose inverse f32 has.

    Returns
    -------
    Quantised
        MXFP8's and MXFP4's scales are the powers of two that the OCP's Microscaling specification gives, and too large
        elements become the largest; NVFP4's are a sixth of a block's largest, over that of the whole matrix / 2688, and
        elements are multiplied by the inverse of both as f32 has it. Blocks whose scale times that of the whole is
        below 1.18e-38 have no such inverse and become zeros: by default those whose largest is below 7.05e-38.

    Raises
    ------
    ArgumentError
        ``TK-SCALE-005``; ``TK-ARRAY-002`` for a masked array, a tensor that needs a gradient, or for NVFP4 one without
        memory; ``TK-ARRAY-006`` where NumPy has no memory for what is
        computed.
    """
    found = _format_named(to)
    element = _element_named(dtype, found)
    if scale is not None:
        beside = " for nvfp4; MXFP8 and MXFP4 have none"
        legal = f"a number{beside}"
        scale = number(scale, "scale", words=legal, code="TK-SCALE-005")
        if found.scale is UE8M0:
            raise ArgumentError.of("scale", scale, legal=legal, code="TK-SCALE-005")
        require_whole("scale", scale, code="TK-SCALE-005", beside=beside)
    xp = _library(x, "x")
    if _torch(xp):
        require_no_gradient(x, "x")
        if x.is_meta and found.scale is not UE8M0:
            raise ArgumentError(
                "x has no memory (meta): NVFP4's scale of the whole follows from its numbers; nearest: a tensor on a "
                "device",
                code="TK-ARRAY-002",
            )
    if not (x.is_floating_point() if _torch(xp) else _floats(x.dtype)):
        raise ArgumentError.of("x", x.dtype, legal="an array of floats", nearest="float32", code="TK-SCALE-005")
    if len(x.shape) != 2 or x.shape[1] % found.packed:
        raise ArgumentError(
            f"x has shape {tuple(x.shape)}; legal: (rows, K){', K even' if found.packed > 1 else ''}; nearest: "
            + ("K + 1, with zeros" if len(x.shape) == 2 else "x reshaped to two dimensions"),
            code="TK-SCALE-005",
        )
    if xp.__name__ == "cupy" and found.name != "mxfp4":
        raise ArgumentError.of(
            "to", to, legal="'mxfp4': CuPy has no 8-bit floats", nearest="mxfp4", code="TK-SCALE-005"
        )
    rows, k = x.shape
    blocks = -(-k // found.block)
    with memory_for("the f32 copy of x", (rows, blocks * found.block), F32):
        padded = xp.zeros(
            (rows, blocks * found.block), dtype=xp.float32, **({"device": x.device} if _torch(xp) else {})
        )
    padded[:, :k] = x
    padded = padded.reshape((rows, blocks, found.block))
    most = _most(abs(padded))
    overall = 1.0
    if found.scale is UE8M0:
        _, exponent = xp.frexp(most)
        top = int(np.log2(_LARGEST[element]))
        codes = xp.clip(exponent - 1 - top + 127, 0, 254) * (most > 0)
        scales = _cast(xp, xp.where(xp.isfinite(most), codes, xp.full_like(codes, 255)), "uint8")
        factors = _looked_up(xp, _TABLES[UE8M0], scales, x)
        scales = scales if xp.__name__ == "cupy" else _retyped(xp, scales, UE8M0)
    else:
        if scale is None:
            scale = float(most.max()) / (_LARGEST["e4m3"] * 6) if 0 not in x.shape else 1.0
            scale = LEAST if 0 < scale < LEAST else scale
        overall = scale if 0 < scale < float("inf") else 1.0
        largest = np.float32(6) * np.float32(overall)  # as kernels compute it
        scales = _cast(xp, xp.clip(most / largest, 0, _LARGEST["e4m3"]), E4M3)
        factors = dequantise(scales) * np.float32(overall)
    ones = xp.ones_like(factors)
    if found.scale is UE8M0:
        divided = padded / xp.where(factors == 0, ones, factors)[:, :, None]
    else:  # one division a block, as kernels do
        divided = padded * (ones / xp.where(factors < LEAST, ones, factors))[:, :, None]
    divided = divided.reshape((rows, blocks * found.block))[:, :k]
    if found.packed == 1:
        limit = _LARGEST[element]
        return Quantised(
            _cast(xp, xp.clip(divided, -limit, limit), E4M3 if element == "e4m3" else E5M2), scales, overall
        )
    size = abs(divided)
    code = sum(_cast(xp, size > at if index % 2 == 0 else size >= at, "uint8") for index, at in enumerate(_MIDDLES))
    code = code + _cast(xp, xp.signbit(divided), "uint8") * 8
    return Quantised(code[:, 0::2] + code[:, 1::2] * 16, scales, overall)


@call_checked
@_QUIETLY
def dequantise(values: Any, scales: Any = None, scale: float = 1.0) -> Any:
    """Return the f32 numbers of a quantised matrix, or of scales alone.

    Parameters
    ----------
    values
        8-bit floats, e2m1 of ml_dtypes, or pairs of e2m1 as uint8 or ``torch.float4_e2m1fn_x2``; or all that `quantise`
        returned.
    scales
        (rows, K / block) of e4m3, of ue8m0 (or uint8), or of f32, as scales of A in blocks of 1 x 128 are; or f32 of
        (rows / 128, K / 128), as those of B in blocks of 128 x 128. Divisions are rounded up.
    scale
        What everything is multiplied by besides.

    Raises
    ------
    ArgumentError
        ``TK-SCALE-001``, ``TK-SCALE-002`` or ``TK-SCALE-005``; ``TK-ARRAY-002`` for a masked array.
    """
    factor = np.float32(number(scale, "scale", code="TK-SCALE-005"))
    if isinstance(values, tuple) and not isinstance(values, Quantised):
        raise ArgumentError.of(
            "values", f"a tuple of {len(values)}", legal="an array of NumPy, torch or CuPy, or what quantise returned",
            nearest="dequantise(*values)", code="TK-SCALE-005",
        )  # fmt: skip
    if isinstance(values, Quantised):
        if scales is not None or factor != 1:
            raise ArgumentError(
                "values is what quantise returned, with scales and a scale of its own, and others are given beside it; "
                "nearest: values.values with scales=values.scales",
                code="TK-SCALE-005",
            )
        return dequantise(*values)
    xp, dtype = _library(values, "values"), view_of(values, "values").dtype
    dtype = E2M1X2 if dtype is U8 else dtype
    if dtype not in _TABLES:
        legal = ", ".join(one.name for one in _TABLES)
        raise ArgumentError.of("values", dtype, legal=legal, nearest="e4m3", code="TK-SCALE-005")
    if len(values.shape) != 2 and (scales is not None or dtype is E2M1X2):
        legal = "(rows, K) of values with scales, and of pairs"
        raise ArgumentError.of("values", tuple(values.shape), legal=legal, code="TK-SCALE-005")
    codes = _retyped(xp, values, U8) & (15 if dtype is E2M1 else 255)
    if dtype is E2M1X2:
        codes = xp.stack([codes & 15, codes >> 4], -1).reshape((codes.shape[0], 2 * codes.shape[1]))
    found = _looked_up(xp, _TABLES[dtype], codes, values)
    if scales is None:
        return found if factor == 1 else found * factor
    if _library(scales, "scales") is not xp:
        raise ArgumentError.of(
            "scales", type(scales), legal=f"an array of {xp.__name__}, as values are", code="TK-SCALE-005"
        )
    kind = view_of(scales, "scales").dtype
    if kind not in (UE8M0, U8, E4M3, F32):
        raise ArgumentError.of("scales", kind, legal="ue8m0, uint8, e4m3 or f32", nearest="f32", code="TK-SCALE-001")
    table = None if kind is F32 else _TABLES[UE8M0 if kind is U8 else kind]
    factors = scales if table is None else _looked_up(xp, table, _retyped(xp, scales, U8), values)
    rows, k = found.shape
    block = 128 if kind is F32 else 16 if kind is E4M3 else 32
    shape, blocks = tuple(factors.shape), -(-k // block)
    tall = (-(-rows // block), blocks) if kind is F32 else (rows, blocks)
    if shape not in ((rows, blocks), tall):
        one = f"{(rows, blocks)}, one for {block} elements"
        raise ArgumentError.of(
            "scales", shape, legal=one if kind is not F32 else f"{one}, or {tall}, one for {block} rows of them",
            nearest=(rows, blocks), code="TK-SCALE-002",
        )  # fmt: skip
    if shape != (rows, blocks):
        factors = _repeated(xp, factors, block, 0)[:rows]
    return found * _repeated(xp, factors, block, 1)[:, :k] * factor


@call_checked
def lay_out_scales(scales: Any, *, target: PlaceName | None = None, stream: Any = None) -> Any:
    """Return scales as the tensor core reads them, for `scaled_matmul`, which then need not do it at each call.

    Parameters
    ----------
    scales
        (rows, K / block) of ue8m0, uint8 or e4m3, in any layout.
    target, stream
        As for `scaled_matmul`.

    Returns
    -------
    array
        (rows / 128, K / block / 4, 32, 4, 4), rounded up, in a new array of the same library and type: blocks of 128
        rows and 4 scales, zeros behind the last. Scale ``(r, k)`` is at ``[r // 128, k // 4, r % 32, r % 128 // 32,
        k % 4]``, the layout that cuBLAS and CUTLASS call 128x4.

    Raises
    ------
    ArgumentError
        ``TK-SCALE-002`` for what is no matrix, ``TK-SCALE-001`` for another type, or a chip that reads no such scales.
    """
    view = view_of(scales, "scales")
    if view.dtype not in (UE8M0, U8, E4M3):
        raise ArgumentError.of("scales", view.dtype, legal="ue8m0, uint8 or e4m3", nearest="ue8m0", code="TK-SCALE-001")
    if len(view.shape) != 2:
        raise ArgumentError.of("scales", tuple(view.shape), legal="(rows, K / block)", code="TK-SCALE-002")
    if min(view.strides) < 0:
        raise ArgumentError(
            f"scales has strides {tuple(view.strides)}: scales may not run backwards; pass a copy, for example "
            "scales.copy() of an array",
            code="TK-SCALE-002",
        )
    read_by = [name for name, chip in TARGETS.items() if chip.has("tensor_memory")]
    chip, device = resolve_target(view, read_by[0] if target is None and view.device == "cpu" else target)
    if target in TARGETS and target not in read_by:  # a GPU that is there lays scales out for another
        raise ArgumentError.of(
            "target", target, legal=f"{', '.join(read_by)}, whose tensor core reads scales so", nearest=read_by[0],
            code="TK-SCALE-001",
        )  # fmt: skip
    rows, count = view.shape
    found = laid_out(Scales(view, True, rows, count), chip, device, stream).view.owner
    return found.view(scales.dtype)


def _format_named(name: str) -> ScaleFormat:
    if not isinstance(name, str) or name not in FORMATS:
        raise ArgumentError.of("to", name, legal=", ".join(FORMATS), nearest="mxfp8", code="TK-SCALE-005")
    return FORMATS[name]


def _element_named(dtype: Any, found: ScaleFormat) -> str:
    """The element type that is meant, of those of a format: by default the first."""
    if dtype is None:
        return found.types[0]
    try:
        name = as_dtype(dtype, "dtype").name
    except ArgumentError:  # of a type that no product has
        name = shown(dtype)
    if found.packed > 1 and name == E2M1.name:
        return found.types[0]
    if name not in found.types:
        if found.packed > 1:
            legal = f"None for {found.name}, whose elements are e2m1; e4m3 or e5m2 for mxfp8"
            raise ArgumentError.of("dtype", dtype, legal=legal, nearest=E2M1.name, code="TK-SCALE-005")
        near = difflib.get_close_matches(name, found.types, n=1, cutoff=0.0)
        raise ArgumentError.of("dtype", dtype, legal=" or ".join(found.types), nearest=near[0], code="TK-SCALE-005")
    return name


def _floats(dtype: Any) -> bool:
    """Whether a type of NumPy's or ml_dtypes's is one of real numbers with a fraction."""
    try:
        ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]  # ml_dtypes has no annotation there
    except ValueError:
        return False
    return bool(dtype.kind != "c")


def _library(array: Any, name: str) -> Any:
    """The array's namespace."""
    if isinstance(array, np.ma.MaskedArray):
        raise masked(name)
    root = type(array).__module__.partition(".")[0]
    if root not in ("numpy", "torch", "cupy") or not is_array(array):
        raise ArgumentError.of(name, array, legal="an array of NumPy, torch or CuPy", code="TK-SCALE-005")
    return sys.modules[root]


def _torch(xp: Any) -> bool:
    return bool(xp.__name__ == "torch")


def _most(blocks: Any) -> Any:
    """The largest of the last dimension."""
    return blocks.amax(-1) if hasattr(blocks, "amax") else blocks.max(-1)


def _cast(xp: Any, array: Any, to: DType | str) -> Any:
    """Convert numbers."""
    if _torch(xp):
        return array.to(getattr(xp, to if isinstance(to, str) else to.long_name))
    return array.astype(to if isinstance(to, str) else to.numpy)


def _retyped(xp: Any, array: Any, to: DType) -> Any:
    """The same bytes under another type."""
    return array.view(getattr(xp, to.long_name) if _torch(xp) else to.numpy)


def _repeated(xp: Any, array: Any, times: int, axis: int) -> Any:
    """An array with each element of an axis so many times."""
    return xp.repeat_interleave(array, times, axis) if _torch(xp) else xp.repeat(array, times, axis)


def _looked_up(xp: Any, table: Any, codes: Any, like: Any) -> Any:
    """What codes stand for, on the device of `like`."""
    if _torch(xp):
        return xp.from_numpy(table).to(like.device)[codes.long()]
    return xp.asarray(table)[codes]
