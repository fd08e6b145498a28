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


def test_gradients_are_refused(tensors: Any) -> None:
    """Nothing is computed wrongly in silence."""
    x, w, *_ = tensors.values()
    with pytest.raises(ArgumentError, match=r"w requires a gradient.*torch\.nn\.functional\.conv2d.*TK-TORCH-001"):
        conv2d(x, w.detach().requires_grad_())
