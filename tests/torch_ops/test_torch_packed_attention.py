"""`tilekit.torch.packed_attention`: eager, without memory, compiled, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tilekit  # noqa: E402
import tilekit.torch  # noqa: E402
from tilekit.errors import ArgumentError  # noqa: E402

packed: Any = tilekit.torch.packed_attention
theirs: Any = torch.nn.functional.scaled_dot_product_attention


def operands(device: str = "cpu", seed: int = 0) -> tuple[Any, ...]:
    """Sequences of 20, 0 and 33 positions, of two heads over one."""
    rng = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(53, heads, 64, generator=rng).to(device, torch.bfloat16) for heads in (2, 1, 1))
    return q, k, v, torch.tensor([0, 20, 20, 53], dtype=torch.int32, device=device)


def close(found: Any, q: Any, k: Any, v: Any, starts: Any, **how: Any) -> None:
    """Compare each sequence with torch's own in f32."""
    for first, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        own = (x[first:end].float().transpose(0, 1)[None] for x in (q, k, v))
        exact = theirs(*own, enable_gqa=True, **how)[0].transpose(0, 1)
        torch.testing.assert_close(found[first:end].float(), exact, atol=0.03, rtol=0.02)


def test_eager(device: str) -> None:
    """Numbers, logarithms, and keys of other lengths than queries."""
    q, k, v, starts = operands(device)
    close(packed(q, k, v, starts, causal=True), q, k, v, starts, is_causal=True)
    found, lse = packed(q, k, v, starts, lse=True)
    assert lse.shape == (2, 53)
    close(found, q, k, v, starts)
    others = torch.tensor([0, 3, 20, 53], dtype=torch.int32, device=device)
    found = packed(q, k, v, starts, others)
    own = (x.float().transpose(0, 1)[None] for x in (q[:20], k[:3], v[:3]))
    exact = theirs(*own, enable_gqa=True)[0].transpose(0, 1)
    torch.testing.assert_close(found[:20].float(), exact, atol=0.03, rtol=0.02)


def test_without_memory() -> None:
    """Shapes and types follow from shapes and types."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        q = torch.empty(53, 4, 64, dtype=torch.float16, device="cuda")
        k = torch.empty(60, 2, 64, dtype=torch.float16, device="cuda")
        starts = torch.empty(4, dtype=torch.int32, device="cuda")
        out, lse = packed(q, k, k, starts, starts, causal=True, lse=True)
        assert (tuple(out.shape), out.dtype, tuple(lse.shape)) == ((53, 4, 64), torch.float16, (4, 53))
        with pytest.raises(ArgumentError, match="TK-ATT-008"):
            packed(q, k, k, starts)


def test_compiled(device: str) -> None:
    """The same numbers from a graph without a break."""
    q, k, v, starts = operands(device)
    compiled = torch.compile(lambda *given: packed(*given, causal=True), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(q, k, v, starts), packed(q, k, v, starts, causal=True), rtol=0, atol=0)


def test_operators_hold_torchs_rules() -> None:
    """Schema, fakes and tracing agree with what runs."""
    torch.library.opcheck(torch.ops.tilekit.packed_attention, operands())
    torch.library.opcheck(torch.ops.tilekit.packed_attention_lse, operands())


def test_what_is_refused() -> None:
    """Gradients, a window of three, lengths that are none."""
    q, k, v, starts = operands()
    with pytest.raises(ArgumentError, match="TK-TORCH-001"):
        packed(q.clone().requires_grad_(), k, v, starts)
    with pytest.raises(ArgumentError, match="TK-ATT-003"):
        packed(q, k, v, starts, window=(1, 2, 3))
    with pytest.raises(ArgumentError, match="TK-ATT-008"):
        packed(q, k, v, starts[:-1])
    with pytest.raises(ArgumentError, match=r"lengths is a builtins.list.*TK-TORCH-003"):
        packed(q, k, v, [0, 20, 53])
