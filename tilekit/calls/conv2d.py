"""The convolution of images."""

from __future__ import annotations

from typing import Any, Unpack, overload

import numpy.typing as npt

from tilekit.annotations import takes
from tilekit.calls.kept import Array, Numpy, first_call, kept
from tilekit.dtypes import DType
from tilekit.kernels.compiled import CompiledKernel
from tilekit.kernels.conv2d.arguments import ConvArguments, ConvKeywords
from tilekit.kernels.dispatch import select
from tilekit.kernels.launch_cache import LaunchCache
from tilekit.tuning.lookup import tuned_config

_launches = LaunchCache()


@overload
def conv2d(x: Numpy, w: Any, *, stream: Any = None, **keywords: Unpack[ConvKeywords]) -> npt.NDArray[Any]: ...


@overload
def conv2d(x: Array, w: Any, *, stream: Any = None, **keywords: Unpack[ConvKeywords]) -> Array: ...


@takes(ConvKeywords)
def conv2d(x: Any, w: Any, *, stream: Any = None, **keywords: Unpack[ConvKeywords]) -> Any:
    """Return ``activation(scale * conv(x, w) + bias + beta * residual)``, accumulated in f32.

    Parameters
    ----------
    x
        Images (N, H, W, C); torch tensors (N, C, H, W) in ``channels_last`` memory. bf16, f16, or any of e4m3 and
        e5m2; libraries as for `matmul`. Channels lie behind each other, the other dimensions anywhere.
    w
        Filters (K, R, S, C / groups); torch tensors (K, C / groups, R, S) in ``channels_last`` memory.
    stride, padding, dilation
        A number, or two: down and along. Images are padded with zeros at both ends. By default 1, 0 and 1.
    groups
        Groups of channels, each with K / groups filters of its own.
    out
        Where to write, (N, P, Q, K), of torch (N, K, P, Q) in ``channels_last`` memory; made new if None.
    bias
        K values of bf16, f16 or f32.
    activation, scale, out_dtype, accumulation, stream, config, target
        As for `matmul`.
    residual, beta
        An array like the result, and its factor. It may be `out` itself.
    epilogue
        As for `matmul`. Its operands are numbers, arrays like the result, a value a filter, (K,) or (1, 1, 1, K), and
        a value a pixel, (N, P, Q, 1). Further outputs are like the result; totals of columns are (K,), one a filter,
        and of rows (N, P, Q), one a pixel: of several groups (groups, N, P, Q), since each group's filters are a row.

    Raises
    ------
    ArgumentError
        Before anything is launched, naming the argument, what was given, what is legal, and the nearest legal value.
    ConfigError
        Listing every rule that `config` violates.

    Examples
    --------
    >>> import numpy as np, tilekit
    >>> x, w = np.ones((1, 6, 6, 8), np.float16), np.ones((8, 3, 3, 8), np.float16)
    >>> tilekit.conv2d(x, w, padding=1).shape
    (1, 6, 6, 8)
    """
    found, key, new = kept(_launches, (x, w), keywords, stream)
    if found:
        return keywords["out"]
    return first_call(ConvArguments.parse(x, w, **keywords), stream, _launches, key, new)


@takes(ConvKeywords)
def conv2d_kernel_for(x: Any, w: Any, **keywords: Unpack[ConvKeywords]) -> CompiledKernel:
    """Return the kernel that `conv2d` launches for these arguments, to look at: as `kernel_for` does of `matmul`."""
    kernel = select(ConvArguments.parse(x, w, memory=False, **keywords), tuned_config).kernel
    assert isinstance(kernel, CompiledKernel)
    return kernel


@takes(ConvKeywords)
def conv2d_result_of(x: Any, w: Any, **keywords: Unpack[ConvKeywords]) -> tuple[tuple[int, ...], DType]:
    """Return shape, channels last, and element type of what `conv2d` would return, as `result_of` does of `matmul`."""
    arguments = ConvArguments.parse(x, w, memory=False, **keywords)
    arguments.spec_storing("direct").check(arguments.target)
    return arguments.extents, arguments.out.dtype
