"""`tilekit.scaled_matmul` as torch operators, for eager code, `torch.compile` and `torch.export`.

As the operators of `tilekit.torch`. There are no gradients: where one is asked for the call is refused.
"""

from __future__ import annotations

from typing import Any

import torch

import tilekit
from tilekit.api import scaled_result_of
from tilekit.arrays import view_of_fake
from tilekit.dtypes import as_dtype
from tilekit.epilogue.functions import Activation
from tilekit.errors import ArgumentError

__all__ = ["scaled_matmul"]

_registry: Any = torch.library
_compiler: Any = torch.compiler
_ops: Any = torch.ops.tilekit

_TENSORS = ("a", "b", "scale_a", "scale_b", "bias")


def _named_type(what: Any) -> Any:
    return getattr(torch, as_dtype(what, "out_dtype").long_name)


_torch_type = _compiler.assume_constant_result(_named_type)


def scaled_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    activation: Activation | None = None,
    out_dtype: Any = None,
) -> torch.Tensor:
    """Return ``activation(a @ b + bias)`` of 8-bit operands, of which blocks of 128 elements of K have scales.

    Parameters
    ----------
    a, b, scale_a, scale_b, bias, activation, out_dtype
        As for `tilekit.scaled_matmul`; scales of A as `torch._scaled_mm` takes them, or row after row.
    out : torch.Tensor, optional
        Where to write, (M, N).

    Returns
    -------
    torch.Tensor
        (M, N); `out` itself if that was given.

    Raises
    ------
    ArgumentError
        As `tilekit.scaled_matmul` does, for tensors without memory too. ``TK-TORCH-001`` where a gradient is asked for.
    """
    if out_dtype is not None and not isinstance(out_dtype, torch.dtype):
        out_dtype = _torch_type(out_dtype)
    given = (a, b, scale_a, scale_b, bias, activation, out_dtype)
    if out is None:
        result: torch.Tensor = _ops.scaled_matmul(*given)
        return result
    _ops.scaled_matmul_out(*given, out=out)
    return out


def _compute(*given: Any, out: torch.Tensor | None = None) -> torch.Tensor:
    result: torch.Tensor = tilekit.scaled_matmul(*given[:4], out=out, **_keywords(given))
    return result


def _keywords(given: tuple[Any, ...]) -> dict[str, Any]:
    """What a call has of the operators' arguments behind the operands; the others have their usual values."""
    return dict(zip(("bias", "activation", "out_dtype"), given[4:], strict=False))


def _compute_out(*given: Any, out: torch.Tensor) -> None:
    _compute(*given, out=out)


def _fake(*given: Any, out: torch.Tensor | None = None) -> torch.Tensor:
    tensors = dict(zip(_TENSORS, given, strict=False)) | {"out": out}
    views: dict[str, Any] = {name: view_of_fake(one, name) for name, one in tensors.items() if one is not None}
    shape, dtype = scaled_result_of(**_keywords(given) | views)
    return given[0].new_empty(shape, dtype=getattr(torch, dtype.long_name))


def _fake_out(*given: Any, out: torch.Tensor) -> None:
    _fake(*given, out=out)


def _refuse_gradients(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    for name, needed in zip(_TENSORS, ctx.needs_input_grad, strict=False):
        if needed:
            raise ArgumentError(
                f"{name} requires a gradient: products with scales of blocks have none; pass {name}.detach(), or call "
                "under torch.no_grad()",
                code="TK-TORCH-001",
            )


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[None, ...]:
    raise AssertionError("a call that needs a gradient is refused")


_library = _registry.Library("tilekit", "FRAGMENT")
"""The registrations; they hold as long as this object."""


def _register() -> None:
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)
    arguments = (
        "Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor? bias=None, str? activation=None, "
        "ScalarType? out_dtype=None"
    )
    _library.define(f"scaled_matmul({arguments}) -> Tensor", tags=tags)
    _library.define(f"scaled_matmul_out({arguments}, *, Tensor(a!) out) -> ()", tags=tags)
    for device in ("CPU", "CUDA"):
        _library.impl("scaled_matmul", _compute, device)
        _library.impl("scaled_matmul_out", _compute_out, device)
    _registry.register_fake("tilekit::scaled_matmul", _fake, lib=_library)
    _registry.register_fake("tilekit::scaled_matmul_out", _fake_out, lib=_library)
    _registry.register_autograd("tilekit::scaled_matmul", _backward, setup_context=_refuse_gradients, lib=_library)


_register()
