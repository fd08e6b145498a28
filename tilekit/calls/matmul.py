"""The matmul of arrays, and the kernels that calls launch, to look at."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Unpack, overload

import numpy.typing as npt

from tilekit.annotations import call_checked, checked_values, leaves_out_unknown, refuse_call, takes
from tilekit.arrays import NewArrays, fingerprint, reader_of, resolve_stream, view_of
from tilekit.calls.kept import Array, Numpy, first_call
from tilekit.dtypes import DType
from tilekit.epilogue.functions import Activation
from tilekit.kernels.compiled import CompiledKernel
from tilekit.kernels.dispatch import family_of, select
from tilekit.kernels.epilogue_arguments import read_scale
from tilekit.kernels.family_kernel import FamilyKernel
from tilekit.kernels.launch_cache import LaunchCache
from tilekit.kernels.matmul.any_config import AnyConfig
from tilekit.kernels.matmul.arguments import MatmulArguments, MatmulKeywords
from tilekit.kernels.matmul.own import OwnComponents
from tilekit.kernels.matmul.spec import Accumulation, Precision
from tilekit.kernels.problem import output_matrix
from tilekit.kernels.written_arguments import epilogue_key
from tilekit.targets import DEFAULT, ChipName, PlaceName
from tilekit.targets import target as target_named
from tilekit.tuning.lookup import tuned_config

_launches = LaunchCache()

_FAST: Accumulation = "fast"

_UNKNOWN: Any = []
"""In place of arguments that have no key: it has none either."""


@overload
def matmul(a: Numpy, b: Any, *, stream: Any = None, **keywords: Unpack[MatmulKeywords]) -> npt.NDArray[Any]: ...


@overload
def matmul(a: Array, b: Any, *, stream: Any = None, **keywords: Unpack[MatmulKeywords]) -> Array: ...


@leaves_out_unknown
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
    arrays: dict[str, Any] | None = None,
    stream: Any = None,
    config: AnyConfig | None = None,
    target: PlaceName | None = None,
    **unknown: Any,
) -> Any:
    """Return ``activation(scale * scale_a * (a @ b) * scale_b + bias + beta * residual)``, accumulated in f32.

    Parameters
    ----------
    a, b
        Matrices (M, K) and (K, N), or batches (B, M, K) and (B, K, N) of which one may have B = 1: CuPy, torch or
        NumPy arrays (bf16 and fp8 through ml_dtypes), or anything with DLPack or ``__cuda_array_interface__``. Both
        bf16, both f16, both int8, any of e4m3 and e5m2, or both f32 with `precision`. Either of the last two dimensions
        may be the contiguous one (``.T`` costs nothing); f32, and on sm_80 to sm_90a and sm_120a fp8 and int8, need K
        contiguous.
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
    arrays
        What a payload among these reads, by the names that it declares.
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
    if unknown:
        refuse_call(matmul, (a, b), unknown)
    rest: Any = None
    bare = scale is None and scale_a is None and scale_b is None and residual is None and epilogue is None
    usual = out_dtype is None and precision is None and accumulation is _FAST and components is None and arrays is None
    if not (bare and usual and config is None and target is None):
        try:
            if not (scale is None or isinstance(scale, float | int) or getattr(scale, "is_cuda", False)):
                number = read_scale(scale)
                if isinstance(number, float):  # the value counts, not the host memory it lies in
                    scale = number
            rest = (
                *map(fingerprint, (scale, scale_a, scale_b, residual)),
                None if residual is None else beta,
                out_dtype,
                precision,
                accumulation,
                config,
                target,
                None if epilogue is None else epilogue_key(epilogue),
                components,
                None if arrays is None else tuple((name, fingerprint(array)) for name, array in arrays.items()),
            )
        except Exception:  # something that has no fingerprint, or no legal value: parsing it says what
            rest = _UNKNOWN
    launched, result, key, new = again(a, b, out, bias, activation, rest, stream)
    if launched:
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
        arrays=arrays,
        config=config,
        target=target,
    )
    return first_call(arguments, stream, _launches, key, new)


def again(
    a: Any,
    b: Any,
    out: Any = None,
    bias: Any = None,
    activation: Any = None,
    rest: Hashable = None,
    stream: Any = None,
) -> tuple[bool, Any, Hashable, NewArrays | None]:
    """Launch what an earlier call of `matmul` with the same arguments has left, if one has.

    Parameters
    ----------
    a, b, out, bias, activation, stream
        As for `matmul`.
    rest
        What tells all its other arguments apart; None where they are not given.

    Returns
    -------
    tuple
        Whether there was a launch; the output, None where there is neither one given nor one made; the key to keep
        a launch by, None where none can be kept; and what made the output.
    """
    key: Hashable = None
    new = cached = None
    try:
        key = (
            reader_of[type(a)](a),
            reader_of[type(b)](b),
            None if out is None else reader_of[type(out)](out),
            None if bias is None else reader_of[type(bias)](bias),
            activation,
            rest,
        )
        if out is None:
            new = _launches.outputs.get(key)
        else:
            cached = _launches.launches.get(key)
    except Exception:  # something that has no fingerprint, or no legal value: parsing it says what
        key = None
    if new is not None:
        out = new.make() if stream is None else new(resolve_stream(stream, view_of(a)))
        cached = _launches.launches.get((new, new.address_of(out)))
    if cached is None:
        return False, out, key, new
    if stream is None:
        cached.launch(cached.current_stream())
    else:
        cached.launch(resolve_stream(stream, view_of(out[0] if isinstance(out, tuple) else out)))
    return True, out, key, new


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
    kernel = select(MatmulArguments.parse(a, b, memory=False, **keywords), tuned_config).kernel
    assert isinstance(kernel, CompiledKernel)
    return kernel


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


@call_checked
def compile(  # noqa: A001  the field's name for it
    spec: Any, target: ChipName = DEFAULT.name, config: Any = None
) -> FamilyKernel:
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
    FamilyKernel
        With ``.ptx`` (of any chip ``.assembly``), ``.isa``, ``.resources``, ``.explain()`` and ``.bind(a, b, out)``.

    Raises
    ------
    ConfigError
        Listing every rule the config violates, each with the nearest legal value.
    """
    family = family_of(spec)
    return family.compile(spec, config, target_named(checked_values(compile, {"target": target})["target"]))
