"""tilekit as torch operators, for eager code, `torch.compile` and `torch.export`: products and convolutions.

Importing this module registers ``torch.ops.tilekit.matmul`` and ``matmul_out`` with everything that torch's compilers
ask of an operator: shapes without memory, the exact strides they may rely on, and gradients of the plain product.
CUDA tensors go to `tilekit.matmul` in their current stream. CPU tensors go to the emulator, which is exact and slow: it
is there for tests, on matrices of a few hundred rows.

Each operator has an overload for a scale that is a number (``default``) and for one that is a tensor
(``tensor_scale``). The gradients are products of the same kernels. They exist for 16-bit operands without an
activation and without scales of rows and columns; where one is asked for that does not exist, the call is refused and
nothing is computed wrongly in silence.
"""

from __future__ import annotations

import math
from typing import Any

import torch

import tilekit
from tilekit.arrays import ArrayView, view_of_fake
from tilekit.calls.matmul import again, result_of
from tilekit.dtypes import as_dtype
from tilekit.epilogue.functions import Activation
from tilekit.errors import ArgumentError
from tilekit.kernels.epilogue_arguments import read_scale
from tilekit.kernels.matmul.spec import Accumulation
from tilekit.tile_io.tma import TMA_ALIGNMENT
from tilekit.torch_arguments import require_tensors, torch_type
from tilekit.torch_attention import attention, scaled_dot_product_attention, sdpa
from tilekit.torch_conv import conv2d
from tilekit.torch_groups import grouped_matmul
from tilekit.torch_packed_attention import packed_attention
from tilekit.torch_scaled import scaled_matmul, scaled_matmul_quantised

__all__ = [
    "attention",
    "conv2d",
    "grouped_matmul",
    "linear",
    "matmul",
    "packed_attention",
    "scaled_dot_product_attention",
    "scaled_matmul",
    "scaled_matmul_quantised",
    "sdpa",
]

_FAST: Accumulation = "fast"
_compiler: Any = torch.compiler
_registry: Any = torch.library
_C: Any = torch._C
_forward_ad: Any = torch.autograd.forward_ad


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    activation: Activation | None = None,
    scale: float | torch.Tensor | None = None,
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    beta: float = 1.0,
    epilogue: Any = None,
    out_dtype: Any = None,
    accumulation: Accumulation = "fast",
) -> Any:
    """Return ``activation(scale * scale_a * (a @ b) * scale_b + bias + beta * residual)``, for torch's compilers.

    Parameters
    ----------
    a, b : torch.Tensor
        Matrices (M, K) and (K, N), or batches (B, M, K) and (B, K, N) of which one may have B = 1; types and layouts as
        for `tilekit.matmul`.
    out : torch.Tensor, optional
        Where to write. Gradients are not recorded through it.
    bias : torch.Tensor, optional
        N values of bf16, f16 or f32, added to every row.
    activation : str, optional
        ``"relu"``, ``"gelu"`` (tanh form) or ``"silu"``.
    scale : float or torch.Tensor, optional
        A number, or one f32, which stays on the device.
    scale_a, scale_b : torch.Tensor, optional
        One f32 a row, (M,) or (M, 1), and one a column, (N,) or (1, N); of batches also with a leading B.
    residual : torch.Tensor, optional
        Like the result, of its type; times `beta`, a number. It may be `out`.
    epilogue : optional
        A Python function that `tilekit.epilogue` marks, called with its operands, in place of all of these. Compilers
        do not look into such a call, and it has no gradients.
    out_dtype : torch.dtype or whatever `tilekit.dtypes.as_dtype` takes, optional
        bf16, f16, f32, e4m3 or e5m2: by default that of `out`, else that of `a`, else bf16 for fp8.
    accumulation : str, optional
        Of 8-bit operands on sm_90a: ``"fast"``, as ``use_fast_accum=True`` of `torch._scaled_mm`, or ``"promoted"``, as
        False, torch's default.

    Returns
    -------
    torch.Tensor
        (M, N) or (B, M, N), C-contiguous; `out` itself if that was given.

    Raises
    ------
    ArgumentError
        As `tilekit.matmul` does, for tensors without memory too. ``TK-TORCH-001`` where a gradient is asked for that
        has no formula.
    """
    bare = scale is None and scale_a is None and scale_b is None and residual is None and epilogue is None
    usual = not _compiler.is_dynamo_compiling() and bare and out_dtype is None and accumulation is _FAST
    if usual and _own(a) and _own(b) and (out is None or _own(out)) and (bias is None or _own(bias)) and not _watched():
        launched, found, _, _ = again(a, b, out, bias, activation)
        if launched:  # as it was before, so these need neither the dispatcher nor a check
            return found
    tensors = {"out": out, "bias": bias, "scale_a": scale_a, "scale_b": scale_b, "residual": residual}
    if epilogue is None:
        require_tensors({"a": a, "b": b}, tensors, scale)
    if out_dtype is not None and not isinstance(out_dtype, torch.dtype):
        out_dtype = torch_type(out_dtype)
    if epilogue is not None:
        given = {"bias": bias, "activation": activation, "scale": scale, "scale_a": scale_a, "scale_b": scale_b}
        given |= {"out_dtype": out_dtype, "accumulation": accumulation, "residual": residual, "beta": beta}
        return _with_epilogue(a, b, out=out, epilogue=epilogue, **given)
    if scale is not None and not isinstance(scale, float | torch.Tensor):
        scale = read_scale(scale)
    # A default in a signature is a number that a compiler would make a variable; one in the code is a constant.
    factor = 1.0 if residual is None else float(beta)
    more = (bias, scale, activation, out_dtype, scale_a, scale_b, residual, factor, accumulation)
    if not _compiler.is_compiling() and _alone(a, b, out, bias, scale, scale_a, scale_b, residual):
        if out is None:
            return _compute(a, b, *more)
        _compute_out(a, b, *more, out=out)
        return out
    if out is None:
        op = _ops.matmul.tensor_scale if isinstance(scale, torch.Tensor) else _ops.matmul.default
        result: torch.Tensor = op(a, b, *more)
        return result
    op = _ops.matmul_out.tensor_scale if isinstance(scale, torch.Tensor) else _ops.matmul_out.default
    op(a, b, *more, out=out)
    return out


def _own(tensor: Any) -> bool:
    """Whether a tensor is of a class of torch's own, which no ``__torch_function__`` overrides."""
    return type(tensor) is torch.Tensor or type(tensor) is torch.nn.Parameter


def _watched() -> bool:
    """Whether one of torch's modes, transforms or tracers must see what is called."""
    return (
        _C._len_torch_dispatch_stack() > 0
        or _C._len_torch_function_stack() > 0
        or _C._get_tracing_state() is not None
        or _C._functorch.peek_interpreter_stack() is not None
        or _forward_ad._current_level >= 0
    )


def _alone(*given: Any) -> bool:
    """Whether an operator's kernel is all that a call would come to, so that it can be called without the operator.

    That takes plain tensors with memory and without a gradient to record, and none of torch's modes, transforms or
    tracers. The dispatcher costs several times what the kernel's own call does.
    """
    if _watched():
        return False
    records = torch.is_grad_enabled()
    for tensor in given:
        if tensor is None or type(tensor) is float:
            continue
        if not _own(tensor):
            return False
        if (records and tensor.requires_grad) or tensor.is_neg() or not (tensor.is_cuda or tensor.is_cpu):
            return False
    return True


@_compiler.disable  # type: ignore[untyped-decorator]
def _with_epilogue(a: torch.Tensor, b: torch.Tensor, **keywords: Any) -> Any:
    """A product with a Python epilogue, which is no operator of torch's."""
    return tilekit.matmul(a, b, **keywords)


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: Activation | None = None,
    *,
    scale: float | torch.Tensor | None = None,
    out_dtype: Any = None,
) -> torch.Tensor:
    """Return ``activation(scale * (x @ weight.T) + bias)``, as `torch.nn.functional.linear` lays its operands out.

    Parameters
    ----------
    x : torch.Tensor
        (..., K). Its leading dimensions are read as rows, without a copy where their strides allow.
    weight : torch.Tensor
        (N, K), read where it lies.
    bias, activation, scale, out_dtype
        As for `matmul`.

    Returns
    -------
    torch.Tensor
        (..., N).

    Raises
    ------
    ArgumentError
        ``TK-TORCH-002`` where the shapes do not fit; otherwise what `matmul` raises, in which `a` is the rows of `x`
        and `b` is ``weight.T``.
    """
    if not (isinstance(x, torch.Tensor) and isinstance(weight, torch.Tensor)):  # asked here, since it takes 0.9 us
        require_tensors({"x": x, "weight": weight}, {})
    if x.dim() < 1 or weight.dim() != 2 or x.shape[-1] != weight.shape[1]:
        raise ArgumentError(
            f"x has shape {tuple(x.shape)} and weight has shape {tuple(weight.shape)}: linear takes (..., K) and "
            "(N, K), as torch.nn.functional.linear does",
            code="TK-TORCH-002",
        )
    rows = x if x.dim() == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    out = matmul(rows, weight.T, bias=bias, activation=activation, scale=scale, out_dtype=out_dtype)
    return out if x.dim() == 2 else out.view(*x.shape[:-1], weight.shape[0])


def _compute(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    scale: float | torch.Tensor | None = None,
    activation: Activation | None = None,
    out_dtype: torch.dtype | None = None,
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    beta: float = 1.0,
    accumulation: Accumulation = "fast",
) -> torch.Tensor:
    result: torch.Tensor = tilekit.matmul(
        a,
        b,
        bias=bias,
        activation=activation,
        scale=scale,
        scale_a=scale_a,
        scale_b=scale_b,
        residual=residual,
        beta=beta,
        out_dtype=out_dtype,
        accumulation=accumulation,
    )
    return result


def _compute_out(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    scale: float | torch.Tensor | None = None,
    activation: Activation | None = None,
    out_dtype: torch.dtype | None = None,
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    beta: float = 1.0,
    accumulation: Accumulation = "fast",
    *,
    out: torch.Tensor,
) -> None:
    tilekit.matmul(
        a,
        b,
        out=out,
        bias=bias,
        activation=activation,
        scale=scale,
        scale_a=scale_a,
        scale_b=scale_b,
        residual=residual,
        beta=beta,
        out_dtype=out_dtype,
        accumulation=accumulation,
    )


def _fake(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    scale: float | torch.Tensor | None = None,
    activation: Activation | None = None,
    out_dtype: torch.dtype | None = None,
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    beta: float = 1.0,
    accumulation: Accumulation = "fast",
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    shape, dtype = result_of(
        view_of_fake(a, "a"),
        view_of_fake(b, "b"),
        out=_fake_view(out, "out"),
        bias=_fake_view(bias, "bias"),
        activation=activation,
        scale=_fake_view(scale, "scale"),
        scale_a=_fake_view(scale_a, "scale_a"),
        scale_b=_fake_view(scale_b, "scale_b"),
        residual=_fake_view(residual, "residual"),
        out_dtype=out_dtype,
        accumulation=accumulation,
    )
    return a.new_empty(shape, dtype=getattr(torch, dtype.long_name))


def _fake_out(*arguments: Any, out: torch.Tensor) -> None:
    _fake(*arguments, out=out)


def _fake_view(given: Any, name: str) -> ArrayView | float | None:
    return view_of_fake(given, name) if isinstance(given, torch.Tensor) else given


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    a, b, bias, scale, activation, _, *more = inputs
    scale_a, scale_b, residual, beta, _ = more
    names = ("a", "b", "bias", "scale", "activation", "out_dtype", "scale_a", "scale_b", "residual")
    scaled = scale_a is not None or scale_b is not None
    for name, needed in zip(names, ctx.needs_input_grad, strict=False):
        if needed:
            _require_formula(name, a, b, activation, scaled)
    ctx.save_for_backward(a, b, scale if isinstance(scale, torch.Tensor) else None)
    ctx.scale = None if isinstance(scale, torch.Tensor) else scale
    ctx.bias_dtype = None if bias is None else bias.dtype
    ctx.residual = None if residual is None else (residual.shape, residual.dtype, beta)


def _require_formula(name: str, a: torch.Tensor, b: torch.Tensor, activation: str | None, scaled: bool) -> None:
    way_out = f"pass {name}.detach(), or call under torch.no_grad()"
    if name.startswith("scale"):
        reason = f"tilekit has no gradient of {name}"
    elif activation is not None:
        reason = f"activation={activation!r} has no gradient; apply torch's activation to the plain product"
        way_out += " if none is needed"
    elif scaled and name in ("a", "b"):
        reason = "a product with scale_a or scale_b has no gradient; apply them to the plain product"
        way_out += " if none is needed"
    elif a.element_size() == 1 or b.element_size() == 1:
        reason = f"the product of {as_dtype(a.dtype)} and {as_dtype(b.dtype)} has no gradient"
    else:
        return
    raise ArgumentError(f"{name} requires a gradient: {reason}; {way_out}", code="TK-TORCH-001")


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    a, b, scale = ctx.saved_tensors
    if scale is None:
        scale = ctx.scale
    of_a, of_b, *rest = ctx.needs_input_grad  # as far as arguments were given
    grad_a = grad_b = grad_bias = grad_residual = None
    if any(rest[6:7]):
        shape, dtype, beta = ctx.residual
        grad_residual = (grad.float() * beta).sum_to_size(shape).to(dtype)
    if any(rest[:1]):
        grad_bias = grad.sum(dim=tuple(range(grad.dim() - 1)), dtype=torch.float32).to(ctx.bias_dtype)
    if of_a or of_b:
        readable, batch = _readable(grad.to(a.dtype)), grad.shape[:-2]
        if of_a:
            grad_a = _product(readable, b.mT, a, batch, scale)
        if of_b:
            grad_b = _product(a.mT, readable, b, batch, scale)
    return grad_a, grad_b, grad_bias, None, None, None, None, None, grad_residual, None, None


def _readable(grad: torch.Tensor) -> torch.Tensor:
    """Lay a gradient out as the copy engine needs an operand: rows contiguous, each at a multiple of 16 bytes."""
    unit = TMA_ALIGNMENT // grad.element_size()
    columns = grad.shape[-1]
    if columns % unit:
        return torch.nn.functional.pad(grad, (0, -columns % unit))[..., :columns]
    return grad.contiguous() if grad.storage_offset() % unit == 0 else grad.clone(memory_format=torch.contiguous_format)


def _product(left: torch.Tensor, right: torch.Tensor, of: torch.Tensor, batch: torch.Size, scale: Any) -> torch.Tensor:
    """``scale * (left @ right)`` in shape and type of the operand `of`; batches that shared it are summed in f32."""
    if of.shape[:-2] == batch:
        return matmul(left, right, scale=scale, out_dtype=of.dtype)
    return matmul(left, right, scale=scale, out_dtype=torch.float32).sum_to_size(of.shape).to(of.dtype)


_library = _registry.Library("tilekit", "DEF")
"""The registrations; they hold as long as this object."""

_ops: Any = torch.ops.tilekit


def _register() -> None:
    # Inductor must keep the strides that the fake operator has checked: which layouts an operand may have depends on
    # them.
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)
    for overload, scale in (
        ("", "Tensor? bias=None, float? scale=None"),
        (".tensor_scale", "Tensor? bias, Tensor scale"),
    ):
        arguments = (
            f"Tensor a, Tensor b, {scale}, str? activation=None, ScalarType? out_dtype=None, Tensor? scale_a=None, "
            'Tensor? scale_b=None, Tensor? residual=None, float beta=1.0, str accumulation="fast"'
        )
        _library.define(f"matmul{overload}({arguments}) -> Tensor", tags=tags)
        _library.define(f"matmul_out{overload}({arguments}, *, Tensor(a!) out) -> ()", tags=tags)
        for device in ("CPU", "CUDA"):
            _library.impl(f"matmul{overload}", _compute, device)
            _library.impl(f"matmul_out{overload}", _compute_out, device)
        _registry.register_fake(f"tilekit::matmul{overload}", _fake, lib=_library)
        _registry.register_fake(f"tilekit::matmul_out{overload}", _fake_out, lib=_library)
        _registry.register_autograd(
            f"tilekit::matmul{overload}", _backward, setup_context=_save_for_backward, lib=_library
        )


_register()
