"""`tilekit.torch.grouped_matmul`: eager, without memory, compiled, with scales of blocks, and what it refuses."""

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

grouped: Any = tilekit.torch.grouped_matmul


def ends_on(device: str) -> Any:
    """Where the groups end."""
    return torch.tensor([17, 17, 47], dtype=torch.int32, device=device)


@pytest.fixture
def operands(integers: Any, device: str) -> dict[str, Any]:
    """Rows of three groups and their matrices, whose products are exact."""
    return {"a": integers(47, 64), "b": integers(3, 72, 64).transpose(1, 2), "ends": ends_on(device)}


def reference(a: Any, b: Any, ends: Any) -> Any:
    """The product of each group in float64."""
    parts = a.double().cpu().split(ends.cpu().diff(prepend=torch.zeros(1, dtype=torch.int32)).tolist())
    return torch.cat([part @ own for part, own in zip(parts, b.double().cpu(), strict=True)])


def test_eager(operands: dict[str, Any]) -> None:
    """The product, its function of elements, another type, and an output that was given."""
    expected = reference(**operands)
    assert torch.equal(grouped(**operands).double().cpu(), expected)
    assert torch.equal(grouped(**operands, activation="relu", out_dtype="f32").double().cpu(), expected.relu())
    out = torch.full((47, 72), 7.0, dtype=torch.bfloat16, device=operands["a"].device)
    assert grouped(**operands, out=out) is out
    assert torch.equal(out.double().cpu(), expected)


def test_counts(integers: Any, device: str) -> None:
    """Rows behind those that are counted keep what they held."""
    a, b = integers(3, 24, 64), integers(3, 64, 72)
    counts = torch.tensor([5, 0, 24], dtype=torch.int32, device=device)
    out = torch.full((3, 24, 72), 7.0, dtype=torch.bfloat16, device=device)
    grouped(a, b, counts=counts, out=out)
    products = (a.double() @ b.double()).cpu()
    for group, count in enumerate([5, 0, 24]):
        assert torch.equal(out[group, :count].double().cpu(), products[group, :count])
        assert (out[group, count:] == 7).all()


def scaled(integers: Any, device: str) -> dict[str, Any]:
    """Operands of 8 bits with scales of blocks."""
    a, b = (integers(*shape).to(torch.float8_e4m3fn) for shape in ((47, 256), (3, 72, 256)))
    scale_a, scale_b = (torch.exp2(integers(*shape).float()) for shape in ((47, 2), (3, 1, 2)))
    return {"a": a, "b": b.transpose(1, 2), "ends": ends_on(device), "scale_a": scale_a, "scale_b": scale_b}


def test_scales_of_blocks(integers: Any, device: str) -> None:
    """Each k-block's sum is scaled."""
    given = scaled(integers, device)
    blocks = torch.arange(256) // 128
    a = given["a"].double().cpu() * given["scale_a"].cpu()[:, blocks]
    b = given["b"].double().cpu() * given["scale_b"].cpu()[:, 0, blocks, None]
    expected = reference(a, b, given["ends"]).float()
    assert torch.equal(grouped(**given, out_dtype=torch.float32).cpu(), expected)


@pytest.mark.parametrize("kind", ["plain", "scaled"])
def test_fakes_have_the_same_layout(kind: str, operands: dict[str, Any], integers: Any, device: str) -> None:
    """Without memory, the same shape, type and strides, and the same errors."""
    given = operands if kind == "plain" else scaled(integers, device)
    found = grouped(**given, out_dtype=torch.float32)
    with FakeTensorMode() as mode:
        fakes = {name: mode.from_tensor(tensor) for name, tensor in given.items()}
        fake = grouped(**fakes, out_dtype=torch.float32)
        with pytest.raises(ArgumentError, match="TK-GROUP-002"):
            grouped(**fakes | {"ends": fakes["ends"][:2]})
    assert (fake.shape, fake.dtype, fake.stride()) == (found.shape, found.dtype, found.stride())


def test_compiled(operands: dict[str, Any]) -> None:
    """A compiled function is one graph, and its numbers are the same for other ends."""
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda *given: grouped(*given, activation="silu") * 2, fullgraph=True, backend=counter)
    a, b, ends = operands.values()
    for others in (ends, torch.tensor([0, 40, 47], dtype=torch.int32, device=ends.device)):
        assert torch.equal(compiled(a, b, others), grouped(a, b, others, activation="silu") * 2)
    assert counter.frame_count == 1


def test_operator_holds_torchs_rules(operands: dict[str, Any]) -> None:
    """Schema, fakes and tracing agree with what runs."""
    torch.library.opcheck(torch.ops.tilekit.grouped_matmul, tuple(operands.values()))


def test_an_epilogue_in_python(operands: dict[str, Any]) -> None:
    """It goes past the operator."""

    @tilekit.epilogue
    def doubled(x):  # type: ignore[no-untyped-def]
        return x * 2

    found = grouped(**operands, epilogue=doubled())
    assert torch.equal(found.double().cpu(), 2 * reference(**operands))


def test_what_is_refused(operands: dict[str, Any]) -> None:
    """Gradients, bounds that are none or both, and what is no tensor."""
    with pytest.raises(ArgumentError, match="TK-TORCH-001"):
        grouped(**operands | {"a": operands["a"].clone().requires_grad_()})
    with pytest.raises(ArgumentError, match="TK-GROUP-001"):
        grouped(operands["a"], operands["b"])
    with pytest.raises(ArgumentError, match="TK-GROUP-001"):
        grouped(**operands, counts=operands["ends"])
    with pytest.raises(ArgumentError, match=r"ends is a builtins.list.*TK-TORCH-003"):
        grouped(**operands | {"ends": [17, 17, 47]})
