"""`tilekit.grouped_matmul` as torch operators, for eager code, `torch.compile` and `torch.export`.

There are no gradients.
"""

from __future__ import annotations

from typing import Any

import torch

import tilekit
from tilekit.arrays import view_of_fake
from tilekit.calls.grouped import GroupedKeywords, grouped_result_of
from tilekit.epilogue.functions import Activation
from tilekit.errors import ArgumentError
from tilekit.torch_arguments import read_values, require_tensors, torch_type

__all__ = ["grouped_matmul"]

_registry: Any = torch.library
_compiler: Any = torch.compiler
_ops: Any = torch.ops.tilekit

_TENSORS = ("a", "b", "ends", "counts", "scale_a", "scale_b")


def grouped_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    ends: torch.Tensor | None = None,
    *,
    counts: torch.Tensor | None = None,
    scale_a: torch.Tensor | None = None,
    scale_b: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    activation: Activation | None = None,
    epilogue: Any = None,
    out_dtype: Any = None,
) -> Any:
    """Return ``activation(a @ b)`` of groups of rows, each times a matrix of its own, for torch's compilers.

    Parameters
    ----------
    a, b : torch.Tensor
        (M, K), or with `counts` (G, R, K); and (G, K, N).
    ends, counts : torch.Tensor
        One of them, G int32: one past each group's last row, or how many of its R rows are computed.
    scale_a, scale_b, activation, out_dtype
        As for `tilekit.grouped_matmul`.
    out : torch.Tensor, optional
        Where to write; rows of no group keep what they held.
    epilogue : optional
        A Python function that `tilekit.epilogue` marks, called with its operands. Compilers do not look into such a
        call.

    Returns
    -------
    torch.Tensor
        (M, N) or (G, R, N), whose rows of no group are not initialised; `out` itself if that was given.

    Raises
    ------
    ArgumentError
        As `tilekit.grouped_matmul` does, for tensors without memory too. ``TK-TORCH-001`` where a gradient is asked
        for.
    """
    others = {"ends": ends, "counts": counts, "scale_a": scale_a, "scale_b": scale_b}
    if epilogue is None:
        require_tensors({"a": a, "b": b}, others | {"out": out})
    if out_dtype is not None and not isinstance(out_dtype, torch.dtype):
        out_dtype = torch_type(out_dtype)
    if epilogue is not None:
        how = {"activation": activation, "epilogue": epilogue, "out": out, "out_dtype": out_dtype}
        return _with_epilogue(a, b, **others, **how)
    given = read_values(GroupedKeywords, activation=activation)
    more = (*others.values(), given["activation"], out_dtype)
    if out is None:
        result: torch.Tensor = _ops.grouped_matmul(a, b, *more)
        return result
    _ops.grouped_matmul_out(a, b, *more, out=out)
    return out


@_compiler.disable  # type: ignore[untyped-decorator]
def _with_epilogue(a: torch.Tensor, b: torch.Tensor, **keywords: Any) -> Any:
    """A product with a Python epilogue, which is no operator of torch's."""
    return tilekit.grouped_matmul(a, b, **keywords)


def _read(given: tuple[Any, ...]) -> dict[str, Any]:
    """The operators' arguments by name."""
    return dict(zip((*_TENSORS, "activation", "out_dtype"), given, strict=False))


def _compute(*given: Any, **more: Any) -> torch.Tensor:
    result: torch.Tensor = tilekit.grouped_matmul(**_read(given), **more)
    return result


def _compute_out(*given: Any, out: torch.Tensor) -> None:
    _compute(*given, out=out)


def _fake(*given: Any, out: torch.Tensor | None = None) -> torch.Tensor:
    read = _read(given) | {"out": out}
    views = {name: view_of_fake(one, name) for name, one in read.items() if isinstance(one, torch.Tensor)}
    shape, dtype = grouped_result_of(**read | views)
    return torch.empty(shape, dtype=getattr(torch, dtype.long_name), device=given[0].device)


def _fake_out(*given: Any, out: torch.Tensor) -> None:
    _fake(*given, out=out)


def _refuse_gradients(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    for name, needed in zip(_TENSORS, ctx.needs_input_grad, strict=False):
        if needed:
            raise ArgumentError(
                f"{name} requires a gradient: grouped_matmul has none; pass {name}.detach(), or call under "
                "torch.no_grad()",
                code="TK-TORCH-001",
            )


def _backward(ctx: Any, *grads: torch.Tensor) -> tuple[None, ...]:
    raise AssertionError("a call that needs a gradient is refused")


_library = _registry.Library("tilekit", "FRAGMENT")
"""The registrations; they hold as long as this object."""


def _register() -> None:
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)
    optional = ", ".join(f"Tensor? {name}=None" for name in _TENSORS[2:])
    arguments = f"Tensor a, Tensor b, {optional}, str? activation=None, ScalarType? out_dtype=None"
    _library.define(f"grouped_matmul({arguments}) -> Tensor", tags=tags)
    _library.define(f"grouped_matmul_out({arguments}, *, Tensor(a!) out) -> ()", tags=tags)
    for device in ("CPU", "CUDA"):
        _library.impl("grouped_matmul", _compute, device)
        _library.impl("grouped_matmul_out", _compute_out, device)
    _registry.register_fake("tilekit::grouped_matmul", _fake, lib=_library)
    _registry.register_fake("tilekit::grouped_matmul_out", _fake_out, lib=_library)
    _registry.register_autograd("tilekit::grouped_matmul", _backward, setup_context=_refuse_gradients, lib=_library)


_register()
