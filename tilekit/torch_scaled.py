"""`tilekit.scaled_matmul` as torch operators, for eager code, `torch.compile` and `torch.export`.

As the operators of `tilekit.torch_conv`: with an overload for a scale that is a tensor, and without gradients.
"""

from __future__ import annotations

from typing import Any

import torch

import tilekit
from tilekit.arrays import view_of_fake
from tilekit.calls.scaled import scaled_result_of, scaled_results_of
from tilekit.epilogue.functions import Activation
from tilekit.errors import ArgumentError
from tilekit.kernels.epilogue_arguments import read_scale
from tilekit.kernels.scaled.keywords import ScaledKeywords
from tilekit.tile_op.block_scaled import FORMATS
from tilekit.torch_arguments import read_values, require_tensors, torch_type

__all__ = ["scaled_matmul", "scaled_matmul_quantised"]

_registry: Any = torch.library
_compiler: Any = torch.compiler
_ops: Any = torch.ops.tilekit

_NAMES = ("bias", "scale", "activation", "out_dtype", "residual", "beta")
_QUANTISED_NAMES = ("out_dtype", "bias", "scale", "activation", "out_scale", "scale_layout")


def scaled_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    activation: Activation | None = None,
    scale: float | torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    beta: float = 1.0,
    epilogue: Any = None,
    out_dtype: Any = None,
) -> Any:
    """Return ``activation(scale * (a' @ b') + bias + beta * residual)`` of operands whose parts have scales.

    Parameters
    ----------
    a, b, scale_a, scale_b, bias, activation, scale, residual, beta, out_dtype
        As for `tilekit.scaled_matmul`.
    out : torch.Tensor, optional
        Where to write.
    epilogue : optional
        A Python function that `tilekit.epilogue` marks, called with its operands, in place of bias, activation, scale
        and residual. Compilers do not look into such a call, and it has no gradients.

    Returns
    -------
    torch.Tensor
        (M, N); `out` itself if that was given.

    Raises
    ------
    ArgumentError
        As `tilekit.scaled_matmul` does, for tensors without memory too. ``TK-TORCH-001`` where a gradient is asked
        for.
    """
    needed = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b}
    if epilogue is None:
        require_tensors(needed, {"bias": bias, "residual": residual, "out": out}, scale)
    if out_dtype is not None and not isinstance(out_dtype, torch.dtype):
        out_dtype = torch_type(out_dtype)
    if epilogue is not None:
        how = {"bias": bias, "activation": activation, "scale": scale, "residual": residual, "beta": beta}
        return _with_epilogue(*needed.values(), out=out, epilogue=epilogue, out_dtype=out_dtype, **how)
    if scale is not None and not isinstance(scale, float | torch.Tensor):
        scale = read_scale(scale)
    given = read_values(ScaledKeywords, activation=activation, beta=beta)
    more = (bias, scale, given["activation"], out_dtype, residual, 1.0 if residual is None else float(given["beta"]))
    overload = "tensor_scale" if isinstance(scale, torch.Tensor) else "default"
    if out is None:
        result: torch.Tensor = getattr(_ops.scaled_matmul, overload)(a, b, scale_a, scale_b, *more)
        return result
    getattr(_ops.scaled_matmul_out, overload)(a, b, scale_a, scale_b, *more, out=out)
    return out


@_compiler.disable  # type: ignore[untyped-decorator]
def _with_epilogue(*operands: torch.Tensor, **keywords: Any) -> Any:
    """A product with a Python epilogue, which is no operator of torch's."""
    return tilekit.scaled_matmul(*operands, **keywords)


def scaled_matmul_quantised(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: str,
    *,
    bias: torch.Tensor | None = None,
    activation: Activation | None = None,
    scale: float | torch.Tensor | None = None,
    out_scale: float | None = None,
    scale_layout: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return values and scales of `scaled_matmul`'s result in a block-scaled format.

    Parameters
    ----------
    a, b, scale_a, scale_b, out_dtype, bias, activation, scale, out_scale, scale_layout
        As for `tilekit.scaled_matmul` with ``out_dtype`` ``"mxfp8"``, ``"mxfp4"`` or ``"nvfp4"``.

    Returns
    -------
    tuple of torch.Tensor
        (M, N) of e4m3, or (M, N / 2) pairs of e2m1 as uint8; and (M, ⌈N / block⌉) scales, or with
        ``scale_layout="128x4"`` as `tilekit.lay_out_scales` returns them.

    Raises
    ------
    ArgumentError
        As `scaled_matmul` does.
    """
    require_tensors({"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b}, {"bias": bias}, scale)
    if out_dtype not in FORMATS:
        raise ArgumentError.of("out_dtype", out_dtype, legal=", ".join(FORMATS), nearest="mxfp8", code="TK-SCALE-006")
    if scale is not None and not isinstance(scale, float | torch.Tensor):
        scale = read_scale(scale)
    overload = "tensor_scale" if isinstance(scale, torch.Tensor) else "default"
    operator = getattr(_ops.scaled_matmul_quantised, overload)
    given = read_values(ScaledKeywords, activation=activation, out_scale=out_scale, scale_layout=scale_layout)
    more = (out_dtype, bias, scale, given["activation"], given["out_scale"], given["scale_layout"])
    found: tuple[torch.Tensor, torch.Tensor] = operator(a, b, scale_a, scale_b, *more)
    return found


def _compute_quantised(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:
    operands, keywords = _read(given, _QUANTISED_NAMES)
    found: tuple[torch.Tensor, torch.Tensor] = tilekit.scaled_matmul(*operands, **keywords)
    return found


def _fake_quantised(*given: Any) -> tuple[torch.Tensor, torch.Tensor]:
    operands, keywords = _read(given, _QUANTISED_NAMES)
    layouts, tensors = _layouts(operands, keywords)
    shapes = scaled_results_of(*layouts, **tensors)
    values, scales = (
        torch.empty(shape, dtype=getattr(torch, dtype.long_name), device=operands[0].device) for shape, dtype in shapes
    )
    return values, scales


def _compute(*given: Any, **more: Any) -> torch.Tensor:
    (a, b, scale_a, scale_b), keywords = _read(given)
    result: torch.Tensor = tilekit.scaled_matmul(a, b, scale_a, scale_b, **keywords, **more)
    return result


def _compute_out(*given: Any, out: torch.Tensor) -> None:
    _compute(*given, out=out)


def _read(given: tuple[Any, ...], names: tuple[str, ...] = _NAMES) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The operands of a call, and what it has of the operators' other arguments, so named."""
    return given[:4], dict(zip(names, given[4:], strict=False))


def _layouts(operands: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """How the tensors of a call lie, which may have no memory."""
    names = ("a", "b", "scale_a", "scale_b")
    views = [view_of_fake(one, name) for one, name in zip(operands, names, strict=True)]
    return views, {
        name: view_of_fake(value, name) if isinstance(value, torch.Tensor) else value
        for name, value in keywords.items()
    }


def _fake(*given: Any, out: torch.Tensor | None = None) -> torch.Tensor:
    operands, keywords = _read(given)
    layouts, tensors = _layouts(operands, keywords | {"out": out})
    shape, dtype = scaled_result_of(*layouts, **tensors)
    return torch.empty(shape, dtype=getattr(torch, dtype.long_name), device=operands[0].device)


def _fake_out(*given: Any, out: torch.Tensor) -> None:
    _fake(*given, out=out)


def _refuse_gradients(ctx: Any, inputs: tuple[Any, ...], output: Any, names: tuple[str, ...] = _NAMES) -> None:
    for name, needed in zip(("a", "b", "scale_a", "scale_b", *names), ctx.needs_input_grad, strict=False):
        if needed:
            raise ArgumentError(
                f"{name} requires a gradient: scaled_matmul has none; pass {name}.detach(), or call under "
                "torch.no_grad()",
                code="TK-TORCH-001",
            )


def _refuse_gradients_of_quantised(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _refuse_gradients(ctx, inputs, output, _QUANTISED_NAMES)


def _backward(ctx: Any, *grads: torch.Tensor) -> tuple[None, ...]:
    raise AssertionError("a call that needs a gradient is refused")


_library = _registry.Library("tilekit", "FRAGMENT")
"""The registrations; they hold as long as this object."""


def _register() -> None:
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)
    rest = "str? activation=None, ScalarType? out_dtype=None, Tensor? residual=None, float beta=1.0"
    quantised = "str? activation=None, float? out_scale=None, str? scale_layout=None"
    for overload, scale in (
        ("", "Tensor? bias=None, float? scale=None"),
        (".tensor_scale", "Tensor? bias, Tensor scale"),
    ):
        arguments = f"Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, {scale}, {rest}"
        name = f"scaled_matmul{overload}"
        _library.define(f"{name}({arguments}) -> Tensor", tags=tags)
        _library.define(f"scaled_matmul_out{overload}({arguments}, *, Tensor(a!) out) -> ()", tags=tags)
        for device in ("CPU", "CUDA"):
            _library.impl(name, _compute, device)
            _library.impl(f"scaled_matmul_out{overload}", _compute_out, device)
        _registry.register_fake(f"tilekit::{name}", _fake, lib=_library)
        _registry.register_fake(f"tilekit::scaled_matmul_out{overload}", _fake_out, lib=_library)
        _registry.register_autograd(f"tilekit::{name}", _backward, setup_context=_refuse_gradients, lib=_library)
        name = f"scaled_matmul_quantised{overload}"
        arguments = f"Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, str out_dtype, {scale}, {quantised}"
        _library.define(f"{name}({arguments}) -> (Tensor, Tensor)", tags=tags)
        for device in ("CPU", "CUDA"):
            _library.impl(name, _compute_quantised, device)
        _registry.register_fake(f"tilekit::{name}", _fake_quantised, lib=_library)
        _registry.register_autograd(
            f"tilekit::{name}", _backward, setup_context=_refuse_gradients_of_quantised, lib=_library
        )


_register()
