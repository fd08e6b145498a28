"""`tilekit.attention` of packed sequences as a torch operator; `tilekit.torch` has it.

Tensors are (positions, H, D), as FlashAttention's and torch's own calls of sequences of varying lengths have them.
There are no gradients.
"""

from __future__ import annotations

from typing import Any

import torch

import tilekit
from tilekit.arrays import view_of_fake
from tilekit.errors import ArgumentError
from tilekit.kernels.attention.arguments import result_of
from tilekit.torch_attention import refuse_gradients

__all__ = ["packed_attention"]

_registry: Any = torch.library
_ops: Any = torch.ops.tilekit

_NAMES = ("causal", "left", "right", "scale", "softcap")


def packed_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    lengths: torch.Tensor,
    lengths_k: torch.Tensor | None = None,
    *,
    causal: bool = False,
    window: tuple[int | None, int | None] | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    lse: bool = False,
) -> Any:
    """Return ``softmax(scale * q @ kᵀ) @ v`` of each head of packed sequences, for torch's compilers.

    Parameters
    ----------
    q, k, v : torch.Tensor
        (positions, H, D), (positions of keys, Hk, D) and (positions of keys, Hk, Dv).
    lengths, lengths_k : torch.Tensor
        Where sequences begin, and where the last ends, (B + 1,) int32: of q, and of k and v if they have others. In
        FlashAttention's varlen calls these are `cu_seqlens_q` and `cu_seqlens_k`; no longest length is needed.
    causal, window, scale, softcap
        As for `tilekit.attention`: masks are aligned to a sequence's last query and key.
    lse : bool
        Whether to return ``(out, lse)``, with the logarithms of the sums of exponentials, (H, positions) f32.

    Returns
    -------
    torch.Tensor
        (positions, H, Dv).

    Raises
    ------
    ArgumentError
        As `tilekit.attention` does, for tensors without memory too. ``TK-TORCH-001`` where a gradient is asked for.
    """
    if window is not None and (not isinstance(window, tuple | list) or len(window) != 2):
        legal = "None, or (left, right): keys before and after the diagonal that are seen, whole numbers or None"
        raise ArgumentError.of("window", window, legal=legal, nearest=(None, None), code="TK-ATT-003")
    operator = _ops.packed_attention_lse if lse else _ops.packed_attention
    return operator(q, k, v, lengths, lengths_k, causal, *(window or (None, None)), scale, softcap)


def _keywords(lengths: Any, lengths_k: Any, given: tuple[Any, ...]) -> dict[str, Any]:
    """What `tilekit.attention` is told of the operators' arguments behind the tensors."""
    read = dict(zip(_NAMES, given, strict=False))
    left, right = read.pop("left", None), read.pop("right", None)
    starts = lengths if lengths_k is None else (lengths, lengths_k)
    return {**read, "window": None if left is None and right is None else (left, right), "lengths": starts}


def _compute(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor, lengths_k: Any = None, *given: Any
) -> torch.Tensor:
    result: torch.Tensor = tilekit.attention(q, k, v, **_keywords(lengths, lengths_k, given))
    return result


def _compute_lse(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor, lengths_k: Any = None, *given: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = tilekit.attention(q, k, v, **_keywords(lengths, lengths_k, given), lse=True)
    return out, lse


def _fake(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor, lengths_k: Any = None, *given: Any
) -> torch.Tensor:
    views = [view_of_fake(one, name) for one, name in zip((q, k, v), "qkv", strict=True)]
    starts, ends = (None if one is None else view_of_fake(one, "lengths") for one in (lengths, lengths_k))
    return q.new_empty(result_of(*views, **_keywords(starts, ends, given)))


def _fake_lse(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: torch.Tensor, lengths_k: Any = None, *given: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    out = _fake(q, k, v, lengths, lengths_k, *given)
    return out, q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)


def _backward(ctx: Any, *grads: torch.Tensor) -> tuple[None, ...]:
    raise AssertionError("a call that needs a gradient is refused")


_library = _registry.Library("tilekit", "FRAGMENT")
"""The registrations; they hold as long as this object."""


def _register() -> None:
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)
    arguments = (
        "Tensor q, Tensor k, Tensor v, Tensor lengths, Tensor? lengths_k=None, bool causal=False, "
        "SymInt? left=None, SymInt? right=None, float? scale=None, float? softcap=None"
    )
    _library.define(f"packed_attention({arguments}) -> Tensor", tags=tags)
    _library.define(f"packed_attention_lse({arguments}) -> (Tensor, Tensor)", tags=tags)
    for name, compute, fake in (
        ("packed_attention", _compute, _fake),
        ("packed_attention_lse", _compute_lse, _fake_lse),
    ):
        for device in ("CPU", "CUDA"):
            _library.impl(name, compute, device)
        _registry.register_fake(f"tilekit::{name}", fake, lib=_library)
        _registry.register_autograd(f"tilekit::{name}", _backward, setup_context=refuse_gradients, lib=_library)


_register()
