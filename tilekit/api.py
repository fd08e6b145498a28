"""The calls: arrays in, arrays out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from tilekit.arrays import (
    ArrayView,
    empty_like_library,
    fingerprint,
    hand_over,
    require_same_place,
    resolve_stream,
    view_of,
)
from tilekit.dtypes import BF16, DType, as_dtype
from tilekit.epilogue.functions import Activation, ElementwiseSpec
from tilekit.errors import ArgumentError, DriverError
from tilekit.kernels.matmul.compiled import MatmulKernel, compiled, read_bias, read_scale, scale_kind
from tilekit.kernels.matmul.config import MatmulConfig
from tilekit.kernels.matmul.picker import pick
from tilekit.kernels.matmul.plan import DevicePlan, MatmulPlan
from tilekit.kernels.matmul.problem import MatmulProblem, matrix_view, output_matrix, read_problem, store_kind
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.runtime import driver
from tilekit.runtime.prepared import PreparedLaunch
from tilekit.targets import SM_90A, TARGETS, Target
from tilekit.targets import target as target_named

_LAUNCHES_KEPT = 1024


def matmul(
    a: Any,
    b: Any,
    *,
    out: Any = None,
    bias: Any = None,
    activation: Activation | None = None,
    scale: Any = None,
    out_dtype: Any = None,
    stream: Any = None,
    config: MatmulConfig | None = None,
    target: str | None = None,
) -> Any:
    """Return ``activation(scale * (a @ b) + bias)``, accumulated in f32.

    Parameters
    ----------
    a, b
        Matrices (M, K) and (K, N), or batches (B, M, K) and (B, K, N) of which one may have B = 1: CuPy, torch or
        NumPy arrays (bf16 and fp8 through ml_dtypes), or anything with DLPack or ``__cuda_array_interface__``. Both
        bf16, both f16, or any of e4m3 and e5m2. Either of the last two dimensions may be the contiguous one (``.T``
        costs nothing); fp8 needs K contiguous.
    out
        Where to write; made new, in the library of `a`, if None.
    bias
        N values of bf16, f16 or f32, added to every row.
    activation
        ``"relu"``, ``"gelu"`` (tanh form) or ``"silu"``.
    scale
        A number, or an array of one f32 (which stays on the device).
    out_dtype
        bf16, f16 or f32: by default that of `out`, else that of `a`, else bf16 for fp8.
    stream
        A stream object or handle; by default the current stream of the arrays' library. The call does not wait for
        the device.
    config
        How to compute; by default chosen for the shape.
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
    given = out
    if out is None:
        out = _new_output(a, b, out_dtype, stream)
    elif out_dtype is not None:
        _check_out_dtype(out, out_dtype)
    if isinstance(scale, np.generic):
        scale = read_scale(scale)
    try:
        key = (
            fingerprint(a),
            fingerprint(b),
            fingerprint(out),
            fingerprint(bias),
            activation,
            fingerprint(scale),
            config,
            target,
        )
    except ArgumentError:
        _bind(a, b, out, bias, activation, scale, config, target)  # raises the same with the argument's name
        raise
    ready = _ready.launches.get(key)
    if ready is not None:
        launch, current_stream = ready
        launch(current_stream() if stream is None else resolve_stream(stream, view_of(out)))
        return out
    plan = _bind(a, b, out, bias, activation, scale, config, target)
    plan(stream)
    _ready.keep(key, plan)
    return out if given is not None else hand_over(out, view_of(a))


def compile(  # noqa: A001  the field's name for it
    spec: MatmulSpec, target: str = "sm_90a", config: MatmulConfig | None = None
) -> MatmulKernel:
    """Build the kernel that `spec` describes.

    Parameters
    ----------
    spec
        What to compute.
    target
        Chip. Neither a GPU nor an assembler is needed until ``.isa``, ``.resources`` or a launch on a GPU asks for one.
    config
        How to compute it; by default ``MatmulConfig()``, which suits large outputs.

    Returns
    -------
    MatmulKernel
        With ``.ptx``, ``.isa``, ``.resources``, ``.explain()`` and ``.bind(a, b, out)``.

    Raises
    ------
    ConfigError
        Listing every rule the config violates, each with the nearest legal value.
    """
    return compiled(spec, config or MatmulConfig(), target_named(target))


class _ReadyLaunches(threading.local):
    """Bound launches of a thread, by everything they depend on, addresses included; the oldest goes first.

    They hold no array: memory that its owner frees and gets again, with the same layout, finds its launch here again.
    """

    def __init__(self) -> None:
        self.launches: dict[Any, tuple[PreparedLaunch, Callable[[], int]]] = {}

    def keep(self, key: Any, plan: MatmulPlan) -> None:
        """Remember the launch of a plan of torch or CuPy arrays; other libraries' streams belong to each array."""
        if isinstance(plan, DevicePlan) and plan.library in ("torch", "cupy"):
            if len(self.launches) >= _LAUNCHES_KEPT:
                del self.launches[next(iter(self.launches))]
            self.launches[key] = (plan.launch, plan.current_stream)


_ready = _ReadyLaunches()


def _bind(
    a: Any,
    b: Any,
    out: Any,
    bias: Any,
    activation: Activation | None,
    scale: Any,
    config: MatmulConfig | None,
    target: str | None,
) -> MatmulPlan:
    if not (config is None or isinstance(config, MatmulConfig)):
        raise ArgumentError.of("config", config, legal="a tilekit.MatmulConfig, or None to have one chosen")
    va, vb, vo = matrix_view(a, "a"), matrix_view(b, "b"), matrix_view(out, "out")
    problem = read_problem(va, vb)
    chip, device = _place(va, target)
    matrix = output_matrix(vo)
    spec = MatmulSpec(
        a_dtype=va.dtype,
        b_dtype=vb.dtype,
        out_dtype=vo.dtype,
        a_major=problem.a.major,
        b_major=problem.b.major,
        batched=problem.batched,
        functions=ElementwiseSpec(
            scale=scale_kind(read_scale(scale)),
            bias=read_bias(bias, problem.n).dtype if bias is not None else None,
            activation=activation,
        ),
        store=store_kind(vo.address, matrix),
    )
    if config is None:
        config = pick(spec, chip, m=problem.m, n=problem.n, k=problem.k, batches=problem.batches)
    return compiled(spec, config, chip).bind(a, b, out, bias=bias, scale=scale, device=device)


def _place(a: ArrayView, target: str | None) -> tuple[Target, str | None]:
    """The chip to build for, and ``"cuda"`` where arrays in host memory go to the GPU."""
    if a.device == "cpu":
        if target != "cuda":
            return target_named(target or SM_90A.name), None
        reason = driver.why_unavailable()
        if reason is not None:
            raise DriverError(
                f"target='cuda', but there is no GPU to use: {reason}; leave target out to run on the emulator",
                code="TK-API-002",
            )
        return _chip_of(driver.devices()[0], target), "cuda"
    return _chip_of(driver.devices()[a.device[1]], target), None


def _chip_of(device: driver.DeviceInfo, target: str | None) -> Target:
    chip = next((t for t in TARGETS.values() if t.compute_capability == device.compute_capability), None)
    if chip is None:
        built = ", ".join(f"{t.name} ({t.product})" for t in TARGETS.values())
        raise DriverError(
            f"{device.name} has compute capability {'.'.join(map(str, device.compute_capability))}; tilekit builds "
            f"kernels for {built}. Arrays in host memory can be computed on the emulator instead",
            code="TK-API-003",
        )
    if target not in (None, "cuda", chip.name):
        raise ArgumentError(
            f"target={target!r}, but the arrays are on {device.name}, which is {chip.name}: leave target out, or pass "
            "arrays in host memory to emulate another chip",
            code="TK-API-001",
        )
    return chip


def _new_output(a: Any, b: Any, out_dtype: Any, stream: Any) -> Any:
    va, vb = matrix_view(a, "a"), matrix_view(b, "b")
    problem: MatmulProblem = read_problem(va, vb)
    require_same_place([("a", va), ("b", vb)])
    dtype: DType = (
        as_dtype(out_dtype, "out_dtype") if out_dtype is not None else va.dtype if va.dtype.bits > 8 else BF16
    )
    MatmulSpec(va.dtype, vb.dtype, dtype, problem.a.major, problem.b.major)  # raises for types no kernel takes
    handle = None if stream is None else resolve_stream(stream, va)
    return empty_like_library(va, problem.out_shape, dtype, handle)


def _check_out_dtype(out: Any, out_dtype: Any) -> None:
    view, dtype = view_of(out, "out"), as_dtype(out_dtype, "out_dtype")
    if view.dtype != dtype:
        raise ArgumentError(
            f"out is {view.dtype} and out_dtype={dtype}: they must agree; leave out_dtype out", code="TK-API-004"
        )
