"""What torch's operators ask of a call before torch does: that tensors are tensors, and numbers numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tilekit.annotations import checked_values
from tilekit.arrays import has_tangent
from tilekit.dtypes import as_dtype
from tilekit.errors import ArgumentError

_compiler: Any = torch.compiler
_SPARSE: Any = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
_Symbol: Any = (torch.SymInt, torch.SymFloat, torch.SymBool)


def _named_type(what: Any) -> Any:
    return getattr(torch, as_dtype(what, "out_dtype").long_name)


torch_type = _compiler.assume_constant_result(_named_type)
"""The torch type that a name or another library's type stands for: a constant to a compiler, not code to trace."""


def require_tensors(needed: Mapping[str, Any], others: Mapping[str, Any], scale: Any = None) -> None:
    """Refuse what is no tensor, and overrides none of torch's functions either, as a tracer's proxy does.

    A tensor with a tangent is refused too: below the dispatcher it would be lost, and count as zero.

    Parameters
    ----------
    needed, others
        Arguments by name: those that a call must have, and those that may be None.
    scale
        One that may be a tensor or a number; what else it may not be is asked later.

    Raises
    ------
    ArgumentError
        ``TK-TORCH-003``, or ``TK-TORCH-001`` for a tangent, naming the first.
    """
    for arguments, legal in ((needed, "a torch.Tensor"), (others, "a torch.Tensor or None")):
        for name, value in arguments.items():
            if value is None and arguments is others:
                continue
            if isinstance(value, torch.Tensor):
                if value.layout in _SPARSE:
                    raise ArgumentError(
                        f"{name} is a tensor of layout {value.layout}; legal: a dense one; nearest: {name}.to_dense()",
                        code="TK-TORCH-003",
                    )
                _require_no_tangent(name, value)
                continue
            kind = type(value)
            if not hasattr(kind, "__torch_function__"):
                raise ArgumentError(
                    f"{name} is a {kind.__module__}.{kind.__qualname__}; legal: {legal} (torch.as_tensor makes one of "
                    f"an array; the calls of `tilekit` itself take arrays of any library)",
                    code="TK-TORCH-003",
                )
    if isinstance(scale, torch.Tensor):
        _require_no_tangent("scale", scale)


def _require_no_tangent(name: str, tensor: torch.Tensor) -> None:
    if not _compiler.is_dynamo_compiling() and has_tangent(tensor):
        raise ArgumentError(
            f"{name} has a tangent of forward-mode differentiation, for which tilekit's operators have no formula; "
            f"pass {name}.detach(), or differentiate backwards",
            code="TK-TORCH-001",
        )


def read_values(keywords: Callable[..., Any], **given: Any) -> dict[str, Any]:
    """Return numbers, truths and words in the types that torch's operators take, NumPy's as Python's.

    Parameters
    ----------
    keywords
        The TypedDict that says what each may be.
    given
        Arguments by name. Those of a call that a compiler traces, and a tracer's symbols, are left as they are.

    Raises
    ------
    ArgumentError
        As the call of `tilekit` does.
    """
    if _compiler.is_compiling():
        return given
    known = {name: value for name, value in given.items() if not isinstance(value, _Symbol)}
    return given | checked_values(keywords, known)
