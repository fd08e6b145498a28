"""Convolutions of torch tensors: in channels-last memory, in place, eager, compiled and without memory."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import tilekit  # noqa: E402
import tilekit.torch  # noqa: E402
from tilekit.errors import ArgumentError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script_method.*:DeprecationWarning")  # its import

conv2d: Any = tilekit.torch.conv2d


@pytest.fixture
def tensors(integers: Any) -> dict[str, Any]:
    """Images, filters, a bias and a residual, whose sums are exact."""
    last = {"memory_format": torch.channels_last}
    return {
        "x": integers(2, 16, 9, 7).contiguous(**last),
        "w": integers(24, 16, 3, 3).contiguous(**last),
        "bias": integers(24, dtype=torch.float32),
        "residual": integers(2, 24, 5, 4).contiguous(**last),
    }


def reference(x: Any, w: Any, bias: Any = None, residual: Any = None, **keywords: Any) -> Any:
    """What torch makes of them in float64."""
    total = torch.nn.functional.conv2d(x.double(), w.double(), None if bias is None else bias.double(), **keywords)
    return total if residual is None else total + 2 * residual.double()


WAYS = {"stride": 2, "padding": 1}


def test_eager(tensors: Any) -> None:
    """The operator gives torch's own result, shape and memory format, and writes into an output in place."""
    x, w, bias, residual = tensors.values()
    found = conv2d(x, w, bias, **WAYS, residual=residual, beta=2.0, activation="relu")
    expected = reference(x, w, bias, residual, **WAYS).relu().to(torch.bfloat16)
    assert torch.equal(found, expected)
    assert found.is_contiguous(memory_format=torch.channels_last)
    out = torch.zeros_like(found)
    assert conv2d(x, w, bias, **WAYS, residual=residual, beta=2.0, activation="relu", out=out) is out
    assert torch.equal(out, expected)


def test_the_plain_call_takes_tensors_too(tensors: Any) -> None:
    """`tilekit.conv2d` reads torch's shapes, and makes channels-last results; twice, since launches are kept."""
    x, w = tensors["x"], tensors["w"]
    for _ in range(2):
        found = tilekit.conv2d(x, w, padding=(1, 0), out_dtype="f32")
        assert torch.equal(found.double(), reference(x, w, padding=(1, 0)))
        assert found.is_contiguous(memory_format=torch.channels_last)


def test_groups_and_a_scale_that_is_a_tensor(integers: Any, device: str) -> None:
    """Groups with a bias, and a scale that stays where it is."""
    x, w = integers(1, 32, 6, 6), integers(16, 8, 3, 3)
    x, w = (tensor.contiguous(memory_format=torch.channels_last) for tensor in (x, w))
    bias, scale = integers(16, dtype=torch.float32), torch.tensor(0.5, device=device)
    found = conv2d(x, w, bias, groups=4, scale=scale, out_dtype=torch.float32)
    expected = reference(x, w, groups=4) / 2 + bias.double()[:, None, None]
    assert torch.equal(found.double(), expected)


def test_operator_checks(tensors: Any) -> None:
    """What torch checks of an operator: schema, fake results and dispatch."""
    x, w, bias, residual = tensors.values()
    with torch.no_grad():
        torch.library.opcheck(
            torch.ops.tilekit.conv2d.default, (x, w, bias, 0.5, [2, 2], [1, 1], [1, 1], 1, "relu", None, residual, 2.0)
        )


def test_fakes_have_the_same_layout(tensors: Any) -> None:
    """Without memory, the same shape, type and strides."""
    x, w, *_ = tensors.values()
    found = conv2d(x, w, **WAYS)
    with FakeTensorMode() as mode:
        fake = conv2d(mode.from_tensor(x), mode.from_tensor(w), **WAYS)
    assert (fake.shape, fake.dtype, fake.stride()) == (found.shape, found.dtype, found.stride())


def test_one_graph_for_all_sizes(integers: Any) -> None:
    """A compiled function is one graph for images of any size."""
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda x, w: conv2d(x, w, padding=1) * 2, fullgraph=True, dynamic=True, backend=counter)
    w = integers(8, 16, 3, 3).contiguous(memory_format=torch.channels_last)
    for count, height, width in ((2, 6, 5), (3, 9, 4), (5, 8, 8)):
        x = integers(count, 16, height, width).contiguous(memory_format=torch.channels_last)
        assert torch.equal(compiled(x, w), (reference(x, w, padding=1)).to(torch.bfloat16) * 2)
    assert counter.frame_count == 1


def test_layouts_that_would_need_a_copy(tensors: Any) -> None:
    """Contiguous NCHW memory is refused, with the call that copies it; fakes alike."""
    x, w, *_ = tensors.values()
    with pytest.raises(ArgumentError, match=r"x\.contiguous\(memory_format=torch\.channels_last\).*TK-CONV-005"):
        conv2d(x.contiguous(), w)
    with pytest.raises(ArgumentError, match=r"w\.contiguous\(memory_format=torch\.channels_last\)"):
        conv2d(x, w.contiguous())
    packed = x.contiguous()
    with FakeTensorMode() as mode, pytest.raises(ArgumentError, match="TK-CONV-005"):
        conv2d(mode.from_tensor(packed), mode.from_tensor(w))


def gradients(call: Any, leaves: list[Any], weights: Any) -> list[Any]:
    """The gradients of ``sum(weights * call(...))`` at `leaves`."""
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    return list(torch.autograd.grad((call(*leaves).double() * weights).sum(), leaves))


@pytest.mark.parametrize("ways", [{}, WAYS, {"stride": (2, 1), "padding": (0, 2), "dilation": (1, 2)}], ids=str)
def test_gradients_are_exact(tensors: Any, integers: Any, ways: dict[str, Any]) -> None:
    """Of images, filters, a bias and a residual, in channels-last memory, with a scale as a number and as a tensor."""
    x, w, bias, _ = tensors.values()
    last = {"memory_format": torch.channels_last}
    residual = integers(*reference(x, w, **ways).shape).contiguous(**last)
    weights = integers(*residual.shape).double()
    leaves = [x, w, bias, residual]

    def expected(x: Any, w: Any, bias: Any, residual: Any) -> Any:
        return 2 * torch.nn.functional.conv2d(x, w, **ways) + bias.view(1, -1, 1, 1) + 2 * residual

    right = gradients(expected, [leaf.double() for leaf in leaves], weights)
    for scale in (2.0, torch.tensor(2.0, device=x.device)):

        def ours(x: Any, w: Any, bias: Any, residual: Any, scale: Any = scale) -> Any:
            more = {"out_dtype": "f32", "scale": scale, "beta": 2.0}
            return conv2d(x, w, bias, **ways, residual=residual.float(), **more)

        found = gradients(ours, leaves, weights)
        assert [one.dtype for one in found] == [leaf.dtype for leaf in leaves]
        assert all(one.is_contiguous(**last) for one in found[:2])
        for one, other in zip(found, right, strict=True):
            assert torch.equal(one, other.to(one.dtype))


def test_gradients_of_groups(integers: Any) -> None:
    """A group's gradients are its own."""
    last = {"memory_format": torch.channels_last}
    x, w = integers(2, 16, 6, 6).contiguous(**last), integers(24, 8, 3, 3).contiguous(**last)
    ways = {"padding": 1, "groups": 2}
    weights = integers(2, 24, 6, 6).double()
    found = gradients(lambda x, w: conv2d(x, w, **ways, out_dtype="f32"), [x, w], weights)
    right = gradients(lambda x, w: torch.nn.functional.conv2d(x, w, **ways), [x.double(), w.double()], weights)
    assert all(torch.equal(one, other.to(one.dtype)) for one, other in zip(found, right, strict=True))


def test_a_training_step_in_a_graph(tensors: Any) -> None:
    """Forward and backward are compiled, and give eager mode's gradients; a frozen operand gets none."""
    x, w, *_ = tensors.values()

    def forward(x: Any, w: Any) -> Any:
        return torch.relu(conv2d(x, w, **WAYS))

    leaves = [x.detach().requires_grad_(), w.detach().requires_grad_()]
    eager = torch.autograd.grad(forward(*leaves).sum(), leaves)
    compiled = torch.compile(forward, fullgraph=True, backend="aot_eager")
    found = torch.autograd.grad(compiled(*leaves).sum(), leaves)
    assert all(torch.equal(one, other) for one, other in zip(found, eager, strict=True))
    (alone,) = torch.autograd.grad(forward(x, leaves[1]).sum(), leaves[1:])
    assert torch.equal(alone, eager[1])


def test_gradients_without_a_formula_are_refused(tensors: Any) -> None:
    """Through an activation, and of a scale: nothing is computed wrongly in silence."""
    x, w, *_ = tensors.values()
    with pytest.raises(ArgumentError, match=r"w requires a gradient: activation='relu'.*no_grad.*TK-TORCH-001"):
        conv2d(x, w.detach().requires_grad_(), activation="relu")
    with pytest.raises(ArgumentError, match=r"scale requires a gradient.*TK-TORCH-001"):
        conv2d(x, w, scale=torch.tensor(2.0, device=x.device).requires_grad_())
