"""`tilekit.conv2d` as torch operators, for eager code, `torch.compile` and `torch.export`; `tilekit.torch` has it.

As the operators of `tilekit.torch`, with an overload for a scale that is a tensor. Results lie in ``channels_last``
memory. There are no gradients: where one is asked for the call is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import tilekit
from tilekit.api import conv2d_result_of
from tilekit.arrays import ArrayView, view_of_fake
from tilekit.dtypes import as_dtype
from tilekit.epilogue.functions import Activation
from tilekit.errors import ArgumentError
from tilekit.kernels.epilogue_arguments import read_scale
from tilekit.kernels.matmul.spec import Accumulation

__all__ = ["conv2d"]

_registry: Any = torch.library
_compiler: Any = torch.compiler
_ops: Any = torch.ops.tilekit

_NAMES = (
    *("bias", "scale", "stride", "padding", "dilation", "groups"),
    *("activation", "out_dtype", "residual", "beta", "accumulation"),
)


def _named_type(what: Any) -> Any:
    return getattr(torch, as_dtype(what, "out_dtype").long_name)


_torch_type = _compiler.assume_constant_result(_named_type)


def conv2d(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    *,
    out: torch.Tensor | None = None,
    activation: Activation | None = None,
    scale: float | torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    beta: float = 1.0,
    out_dtype: Any = None,
    accumulation: Accumulation = "fast",
) -> torch.Tensor:
    """Return ``activation(scale * conv(x, w) + bias + beta * residual)``, in the order of `torch.nn.functional.conv2d`.

    Parameters
    ----------
    x, w : torch.Tensor
        (N, C, H, W) and (K, C / groups, R, S), both in ``channels_last`` memory; they are read where they lie.
    bias, stride, padding, dilation, groups, activation, scale, residual, beta, out_dtype, accumulation
        As for `tilekit.conv2d`.
    out : torch.Tensor, optional
        Where to write, (N, K, P, Q) in ``channels_last`` memory.

    Returns
    -------
    torch.Tensor
        (N, K, P, Q) in ``channels_last`` memory; `out` itself if that was given.

    Raises
    ------
    ArgumentError
        As `tilekit.conv2d` does, for tensors without memory too. ``TK-TORCH-001`` where a gradient is asked for.
    """
    if out_dtype is not None and not isinstance(out_dtype, torch.dtype):
        out_dtype = _torch_type(out_dtype)
    if scale is not None and not isinstance(scale, float | torch.Tensor):
        scale = read_scale(scale)
    pairs = [[one, one] if isinstance(one, int) else list(one) for one in (stride, padding, dilation)]
    factor = 1.0 if residual is None else float(beta)
    more = (bias, scale, *pairs, groups, activation, out_dtype, residual, factor, accumulation)
    overload = "tensor_scale" if isinstance(scale, torch.Tensor) else "default"
    if out is None:
        result: torch.Tensor = getattr(_ops.conv2d, overload)(x, w, *more)
        return result
    getattr(_ops.conv2d_out, overload)(x, w, *more, out=out)
    return out


def _compute(x: torch.Tensor, w: torch.Tensor, *given: Any, **more: Any) -> torch.Tensor:
    result: torch.Tensor = tilekit.conv2d(x, w, **_keywords(given), **more)
    return result


def _compute_out(x: torch.Tensor, w: torch.Tensor, *given: Any, out: torch.Tensor) -> None:
    tilekit.conv2d(x, w, **_keywords(given), out=out)


def _keywords(given: tuple[Any, ...]) -> dict[str, Any]:
    """What a call has of the operators' arguments behind `x` and `w`; the others have their usual values."""
    return dict(zip(_NAMES, given, strict=False))


def _fake(x: torch.Tensor, w: torch.Tensor, *given: Any, out: torch.Tensor | None = None) -> torch.Tensor:
    tensors: dict[str, Any] = {name: _fake_view(value, name) for name, value in _keywords(given).items()}
    if out is not None:
        tensors["out"] = view_of_fake(out, "out")
    shape, dtype = conv2d_result_of(view_of_fake(x, "x"), view_of_fake(w, "w"), **tensors)
    return x.new_empty(shape, dtype=getattr(torch, dtype.long_name)).permute(0, 3, 1, 2)


def _fake_out(x: torch.Tensor, w: torch.Tensor, *given: Any, out: torch.Tensor) -> None:
    _fake(x, w, *given, out=out)


def _fake_view(given: Any, name: str) -> ArrayView | Any:
    return view_of_fake(given, name) if isinstance(given, torch.Tensor) else given


def _refuse_gradients(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    for name, needed in zip(("x", "w", *_NAMES), ctx.needs_input_grad, strict=False):
        if needed:
            raise ArgumentError(
                f"{name} requires a gradient: tilekit's convolutions have none. To train, call "
                f"torch.nn.functional.conv2d; else pass {name}.detach(), or call under torch.no_grad()",
                code="TK-TORCH-001",
            )


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[None, ...]:
    raise AssertionError("a call that needs a gradient is refused")


_library = _registry.Library("tilekit", "FRAGMENT")
"""The registrations; they hold as long as this object."""


def _register() -> None:
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)
    rest = (
        "int[2] stride=1, int[2] padding=0, int[2] dilation=1, int groups=1, str? activation=None, "
        'ScalarType? out_dtype=None, Tensor? residual=None, float beta=1.0, str accumulation="fast"'
    )
    for overload, scale in (
        ("", "Tensor? bias=None, float? scale=None"),
        (".tensor_scale", "Tensor? bias, Tensor scale"),
    ):
        name, arguments = f"conv2d{overload}", f"Tensor x, Tensor w, {scale}, {rest}"
        _library.define(f"{name}({arguments}) -> Tensor", tags=tags)
        _library.define(f"conv2d_out{overload}({arguments}, *, Tensor(a!) out) -> ()", tags=tags)
        for device in ("CPU", "CUDA"):
            _library.impl(name, _compute, device)
            _library.impl(f"conv2d_out{overload}", _compute_out, device)
        _registry.register_fake(f"tilekit::{name}", _fake, lib=_library)
        _registry.register_fake(f"tilekit::conv2d_out{overload}", _fake_out, lib=_library)
        _registry.register_autograd(f"tilekit::{name}", _backward, setup_context=_refuse_gradients, lib=_library)


_register()
