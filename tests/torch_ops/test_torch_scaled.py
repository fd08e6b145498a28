"""`tilekit.torch.scaled_matmul`: eager, without memory, compiled, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tilekit  # noqa: E402
import tilekit.torch  # noqa: E402
from tilekit.errors import ArgumentError  # noqa: E402

scaled_matmul: Any = tilekit.torch.scaled_matmul


def operands(kind: str, m: int = 20, n: int = 24, k: int = 64) -> tuple[tuple[Any, ...], Any]:
    """Tensors, and their product in float64."""
    rng = torch.Generator().manual_seed(1)
    a, b = (tilekit.quantise(torch.randn(rows, k, generator=rng), kind) for rows in (m, n))
    exact = tilekit.dequantise(*a[:2]).double() @ tilekit.dequantise(*b[:2]).double().T
    return (a.values, b.values.T, a.scales, b.scales), exact


@pytest.mark.parametrize("kind", ["mxfp8", "mxfp4", "nvfp4"])
def test_eager_and_fake(kind: str) -> None:
    """The numbers, into new memory and into `out`, and a tensor of the same kind where there is no memory."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    given, exact = operands(kind)
    bias = torch.arange(24.0)
    found = scaled_matmul(*given, bias=bias, scale=0.5, activation="relu", out_dtype="f32")
    torch.testing.assert_close(found.double(), torch.relu(exact / 2 + bias), atol=1e-2, rtol=1e-4)
    out = torch.empty(20, 24, dtype=torch.float16)
    assert scaled_matmul(*given, out=out, residual=torch.ones_like(out), beta=2.0) is out
    with FakeTensorMode() as mode:
        fake = scaled_matmul(*(mode.from_tensor(one) for one in given), out_dtype=torch.float32)
    assert (fake.shape, fake.dtype, fake.stride()) == (found.shape, found.dtype, found.stride())


def test_float4_tensors_are_pairs() -> None:
    """``torch.float4_e2m1fn_x2`` holds what uint8 does."""
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this torch has no such type")
    (a, b, *scales), _ = operands("nvfp4")
    kind = torch.float4_e2m1fn_x2
    found = scaled_matmul(a.view(kind), b.T.view(kind).T, *scales)
    np.testing.assert_array_equal(found.float(), scaled_matmul(a, b, *scales).float())


def test_compiled_whole() -> None:
    """torch.compile keeps it in one graph, with a scale that is a tensor, and the numbers are the eager ones."""
    given, _ = operands("mxfp8")
    scale = torch.tensor([0.25])

    def twice(*tensors: Any) -> Any:
        return scaled_matmul(*tensors, scale=scale) * 2

    compiled = torch.compile(twice, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*given), twice(*given), rtol=0, atol=0)


@pytest.mark.parametrize("to", ["mxfp8", "mxfp4", "nvfp4"])
def test_quantised_results(to: str) -> None:
    """Eager, without memory and compiled in one graph, values and scales are those of `tilekit.quantise`."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    given, _ = operands("mxfp8", n=40)
    quantised: Any = tilekit.torch.scaled_matmul_quantised
    bias, more = torch.arange(40.0), {"out_scale": 0.25} if to == "nvfp4" else {}
    sums = scaled_matmul(*given, bias=bias, out_dtype="f32")
    expected = tilekit.quantise(sums, to, scale=more.get("out_scale"))
    found = quantised(*given, to, bias=bias, **more)
    compiled = torch.compile(lambda *t: quantised(*t, to, bias=bias, **more), fullgraph=True, backend="aot_eager")
    for one in (found, compiled(*given), quantised(*given, to, bias=bias, scale=torch.ones(1), **more)):
        for part, right in zip(one, expected[:2], strict=True):
            torch.testing.assert_close(part.view(torch.uint8), right.view(torch.uint8), rtol=0, atol=0)
    with FakeTensorMode() as mode:
        fake = quantised(*(mode.from_tensor(one) for one in given), to)
    assert [(one.shape, one.dtype) for one in fake] == [(one.shape, one.dtype) for one in found]
    values, scales = torch.compile(
        lambda *t: quantised(*t, to, bias=bias, scale_layout="128x4", **more), fullgraph=True, backend="aot_eager"
    )(*given)
    torch.testing.assert_close(values.view(torch.uint8), found[0].view(torch.uint8), rtol=0, atol=0)
    laid = tilekit.lay_out_scales(found[1])
    torch.testing.assert_close(scales.view(torch.uint8), laid.view(torch.uint8), rtol=0, atol=0)
    with pytest.raises(ArgumentError, match="TK-SCALE-006"):
        quantised(*given, "mxfp6")
    with pytest.raises(ArgumentError, match=r"bias requires a gradient.*TK-TORCH-001"):
        quantised(*given, to, bias=torch.zeros(40, requires_grad=True))


def test_refused() -> None:
    """What the call refuses, also without memory; and gradients."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    (a, b, scale_a, scale_b), _ = operands("mxfp8")
    with pytest.raises(ArgumentError, match="TK-SCALE-002"):
        scaled_matmul(a, b, scale_a[:1], scale_b)
    wrong = a, b.contiguous(), scale_a, scale_b
    with FakeTensorMode() as mode, pytest.raises(ArgumentError, match="TK-SCALE-003"):
        scaled_matmul(*(mode.from_tensor(one) for one in wrong))
    with pytest.raises(ArgumentError, match=r"bias requires a gradient.*TK-TORCH-001"):
        scaled_matmul(a, b, scale_a, scale_b, bias=torch.zeros(24, requires_grad=True))


def test_new_tensors_of_whole_numbers() -> None:
    """A product of int8 tensors makes its int32 itself."""
    a = torch.arange(-64, 64, dtype=torch.int8).reshape(2, 64)
    found = tilekit.matmul(a, a.T, target="sm_90a")
    torch.testing.assert_close(found, a.int() @ a.int().T, rtol=0, atol=0)
