"""When a call of torch's operator goes to tilekit's own kernel without the dispatcher, and when it must not."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tilekit  # noqa: E402
from tilekit import torch as operators  # noqa: E402
from tilekit.calls import matmul as products  # noqa: E402
from tilekit.kernels.launch_cache import CachedLaunch, LaunchCache  # noqa: E402


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


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Launches that calls find, as on a GPU an earlier call would have left one; none launches anything."""
    streams: list[int] = []
    monkeypatch.setattr(products, "_launches", LaunchCache())
    keep: Any = CachedLaunch(streams.append, lambda: 7)  # type: ignore[arg-type]

    class Kept(dict[Any, Any]):
        """A launch for any key."""

        def get(self, key: Any, default: Any = None) -> Any:
            return keep

    products._launches.launches = Kept()
    return streams


def test_a_kept_launch_is_all_of_a_repeated_call(launched: list[int], dispatched: list[str]) -> None:
    """With an output, a bias and an activation, and of a parameter where no gradient is recorded."""
    a, b, out = (torch.ones(8, 8, dtype=torch.bfloat16) for _ in range(3))
    assert operators.matmul(a, b, out=out) is out
    assert operators.matmul(a, b, out=out, bias=out[0], activation="relu") is out
    with torch.no_grad():
        operators.matmul(a, torch.nn.Parameter(b), out=out)
    assert launched == [7] * 3
    assert dispatched == []


def test_no_kept_launch_is_taken_where_torch_must_see_the_call(launched: list[int], dispatched: list[str]) -> None:
    """Modes of either kind, transforms, tracers, dual numbers, overriding classes: whatever is kept, torch is asked."""
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    a, b, out = (torch.ones(8, 8, dtype=torch.bfloat16) for _ in range(3))

    class Functions(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return function(*args, **(kwargs or {}))

    class Dispatches(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return function(*args, **(kwargs or {}))

    class Wrapped(torch.Tensor):
        pass

    for mode in (Functions(), Dispatches(), torch.autograd.forward_ad.dual_level()):
        with mode:
            operators.matmul(a, b, out=out)
    operators.matmul(a.as_subclass(Wrapped), b, out=out)
    operators.matmul(a, b, out=out, bias=out[0].as_subclass(Wrapped))
    torch.func.functionalize(lambda x: operators.matmul(x, b))(a)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # tracing, in newer versions
        torch.jit.trace(lambda x: operators.matmul(x, b, out=out), (a,), check_trace=False)
    assert launched == []
    assert "alone" not in dispatched
    assert len(dispatched) >= 7


def test_what_is_asked_for_beside_is_no_kept_launch(launched: list[int], dispatched: list[str]) -> None:
    """Each argument that a kept launch is not looked up by goes the long way."""
    a, b, out = (torch.ones(8, 8, dtype=torch.bfloat16) for _ in range(3))
    rows = torch.ones(8)
    more: list[dict[str, Any]] = [{"scale": 2.0}, {"scale_a": rows}, {"scale_b": rows}, {"residual": out}]
    more += [{"out_dtype": torch.bfloat16}, {"accumulation": "promoted"}]
    for keywords in more:
        operators.matmul(a, b, out=out, **keywords)
    assert launched == []
    assert dispatched == ["alone", "kernel"] * len(more)
