"""What the torch machine does with tensors, on the CPU; skipped where torch is not installed."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tilekit.bench.machine import TorchMachine  # noqa: E402
from tilekit.dtypes import DTYPES, DType  # noqa: E402
from tilekit.kernels.matmul.spec import Accumulation  # noqa: E402


@pytest.fixture
def machine() -> TorchMachine:
    """A machine without a GPU behind it: only methods that take tensors are called."""
    made = TorchMachine.__new__(TorchMachine)
    made.torch = torch
    return made


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_poison_is_nan_in_every_type(machine: TorchMachine, dtype: DType) -> None:
    """All bits set is NaN in all five formats, so nothing unwritten can pass for a result."""
    tensor = torch.zeros(4, 8, dtype=getattr(torch, dtype.long_name))
    machine.poison(tensor)
    assert bool(torch.isnan(tensor.float()).all())
    assert np.isnan(machine.download(tensor.float())).all()


def test_distance_is_the_frobenius_norm(machine: TorchMachine) -> None:
    """The float32 product has distance 0 from itself in bf16, twice the product has 1; a NaN is found."""
    a, b = torch.ones(4, 8, dtype=torch.bfloat16), torch.ones(8, 2, dtype=torch.bfloat16)
    out = torch.full((4, 2), 8.0, dtype=torch.bfloat16)
    expected = machine.product(a, b)
    assert expected.dtype == torch.float32
    assert (machine.distance(out, expected), machine.distance(2 * out, expected)) == (0, 1)
    assert not machine.any_nan(out)
    out[0, 0] = math.nan
    assert machine.any_nan(out)


@pytest.mark.parametrize("accumulation", ["fast", "promoted"])
def test_the_library_accumulates_as_the_machine_says(
    machine: TorchMachine, monkeypatch: pytest.MonkeyPatch, accumulation: Accumulation
) -> None:
    """torch._scaled_mm is asked for fast accumulation where tilekit accumulates fast, and only there."""
    asked = []
    monkeypatch.setattr(torch, "_scaled_mm", lambda *_, use_fast_accum, **__: asked.append(use_fast_accum))
    monkeypatch.setattr(machine, "one", lambda: torch.ones(()))
    machine.accumulation = accumulation
    a = torch.ones(16, 16).to(torch.float8_e4m3fn)
    machine.matmul(a, a.T, torch.empty(16, 16, dtype=torch.bfloat16))
    assert asked == [accumulation == "fast"]


def test_the_librarys_product_writes_into_out(machine: TorchMachine) -> None:
    """torch.matmul with out= is used for 16-bit types, batched as well."""
    a, b = torch.ones(3, 4, 8, dtype=torch.bfloat16), torch.ones(3, 8, 2, dtype=torch.bfloat16)
    out = torch.zeros(3, 4, 2, dtype=torch.bfloat16)
    machine.matmul(a, b, out)
    assert bool((out == 8).all())
