"""The calls: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, TypedDict, TypeVar, Unpack, overload

import numpy.typing as npt

from tilekit.annotations import checked, takes
from tilekit.arrays import NewArrays, fingerprint, hand_over, resolve_stream, view_of
from tilekit.dtypes import DType
from tilekit.epilogue.functions import Activation
from tilekit.kernels.arguments import Arguments
from tilekit.kernels.blockwise.arguments import GroupedBlockwiseArguments
from tilekit.kernels.compiled import CompiledKernel
from tilekit.kernels.conv2d.arguments import ConvArguments, ConvKeywords
from tilekit.kernels.dispatch import family_of, select
from tilekit.kernels.epilogue_arguments import read_scale
from tilekit.kernels.grouped.arguments import GroupedArguments
from tilekit.kernels.launch_cache import LaunchCache
from tilekit.kernels.matmul.any_config import AnyConfig
from tilekit.kernels.matmul.arguments import MatmulArguments, MatmulKeywords
from tilekit.kernels.matmul.own import OwnComponents
from tilekit.kernels.matmul.spec import Accumulation, Precision
from tilekit.kernels.problem import output_matrix
from tilekit.kernels.scaled.keywords import ScaledKeywords
from tilekit.kernels.scaled_calls import read_scaled
from tilekit.kernels.written_arguments import epilogue_key
from tilekit.targets import DEFAULT, ChipName, PlaceName
from tilekit.targets import target as target_named
from tilekit.tuning.first_call import tuned_or_timed
from tilekit.tuning.lookup import tuned_config

Array = TypeVar("Array")
"""An array of any library: results are of the library of the first operand."""
Numpy = npt.NDArray[Any]


class _GroupedKeywords(TypedDict, total=False):
    counts: Any
    scale_a: Any
    scale_b: Any
    out: Any
    activation: Activation | None
    epilogue: Any
    out_dtype: Any
    stream: Any
    config: AnyConfig | None
    target: PlaceName | None


@overload
def matmul(a: Numpy, b: Any, *, stream: Any = None, **keywords: Unpack[MatmulKeywords]) -> npt.NDArray[Any]: ...


@overload
def matmul(a: Array, b: Any, *, stream: Any = None, **keywords: Unpack[MatmulKeywords]) -> Array: ...


def matmul(
    a: Any,
    b: Any,
    *,
    out: Any = None,
    bias: Any = None,
    activation: Activation | None = None,
    scale: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    residual: Any = None,
    beta: float = 1.0,
    epilogue: Any = None,
    out_dtype: Any = None,
    precision: Precision | None = None,
    accumulation: Accumulation = "fast",
    components: OwnComponents | None = None,
    stream: Any = None,
    config: AnyConfig | None = None,
    target: PlaceName | None = None,
) -> Any:
    """Return ``activation(scale * scale_a * (a @ b) * scale_b + bias + beta * residual)``, accumulated in f32.

    Parameters
    ----------
    a, b
        Matrices (M, K) and (K, N), or batches (B, M, K) and (B, K, N) of which one may have B = 1: CuPy, torch or
        NumPy arrays (bf16 and fp8 through ml_dtypes), or anything with DLPack or ``__cuda_array_interface__``. Both
        bf16, both f16, any of e4m3 and e5m2, or both f32 with `precision`. Either of the last two dimensions may be the
        contiguous one (``.T`` costs nothing); f32, and on sm_90a fp8 and int8, need K contiguous.
    out
        Where to write; made new, in the library of `a`, if None.
    bias
        N values of bf16, f16 or f32, added to every row.
    activation
        ``"relu"``, ``"gelu"`` (tanh form) or ``"silu"``.
    scale
        A number, or an array of one f32 (which stays on the device).
    scale_a, scale_b
        One f32 for each row of `a`, shape (M,) or (M, 1), and for each column of `b`, (N,) or (1, N); of batches also
        with a leading B. They stay on the device, and multiply what is accumulated, in this order after `scale`:
        operands of 8 bits with a scale a row, as `torch._scaled_mm` takes them.
    residual, beta
        An array like the result, and its factor, a number. It may be `out` itself.
    epilogue
        A Python function that `tilekit.epilogue` marks, called with its operands: in place of bias, activation, scales
        and residual. Where it returns several things, so does the call, and `out` is a tuple of as many arrays.
    out_dtype
        bf16, f16, f32, e4m3 or e5m2: by default that of `out`, else that of `a`, else bf16 for fp8. What is too large
        for an 8-bit type becomes its largest number. Of s8 operands s32, the default, which takes no scales and no
        bias, or bf16, f16 or f32, which do: their sums are exact, and rounded once.
    precision
        ``"tf32"`` to multiply f32 operands with the 10 bits of mantissa that tensor cores read of them (the others are
        cut off, not rounded); without it they are refused.
    accumulation
        Of 8-bit operands on sm_90a. ``"fast"``: the tensor core adds everything, and keeps 13 bits of the sum from one
        instruction to the next (``use_fast_accum=True`` of `torch._scaled_mm`). ``"promoted"``: it adds 128 products,
        and the sums of those are added in f32 (torch's default): the longer K, the more that matters.
    components
        Components of yours in the place of the kernel's: `OwnComponents`.
    stream
        A stream object or handle; by default the current stream of the arrays' library. The call does not wait for
        the device.
    config
        How to compute: a `MatmulConfig` for sm_90a, a `BlackwellConfig` for sm_100a, a `Cdna3Config` for gfx942, a
        `Cdna4Config` for gfx950; by default chosen for the shape.
    target
        For arrays in host memory: None or a chip such as ``"sm_90a"`` or ``"gfx950"`` emulates that chip, ``"cuda"``
        and ``"hip"`` compute on the GPU.

    Raises
    ------
    ArgumentError
        Before anything is launched, naming the argument, what was given, what is legal, and the nearest legal value.
    ConfigError
        Listing every rule that `config` violates.

    Examples
    --------
    >>> import numpy as np, tilekit
    >>> a, b = np.eye(64, dtype=np.float16), np.ones((64, 64), np.float16)
    >>> bool((tilekit.matmul(a, b) == b).all())
    True
    """
    key: Any
    new = cached = None
    try:
        if not (scale is None or isinstance(scale, float | int) or getattr(scale, "is_cuda", False)):
            number = read_scale(scale)
            if isinstance(number, float):  # the value counts, not the host memory it lies in
                scale = number
        key = (
            fingerprint(a),
            fingerprint(b),
            tuple(map(fingerprint, out)) if isinstance(out, tuple) else None if out is None else fingerprint(out),
            None if bias is None else fingerprint(bias),
            activation,
            None if scale is None else fingerprint(scale),
            None if scale_a is None else fingerprint(scale_a),
            None if scale_b is None else fingerprint(scale_b),
            None if residual is None else (fingerprint(residual), beta),
            out_dtype,
            precision,
            accumulation,
            config,
            target,
            None if epilogue is None else epilogue_key(epilogue),
            components,
        )
        if out is None:
            new = _matmuls.outputs.get(key)
        else:
            cached = _matmuls.launches.get(key)
    except Exception:  # something that has no fingerprint, or no legal value: parsing it says what
        key = None
    result = out
    if new is not None:
        result = new.make() if stream is None else new(resolve_stream(stream, view_of(a)))
        cached = _matmuls.launches.get((new, new.address_of(result)))
    if cached is not None:
        first = result[0] if isinstance(result, tuple) else result
        cached.launch(cached.current_stream() if stream is None else resolve_stream(stream, view_of(first)))
        return result
    arguments = MatmulArguments.parse(
        a,
        b,
        out=result,
        bias=bias,
        activation=activation,
        scale=scale,
        scale_a=scale_a,
        scale_b=scale_b,
        residual=residual,
        beta=beta,
        epilogue=epilogue,
        out_dtype=out_dtype,
        precision=precision,
        accumulation=accumulation,
        components=components,
        config=config,
        target=target,
    )
    return _first_call(arguments, stream, _matmuls, key, new)


@overload
def grouped_matmul(a: Numpy, b: Any, ends: Any = None, **keywords: Unpack[_GroupedKeywords]) -> npt.NDArray[Any]: ...


@overload
def grouped_matmul(a: Array, b: Any, ends: Any = None, **keywords: Unpack[_GroupedKeywords]) -> Array: ...


def grouped_matmul(
    a: Any,
    b: Any,
    ends: Any = None,
    *,
    counts: Any = None,
    scale_a: Any = None,
    scale_b: Any = None,
    out: Any = None,
    activation: Activation | None = None,
    epilogue: Any = None,
    out_dtype: Any = None,
    stream: Any = None,
    config: AnyConfig | None = None,
    target: PlaceName | None = None,
) -> Any:
    """Multiply groups of rows of `a`, each by its own matrix of `b`: the linear layers of a mixture of experts.

    Parameters
    ----------
    a
        With `ends`: (M, K), the groups' rows behind each other. With `counts`: (G, R, K), up to R rows a group.
    b
        (G, K, N), a matrix a group. Either of the last two dimensions may be contiguous.
    ends
        G int32: one past each group's last row. They stay on the device; where they are in host memory they
        are checked.
    counts
        G int32: the rows of each group that are computed; the others of `out` are left as they are.
    scale_a, scale_b
        Both or neither: scales of blocks of 8-bit operands, as `tilekit.scaled_matmul` takes them: f32 of shapes
        (M, ⌈K/128⌉), with `counts` (G, R, ⌈K/128⌉), and (G, ⌈N/128⌉, ⌈K/128⌉).
    out
        (M, N) or (G, R, N); made new, uninitialised where nothing is computed, if None.
    epilogue
        A Python function that `tilekit.epilogue` marks, called with its operands: columns, (N,) or of each group (G, 1,
        N), numbers, and a matrix like the result.
    activation, out_dtype, stream, config, target
        As for `tilekit.matmul`.

    Raises
    ------
    ArgumentError
        Naming the argument, what was given, what is legal, and the nearest legal value: also for bounds in host memory
        that are out of order or out of range. On a device they are not looked at before the kernel, which takes the
        nearest legal bound instead: an end before the last group's end makes a group empty, one beyond M ends with the
        last row, and a count is cut to 0 … R. Rows that belong to no group are left as they are.
    """
    key: Any = None
    if out is not None:
        bounds = ends if counts is None else counts
        try:
            written = None if epilogue is None else epilogue_key(epilogue)
            scales = None if scale_a is None and scale_b is None else (fingerprint(scale_a), fingerprint(scale_b))
            key = (
                *map(fingerprint, (a, b, bounds, out)),
                scales,
                counts is None,
                activation,
                written,
                out_dtype,
                config,
                target,
            )
            cached = _grouped.launches.get(key)
        except Exception:  # something that has no fingerprint, or no legal value: parsing it says what
            cached = key = None
        if cached is not None:
            cached.launch(cached.current_stream() if stream is None else resolve_stream(stream, view_of(out)))
            return out
    keywords: Any = {"counts": counts, "out": out, "activation": activation, "out_dtype": out_dtype}
    keywords |= {"epilogue": epilogue, "config": config, "target": target}
    if scale_a is None and scale_b is None:
        return _first_call(GroupedArguments.parse(a, b, ends, **keywords), stream, _grouped, key)
    arguments = GroupedBlockwiseArguments.parse(a, b, ends, scale_a=scale_a, scale_b=scale_b, **keywords)
    return _first_call(arguments, stream, _grouped, key)


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
        As for `matmul`, of one result: its operands are numbers, K values, and arrays like the result.

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
    found, key, new = _kept(_convolutions, (x, w), keywords, stream)
    if found:
        return keywords["out"]
    return _first_call(ConvArguments.parse(x, w, **keywords), stream, _convolutions, key, new)


@takes(ConvKeywords)
def conv2d_kernel_for(x: Any, w: Any, **keywords: Unpack[ConvKeywords]) -> CompiledKernel:
    """Return the kernel that `conv2d` launches for these arguments, to look at: as `kernel_for` does of `matmul`."""
    kernel: CompiledKernel = select(ConvArguments.parse(x, w, memory=False, **keywords), tuned_config).kernel
    return kernel


@takes(ConvKeywords)
def conv2d_result_of(x: Any, w: Any, **keywords: Unpack[ConvKeywords]) -> tuple[tuple[int, ...], DType]:
    """Return shape, channels last, and element type of what `conv2d` would return, as `result_of` does of `matmul`."""
    arguments = ConvArguments.parse(x, w, memory=False, **keywords)
    arguments.spec_storing("direct").check(arguments.target)
    return arguments.extents, arguments.out.dtype


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
    out, bias, activation, scale, residual, beta, out_dtype, stream, config
        As for `matmul`; the result is bf16 by default. NVFP4's second scale, of a whole tensor, is a `scale`.
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
    found, key, new = _kept(_scaled, (a, b, scale_a, scale_b), keywords, stream)
    if found:
        return keywords["out"]
    return _first_call(read_scaled(a, b, scale_a, scale_b, **keywords), stream, _scaled, key, new)


@takes(ScaledKeywords)
def scaled_kernel_for(a: Any, b: Any, scale_a: Any, scale_b: Any, **keywords: Unpack[ScaledKeywords]) -> CompiledKernel:
    """Return the kernel that `scaled_matmul` launches for these arguments, as `kernel_for` does of `matmul`."""
    kernel: CompiledKernel = select(read_scaled(a, b, scale_a, scale_b, memory=False, **keywords), tuned_config).kernel
    return kernel


@takes(ScaledKeywords)
def scaled_result_of(
    a: Any, b: Any, scale_a: Any, scale_b: Any, **keywords: Unpack[ScaledKeywords]
) -> tuple[tuple[int, ...], DType]:
    """Return shape and element type of what `scaled_matmul` would return, as `result_of` does of `matmul`."""
    arguments = read_scaled(a, b, scale_a, scale_b, memory=False, **keywords)
    return arguments.out.shape, arguments.out.dtype


@takes(MatmulKeywords)
def result_of(a: Any, b: Any, **keywords: Unpack[MatmulKeywords]) -> tuple[tuple[int, ...], DType]:
    """Return shape and element type of what `matmul` would return, after the same checks, and without an address.

    Parameters
    ----------
    a, b, keywords
        As for `matmul`; arrays may be views (`tilekit.arrays.ArrayView`) of memory that does not exist, and their
        extents may be symbols that compare like numbers.

    Raises
    ------
    ArgumentError
        What `matmul` would raise, but for what depends on memory: the overlap of `out` with an operand.
    """
    arguments = MatmulArguments.parse(a, b, memory=False, **keywords)
    # Threads can store any output, and with it add any residual.
    arguments.spec_storing("direct").check(arguments.target)
    if arguments.result is not None:
        output_matrix(arguments.out)
    return arguments.out.shape, arguments.out.dtype


@checked
def compile(  # noqa: A001  the field's name for it
    spec: Any, target: ChipName = DEFAULT.name, config: Any = None
) -> CompiledKernel:
    """Build the kernel that `spec` describes.

    Parameters
    ----------
    spec
        What to compute: a `MatmulSpec`, or another family's spec.
    target
        Chip. Neither a GPU nor an assembler is needed until ``.isa``, ``.resources`` or a launch on a GPU asks for one.
    config
        How to compute it; by default the family's: of a matmul ``MatmulConfig()`` for sm_90a, ``BlackwellConfig()``
        for sm_100a, ``Cdna3Config()`` for gfx942 and ``Cdna4Config()`` for gfx950, which suit large outputs.

    Returns
    -------
    CompiledKernel
        With ``.ptx`` (of any chip ``.assembly``), ``.isa``, ``.resources``, ``.explain()`` and ``.bind(a, b, out)``.

    Raises
    ------
    ConfigError
        Listing every rule the config violates, each with the nearest legal value.
    """
    kernel: CompiledKernel = family_of(spec).compile(spec, config, target_named(target))
    return kernel


@takes(MatmulKeywords)
def kernel_for(a: Any, b: Any, **keywords: Unpack[MatmulKeywords]) -> CompiledKernel:
    """Return the kernel that `matmul` launches for these arguments: to look at, or to bind once and call often.

    Parameters
    ----------
    a, b, keywords
        As for `matmul`, but for its stream. Layouts count, and what is in the arrays does not.

    Returns
    -------
    CompiledKernel
        With ``.ptx`` (of any chip ``.assembly``), ``.isa``, ``.resources``, ``.explain()`` and ``.bind(a, b, out)``.

    Raises
    ------
    ArgumentError, ConfigError
        As for `matmul`.

    Examples
    --------
    >>> import numpy as np, tilekit
    >>> a, b = np.ones((4, 512), np.float16), np.ones((512, 256), np.float16)
    >>> tilekit.kernel_for(a, b).name
    'gemv_f16_f16_f16_kn_m4'
    """
    kernel: CompiledKernel = select(MatmulArguments.parse(a, b, memory=False, **keywords), tuned_config).kernel
    return kernel


_matmuls, _grouped, _convolutions, _scaled = LaunchCache(), LaunchCache(), LaunchCache(), LaunchCache()


def _kept(
    cache: LaunchCache, operands: tuple[Any, ...], keywords: Any, stream: Any
) -> tuple[bool, Hashable, NewArrays | None]:
    """Launch what an earlier call with the same arguments has left in a cache; return whether there was one.

    Then its output is in `keywords`. Else come the key to keep the launch by, and what made a new output there.
    """
    out = keywords.get("out")
    key: Hashable = None
    new = cached = None
    try:
        if not getattr(keywords.get("scale"), "is_cuda", False):
            number = read_scale(keywords.get("scale"))
            if isinstance(number, float):  # the value counts, not the host memory it lies in
                keywords["scale"] = number
        arrays = *operands, out
        key = (
            *(None if array is None else fingerprint(array) for array in arrays),
            *((name, _part_of_key(name, value)) for name, value in keywords.items() if name != "out"),
        )
        if out is None:
            new = cache.outputs.get(key)
        else:
            cached = cache.launches.get(key)
    except Exception:  # something that has no fingerprint, or no legal value: parsing it says what
        key = None
    if new is not None:
        out = new.make() if stream is None else new(resolve_stream(stream, view_of(operands[0])))
        cached = cache.launches.get((new, new.address_of(out)))
    keywords["out"] = out
    if cached is not None:
        cached.launch(cached.current_stream() if stream is None else resolve_stream(stream, view_of(out)))
    return cached is not None, key, new


def _part_of_key(name: str, value: Any) -> Any:
    if value is None:
        return None
    if name in ("bias", "scale", "residual"):
        return fingerprint(value)
    if name == "epilogue":
        return epilogue_key(value)
    return tuple(value) if isinstance(value, list) else value


def _first_call(
    arguments: Arguments, stream: Any, cache: LaunchCache, key: Hashable, new: NewArrays | None = None
) -> Any:
    """Select, bind and launch what no earlier call has, and keep the launch by its key; return the result.

    `new` made the output that the arguments have; without an output it is made here.
    """
    if arguments.result is None:
        own = arguments.a.device == "cpu" or arguments.a.library in ("torch", "cupy")
        if stream is not None or not own:  # memory of another library must be in the order of the operands' stream
            stream = resolve_stream(stream, arguments.a)
        new = arguments.new_output()
        arguments = arguments.into(new(stream))
    whole = arguments.completed(stream if arguments.a.device != "cpu" else None)
    selection = select(whole, tuned_or_timed)
    ready = selection.arguments.prepared(stream)
    plan = selection.kernel.plan(ready)
    plan(stream)
    if plan.cacheable is not None and key is not None and ready is selection.arguments:  # else it is laid out anew
        if new is not None:
            if whole is not arguments:
                return plan.out  # arrays beside the result are new at each call, and so is the launch
            cache.keep_output(key, new)
            key = (new, new.address_of(plan.out))
        cache.keep_launch(key, plan.cacheable)
    if new is None or arguments.out.library == arguments.a.library:
        return plan.out
    with new.in_stream(stream or 0):  # where the exchange makes the other library wait
        return hand_over(plan.out, arguments.a)
