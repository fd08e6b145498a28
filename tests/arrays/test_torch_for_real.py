"""Real torch tensors on the CPU; skipped where torch is not installed."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tilekit.arrays import empty_like_library, host_array, new_arrays, view_of  # noqa: E402
from tilekit.dtypes import BF16, DTYPES, DType  # noqa: E402
from tilekit.errors import ArgumentError  # noqa: E402


@pytest.mark.parametrize("dtype", DTYPES, ids=repr)
def test_tensors_of_every_type(dtype: DType) -> None:
    """A transposed slice of each element type is the same memory seen from NumPy, and results are tensors again."""
    tensor = torch.arange(24, dtype=torch.float32).reshape(4, 6).to(getattr(torch, dtype.long_name))[1:, ::2].T
    view = view_of(tensor)
    assert (view.address, tuple(view.shape), view.strides) == (tensor.data_ptr(), (3, 3), (2, 6))
    assert (view.dtype, view.device, view.library) == (dtype, "cpu", "torch")
    np.testing.assert_array_equal(host_array(view).astype(np.float32), tensor.float().numpy())
    made = empty_like_library(view, (5, 2), dtype)
    assert (made.dtype, tuple(made.shape), made.is_contiguous()) == (tensor.dtype, (5, 2), True)


def test_results_are_made_by_what_compiled_kernels_call() -> None:
    """This torch has the quick allocation, and what it makes is what `torch.empty_strided` makes, in either mode."""
    assert torch._C._dynamo.guards._empty_strided_cuda is not None
    view = view_of(torch.zeros(2, 2))
    new = new_arrays(view, (5, 2), BF16)
    for mode in (torch.inference_mode(False), torch.inference_mode()):
        with mode:
            made, usual = new.make(), torch.empty_strided((5, 2), (2, 1), dtype=torch.bfloat16)
        assert made.is_inference() is usual.is_inference()
        assert (type(made), made.dtype, made.device) == (type(usual), usual.dtype, usual.device)
        assert (made.shape, made.stride(), made.requires_grad) == (usual.shape, usual.stride(), usual.requires_grad)


def test_tensors_without_plain_memory() -> None:
    """Sparse, meta, gradient-carrying and lazily negated tensors are refused, each for its own reason."""
    dense = torch.eye(3)
    refused = {
        "without plain memory": dense.to_sparse(),
        "lies on meta": torch.empty(2, 2, device="meta"),
        "requires a gradient": torch.nn.Parameter(dense),
        "opposite sign": torch.conj(torch.zeros(3, dtype=torch.complex64)).imag,
    }
    for words, tensor in refused.items():
        with pytest.raises(ArgumentError, match=words):
            view_of(tensor, "a")
    with torch.no_grad():
        assert tuple(view_of(torch.nn.Parameter(dense)).shape) == (3, 3)


def test_an_empty_tensor_has_a_view() -> None:
    """A tensor without elements has no memory, and still a view and a host array."""
    assert host_array(view_of(torch.empty(0, 4))).shape == (0, 4)
