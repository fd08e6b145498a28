"""8-bit products with a scale for each row of A and each column of B, beside torch's, on the GPU of this machine.

    python -m benchmarks.row_scales                                     # ten shapes, sums fast
    python -m benchmarks.row_scales --accumulation promoted --shape 8192x8192x8192
    python -m benchmarks.row_scales --apart --shape 8192x8192x8192      # what of it the scales cost

Operands are e4m3, K-major, with float32 scales; the result is bf16. A contestant is one CUDA graph of launches on
operands that together are larger than L2; contestants take turns in rounds (`tilekit.bench.contest`), and the ratio is
taken within each. Results are compared with a float32 product before anything is timed. With ``--apart`` three more of
tilekit's are timed: the same config without scales, the one picked without them, and with them the one that the model
likes best of those whose consumers take turns.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, cast

import typer

import tilekit
from tilekit.bench.clocks import ClockSampler
from tilekit.bench.contest import QUICK, hold
from tilekit.bench.machine import require_machine
from tilekit.kernels.matmul.picker import ranked
from tilekit.kernels.matmul.spec import Accumulation
from tilekit.targets import SM_90A

SHAPES = (
    *("4096x4096x4096", "8192x8192x8192", "2048x7168x2048", "128x7168x16384", "64x8192x8192", "304x5120x5120"),
    *("1024x4096x11008", "336x11392x4032", "1536x1536x8960", "16x4608x3584"),
)

FAR = 1e-2
"""Of the product's norm, what a result may be away: bf16 rounds to a third of it."""


def contestants(
    torch: Any, m: int, n: int, k: int, sets: int, accumulation: Accumulation, *, apart: bool = False
) -> dict[str, Callable[[], None]]:
    """One pass of each over all operand sets, checked; with `apart` those that tell what scales cost too."""
    ours: list[Callable[[], Any]] = []
    theirs: list[Callable[[], Any]] = []
    more: dict[str, list[Callable[[], Any]]] = {}
    for _ in range(sets):
        a, b = (torch.randn(shape, device="cuda").to(torch.float8_e4m3fn) for shape in ((m, k), (n, k)))
        rows, columns = (torch.rand(shape, device="cuda") + 0.5 for shape in ((m, 1), (1, n)))
        out, other = (torch.full((m, n), math.nan, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        how = {"scale_a": rows, "scale_b": columns, "accumulation": accumulation}
        kernel = tilekit.kernel_for(a, b.T, out=out, **how)
        ours.append(kernel.bind(a, b.T, out, scale_a=rows, scale_b=columns))

        def scaled(a: Any = a, b: Any = b, rows: Any = rows, columns: Any = columns, out: Any = other) -> None:
            fast = accumulation == "fast"
            torch._scaled_mm(a, b.T, rows, columns, out_dtype=torch.bfloat16, use_fast_accum=fast, out=out)

        theirs.append(scaled)
        if apart:
            turns = _taking_turns(kernel, m, n, k)
            with_turns = tilekit.kernel_for(a, b.T, out=out, config=turns, **how)
            without = tilekit.kernel_for(a, b.T, out=out, config=kernel.config, accumulation=accumulation)
            picked = tilekit.kernel_for(a, b.T, out=out, accumulation=accumulation)
            more.setdefault(f"in turn: {turns}", []).append(with_turns.bind(a, b.T, out, scale_a=rows, scale_b=columns))
            more.setdefault(f"no scales: {kernel.config}", []).append(without.bind(a, b.T, out))
            more.setdefault(f"no scales, as picked: {picked.config}", []).append(picked.bind(a, b.T, out))
        for work, found in ((ours[-1], out), (scaled, other)):
            work()
            if len(ours) == 1:
                wanted = (a.float() @ b.float().T) * rows * columns
                far = float((found.float() - wanted).norm() / wanted.norm())
                assert far < FAR, f"the result is {far:.1%} of its norm away"

    def each(work: list[Callable[[], Any]]) -> Callable[[], None]:
        def launch() -> None:
            for one in work:
                one()

        return launch

    torch.cuda.synchronize()
    return {"tilekit": each(ours), "torch": each(theirs)} | {name: each(work) for name, work in more.items()}


def _taking_turns(kernel: Any, m: int, n: int, k: int) -> Any:
    """The config that the model likes best where consumers take turns."""
    entries = ranked(kernel.spec, SM_90A, m=m, n=n, k=k)
    return next(entry.config for entry in entries if getattr(entry.config, "pingpong", False))


def main(
    shape: Annotated[list[str] | None, typer.Option(help="MxNxK")] = None,
    accumulation: Annotated[str, typer.Option(help="fast or promoted")] = "fast",
    seconds: Annotated[float, typer.Option(help="for each shape")] = 2.0,
    apart: Annotated[bool, typer.Option(help="also what tells what the scales cost")] = False,
    path: Annotated[Path | None, typer.Option("--json", help="where to keep the times")] = None,
) -> None:
    """Time each shape; print microseconds a launch, worst ratio first."""
    import torch

    machine, found = require_machine(), []
    with ClockSampler(machine.uuid) as sampler:
        for size in shape or SHAPES:
            m, n, k = (int(extent) for extent in size.split("x"))
            sets = max(2, -(-3 * machine.l2_bytes // (m * k + n * k + 2 * m * n)))
            passes = contestants(torch, m, n, k, sets, cast("Accumulation", accumulation), apart=apart)
            timings = hold(machine, passes, sets, seconds, sampler, pace=QUICK, with_bursts=False)
            pairs = zip(timings["torch"].rounds, timings["tilekit"].rounds, strict=True)
            ratio = statistics.median(theirs / ours for theirs, ours in pairs)
            found.append((ratio, size, {who: statistics.median(timing.rounds) for who, timing in timings.items()}))
    found.sort(key=lambda entry: entry[0])
    print(f"{'e4m3, ' + accumulation:18} {'tilekit us':>10} {'torch us':>10} {'ratio':>6}")
    for ratio, size, us in found:
        print(f"{size:18} {us['tilekit']:10.2f} {us['torch']:10.2f} {ratio:6.3f}")
        for who, taken in us.items():
            if who not in ("tilekit", "torch"):
                print(f"{'':18} {taken:10.2f} {'':10} {us['torch'] / taken:6.3f}  {who}")
    print(f"geometric mean {statistics.geometric_mean(ratio for ratio, *_ in found):.3f}")
    if path is not None:
        rows = [{"shape": size, "ratio": ratio, "us": us} for ratio, size, us in found]
        path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
