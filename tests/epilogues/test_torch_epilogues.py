"""Python epilogues of torch's tensors."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import tilekit  # noqa: E402
import tilekit.torch  # noqa: E402
from tilekit.epilogue import row_max, silu  # noqa: E402


@tilekit.epilogue
def swiglu(x, gate):  # type: ignore[no-untyped-def]
    """With the largest element of each row."""
    y = silu(x) * gate
    return y, row_max(y)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_torch_tensors(device: str) -> None:
    """Results are tensors; a call is found again; a gradient is refused."""
    torch.manual_seed(0)
    a, b, gate = (torch.randn(shape).bfloat16().to(device) for shape in ((96, 64), (64, 72), (96, 72)))
    for _ in range(2):
        result, most = tilekit.torch.matmul(a, b, epilogue=swiglu(gate))
        expected = torch.nn.functional.silu(a.float() @ b.float()) * gate.float()
        torch.testing.assert_close(result.float(), expected, rtol=2e-2, atol=2e-2)
        torch.testing.assert_close(most, expected.max(1).values, rtol=1e-3, atol=1e-3)
    outs = torch.empty_like(result), torch.empty_like(most)
    for _ in range(2):
        assert tilekit.matmul(a, b, out=outs, epilogue=swiglu(gate)) is not None
        torch.testing.assert_close(outs[0], result, rtol=0, atol=0)
    with pytest.raises(tilekit.TilekitError) as caught:
        tilekit.torch.matmul(a, b.requires_grad_(), epilogue=swiglu(gate))
    assert caught.value.code == "TK-ARRAY-002"
