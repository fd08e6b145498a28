"""Tensors without memory: the same results but for the elements, and the same errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import tilekit.torch  # noqa: E402
from tilekit.arrays import view_of_fake  # noqa: E402
from tilekit.calls.matmul import result_of  # noqa: E402
from tilekit.errors import ArgumentError  # noqa: E402

matmul: Any = tilekit.torch.matmul
Call = Callable[..., Any]


def fp8(tensor: Any) -> Any:
    return tensor.to(torch.float8_e5m2)


GOOD: dict[str, Call] = {
    "plain": lambda a, b, **_: matmul(a, b),
    "f32": lambda a, b, **_: matmul(a, b, out_dtype="f32"),
    "fp8 out": lambda a, b, **_: matmul(a, b, out_dtype=torch.float8_e5m2),
    "transposed operands": lambda a, b, **_: matmul(b.T, a.T),
    "fp8": lambda a, b, **_: matmul(fp8(a), fp8(b.T.contiguous()).T),
    "odd pitch": lambda a, b, **_: matmul(a[:, :31].contiguous(), b[:31]),
    "odd address": lambda a, b, **_: matmul(a[:, 1:], b[1:]),
    "batched": lambda a, b, **_: matmul(a.expand(3, *a.shape), b[None]),
    "fused": lambda a, b, bias, scale, **_: matmul(a, b, bias=bias, scale=scale, activation="silu"),
    "out": lambda a, b, out, **_: matmul(a, b, out=out),
    "residual": lambda a, b, out, **_: matmul(a, b, residual=out.fill_(1), beta=-2),
    "scales": lambda a, b, scale_a, scale_b, **_: matmul(a, b, scale_a=scale_a, scale_b=scale_b[None]),
    "promoted": lambda a, b, **_: matmul(fp8(a), fp8(b.T.contiguous()).T, accumulation="promoted"),
    "linear": lambda a, b, bias, **_: tilekit.torch.linear(a[None, None], b.T, bias, "gelu"),
}

BAD: dict[str, Call] = {
    "TK-MM-001": lambda a, b, **_: matmul(a, b.to(torch.float16)),
    "TK-MM-001 f32": lambda a, b, **_: matmul(a.float(), b.float()),
    "TK-MM-004": lambda a, b, **_: matmul(fp8(a), fp8(b[:, :16].contiguous())),
    "TK-MM-005": lambda a, b, **_: matmul(a, b, activation="tanh"),
    "TK-MM-010": lambda a, b, **_: matmul(a[0], b),
    "TK-MM-011": lambda a, **_: matmul(a, a),
    "TK-MM-012": lambda a, b, **_: matmul(a.expand(3, *a.shape), b.expand(2, *b.shape)),
    "TK-MM-013 stride": lambda a, b, **_: matmul(a[:, ::2], b[::2]),
    "TK-MM-014": lambda a, b, out, **_: matmul(b.T, a.T, out=out.T),
    "TK-MM-017": lambda a, b, bias, **_: matmul(a, b, bias=bias[1:]),
    "TK-MM-018 array": lambda a, b, bias, **_: matmul(a, b, scale=bias),
    "TK-MM-018 word": lambda a, b, **_: matmul(a, b, scale="x"),
    "TK-MM-020": lambda a, b, out, **_: matmul(a, b, residual=out[:3]),
    "TK-MM-026": lambda a, b, scale_b, **_: matmul(a, b, scale_a=scale_b),
    "TK-MM-027": lambda a, b, **_: matmul(a, b, accumulation="promoted"),
    "TK-MM-027 word": lambda a, b, **_: matmul(fp8(a), fp8(b.T.contiguous()).T, accumulation="slow"),
    "TK-API-004": lambda a, b, out, **_: matmul(a, b, out=out, out_dtype="f32"),
    "TK-ARRAY-002 gradient": lambda a, b, out, **_: matmul(a.detach().requires_grad_(), b, out=out),
    "TK-ARRAY-008": lambda a, b, out, **_: matmul(a, b, out=out[1:]),
    "TK-ARRAY-009": lambda a, b, out, **_: matmul(a, b, out=out[:1].expand(*out.shape)),
    "TK-DTYPE-001": lambda a, b, **_: matmul(a, b, out_dtype=torch.float64),
    "TK-TORCH-001 activation": lambda a, b, **_: matmul(a.detach().requires_grad_(), b, activation="relu"),
    "TK-TORCH-001 scale": lambda a, b, scale, **_: matmul(a, b, scale=scale.detach().requires_grad_()),
    "TK-TORCH-001 scale_a": lambda a, b, scale_a, **_: matmul(a, b, scale_a=scale_a.detach().requires_grad_()),
    "TK-TORCH-001 scaled": lambda a, b, scale_a, **_: matmul(a.detach().requires_grad_(), b, scale_a=scale_a),
    "TK-TORCH-001 fp8": lambda a, b, **_: matmul(fp8(a).requires_grad_(), fp8(b.T.contiguous()).T),
    "TK-TORCH-002": lambda a, **_: tilekit.torch.linear(a, a[:, 1:]),
}


@pytest.fixture
def tensors(integers: Any, device: str) -> dict[str, Any]:
    """Legal arguments."""
    return {
        "a": integers(16, 32),
        "b": integers(24, 32).T,
        "bias": integers(24),
        "scale": torch.tensor(2.0, device=device),
        "scale_a": torch.arange(1, 17, dtype=torch.float32, device=device),
        "scale_b": torch.arange(1, 25, dtype=torch.float32, device=device),
        "out": torch.empty(16, 24, dtype=torch.bfloat16, device=device),
    }


def faked(tensors: dict[str, Any], mode: FakeTensorMode) -> dict[str, Any]:
    return {name: mode.from_tensor(tensor) for name, tensor in tensors.items()}


@pytest.mark.parametrize("call", GOOD.values(), ids=GOOD)
def test_fake_results_look_like_real_ones(tensors: dict[str, Any], call: Call) -> None:
    """Shape, strides, type and device of the result are known without computing it."""
    real = call(**tensors)
    with FakeTensorMode() as mode:
        fake = call(**faked(tensors, mode))
    for one in (lambda t: t.shape, lambda t: t.stride(), lambda t: t.dtype, lambda t: t.device):
        assert one(fake) == one(real)


@pytest.mark.parametrize("case", BAD)
def test_fake_errors_are_the_real_ones(tensors: dict[str, Any], case: str) -> None:
    """What the kernel would refuse is refused without memory, with the same code in the same words."""
    with pytest.raises(ArgumentError) as real:
        BAD[case](**tensors)
    with FakeTensorMode() as mode, pytest.raises(ArgumentError) as fake:
        BAD[case](**faked(tensors, mode))
    assert str(fake.value) == str(real.value)
    assert real.value.code == case.split()[0]


def test_meta_tensors() -> None:
    """Tensors on the meta device give a result there."""
    a = torch.empty(16, 32, dtype=torch.float16, device="meta")
    d = tilekit.torch.linear(a, a)
    assert (d.shape, d.dtype, d.device.type) == ((16, 16), torch.float16, "meta")


@pytest.mark.parametrize("elsewhere", ["b", "bias", "scale", "scale_a", "scale_b", "out"])
def test_places_must_agree_without_memory_too(tensors: dict[str, Any], elsewhere: str) -> None:
    """An argument on another device than `a` is named with both places."""
    views = {name: view_of_fake(tensor, name) for name, tensor in tensors.items()}
    for name, view in views.items():
        view.device = ("cuda", 2 if name == elsewhere else 1)
    with pytest.raises(ArgumentError, match=rf"a is torch on cuda:1 and {elsewhere} is torch on cuda:2") as caught:
        result_of(**views)
    assert caught.value.code == "TK-ARRAY-007"


def test_a_fake_on_an_unknown_device_is_refused() -> None:
    """What lies neither on the CPU nor on a CUDA device is named with its device."""
    stranger = type("Tensor", (), {"device": torch.device("xpu", 0)})()
    with pytest.raises(ArgumentError, match=r"a lies on xpu:0") as caught:
        view_of_fake(stranger, "a")
    assert caught.value.code == "TK-ARRAY-003"
