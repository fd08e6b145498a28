"""Python epilogues of torch's tensors."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import tilekit  # noqa: E402
import tilekit.torch  # noqa: E402
from tilekit.epilogue import column_sum, row_max, silu  # noqa: E402


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
    alone = torch.empty_like(result)
    for _ in range(2):
        first, most = tilekit.matmul(a, b, out=alone, epilogue=swiglu(gate))  # another `most` each time
        assert first is alone
        torch.testing.assert_close(most, expected.max(1).values, rtol=1e-3, atol=1e-3)
    outs = torch.empty_like(result), torch.empty_like(most)
    for _ in range(2):
        assert tilekit.matmul(a, b, out=outs, epilogue=swiglu(gate)) is not None
        torch.testing.assert_close(outs[0], result, rtol=0, atol=0)
    with pytest.raises(tilekit.TilekitError) as caught:
        tilekit.torch.matmul(a, b.requires_grad_(), epilogue=swiglu(gate))
    assert caught.value.code == "TK-ARRAY-002"


@tilekit.epilogue
def normed(x, bias, seen):  # type: ignore[no-untyped-def]
    """What a batch norm asks of a convolution, in another type, too, of pixels that count."""
    y = (x + bias) * seen
    return y, y.astype("f32"), column_sum(y), row_max(y)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_convolutions_of_tensors(device: str, groups: int) -> None:
    """Channels are second, and their memory is last; operands are laid out as torch's; a call is found again."""
    torch.manual_seed(1)
    last = torch.channels_last
    x, w = (torch.randint(-2, 3, shape).half() for shape in ((2, 16, 7, 6), (24, 16 // groups, 3, 3)))
    x, w = (one.to(device).contiguous(memory_format=last) for one in (x, w))
    bias, seen = torch.randint(-2, 3, (1, 24, 1, 1)).float().to(device), torch.randint(0, 2, (2, 1, 7, 6)).to(device)
    how = {"padding": 1, "groups": groups}
    y = (torch.nn.functional.conv2d(x.double(), w.double(), **how) + bias) * seen
    most = y.max(1).values if groups == 1 else y.reshape(2, groups, -1, 7, 6).amax(2).transpose(0, 1)
    expected = y, y, y.sum((0, 2, 3)), most
    for given in (bias, bias.reshape(-1)):
        call = normed(given, seen.half())
        results = tilekit.torch.conv2d(x, w, epilogue=call, **how)
        nan = [torch.full_like(one, torch.nan) for one in results]
        assert all(one.is_contiguous(memory_format=last) for one in nan[:2])
        for out in (None, tuple(nan), nan[0], tuple(nan)):
            found = tilekit.torch.conv2d(x, w, epilogue=call, out=out, **how)
            for one, wanted in zip(found, expected, strict=True):
                torch.testing.assert_close(one.double(), wanted, rtol=0, atol=0)
    stream = None if device == "cpu" else torch.cuda.current_stream()
    assert tilekit.conv2d(x, w, epilogue=call, out=tuple(nan), stream=stream, **how)[1] is nan[1]
    with pytest.raises(tilekit.TilekitError) as caught:
        tilekit.torch.conv2d(x, w.requires_grad_(), epilogue=call, **how)
    assert caught.value.code == "TK-ARRAY-002"
    with pytest.raises(tilekit.TilekitError, match="bias beside epilogue"):
        tilekit.torch.conv2d(x, w.detach(), bias.reshape(-1), epilogue=call, **how)


@tilekit.epilogue
def weighted(x, weight):  # type: ignore[no-untyped-def]
    """A value a row; rows and columns have their sums."""
    y = x * weight
    return y, row_max(y), column_sum(y)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_scaled_products_and_groups_of_tensors(device: str) -> None:
    """Products with scales of blocks, and of groups of rows, return tensors, and into such; a call is found again."""
    torch.manual_seed(2)
    a, b = (torch.randint(-2, 3, shape).to(torch.float8_e4m3fn).to(device) for shape in ((40, 256), (72, 256)))
    scale_a, scale_b = torch.ones((40, 2)).to(device) * 2, torch.ones((1, 2)).to(device)
    weight = torch.randint(1, 4, (40, 1)).float().to(device)
    y = 2 * (a.double() @ b.double().T) * weight
    outs = y.float() * torch.nan, torch.full((40,), torch.nan).to(device), torch.full((72,), torch.nan).to(device)
    how = {"epilogue": weighted(weight), "out_dtype": torch.float32}
    for out in (None, outs, outs):
        found = tilekit.torch.scaled_matmul(a, b.T, scale_a, scale_b, out=out, **how)
        for one, wanted in zip(found, (y, y.max(1).values, y.sum(0)), strict=True):
            torch.testing.assert_close(one.double(), wanted, rtol=0, atol=0)
    with pytest.raises(tilekit.TilekitError, match="bias beside epilogue"):
        tilekit.torch.scaled_matmul(a, b.T, scale_a, scale_b, bias=scale_b, **how)

    x, w = torch.randint(-2, 3, (40, 64)).half().to(device), torch.randint(-2, 3, (3, 64, 72)).half().to(device)
    ends = torch.tensor([17, 17, 40], dtype=torch.int32).to(device)
    y = torch.cat([x[:17].double() @ w[0].double(), x[17:].double() @ w[2].double()]) * weight
    sums = torch.stack([y[:17].sum(0), torch.zeros(72, dtype=torch.double).to(device), y[17:].sum(0)])
    outs = (*outs[:2], torch.full((3, 72), torch.nan).to(device))
    for out in (None, outs, outs):
        found = tilekit.grouped_matmul(x, w, ends, out=out, **how)
        for one, wanted in zip(found, (y, y.max(1).values, sums), strict=True):
            torch.testing.assert_close(one.double(), wanted, rtol=0, atol=0)
