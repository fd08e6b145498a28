"""When a call of torch's operator goes to tilekit's own kernel without the dispatcher, and when it must not."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tilekit  # noqa: E402
from tilekit import torch as operators  # noqa: E402


@pytest.fixture
def dispatched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stand-ins for the emulated product and for the operator, which note that they were called."""
    seen: list[str] = []

    def matmul(a: Any, b: Any, *, out: Any = None, **_: Any) -> Any:
        seen.append("kernel")
        return a.new_zeros(a.shape[0], b.shape[1]) if out is None else out

    monkeypatch.setattr(tilekit, "matmul", matmul)
    alone = operators._alone

    def noted(*given: Any) -> bool:
        found = alone(*given)
        seen.append("alone" if found else "dispatched")
        return found

    monkeypatch.setattr(operators, "_alone", noted)
    return seen


def test_plain_tensors_go_straight_to_the_kernel(dispatched: list[str]) -> None:
    """With and without an output; parameters too where no gradient is recorded."""
    a, b = torch.ones(4, 8, dtype=torch.bfloat16), torch.ones(8, 4, dtype=torch.bfloat16)
    out = torch.empty(4, 4, dtype=torch.bfloat16)
    operators.matmul(a, b)
    assert operators.matmul(a, b, out=out, scale=2.0) is out
    with torch.no_grad():
        operators.matmul(a, torch.nn.Parameter(b))
    assert dispatched == ["alone", "kernel"] * 3


def test_what_torch_must_see_goes_through_the_operator(dispatched: list[str]) -> None:
    """Gradients, modes, transforms, tensors without memory and of other classes."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode

    a, b = torch.ones(4, 8, dtype=torch.bfloat16), torch.ones(8, 4, dtype=torch.bfloat16)
    assert operators.matmul(a, b.clone().requires_grad_()).requires_grad

    class Nothing(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return function(*args, **(kwargs or {}))

    with Nothing():
        operators.matmul(a, b)
    with FakeTensorMode():
        fake = operators.matmul(torch.ones(4, 8, dtype=torch.bfloat16), torch.ones(8, 4, dtype=torch.bfloat16))
    assert tuple(fake.shape) == (4, 4)
    meta = operators.matmul(a.to("meta"), b.to("meta"))
    assert meta.is_meta
    assert "alone" not in dispatched
