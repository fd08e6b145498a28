"""Products of torch tensors with scales of blocks: in place, eager, compiled and without memory."""

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

scaled_matmul: Any = tilekit.torch.scaled_matmul


@pytest.fixture
def operands(integers: Any) -> Any:
    """Make operands and scales of some extents, whose sums are exact."""

    def make(m: int = 33, n: int = 72, k: int = 272) -> dict[str, Any]:
        a, b = (integers(rows, k).to(torch.float8_e4m3fn) for rows in (m, n))
        blocks = -(-k // 128)
        scale_a = torch.exp2(integers(blocks, -(-m // 4) * 4).float()).T[:m]
        scale_b = torch.exp2(integers(-(-n // 128), blocks).float())
        return {"a": a, "b": b.T, "scale_a": scale_a, "scale_b": scale_b}

    return make


def reference(a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
    """The product in float64."""
    k, n = b.shape
    along_k, along_n = torch.arange(k) // 128, torch.arange(n) // 128
    a = a.double().cpu() * scale_a.cpu()[:, along_k]
    return (a @ (b.double().cpu() * scale_b.cpu()[along_n][:, along_k].T)).to(torch.bfloat16)


def test_eager(operands: Any) -> None:
    """The operator and the plain call give the product, also into an output, and of scales row after row."""
    given = operands()
    expected = reference(**given)
    for scale_a in (given["scale_a"], given["scale_a"].contiguous()):
        for call in (scaled_matmul, tilekit.scaled_matmul):
            assert torch.equal(call(**given | {"scale_a": scale_a}).cpu(), expected)
    out = torch.zeros_like(scaled_matmul(**given))
    assert scaled_matmul(**given, out=out) is out
    assert torch.equal(out.cpu(), expected)


def test_operator_checks(operands: Any) -> None:
    """What torch checks of an operator of 8-bit tensors, which its check of schemas cannot compare."""
    with torch.no_grad():
        arguments = (*operands().values(), None, None, "relu", None)  # no bias, no scale
        checks = ("test_faketensor", "test_autograd_registration")
        torch.library.opcheck(torch.ops.tilekit.scaled_matmul.default, arguments, test_utils=checks)


def test_fakes_have_the_same_layout(operands: Any) -> None:
    """Without memory, the same shape, type and strides, and the same errors."""
    given = operands()
    found = scaled_matmul(**given, out_dtype=torch.float32)
    with FakeTensorMode() as mode:
        fakes = {name: mode.from_tensor(tensor) for name, tensor in given.items()}
        fake = scaled_matmul(**fakes, out_dtype=torch.float32)
        with pytest.raises(ArgumentError, match="TK-BLOCK-002"):
            scaled_matmul(**fakes | {"scale_a": fakes["scale_b"]})
    assert (fake.shape, fake.dtype, fake.stride()) == (found.shape, found.dtype, found.stride())


def test_compiled(operands: Any) -> None:
    """A compiled function is one graph."""
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda *given: scaled_matmul(*given) * 2, fullgraph=True, backend=counter)
    given = operands()
    assert torch.equal(compiled(*given.values()).cpu(), reference(**given) * 2)
    assert counter.frame_count == 1


def test_gradients_are_refused(operands: Any) -> None:
    """Nothing is computed wrongly in silence."""
    given = operands()
    given["scale_a"].requires_grad_()
    with pytest.raises(ArgumentError, match=r"scale_a requires a gradient.*TK-TORCH-001"):
        scaled_matmul(**given)
