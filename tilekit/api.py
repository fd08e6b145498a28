"""The calls: arrays in, arrays out."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tilekit.arrays import (
    ArrayView,
    NewArrays,
    fingerprint,
    hand_over,
    new_arrays,
    require_output,
    require_same_place,
    resolve_stream,
    view_of,
)
from tilekit.dtypes import BF16, DType, as_dtype
from tilekit.epilogue.functions import Activation, ElementwiseSpec
from tilekit.errors import ArgumentError
from tilekit.kernels.gemv.picker import MOST_TOKENS, offer
from tilekit.kernels.gemv.problem import read_gemv
from tilekit.kernels.matmul.compiled import (
    MatmulKernel,
    compiled,
    read_bias,
    read_residual,
    read_scale,
    scale_kind,
    scale_view,
)
from tilekit.kernels.matmul.config import KernelConfig
from tilekit.kernels.matmul.picker import default_config, pick
from tilekit.kernels.matmul.place import place
from tilekit.kernels.matmul.plan import MatmulPlan
from tilekit.kernels.matmul.problem import MatmulProblem, matrix_view, output_matrix, read_problem, store_kind
from tilekit.kernels.matmul.spec import MatmulSpec, Precision
from tilekit.kernels.ready import ReadyLaunches
from tilekit.runtime import driver
from tilekit.targets import SM_90A
from tilekit.targets import target as target_named
from tilekit.tuning.tuner import tuned


def matmul(
    a: Any,
    b: Any,
    *,
    out: Any = None,
    bias: Any = None,
    activation: Activation | None = None,
    scale: Any = None,
    residual: Any = None,
    beta: float = 1.0,
    out_dtype: Any = None,
    precision: Precision | None = None,
    stream: Any = None,
    config: KernelConfig | None = None,
    target: str | None = None,
) -> Any:
    """Return ``activation(scale * (a @ b) + bias + beta * residual)``, accumulated in f32.

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
    residual, beta
        An array like the result, and its factor, a number. It may be `out` itself.
    out_dtype
        bf16, f16, f32, e4m3 or e5m2: by default that of `out`, else that of `a`, else bf16 for fp8. What is too large
        for an 8-bit type becomes its largest number.
    precision
        ``"tf32"`` to multiply f32 operands with the 10 bits of mantissa that tensor cores read of them (the others are
        cut off, not rounded); without it they are refused.
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
    if not (scale is None or isinstance(scale, float | int) or getattr(scale, "is_cuda", False)):
        number = read_scale(scale)
        if isinstance(number, float):  # the value counts, not the host memory it lies in
            scale = number
    key: Any
    new = ready = None
    try:
        key = (
            fingerprint(a),
            fingerprint(b),
            None if out is None else fingerprint(out),
            None if bias is None else fingerprint(bias),
            activation,
            None if scale is None else fingerprint(scale),
            None if residual is None else (fingerprint(residual), beta),
            out_dtype,
            precision,
            config,
            target,
        )
        if out is None:
            new = _ready.outputs.get(key)
        else:
            ready = _ready.launches.get(key)
    except (ArgumentError, TypeError):  # something that is no array, or no legal value: binding it says what
        key = None
    result = out
    if new is not None:
        result = new.make() if stream is None else new(resolve_stream(stream, view_of(a)))
        ready = _ready.launches.get((new, new.address_of(result)))
    if ready is not None:
        ready.launch(ready.current_stream() if stream is None else resolve_stream(stream, view_of(result)))
        return result
    if out is None and new is None:
        new = _outputs(a, b, out_dtype, precision)
        result = new(None if stream is None else resolve_stream(stream, view_of(a)))
    plan = _bind(a, b, result, bias, activation, scale, residual, beta, out_dtype, precision, config, target)
    plan(stream)
    if plan.ready is not None and key is not None:
        if new is not None:
            _ready.keep_output(key, new)
            key = (new, new.address_of(result))
        _ready.keep_launch(key, plan.ready)
    return result if out is not None else hand_over(result, view_of(a))


def result_of(
    a: Any,
    b: Any,
    *,
    out: Any = None,
    bias: Any = None,
    activation: Activation | None = None,
    scale: Any = None,
    out_dtype: Any = None,
    precision: Precision | None = None,
) -> tuple[tuple[int, ...], DType]:
    """Return shape and element type of what `matmul` would return, after the same checks, and without an address.

    Parameters
    ----------
    a, b, out, bias, activation, scale, out_dtype, precision
        As for `matmul`; arrays may be views (`tilekit.arrays.ArrayView`) of memory that does not exist, and their
        extents may be symbols that compare like numbers.

    Raises
    ------
    ArgumentError
        What `matmul` would raise, but for what depends on memory: the overlap of `out` with an operand.
    """
    va, vb = matrix_view(a, "a"), matrix_view(b, "b")
    named = [("a", va), ("b", vb)]
    problem = _read(va, vb)
    if out is None:
        require_same_place(named)
        dtype = _output_type(va, out_dtype)
    else:
        if out_dtype is not None:
            _check_out_dtype(out, out_dtype)
        dtype = matrix_view(out, "out").dtype
    vbias = read_bias(bias, problem.n) if bias is not None else None
    factor = scale_view(scale) if isinstance(scale, ArrayView) else read_scale(scale)
    there = va.device == "cpu" or (driver.why_unavailable() is None and va.device[1] < len(driver.devices()))
    # Of memory on a GPU that is not here nobody knows the chip.
    chip = place(va, None)[0] if there else SM_90A
    functions = ElementwiseSpec(
        scale=scale_kind(factor), bias=vbias.dtype if vbias is not None else None, activation=activation
    )
    problem.spec(dtype, functions, precision=precision).check(chip)
    if vbias is not None:
        named.append(("bias", vbias))
    if isinstance(factor, ArrayView) and factor.device != "cpu":
        named.append(("scale", factor))
    if out is not None:
        vo = matrix_view(out, "out")
        output_matrix(vo)
        require_output(vo, problem.out_shape, dtype, ())
        named.append(("out", vo))
    require_same_place(named)
    return problem.out_shape, dtype


def compile(  # noqa: A001  the field's name for it
    spec: MatmulSpec, target: str = "sm_90a", config: KernelConfig | None = None
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
    return compiled(spec, config or default_config(spec, chip), chip)


_ready = ReadyLaunches()

_pick = lru_cache(maxsize=1024)(pick)
"""What the picker chose for a layout: asking it again costs ten times the rest of binding."""


def _bind(
    a: Any,
    b: Any,
    out: Any,
    bias: Any,
    activation: Activation | None,
    scale: Any,
    residual: Any,
    beta: float,
    out_dtype: Any,
    precision: Precision | None,
    config: KernelConfig | None,
    target: str | None,
) -> MatmulPlan:
    if out_dtype is not None:
        _check_out_dtype(out, out_dtype)
    if not (config is None or isinstance(config, KernelConfig)):
        legal = "a tilekit.MatmulConfig (sm_90a), a tilekit.BlackwellConfig (sm_100a), or None to have one chosen"
        raise ArgumentError.of("config", config, legal=legal)
    va, vb, vo = matrix_view(a, "a"), matrix_view(b, "b"), matrix_view(out, "out")
    chip, device = place(va, target)
    vbias = read_bias(bias, vb.shape[-1] if vb.shape else 0) if bias is not None else None
    functions = ElementwiseSpec(
        scale=scale_kind(read_scale(scale)),
        bias=vbias.dtype if vbias is not None else None,
        activation=activation,
        residual=vo.dtype if residual is not None else None,
    )
    extras = {"bias": bias, "scale": scale, "residual": residual, "beta": beta, "device": device}
    gemv = offer(va, vb, vo, functions, chip) if config is None and precision is None else None
    if gemv is not None:
        return gemv.bind(a, b, out, **extras)
    problem = read_problem(va, vb)
    store = store_kind(vo.address, output_matrix(vo))
    if residual is not None:
        vres = read_residual(residual, vo)
        kinds = {store, store_kind(vres.address, output_matrix(vres, "residual")), problem.a.load, problem.b.load}
        store = "tma" if kinds == {"tma"} else "direct"
    spec = problem.spec(vo.dtype, functions, store=store, precision=precision)
    if config is None and va.device != "cpu":
        name = driver.devices()[va.device[1]].name
        config = tuned(spec, chip, name, m=problem.m, n=problem.n, k=problem.k, batches=problem.batches)
    if config is None:
        config = _pick(spec, chip, m=problem.m, n=problem.n, k=problem.k, batches=problem.batches)
    return compiled(spec, config, chip).bind(a, b, out, **extras)


def _read(a: ArrayView, b: ArrayView) -> MatmulProblem:
    """Check two operands against each other: what a matmul takes, or a gemv, which reads any alignment."""
    try:
        return read_problem(a, b)
    except ArgumentError:
        if len(a.shape) != 2 or not 1 <= a.shape[0] <= MOST_TOKENS:
            raise
        try:
            return read_gemv(a, b)
        except ArgumentError:
            pass
        raise


def _outputs(a: Any, b: Any, out_dtype: Any, precision: Precision | None) -> NewArrays:
    """How the output of a call that passes none is made."""
    va, vb = matrix_view(a, "a"), matrix_view(b, "b")
    problem = _read(va, vb)
    require_same_place([("a", va), ("b", vb)])
    dtype = _output_type(va, out_dtype)
    majors = (problem.a.major, problem.b.major)
    MatmulSpec(va.dtype, vb.dtype, dtype, *majors, precision=precision)  # raises for types no kernel takes
    return new_arrays(va, problem.out_shape, dtype)


def _output_type(a: ArrayView, out_dtype: Any) -> DType:
    if out_dtype is not None:
        return as_dtype(out_dtype, "out_dtype")
    return a.dtype if a.dtype.bits > 8 else BF16


def _check_out_dtype(out: Any, out_dtype: Any) -> None:
    view, dtype = view_of(out, "out"), as_dtype(out_dtype, "out_dtype")
    if view.dtype != dtype:
        raise ArgumentError(
            f"out is {view.dtype} and out_dtype={dtype}: they must agree; leave out_dtype out", code="TK-API-004"
        )
