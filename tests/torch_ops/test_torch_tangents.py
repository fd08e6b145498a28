"""Forward-mode differentiation, which no operator has: it is refused, and never a tangent of zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tilekit.torch  # noqa: E402
from tilekit.errors import ArgumentError  # noqa: E402

# torch's own, where it makes a dual number or a transform for the first time.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning", "ignore:There is a performance")

forward = torch.autograd.forward_ad


def images(*shape: int, dtype: Any = torch.bfloat16) -> Any:
    """Ones in ``channels_last`` memory."""
    return torch.ones(shape, dtype=dtype).contiguous(memory_format=torch.channels_last)


def ones(*shape: int, dtype: Any = torch.bfloat16) -> Any:
    """Ones."""
    return torch.ones(shape, dtype=dtype)


def scales(*shape: int) -> Any:
    """Scales of ones, of a type that has tangents."""
    return torch.ones(shape)


def fp8(*shape: int) -> Any:
    """Ones of 8 bits."""
    return torch.ones(shape).to(torch.float8_e4m3fn)


def _attention(q: Any) -> Any:
    return tilekit.torch.attention(q, q.detach(), q.detach())


CALLS: dict[str, tuple[str, Callable[..., Any], Callable[[], Any]]] = {
    "matmul": ("a", lambda a: tilekit.torch.matmul(a, ones(8, 8)), lambda: ones(8, 8)),
    "linear": ("a", lambda x: tilekit.torch.linear(x, ones(8, 8)), lambda: ones(8, 8)),
    "a bias": ("bias", lambda r: tilekit.torch.matmul(ones(8, 8), ones(8, 8), bias=r), lambda: ones(8)),
    "a scale": ("scale", lambda s: tilekit.torch.matmul(ones(8, 8), ones(8, 8), scale=s), lambda: scales(1)),
    "conv2d": ("x", lambda x: tilekit.torch.conv2d(x, images(8, 8, 3, 3)), lambda: images(1, 8, 6, 6)),
    "its scale": (
        "scale",
        lambda s: tilekit.torch.conv2d(images(1, 8, 6, 6), images(8, 8, 3, 3), scale=s),
        lambda: scales(1),
    ),
    "scaled_matmul": (
        "scale_a",
        lambda s: tilekit.torch.scaled_matmul(fp8(8, 128), fp8(8, 128).T, s, scales(1, 1)),
        lambda: scales(8, 1),
    ),
    "attention": ("q", _attention, lambda: ones(1, 1, 8, 64)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_tangent_is_refused(name: str) -> None:
    """As a dual number, and as what `torch.func.jvp` makes of it; without its tangent the call is made."""
    argument, call, make = CALLS[name]
    with forward.dual_level():
        dual = forward.make_dual(make(), make())
        with pytest.raises(ArgumentError, match=f"^{argument} has a tangent.*pass {argument}.detach") as found:
            call(dual)
        assert found.value.code == "TK-TORCH-001"
        call(dual.detach())
    with pytest.raises(ArgumentError, match=f"^{argument} has a tangent"):
        torch.func.jvp(call, (make(),), (make(),))


def test_a_tangent_of_a_batch_is_refused_and_a_constant_is_none() -> None:
    """`vmap` below `jvp`: of what is differentiated, and of something else."""
    a, b = ones(1, 8, 8), ones(8, 8)
    batched = torch.vmap(lambda one: tilekit.torch.matmul(one, b))
    with pytest.raises(ArgumentError, match="a has a tangent"):
        torch.func.jvp(batched, (a,), (a,))
    value, tangent = torch.func.jvp(lambda x: x * batched(a)[0, 0, 0], (a,), (a,))
    assert value[0, 0, 0] == tangent[0, 0, 0] == 8


def test_calls_of_arrays_refuse_a_tangent_too() -> None:
    """Of `tilekit` itself, also where an earlier call has left its launch."""
    a, b, out = (ones(8, 8) for _ in range(3))
    for _ in range(2):
        tilekit.matmul(a, b, out=out)
    with forward.dual_level():
        dual = forward.make_dual(a, a)
        for keywords in ({}, {"out": out}):
            with pytest.raises(ArgumentError, match="a has a tangent") as found:
                tilekit.matmul(dual, b, **keywords)
            assert found.value.code == "TK-ARRAY-002"
        tilekit.matmul(a, b, out=out)
    assert np.all(out.float().numpy() == 8)


def test_torch_s_attention_keeps_tangents() -> None:
    """Where torch's function is replaced, what has a tangent goes to torch, which may not have it either."""
    q = ones(1, 1, 8, 64)
    with forward.dual_level(), tilekit.torch.sdpa(emulate=True), pytest.raises(NotImplementedError, match="forward AD"):
        torch.nn.functional.scaled_dot_product_attention(forward.make_dual(q, q), q, q)
