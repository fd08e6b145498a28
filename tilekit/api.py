"""The calls: arrays in, arrays out."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from tilekit.annotations import checked, checked_values
from tilekit.arrays import (
    ArrayView,
    NewArrays,
    fingerprint,
    hand_over,
    new_arrays,
    require_dtype,
    require_output,
    require_same_place,
    resolve_stream,
    view_of,
)
from tilekit.dtypes import BF16, DType, as_dtype
from tilekit.epilogue.functions import Activation
from tilekit.kernels.choice import choose, read_product
from tilekit.kernels.matmul.any_config import AnyConfig
from tilekit.kernels.matmul.compiled import MatmulKernel, compiled
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.extras import Extras, read_scale
from tilekit.kernels.matmul.picker import default_config
from tilekit.kernels.matmul.place import place
from tilekit.kernels.matmul.plan import MatmulPlan
from tilekit.kernels.matmul.problem import matrix_view, output_matrix
from tilekit.kernels.matmul.spec import Accumulation, MatmulSpec, Precision
from tilekit.kernels.product import ProductKernel
from tilekit.kernels.ready import ReadyLaunches
from tilekit.runtime import driver
from tilekit.targets import SM_90A, ChipName, PlaceName
from tilekit.targets import target as target_named


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
    out_dtype: Any = None,
    precision: Precision | None = None,
    accumulation: Accumulation = "fast",
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
        contiguous one (``.T`` costs nothing); f32, and on sm_90a fp8, need K contiguous.
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
    out_dtype
        bf16, f16, f32, e4m3 or e5m2: by default that of `out`, else that of `a`, else bf16 for fp8. What is too large
        for an 8-bit type becomes its largest number.
    precision
        ``"tf32"`` to multiply f32 operands with the 10 bits of mantissa that tensor cores read of them (the others are
        cut off, not rounded); without it they are refused.
    accumulation
        Of 8-bit operands on sm_90a. ``"fast"``: the tensor core adds everything, and keeps 13 bits of the sum from one
        instruction to the next (``use_fast_accum=True`` of `torch._scaled_mm`). ``"promoted"``: it adds 128 products,
        and the sums of those are added in f32 (torch's default): the longer K, the more that matters.
    stream
        A stream object or handle; by default the current stream of the arrays' library. The call does not wait for
        the device.
    config
        How to compute: a `MatmulConfig` for sm_90a, a `BlackwellConfig` for sm_100a; by default chosen for the shape.
    target
        For arrays in host memory: None or a chip such as ``"sm_90a"`` emulates that chip, ``"cuda"`` computes on the
        GPU.

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
    new = ready = None
    try:
        if not (scale is None or isinstance(scale, float | int) or getattr(scale, "is_cuda", False)):
            number = read_scale(scale)
            if isinstance(number, float):  # the value counts, not the host memory it lies in
                scale = number
        key = (
            fingerprint(a),
            fingerprint(b),
            None if out is None else fingerprint(out),
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
        )
        if out is None:
            new = _ready.outputs.get(key)
        else:
            ready = _ready.launches.get(key)
    except Exception:  # something that is no array, or no legal value: binding it says what
        key = None
    result = out
    if new is not None:
        result = new.make() if stream is None else new(resolve_stream(stream, view_of(a)))
        ready = _ready.launches.get((new, new.address_of(result)))
    if ready is not None:
        ready.launch(ready.current_stream() if stream is None else resolve_stream(stream, view_of(result)))
        return result
    how = checked_values(
        matmul,
        {
            "activation": activation,
            "precision": precision,
            "accumulation": accumulation,
            "config": config,
            "target": target,
        },
    )
    if out is None and new is None:
        new = _outputs(a, b, out_dtype, precision)
        result = new(None if stream is None else resolve_stream(stream, view_of(a)))
    extras = {
        "bias": bias,
        "scale": scale,
        "scale_a": scale_a,
        "scale_b": scale_b,
        "residual": residual,
        "beta": beta,
    }
    plan = _bind(a, b, result, extras, out_dtype, **how)
    plan(stream)
    if plan.ready is not None and key is not None:
        if new is not None:
            _ready.keep_output(key, new)
            key = (new, new.address_of(result))
        _ready.keep_launch(key, plan.ready)
    return result if out is not None else hand_over(result, view_of(a))


@checked
def result_of(
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
    out_dtype: Any = None,
    precision: Precision | None = None,
    accumulation: Accumulation = "fast",
) -> tuple[tuple[int, ...], DType]:
    """Return shape and element type of what `matmul` would return, after the same checks, and without an address.

    Parameters
    ----------
    a, b, out, bias, activation, scale, scale_a, scale_b, residual, out_dtype, precision, accumulation
        As for `matmul`; arrays may be views (`tilekit.arrays.ArrayView`) of memory that does not exist, and their
        extents may be symbols that compare like numbers.

    Raises
    ------
    ArgumentError
        What `matmul` would raise, but for what depends on memory: the overlap of `out` with an operand.
    """
    va, vb = matrix_view(a, "a"), matrix_view(b, "b")
    named = [("a", va), ("b", vb)]
    problem = read_product(va, vb)
    if out is None:
        require_same_place(named)
        dtype = _output_type(va, out_dtype)
        vo = replace(va, shape=problem.out_shape, dtype=dtype)
    else:
        vo = matrix_view(out, "out")
        dtype = vo.dtype
        if out_dtype is not None:
            require_dtype(vo, as_dtype(out_dtype, "out_dtype"))
        require_output(vo, problem.out_shape, dtype, ())
    extras = Extras.read(problem, vo, bias=bias, scale=scale, scale_a=scale_a, scale_b=scale_b, residual=residual)
    there = va.device == "cpu" or (driver.why_unavailable() is None and va.device[1] < len(driver.devices()))
    # Of memory on a GPU that is not here nobody knows the chip.
    chip = place(va, None)[0] if there else SM_90A
    # Threads can store any output, and with it add any residual.
    functions = extras.functions(activation)
    problem.spec(dtype, functions, store="direct", precision=precision, accumulation=accumulation).check(chip)
    named += [(name, view) for name, view in extras.views.items() if name != "scale" or view.device != "cpu"]
    if out is not None:
        output_matrix(vo)
        named.append(("out", vo))
    require_same_place(named)
    return problem.out_shape, dtype


@checked
def compile(  # noqa: A001  the field's name for it
    spec: MatmulSpec, target: ChipName = "sm_90a", config: AnyConfig | None = None
) -> MatmulKernel:
    """Build the kernel that `spec` describes.

    Parameters
    ----------
    spec
        What to compute.
    target
        Chip. Neither a GPU nor an assembler is needed until ``.isa``, ``.resources`` or a launch on a GPU asks for one.
    config
        How to compute it; by default ``MatmulConfig()`` for sm_90a and ``BlackwellConfig()`` for sm_100a, which suit
        large outputs.

    Returns
    -------
    MatmulKernel
        With ``.ptx``, ``.isa``, ``.resources``, ``.explain()`` and ``.bind(a, b, out)``.

    Raises
    ------
    ConfigError
        Listing every rule the config violates, each with the nearest legal value.
    """
    chip = target_named(target)
    return compiled(spec, default_config(spec, chip) if config is None else config, chip)


@checked
def kernel_for(
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
    out_dtype: Any = None,
    precision: Precision | None = None,
    accumulation: Accumulation = "fast",
    config: AnyConfig | None = None,
    target: PlaceName | None = None,
) -> ProductKernel:
    """Return the kernel that `matmul` launches for these arguments: to look at, or to bind once and call often.

    Parameters
    ----------
    a, b, out, bias, activation, scale, scale_a, scale_b, residual, out_dtype, precision, accumulation, config, target
        As for `matmul`. Layouts count, and what is in the arrays does not.

    Returns
    -------
    ProductKernel
        With ``.ptx``, ``.isa``, ``.resources``, ``.explain()`` and ``.bind(a, b, out)``.

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
    va, vb = matrix_view(a, "a"), matrix_view(b, "b")
    problem = read_product(va, vb)
    if out is None:
        shape = problem.out_shape
        strides = tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))
        vo = replace(va, address=0, shape=shape, strides=strides, dtype=_output_type(va, out_dtype))
    else:
        if out_dtype is not None:
            require_dtype(view_of(out, "out"), as_dtype(out_dtype, "out_dtype"))
        vo = matrix_view(out, "out")
        require_output(vo, problem.out_shape, vo.dtype, ())
    extras = Extras.read(problem, vo, bias=bias, scale=scale, scale_a=scale_a, scale_b=scale_b, residual=residual)
    chip, _ = place(va, target)
    return choose(va, vb, vo, extras, activation, precision, accumulation, config, chip)


_ready = ReadyLaunches()


def _bind(
    a: Any,
    b: Any,
    out: Any,
    extras: dict[str, Any],
    out_dtype: Any,
    *,
    activation: Activation | None,
    precision: Precision | None,
    accumulation: Accumulation,
    config: KernelConfig | None,
    target: str | None,
) -> MatmulPlan:
    if out_dtype is not None:
        require_dtype(view_of(out, "out"), as_dtype(out_dtype, "out_dtype"))
    va, vb, vo = matrix_view(a, "a"), matrix_view(b, "b"), matrix_view(out, "out")
    chip, device = place(va, target)
    problem = read_product(va, vb)
    require_output(vo, problem.out_shape, vo.dtype, ())
    read = Extras.read(problem, vo, **extras)
    kernel = choose(va, vb, vo, read, activation, precision, accumulation, config, chip)
    return kernel.bind(a, b, out, device=device, **extras)


def _outputs(a: Any, b: Any, out_dtype: Any, precision: Precision | None) -> NewArrays:
    """How the output of a call that passes none is made."""
    va, vb = matrix_view(a, "a"), matrix_view(b, "b")
    problem = read_product(va, vb)
    require_same_place([("a", va), ("b", vb)])
    dtype = _output_type(va, out_dtype)
    majors = (problem.a.major, problem.b.major)
    MatmulSpec(va.dtype, vb.dtype, dtype, *majors, precision=precision)  # raises for types no kernel takes
    return new_arrays(va, problem.out_shape, dtype)


def _output_type(a: ArrayView, out_dtype: Any) -> DType:
    if out_dtype is not None:
        return as_dtype(out_dtype, "out_dtype")
    return a.dtype if a.dtype.bits > 8 else BF16
