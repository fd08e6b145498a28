"""What the operators compute, and where they write it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import tilekit  # noqa: E402
import tilekit.torch  # noqa: E402
from tilekit.errors import ArgumentError  # noqa: E402

OPS = torch.ops.tilekit


def test_importing_tilekit_imports_no_torch() -> None:
    """tilekit computes with NumPy arrays and never imports torch; tilekit.torch does."""
    program = (
        "import sys, numpy as np, tilekit; one = np.ones((8, 8), np.float16); tilekit.matmul(one, one); "
        "assert 'torch' not in sys.modules; import tilekit.torch; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_products_are_exact(integers: Any, dtype: Any) -> None:
    """Ragged products of small integers equal torch's, in the type that tilekit.matmul gives them."""
    a, b = integers(33, 64, dtype=dtype), integers(40, 64, dtype=dtype).T
    d = tilekit.torch.matmul(a, b)
    assert d.dtype == (dtype if dtype.itemsize == 2 else torch.bfloat16)
    assert d.device == a.device
    assert torch.equal(d.double(), a.double() @ b.double())


def test_everything_that_is_fused(integers: Any) -> None:
    """Scale, bias, activation and type go through the operator to the kernel, each to its place."""
    a, b, bias = integers(16, 32), integers(32, 24), integers(24, dtype=torch.float32)
    expected = torch.relu(0.5 * (a.double() @ b.double()) + bias.double())
    d = tilekit.torch.matmul(a, b, bias=bias, activation="relu", scale=0.5, out_dtype="f32")
    assert d.dtype == torch.float32
    assert torch.equal(d.double(), expected)


def test_a_scale_may_be_a_tensor(integers: Any, device: str) -> None:
    """A scale in a tensor has an overload of its own, is read when the kernel runs, and is not remembered."""
    a, b, scale = integers(16, 32), integers(32, 24), torch.tensor(2.0, device=device)
    first = tilekit.torch.matmul(a, b, scale=scale)
    scale.fill_(4.0)
    second = tilekit.torch.matmul(a, b, scale=scale)
    assert torch.equal(second, 2 * first)
    assert torch.equal(OPS.matmul.tensor_scale(a, b, None, scale), second)


@pytest.mark.parametrize(("batch_a", "batch_b"), [((3,), (3,)), ((3,), (1,)), ((), (3,))])
def test_batches(integers: Any, batch_a: tuple[int, ...], batch_b: tuple[int, ...]) -> None:
    """Batches multiply pairwise, and a single matrix with each of them."""
    a, b = integers(*batch_a, 16, 32), integers(*batch_b, 32, 24)
    assert torch.equal(tilekit.torch.matmul(a, b).double(), a.double() @ b.double())


def test_out_is_written_and_returned(integers: Any) -> None:
    """The out variant writes where it is told, a view of padded rows here, and nowhere else."""
    a, b = integers(16, 32), integers(32, 24)
    memory = torch.full((16, 32), 7.0, dtype=torch.float32, device=a.device)
    out = memory[:, :24]
    assert tilekit.torch.matmul(a, b, out=out, scale=2) is out
    assert torch.equal(out.double(), 2 * (a.double() @ b.double()))
    assert bool((memory[:, 24:] == 7).all())
    tilekit.torch.matmul(a, b, out=out, scale=torch.tensor(-1.0, device=a.device))
    assert torch.equal(out.double(), -(a.double() @ b.double()))


@pytest.mark.parametrize("lead", [(), (5,), (2, 3), (2, 0, 3)])
def test_linear_takes_any_leading_dimensions(integers: Any, lead: tuple[int, ...]) -> None:
    """linear is torch's linear with an activation: all but the last dimension are rows, none and empty ones too."""
    x, weight, bias = integers(*lead, 32), integers(24, 32), integers(24)
    expected = torch.relu(torch.nn.functional.linear(x.double(), weight.double(), bias.double()))
    y = tilekit.torch.linear(x, weight, bias, "relu")
    assert y.shape == (*lead, 24)
    assert torch.equal(y.double(), expected)


def test_scales_and_a_residual(integers: Any) -> None:
    """Scales of rows and columns, a residual and its factor reach the kernel; so does the output as its residual."""
    a, b = integers(16, 32), integers(32, 24)
    rows = 2.0 ** torch.arange(-8, 8, device=a.device, dtype=torch.float32)
    columns = torch.arange(1, 25, device=a.device, dtype=torch.float32)
    old = integers(16, 24, dtype=torch.float32)
    product = rows[:, None].double() * (a.double() @ b.double()) * columns.double()
    keywords = {"scale_a": rows[:, None], "scale_b": columns, "beta": 2.0}
    made = tilekit.torch.matmul(a, b, residual=old, out_dtype="f32", **keywords)
    assert torch.equal(made.double(), product + 2 * old.double())
    out = old.clone()
    assert tilekit.torch.matmul(a, b, out=out, residual=out, **keywords) is out
    assert torch.equal(out, made)


def test_promoted_accumulation(integers: Any) -> None:
    """8-bit operands can be accumulated in either way, which agree on small integers."""
    a, b = integers(16, 320, dtype=torch.float8_e4m3fn), integers(24, 320, dtype=torch.float8_e4m3fn).T
    fast, promoted = (tilekit.torch.matmul(a, b, out_dtype="f32", accumulation=how) for how in ("fast", "promoted"))
    assert torch.equal(fast.double(), a.double() @ b.double())
    assert torch.equal(fast, promoted)


def test_linear_names_its_own_arguments(integers: Any) -> None:
    """Shapes that do not fit are refused in the words of the call, not in those of the product beneath."""
    with pytest.raises(ArgumentError, match=r"x has shape \(2, 16\) and weight has shape \(24, 32\)") as caught:
        tilekit.torch.linear(integers(2, 16), integers(24, 32))
    assert caught.value.code == "TK-TORCH-002"


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # of torch 2.14's check
def test_torchs_own_checks_of_an_operator(integers: Any, device: str) -> None:
    """torch.library.opcheck finds nothing: schemas, fake results, autograd and AOT dispatch, with dynamic shapes."""
    a, b = integers(16, 32).requires_grad_(), integers(32, 24).requires_grad_()
    bias, scale = integers(24, dtype=torch.float32).requires_grad_(), torch.tensor(2.0, device=device)
    torch.library.opcheck(OPS.matmul.default, (a, b))
    torch.library.opcheck(OPS.matmul.default, (a, b, bias, 2.0, None, torch.float32))
    torch.library.opcheck(OPS.matmul.default, (a.detach()[None], b.detach()[None], None, None, "gelu"))
    torch.library.opcheck(OPS.matmul.tensor_scale, (a, b, None, scale))
    rows, old = torch.ones(16, 1, device=device), integers(16, 24).requires_grad_()
    torch.library.opcheck(OPS.matmul.default, (a.detach(), b.detach(), None, None, None, None, rows, None, old, 2.0))
    out = {"out": torch.empty(16, 24, dtype=torch.bfloat16, device=device)}
    torch.library.opcheck(OPS.matmul_out.default, (a.detach(), b.detach(), bias.detach()), out)
    torch.library.opcheck(OPS.matmul_out.tensor_scale, (a.detach(), b.detach(), None, scale, "silu"), out)
