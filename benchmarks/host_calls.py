"""What a call costs the host, without a GPU: ``python -m benchmarks.host_calls``.

Tensors and driver are stand-ins, so that only tilekit's own Python is counted. Of a first call it prints the function
calls inside tilekit, the files they are in, and how often the arrays and their product are read; of repeated calls the
microseconds. ``--against FOLDER`` runs another checkout beside it, in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

ROUNDS = 9
BLOCK = 0x10000

READERS = ("view_of", "matrix_view", "_view_torch", "read_problem", "read_gemv", "output_matrix")
"""Functions that read an array, or check the operands against each other."""


class Tensor:
    """A strided ``torch.Tensor`` on cuda:0 that has no memory."""

    is_cuda, is_cpu, requires_grad, device, layout = True, False, False, "cuda:0", "torch.strided"

    def __init__(self, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> None:
        self._address, self.shape, self._strides, self.dtype = address, shape, strides, dtype

    def data_ptr(self) -> int:
        return self._address

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def get_device(self) -> int:
        return 0

    def is_neg(self) -> bool:
        return False


Tensor.__module__ = "torch"


def stand_in() -> Any:
    """Put a module in torch's place, and a driver that launches nothing in the GPU's."""
    torch: Any = ModuleType("torch")
    kinds = {name: type("dtype", (), {"__repr__": lambda _, n=name: f"torch.{n}"}) for name in ("bfloat16", "int32")}
    for name, kind in kinds.items():
        kind.__module__ = "torch"
        setattr(torch, name, kind())
    torch.Tensor = Tensor
    torch.empty_strided = lambda shape, strides, dtype, device: Tensor(9 * BLOCK, shape, strides, dtype)
    torch.is_grad_enabled = lambda: True
    torch.autograd = SimpleNamespace(forward_ad=SimpleNamespace(_current_level=-1))
    torch._C = SimpleNamespace(_cuda_getCurrentRawStream=lambda _: 0x100)
    sys.modules["torch"] = torch

    from tilekit.kernels.gemv.compiled import GemvKernel
    from tilekit.kernels.matmul.compiled import MatmulKernel
    from tilekit.runtime import driver

    h200 = SimpleNamespace(name="NVIDIA H200", compute_capability=(9, 0), sms=132)
    driver.devices = lambda: (h200,)  # type: ignore[assignment]
    driver.why_unavailable = lambda: None  # type: ignore[assignment]
    launches = SimpleNamespace(prepare=lambda *_, **__: lambda _stream: None)
    for kind in (MatmulKernel, GemvKernel):
        kind.cuda = property(lambda _: launches)  # type: ignore[assignment]
        kind.resident_clusters = lambda _self, _ordinal: 66  # type: ignore[method-assign]
    return torch


def first_call(call: Any) -> dict[str, Any]:
    """Profile one call: function calls inside tilekit, files, and readings."""
    import tilekit

    root = str(Path(tilekit.__file__).parent)
    calls: Counter[tuple[str, str]] = Counter()

    def note(frame: Any, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root):
            owner = type(frame.f_locals["self"]).__name__ if "self" in frame.f_locals else ""
            calls[code.co_filename, f"{owner}.{code.co_name}" if code.co_name == "__post_init__" else code.co_name] += 1

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    reads = {name: sum(n for (_, called), n in calls.items() if called == name) for name in READERS}
    specs = sum(n for (_, called), n in calls.items() if called == "MatmulSpec.__post_init__")
    return {
        "calls": sum(calls.values()),
        "files": len({file for file, _ in calls}),
        **reads,
        "MatmulSpec": specs,
    }


def measured() -> dict[str, dict[str, Any]]:
    """Every figure of this checkout."""
    torch = stand_in()
    import tilekit

    def matrix(block: int, *shape: int) -> Tensor:
        strides = [1]
        for extent in shape[:0:-1]:
            strides.insert(0, strides[0] * extent)
        return Tensor(block * BLOCK, shape, tuple(strides), torch.bfloat16)

    a, b, out = matrix(1, 64, 64), matrix(2, 64, 64), matrix(5, 64, 64)
    row, wide, thin = matrix(1, 1, 64), Tensor(2 * BLOCK, (64, 64), (1, 64), torch.bfloat16), matrix(5, 1, 64)
    experts = matrix(3, 2, 64, 64)
    ends = Tensor(4 * BLOCK, (2,), (1,), torch.int32)
    config = tilekit.MatmulConfig((64, 128), (1, 1), 1)

    def grouped() -> Any:
        return tilekit.grouped_matmul(a, experts, ends, out=out, config=config)

    calls = {
        "matmul(a, b)": lambda: tilekit.matmul(a, b),
        "matmul(a, b, out=c)": lambda: tilekit.matmul(a, b, out=out),
        "matmul, 1 row, out=c": lambda: tilekit.matmul(row, wide, out=thin),
        "grouped_matmul, out=c": grouped,
    }
    found: dict[str, dict[str, Any]] = {}
    for call in calls.values():
        call()  # traces the kernel, once a process
    for name, call in calls.items():
        forget()
        found[name] = first_call(call)
    plan = tilekit.kernel_for(a, b, out=out).bind(a, b, out)
    host = {"plan()": plan, **calls, "matmul(a, b), first": lambda: (forget(), tilekit.matmul(a, b))}
    for name, call in host.items():
        found.setdefault(name, {})["us"] = microseconds(call, 300 if "first" in name else 20_000)
    return found


def forget() -> None:
    """Drop what is kept of earlier calls."""
    from tilekit.kernels.launch_cache import LaunchCache

    loaded = [module for name, module in sys.modules.items() if name.startswith("tilekit.")]
    for cache in [value for module in loaded for value in vars(module).values() if isinstance(value, LaunchCache)]:
        cache.launches.clear()
        cache.outputs.clear()


def microseconds(call: Any, count: int) -> float:
    """Processor time of the quickest of a few rounds."""
    times = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(count):
            call()
        times.append((time.process_time() - start) / count)
    return min(times) * 1e6


def of_checkout(folder: Path) -> dict[str, dict[str, Any]]:
    """Figures of a checkout, in a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), "--json"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, env=environment, cwd=folder, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="another checkout of tilekit")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.json:
        print(json.dumps(measured()))
        return
    checkouts = [folder for folder in (arguments.against, Path(__file__).resolve().parents[1]) if folder]
    rounds: list[list[dict[str, dict[str, Any]]]] = [[] for _ in checkouts]
    for _ in range(ROUNDS if len(checkouts) > 1 else 1):
        for folder, found in zip(checkouts, rounds, strict=True):
            found.append(of_checkout(folder.resolve()))
    for name, facts in rounds[-1][0].items():
        print(name)
        for fact in facts:
            values = [statistics.median(one[name][fact] for one in found) for found in rounds]
            print(f"  {fact:16}" + "".join(f"{value:>12.2f}" if fact == "us" else f"{value:>12}" for value in values))


if __name__ == "__main__":
    main()
