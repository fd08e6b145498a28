"""FlashAttention-3: its package, or its built library at the path that FLASH_ATTENTION_3 in the environment names."""

from __future__ import annotations

import os
from typing import Any

import torch

from tilekit.bench.attention import Masked
from tilekit.bench.entrants import Entrant

if "FLASH_ATTENTION_3" in os.environ:
    torch.ops.load_library(os.environ["FLASH_ATTENTION_3"])
else:
    import flash_attn_interface  # noqa: F401  registers the operator

_attend = torch.ops.flash_attn_3.fwd.default


def launch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, masked: Masked, out: torch.Tensor) -> None:
    """Enqueue the attention into `out`; of one query it chooses how many CTAs share keys, as its decoding does."""
    more: dict[str, Any] = {"is_causal": masked.causal, "num_splits": 0 if q.shape[1] == 1 else 1}
    if masked.window is not None:
        left, right = (-1 if bound is None else bound for bound in masked.window)
        more |= {"window_size_left": left, "window_size_right": right}
    _attend(q, k, v, out=out, softcap=masked.softcap or 0.0, **more)


def packed(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    starts: torch.Tensor,
    longest: int,
    causal: bool,
) -> None:
    """Enqueue the attention of packed sequences, as many keys as queries, into `out`."""
    ends: dict[str, Any] = {"cu_seqlens_q": starts, "cu_seqlens_k": starts}
    most = {"max_seqlen_q": longest, "max_seqlen_k": longest}
    _attend(q, k, v, out=out, **ends, **most, is_causal=causal, num_splits=1)


ENTRANTS = [Entrant("FlashAttention-3", launch, "attention")]
ABOUT = {"torch": torch.__version__}
