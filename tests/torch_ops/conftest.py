"""Every test of this folder runs on CPU tensors, through the emulator, and, with ``-m gpu``, on CUDA tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Integers = Callable[..., Any]


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    """Where the tensors lie."""
    torch = pytest.importorskip("torch")
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    return str(request.param)


@pytest.fixture
def integers(device: str) -> Integers:
    """Make tensors of small integers, whose products and sums are exact in every type of a test."""
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)

    def make(*shape: int, dtype: Any = torch.bfloat16) -> Any:
        return torch.randint(-2, 3, shape, generator=generator).to(device, dtype)

    return make
