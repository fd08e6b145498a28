"""`tilekit.attention` of packed sequences as a torch operator; `tilekit.torch` has it.

Tensors are (positions, H, D), as FlashAttention's and torch's own calls of sequences of varying lengths have them.
There are no gradients.
"""

from __future__ import annotations

from typing import Any

import torch

import tilekit
from tilekit.arrays import view_of_fake
from tilekit.kernels.attention.arguments import result_of
from tilekit.torch_arguments import read_values, require_tensors
from tilekit.torch_attention import AttentionKeywords, register, sides_of

__all__ = ["packed_attention"]

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
    require_tensors({"q": q, "k": k, "v": v, "lengths": lengths}, {"lengths_k": lengths_k})
    given = read_values(AttentionKeywords, causal=causal, window=window, scale=scale, softcap=softcap, lse=lse)
    operator = _ops.packed_attention_lse if given["lse"] else _ops.packed_attention
    sides = sides_of(given["window"])
    return operator(q, k, v, lengths, lengths_k, given["causal"], *sides, given["scale"], given["softcap"])


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


_ARGUMENTS = (
    "Tensor q, Tensor k, Tensor v, Tensor lengths, Tensor? lengths_k=None, bool causal=False, SymInt? left=None, "
    "SymInt? right=None, float? scale=None, float? softcap=None"
)
register("packed_attention", f"({_ARGUMENTS}) -> Tensor", _compute, _fake)
register("packed_attention_lse", f"({_ARGUMENTS}) -> (Tensor, Tensor)", _compute_lse, _fake_lse)
