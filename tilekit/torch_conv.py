"""`tilekit.conv2d` as torch operators, for eager code, `torch.compile` and `torch.export`; `tilekit.torch` has it.

As the operators of `tilekit.torch`, with an overload for a scale that is a tensor. Results lie in ``channels_last``
memory. Gradients are operators too, of images, filters, bias and residual; where an activation is fused, of 8-bit
operands and of a scale there are none, and the call is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import tilekit
from tilekit.arrays import ArrayView, view_of_fake
from tilekit.calls.conv2d import conv2d_result_of
from tilekit.dtypes import as_dtype
from tilekit.epilogue.functions import Activation
from tilekit.errors import ArgumentError
from tilekit.kernels.conv2d.arguments import ConvKeywords
from tilekit.kernels.conv2d.axes import read_ways
from tilekit.kernels.epilogue_arguments import read_scale
from tilekit.kernels.matmul.spec import Accumulation
from tilekit.torch_arguments import read_values, require_tensors, torch_type

__all__ = ["conv2d"]

_registry: Any = torch.library
_compiler: Any = torch.compiler
_ops: Any = torch.ops.tilekit

_NAMES = (
    *("bias", "scale", "stride", "padding", "dilation", "groups"),
    *("activation", "out_dtype", "residual", "beta", "accumulation"),
)

_WAYS = ("stride", "padding", "dilation", "groups")


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
    epilogue: Any = None,
    out_dtype: Any = None,
    accumulation: Accumulation = "fast",
) -> Any:
    """Return ``activation(scale * conv(x, w) + bias + beta * residual)``, in the order of `torch.nn.functional.conv2d`.

    Parameters
    ----------
    x, w : torch.Tensor
        (N, C, H, W) and (K, C / groups, R, S), both in ``channels_last`` memory; they are read where they lie.
    bias, stride, padding, dilation, groups, activation, scale, residual, beta, out_dtype, accumulation
        As for `tilekit.conv2d`.
    out : torch.Tensor, optional
        Where to write, (N, K, P, Q) in ``channels_last`` memory.
    epilogue : optional
        A Python function that `tilekit.epilogue` marks, called with its operands, in place of bias, activation, scale
        and residual. Compilers do not look into such a call, and it has no gradients.

    Returns
    -------
    torch.Tensor
        (N, K, P, Q) in ``channels_last`` memory; `out` itself if that was given.

    Raises
    ------
    ArgumentError
        As `tilekit.conv2d` does, for tensors without memory too. ``TK-TORCH-001`` where a gradient is asked for that
        has no formula.
    """
    if epilogue is None:
        require_tensors({"x": x, "w": w}, {"bias": bias, "residual": residual, "out": out}, scale)
    if out_dtype is not None and not isinstance(out_dtype, torch.dtype):
        out_dtype = torch_type(out_dtype)
    if epilogue is not None:
        how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "bias": bias}
        how |= {
            "activation": activation,
            "scale": scale,
            "residual": residual,
            "beta": beta,
            "accumulation": accumulation,
        }
        return _with_epilogue(x, w, out=out, epilogue=epilogue, out_dtype=out_dtype, **how)
    if scale is not None and not isinstance(scale, float | torch.Tensor):
        scale = read_scale(scale)
    ways_given = {"stride": stride, "padding": padding, "dilation": dilation}
    pairs = [list(pair) for pair in read_ways(ways_given, w.shape[2:] if w.dim() == 4 else (1, 1))]
    given = read_values(ConvKeywords, groups=groups, activation=activation, beta=beta, accumulation=accumulation)
    factor = 1.0 if residual is None else float(given["beta"])
    ways = (*pairs, given["groups"], given["activation"], out_dtype)
    more = (bias, scale, *ways, residual, factor, given["accumulation"])
    overload = "tensor_scale" if isinstance(scale, torch.Tensor) else "default"
    if out is None:
        result: torch.Tensor = getattr(_ops.conv2d, overload)(x, w, *more)
        return result
    getattr(_ops.conv2d_out, overload)(x, w, *more, out=out)
    return out


@_compiler.disable  # type: ignore[untyped-decorator]
def _with_epilogue(x: torch.Tensor, w: torch.Tensor, **keywords: Any) -> Any:
    """A convolution with a Python epilogue, which is no operator of torch's."""
    return tilekit.conv2d(x, w, **keywords)


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


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, w, given = inputs[0], inputs[1], _keywords(inputs[2:])
    for name, needed in zip(("x", "w", *_NAMES), ctx.needs_input_grad, strict=False):
        if needed:
            _require_formula(name, x, w, given.get("activation"))
    bias, residual, scale = (given.get(name) for name in ("bias", "residual", "scale"))
    ctx.save_for_backward(x, w, scale if isinstance(scale, torch.Tensor) else None)
    ctx.scale = None if isinstance(scale, torch.Tensor) else scale
    usual: tuple[Any, ...] = ([1, 1], [0, 0], [1, 1], 1)
    ctx.how = [given.get(name, value) for name, value in zip(_WAYS, usual, strict=True)]
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.residual = None if residual is None else (residual.dtype, given.get("beta", 1.0))


def _require_formula(name: str, x: torch.Tensor, w: torch.Tensor, activation: str | None) -> None:
    way_out = f"pass {name}.detach(), or call under torch.no_grad()"
    if name == "scale":
        reason = "tilekit has no gradient of scale"
    elif activation is not None:
        reason = f"activation={activation!r} has no gradient; apply torch's activation to the plain convolution"
        way_out += " if none is needed"
    elif x.element_size() == 1:
        reason = f"the convolution of {as_dtype(x.dtype)} and {as_dtype(w.dtype)} has no gradient"
    else:
        return
    raise ArgumentError(f"{name} requires a gradient: {reason}; {way_out}", code="TK-TORCH-001")


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    x, w, scale = ctx.saved_tensors
    scale = ctx.scale if scale is None else scale
    of_x, of_w, *rest = ctx.needs_input_grad  # as far as arguments were given
    needed = dict(zip(_NAMES, rest, strict=False))
    found: dict[str, torch.Tensor] = {}
    if needed.get("bias"):
        found["bias"] = grad.sum(dim=(0, 2, 3), dtype=torch.float32).to(ctx.bias_dtype)
    if needed.get("residual"):
        dtype, beta = ctx.residual
        found["residual"] = (grad.float() * beta).to(dtype)
    of_images = of_filters = None
    if of_x or of_w:
        dy = grad.to(x.dtype).contiguous(memory_format=torch.channels_last)
        overload = "tensor_scale" if isinstance(scale, torch.Tensor) else "default"
        if of_x:
            of_images = getattr(_ops.conv2d_input_gradient, overload)(dy, w, list(x.shape[2:]), scale, *ctx.how)
        if of_w:
            of_filters = getattr(_ops.conv2d_weight_gradient, overload)(x, dy, list(w.shape[2:]), scale, *ctx.how)
    return (of_images, of_filters, *(found.get(name) for name in _NAMES))


def _input_gradient(dy: torch.Tensor, w: torch.Tensor, extents: list[int], *given: Any) -> torch.Tensor:
    how = dict(zip(("scale", *_WAYS), given, strict=False))
    result: torch.Tensor = tilekit.conv2d_input_gradient(dy, w, extents, **how)
    return result


def _weight_gradient(x: torch.Tensor, dy: torch.Tensor, taps: list[int], *given: Any) -> torch.Tensor:
    how = dict(zip(("scale", *_WAYS), given, strict=False))
    result: torch.Tensor = tilekit.conv2d_weight_gradient(x, dy, taps, **how)
    return result


def _fake_input_gradient(dy: torch.Tensor, w: torch.Tensor, extents: Any, *given: Any) -> torch.Tensor:
    groups = dict(zip(("scale", *_WAYS), given, strict=False)).get("groups", 1)
    return dy.new_empty((dy.shape[0], *extents, w.shape[1] * groups)).permute(0, 3, 1, 2)


def _fake_weight_gradient(x: torch.Tensor, dy: torch.Tensor, taps: Any, *given: Any) -> torch.Tensor:
    groups = dict(zip(("scale", *_WAYS), given, strict=False)).get("groups", 1)
    return x.new_empty((dy.shape[1], *taps, x.shape[1] // groups)).permute(0, 3, 1, 2)


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
        _registry.register_autograd(f"tilekit::{name}", _backward, setup_context=_save_for_backward, lib=_library)
    ways = "int[2] stride=1, int[2] padding=0, int[2] dilation=1, int groups=1"
    for name, tensors, compute, fake in (
        ("conv2d_input_gradient", "Tensor dy, Tensor w, int[2] extents", _input_gradient, _fake_input_gradient),
        ("conv2d_weight_gradient", "Tensor x, Tensor dy, int[2] taps", _weight_gradient, _fake_weight_gradient),
    ):
        for overload, scale in (("", "float? scale=None"), (".tensor_scale", "Tensor scale")):
            _library.define(f"{name}{overload}({tensors}, {scale}, {ways}) -> Tensor", tags=tags)
            for device in ("CPU", "CUDA"):
                _library.impl(f"{name}{overload}", compute, device)
            _registry.register_fake(f"tilekit::{name}{overload}", fake, lib=_library)


_register()
