"""Attention of torch tensors: in place, eager, compiled, without memory, and in the place of torch's own."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import tilekit.torch  # noqa: E402
from tilekit.errors import ArgumentError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")  # its import

attention: Any = tilekit.torch.attention
ours: Any = tilekit.torch.scaled_dot_product_attention
theirs: Any = torch.nn.functional.scaled_dot_product_attention


@pytest.fixture
def heads() -> Any:
    """Make queries, keys and values as torch's modules have them: (B, S, H, D) memory, seen as (B, H, S, D)."""

    def make(queries: int = 20, keys: int = 20, groups: int = 2, dtype: Any = torch.bfloat16) -> list[Any]:
        random = torch.Generator().manual_seed(3)
        shapes = (2, queries, 4, 64), (2, keys, groups, 64), (2, keys, groups, 64)
        return [torch.randn(shape, generator=random).to(dtype).transpose(1, 2) for shape in shapes]

    return make


def close(found: Any, expected: Any) -> bool:
    """Whether results agree as far as bf16 goes."""
    return torch.allclose(found.double(), expected, rtol=2e-2, atol=2e-2)


def test_eager(heads: Any) -> None:
    """Results, logarithms and memory: heads are joined without a copy."""
    q, k, v = heads()
    found, logarithms = attention(q, k, v, causal=True, lse=True)
    q, k, v = (one.double() for one in (q, k, v))
    assert close(found, theirs(q, k, v, is_causal=True, enable_gqa=True))
    scores = (q @ k.repeat_interleave(2, 1).mT / 8).masked_fill(~torch.ones(20, 20).tril().bool(), -torch.inf)
    assert torch.allclose(logarithms.double(), scores.logsumexp(-1), atol=1e-2)
    assert found.shape == (2, 4, 20, 64)
    assert found.transpose(1, 2).is_contiguous()


@pytest.mark.parametrize(("queries", "keys"), [(20, 20), (7, 20), (20, 7)])
@pytest.mark.parametrize("causal", [False, True])
def test_in_place_of_torchs(heads: Any, queries: int, keys: int, causal: bool) -> None:
    """The same as torch's, whose diagonal begins at the first key."""
    q, k, v = heads(queries, keys, groups=4)
    expected = theirs(q.double(), k.double(), v.double(), is_causal=causal)
    with tilekit.torch.sdpa(emulate=True):
        found = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    assert close(found, expected)
    assert torch.nn.functional.scaled_dot_product_attention is theirs


def test_what_is_torchs(heads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks, dropout, f32, gradients, other shapes and CPU tensors without being asked: torch's own."""
    q, k, v = heads(groups=4)

    def never(*arguments: Any, **keywords: Any) -> None:
        raise AssertionError("not for tilekit")

    monkeypatch.setattr(tilekit, "attention", never)
    assert ours(q, k, v, torch.zeros(20, 20, dtype=q.dtype)).shape == q.shape
    assert ours(q, k, v, None, 0.5).shape == q.shape
    assert ours(q.float(), k.float(), v.float()).shape == q.shape
    assert ours(q[0], k[0], v[0]).shape == q[0].shape
    assert ours(q.clone().requires_grad_(), k, v).requires_grad
    assert ours(q[..., :60], k[..., :60], v).shape == q.shape
    with tilekit.torch.sdpa():
        assert torch.nn.functional.scaled_dot_product_attention(q, k, v).shape == q.shape
    with pytest.raises(RuntimeError):
        ours(*heads(groups=2))  # torch wants enable_gqa


def test_compiled(heads: Any) -> None:
    """One graph, with an operator that torch's compilers know the shape and the strides of."""
    q, k, v = heads()
    counter = CompileCounterWithBackend("aot_eager")

    @torch.compile(backend=counter, fullgraph=True)
    def step(q: Any, k: Any, v: Any) -> Any:
        return attention(q, k, v, causal=True).transpose(1, 2).flatten(2) * 2

    expected = attention(q, k, v, causal=True).transpose(1, 2).flatten(2) * 2
    assert torch.equal(step(q, k, v), expected)
    assert counter.frame_count == 1
    torch.library.opcheck(
        torch.ops.tilekit.attention.default, (q, k, v, True), test_utils=("test_schema", "test_faketensor")
    )


def test_without_memory(heads: Any) -> None:
    """Shapes and checks need no memory."""
    with FakeTensorMode() as mode:
        q, k, v = (mode.from_tensor(one) for one in heads())
        found, logarithms = attention(q, k, v, lse=True)
        assert (found.shape, logarithms.shape) == ((2, 4, 20, 64), (2, 4, 20))
        with pytest.raises(ArgumentError, match="TK-ATT-001"):
            attention(q, k[:, :, :, :32], v)


def test_gradients_are_refused(heads: Any) -> None:
    """There is none, and the call says so with a way out."""
    q, k, v = heads()
    with pytest.raises(ArgumentError, match=r"k requires a gradient.*TK-TORCH-001"):
        attention(q, k.clone().requires_grad_(), v)
    with torch.no_grad():
        attention(q, k.clone().requires_grad_(), v)
