"""The gradients of the plain product: the same kernels, the other way round."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tilekit.torch  # noqa: E402
from tilekit.errors import ArgumentError  # noqa: E402


def gradients(call: Any, leaves: list[Any], weights: Any) -> list[Any]:
    """The gradients of ``sum(weights * call(...))`` at `leaves`."""
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    loss = (call(*leaves).double() * weights).sum()
    return list(torch.autograd.grad(loss, leaves))


@pytest.mark.parametrize(
    ("shape_a", "shape_b"),
    [
        ((16, 32), (32, 24)),
        ((17, 40), (40, 24)),
        ((16, 32), (32, 8)),
        ((3, 16, 32), (3, 32, 24)),
        ((3, 16, 32), (1, 32, 24)),
        ((3, 16, 32), (32, 24)),
        ((16, 32), (3, 32, 24)),
        ((0, 32), (32, 24)),
    ],
    ids=str,
)
def test_gradients_are_exact(integers: Any, shape_a: tuple[int, ...], shape_b: tuple[int, ...]) -> None:
    """Small integers, so that float64 is met exactly; what batches share gets the sum of their gradients."""
    a, b, bias = integers(*shape_a), integers(*shape_b), integers(shape_b[-1], dtype=torch.float32)
    weights = integers(
        *torch.broadcast_shapes(shape_a[:-2], shape_b[:-2]), shape_a[-2], shape_b[-1], dtype=torch.float64
    )
    found = gradients(lambda a, b, bias: tilekit.torch.matmul(a, b, bias=bias, scale=2.0), [a, b, bias], weights)
    expected = gradients(lambda a, b, bias: 2 * (a @ b) + bias, [a.double(), b.double(), bias.double()], weights)
    for leaf, one, other in zip((a, b, bias), found, expected, strict=True):
        assert (one.dtype, one.shape) == (leaf.dtype, leaf.shape)
        assert torch.equal(one.double(), other)


@pytest.mark.parametrize("columns", [1, 13])
def test_gradients_of_rows_that_the_copy_engine_cannot_read(integers: Any, columns: int) -> None:
    """Rows of the incoming gradient that are no multiple of 16 bytes are padded."""
    a, b, weights = integers(16, 32), integers(columns, 32).T, integers(16, columns, dtype=torch.float64)
    found = gradients(tilekit.torch.matmul, [a, b], weights)
    expected = gradients(torch.matmul, [a.double(), b.double()], weights)
    assert all(torch.equal(one.double(), other) for one, other in zip(found, expected, strict=True))


def test_gradients_come_in_any_layout(integers: Any) -> None:
    """An expanded gradient, as sum() makes it, and one that begins in the middle of 16 bytes are copied first."""
    a, b = integers(16, 32).requires_grad_(), integers(32, 24)
    ones = torch.ones(16, 24, dtype=torch.float64, device=a.device)
    expected = ones @ b.double().T
    tilekit.torch.matmul(a, b).sum().backward()
    assert torch.equal(a.grad.double(), expected)
    shifted = torch.ones(16 * 24 + 1, dtype=torch.bfloat16, device=a.device)[1:].view(16, 24)
    (again,) = torch.autograd.grad(tilekit.torch.matmul(a, b), a, shifted)
    assert torch.equal(again.double(), expected)


def test_a_scale_in_a_tensor_scales_the_gradients(integers: Any, device: str) -> None:
    """The factor goes into the gradients' kernels as it went into the product's, for an f32 result too."""
    a, b, weights = integers(16, 32), integers(32, 24), integers(16, 24, dtype=torch.float64)
    scale = torch.tensor(4.0, device=device)
    found = gradients(lambda a, b: tilekit.torch.matmul(a, b, scale=scale, out_dtype="f32"), [a, b], weights)
    expected = gradients(lambda a, b: 4 * (a @ b), [a.double(), b.double()], weights)
    assert all(torch.equal(one.double(), other) for one, other in zip(found, expected, strict=True))


def test_only_what_is_asked_for_is_computed(integers: Any) -> None:
    """A frozen weight gets no gradient, and the gradient's own gradient exists."""
    x, weight = integers(16, 32).requires_grad_(), integers(24, 32)
    (first,) = torch.autograd.grad(tilekit.torch.linear(x, weight).sum(), x, create_graph=True)
    assert weight.grad is None
    assert not first.requires_grad  # the product is linear in x, and nothing else requires a gradient
    other = integers(24, 32).requires_grad_()
    (of_x,) = torch.autograd.grad(tilekit.torch.linear(x, other).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(of_x.sum(), other)
    assert torch.equal(second.double(), torch.full((24, 32), 16.0, dtype=torch.float64, device=x.device))


@pytest.mark.parametrize("name", ["a", "b", "bias"])
def test_a_fused_activation_is_refused_where_a_gradient_is_asked_for(integers: Any, name: str) -> None:
    """The argument, the activation and both ways out are in the message; under no_grad the same call computes."""
    tensors = {"a": integers(16, 32), "b": integers(32, 24), "bias": integers(24)}
    tensors[name].requires_grad_()
    with pytest.raises(
        ArgumentError, match=rf"{name} requires a gradient: activation='gelu'.*detach.*no_grad"
    ) as caught:
        tilekit.torch.matmul(**tensors, activation="gelu")
    assert caught.value.code == "TK-TORCH-001"
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            assert not tilekit.torch.matmul(**tensors, activation="gelu").requires_grad


@pytest.mark.parametrize("shape", [(2, 16, 24), (16, 24)], ids=str)
def test_gradients_of_a_residual(integers: Any, shape: tuple[int, ...]) -> None:
    """The residual gets beta times the incoming gradient, summed where all batches share it; the operands theirs."""
    a, b, c = integers(2, 16, 32), integers(32, 24), integers(*shape)
    weights = integers(2, 16, 24, dtype=torch.float64)
    found = gradients(lambda a, b, c: tilekit.torch.matmul(a, b, residual=c, beta=-0.5), [a, b, c], weights)
    expected = gradients(lambda a, b, c: a @ b - 0.5 * c, [a.double(), b.double(), c.double()], weights)
    assert all(torch.equal(one.double(), other) for one, other in zip(found, expected, strict=True))
