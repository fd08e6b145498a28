"""Composed kernels of arrays in GPU memory: what reaches the driver, and which chips and memory are refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import upright
from composed import example
from test_composed_kernel import ADD, add

import tilekit.compose as tk
from tilekit.arrays import ArrayView
from tilekit.errors import ArgumentError
from tilekit.runtime import driver


class FakeKernel:
    """A kernel in a driver that only records."""

    def __init__(self) -> None:
        self.prepared: list[tuple[Any, ...]] = []
        self.streams: list[int] = []

    def max_active_clusters(self, config: Any, *, ordinal: int) -> int:
        """So many."""
        return 132

    def prepare(
        self, config: Any, parameters: Any, *, ordinal: int, shares: Any, description: str = "", owns: Any = None
    ) -> Any:
        """Keep what was asked for."""
        self.prepared.append((config, parameters, ordinal, shares))
        return self.streams.append


def device_view(address: int, dtype: Any, *shape: int) -> ArrayView:
    """An array in the memory of GPU 1, in C order."""
    strides = (shape[1], 1) if len(shape) == 2 else (1,)
    return ArrayView(address, shape, strides, dtype, ("cuda", 1), "jax", None)


def test_arrays_in_gpu_memory_are_used_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Addresses, grid and what a stream's launches share reach the driver; a call is one launch in its stream."""
    fake = FakeKernel()
    device = SimpleNamespace(compute_capability=(9, 0), name="some GPU")
    monkeypatch.setattr(driver, "devices", lambda: [device, device])
    kernel = upright.matmul(
        epilogue=lambda w, made: (
            upright.staged(
                w,
                made,
                tk.Fused(lambda w, x: x, row_sums=tk.RowSums(w, "sums", layout=made.layout, raster=made.raster)),
            ),
            None,
        ),
        outputs=(upright.D, upright.SUMS),
    )
    kernel.__dict__["cuda"] = fake
    arrays = {
        "a": device_view(0x1000, tk.BF16, 130, 64),
        "b": device_view(0x20000, tk.BF16, 72, 64),
        "d": device_view(0x40000, tk.BF16, 130, 72),
        "sums": device_view(0x80000, tk.F32, 130),
    }
    launch = kernel.bind(**arrays)
    assert launch.out == (arrays["d"], arrays["sums"])
    assert launch(stream=77) is launch.out
    assert fake.streams == [77]
    ((config, parameters, ordinal, shares),) = fake.prepared
    assert (config.grid, config.block, ordinal) == ((6, 1, 1), (256, 1, 1), 1)
    values = dict(zip((p.name for p in kernel.traced.parameters), parameters, strict=True))
    assert values["sums"].address == 0x80000
    assert values["a_map"].address == 0x1000
    names = {kernel.traced.parameters[share.index].name: share for share in shares}
    assert set(names) == {"sums_parts", "sums_counters"}
    assert names["sums_parts"].size == 4 * 2 * 192
    assert names["sums_counters"].size == 4 * 192 // 16
    assert len({share.name for share in shares}) == 2


def test_another_chip_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays on a GPU that the kernel was not built for are an error of the call."""
    blackwell = SimpleNamespace(compute_capability=(10, 0), name="another GPU")
    monkeypatch.setattr(driver, "devices", lambda: [blackwell, blackwell])
    vectors = {name: device_view(0x1000 * at, tk.F32, 64) for at, name in enumerate(("x", "y", "out"), 1)}
    with pytest.raises(ArgumentError, match="TK-API-001"):
        add.bind(**vectors)


def test_memory_goes_by_its_parameters_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device, memory asked for under another name than its parameter's is an error that says so."""
    device = SimpleNamespace(compute_capability=(9, 0), name="some GPU")
    monkeypatch.setattr(driver, "devices", lambda: [device, device])

    @tk.kernel(*ADD, target="sm_90a", threads=64)
    def confused(w: tk.Writer) -> Any:
        w.parameter("workspace", tk.registers.GMEM, lambda call: call.allocate("memory", 64))
        return add._compose(w)

    confused.__dict__["cuda"] = FakeKernel()
    vectors = {name: device_view(0x1000 * at, tk.F32, 64) for at, name in enumerate(("x", "y", "out"), 1)}
    with pytest.raises(ArgumentError, match=r"memory 'memory', but the parameter.*workspace.*TK-PAR-003"):
        confused.bind(**vectors)


@pytest.mark.gpu
def test_torch_tensors_on_a_gpu() -> None:
    """Tensors on a GPU are used in place, in two streams, again and again; the int8 kernel takes torch's int8."""
    torch = pytest.importorskip("torch")
    gated, int8 = example("gated_row_sums.py", "gated_matmul"), example("int8_weights.py", "int8_matmul")
    rng = np.random.default_rng(9)
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            for m, n, k in ((200, 264, 72), (1000, 1032, 136), (200, 264, 72)):
                a, b, gate = (
                    torch.tensor(rng.integers(-3, 4, shape), dtype=torch.bfloat16, device="cuda")
                    for shape in ((m, k), (n, k), (m, n))
                )
                exact = (a.double() @ b.double().T) * gate.double()
                d, sums = gated(a, b, gate)
                assert (d == exact.to(torch.bfloat16)).all()
                assert (sums == exact.sum(1).float()).all()
                weights = torch.tensor(rng.integers(-7, 8, (n, k)), dtype=torch.int8, device="cuda")
                scale = torch.tensor(2.0 ** rng.integers(-2, 3, n), dtype=torch.float32, device="cuda")
                exact = (a.double() @ weights.double().T) * scale.double()
                assert (int8(a, weights, scale) == exact.to(torch.bfloat16)).all()
        torch.cuda.synchronize()
