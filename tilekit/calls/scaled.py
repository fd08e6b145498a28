"""Matmuls with scales of blocks."""

from __future__ import annotations

from typing import Any, Unpack, cast

from tilekit.annotations import takes
from tilekit.calls.kept import first_call, kept
from tilekit.dtypes import DType
from tilekit.kernels.block_scaled.arguments import BlockScaledArguments
from tilekit.kernels.compiled import CompiledKernel
from tilekit.kernels.dispatch import select
from tilekit.kernels.launch_cache import LaunchCache
from tilekit.kernels.scaled.keywords import ScaledKeywords
from tilekit.kernels.scaled_calls import read_scaled
from tilekit.tuning.lookup import tuned_config

_launches = LaunchCache()


@takes(ScaledKeywords)
def scaled_matmul(
    a: Any, b: Any, scale_a: Any, scale_b: Any, *, stream: Any = None, **keywords: Unpack[ScaledKeywords]
) -> Any:
    """Return ``activation(scale * (a' @ b') + bias + beta * residual)`` of operands whose parts have scales.

    Parameters
    ----------
    a, b
        Matrices (M, K) and (K, N), both with K contiguous (pass the ``.T`` of an (N, K) array as `b`): e4m3 or e5m2, or
        e2m1, of ml_dtypes (host memory) or packed in pairs along K, the first of a pair in the low half: uint8 or
        ``torch.float4_e2m1fn_x2``. Of pairs K counts twice the bytes.
    scale_a, scale_b
        The scales of `a` and `b`, whose type says the format. In blocks along K, (M, K / block) and (N, K / block),
        rounded up: ue8m0 (``float8_e8m0fnu``, or uint8) for 32 elements (MXFP8, MXFP4), or e4m3 for 16 of e2m1
        (NVFP4). They are laid out as the tensor core reads them by a small kernel; `lay_out_scales` does that ahead
        of time, once for the scales of weights. sm_100a; of MXFP8 and MXFP4 also gfx950.
        Or f32 for 128 elements of K of e4m3 or e5m2, (M, ⌈K/128⌉) and (⌈N/128⌉, ⌈K/128⌉): the sum over each is
        multiplied by both, and these are added in f32. Where the rows of `scale_a` lie behind each other (``.T`` of a
        (⌈K/128⌉, M) array whose lines are multiples of 16 bytes apart), as `torch._scaled_mm` takes them, sm_90a's
        copy engine brings them; from any other layout threads read them. sm_90a and sm_100a.
    out, bias, activation, scale, residual, beta, epilogue, out_dtype, stream, config
        As for `matmul`; the result is bf16 by default. NVFP4's second scale, of a whole tensor, is a `scale`.
        With an `out_dtype` ``"mxfp8"``, ``"mxfp4"`` or ``"nvfp4"`` (sm_100a) the result is a tuple, as `quantise` makes
        it of what f32 would be: values, and scales (M, N / block), rounded up; and `out`, if given, is such a tuple.
        What a Python epilogue stores beside it comes behind these two: matrices alone, bf16 where they say no type.
    scale_layout
        Of the scales of such a result: ``"128x4"`` has them as `lay_out_scales` returns them, for a product that takes
        them as they are; by default ``"rows"``, a matrix.
    out_scale
        Of an NVFP4 result: what its values and scales are multiplied by besides, 1.18e-38 to 4.25e37; 1 by default.
    target
        As for `matmul`, but without one arrays in host memory are computed by the emulator of a chip that has the
        format.

    Raises
    ------
    ArgumentError
        Before anything is launched, naming the argument, what was given, what is legal, and the nearest legal value.
    ConfigError
        Listing every rule that `config` violates.

    Examples
    --------
    >>> import ml_dtypes, numpy as np, tilekit
    >>> a, scales = np.ones((4, 64), ml_dtypes.float8_e4m3fn), np.full((4, 2), 0.5, ml_dtypes.float8_e8m0fnu)
    >>> float(tilekit.scaled_matmul(a, a.T, scales, scales)[0, 0])
    16.0
    """
    found, key, new = kept(_launches, (a, b, scale_a, scale_b), keywords, stream)
    if found:
        return keywords["out"]
    return first_call(read_scaled(a, b, scale_a, scale_b, **keywords), stream, _launches, key, new)


@takes(ScaledKeywords)
def scaled_kernel_for(a: Any, b: Any, scale_a: Any, scale_b: Any, **keywords: Unpack[ScaledKeywords]) -> CompiledKernel:
    """Return the kernel that `scaled_matmul` launches for these arguments, as `kernel_for` does of `matmul`."""
    arguments = read_scaled(a, b, scale_a, scale_b, memory=False, **keywords)
    kernel = select(arguments, tuned_config).kernel
    assert isinstance(kernel, CompiledKernel)
    return kernel


@takes(ScaledKeywords)
def scaled_result_of(
    a: Any, b: Any, scale_a: Any, scale_b: Any, **keywords: Unpack[ScaledKeywords]
) -> tuple[tuple[int, ...], DType]:
    """Return shape and element type of what `scaled_matmul` would return, as `result_of` does of `matmul`."""
    arguments = read_scaled(a, b, scale_a, scale_b, memory=False, **keywords)
    return arguments.out.shape, arguments.out.dtype


@takes(ScaledKeywords)
def scaled_results_of(
    a: Any, b: Any, scale_a: Any, scale_b: Any, **keywords: Unpack[ScaledKeywords]
) -> list[tuple[tuple[int, ...], DType]]:
    """Return the same of values and scales, where ``out_dtype`` is a block-scaled format."""
    arguments = cast(BlockScaledArguments, read_scaled(a, b, scale_a, scale_b, memory=False, **keywords))
    assert arguments.quantised is not None
    out, found = arguments.out, arguments.quantised
    return [(out.shape, out.dtype), (found.scale_shape(out), found.format.scale)]
