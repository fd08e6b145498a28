"""What only a GPU can show: streams, graphs, overlap of launches, and whose memory is kept."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit import ElementwiseSpec, MatmulConfig, MatmulSpec
from tilekit.dtypes import F32, as_dtype
from tilekit.errors import ArgumentError
from tilekit.targets import SM_90A

pytestmark = pytest.mark.gpu

CONFIGS = (
    None,
    MatmulConfig((64, 64), (1, 1), consumers=1),
    MatmulConfig((128, 128), (2, 2), stages=3),
    MatmulConfig((128, 256), (2, 1), in_flight=0),
    MatmulConfig((64, 256), (2, 1), schedule="pingpong"),
)
SLEEP_SECONDS = 0.3
CLOCK = SM_90A.boost_mhz * 1e6
"""Cycles a second at most; at a lower clock the sleep is longer, which does no harm."""


@pytest.fixture
def sleep(torch: Any) -> Callable[[], None]:
    """Keep the current stream busy for some tenths of a second, without keeping the host."""
    return lambda: torch.cuda._sleep(int(SLEEP_SECONDS * CLOCK))


def integers(torch: Any, *shape: int, seed: int = 0, dtype: str = "bfloat16", most: int = 3) -> Any:
    """Small integers."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    drawn = torch.randint(-most, most + 1, shape, device="cuda", generator=generator, dtype=torch.int32)
    return drawn.float().to(getattr(torch, dtype))


def product(a: Any, b: Any) -> Any:
    """The exact product, in the type of `a`."""
    return exact(a, b).float().to(a.dtype)


def exact(a: Any, b: Any) -> Any:
    """The product in float64."""
    return a.float().double() @ b.float().double()


def poison(*tensors: Any) -> None:
    """Fill with NaN."""
    for tensor in tensors:
        tensor.fill_(float("nan"))


def same_bits(torch: Any, left: Any, right: Any) -> bool:
    """Whether two tensors of 16- or 32-bit elements are equal bit for bit."""
    words = torch.int16 if left.element_size() == 2 else torch.int32
    return bool(torch.equal(left.contiguous().view(words), right.contiguous().view(words)))


def test_results_are_of_the_caller_s_library(torch: Any, cupy: Any) -> None:
    """torch gives torch and CuPy gives CuPy, on the arrays' device, of the shape and type asked for."""
    a, b = integers(torch, 70, 64), integers(torch, 64, 96)
    made = tilekit.matmul(a, b, out_dtype=torch.float32)
    assert isinstance(made, torch.Tensor)
    assert (made.device, made.dtype, tuple(made.shape)) == (a.device, torch.float32, (70, 96))
    assert torch.equal(made.double(), a.double() @ b.double())
    x, y = cupy.ones((70, 64), cupy.float16), cupy.ones((64, 96), cupy.float16)
    made = tilekit.matmul(x, y)
    assert isinstance(made, cupy.ndarray)
    assert (made.dtype, made.shape) == (np.float16, (70, 96))
    assert bool((made == 64).all())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_cupy_arrays_in_and_out(cupy: Any, dtype: str) -> None:
    """CuPy arrays, bfloat16, transposed ones and given outputs are exact, and what lies around them is left alone."""
    kind = np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (130, 200)).astype(kind)
    b = rng.integers(-3, 4, (96, 200)).astype(kind)
    expected = (a.astype(np.float64) @ b.T.astype(np.float64)).astype(np.float32).astype(kind)
    x, y = cupy.asarray(a), cupy.asarray(b)
    assert np.array_equal(tilekit.matmul(x, y.T).get().view(np.uint16), expected.view(np.uint16))
    around = cupy.asarray(np.full((140, 104), 9, kind))
    result = tilekit.matmul(x, y.T, out=around[4:134, :96], bias=cupy.zeros(96, cupy.float32))
    assert np.array_equal(result.get().view(np.uint16), expected.view(np.uint16))
    host = around.get().astype(np.float32)
    assert (host[:4] == 9).all()
    assert (host[134:] == 9).all()
    assert (host[:, 96:] == 9).all()


@pytest.mark.usefixtures("torch")
def test_numpy_arrays_on_the_gpu() -> None:
    """target="cuda" computes NumPy arrays, views of padded ones too, on the GPU and copies back what was asked for."""
    rng = np.random.default_rng(1)
    a = rng.integers(-3, 4, (100, 80)).astype(ml_dtypes.bfloat16)[:, :77]
    b = rng.integers(-3, 4, (77, 56)).astype(ml_dtypes.bfloat16)
    around = np.full((110, 60), 5, np.float32)
    result = tilekit.matmul(a, b, out=around[3:103, 1:57], target="cuda")
    assert np.array_equal(result.astype(np.float64), a.astype(np.float64) @ b.astype(np.float64))
    around[3:103, 1:57] = 5
    assert (around == 5).all()


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_a_graph_replays_with_new_inputs(torch: Any, config: MatmulConfig | None) -> None:
    """Launches captured into a CUDA graph compute, at each replay, what their inputs hold by then."""
    a, b = integers(torch, 300, 256), integers(torch, 256, 200, seed=1)
    c = tilekit.matmul(a, b, config=config)
    tilekit.matmul(c, b.T, config=config, out_dtype=torch.float32)  # loads the kernel, which a capture may not
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tilekit.matmul(a, b, out=c, config=config)
        d = tilekit.matmul(c, b.T, config=config, out_dtype=torch.float32)
    for seed in range(2, 5):
        a.copy_(integers(torch, 300, 256, seed=seed, most=1))
        b.copy_(integers(torch, 256, 200, seed=seed + 10, most=1))
        poison(c, d)
        graph.replay()
        torch.cuda.synchronize()
        assert same_bits(torch, c, product(a, b))
        assert torch.equal(d.double(), c.double() @ b.double().T)


def test_streams_are_independent(torch: Any) -> None:
    """Two streams that take turns each see their own data in their own order."""
    streams = [torch.cuda.Stream() for _ in range(2)]
    sets = [(integers(torch, 512, 512, seed=s), integers(torch, 512, 512, seed=s + 5)) for s in range(2)]
    results: list[list[Any]] = [[], []]
    torch.cuda.synchronize()
    for turn in range(20):
        for stream, (a, b), kept in zip(streams, sets, results, strict=True):
            with torch.cuda.stream(stream):
                kept.append(tilekit.matmul(a, b, scale=float(turn + 1), out_dtype="f32"))
    torch.cuda.synchronize()
    for (a, b), kept in zip(sets, results, strict=True):
        true = exact(a, b)
        assert all(torch.equal(made.double(), true * (turn + 1)) for turn, made in enumerate(kept))


@pytest.mark.parametrize("how", ["current", "object", "handle"])
def test_work_goes_to_the_stream_that_was_meant(torch: Any, sleep: Callable[[], None], how: str) -> None:
    """Behind a long kernel on the stream that is current, or given, nothing is written until that kernel is done."""
    a, b = integers(torch, 256, 256), integers(torch, 256, 256, seed=1)
    out = torch.empty(256, 256, device="cuda").bfloat16()
    tilekit.matmul(a, b, out=out)
    expected = product(a, b)
    poison(out)
    assert bool(out.isnan().all())  # also loads the kernels that look at `out` behind the long one
    stream, watcher = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        sleep()
        if how == "current":
            tilekit.matmul(a, b, out=out)
    if how != "current":
        tilekit.matmul(a, b, out=out, stream=stream if how == "object" else stream.cuda_stream)
    with torch.cuda.stream(watcher):
        untouched = bool(out.isnan().all())
    assert not stream.query(), "the long kernel was over too early for this test to mean anything"
    assert untouched
    stream.synchronize()
    assert same_bits(torch, out, expected)


def test_a_call_waits_for_nothing(torch: Any, sleep: Callable[[], None]) -> None:
    """With a long kernel ahead, a cached call, a first call for new arrays and a plan all return before it is over."""
    a, b = integers(torch, 256, 256), integers(torch, 256, 256, seed=1)
    scale, other = torch.tensor([2.0], device="cuda"), torch.tensor([3.0], device="cuda")
    plan = tilekit.compile(MatmulSpec(b_major="mn")).bind(a, b)
    plan()
    tilekit.matmul(a, b, scale=scale)
    torch.cuda.synchronize()
    for call in (lambda: tilekit.matmul(a, b, scale=scale), lambda: tilekit.matmul(a, b, scale=other), plan):
        sleep()
        done = torch.cuda.Event()
        done.record()
        started = time.perf_counter()
        call()
        took = time.perf_counter() - started
        assert not done.query()
        assert took < SLEEP_SECONDS / 3
        torch.cuda.synchronize()


@pytest.mark.parametrize("config", CONFIGS[1:], ids=str)
def test_plans_are_reusable_and_results_deterministic(torch: Any, config: MatmulConfig) -> None:
    """A plan called a hundred times on poisoned output gives the same bits each time, also with normal numbers."""
    a, b = torch.randn(515, 1000, device="cuda").half(), torch.randn(392, 1000, device="cuda").half()
    spec = MatmulSpec("f16", "f16", "f32", functions=ElementwiseSpec(bias=F32, activation="gelu"))
    out = torch.empty(515, 392, device="cuda")
    plan = tilekit.compile(spec, config=config).bind(a, b.T, out, bias=torch.randn(392, device="cuda"))
    assert plan() is out
    first = out.clone()
    assert not first.isnan().any()
    differing = 0
    for _ in range(100):
        poison(out)
        plan()
        differing += not same_bits(torch, out, first)
    assert differing == 0


def test_cached_calls_read_memory_anew(torch: Any) -> None:
    """The second call of a cached launch sees changed operands, bias and scale."""
    a, b = integers(torch, 128, 64), integers(torch, 64, 128)
    bias, scale = torch.zeros(128, device="cuda"), torch.ones(1, device="cuda")
    out = torch.empty(128, 128, device="cuda")
    for turn in range(1, 5):
        a.copy_(integers(torch, 128, 64, seed=turn))
        bias.fill_(turn)
        scale.fill_(2.0**-turn)
        tilekit.matmul(a, b, out=out, bias=bias, scale=scale)
        assert torch.equal(out.double(), a.double() @ b.double() * 2.0**-turn + turn)


def test_another_layout_at_the_same_address_is_another_launch(torch: Any) -> None:
    """Views of one memory with other shapes and strides are not mistaken for each other."""
    memory = integers(torch, 128 * 128)
    for rows, columns in ((128, 128), (64, 256), (256, 64)):
        a = memory.view(rows, columns)
        assert same_bits(torch, tilekit.matmul(a, a.T), product(a, a.T))
        assert same_bits(torch, tilekit.matmul(a.T, a), product(a.T, a))


def test_launches_in_a_row_depend_on_each_other(torch: Any) -> None:
    """200 products, each of the one before, between two arrays in turn: none reads or writes too early."""
    n = 512
    shift = torch.zeros(n, n, device="cuda").bfloat16()
    shift[torch.arange(n), (torch.arange(n) + 1) % n] = 1
    ping = torch.arange(n * n, device="cuda").remainder(251).view(n, n).bfloat16()
    pong, start = torch.empty_like(ping), ping.clone()
    for config in CONFIGS:
        ping.copy_(start)
        for _ in range(100):
            tilekit.matmul(ping, shift, out=pong, config=config)
            tilekit.matmul(pong, shift, out=ping, config=config)
        assert torch.equal(ping, start.roll(200, dims=1))


def test_launches_mix_with_the_library_s_kernels(torch: Any) -> None:
    """Between launches torch changes operand, bias and result; every launch sees exactly what came before it."""
    a, b = integers(torch, 384, 256, most=1), integers(torch, 256, 384, most=1)
    bias, out = torch.zeros(384, device="cuda"), torch.empty(384, 384, device="cuda")
    total, true = torch.zeros_like(out), torch.zeros_like(out).double()
    for turn in range(50):
        a.neg_()
        bias.add_(1)
        tilekit.matmul(a, b, out=out, bias=bias)
        total += out
        out.fill_(float("nan"))
        true += exact(a, b) + (turn + 1)
    assert torch.equal(total.double(), true)


def test_no_array_is_kept_alive(torch: Any) -> None:
    """Results and operands die with the caller's last reference, although their launch is cached."""
    b = integers(torch, 256, 256)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for turn in range(5):
        a = integers(torch, 512, 256, seed=turn)
        out = tilekit.matmul(a, b)
        assert same_bits(torch, out, product(a, b))
        references = [weakref.ref(a), weakref.ref(out)]
        del a, out
        gc.collect()
        assert [reference() for reference in references] == [None, None]
    assert torch.cuda.memory_allocated() == before


def test_threads_have_launches_of_their_own(torch: Any) -> None:
    """Four threads calling at once, each on its stream, do not disturb each other."""
    failures: list[str] = []

    def work(seed: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            a, b = integers(torch, 200, 136, seed=seed), integers(torch, 136, 264, seed=seed + 1)
            expected = product(a, b)
            for _ in range(30):
                if not same_bits(torch, tilekit.matmul(a, b), expected):
                    failures.append(f"thread {seed}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_arrays_of_two_places_are_refused(torch: Any, cupy: Any) -> None:
    """CUDA with CPU tensors, torch with NumPy, torch with CuPy: the message names both arguments and where they are."""
    a, b = integers(torch, 64, 64), integers(torch, 64, 64)
    for call, says in (
        (lambda: tilekit.matmul(a, b.cpu()), ("a is torch on cuda:0", "b is torch on cpu")),
        (lambda: tilekit.matmul(a, np.zeros((64, 64), ml_dtypes.bfloat16)), ("b is numpy on cpu",)),
        (lambda: tilekit.matmul(a, cupy.zeros((64, 64), ml_dtypes.bfloat16)), ("b is cupy on cuda:0",)),
        (lambda: tilekit.matmul(a, b, out=torch.empty(64, 64).bfloat16()), ("out is torch on cpu",)),
        (lambda: tilekit.matmul(a, b, bias=torch.zeros(64)), ("bias is torch on cpu",)),
    ):
        with pytest.raises(ArgumentError) as caught:
            call()
        assert caught.value.code == "TK-ARRAY-007"
        assert all(part in str(caught.value) for part in says), str(caught.value)


def test_another_chip_cannot_be_meant(torch: Any) -> None:
    """Arrays on the GPU are computed by it: naming another chip is an error that says so, naming its own is not."""
    a = integers(torch, 64, 64)
    with pytest.raises(ArgumentError, match="target='sm_100a'"):
        tilekit.matmul(a, a, target="sm_100a")
    assert same_bits(torch, tilekit.matmul(a, a, target="sm_90a"), product(a, a))


def test_gradients_are_refused(torch: Any) -> None:
    """Operands that require a gradient are refused, under no_grad they are taken, and then refused again."""
    a, b = integers(torch, 64, 64).requires_grad_(), integers(torch, 64, 64)
    out = torch.empty_like(b)
    for _ in range(2):
        with pytest.raises(ArgumentError, match=r"detach\(\)"):
            tilekit.matmul(a, b, out=out)
        with torch.no_grad():
            tilekit.matmul(a, b, out=out)
    assert same_bits(torch, out, product(a.detach(), b))


@pytest.mark.parametrize(
    ("a_dtype", "b_dtype"), [("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"), ("e5m2", "e5m2")]
)
def test_fp8_tensors_give_bf16(torch: Any, a_dtype: str, b_dtype: str) -> None:
    """torch's fp8 tensors multiply in every pairing; without out_dtype the result is bf16."""
    a = integers(torch, 130, 256, dtype=as_dtype(a_dtype).long_name, most=2)
    b = integers(torch, 96, 256, dtype=as_dtype(b_dtype).long_name, most=2, seed=1)
    made = tilekit.matmul(a, b.T)
    assert made.dtype == torch.bfloat16
    assert same_bits(torch, made, exact(a, b.T).float().bfloat16())
