"""What only a GPU can show of a gemv: kernels that overlap in a stream, graphs, and weights larger than L2."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gemv.gemv_case import kernel_for
from tilekit import ElementwiseSpec
from tilekit.arrays import view_of
from tilekit.kernels.gemv.compiled import GemvKernel, compiled
from tilekit.kernels.gemv.config import GemvConfig
from tilekit.targets import SM_90A

pytestmark = pytest.mark.gpu

SHAPES = ((4096, 4096), (2112, 7168), (24576, 1536), (1000, 1001), (57344, 1024))


def integers(torch: Any, *shape: int, seed: int = 0, most: int = 2) -> Any:
    """Small integers in bf16."""
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randint(-most, most + 1, shape, device="cuda", generator=generator).bfloat16()


def kernel(a: Any, b: Any, out: Any) -> GemvKernel:
    """The picked kernel for torch tensors."""
    return kernel_for(a, b, out, ElementwiseSpec())


@pytest.mark.parametrize(("n", "k"), SHAPES)
@pytest.mark.parametrize("m", [1, 2, 4, 8])
@pytest.mark.parametrize("transposed", [True, False])
def test_large_ones_are_exact(torch: Any, n: int, k: int, m: int, transposed: bool) -> None:
    """Integers whose sums f32 holds exactly give every bit, on shapes that fill the chip."""
    a = integers(torch, m, k)
    b = integers(torch, n, k, seed=1).T if transposed else integers(torch, k, n, seed=1)
    out = torch.full((m, n), float("nan"), device="cuda")
    kernel(a, b, out).bind(a, b, out)()
    assert torch.equal(out.double(), a.double() @ b.double())


@pytest.mark.parametrize("cluster", [1, 2])
def test_launches_in_a_row_depend_on_each_other(torch: Any, cluster: int) -> None:
    """Two hundred products, each of the one before, through one graph: none reads its tokens too early."""
    n = 4096
    shift = torch.zeros(n, n, device="cuda").bfloat16()
    shift[torch.arange(n), (torch.arange(n) + 1) % n] = 1
    ping = torch.arange(4 * n, device="cuda").remainder(251).view(4, n).bfloat16()
    pong, start = torch.empty_like(ping), ping.clone()
    found = kernel(ping, shift, pong)
    built = compiled(found.spec, GemvConfig(depth=2, cluster=cluster), SM_90A)
    there, back = built.bind(ping, shift, pong), built.bind(pong, shift, ping)
    there(), back()  # loads the kernel, which a capture may not
    ping.copy_(start)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(100):
            there(), back()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(ping, start.roll(200, dims=1))


def test_weights_written_just_before_are_the_ones_that_count(torch: Any) -> None:
    """Weights that the kernel ahead writes are read as written, though they were brought into L2 before."""
    m, n, k = 2, 4096, 2048
    a, sources = integers(torch, m, k), [integers(torch, n, k, seed=seed) for seed in range(4)]
    weights, out = torch.empty_like(sources[0]), torch.empty(m, n, device="cuda")
    plan = kernel(a, weights.T, out).bind(a, weights.T, out)
    results = []
    plan()
    for turn in range(40):
        weights.copy_(sources[turn % 4])
        plan()
        results.append(out.clone())
    for turn, result in enumerate(results):
        assert torch.equal(result.double(), a.double() @ sources[turn % 4].double().T)


def test_a_residual_chain_in_place(torch: Any) -> None:
    """Fifty layers that add to the same stream of tokens, in place, see each other's sums."""
    n = 2048
    weights = torch.zeros(n, n, device="cuda").bfloat16()
    weights[torch.arange(n), torch.arange(n)] = 1
    x, out = torch.ones(1, n, device="cuda").bfloat16(), torch.zeros(1, n, device="cuda").bfloat16()
    functions = ElementwiseSpec(residual=view_of(out, "out").dtype)
    built = kernel_for(x, weights.T, out, functions)
    plan = built.bind(x, weights.T, out, residual=out)
    for _ in range(50):
        plan()
    assert bool((out == 50).all())
