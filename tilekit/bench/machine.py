"""What the harness asks of an array library on a GPU: data, a reference product, graphs and device time."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from tilekit.bench.accuracy import activated
from tilekit.bench.blockwise import Scales
from tilekit.bench.scaled import LaidOut
from tilekit.bench.workload import Fused
from tilekit.dtypes import S8, DType
from tilekit.errors import ArgumentError, DriverError
from tilekit.kernels.matmul.spec import Accumulation
from tilekit.runtime import driver

__all__ = ["CupyMachine", "Machine", "TorchMachine", "find_machine", "require_machine"]

WHOLE_DEVIATION = 32.0
"""Standard deviation of signed bytes."""


class Machine(Protocol):
    """A GPU, driven through one array library. All work goes to the library's current stream."""

    library: str
    """Name and version of the library."""
    device: str
    """Name of the GPU."""
    uuid: str
    """``GPU-...``, as NVML and nvidia-smi know it."""
    capability: tuple[int, int]
    """Compute capability."""
    l2_bytes: int

    def normal(self, shape: tuple[int, ...], dtype: DType, seed: int) -> Any:
        """Return standard normal values rounded to ``dtype``, C-ordered; of s8 `WHOLE_DEVIATION` times as large."""
        ...

    def upload(self, values: np.ndarray[Any, Any]) -> Any:
        """Return a device copy, C-ordered, of a host array of one of tilekit's element types."""
        ...

    def download(self, array: Any) -> np.ndarray[Any, Any]:
        """Return a host copy in float64."""
        ...

    def empty(self, shape: tuple[int, ...], dtype: DType) -> Any:
        """Return a new array, C-ordered."""
        ...

    def poison(self, array: Any) -> None:
        """Set every bit of the array, which is NaN in every floating-point format that tilekit knows."""
        ...

    accumulation: Accumulation
    """How every contestant sums products of 8-bit operands, so that like is compared with like."""

    def matmul(self, a: Any, b: Any, out: Any) -> None:
        """Compute the library's own product into ``out``, by its default choice of algorithm."""
        ...

    def fused(self, a: Any, b: Any, fused: Fused, out: Any) -> None:
        """Compute the library's own product with a bias and a gelu behind it, in one call, into ``out``."""
        ...

    def blockwise(self, a: Any, b: Any, scales: Scales, out: Any) -> None:
        """Compute the library's own product of 8-bit operands with scales of blocks into ``out``."""
        ...

    def block_scaled(self, a: Any, b: Any, scales: LaidOut, out: Any) -> None:
        """Compute the library's own product of operands in a block-scaled format into ``out``."""
        ...

    def finished(self, product: Any, fused: Fused) -> Any:
        """Return a float32 product with what is fused behind it."""
        ...

    def single(self, array: Any) -> Any:
        """Return the values in float32."""
        ...

    def one(self) -> Any:
        """Return a scalar 1 of float32 on the device, always the same one: the scale of 8-bit products."""
        ...

    def product(self, a: Any, b: Any) -> Any:
        """Return ``a @ b`` in float32, of operands of any type: what answers are compared with."""
        ...

    def softmax(self, scores: Any, added: Any, cap: float | None) -> Any:
        """Return the softmax of float32 scores, bounded by a cap and then added to; zeros of minus infinities alone."""
        ...

    def any_nan(self, array: Any) -> bool:
        """Return whether any element is NaN."""
        ...

    def distance(self, array: Any, expected: Any) -> float:
        """Return the Frobenius norm of the difference over that of ``expected``, which is float32."""
        ...

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Capture ``work`` in a CUDA graph and return its replay."""
        ...

    def time(self, replay: Callable[[], None], count: int) -> float:
        """Return the device seconds of ``count`` replays, and wait for them."""
        ...

    def light_load(self, seconds: float) -> None:
        """Keep the card lightly busy, so that its clock comes up without heating it."""
        ...

    def synchronize(self) -> None:
        """Wait for the device."""
        ...


def find_machine() -> Machine | None:
    """Return torch's GPU, else CuPy's, else None."""
    if importlib.util.find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            return TorchMachine(torch)
    if importlib.util.find_spec("cupy") is not None:
        import cupy

        try:
            if cupy.cuda.runtime.getDeviceCount() > 0:
                return CupyMachine(cupy)
        except cupy.cuda.runtime.CUDARuntimeError:
            return None
    return None


def require_machine() -> Machine:
    """Return the GPU that :func:`find_machine` finds.

    Raises
    ------
    DriverError
        ``TK-BENCH-002`` saying what is missing.
    """
    machine = find_machine()
    if machine is None:
        why = driver.why_unavailable() or "a GPU is here, but neither torch nor CuPy: pip install torch or cupy-cuda13x"
        raise DriverError(f"benchmarks need a GPU: {why}", code="TK-BENCH-002")
    return machine


class TorchMachine:
    """The current CUDA device of torch."""

    accumulation: Accumulation = "fast"

    def __init__(self, torch: Any) -> None:
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self.torch = torch
        self.library = f"torch {torch.__version__}"
        self.device = str(properties.name)
        self.uuid = f"GPU-{properties.uuid}"
        self.capability = (int(properties.major), int(properties.minor))
        self.l2_bytes = int(properties.L2_cache_size)

    def normal(self, shape: tuple[int, ...], dtype: DType, seed: int) -> Any:
        generator = self.torch.Generator(device="cuda").manual_seed(seed)
        values = self.torch.randn(shape, generator=generator, device="cuda", dtype=self.torch.float32)
        if dtype is S8:
            values = (values * WHOLE_DEVIATION).clamp_(-128, 127)
        return values.to(self._type(dtype))

    def upload(self, values: np.ndarray[Any, Any]) -> Any:
        # Through the bits: torch does not know ml_dtypes.
        bits = np.ascontiguousarray(values).view(f"u{values.itemsize}")
        tensor = self.torch.from_numpy(bits).cuda()
        return tensor.view(getattr(self.torch, values.dtype.name))

    def download(self, array: Any) -> np.ndarray[Any, Any]:
        return np.asarray(array.double().cpu().numpy())

    def empty(self, shape: tuple[int, ...], dtype: DType) -> Any:
        return self.torch.empty(shape, device="cuda", dtype=self._type(dtype))

    def poison(self, array: Any) -> None:
        array.view(self.torch.uint8).fill_(0xFF)

    def matmul(self, a: Any, b: Any, out: Any) -> None:
        if a.dtype == self.torch.int8:
            self.torch._int_mm(a, b, out=out)
            return
        if a.element_size() > 1:
            settings = self.torch.backends.cuda.matmul
            before, settings.allow_tf32 = settings.allow_tf32, True  # as tilekit multiplies f32
            self.torch.matmul(a, b, out=out)
            settings.allow_tf32 = before
            return
        one = self.one()
        self.torch._scaled_mm(a, b, one, one, out_dtype=out.dtype, use_fast_accum=self.accumulation == "fast", out=out)

    def fused(self, a: Any, b: Any, fused: Fused, out: Any) -> None:
        if fused.activation != "gelu" or fused.bias is None:
            legal = "a bias and gelu, which torch has one call for"
            raise ArgumentError.of("activation", fused.activation, legal=legal, code="TK-BENCH-001")
        self.torch._addmm_activation(fused.bias, a, b, use_gelu=True, out=out)

    def blockwise(self, a: Any, b: Any, scales: Scales, out: Any) -> None:
        # As its ScaledBlas.cpp wants them: (M, K/128) with rows behind each other, and (K/128, N/128) with columns.
        self.torch._scaled_mm(a, b, scales.a, scales.b.mT, out_dtype=out.dtype, out=out)

    def block_scaled(self, a: Any, b: Any, scales: LaidOut, out: Any) -> None:
        # It tells the format from types, and takes scales as they are laid out, flat; bytes are pairs of e2m1.
        torch = self.torch
        if a.dtype == torch.uint8:
            a, b = a.view(torch.float4_e2m1fn_x2), b.view(torch.float4_e2m1fn_x2)
        kind = torch.float8_e8m0fnu if scales.a.dtype == torch.uint8 else scales.a.dtype
        flat = (one.view(kind).flatten() for one in (scales.a, scales.b))
        torch._scaled_mm(a, b, *flat, out_dtype=out.dtype, out=out)

    def finished(self, product: Any, fused: Fused) -> Any:
        if fused.bias is not None:
            product = product + fused.bias.float()
        if fused.activation is None:
            return product
        functional = self.torch.nn.functional
        if fused.activation == "gelu":
            return functional.gelu(product, approximate="tanh")
        return getattr(functional, fused.activation)(product)

    def single(self, array: Any) -> Any:
        return array.float()

    def one(self) -> Any:
        if not hasattr(self, "_one"):
            self._one = self.torch.ones((), device="cuda")
        return self._one

    def product(self, a: Any, b: Any) -> Any:
        return a.float() @ b.float()

    def softmax(self, scores: Any, added: Any, cap: float | None) -> Any:
        bounded = scores if cap is None else (scores / cap).tanh() * cap
        return (bounded + added).softmax(-1).nan_to_num(0.0)

    def any_nan(self, array: Any) -> bool:
        return bool(self.torch.isnan(array).any())

    def distance(self, array: Any, expected: Any) -> float:
        return float((array.float() - expected).norm() / expected.norm())

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            work()
        replay: Callable[[], None] = graph.replay
        return replay

    def time(self, replay: Callable[[], None], count: int) -> float:
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(count):
            replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def light_load(self, seconds: float) -> None:
        scratch = self.torch.empty(1 << 20, device="cuda", dtype=self.torch.uint8)
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            scratch.fill_(1)
            self.synchronize()

    def synchronize(self) -> None:
        self.torch.cuda.synchronize()

    def _type(self, dtype: DType) -> Any:
        return getattr(self.torch, dtype.long_name)


class CupyMachine:
    """The current device of CuPy."""

    accumulation: Accumulation = "fast"

    def __init__(self, cupy: Any) -> None:
        runtime = cupy.cuda.runtime
        properties = runtime.getDeviceProperties(runtime.getDevice())
        digits = bytes(properties["uuid"]).hex()
        self.cupy = cupy
        self.library = f"cupy {cupy.__version__}"
        self.device = properties["name"].decode()
        self.uuid = "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]))
        self.capability = (int(properties["major"]), int(properties["minor"]))
        self.l2_bytes = int(properties["l2CacheSize"])

    def normal(self, shape: tuple[int, ...], dtype: DType, seed: int) -> Any:
        values = self.cupy.random.RandomState(seed).standard_normal(shape, dtype=np.float32)
        if dtype is S8:
            values = (values * WHOLE_DEVIATION).clip(-128, 127)
        return values.astype(dtype.numpy)

    def upload(self, values: np.ndarray[Any, Any]) -> Any:
        return self.cupy.asarray(np.ascontiguousarray(values))

    def download(self, array: Any) -> np.ndarray[Any, Any]:
        return np.asarray(self.cupy.asnumpy(array.astype(np.float64)))

    def empty(self, shape: tuple[int, ...], dtype: DType) -> Any:
        return self.cupy.empty(shape, dtype=dtype.numpy)

    def poison(self, array: Any) -> None:
        array.view(np.uint8).fill(0xFF)

    def matmul(self, a: Any, b: Any, out: Any) -> None:
        self.cupy.matmul(a, b, out=out)

    def fused(self, a: Any, b: Any, fused: Fused, out: Any) -> None:
        legal = "None: CuPy has no call for a product with functions behind it"
        raise ArgumentError.of("activation", fused.activation, legal=legal, code="TK-BENCH-001")

    def blockwise(self, a: Any, b: Any, scales: Scales, out: Any) -> None:
        raise ArgumentError("CuPy has no product with scales of blocks; take torch", code="TK-BENCH-001")

    def block_scaled(self, a: Any, b: Any, scales: LaidOut, out: Any) -> None:
        raise ArgumentError("CuPy has no product of block-scaled operands; take torch", code="TK-BENCH-001")

    def finished(self, product: Any, fused: Fused) -> Any:
        values = self.cupy.asnumpy(product)
        if fused.bias is not None:
            values = values + self.cupy.asnumpy(fused.bias).astype(np.float32)
        return self.cupy.asarray(values if fused.activation is None else activated(values, fused.activation))

    def single(self, array: Any) -> Any:
        return array.astype(np.float32)

    def one(self) -> Any:
        if not hasattr(self, "_one"):
            self._one = self.cupy.ones((), np.float32)
        return self._one

    def product(self, a: Any, b: Any) -> Any:
        return self.cupy.matmul(a.astype(np.float32), b.astype(np.float32))

    def softmax(self, scores: Any, added: Any, cap: float | None) -> Any:
        return weights_of(self.cupy, scores, added, cap)

    def any_nan(self, array: Any) -> bool:
        return bool(self.cupy.isnan(array.astype(np.float32)).any())

    def distance(self, array: Any, expected: Any) -> float:
        norm = self.cupy.linalg.norm
        return float(norm((array.astype(np.float32) - expected).ravel()) / norm(expected.ravel()))

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        stream = self.cupy.cuda.Stream(non_blocking=True)
        with stream:
            # Pools and cuBLAS workspaces belong to a stream, and no memory may be allocated during the capture.
            work()
            stream.synchronize()
            stream.begin_capture()
            try:
                work()
            except NotImplementedError:
                # CuPy does not capture cuBLAS: such a pass is enqueued anew each time, and so includes its host time.
                stream.end_capture()
                return work
            graph = stream.end_capture()
        replay: Callable[[], None] = graph.launch
        return replay

    def time(self, replay: Callable[[], None], count: int) -> float:
        start, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
        start.record()
        for _ in range(count):
            replay()
        end.record()
        end.synchronize()
        return float(self.cupy.cuda.get_elapsed_time(start, end)) / 1e3

    def light_load(self, seconds: float) -> None:
        scratch = self.cupy.empty(1 << 20, dtype=np.uint8)
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            scratch.fill(1)
            self.synchronize()

    def synchronize(self) -> None:
        self.cupy.cuda.runtime.deviceSynchronize()


def weights_of(xp: Any, scores: Any, added: Any, cap: float | None) -> Any:
    """The softmax that `Machine.softmax` asks for, by a library with NumPy's functions."""
    bounded = (scores if cap is None else xp.tanh(scores / cap) * cap) + added
    most = bounded.max(-1, keepdims=True)
    weights = xp.exp(bounded - xp.where(xp.isinf(most), 0.0, most))
    sums = weights.sum(-1, keepdims=True)
    return weights / xp.where(sums > 0, sums, 1.0)
