"""`tilekit.attention` as a torch operator, and in the place of torch's own; `tilekit.torch` has both.

Tensors are (B, H, S, D) as torch has them, in any memory whose heads are contiguous: nothing is copied. The result lies
as (B, S, H, D) does, so that heads are joined without a copy too. CPU tensors go to the emulator.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch

import tilekit
from tilekit.arrays import view_of_fake
from tilekit.calls.attention import attention_result_of
from tilekit.errors import ArgumentError, TilekitError

__all__ = ["attention", "scaled_dot_product_attention", "sdpa"]

_registry: Any = torch.library
_ops: Any = torch.ops.tilekit
_torchs_own: Any = torch.nn.functional.scaled_dot_product_attention

_TYPES = (torch.bfloat16, torch.float16)

_USUAL = {
    "causal": False, "windowed": False, "left": None, "right": None, "scale": None, "softcap": None, "lse": False,
}  # fmt: skip
"""The operator's arguments behind the tensors."""


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    lse: bool = False,
) -> Any:
    """Return ``softmax(scale * q @ k.mT) @ v`` of each head, for torch's compilers too.

    Parameters
    ----------
    q, k, v : torch.Tensor
        (B, H, Sq, D), (B, Hk, Sk, D) and (B, Hk, Sk, Dv) of bf16 or f16, Hk a divisor of H.
    causal, window, scale, softcap
        As for `tilekit.attention`.
    lse : bool, optional
        Whether to return the logarithms of the sums of exponentials too, (B, H, Sq) f32.

    Returns
    -------
    torch.Tensor or tuple of torch.Tensor
        (B, H, Sq, Dv), a transpose of (B, Sq, H, Dv) in C order; with ``lse`` both.

    Raises
    ------
    ArgumentError
        As `tilekit.attention` does, for tensors without memory too. ``TK-TORCH-001`` where a gradient is asked for:
        there is none.
    """
    left, right = (None, None) if window is None else window
    result, logarithms = _ops.attention(q, k, v, causal, window is not None, left, right, scale, softcap, lse)
    return (result, logarithms) if lse else result


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """`torch.nn.functional.scaled_dot_product_attention`, by tilekit's kernel where it computes that.

    What goes to torch's own: a mask or dropout, tensors of other than four dimensions or of f32, a gradient, heads or
    layouts that `tilekit.attention` does not take, and GPUs that it has no kernel for.

    Parameters
    ----------
    query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
        As torch has them: with ``is_causal`` query i sees the keys up to i, whatever their numbers.
    """
    if _is_ours(query, key, value, attn_mask, dropout_p, enable_gqa):
        # Torch's diagonal begins at the first key, tilekit's ends at the last one.
        window = (None, query.shape[2] - key.shape[2]) if is_causal else None
        result: torch.Tensor = attention(query, key, value, window=window, scale=scale)
        return result
    other: torch.Tensor = _torchs_own(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )
    return other


@contextmanager
def sdpa(*, emulate: bool = False) -> Iterator[None]:
    """Have `torch.nn.functional.scaled_dot_product_attention` be tilekit's in the ``with`` block.

    Parameters
    ----------
    emulate
        Whether CPU tensors go to the emulator; else they stay torch's, which is a thousand times as fast.

    Examples
    --------
    >>> import tilekit.torch
    >>> with tilekit.torch.sdpa():  # doctest: +SKIP
    ...     model(x)
    """

    def chosen(query: torch.Tensor, *arguments: Any, **keywords: Any) -> torch.Tensor:
        here = emulate or query.device.type != "cpu"
        result: torch.Tensor = (scaled_dot_product_attention if here else _torchs_own)(query, *arguments, **keywords)
        return result

    with patch.object(torch.nn.functional, "scaled_dot_product_attention", chosen):
        yield


def _is_ours(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None,
    dropout_p: float,
    enable_gqa: bool,
) -> bool:
    tensors = query, key, value
    if attn_mask is not None or dropout_p or any(one.dim() != 4 or one.dtype not in _TYPES for one in tensors):
        return False
    if torch.is_grad_enabled() and any(one.requires_grad for one in tensors):
        return False
    if query.shape[1] != key.shape[1] and not enable_gqa:
        return False  # torch says what is wrong with it
    if query.device.type == "cuda" and torch.cuda.get_device_capability(query.device) != (9, 0):
        return False
    try:
        _result_of(*tensors)
    except TilekitError:
        return False
    return 0 not in query.shape and 0 not in key.shape


def _result_of(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[Any, Any, Any]:
    views = (view_of_fake(one.transpose(1, 2), name) for one, name in ((q, "q"), (k, "k"), (v, "v")))
    return attention_result_of(*views)


def _compute(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *given: Any) -> tuple[torch.Tensor, torch.Tensor]:
    keywords = _keywords(given)
    found = tilekit.attention(*(one.transpose(1, 2) for one in (q, k, v)), **keywords)
    if keywords["lse"]:
        return found[0].transpose(1, 2), found[1]
    return found.transpose(1, 2), q.new_empty((0,), dtype=torch.float32)


def _fake(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *given: Any) -> tuple[torch.Tensor, torch.Tensor]:
    shape, logarithms, _ = _result_of(q, k, v)
    kept = logarithms if _keywords(given)["lse"] else (0,)
    return q.new_empty(shape).transpose(1, 2), q.new_empty(kept, dtype=torch.float32)


def _keywords(given: tuple[Any, ...]) -> dict[str, Any]:
    """What a call has of the operator's arguments behind the tensors; the others have their usual values."""
    found = _USUAL | dict(zip(_USUAL, given, strict=False))
    window = found.pop("left"), found.pop("right")
    return found | {"window": window if found.pop("windowed") else None}


def _refuse_gradient(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    for name, needed in zip("qkv", ctx.needs_input_grad, strict=False):
        if needed:
            raise ArgumentError(
                f"{name} requires a gradient: tilekit has none of attention; pass {name}.detach(), or call under "
                "torch.no_grad()",
                code="TK-TORCH-001",
            )


def _no_gradient(ctx: Any, *grads: Any) -> Any:
    raise AssertionError("a gradient is refused at the call")


_library = _registry.Library("tilekit", "FRAGMENT")
"""The registrations; they hold as long as this object."""


def _register() -> None:
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)
    _library.define(
        "attention(Tensor q, Tensor k, Tensor v, bool causal=False, bool windowed=False, int? left=None, "
        "SymInt? right=None, float? scale=None, float? softcap=None, bool lse=False) -> (Tensor, Tensor)",
        tags=tags,
    )
    for device in ("CPU", "CUDA"):
        _library.impl("attention", _compute, device)
    _registry.register_fake("tilekit::attention", _fake, lib=_library)
    _registry.register_autograd("tilekit::attention", _no_gradient, setup_context=_refuse_gradient, lib=_library)


_register()
